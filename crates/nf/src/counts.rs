//! Counters that a function numbers itself, such as those of a firewall's rules.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A number of packets and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The counters of one core, or of several cores together. They are output, not state: no handler reads them, and each packet is counted
/// on the one core that decides it.
#[derive(Debug, Default)]
pub struct PacketCounts(RefCell<Counted>);

#[derive(Debug, Default)]
struct Counted {
    totals: Vec<Count>,
    /// The counts of the current attempt at a step, if steps may be attempted again.
    attempt: Option<Vec<(u32, Count)>>,
}

/// The number of counts in one attempt that need no allocation.
const ATTEMPT: usize = 1024;

impl PacketCounts {
    /// Zeros for `counters` counters. What is counted, counts at once.
    #[must_use]
    pub fn new(counters: usize) -> Self {
        Self(RefCell::new(Counted { totals: vec![Count::default(); counters], attempt: None }))
    }

    /// Zeros for `counters` counters, for steps that may be attempted several times. What is counted, counts once it is
    /// [committed](Self::commit).
    #[must_use]
    pub fn attempting(counters: usize) -> Self {
        let attempt = if counters > 0 { Vec::with_capacity(ATTEMPT) } else { Vec::new() };
        Self(RefCell::new(Counted { totals: vec![Count::default(); counters], attempt: Some(attempt) }))
    }

    /// Counts a packet of `bytes` bytes under `number`.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn count(&self, number: usize, bytes: u32) {
        self.count_all(number, Count { packets: 1, bytes: bytes.into() });
    }

    /// Counts several packets under `number`.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn count_all(&self, number: usize, count: Count) {
        let Counted { totals, attempt } = &mut *self.0.borrow_mut();
        match attempt {
            Some(attempt) => attempt.push((number as u32, count)),
            None => totals[number].add(count),
        }
    }

    /// Forgets what the attempt has counted, before another one.
    #[inline]
    pub fn discard(&self) {
        if let Some(attempt) = &mut self.0.borrow_mut().attempt {
            attempt.clear();
        }
    }

    /// Counts what the attempt has counted.
    #[inline]
    pub fn commit(&self) {
        let Counted { totals, attempt } = &mut *self.0.borrow_mut();
        for (number, count) in attempt.iter_mut().flat_map(|attempt| attempt.drain(..)) {
            totals[number as usize].add(count);
        }
    }

    /// Adds the counters of another core.
    pub fn add(&mut self, other: &Self) {
        let totals = &mut self.0.get_mut().totals;
        for (total, other) in totals.iter_mut().zip(&other.0.borrow().totals) {
            total.add(*other);
        }
    }

    /// The counter of this number; zero if there is none.
    #[must_use]
    pub fn get(&self, number: usize) -> Count {
        self.0.borrow().totals.get(number).copied().unwrap_or_default()
    }

    /// All counters, in order of their numbers.
    #[must_use]
    pub fn totals(&self) -> Vec<Count> {
        self.0.borrow().totals.clone()
    }
}

impl Count {
    const fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_attempt_counts() {
        let counts = PacketCounts::attempting(2);
        counts.count(0, 100);
        counts.discard();
        counts.count(1, 60);
        counts.count(1, 60);
        assert_eq!(counts.totals()[1], Count::default());
        counts.commit();
        counts.commit();
        let mut both = PacketCounts::new(2);
        both.count(0, 7);
        both.add(&counts);
        assert_eq!(both.totals(), [Count { packets: 1, bytes: 7 }, Count { packets: 2, bytes: 120 }]);
    }
}
