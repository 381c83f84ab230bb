//! "Packets of one set get one hash", as equations between the bits of keys.
//!
//! Bit `i` of the input adds the 32 bits of the key from bit `i` on. So a field at bits `o..o + w` of the input depends only on the key's
//! window `o..o + w + 31`. The field is cancelled if and only if the window is zero. Two fields have the same effect if and only if their
//! windows are equal.

use std::collections::VecDeque;

use crate::field::{Field, PacketType};
use crate::gf2::System;
use crate::plan::Member;

/// A range of bits of a port's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Whose key.
    pub port: usize,
    /// Its first bit.
    pub first: usize,
}

/// An equation for each bit of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The window.
    pub window: Window,
    /// The window that it must equal; `None` for zero.
    pub equals: Option<Window>,
    /// How many bits it has.
    pub len: usize,
    /// Why that must be.
    pub reason: Reason,
}

/// Why a constraint must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The card hashes a field that the packet set doesn't name.
    Unnamed {
        /// At this port.
        port: usize,
        /// In packets of this type.
        kind: PacketType,
        /// The field.
        field: Field,
    },
    /// The card hashes a field in some packets of a set, but not the matching field in others.
    Unmatched {
        /// Where it is hashed: port, type and field.
        here: (usize, PacketType, Field),
        /// Where it isn't.
        there: (usize, PacketType, Field),
    },
    /// Two fields name the same thing.
    Matched {
        /// Port, type and field.
        here: (usize, PacketType, Field),
        /// The same.
        there: (usize, PacketType, Field),
    },
    /// All ports have the same key.
    OneKey,
}

/// Every constraint that members' packet sets make, for hashes of so many bits.
pub(crate) fn constraints(members: &[Member], hash_bits: usize) -> Vec<Constraint> {
    let mut out = Vec::new();
    let classes = members.iter().map(|member| member.class).max().map_or(0, |last| last + 1);
    for class in 0..classes {
        let of_class: Vec<&Member> = members.iter().filter(|member| member.class == class).collect();
        for member in &of_class {
            unnamed(member, hash_bits, &mut out);
        }
        let places = of_class.first().map_or(0, |member| member.named.len());
        for place in 0..places {
            matched(&of_class, place, hash_bits, &mut out);
        }
    }
    out
}

fn unnamed(member: &Member, hash_bits: usize, out: &mut Vec<Constraint>) {
    let Member { port, kind, .. } = *member;
    for field in member.extra().iter() {
        let reason = Reason::Unnamed { port, kind, field };
        out.extend(zero(member, field, hash_bits, reason));
    }
}

/// All appearances of what stands at `place` of a set's name: in each member, and in each symmetric one's way back.
fn matched(of_class: &[&Member], place: usize, hash_bits: usize, out: &mut Vec<Constraint>) {
    let mut appearances: Vec<(&Member, Field)> = Vec::new();
    for member in of_class {
        let field = member.named[place];
        appearances.push((member, field));
        if member.symmetric {
            appearances.push((member, field.opposite()));
        }
    }
    let name = |(member, field): (&Member, Field)| (member.port, member.kind, field);
    let lacking = appearances.iter().find(|(member, field)| member.offset(*field).is_none());
    let first = appearances[0];
    for here in &appearances {
        let constraint = match lacking {
            Some(there) => {
                let reason = Reason::Unmatched { here: name(*here), there: name(*there) };
                zero(here.0, here.1, hash_bits, reason)
            }
            None => equal(*here, first, hash_bits),
        };
        out.extend(constraint);
    }
}

fn zero(member: &Member, field: Field, hash_bits: usize, reason: Reason) -> Option<Constraint> {
    let first = member.offset(field)?;
    let len = field.bits(member.kind.family()) + hash_bits - 1;
    Some(Constraint { window: Window { port: member.port, first }, equals: None, len, reason })
}

fn equal(here: (&Member, Field), there: (&Member, Field), hash_bits: usize) -> Option<Constraint> {
    let window = |(member, field): (&Member, Field)| Some(Window { port: member.port, first: member.offset(field)? });
    let (window, equals) = (window(here)?, window(there)?);
    let len = here.1.bits(here.0.kind.family()) + hash_bits - 1;
    let name = |(member, field): (&Member, Field)| (member.port, member.kind, field);
    let reason = Reason::Matched { here: name(here), there: name(there) };
    (window != equals).then_some(Constraint { window, equals: Some(equals), len, reason })
}

/// The one constraint that a card with one key for all ports adds to each port but the first.
pub(crate) fn one_key(ports: usize, key_bits: usize) -> impl Iterator<Item = Constraint> {
    (1..ports).map(move |port| Constraint {
        window: Window { port, first: 0 },
        equals: Some(Window { port: 0, first: 0 }),
        len: key_bits,
        reason: Reason::OneKey,
    })
}

/// The equations. Unknown `port * key_bits + bit` is bit `bit` of a port's key.
pub(crate) fn system(constraints: &[Constraint], ports: usize, key_bits: usize) -> System {
    let mut system = System::new(ports * key_bits);
    for Constraint { window, equals, len, .. } in constraints {
        let at = |window: &Window, bit: usize| window.port * key_bits + window.first + bit;
        for bit in 0..*len {
            match equals {
                Some(other) => system.add(&[at(window, bit), at(other, bit)]),
                None => system.add(&[at(window, bit)]),
            };
        }
    }
    system
}

/// A bit (its port, its number), and which step led to it by which constraint.
type Step = ((usize, usize), Option<(usize, usize)>);

/// Why a bit of a key is zero: constraints of which each says that the bit is another's, and the last that it is zero.
/// The shortest such chain; `None` if the constraints don't say so.
pub(crate) fn chain(constraints: &[Constraint], port: usize, bit: usize) -> Option<Vec<usize>> {
    let inside = |window: &Window, len: usize, (port, bit): (usize, usize)| {
        (window.port == port && (window.first..window.first + len).contains(&bit)).then(|| bit - window.first)
    };
    let mut seen: Vec<Step> = vec![((port, bit), None)];
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        let here = seen[at].0;
        for (index, Constraint { window, equals, len, .. }) in constraints.iter().enumerate() {
            let Some(equals) = equals else {
                if inside(window, *len, here).is_some() {
                    let mut chain = vec![index];
                    let mut step = seen[at].1;
                    while let Some((from, by)) = step {
                        chain.push(by);
                        step = seen[from].1;
                    }
                    chain.reverse();
                    return Some(chain);
                }
                continue;
            };
            for (one, other) in [(window, equals), (equals, window)] {
                if let Some(offset) = inside(one, *len, here) {
                    let next = (other.port, other.first + offset);
                    if !seen.iter().any(|(bit, _)| *bit == next) {
                        seen.push((next, Some((at, index))));
                        queue.push_back(seen.len() - 1);
                    }
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::field::{Family, Fields};
    use crate::gf2::Bits;

    fn member(port: usize, kind: PacketType, named: &[Field], selection: &[Field], symmetric: bool) -> Member {
        Member { port, kind, named: named.to_vec(), symmetric, selection: Fields::of(selection), class: 0 }
    }

    #[test]
    fn windows_of_the_five_tuple() {
        let unnamed = constraints(
            &[member(
                0,
                PacketType::Tcp4,
                &[Field::Src],
                &[Field::Src, Field::Dst, Field::SrcPort, Field::DstPort],
                false,
            )],
            32,
        );
        let windows: Vec<_> = unnamed.iter().map(|one| (one.window.first, one.len, one.equals)).collect();
        assert_eq!(windows, [(32, 63, None), (64, 47, None), (80, 47, None)]);
    }

    #[test]
    fn chains_lead_to_the_zero() {
        let members = [
            member(0, PacketType::Tcp4, &[Field::Src], &[Field::Src, Field::Dst], false),
            member(1, PacketType::Tcp4, &[Field::Dst], &[Field::Src, Field::Dst], false),
        ];
        let all = constraints(&members, 32);
        let reasons = |port, bit| {
            let chain = chain(&all, port, bit)?;
            Some(chain.into_iter().map(|index| all[index].reason).collect::<Vec<_>>())
        };
        let kind = PacketType::Tcp4;
        assert_eq!(reasons(0, 40), Some(vec![Reason::Unnamed { port: 0, kind, field: Field::Dst }]));
        let matched = Reason::Matched { here: (1, kind, Field::Dst), there: (0, kind, Field::Src) };
        assert_eq!(reasons(0, 3), Some(vec![matched, Reason::Unnamed { port: 1, kind, field: Field::Src }]));
        assert_eq!(reasons(0, 31), None, "the one bit that is left");
        let space = system(&all, 2, 95).solve();
        assert_eq!((0..95).filter(|bit| !space.is_forced(*bit)).collect::<Vec<_>>(), [31]);
        assert_eq!((0..95).filter(|bit| !space.is_forced(95 + bit)).collect::<Vec<_>>(), [63]);
    }

    /// The hash of a model with other field widths: bit by bit.
    fn hash(key: &[bool], input: &[bool], hash_bits: usize) -> Vec<bool> {
        let place =
            |place: usize| input.iter().enumerate().filter(|(at, bit)| **bit && key[at + place]).count() % 2 == 1;
        (0..hash_bits).map(place).collect()
    }

    fn input(member: &Member, values: &[(Field, u32)]) -> Vec<bool> {
        let bits = |field: Field| {
            let value = values.iter().find(|(other, _)| *other == field).unwrap().1;
            (0..field.bits(Family::V4)).rev().map(move |bit| value >> bit & 1 == 1)
        };
        member.selection.iter().flat_map(bits).collect()
    }

    /// True if a pair of keys hashes alike all that must, tried out: the hash is linear, so one bit at a time does.
    fn holds(members: &[Member], keys: &[Vec<bool>], hash_bits: usize) -> bool {
        let of = |member: &Member, values: &[(Field, u32)]| hash(&keys[member.port], &input(member, values), hash_bits);
        let nothing = Field::ALL.map(|field| (field, 0));
        let with = |field: Field, bit: u32| Field::ALL.map(|other| (other, if other == field { 1 << bit } else { 0 }));
        let ports = Field::ALL.into_iter().filter(|field| Fields::PORTS.contains(*field));
        let unnamed_count_not = members.iter().all(|member| {
            ports
                .clone()
                .filter(|field| !member.named.contains(field))
                .all(|field| (0..16).all(|bit| of(member, &with(field, bit)) == of(member, &nothing)))
        });
        let places = members[0].named.len();
        unnamed_count_not
            && (0..places).all(|place| {
                (0..16).all(|bit| {
                    let appearances = members.iter().flat_map(|member| {
                        let field = member.named[place];
                        let back = member.symmetric.then(|| field.opposite());
                        [Some(field), back].into_iter().flatten().map(move |field| of(member, &with(field, bit)))
                    });
                    let mut appearances: Vec<_> = appearances.collect();
                    appearances.dedup();
                    appearances.len() == 1
                })
            })
    }

    proptest! {
        /// Small hashes over ports: keys from the space hash alike what must be alike, and keys that do are in the space.
        #[test]
        fn the_space_is_what_trying_finds(
            names in prop::collection::vec((0_usize..3, 0_usize..3, any::<bool>()), 1..4),
            places in 1_usize..3, bits in prop::collection::vec(any::<bool>(), 200), hash_bits in 1_usize..5, choice in any::<u64>(),
        ) {
            const NAMES: [&[Field]; 3] = [&[Field::SrcPort], &[Field::DstPort], &[Field::SrcPort, Field::DstPort]];
            const PAIRS: [&[Field]; 2] = [&[Field::SrcPort, Field::DstPort], &[Field::DstPort, Field::SrcPort]];
            let members: Vec<Member> = names.iter().enumerate().map(|(index, (named, selection, symmetric))| {
                let named = if places == 1 { NAMES[named % 2] } else { PAIRS[named % 2] };
                member(index % 2, PacketType::Tcp4, named, NAMES[*selection], *symmetric && places == 2)
            }).collect();
            let key_bits = 32 + hash_bits - 1;
            let all = constraints(&members, hash_bits);
            let space = system(&all, 2, key_bits).solve();
            let keys = |bits: &Bits| -> Vec<Vec<bool>> {
                (0..2).map(|port| (0..key_bits).map(|bit| bits.get(port * key_bits + bit)).collect()).collect()
            };
            let mut choice = choice;
            for _ in 0..4 {
                let inside = space.combine(|| { choice = choice.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15); choice >> 63 == 1 });
                prop_assert!(holds(&members, &keys(&inside), hash_bits));
                // Beside it by one bit: in the space if and only if it does.
                let mut beside = inside;
                beside.flip(choice as usize % (2 * key_bits));
                prop_assert_eq!(space.contains(&beside), holds(&members, &keys(&beside), hash_bits));
            }
            let mut any = Bits::zero(2 * key_bits);
            (0..2 * key_bits).filter(|bit| bits[*bit]).for_each(|bit| any.flip(bit));
            prop_assert_eq!(space.contains(&any), holds(&members, &keys(&any), hash_bits));
            // Every bit that is forced has a chain of reasons, and no other has.
            for bit in 0..2 * key_bits {
                prop_assert_eq!(chain(&all, bit / key_bits, bit % key_bits).is_some(), space.is_forced(bit));
            }
        }
    }
}
