//! Says which core of a pipeline the others wait for.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine::{Control, Cuts};

use crate::print::output::warn;

/// How often a run is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Watches a pipeline until it is dropped, and prints a note for each core that stalls.
pub(super) struct Watch {
    watching: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    /// Watches the run of this control, which is a pipeline with these cuts.
    pub(super) fn begin(control: &Control, cuts: Cuts) -> Self {
        let (stop, stopped) = channel();
        let control = control.clone();
        let thread = thread::spawn(move || {
            let mut named = None;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let stalled = control.stalled();
                if let Some(core) = stalled.filter(|_| stalled != named) {
                    warn(&said(core, cuts));
                }
                named = stalled;
            }
        });
        Self { watching: Some((stop, thread)) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.watching.take() {
            drop(stop);
            // It doesn't panic, and a note that is missing is no failure of the run.
            let _ = thread.join();
        }
    }
}

/// The note about a core.
fn said(core: usize, cuts: Cuts) -> String {
    let stage = match core.checked_sub(cuts.ahead()) {
        Some(way) => format!("way {}", way + 1),
        None => "the stage that gathers fragments and steers".to_owned(),
    };
    format!("core {core} ({stage}) has stalled: the other cores wait for its packets\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_named_with_its_stage() {
        assert!(said(2, Cuts::Parse).starts_with("core 2 (way 2) has stalled"));
        assert!(said(2, Cuts::Both).starts_with("core 2 (way 1) has stalled"));
        assert!(said(1, Cuts::Both).starts_with("core 1 (the stage that gathers fragments and steers) has stalled"));
    }
}
