//! A meter with an exporter behind it.

use std::time::{Duration, Instant};

use packet::Nanos;
use port::Packet;

use crate::exporter::RecordSender;
use crate::meter::{Meter, MeterCounts, MeterOptions};

/// The meter of one queue of a port, whose records go to an exporter. Never waits.
///
/// A wrapper of a queue calls [`packet`](Self::packet) for each packet that the queue receives, and [`poll`](Self::poll) with the queue's
/// time when there are none. A tap must see both directions of a flow, or there will be a record for each.
#[derive(Debug)]
pub struct Tap {
    meter: Meter,
    sender: RecordSender,
    /// Ignored packets that the exporter knows of.
    told: u64,
}

/// The exporter is told of ignored packets when there are so many more.
const TELL_AT: u64 = 256;

impl Tap {
    /// A tap with an empty cache.
    ///
    /// # Panics
    /// If the memory of the cache can't be reserved.
    #[must_use]
    pub fn new(options: MeterOptions, sender: RecordSender) -> Self {
        Self { meter: Meter::new(options), sender, told: 0 }
    }

    /// Counts a packet. One parse and one look-up in the cache.
    #[inline]
    pub fn packet(&mut self, packet: &Packet, bytes: &[u8]) {
        let Self { meter, sender, .. } = self;
        if !meter.packet(packet, bytes, |record| sender.send(record)) {
            self.tell_ignored(TELL_AT);
        }
    }

    /// Ends flows that are due at `now`, a bounded number of them. Returns true if more are due.
    pub fn poll(&mut self, now: Nanos) -> bool {
        let Self { meter, sender, .. } = self;
        let has_more = meter.poll(now, |record| sender.send(record));
        self.tell_ignored(1);
        has_more
    }

    /// The counts so far.
    #[must_use]
    pub const fn counts(&self) -> MeterCounts {
        self.meter.counts()
    }

    /// The memory of the cache in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.meter.memory_bytes()
    }

    /// Ends all flows. Call it before [`Exporter::finish`](crate::Exporter::finish), once no more packets come. If there are more flows than
    /// the exporter's queue has room for, this waits for the exporter, for at most `at_most`; the rest is lost.
    #[must_use]
    pub fn finish(mut self, at_most: Duration) -> MeterCounts {
        self.tell_ignored(1);
        let Self { mut meter, sender, .. } = self;
        let end = Instant::now() + at_most;
        meter.end_all(|record| sender.send_until(record, end));
        meter.counts()
    }

    fn tell_ignored(&mut self, at_least: u64) {
        let ignored = self.meter.counts().ignored();
        if ignored - self.told >= at_least {
            self.sender.add_ignored(ignored - self.told);
            self.told = ignored;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues go to the threads of cores, and so do their taps.
    #[test]
    fn a_tap_goes_to_another_thread() {
        const fn is_send<T: Send>() {}
        is_send::<Tap>();
    }
}
