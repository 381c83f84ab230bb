//! `millrace flows`, and `--flows` of a run: the sessions in captures, one row each.

use std::io::{BufWriter, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use packet::Nanos;
use port::{Batch, Received};

use super::captures::{self, PART};
use super::failure::{Failed, INTERRUPTED};
use super::first::First;
use super::signals;
use crate::print::number::{self, count};
use crate::print::output::{note, print, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;

mod recorder;
mod row;
mod sessions;

pub(super) use recorder::{Recorder, refuse_file};
use row::{csv, jsonl, text};
use sessions::{Session, Sessions};

/// List the sessions in captures, one row for both directions
///
/// A row has the time of the first packet, the duration, both endpoints (the opener first), packets, bytes on the wire and TCP flags in
/// both directions, the state, and the application by its first payload. Several captures are merged by time stamp; a folder means all
/// captures in it. A session ends after --idle seconds without a packet, or when a SYN opens a new session with the same addresses and
/// ports. Packets that are not IP are left out.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace flows a.pcap
  millrace flows monday.pcap.zst tuesday/ --format csv > sessions.csv
  millrace flows a.pcapng --filter 'tcp port 443 and net 10.0.0.0/8' --format jsonl | jq .bytes
  millrace flows a.pcap --from 2026-11-27T08:00:00Z --to +90 --packets 1M")]
pub(super) struct Args {
    #[command(flatten)]
    input: captures::Input,
    /// Stop after this many packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, help_heading = PART)]
    packets: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Seconds of silence after which a session has ended
    #[arg(long, default_value_t = IDLE, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// Number of sessions in a table, the first ones; 0 for all. csv and jsonl list all
    #[arg(long, default_value = "100", value_name = "NUMBER")]
    top: usize,
}

/// Default of --idle, in seconds.
const IDLE: u32 = 300;

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
    let mut reader = args.input.captures.open()?.limited(args.packets.unwrap_or(u64::MAX));
    let packets = Arc::new(AtomicU64::new(0));
    let (shown, file) = (Arc::clone(&packets), reader.progress());
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    // ORDERING: Relaxed. A number to look at; pairs with the addition below.
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: shown.load(Ordering::Relaxed) };
    let progress = Progress::watch(args.format != Format::Text, "flows", sample);

    let mut out = BufWriter::new(stdout().lock());
    let lost = |error: std::io::Error| Failed::output(&error);
    if args.format == Format::Csv {
        writeln!(out, "{}", row::CSV_HEAD).map_err(lost)?;
    }
    let mut sessions = Sessions::new(Nanos::from_secs(args.idle.into()));
    let mut first = Shown::new(args.top);
    let mut ended: Vec<Session> = Vec::new();
    let mut batch = Batch::default();
    let mut other = 0;
    let (failure, interrupted) = loop {
        // ORDERING: Relaxed. The flag carries no data; pairs with the signal's handler.
        if stop.load(Ordering::Relaxed) {
            break (None, true);
        }
        match reader.read(&mut batch) {
            Ok(Received::Packets | Received::Idle) => {}
            Ok(Received::End) => break (None, false),
            Err(error) => break (Some(error), false),
        }
        for (packet, bytes) in batch.each(0..batch.len()) {
            other += u64::from(!sessions.take(packet, bytes, &mut ended));
        }
        packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
        for session in ended.drain(..) {
            tell(&mut out, args.format, session, &mut first).map_err(lost)?;
        }
    };
    drop(progress);
    sessions.finish(&mut ended);
    for session in ended {
        tell(&mut out, args.format, session, &mut first).map_err(lost)?;
    }
    out.flush().map_err(lost)?;
    drop(out);
    if args.format == Format::Text {
        let all = first.all();
        print(&text(&first.take_rows(), all, Style::stdout()))?;
    }
    if other > 0 {
        remark(&format!("{} without a session: not IP, or malformed\n", counted(other)));
    }
    match failure {
        Some(error) => Err(error.into()),
        None if interrupted => {
            note("interrupted: only the packets read so far are shown\n");
            Err(Failed::Said(INTERRUPTED))
        }
        None => Ok(()),
    }
}

/// The sessions of the table: those whose first packets are the earliest.
type Shown = First<sessions::Order, Session>;

/// Writes a session that has ended, or keeps it for the table.
fn tell(out: &mut impl Write, format: Format, session: Session, first: &mut Shown) -> std::io::Result<()> {
    match format {
        Format::Csv => writeln!(out, "{}", csv(&session)),
        Format::Jsonl => writeln!(out, "{}", jsonl(&session)),
        Format::Text => {
            first.add(session.order(), session);
            Ok(())
        }
    }
}

fn counted(packets: u64) -> String {
    format!("{} {}", count(packets), if packets == 1 { "packet" } else { "packets" })
}
