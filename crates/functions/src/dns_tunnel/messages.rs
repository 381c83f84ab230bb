//! Finds the messages in a server's stream (RFC 1035, section 4.2.2; RFC 7766): each comes behind two bytes with its length.

use streams::{End, Gap, HELD_MAX};

use super::message;
use crate::streams;

/// The length of a message's length.
const PREFIX: usize = 2;

/// The most bytes that are read of a message: with its length they can be held until all of them have come.
pub(super) const READ_MAX: usize = HELD_MAX - PREFIX;

/// Where a stream is in its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Messages {
    /// Between two messages.
    #[default]
    Between,
    /// In the length of a message, which is held.
    Length,
    /// In a message, which is held, ahead of so many of its bytes.
    Inside { missing: u16 },
    /// In a message of which nothing more is read, ahead of so many of its bytes.
    Skipping { left: u16 },
    /// Nobody knows where. The next bytes that are told may begin a message.
    Lost,
}

/// A message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Whole(&'a [u8]),
    /// The first [`READ_MAX`] bytes of a longer one.
    Beginning(&'a [u8]),
}

impl Messages {
    /// The start of a stream, or of what is seen of it.
    pub(super) const fn new(midstream: bool) -> Self {
        if midstream { Self::Lost } else { Self::Between }
    }

    /// Reads what a side says next. Returns how many of the last bytes are to be told again, with those that follow.
    ///
    /// # Errors
    /// That of `found`.
    pub(super) fn read<E>(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(Found<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match *self {
                Self::Skipping { left } => {
                    let count = rest.len().min(left.into());
                    *self = Self::behind(left - count as u16);
                    rest = &rest[count..];
                    continue;
                }
                Self::Lost if rest.len() < PREFIX + message::HEADER => return Ok(rest.len()),
                Self::Lost if !begins_message(rest) => return Ok(0),
                Self::Lost | Self::Between | Self::Length | Self::Inside { .. } => {}
            }
            let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX>() else {
                *self = Self::Length;
                return Ok(rest.len());
            };
            let length = usize::from(u16::from_be_bytes(*prefix));
            let told = length.min(behind.len());
            let missing = (length - told) as u16;
            if told < length.min(READ_MAX) {
                *self = Self::Inside { missing };
                return Ok(rest.len());
            }
            let (message, next) = behind.split_at(told);
            found(match message.get(..READ_MAX) {
                Some(beginning) if length > READ_MAX => Found::Beginning(beginning),
                _ => Found::Whole(message),
            })?;
            *self = Self::behind(missing);
            rest = next;
        }
        Ok(0)
    }

    /// Goes on behind a gap. Returns true if it hides a message, or a part of one that was to be read.
    pub(super) const fn gap(&mut self, gap: &Gap) -> bool {
        // Without memory, what was held is the gap, or what comes next: nobody knows.
        let is_of_held = matches!(gap.end, End::OutOfMemory);
        let (left, was_inside) = match *self {
            Self::Inside { missing } if !is_of_held => (missing, true),
            Self::Skipping { left } => (left, false),
            Self::Lost => return false,
            Self::Between | Self::Length | Self::Inside { .. } => (0, true),
        };
        if gap.len > left as u32 {
            *self = Self::Lost;
            return true;
        }
        *self = Self::behind(left - gap.len as u16);
        was_inside
    }

    /// True if the stream breaks off in a message that was to be read.
    pub(super) const fn is_inside(&self) -> bool {
        matches!(self, Self::Length | Self::Inside { .. })
    }

    /// Ahead of so many bytes of a message that was read, or of none.
    const fn behind(left: u16) -> Self {
        if left == 0 { Self::Between } else { Self::Skipping { left } }
    }
}

/// True if these bytes may be a response with its length.
fn begins_message(bytes: &[u8]) -> bool {
    let (prefix, message) = bytes.split_at(PREFIX);
    usize::from(u16::from_be_bytes([prefix[0], prefix[1]])) >= message::HEADER && message::begins_response(message)
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// A message with its length.
    fn framed(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u16).to_be_bytes(), message].concat()
    }

    /// A response of this length, told apart by `id`.
    fn response(id: u8, len: usize) -> Vec<u8> {
        let mut message = vec![id; len];
        message[2..6].copy_from_slice(&[0x80, 0, 0, 1]);
        message
    }

    /// What a reader makes of the pieces of a stream: what is found, and the reader. Bytes are held as a function over streams has it.
    fn read<'a>(start: Messages, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(Vec<u8>, bool)>, Messages) {
        let (mut messages, mut held, mut all) = (start, Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = piece;
            while !rest.is_empty() {
                let (part, next) = rest.split_at(rest.len().min(HELD_MAX - held.len()));
                let told = [held.as_slice(), part].concat();
                let Ok(hold) = messages.read(&told, |found| {
                    all.push(match found {
                        Found::Whole(message) => (message.to_vec(), true),
                        Found::Beginning(message) => (message.to_vec(), false),
                    });
                    Ok::<_, Infallible>(())
                });
                assert!(hold < HELD_MAX);
                held = told[told.len() - hold..].to_vec();
                rest = next;
            }
        }
        (all, messages)
    }

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let all = [response(1, 12), vec![2; 1], vec![], response(3, 300), response(4, 13)];
        let stream: Vec<u8> = all.iter().flat_map(|message| framed(message)).collect();
        let expected: Vec<_> = all.into_iter().map(|message| (message, true)).collect();
        for cut in 0..=stream.len() {
            let (one, other) = stream.split_at(cut);
            let (found, messages) = read(Messages::Between, [one, other]);
            assert_eq!((&found, messages), (&expected, Messages::Between), "cut at {cut}");
        }
        assert_eq!(read(Messages::Between, stream.chunks(1)).0, expected, "byte by byte");
        for len in 0..stream.len() {
            let messages = read(Messages::Between, [&stream[..len]]).1;
            assert_eq!(messages.is_inside(), messages != Messages::Between, "{len} bytes");
        }
    }

    #[test]
    fn of_a_long_message_the_beginning_is_read() {
        for len in [READ_MAX - 1, READ_MAX, READ_MAX + 1, usize::from(u16::MAX)] {
            let message = response(5, len);
            let stream = [framed(&message), framed(&response(6, 20))].concat();
            let expected = [(message[..len.min(READ_MAX)].to_vec(), len <= READ_MAX), (response(6, 20), true)];
            for piece in [1, 7, 1460, 8191, 8192, 8193, stream.len()] {
                let (found, messages) = read(Messages::Between, stream.chunks(piece));
                assert_eq!((found.as_slice(), messages), (expected.as_slice(), Messages::Between), "{len} by {piece}");
            }
        }
    }

    #[test]
    fn a_gap_in_a_message_hides_no_other() {
        let [one, two] = [framed(&response(1, 40)), framed(&response(2, 30))];
        let gap = |len: usize| Gap { len: len as u32, end: End::Acknowledged };
        for at in 0..=one.len() {
            for len in 1..=one.len() + two.len() - at {
                let mut messages = read(Messages::Between, [&one[..at]]).1;
                assert!(messages.gap(&gap(len)), "{len} bytes behind {at}");
                // In the length, nobody knows how long the message is; behind it, the gap may hide any.
                let is_known = (PREFIX..one.len()).contains(&at) && at + len <= one.len();
                let left = one.len().saturating_sub(at + len) as u16;
                assert_eq!(
                    messages,
                    if is_known { Messages::behind(left) } else { Messages::Lost },
                    "{len} behind {at}"
                );
            }
        }
        let mut long = read(Messages::Between, [framed(&response(3, READ_MAX + 500)).split_at(READ_MAX + 10).0]).1;
        assert!(!long.gap(&gap(400)), "of this part nothing is read");
        assert_eq!(long, Messages::Skipping { left: 92 });
        assert!(long.gap(&gap(93)));
        assert_eq!(long, Messages::Lost);
        assert!(!long.gap(&gap(1)), "it is counted once");
        let mut held = Messages::Inside { missing: 9 };
        assert!(held.gap(&Gap { len: 3, end: End::OutOfMemory }));
        assert_eq!(held, Messages::Lost);
    }

    #[test]
    fn behind_a_gap_bytes_that_may_begin_a_message_are_one() {
        let message = response(1, 40);
        let stream = framed(&message);
        for other in [&[0; 60][..], b"\0\x20SSH-2.0-OpenSSH_9.7\r\n", &stream[1..], &stream[2..]] {
            assert_eq!(read(Messages::Lost, [other, &stream]), (vec![(message.clone(), true)], Messages::Between));
        }
        for cut in 1..stream.len() {
            let (one, other) = stream.split_at(cut);
            assert_eq!(read(Messages::Lost, [one, other]).0, [(message.clone(), true)], "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn any_cutting_has_the_same_messages(
            lengths in proptest::collection::vec(prop_oneof![4 => 0..80_usize, 1 => 0..20_000_usize], 0..6),
            pieces in proptest::collection::vec(prop_oneof![1..20_usize, 1..9000_usize], 1..9),
        ) {
            let all: Vec<_> = (0..).zip(&lengths).map(|(id, len)| vec![id; *len]).collect();
            let stream: Vec<u8> = all.iter().flat_map(|message| framed(message)).collect();
            let (mut rest, mut cut) = (stream.as_slice(), Vec::new());
            for len in pieces.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, next) = rest.split_at(len.min(rest.len()));
                cut.push(piece);
                rest = next;
            }
            let expected: Vec<_> =
                all.iter().map(|message| (message[..message.len().min(READ_MAX)].to_vec(), message.len() <= READ_MAX)).collect();
            prop_assert_eq!(read(Messages::Between, cut), (expected, Messages::Between));
        }

        #[test]
        fn any_bytes_are_read(
            midstream in any::<bool>(),
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..9),
        ) {
            let _ = read(Messages::new(midstream), pieces.iter().map(Vec::as_slice));
        }
    }
}
