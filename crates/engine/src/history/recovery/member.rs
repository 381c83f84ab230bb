//! A core's part in loss recovery.

use core::mem::{replace, take};
use std::sync::Arc;

use packet::Seq;

use super::log::{LogEntry, Logs, Mark, Shape, Suspect};
use super::patience::{Patience, Wait};
use super::sync::{Pause, broken};
use super::tally::Tally;

/// A core's part in loss recovery: it writes the core's own log and reads the other logs.
///
/// The core passes in each packet by [`receive`](Self::receive), and the sequencer's progress by [`advance`](Self::advance). In return it
/// gets every record of every packet in order, exactly once: its words, or nothing if no core received it.
///
/// The sequencer must announce each packet to all cores, by the packet itself or by a heartbeat that `advance` takes, before it waits for
/// any of them. Then no core waits for ever, however many packets are lost.
///
/// A dropped member leaves: no core waits for it any more.
pub struct Member {
    logs: Arc<Logs>,
    core: usize,
    patience: Patience,
    /// How many of the core's packets are in the log, received or lost.
    nth: u64,
    /// The core's published mark.
    mark: Mark,
    /// The index of the core's packet whose records are applied next.
    at: u64,
    /// The next record to apply.
    next: u64,
    /// The last reported value of `next`.
    reported: u64,
    /// The index after the core's last lost packet.
    lost: u64,
    /// The core's packets below this index have a slot that nobody reads any more.
    room: u64,
    record: Box<[u64]>,
    tally: Tally,
}

/// The other cores took this core for stalled and went on without it. Its state is useless from now on; records that it applied before were
/// applied by all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other cores took this one for stalled and went on without it")]
pub struct Fenced;

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The packet was received, or counted as lost, before.
    #[error("a packet of this or of a later number came before it")]
    Late,
    /// By its number the packet belongs to another core.
    #[error("by its number it belongs to another core")]
    Astray,
    /// This core is fenced.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

/// Applies the records that a core gets, in order, each exactly once.
pub trait Apply {
    /// Applies a record. `words` is `None` if no core received it, and empty if the logs [hold no words](Shape::words).
    fn record(&mut self, seq: Seq, words: Option<&[u64]>);

    /// Applies the records from `first` up to `end`, which a packet of this core carried, from that packet. Returns false to get them one
    /// by one from the log.
    fn carried(&mut self, first: Seq, end: Seq) -> bool;
}

/// Applies all records from their words.
#[derive(Debug)]
pub struct Words<F>(pub F);

impl<F: FnMut(Seq, Option<&[u64]>)> Apply for Words<F> {
    fn record(&mut self, seq: Seq, words: Option<&[u64]>) {
        (self.0)(seq, words);
    }

    fn carried(&mut self, _: Seq, _: Seq) -> bool {
        false
    }
}

impl Member {
    /// The member of one core. A core must have only one.
    ///
    /// # Panics
    /// If the logs have no such core.
    #[must_use]
    pub(super) fn new(logs: Arc<Logs>, core: usize, patience: Patience) -> Self {
        let shape = logs.shape;
        assert!(core < shape.cores, "there are {} cores, so no core {core}", shape.cores);
        Self {
            core,
            patience,
            nth: 0,
            mark: Mark::new(0),
            at: 0,
            next: 0,
            reported: 0,
            lost: 0,
            room: shape.slots as u64,
            record: vec![0; shape.words].into(),
            tally: Tally { recovered: vec![0; shape.cores], ..Tally::default() },
            logs,
        }
    }

    /// The logs of all cores.
    #[must_use]
    pub const fn logs(&self) -> &Arc<Logs> {
        &self.logs
    }

    /// The losses and recoveries so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The next record to apply.
    #[must_use]
    pub const fn next(&self) -> Seq {
        Seq(self.next)
    }

    /// Takes in a packet of this core: its records, oldest first and its own last, each with the logs' number of words. The first packets
    /// of a stream carry fewer records.
    ///
    /// The records are applied and published by [`advance`](Self::advance), once for a burst of packets. If the log is full, both happen
    /// here.
    ///
    /// # Errors
    /// If the packet is refused; it then has no effect. After [`Refusal::Fenced`] no packet is taken.
    #[inline]
    pub fn receive(
        &mut self,
        seq: Seq,
        records: &[u64],
        apply: impl FnMut(Seq, Option<&[u64]>),
    ) -> Result<(), Refusal> {
        self.receive_run(seq, 1, records, &mut Words(apply))
    }

    /// Takes in `count` successive packets of this core, from `first` on, with all their records, oldest first. For an applier that has the
    /// packets' records itself. Successive packets of a core carry consecutive records.
    ///
    /// # Errors
    /// As [`receive`](Self::receive). If the log was full, packets taken in before that may have been applied.
    #[inline]
    pub fn receive_run(
        &mut self,
        first: Seq,
        count: usize,
        records: &[u64],
        apply: &mut impl Apply,
    ) -> Result<(), Refusal> {
        let Shape { cores, words, .. } = self.logs.shape;
        debug_assert_eq!(
            records.len(),
            (cores.min(first.0 as usize + 1) + count.saturating_sub(1) * cores) * words,
            "the packets' records"
        );
        // For the next packet in order, this needs no division.
        if first.0 != self.logs.packet(self.core, self.nth) {
            self.skip_to(first, apply)?;
        }
        let (mut count, mut records) = (count, records);
        while count > 0 {
            if self.nth >= self.room {
                self.make_room(self.logs.packet(self.core, self.nth), apply)?;
            }
            let taken = count.min((self.room - self.nth) as usize).min(self.logs.in_one_piece(self.nth));
            count -= taken;
            let (now, later) = records.split_at(records.len() - count * self.logs.entry_words());
            self.logs.receive(self.core, self.nth, taken, now);
            self.nth += taken as u64;
            records = later;
        }
        Ok(())
    }

    /// Counts the core's packets before `seq` that didn't come as lost.
    #[cold]
    fn skip_to(&mut self, seq: Seq, apply: &mut impl Apply) -> Result<(), Refusal> {
        let cores = self.logs.shape.cores as u64;
        let (nth, core) = (seq.0 / cores, seq.0 % cores);
        if core != self.core as u64 {
            return Err(Refusal::Astray);
        }
        if nth < self.nth {
            return Err(Refusal::Late);
        }
        while self.nth < nth {
            self.lose(seq.0, apply)?;
            self.tally.lost += 1;
        }
        Ok(())
    }

    /// Publishes and applies what was received. `sent` is the number after the last packet that the sequencer has sent to any core: a
    /// packet of this core below it that didn't come is lost.
    ///
    /// Records of lost packets that other cores may still receive are applied later.
    ///
    /// # Errors
    /// [`Fenced`] if the others have gone on without this core.
    pub fn advance(&mut self, sent: Seq, apply: impl FnMut(Seq, Option<&[u64]>)) -> Result<(), Fenced> {
        self.advance_into(sent, &mut Words(apply))
    }

    /// The same, for an applier that has the packets' records itself.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn advance_into(&mut self, sent: Seq, apply: &mut impl Apply) -> Result<(), Fenced> {
        // This core's packets may be ahead of the heartbeat.
        let own = self.logs.packet(self.core, self.nth) + 1;
        let sent = sent.0.max(own.saturating_sub(self.logs.shape.cores as u64));
        self.resolve_losses(sent, sent, apply)
    }

    /// A fast version of [`advance`](Self::advance) that reads no log, for when nothing is missing. Publishes what was received. The caller
    /// then applies the records up to the returned number from the packets themselves. Returns `None`, with no effect, if a packet below
    /// `sent` is missing.
    ///
    /// # Errors
    /// [`Fenced`] if the others have gone on without this core.
    #[inline]
    pub fn pass(&mut self, sent: Seq) -> Result<Option<Seq>, Fenced> {
        let missing = self.lost > self.at || self.logs.packet(self.core, self.nth) < sent.0;
        if missing || self.at == self.nth {
            return Ok(None);
        }
        self.publish()?;
        self.at = self.nth;
        self.next = self.logs.packet(self.core, self.nth - 1) + 1;
        self.report();
        Ok(Some(Seq(self.next)))
    }

    /// Applies the remaining records at the end of the stream, whose length is `sent`, and leaves.
    ///
    /// # Errors
    /// [`Fenced`] if the others have gone on without this core.
    pub fn finish(self, sent: Seq, apply: impl FnMut(Seq, Option<&[u64]>)) -> (Tally, Result<(), Fenced>) {
        self.finish_into(sent, &mut Words(apply))
    }

    /// The same, for an applier that has the packets' records itself.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_into(mut self, sent: Seq, apply: &mut impl Apply) -> (Tally, Result<(), Fenced>) {
        // The last packets' records would have come again with later packets, which never come; those count as lost.
        let result = self.resolve_losses(sent.0 + self.logs.shape.cores as u64 - 1, sent.0, apply);
        (take(&mut self.tally), result)
    }

    /// Counts packets below `sent` that didn't come as lost, and applies all records below `end` that can be decided.
    fn resolve_losses(&mut self, sent: u64, end: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        let packets = self.logs.packets_below(self.core, sent);
        while self.nth < packets {
            self.lose(sent, apply)?;
            // A packet after the end of the stream can't be lost.
            self.tally.lost += u64::from(self.logs.packet(self.core, self.nth - 1) < end);
        }
        self.catch_up(sent, end, apply)
    }

    /// Marks the core's next packet as lost. All cores know, or will soon know, of the packets below `sent`.
    fn lose(&mut self, sent: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        if self.nth >= self.room {
            self.make_room(sent, apply)?;
        }
        self.logs.lose(self.core, self.nth);
        self.nth += 1;
        self.lost = self.nth;
        Ok(())
    }

    /// Waits until no core needs the entry that is overwritten next. All cores know, or will soon know, of the packets below `sent`.
    #[cold]
    fn make_room(&mut self, sent: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        let slots = self.logs.shape.slots as u64;
        // First publish what other cores may be waiting for.
        self.catch_up(sent, sent, apply)?;
        let last = self.logs.packet(self.core, self.nth - slots);
        debug_assert!(self.next > last, "all that came before this packet is applied");
        let passed = self.wait(
            |tally| &mut tally.waits_for_room,
            |member| Some(member.passed_by_all()).filter(|passed| *passed > last),
        )?;
        self.room = slots + self.logs.packets_below(self.core, passed);
        Ok(())
    }

    /// The lowest next record of all cores that aren't gone.
    fn passed_by_all(&self) -> u64 {
        if broken!(NoRoom) {
            return u64::MAX / 2;
        }
        let others = (0..self.logs.shape.cores).filter(|core| *core != self.core);
        // Progress is read first: a core that is not behind need not be asked whether it is gone.
        let behind = others.map(|core| (core, self.logs.progress(core))).filter(|(_, next)| *next < self.next);
        behind.filter(|(core, _)| !self.logs.mark(*core).is_final()).map(|(_, next)| next).fold(self.next, u64::min)
    }

    /// Publishes which packets came and which are lost.
    fn publish(&mut self) -> Result<(), Fenced> {
        let mark = Mark::new(self.nth);
        // Even with nothing to publish, check whether this core was fenced.
        let held = if mark == self.mark {
            !self.logs.is_fenced(self.core)
        } else {
            self.logs.publish(self.core, self.mark, mark)
        };
        if !held {
            return Err(Fenced);
        }
        self.mark = mark;
        Ok(())
    }

    /// Applies the records below `end` of the packets in the log, as far as they can be decided after the packets below `sent` were sent.
    fn catch_up(&mut self, sent: u64, end: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        if !broken!(AppliesFirst) {
            // Publish before anything is applied: a record applied without the others' knowledge can't be undone.
            self.publish()?;
        }
        let result = self.apply_all(sent, end, apply);
        self.report();
        if broken!(AppliesFirst) {
            self.publish()?;
        }
        result
    }

    fn apply_all(&mut self, sent: u64, end: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        while self.at < self.nth {
            let packet = self.logs.packet(self.core, self.at);
            let stop = end.min(packet + 1);
            match self.logs.entry(self.core, self.at) {
                LogEntry::Received => {
                    if self.next < stop && apply.carried(Seq(self.next), Seq(stop)) {
                        self.next = stop;
                    }
                    while self.next < stop {
                        self.logs.read(self.core, self.at, self.next, &mut self.record);
                        apply.record(Seq(self.next), Some(&self.record));
                        self.next += 1;
                    }
                }
                LogEntry::Open | LogEntry::Lost => {
                    while self.next < stop {
                        if self.next + self.logs.shape.cores as u64 > sent {
                            // Another core's packet with this record may not have been sent yet. Waiting for it could stop the very
                            // sequencer that sends it.
                            return Ok(());
                        }
                        let found = self.recover()?;
                        apply.record(Seq(self.next), found.then_some(&*self.record));
                        self.next += 1;
                    }
                }
            }
            if packet >= end {
                return Ok(());
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Finds the next record in another core's log. Returns false if no core ever received it.
    #[cold]
    fn recover(&mut self) -> Result<bool, Fenced> {
        let source = self.wait(|tally| &mut tally.waits, Self::ask_others)?;
        match source {
            Some(core) => self.tally.recovered[core] += 1,
            None => self.tally.nowhere += 1,
        }
        Ok(source.is_some())
    }

    /// The core that has the next record, after copying its words. `Some(None)` if no core has it; `None` while that is open.
    fn ask_others(&mut self) -> Option<Option<usize>> {
        let Self { logs, core: me, next, record, .. } = self;
        let cores = logs.shape.cores;
        let mut open = false;
        // Starts at the packet's own core, which gets the record first.
        for core in (0..cores).map(|offset| (*next as usize + offset) % cores).filter(|core| core != me) {
            let (mark, nth) = (logs.mark(core), logs.carrier(core, *next));
            let entry = match mark.packets() > nth {
                true => logs.entry(core, nth),
                false if mark.is_final() => LogEntry::Lost,
                false => LogEntry::Open,
            };
            match entry {
                LogEntry::Received => {
                    logs.read(core, nth, *next, record);
                    return Some(Some(core));
                }
                LogEntry::Lost => {}
                LogEntry::Open => open = true,
            }
        }
        (!open).then_some(None)
    }

    /// Repeats `look` until it returns something, and fences cores that stall meanwhile. The result was read while this core was not
    /// fenced, so nobody had overwritten it.
    fn wait<T>(
        &mut self,
        count: impl FnOnce(&mut Tally) -> &mut u64,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Fenced> {
        let mut found = look(self);
        let mut suspect: Option<Suspect> = None;
        if found.is_none() {
            *count(&mut self.tally) += 1;
            // Other cores may be waiting for this one to make room.
            self.report();
            suspect = self.logs.suspect(self.core);
        }
        let (mut wait, mut pause) = (Wait::new(self.patience), Pause::default());
        loop {
            if self.logs.is_fenced(self.core) {
                return Err(Fenced);
            }
            if let Some(found) = found {
                return Ok(found);
            }
            // A suspect that has made progress since the last look has not stalled.
            let stalled = wait.is_over() && {
                let before = replace(&mut suspect, self.logs.suspect(self.core));
                suspect.is_some_and(|now| before == suspect && self.logs.fence_off(now.core, now.mark))
            };
            if stalled {
                self.tally.fenced += 1;
            } else {
                pause.wait();
            }
            found = look(self);
        }
    }

    /// Publishes how far this core is.
    fn report(&mut self) {
        if self.reported < self.next {
            self.logs.report(self.core, self.next);
            self.reported = self.next;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.logs.leave(self.core);
    }
}
