//! A bar with rate and time to go, on work that lasts over a second, when somebody watches.

use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::number::{count, rate};

/// How far the work is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Done so far, in the unit of `total`.
    pub(crate) done: u64,
    /// Of how much; `None` where nobody knows.
    pub(crate) total: Option<u64>,
    /// Packets so far, for the rate.
    pub(crate) packets: u64,
}

/// A bar that draws itself until it is dropped.
pub(crate) struct Progress {
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

const PATIENCE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(100);

impl Progress {
    /// Watches `sample` from now on; with `quiet` there is no bar at all.
    pub(crate) fn watch(quiet: bool, what: &str, sample: impl Fn() -> Sample + Send + 'static) -> Self {
        if quiet || !stderr().is_terminal() {
            return Self { drawing: None };
        }
        let (stop, stopped) = channel();
        let what = what.to_owned();
        let start = Instant::now();
        let thread = thread::spawn(move || {
            let over = |wait| stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            if over(PATIENCE) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_message(what);
            bar.set_style(look(sample().total.is_some()));
            loop {
                let Sample { done, total, packets } = sample();
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(done);
                bar.set_prefix(format!("{} packets, {}", count(packets), rate(packets, start.elapsed())));
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
    let template = if bounded {
        "{msg} {wide_bar:.cyan/dim} {percent:>3} %  {prefix}, {eta} to go"
    } else {
        "{msg} {spinner} {prefix}"
    };
    ProgressStyle::with_template(template).expect("the template is well-formed").progress_chars("━╸─")
}
