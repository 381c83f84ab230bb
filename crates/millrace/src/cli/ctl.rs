//! `millrace ctl` asks a run that goes on, by its control socket.

use std::fs;
use std::io;
use std::path::{self, Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Subcommand;
use daemon::{DaemonError, Flows, LINE_MAX, Reply, Request, Stats, Table, TracedPacket, ask};
use packet::Nanos;

use super::control::default_path;
use super::failure::Failed;
use super::files::{is_standard, shown};
use super::restart;
use crate::print::number::{bytes, count, counted, iso, percent, span};
use crate::print::outcome::latency;
use crate::print::output::{print, print_json, remark};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet};

/// Ask a running function for its counters and flows, reload its configuration, or stop it
///
/// Runs on interfaces answer, and other runs that were started with --control. For `flows`, `report`, `explain` and `reload` all cores stop
/// between two packets until all flows are read; packets wait in the receive rings meanwhile.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace ctl stats
  millrace ctl flows --where 'src net 10.0.0.0/8 and dst port 443'
  millrace ctl drops
  millrace ctl trace 'udp port 53' --packets 10
  millrace ctl explain 'host 10.0.0.7 and tcp port 443'
  millrace ctl reload fw.toml
  millrace ctl snapshot flows.snapshot
  millrace ctl --control=/run/nat.sock stop")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
    /// Socket of the run [default: /run/millrace.sock for root, else $XDG_RUNTIME_DIR/millrace.sock]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Print the counters so far, for each core
    Stats,
    /// List flows with their state
    Flows {
        /// Only these flows, in the syntax of tcpdump; by what their keys have: addresses, ports, protocol
        #[arg(long = "where", value_name = "FILTER")]
        filter: Option<String>,
        /// Number of flows to list at most
        #[arg(long, value_name = "NUMBER", default_value = "100")]
        top: u32,
        /// Also print the state of each flow, for developers of the function; JSON always has it
        #[arg(long)]
        state: bool,
    },
    /// Print the dropped packets so far, by reason
    Drops,
    /// Print the function's report on the packets so far
    Report,
    /// Print packets as they come, with what became of them
    ///
    /// At most some 1,000 a second; what is left out is counted. A filter makes a trace complete.
    Trace {
        /// Only these packets, in the syntax of tcpdump
        #[arg(value_name = "FILTER")]
        filter: Option<String>,
        /// End after this many packets [default: go on until Ctrl-C]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        packets: Option<u32>,
    },
    /// Wait for a packet, and tell what became of it and the state of its flows after it
    Explain {
        /// The packet, in the syntax of tcpdump
        #[arg(value_name = "FILTER")]
        filter: String,
    },
    /// Write the flows to a file, for another run to begin with (`millrace run --restore`)
    Snapshot {
        /// File to write; the run writes it, and follows a link
        #[arg(value_parser = restart::file)]
        file: PathBuf,
    },
    /// Let another configuration take over between two packets; flows stay
    ///
    /// The file is checked as a whole first. A run that can't take it says why and goes on as before. A TOML file replaces the file of
    /// --config; for the functions `rules` and `efsm` any other file replaces that of --rules or --program. All other options stay.
    Reload {
        /// The configuration; - means standard input
        file: PathBuf,
    },
    /// End the run: packets received before are finished
    Stop,
}

/// The reply of the run that listens at `path`.
fn reply(path: &Path, request: &Request) -> Result<Reply, Failed> {
    match ask(path, request) {
        Ok(Reply::Error(reason)) => Err(Failed::usage(reason)),
        Ok(Reply::Failed(reason)) => Err(Failed::input(reason)),
        Ok(reply) => Ok(reply),
        Err(error @ (DaemonError::Nobody(_) | DaemonError::NotAllowed(_))) => Err(Failed::usage(error)),
        Err(error) => Err(Failed::input(error)),
    }
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let path = args.control.clone().unwrap_or_else(default_path);
    let request = match &args.what {
        What::Trace { filter, packets } => return trace(args, &path, filter.clone(), *packets, false),
        What::Explain { filter } => return trace(args, &path, Some(filter.clone()), Some(1), true),
        What::Stats | What::Drops => Request::Stats {},
        What::Flows { filter, top, .. } => Request::Flows { filter: filter.clone(), rows_max: *top },
        What::Report => Request::Report {},
        What::Snapshot { file } => {
            let path =
                path::absolute(file).map_err(|error| Failed::input(format_args!("{}: {error}", file.display())))?;
            Request::Snapshot { path }
        }
        What::Reload { file } => Request::Reload { name: shown(file).display().to_string(), text: text(file)? },
        What::Stop => Request::Stop {},
    };
    let reply = reply(&path, &request)?;
    if args.json {
        let value = serde_json::to_value(&reply).map_err(|error| Failed::input(format_args!("{error}")))?;
        // The value without its kind, which the question tells.
        let inner = value.as_object().and_then(|object| object.values().next().cloned());
        return print_json(&inner.unwrap_or(value));
    }
    match reply {
        Reply::Stats(stats) if matches!(args.what, What::Drops) => print(&drops(&stats)),
        Reply::Stats(stats) => print(&counters(&stats)),
        Reply::Flows(flows) => print(&listed(&flows, matches!(args.what, What::Flows { state: true, .. }))),
        Reply::Report(None) => {
            remark("this function makes no report\n");
            Ok(())
        }
        Reply::Report(Some(table)) => print(&report(&table)),
        Reply::Done(done) => print(&format!("{done}\n")),
        Reply::Traced(_) | Reply::Error(_) | Reply::Failed(_) => {
            Err(Failed::input("the run has answered another question"))
        }
    }
}

/// Interval at which a run is asked for traced packets.
const LOOK: Duration = Duration::from_millis(100);
/// Packets between two such questions at most.
const AT_ONCE: u32 = 100;

/// Prints packets as they come.
fn trace(
    args: &Args,
    path: &Path,
    filter: Option<String>,
    packets: Option<u32>,
    with_state: bool,
) -> Result<(), Failed> {
    let mut left = packets;
    let packets_max = packets.unwrap_or(AT_ONCE).min(AT_ONCE);
    reply(path, &Request::Trace { filter, packets_max })?;
    while left != Some(0) {
        thread::sleep(LOOK);
        let traced = match ask(path, &Request::Traced { with_state }) {
            Ok(Reply::Traced(daemon::Traced { packets, left_out })) => {
                if left_out > 0 && !with_state && left.is_none() {
                    remark(&format!("{} more fit and are left out\n", counted(left_out, "packet", "packets")));
                }
                packets
            }
            Ok(_) | Err(DaemonError::Nobody(_)) => {
                remark("the run has ended\n");
                break;
            }
            Err(error) => return Err(Failed::input(error)),
        };
        for packet in traced.iter().take(left.map_or(usize::MAX, |left| left as usize)) {
            match args.json {
                true => print(&format!("{}\n", serde_json::to_string(packet).map_err(Failed::input)?))?,
                false => print(&told(packet, with_state))?,
            }
            left = left.map(|left| left - 1);
        }
    }
    Ok(())
}

/// A traced packet in words.
fn told(packet: &TracedPacket, with_state: bool) -> String {
    let style = Style::stdout();
    let TracedPacket { number, time_ns, interface, parsed, sent_by, reason, flows } = packet;
    let verdict = match reason {
        Some(reason) => style.warn(format!("dropped: {reason}")),
        None if sent_by.is_empty() => "undecided".to_owned(),
        None => {
            format!("sent by {}", sent_by.join(" and "))
        }
    };
    let time = iso(Nanos(*time_ns));
    if !with_state {
        return format!("{time} #{number} by {interface}: {parsed}; {verdict}\n");
    }
    let mut out = format!("{} {} at {time}, by {interface}\n", style.bold("packet"), count(*number));
    let mut line = |name: &str, text: &str| out += &format!("  {name:<8}{text}\n");
    line("parsed", parsed);
    line("verdict", &verdict);
    for flow in flows {
        line("flow", &format!("{}, expires in {}", flow.key, span(Duration::from_millis(flow.expires_in_ms))));
        line("now", &flow.state);
    }
    if flows.is_empty() {
        line("flow", "none has its addresses");
    }
    out
}

/// The text of a configuration.
fn text(file: &PathBuf) -> Result<String, Failed> {
    let name = shown(file);
    let read = if is_standard(file) { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = read.map_err(|error| Failed::input(format_args!("{}: can't be read: {error}", name.display())))?;
    // As JSON it may be twice as long.
    if text.len() > LINE_MAX / 2 {
        let most = bytes(LINE_MAX as u64 / 2);
        return Err(Failed::usage(format_args!("{} has more than {most}; a run takes no more", name.display())));
    }
    Ok(text)
}

fn counters(stats: &Stats) -> String {
    let style = Style::stdout();
    let total = stats.total();
    let uptime = span(Duration::from_millis(stats.uptime_ms));
    let mut out = format!("{} under {} for {uptime}\n\n", style.bold(&stats.function), stats.engine);
    let columns = [
        ("core", Align::Right),
        ("received", Align::Right),
        ("share", Align::Right),
        ("bytes", Align::Right),
        ("forwarded", Align::Right),
        ("replied", Align::Right),
        ("dropped", Align::Right),
        ("busy", Align::Right),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let uptime_ns = stats.uptime_ms.max(1) * 1_000_000;
    let mut row = |name: String, core: &daemon::Core| {
        sheet.row([
            name,
            count(core.received),
            percent(core.received, total.received),
            bytes(core.received_bytes),
            count(core.forwarded),
            count(core.replied),
            count(core.dropped),
            percent(uptime_ns.saturating_sub(core.idle_ns), uptime_ns),
        ]);
    };
    stats.cores.iter().enumerate().for_each(|(number, core)| row(number.to_string(), core));
    let cores = stats.cores.len() as u64;
    if cores > 1 {
        row("all".to_owned(), &daemon::Core { idle_ns: total.idle_ns / cores, ..total });
    }
    out += &sheet.lines(2);
    let room = if stats.flows_max > 0 { format!(" (room for {})", count(stats.flows_max)) } else { String::new() };
    let opened = count(stats.flows_opened);
    out += &match stats.flows_max {
        0 => "\n  this function has no table of flows\n".to_owned(),
        _ => format!("\n  {} in the tables{room}, {opened} opened\n", counted(stats.flows, "flow", "flows")),
    };
    if let Some(daemon::Transactions { committed, aborted }) = stats.transactions {
        out += &format!("  {} transactions committed, {} attempts aborted\n", count(committed), count(aborted));
    }
    if let Some(times) = &stats.latency {
        out += &latency(times);
    }
    for interface in &stats.interfaces {
        let counters = interface.counters.iter().filter(|(_, packets)| *packets > 0);
        let told: Vec<String> = counters.map(|(name, packets)| format!("{name} {}", count(*packets))).collect();
        out += &format!(
            "  {}{}: {}\n",
            interface.name,
            interface.trouble.as_ref().map(|trouble| style.warn(format!(" ({trouble})"))).unwrap_or_default(),
            if told.is_empty() { "nothing yet".to_owned() } else { told.join(", ") }
        );
    }
    if let Some(core) = stats.stalled {
        out += &format!("  {}\n", style.warn(format!("core {core} has stalled")));
    }
    out
}

fn drops(stats: &Stats) -> String {
    let total = stats.total();
    if stats.dropped.is_empty() {
        return format!("nothing dropped of {} packets\n", count(total.received));
    }
    let columns = [("dropped", Align::Right), ("of all", Align::Right), ("reason", Align::Left)];
    let mut sheet = Sheet::new(Style::stdout(), &columns);
    for dropped in &stats.dropped {
        sheet.row([count(dropped.packets), percent(dropped.packets, total.received), dropped.reason.clone()]);
    }
    sheet.lines(0)
}

fn listed(flows: &Flows, with_state: bool) -> String {
    let columns = [("flow", Align::Left), ("expires in", Align::Right), ("state", Align::Left)];
    let columns = &columns[..if with_state { 3 } else { 2 }];
    let mut sheet = Sheet::new(Style::stdout(), columns);
    for row in &flows.rows {
        let cells = [row.key.clone(), span(Duration::from_millis(row.expires_in_ms)), row.state.clone()];
        sheet.row(&cells[..columns.len()]);
    }
    let what = if flows.fit == flows.all {
        counted(flows.all, "flow", "flows")
    } else {
        format!("{} of {}", count(flows.fit), counted(flows.all, "flow", "flows"))
    };
    let shown = match flows.rows.len() as u64 {
        rows if rows < flows.fit => format!("; {} of them are listed (--top)", count(rows)),
        _ => String::new(),
    };
    let lines = if flows.rows.is_empty() { String::new() } else { sheet.lines(0) };
    format!("{lines}{what}{shown}\n")
}

fn report(table: &Table) -> String {
    let aligned = |(at, column)| {
        let is_number = |row: &Vec<String>| row.get(at).is_some_and(|cell: &String| cell.parse::<u64>().is_ok());
        let align = if table.rows.iter().all(is_number) { Align::Right } else { Align::Left };
        (String::as_str(column), align)
    };
    let columns: Vec<(&str, Align)> = table.columns.iter().enumerate().map(aligned).collect();
    let mut sheet = Sheet::new(Style::stdout(), &columns);
    table.rows.iter().for_each(|row| sheet.row(row));
    format!("{}\n{}", table.title, sheet.lines(2))
}
