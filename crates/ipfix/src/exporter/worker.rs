//! The exporter's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packet::Nanos;

use super::ExporterOptions;
use super::link::{Link, Readiness, Sent};
use super::sender::Shared;
use crate::encoder::{Content, Encoder, Statistics};
use crate::record::FlowRecord;

pub(super) struct Worker {
    encoder: Encoder,
    link: Link,
    queue: Receiver<FlowRecord>,
    shared: Arc<Shared>,
    options: ExporterOptions,
    /// When templates and statistics are sent again.
    refresh_at: Instant,
    /// Messages until then.
    messages_left: u64,
    /// When the message is sent even if it isn't full.
    send_at: Option<Instant>,
    /// The content of the message before.
    previous: Content,
    /// Time of the latest packet of a record, for files.
    latest: Nanos,
    /// A transport session has begun.
    has_begun: bool,
}

/// Interval at which the thread looks for records. Waking it by each record would cost the data path a system call.
const PAUSE: Duration = Duration::from_millis(5);
/// Records taken before the thread looks at the time.
const AT_ONCE: usize = 1024;

impl Worker {
    pub(super) fn new(
        encoder: Encoder,
        link: Link,
        queue: Receiver<FlowRecord>,
        shared: Arc<Shared>,
        options: ExporterOptions,
    ) -> Self {
        Self {
            encoder,
            link,
            queue,
            shared,
            refresh_at: Instant::now(),
            messages_left: 0,
            send_at: None,
            previous: Content::default(),
            latest: Nanos(0),
            has_begun: false,
            options,
        }
    }

    pub(super) fn run(mut self) {
        // The queue at the end, and what comes while it is taken.
        let mut last_records = self.options.queue + AT_ONCE;
        loop {
            let is_stopping = self.shared.is_stopping();
            let now = Instant::now();
            if !self.is_ready(now, is_stopping) {
                if is_stopping {
                    self.lose_rest();
                    return;
                }
                thread::park_timeout(PAUSE);
                continue;
            }
            let taken = self.take_records(now);
            self.keep_time(now);
            if is_stopping {
                last_records = last_records.saturating_sub(taken);
            }
            if taken > 0 && last_records > 0 {
                continue;
            }
            if is_stopping {
                self.finish();
                self.lose_rest();
                return;
            }
            thread::park_timeout(PAUSE);
        }
    }

    /// True if the link is up. Begins a transport session on a new one.
    fn is_ready(&mut self, now: Instant, is_stopping: bool) -> bool {
        match self.link.ready(now, is_stopping) {
            Readiness::Ready if self.has_begun => true,
            Readiness::Ready => {
                self.begin_session(now);
                true
            }
            Readiness::Connected => {
                // ORDERING: Relaxed. A number to look at; read in `Shared::counts`.
                self.shared.connections.fetch_add(1, Ordering::Relaxed);
                self.shared.set_trouble(None);
                self.begin_session(now);
                true
            }
            Readiness::Away(error) => {
                if let Some(error) = error {
                    self.shared.set_trouble(Some(format!("{}: {error}", self.link.name())));
                }
                false
            }
        }
    }

    fn begin_session(&mut self, now: Instant) {
        let dropped = self.encoder.begin_session();
        self.shared.lost.add(&dropped);
        self.send_at = None;
        self.previous = Content::default();
        self.has_begun = true;
        self.refresh(now, true);
    }

    /// Adds templates, if the collector needs them, and statistics.
    fn refresh(&mut self, now: Instant, with_templates: bool) {
        if with_templates {
            for number in 0..self.encoder.templates() {
                if !self.encoder.add_template(number) {
                    self.send();
                    let fits = self.encoder.add_template(number);
                    debug_assert!(fits, "a template fits the shortest message");
                }
            }
        }
        self.add_statistics();
        self.refresh_at = now + self.options.template_interval;
        self.messages_left = self.options.template_messages;
        self.send_at.get_or_insert(now + self.options.delay_max);
    }

    fn add_statistics(&mut self) {
        if !self.options.statistics {
            return;
        }
        let counts = self.shared.counts();
        let statistics = Statistics {
            messages: counts.messages,
            exported: counts.exported.flows,
            ignored_packets: self.shared.ignored(),
            lost: counts.lost,
        };
        if !self.encoder.add_statistics(&statistics) {
            self.send();
            let fits = self.encoder.add_statistics(&statistics);
            debug_assert!(fits, "statistics fit the shortest message");
        }
    }

    /// Takes records from the queue, a bounded number; returns how many.
    fn take_records(&mut self, now: Instant) -> usize {
        for taken in 0..AT_ONCE {
            let Ok(record) = self.queue.try_recv() else { return taken };
            self.latest = self.latest.max(record.last());
            if !self.encoder.add_record(&record) {
                self.send();
                let fits = self.encoder.add_record(&record);
                debug_assert!(fits, "a record fits the shortest message");
            }
            self.send_at.get_or_insert(now + self.options.delay_max);
        }
        AT_ONCE
    }

    /// Sends what has waited long enough, and templates when they are due.
    fn keep_time(&mut self, now: Instant) {
        let is_udp = self.link.forgets_templates();
        if !self.link.is_file() && (now >= self.refresh_at || is_udp && self.messages_left == 0) {
            self.refresh(now, is_udp);
        }
        if self.send_at.is_some_and(|then| now >= then) {
            self.send();
        }
    }

    /// Sends the message.
    fn send(&mut self) {
        self.send_at = None;
        if self.encoder.is_empty() {
            return;
        }
        let Self { encoder, link, shared, .. } = self;
        let time = if link.is_file() { self.options.encoder.epoch + self.latest } else { wall_clock() };
        let (content, sent) =
            encoder.take((time.0 / 1_000_000_000) as u32, |message| (message.content, link.send(message.bytes)));
        let trouble = match sent {
            Sent::Yes => None,
            Sent::PreviousLost(error) => {
                shared.exported.subtract(&self.previous);
                shared.lost.add(&self.previous);
                Some(error)
            }
            Sent::No(error) => {
                shared.lost.add(&content);
                self.previous = Content::default();
                shared.set_trouble(Some(format!("{}: {error}", link.name())));
                return;
            }
        };
        shared.exported.add(&content);
        // ORDERING: Relaxed. A number to look at; read in `Shared::counts`.
        shared.messages.fetch_add(1, Ordering::Relaxed);
        shared.set_trouble(trouble.map(|error| format!("{}: {error}", link.name())));
        self.previous = content;
        self.messages_left = self.messages_left.saturating_sub(1);
    }

    /// Sends the last message with the last statistics.
    fn finish(&mut self) {
        if self.encoder.content().flows > 0 {
            self.send();
        }
        self.add_statistics();
        self.send();
    }

    /// Counts what waits as lost.
    fn lose_rest(&mut self) {
        let mut lost = self.encoder.begin_session();
        while let Ok(record) = self.queue.try_recv() {
            lost.add(&Content::of(&record));
        }
        self.shared.lost.add(&lost);
    }
}

fn wall_clock() -> Nanos {
    Nanos(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
}
