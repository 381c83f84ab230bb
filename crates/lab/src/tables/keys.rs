//! Flows that fill the tables, and the order in which packets look them up: uniform, by Zipf's law, or as in a capture.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use packet::{Endpoint, FiveTuple, FiveTuple4, Key};

use super::mixed::MixedWorkload;

/// Flows of a full table, and lists of keys to look up. Lists have whole bursts.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// All flows of a full table, in random order.
    pub(super) flows: Vec<FiveTuple4>,
    /// Flows of the table in the order of packets; used cyclically.
    pub(super) queries: Vec<FiveTuple4>,
    /// Keys that are not in the table.
    pub(super) absent: Vec<FiveTuple4>,
    /// Look-ups mixed with openings and ends.
    pub(super) mixed: MixedWorkload,
}

/// How often each flow is looked up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// All equally often.
    Uniform,
    /// By Zipf's law with this exponent: the n-th most frequent flow in proportion to 1 / n^exponent.
    Zipf(f64),
}

/// A capture's IPv4 flows and its packets.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// The flows, in the order of their first packets.
    pub flows: Vec<FiveTuple4>,
    /// For each packet, which flow it is of.
    pub packets: Vec<u32>,
}

/// Packets that travel through a table together.
pub(super) const BURST: usize = 32;
/// Maximum length of key lists. Lists are at least as long as the table, up to this length, so that a key is not in the cache because of
/// its last look-up.
const LIST_MAX: usize = 1 << 22;
const LIST_MIN: usize = 1 << 16;
/// Protocol number of generated flows, "for experimentation" (RFC 3692), so that they differ from all flows of a capture.
pub const MADE_UP_PROTOCOL: u8 = 253;

impl Traffic {
    /// Generates `entries` flows.
    #[must_use]
    pub fn made_up(entries: usize, skew: Skew, seed: u64) -> Self {
        let flows: Vec<FiveTuple4> = (0..entries as u64).map(made_up).collect();
        let mut random = Random(seed);
        let zipf = match skew {
            Skew::Uniform => None,
            Skew::Zipf(exponent) => Some(Zipf::new(entries as u64, exponent)),
        };
        let mut one = || match &zipf {
            None => random.below(entries as u64),
            Some(zipf) => zipf.draw(&mut random),
        };
        let queries = (0..list_len(entries)).map(|_| flows[one() as usize]).collect();
        Self::of(flows, queries, seed)
    }

    /// Flows of a capture, with its packets in order. If the table is larger than the capture, several copies of the capture fill it,
    /// each with other hosts and another starting point. If it is smaller, it holds the capture's first flows.
    ///
    /// # Panics
    /// There are no flows or no packets.
    #[must_use]
    pub fn captured(captured: &Captured, entries: usize, seed: u64) -> Self {
        let Captured { flows: own, packets } = captured;
        assert!(!own.is_empty() && !packets.is_empty(), "a capture to measure with has flows");
        let mut seen = HashSet::with_capacity(entries);
        let mut flows = Vec::with_capacity(entries);
        let mut copies = 0;
        while flows.len() < entries {
            let copy = own.iter().map(|flow| renumbered(*flow, copies));
            flows.extend(copy.filter(|flow| seen.insert(*flow)).take(entries - flows.len()));
            copies += 1;
        }
        let mut queries = Vec::with_capacity(list_len(entries));
        let mut at = 0;
        while queries.len() < queries.capacity() {
            let copy = at % copies as usize;
            let packet = (copy * packets.len() / copies as usize + at / copies as usize) % packets.len();
            let key = renumbered(own[packets[packet] as usize], copy as u32);
            // The last copy is incomplete; look up the first flows instead of the missing ones.
            queries.push(if seen.contains(&key) { key } else { flows[at % flows.len()] });
            at += 1;
        }
        Self::of(flows, queries, seed)
    }

    fn of(mut flows: Vec<FiveTuple4>, queries: Vec<FiveTuple4>, seed: u64) -> Self {
        let mut random = Random(seed ^ 0x5eed);
        random.shuffle(&mut flows);
        let absent = (0..queries.len() as u64).map(|number| made_up(ABSENT + number)).collect();
        let mixed = MixedWorkload::new(&flows, &queries, &mut random);
        Self { flows, queries, absent, mixed }
    }

    /// Number of flows.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.flows.len()
    }

    /// Share of one of `cores` cores, by a hash that no table uses, as a network card spreads flows.
    #[must_use]
    pub(super) fn share(&self, core: usize, cores: usize) -> Self {
        let own = |keys: &[FiveTuple4]| -> Vec<FiveTuple4> {
            let is_own = |key: &&FiveTuple4| (u128::from(key.hash(STEERING)) * cores as u128) >> 64 == core as u128;
            let mut keys: Vec<FiveTuple4> = keys.iter().filter(is_own).copied().collect();
            keys.truncate((keys.len() / BURST).max(1) * BURST);
            keys
        };
        let (flows, queries) = (own(&self.flows), own(&self.queries));
        let mut random = Random(core as u64);
        let mixed = MixedWorkload::new(&flows, &queries, &mut random);
        Self { flows, queries, absent: Vec::new(), mixed }
    }

    /// Bytes for the lists of `entries` flows while they are built.
    #[must_use]
    pub fn bytes(entries: usize) -> u64 {
        let set = (entries as u64 * 8 / 7).next_power_of_two() * (size_of::<FiveTuple4>() as u64 + 1);
        let lists = 4 * list_len(entries) as u64 + entries as u64;
        set + lists * size_of::<FiveTuple4>() as u64
    }
}

/// The seed of the hash that spreads flows over cores.
const STEERING: u64 = 0x7465_6572;
/// Flow numbers from here on are in no table, up to [`FRESH`].
const ABSENT: u64 = 1 << 36;
/// Flow numbers from here on open while others expire.
pub(super) const FRESH: u64 = 2 << 36;

fn list_len(entries: usize) -> usize {
    entries.clamp(LIST_MIN, LIST_MAX).next_multiple_of(BURST)
}

/// Flow number `number`, below 2^40. Each number gives another flow, with well-mixed bits.
#[inline]
pub(super) fn made_up(number: u64) -> FiveTuple4 {
    // Odd factors and shifts are invertible, so that 2^32 numbers give 2^32 hosts.
    let mut host = (number as u32).wrapping_mul(0x9e37_79b1);
    host = (host ^ host >> 15).wrapping_mul(0x85eb_ca6b);
    host ^= host >> 13;
    let high = (number >> 32) as u8;
    let server = Ipv4Addr::from_bits(0xc612_0000 | u32::from(high) << 8 | host & 0xff);
    let src_port = 1024 + (host >> 8) as u16 % 60_000;
    v4(FiveTuple::v4(Ipv4Addr::from_bits(host), server, src_port, 443, MADE_UP_PROTOCOL))
}

/// The flow in copy number `copy` of a capture: same ports, other hosts.
fn renumbered(flow: FiveTuple4, copy: u32) -> FiveTuple4 {
    let tuple = FiveTuple::V4(flow);
    // Change the upper bits first, because a capture's hosts differ in the lower ones.
    let other = |end: Endpoint| match end.address {
        std::net::IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ copy.reverse_bits()),
        std::net::IpAddr::V6(_) => unreachable!("made of IPv4 addresses"),
    };
    let (source, destination) = (tuple.source(), tuple.destination());
    v4(FiveTuple::v4(other(source), other(destination), source.port, destination.port, tuple.protocol()))
}

fn v4(tuple: FiveTuple) -> FiveTuple4 {
    match tuple {
        FiveTuple::V4(tuple) => tuple,
        FiveTuple::V6(_) => unreachable!("made of IPv4 addresses"),
    }
}

/// SplitMix64 (Steele, Lea, Flood: OOPSLA '14).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// Draws ranks by Zipf's law in constant time and memory: rejection-inversion (Hörmann, Derflinger: ACM TOMACS 6(3), 1996).
struct Zipf {
    exponent: f64,
    first: f64,
    last: f64,
    /// Distance from the inverted value within which a rank is accepted at once.
    near: f64,
}

impl Zipf {
    fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf = Self { exponent, first: 0.0, last: 0.0, near: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(ranks as f64 + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// A rank from 0.
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.last + random.unit() * (self.first - self.last);
            let at = self.inverse(area);
            let rank = at.round().max(1.0);
            if rank - at <= self.near || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, at: f64) -> f64 {
        at.powf(-self.exponent)
    }

    /// The integral of the weight from 1.
    fn integral(&self, at: f64) -> f64 {
        let (log, rest) = (at.ln(), 1.0 - self.exponent);
        if (rest * log).abs() < 1e-8 { log } else { (rest * log).exp_m1() / rest }
    }

    fn inverse(&self, area: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if (rest * area).abs() < 1e-8 { area.exp() } else { ((rest * area).max(-1.0).ln_1p() / rest).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_flows_differ() {
        let numbers = (0..200_000).chain(ABSENT..ABSENT + 200_000).chain(FRESH..FRESH + 200_000);
        let flows: HashSet<FiveTuple4> = numbers.map(made_up).collect();
        assert_eq!(flows.len(), 600_000);
    }

    #[test]
    fn ranks_come_as_often_as_zipf_says() {
        for exponent in [0.0, 0.5, 1.0, 1.3] {
            let (ranks, draws) = (50, 200_000);
            let zipf = Zipf::new(ranks, exponent);
            let mut random = Random(3);
            let mut counts = vec![0_u32; ranks as usize];
            (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            let total: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-exponent)).sum();
            for (rank, count) in (1_u32..).zip(counts) {
                let expected = f64::from(draws) * f64::from(rank).powf(-exponent) / total;
                let bound = 5.0 * expected.sqrt();
                assert!(
                    (f64::from(count) - expected).abs() < bound,
                    "{exponent}: rank {rank}: {count}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn a_capture_fills_any_table() {
        let flows: Vec<FiveTuple4> = (0..100).map(|number| v4(FiveTuple::V4(made_up(number)))).collect();
        let packets: Vec<u32> = (0..1000).map(|packet| packet % 7).collect();
        let captured = Captured { flows: flows.clone(), packets };
        for entries in [10, 100, 1_234] {
            let traffic = Traffic::captured(&captured, entries, 1);
            let all: HashSet<FiveTuple4> = traffic.flows.iter().copied().collect();
            assert_eq!((all.len(), traffic.entries()), (entries, entries));
            assert!(traffic.queries.iter().all(|key| all.contains(key)));
            assert!(traffic.absent.iter().all(|key| !all.contains(key)));
            assert_eq!(traffic.queries.len() % BURST, 0);
        }
        // The table of the capture's own size is asked for what its packets are of.
        let traffic = Traffic::captured(&captured, 100, 1);
        let order: Vec<FiveTuple4> = (0..20).map(|packet| flows[packet % 7]).collect();
        assert_eq!(traffic.queries[..20], order);
    }

    #[test]
    fn shares_are_whole_together() {
        let traffic = Traffic::made_up(10_000, Skew::Uniform, 1);
        let shares: Vec<Traffic> = (0..3).map(|core| traffic.share(core, 3)).collect();
        let flows: HashSet<FiveTuple4> = shares.iter().flat_map(|share| share.flows.iter().copied()).collect();
        let cut = 3 * BURST;
        assert!(flows.len() + cut > 10_000 && flows.len() <= 10_000);
        assert!(shares.iter().all(|share| share.flows.len() > 3_000));
    }
}
