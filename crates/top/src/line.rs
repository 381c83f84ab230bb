//! A sample as a line of text, for logs and pipes.

use daemon::Stats;

use crate::number::{bps, load, percent, plain, pps, span, time};
use crate::rates::Rates;

/// A line about what happened between two samples, without its end. A part that the run doesn't have is left out.
#[must_use]
pub fn line(previous: &Stats, now: &Stats) -> String {
    let up = span(now.uptime_ms);
    let Some(rates) = Rates::between(previous, now) else { return format!("{up}  no rates: another run has begun") };
    let mut parts = vec![
        up,
        format!("received {}, {}", pps(rates.received), bps(rates.bits)),
        format!("forwarded {}", pps(rates.forwarded)),
    ];
    if rates.replied > 0.0 {
        parts.push(format!("replied {}", pps(rates.replied)));
    }
    let reasons: Vec<String> = now
        .dropped
        .iter()
        .zip(&rates.dropped_by)
        .filter(|(_, rate)| **rate > 0.0)
        .map(|(dropped, rate)| format!("{} {}", plain(&dropped.reason), pps(*rate)))
        .collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    parts.push(format!("dropped {}{reasons}", pps(rates.dropped)));
    if !rates.cores.is_empty() {
        let loads: Vec<String> = rates.cores.iter().map(|(core, _)| load(Some(*core))).collect();
        let imbalance = rates.imbalance().filter(|_| loads.len() > 1);
        let imbalance = imbalance.map(|imbalance| format!(", imbalance {imbalance:.2}")).unwrap_or_default();
        parts.push(format!("load {}{imbalance}", loads.join(" ")));
    }
    if now.flows_max > 0 {
        parts.push(format!("flows {} ({})", now.flows, percent(now.flows as f64, now.flows_max as f64)));
    }
    if let Some((committed, aborted)) = rates.transactions {
        parts.push(format!("aborts {}", percent(aborted, committed + aborted)));
    }
    if let Some(latency) = now.latency.filter(|latency| latency.packets > 0) {
        parts.push(format!("latency p50 {}, p99 {}", time(latency.p50_ns), time(latency.p99_ns)));
    }
    if let Some(core) = now.stalled {
        parts.push(format!("core {core} stalls"));
    }
    parts.join("  ")
}
