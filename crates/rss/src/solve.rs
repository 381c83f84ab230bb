//! Solves for keys: the space of keys that keep packet sets together, and one of them that spreads well.

use crate::card::{Card, Driver, Scope};
use crate::constraint::{Constraint, constraints, one_key, system};
use crate::gf2::{Bits, Space, rank};
use crate::key::Key;
use crate::plan::{Member, Prefer, members};
use crate::proof::Proof;
use crate::rng::Rng;
use crate::sets::PacketSets;

/// Bits of a hash.
pub(crate) const HASH_BITS: usize = 32;
/// Number of random keys of which the best is taken.
const DRAWS: usize = 128;
/// Low bits of a field in which neighbouring hosts differ.
const NEIGHBOURS: usize = 8;
/// If no random key is good enough, all keys are tried up to this number of free bits.
const TRIED_BITS_MAX: usize = 12;

/// A problem: keys for these packet sets on this card.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The card.
    pub card: &'static Card,
    /// The driver that configures it.
    pub driver: Driver,
    /// The packet sets.
    pub sets: &'a PacketSets,
    /// True if all ports are on one card, which may allow only one choice of fields.
    pub one_card: bool,
    /// Entries of the indirection table, a power of two.
    pub table: usize,
    /// Seed of the random keys.
    pub seed: u64,
}

impl<'a> Problem<'a> {
    /// The problem with the card's usual table, all ports on one card.
    #[must_use]
    pub const fn new(card: &'static Card, driver: Driver, sets: &'a PacketSets) -> Self {
        Self { card, driver, sets, one_card: true, table: card.table_sizes[0], seed: 1 }
    }

    /// True if the card can hash some of these packets in several ways. Not all selections are tried, only these: the exact one or the
    /// closest with more fields, the same for all types of a set, and the closest with fewer. A proof is for these selections.
    #[must_use]
    pub fn leaves_choice(&self) -> bool {
        let kinds = self.sets.ports.iter().flat_map(|port| &port.types).map(|of_type| of_type.kind);
        kinds.into_iter().any(|kind| self.card.selections(self.driver, kind).len() > 1)
    }
}

/// Result of [`solve`].
#[derive(Clone, Debug)]
pub enum Outcome {
    /// There are keys.
    Solved(Box<Solution>),
    /// There is no key that spreads, with the fields closest to the sets; see [`Problem::leaves_choice`].
    Impossible(Proof),
    /// No random key spreads well enough, but there may be one.
    NotFound(Proof),
}

/// Keys that shard packet sets.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The card.
    pub card: &'static Card,
    /// Who sets it up.
    pub driver: Driver,
    /// Entries of the indirection table.
    pub table: usize,
    /// Names of the ports.
    pub ports: Vec<String>,
    /// A key for each port.
    pub keys: Vec<Key>,
    /// The hashed fields of each packet type and port.
    pub members: Vec<Member>,
    /// How well each class is spread.
    pub ranks: Vec<Rank>,
    /// The constraints on the keys.
    pub constraints: Vec<Constraint>,
    /// All keys that keep the sets together, including the zero key; the keys of the ports are concatenated.
    pub space: Space,
}

/// Number of index bits that depend on the differences between the hosts of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The class.
    pub class: usize,
    /// Independent index bits.
    pub rank: usize,
    /// All index bits.
    pub of: usize,
    /// The same for each field that names the set, as far as it is hashed.
    pub fields: Vec<FieldRank>,
}

/// Number of index bits that depend on one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRank {
    /// The field's place in the set's name.
    pub place: usize,
    /// Bits of the index that differ independently with it.
    pub rank: usize,
    /// Those that depend on its last eight bits, in which neighbours differ.
    pub neighbours: usize,
}

/// What a class asks of the keys.
pub(crate) struct Demand {
    /// The member that shows it; all members of a class hash alike.
    pub(crate) member: usize,
    /// For each input bit that differs between hosts, the key bit with which it counts for the index's highest bit.
    pub(crate) bits: Vec<usize>,
    /// The same, by the field's place in the set's name.
    fields: Vec<(usize, Vec<usize>)>,
    /// What rank will do.
    pub(crate) required: usize,
}

/// Solves a problem.
///
/// # Panics
/// When the table's size is not a power of two.
#[must_use]
pub fn solve(problem: &Problem<'_>) -> Outcome {
    assert!(problem.table.is_power_of_two(), "tables are indexed by a mask");
    let more = attempt(problem, Prefer::More);
    if matches!(more, Outcome::Solved(_)) {
        return more;
    }
    let others = [Prefer::Alike, Prefer::Less].into_iter().map(|prefer| attempt(problem, prefer));
    others.into_iter().find(|outcome| matches!(outcome, Outcome::Solved(_))).unwrap_or(more)
}

fn attempt(problem: &Problem<'_>, prefer: Prefer) -> Outcome {
    let Problem { card, driver, sets, one_card, table, seed } = *problem;
    let names: Vec<String> = sets.ports.iter().map(|port| port.name.clone()).collect();
    let members = match members(card, driver, sets, one_card, prefer) {
        Ok(members) => members,
        Err((port, kind)) => return Outcome::Impossible(Proof::unhashed(&names[port], kind)),
    };
    let key_bits = card.key_bytes * 8;
    let mut constraints = constraints(&members, HASH_BITS);
    if one_card && card.key_scope == Scope::Device {
        constraints.extend(one_key(names.len(), key_bits));
    }
    let space = system(&constraints, names.len(), key_bits).solve();
    let index_bits = table.ilog2() as usize;
    let demands = demands(&members, sets, key_bits, index_bits);
    let forced: Vec<bool> = (0..names.len() * key_bits).map(|bit| space.is_forced(bit)).collect();
    for demand in &demands {
        let alive = (0..index_bits).filter(|row| demand.bits.iter().any(|bit| !forced[bit + row])).count();
        if alive < demand.required {
            let proof = Proof::forced(&names, &members, demand, &constraints, &forced, key_bits, index_bits, sets.vary);
            return Outcome::Impossible(proof);
        }
    }
    let key = draw(&space, &demands, index_bits, seed);
    if let Some(demand) = demands.iter().find(|demand| rank_of(&key, &demand.bits, index_bits) < demand.required) {
        return unspread(&names, &members, demand, &space, index_bits);
    }
    let keys = (0..names.len()).map(|port| Key::from_bits(&key, port * key_bits, key_bits)).collect();
    let field_rank = |(place, bits): &(usize, Vec<usize>)| FieldRank {
        place: *place,
        rank: rank_of(&key, bits, index_bits),
        neighbours: rank_of(&key, last(bits, NEIGHBOURS), index_bits),
    };
    let ranks = demands.iter().map(|demand| Rank {
        class: members[demand.member].class,
        rank: rank_of(&key, &demand.bits, index_bits),
        of: index_bits,
        fields: demand.fields.iter().map(field_rank).collect(),
    });
    let ranks = ranks.collect();
    Outcome::Solved(Box::new(Solution { card, driver, table, ports: names, keys, members, ranks, constraints, space }))
}

/// What each class asks.
fn demands(members: &[Member], sets: &PacketSets, key_bits: usize, index_bits: usize) -> Vec<Demand> {
    let classes = members.iter().map(|member| member.class).max().map_or(0, |last| last + 1);
    let of_class = |class: usize| {
        // The one that hashes most of what names the set.
        let in_class = (0..members.len()).filter(|index| members[*index].class == class);
        let member = in_class.min_by_key(|index| members[*index].missing().len()).unwrap_or(0);
        let Member { port, kind, named, .. } = &members[member];
        let mut varying = 0;
        let mut fields = Vec::new();
        for (place, field) in named.iter().enumerate() {
            let (all, last) = (field.bits(kind.family()), sets.vary.bits(*field, kind.family()));
            varying += last;
            if let Some(offset) = members[member].offset(*field) {
                let first = port * key_bits + offset + all - last + HASH_BITS - index_bits;
                fields.push((place, (first..first + last).collect::<Vec<usize>>()));
            }
        }
        let bits = fields.iter().flat_map(|(_, bits)| bits.iter().copied()).collect();
        Demand { member, bits, fields, required: index_bits.min(varying) }
    };
    (0..classes).map(of_class).collect()
}

/// The rank of the index's bits over input bits: each column is what one of them adds to the index.
fn rank_of(key: &Bits, bits: &[usize], index_bits: usize) -> usize {
    let column = |bit: &usize| (0..index_bits).map(|row| u64::from(key.get(bit + row)) << row).sum::<u64>();
    rank(bits.iter().map(column))
}

/// The last bits of a field.
fn last(bits: &[usize], len: usize) -> &[usize] {
    &bits[bits.len().saturating_sub(len)..]
}

/// The best of some keys that a seed draws: first by whether all classes spread in full, then by each field alone, by the
/// last bits of each field, which differ between neighbours.
fn draw(space: &Space, demands: &[Demand], index_bits: usize, seed: u64) -> Bits {
    let mut rng = Rng::new(seed);
    let score = |key: &Bits| {
        let full = demands.iter().filter(|demand| rank_of(key, &demand.bits, index_bits) >= demand.required).count();
        let by_field = demands
            .iter()
            .flat_map(|demand| &demand.fields)
            .map(|(_, bits)| rank_of(key, bits, index_bits) + rank_of(key, last(bits, NEIGHBOURS), index_bits));
        (full, by_field.sum::<usize>())
    };
    let draws = (0..DRAWS).map(|_| space.combine(|| rng.bits() >> 63 == 1));
    let best = draws.map(|key| (score(&key), key)).reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or_else(|| space.combine(|| false), |(_, key)| key)
}

/// No key that was drawn spreads a class: tries all, if there are few.
fn unspread(names: &[String], members: &[Member], demand: &Demand, space: &Space, index_bits: usize) -> Outcome {
    let mut free: Vec<Bits> = Vec::new();
    let mut pivots = Vec::new();
    for member in space.basis() {
        let relevant = |bit: usize| demand.bits.iter().any(|first| (*first..first + index_bits).contains(&bit));
        let mut row = member.clone();
        while let Some(bit) = row.first_where(relevant) {
            match pivots.iter().position(|pivot| *pivot == bit) {
                Some(at) => row.add(&free[at]),
                None => {
                    pivots.push(bit);
                    free.push(row);
                    break;
                }
            }
        }
    }
    let name = &names[members[demand.member].port];
    if free.len() > TRIED_BITS_MAX {
        return Outcome::NotFound(Proof::not_found(name, &members[demand.member], DRAWS));
    }
    let best = (0..1_usize << free.len()).map(|choice| {
        let mut key = space.combine(|| false);
        for (_, member) in free.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1) {
            key.add(member);
        }
        rank_of(&key, &demand.bits, index_bits)
    });
    let best = best.max().unwrap_or(0);
    let proof = Proof::tried(name, &members[demand.member], 1 << free.len(), best, demand.required);
    if best < demand.required { Outcome::Impossible(proof) } else { Outcome::NotFound(proof) }
}

#[cfg(test)]
mod tests;
