//! The header fields that classifiers look at, and the values of them that a rule allows.

use alloc::vec;
use alloc::vec::Vec;

use iptables::Family;

use super::super::machine::{Check, Machine, Rule};
use super::super::test::Test;

/// A header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Dst,
    Src,
    DstPort,
    SrcPort,
    Protocol,
    Input,
    Output,
}

/// The tests of a rule that a packet must pass before the rule has an effect. A check with state may count packets, so none after it is
/// among them.
pub(super) fn tests<'a>(machine: &'a Machine, rule: &Rule) -> impl Iterator<Item = &'a Test> {
    let (first, end) = rule.checks;
    let before_state =
        machine.checks[first as usize..end as usize].iter().take_while(|check| !matches!(check, Check::Stateful(_)));
    before_state.filter_map(|check| if let Check::Plain(test) = check { Some(test) } else { None })
}

/// Bits of a prefix; `None` if the mask has gaps.
pub(super) const fn prefix_length(family: Family, mask: u128) -> Option<u32> {
    let length = mask.count_ones();
    match mask == prefix(family, length) {
        true => Some(length),
        false => None,
    }
}

/// The mask of a prefix of this length.
pub(super) const fn prefix(family: Family, length: u32) -> u128 {
    let (bits, all) = match family {
        Family::V4 => (32, u32::MAX as u128),
        Family::V6 => (128, u128::MAX),
    };
    match length {
        0 => 0,
        length => all >> (bits - length) << (bits - length),
    }
}

impl Field {
    /// All, in the order of their numbers.
    pub(super) const ALL: [Self; 7] =
        [Self::Dst, Self::Src, Self::DstPort, Self::SrcPort, Self::Protocol, Self::Input, Self::Output];

    /// The largest value.
    pub(super) const fn value_max(self, family: Family) -> u128 {
        match self {
            Self::Src | Self::Dst => prefix(family, if matches!(family, Family::V4) { 32 } else { 128 }),
            Self::SrcPort | Self::DstPort => u16::MAX as u128,
            Self::Protocol => u8::MAX as u128,
            Self::Input | Self::Output => 63,
        }
    }

    /// The values, in ascending order, from which on a rule allows the field or ceases to. Below the first one it doesn't.
    pub(super) fn changes(self, machine: &Machine, rule: &Rule) -> Vec<u128> {
        let has = |bit: u8| rule.flags & bit != 0;
        let ([src, src_mask], [dst, dst_mask]) = rule.addresses(&machine.highs);
        match self {
            Self::Src => self.network(machine.family, src, src_mask, has(Rule::NOT_SRC)),
            Self::Dst => self.network(machine.family, dst, dst_mask, has(Rule::NOT_DST)),
            Self::Protocol if has(Rule::ANY_PROTOCOL) => vec![0],
            Self::Protocol => {
                let protocol = u128::from(rule.protocol);
                self.ranges(machine.family, vec![(protocol, protocol)], has(Rule::NOT_PROTOCOL))
            }
            Self::Input => set(rule.input),
            Self::Output => set(rule.output),
            Self::SrcPort | Self::DstPort => {
                let pick = |[source, destination]: [_; 2]| if self == Self::SrcPort { source } else { destination };
                let changes = tests(machine, rule).filter_map(|test| pick(test.ports())).map(|(ports, negated)| {
                    let ranges = ports.iter().map(|(first, last)| (u128::from(*first), u128::from(*last)));
                    self.ranges(machine.family, ranges.collect(), negated)
                });
                // Of several tests, the first one that says something.
                changes.into_iter().find(|changes| changes != &[0]).unwrap_or_else(|| vec![0])
            }
        }
    }

    fn network(self, family: Family, address: u128, mask: u128, negated: bool) -> Vec<u128> {
        match prefix_length(family, mask) {
            Some(length) => {
                let last = address | self.value_max(family) & !prefix(family, length);
                self.ranges(family, vec![(address, last)], negated)
            }
            None => vec![0],
        }
    }

    /// The changes of some ranges, some of which may be empty or overlap.
    fn ranges(self, family: Family, mut ranges: Vec<(u128, u128)>, negated: bool) -> Vec<u128> {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        ranges.dedup_by(|(first, last), (_, end)| {
            let touches = *first <= end.saturating_add(1);
            if touches {
                *end = (*end).max(*last);
            }
            touches
        });
        let edges = ranges.iter().flat_map(|(first, last)| {
            let after = (*last < self.value_max(family)).then(|| last + 1);
            [*first].into_iter().chain(after)
        });
        let edges: Vec<u128> = edges.collect();
        match (negated, edges.first()) {
            (false, _) => edges,
            (true, Some(0)) => edges[1..].into(),
            (true, _) => [0].into_iter().chain(edges).collect(),
        }
    }
}

/// The changes of a set of 64 values.
fn set(values: u64) -> Vec<u128> {
    let changed = values ^ values << 1;
    (0..64).filter(|value| changed >> value & 1 != 0).collect()
}
