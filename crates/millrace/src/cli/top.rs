//! `millrace top`: a live view of a run in the terminal.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use daemon::{DaemonError, Reply, Request, Stats, ask};
use top::{Closed, TopError};

use super::control::default_path;
use super::failure::Failed;
use crate::print::output::{print, remark};
use crate::print::style::Style;

/// Show a running function live: rates, verdicts, drops by reason, the load of each core, the largest flows
///
/// Asks the run once a second by its control socket. Without a terminal (`millrace top | tee log`) it prints a line for each second.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace top
  millrace top --control=/run/nat.sock --interval 5")]
pub(super) struct Args {
    /// Socket of the run [default: /run/millrace.sock for root, else $XDG_RUNTIME_DIR/millrace.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: u64,
}

/// Parses an interval.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    seconds.ok_or_else(|| "write whole seconds, 1 to 3600".to_owned())
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let path = args.control.clone().unwrap_or_else(default_path);
    let interval = Duration::from_secs(args.interval);
    if !io::stdout().is_terminal() {
        return lines(&path, interval);
    }
    let options = top::Options { interval, has_color: Style::stdout().colour };
    match top::run(move || sample(&path), &options) {
        Ok(Closed::Quit | Closed::Ended(_)) => Ok(()),
        // As a shell reports a program that a signal has ended.
        Ok(Closed::Signal(number)) => process::exit(128 + number),
        Err(TopError::Source(error)) => Err(failed(error)),
        Err(error) => Err(Failed::input(error)),
    }
}

/// A line for each sample, until the run has ended.
fn lines(path: &Path, interval: Duration) -> Result<(), Failed> {
    let mut before = sample(path).map_err(failed)?;
    loop {
        thread::sleep(interval);
        let now = match sample(path) {
            Ok(now) => now,
            Err(Unheard(DaemonError::Nobody(_))) => {
                remark("the run has ended\n");
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        print(&format!("{}\n", top::line(&before, &now)))?;
        before = now;
    }
}

/// Reason of a missing sample.
#[derive(Debug)]
struct Unheard(DaemonError);

impl std::fmt::Display for Unheard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn sample(path: &Path) -> Result<Stats, Unheard> {
    match ask(path, &Request::Stats {}) {
        Ok(Reply::Stats(stats)) => Ok(stats),
        // The run is between its end and the end of its socket.
        Ok(_) => Err(Unheard(DaemonError::Nobody(path.to_owned()))),
        Err(error) => Err(Unheard(error)),
    }
}

fn failed(Unheard(error): Unheard) -> Failed {
    match error {
        DaemonError::Nobody(_) | DaemonError::NotAllowed(_) => Failed::usage(error),
        error => Failed::input(error),
    }
}
