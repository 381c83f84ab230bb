//! The flow of a packet set, where no rule rewrites addresses: the connection.

use core::num::NonZeroU16;

use nf::{Flow, PortId, Verdict};
use packet::Rewrite;

use super::track::Entry;
use super::walk::TO_ROUTER;

/// The connection of a packet set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    pub(super) entry: Entry,
    /// The verdict on the first packet, from when the rules have let it in until its step.
    pub(super) first: First,
}

impl Flow for FlowEntry {}

/// The verdict that lets a packet in, in one word; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First(u64);

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
    pub(super) const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Rewrite { port, rewrite } => {
                let mss = match rewrite.mss_max {
                    Some(bytes) => 1 | (bytes.get() as u64) << 1,
                    None => 0,
                };
                let rest = byte(rewrite.ttl) << TTL | byte(rewrite.tos) << TOS | mss << MSS;
                Self(OUT | rest | (port.0 as u64) << PORT)
            }
            Verdict::Drop(_) => Self(ROUTER),
            Verdict::Forward(_) | Verdict::Copy { .. } | Verdict::Transform { .. } | Verdict::Reply(_) => Self(0),
        }
    }

    /// Takes the verdict out, if there is one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Verdict> {
        let word = core::mem::replace(&mut self.0, 0);
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
