//! Formats packet types, cards and proofs.

use ::rss::{Card, Fact, Family, PacketType, Proof, Relaxation, Vary};
use serde_json::{Value, json};

use crate::print::style::Style;

/// Packet types in short form.
pub(super) fn types(kinds: &[PacketType]) -> String {
    let of = |family: Family| PacketType::ALL.into_iter().filter(move |kind| kind.family() == family);
    let all = |family: Family| of(family).all(|kind| kinds.contains(&kind));
    let rest = |family: Family| of(family).filter(|kind| kinds.contains(kind)).map(|kind| kind.name().to_owned());
    let mut out = Vec::new();
    match (all(Family::V4), all(Family::V6)) {
        (true, true) => out.push("all IP".to_owned()),
        (v4, v6) => {
            for (whole, family, name) in [(v4, Family::V4, "all IPv4"), (v6, Family::V6, "all IPv6")] {
                if whole {
                    out.push(name.to_owned());
                } else {
                    out.extend(rest(family));
                }
            }
        }
    }
    out.extend(rest(Family::Link));
    out.join(" ")
}

/// A card's name and hardware.
pub(super) fn card(card: &Card, style: Style) -> String {
    format!("{} ({})", style.bold(card.name), card.hardware)
}

/// The assumptions about a card that have no source, one per line.
pub(super) fn not_confirmed(card: &Card, style: Style) -> String {
    let guesses: Vec<&Fact> = card.facts.iter().filter(|fact| !fact.confirmed).collect();
    if guesses.is_empty() {
        return String::new();
    }
    let mut out = format!("\nnot confirmed of {} (`millrace rss cards {}` has the sources):\n", card.name, card.name);
    for fact in guesses {
        out += &format!("  {}\n", style.dim(fact.says));
    }
    out
}

pub(super) fn facts_json(card: &Card) -> Value {
    let fact = |fact: &Fact| json!({ "says": fact.says, "source": fact.source, "confirmed": fact.confirmed });
    card.facts.iter().map(fact).collect()
}

pub(super) fn proof_json(proof: &Proof) -> Value {
    let forced = proof.forced.iter().map(|forced| {
        json!({
            "port": forced.port, "first_bit": forced.bits.start, "last_bit": forced.bits.end - 1, "because": forced.steps,
        })
    });
    json!({
        "port": proof.port, "packets": proof.kind.name(), "consequence": proof.consequence,
        "zero_key_bits": forced.collect::<Vec<_>>(),
    })
}

/// A relaxation, with the arguments for it.
pub(super) fn relaxation(relaxation: &Relaxation, vary: Vary, driver: ::rss::Driver) -> (String, String) {
    let mut arguments = Vec::new();
    if relaxation.driver != driver {
        arguments.push(format!("--driver {}", relaxation.driver));
    }
    if let Some(types) = &relaxation.types {
        let names: Vec<&str> = types.iter().map(|kind| kind.name()).collect();
        arguments.push(format!("--types {}", names.join(",")));
    }
    if relaxation.vary != vary {
        arguments.push(format!("--vary-ipv4 {} --vary-ipv6 {}", relaxation.vary.ipv4, relaxation.vary.ipv6));
    }
    if !relaxation.one_card {
        arguments.push("--separate-cards".to_owned());
    }
    (relaxation.says.clone(), arguments.join(" "))
}
