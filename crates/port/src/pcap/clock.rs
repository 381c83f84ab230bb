//! Packet numbers and packet time, given out in the order of the capture.

use std::collections::VecDeque;

use packet::{Nanos, Seq};

/// Numbers packets and makes their time monotonic: a stamp that lies before the packet ahead is raised to it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    seq: u64,
    now: u64,
    stamp: u64,
    steps_back: u64,
    originals: Option<Originals>,
}

/// The stamps of packets whose time was raised and which have not been written yet, in the order of their numbers.
#[derive(Debug)]
struct Originals(VecDeque<Original>);

#[derive(Clone, Copy, Debug)]
struct Original {
    seq: Seq,
    raised: Nanos,
    stamp: Nanos,
}

/// The stamps that are kept at most. An engine has far fewer packets in flight.
const ORIGINALS_MAX: usize = 1 << 16;

impl Clock {
    /// Packets numbered so far.
    pub(super) const fn packets(&self) -> u64 {
        self.seq
    }

    /// How often a stamp lay before the one ahead.
    pub(super) const fn steps_back(&self) -> u64 {
        self.steps_back
    }

    /// Keeps the stamps of raised packets from now on, for [`Clock::original`].
    pub(super) fn keep_originals(&mut self) {
        self.originals = Some(Originals(VecDeque::with_capacity(ORIGINALS_MAX)));
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
        if let Some(Originals(kept)) = &mut self.originals {
            if kept.len() == ORIGINALS_MAX {
                kept.pop_front();
            }
            kept.push_back(Original { seq, raised: Nanos(self.now), stamp: Nanos(stamp) });
        }
    }

    /// The stamp that packet `seq` had before its time was made `time`. Numbers asked for must rise; what lies below
    /// them is forgotten.
    #[inline]
    pub(super) fn original(&mut self, seq: Seq, time: Nanos) -> Nanos {
        match &mut self.originals {
            Some(Originals(kept)) if !kept.is_empty() => search(kept, seq, time),
            _ => time,
        }
    }
}

#[cold]
fn search(kept: &mut VecDeque<Original>, seq: Seq, time: Nanos) -> Nanos {
    while kept.front().is_some_and(|original| original.seq < seq) {
        kept.pop_front();
    }
    match kept.front() {
        Some(original) if original.seq == seq && original.raised == time => original.stamp,
        _ => time,
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
    fn originals_come_back_by_number() {
        let mut clock = Clock::default();
        clock.keep_originals();
        let stamps = [5, 3, 4, 7];
        let given: Vec<_> = stamps.into_iter().map(|stamp| clock.next(stamp)).collect();
        let original = |clock: &mut Clock, index: usize| clock.original(given[index].0, given[index].1).0;
        assert_eq!(original(&mut clock, 0), 5);
        assert_eq!(original(&mut clock, 2), 4);
        assert_eq!(original(&mut clock, 3), 7);
        assert_eq!(original(&mut clock, 1), 5, "asked out of order: the raised time stands");
    }
}
