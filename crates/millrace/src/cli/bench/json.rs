//! Formats the result of a bench as JSON.

use lab::{Basis, Bench, Delay, LossFree, Prediction, Rounds, Row, Sequencing, Spread, SweepPoint, Work};
use serde_json::{Value, json};

use super::{Benched, huge_share};
use crate::cli::engines::{command, processor};

pub(super) fn benched(benched: &Benched<'_>) -> Value {
    let Benched { description, name, trace, bench, loss_free } = benched;
    let refused: Vec<Value> = bench
        .refused
        .iter()
        .map(|(engine, cores, reason)| json!({ "engine": engine.name(), "cores": cores, "reason": reason }))
        .collect();
    let plan = loss_free.map(|plan| {
        json!({
            "loss_threshold": plan.threshold, "resolution_mpps": plan.resolution_mpps, "trial_s": plan.trial.as_secs_f64(),
            "warm_up_s": plan.warm_up.as_secs_f64(), "attempts": plan.attempts, "descriptors": plan.descriptors,
        })
    });
    json!({
        "function": description.name, "input": name, "packets": trace.len(), "rows": rows(bench), "refused": refused,
        "model_ns": model(bench), "scr_by_model": predictions(&bench.predictions), "sharded_by_model": predictions(&bench.sharded),
        "replay_percent": bench.replays.iter().map(|(cores, percent)| json!({ "cores": cores, "percent": percent })).collect::<Vec<_>>(), "dispatch_added": work(bench.dispatch), "loss_free_plan": plan,
        "software_sequencer": bench.sequencing.as_ref().map(sequencing),
        "bytes_per_flow": bench.bytes_per_flow, "startup_s": bench.startup.as_secs_f64(), "huge_pages_share": huge_share(bench),
        "processor": processor(), "command": command(),
    })
}

pub(super) fn swept(name: &str, points: &[SweepPoint]) -> Value {
    let point = |point: &SweepPoint| {
        let bench = &point.bench;
        json!({
            "compute": work(point.compute), "rows": rows(bench), "model_ns": model(bench), "scr_by_model": predictions(&bench.predictions),
            "dispatch_added": work(bench.dispatch),
        })
    };
    json!({
        "function": "compute", "input": name, "points": points.iter().map(point).collect::<Vec<_>>(),
        "processor": processor(), "command": command(),
    })
}

fn rows(bench: &Bench) -> Vec<Value> {
    let row = |row: &Row| {
        json!({
            "engine": row.engine.name(), "cores": row.cores, "mpps": spread(&row.mpps),
            "ns_per_packet_per_core": spread(&row.ns_per_packet_per_core), "basis": basis(row.basis), "rounds": rounds(row.rounds),
            "implausible_times_linear": bench.implausible(row),
            "dispatch_added_ns": bench.dispatch.asked_ns, "loss_free": row.loss_free.as_ref().map(loss_free),
            "latency": row.delays.as_ref().map(delays),
        })
    };
    bench.rows.iter().map(row).collect()
}

pub(super) fn rounds(rounds: Rounds) -> Value {
    let Rounds { run, disturbed, counted, only_undisturbed, worst } = rounds;
    json!({
        "run": run, "disturbed": disturbed, "counted": counted, "only_undisturbed": only_undisturbed, "gauge_worst_times": worst,
    })
}

fn delays(delays: &Result<Vec<Delay>, String>) -> Value {
    let of = |one: &Delay| {
        let Delay { load, mpps, packets, p50, p99, p999, worst, lost } = one;
        let nanos = |time: &std::time::Duration| time.as_nanos() as u64;
        json!({
            "load": load, "mpps": mpps, "packets": packets, "p50_ns": nanos(p50), "p99_ns": nanos(p99), "p999_ns": nanos(p999),
            "worst_ns": nanos(worst), "lost_share": lost,
        })
    };
    match delays {
        Ok(delays) => Value::from(delays.iter().map(of).collect::<Vec<_>>()),
        Err(reason) => json!({ "not_measured": reason }),
    }
}

fn loss_free(found: &Result<LossFree, String>) -> Value {
    match found {
        Ok(LossFree { mpps, received_mpps, loss, trials }) => json!({
            "mpps": found_rate(mpps), "received_mpps": found_rate(received_mpps), "lost_share": (mpps.median > 0.0).then(|| spread(loss)),
            "trials": trials,
        }),
        Err(reason) => json!({ "not_offered": reason }),
    }
}

/// Rates that passed; `null` for a search in which none passed.
fn found_rate(Spread { min, median, max }: &Spread) -> Value {
    let [min, median, max] = [min, median, max].map(|rate| Some(*rate).filter(|rate| *rate > 0.0));
    json!({ "min": min, "median": median, "max": max })
}

fn model(bench: &Bench) -> Value {
    let model = &bench.model;
    json!({ "t": model.t, "d": model.d, "c1": model.c1, "c2": model.c2, "s": model.s, "r": model.r.here_ns, "r_beyond": model.r.beyond_ns })
}

fn predictions(predictions: &[Prediction]) -> Vec<Value> {
    let prediction = |Prediction { engine, cores, mpps, beside }: &Prediction| {
        let beside = beside.map(|beside| {
            json!({ "mpps": beside.mpps, "basis": basis(beside.basis), "error_percent": beside.error_percent })
        });
        json!({ "engine": engine.name(), "cores": cores, "mpps": mpps, "basis": "modelled", "beside": beside })
    };
    predictions.iter().map(prediction).collect()
}

pub(super) fn sequencing(sequencing: &Sequencing) -> Value {
    let Sequencing { cores, log_mpps, piggyback_mpps, piggyback_bytes } = sequencing;
    json!({
        "cores": cores, "basis": "measured", "shared_log_mpps": spread(log_mpps), "piggyback_mpps": spread(piggyback_mpps),
        "piggyback_bytes": piggyback_bytes,
    })
}

pub(super) fn work(work: Work) -> Value {
    json!({ "asked_ns": work.asked_ns, "calibrated_ns": work.takes_ns })
}

const fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Modelled => "modelled",
    }
}

pub(in crate::cli) fn spread(spread: &Spread) -> Value {
    json!({ "min": spread.min, "median": spread.median, "max": spread.max })
}
