//! `millrace flows`: the sessions of captures, a row each.

use std::io::{BufWriter, Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use packet::Nanos;

use super::failure::{Failed, INTERRUPTED};
use super::merged::Merged;
use super::part::Part;
use super::signals;
use crate::print::number::count;
use crate::print::output::{note, print, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;

mod row;
mod sessions;

use row::{csv, jsonl, text};
use sessions::{Session, Sessions};

/// List the sessions of captures: a row for both directions of each
///
/// A row has the time of the first packet and the duration, both ends (the opener first), packets and bytes on the wire and TCP flags in
/// both directions, the state, and the application by its first payload. Several captures are merged by time stamp; a folder stands
/// for all captures in it. A session ends after --idle seconds without a packet, or when a SYN opens a new one on its ports.
/// Packets that are not IP are left out.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace flows a.pcap
  millrace flows monday.pcap.zst tuesday/ --format csv > sessions.csv
  millrace flows a.pcapng --filter 'tcp port 443 and net 10.0.0.0/8' --format jsonl | jq .bytes
  millrace flows a.pcap --from 2026-11-27T08:00:00Z --to +90 --packets 1M")]
pub(super) struct Args {
    /// The captures to read, or folders with captures; - for standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "inputs")]
    captures: Vec<PathBuf>,
    /// The same, by an option
    #[arg(long = "in", short, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Seconds of silence after which a session has ended
    #[arg(long, default_value = "300", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// Number of sessions in a table, the first ones; 0 for all. csv and jsonl list all
    #[arg(long, default_value = "100", value_name = "NUMBER")]
    top: usize,
    #[command(flatten)]
    part: Part,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table, sorted by first packet.
    Text,
    /// CSV with a header line, in the order in which sessions end.
    Csv,
    /// One JSON object a line, in the order in which sessions end.
    Jsonl,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let mut part = args.part.checked()?;
    let mut merged = Merged::open(args.captures.iter().chain(&args.inputs))?;
    let packets = Arc::new(AtomicU64::new(0));
    let (shown, consumed) = (Arc::clone(&packets), merged.progress());
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    // ORDERING: Relaxed. A number to look at; pairs with the addition below.
    let sample = move || {
        let (done, total) = consumed();
        Sample { done, total, packets: shown.load(Ordering::Relaxed) }
    };
    let progress = Progress::watch(args.format != Format::Text, "flows", sample);

    let mut out = BufWriter::new(stdout().lock());
    let lost = |error: std::io::Error| Failed::output(&error);
    if args.format == Format::Csv {
        writeln!(out, "{}", row::CSV_HEAD).map_err(lost)?;
    }
    let mut sessions = Sessions::new(Nanos::from_secs(args.idle.into()));
    let mut ended: Vec<Session> = Vec::new();
    let mut other = 0;
    let (failure, interrupted) = loop {
        // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
        if stop.load(Ordering::Relaxed) {
            break (None, true);
        }
        let (packet, bytes) = match merged.next() {
            Ok(Some(next)) => next,
            Ok(None) => break (None, false),
            Err(error) => break (Some(error), false),
        };
        packets.fetch_add(1, Ordering::Relaxed);
        if part.is_over(packet) {
            break (None, false);
        }
        let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).ok();
        if !part.takes(packet, headers.as_ref()) {
            continue;
        }
        match headers.filter(|headers| headers.addresses().is_some()) {
            Some(headers) => sessions.take(packet, &headers, bytes, &mut ended),
            None => other += 1,
        }
        if args.format != Format::Text {
            for session in ended.drain(..) {
                write(&mut out, args.format, &session).map_err(lost)?;
            }
        }
    };
    drop(progress);
    sessions.finish(&mut ended);
    if args.format == Format::Text {
        drop(out);
        ended.sort_by_key(|session| session.first);
        print(&text(&ended, args.top, Style::stdout()))?;
    } else {
        for session in &ended {
            write(&mut out, args.format, session).map_err(lost)?;
        }
        out.flush().map_err(lost)?;
    }
    if other > 0 {
        remark(&format!("{} that were no IP, or malformed, belong to no session\n", counted(other)));
    }
    match failure {
        Some(error) => Err(error),
        None if interrupted => {
            note("interrupted: this is what was read until then\n");
            Err(Failed::Said(INTERRUPTED))
        }
        None => Ok(()),
    }
}

fn counted(packets: u64) -> String {
    format!("{} {}", count(packets), if packets == 1 { "packet" } else { "packets" })
}

fn write(out: &mut impl Write, format: Format, session: &Session) -> std::io::Result<()> {
    match format {
        Format::Csv => writeln!(out, "{}", csv(session)),
        Format::Jsonl | Format::Text => writeln!(out, "{}", jsonl(session)),
    }
}
