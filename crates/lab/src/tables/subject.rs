//! What is measured: `flow`'s table over each index, and the standard library's map, under the same work.

use std::collections::HashMap;
use std::hint::black_box;

use flow::{Hint, Index, Plan, Slot, Table};
use packet::{FiveTuple4, Key, Nanos};

use super::keys::BURST;
use super::meter::Meter;
use super::mixed::MixedOp;

/// What a flow keeps: as much as shares a cache line with an IPv4 five-tuple, its deadline and the links of the lists.
pub(super) type State = [u64; 3];

/// A table under measurement. Bursts are what the meter says; what is not asked for by bursts runs them packet by packet.
pub(super) trait Subject: Send {
    /// How many of these keys were found.
    fn look<M: Meter>(&mut self, keys: &[FiveTuple4], meter: &mut M) -> u64;

    /// How many of these keys, which are not in, found room. Each is looked for first, as a tracker has to.
    fn open<M: Meter>(&mut self, keys: &[FiveTuple4], meter: &mut M) -> u64;

    /// Takes these out, as far as they are in.
    fn end(&mut self, keys: &[FiveTuple4]);

    /// Packets of a tracker: found flows count and postpone their deadline. How many looks found their flow.
    fn act<M: Meter>(&mut self, ops: &[(MixedOp, FiveTuple4)], meter: &mut M) -> u64;

    fn memory_bytes(&self) -> usize;
}

/// `flow`'s table, as an engine uses it.
pub(super) struct Tracker<I> {
    pub(super) table: Table<FiveTuple4, State, I>,
    pub(super) now: Nanos,
}

/// The time between packets: ten million a second.
pub(super) const PACE: Nanos = Nanos(100);
/// How many ended flows a packet takes away besides its own work, as in the engines.
pub(super) const RECLAIM_PER_PACKET: usize = 2;
/// So long that nothing expires while looks, openings and ends are measured.
const IDLE: Nanos = Nanos::from_secs(24 * 3600);

impl<I: Index> Tracker<I> {
    pub(super) fn new(plan: Plan<I::Choice>) -> Self {
        Self { table: Table::planned(plan), now: Nanos::from_secs(1) }
    }

    /// The first two stages of a burst.
    #[inline(always)]
    fn prefetch<'a>(&self, keys: impl Iterator<Item = &'a FiveTuple4> + Clone) -> ([u64; BURST], [Hint; BURST]) {
        let mut hashes = [0; BURST];
        let mut hints = [Hint::NOWHERE; BURST];
        for (hash, key) in hashes.iter_mut().zip(keys.clone()) {
            *hash = self.table.hash(key);
            self.table.prefetch(*hash);
        }
        for ((hint, hash), _) in hints.iter_mut().zip(&hashes).zip(keys) {
            *hint = self.table.prefetch_entry(*hash);
        }
        (hashes, hints)
    }

    #[inline(always)]
    fn find(&mut self, key: &FiveTuple4, hash: u64, hint: Hint) -> Option<Slot> {
        let near = self.table.entry_at_hint(key, hint, self.now).map(|entry| entry.slot());
        near.or_else(|| self.table.find(key, hash))
    }

    #[inline(always)]
    fn insert(&mut self, key: &FiveTuple4, hash: u64, hint: Hint) -> bool {
        if self.find(key, hash, hint).is_some() {
            return false;
        }
        self.table.insert(*key, hash, State::default(), self.now + IDLE, self.now).is_some()
    }
}

impl<I: Index> Subject for Tracker<I> {
    #[inline(never)]
    fn look<M: Meter>(&mut self, keys: &[FiveTuple4], meter: &mut M) -> u64 {
        let (mut found, mut sum) = (0, 0_u64);
        for burst in keys.chunks(M::BURST) {
            meter.begin();
            let (hashes, hints) = self.prefetch(burst.iter());
            for ((key, hash), hint) in burst.iter().zip(hashes).zip(hints) {
                if let Some(mut entry) = self.table.entry_at_hint(key, hint, self.now) {
                    sum = sum.wrapping_add(entry.value_mut()[0]);
                    found += 1;
                } else if let Some(slot) = self.table.find(key, hash) {
                    sum = sum.wrapping_add(self.table.value(slot)[0]);
                    found += 1;
                }
            }
            meter.end(burst.len());
        }
        black_box(sum);
        found
    }

    #[inline(never)]
    fn open<M: Meter>(&mut self, keys: &[FiveTuple4], meter: &mut M) -> u64 {
        let mut opened = 0;
        for burst in keys.chunks(M::BURST) {
            meter.begin();
            let (hashes, hints) = self.prefetch(burst.iter());
            for ((key, hash), hint) in burst.iter().zip(hashes).zip(hints) {
                opened += u64::from(self.insert(key, hash, hint));
            }
            meter.end(burst.len());
        }
        opened
    }

    fn end(&mut self, keys: &[FiveTuple4]) {
        for burst in keys.chunks(BURST) {
            let (hashes, hints) = self.prefetch(burst.iter());
            for ((key, hash), hint) in burst.iter().zip(hashes).zip(hints) {
                if let Some(slot) = self.find(key, hash, hint) {
                    self.table.remove(slot);
                }
            }
        }
    }

    #[inline(never)]
    fn act<M: Meter>(&mut self, ops: &[(MixedOp, FiveTuple4)], meter: &mut M) -> u64 {
        let mut found = 0;
        for burst in ops.chunks(M::BURST) {
            meter.begin();
            let (hashes, hints) = self.prefetch(burst.iter().map(|(_, key)| key));
            for (((act, key), hash), hint) in burst.iter().zip(hashes).zip(hints) {
                self.now = self.now + PACE;
                for _ in 0..RECLAIM_PER_PACKET {
                    let Some(slot) = self.table.reclaim(self.now) else { break };
                    self.table.remove(slot);
                }
                match act {
                    MixedOp::Look => {
                        let (now, deadline) = (self.now, self.now + IDLE);
                        if let Some(mut entry) = self.table.entry_at_hint(key, hint, now) {
                            count(entry.value_mut());
                            found += 1;
                            // Only a deadline that moves earlier needs more.
                            let _ = entry.move_deadline(deadline);
                        } else if let Some(slot) = self.table.find(key, hash) {
                            count(self.table.value_mut(slot));
                            found += 1;
                            self.table.touch(slot, deadline);
                        }
                    }
                    MixedOp::Open => {
                        self.insert(key, hash, hint);
                    }
                    MixedOp::End => {
                        if let Some(slot) = self.find(key, hash, hint) {
                            self.table.remove(slot);
                        }
                    }
                }
            }
            meter.end(burst.len());
        }
        found
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// What any function's state does in some way.
#[inline(always)]
pub(super) fn count(state: &mut State) {
    state[0] += 1;
    state[1] += 64;
}

/// The standard library's map, key by key: the plain baseline.
pub(super) struct Plain {
    map: HashMap<FiveTuple4, (State, Nanos)>,
    now: Nanos,
}

impl Plain {
    pub(super) fn new(capacity: usize) -> Self {
        Self { map: HashMap::with_capacity(capacity), now: Nanos::from_secs(1) }
    }

    /// Its buckets: the power of two of which seven eighths are its capacity.
    fn buckets(&self) -> usize {
        (self.map.capacity() * 8 / 7).next_power_of_two()
    }

    /// Places in use with this number of flows, in percent.
    pub(super) fn load_percent(&self, flows: usize) -> f64 {
        flows as f64 * 100.0 / self.buckets() as f64
    }

    /// Puts a flow in with this deadline.
    pub(super) fn put(&mut self, key: FiveTuple4, deadline: Nanos) {
        self.map.insert(key, (State::default(), deadline));
    }

    /// Takes away all whose deadline has passed, at one go.
    pub(super) fn sweep(&mut self, now: Nanos) {
        self.map.retain(|_, (_, deadline)| *deadline > now);
    }
}

impl Subject for Plain {
    #[inline(never)]
    fn look<M: Meter>(&mut self, keys: &[FiveTuple4], meter: &mut M) -> u64 {
        let (mut found, mut sum) = (0, 0_u64);
        for burst in keys.chunks(M::BURST) {
            meter.begin();
            for key in burst {
                if let Some((state, _)) = self.map.get(key) {
                    sum = sum.wrapping_add(state[0]);
                    found += 1;
                }
            }
            meter.end(burst.len());
        }
        black_box(sum);
        found
    }

    #[inline(never)]
    fn open<M: Meter>(&mut self, keys: &[FiveTuple4], meter: &mut M) -> u64 {
        let deadline = self.now + IDLE;
        for burst in keys.chunks(M::BURST) {
            meter.begin();
            for key in burst {
                self.map.insert(*key, (State::default(), deadline));
            }
            meter.end(burst.len());
        }
        keys.len() as u64
    }

    fn end(&mut self, keys: &[FiveTuple4]) {
        keys.iter().for_each(|key| {
            self.map.remove(key);
        });
    }

    #[inline(never)]
    fn act<M: Meter>(&mut self, ops: &[(MixedOp, FiveTuple4)], meter: &mut M) -> u64 {
        let mut found = 0;
        for burst in ops.chunks(M::BURST) {
            meter.begin();
            for (act, key) in burst {
                self.now = self.now + PACE;
                let deadline = self.now + IDLE;
                match act {
                    MixedOp::Look => {
                        if let Some((state, ends)) = self.map.get_mut(key) {
                            count(state);
                            *ends = deadline;
                            found += 1;
                        }
                    }
                    MixedOp::Open => {
                        self.map.insert(*key, (State::default(), deadline));
                    }
                    MixedOp::End => {
                        self.map.remove(key);
                    }
                }
            }
            meter.end(burst.len());
        }
        found
    }

    /// As the library lays it out: the pairs, and a byte of control for each.
    fn memory_bytes(&self) -> usize {
        let group = 16;
        self.buckets() * (size_of::<(FiveTuple4, (State, Nanos))>() + 1) + group + size_of::<Self>()
    }
}

/// What a key and its flow take by themselves: the five-tuple's 16 bytes, the state and the deadline.
pub const OWN_BYTES: usize = size_of::<FiveTuple4>() + size_of::<State>() + size_of::<Nanos>();

/// The hash that the tables of this run are keyed with.
pub(super) fn seed_of(seed: u64) -> u64 {
    super::keys::made_up(1).hash(seed)
}
