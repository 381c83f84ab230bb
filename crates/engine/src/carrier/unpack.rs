//! Replicas that live on what their packets carry: each core gets its own packets, and of the others nothing but the rows.

use std::sync::Arc;

use flow::Index;
use nf::NetworkFunction;
use packet::Seq;
use port::{Batch, Queue};

use super::layout::{Shape, parse};
use super::queue::Sequenced;
use super::ring::record_of;
use crate::dispatch::{Dispatcher, Parcel};
use crate::error::EngineError;
use crate::fleet::{Options, PrivateFleet, any_private_fleet, private_fleet};
use crate::history::{Block, Record};
use crate::kind::EngineKind;
use crate::run::{Control, Outcome, drive};
use crate::steering::Steering;

/// Splits sequenced packets among cores, each with the history that its own packets carry.
pub(crate) struct Unpack<N: NetworkFunction> {
    shape: Shape,
    /// Blocks that cores may still be reading; those that nobody holds any more are used again.
    blocks: Vec<Arc<Block<N::Meta>>>,
}

impl<N: NetworkFunction> Unpack<N> {
    pub(crate) const fn new(shape: Shape) -> Self {
        Self { shape, blocks: Vec::new() }
    }

    /// Copies each packet of `batch`, which a [`Sequenced`] queue let through, to its core's parcel, and what it carries to
    /// the core's block. The parcels are empty.
    pub(crate) fn split(&mut self, batch: &Batch, parcels: &mut [Parcel<N::Meta>]) {
        for parcel in parcels.iter_mut() {
            parcel.block = Some(self.free_block());
        }
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            let carried =
                parse(packet.link, bytes, self.shape).expect("the queue lets none but sequenced packets through");
            let Parcel { batch, block } = &mut parcels[carried.core()];
            let block = block.as_mut().and_then(Arc::get_mut).expect("nobody else holds a free block");
            if block.records.is_empty() {
                block.first = Seq(carried.seq.0 - carried.depth());
            }
            for (_, row) in carried.history() {
                block.records.push(record_of(row).expect("the queue lets no other records through"));
            }
            // The packet's own record, which its core passes over: it has the packet.
            block.records.push(Record { time: carried.time, meta: None });
            batch.push(carried.packet(), carried.bytes);
        }
        for parcel in parcels {
            self.blocks.extend(parcel.block.clone());
            // A core without a packet learns nothing.
            parcel.block.take_if(|block| block.records.is_empty());
        }
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

/// Runs a function over sequenced packets as [`run`](crate::run()) does over others, by replicas that fast-forward from what
/// their own packets carry alone. The outcome is that of the packets that were sequenced.
///
/// # Errors
/// [`EngineError::Refused`] when the function can't be run so. What goes wrong later is [`Outcome::failure`]; a packet that
/// is no good, or not the next one, is [`port::PortError::Unfit`] with an [`OrderError`](super::OrderError).
///
/// # Panics
/// As [`Shape::of`] does.
pub fn run_sequenced<N: NetworkFunction>(
    nf: Arc<N>,
    cores: usize,
    options: &Options,
    queue: &mut dyn Queue,
    control: &Control,
) -> Result<Outcome, EngineError> {
    EngineKind::Scr.accepts(&N::DESCRIPTION, cores).map_err(EngineError::Refused)?;
    options.tables.accepts(&*nf).map_err(EngineError::Refused)?;
    Ok(match options.chooses_index() {
        false => over(private_fleet(EngineKind::Scr, nf, cores, options), options, queue, control),
        true => over(any_private_fleet(EngineKind::Scr, nf, cores, options), options, queue, control),
    })
}

fn over<N: NetworkFunction, I: Index>(
    mut fleet: PrivateFleet<N, I>,
    options: &Options,
    queue: &mut dyn Queue,
    control: &Control,
) -> Outcome {
    let (nf, cores) = (Arc::clone(&fleet.nf), fleet.workers.len());
    let mut queue = Sequenced::new(queue, Arc::clone(&nf), cores);
    fleet.dispatcher = Dispatcher::new(nf, Steering::RoundRobin { cores }, false).unpacking(queue.shape());
    drive(&mut fleet, options, &mut queue, control)
}
