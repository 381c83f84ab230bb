//! The flow of a packet set, where no rule rewrites addresses: the connection.

use core::num::NonZeroU16;

use nf::{Flow, PortId, Verdict};
use packet::Rewrite;

use super::shortcut::Shortcut;
use super::track::{Entry, Status, Tally};
use super::walk::TO_ROUTER;
use crate::tracking::Connection;

/// The connection of a packet set. No larger than two cache lines, because new ones are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    pub(super) entry: Entry,
    pub(super) memo: Memo,
}

const _: () = assert!(size_of::<FlowEntry>() <= 128);

/// What else a flow remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memo {
    /// Short cuts through the rules, by direction.
    Shortcuts([Option<Shortcut>; 2]),
    /// Where rules ask for them: packets by direction, then bytes, each as two halves. There are no short cuts then.
    Counted(First, [[u32; 2]; 4]),
    /// The verdict on the first packet, from when the rules have let it in until its step.
    First(First),
}

impl Memo {
    pub(super) const NONE: Self = Self::Shortcuts([None; 2]);

    /// The memo of the first packet of a flow, with its tally if rules ask for one.
    pub(super) fn of_first(first: First, tally: Option<&Tally>) -> Self {
        match tally {
            Some(tally) => Self::Counted(first, halves(tally)),
            None => Self::First(first),
        }
    }

    /// Takes the verdict on the first packet out, if this is its step.
    #[inline(always)]
    pub(super) fn take_first(&mut self) -> Option<Verdict> {
        match self {
            Self::Shortcuts(_) => None,
            Self::Counted(first, _) => first.take(),
            Self::First(first) => {
                let verdict = first.take();
                *self = Self::NONE;
                verdict
            }
        }
    }

    /// The short cut of a direction.
    #[inline(always)]
    pub(super) const fn shortcut(&self, is_reply: bool) -> Option<&Shortcut> {
        match self {
            Self::Shortcuts(all) => all[is_reply as usize].as_ref(),
            Self::Counted(..) | Self::First(_) => None,
        }
    }

    /// Notes the short cut of a direction. `None` where there is none.
    #[inline]
    pub(super) const fn note(&mut self, is_reply: bool, shortcut: Option<Shortcut>) {
        if let Self::Shortcuts(all) = self {
            all[is_reply as usize] = shortcut;
        }
    }

    /// The tally, with a packet of so many bytes, which the flow keeps from now on. Without a packet as it is.
    pub(super) fn tally(&mut self, packet: Option<(bool, u16)>) -> Tally {
        let mut tally = Tally::new(0);
        if let Self::Counted(_, halves) = self {
            let [a, b, c, d] = halves.map(|[high, low]| u64::from(high) << 32 | u64::from(low));
            (tally.packets, tally.bytes) = ([a, b], [c, d]);
        }
        if let Some((is_reply, bytes)) = packet {
            tally.count(is_reply, bytes);
            *self = Self::Counted(First::NONE, halves(&tally));
        }
        tally
    }

    /// Forgets the tally, which rules don't ask for any more.
    #[inline(always)]
    pub(super) const fn drop_tally(&mut self) {
        if let Self::Counted(..) = self {
            *self = Self::NONE;
        }
    }
}

fn halves(tally: &Tally) -> [[u32; 2]; 4] {
    let ([a, b], [c, d]) = (tally.packets, tally.bytes);
    [a, b, c, d].map(|whole| [(whole >> 32) as u32, whole as u32])
}

impl Flow for FlowEntry {
    nf::in_words!();
}

// A verdict on a first packet is there only until its step, and short cuts are found anew.
packet::words! {
    FlowEntry: [14], flow => {
        let Entry { connection, mark, status } = flow.entry;
        let mut words = [0; 14];
        words[..8].copy_from_slice(&connection.to_words());
        words[8] = u64::from(mark) << 32 | u64::from(status.bits());
        if let Memo::Counted(_, halves) = flow.memo {
            words[9] = 1;
            words[10..].copy_from_slice(&halves.map(|[high, low]| u64::from(high) << 32 | u64::from(low)));
        }
        words
    }, words => {
        let mut connection = [0; 8];
        connection.copy_from_slice(&words[..8]);
        let half = |at: usize| [(words[at] >> 32) as u32, words[at] as u32];
        Self {
            entry: Entry {
                connection: Connection::from_words(connection),
                mark: (words[8] >> 32) as u32,
                status: Status::from_bits(words[8] as u8),
            },
            memo: if words[9] == 0 { Memo::NONE } else { Memo::Counted(First::NONE, [10, 11, 12, 13].map(half)) },
        }
    };
}

/// The verdict that lets a packet in, in one word of two halves; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First([u32; 2]);

const OUT: u64 = 1;
const ROUTER: u64 = 2;
const TTL: u32 = 2;
const TOS: u32 = 11;
const MSS: u32 = 20;
const PORT: u32 = 37;

/// A byte with a bit below that says that it is given.
const fn byte(value: Option<u8>) -> u64 {
    match value {
        Some(value) => 1 | (value as u64) << 1,
        None => 0,
    }
}

impl First {
    const NONE: Self = Self([0; 2]);

    pub(super) const fn of(verdict: &Verdict) -> Self {
        let word = match verdict {
            Verdict::Rewrite { port, rewrite } => {
                let mss = match rewrite.mss_max {
                    Some(bytes) => 1 | (bytes.get() as u64) << 1,
                    None => 0,
                };
                let rest = byte(rewrite.ttl) << TTL | byte(rewrite.tos) << TOS | mss << MSS;
                OUT | rest | (port.0 as u64) << PORT
            }
            Verdict::Drop(_) => ROUTER,
            Verdict::Forward(_) | Verdict::Copy { .. } | Verdict::Transform { .. } | Verdict::Reply(_) => 0,
        };
        Self([(word >> 32) as u32, word as u32])
    }

    /// Takes the verdict out, if there is one.
    #[inline]
    fn take(&mut self) -> Option<Verdict> {
        let [high, low] = core::mem::take(&mut self.0);
        let word = u64::from(high) << 32 | u64::from(low);
        if word == 0 {
            return None;
        }
        if word & OUT == 0 {
            return Some(Verdict::Drop(TO_ROUTER));
        }
        let given = |at: u32| (word >> at & 1 == 1).then_some(word >> (at + 1));
        let rewrite = Rewrite {
            decrement_ttl: true,
            ttl: given(TTL).map(|value| value as u8),
            tos: given(TOS).map(|value| value as u8),
            mss_max: given(MSS).and_then(|value| NonZeroU16::new(value as u16)),
            ..Rewrite::NONE
        };
        Some(Verdict::Rewrite { port: PortId((word >> PORT) as u16), rewrite })
    }
}
