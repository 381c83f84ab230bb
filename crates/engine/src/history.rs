//! Histories: what earlier packets contributed, for a core to replay before its own packet (state-compute replication).

use packet::{Nanos, Seq};

/// What one packet contributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<M> {
    /// The packet's time, stamped once for all cores.
    pub time: Nanos,
    /// Its contribution; `None` when it takes no step.
    pub meta: Option<M>,
}

/// The records of consecutive packets, as a sequencer hands them to all cores at once.
#[derive(Clone, Debug)]
pub struct Block<M> {
    /// The number of the packet that the first record is of.
    pub first: Seq,
    /// The records.
    pub records: Vec<Record<M>>,
}

impl<M> Default for Block<M> {
    fn default() -> Self {
        Self { first: Seq(0), records: Vec::new() }
    }
}

/// A core's place in the stream of records: it reads each exactly once, in order.
///
/// A log over a whole trace wraps around for as often as the trace is replayed, each time later by `span`.
#[derive(Debug)]
pub struct Log<'a, M> {
    records: &'a [Record<M>],
    index: usize,
    offset: Nanos,
    span: Nanos,
}

impl<'a, M: Copy> Log<'a, M> {
    /// The log of a block: it ends with the block.
    #[must_use]
    pub const fn of_block(block: &'a Block<M>) -> Self {
        Self { records: block.records.as_slice(), index: 0, offset: Nanos(0), span: Nanos(0) }
    }

    /// The log of a trace that is replayed over and over, later by `span` each time, from the record of `next` on.
    ///
    /// # Panics
    /// When there are no records.
    #[must_use]
    pub fn of_loop(records: &'a [Record<M>], span: Nanos, next: Seq) -> Self {
        let len = records.len() as u64;
        let (loops, index) = (next.0 / len, (next.0 % len) as usize);
        Self { records, index, offset: Nanos(span.0.saturating_mul(loops)), span }
    }

    /// The next record.
    ///
    /// # Panics
    /// When the log has no records at all.
    #[inline]
    pub fn read(&mut self) -> Record<M> {
        if self.index == self.records.len() {
            self.index = 0;
            self.offset = self.offset + self.span;
        }
        let record = self.records[self.index];
        self.index += 1;
        Record { time: record.time + self.offset, meta: record.meta }
    }
}
