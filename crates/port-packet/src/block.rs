//! A block of a TPACKET_V3 ring: the packets that the kernel has put into it, one behind the other (`linux/if_packet.h`).

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;

use libc::{sockaddr_ll, tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket3_hdr};

/// The memory of a block while it is ours. Only what is asked for is read, as other parts may be with a loan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a ()>,
}

/// A place in a block: the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    at: usize,
    left: u32,
}

/// A packet in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Offset of its bytes in the block, and their number.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) wire_len: u32,
    /// Time stamp of the kernel, in nanoseconds since the epoch.
    pub(crate) time: u64,
    /// True if the sender has left the checksum to the card, so that it isn't there.
    pub(crate) lacks_checksum: bool,
    /// The tag that the kernel has taken out: its protocol and its content.
    pub(crate) tag: Option<[u8; TAG_LEN]>,
}

/// A block that contradicts itself. What comes behind is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Bytes of a VLAN tag.
pub(crate) const TAG_LEN: usize = 4;
/// Bytes of both Ethernet addresses, which stand before a tag.
const ADDRESSES_LEN: usize = 12;
/// A packet's header, and the address behind it that says where it came from.
const HEADER_LEN: usize = libc::TPACKET3_HDRLEN;
const VARIANT: usize = offset_of!(tpacket3_hdr, hv1);
const FIRST: usize = offset_of!(tpacket_block_desc, hdr);
/// Where the status of a block stands in it: the word that says whose it is.
pub(crate) const STATUS: usize = FIRST + offset_of!(tpacket_hdr_v1, block_status);

const _: () = assert!(HEADER_LEN == size_of::<tpacket3_hdr>() + size_of::<sockaddr_ll>());

impl<'a> Block<'a> {
    /// A block in this memory.
    ///
    /// # Safety
    /// For `'a` the memory is there, and what is asked for below is written by nobody: the block was taken from the kernel and is not given
    /// back. Holders of loans touch only packets.
    pub(crate) const unsafe fn new(memory: NonNull<[u8]>) -> Self {
        Self { start: memory.cast(), len: memory.len(), memory: PhantomData }
    }

    /// The place of the first packet.
    pub(crate) fn first(self) -> Result<Cursor, Malformed> {
        let left = self.word(FIRST + offset_of!(tpacket_hdr_v1, num_pkts))?;
        let at = self.word(FIRST + offset_of!(tpacket_hdr_v1, offset_to_first_pkt))? as usize;
        if at < size_of::<tpacket_block_desc>() {
            return Err(Malformed);
        }
        Ok(Cursor { at, left })
    }

    /// The packet at the cursor; `None` at the end.
    pub(crate) fn frame(self, cursor: Cursor) -> Result<Option<Frame>, Malformed> {
        let Cursor { at, left } = cursor;
        if left == 0 {
            return Ok(None);
        }
        let word = |field: usize| self.word(at.checked_add(field).ok_or(Malformed)?);
        let half = |field: usize| self.half(at.checked_add(field).ok_or(Malformed)?);
        let mac = usize::from(half(offset_of!(tpacket3_hdr, tp_mac))?);
        let len = word(offset_of!(tpacket3_hdr, tp_snaplen))? as usize;
        let offset = at.checked_add(mac).ok_or(Malformed)?;
        let end = offset.checked_add(len).ok_or(Malformed)?;
        // The port has asked the kernel to leave room for a tag.
        if mac < HEADER_LEN + TAG_LEN || end > self.len {
            return Err(Malformed);
        }
        let status = word(offset_of!(tpacket3_hdr, tp_status))?;
        let has_tag = status & libc::TP_STATUS_VLAN_VALID != 0 && len >= ADDRESSES_LEN;
        let tag = if has_tag {
            let control = word(VARIANT + offset_of!(tpacket_hdr_variant1, tp_vlan_tci))? as u16;
            let protocol = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                half(VARIANT + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid))?
            } else {
                libc::ETH_P_8021Q as u16
            };
            let ([first, second], [third, fourth]) = (protocol.to_be_bytes(), control.to_be_bytes());
            Some([first, second, third, fourth])
        } else {
            None
        };
        let (seconds, nanos) = (word(offset_of!(tpacket3_hdr, tp_sec))?, word(offset_of!(tpacket3_hdr, tp_nsec))?);
        Ok(Some(Frame {
            offset,
            len,
            wire_len: word(offset_of!(tpacket3_hdr, tp_len))?.max(len as u32),
            time: u64::from(seconds) * 1_000_000_000 + u64::from(nanos),
            lacks_checksum: status & libc::TP_STATUS_CSUMNOTREADY != 0,
            tag,
        }))
    }

    /// The place behind `frame`, the packet at the cursor.
    pub(crate) fn next(self, cursor: Cursor, frame: Frame) -> Result<Cursor, Malformed> {
        let left = cursor.left.saturating_sub(1);
        if left == 0 {
            return Ok(Cursor { at: cursor.at, left });
        }
        let step = self.word(cursor.at.checked_add(offset_of!(tpacket3_hdr, tp_next_offset)).ok_or(Malformed)?)?;
        let at = cursor.at.checked_add(step as usize).ok_or(Malformed)?;
        // A header in a packet would be read while a loan's holder writes there.
        if at < frame.offset + frame.len {
            return Err(Malformed);
        }
        Ok(Cursor { at, left })
    }

    /// The bytes of a packet.
    ///
    /// # Safety
    /// `frame` is a frame of this block, and nobody else writes its bytes as long as they are borrowed.
    pub(crate) unsafe fn bytes(self, frame: Frame) -> &'a [u8] {
        debug_assert!(frame.offset + frame.len <= self.len);
        // SAFETY: `frame` has checked that the packet lies within the block.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(frame.offset), frame.len) }
    }

    /// Puts a tag back into its frame: the addresses move forward, into room that the kernel has left.
    ///
    /// # Safety
    /// `frame` is a frame of this block that has a tag, and nobody else accesses its bytes or those before it.
    pub(crate) unsafe fn restore_tag(self, frame: Frame, tag: [u8; TAG_LEN]) -> Frame {
        debug_assert!(frame.offset >= HEADER_LEN + TAG_LEN && frame.offset + frame.len <= self.len);
        // SAFETY: `frame` has checked that the room and the addresses are within the block.
        unsafe {
            let from = self.start.as_ptr().add(frame.offset);
            let to = from.sub(TAG_LEN);
            std::ptr::copy(from, to, ADDRESSES_LEN);
            std::ptr::copy_nonoverlapping(tag.as_ptr(), to.add(ADDRESSES_LEN), TAG_LEN);
        }
        Frame {
            offset: frame.offset - TAG_LEN,
            len: frame.len + TAG_LEN,
            wire_len: frame.wire_len.saturating_add(TAG_LEN as u32),
            tag: None,
            ..frame
        }
    }

    fn word(self, at: usize) -> Result<u32, Malformed> {
        self.read(at).map(u32::from_ne_bytes)
    }

    fn half(self, at: usize) -> Result<u16, Malformed> {
        self.read(at).map(u16::from_ne_bytes)
    }

    #[inline]
    fn read<const N: usize>(self, at: usize) -> Result<[u8; N], Malformed> {
        match at.checked_add(N) {
            // SAFETY: within the block, whose headers nobody writes meanwhile (`new`).
            Some(end) if end <= self.len => Ok(unsafe { self.start.add(at).cast::<[u8; N]>().read() }),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests;
