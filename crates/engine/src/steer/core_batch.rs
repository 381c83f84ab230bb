//! What the dispatcher hands a core of one batch.

use std::sync::Arc;

use locality::prefetch;
use nf::{Meta, NetworkFunction};
use packet::Seq;
use port::Batch;

use crate::history::log::{Block, Log, OwnedRecord};
use crate::work::any_worker::AnyWorker;

/// Another core had a share last, and gives up a cache line in the time that about so many packets take.
const PUSH_AHEAD: usize = 12;

/// What one core gets of one batch.
#[derive(Debug)]
pub struct CoreBatch<M> {
    /// The core's packets.
    pub batch: Batch,
    /// The records that replicas need of the batch, and what changes cores before it.
    pub block: Option<Arc<Block<M>>>,
    /// Places for what its packets contribute; those behind the first `owned` are stale.
    places: Vec<OwnedRecord<M>>,
    owned: usize,
}

impl<M> Default for CoreBatch<M> {
    fn default() -> Self {
        Self { batch: Batch::default(), block: None, places: Vec::new(), owned: 0 }
    }
}

impl<M> CoreBatch<M> {
    /// What those of the core's packets contribute whose steps no other core takes, if it is handed that.
    #[must_use]
    pub fn owned(&self) -> &[OwnedRecord<M>] {
        &self.places[..self.owned]
    }
}

impl<M: Meta> CoreBatch<M> {
    /// Has the core's worker decide `batch`, the packets that were taken out of this share, by what else there is of them. What changes
    /// cores ahead of them has been handed over.
    pub fn process<N: NetworkFunction<Meta = M>>(&self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) {
        match &self.block {
            Some(block) => {
                let mut log = Log::of_block(block).with_owned(self.owned(), block.first);
                worker.process_with(batch, &mut log, block.end);
            }
            None => worker.process(batch),
        }
    }
}

impl<M: Copy> CoreBatch<M> {
    /// Begins with nothing handed, and room for what so many packets contribute.
    pub(crate) fn begin(&mut self, packets: usize) {
        self.owned = 0;
        self.places.reserve(packets.saturating_sub(self.places.len()));
    }

    /// Adds what a packet contributes. It is written where it stays, over what was there: put together first, it would have to be
    /// waited for to be copied.
    #[inline(always)]
    pub(crate) fn own(&mut self, seq: Seq, hash: u64, bucket: u16, meta: &M) {
        prefetch::place_to_write(self.places.as_ptr(), self.owned + PUSH_AHEAD);
        match self.places.get_mut(self.owned) {
            Some(place) => {
                place.meta = *meta;
                (place.seq, place.hash, place.bucket) = (seq, hash, bucket);
            }
            None => self.places.push(OwnedRecord { seq, hash, bucket, meta: *meta }),
        }
        self.owned += 1;
    }
}
