//! Formats the counts of fragments.

use l7::defrag::{Counts, Policy};
use serde_json::{Map, Value, json};

use super::number::{count, counted};

/// What became of fragments, in a line.
pub(crate) fn told(counts: &Counts) -> String {
    let fragments = counted(counts.fragments, "fragment", "fragments");
    let datagrams = counted(counts.datagrams, "datagram", "datagrams");
    let mut out = format!("{fragments}: {} gathered into {datagrams}", count(counts.gathered));
    let drops: Vec<String> =
        counts.drops().map(|(reason, number)| format!("{} {}", reason.name(), count(number))).collect();
    if !drops.is_empty() {
        out += &format!(", {} dropped ({})", count(counts.dropped_total()), drops.join(", "));
    }
    out
}

/// The same as JSON.
pub(crate) fn json(policy: Policy, counts: &Counts) -> Value {
    let drops: Map<String, Value> =
        counts.drops().map(|(reason, number)| (reason.name().to_owned(), number.into())).collect();
    json!({
        "policy": policy.name(), "received": counts.fragments, "gathered": counts.gathered,
        "datagrams": counts.datagrams, "dropped": counts.dropped_total(), "drops": drops,
    })
}
