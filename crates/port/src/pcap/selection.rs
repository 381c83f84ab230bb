//! A part of a capture: chosen packets, numbered as if the others did not exist.

use std::fmt;
use std::mem;

use packet::Seq;

use super::beside::Beside;
use crate::batch::{Batch, Packet};
use crate::queue::Received;

/// Decision about a packet that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Take the packet.
    Take,
    /// Leave the packet out.
    Leave,
    /// Leave out the packet and all later ones.
    End,
}

/// Selects packets of the batches that are read.
pub(super) struct Selection {
    pub(super) choose: Option<Box<Choose>>,
    /// Maximum number of packets that are still taken.
    pub(super) left: u64,
    /// Number of the next packet that is taken.
    next: u64,
    /// For each packet of the batch: true if it is taken, and the number of it or of the next one that is.
    found: Vec<(bool, Seq)>,
    /// Notes by the capture's numbers whose packets have not been read yet.
    waiting: Vec<Beside>,
    /// Notes by the numbers that packets have here.
    pub(super) notes: Vec<Beside>,
}

type Choose = dyn FnMut(&Packet, &[u8]) -> Choice + Send;

impl Default for Selection {
    fn default() -> Self {
        Self { choose: None, left: u64::MAX, next: 0, found: Vec::new(), waiting: Vec::new(), notes: Vec::new() }
    }
}

impl Selection {
    /// Adds notes of the capture.
    pub(super) fn note(&mut self, notes: &mut Vec<Beside>) {
        self.waiting.append(notes);
    }

    /// Removes the packets that are not taken from a batch, and numbers the others.
    pub(super) fn apply(&mut self, batch: &mut Batch) -> Received {
        match self.choose.take() {
            None => batch.truncate(usize::try_from(self.left).unwrap_or(usize::MAX)),
            Some(mut choose) => {
                self.choose(batch, &mut *choose);
                self.choose = Some(choose);
            }
        }
        self.left = self.left.saturating_sub(batch.len() as u64);
        if batch.is_empty() { Received::Idle } else { Received::Packets }
    }

    fn choose(&mut self, batch: &mut Batch, choose: &mut Choose) {
        let (mut left, mut is_over) = (self.left, false);
        let (first, start) = (batch.packets().first().map_or(0, |packet| packet.seq.0), self.next);
        self.found.clear();
        for (packet, bytes) in batch.each(0..batch.len()) {
            let choice = if left == 0 || is_over { Choice::Leave } else { choose(packet, bytes) };
            is_over |= choice == Choice::End;
            let is_taken = choice == Choice::Take;
            self.found.push((is_taken, Seq(self.next)));
            left -= u64::from(is_taken);
            self.next += u64::from(is_taken);
        }
        let found = |seq: u64| self.found[(seq.saturating_sub(first)) as usize];
        let due = self.waiting.partition_point(|note| note.at < first + self.found.len() as u64);
        for Beside { at, what } in self.waiting.drain(..due) {
            let (is_taken, Seq(at)) = found(at);
            if is_taken || !what.is_of_packet() {
                self.notes.push(Beside { at, what });
            }
        }
        batch.origin_mut().restamped.retain_mut(|one| {
            let (is_taken, seq) = found(one.seq.0);
            one.seq = seq;
            is_taken
        });
        batch.retain(|packet| found(packet.seq.0).0);
        for (packet, number) in batch.packets_mut().iter_mut().zip(start..) {
            packet.seq = Seq(number);
        }
        if is_over {
            self.left = batch.len() as u64;
        }
    }

    /// Passes on the notes after the last packet.
    pub(super) fn end(&mut self) {
        let at = self.next;
        for Beside { what, .. } in mem::take(&mut self.waiting) {
            if !what.is_of_packet() {
                self.notes.push(Beside { at, what });
            }
        }
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection").field("left", &self.left).field("next", &self.next).finish_non_exhaustive()
    }
}
