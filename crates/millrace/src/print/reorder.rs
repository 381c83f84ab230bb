//! Formats the counts of packets that were held.

use packet::Nanos;
use port::ReorderCounts;
use serde_json::{Map, Value, json};

use super::number::{count, counted, percent, time};

/// Formats the counts as lines.
pub(crate) fn told(delay: Nanos, counts: &ReorderCounts) -> Vec<String> {
    let ReorderCounts { received, bursts, burst_max, held_ns_max, left, .. } = *counts;
    let released = counts.held() - left;
    let unheld: Vec<String> =
        counts.unheld().map(|(why, number)| format!("{} {}", count(number), why.name())).collect();
    let causes: Vec<String> =
        counts.released().map(|(cause, number)| format!("{} {}", count(number), cause.name())).collect();
    let mut lines = vec![format!(
        "held for at most {}: {} ({}), in {} of {:.1} on average and {} at most",
        time(delay.0 as f64),
        counted(counts.held(), "packet", "packets"),
        percent(counts.held(), received),
        counted(bursts, "burst", "bursts"),
        mean(released, bursts),
        count(burst_max),
    )];
    if !causes.is_empty() {
        lines.push(format!("  released by {}", causes.join(", ")));
    }
    if !unheld.is_empty() {
        lines.push(format!("  not held: {}", unheld.join(", ")));
    }
    lines.push(format!(
        "  packets of a connection in a row: {:.2} before, {:.2} after; {} more for each packet on average, {} at most",
        mean(received, counts.runs_before),
        mean(received - left, counts.runs_after),
        time(mean(counts.held_ns, received)),
        time(held_ns_max as f64),
    ));
    if left > 0 {
        lines.push(format!(
            "  {} still held when the run was stopped; the function has not seen them",
            counted(left, "packet was", "packets were")
        ));
    }
    lines
}

/// The counts as JSON.
pub(crate) fn json(delay: Nanos, counts: &ReorderCounts) -> Value {
    let unheld: Map<String, Value> =
        counts.unheld().map(|(why, number)| (why.name().to_owned(), number.into())).collect();
    let released: Map<String, Value> =
        counts.released().map(|(cause, number)| (cause.name().to_owned(), number.into())).collect();
    let ReorderCounts { received, bursts, burst_max, held_ns, held_ns_max, runs_before, runs_after, left, .. } =
        *counts;
    json!({
        "delay_ns": delay.0, "received": received, "held": counts.held(), "released": released, "not_held": unheld,
        "bursts": bursts, "burst_max": burst_max, "burst_mean": mean(counts.held() - left, bursts),
        "runs_before": runs_before, "runs_after": runs_after,
        "held_ns_mean": mean(held_ns, received), "held_ns_max": held_ns_max, "left": left,
    })
}

fn mean(sum: u64, number: u64) -> f64 {
    sum as f64 / number.max(1) as f64
}
