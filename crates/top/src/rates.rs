//! Rates between two samples.

use std::collections::HashMap;

use daemon::{Core, Stats};

/// Rates between two samples of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) received: f64,
    pub(crate) bits: f64,
    pub(crate) forwarded: f64,
    pub(crate) replied: f64,
    pub(crate) dropped: f64,
    pub(crate) opened: f64,
    /// Transactions committed and attempts aborted; none for an engine without them.
    pub(crate) transactions: Option<(f64, f64)>,
    /// Each core's load, from 0 to 1, and the packets that it received.
    pub(crate) cores: Vec<(f64, f64)>,
    /// Packets dropped, by reason: in the order of the sample.
    pub(crate) dropped_by: Vec<f64>,
    /// Counters of interfaces, in the order of the sample.
    pub(crate) interfaces: Vec<Vec<f64>>,
}

impl Rates {
    /// The rates; none if no time has passed, or another run has begun.
    pub(crate) fn between(before: &Stats, now: &Stats) -> Option<Self> {
        let ms = now.uptime_ms.checked_sub(before.uptime_ms).filter(|ms| *ms > 0)?;
        let per_second = |before: u64, now: u64| now.saturating_sub(before) as f64 * 1000.0 / ms as f64;
        let all = |field: fn(&Core) -> u64| {
            let sum = |stats: &Stats| stats.cores.iter().map(field).fold(0, u64::saturating_add);
            per_second(sum(before), sum(now))
        };
        let no_core = Core::default();
        let core = |(number, core): (usize, &Core)| {
            let former = before.cores.get(number).unwrap_or(&no_core);
            let idle = per_second(former.idle_ns, core.idle_ns) / 1e9;
            ((1.0 - idle).clamp(0.0, 1.0), per_second(former.received, core.received))
        };
        let former: HashMap<&str, u64> =
            before.dropped.iter().map(|dropped| (dropped.reason.as_str(), dropped.packets)).collect();
        let counters: HashMap<(&str, &str), u64> = before
            .interfaces
            .iter()
            .flat_map(|interface| {
                interface
                    .counters
                    .iter()
                    .map(|(counter, packets)| ((interface.name.as_str(), counter.as_str()), *packets))
            })
            .collect();
        let dropped = now.dropped.iter();
        let interfaces = now.interfaces.iter().map(|interface| {
            let rate = |(counter, packets): &(String, u64)| {
                let former = counters.get(&(interface.name.as_str(), counter.as_str()));
                // A counter that is new began at an unknown time.
                former.map_or(0.0, |former| per_second(*former, *packets))
            };
            interface.counters.iter().map(rate).collect()
        });
        Some(Self {
            received: all(|core| core.received),
            bits: all(|core| core.received_bytes) * 8.0,
            forwarded: all(|core| core.forwarded),
            replied: all(|core| core.replied),
            dropped: all(|core| core.dropped),
            opened: per_second(before.flows_opened, now.flows_opened),
            transactions: now.transactions.map(|now| {
                let before = before.transactions.unwrap_or_default();
                (per_second(before.committed, now.committed), per_second(before.aborted, now.aborted))
            }),
            cores: now.cores.iter().enumerate().map(core).collect(),
            dropped_by: dropped
                // A reason that is new occurred for the first time.
                .map(|dropped| per_second(former.get(dropped.reason.as_str()).copied().unwrap_or(0), dropped.packets))
                .collect(),
            interfaces: interfaces.collect(),
        })
    }

    /// The highest load over the mean; none for a run without load.
    pub(crate) fn imbalance(&self) -> Option<f64> {
        let highest = self.cores.iter().map(|(load, _)| *load).fold(0.0, f64::max);
        let mean = self.cores.iter().map(|(load, _)| load).sum::<f64>() / self.cores.len() as f64;
        (mean > 0.0).then(|| highest / mean)
    }
}

#[cfg(test)]
mod tests {
    use daemon::Dropped;

    use super::*;

    #[test]
    fn counters_become_rates() {
        let sample = |uptime_ms, received, idle_ns| Stats {
            uptime_ms,
            cores: vec![Core { received, received_bytes: received * 100, idle_ns, ..Core::default() }; 2],
            dropped: vec![Dropped { reason: "full".to_owned(), packets: received / 2 }],
            ..Stats::default()
        };
        let rates = Rates::between(&sample(1000, 100, 0), &sample(1500, 600, 125_000_000)).expect("time has passed");
        assert_eq!((rates.received, rates.bits), (2000.0, 1_600_000.0));
        assert_eq!(rates.cores, [(0.75, 1000.0); 2]);
        assert_eq!((rates.dropped_by.as_slice(), rates.imbalance()), ([500.0].as_slice(), Some(1.0)));
        assert_eq!(Rates::between(&sample(5, 1, 1), &sample(5, 1, 1)), None);
        assert_eq!(Rates::between(&sample(5, 1, 1), &sample(4, 1, 1)), None);
        // Counters that went back, as no run's do, are no rates below zero.
        let back = Rates::between(&sample(1, 9, 9), &sample(2, 1, 1)).expect("time has passed");
        assert_eq!((back.received, back.cores[0].0), (0.0, 1.0));
    }
}
