//! Members: the combination of packet sets with the fields that a card is configured to hash.

use std::collections::BTreeMap;

use crate::card::{Card, Driver, Scope};
use crate::field::{Family, Field, Fields, PacketType};
use crate::sets::PacketSets;

/// Packets of one type at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The port, as an index.
    pub port: usize,
    /// The type.
    pub kind: PacketType,
    /// Fields that name the packet set: packets with equal values in the same places are in the same set.
    pub named: Vec<Field>,
    /// True if packets in the other direction are in the same set.
    pub symmetric: bool,
    /// Fields that the card hashes.
    pub selection: Fields,
    /// Members of the same class may have packets of the same set.
    pub class: usize,
}

impl Member {
    /// First bit of a field in the hash input.
    #[must_use]
    pub fn offset(&self, field: Field) -> Option<usize> {
        self.kind.offset(self.selection, field)
    }

    /// Fields that are hashed but don't name the set.
    #[must_use]
    pub fn extra(&self) -> Fields {
        self.selection.without(self.named_set())
    }

    /// Fields that name the set but are not hashed.
    #[must_use]
    pub fn missing(&self) -> Fields {
        self.named_set().without(self.selection)
    }

    fn named_set(&self) -> Fields {
        self.named.iter().copied().collect()
    }
}

/// Which selection to prefer if a card can't hash exactly the fields of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// More fields; the key must cancel the extra ones.
    More,
    /// The same fields for all types that share sets, as many as any of them needs, so that their hashes use the same bits.
    Alike,
    /// Fewer fields; sets that differ only in the others share a queue.
    Less,
}

/// The selection closest to `named`: exact, else by preference, else a part of it with extra fields. `None` if it hashes no packets of
/// this type.
pub(crate) fn select(card: &Card, driver: Driver, kind: PacketType, named: Fields, prefer: Prefer) -> Option<Fields> {
    let all = card.selections(driver, kind);
    if all.contains(&named) {
        return Some(named);
    }
    // Smallest first, so the first superset is the tightest and the last part the widest.
    let more = || all.iter().copied().find(|selection| named.is_part_of(*selection));
    let less = || all.iter().copied().rfind(|selection| selection.is_part_of(named));
    let nearest = match prefer {
        Prefer::More | Prefer::Alike => more().or_else(less),
        Prefer::Less => less().or_else(more),
    };
    let overlap = |selection: &Fields| (selection.both(named).len(), usize::MAX - selection.len());
    nearest
        .or_else(|| all.iter().copied().max_by_key(overlap).filter(|selection| !selection.both(named).is_empty()))
        .or_else(|| all.first().copied())
}

/// What a card hashes of packets of a type at a port, given what ports name. Where all ports have one choice of fields, it is
/// made for all that any of them names.
pub(crate) fn select_at(
    card: &Card,
    driver: Driver,
    sets: &PacketSets,
    one_card: bool,
    (kind, named): (PacketType, Fields),
    prefer: Prefer,
) -> Option<Fields> {
    let all = sets.ports.iter().flat_map(|port| &port.types).filter(|other| other.kind == kind);
    let shared = one_card && card.fields_scope == Scope::Device;
    let wanted = if shared { all.fold(named, |sum, other| sum.with(other.set())) } else { named };
    select(card, driver, kind, wanted, prefer)
}

/// Every member, or the first packets that the card doesn't hash at all: their port and type.
pub(crate) fn members(
    card: &Card,
    driver: Driver,
    sets: &PacketSets,
    one_card: bool,
    prefer: Prefer,
) -> Result<Vec<Member>, (usize, PacketType)> {
    let mut classes = BTreeMap::new();
    let mut members = Vec::new();
    for (port, of_port) in sets.ports.iter().enumerate() {
        for of_type in &of_port.types {
            let kind = of_type.kind;
            // If one port tells the type from others, then all that share its state do.
            let alone = sets
                .ports
                .iter()
                .filter(|other| other.state == of_port.state)
                .flat_map(|other| &other.types)
                .any(|other| other.kind == kind && other.alone);
            let key: (&str, Family, Option<PacketType>) = (&of_port.state, kind.family(), alone.then_some(kind));
            let next = classes.len();
            let class = *classes.entry(key).or_insert(next);
            let asked = (kind, of_type.set());
            let selection = select_at(card, driver, sets, one_card, asked, prefer).ok_or((port, kind))?;
            let (named, symmetric) = (of_type.fields.clone(), of_port.symmetric);
            members.push(Member { port, kind, named, symmetric, selection, class });
        }
    }
    if prefer == Prefer::Alike {
        let shared = one_card && card.fields_scope == Scope::Device;
        let of = |member: &Member| {
            let with = |other: &&Member| other.class == member.class && (shared || other.port == member.port);
            let all = members.iter().filter(with).fold(Fields::NONE, |sum, other| sum.with(other.selection));
            select(card, driver, member.kind, all, prefer).unwrap_or(member.selection)
        };
        let selections: Vec<Fields> = members.iter().map(of).collect();
        for (member, selection) in members.iter_mut().zip(selections) {
            member.selection = selection;
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str) -> &'static Card {
        Card::named(name).unwrap()
    }

    #[test]
    fn the_nearest_that_a_card_can_do() {
        let src = Fields::of(&[Field::Src]);
        let ixgbe = |kind, named, prefer| select(card("ixgbe"), Driver::Linux, kind, named, prefer).unwrap();
        assert_eq!(ixgbe(PacketType::Udp4, src, Prefer::More), Fields::HOSTS, "the tightest");
        assert_eq!(ixgbe(PacketType::Tcp4, src, Prefer::Less), Fields::FOUR, "there is nothing less");
        assert_eq!(ixgbe(PacketType::Udp4, Fields::HOSTS, Prefer::More), Fields::HOSTS);
        let three = Fields::of(&[Field::Src, Field::Dst, Field::SrcPort]);
        assert_eq!(ixgbe(PacketType::Udp4, three, Prefer::More), Fields::FOUR);
        assert_eq!(ixgbe(PacketType::Udp4, three, Prefer::Less), Fields::HOSTS);
        assert_eq!(ixgbe(PacketType::Sctp4, Fields::FOUR, Prefer::More), Fields::HOSTS);
        assert_eq!(select(card("ixgbe"), Driver::Linux, PacketType::Ether, Fields::MACS, Prefer::More), None);
    }

    #[test]
    fn types_share_sets_unless_ports_are_named() {
        let members =
            |line| members(card("ice"), Driver::Dpdk, &PacketSets::from_line(line, None).unwrap(), true, Prefer::More);
        let classes = |line| members(line).unwrap().iter().map(|member| member.class).max().unwrap() + 1;
        assert_eq!(classes("a: src"), 2, "IPv4 and IPv6");
        assert_eq!(classes("a: src, b: dst"), 2);
        assert_eq!(classes("a: src; b: dst"), 4);
        assert_eq!(classes("a: five-tuple, b: dst src dport sport"), 10);
        assert_eq!(members("a: smac").unwrap().len(), 10, "what names them is not hashed, they are");
    }
}
