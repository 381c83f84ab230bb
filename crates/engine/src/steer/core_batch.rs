//! A core's share of a batch.

use std::sync::Arc;

use locality::prefetch;
use nf::{Meta, NetworkFunction};
use packet::Seq;
use port::Batch;

use crate::history::log::{Block, Log, OwnedRecord};
use crate::work::any_worker::AnyWorker;

/// How many records ahead a place is prefetched for writing. Another core read it last, and moving the cache line takes about as long as
/// this many packets.
const PUSH_AHEAD: usize = 12;

/// A core's share of a batch.
#[derive(Debug)]
pub struct CoreBatch<M> {
    /// The core's packets.
    pub batch: Batch,
    /// The records that replicas need for the batch, and the moves before it.
    pub block: Option<Arc<Block<M>>>,
    /// Records that only this core steps. The first `owned` are valid; the rest are from earlier batches.
    places: Vec<OwnedRecord<M>>,
    owned: usize,
}

impl<M> Default for CoreBatch<M> {
    fn default() -> Self {
        Self { batch: Batch::default(), block: None, places: Vec::new(), owned: 0 }
    }
}

impl<M> CoreBatch<M> {
    /// The records that only this core steps (`hybrid`). Empty if cores parse their own packets.
    #[must_use]
    pub fn owned(&self) -> &[OwnedRecord<M>] {
        &self.places[..self.owned]
    }
}

impl<M: Meta> CoreBatch<M> {
    /// Lets the core's worker decide `batch`, the packets of this share, with the share's records. The moves before the batch must be done
    /// already.
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
    /// Empties the records and makes room for `packets` of them.
    pub(crate) fn begin(&mut self, packets: usize) {
        self.owned = 0;
        self.places.reserve(packets.saturating_sub(self.places.len()));
    }

    /// Adds a record. Its fields are written in place: a copy of a whole record just built would stall.
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
