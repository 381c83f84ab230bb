//! Compares the fields that name a packet set with the fields that a card can hash, without keys.

use std::fmt;

use crate::card::{Card, Driver};
use crate::field::{Fields, PacketType};
use crate::plan::{Prefer, select_at};
use crate::sets::PacketSets;

/// Result for one packet type at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The port.
    pub port: String,
    /// The type.
    pub kind: PacketType,
    /// The fields that name the packet set.
    pub named: Fields,
    /// How well the card fits.
    pub fit: Fit,
}

/// How well the fields that a card can hash fit a packet set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It can hash exactly these fields.
    Exact,
    /// It can hash a part of them. Sets that differ only in the other fields share a queue, which is correct but coarser.
    Coarser {
        /// The fields that it hashes.
        selection: Fields,
    },
    /// Only for fragments: the card hashes whole packets of the set with ports, so fragments stay together, but apart from the whole
    /// packets.
    Apart {
        /// The fields that it hashes.
        selection: Fields,
    },
    /// It hashes more fields. Packets of one set would reach several queues, unless a key cancels `in_the_way`.
    Splits {
        /// The fields that it hashes.
        selection: Fields,
        /// The fields that must be cancelled.
        in_the_way: Fields,
    },
    /// It hashes none of these packets.
    Unhashed,
}

impl Fit {
    /// True if no set is split, whatever the key. Fragments are an exception: no card can do better for them.
    #[must_use]
    pub const fn keeps_together(self) -> bool {
        matches!(self, Self::Exact | Self::Coarser { .. } | Self::Apart { .. })
    }

    /// The fit's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Coarser { .. } => "coarser",
            Self::Apart { .. } => "apart",
            Self::Splits { .. } => "splits",
            Self::Unhashed => "unhashed",
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exactly these fields can be hashed"),
            Self::Coarser { selection } => {
                write!(f, "{selection} can be hashed: correct, but coarser than necessary")
            }
            Self::Apart { selection } => {
                write!(
                    f,
                    "{selection} is hashed: fragments stay together, but apart from the whole packets of their flow"
                )
            }
            Self::Splits { selection, in_the_way } => {
                write!(f, "{selection} is the closest choice: {in_the_way} would split the set")
            }
            Self::Unhashed => f.write_str("these packets are not hashed: all go to one queue"),
        }
    }
}

/// Checks every packet type at every port. `one_card`: all ports are on one card.
#[must_use]
pub fn check(card: &Card, driver: Driver, sets: &PacketSets, one_card: bool) -> Vec<Check> {
    let mut out = Vec::new();
    for port in &sets.ports {
        let first = out.len();
        for of_type in &port.types {
            let (kind, named) = (of_type.kind, of_type.set());
            // A part is right without a key's help, so it is nearer than more.
            let fit = match select_at(card, driver, sets, one_card, (kind, named), Prefer::Less) {
                None => Fit::Unhashed,
                Some(selection) if selection == named => Fit::Exact,
                // A part of a symmetric set would tell its directions apart, unless it is symmetric itself.
                Some(selection) if selection.is_part_of(named) && (!port.symmetric || is_symmetric(selection)) => {
                    Fit::Coarser { selection }
                }
                Some(selection) => Fit::Splits { selection, in_the_way: selection.without(named) },
            };
            out.push(Check { port: port.name.clone(), kind, named, fit });
        }
        tell_fragments_apart(&mut out[first..]);
    }
    out
}

/// Marks fragments as [`Fit::Apart`] if the card hashes whole packets of the same set by ports.
fn tell_fragments_apart(checks: &mut [Check]) {
    for fragment in [PacketType::Frag4, PacketType::Frag6] {
        let by_ports = |check: &Check| {
            let selection = match check.fit {
                Fit::Exact => check.named,
                Fit::Coarser { selection } | Fit::Splits { selection, .. } => selection,
                Fit::Apart { .. } | Fit::Unhashed => Fields::NONE,
            };
            check.kind.family() == fragment.family() && has_ports(check.named) && has_ports(selection)
        };
        if checks.iter().any(by_ports) {
            for check in checks.iter_mut().filter(|check| check.kind == fragment) {
                match check.fit {
                    Fit::Exact => check.fit = Fit::Apart { selection: check.named },
                    Fit::Coarser { selection } => check.fit = Fit::Apart { selection },
                    Fit::Apart { .. } | Fit::Splits { .. } | Fit::Unhashed => {}
                }
            }
        }
    }
}

fn has_ports(fields: Fields) -> bool {
    fields.without(Fields::PORTS) != fields
}

fn is_symmetric(fields: Fields) -> bool {
    fields.iter().all(|field| fields.contains(field.opposite()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

    fn fit(card: &str, driver: Driver, line: &str, kind: PacketType) -> Fit {
        let sets = PacketSets::from_line(line, None).unwrap();
        check(Card::named(card).unwrap(), driver, &sets, true).into_iter().find(|check| check.kind == kind).unwrap().fit
    }

    #[test]
    fn exact_coarser_and_splitting() {
        use Driver::{Dpdk, Linux};
        use PacketType::{Frag4, Other4, Sctp4, Tcp4};
        let dst = Fields::of(&[Field::Dst]);
        assert_eq!(fit("ice", Linux, "a: src", Tcp4), Fit::Exact);
        assert_eq!(fit("ice", Linux, "a: src", Other4), Fit::Splits { selection: Fields::HOSTS, in_the_way: dst });
        assert_eq!(fit("ice", Dpdk, "a: src", Other4), Fit::Exact);
        let in_the_way = dst.with(Fields::PORTS);
        assert_eq!(fit("ixgbe", Linux, "a: src", Tcp4), Fit::Splits { selection: Fields::FOUR, in_the_way });
        assert_eq!(fit("virtio", Linux, "a: five-tuple", Sctp4), Fit::Coarser { selection: Fields::HOSTS });
        assert_eq!(fit("virtio", Linux, "a: src dst sport", Tcp4), Fit::Coarser { selection: Fields::HOSTS });
        let apart = Fit::Apart { selection: Fields::HOSTS };
        assert_eq!(fit("virtio", Linux, "a: five-tuple", Frag4), apart, "whole packets are hashed by their ports");
        assert_eq!(fit("virtio", Linux, "a: src dst", Frag4), Fit::Exact, "these are hashed alike");
        assert_eq!(
            fit("virtio", Linux, "a: smac", Tcp4),
            Fit::Splits { selection: Fields::HOSTS, in_the_way: Fields::HOSTS }
        );
    }
}
