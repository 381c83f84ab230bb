//! Checked parsing of a frame to [`Headers`].

use crate::headers::{Headers, Malformed};
use crate::link::LinkType;

/// Parses a frame.
///
/// `bytes` is what was captured, `wire_len` how long the frame was on the wire (at least as long).
///
/// # Errors
/// What is wrong with the frame's headers.
pub fn parse(_link: LinkType, _bytes: &[u8], _wire_len: u32, _interface: u16) -> Result<Headers, Malformed> {
    Err(Malformed::LinkTruncated)
}
