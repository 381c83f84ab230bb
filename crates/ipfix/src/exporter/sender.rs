//! The sending end of an exporter's queue, and the counts that both ends share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::ExportCounts;
use crate::encoder::Content;
use crate::record::FlowRecord;

/// Sends records to an [`Exporter`](super::Exporter), without ever waiting. Clones may be used by several threads.
#[derive(Clone, Debug)]
pub struct RecordSender {
    records: SyncSender<FlowRecord>,
    shared: Arc<Shared>,
}

/// Pause of a sender that may wait before it looks at the queue again.
const PAUSE: Duration = Duration::from_millis(1);

impl RecordSender {
    pub(super) const fn new(records: SyncSender<FlowRecord>, shared: Arc<Shared>) -> Self {
        Self { records, shared }
    }

    /// Sends a record. It is lost if the queue is full or the exporter has ended.
    pub fn send(&self, record: &FlowRecord) {
        // Counted first, so that no record is exported before it was accepted.
        self.shared.accepted.add(&Content::of(record));
        if self.records.try_send(*record).is_err() {
            self.shared.lost.add(&Content::of(record));
        }
    }

    /// Sends a record; waits until `end` if the queue is full. Not for the data path.
    pub(crate) fn send_until(&self, record: &FlowRecord, end: Instant) {
        self.shared.accepted.add(&Content::of(record));
        while let Err(error) = self.records.try_send(*record) {
            let has_ended = matches!(error, TrySendError::Disconnected(_));
            if has_ended || Instant::now() >= end {
                return self.shared.lost.add(&Content::of(record));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Counts packets that belong to no flow, for the exporter's statistics.
    pub fn add_ignored(&self, packets: u64) {
        // ORDERING: Relaxed. A number alone; read in `Shared::ignored`.
        self.shared.ignored.fetch_add(packets, Ordering::Relaxed);
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// Totals of records.
#[derive(Debug, Default)]
pub(super) struct Totals {
    flows: AtomicU64,
    packets: AtomicU64,
    octets: AtomicU64,
}

impl Totals {
    pub(super) fn add(&self, content: &Content) {
        // ORDERING: Relaxed. Numbers to look at; read in `get`. Their sums are exact once the threads that add have ended.
        self.flows.fetch_add(content.flows, Ordering::Relaxed);
        self.packets.fetch_add(content.packets, Ordering::Relaxed);
        self.octets.fetch_add(content.octets, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, content: &Content) {
        // ORDERING: Relaxed. As in `add`; read in `get`. Only the thread that has added this subtracts it.
        self.flows.fetch_sub(content.flows, Ordering::Relaxed);
        self.packets.fetch_sub(content.packets, Ordering::Relaxed);
        self.octets.fetch_sub(content.octets, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Content {
        // ORDERING: Relaxed. Pairs with the additions in `add`.
        Content {
            flows: self.flows.load(Ordering::Relaxed),
            packets: self.packets.load(Ordering::Relaxed),
            octets: self.octets.load(Ordering::Relaxed),
        }
    }
}

/// State that the exporter's thread and its senders share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Records that were sent to the exporter.
    accepted: Totals,
    pub(super) exported: Totals,
    pub(super) lost: Totals,
    ignored: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) connections: AtomicU64,
    is_stopping: AtomicBool,
    /// The thread has ended, so what it has not exported is lost.
    is_closed: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn counts(&self) -> ExportCounts {
        // ORDERING: Acquire pairs with the Release in `close`: the thread's last counts are seen.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let (exported, mut lost) = (self.exported.get(), self.lost.get());
        // Read after the others, and counted before them, so that the difference is never negative.
        let mut rest = self.accepted.get();
        rest.subtract(&exported);
        rest.subtract(&lost);
        if is_closed {
            // A record that was put into the queue when the thread looked for the last time.
            lost.add(&rest);
            rest = Content::default();
        }
        let offered = exported.flows + lost.flows + rest.flows;
        ExportCounts {
            exported,
            lost,
            offered,
            waiting: rest.flows,
            // ORDERING: Relaxed. Numbers to look at; written by the thread in `Worker::send` and `Worker::connect`.
            messages: self.messages.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }

    pub(super) fn ignored(&self) -> u64 {
        // ORDERING: Relaxed. Pairs with the addition in `RecordSender::add_ignored`.
        self.ignored.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        // ORDERING: Release pairs with the Acquire in `is_stopping`: records sent before are found in the queue.
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `stop`.
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        // ORDERING: Release pairs with the Acquire in `counts`.
        self.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
