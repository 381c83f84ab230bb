//! Assigns packet numbers and packet time, in the order of the capture.
//!
//! Time follows the stamps and never falls. A stamp more than [`STEP`] ahead is accepted if the next one does not fall back behind it. A
//! stamp more than [`STEP`] behind moves the time base if the next one stays there. See `docs/decisions/0027-stamps-that-lie.md`.

use packet::{Nanos, Seq};

use super::beside::Notes;
use crate::batch::Packet;

/// Largest step between stamps that is accepted at once, in nanoseconds.
const STEP: u64 = 1_000_000_000;
/// Maximum number of packets that wait for the deciding stamp. Only packets without a stamp make it more than one.
const PENDING_MAX: usize = 64;

/// Numbers packets and makes their time monotonic.
#[derive(Debug, Default)]
pub(super) struct Clock {
    seq: u64,
    now: u64,
    stamp: u64,
    /// True once a stamp was accepted, so that `now` is valid.
    started: bool,
    /// True if time equals the stamps: they are not shifted, doubted or delayed.
    plain: bool,
    /// What is added to stamps to give time, as of the base that holds now, and as of the one before.
    shift: u64,
    other_shift: Option<u64>,
    /// The latest stamp, if it is far behind.
    behind: Option<u64>,
    pending: PendingPackets,
    steps_back: u64,
    disbelieved: u64,
    /// Packets with another time than their stamp, since the last [take](Clock::take_restamped).
    restamped: Vec<Restamped>,
    /// Notes about the packets numbered here.
    pub(super) notes: Notes,
}

/// The latest packets, whose common time the next stamp decides.
#[derive(Debug, Default)]
struct PendingPackets {
    /// Where they begin in the batch, or what they are, between two batches.
    first: usize,
    packets: Vec<Packet>,
    /// Their own stamps, where they have any.
    stamps: Vec<Option<u64>>,
    /// The doubted stamp; `None` if there is none yet.
    ahead: Option<u64>,
}

/// A packet with another time than its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restamped {
    pub(crate) seq: Seq,
    /// Its time.
    pub(crate) time: Nanos,
    /// Its time stamp in the file, modulo 2^64 if before the epoch.
    pub(crate) stamp: Nanos,
}

/// Position of a stamp relative to the current time.
enum Place {
    /// Near it; this is the packet's time.
    Near(u64),
    Ahead,
    Behind,
}

impl Clock {
    /// Packets numbered so far.
    pub(super) const fn packets(&self) -> u64 {
        self.seq
    }

    /// Number of stamps earlier than the one before.
    pub(super) const fn steps_back(&self) -> u64 {
        self.steps_back
    }

    /// Number of stamps rejected as wrong.
    pub(super) const fn disbelieved(&self) -> u64 {
        self.disbelieved
    }

    /// Number and time of the next packet, which follows `packets`. Waiting packets among these may get another time.
    #[inline]
    pub(super) fn next(&mut self, stamp: u64, packets: &mut [Packet]) -> (Seq, Nanos) {
        let seq = Seq(self.seq);
        self.seq += 1;
        if self.plain && stamp.wrapping_sub(self.now) <= STEP {
            (self.now, self.stamp) = (stamp, stamp);
            return (seq, Nanos(stamp));
        }
        (seq, self.doubt(seq, stamp, packets))
    }

    /// Number and time of the next packet if it has no stamp; it gets a neighbour's time.
    #[cold]
    pub(super) fn next_unstamped(&mut self, packets: &mut [Packet]) -> (Seq, Nanos) {
        let seq = Seq(self.seq);
        self.seq += 1;
        // It gets the stamp of its neighbour, if that was accepted.
        let near = self.started && matches!(self.place(self.stamp, self.shift), Place::Near(_));
        (seq, self.join(seq, near.then_some(self.stamp).filter(|_| self.pending() == 0), packets))
    }

    /// As [`next`](Self::next), for a stamp before the epoch, given modulo 2^64.
    #[cold]
    pub(super) fn next_early(&mut self, stamp: u64, packets: &mut [Packet]) -> (Seq, Nanos) {
        let seq = Seq(self.seq);
        self.seq += 1;
        self.follow(0);
        self.disbelieved += 1;
        (seq, self.join(seq, Some(stamp), packets))
    }

    /// How many of the latest packets wait for the stamp that decides.
    pub(super) fn pending(&self) -> usize {
        self.pending.stamps.len()
    }

    /// Removes waiting packets from the batch; subtracts `base` from their offsets.
    pub(super) fn suspend(&mut self, packets: &mut Vec<Packet>, base: usize) {
        if self.pending() > 0 {
            let pending = packets.drain(self.pending.first..);
            self.pending.packets.extend(pending.map(|packet| Packet { offset: packet.offset - base as u32, ..packet }));
        }
    }

    /// Puts the packets that wait into an empty batch.
    pub(super) fn resume(&mut self, packets: &mut Vec<Packet>) {
        self.pending.first = packets.len();
        packets.append(&mut self.pending.packets);
    }

    /// At the end, or before an error: accepts the doubted stamp.
    #[cold]
    pub(super) fn accept_doubted(&mut self, packets: &mut [Packet]) {
        if self.pending() > 0 {
            match self.pending.ahead {
                Some(stamp) => self.believe(stamp, packets),
                None => self.release(0, packets),
            }
            self.see_whether_plain();
        }
    }

    /// Moves the packets with another time than their stamp into `restamped`, replacing its content.
    pub(super) fn take_restamped(&mut self, restamped: &mut Vec<Restamped>) {
        restamped.clear();
        restamped.append(&mut self.restamped);
    }

    #[cold]
    fn doubt(&mut self, seq: Seq, stamp: u64, packets: &mut [Packet]) -> Nanos {
        self.follow(stamp);
        // Times beyond the range are clamped.
        if stamp.checked_add(self.shift).is_none_or(|time| time == u64::MAX) {
            self.disbelieved += 1;
            return self.join(seq, Some(stamp), packets);
        }
        if let Some(ahead) = self.pending.ahead {
            if stamp >= ahead.saturating_sub(STEP) {
                self.believe(ahead, packets);
            } else {
                self.disbelieved += 1;
                self.pending.ahead = None;
                if self.started {
                    self.release(self.now, packets);
                }
            }
        }
        let time = if self.started { self.judge(stamp) } else { None };
        let time = match time {
            Some(time) => self.give(seq, time, Some(stamp)),
            None => {
                let time = self.join_pending(seq, Some(stamp), packets);
                self.pending.ahead = Some(stamp);
                time
            }
        };
        self.see_whether_plain();
        time
    }

    fn see_whether_plain(&mut self) {
        self.plain = self.started && self.shift == 0 && self.behind.is_none() && self.pending() == 0;
    }

    /// Time of a packet with this stamp; `None` if the next stamp decides.
    fn judge(&mut self, stamp: u64) -> Option<u64> {
        let behind = self.behind.take();
        match (self.place(stamp, self.shift), self.other_shift.map(|shift| (shift, self.place(stamp, shift)))) {
            (Place::Near(time), _) => Some(time),
            // One of two clocks that both advance, for example of two interfaces.
            (_, Some((shift, Place::Near(time)))) => {
                self.other_shift = Some(self.shift);
                self.shift = shift;
                Some(time)
            }
            (Place::Ahead, _) => None,
            (Place::Behind, _) => match behind {
                Some(first) if stamp >= first.saturating_sub(STEP) => {
                    self.disbelieved -= 1;
                    self.other_shift = Some(self.shift);
                    self.shift = self.now - first;
                    match self.place(stamp, self.shift) {
                        Place::Near(time) => Some(time),
                        Place::Ahead => None,
                        Place::Behind => Some(self.now),
                    }
                }
                _ => {
                    self.disbelieved += 1;
                    self.behind = Some(stamp);
                    Some(self.now)
                }
            },
        }
    }

    fn place(&self, stamp: u64, shift: u64) -> Place {
        let time = stamp.saturating_add(shift);
        match time.abs_diff(self.now) <= STEP {
            true => Place::Near(time.max(self.now)),
            false if time > self.now => Place::Ahead,
            false => Place::Behind,
        }
    }

    /// Gives a packet without a usable stamp its neighbours' time.
    fn join(&mut self, seq: Seq, stamp: Option<u64>, packets: &mut [Packet]) -> Nanos {
        if self.pending() == 0 && self.started {
            return self.give(seq, self.now, stamp);
        }
        let time = self.join_pending(seq, stamp, packets);
        self.see_whether_plain();
        time
    }

    /// Holds a packet together with those that are held.
    fn join_pending(&mut self, seq: Seq, stamp: Option<u64>, packets: &mut [Packet]) -> Nanos {
        if self.pending() == PENDING_MAX {
            self.accept_doubted(packets);
        }
        if self.pending() == 0 {
            self.pending.first = packets.len();
        }
        self.pending.stamps.push(stamp);
        debug_assert_eq!(self.pending.first + self.pending() - 1, packets.len(), "number {} is the next", seq.0);
        Nanos(self.now)
    }

    /// Gives the waiting packets the doubted time.
    fn believe(&mut self, stamp: u64, packets: &mut [Packet]) {
        self.started = true;
        self.release(stamp + self.shift, packets);
    }

    /// Gives the waiting packets this time.
    fn release(&mut self, time: u64, packets: &mut [Packet]) {
        self.pending.ahead = None;
        let mut stamps = std::mem::take(&mut self.pending.stamps);
        for (packet, stamp) in packets[self.pending.first..].iter_mut().zip(stamps.drain(..)) {
            packet.time = self.give(packet.seq, time, stamp);
        }
        self.pending.stamps = stamps;
    }

    fn give(&mut self, seq: Seq, time: u64, stamp: Option<u64>) -> Nanos {
        self.now = time;
        let time = Nanos(time);
        match stamp.map(Nanos) {
            Some(stamp) if stamp != time => self.restamped.push(Restamped { seq, time, stamp }),
            Some(_) | None => {}
        }
        time
    }

    fn follow(&mut self, stamp: u64) {
        self.steps_back += u64::from(stamp < self.stamp);
        self.stamp = stamp;
    }
}

#[cfg(test)]
mod tests {
    use packet::LinkType;
    use proptest::prelude::*;

    use super::*;
    use crate::batch::Fate;

    const S: u64 = 1_000_000_000;

    /// What the packets of a capture get, in a batch of so many records after another.
    fn run(stamps: &[Option<u64>], batches: &[usize]) -> (Vec<u64>, Clock) {
        let (mut clock, mut times, mut at) = (Clock::default(), Vec::new(), 0);
        let mut batches = batches.iter().cycle();
        while at < stamps.len() {
            let end = stamps.len().min(at + batches.next().copied().unwrap_or(usize::MAX - at));
            let mut packets = Vec::new();
            clock.resume(&mut packets);
            for stamp in &stamps[at..end] {
                let (seq, time) = match stamp {
                    Some(stamp) => clock.next(*stamp, &mut packets),
                    None => clock.next_unstamped(&mut packets),
                };
                let (link, fate) = (LinkType::Ethernet, Fate::Pending);
                let (offset, len, wire_len, interface, bucket) = (9, 0, 0, 0, 0);
                packets.push(Packet { seq, time, offset, len, wire_len, interface, link, bucket, fate });
            }
            match end == stamps.len() {
                true => clock.accept_doubted(&mut packets),
                false => clock.suspend(&mut packets, 0),
            }
            times.extend(packets.iter().map(|packet| packet.time.0));
            at = end;
        }
        (times, clock)
    }

    fn times(stamps: &[u64]) -> (Vec<u64>, u64) {
        let stamps: Vec<_> = stamps.iter().copied().map(Some).collect();
        let (times, clock) = run(&stamps, &[]);
        (times, clock.disbelieved())
    }

    #[test]
    fn time_never_falls_and_steps_are_counted() {
        let (times, clock) = run(&[5, 3, 4, 7, 6, 6].map(Some), &[]);
        assert_eq!(times, [5, 5, 5, 7, 7, 7]);
        // 5 to 3 and 7 to 6; from 3 to 4 the capture's clock runs forward again.
        assert_eq!((clock.steps_back(), clock.disbelieved()), (2, 0));
        assert_eq!(clock.packets(), 6);
    }

    #[test]
    fn a_lone_stamp_is_not_believed() {
        assert_eq!(times(&[10 * S, 3600 * S, 11 * S, 12 * S]), (vec![10 * S, 10 * S, 11 * S, 12 * S], 1));
        assert_eq!(times(&[10 * S, 11 * S, 0, 12 * S]), (vec![10 * S, 11 * S, 11 * S, 12 * S], 1));
        // At the beginning; two that differ; beyond what can be told, and at either end.
        assert_eq!(times(&[4000 * S, 10 * S, 11 * S]), (vec![10 * S, 10 * S, 11 * S], 1));
        assert_eq!(times(&[10 * S, 5000 * S, 900 * S, 11 * S]), (vec![10 * S, 10 * S, 10 * S, 11 * S], 2));
        assert_eq!(
            times(&[u64::MAX, 10 * S, u64::MAX, 11 * S, u64::MAX]),
            (vec![10 * S, 10 * S, 10 * S, 11 * S, 11 * S], 3)
        );
        assert_eq!(times(&[u64::MAX; 3]), (vec![0; 3], 3));
    }

    #[test]
    fn gaps_are_believed() {
        let idle = [10 * S, 11 * S, 7200 * S, 7201 * S, 90_000 * S, 900_000 * S];
        assert_eq!(times(&idle), (idle.to_vec(), 0));
    }

    #[test]
    fn a_step_that_lasts_moves_the_base() {
        let (given, disbelieved) = times(&[3600 * S, 3601 * S, 10 * S, 11 * S, 14 * S, 15 * S]);
        assert_eq!(given, [3600, 3601, 3601, 3602, 3605, 3606].map(|secs| secs * S));
        assert_eq!(disbelieved, 0);
        // Two clocks, by turns: each goes on at its own distance.
        let (given, disbelieved) = times(&[3600, 3601, 10, 11, 3602, 3603, 12, 13, 3604].map(|secs| secs * S));
        assert_eq!(given, [3600, 3601, 3601, 3602, 3602, 3603, 3603, 3604, 3604].map(|secs| secs * S));
        assert_eq!(disbelieved, 0);
    }

    #[test]
    fn packets_without_a_stamp_take_their_neighbours() {
        let of = |stamps: &[Option<u64>]| run(stamps, &[]).0;
        assert_eq!(of(&[None, Some(10 * S), None, Some(11 * S)]), [10 * S, 10 * S, 10 * S, 11 * S]);
        assert_eq!(of(&[None, None]), [0, 0]);
        let spike = [Some(10 * S), Some(99 * S), None, Some(11 * S)];
        assert_eq!(of(&spike), [10 * S, 10 * S, 10 * S, 11 * S]);
        let gap = [Some(10 * S), Some(99 * S), None, Some(100 * S)];
        assert_eq!(of(&gap), [10 * S, 99 * S, 99 * S, 100 * S]);
        assert_eq!(of(&[&[None; 200][..], &[Some(S)]].concat())[191..], [[0; 1].as_slice(), &[S; 9]].concat());
    }

    #[test]
    fn stamps_that_differ_are_told_once() {
        let mut clock = Clock::default();
        let mut packets = Vec::new();
        for stamp in [5, 3, 4, 7] {
            let (seq, time) = clock.next(stamp, &mut packets);
            let (link, fate) = (LinkType::Ethernet, Fate::Pending);
            packets.push(Packet { seq, time, offset: 0, len: 0, wire_len: 0, interface: 0, link, bucket: 0, fate });
        }
        let restamped = |seq, stamp| Restamped { seq: Seq(seq), time: Nanos(5), stamp: Nanos(stamp) };
        let mut taken = vec![restamped(9, 9)];
        clock.take_restamped(&mut taken);
        assert_eq!(taken, [restamped(1, 3), restamped(2, 4)]);
        clock.take_restamped(&mut taken);
        assert!(taken.is_empty());
    }

    /// The rule of the decision note, with the whole capture at hand. Times, and how many stamps were not believed.
    fn naive(stamps: &[Option<u64>]) -> (Vec<u64>, u64) {
        let believable = |stamp: &Option<u64>| stamp.filter(|stamp| *stamp < u64::MAX / 2);
        let mut lies: Vec<bool> = stamps.iter().map(|stamp| stamp.is_some() && believable(stamp).is_none()).collect();
        let real: Vec<usize> = (0..stamps.len()).filter(|at| believable(&stamps[*at]).is_some()).collect();
        let of = |at: usize| i128::from(stamps[real[at]].unwrap_or_default());
        let step = i128::from(STEP);
        let (mut now, mut bases): (Option<i128>, Vec<i128>) = (None, vec![0]);
        let mut given: Vec<Option<i128>> = vec![None; stamps.len()];
        let mut last_behind = None;
        for at in 0..real.len() {
            let stamp = of(at);
            let falls_back = at + 1 < real.len() && of(at + 1) < stamp - step;
            let Some(time) = now else {
                if falls_back {
                    lies[real[at]] = true;
                } else {
                    now = Some(stamp);
                    given[real[at]] = now;
                }
                continue;
            };
            let before = last_behind.take();
            // The current base is the last of the list; try the one before it next.
            let mut near = bases.iter().rev().take(2).copied().find(|base| (stamp + base - time).abs() <= step);
            let mut base = bases[bases.len() - 1];
            if near.is_none() && stamp + base < time {
                match before {
                    Some(first) if stamp >= of(first) - step => {
                        lies[real[first]] = false;
                        base = time - of(first);
                        bases.push(base);
                        near = Some(base).filter(|base| stamp + base <= time + step);
                    }
                    _ => {
                        lies[real[at]] = true;
                        last_behind = Some(at);
                        given[real[at]] = now;
                        continue;
                    }
                }
            }
            match near {
                Some(base) => {
                    if bases[bases.len() - 1] != base {
                        bases.push(base);
                    }
                    now = Some(time.max(stamp + base));
                }
                None if falls_back => lies[real[at]] = true,
                None => now = Some(stamp + base),
            }
            given[real[at]] = now;
        }
        // The others take the time of the packet ahead, or of the first that has one.
        let mut last = given.iter().flatten().next().copied().unwrap_or(0);
        let times = given
            .iter()
            .map(|time| {
                last = time.unwrap_or(last);
                last as u64
            })
            .collect();
        (times, lies.iter().filter(|lie| **lie).count() as u64)
    }

    fn stamps() -> impl Strategy<Value = Vec<Option<u64>>> {
        // Small steps forward and back, gaps, two clocks, strays, and none.
        let one = prop_oneof![
            8 => (0u64..2 * S).prop_map(|ahead| (0, ahead)),
            2 => (0u64..3 * S).prop_map(|ahead| (1, ahead)),
            1 => (0u64..9_000 * S).prop_map(|ahead| (0, ahead)),
            1 => (0u64..2 * S).prop_map(|ahead| (2, ahead)),
            1 => any::<u32>().prop_map(|stray| (3, u64::from(stray) * 1_000_000)),
            1 => Just((4, 0)),
            1 => Just((5, 0)),
        ];
        prop::collection::vec(one, 0..60).prop_map(|kinds| {
            let mut clock = 100_000 * S;
            let kinds = kinds.into_iter().map(|(kind, value)| match kind {
                0 => {
                    clock += value;
                    Some(clock)
                }
                1 => Some(clock - value),
                2 => {
                    clock += value;
                    Some(clock - 50_000 * S)
                }
                3 => Some(value),
                4 => None,
                _ => Some(u64::MAX),
            });
            kinds.collect()
        })
    }

    proptest! {
        #[test]
        fn as_the_naive_rule(stamps in stamps(), batches in prop::collection::vec(1usize..9, 1..5)) {
            let (times, clock) = run(&stamps, &batches);
            prop_assert_eq!((&times, clock.disbelieved()), (&naive(&stamps).0, naive(&stamps).1));
            prop_assert!(times.is_sorted());
            // A packet that is not in `restamped` has the stamp of the file.
            for (at, stamp) in stamps.iter().enumerate() {
                let restamped = clock.restamped.iter().find(|restamped| restamped.seq.0 == at as u64);
                if let Some(stamp) = stamp {
                    prop_assert_eq!(restamped.map_or(times[at], |restamped| restamped.stamp.0), *stamp);
                }
            }
        }

        /// Stamps that never step back are used unchanged. A single wrong stamp changes only the time of its own packet.
        #[test]
        fn one_stray_stamp_is_its_own(
            gaps in prop::collection::vec(prop_oneof![9 => 0u64..S, 1 => 0u64..9_000 * S], 2..40),
            at in any::<prop::sample::Index>(),
            stray in 20_000_000u64..40_000_000,
        ) {
            let mut clock = 1_000 * S;
            let steady: Vec<u64> = gaps.iter().map(|gap| { clock += gap; clock }).collect();
            prop_assert_eq!(times(&steady), (steady.clone(), 0));
            let at = at.index(steady.len());
            let mut strayed = steady.clone();
            strayed.insert(at, stray * S);
            let mut expected = steady.clone();
            expected.insert(at, steady[at.saturating_sub(1)]);
            prop_assert_eq!(times(&strayed), (expected, 1));
        }
    }
}
