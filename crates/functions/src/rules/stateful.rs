//! Matches and targets with state that packet sets share: rates, lists of addresses, counters, sets that rules change.

mod build;
mod table;

use alloc::vec::Vec;
use core::mem;

use iptables::matches::{HashLimitKey, Recent};
use memory::{Allocator, Memory, Vector};
use nf::{Fingerprint, Kept, Step};
use packet::{Key, Nanos, Words};

use super::tuple::Tuple;
use super::view::View;
use table::{KeyTable, REMOVED, TableShape};

pub(super) use build::{Builder, changing};

/// A match or a target with state.
#[derive(Clone, Debug)]
pub(super) enum Stateful {
    /// A bucket for all packets: nanoseconds from one packet to the next, and how far it may be behind.
    Limit {
        cell: usize,
        period: u64,
        depth: u64,
    },
    HashLimit {
        table: usize,
        limit: KeyedLimit,
    },
    Recent {
        list: usize,
        rule: Recent,
        mask: u128,
    },
    /// Of `every` packets the one with the number `packet`.
    Nth {
        cell: usize,
        every: u64,
        packet: u64,
        negated: bool,
    },
    /// A share of the packets, in parts of 2^31.
    Random {
        parts: u32,
        salt: u64,
        negated: bool,
    },
    /// A number of bytes, then no more (`quota`).
    Quota {
        cell: usize,
        bytes: u64,
        negated: bool,
    },
    ConnLimit {
        number: u32,
        above: u32,
        negated: bool,
    },
    /// A look-up in a set that rules change.
    Member {
        table: usize,
        sides: Vec<bool>,
        negated: bool,
    },
    /// A change of a set.
    Change {
        table: usize,
        sides: Vec<bool>,
        adds: bool,
        refreshes: bool,
        timeout: Option<Nanos>,
    },
}

/// The limit of each key of `hashlimit`.
#[derive(Clone, Debug)]
pub(super) struct KeyedLimit {
    key: HashLimitKey,
    masks: [u128; 2],
    cost: Cost,
    depth: u64,
    expire: Nanos,
    /// Matches what exceeds the rate.
    above: bool,
}

/// The nanoseconds of the rate that a packet takes.
#[derive(Clone, Copy, Debug)]
enum Cost {
    Packet(u64),
    /// Bytes a second.
    Bytes(u64),
}

/// Addresses and ports, with zeros for what doesn't count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    src: u128,
    dst: u128,
    /// Ports and protocol.
    rest: u64,
}

packet::words! {
    Named: [5], named => {
        let Self { src, dst, rest } = named;
        [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, rest]
    }, words => {
        let [a, b, c, d, rest] = words;
        let address = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        Self { src: address(a, b), dst: address(c, d), rest }
    };
}

impl Key for Named {
    fn hash(&self, seed: u64) -> u64 {
        packet::hash_words(self.to_words(), seed)
    }
}

/// What memory the matches with state need.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    cells: usize,
    tables: Vec<TableShape>,
    /// The groups of each rule of `connlimit`: the mask, and whether the destination counts.
    pub(super) groups: Vec<(u128, bool)>,
}

/// The state of all matches and targets with state.
pub(super) struct RuleState<M: Memory> {
    cells: M::Vector<u64>,
    tables: Vec<KeyTable<M>>,
    /// Live connections of `connlimit`, by rule and group.
    pub(super) groups: M::Map<Named, u64>,
    group_shapes: Vec<(u128, bool)>,
    /// The number of the rule set: one more with each that has succeeded another.
    pub(super) generation: u16,
}

impl<M: Memory> RuleState<M> {
    pub(super) fn new(shapes: &Shapes, connections: usize, generation: u16, memory: &M) -> Self {
        Self {
            cells: memory.vector(shapes.cells, 0),
            tables: shapes.tables.iter().map(|shape| KeyTable::new(shape, memory)).collect(),
            groups: memory.map(connections * shapes.groups.len()),
            group_shapes: shapes.groups.clone(),
            generation,
        }
    }

    /// Fits the state to a rule set that succeeds another. Tables of `hashlimit`, lists of `recent` and sets that rules change stay if
    /// both have them; all else begins anew.
    pub(super) fn adopt(&mut self, new: &Shapes, old: &Shapes, connections: usize, generation: u16, memory: &M) {
        let mut tables: Vec<Option<KeyTable<M>>> = mem::take(&mut self.tables).into_iter().map(Some).collect();
        let kept = new.tables.iter().map(|shape| {
            let number = old.tables.iter().position(|other| other == shape);
            let table = number.and_then(|number| tables.get_mut(number)?.take());
            table.unwrap_or_else(|| KeyTable::new(shape, memory))
        });
        let tables = kept.collect();
        *self = Self {
            tables,
            ..Self::new(&Shapes { tables: Vec::new(), ..new.clone() }, connections, generation, memory)
        };
    }

    /// Keeps all but the groups of `connlimit`, which follow from the connections.
    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        kept.vector::<M, _>(tx, &self.cells)?;
        self.tables.iter().try_for_each(|table| table.keep(tx, kept))
    }

    /// The address of a connection's group in a rule of `connlimit`. A destination is that to which the connection was rewritten.
    pub(super) fn group_address(&self, rule: u32, [original, reply]: &[Tuple; 2]) -> u128 {
        let (mask, by_destination) = self.group_shapes[rule as usize];
        mask & if by_destination { reply.src } else { original.src }
    }

    /// True if there is a group of each rule of these bits.
    pub(super) fn has_groups(&self, limits: u64) -> bool {
        (u64::BITS - limits.leading_zeros()) as usize <= self.group_shapes.len()
    }

    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for cell in 0..self.cells.len() {
            fingerprint.add(self.cells.read(tx, cell)?);
        }
        for table in &self.tables {
            let mut sum = 0_u64;
            for index in 0..table.ages.capacity() {
                if table.ages.is_allocated(tx, index)? {
                    let mut digest = Fingerprint::default();
                    table.keys.read(tx, index)?.to_words().into_iter().for_each(|word| digest.add(word));
                    for word in 0..table.width {
                        digest.add(table.words.read(tx, index * table.width + word)?);
                    }
                    // A sum, because an entry's index has no visible effect.
                    sum = sum.wrapping_add(digest.value());
                }
            }
            fingerprint.add(sum);
        }
        Ok(())
    }
}

/// The outcome of a match with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Is(bool),
    /// A table is full: the kernel drops the packet at once.
    Full,
}

/// What a match with state may need to know besides the packet.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Nanos,
    /// A number of the packet's own, the same in every engine.
    pub(super) random: u64,
}

impl Stateful {
    /// Asks the match, which may change state. `connlimit` is not asked here.
    pub(super) fn ask<'a, M: Memory>(
        &self,
        state: &'a RuleState<M>,
        tx: &mut M::Tx<'a>,
        view: &View,
        moment: Moment,
    ) -> Step<Answer, M> {
        let now = moment.now;
        Ok(Answer::Is(match self {
            Self::Limit { cell, period, depth } => {
                let full_at = state.cells.read(tx, *cell)?;
                match spend(full_at, *period, *depth, now) {
                    Some(full_at) => {
                        state.cells.write(tx, *cell, full_at)?;
                        true
                    }
                    None => false,
                }
            }
            Self::Nth { cell, every, packet, negated } => {
                let count = state.cells.read(tx, *cell)?;
                state.cells.write(tx, *cell, (count + 1) % every)?;
                (count == *packet) != *negated
            }
            Self::Random { parts, salt, negated } => {
                let drawn = (moment.random ^ salt).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
                (drawn < u64::from(*parts)) != *negated
            }
            Self::Quota { cell, bytes, negated } => {
                let used = state.cells.read(tx, *cell)?;
                let left = bytes - used;
                let (used, is_left) = match left >= u64::from(view.len) {
                    true => (used + u64::from(view.len), true),
                    false => (*bytes, false),
                };
                state.cells.write(tx, *cell, used)?;
                is_left != *negated
            }
            Self::HashLimit { table, limit } => return limit.ask(&state.tables[*table], tx, view, now),
            Self::Recent { list, rule, mask } => return state.tables[*list].recent(tx, rule, *mask, view, now),
            Self::Member { table, sides, negated } => {
                state.tables[*table].has(tx, &Named::of_sides(sides, view), now)? != *negated
            }
            Self::Change { .. } | Self::ConnLimit { .. } => false,
        }))
    }

    /// Carries out the change of a set.
    pub(super) fn change<'a, M: Memory>(
        &self,
        state: &'a RuleState<M>,
        tx: &mut M::Tx<'a>,
        view: &View,
        now: Nanos,
    ) -> Step<(), M> {
        let Self::Change { table, sides, adds, refreshes, timeout } = self else { return Ok(()) };
        let table = &state.tables[*table];
        let name = Named::of_sides(sides, view);
        let deadline = timeout.map_or(Nanos::NEVER, |timeout| now + timeout);
        let (found, was_initial) = (table.find(tx, &name, now)?, table.initial.binary_search(&name).is_ok());
        match (found, adds) {
            (Some(index), true) => {
                let was_removed = table.words.read(tx, index)? == REMOVED;
                if was_removed || *refreshes {
                    table.words.write(tx, index, 0)?;
                    table.ages.refresh(tx, index, deadline)?;
                }
            }
            (None, true) if was_initial => {}
            // A set that is full stays as it is.
            (None, true) => {
                if let Some(index) = table.insert(tx, name, deadline, now)? {
                    table.words.write(tx, index, 0)?;
                }
            }
            (Some(index), false) if was_initial => {
                table.words.write(tx, index, REMOVED)?;
                table.ages.refresh(tx, index, Nanos::NEVER)?;
            }
            (Some(index), false) => table.remove(tx, index)?,
            (None, false) if was_initial => {
                if let Some(index) = table.insert(tx, name, Nanos::NEVER, now)? {
                    table.words.write(tx, index, REMOVED)?;
                }
            }
            (None, false) => {}
        }
        Ok(())
    }
}

/// Takes `cost` from a bucket that is full at `full_at` and is `depth` deep; returns when it is full again.
fn spend(full_at: u64, cost: u64, depth: u64, now: Nanos) -> Option<u64> {
    let next = full_at.max(now.0).saturating_add(cost);
    (next - now.0 <= depth).then_some(next)
}

impl KeyedLimit {
    fn ask<'a, M: Memory>(
        &self,
        table: &'a KeyTable<M>,
        tx: &mut M::Tx<'a>,
        view: &View,
        now: Nanos,
    ) -> Step<Answer, M> {
        let HashLimitKey { source, source_port, destination, destination_port } = self.key;
        let port = |counts: bool, port: u16| if counts { u64::from(port) } else { 0 };
        let protocol = if source_port || destination_port { u64::from(view.protocol) } else { 0 };
        let name = Named {
            src: if source { view.src & self.masks[0] } else { 0 },
            dst: if destination { view.dst & self.masks[1] } else { 0 },
            rest: port(source_port, view.src_port) << 32 | port(destination_port, view.dst_port) << 16 | protocol,
        };
        let deadline = now + self.expire;
        let index = match table.find(tx, &name, now)? {
            Some(index) => {
                table.ages.refresh(tx, index, deadline)?;
                index
            }
            None => match table.insert(tx, name, deadline, now)? {
                Some(index) => {
                    table.words.write(tx, index, 0)?;
                    index
                }
                None => return Ok(Answer::Full),
            },
        };
        let cost = match self.cost {
            Cost::Packet(period) => period,
            Cost::Bytes(rate) => (u64::from(view.len) * 1_000_000_000) / rate,
        };
        let full_at = table.words.read(tx, index)?;
        let is_within = match spend(full_at, cost, self.depth, now) {
            Some(full_at) => {
                table.words.write(tx, index, full_at)?;
                true
            }
            None => false,
        };
        Ok(Answer::Is(is_within != self.above))
    }
}

impl Named {
    fn of_sides(sides: &[bool], view: &View) -> Self {
        let address = |source: bool| if source { view.src } else { view.dst };
        let port = |source: bool| if source { view.src_port } else { view.dst_port };
        let mut named = Self { src: address(sides.first().copied().unwrap_or(true)), ..Self::default() };
        if let Some(source) = sides.get(1) {
            named.rest = u64::from(port(*source)) << 8 | u64::from(view.protocol);
        }
        if let Some(source) = sides.get(2) {
            named.dst = address(*source);
        }
        named
    }

    /// The group of a rule of `connlimit`.
    pub(super) const fn group(rule: u32, address: u128) -> Self {
        Self { src: address, dst: 0, rest: rule as u64 }
    }
}
