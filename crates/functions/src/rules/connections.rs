//! The connections of a rule set that rewrites addresses: a table that packet sets share, in which each connection is found by the tuple
//! of either direction.

use memory::{Allocator, Map, Memory, Vector};
use nf::{Fingerprint, Kept, Step};
use packet::{Family, FiveTuple4, FiveTuple6, FlowKey, Nanos, Words};

use super::nat::Others;
use super::stateful::{Named, RuleState};
use super::track::{Entry, Status, Tally};
use super::tuple::Tuple;
use crate::tracking::Connection;

/// The most expired connections that a packet removes. A packet adds one at most.
const RECLAIMED_A_PACKET: usize = 2;

/// The most connections of one source that are looked through for a mapping.
const SOURCES_MAX: usize = 64;

/// All connections.
pub(super) struct Connections<M: Memory> {
    v4: M::Map<FiveTuple4, u64>,
    v6: M::Map<FiveTuple6, u64>,
    entries: M::Vector<Stored>,
    ages: M::Allocator,
    /// The newest connection of a source, which is the destination too in the key.
    by_source_v4: M::Map<FiveTuple4, u64>,
    by_source_v6: M::Map<FiveTuple6, u64>,
}

/// A connection in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) entry: Entry,
    pub(super) tally: Tally,
    pub(super) tuples: [Tuple; 2],
    /// Neighbours in the list of connections of one source, by index plus one: the newer, the older.
    links: [u32; 2],
}

packet::words! {
    Stored: [25], stored => {
        let Self { entry, tally, tuples: [original, reply], links: [newer, older] } = stored;
        let mut words = [0; 25];
        words[..8].copy_from_slice(&entry.connection.to_words());
        words[8..13].copy_from_slice(&original.to_words());
        words[13..18].copy_from_slice(&reply.to_words());
        words[18] = u64::from(entry.mark) << 32 | u64::from(tally.generation) << 8 | u64::from(entry.status.bits());
        words[19] = u64::from(newer) << 32 | u64::from(older);
        words[20] = tally.limits;
        words[21..23].copy_from_slice(&tally.packets);
        words[23..].copy_from_slice(&tally.bytes);
        words
    }, words => {
        let mut connection = [0; 8];
        connection.copy_from_slice(&words[..8]);
        let tuple = |at: usize| Tuple::from_words([words[at], words[at + 1], words[at + 2], words[at + 3], words[at + 4]]);
        Self {
            entry: Entry {
                connection: Connection::from_words(connection),
                mark: (words[18] >> 32) as u32,
                status: Status::from_bits(words[18] as u8),
            },
            tally: Tally {
                packets: [words[21], words[22]],
                bytes: [words[23], words[24]],
                limits: words[20],
                generation: (words[18] >> 8) as u16,
            },
            tuples: [tuple(8), tuple(13)],
            links: [(words[19] >> 32) as u32, words[19] as u32],
        }
    };
}

/// A connection that a look-up found.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) index: usize,
    pub(super) is_reply: bool,
    pub(super) stored: Stored,
}

impl Stored {
    /// An entry in no use.
    pub(super) fn blank() -> Self {
        Self::from_words([0; 25])
    }
}

impl<M: Memory> Connections<M> {
    pub(super) fn new(memory: &M, flows: usize, flows_v6: usize, blank: Stored) -> Self {
        let all = flows + flows_v6;
        Self {
            v4: memory.map(2 * flows),
            v6: memory.map(2 * flows_v6),
            entries: memory.vector(all, blank),
            ages: memory.allocator(all),
            by_source_v4: memory.map(flows),
            by_source_v6: memory.map(flows_v6),
        }
    }

    /// Keeps the connections. The look-ups follow from them, and so do the groups of `connlimit`.
    pub(super) fn keep<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        rules: &'a [RuleState<M>; 2],
        kept: &mut Kept<'_>,
    ) -> Step<(), M> {
        for index in kept.pool::<M>(tx, &self.ages)? {
            let Some(stored) = kept.element::<M, _>(tx, &self.entries, index)? else { return Ok(()) };
            if !kept.reads() {
                continue;
            }
            let is_v6 = stored.entry.status.has(Status::V6);
            if stored.links.iter().any(|link| *link as usize > self.entries.len()) {
                kept.damage();
                return Ok(());
            }
            for (tuple, direction) in stored.tuples.iter().zip(0..) {
                self.put(tx, tuple, is_v6, (index as u64) << 1 | direction)?;
            }
            if stored.links[0] == 0 {
                self.set_newest(tx, &stored.tuples[0], is_v6, Some(index))?;
            }
            let rules = &rules[usize::from(is_v6)];
            let mut tally = stored.tally;
            tally.renew(rules.generation);
            if !rules.has_groups(tally.limits) {
                kept.damage();
                return Ok(());
            }
            join_groups(tx, rules, tally.limits, &stored.tuples)?;
        }
        Ok(())
    }

    fn get<'a>(&'a self, tx: &mut M::Tx<'a>, tuple: &Tuple, is_v6: bool) -> Step<Option<u64>, M> {
        match tuple.five_tuple(is_v6).family() {
            Family::V4(key) => self.v4.get(tx, &key),
            Family::V6(key) => self.v6.get(tx, &key),
        }
    }

    fn put<'a>(&'a self, tx: &mut M::Tx<'a>, tuple: &Tuple, is_v6: bool, value: u64) -> Step<bool, M> {
        match tuple.five_tuple(is_v6).family() {
            Family::V4(key) => self.v4.insert(tx, key, value),
            Family::V6(key) => self.v6.insert(tx, key, value),
        }
    }

    fn take<'a>(&'a self, tx: &mut M::Tx<'a>, tuple: &Tuple, is_v6: bool) -> Step<(), M> {
        match tuple.five_tuple(is_v6).family() {
            Family::V4(key) => self.v4.remove(tx, &key).map(drop),
            Family::V6(key) => self.v6.remove(tx, &key).map(drop),
        }
    }

    /// Prefetches what [`Self::find`] reads first.
    pub(super) fn prefetch(&self, tuple: &Tuple, is_v6: bool) {
        match tuple.five_tuple(is_v6).family() {
            Family::V4(key) => self.v4.prefetch(&key),
            Family::V6(key) => self.v6.prefetch(&key),
        }
    }

    /// The connection that packets with this tuple belong to. One that has expired is removed.
    pub(super) fn find<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        rules: &'a [RuleState<M>; 2],
        tuple: &Tuple,
        is_v6: bool,
        now: Nanos,
    ) -> Step<Option<Found>, M> {
        let Some(value) = self.get(tx, tuple, is_v6)? else { return Ok(None) };
        let (index, is_reply) = ((value >> 1) as usize, value & 1 == 1);
        match self.ages.deadline(tx, index)? {
            Some(deadline) if deadline > now => {
                let mut stored = self.entries.read(tx, index)?;
                stored.tally.renew(rules[usize::from(is_v6)].generation);
                Ok(Some(Found { index, is_reply, stored }))
            }
            Some(_) | None => {
                self.end(tx, rules, index, true)?;
                Ok(None)
            }
        }
    }

    /// Stores what has become of a connection; without `idle` its deadline stays.
    pub(super) fn update<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        found: &Found,
        (entry, tally): (&Entry, &Tally),
        now: Nanos,
        idle: Option<Nanos>,
    ) -> Step<(), M> {
        if (&found.stored.entry, &found.stored.tally) != (entry, tally) {
            self.entries.write(tx, found.index, Stored { entry: *entry, tally: *tally, ..found.stored })?;
        }
        match idle {
            Some(idle) => self.ages.refresh(tx, found.index, now + idle),
            None => Ok(()),
        }
    }

    /// Adds a connection.
    pub(super) fn add<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        (entry, tally): (Entry, Tally),
        tuples: [Tuple; 2],
        (now, idle): (Nanos, Nanos),
    ) -> Step<Added, M> {
        let is_v6 = entry.status.has(Status::V6);
        for tuple in &tuples {
            if self.get(tx, tuple, is_v6)?.is_some() {
                return Ok(Added::Clash);
            }
        }
        let deadline = now + idle;
        let Some(index) = self.ages.allocate(tx, deadline)? else { return Ok(Added::Full) };
        for (tuple, direction) in tuples.iter().zip(0..) {
            if !self.put(tx, tuple, is_v6, (index as u64) << 1 | direction)? {
                // The other family has room, this one has none.
                self.take(tx, &tuples[0], is_v6)?;
                self.ages.free(tx, index)?;
                return Ok(Added::Full);
            }
        }
        let mut links = [0, 0];
        if let Some(older) = self.newest(tx, &tuples[0], is_v6)? {
            links[1] = older as u32 + 1;
            self.link(tx, links[1], 0, index as u32 + 1)?;
        }
        self.set_newest(tx, &tuples[0], is_v6, Some(index))?;
        self.entries.write(tx, index, Stored { entry, tally, tuples, links })?;
        Ok(Added::Done)
    }

    /// Removes a connection. `is_allocated` is false if its index is free again already.
    pub(super) fn end<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        rules: &'a [RuleState<M>; 2],
        index: usize,
        is_allocated: bool,
    ) -> Step<(), M> {
        let mut stored = self.entries.read(tx, index)?;
        let is_v6 = stored.entry.status.has(Status::V6);
        stored.tally.renew(rules[usize::from(is_v6)].generation);
        for tuple in &stored.tuples {
            self.take(tx, tuple, is_v6)?;
        }
        let [newer, older] = stored.links;
        match newer {
            0 => self.set_newest(tx, &stored.tuples[0], is_v6, (older > 0).then(|| older as usize - 1))?,
            _ => self.link(tx, newer, 1, older)?,
        }
        self.link(tx, older, 0, newer)?;
        leave_groups(tx, &rules[usize::from(is_v6)], stored.tally.limits, &stored.tuples)?;
        if is_allocated {
            self.ages.free(tx, index)?;
        }
        Ok(())
    }

    fn link<'a>(&'a self, tx: &mut M::Tx<'a>, at: u32, which: usize, to: u32) -> Step<(), M> {
        if at == 0 {
            return Ok(());
        }
        let mut stored = self.entries.read(tx, at as usize - 1)?;
        stored.links[which] = to;
        self.entries.write(tx, at as usize - 1, stored)
    }

    fn newest<'a>(&'a self, tx: &mut M::Tx<'a>, tuple: &Tuple, is_v6: bool) -> Step<Option<usize>, M> {
        let found = match of_source(tuple).five_tuple(is_v6).family() {
            Family::V4(key) => self.by_source_v4.get(tx, &key)?,
            Family::V6(key) => self.by_source_v6.get(tx, &key)?,
        };
        Ok(found.map(|index| index as usize))
    }

    fn set_newest<'a>(&'a self, tx: &mut M::Tx<'a>, tuple: &Tuple, is_v6: bool, index: Option<usize>) -> Step<(), M> {
        match (of_source(tuple).five_tuple(is_v6).family(), index) {
            (Family::V4(key), Some(index)) => self.by_source_v4.insert(tx, key, index as u64).map(drop),
            (Family::V4(key), None) => self.by_source_v4.remove(tx, &key).map(drop),
            (Family::V6(key), Some(index)) => self.by_source_v6.insert(tx, key, index as u64).map(drop),
            (Family::V6(key), None) => self.by_source_v6.remove(tx, &key).map(drop),
        }
    }

    /// Removes expired connections, a few or, with `all`, all that there are.
    pub(super) fn reclaim<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        rules: &'a [RuleState<M>; 2],
        now: Nanos,
        all: bool,
    ) -> Step<(), M> {
        let most = if all { usize::MAX } else { RECLAIMED_A_PACKET };
        for _ in 0..most {
            let Some(index) = self.ages.expire(tx, now)? else { break };
            self.end(tx, rules, index, false)?;
        }
        Ok(())
    }

    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        let mut sum = 0_u64;
        for index in 0..self.ages.capacity() {
            if self.ages.is_allocated(tx, index)? {
                let stored = Stored { links: [0; 2], ..self.entries.read(tx, index)? };
                let mut digest = Fingerprint::default();
                stored.to_words().into_iter().for_each(|word| digest.add(word));
                // A sum, because a connection's index has no visible effect.
                sum = sum.wrapping_add(digest.value());
            }
        }
        fingerprint.add(sum);
        Ok(())
    }
}

/// What became of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Done,
    /// Another connection has one of its tuples.
    Clash,
    Full,
}

/// The key of a source: both ends are it.
const fn of_source(tuple: &Tuple) -> Tuple {
    Tuple { src: tuple.src, dst: tuple.src, ports: [tuple.ports[0]; 2], protocol: tuple.protocol }
}

/// Takes a connection out of the groups of `connlimit` that count it.
pub(super) fn leave_groups<'a, M: Memory>(
    tx: &mut M::Tx<'a>,
    rules: &'a RuleState<M>,
    limits: u64,
    tuples: &[Tuple; 2],
) -> Step<(), M> {
    for name in groups(rules, limits, tuples) {
        match rules.groups.get(tx, &name)? {
            Some(1) | None => {
                rules.groups.remove(tx, &name)?;
            }
            Some(count) => {
                rules.groups.insert(tx, name, count - 1)?;
            }
        }
    }
    Ok(())
}

/// Counts a connection in groups of `connlimit`.
pub(super) fn join_groups<'a, M: Memory>(
    tx: &mut M::Tx<'a>,
    rules: &'a RuleState<M>,
    limits: u64,
    tuples: &[Tuple; 2],
) -> Step<(), M> {
    for name in groups(rules, limits, tuples) {
        let count = rules.groups.get(tx, &name)?.unwrap_or(0);
        // There is room for a group of each connection in each rule.
        rules.groups.insert(tx, name, count + 1)?;
    }
    Ok(())
}

/// The groups of a connection in the rules of these bits.
fn groups<M: Memory>(rules: &RuleState<M>, limits: u64, tuples: &[Tuple; 2]) -> impl Iterator<Item = Named> {
    let is_one = move |rule: &u32| limits >> rule & 1 == 1;
    (0..u64::BITS).filter(is_one).map(|rule| Named::group(rule, rules.group_address(rule, tuples)))
}

/// The other connections, for the choice of a new tuple.
pub(super) struct OthersOf<'s, 'a, M: Memory> {
    pub(super) connections: &'a Connections<M>,
    pub(super) rules: &'a [RuleState<M>; 2],
    pub(super) tx: &'s mut M::Tx<'a>,
    pub(super) is_v6: bool,
    pub(super) now: Nanos,
}

impl<M: Memory> Others<M> for OthersOf<'_, '_, M> {
    fn is_used(&mut self, tuple: &Tuple) -> Step<bool, M> {
        Ok(self.connections.find(self.tx, self.rules, tuple, self.is_v6, self.now)?.is_some())
    }

    fn source_of(&mut self, tuple: &Tuple, accepts: impl Fn(u128, u16) -> bool) -> Step<Option<(u128, u16)>, M> {
        let mut next = self.connections.newest(self.tx, tuple, self.is_v6)?;
        for _ in 0..SOURCES_MAX {
            let Some(index) = next else { break };
            let Stored { tuples: [_, reply], links: [_, older], .. } = self.connections.entries.read(self.tx, index)?;
            // An ICMP query has one identifier.
            let port = reply.ports[usize::from(!reply.is_icmp())];
            if accepts(reply.dst, port) {
                return Ok(Some((reply.dst, port)));
            }
            next = (older > 0).then(|| older as usize - 1);
        }
        Ok(None)
    }
}
