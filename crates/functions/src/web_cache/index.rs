//! The index of responses that a store behind it would hold, in memory that all connections share.

use alloc::vec;
use alloc::vec::Vec;

use memory::{Allocator, Distributed, Map, Memory, Portion, Vector};
use nf::{Fingerprint, Step};
use packet::{Key, Nanos, Words};

use super::message::Uncacheable;
use crate::http::Digest;

/// The responses that are known.
pub struct Index<M: Memory> {
    by_name: M::Map<Digest, u32>,
    /// Ages the responses: each has a place until it is stale.
    places: M::Allocator,
    responses: M::Vector<Known>,
    pub(super) totals: M::Distributed<Totals>,
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub name: Digest,
    /// When it is stale.
    pub stale_at: Nanos,
    pub length: u64,
}

/// CacheAction there was in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub hits: u64,
    pub misses: u64,
    pub bytes_saved: u64,
    pub stored: u64,
    pub evicted: u64,
    pub invalidated: u64,
    /// For which there was no room.
    pub without_room: u64,
    pub uncacheable: [u64; REASONS],
}

const REASONS: usize = Uncacheable::ALL.len();

packet::words! {
    Known: [3], known => [known.name.0, known.stale_at.0, known.length],
        words => Self { name: Digest(words[0]), stale_at: Nanos(words[1]), length: words[2] };
    Totals: [22], totals => {
        let Totals { hits, misses, bytes_saved, stored, evicted, invalidated, without_room, uncacheable } = totals;
        let mut words = [0; 22];
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
    /// CacheAction is told of them, by name.
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

/// How many places past their time a message gives back; it takes one at most.
const RECLAIMED_A_MESSAGE: usize = 2;
/// Of how many places the one that is stale soonest makes room.
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

    /// The response of this name that is fresh at `now`.
    pub(super) fn find<'a>(&'a self, tx: &mut M::Tx<'a>, name: Digest, now: Nanos) -> Step<Option<Known>, M> {
        let Some(place) = self.by_name.get(tx, &name)? else { return Ok(None) };
        Ok(Some(self.responses.read(tx, place as usize)?).filter(|known| known.stale_at > now))
    }

    /// Keeps a response, in place of the one of its name, or else of one that has to go if there is no room.
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

    /// A place for this response, whose own has gone.
    fn evict<'a>(&'a self, tx: &mut M::Tx<'a>, known: &Known) -> Step<Option<usize>, M> {
        let mut soonest = None;
        for draw in 0..DRAWS {
            // The places are those of the name, so that all cores and all runs draw alike.
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

    /// Forgets the response of this name.
    pub(super) fn invalidate<'a>(&'a self, tx: &mut M::Tx<'a>, name: Digest) -> Step<(), M> {
        let Some(place) = self.by_name.remove(tx, &name)? else { return Ok(()) };
        self.places.free(tx, place as usize)?;
        self.totals.update(tx, |totals| totals.invalidated += 1)
    }

    /// Takes away what is stale.
    pub(super) fn reclaim<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<(), M> {
        for _ in 0..RECLAIMED_A_MESSAGE {
            let Some(place) = self.places.expire(tx, now)? else { break };
            let known = self.responses.read(tx, place)?;
            self.by_name.remove(tx, &known.name)?;
        }
        Ok(())
    }

    /// Adds what a later packet could tell apart, and the totals.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for place in 0..self.places.capacity() {
            // In order: which place a response has tells what it makes room for.
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
