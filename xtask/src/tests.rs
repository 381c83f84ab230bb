//! Runs all tests and counts the passed and skipped ones in their output.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::root;

/// The test counts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Checks that could not be run here. The output has the reason of each.
    pub(crate) skipped: u64,
}

impl Totals {
    /// Adds the counts of a result line of the test harness.
    pub(crate) fn count(&mut self, line: &str) {
        self.passed += number_before(line, " passed");
    }
}

/// Runs all tests, including doc tests. Benches are built by the lints and not run.
pub(crate) fn run(totals: &mut Totals) -> Result<()> {
    all(false, totals)
}

/// The same over everything instead of a sample.
pub(crate) fn deep(totals: &mut Totals) -> Result<()> {
    all(true, totals)
}

fn all(deep: bool, totals: &mut Totals) -> Result<()> {
    tests(&["test", "--workspace", "--lib", "--bins", "--tests", "--examples"], deep, totals)?;
    tests(&["test", "--workspace", "--doc"], deep, totals)
}

fn tests(arguments: &[&str], deep: bool, totals: &mut Totals) -> Result<()> {
    // The output, including expected panics, goes to a log that is shown if a test fails.
    let mut command = Command::new("sh");
    command.args(["-c", "exec cargo \"$@\" 2>&1", "sh"]).args(arguments).arg("--quiet");
    if deep {
        // A deep run is long, so it goes on after a failure.
        command.args(["--no-fail-fast", "--profile", "deep"]).env("MILLRACE_DEEP", "1");
    }
    command.args(["--", "--nocapture"]).current_dir(root()).env("RUST_BACKTRACE", "0");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cargo test can't be run")?;
    let output = child.stdout.take().context("cargo test has an output")?;
    let mut log = Vec::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        // A running test shares its line with its output, so the marks may be anywhere.
        if let Some(start) = line.find("SKIPPED (") {
            totals.skipped += 1;
            println!("   {}", &line[start..]);
        }
        if let Some(start) = line.find("test result: ") {
            totals.count(&line[start..]);
            println!("   {}", &line[start..]);
        }
        // Long tests print their progress.
        if deep && let Some(start) = line.find("AGREE ") {
            println!("   {}", &line[start..]);
        }
        log.push(line);
    }
    if !child.wait()?.success() {
        for line in log {
            println!("{line}");
        }
        bail!("a test failed; see above");
    }
    Ok(())
}

fn number_before(line: &str, word: &str) -> u64 {
    let end = line.find(word).unwrap_or(0);
    line[..end].rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
