//! A worker behind a card that takes packets of decided connections.
//!
//! A connection in the card has no deadline in the table; the card has it. It comes back, with counts and deadline, before the function sees
//! one of its packets, before anything ages behind its deadline, and before a table is so full that it matters which flows have ended. So
//! each step finds the state that it would find if the function had seen all packets.

use std::any::Any;
use std::ops::Range;

use nf::{KeyOf, Meta, NetworkFunction, Reason, Verdict};
use packet::{Action, FiveTuple, Nanos};
use port::{Batch, Card, CardRefusal, Fate, Packet, Returned};

use crate::offload::{Offload, OffloadCounts};
use crate::placement::{BURST, Placement, hash_of};
use crate::work::behind_card::{Back, BehindCard};
use crate::work::intake::{Intake, Lanes};
use crate::work::worker::Worker;

/// Units of ageing that each packet's step would have done, had the card not taken it.
const AGE_UNITS_PER_PACKET: usize = crate::placement::RECLAIM_PER_PACKET;

impl<N: NetworkFunction, P: Placement<N>> Worker<N, P> {
    /// Puts a card ahead of the worker.
    pub(crate) fn put_behind(&mut self, card: Box<dyn Card>, policy: Offload, entries: usize) {
        self.behind_card = Some(Box::new(BehindCard::new(card, policy, entries)));
    }

    /// Returns the card's counts so far, if there is a card.
    pub(crate) fn offload_counts(&self) -> Option<OffloadCounts> {
        self.behind_card.as_ref().map(|behind| behind.counts())
    }

    /// Takes all connections back from the card, so that the state is that of all packets so far.
    pub fn recall(&mut self) {
        let Some(mut behind) = self.behind_card.take() else { return };
        behind.recall(|_| true);
        self.take_back(&mut behind);
        self.behind_card = Some(behind);
    }

    /// Takes connections back whose deadline has passed by `now`. No packet is on its way.
    pub(crate) fn recall_ended(&mut self, now: Nanos) {
        let Some(mut behind) = self.behind_card.take() else { return };
        behind.card.idle();
        behind.count(now, &mut self.emitter.counters);
        behind.recall_ended(now);
        self.take_back(&mut behind);
        self.behind_card = Some(behind);
    }

    /// Decides every packet of the batch that the card doesn't take.
    pub(super) fn decide_behind(&mut self, mut behind: Box<BehindCard>, batch: &mut Batch) {
        let mut begin = 0;
        while begin < batch.len() {
            let end = batch.len().min(begin + BURST);
            let room = self.place.has_room();
            if room != [true; 2] {
                behind.recall(|flow| !room[usize::from(matches!(flow, FiveTuple::V6(_)))]);
            }
            let taken = self.intake_behind(&mut behind, batch, begin..end);
            let last = batch.packets()[end - 1];
            behind.count(last.time, &mut self.emitter.counters);
            behind.recall_ended(last.time);
            self.take_back(&mut behind);
            let lanes = self.lanes.len;
            self.flush(batch);
            if taken > 0 {
                self.place.catch_up(&self.nf, last.time, last.seq, taken * AGE_UNITS_PER_PACKET);
            }
            self.put_in(&mut behind, batch, lanes, room);
            begin = end;
        }
        self.behind_card = Some(behind);
    }

    /// Lets the card take packets, and takes in the others. Returns how many the card has taken.
    fn intake_behind(&mut self, behind: &mut BehindCard, batch: &mut Batch, range: Range<usize>) -> usize {
        let Self { nf, by_ports, seed, place, lanes, emitter, position, .. } = self;
        let intake = Intake { nf: &**nf, by_ports: *by_ports, seed: *seed, place: &*place };
        let Lanes { len, waiting, verdict } = &mut **lanes;
        let (mut count, mut taken) = (0, 0);
        for (index, (packet, bytes)) in range.clone().zip(batch.frames(range)) {
            *position = packet.seq;
            if let Some(action) = behind.card.offer(packet, bytes) {
                emitter.decide(packet, index, &verdict_of(action));
                behind.counts.packets += 1;
                behind.counts.bytes += u64::from(packet.wire_len);
                taken += 1;
            } else if intake.admit(&mut waiting[count], verdict, packet, bytes, index) {
                if let Some(flow) = tuple_of::<N>(waiting[count].meta().key())
                    && behind.card.contains(&flow)
                {
                    behind.remove(&flow, Back::ForPacket);
                }
                count += 1;
            } else {
                emitter.counters.count_unread(packet);
                emitter.decide(packet, index, verdict);
            }
        }
        *len = count;
        taken
    }

    /// Brings connections that have come back to the state that they have now.
    fn take_back(&mut self, behind: &mut BehindCard) {
        for (flow, Returned { taken, ahead, actions }) in behind.back.drain(..) {
            let Some(key) = key_of::<N>(flow) else { continue };
            self.emitter.counters.count_ahead(actions, ahead);
            let hash = hash_of::<N>(&key, self.seed);
            let was_there = self.place.take_back(&self.nf, &key, hash, &taken);
            debug_assert!(was_there, "a connection in the card has its flow");
        }
    }

    /// Puts connections in that have become heavy with the last burst's packets.
    fn put_in(&mut self, behind: &mut BehindCard, batch: &Batch, lanes: usize, room: [bool; 2]) {
        for at in 0..lanes {
            let waiting = &self.lanes.waiting[at];
            let (key, hash) = (waiting.meta().key(), waiting.ticket.hash);
            let Packet { fate, time, .. } = batch.packets()[waiting.index as usize];
            if !matches!(fate, Fate::Transmit(_)) || !behind.is_heavy(hash, time) {
                continue;
            }
            let Some(flow) = tuple_of::<N>(key) else { continue };
            if !room[usize::from(matches!(flow, FiveTuple::V6(_)))] || behind.card.contains(&flow) {
                continue;
            }
            let Some((decided, deadline)) = self.place.decided(&self.nf, &key, hash, time) else {
                behind.counts.undecided += 1;
                continue;
            };
            let mut inserted = behind.card.insert(flow, &decided, deadline, time);
            if inserted == Err(CardRefusal::Full)
                && let Some(victim) = behind.card.victim(time)
            {
                behind.remove(&victim, Back::Evicted);
                self.take_back(behind);
                inserted = behind.card.insert(flow, &decided, deadline, time);
            }
            match inserted {
                Ok(()) => {
                    self.place.leave_to_card(&key, hash);
                    behind.entries += 1;
                    behind.counts.inserted += 1;
                    behind.counts.entries_max = behind.counts.entries_max.max(behind.entries);
                }
                Err(CardRefusal::Full) => behind.counts.refused_full += 1,
                Err(CardRefusal::Rate) => behind.counts.refused_rate += 1,
                Err(CardRefusal::Down) => behind.counts.refused_down += 1,
            }
        }
    }
}

const fn verdict_of(action: Action) -> Verdict {
    match action {
        Action::Across => Verdict::forward(),
        Action::Drop(reason) => Verdict::Drop(Reason(reason)),
    }
}

/// The key as a five-tuple, if it is one.
fn tuple_of<N: NetworkFunction>(key: KeyOf<N>) -> Option<FiveTuple> {
    (&key as &dyn Any).downcast_ref().copied()
}

/// The five-tuple as a key, if keys are five-tuples.
fn key_of<N: NetworkFunction>(flow: FiveTuple) -> Option<KeyOf<N>> {
    (&flow as &dyn Any).downcast_ref().copied()
}
