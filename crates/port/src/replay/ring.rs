//! A receive ring: a limited number of descriptors between the wire and a core. Packets that arrive when all are in use are lost.

use std::collections::VecDeque;

/// A receive ring of packet numbers. It stores no bytes, because its packets are in the trace.
///
/// Packets arrive in order. Packets that got a descriptor wait as runs of consecutive numbers; each loss starts a new run.
#[derive(Debug)]
pub(super) struct Ring {
    descriptors: u64,
    waiting: VecDeque<Run>,
    /// Packets in all runs.
    taken: u64,
    /// Number of the next packet to arrive.
    next: u64,
    /// Arrivals and losses count from this packet on.
    counted_from: u64,
    lost: u64,
}

/// Waiting packets with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) len: u64,
}

impl Ring {
    /// An empty ring. Packet `next` arrives first. Packets before `counted_from` don't count.
    pub(super) fn new(descriptors: u64, next: u64, counted_from: u64) -> Self {
        // A run has at least one packet, so there are never more runs than descriptors.
        let waiting = VecDeque::with_capacity(descriptors as usize);
        Self { descriptors, waiting, taken: 0, next, counted_from, lost: 0 }
    }

    /// All packets before number `end` have arrived, and none was taken since the last call. The first of them use the free descriptors;
    /// the others are lost.
    #[inline]
    pub(super) fn arrive(&mut self, end: u64) {
        let kept = (end - self.next).min(self.descriptors - self.taken);
        let lost_from = self.next + kept;
        if kept > 0 {
            match self.waiting.back_mut() {
                Some(run) if run.first + run.len == self.next => run.len += kept,
                Some(_) | None => self.waiting.push_back(Run { first: self.next, len: kept }),
            }
        }
        self.taken += kept;
        self.lost += end.saturating_sub(lost_from.max(self.counted_from));
        self.next = end;
    }

    /// The first run of waiting packets.
    #[inline]
    pub(super) fn front(&self) -> Option<Run> {
        self.waiting.front().copied()
    }

    /// Takes this many packets of the front run and frees their descriptors.
    #[inline]
    pub(super) fn take(&mut self, packets: u64) {
        let run = self.waiting.front_mut().expect("packets are taken from a run");
        debug_assert!(packets <= run.len);
        run.first += packets;
        run.len -= packets;
        if run.len == 0 {
            self.waiting.pop_front();
        }
        self.taken -= packets;
    }

    /// The packet that arrives next.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Number of waiting packets.
    #[inline]
    pub(super) const fn waiting(&self) -> u64 {
        self.taken
    }

    /// True if packets count now.
    #[inline]
    pub(super) const fn counts(&self) -> bool {
        self.next > self.counted_from
    }

    /// Number of counted packets that arrived.
    pub(super) const fn arrived(&self) -> u64 {
        self.next.saturating_sub(self.counted_from)
    }

    /// Number of counted packets that got no descriptor.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A ring as a list of packets, each of which arrives by itself.
    struct Naive {
        descriptors: usize,
        waiting: Vec<u64>,
        lost: Vec<u64>,
    }

    impl Naive {
        fn arrive(&mut self, number: u64) {
            if self.waiting.len() < self.descriptors { self.waiting.push(number) } else { self.lost.push(number) }
        }
    }

    proptest! {
        #[test]
        fn the_ring_does_as_a_list_does(
            descriptors in 1..40u64,
            first in 0..1000u64,
            warm in 0..100u64,
            steps in vec((0..60u64, 0..40u64), 0..200),
        ) {
            let counted_from = first + warm;
            let mut ring = Ring::new(descriptors, first, counted_from);
            let room = ring.waiting.capacity();
            let mut naive = Naive { descriptors: descriptors as usize, waiting: Vec::new(), lost: Vec::new() };
            let mut end = first;
            for (arrivals, wanted) in steps {
                for number in end..end + arrivals {
                    naive.arrive(number);
                }
                end += arrivals;
                ring.arrive(end);
                let mut out = Vec::new();
                while let Some(run) = ring.front().filter(|_| (out.len() as u64) < wanted) {
                    let packets = run.len.min(wanted - out.len() as u64);
                    out.extend(run.first..run.first + packets);
                    ring.take(packets);
                }
                let count = naive.waiting.len().min(wanted as usize);
                prop_assert_eq!(out, naive.waiting.drain(..count).collect::<Vec<_>>());
                prop_assert_eq!(ring.taken, naive.waiting.len() as u64);
                let counted = naive.lost.iter().filter(|number| **number >= counted_from).count();
                prop_assert_eq!(ring.lost(), counted as u64);
                prop_assert_eq!(ring.arrived(), end.saturating_sub(counted_from));
            }
            prop_assert_eq!(ring.waiting.capacity(), room, "nothing is allocated on the way");
        }
    }
}
