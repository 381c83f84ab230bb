//! The sequencer (figure 3 of the paper): it sees every packet, numbers it, keeps the latest records and sprays round robin.

use std::sync::Arc;

use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::Packet;

use super::layout::{Outer, Shape, TAKES_STEP, Trailer, ethernet};
use super::ring::Ring;

/// Numbers all packets, and sends each to the next core with the records of the packets before it.
pub struct Sequencer<N: NetworkFunction> {
    ring: Ring<N>,
    outer: Outer,
}

/// A packet after the year 2262: its time doesn't fit into a row.
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
    /// As [`Shape::of`].
    #[must_use]
    pub fn new(nf: Arc<N>, cores: usize, outer: Outer) -> Self {
        Self { ring: Ring::new(nf, cores), outer }
    }

    /// The shape of the history that each packet carries.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.ring.shape()
    }

    /// The outer header of each packet.
    #[must_use]
    pub const fn outer(&self) -> Outer {
        self.outer
    }

    /// Bytes that the history adds to each packet.
    #[must_use]
    pub const fn overhead(&self) -> usize {
        self.shape().overhead(self.outer)
    }

    /// The number of the next packet.
    #[must_use]
    pub const fn next(&self) -> Seq {
        self.ring.next()
    }

    /// Writes the sequenced packet to `frame` and returns its core. The packet gets the sequencer's own number, whatever the descriptor
    /// says; the descriptor's offset and fate are ignored.
    ///
    /// # Errors
    /// The packet's time doesn't fit into a row; the packet then gets no number.
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
