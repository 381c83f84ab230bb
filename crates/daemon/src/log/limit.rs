//! Limits of the rate at which lines are written.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::{Callsite, Identifier};
use tracing::field::{Field, Value, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Number of lines that may be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Lines in a period.
    pub(super) lines_max: u32,
    /// The period. It begins with the first line.
    pub(super) period: Duration,
    /// Fields each of whose values has lines of its own.
    pub(super) keys: &'static [&'static str],
}

/// A layer that hands a limited number of events to another one: of one call site and key, so many in a period. An event after the period tells
/// how many were left out.
#[derive(Debug)]
pub(super) struct RateLimited<L, C> {
    inner: L,
    limit: Limit,
    clock: C,
    counts: Mutex<HashMap<Source, Count>>,
}

/// Sources that are counted apart. All keys of a call site beyond that are one.
const SOURCES_MAX: usize = 1024;
/// Longest text that is remembered of an event, in bytes.
const TEXT_MAX: usize = 256;

/// Where an event comes from: a call site, and its key fields with their values as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    site: Identifier,
    key: String,
}

/// The events of a source in its period.
#[derive(Debug)]
struct Count {
    begun: Instant,
    written: u32,
    left_out: u64,
    level: Level,
    /// Message of the first one that was left out.
    message: String,
}

/// Event targets that ask for reports. Nobody else's events have them.
const ENDED: &str = "millrace_daemon::log::ended";
const ALL: &str = "millrace_daemon::log::all";

/// Has the layer report what was left out in periods that are over.
pub(super) fn report_ended() {
    tracing::error!(target: ENDED, "report");
}

/// Has the layer report all that was left out.
pub(super) fn report_all() {
    tracing::error!(target: ALL, "report");
}

impl<L, C: Fn() -> Instant> RateLimited<L, C> {
    /// Limits what `inner` gets.
    pub(super) fn new(inner: L, limit: Limit, clock: C) -> Self {
        Self { inner, limit, clock, counts: Mutex::default() }
    }

    /// Counts an event. Returns true if it is to be written.
    fn admits(&self, event: &Event<'_>, now: Instant) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let metadata = event.metadata();
        let mut source = Source { site: metadata.callsite(), key: Fields::key(event, self.limit.keys) };
        if counts.len() >= SOURCES_MAX && !counts.contains_key(&source) {
            source.key.clear();
        }
        let new = || Count { begun: now, written: 0, left_out: 0, level: *metadata.level(), message: String::new() };
        let count = counts.entry(source).or_insert_with(new);
        if count.written < self.limit.lines_max {
            count.written += 1;
            return true;
        }
        if count.left_out == 0 {
            count.message = Fields::message(event);
        }
        count.left_out += 1;
        false
    }

    /// Ends periods and reports what was left out in them: those that are over, or all.
    fn report<S>(&self, now: Instant, all: bool, context: &Context<'_, S>)
    where
        S: Subscriber,
        L: Layer<S>,
    {
        let is_over = |count: &Count| all || now.saturating_duration_since(count.begun) >= self.limit.period;
        let ended: Vec<(Source, Count)> = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.extract_if(|_, count| is_over(count)).collect()
        };
        // Written without the lock, since the writer may have to wait.
        let mut reports: Vec<_> = ended.into_iter().filter(|(_, count)| count.left_out > 0).collect();
        reports.sort_by_key(|(_, count)| count.begun);
        for (source, count) in &reports {
            let fields = site(count.level).fields();
            let [message, left_out, like, key] = NAMES.map(|name| fields.field(name).expect("the site has it"));
            let of = (!source.key.is_empty()).then_some(&source.key as &dyn Value);
            let values: [(&Field, Option<&dyn Value>); 4] = [
                (&message, Some(&"lines were left out")),
                (&left_out, Some(&count.left_out)),
                (&like, Some(&count.message)),
                (&key, of),
            ];
            self.inner.on_event(&Event::new(site(count.level), &fields.value_set(&values)), context.clone());
        }
    }
}

/// Fields of a report.
const NAMES: [&str; 4] = ["message", "left_out", "like", "of"];

/// The call site of reports of a level.
fn site(level: Level) -> &'static Metadata<'static> {
    macro_rules! site {
        ($level:expr) => {
            tracing::callsite! {
                name: "left out",
                kind: tracing::metadata::Kind::EVENT,
                level: $level,
                fields: message, left_out, like, of
            }
            .metadata()
        };
    }
    match level {
        Level::ERROR => site!(Level::ERROR),
        Level::WARN => site!(Level::WARN),
        Level::INFO => site!(Level::INFO),
        Level::DEBUG => site!(Level::DEBUG),
        Level::TRACE => site!(Level::TRACE),
    }
}

impl<S, L, C> Layer<S> for RateLimited<L, C>
where
    S: Subscriber,
    L: Layer<S>,
    C: Fn() -> Instant + 'static,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let now = (self.clock)();
        match event.metadata().target() {
            ENDED => self.report(now, false, &context),
            ALL => self.report(now, true, &context),
            _ => {
                self.report(now, false, &context);
                if self.admits(event, now) {
                    self.inner.on_event(event, context);
                }
            }
        }
    }

    fn on_layer(&mut self, subscriber: &mut S) {
        self.inner.on_layer(subscriber);
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        self.inner.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        self.inner.on_record(id, values, context);
    }

    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        self.inner.on_enter(id, context);
    }

    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        self.inner.on_exit(id, context);
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        self.inner.on_close(id, context);
    }
}

/// Text of some fields of an event, cut off where it gets long.
struct Fields<'a> {
    wanted: &'a [&'static str],
    named: bool,
    text: String,
}

impl Fields<'_> {
    /// Key fields as `name=value`, separated by spaces.
    fn key(event: &Event<'_>, keys: &[&'static str]) -> String {
        let mut fields = Fields { wanted: keys, named: true, text: String::new() };
        event.record(&mut fields);
        fields.text
    }

    fn message(event: &Event<'_>) -> String {
        let mut fields = Fields { wanted: &["message"], named: false, text: String::new() };
        event.record(&mut fields);
        fields.text
    }

    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if !self.wanted.contains(&field.name()) {
            return;
        }
        if self.named {
            let space = if self.text.is_empty() { "" } else { " " };
            // It stops where the text is full.
            let _ = write!(self, "{space}{}=", field.name());
        }
        let _ = self.write_fmt(value);
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}

impl Write for Fields<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = part.floor_char_boundary(TEXT_MAX - self.text.len());
        self.text.push_str(&part[..end]);
        if end == part.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
