//! A core's part in loss recovery.

use core::mem::{replace, take};
use std::sync::Arc;

use packet::Seq;

use super::log::{LogEntry, Logs, Mark, Shape, Suspect};
use super::patience::{Patience, Wait};
use super::sync::{Pause, broken};
use super::tally::Tally;

/// A core's part in loss recovery: it writes the core's own log and reads the others'.
///
/// The core hands in what it [`receive`](Self::receive)s, and says by [`advance`](Self::advance) how far the sequencer is. In
/// return it is told every record of every packet in order, each exactly once: its words, or nothing when no core received it.
///
/// The sequencer has to tell all cores that it sent a packet, by the packet itself or by a heartbeat that `advance` takes,
/// before it waits for any of them. Then no core waits for ever, however much is lost.
///
/// A member that is dropped leaves: nobody waits for it any more.
pub struct Member {
    logs: Arc<Logs>,
    core: usize,
    patience: Patience,
    /// The turn of the core's packet that is to come next: all before are in the log, received or lost.
    nth: u64,
    /// What the others know of it.
    mark: Mark,
    /// The turn of the packet whose records are applied next.
    at: u64,
    /// The record that is applied next.
    next: u64,
    /// What the others know of it.
    reported: u64,
    /// The turn behind the last packet that was lost.
    lost: u64,
    /// Turns below this one have a slot that nobody reads any more.
    room: u64,
    record: Box<[u64]>,
    tally: Tally,
}

/// Others took this core for stalled and go on without it. Its state is of no use any more; what it applied before was
/// applied by all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other cores took this one for stalled and went on without it")]
pub struct Fenced;

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is one of those that were received, or counted as lost, before.
    #[error("a packet of this or of a later number came before it")]
    Late,
    /// By its number it belongs to another core.
    #[error("by its number it belongs to another core")]
    Astray,
    /// The core is fenced.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

/// What is done with the records that a core is to apply, in order, each exactly once.
pub trait Apply {
    /// Applies a record: its words, of which there are none where logs [keep none](Shape::words), or nothing when no core received it.
    fn record(&mut self, seq: Seq, words: Option<&[u64]>);

    /// Applies the records from `first` to ahead of `end`, which a packet of this core brought, from that packet; `false` to be
    /// given them one by one, out of the log.
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
    /// The part of one core, which must have no other.
    ///
    /// # Panics
    /// When the logs have no such core.
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

    /// The logs that this core shares.
    #[must_use]
    pub const fn logs(&self) -> &Arc<Logs> {
        &self.logs
    }

    /// What loss and its recovery came to so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The record that is applied next.
    #[must_use]
    pub const fn next(&self) -> Seq {
        Seq(self.next)
    }

    /// Takes a packet of this core in: its records, oldest first and its own last, each of the logs' number of words. The first
    /// packets carry fewer, as there are no more.
    ///
    /// Nothing is applied and the others know nothing of it until [`advance`](Self::advance), which a burst of packets
    /// shares, unless the log is full: then both happen here.
    ///
    /// # Errors
    /// When the packet is not taken; nothing has come of it then, and with [`Refusal::Fenced`] nothing ever will.
    #[inline]
    pub fn receive(
        &mut self,
        seq: Seq,
        records: &[u64],
        apply: impl FnMut(Seq, Option<&[u64]>),
    ) -> Result<(), Refusal> {
        self.receive_run(seq, 1, records, &mut Words(apply))
    }

    /// Takes `count` packets of this core in, from `first` on and none missing between them, for an applier that has the packets'
    /// records by it: all their records, oldest first. What consecutive packets of a core carry are consecutive records.
    ///
    /// # Errors
    /// As [`receive`](Self::receive); those taken in before the log was full, if it was, may have been applied.
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
        // The packet that is to come next needs no division.
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

    /// Takes the core's packets ahead of this one that didn't come for lost.
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

    /// Publishes and applies what was received. `sent` is the number behind the last packet that the sequencer has sent to any
    /// core: what should have come here before and didn't is lost.
    ///
    /// Records of lost packets that the others may still receive are applied later.
    ///
    /// # Errors
    /// [`Fenced`] when the others have gone on without this core.
    pub fn advance(&mut self, sent: Seq, apply: impl FnMut(Seq, Option<&[u64]>)) -> Result<(), Fenced> {
        self.advance_into(sent, &mut Words(apply))
    }

    /// The same for an applier that has the packets' records by it.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn advance_into(&mut self, sent: Seq, apply: &mut impl Apply) -> Result<(), Fenced> {
        // Own packets may have overtaken the heartbeat.
        let own = self.logs.packet(self.core, self.nth) + 1;
        let sent = sent.0.max(own.saturating_sub(self.logs.shape.cores as u64));
        self.resolve_losses(sent, sent, apply)
    }

    /// Does what [`advance`](Self::advance) does where nothing is missing, and looks at no log for it: what was received since the
    /// last time is published, and the caller applies the records up to the number that is returned from the packets
    /// themselves. `None` when a packet below `sent` is missing: then nothing has happened yet.
    ///
    /// # Errors
    /// [`Fenced`] when the others have gone on without this core.
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

    /// Applies what is left at the end of the stream, whose length is `sent`, and leaves.
    ///
    /// # Errors
    /// [`Fenced`] when the others have gone on without this core.
    pub fn finish(self, sent: Seq, apply: impl FnMut(Seq, Option<&[u64]>)) -> (Tally, Result<(), Fenced>) {
        self.finish_into(sent, &mut Words(apply))
    }

    /// The same for an applier that has the packets' records by it.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_into(mut self, sent: Seq, apply: &mut impl Apply) -> (Tally, Result<(), Fenced>) {
        // The last packets' records would have come once more to all cores: those packets are as good as lost.
        let result = self.resolve_losses(sent.0 + self.logs.shape.cores as u64 - 1, sent.0, apply);
        (take(&mut self.tally), result)
    }

    /// Takes packets below `sent` that didn't come for lost and applies all records below `end` that can be decided.
    fn resolve_losses(&mut self, sent: u64, end: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        let packets = self.logs.packets_below(self.core, sent);
        while self.nth < packets {
            self.lose(sent, apply)?;
            // What is past the end of the stream can't be lost.
            self.tally.lost += u64::from(self.logs.packet(self.core, self.nth - 1) < end);
        }
        self.catch_up(sent, end, apply)
    }

    /// Says of the core's next packet that it is lost. All cores have been told, or are about to be, of the packets below `sent`.
    fn lose(&mut self, sent: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        if self.nth >= self.room {
            self.make_room(sent, apply)?;
        }
        self.logs.lose(self.core, self.nth);
        self.nth += 1;
        self.lost = self.nth;
        Ok(())
    }

    /// Waits until nobody has to read any more what the next entry is written over. All cores have been told, or are about to be, of the
    /// packets below `sent`.
    #[cold]
    fn make_room(&mut self, sent: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        let slots = self.logs.shape.slots as u64;
        // First what the others may be waiting for.
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

    /// The first record that a core which isn't gone has still to apply.
    fn passed_by_all(&self) -> u64 {
        if broken!(NoRoom) {
            return u64::MAX / 2;
        }
        let others = (0..self.logs.shape.cores).filter(|core| *core != self.core);
        // The progress is looked at first: a core that has passed need not be asked whether it is gone.
        let behind = others.map(|core| (core, self.logs.progress(core))).filter(|(_, next)| *next < self.next);
        behind.filter(|(core, _)| !self.logs.mark(*core).is_final()).map(|(_, next)| next).fold(self.next, u64::min)
    }

    /// Tells the others what came and what didn't.
    fn publish(&mut self) -> Result<(), Fenced> {
        let mark = Mark::new(self.nth);
        // With nothing to tell the mark is looked at all the same.
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

    /// Applies the records below `end` of the packets in the log, as far as they can be decided when the packets below `sent`
    /// have been sent.
    fn catch_up(&mut self, sent: u64, end: u64, apply: &mut impl Apply) -> Result<(), Fenced> {
        if !broken!(AppliesFirst) {
            // Before anything is applied: what a core applies without others' knowing can't be taken back.
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
                            // Another core's packet with this record may not have been sent yet: waiting for it could stop
                            // the very sequencer that sends it.
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

    /// Finds the next record in another core's log; `false` when no core ever received it.
    #[cold]
    fn recover(&mut self) -> Result<bool, Fenced> {
        let source = self.wait(|tally| &mut tally.waits, Self::ask_others)?;
        match source {
            Some(core) => self.tally.recovered[core] += 1,
            None => self.tally.nowhere += 1,
        }
        Ok(source.is_some())
    }

    /// Who has the next record, whose words are copied then; `Some(None)` when nobody has it, `None` as long as that is open.
    fn ask_others(&mut self) -> Option<Option<usize>> {
        let Self { logs, core: me, next, record, .. } = self;
        let cores = logs.shape.cores;
        let mut open = false;
        // From the packet's own core on, which has the record first.
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

    /// Looks until there is something to be seen, and fences whoever stalls meanwhile. What was seen was read while this core
    /// was not fenced, so nobody had written over it.
    fn wait<T>(
        &mut self,
        count: impl FnOnce(&mut Tally) -> &mut u64,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Fenced> {
        let mut found = look(self);
        let mut suspect: Option<Suspect> = None;
        if found.is_none() {
            *count(&mut self.tally) += 1;
            // Others may be waiting for this core to make room.
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
            // A suspect that was somewhere else when this core last looked has not stalled.
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

    /// Tells the others how far this core is.
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
