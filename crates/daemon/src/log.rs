//! Logs on standard error: lines of text or of JSON, limited in their rate.

mod limit;

use std::env;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::DaemonError;
use limit::{Limit, RateLimited};

/// Lines that one place in the code may write in a period, or one interface there.
const LIMIT: Limit = Limit { lines_max: 10, period: Duration::from_secs(10), keys: &["interface", "core", "reason"] };

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Time, level, message and fields, for people. In colours on a terminal, unless NO_COLOR is set.
    Text,
    /// An object of JSON with the keys `timestamp`, `level` and `message`, and one for each field.
    Json,
}

/// The logs of a process. What `tracing` is told anywhere in the process goes to standard error.
///
/// One place in the code writes at most 10 lines in 10 seconds. If its events have one of the fields `interface`, `core` or `reason`, it
/// writes as many for each value of them. A line after the period tells how many were left out: their number in `left_out`, the message of
/// the first in `like`, the field's value in `of`. Lines that can't be written are lost.
#[derive(Debug)]
pub struct Logs(());

impl Logs {
    /// Begins to write events of this level and of more severe ones.
    ///
    /// # Errors
    /// This process has logs already.
    pub fn begin(format: Format, level: Level) -> Result<Self, DaemonError> {
        let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let lines = limited(format, colours, io::stderr, Instant::now);
        let logs = tracing_subscriber::registry().with(lines).with(LevelFilter::from_level(level));
        logs.try_init().map_err(|_| DaemonError::LogsBegun)?;
        Ok(Self(()))
    }

    /// Writes how many lines were left out in periods that are over. To be called about once in 10 seconds: the next
    /// event tells it, too, but that may be hours away.
    pub fn tick(&self) {
        limit::report_ended();
    }
}

/// The rest of the lines that were left out is told.
impl Drop for Logs {
    fn drop(&mut self) {
        limit::report_all();
    }
}

/// A layer that writes lines to `writer`.
fn limited<W, C>(format: Format, colours: bool, writer: W, clock: C) -> impl Layer<Registry>
where
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
    C: Fn() -> Instant + Send + Sync + 'static,
{
    // Told of an error, it would write it to standard error, and panic if that is closed.
    let lines = fmt::layer().with_writer(writer).with_target(false).with_ansi(colours).log_internal_errors(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    RateLimited::new(lines, LIMIT, clock)
}

#[cfg(test)]
mod tests;
