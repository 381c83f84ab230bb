//! Figures of the page that are computed from those of the runs.

use serde_json::Value;

/// Rates with so many sessions at a time, in Mpps.
pub(super) struct Connections {
    pub(super) one: f64,
    pub(super) two: Option<f64>,
    pub(super) three: f64,
    /// The state of a session, in bytes.
    pub(super) bytes: f64,
}

/// The rate of a pipeline with two ways that is cut before parsing, in Mpps: from the rate of one core, and nanoseconds a packet for the stages
/// ahead, for steering, and for the queue.
pub(super) fn two_ways(one_core_mpps: f64, ahead_ns: f64, steer_ns: f64, queue_ns: f64) -> f64 {
    let behind_ns = (1e3 / one_core_mpps - ahead_ns).max(0.0);
    1e3 / ((ahead_ns + steer_ns).max(behind_ns / 2.0) + queue_ns)
}

/// By how much each figure differs from the one before it, in percent.
pub(super) fn changes(figures: &[Option<f64>]) -> Vec<Option<f64>> {
    let pairs = figures.windows(2).map(|pair| Some((pair[1]? / pair[0]? - 1.0) * 100.0));
    std::iter::once(None).chain(pairs).collect()
}

/// The sessions of each of these applications, then of all others that have a name, then of those without. Sessions without payload, which
/// nobody could name, are not counted.
pub(super) fn applications(sessions: &[Value], names: &[&str]) -> Vec<u64> {
    let mut counts = vec![0; names.len() + 2];
    for session in sessions.iter().filter(|session| session["payloads"].as_u64() > Some(0)) {
        let place = match session["application"].as_str() {
            Some(name) => names.iter().position(|one| *one == name).unwrap_or(names.len()),
            None => names.len() + 1,
        };
        counts[place] += 1;
    }
    counts
}

/// The mean number of payloads until a session was told, of those that were; `None` if none was.
pub(super) fn payloads_until_told(sessions: &[Value]) -> Option<f64> {
    let told = sessions.iter().filter(|session| session["application"].is_string());
    let payloads: Vec<f64> = told.filter_map(|session| session["payloads"].as_f64()).collect();
    (!payloads.is_empty()).then(|| payloads.iter().sum::<f64>() / payloads.len() as f64)
}

/// The highest modelled rate of a pipeline that `run` has, on so many cores.
pub(super) fn best(cuts: &[Value], cores: usize) -> Option<f64> {
    let has = cuts.iter().filter(|cut| cut["cores"].as_u64() == Some(cores as u64) && !cut["options"].is_null());
    has.filter_map(|cut| cut["mpps"].as_f64()).max_by(f64::total_cmp)
}
