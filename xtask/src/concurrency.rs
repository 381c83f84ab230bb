//! Concurrency checks: a model checker (loom) over small cases, and ThreadSanitizer over real threads. Each builds with its own flags, so
//! in its own target folder.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::root;
use crate::tests::Totals;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Checks that the shared tables are linearizable, on the code that ships.
pub(crate) fn linearizability(totals: &mut Totals) -> Result<()> {
    model_check("millrace-flow", &["linearizable", "adding_model"], totals)
}

/// Checks that replicas agree whatever is lost, on the code that ships.
pub(crate) fn agreement(totals: &mut Totals) -> Result<()> {
    model_check("millrace-engine", &["recovery_model"], totals)
}

/// Checks that transactions are serializable and see consistent state, on the code that ships.
pub(crate) fn serializability(totals: &mut Totals) -> Result<()> {
    model_check("millrace-memory", &["serializable_model"], totals)
}

/// Checks that the queue between two stages loses and tears nothing, on the code that ships.
pub(crate) fn handing_over(totals: &mut Totals) -> Result<()> {
    model_check("millrace-fifo", &["fifo_model"], totals)
}

fn model_check(package: &str, tests: &[&str], totals: &mut Totals) -> Result<()> {
    let tests = tests.iter().flat_map(|test| ["--test", test]);
    let arguments: Vec<&str> = ["test", "-p", package, "--release", "--quiet"].into_iter().chain(tests).collect();
    let mut command = cargo(&arguments, "loom", "--cfg loom");
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    run(&mut command, totals)
}

/// Runs the stress tests of shared tables, transactions, the transactional engine, borrowed memory and the queue under ThreadSanitizer. The
/// standard library is not built with it, and the slow path of its mutex would be reported as a race. So the table under a mutex is left to
/// the model checker.
pub(crate) fn sanitizer(totals: &mut Totals) -> Result<()> {
    if !has_sanitizer() {
        println!(
            "   SKIPPED (this toolchain has no ThreadSanitizer for {TARGET}): shared tables under a thread sanitizer"
        );
        totals.skipped += 1;
        return Ok(());
    }
    sanitize(&["-p", "millrace-flow", "--test", "shared_stress", "--", "--skip", "locked"], totals)?;
    sanitize(&["-p", "millrace-memory", "--test", "transactions"], totals)?;
    sanitize(&["-p", "millrace-engine", "--test", "transacted"], totals)?;
    sanitize(&["-p", "millrace-fifo", "--test", "stress"], totals)?;
    sanitize(&["-p", "millrace-locality", "--lib", "loan"], totals)?;
    sanitize(&["-p", "millrace-port-xdp", "--lib", "--", "ledger", "ring", "sequencer"], totals)
}

fn sanitize(what: &[&str], totals: &mut Totals) -> Result<()> {
    let arguments = [&["test", "--quiet", "--target", TARGET], what].concat();
    let mut command = cargo(&arguments, "tsan", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer");
    let suppressions = root().join("xtask/src/tsan.supp");
    command.env("RUSTC_BOOTSTRAP", "1").env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    run(&mut command, totals)
}

fn cargo(arguments: &[&str], folder: &str, flags: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
        .env("CARGO_TARGET_DIR", root().join("target").join(folder))
        .env("RUSTFLAGS", flags)
        .env("RUST_BACKTRACE", "0");
    command
}

/// Runs the tests and counts them. Shows their output if one fails.
fn run(command: &mut Command, totals: &mut Totals) -> Result<()> {
    let output = command.output().context("cargo test can't be run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        bail!("a test failed; see above");
    }
    for line in text.lines().filter(|line| line.starts_with("test result: ")) {
        println!("   {line}");
        totals.count(line);
    }
    Ok(())
}

/// True if the toolchain has the sanitizer's run-time library.
fn has_sanitizer() -> bool {
    let Ok(output) = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()).output() else {
        return false;
    };
    let sysroot = String::from_utf8_lossy(&output.stdout);
    let library = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib/librustc-stable_rt.tsan.a");
    library.exists()
}
