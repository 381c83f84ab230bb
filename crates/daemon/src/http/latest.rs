//! The newest sample of a run, and its rates' last two minutes, for everybody who looks on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::message::Stats;

/// Number of past samples whose totals are kept: two minutes at one sample a second, and one to begin with.
const HISTORY_LEN_MAX: usize = 121;

/// The newest sample of a run. The run sets it, for instance once a second; servers read it, so that they never ask the run itself.
#[derive(Debug, Default)]
pub struct Latest {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of samples so far.
    number: u64,
    sample: Option<Arc<Sample>>,
    history: VecDeque<Point>,
}

/// A sample of a run.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) stats: Stats,
    pub(crate) taken: Instant,
    /// The sample as an event for a stream, made once for all viewers.
    event: OnceLock<String>,
}

impl Sample {
    /// The sample as an event for a stream.
    pub(crate) fn event(&self) -> &str {
        self.event.get_or_init(|| {
            // Its strings are text and its keys are fixed, so JSON takes it. The only line ends in JSON are escaped ones.
            let json = serde_json::to_string(&self.stats).expect("counters are JSON");
            format!("data: {json}\n\n")
        })
    }
}

/// Totals at a past sample: milliseconds since the start of the run; packets received, their bytes, packets forwarded, replied and dropped.
pub(crate) type Point = [u64; 6];

/// Result of a wait for the next sample.
pub(crate) enum Next {
    /// A sample, and its number.
    Sample(u64, Arc<Sample>),
    /// No sample came in time.
    Nothing,
    /// Whoever waits is to stop.
    Over,
}

impl Latest {
    /// No sample yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `stats` the newest sample.
    pub fn set(&self, stats: Stats) {
        let total = stats.total();
        let point =
            [stats.uptime_ms, total.received, total.received_bytes, total.forwarded, total.replied, total.dropped];
        let sample = Arc::new(Sample { stats, taken: Instant::now(), event: OnceLock::new() });
        let mut state = self.state();
        // Another run has begun: its rates have nothing to do with those before.
        if state.history.back().is_some_and(|last| last[0] > point[0]) {
            state.history.clear();
        }
        if state.history.len() == HISTORY_LEN_MAX {
            state.history.pop_front();
        }
        state.history.push_back(point);
        state.number += 1;
        let before = state.sample.replace(sample);
        drop(state);
        self.changed.notify_all();
        // Freed here, where nobody waits for the lock.
        drop(before);
    }

    /// The newest sample; none before the first.
    pub(crate) fn sample(&self) -> Option<Arc<Sample>> {
        self.state().sample.clone()
    }

    /// The totals of past samples and the number of the last of them.
    pub(crate) fn history(&self) -> (u64, Vec<Point>) {
        let state = self.state();
        (state.number, state.history.iter().copied().collect())
    }

    /// Waits for a sample after the one with number `seen`, for some time, or until `is_over` once [`Self::wake`] is called.
    pub(crate) fn next(&self, seen: u64, within: Duration, is_over: impl Fn() -> bool) -> Next {
        let state = self.state();
        let waits = |state: &mut State| !is_over() && (state.number <= seen || state.sample.is_none());
        let waited = self.changed.wait_timeout_while(state, within, waits);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.sample {
            _ if is_over() => Next::Over,
            Some(sample) if !waited.timed_out() => Next::Sample(state.number, Arc::clone(sample)),
            _ => Next::Nothing,
        }
    }

    /// Lets everybody who waits look again whether it is over.
    pub(crate) fn wake(&self) {
        // Under the lock, so that nobody is between looking and waiting.
        let state = self.state();
        self.changed.notify_all();
        drop(state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock; a poisoned one holds a whole state all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime_ms: u64) -> Stats {
        Stats { uptime_ms, ..Stats::default() }
    }

    #[test]
    fn the_history_is_bounded_and_begins_anew_with_a_run() {
        let latest = Latest::new();
        assert!(latest.sample().is_none());
        (0..500).for_each(|second| latest.set(at(second * 1000)));
        let (number, history) = latest.history();
        assert_eq!((number, history.len(), history[120][0]), (500, HISTORY_LEN_MAX, 499_000));
        latest.set(at(7));
        assert_eq!(latest.history(), (501, vec![[7, 0, 0, 0, 0, 0]]));
        assert_eq!(latest.sample().expect("one was set").stats, at(7));
    }

    #[test]
    fn a_wait_ends_with_the_newest_sample_or_as_told() {
        let latest = Latest::new();
        assert!(matches!(latest.next(0, Duration::ZERO, || false), Next::Nothing));
        latest.set(at(1));
        latest.set(at(2));
        assert!(matches!(latest.next(0, Duration::ZERO, || false), Next::Sample(2, sample) if sample.stats == at(2)));
        assert!(matches!(latest.next(2, Duration::ZERO, || false), Next::Nothing));
        assert!(matches!(latest.next(0, Duration::MAX, || true), Next::Over));
    }
}
