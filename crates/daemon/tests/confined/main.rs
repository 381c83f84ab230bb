//! What changes a process for good, and what it finds in its environment: rights, forbidden system calls, logs, the service manager. Each case
//! runs in a process of its own, in the main thread and before any other thread, so this program has no test harness.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod calls;
mod environment;
mod logs;
mod rights;

use std::env;
use std::process::{Command, ExitCode, Output};

/// A name and what to check.
type Case = (&'static str, fn());

/// In a process for a case, the name of the case.
const CASE: &str = "MILLRACE_CONFINED";
/// A case that only ends.
const NOTHING: &str = "nothing";

fn main() -> ExitCode {
    let cases = [rights::CASES, calls::CASES, logs::CASES, environment::CASES].concat();
    if let Ok(name) = env::var(CASE) {
        if name == NOTHING {
            return ExitCode::SUCCESS;
        }
        let helpers = [logs::HELPERS, environment::HELPERS].concat();
        let (_, check) = cases.iter().chain(&helpers).find(|(case, _)| *case == name).expect("the parent named it");
        check();
        return ExitCode::SUCCESS;
    }
    // Of the harness's arguments, only the filter has a meaning here.
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    for (name, _) in cases.iter().filter(|(name, _)| name.contains(&filter)) {
        let output = process(name).output().expect("this program can be started");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if output.status.success() {
            passed += 1;
        } else {
            failed += 1;
            println!("test {name} ... FAILED: {}\n{}", output.status, text(&output));
        }
    }
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {outcome}. {passed} passed; {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// A process for a case.
fn process(case: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("it is running"));
    command.env(CASE, case);
    // The tests may themselves run as a service.
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(variable);
    }
    command
}

/// The standard error of a process that has ended.
fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
