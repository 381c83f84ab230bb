//! Finds elephants: packet sets that are too heavy for one core, so that spraying their packets and replicating their state balances the
//! cores better (`hybrid`).
//!
//! A count-min sketch (Cormode and Muthukrishnan, 2005) over a sample of an epoch's packets finds candidates. A candidate is promoted if
//! that reduces the busiest core's work, with buckets dealt out as well as possible, although every core then replays the elephant's
//! history. An elephant is demoted when it no longer pays. So uniform traffic has no elephants, and a single flow is one.

use nf::Meta;

use crate::steer::balance::balanced;

/// Counts packet sets, and keeps the list of elephants.
#[derive(Debug)]
pub(crate) struct Elephants<M> {
    cores: u64,
    sketch: [Box<[u32]>; 2],
    candidates: Vec<Tracked<M>>,
    replicated: Vec<Tracked<M>>,
    /// Indexed by bits of the hash: the candidate or elephant that may have it.
    marks: Box<[u8]>,
    /// The least packets of a candidate in an epoch.
    threshold: u32,
    /// The sample has one packet in this many, so each counts this often.
    sampled: u32,
    /// A packet belongs to the sample if its mixed number is not above this.
    sampled_to: u64,
    /// The cost of replaying a record, in percent of a packet's cost.
    replay_percent: u64,
    /// A buffer for trial balancing.
    buckets: Vec<u32>,
    by_core: Vec<u64>,
    taken: Vec<u32>,
}

/// A packet set that is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tracked<M> {
    /// The metadata of one of its packets.
    pub(crate) meta: M,
    /// The hash of its key.
    pub(crate) hash: u64,
    /// Its bucket.
    pub(crate) bucket: u16,
    /// Its packets in this epoch.
    packets: u32,
}

/// A change to the list of elephants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change<M> {
    /// The packet set becomes an elephant.
    Promote(Tracked<M>),
    /// The packet set is no elephant any more.
    Demote(Tracked<M>),
}

/// The most elephants, and so the size of a replica.
pub(crate) const REPLICATED_MAX: usize = 64;
const CANDIDATES_MAX: usize = 32;
const CELLS: usize = 2048;
const MARKS: usize = 4096;
/// The least packets of an epoch's sample. A shorter epoch is counted whole.
const SAMPLE: u64 = 4096;
/// The sample has at least one packet in this many.
const SAMPLED_MAX: u64 = 4;
/// The mark of a candidate. A lower mark is an index in the list of elephants, plus one.
const CANDIDATE: u8 = u8::MAX;
/// A promotion must save this percentage of the busiest core's work.
const GAIN_PERCENT: u64 = 5;
/// The most demotions that are considered in an epoch.
const DEMOTIONS_MAX: usize = 8;

impl<M: Meta> Elephants<M> {
    /// No elephants yet. `epoch` is in packets; replaying a record costs `replay_percent` percent of a packet's cost.
    #[must_use]
    pub(crate) fn new(cores: usize, buckets: usize, epoch: u64, replay_percent: u32) -> Self {
        let sampled = (epoch / SAMPLE).clamp(1, SAMPLED_MAX);
        let row = || vec![0; CELLS].into_boxed_slice();
        Self {
            cores: cores as u64,
            sketch: [row(), row()],
            candidates: Vec::with_capacity(CANDIDATES_MAX),
            replicated: Vec::with_capacity(REPLICATED_MAX),
            marks: vec![0; MARKS].into(),
            replay_percent: u64::from(replay_percent),
            sampled: sampled as u32,
            sampled_to: u64::MAX / sampled,
            threshold: (epoch / (16 * cores as u64)).max(2) as u32,
            buckets: Vec::with_capacity(buckets),
            by_core: vec![0; cores],
            taken: Vec::with_capacity(CANDIDATES_MAX),
        }
    }

    /// The elephants.
    #[must_use]
    pub(crate) fn replicated(&self) -> &[Tracked<M>] {
        &self.replicated
    }

    /// Counts a packet and returns true if it is an elephant's. Otherwise the caller counts it by its bucket.
    #[inline]
    pub(crate) fn count(&mut self, key: &M::Key, hash: u64) -> bool {
        let mark = self.marks[mark_of(hash)];
        if mark != 0 && mark != CANDIDATE {
            let one = &mut self.replicated[usize::from(mark) - 1];
            if one.hash == hash && one.meta.key() == *key {
                one.packets += 1;
                return true;
            }
        }
        false
    }

    /// Counts packet number `seq` of another packet set, if it is in the sample. A heavy packet set has hundreds of packets in an epoch, so
    /// the sample finds it, and the sketch is touched less often.
    #[inline]
    pub(crate) fn count_unreplicated(&mut self, seq: u64, meta: &M, hash: u64, bucket: u16) {
        // Multiplied by the golden ratio, so the sample doesn't fall in step with a period of the traffic.
        if seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) <= self.sampled_to {
            self.count_sampled(meta, hash, bucket);
        }
    }

    #[inline(never)]
    fn count_sampled(&mut self, meta: &M, hash: u64, bucket: u16) {
        let estimate = self.bump(hash);
        if estimate >= self.threshold && self.marks[mark_of(hash)] == 0 && self.candidates.len() < CANDIDATES_MAX {
            self.marks[mark_of(hash)] = CANDIDATE;
            self.candidates.push(Tracked { meta: *meta, hash, bucket, packets: 0 });
        }
    }

    fn bump(&mut self, hash: u64) -> u32 {
        let [first, second] = &mut self.sketch;
        let [a, b] = cells(hash);
        first[a] += self.sampled;
        second[b] += self.sampled;
        first[a].min(second[b])
    }

    /// Ends an epoch and decides on changes. `expected` is the expected load of each bucket without elephants, and is kept up to date;
    /// `active` is the number of cores in use from now on.
    pub(crate) fn end_epoch(&mut self, expected: &mut [u32], active: usize, changes: &mut Vec<Change<M>>) {
        changes.clear();
        self.cores = active as u64;
        let mut candidates = std::mem::take(&mut self.candidates);
        for candidate in &mut candidates {
            self.marks[mark_of(candidate.hash)] = 0;
            let [a, b] = cells(candidate.hash);
            candidate.packets = self.sketch[0][a].min(self.sketch[1][b]);
        }
        candidates.sort_unstable_by_key(|candidate| (std::cmp::Reverse(candidate.packets), candidate.hash));
        self.demote(expected, changes);
        self.promote(&candidates, expected, changes);
        candidates.clear();
        self.candidates = candidates;
        self.sketch.iter_mut().for_each(|row| row.fill(0));
        self.replicated.iter_mut().for_each(|one| one.packets = 0);
    }

    /// Promotes the heaviest candidates: as many as minimise the busiest core's work. Considered together, because of two equal elephants
    /// one alone gains nothing.
    fn promote(&mut self, candidates: &[Tracked<M>], expected: &mut [u32], changes: &mut Vec<Change<M>>) {
        let room = candidates.len().min(REPLICATED_MAX - self.replicated.len());
        let candidates = &candidates[..room];
        let now = self.cost(expected, 0);
        let (mut best, mut more) = ((now * (100 - GAIN_PERCENT) / 100, 0), 0);
        // A bucket's expected load is less certain than a candidate's count, so the difference must not fall below 0.
        for (count, candidate) in (1..).zip(candidates) {
            let load = &mut expected[usize::from(candidate.bucket)];
            let taken = candidate.packets.min(*load);
            *load -= taken;
            self.taken.push(taken);
            more += i64::from(candidate.packets);
            best = best.min((self.cost(expected, more), count));
        }
        for (candidate, taken) in candidates.iter().zip(&self.taken).skip(best.1) {
            expected[usize::from(candidate.bucket)] += taken;
        }
        self.taken.clear();
        for candidate in &candidates[..best.1] {
            if self.marks[mark_of(candidate.hash)] == 0 {
                self.replicated.push(*candidate);
                self.marks[mark_of(candidate.hash)] = self.replicated.len() as u8;
                changes.push(Change::Promote(*candidate));
            }
        }
    }

    fn demote(&mut self, expected: &mut [u32], changes: &mut Vec<Change<M>>) {
        let mut now = self.cost(expected, 0);
        for _ in 0..DEMOTIONS_MAX {
            let Some(lightest) = (0..self.replicated.len()).min_by_key(|index| self.replicated[*index].packets) else {
                return;
            };
            let one = self.replicated[lightest];
            let bucket = usize::from(one.bucket);
            expected[bucket] += one.packets;
            let then = self.cost(expected, -i64::from(one.packets));
            if then > now {
                expected[bucket] -= one.packets;
                return;
            }
            now = then;
            self.replicated.swap_remove(lightest);
            self.marks[mark_of(one.hash)] = 0;
            if let Some(moved) = self.replicated.get(lightest) {
                self.marks[mark_of(moved.hash)] = lightest as u8 + 1;
            }
            changes.push(Change::Demote(one));
        }
    }

    /// The busiest core's work, in hundredths of a packet: its buckets, and its part of the elephants with their history. `more` is the
    /// number of elephants' packets to add to those in the list, or to subtract.
    fn cost(&mut self, expected: &[u32], more: i64) -> u64 {
        self.buckets.clear();
        self.buckets.extend_from_slice(expected);
        let owned = balanced(&mut self.buckets, &mut self.by_core[..self.cores as usize]);
        let replicated: i64 = self.replicated.iter().map(|one| i64::from(one.packets)).sum();
        let sprayed = (replicated + more).max(0) as u64;
        owned * 100 + sprayed * (100 + (self.cores - 1) * self.replay_percent) / self.cores
    }
}

/// The sketch's cells. Tables inside a core use other bits of the hash.
const fn cells(hash: u64) -> [usize; 2] {
    [(hash >> 13) as usize % CELLS, (hash >> 39) as usize % CELLS]
}

const fn mark_of(hash: u64) -> usize {
    (hash >> 24) as usize % MARKS
}

#[cfg(test)]
mod tests {
    use packet::{FlowKey, Host, Key};

    use super::*;
    use crate::steer::balance::Balancer;

    const EPOCH: u32 = 10_000;
    const BUCKETS: usize = 128;

    /// Runs `times` epochs in which flow `i` has `heavy[i]` packets; the rest are spread over thousands of flows.
    fn epochs(cores: usize, heavy: &[u32], times: usize) -> (Elephants<Host>, Vec<Vec<Change<Host>>>) {
        let mut elephants = Elephants::new(cores, BUCKETS, u64::from(EPOCH), 30);
        let mut balancer = Balancer::new(cores, BUCKETS);
        let mut all = Vec::new();
        for _ in 0..times {
            feed(&mut elephants, &mut balancer, heavy);
            let mut changes = Vec::new();
            elephants.end_epoch(balancer.end_epoch(), cores, &mut changes);
            all.push(changes);
        }
        (elephants, all)
    }

    fn feed(elephants: &mut Elephants<Host>, balancer: &mut Balancer, heavy: &[u32]) {
        let owned = EPOCH - heavy.iter().sum::<u32>();
        let mut seq = 0;
        let mut one = |elephants: &mut Elephants<Host>, balancer: &mut Balancer, number: u32| {
            seq += 1;
            let key = Host::v4(number.into());
            let packet::Family::V4(v4) = key.family() else { unreachable!("it is IPv4") };
            let hash = v4.hash(7);
            if !elephants.count(&key, hash) {
                let bucket = (hash >> 50) as u16 % BUCKETS as u16;
                balancer.count(bucket);
                elephants.count_unreplicated(seq, &key, hash, bucket);
            }
        };
        for (number, packets) in heavy.iter().enumerate() {
            (0..*packets).for_each(|_| one(elephants, balancer, number as u32));
        }
        (0..owned).for_each(|record| one(elephants, balancer, 1000 + record % 5000));
    }

    #[test]
    fn uniform_traffic_has_none() {
        for cores in [2, 8, 16] {
            let (elephants, changes) = epochs(cores, &[], 4);
            assert_eq!(elephants.replicated(), []);
            assert!(changes.iter().all(Vec::is_empty));
        }
    }

    #[test]
    fn a_single_flow_is_one() {
        let (elephants, changes) = epochs(2, &[EPOCH], 3);
        assert_eq!(elephants.replicated().len(), 1);
        assert_eq!(changes.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 0]);
    }

    #[test]
    fn what_balancing_can_do_is_left_to_it() {
        // Two flows of half the traffic each fit two cores; on four they don't.
        assert_eq!(epochs(2, &[EPOCH / 2, EPOCH / 2], 3).0.replicated(), []);
        assert_eq!(epochs(8, &[EPOCH / 2, EPOCH / 2], 3).0.replicated().len(), 2);
        // One third of it fits two cores; three of them don't.
        assert_eq!(epochs(2, &[EPOCH / 3], 3).0.replicated(), []);
        assert!(!epochs(2, &[EPOCH / 3; 3], 3).0.replicated().is_empty());
    }

    #[test]
    fn an_elephant_that_falls_silent_is_demoted() {
        let (mut elephants, _) = epochs(4, &[EPOCH * 6 / 10], 3);
        assert_eq!(elephants.replicated().len(), 1);
        let mut balancer = Balancer::new(4, BUCKETS);
        let mut changes = Vec::new();
        feed(&mut elephants, &mut balancer, &[]);
        elephants.end_epoch(balancer.end_epoch(), 4, &mut changes);
        assert!(matches!(changes.as_slice(), [Change::Demote(_)]), "{changes:?}");
        assert_eq!(elephants.replicated(), []);
    }

    #[test]
    fn many_elephants_stay_told_apart() {
        // Forty flows of two percent each on sixteen cores: none is too heavy for a core.
        assert_eq!(epochs(16, &[EPOCH / 50; 40], 3).0.replicated(), []);
        // Eight of twelve percent are too heavy, but replaying all their records on sixteen cores costs more.
        assert_eq!(epochs(16, &[EPOCH * 12 / 100; 8], 4).0.replicated(), []);
        // Two of forty percent are worth it.
        assert_eq!(epochs(16, &[EPOCH * 4 / 10; 2], 4).0.replicated().len(), 2);
    }
}
