//! Ctrl-C: the first ends the run cleanly, the second ends the program.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::process;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::failure::INTERRUPTED;
use crate::print::output::note;

/// Makes Ctrl-C (and SIGTERM) set `stop`. Once it is set, the next one exits.
pub(super) fn stop_on_interrupt(stop: &Arc<AtomicBool>) {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and sets it, the second finds it set.
        let _ = flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(stop));
        let _ = flag::register(signal, Arc::clone(stop));
    }
}

/// Makes SIGHUP, which comes when a session closes, set `stop`, too, unless it is ignored (nohup).
pub(super) fn stop_on_hangup(stop: &Arc<AtomicBool>) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if ignored & 1 << (SIGHUP - 1) == 0 {
        let _ = flag::register(SIGHUP, Arc::clone(stop));
    }
}

/// Progress of the work, for the message. Global, like the signal handlers.
static SO_FAR: Mutex<String> = Mutex::new(String::new());

/// Makes Ctrl-C (and SIGTERM) print the progress and exit: for work without valid figures before its end. `begun` completes "interrupted:
/// ...".
pub(super) fn exit_on_interrupt(begun: &str) {
    so_far(begun.to_owned());
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            // Erase the progress bar.
            let line = if stderr().is_terminal() { "\r\x1b[2K" } else { "" };
            note(&format!("{line}interrupted: {}\n", SO_FAR.lock().unwrap_or_else(PoisonError::into_inner)));
            process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// Sets the progress message.
pub(super) fn so_far(words: String) {
    *SO_FAR.lock().unwrap_or_else(PoisonError::into_inner) = words;
}
