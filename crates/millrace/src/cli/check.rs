//! `millrace check` validates a function's configuration without a capture.

use clap::builder::ArgPredicate;
use engine::EngineKind;
use nf::{Fates, Reason, Sizing};
use serde_json::json;

use super::Configuration;
use super::failure::Failed;
use crate::print::number::count;
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use catalogue::Catalogue;

/// Check a function's configuration without a capture
///
/// Reads the file and the `--set` values as `run` does, and builds the function with them. An error is printed with its line and column
/// (exit code 2). For a valid configuration, prints how many packet sets it keeps state for, which engines support the function, and a
/// note if the configuration is probably a mistake.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace check nat --config nat.toml
  millrace check firewall --set 'inside=[\"192.0.2.0/24\"]'")]
pub(super) struct Args {
    /// Name of the function (`millrace functions` lists them)
    #[arg(
        value_name = "FUNCTION",
        required = false,
        required_unless_present = "chain",
        default_value_if("chain", ArgPredicate::IsPresent, "chain")
    )]
    function: String,
    #[command(flatten)]
    configuration: Configuration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    let description = program.description();
    let Sizing { flows, flows_v6 } = program.sizing();
    let remark = program.remark(&Fates { received: 0, dropped: &[0; Reason::COUNT] });
    let remark = remark.map(|note| args.configuration.named(&note));
    let takes = |kind: &EngineKind| *kind != EngineKind::Sequential && kind.accepts(&description, 2).is_ok();
    let engines: Vec<&str> = EngineKind::ALL.iter().filter(|kind| takes(kind)).map(|kind| kind.name()).collect();
    if args.json {
        return print_json(&json!({
            "function": description.name, "valid": true, "packet_set": program.packet_set().to_string(),
            "keeps_flows": program.keeps_flows(), "flows": flows, "flows_v6": flows_v6, "engines": engines, "notes": program.notes(), "remark": remark,
        }));
    }
    let style = Style::stdout();
    let room = match program.keeps_flows() {
        true if flows_v6 == 0 => format!("; keeps state for {} packet sets", count(flows as u64)),
        true => {
            format!("; keeps state for {} IPv4 and {} IPv6 packet sets", count(flows as u64), count(flows_v6 as u64))
        }
        false => String::new(),
    };
    let mut out = format!(
        "{}: {}\n  packet set: {}{room}\n  on several cores: {}\n",
        style.bold(description.name),
        style.good("the configuration is valid"),
        program.packet_set(),
        engines.join(", ")
    );
    program.notes().iter().for_each(|note| out += &format!("  {note}\n"));
    if let Some(remark) = remark {
        out += &format!("  {} {remark}\n", style.warn("note:"));
    }
    print(&out)
}
