//! A sequencer's ring: the rows of the latest packets.

use std::sync::Arc;

use nf::{Meta, NetworkFunction, Verdict};
use packet::{Nanos, Seq};
use port::Packet;

use super::layout::{Shape, TAKES_STEP, TIME_BYTES, u64_at};
use crate::steer::classify::classify;

/// The rows of the latest packets: the history that the next packet carries.
pub(super) struct Ring<N: NetworkFunction> {
    nf: Arc<N>,
    by_ports: bool,
    shape: Shape,
    rows: Box<[u8]>,
    next: Seq,
    meta: Option<N::Meta>,
    /// A buffer for the verdicts of packets that take no step; unused.
    verdict: Verdict,
}

impl<N: NetworkFunction> Ring<N> {
    pub(super) fn new(nf: Arc<N>, cores: usize) -> Self {
        let shape = Shape::of::<N>(cores);
        Self {
            by_ports: nf.drops_fragments(),
            nf,
            shape,
            rows: vec![0; shape.rows_bytes()].into(),
            next: Seq(0),
            meta: None,
            verdict: Verdict::forward(),
        }
    }

    pub(super) const fn shape(&self) -> Shape {
        self.shape
    }

    /// The rows in the order of the ring.
    pub(super) fn rows(&self) -> &[u8] {
        &self.rows
    }

    /// The number of the next packet.
    pub(super) const fn next(&self) -> Seq {
        self.next
    }

    /// Replaces the rows by those that packet number `next` carried, after packets were lost.
    pub(super) fn resume(&mut self, rows: &[u8], next: Seq) {
        self.rows.copy_from_slice(rows);
        self.next = next;
    }

    /// The row of this packet alone. It overwrites the oldest row, as that of the next packet.
    pub(super) fn row_of(&mut self, packet: &Packet, bytes: &[u8]) -> &[u8] {
        let (len, index) = (usize::from(self.shape.row_bytes()), self.next.0 % u64::from(self.shape.rows()));
        self.record(packet, bytes);
        &self.rows[index as usize * len..][..len]
    }

    /// Writes the row of the next packet over the oldest one.
    #[inline]
    pub(super) fn record(&mut self, packet: &Packet, bytes: &[u8]) {
        let len = usize::from(self.shape.row_bytes());
        let index = (self.next.0 % u64::from(self.shape.rows())) as usize;
        self.next = self.next.next();
        let Self { nf, meta, verdict, rows, .. } = self;
        let row = &mut rows[index * len..][..len];
        let takes_step = classify(&**nf, self.by_ports, packet, bytes, meta, verdict);
        let (time, record) = row.split_at_mut(TIME_BYTES);
        match meta {
            Some(meta) if takes_step => {
                time.copy_from_slice(&(packet.time.0 | TAKES_STEP).to_be_bytes());
                meta.write(record);
            }
            Some(_) | None => {
                time.copy_from_slice(&packet.time.0.to_be_bytes());
                record.fill(0);
            }
        }
    }
}

/// The time in a row, and the metadata if its packet takes a step. `None` for a row that the function doesn't write.
#[inline]
pub(super) fn metadata_of<M: Meta>(row: &[u8]) -> Option<(Nanos, Option<M>)> {
    let word = u64_at(row, 0);
    let (time, takes_step) = (Nanos(word & !TAKES_STEP), word & TAKES_STEP != 0);
    if !takes_step {
        return Some((time, None));
    }
    M::read(&row[TIME_BYTES..]).map(|meta| (time, Some(meta)))
}
