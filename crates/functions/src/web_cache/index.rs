//! The index of responses, shared by all connections.

use alloc::vec;
use alloc::vec::Vec;

use memory::{Allocator, Distributed, Map, Memory, Portion, Vector};
use nf::{Fingerprint, Step};
use packet::{Key, Nanos, Words};

use super::message::Uncacheable;
use crate::http::Digest;

/// The indexed responses.
pub struct Index<M: Memory> {
    by_name: M::Map<Digest, u32>,
    /// Allocator of `responses`; ages them until they are stale.
    places: M::Allocator,
    responses: M::Vector<Known>,
    pub(super) totals: M::Distributed<Totals>,
}

/// An indexed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub name: Digest,
    /// Time at which it becomes stale.
    pub stale_at: Nanos,
    pub length: u64,
}

/// Totals over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub hits: u64,
    pub misses: u64,
    pub bytes_saved: u64,
    pub stored: u64,
    pub evicted: u64,
    pub invalidated: u64,
    /// Responses without room.
    pub without_room: u64,
    pub uncacheable: [u64; REASONS],
}

const REASONS: usize = Uncacheable::ALL.len();

packet::words! {
    Known: [3], known => [known.name.0, known.stale_at.0, known.length],
        words => Self { name: Digest(words[0]), stale_at: Nanos(words[1]), length: words[2] };
    Totals: [23], totals => {
        let Totals { hits, misses, bytes_saved, stored, evicted, invalidated, without_room, uncacheable } = totals;
        let mut words = [0; 23];
        words[..7].copy_from_slice(&[hits, misses, bytes_saved, stored, evicted, invalidated, without_room]);
        words[7..].copy_from_slice(&uncacheable);
        words
    }, words => {
        let [hits, misses, bytes_saved, stored, evicted, invalidated, without_room, ..] = words;
        let uncacheable = core::array::from_fn(|at| words[7 + at]);
        Self { hits, misses, bytes_saved, stored, evicted, invalidated, without_room, uncacheable }
    };
}

impl Portion for Totals {
    fn merge(&mut self, other: &Self) {
        let mut words = self.to_words();
        words.iter_mut().zip(other.to_words()).for_each(|(word, more)| *word = word.wrapping_add(more));
        *self = Self::from_words(words);
    }
}

impl Totals {
    /// The totals by name, for the report.
    pub(super) fn rows(&self) -> Vec<(&'static str, u64)> {
        let mut rows = vec![
            ("hits", self.hits),
            ("misses", self.misses),
            ("bytes saved", self.bytes_saved),
            ("responses indexed", self.stored),
            ("evicted", self.evicted),
            ("invalidated", self.invalidated),
            ("without room", self.without_room),
        ];
        rows.extend(Uncacheable::ALL.iter().zip(self.uncacheable).map(|(why, count)| (why.name(), count)));
        rows
    }
}

/// How many expired responses each message reclaims. A message adds one at most.
const RECLAIMED_A_MESSAGE: usize = 2;
/// Number of candidates for eviction. The one that becomes stale first is evicted.
const DRAWS: u64 = 4;

impl<M: Memory> Index<M> {
    pub(super) fn new(memory: &M, responses: usize) -> Self {
        let none = Known { name: Digest(0), stale_at: Nanos(0), length: 0 };
        Self {
            by_name: memory.map(responses),
            places: memory.allocator(responses),
            responses: memory.vector(responses, none),
            totals: memory.distributed(Totals::default(), Nanos(0)),
        }
    }

    /// Finds the response with this key, if it is fresh at `now`.
    pub(super) fn find<'a>(&'a self, tx: &mut M::Tx<'a>, name: Digest, now: Nanos) -> Step<Option<Known>, M> {
        let Some(place) = self.by_name.get(tx, &name)? else { return Ok(None) };
        Ok(Some(self.responses.read(tx, place as usize)?).filter(|known| known.stale_at > now))
    }

    /// Indexes a response. It replaces the one with the same key, or evicts another one if there is no room.
    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, known: Known) -> Step<(), M> {
        let (mut is_stored, mut evicted) = (true, 0);
        if let Some(place) = self.by_name.get(tx, &known.name)? {
            self.places.refresh(tx, place as usize, known.stale_at)?;
            self.responses.write(tx, place as usize, known)?;
        } else {
            let place = match self.places.allocate(tx, known.stale_at)? {
                Some(place) => Some(place),
                None => {
                    let place = self.evict(tx, &known)?;
                    evicted = u64::from(place.is_some());
                    place
                }
            };
            is_stored = false;
            if let Some(place) = place {
                is_stored = self.by_name.insert(tx, known.name, place as u32)?;
                match is_stored {
                    true => self.responses.write(tx, place, known)?,
                    false => self.places.free(tx, place)?,
                }
            }
        }
        self.totals.update(tx, |totals| {
            totals.stored += u64::from(is_stored);
            totals.without_room += u64::from(!is_stored);
            totals.evicted += evicted;
        })
    }

    /// Evicts a response and returns its index for this one.
    fn evict<'a>(&'a self, tx: &mut M::Tx<'a>, known: &Known) -> Step<Option<usize>, M> {
        let mut soonest = None;
        for draw in 0..DRAWS {
            // Drawn by the key, so that all cores and runs agree.
            let place = (known.name.hash(draw) % self.places.capacity() as u64) as usize;
            let Some(deadline) = self.places.deadline(tx, place)? else { continue };
            if soonest.is_none_or(|(least, _)| deadline < least) {
                soonest = Some((deadline, place));
            }
        }
        let Some((_, place)) = soonest else { return Ok(None) };
        let old = self.responses.read(tx, place)?;
        self.by_name.remove(tx, &old.name)?;
        self.places.free(tx, place)?;
        Ok(self.places.allocate_exact(tx, place, known.stale_at)?.then_some(place))
    }

    /// Removes the response with this key.
    pub(super) fn invalidate<'a>(&'a self, tx: &mut M::Tx<'a>, name: Digest) -> Step<(), M> {
        let Some(place) = self.by_name.remove(tx, &name)? else { return Ok(()) };
        self.places.free(tx, place as usize)?;
        self.totals.update(tx, |totals| totals.invalidated += 1)
    }

    /// Removes stale responses.
    pub(super) fn reclaim<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<(), M> {
        for _ in 0..RECLAIMED_A_MESSAGE {
            let Some(place) = self.places.expire(tx, now)? else { break };
            let known = self.responses.read(tx, place)?;
            self.by_name.remove(tx, &known.name)?;
        }
        Ok(())
    }

    /// Adds the state that later packets can observe, and the totals, to the fingerprint.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for place in 0..self.places.capacity() {
            // In order, because the index of a response decides when it is evicted.
            if let Some(deadline) = self.places.deadline(tx, place)? {
                let words = self.responses.read(tx, place)?.to_words();
                words.into_iter().chain([deadline.0]).for_each(|word| fingerprint.add(word));
            }
        }
        let totals = self.totals.read(tx, Nanos::NEVER)?.to_words();
        totals.into_iter().for_each(|word| fingerprint.add(word));
        Ok(())
    }
}
