//! `millrace rss cards` lists what cards can hash, with sources.

use ::rss::{Card, Driver, Fields, PacketType};
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::shown;
use crate::cli::failure::Failed;
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// List the cards and what they can hash, each fact with its source
#[derive(clap::Args)]
#[command(after_help = "Example:  millrace rss cards ice")]
pub(super) struct Args {
    /// Card to show in full [default: all cards in short]
    #[arg(value_name = "CARD", value_parser = PossibleValuesParser::new(Card::all().iter().map(|card| card.name)))]
    card: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let style = Style::stdout();
    let wanted = |card: &&Card| args.card.as_ref().is_none_or(|name| name == card.name);
    let cards: Vec<&Card> = Card::all().iter().filter(wanted).collect();
    if args.json {
        return print_json(&cards.iter().map(|card| json(card)).collect());
    }
    match (&args.card, cards.as_slice()) {
        (Some(_), [card]) => print(&one(card, style)),
        _ => print(&all(&cards, style)),
    }
}

fn all(cards: &[&Card], style: Style) -> String {
    let mut sheet = Sheet::new(
        style,
        &[
            ("card", Align::Left),
            ("hardware", Align::Left),
            ("key", Align::Right),
            ("table", Align::Left),
            ("fields for each", Align::Left),
            ("symmetric by default", Align::Left),
        ],
    );
    for card in cards {
        sheet.toned([
            (card.name.to_owned(), Tone::Bold),
            (card.hardware.to_owned(), Tone::Plain),
            (format!("{} B", card.key_bytes), Tone::Plain),
            (sizes(card), Tone::Plain),
            (card.fields_scope.name().to_owned(), Tone::Plain),
            (card.symmetry.to_string(), Tone::Plain),
        ]);
    }
    sheet.lines(0)
}

fn one(card: &Card, style: Style) -> String {
    let mut out = format!("{}\n\n", shown::card(card, style));
    let mut sheet =
        Sheet::new(style, &[("driver", Align::Left), ("packets", Align::Left), ("can be hashed", Align::Left)]);
    for driver in Driver::ALL {
        for (kinds, selections) in by_selections(card, driver) {
            sheet.toned([
                (driver.name().to_owned(), Tone::Bold),
                (shown::types(&kinds), Tone::Plain),
                (choice(&selections), Tone::Plain),
            ]);
        }
    }
    out += &sheet.lines(0);
    out += &format!(
        "\nkey: {} bytes for each {}; table: {} entries; fields are chosen for each {}; symmetric by default: {}\n\n",
        card.key_bytes,
        card.key_scope.name(),
        sizes(card),
        card.fields_scope.name(),
        card.symmetry
    );
    for fact in card.facts {
        let mark = if fact.confirmed { String::new() } else { format!("{} ", style.warn("not confirmed:")) };
        out += &format!("{mark}{}\n  {}\n", fact.says, style.dim(fact.source));
    }
    out
}

/// Types that can be hashed by the same fields, together.
fn by_selections(card: &Card, driver: Driver) -> Vec<(Vec<PacketType>, Vec<Fields>)> {
    let mut out: Vec<(Vec<PacketType>, Vec<Fields>)> = Vec::new();
    for kind in PacketType::ALL {
        let selections = card.selections(driver, kind);
        match out.iter_mut().find(|(_, other)| *other == selections) {
            _ if selections.is_empty() => {}
            Some((kinds, _)) => kinds.push(kind),
            None => out.push((vec![kind], selections)),
        }
    }
    out
}

/// Sets of fields in few words: every part of some, where that is what there is.
fn choice(selections: &[Fields]) -> String {
    let all = selections.iter().fold(Fields::NONE, |sum, selection| sum.with(*selection));
    if selections.len() > 2 && selections.len() + 1 == 1 << all.len() {
        return format!("any of {all}");
    }
    let names: Vec<String> = selections.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn sizes(card: &Card) -> String {
    let sizes: Vec<String> = card.table_sizes.iter().map(usize::to_string).collect();
    sizes.join(", ")
}

fn json(card: &Card) -> Value {
    let abilities = Driver::ALL.into_iter().flat_map(|driver| {
        by_selections(card, driver).into_iter().map(move |(kinds, selections)| {
            json!({
                "driver": driver.name(), "packets": kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
                "fields": selections.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
    });
    json!({
        "card": card.name, "hardware": card.hardware, "key_bytes": card.key_bytes, "key_for_each": card.key_scope.name(),
        "key_settable": card.key_settable, "table_sizes": card.table_sizes, "fields_for_each": card.fields_scope.name(),
        "symmetric": card.symmetry.to_string(), "can_hash": abilities.collect::<Vec<_>>(), "facts": shown::facts_json(card),
    })
}
