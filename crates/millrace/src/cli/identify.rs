//! `millrace identify`: the application of each session, by what its sides say.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use clap::ValueEnum;
use engine::{EngineKind, Inspect, Options, memory_max, private_instance};
use functions::identify::{Config, Identify};
use functions::streams::{StreamConfig, Streams};

use super::captures::{self, PART};
use super::defragment::DefragmentOption;
use super::failure::Failed;
use super::files::is_standard;
use super::memory::Bound;
use super::streams::{hear, sessions_max};
use crate::print::number;
use crate::print::output::{print, remark};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet};

mod list;

use list::List;

/// Tell the application of each session in captures, one row each
///
/// Looks at what both sides say, reassembled, and never at ports. A row has both ends, the application, what is inside it (in a tunnel, or
/// after STARTTLS), how sure that is and how it was told, after how many segments or datagrams with payload, and the name that was seen: of the
/// server (TLS, QUIC), the host (HTTP) or the question (DNS). `run identify` counts sessions by application, can drop some, and runs under
/// every engine but scr and hybrid.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace identify --in a.pcap
  millrace identify a.pcap --format jsonl | jq -r .application | sort | uniq -c
  millrace identify a.pcap --signatures own.sig
  millrace identify --list")]
pub(super) struct Args {
    #[command(flatten)]
    input: captures::OptionalInput,
    /// Print the applications that are known, and end
    #[arg(long)]
    list: bool,
    /// File with further signatures (`crates/identify/README.md` describes them); - means standard input
    #[arg(long, value_name = "FILE")]
    signatures: Option<PathBuf>,
    #[command(flatten)]
    defragment: DefragmentOption,
    /// Stop after this many packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, help_heading = PART)]
    packets: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Number of sessions in a table, the first ones; 0 for all. csv and jsonl list all
    #[arg(long, default_value = "100", value_name = "NUMBER")]
    top: usize,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table, in the order in which sessions began.
    Text,
    /// CSV with a header line, in the order in which sessions ended.
    Csv,
    /// One JSON object a line, in the order in which sessions ended.
    Jsonl,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let config = configuration(args)?;
    if args.list {
        return print(&applications(&config));
    }
    let captures = args.input.captures()?;
    let list = List::new(args.format, args.top);
    let function = Identify::telling(&config, list.clone());
    let streams = Streams::new(function, &StreamConfig::default());
    let (streams, options) = (Arc::new(streams), Options::default());
    let fragments = args.defragment.policy(true);
    Bound::new(memory_max(&streams, EngineKind::Sequential, 1, &options), fragments)
        .with_rows(List::memory_max(sessions_max(&*streams)))
        .tell();
    let mut instance = private_instance(EngineKind::Sequential, streams, 1, &options);
    let heard = hear(captures, "identify", args.packets, &args.defragment, |batch| {
        instance.workers[0].process(batch);
        list.check()
    })?;
    // Sessions that have not ended are told as far as they came.
    let _ = instance.report(heard.last);
    let sessions = list.finish()?;
    if sessions == 0 && heard.ended.is_ok() {
        remark("no TCP or UDP sessions\n");
    }
    heard.tell(instance.packet_counts())
}

fn configuration(args: &Args) -> Result<Config, Failed> {
    let Some(file) = &args.signatures else { return Ok(Config::default()) };
    let name = file.display().to_string();
    let read = if is_standard(file) { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = read.map_err(|error| Failed::input(format_args!("{name}: can't be read: {error}")))?;
    Config::with_signatures(text, &name, StreamConfig::default()).map_err(Failed::usage)
}

/// The applications that are known, as a table.
fn applications(config: &Config) -> String {
    let signatures = config.signatures();
    let columns =
        [("application", Align::Left), ("kind", Align::Left), ("told by", Align::Left), ("source", Align::Left)];
    let mut sheet = Sheet::new(Style::stdout(), &columns);
    let mut all: Vec<_> = signatures.protocols().map(|(_, about)| about).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    for about in all {
        let by = match (about.by_decoder, about.by_pattern) {
            (true, true) => "decoder, pattern",
            (true, false) => "decoder",
            (false, _) => "pattern",
        };
        sheet.row([about.name.as_str(), about.category.as_str(), by, about.source.as_str()]);
    }
    sheet.lines(0)
}

/// Writes a line to standard output.
fn write_line(line: &str) -> Result<(), Failed> {
    let mut out = stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(|error| Failed::output(&error))
}
