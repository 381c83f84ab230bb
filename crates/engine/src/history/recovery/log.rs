//! The recovery logs: one for each core, written by that core and read by all.

use std::sync::Arc;

use super::member::Member;
use super::patience::Patience;
use super::sync::{AtomicU64, Ordering, Watch, broken, fence};

/// The size of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of cores that the sequencer sprays to.
    pub cores: usize,
    /// The number of packets that each core's log holds.
    pub slots: usize,
    /// The words of a record. 0 if the history is in memory that all cores share: the log then only says who received a record.
    pub words: usize,
}

impl Shape {
    /// The smallest size with which no core ever waits for another to make room, if the sequencer numbers at most `window` packets past the
    /// slowest core's last [`advance`](Member::advance).
    ///
    /// # Panics
    /// If `cores` is 0.
    #[must_use]
    pub const fn for_window(cores: usize, window: usize, words: usize) -> Self {
        assert!(cores > 0, "somebody must receive");
        // A window counts packets of all cores. The overwritten entry is one more packet of this core back.
        Self { cores, slots: 1 + window.saturating_sub(1).div_ceil(cores), words }
    }

    /// How many packets past the slowest core's last [`advance`](Member::advance) the sequencer may number without any core waiting for
    /// room. Beyond that, cores wait for each other and lose nothing.
    #[must_use]
    pub const fn window(&self) -> usize {
        (self.slots - 1) * self.cores + 1
    }
}

/// The logs of all cores.
pub struct Logs {
    pub(super) shape: Shape,
    /// Gives the slot of a packet, if the number of slots is a power of two.
    mask: Option<u64>,
    cores: Box<[CoreLog]>,
}

/// One core's log. Its mark and its progress are on cache lines of their own, because they are read at different times.
struct CoreLog {
    mark: Line,
    progress: Line,
    /// One bit for each slot: whether the packet was received. The bits of a burst take one or two stores.
    received: Box<[AtomicU64]>,
    /// The records of the packet in each slot, the packet's own last. Consecutive packets of a core carry consecutive records, so the slots
    /// of a burst are contiguous and are copied at once.
    words: Box<[AtomicU64]>,
    /// One for each slot.
    watches: Box<[Watch]>,
}

#[repr(align(128))]
struct Line(AtomicU64);

/// What a core publishes: how many of its packets are decided (received, or known to be lost), and whether the core has left or was fenced.
/// One word, so a core can't publish after it was fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    const FENCED: u64 = 1;
    const LEFT: u64 = 2;

    pub(super) const fn new(packets: u64) -> Self {
        Self(packets << 2)
    }

    pub(super) const fn packets(self) -> u64 {
        self.0 >> 2
    }

    /// True if the core has left or was fenced: this is its last mark.
    pub(super) const fn is_final(self) -> bool {
        self.0 & (Self::FENCED | Self::LEFT) != 0
    }

    pub(super) const fn is_fenced(self) -> bool {
        self.0 & Self::FENCED != 0
    }
}

/// What a log says of one packet of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogEntry {
    /// Nothing yet (`NOT_INIT` in the paper).
    Open,
    /// The packet never came, or its core is gone.
    Lost,
    /// The packet came, and its records are in the slot.
    Received,
}

impl Logs {
    pub(super) fn new(shape: Shape) -> Self {
        assert!(shape.cores > 0, "somebody must receive");
        assert!(shape.slots > 0, "a log keeps one packet at least");
        let mask = shape.slots.is_power_of_two().then_some(shape.slots as u64 - 1);
        Self { cores: (0..shape.cores).map(|_| CoreLog::new(shape)).collect(), mask, shape }
    }

    /// Empty logs, and a member for each core.
    ///
    /// # Panics
    /// If there are no cores or no slots.
    #[must_use]
    pub fn members(shape: Shape, patience: Patience) -> Vec<Member> {
        let logs = Arc::new(Self::new(shape));
        (0..shape.cores).map(|core| Member::new(Arc::clone(&logs), core, patience)).collect()
    }

    /// The size of the logs.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The memory of the logs, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |log: &CoreLog| size_of::<CoreLog>() + size_of_val(&*log.words) + size_of_val(&*log.received);
        self.cores.iter().map(of).sum()
    }

    /// The number of this core's `nth` packet.
    pub(super) const fn packet(&self, core: usize, nth: u64) -> u64 {
        nth * self.shape.cores as u64 + core as u64
    }

    /// How many packets with a number below `end` go to this core.
    pub(super) const fn packets_below(&self, core: usize, end: u64) -> u64 {
        let cores = self.shape.cores as u64;
        (end + cores - 1 - core as u64) / cores
    }

    /// The slot of a core's `nth` packet. A mask, because a division would take longer than the writes.
    const fn slot(&self, nth: u64) -> usize {
        match self.mask {
            Some(mask) => (nth & mask) as usize,
            None => (nth % self.shape.slots as u64) as usize,
        }
    }

    /// Which of this core's packets carries this record: the first with at least its number.
    pub(super) const fn carrier(&self, core: usize, record: u64) -> u64 {
        self.packets_below(core, record)
    }

    /// The core's mark.
    pub(super) fn mark(&self, core: usize) -> Mark {
        let order = if broken!(StaleEntry) { Ordering::Relaxed } else { Ordering::Acquire };
        // ORDERING: Acquire pairs with the Release in `publish`, so published entries are read as they were written; with the Release in
        // `leave`, so a core that has left has finished its reads; and with the exchange in `fence_off`.
        Mark(self.cores[core].mark.0.load(order))
    }

    /// Changes a core's mark from `old` to `new`. Returns false if the core was fenced.
    pub(super) fn publish(&self, core: usize, old: Mark, new: Mark) -> bool {
        let mark = &self.cores[core].mark.0;
        let order = if broken!(EarlyMark) { Ordering::Relaxed } else { Ordering::Release };
        if broken!(BlindMark) {
            mark.store(new.0, order);
            return true;
        }
        // ORDERING: Release pairs with the Acquire in `mark`. An exchange, not a store, so a fence is never undone. Relaxed on failure: the
        // core reads no more words of others.
        mark.compare_exchange(old.0, new.0, order, Ordering::Relaxed).is_ok()
    }

    /// Records that the core publishes and reads nothing more. It may have been fenced.
    pub(super) fn leave(&self, core: usize) {
        // ORDERING: Release pairs with the Acquire in `mark`: a core that sees it may overwrite what this core has read.
        self.cores[core].mark.0.fetch_or(Mark::LEFT, Ordering::Release);
    }

    /// Fences a core that has published nothing since `seen`. Returns false if it has.
    pub(super) fn fence_off(&self, core: usize, seen: Mark) -> bool {
        // ORDERING: AcqRel. Acquire pairs with the core's `publish`, as in `mark`. Release passes the fence on to cores that learn of it
        // through others, as `begin` and `is_fenced` need.
        let mark = &self.cores[core].mark.0;
        mark.compare_exchange(seen.0, seen.0 | Mark::FENCED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// True if the core was fenced before others overwrote anything that it has just read.
    pub(super) fn is_fenced(&self, core: usize) -> bool {
        if broken!(Unchecked) {
            return false;
        }
        // ORDERING: the Acquire fence pairs with the Release fence in `begin`. If a word read before was written by a core that had seen
        // this one fenced, the load sees the fence too.
        fence(Ordering::Acquire);
        Mark(self.cores[core].mark.0.load(Ordering::Relaxed)).is_fenced()
    }

    /// Publishes that a core has applied all records below `next` and reads none of them again.
    pub(super) fn report(&self, core: usize, next: u64) {
        let order = if broken!(EarlyProgress) { Ordering::Relaxed } else { Ordering::Release };
        // ORDERING: Release pairs with the Acquire in `progress`: an entry is overwritten only after it was read.
        self.cores[core].progress.0.store(next, order);
    }

    /// The next record that a core applies, as last reported.
    pub(super) fn progress(&self, core: usize) -> u64 {
        // ORDERING: Acquire pairs with the Release in `report`.
        self.cores[core].progress.0.load(Ordering::Acquire)
    }

    /// How many entries from the `nth` packet on are contiguous.
    pub(super) const fn in_one_piece(&self, nth: u64) -> usize {
        self.shape.slots - self.slot(nth)
    }

    /// The words of an entry.
    pub(super) const fn entry_words(&self) -> usize {
        self.shape.cores * self.shape.words
    }

    /// Writes the entries of `count` consecutive received packets, which must be [contiguous](Self::in_one_piece): their records, oldest
    /// first. The first packet may carry fewer records. Only the core itself may write, and only after all cores that aren't fenced have
    /// read the old entries.
    #[inline]
    pub(super) fn receive(&self, core: usize, nth: u64, count: usize, records: &[u64]) {
        let log = &self.cores[core];
        let slot = self.slot(nth);
        log.begin(slot, count);
        log.set_received(slot, count, true);
        let end = (slot + count) * self.entry_words();
        let room = &log.words[end - records.len()..end];
        // ORDERING: Relaxed for all words. The mark's Release publishes them, and nobody reads them before.
        //
        // Eight words at a time: compilers don't unroll atomic stores, and this is the cost of recovery when nothing is lost.
        let ((eights, rest), (values, last)) = (room.as_chunks::<8>(), records.as_chunks::<8>());
        for (words, values) in eights.iter().zip(values) {
            for (word, value) in words.iter().zip(values) {
                word.store(*value, Ordering::Relaxed);
            }
        }
        for (word, value) in rest.iter().zip(last) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Writes the entry of a lost packet, under the same conditions.
    pub(super) fn lose(&self, core: usize, nth: u64) {
        let (log, slot) = (&self.cores[core], self.slot(nth));
        log.begin(slot, 1);
        log.set_received(slot, 1, false);
    }

    /// What the log says of a packet of its core that was published.
    pub(super) fn entry(&self, core: usize, nth: u64) -> LogEntry {
        let (log, slot) = (&self.cores[core], self.slot(nth));
        log.watches[slot].read();
        // ORDERING: Relaxed, after an Acquire of the mark or by the writer itself. A fenced core may read a later entry.
        let received = log.received[slot / BITS].load(Ordering::Relaxed);
        if received >> (slot % BITS) & 1 == 0 { LogEntry::Lost } else { LogEntry::Received }
    }

    /// Copies a record from a packet that the core received.
    pub(super) fn read(&self, core: usize, nth: u64, record: u64, into: &mut [u64]) {
        let (log, slot) = (&self.cores[core], self.slot(nth));
        log.watches[slot].read();
        let behind = (self.packet(core, nth) - record) as usize;
        let start = (slot + 1) * self.entry_words() - (behind + 1) * self.shape.words;
        for (value, word) in into.iter_mut().zip(&log.words[start..]) {
            // ORDERING: Relaxed, as in `entry`.
            *value = word.load(Ordering::Relaxed);
        }
    }

    /// A core other than `me` that seems able to continue and doesn't, while `me` waits. Never a core that waits, so of two cores at most
    /// one fences the other.
    pub(super) fn suspect(&self, me: usize) -> Option<Suspect> {
        let active = |core: &usize| !self.mark(*core).is_final();
        let last = (0..self.shape.cores).filter(active).map(|core| self.progress(core)).min()?;
        let others = || (0..self.shape.cores).filter(|core| *core != me);
        let suspect = |core| Suspect { core, mark: self.mark(core), progress: self.progress(core) };
        // The core that is furthest behind waits for cores that haven't said whether they have its next record. Those have room, because
        // nobody is further behind.
        let silent = others()
            .map(suspect)
            .find(|suspect| !suspect.mark.is_final() && suspect.mark.packets() <= self.carrier(suspect.core, last));
        // If all have said so, the core that is furthest behind could continue itself.
        silent.or_else(|| others().map(suspect).find(|suspect| !suspect.mark.is_final() && suspect.progress <= last))
    }
}

/// A core that may have stalled, and how far it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) core: usize,
    pub(super) mark: Mark,
    pub(super) progress: u64,
}

/// Bits in a word.
const BITS: usize = u64::BITS as usize;

impl CoreLog {
    fn new(shape: Shape) -> Self {
        let zeroes = |words| (0..words).map(|_| AtomicU64::new(0)).collect();
        Self {
            mark: Line(AtomicU64::new(Mark::new(0).0)),
            progress: Line(AtomicU64::new(0)),
            received: zeroes(shape.slots.div_ceil(BITS)),
            words: zeroes(shape.slots * shape.cores * shape.words),
            watches: (0..shape.slots).map(|_| Watch::default()).collect(),
        }
    }

    /// Call before `count` entries are overwritten.
    #[inline(always)]
    fn begin(&self, slot: usize, count: usize) {
        self.watches[slot..slot + count].iter().for_each(Watch::write);
        if !broken!(EarlyWords) {
            // ORDERING: Release pairs with the Acquire fence in `is_fenced`: a fenced core whose words are overwritten learns of its fence.
            fence(Ordering::Release);
        }
    }

    /// Records for `count` packets whether they were received.
    #[inline]
    fn set_received(&self, slot: usize, count: usize, received: bool) {
        let (mut slot, end) = (slot, slot + count);
        while slot < end {
            let bits = (end - slot).min(BITS - slot % BITS);
            let mask = u64::MAX >> (BITS - bits) << (slot % BITS);
            // ORDERING: Relaxed, as for words. No other core writes here, so a load and a store are enough; the other bits stay as they
            // are.
            let word = &self.received[slot / BITS];
            let before = word.load(Ordering::Relaxed);
            word.store(if received { before | mask } else { before & !mask }, Ordering::Relaxed);
            slot += bits;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_core_gets_a_record_in_one_packet() {
        for cores in 1..=8 {
            let logs = Logs::new(Shape { cores, slots: 1, words: 1 });
            for (record, core) in (0..50).flat_map(|record| (0..cores).map(move |core| (record, core))) {
                let packet = logs.packet(core, logs.carrier(core, record));
                assert!((record..record + cores as u64).contains(&packet), "{record} at {core} of {cores}: {packet}");
                assert_eq!(packet % cores as u64, core as u64);
            }
        }
    }

    #[test]
    fn a_shape_for_a_window_keeps_it() {
        for (cores, window) in (1..=8).flat_map(|cores| (0..100).map(move |window| (cores, window))) {
            let shape = Shape::for_window(cores, window, 1);
            assert!(shape.window() >= window, "{shape:?} for {window}");
            let smaller = Shape { slots: shape.slots.saturating_sub(1), ..shape };
            assert!(smaller.slots == 0 || smaller.window() < window, "{shape:?} is larger than {window} needs");
        }
    }

    #[test]
    fn a_fence_lasts_and_what_was_published_stays() {
        let logs = Logs::new(Shape { cores: 2, slots: 4, words: 1 });
        assert!(logs.publish(1, Mark::new(0), Mark::new(3)));
        assert!(!logs.fence_off(1, Mark::new(2)), "it has moved since");
        assert!(logs.fence_off(1, Mark::new(3)));
        assert!(!logs.publish(1, Mark::new(3), Mark::new(4)));
        logs.leave(1);
        let mark = logs.mark(1);
        assert!(mark.is_fenced() && mark.is_final() && mark.packets() == 3);
    }

    #[test]
    fn the_suspect_is_who_could_go_on() {
        let logs = Logs::new(Shape { cores: 3, slots: 2, words: 1 });
        let move_to = |core, turns, next| {
            let old = logs.mark(core);
            assert!(logs.publish(core, old, Mark::new(turns)));
            logs.report(core, next);
        };
        // Core 0 is at record 0 and waits for core 2 to say whether it has it. Core 1 waits for core 0 to make room.
        move_to(0, 1, 0);
        move_to(1, 2, 5);
        assert_eq!(logs.suspect(0).map(|suspect| suspect.core), Some(2));
        assert_eq!(logs.suspect(1).map(|suspect| suspect.core), Some(2), "core 0 waits, core 2 holds both up");
        // Core 2 has said so, and core 0 could continue.
        move_to(2, 1, 1);
        assert_eq!(logs.suspect(1).map(|suspect| suspect.core), Some(0));
        assert_eq!(logs.suspect(2).map(|suspect| suspect.core), Some(0));
        logs.leave(0);
        assert_eq!(logs.suspect(2).map(|suspect| suspect.core), None, "core 1 is ahead of who asks");
    }
}
