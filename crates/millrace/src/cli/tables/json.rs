//! Formats the result of a table bench as JSON.

use lab::tables::{Clump, Expiring, OWN_BYTES, Resident, Scaling, Tail};
use lab::{Basis, Spread};
use serde_json::{Value, json};

use super::bench::Measured;

pub(super) fn measured(measured: &Measured) -> Value {
    let Measured { bench, plan, clock, entries, source, again, processor } = measured;
    let cycles = |ns: f64| clock.cycles(ns);
    let resident = |row: &Resident| {
        json!({
            "table": row.table.name(), "op": row.op.name(), "load": row.load_percent / 100.0,
            "in_turn_with_load": row.turn_percent as f64 / 100.0, "ns": spread(&row.ns),
            "mops": rate(&row.ns), "cycles": cycles(row.ns.median), "bytes_per_entry": row.bytes_per_entry,
            "offered": row.offered, "inserted": row.inserted, "insert_success": row.inserted as f64 / row.offered as f64,
            "hits": row.hits, "latency_ns_in_bursts": tail(row.bursts), "latency_ns_alone": tail(row.singles),
        })
    };
    let expiring = |row: &Expiring| {
        json!({
            "table": row.table.name(), "op": "expire", "ageing": row.ageing.name(), "load": row.load_percent as f64 / 100.0,
            "ns": spread(&row.ns), "mops": rate(&row.ns), "cycles": cycles(row.ns.median),
            "evicted_share": row.evicted_percent / 100.0, "evicted_alive_share": row.early_percent / 100.0,
            "refused_share": row.refused_percent / 100.0,
            "latency_ns_in_bursts": tail(row.bursts), "latency_ns_alone": tail(row.singles),
        })
    };
    let clump = |row: &Clump| {
        json!({
            "table": row.table.name(), "ageing": row.ageing.map(|ageing| ageing.name()), "flows": row.flows,
            "packets_timed": row.packets, "before_ns": tail(Some(row.quiet)), "after_ns": tail(Some(row.after)),
            "worst_before_ns": spread(&row.quiet_worst), "worst_after_ns": spread(&row.after_worst),
            "clean_after_packets": row.clean_after,
        })
    };
    let scaling = |row: &Scaling| {
        json!({
            "table": row.table.name(), "sharing": row.sharing.name(), "op": row.op.name(), "cores": row.cores,
            "load": plan.scaling_load() as f64 / 100.0, "mops": spread(&row.mops), "basis": basis(row.basis),
        })
    };
    json!({
        "command": again, "source": source, "entries": entries, "own_bytes_per_entry": OWN_BYTES,
        "rounds": plan.rounds, "round_packets": plan.round_packets, "lifetime_s": plan.lifetime.as_secs_f64(),
        "processor": processor, "clock": { "ghz": clock.ghz, "reading_ns": clock.reading_ns },
        "rows": bench.resident.iter().map(resident).collect::<Vec<_>>(),
        "expire": bench.expiring.iter().map(expiring).collect::<Vec<_>>(),
        "burst_expiry": bench.clumps.iter().map(clump).collect::<Vec<_>>(),
        "scaling": bench.scaling.iter().map(scaling).collect::<Vec<_>>(),
        "interrupted": bench.interrupted,
    })
}

pub(super) const fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Modelled => "modelled",
    }
}

/// Converts nanoseconds per packet to millions of packets a second.
pub(super) const fn mops(ns: f64) -> f64 {
    1e3 / ns
}

fn spread(spread: &Spread) -> Value {
    json!({ "min": spread.min, "median": spread.median, "max": spread.max })
}

fn rate(ns: &Spread) -> Value {
    json!({ "min": mops(ns.max), "median": mops(ns.median), "max": mops(ns.min) })
}

fn tail(tail: Option<Tail>) -> Value {
    tail.map_or(
        Value::Null,
        |Tail { p50, p99, p999, max }| json!({ "p50": p50, "p99": p99, "p99.9": p999, "max": max }),
    )
}
