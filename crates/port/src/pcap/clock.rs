//! Packet numbers and packet time, given out in the order of the capture.

use packet::{Nanos, Seq};

/// Numbers packets and makes their time monotonic: a stamp that lies before the packet ahead is raised to it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    seq: u64,
    now: u64,
    stamp: u64,
    steps_back: u64,
    /// The stamps of packets whose time was raised since the last [take](Clock::take_raised).
    raised: Vec<Raised>,
}

/// A packet whose time was raised to that of the packet ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raised {
    pub(crate) seq: Seq,
    /// The time that it was given.
    pub(crate) time: Nanos,
    /// The time stamp in the file.
    pub(crate) stamp: Nanos,
}

impl Clock {
    /// Packets numbered so far.
    pub(super) const fn packets(&self) -> u64 {
        self.seq
    }

    /// How often a stamp lay before the one ahead.
    pub(super) const fn steps_back(&self) -> u64 {
        self.steps_back
    }

    /// The number and time of the next packet.
    #[inline]
    pub(super) fn next(&mut self, stamp: u64) -> (Seq, Nanos) {
        let seq = Seq(self.seq);
        self.seq += 1;
        if stamp < self.now {
            self.raise(seq, stamp);
        } else {
            self.now = stamp;
        }
        self.stamp = stamp;
        (seq, Nanos(self.now))
    }

    /// The number and time of the next packet where it has no stamp of its own: the time of the packet ahead.
    pub(super) fn next_unstamped(&mut self) -> (Seq, Nanos) {
        self.next(self.stamp)
    }

    #[cold]
    fn raise(&mut self, seq: Seq, stamp: u64) {
        self.steps_back += u64::from(stamp < self.stamp);
        self.raised.push(Raised { seq, time: Nanos(self.now), stamp: Nanos(stamp) });
    }

    /// Moves the stamps that were raised into `raised`, in place of what it held.
    pub(super) fn take_raised(&mut self, raised: &mut Vec<Raised>) {
        raised.clear();
        raised.append(&mut self.raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_falls_and_steps_are_counted() {
        let mut clock = Clock::default();
        let times: Vec<u64> = [5, 3, 4, 7, 6, 6].into_iter().map(|stamp| clock.next(stamp).1.0).collect();
        assert_eq!(times, [5, 5, 5, 7, 7, 7]);
        // 5 to 3 and 7 to 6; from 3 to 4 the capture's clock runs forward again.
        assert_eq!(clock.steps_back(), 2);
        assert_eq!(clock.packets(), 6);
    }

    #[test]
    fn raised_stamps_are_told_once() {
        let mut clock = Clock::default();
        for stamp in [5, 3, 4, 7] {
            clock.next(stamp);
        }
        let raised = |seq, stamp| Raised { seq: Seq(seq), time: Nanos(5), stamp: Nanos(stamp) };
        let mut taken = vec![raised(9, 9)];
        clock.take_raised(&mut taken);
        assert_eq!(taken, [raised(1, 3), raised(2, 4)]);
        clock.take_raised(&mut taken);
        assert!(taken.is_empty());
    }
}
