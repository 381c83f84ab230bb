//! A connection as words, for memory that cores share.

use super::tcp::Tracker;
use super::{Connection, Conversation, Queries, Tracked};

/// Words of a tracker, without its status.
pub(super) const TRACKER_WORDS: usize = 7;

const OPENER_FIRST: u64 = 1 << 2;
const ANSWERED: u64 = 1 << 3;
const ASSURED: u64 = 1 << 4;
const REST: u32 = 8;

packet::words! {
    Connection: [8], connection => {
        let mut words = [0; 8];
        let bits = |bit: u64, set: bool| if set { bit } else { 0 };
        let (kind, rest) = match connection.tracked {
            Tracked::Tcp(tracker) => {
                let (numbers, status) = tracker.to_words();
                words[1..].copy_from_slice(&numbers);
                (0, u64::from(status) << REST)
            }
            Tracked::Udp(Conversation { began, answered, assured })
            | Tracked::Other(Conversation { began, answered, assured }) => {
                words[1] = u64::from(began[0]) << 32 | u64::from(began[1]);
                let kind = if matches!(connection.tracked, Tracked::Udp(_)) { 1 } else { 3 };
                (kind, bits(ANSWERED, answered) | bits(ASSURED, assured))
            }
            Tracked::Icmp(Queries { asked, answered }) => {
                (2, bits(ANSWERED, answered) | u64::from(u16::from_le_bytes(asked)) << REST)
            }
        };
        words[0] = kind | rest | bits(OPENER_FIRST, connection.opener_first);
        words
    }, words => {
        let [first, numbers @ ..] = words;
        let conversation = Conversation {
            began: [(numbers[0] >> 32) as u32, numbers[0] as u32],
            answered: first & ANSWERED != 0,
            assured: first & ASSURED != 0,
        };
        let tracked = match first & 3 {
            0 => Tracked::Tcp(Tracker::from_words(numbers, (first >> REST) as u8)),
            1 => Tracked::Udp(conversation),
            2 => {
                let asked = ((first >> REST) as u16).to_le_bytes();
                Tracked::Icmp(Queries { asked, answered: first & ANSWERED != 0 })
            }
            _ => Tracked::Other(conversation),
        };
        Self { tracked, opener_first: first & OPENER_FIRST != 0 }
    };
}
