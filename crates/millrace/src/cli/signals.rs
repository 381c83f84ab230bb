//! Ctrl-C: the first ends the run cleanly, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::failure::INTERRUPTED;

/// From now on Ctrl-C (and a polite kill) sets `stop`; once it is set, the next one exits.
pub(super) fn stop_on_interrupt(stop: &Arc<AtomicBool>) {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and sets it, the second finds it set.
        let _ = flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(stop));
        let _ = flag::register(signal, Arc::clone(stop));
    }
}
