//! Words and texts anywhere in a packet: `u32`, `string`.

use alloc::vec::Vec;

use iptables::matches::{StringMatch, U32Operation, U32Test};

use super::Packet;

/// A text that is looked for, as net/netfilter/xt_string.c and `skb_find_text` do: it lies whole between two offsets from the IP header on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// In upper case if it ignores case.
    pattern: Vec<u8>,
    from: usize,
    to: usize,
    ignores_case: bool,
}

impl Text {
    /// The text of a rule. Both algorithms find the same.
    #[must_use]
    pub fn of(rule: &StringMatch) -> Self {
        let mut pattern = rule.pattern.value.clone();
        if rule.ignores_case {
            pattern.iter_mut().for_each(|byte| *byte = upper(*byte));
        }
        Self { pattern, from: rule.from.into(), to: rule.to.into(), ignores_case: rule.ignores_case }
    }

    pub(super) fn is_in(&self, packet: &[u8]) -> bool {
        let within = packet.get(self.from..packet.len().min(self.to)).unwrap_or_default();
        let Some((first, rest)) = self.pattern.split_first() else { return false };
        let mut left = within;
        while left.len() > rest.len() {
            let found = match self.ignores_case {
                true => left.iter().position(|byte| upper(*byte) == *first),
                false => left.iter().position(|byte| byte == first),
            };
            let Some(at) = found else { return false };
            left = &left[at + 1..];
            let Some(behind) = left.get(..rest.len()) else { return false };
            let is_same = match self.ignores_case {
                true => behind.iter().map(|byte| upper(*byte)).eq(rest.iter().copied()),
                false => behind == rest,
            };
            if is_same {
                return true;
            }
        }
        false
    }
}

/// The kernel's `toupper`, which knows the letters of Latin-1.
const fn upper(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' | 0xdf..=0xf6 | 0xf8..=0xff => byte - 0x20,
        other => other,
    }
}

/// net/netfilter/xt_u32.c: all of the tests hold.
pub(super) fn words(packet: &Packet<'_>, tests: &[U32Test]) -> bool {
    tests
        .iter()
        .all(|test| value(packet, test).is_some_and(|value| test.values.iter().any(|range| range.contains(&value))))
}

fn value(packet: &Packet<'_>, test: &U32Test) -> Option<u32> {
    let mut base: u32 = 0;
    let mut value = packet.word(test.offset as usize)?;
    for operation in &test.operations {
        value = match *operation {
            U32Operation::And(mask) => value & mask,
            U32Operation::Left(bits) => value.wrapping_shl(bits),
            U32Operation::Right(bits) => value.wrapping_shr(bits),
            U32Operation::At(offset) => {
                base = base.checked_add(value)?;
                packet.word(base.checked_add(offset)? as usize)?
            }
        };
    }
    Some(value)
}
