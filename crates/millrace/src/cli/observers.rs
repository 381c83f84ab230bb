//! What operators see of a run's packets while it goes on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::TopFlow;
use nf::Reason;
use port::pcap::Writer;
use port::{Batch, Watch};
use watch::{DropSample, Latency, TopFlows, Traces};

use super::failure::{Failed, INPUT};
use crate::print::number::count;
use crate::print::output::note;
use crate::print::style::Style;

/// Observers of a run's packets.
pub(super) struct Observers {
    latency: Arc<Latency>,
    top: Arc<TopFlows>,
    pub(super) traces: Arc<Traces>,
    drops: Option<Arc<DropSample>>,
    /// When large flows were last asked for, and what they were.
    shown: Mutex<(Instant, Vec<TopFlow>)>,
}

/// Observers that look at the same packets, in order. Those that every run has are called directly, as they cost hardly more than a call.
pub(super) struct Together {
    latency: Arc<Latency>,
    top: Arc<TopFlows>,
    traces: Arc<Traces>,
    others: Vec<Arc<dyn Watch>>,
}

impl Watch for Together {
    fn received(&self, queue: usize, batch: &Batch) {
        self.latency.received(queue, batch);
        self.top.received(queue, batch);
        self.traces.received(queue, batch);
        self.others.received(queue, batch);
    }

    fn decided(&self, queue: usize, batch: &Batch) {
        self.latency.decided(queue, batch);
        self.traces.decided(queue, batch);
        self.others.decided(queue, batch);
    }
}

/// One burst of so many is measured.
const EVERY: u32 = 8;
/// Large flows are those of at least this time.
const WINDOW: Duration = Duration::from_secs(1);
/// Number of large flows that are shown.
const TOP: usize = 20;

impl Observers {
    /// Observers of `queues` queues.
    pub(super) fn new(queues: usize) -> Self {
        Self {
            latency: Arc::new(Latency::new(queues, EVERY)),
            top: Arc::new(TopFlows::new(queues)),
            traces: Arc::default(),
            drops: None,
            shown: Mutex::new((Instant::now(), Vec::new())),
        }
    }

    /// Adds a sample of dropped packets in a file. Starts a thread.
    pub(super) fn sample_drops(&mut self, file: Writer, reasons: &'static [&'static str]) {
        self.drops = Some(Arc::new(DropSample::new(file, move |reason| Reason(reason).name(reasons))));
    }

    /// All of them, and another one, for a port.
    pub(super) fn watch(&self, another: Option<Arc<dyn Watch>>) -> Together {
        let drops = self.drops.as_ref().map(|drops| Arc::clone(drops) as Arc<dyn Watch>);
        Together {
            latency: Arc::clone(&self.latency),
            top: Arc::clone(&self.top),
            traces: Arc::clone(&self.traces),
            others: drops.into_iter().chain(another).collect(),
        }
    }

    /// Times from receive to transmit; `None` before the first.
    pub(super) fn latency(&self) -> Option<daemon::Latency> {
        let times = self.latency.quantiles();
        let nanos = |time: Duration| time.as_nanos() as u64;
        (times.packets > 0).then(|| daemon::Latency {
            packets: times.packets,
            p50_ns: nanos(times.p50),
            p99_ns: nanos(times.p99),
            p999_ns: nanos(times.p999),
            worst_ns: nanos(times.worst),
            sum_us: times.sum.as_micros() as u64,
        })
    }

    /// The largest flows of the last seconds.
    pub(super) fn top_flows(&self) -> Vec<TopFlow> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.0.elapsed() >= WINDOW {
            let row = |top: watch::TopFlow| TopFlow {
                flow: top.flow.to_string(),
                packets_per_second: top.packets.round() as u64,
                bytes_per_second: top.bytes.round() as u64,
            };
            *shown = (Instant::now(), self.top.take(TOP).into_iter().map(row).collect());
        }
        shown.1.clone()
    }

    /// The error that has ended the file of dropped packets, if there was one.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.drops.as_ref().and_then(|drops| drops.trouble())
    }

    /// Completes the file of dropped packets. If it can't be written, that is told, and the run ends with this exit code.
    pub(super) fn finish(&self) -> Result<(), Failed> {
        match self.drops.as_ref().map(|drops| drops.finish()) {
            Some(Ok(sampled)) if sampled.left_out > 0 => {
                let (written, left_out) = (count(sampled.written), count(sampled.left_out));
                note(&format!("--dropped has a sample: {written} dropped packets, and {left_out} were left out\n"));
            }
            Some(Ok(_)) | None => {}
            Some(Err(error)) => {
                note(&format!("{} --dropped: {error}\n", Style::stderr().bad("error:")));
                return Err(Failed::Said(INPUT));
            }
        }
        Ok(())
    }
}
