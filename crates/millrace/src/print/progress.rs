//! Progress messages: what is being done, and, on a terminal, a bar with rate and remaining time for work that lasts over a second.

use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::number::{counted, rate};
use super::output::{Level, remark};

/// Progress of the work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Done so far, in the unit of `total`.
    pub(crate) done: u64,
    /// Total; `None` if it is unknown.
    pub(crate) total: Option<u64>,
    /// Packets so far, for the rate.
    pub(crate) packets: u64,
}

/// A progress bar that is drawn until it is dropped.
pub(crate) struct Progress {
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

const PATIENCE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(100);

impl Progress {
    /// Prints at once what is being done, and shows a bar from the start: for work that takes seconds.
    pub(crate) fn begin(quiet: bool, what: &str, doing: &str, sample: impl Fn() -> Sample + Send + 'static) -> Self {
        if !quiet {
            remark(&format!("{what}: {doing} ...\n"));
        }
        Self::patiently(Duration::ZERO, quiet, what, sample)
    }

    /// Shows a bar for `sample`, after a second; none with `quiet`.
    pub(crate) fn watch(quiet: bool, what: &str, sample: impl Fn() -> Sample + Send + 'static) -> Self {
        Self::patiently(PATIENCE, quiet, what, sample)
    }

    fn patiently(patience: Duration, quiet: bool, what: &str, sample: impl Fn() -> Sample + Send + 'static) -> Self {
        if quiet || !Level::Usual.is_said() || !stderr().is_terminal() {
            return Self { drawing: None };
        }
        let (stop, stopped) = channel();
        let what = what.to_owned();
        let start = Instant::now();
        let thread = thread::spawn(move || {
            let over = |wait| stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            if over(patience) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_message(what);
            bar.set_style(look(sample().total.is_some()));
            loop {
                let sample = sample();
                if let Some(total) = sample.total {
                    bar.set_length(total);
                }
                bar.set_position(sample.done);
                bar.set_prefix(words(&sample, start.elapsed()));
                if over(PERIOD) {
                    bar.finish_and_clear();
                    return;
                }
            }
        });
        Self { drawing: Some((stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawing.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

fn look(bounded: bool) -> ProgressStyle {
    let template =
        if bounded { "{msg} {wide_bar:.cyan/dim} {percent:>3} %  {prefix}" } else { "{msg} {spinner} {prefix}" };
    ProgressStyle::with_template(template).expect("the template is well-formed").progress_chars("━╸─")
}

/// `35,169 packets, 2.86 Mpps, 12 s to go`, without unknown parts.
fn words(sample: &Sample, elapsed: Duration) -> String {
    let Sample { done, total, packets } = *sample;
    let mut parts = Vec::new();
    if packets > 0 {
        parts.push(format!("{}, {}", counted(packets, "packet", "packets"), rate(packets, elapsed)));
    }
    if let Some(left) = total.map(|total| total.saturating_sub(done))
        && done > 0
    {
        parts.push(to_go(elapsed.as_secs_f64() * left as f64 / done as f64));
    }
    parts.join(", ")
}

/// Remaining time, rounded to the precision of the estimate.
fn to_go(secs: f64) -> String {
    let minutes = (secs / 60.0).round() as u64;
    match secs {
        ..1.0 => "nearly done".to_owned(),
        ..100.0 => format!("{} s to go", secs.ceil()),
        ..6_000.0 => format!("{minutes} min to go"),
        _ => format!("{} h {} min to go", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_is_known() {
        let words = |done, total, packets| words(&Sample { done, total, packets }, Duration::from_secs(10));
        assert_eq!(words(0, Some(100), 0), "", "nothing is known yet");
        assert_eq!(words(50, Some(100), 2_000_000), "2,000,000 packets, 200 kpps, 10 s to go");
        assert_eq!(words(50, Some(100), 0), "10 s to go", "a file is read");
        assert_eq!(words(100, Some(100), 1), "1 packet, 0 pps, nearly done");
        assert_eq!(words(7, None, 2_000), "2,000 packets, 200 pps", "a pipe has no end yet");
        assert_eq!(
            [15.2, 99.9, 600.0, 9_000.0].map(to_go),
            ["16 s to go", "100 s to go", "10 min to go", "2 h 30 min to go"]
        );
    }
}
