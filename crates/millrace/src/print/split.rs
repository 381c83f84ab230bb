//! Formats what became of split packets.

use serde_json::{Value, json as value};
use split::{Counts, Relayed};

use super::number::{bytes, count, counted, percent};
use super::style::Style;

/// The counts of a split.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) counts: Counts,
    /// Bytes that the function gets of a packet.
    pub(crate) keep: usize,
    /// Packets between wires and function, if the function is elsewhere.
    pub(crate) relayed: Option<Relayed>,
    /// Stores that don't answer.
    pub(crate) silent: Vec<String>,
}

/// Formats the counts as lines.
pub(crate) fn text(counted_split: &Counted, style: Style) -> String {
    let Counted { counts, keep, relayed, silent } = counted_split;
    let mut out = format!(
        "  {} of {} split behind {keep} bytes; the function got {} of {} ({})\n",
        count(counts.splits),
        counted(counts.packets, "packet", "packets"),
        bytes(counts.bytes_to_function),
        bytes(counts.bytes),
        percent(counts.bytes_to_function, counts.bytes),
    );
    let list = |parts: &[(&str, u64)]| -> String {
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, number)| *number > 0)
            .map(|(what, number)| format!("{} {what}", count(*number)))
            .collect();
        parts.join(", ")
    };
    let whole = list(&[
        ("hardly longer than that", counts.too_short),
        ("with longer headers or payloads, or neither plain TCP nor UDP", counts.other),
        ("without a free slot or a store", counts.occupied),
    ]);
    if !whole.is_empty() {
        out += &format!("  whole: {whole}\n");
    }
    let back = list(&[
        ("joined", counts.joins),
        ("joined as copies", counts.copies),
        ("released", counts.released),
        ("given up for others", counts.evicted),
        ("still parked", counts.parked),
    ]);
    if !back.is_empty() {
        out += &format!("  payloads: {back}\n");
    }
    let lost = list(&[
        ("whose payload was joined or released before", counts.missed),
        ("too late", counts.late),
        ("with a wrong generation", counts.wrong_generation),
        ("damaged", counts.damaged),
        ("without room for their payload", counts.unfit),
        ("whose payload a store lost", counts.lost),
    ]);
    if !lost.is_empty() {
        out += &format!("  {}\n", style.warn(format!("headers dropped: {lost}")));
    }
    if let Some(relayed) = relayed {
        out += &format!(
            "  {} from wires, {} from the function, {} unsent\n",
            counted(relayed.from_wires, "packet", "packets"),
            count(relayed.from_function),
            count(relayed.unsent)
        );
    }
    if !silent.is_empty() {
        out += &format!("  {}\n", style.warn(format!("without answer at the end: {}", silent.join(", "))));
    }
    out
}

/// The counts as JSON.
pub(crate) fn json(split: &Counted) -> Value {
    let Counted { counts, keep, relayed, silent } = split;
    value!({
        "keep": keep, "packets": counts.packets, "bytes": counts.bytes, "bytes_to_function": counts.bytes_to_function,
        "splits": counts.splits, "too_short": counts.too_short, "other": counts.other, "occupied": counts.occupied,
        "joins": counts.joins, "copies": counts.copies, "released": counts.released, "evicted": counts.evicted,
        "parked": counts.parked, "missed": counts.missed, "late": counts.late,
        "wrong_generation": counts.wrong_generation, "damaged": counts.damaged, "unfit": counts.unfit,
        "lost": counts.lost, "plain": counts.plain, "balances": counts.balance(), "silent_stores": silent,
        "relayed": relayed.as_ref().map(|relayed| value!({
            "from_wires": relayed.from_wires, "from_function": relayed.from_function, "unsent": relayed.unsent,
        })),
    })
}
