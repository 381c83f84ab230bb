//! The dispatcher: it stands where a card or a sequencer would, numbers nothing itself, and hands each core its packets
//! and, for replicas, the history.

use std::sync::Arc;

use nf::{Meta, NetworkFunction, Verdict};
use packet::Seq;
use port::Batch;

use crate::carrier::{Shape, Unpack};
use crate::classify::classify;
use crate::history::{Block, Record};
use crate::steering::Steering;

/// What one core gets of one batch.
#[derive(Debug)]
pub struct Parcel<M> {
    /// The core's packets.
    pub batch: Batch,
    /// The records of all packets of the batch, for a replica.
    pub block: Option<Arc<Block<M>>>,
}

impl<M> Default for Parcel<M> {
    fn default() -> Self {
        Self { batch: Batch::default(), block: None }
    }
}

/// Splits batches among cores.
pub struct Dispatcher<N: NetworkFunction> {
    nf: Arc<N>,
    by_ports: bool,
    steering: Steering,
    replicate: bool,
    /// Blocks that cores may still be reading; those that nobody holds any more are used again.
    blocks: Vec<Arc<Block<N::Meta>>>,
    /// What takes the place of all this where packets come sequenced.
    unpack: Option<Unpack<N>>,
}

impl<N: NetworkFunction> Dispatcher<N> {
    /// A dispatcher that steers so and, with `replicate`, hands every core the records of all packets.
    #[must_use]
    pub fn new(nf: Arc<N>, steering: Steering, replicate: bool) -> Self {
        Self { by_ports: nf.packet_set().has_ports(), nf, steering, replicate, blocks: Vec::new(), unpack: None }
    }

    /// The same for packets that a sequencer has been at, whose history is what they carry.
    #[must_use]
    pub(crate) fn unpacking(self, shape: Shape) -> Self {
        Self { unpack: Some(Unpack::new(shape)), ..self }
    }

    /// Copies each packet of `batch` to its core's parcel. The parcels are emptied first.
    pub fn split(&mut self, batch: &Batch, parcels: &mut [Parcel<N::Meta>]) {
        let bytes = batch.packets().iter().map(|packet| packet.len as usize).sum();
        for parcel in parcels.iter_mut() {
            parcel.batch.clear();
            parcel.block = None;
            // Room for the whole batch, so that no later one, steered otherwise, makes a parcel grow.
            let (memory, packets) = parcel.batch.parts_mut();
            memory.reserve(bytes);
            packets.reserve(batch.len());
        }
        if let Some(unpack) = &mut self.unpack {
            return unpack.split(batch, parcels);
        }
        let mut block = self.replicate.then(|| self.free_block());
        let mut records = block.as_mut().and_then(Arc::get_mut);
        if let (Some(records), Some(first)) = (&mut records, batch.packets().first()) {
            records.first = first.seq;
        }
        for (index, packet) in batch.packets().iter().enumerate() {
            let meta = if self.needs_meta() { self.meta(batch, index) } else { None };
            if let Some(block) = &mut records {
                block.records.push(Record { time: packet.time, meta });
            }
            let core = self.steering.core(packet.seq.0, meta.map(|meta| meta.key()).as_ref());
            parcels[core].batch.push(*packet, batch.bytes(index));
        }
        if let Some(block) = block {
            for parcel in parcels.iter_mut() {
                parcel.block = Some(Arc::clone(&block));
            }
            self.blocks.push(block);
        }
    }

    /// The core of each packet and the record of each, for a trace that is replayed without a dispatcher.
    pub fn assign(&self, batch: &Batch, cores: &mut Vec<u16>, records: &mut Vec<Record<N::Meta>>) {
        for (index, packet) in batch.packets().iter().enumerate() {
            let meta = self.meta(batch, index);
            cores.push(self.steering.core(packet.seq.0, meta.map(|meta| meta.key()).as_ref()) as u16);
            records.push(Record { time: packet.time, meta });
        }
    }

    fn needs_meta(&self) -> bool {
        self.replicate || matches!(self.steering, Steering::Hash(_))
    }

    fn meta(&self, batch: &Batch, index: usize) -> Option<N::Meta> {
        let (packet, bytes) = batch.packet(index);
        let (mut meta, mut verdict) = (None, Verdict::forward());
        let takes_step = classify(&*self.nf, self.by_ports, packet, bytes, &mut meta, &mut verdict);
        meta.filter(|_| takes_step)
    }

    fn free_block(&mut self) -> Arc<Block<N::Meta>> {
        let free = self.blocks.iter_mut().position(|block| Arc::get_mut(block).is_some());
        let mut block = free.map_or_else(Arc::default, |index| self.blocks.swap_remove(index));
        let inner = Arc::get_mut(&mut block).expect("nobody else holds a free block");
        inner.first = Seq(0);
        inner.records.clear();
        block
    }
}
