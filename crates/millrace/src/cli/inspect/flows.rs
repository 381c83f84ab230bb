//! Counts the flows of a capture in a growing hash table with linear probing.
//!
//! The place of a flow starts at the top bits of its hash, so flows are sorted by hash, and a table twice as large is filled from front
//! to back. Packets wait in a short queue between the prefetch of their flow's place and the access.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem;

use locality::{pages, prefetch};
use packet::{Family, FiveTuple, FlowKey, Key};

/// The flows of both families.
pub(super) struct FlowCounter {
    v4: Counts<<FiveTuple as FlowKey>::V4>,
    v6: Counts<<FiveTuple as FlowKey>::V6>,
    flows_max: usize,
}

/// Packets and bytes of a flow, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Maximum number of flows. This many need a gigabyte for IPv4, two for IPv6.
const FLOWS_MAX: usize = 16 << 20;
/// Packets that wait for the prefetch.
const WAITING: usize = 64;
/// Initial number of places.
const PLACES: usize = 1 << 10;

impl Default for FlowCounter {
    fn default() -> Self {
        // A random seed, so that a capture can't be crafted against the table.
        let seed = RandomState::new().hash_one(0);
        Self { v4: Counts::new(seed), v6: Counts::new(seed), flows_max: FLOWS_MAX }
    }
}

impl FlowCounter {
    /// Counts a packet of the flow; guaranteed only after a [flush](Self::flush).
    #[inline(always)]
    pub(super) fn count(&mut self, flow: &FiveTuple, bytes: u32) {
        let is_full = match flow.family() {
            Family::V4(key) => self.v4.queue(key, bytes),
            Family::V6(key) => self.v6.queue(key, bytes),
        };
        if is_full {
            self.flush();
        }
    }

    /// Counts the waiting packets.
    #[inline(never)]
    pub(super) fn flush(&mut self) {
        self.v4.flush(self.flows_max - self.v6.flows);
        self.v6.flush(self.flows_max - self.v4.flows);
    }

    /// Every flow with its volume, without packets that still [wait](Self::flush).
    pub(super) fn iter(&self) -> impl Iterator<Item = (FiveTuple, Volume)> {
        let v4 = self.v4.iter().map(|(key, volume)| (FiveTuple::from_v4(key), volume));
        v4.chain(self.v6.iter().map(|(key, volume)| (FiveTuple::from_v6(key), volume)))
    }

    /// Packets of flows that did not fit.
    pub(super) const fn uncounted(&self) -> u64 {
        self.v4.uncounted + self.v6.uncounted
    }
}

/// The flows of one family.
struct Counts<K> {
    /// Empty, or a power of two of places, at most half of them in use.
    places: Vec<Place<K>>,
    flows: usize,
    seed: u64,
    waiting: Vec<Waiting<K>>,
    uncounted: u64,
}

/// A flow; a place without packets is free. It fits in a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Place<K> {
    key: K,
    volume: Volume,
}

/// A packet that was not counted yet.
#[derive(Clone, Copy)]
struct Waiting<K> {
    key: K,
    hash: u64,
    bytes: u32,
}

impl<K: Key> Counts<K> {
    fn new(seed: u64) -> Self {
        Self { places: Vec::new(), flows: 0, seed, waiting: Vec::with_capacity(WAITING), uncounted: 0 }
    }

    /// Prefetches the flow's place. Returns true if the queue is full.
    #[inline(always)]
    fn queue(&mut self, key: K, bytes: u32) -> bool {
        let hash = key.hash(self.seed);
        if let Some(place) = self.places.get(first_place(hash, self.places.len())) {
            prefetch::start(place);
        }
        self.waiting.push(Waiting { key, hash, bytes });
        self.waiting.len() >= WAITING
    }

    /// Counts the packets that wait, and makes room for their flows as long as there are at most `flows_max`.
    #[inline]
    fn flush(&mut self, flows_max: usize) {
        if (self.flows + self.waiting.len()).min(flows_max) * 2 > self.places.len() {
            self.grow();
        }
        for Waiting { key, hash, bytes } in self.waiting.drain(..) {
            let place = find(&mut self.places, &key, hash);
            if place.volume.packets == 0 {
                if self.flows >= flows_max {
                    self.uncounted += 1;
                    continue;
                }
                self.flows += 1;
                place.key = key;
            }
            place.volume.packets += 1;
            place.volume.bytes += u64::from(bytes);
        }
    }

    /// Moves to a table twice as large.
    #[cold]
    fn grow(&mut self) {
        let Some(&Waiting { key, .. }) = self.waiting.first() else { return };
        let count = (self.places.len() * 2).max(PLACES);
        let mut places = pages::with_capacity(count);
        places.resize(count, Place { key, volume: Volume::default() });
        for place in mem::replace(&mut self.places, places) {
            if place.volume.packets > 0 {
                *find(&mut self.places, &place.key, place.key.hash(self.seed)) = place;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (K, Volume)> {
        self.places.iter().filter(|place| place.volume.packets > 0).map(|place| (place.key, place.volume))
    }
}

/// The place of the flow, or a free place for it. Some places must be free.
#[inline(always)]
fn find<'a, K: Key>(places: &'a mut [Place<K>], key: &K, hash: u64) -> &'a mut Place<K> {
    let mask = places.len() - 1;
    let mut at = first_place(hash, places.len());
    while places[at].volume.packets > 0 && places[at].key != *key {
        at = (at + 1) & mask;
    }
    &mut places[at]
}

/// First place for a hash in a table of `places`, a power of two.
#[inline(always)]
const fn first_place(hash: u64, places: usize) -> usize {
    ((hash as u128 * places as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// One of many flows, each sixth of IPv6.
    fn flow(number: u32) -> FiveTuple {
        match number % 6 {
            0 => FiveTuple::v6(Ipv6Addr::from_bits(u128::from(number) << 64), Ipv6Addr::LOCALHOST, 7, 8, 17),
            _ => FiveTuple::v4(Ipv4Addr::from_bits(number), Ipv4Addr::LOCALHOST, 7, 8, 6),
        }
    }

    #[test]
    fn flows_are_counted_as_a_map_counts_them() {
        let (mut flows, mut map) = (FlowCounter::default(), BTreeMap::<FiveTuple, Volume>::new());
        assert_eq!(flows.iter().count(), 0);
        let mut random = 1u32;
        for number in 0..50_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (flow, bytes) = (flow((random >> 16) % (1 + number / 2)), random >> 20);
            flows.count(&flow, bytes);
            let volume = map.entry(flow).or_default();
            volume.packets += 1;
            volume.bytes += u64::from(bytes);
        }
        flows.flush();
        assert_eq!(flows.iter().collect::<BTreeMap<_, _>>(), map);
        assert_eq!((flows.iter().count(), flows.uncounted()), (map.len(), 0));
    }

    #[test]
    fn flows_beyond_the_bound_are_not_counted() {
        let mut flows = FlowCounter { flows_max: 512, ..FlowCounter::default() };
        for number in (0..3_000).chain(0..3_000) {
            flows.count(&flow(number), 1);
        }
        flows.flush();
        assert_eq!((flows.iter().count(), flows.uncounted()), (512, 2 * (3_000 - 512)));
        assert!(flows.iter().all(|(_, volume)| volume == Volume { packets: 2, bytes: 2 }));
        assert!(flows.v4.places.len() <= 1_024 && flows.v6.places.len() <= 1_024);
    }
}
