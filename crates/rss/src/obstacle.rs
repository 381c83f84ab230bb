//! Finds the packets and fields that prevent a key.

use crate::check::{Fit, check};
use crate::field::{Fields, PacketType};
use crate::solve::{Outcome, Problem, solve};

/// Packets at a port that prevent sharding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The port.
    pub port: String,
    /// The types of the packets.
    pub types: Vec<PacketType>,
    /// Fields that are hashed but must be cancelled; none if the packets are not hashed at all.
    pub fields: Fields,
}

/// The obstacles of a problem without a solution: each packet type that has no key together with the types that need none. If the
/// remaining types have no key either: all types that need a key's help, because no key helps all of them at once. Empty if fields are
/// not the reason.
#[must_use]
pub fn obstacles(problem: &Problem<'_>) -> Vec<Obstacle> {
    let rows = check(problem.card, problem.driver, problem.sets, problem.one_card);
    let all = PacketType::ALL.into_iter().filter(|kind| rows.iter().any(|row| row.kind == *kind));
    let together = |kind: &PacketType| rows.iter().filter(|row| row.kind == *kind).all(|row| row.fit.keeps_together());
    let (harmless, others): (Vec<PacketType>, Vec<PacketType>) = all.partition(together);
    if !harmless.is_empty() && !shards(problem, &harmless) {
        return Vec::new();
    }
    let with = |more: &[PacketType]| shards(problem, &[harmless.as_slice(), more].concat());
    let (helped, mut at_fault): (Vec<PacketType>, Vec<PacketType>) = others.iter().partition(|kind| with(&[**kind]));
    if at_fault.is_empty() || !helped.is_empty() && !with(&helped) {
        at_fault = others;
    }
    let mut out: Vec<Obstacle> = Vec::new();
    for row in rows.iter().filter(|row| at_fault.contains(&row.kind)) {
        let fields = match row.fit {
            Fit::Exact | Fit::Coarser { .. } | Fit::Apart { .. } => continue,
            Fit::Splits { in_the_way, .. } => in_the_way,
            Fit::Unhashed => Fields::NONE,
        };
        match out.iter_mut().find(|other| other.port == row.port && other.fields == fields) {
            Some(same) => same.types.push(row.kind),
            None => out.push(Obstacle { port: row.port.clone(), types: vec![row.kind], fields }),
        }
    }
    out
}

/// True if there is a key when only packets of these types matter.
fn shards(problem: &Problem<'_>, types: &[PacketType]) -> bool {
    let Some(sets) = problem.sets.only(types) else { return false };
    matches!(solve(&Problem { sets: &sets, ..*problem }), Outcome::Solved(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Card, Driver, Field, PacketSets};

    fn found_by(card: &str, driver: Driver, line: &str) -> Vec<(String, String, Fields)> {
        let sets = PacketSets::from_line(line, None).unwrap();
        let found = obstacles(&Problem::new(Card::named(card).unwrap(), driver, &sets));
        let names = |types: Vec<PacketType>| types.into_iter().map(PacketType::name).collect::<Vec<_>>().join(" ");
        found.into_iter().map(|Obstacle { port, types, fields }| (port, names(types), fields)).collect()
    }

    fn line(port: &str, types: &str, fields: &[Field]) -> (String, String, Fields) {
        (port.to_owned(), types.to_owned(), Fields::of(fields))
    }

    /// Linux has `ice` hash one address of what has ports, and both of what has none.
    #[test]
    fn types_that_fit_are_not_blamed() {
        let found = found_by("ice", Driver::Linux, "lan: src, wan: dst");
        let types = "other4 frag4 other6 frag6";
        assert_eq!(found, [line("lan", types, &[Field::Dst]), line("wan", types, &[Field::Src])]);
        assert_eq!(found_by("ice", Driver::Dpdk, "lan: src, wan: dst"), [], "there is a key");
    }

    /// `ixgbe` hashes ports of TCP whatever it is told, and ports of UDP only if it is told to.
    #[test]
    fn each_type_has_fields_of_its_own() {
        let found = found_by("ixgbe", Driver::Linux, "lan: src, wan: dst");
        let of = |port: &str, fields: &[Field]| {
            let fields = Fields::of(fields);
            found.iter().find(|(at, _, those)| at == port && *those == fields).map(|(_, types, _)| types.as_str())
        };
        assert_eq!(of("lan", &[Field::Dst, Field::SrcPort, Field::DstPort]), Some("tcp4"), "{found:?}");
        assert_eq!(of("lan", &[Field::Dst]), Some("udp4 sctp4 other4 frag4"), "{found:?}");
        assert_eq!(of("wan", &[Field::Src]), Some("udp4 sctp4 other4 frag4"), "IPv6 has a key: {found:?}");
        // By itself only TCP would leave none, but a key that helps IPv6 leaves nothing of IPv4.
        let types: String =
            found_by("ixgbe", Driver::Linux, "wan: dst").into_iter().map(|(_, types, _)| types + " ").collect();
        assert_eq!(types.split_whitespace().count(), 10, "{types}");
    }

    /// Where what is hashed has nothing to do with the set's name, every type is in the way.
    #[test]
    fn all_types_can_be_in_the_way() {
        let found = found_by("virtio", Driver::Linux, "a: smac");
        assert_eq!(
            found,
            [line("a", "tcp4 udp4 sctp4 other4 frag4 tcp6 udp6 sctp6 other6 frag6", &[Field::Src, Field::Dst])]
        );
    }

    /// What is not said to be in the way can be sharded.
    #[test]
    fn the_rest_has_a_key() {
        for card in Card::all() {
            for driver in Driver::ALL {
                for line in ["lan: src, wan: dst", "wan: dst", "a: five-tuple symmetric", "a: src sport"] {
                    let sets = PacketSets::from_line(line, None).unwrap();
                    let problem = Problem::new(card, driver, &sets);
                    if matches!(solve(&problem), Outcome::Solved(_)) {
                        continue;
                    }
                    let found = obstacles(&problem);
                    let blamed = |kind: &PacketType| found.iter().any(|one| one.types.contains(kind));
                    let rest: Vec<PacketType> = PacketType::ALL.into_iter().filter(|kind| !blamed(kind)).collect();
                    let has_rest = sets.only(&rest).is_some();
                    assert!(
                        !found.is_empty() && (!has_rest || shards(&problem, &rest)),
                        "{} {driver} {line}: {found:?}",
                        card.name
                    );
                }
            }
        }
    }
}
