//! The Internet checksum, whole (RFC 1071) and incremental (RFC 1624).

/// A one's complement sum that is still being added up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum(u32);
