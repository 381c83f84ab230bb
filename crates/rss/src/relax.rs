//! Finds weaker requirements for which there is a key.

use crate::card::{Driver, Scope};
use crate::field::{Family, PacketType};
use crate::sets::Vary;
use crate::solve::{Outcome, Problem, solve};

/// A weaker requirement for which there is a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relaxation {
    /// What changes, as text.
    pub says: String,
    /// The driver that configures the card.
    pub driver: Driver,
    /// The only packet types that matter; `None` for all.
    pub types: Option<Vec<PacketType>>,
    /// Bits in which hosts differ.
    pub vary: Vary,
    /// True if all ports may be on one card.
    pub one_card: bool,
}

/// Similar problems that have a solution, each with one requirement less.
#[must_use]
pub fn relaxations(problem: &Problem<'_>) -> Vec<Relaxation> {
    let Problem { driver, sets, one_card, .. } = *problem;
    let vary = sets.vary;
    let of = |says: &str, wanted: &dyn Fn(PacketType) -> bool| {
        let counts =
            |kind: &PacketType| sets.ports.iter().any(|port| port.types.iter().any(|other| other.kind == *kind));
        let (types, others): (Vec<_>, Vec<_>) =
            PacketType::ALL.into_iter().filter(counts).partition(|kind| wanted(*kind));
        let given_up = !types.is_empty() && !others.is_empty();
        given_up.then(|| Relaxation { says: says.to_owned(), driver, types: Some(types), vary, one_card })
    };
    let other = match driver {
        Driver::Linux => Driver::Dpdk,
        Driver::Dpdk => Driver::Linux,
    };
    let names = [
        Some(Relaxation { says: format!("configured by {other}"), driver: other, types: None, vary, one_card }),
        (one_card && problem.card.fields_scope == Scope::Device).then(|| Relaxation {
            says: "with each port on its own card".to_owned(),
            driver,
            types: None,
            vary,
            one_card: false,
        }),
        of("if only packets with ports touch the state", &|kind| !kind.fields().both(crate::Fields::PORTS).is_empty()),
        of("if only TCP and UDP touch the state", &is_tcp_or_udp),
        of("if only IPv4 touches the state", &|kind| kind.family() == Family::V4),
        of("if only IPv6 touches the state", &|kind| kind.family() == Family::V6),
        of("if only TCP and UDP over IPv4 touch the state", &|kind| is_tcp_or_udp(kind) && kind.family() == Family::V4),
        of("if only TCP and UDP over IPv6 touch the state", &|kind| is_tcp_or_udp(kind) && kind.family() == Family::V6),
        (vary != Vary::ALL).then(|| Relaxation {
            says: "if hosts are spread over the whole address space, not in one /8 or /32".to_owned(),
            driver,
            types: None,
            vary: Vary::ALL,
            one_card,
        }),
    ];
    let mut found: Vec<Relaxation> = Vec::new();
    for relaxation in names.into_iter().flatten() {
        // Skip a relaxation that gives up more than another one.
        let more = |than: &Relaxation| match (&than.types, &relaxation.types) {
            (Some(kept), Some(types)) => types.iter().all(|kind| kept.contains(kind)),
            (Some(_) | None, None) | (None, Some(_)) => false,
        };
        if !found.iter().any(more) && holds(problem, &relaxation) {
            found.push(relaxation);
        }
    }
    found
}

fn holds(problem: &Problem<'_>, relaxation: &Relaxation) -> bool {
    let sets = match &relaxation.types {
        Some(types) => problem.sets.only(types),
        None => Some(problem.sets.clone()),
    };
    let Some(mut sets) = sets else { return false };
    sets.vary = relaxation.vary;
    let problem = Problem { driver: relaxation.driver, sets: &sets, one_card: relaxation.one_card, ..*problem };
    matches!(solve(&problem), Outcome::Solved(_))
}

fn is_tcp_or_udp(kind: PacketType) -> bool {
    matches!(kind, PacketType::Tcp4 | PacketType::Udp4 | PacketType::Tcp6 | PacketType::Udp6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Card, PacketSets};

    fn says(card: &str, driver: Driver, line: &str) -> Vec<String> {
        let sets = PacketSets::from_line(line, None).unwrap();
        let problem = Problem::new(Card::named(card).unwrap(), driver, &sets);
        relaxations(&problem).into_iter().map(|relaxation| relaxation.says).collect()
    }

    #[test]
    fn what_would_do() {
        let ice = says("ice", Driver::Linux, "lan: src, wan: dst");
        assert_eq!(ice[..2], ["configured by dpdk", "if only packets with ports touch the state"], "{ice:?}");
        let virtio = says("virtio", Driver::Linux, "wan: dst");
        assert_eq!(virtio, ["if only IPv4 touches the state", "if only IPv6 touches the state"]);
    }
}
