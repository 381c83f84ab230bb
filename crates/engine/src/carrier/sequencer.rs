//! The sequencer of figure 3: it sees every packet, numbers it, keeps the latest records and sprays round robin.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Fate, Packet, PortError, Queue, Received};

use super::layout::{Outer, Shape, TAKES_STEP, Trailer, ethernet};
use super::ring::Ring;
use crate::error::EngineError;
use crate::run::Control;

/// Sees every packet, numbers it, and sends it to the next core with what the packets before it contributed.
pub struct Sequencer<N: NetworkFunction> {
    ring: Ring<N>,
    outer: Outer,
}

/// A packet so late (the year 2262) that a row can't tell its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet {}: its time is {time} s after 1970, and a carrier tells times until the year 2262; correct the capture's clock (`editcap -t`)", seq.0 + 1)]
pub struct LateTime {
    /// The packet.
    pub seq: Seq,
    /// Its time.
    pub time: Nanos,
}

impl<N: NetworkFunction> Sequencer<N> {
    /// A sequencer for `cores` cores that run the function.
    ///
    /// # Panics
    /// As [`Shape::of`] does.
    #[must_use]
    pub fn new(nf: Arc<N>, cores: usize, outer: Outer) -> Self {
        Self { ring: Ring::new(nf, cores), outer }
    }

    /// What its packets carry.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.ring.shape()
    }

    /// Bytes that a packet grows by.
    #[must_use]
    pub const fn overhead(&self) -> usize {
        self.shape().overhead(self.outer)
    }

    /// The number of the packet that comes next.
    #[must_use]
    pub const fn next(&self) -> Seq {
        self.ring.next()
    }

    /// Writes the packet as it goes to its core over `frame`, and returns that core. Of the descriptor, all but number,
    /// place and fate counts: the number is the sequencer's own.
    ///
    /// # Errors
    /// A time that a row can't tell; the packet has no number then.
    #[inline]
    pub fn sequence(&mut self, packet: &Packet, bytes: &[u8], frame: &mut Vec<u8>) -> Result<usize, LateTime> {
        let (seq, shape) = (self.next(), self.shape());
        if packet.time.0 & TAKES_STEP != 0 {
            return Err(LateTime { seq, time: packet.time });
        }
        let core = (seq.0 % shape.cores() as u64) as usize;
        frame.clear();
        frame.reserve(self.overhead() + bytes.len());
        match self.outer {
            Outer::None => {}
            Outer::Ethernet => frame.extend_from_slice(&ethernet(core)),
        }
        frame.extend_from_slice(self.ring.rows());
        frame.extend_from_slice(&Trailer::of(packet, seq, shape).bytes());
        frame.extend_from_slice(bytes);
        self.ring.record(packet, bytes);
        Ok(core)
    }
}

/// What a sequencer did to a whole input.
#[derive(Debug)]
pub struct SequencedTotal {
    /// Packets.
    pub packets: u64,
    /// Their bytes as they came in.
    pub bytes_in: u64,
    /// Their bytes as they went out.
    pub bytes_out: u64,
    /// What each carries.
    pub shape: Shape,
    /// From the first receive to the last transmit.
    pub elapsed: Duration,
    /// Whether it was told to stop before the input ended.
    pub interrupted: bool,
    /// What ended it early. All that was sequenced before is in the output.
    pub failure: Option<EngineError>,
}

/// How long it waits for packets before it looks again whether it is to stop.
const WAIT: Duration = Duration::from_millis(50);

/// Sequences all that comes by `queue` and sends it by the same.
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
    // The output is finished whatever happened.
    let finished = queue.finish();
    total.failure = result.and(finished).err().map(EngineError::from);
    total.elapsed = start.elapsed();
    total
}

impl SequencedTotal {
    /// Sequences a batch, up to the first packet that can't be.
    fn take<N: NetworkFunction>(
        &mut self,
        sequencer: &mut Sequencer<N>,
        batch: &Batch,
        out: &mut Batch,
        frame: &mut Vec<u8>,
    ) -> Result<(), LateTime> {
        out.clear();
        out.come_with(batch);
        let (link, overhead) = (sequencer.outer.link(), sequencer.overhead() as u32);
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
