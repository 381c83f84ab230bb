//! The part of a pipeline that finds each packet's way, and a stage that does only that.

use std::mem::swap;
use std::sync::Arc;
use std::time::Duration;

use fifo::{Consumer, Producer};
use nf::NetworkFunction;
use packet::Seq;
use port::{Batch, Received, Work};

use super::between::{Between, Piece, Slot, sleep};
use crate::error::EngineError;
use crate::run::feed::Feed;
use crate::run::quiet::Quiet;
use crate::run::turns::{cut_at, lock};
use crate::steer::dispatch::{ClassifiedBatch, Router};
use crate::work::any_worker::AnyWorker;

/// Hands each way its share of a piece.
pub(super) struct Splitter<'s, N: NetworkFunction> {
    between: &'s Between<N::Meta>,
    router: Arc<Router<N>>,
    found: ClassifiedBatch<N::Meta>,
    /// By way. Empty once nothing more comes.
    to_ways: Vec<Producer<Slot>>,
    /// The port's work on packets, if this core does it.
    work: Option<&'s mut Work>,
    /// The last packet so far.
    last: Seq,
    /// The function has panicked on a packet: that packet and all behind it are left out.
    has_failed: bool,
}

impl<'s, N: NetworkFunction> Splitter<'s, N> {
    pub(super) fn new(
        between: &'s Between<N::Meta>,
        router: Arc<Router<N>>,
        to_ways: Vec<Producer<Slot>>,
        work: Option<&'s mut Work>,
    ) -> Self {
        Self { between, router, found: ClassifiedBatch::default(), to_ways, work, last: Seq(0), has_failed: false }
    }

    /// Hands out the piece of a slot. Returns how many ways got a share. `core` is the one that does it.
    pub(super) fn split(&mut self, slot: usize, core: usize) -> (u32, Result<(), EngineError>) {
        let Self { between, router, found, to_ways, work, last, has_failed } = self;
        let piece = &mut *lock(&between.pieces[slot]);
        let quiet = piece.quiet.map(|now| Quiet { now, last: *last });
        let mut result = Ok(());
        if *has_failed {
            piece.batch.truncate(0);
        } else if quiet.is_none() {
            if let Some(work) = work {
                work(&mut piece.batch);
            }
            *last = piece.batch.packets().last().map_or(*last, |packet| packet.seq);
            if to_ways.len() > 1 {
                let Piece { batch, memory, shares, .. } = &mut *piece;
                batch.share(memory);
                let mut at = 0;
                if let Some(panic) = router.deal(batch, shares, None, found, &mut at) {
                    result = Err(EngineError::Panicked(Box::new(cut_at(core, batch, at, &*panic))));
                    *has_failed = true;
                }
            }
        }
        let is_only = to_ways.len() == 1;
        let mut dealt = 0;
        for (way, to_way) in to_ways.iter_mut().enumerate() {
            let own = between.ahead + way;
            let packets = if is_only { &piece.batch } else { &piece.shares[own].batch };
            if packets.is_empty() && (quiet.is_none() || *has_failed) {
                continue;
            }
            {
                let mut share = lock(&between.shares[way][slot]);
                if is_only {
                    swap(&mut share.packets.batch, &mut piece.batch);
                } else {
                    swap(&mut share.packets, &mut piece.shares[own]);
                }
                share.quiet = quiet;
            }
            piece.is_dealt[way] = true;
            dealt += 1;
            between.hand_over(to_way, slot as Slot, own);
        }
        (dealt, result)
    }

    /// Tells the ways that nothing more comes.
    pub(super) fn end(&mut self) {
        self.to_ways.clear();
        self.between.wake_all();
    }
}

/// A message of the second stage to the first: a piece was handed out, to so many ways.
#[derive(Clone, Copy)]
pub(super) struct Dealt {
    pub(super) slot: Slot,
    pub(super) ways: u32,
}

/// The second of three stages: it does the port's work on packets, and steers them.
pub(super) struct SteeringStage<'s, N: NetworkFunction> {
    between: &'s Between<N::Meta>,
    splitter: Splitter<'s, N>,
    from_first: Consumer<Slot>,
    to_first: Producer<Dealt>,
    has_entered: bool,
}

/// The core of the second stage, if it has one of its own.
pub(super) const CORE: usize = 1;

impl<'s, N: NetworkFunction> SteeringStage<'s, N> {
    pub(super) const fn new(
        between: &'s Between<N::Meta>,
        splitter: Splitter<'s, N>,
        from_first: Consumer<Slot>,
        to_first: Producer<Dealt>,
    ) -> Self {
        Self { between, splitter, from_first, to_first, has_entered: false }
    }
}

impl<N: NetworkFunction> Feed<N> for SteeringStage<'_, N> {
    /// Does the stage's work. The run loop's own batch stays empty: this core's worker decides nothing.
    fn receive(&mut self, _: &mut Batch) -> Result<Received, EngineError> {
        self.between.enter(CORE, &mut self.has_entered);
        let slot = match self.from_first.pop() {
            _ if self.between.is_abandoned() => None,
            Some(slot) => Some(slot),
            None if self.from_first.is_finished() => None,
            None => return Ok(Received::Idle),
        };
        let Some(slot) = slot else {
            self.splitter.end();
            return Ok(Received::End);
        };
        let (ways, result) = self.splitter.split(slot as usize, CORE);
        self.between.hand_over(&mut self.to_first, Dealt { slot, ways }, 0);
        result.map(|()| Received::Packets)
    }

    fn process(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }

    fn transmit(&mut self, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        let Self { between, from_first, .. } = self;
        sleep(at_most, || between.is_abandoned() || !from_first.is_empty() || from_first.is_finished());
        Ok(())
    }

    fn close(&mut self) {
        self.between.close();
    }

    fn abandon(&mut self) {
        self.between.abandon();
    }

    fn finish(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }
}
