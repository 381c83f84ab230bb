//! `millrace ctl` asks a run that goes on, by its control socket.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use daemon::{DaemonError, Flows, LINE_MAX, Reply, Request, Stats, Table, ask};

use super::control::default_path;
use super::failure::Failed;
use super::files::{is_standard, shown};
use crate::print::number::{bytes, count, percent, span};
use crate::print::output::{print, print_json, remark};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet};

/// Ask a running function for its counters and flows, reload its configuration, or stop it
///
/// Runs on interfaces answer, and other runs that were started with --control. For an answer all cores stop between two packets, about as long
/// as a thread takes to start; for `flows` and `report` until all flows are read. Packets wait in the receive rings meanwhile.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace ctl stats
  millrace ctl flows --where 'src net 10.0.0.0/8 and dst port 443'
  millrace ctl drops
  millrace ctl reload fw.toml
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

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let path = args.control.clone().unwrap_or_else(default_path);
    let request = match &args.what {
        What::Stats | What::Drops => Request::Stats {},
        What::Flows { filter, top, .. } => Request::Flows { filter: filter.clone(), rows_max: *top },
        What::Report => Request::Report {},
        What::Reload { file } => Request::Reload { name: shown(file).display().to_string(), text: text(file)? },
        What::Stop => Request::Stop {},
    };
    let reply = ask(&path, &request).map_err(|error| match error {
        DaemonError::Nobody(_) | DaemonError::NotAllowed(_) => Failed::usage(error),
        error => Failed::input(error),
    })?;
    if let Reply::Error(reason) = &reply {
        return Err(Failed::usage(reason));
    }
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
        Reply::Error(reason) => Err(Failed::usage(reason)),
    }
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
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut row = |name: String, core: &daemon::Core| {
        sheet.row([
            name,
            count(core.received),
            percent(core.received, total.received),
            bytes(core.received_bytes),
            count(core.forwarded),
            count(core.replied),
            count(core.dropped),
        ]);
    };
    stats.cores.iter().enumerate().for_each(|(number, core)| row(number.to_string(), core));
    if stats.cores.len() > 1 {
        row("all".to_owned(), &total);
    }
    out += &sheet.lines(2);
    out += &format!("\n  {} flows in the tables, {} opened\n", count(stats.flows), count(stats.flows_opened));
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
        format!("{} flows", count(flows.all))
    } else {
        format!("{} of {} flows", count(flows.fit), count(flows.all))
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
