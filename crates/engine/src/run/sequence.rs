//! The sequencer as a run of its own: it sends all packets of a queue on, each with history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf::NetworkFunction;
use port::{Batch, Fate, Packet, PortError, Queue, Received};

use super::handle::Control;
use crate::error::EngineError;
use crate::history::carrier::{LateTime, Outer, Sequencer, Shape};

/// The totals of a sequencer's run.
#[derive(Debug)]
pub struct SequencedTotal {
    /// Packets.
    pub packets: u64,
    /// Their bytes before sequencing.
    pub bytes_in: u64,
    /// Their bytes after sequencing.
    pub bytes_out: u64,
    /// The size of the history that each packet carries.
    pub shape: Shape,
    /// From the first receive to the last transmit.
    pub elapsed: Duration,
    /// True if it was told to stop before the input ended.
    pub interrupted: bool,
    /// What ended it early. Packets sequenced before that are in the output.
    pub failure: Option<EngineError>,
}

/// How long it waits for packets before it checks again for a stop.
const WAIT: Duration = Duration::from_millis(50);

/// Sequences all packets of `queue` and sends them out by the same queue.
pub fn sequence<N: NetworkFunction>(
    nf: Arc<N>,
    cores: usize,
    outer: Outer,
    queue: &mut dyn Queue,
    control: &Control,
) -> SequencedTotal {
    let start = Instant::now();
    let mut sequencer = Sequencer::new(nf, cores, outer);
    let shape = sequencer.shape();
    let mut total = SequencedTotal {
        packets: 0,
        bytes_in: 0,
        bytes_out: 0,
        shape,
        elapsed: Duration::ZERO,
        interrupted: false,
        failure: None,
    };
    let (mut batch, mut out, mut frame) = (Batch::default(), Batch::default(), Vec::new());
    let result = loop {
        if control.is_stopping() {
            total.interrupted = true;
            break Ok(());
        }
        match queue.receive(&mut batch) {
            Ok(Received::Packets) => {}
            Ok(Received::Idle) => {
                if let Err(error) = queue.wait(WAIT) {
                    break Err(error);
                }
                continue;
            }
            Ok(Received::End) => break Ok(()),
            Err(error) => break Err(error),
        }
        let late = total.take(&mut sequencer, &batch, &mut out, &mut frame);
        control.count(out.len() as u64);
        if let Err(error) = queue.transmit(&mut out) {
            break Err(error);
        }
        if let Err(late) = late {
            break Err(PortError::Unfit(Box::new(late)));
        }
    };
    // The output is always finished.
    let finished = queue.finish();
    total.failure = result.and(finished).err().map(EngineError::from);
    total.elapsed = start.elapsed();
    total
}

impl SequencedTotal {
    /// Sequences a batch, up to the first packet that can't be sequenced.
    fn take<N: NetworkFunction>(
        &mut self,
        sequencer: &mut Sequencer<N>,
        batch: &Batch,
        out: &mut Batch,
        frame: &mut Vec<u8>,
    ) -> Result<(), LateTime> {
        out.clear();
        out.come_with(batch);
        let (link, overhead) = (sequencer.outer().link(), sequencer.overhead() as u32);
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            let core = sequencer.sequence(packet, bytes, frame)?;
            self.packets += 1;
            self.bytes_in += bytes.len() as u64;
            self.bytes_out += frame.len() as u64;
            let wire_len = packet.wire_len.saturating_add(overhead);
            out.push(Packet { link, wire_len, fate: Fate::Transmit(core as u16), ..*packet }, frame);
        }
        Ok(())
    }
}
