//! A way of a pipeline.

use std::mem::swap;
use std::time::Duration;

use fifo::{Consumer, Producer};
use nf::NetworkFunction;
use packet::Nanos;
use port::{Batch, Received, Work};

use super::between::{Between, Share, Slot, sleep};
use crate::error::EngineError;
use crate::run::feed::Feed;
use crate::run::turns::lock;
use crate::work::any_worker::AnyWorker;

/// A way: it decides its shares of the pieces, in their order.
pub(super) struct Way<'s, M> {
    between: &'s Between<M>,
    core: usize,
    from_split: Consumer<Slot>,
    to_first: Producer<Slot>,
    /// The port's work on packets, if this core does it.
    work: Option<&'s mut Work>,
    /// The slot of the current share.
    slot: usize,
    /// The current share. Its batch is with the run's loop.
    share: Share<M>,
    has_entered: bool,
    aged: Option<Nanos>,
}

impl<'s, M> Way<'s, M> {
    pub(super) fn new(
        between: &'s Between<M>,
        core: usize,
        from_split: Consumer<Slot>,
        to_first: Producer<Slot>,
        work: Option<&'s mut Work>,
    ) -> Self {
        let share = Share::default();
        Self { between, core, from_split, to_first, work, slot: 0, share, has_entered: false, aged: None }
    }

    /// Exchanges the share at hand with the one in the current slot.
    fn exchange(&mut self) {
        let way = self.core - self.between.ahead;
        swap(&mut self.share, &mut lock(&self.between.shares[way][self.slot]));
    }
}

impl<N: NetworkFunction> Feed<N> for Way<'_, N::Meta> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        self.between.enter(self.core, &mut self.has_entered);
        if self.between.is_abandoned() {
            return Ok(Received::End);
        }
        let Some(slot) = self.from_split.pop() else {
            return Ok(if self.from_split.is_finished() { Received::End } else { Received::Idle });
        };
        self.slot = slot as usize;
        self.exchange();
        swap(&mut self.share.packets.batch, batch);
        if let (Some(work), None) = (&mut self.work, self.share.quiet) {
            work(batch);
        }
        Ok(Received::Packets)
    }

    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        match self.share.quiet {
            Some(quiet) => {
                self.aged = Some(quiet.now);
                quiet.age(worker);
            }
            None => self.share.packets.process(worker, batch),
        }
        Ok(())
    }

    /// Hands the share back.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        swap(&mut self.share.packets.batch, batch);
        self.exchange();
        self.between.hand_over(&mut self.to_first, self.slot as Slot, 0);
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        let Self { between, from_split, .. } = self;
        sleep(at_most, || between.is_abandoned() || !from_split.is_empty() || from_split.is_finished());
        Ok(())
    }

    /// Set by pieces without packets.
    fn aged(&self) -> Option<Nanos> {
        self.aged
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
