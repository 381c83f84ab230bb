//! The tag behind a header that leads back to its payload.

use std::ops::Range;

/// Number of bytes of a tag: the last ones of a frame.
///
/// All numbers are big-endian: magic (4 bytes), slot (4), generation (2), version (1), wish (1), length of the whole frame (4), check (4).
/// The check is a CRC-32 over a secret and all fields but the wish, which the function's side may set.
pub const TAG_BYTES: usize = 20;

const MAGIC: [u8; 4] = *b"MrPk";
const VERSION: u8 = 1;
const WISH: usize = 11;
const CHECK: Range<usize> = 16..20;

/// The secret of a split: nobody else can make tags that pass its check, but by luck (one in 2^32).
#[derive(Clone, Copy, Debug)]
pub struct Secret(pub u64);

/// A tag that passed the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) slot: u32,
    pub(crate) generation: u16,
    /// Length of the frame on the wire before it was split, in bytes.
    pub(crate) whole_len: u32,
}

/// What is to become of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Join it, once.
    Join,
    /// Join it, and keep it for another copy of the header.
    Keep,
    /// Let it go: the function has dropped the packet.
    Release,
}

/// What the end of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No tag.
    Plain,
    Tag(Tag, Wish),
    /// It looks like a tag and isn't one of this split.
    Damaged,
}

impl Tag {
    /// The tag's bytes, with the wish to join.
    pub(crate) fn write(self, secret: Secret) -> [u8; TAG_BYTES] {
        let mut bytes = [0; TAG_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.slot.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.generation.to_be_bytes());
        bytes[10] = VERSION;
        bytes[12..16].copy_from_slice(&self.whole_len.to_be_bytes());
        let check = check(&bytes, secret);
        bytes[CHECK].copy_from_slice(&check);
        bytes
    }

    /// Reads the end of a frame.
    pub(crate) fn read(frame: &[u8], secret: Secret) -> End {
        let Some(bytes) = tag_of(frame) else { return End::Plain };
        let wish = match bytes[WISH] {
            0 => Wish::Join,
            1 => Wish::Keep,
            2 => Wish::Release,
            _ => return End::Damaged,
        };
        if bytes[CHECK] != check(bytes, secret) {
            return End::Damaged;
        }
        let [.., a, b, c, d, e, f, _, _, g, h, i, j, _, _, _, _] = *bytes;
        let tag = Self {
            slot: u32::from_be_bytes([a, b, c, d]),
            generation: u16::from_be_bytes([e, f]),
            whole_len: u32::from_be_bytes([g, h, i, j]),
        };
        End::Tag(tag, wish)
    }
}

/// The last bytes of a frame, if they look like a tag.
fn tag_of(frame: &[u8]) -> Option<&[u8; TAG_BYTES]> {
    frame.last_chunk().filter(|bytes| bytes.starts_with(&MAGIC) && bytes[10] == VERSION)
}

/// True if a frame ends like a header that was split. No other frame leaves a split like that.
#[must_use]
pub fn is_tagged(frame: &[u8]) -> bool {
    tag_of(frame).is_some()
}

/// Length in bytes on the wire of the frame that this header was cut from; `None` if it has no tag. Without the split's secret, so only for
/// frames that come straight from it.
#[must_use]
pub fn whole_len(frame: &[u8]) -> Option<u32> {
    let [.., a, b, c, d, _, _, _, _] = *tag_of(frame)?;
    Some(u32::from_be_bytes([a, b, c, d]))
}

/// Sets what is to become of the payload. Does nothing to a frame without tag.
pub(crate) fn set_wish(frame: &mut [u8], wish: Wish) {
    if is_tagged(frame)
        && let Some(bytes) = frame.last_chunk_mut::<TAG_BYTES>()
    {
        bytes[WISH] = match wish {
            Wish::Join => 0,
            Wish::Keep => 1,
            Wish::Release => 2,
        };
    }
}

fn check(bytes: &[u8; TAG_BYTES], Secret(secret): Secret) -> [u8; 4] {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&secret.to_be_bytes());
    crc.update(&bytes[..WISH]);
    crc.update(&bytes[WISH + 1..CHECK.start]);
    crc.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tag_is_read_as_written_and_any_flipped_bit_is_found(
            slot: u32, generation: u16, whole_len: u32, secret: u64, other: u64, bit in 0..TAG_BYTES * 8,
        ) {
            let (tag, secret) = (Tag { slot, generation, whole_len }, Secret(secret));
            let mut frame = [&[7; 30][..], &tag.write(secret)].concat();
            prop_assert_eq!(Tag::read(&frame, secret), End::Tag(tag, Wish::Join));
            prop_assert_eq!(super::whole_len(&frame), Some(whole_len));
            prop_assume!(other != secret.0);
            prop_assert_eq!(Tag::read(&frame, Secret(other)), End::Damaged);
            for wish in [Wish::Keep, Wish::Release, Wish::Join] {
                set_wish(&mut frame, wish);
                prop_assert_eq!(Tag::read(&frame, secret), End::Tag(tag, wish));
            }
            frame[30 + bit / 8] ^= 1 << (bit % 8);
            let in_wish = bit / 8 == WISH;
            prop_assert!(in_wish || !matches!(Tag::read(&frame, secret), End::Tag(..)));
        }
    }

    #[test]
    fn short_frames_have_no_tag() {
        for len in 0..40 {
            assert_eq!(Tag::read(&vec![b'M'; len], Secret(1)), End::Plain);
        }
        set_wish(&mut [], Wish::Release);
    }
}
