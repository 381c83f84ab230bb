//! Measures a software sequencer, alone on one core: how many packets it can hand out to replicas.
//!
//! It numbers every packet, computes what the packet contributes, and chooses the core. What happens to the packet's bytes depends on the
//! carrier. With a *shared log* they stay in place: the cores get descriptors and read the same records. With *piggyback* each packet is
//! written again with the latest records in front of it.

use std::sync::Arc;
use std::time::Instant;

use engine::carrier::{Outer, Sequencer};
use engine::{CoreBatch, Dispatcher, EngineKind};
use nf::Function;
use port::{Batch, Loops, PortError, Queue, Received, Replay, Trace};

use crate::bench::{BenchError, BenchPlan};
use crate::gauge::{Gauged, Shown};
use crate::rounds::{Contender, Reading, Readings};
use crate::spread::Spread;

/// Rate of a software sequencer. It includes receiving packets but not sending them.
#[derive(Clone, Debug)]
pub struct Sequencing {
    /// Number of cores that packets are sprayed over.
    pub cores: usize,
    /// Rate with a shared log, in millions of packets a second.
    pub log_mpps: Spread,
    /// Rate with the history written in front of each packet.
    pub piggyback_mpps: Spread,
    /// Bytes that this adds to a packet.
    pub piggyback_bytes: usize,
}

/// Both carriers, ready for rounds.
pub(crate) struct Sequencers<N: Function> {
    cores: usize,
    replay: Replay,
    dispatcher: Dispatcher<N>,
    shares: Vec<CoreBatch<N::Meta>>,
    sequencer: Sequencer<N>,
    batch: Batch,
    frame: Vec<u8>,
    log: Readings,
    piggyback: Readings,
}

impl<N: Function> Sequencers<N> {
    /// Places the trace in memory, and runs it once through both to warm them.
    pub(crate) fn new(nf: &Arc<N>, trace: &Arc<Trace>, cores: usize, plan: &BenchPlan) -> Result<Self, BenchError> {
        let loops = plan.packets.div_ceil(trace.len().max(1) as u64).max(1);
        let mut new = Self {
            cores,
            replay: Replay::new(Arc::clone(trace)).looped(Loops::Times(loops)).continued(),
            dispatcher: Dispatcher::new(Arc::clone(nf), EngineKind::Scr, cores, &plan.options),
            shares: (0..cores).map(|_| CoreBatch::default()).collect(),
            sequencer: Sequencer::new(Arc::clone(nf), cores, Outer::None),
            batch: Batch::default(),
            frame: Vec::new(),
            log: Readings::new(plan.undisturbed),
            piggyback: Readings::new(plan.undisturbed),
        };
        new.round()?;
        new.log.clear();
        new.piggyback.clear();
        Ok(new)
    }

    pub(crate) fn result(self) -> Sequencing {
        Sequencing {
            cores: self.cores,
            log_mpps: self.log.spread(|reading| reading.mpps),
            piggyback_mpps: self.piggyback.spread(|reading| reading.mpps),
            piggyback_bytes: self.sequencer.overhead(),
        }
    }
}

impl<N: Function> Contender for Sequencers<N> {
    /// One round of each carrier.
    fn round(&mut self) -> Result<(), BenchError> {
        let Self { dispatcher, shares, sequencer, batch, frame, .. } = self;
        let reading = over(&mut self.replay, batch, |batch| {
            dispatcher.split(batch, shares);
            Ok(())
        })?;
        self.log.push(reading);
        let reading = over(&mut self.replay, batch, |batch| {
            for index in 0..batch.len() {
                let (packet, bytes) = batch.packet(index);
                sequencer.sequence(packet, bytes, frame).map_err(|late| PortError::Unfit(Box::new(late)))?;
            }
            Ok(())
        })?;
        self.piggyback.push(reading);
        Ok(())
    }

    fn counted(&self) -> usize {
        self.log.len().min(self.piggyback.len())
    }
}

/// Packets that are received and taken.
fn over(
    replay: &mut Replay,
    batch: &mut Batch,
    mut take: impl FnMut(&Batch) -> Result<(), PortError>,
) -> Result<Reading, BenchError> {
    let (mut queues, shown) = Gauged::wrap(replay.queues(1));
    let queue: &mut dyn Queue = queues.first_mut().expect("one queue was asked for").as_mut();
    let (start, mut packets) = (Instant::now(), 0);
    loop {
        match queue.receive(batch)? {
            Received::Packets => take(batch)?,
            Received::Idle => continue,
            Received::End => break,
        }
        packets += batch.len() as u64;
    }
    let elapsed = start.elapsed();
    let gauges: Vec<_> = shown.iter().map(Shown::get).collect();
    Ok(Reading::of(packets, &[elapsed], &gauges, 1))
}
