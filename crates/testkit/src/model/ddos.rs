//! The model of `ddos`.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq};

use super::{Fate, Model};

/// Stores the times of all packets of every source.
#[derive(Clone, Debug)]
pub struct DdosModel {
    threshold: usize,
    window_secs: u64,
    idle_secs: u64,
    /// Each source's packets since it became known, by window.
    sources: HashMap<IpAddr, Vec<Vec<u64>>>,
}

impl DdosModel {
    /// Creates a model with these parameters, as in the configuration file.
    #[must_use]
    pub fn new(threshold: usize, window_secs: u64, idle_secs: u64) -> Self {
        Self { threshold, window_secs, idle_secs, sources: HashMap::new() }
    }
}

impl Model for DdosModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let Some((source, _)) = headers.addresses() else { return Fate::FORWARD };
        let windows = self.sources.entry(source).or_default();
        let last = windows.last().and_then(|window| window.last()).copied();
        let silence = 1_000_000_000 * self.idle_secs.max(self.window_secs);
        if last.is_some_and(|last| now.0 - last >= silence) {
            windows.clear();
        }
        let inside = match windows.last() {
            Some(window) => self.window_secs == 0 || now.0 < window[0] + 1_000_000_000 * self.window_secs,
            None => false,
        };
        if !inside {
            windows.push(Vec::new());
        }
        let window = windows.last_mut().expect("one was pushed if there was none");
        window.push(now.0);
        if window.len() > self.threshold { Fate::Drop("over-threshold") } else { Fate::FORWARD }
    }
}
