//! One side of a session: its first bytes.

/// Maximum number of bytes kept of each side.
pub const HEAD_MAX: usize = 64;

/// The first bytes of a side, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    bytes: [u8; HEAD_MAX],
    len: u8,
    /// The offset of the next byte in the stream; stops at its maximum.
    next: u32,
    /// Bytes are missing behind those that are kept.
    is_cut: bool,
    ended: bool,
}

impl Default for Side {
    fn default() -> Self {
        Self { bytes: [0; HEAD_MAX], len: 0, next: 0, is_cut: false, ended: false }
    }
}

impl Side {
    /// The first bytes, up to the first gap.
    #[inline]
    pub(super) fn head(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Takes the next bytes, and keeps those within the first `most`. Returns true if it keeps any.
    pub(super) fn add(&mut self, bytes: &[u8], most: usize) -> bool {
        self.next = self.next.saturating_add(bytes.len() as u32);
        let len = usize::from(self.len);
        let kept = if self.is_cut { 0 } else { bytes.len().min(most - len) };
        self.bytes[len..][..kept].copy_from_slice(&bytes[..kept]);
        self.len += kept as u8;
        kept > 0
    }

    /// Takes note that the next `len` bytes are missing.
    pub(super) const fn skip(&mut self, len: u32) {
        self.next = self.next.saturating_add(len);
        self.is_cut = true;
    }

    /// Takes note that nothing follows.
    pub(super) const fn end(&mut self) {
        self.ended = true;
    }

    /// Returns true if it has kept the first `most` bytes, or all that the side said.
    pub(super) const fn is_whole(&self, most: usize) -> bool {
        self.len as usize == most || (self.ended && !self.is_cut)
    }

    /// Returns true if a place so far ahead of the next byte is among the first `most` bytes.
    pub(super) const fn is_early(&self, ahead: u32, most: usize) -> bool {
        (self.next.saturating_add(ahead) as usize) < most
    }

    /// Returns true if bytes at an offset differ from those that are kept.
    pub(super) fn contradicts(&self, offset: u64, bytes: &[u8]) -> bool {
        let kept = usize::try_from(offset).ok().and_then(|offset| self.head().get(offset..)).unwrap_or_default();
        let overlap = kept.len().min(bytes.len());
        kept[..overlap] != bytes[..overlap]
    }
}
