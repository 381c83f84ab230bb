//! The memory of a core's frames.

use std::io;
use std::ptr::NonNull;

use interface::Area;
use locality::prefetch;

/// Frames of equal length in one mapping. Packets lie at addresses: offsets in the mapping.
#[derive(Debug)]
pub(crate) struct Umem {
    area: Area,
    /// Bytes of a frame, as the exponent of two.
    frame_bits: u32,
}

/// Bytes that the kernel keeps free ahead of a received packet (`XDP_PACKET_HEADROOM`).
pub(crate) const HEADROOM: u32 = 256;

impl Umem {
    pub(crate) fn new(frames: u32, frame_len: u32) -> io::Result<Self> {
        assert!(frame_len.is_power_of_two(), "the options are checked");
        Ok(Self { area: Area::anonymous(frames as usize * frame_len as usize)?, frame_bits: frame_len.ilog2() })
    }

    pub(crate) const fn len(&self) -> usize {
        self.area.len()
    }

    pub(crate) const fn frame_len(&self) -> u32 {
        1 << self.frame_bits
    }

    /// All of it, to register and to lend.
    pub(crate) const fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.area.start(), self.area.len())
    }

    /// The number of the frame that has this address.
    #[inline]
    pub(crate) const fn frame_at(&self, address: u64) -> u32 {
        (address >> self.frame_bits) as u32
    }

    /// The address of a frame's first byte.
    #[inline]
    pub(crate) const fn address(&self, frame: u32) -> u64 {
        (frame as u64) << self.frame_bits
    }

    /// True if these bytes lie in one frame.
    #[inline]
    pub(crate) fn is_within_frame(&self, address: u64, len: u32) -> bool {
        let frame_len = 1_u64 << self.frame_bits;
        let start = address & (frame_len - 1);
        address < self.area.len() as u64 && start + u64::from(len) <= frame_len
    }

    /// The address of these bytes, if they lie in the frames.
    #[inline]
    pub(crate) fn address_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.area.start().as_ptr() as usize)?;
        (offset < self.area.len()).then_some(offset as u64)
    }

    /// Prefetches a packet's first bytes, which the kernel has written on another processor.
    #[inline(always)]
    pub(crate) fn prefetch(&self, address: u64) {
        prefetch::address(self.area.start().as_ptr().wrapping_add(address as usize));
    }

    /// The number that a sequencer has put ahead of a packet, if there is room for one.
    ///
    /// # Safety
    /// As [`bytes`](Self::bytes).
    #[inline]
    pub(crate) unsafe fn stamped_number(&self, address: u64) -> Option<u64> {
        /// `struct stamp` of `bpf/xsk.c`: number and time.
        const STAMP: u64 = 16;
        let start = address.checked_sub(STAMP).filter(|start| self.frame_at(*start) == self.frame_at(address))?;
        // SAFETY: by contract.
        let stamp = unsafe { self.bytes(start, STAMP as u32) };
        stamp.first_chunk().map(|number| u64::from_ne_bytes(*number))
    }

    /// Bytes of a frame.
    ///
    /// # Safety
    /// The caller disposes of the frame: nobody writes to it meanwhile.
    ///
    /// # Panics
    /// They don't lie within a frame.
    #[inline]
    pub(crate) unsafe fn bytes(&self, address: u64, len: u32) -> &[u8] {
        assert!(self.is_within_frame(address, len), "a packet lies within a frame");
        // SAFETY: it lies in the mapping, which lives as long as `self`, and by contract nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.area.start().as_ptr().add(address as usize), len as usize) }
    }

    /// Writes the first bytes of a frame.
    ///
    /// # Safety
    /// The caller disposes of the frame: nobody else reads it or writes to it meanwhile.
    ///
    /// # Panics
    /// The bytes exceed the frame, or there is no such frame.
    #[inline]
    pub(crate) unsafe fn write(&self, frame: u32, bytes: &[u8]) {
        let address = self.address(frame);
        assert!(bytes.len() <= self.frame_len() as usize && self.is_within_frame(address, 0), "it fits in a frame");
        // SAFETY: it lies in the mapping, and by contract nobody else uses that part.
        unsafe {
            self.area.start().as_ptr().add(address as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}
