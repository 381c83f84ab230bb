//! `millrace functions` lists the catalogue.

use engine::EngineKind;
use nf::{ConfigKey, Description, Sizing};
use serde_json::{Value, json};

use super::failure::Failed;
use super::{CHAIN, entry};
use crate::print::number::{count, counted};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::config::Settings;
use catalogue::{Catalogue, CatalogueEntry};

/// List the network functions, or describe one
///
/// Without a name: what each function does and which engines support it. With a name: its packet set, its state, its configuration keys
/// with defaults, its drop reasons, and why an engine refuses it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  millrace functions\n  millrace functions nat")]
pub(super) struct Args {
    /// Function to describe
    #[arg(value_name = "FUNCTION")]
    function: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    match &args.function {
        Some(name) => {
            let entry = entry(catalogue, name)?;
            if name == CHAIN {
                let facts =
                    json!({ "name": name, "summary": entry.description().summary, "keys": keys(entry.description()) });
                return if args.json { print_json(&facts) } else { print(&chain_page(entry.description())) };
            }
            if args.json { print_json(&facts(entry)?) } else { print(&page(entry)?) }
        }
        None if args.json => {
            let all: Result<Vec<Value>, Failed> = catalogue.entries().iter().map(facts).collect();
            print_json(&Value::Array(all?))
        }
        None => print(&list(catalogue)?),
    }
}

fn list(catalogue: &Catalogue) -> Result<String, Failed> {
    let style = Style::stdout();
    let columns = [("function", Align::Left), ("packet set", Align::Left), ("engines", Align::Left), ("", Align::Left)];
    let mut sheet = Sheet::new(style, &columns);
    for entry in catalogue.entries() {
        let description = entry.description();
        let packet_set = entry.load(&Settings::default())?.packet_set().to_string();
        sheet.toned([
            (description.name, Tone::Bold),
            (&packet_set, Tone::Plain),
            (&engines(description), Tone::Plain),
            (description.summary, Tone::Plain),
        ]);
    }
    let more = style.dim(
        "`millrace functions NAME` describes one: state, configuration, drop reasons, engines.\n\
         `millrace run --chain firewall,nat ...` runs several as one; see `millrace functions chain`.",
    );
    Ok(format!("{}\n{more}\n", sheet.lines(0)))
}

/// The engines that support the function on several cores.
fn engines(description: &Description) -> String {
    let refused = |kind: &EngineKind| *kind != EngineKind::Sequential && kind.accepts(description, 2).is_err();
    if EngineKind::ALL.iter().any(refused) {
        let taking = EngineKind::ALL.into_iter().filter(|kind| !refused(kind));
        taking.map(EngineKind::name).collect::<Vec<_>>().join(", ")
    } else {
        "all".to_owned()
    }
}

fn page(entry: &CatalogueEntry) -> Result<String, Failed> {
    let style = Style::stdout();
    let description = entry.description();
    let program = entry.load(&Settings::default())?;
    let sizing = program.sizing();
    let mut out = format!("{}: {}\n\n", style.bold(description.name), description.summary);
    let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Left)]);
    let shares = description.sharing.what().unwrap_or("nothing");
    let room = room(sizing, program.keeps_flows());
    for (name, text) in [
        ("packet set", program.packet_set().to_string().as_str()),
        ("state of one", description.state),
        ("shared by all", shares),
        ("room for", &room),
    ] {
        sheet.toned([(name, Tone::Dim), (text, Tone::Plain)]);
    }
    out += &sheet.lines(2);

    out += &configuration(description, style);

    out += &format!("\n{}\n  ", style.bold("Drop reasons"));
    out += &if description.drop_reasons.is_empty() { "none".to_owned() } else { description.drop_reasons.join(", ") };

    out += &format!("\n\n{}\n", style.bold("Engines"));
    let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Left)]);
    for kind in EngineKind::ALL {
        match refusal(kind, description) {
            None => sheet
                .toned([(kind.name(), Tone::Good), (&kind.guarantee(description.sharing).to_string(), Tone::Plain)]),
            Some(reason) => sheet.toned([(kind.name(), Tone::Warn), (&reason, Tone::Plain)]),
        }
    }
    out += &sheet.lines(2);
    let example = format!("millrace run {} --in a.pcap --out b.pcap", description.name);
    out += &format!("\n{}\n", style.dim(example));
    Ok(out)
}

/// The section on the keys of the configuration.
fn configuration(description: &Description, style: Style) -> String {
    let mut out = format!("\n{}\n", style.bold("Configuration"));
    if description.keys.is_empty() {
        return out + "  none\n";
    }
    let mut sheet = Sheet::new(style, &[("key", Align::Left), ("default", Align::Left), ("", Align::Left)]);
    for ConfigKey { name, default, help } in description.keys {
        // A long list would push later columns off the screen.
        match default.len() {
            ..=DEFAULT_MAX => sheet.row([*name, *default, *help]),
            _ => sheet.row([*name, "", &format!("{help}; by default {default}")]),
        }
    }
    out += &sheet.lines(2);
    out
}

/// The page on chains. The rest of what other pages tell depends on the functions of a chain.
fn chain_page(description: &Description) -> String {
    let style = Style::stdout();
    let mut out = format!("{}: {}\n", style.bold(description.name), description.summary);
    out += &configuration(description, style);
    out += "\nPacket sets, drop reasons and engines are those of its functions. `check` tells which functions keep their flows together.\n";
    let examples = ["check --chain firewall,nat", "run --chain firewall,nat --in a.pcap --out b.pcap"];
    examples.iter().for_each(|example| out += &format!("\n{}", style.dim(format!("millrace {example}"))));
    out + "\n"
}

/// Maximum length of a default in a column of its own.
const DEFAULT_MAX: usize = 32;

/// Number of packet sets that it keeps state for, as text.
fn room(Sizing { flows, flows_v6 }: Sizing, keeps_flows: bool) -> String {
    match (keeps_flows, flows_v6) {
        (false, _) => "none: it has no flow table; its keys set the sizes".to_owned(),
        // Its keys are of one form.
        (true, 0) => counted(flows as u64, "packet set", "packet sets"),
        (true, _) => format!("{} IPv4 and {} IPv6 packet sets", count(flows as u64), count(flows_v6 as u64)),
    }
}

/// Why the engine refuses the function, on one core or on two.
fn refusal(kind: EngineKind, description: &Description) -> Option<String> {
    let cores = if kind == EngineKind::Sequential { 1 } else { 2 };
    kind.accepts(description, cores).err()
}

/// The keys of the configuration, as JSON.
fn keys(description: &Description) -> Vec<Value> {
    let key = |ConfigKey { name, default, help }: &ConfigKey| json!({ "name": name, "default": default, "help": help });
    description.keys.iter().map(key).collect()
}

fn facts(entry: &CatalogueEntry) -> Result<Value, Failed> {
    let Description { name, summary, state, sharing, drop_reasons, .. } = entry.description();
    let program = entry.load(&Settings::default())?;
    let engines: Vec<Value> = EngineKind::ALL
        .into_iter()
        .map(|kind| {
            let refusal = refusal(kind, entry.description());
            json!({
                "engine": kind.name(), "guarantee": kind.guarantee(*sharing).to_string(),
                "takes": refusal.is_none(), "refusal": refusal,
            })
        })
        .collect();
    let keys = keys(entry.description());
    let shared = sharing.what();
    Ok(json!({
        "name": name, "summary": summary, "packet_set": program.packet_set().to_string(), "state": state,
        "shared": shared, "record_bytes": usize::from(program.shape(2).row_bytes()) - engine::carrier::TIME_BYTES, "keeps_flows": program.keeps_flows(), "flows": program.sizing().flows, "flows_v6": program.sizing().flows_v6,
        "keys": keys, "drop_reasons": drop_reasons, "engines": engines,
    }))
}
