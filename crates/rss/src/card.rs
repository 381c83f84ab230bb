//! Capabilities of network cards as data: what a card can hash.

use std::fmt;

use crate::cards::CARDS;
use crate::field::{Fields, PacketType};

/// A kind of network card, named after its driver.
#[derive(Debug)]
pub struct Card {
    /// The driver's name.
    pub name: &'static str,
    /// What hardware that is.
    pub hardware: &'static str,
    /// Bytes of the key.
    pub key_bytes: usize,
    /// What a key applies to.
    pub key_scope: Scope,
    /// True if a key can be set.
    pub key_settable: bool,
    /// True if the card counts the key's bytes from the last, but Linux passes them unchanged.
    pub key_reversed_on_linux: bool,
    /// What the choice of fields applies to.
    pub fields_scope: Scope,
    /// Sizes of the indirection table, the usual one first.
    pub table_sizes: &'static [usize],
    /// How the card can hash both directions alike with any key.
    pub symmetry: Symmetry,
    /// True if DPDK configures it with flow rules; otherwise for the port as a whole.
    pub flow_rules: bool,
    /// What can be hashed.
    pub abilities: &'static [Ability],
    /// Facts with their sources.
    pub facts: &'static [Fact],
}

/// What a setting applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each port has its own.
    Port,
    /// All ports of a card share one.
    Device,
}

impl Scope {
    /// The scope's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Device => "device",
        }
    }
}

/// True if a card hashes both directions alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// It can't.
    None,
    /// If requested; the name is `ethtool`'s, if it has one.
    OnRequest(Option<&'static str>),
    /// By default, unless turned off; the name is `ethtool`'s.
    Usual(&'static str),
}

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no"),
            Self::OnRequest(Some(name)) => write!(f, "{name}, on request"),
            Self::OnRequest(None) => f.write_str("with DPDK, on request"),
            Self::Usual(name) => write!(f, "{name}, unless turned off"),
        }
    }
}

/// The driver that configures a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Driver {
    /// Linux's own driver, by `ethtool`.
    Linux,
    /// DPDK's.
    Dpdk,
}

impl Driver {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Linux, Self::Dpdk];

    /// The driver's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Dpdk => "dpdk",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Fields that a driver can select for some packet types.
#[derive(Clone, Copy, Debug)]
pub struct Ability {
    /// The driver.
    pub driver: Driver,
    /// The packet types.
    pub types: &'static [PacketType],
    /// The fields.
    pub choice: Choice,
}

/// The possible selections of fields.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// One of these sets.
    OneOf(&'static [Fields]),
    /// Any part of `of` with at least one field of `with`.
    Part {
        /// All fields.
        of: Fields,
        /// Fields of which at least one must be selected.
        with: Fields,
    },
}

/// A fact about a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it says.
    pub says: &'static str,
    /// Its source.
    pub source: &'static str,
    /// True if the source states it. Otherwise it is an assumption that should be tested on the card.
    pub confirmed: bool,
}

impl Card {
    /// Every card.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        CARDS
    }

    /// The card of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CARDS.iter().find(|card| card.name == name)
    }

    /// The field selections that are possible for packets of this type, the smallest first.
    #[must_use]
    pub fn selections(&self, driver: Driver, kind: PacketType) -> Vec<Fields> {
        let abilities =
            self.abilities.iter().filter(|ability| ability.driver == driver && ability.types.contains(&kind));
        let mut selections: Vec<Fields> = abilities.flat_map(|ability| ability.choice.all()).collect();
        selections.sort_by_key(|selection| (selection.len(), *selection));
        selections.dedup();
        selections
    }

    /// True if the order of these fields in the hash input is documented. Microsoft's specification defines it for both addresses, alone
    /// or with both ports.
    #[must_use]
    pub fn order_is_documented(&self, selection: Fields) -> bool {
        selection == Fields::HOSTS || selection == Fields::FOUR
    }
}

impl Choice {
    fn all(self) -> Vec<Fields> {
        match self {
            Self::OneOf(sets) => sets.to_vec(),
            Self::Part { of, with } => of.parts().into_iter().filter(|part| !part.both(with).is_empty()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

    #[test]
    fn every_card_is_told_in_full() {
        let names: Vec<&str> = Card::all().iter().map(|card| card.name).collect();
        assert_eq!(names, ["mlx5", "ice", "i40e", "ixgbe", "ena", "virtio"]);
        for card in Card::all() {
            assert!(card.key_bytes >= 40, "{}: as long as the longest input", card.name);
            assert!(card.table_sizes.iter().all(|size| size.is_power_of_two()), "{}: hashes are masked", card.name);
            assert!(card.facts.iter().any(|fact| fact.confirmed), "{}", card.name);
            for fact in card.facts {
                assert!(!fact.says.is_empty() && !fact.source.is_empty(), "{}", card.name);
            }
            for driver in Driver::ALL {
                for kind in PacketType::ALL {
                    for selection in card.selections(driver, kind) {
                        assert!(selection.is_part_of(kind.fields()), "{} {driver} {kind}: {selection}", card.name);
                    }
                }
                for kind in [PacketType::Tcp4, PacketType::Udp6, PacketType::Other4, PacketType::Other6] {
                    assert!(!card.selections(driver, kind).is_empty(), "{} {driver} {kind}", card.name);
                }
            }
        }
    }

    /// What the sources say of a few, looked at one by one.
    #[test]
    fn what_sources_say() {
        let has = |card: &str, driver, kind, fields: &[Field]| {
            Card::named(card).unwrap().selections(driver, kind).contains(&Fields::of(fields))
        };
        use Driver::{Dpdk, Linux};
        use Field::{Dst, DstPort, Src, SrcPort};
        use PacketType::{Other4, Sctp4, Tcp4, Tcp6, Udp4};
        assert!(has("mlx5", Linux, Tcp4, &[Src]) && has("mlx5", Linux, Tcp6, &[DstPort]));
        assert!(!has("mlx5", Linux, Other4, &[Src]) && has("mlx5", Dpdk, Other4, &[Src]));
        assert!(has("ice", Linux, Sctp4, &[Dst, SrcPort]) && !has("ice", Linux, Other4, &[Dst]));
        assert!(has("i40e", Dpdk, Other4, &[Dst]) && !has("i40e", Linux, Sctp4, &[Src]));
        assert_eq!(Card::named("ixgbe").unwrap().selections(Linux, Tcp4), [Fields::FOUR]);
        assert_eq!(Card::named("ixgbe").unwrap().selections(Linux, Udp4), [Fields::HOSTS, Fields::FOUR]);
        assert_eq!(Card::named("virtio").unwrap().selections(Linux, Tcp4), [Fields::HOSTS, Fields::FOUR]);
        assert_eq!(Card::named("virtio").unwrap().selections(Linux, Sctp4), [Fields::HOSTS]);
    }
}
