//! Formats the counts of fragments.

use std::path::Path;

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

/// A note on the dropped fragments, which are not among the packets that `--dropped` and `--sources` list.
pub(crate) fn not_listed(counts: &Counts, file: Option<&Path>) -> Option<String> {
    let dropped = counts.dropped_total();
    let place = file.map_or("the list of sources".to_owned(), |file| file.display().to_string());
    let (fragments, are) =
        (counted(dropped, "dropped fragment", "dropped fragments"), if dropped == 1 { "is" } else { "are" });
    (dropped > 0).then(|| {
        format!(
            "{fragments} {are} not in {place}: they are dropped before the function sees them \
             (docs/decisions/0033-fragments.md); --defragment off shows each to the function"
        )
    })
}

/// The counts of fragments as JSON.
pub(crate) fn json(policy: Policy, counts: &Counts) -> Value {
    let drops: Map<String, Value> =
        counts.drops().map(|(reason, number)| (reason.name().to_owned(), number.into())).collect();
    json!({
        "policy": policy.name(), "received": counts.fragments, "gathered": counts.gathered,
        "datagrams": counts.datagrams, "dropped": counts.dropped_total(), "drops": drops,
    })
}
