//! `millrace sequence` writes a capture as a sequencer sends it to the cores. `run --sequenced` reads such a capture.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::ArgPredicate;
use engine::SequencedTotal;
use engine::carrier::{ETHERNET_BYTES, Outer, Shape, TIME_BYTES, TRAILER_BYTES, parse};
use engine::{Control, EngineError};
use port::pcap::{Capture, Interface, Renamed, same_file};
use port::{Batch, Opened, Port, PortError, Receive, Received, Stream};
use serde_json::{Value, json};

use super::captures::{self, PART};
use super::failure::{Failed, INPUT, INTERRUPTED};
use super::files::{self, Format};
use super::run::complete_before;
use super::{Configuration, engines, signals};
use crate::print::number::{self, bytes, counted, percent, rate, span};
use crate::print::outcome::clock;
use crate::print::output::{json_text, note, print, print_json, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet};
use catalogue::Catalogue;

/// Write a capture as a sequencer would send it to the cores, each packet with its history in front
///
/// State-compute replication sprays packets over cores. Each packet carries the history that its core needs: what the packets of the
/// other cores contributed (figure 4a of the paper). `millrace run --sequenced` plays the cores. Give both commands the same
/// configuration, because it decides what packets contribute.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace sequence --in a.pcap --out seq.pcap --function conntrack --cores 7
  millrace run conntrack --sequenced --in seq.pcap --cores 7 --out b.pcap
  millrace sequence --in a.pcap --out - --function ddos --cores 4 | millrace run ddos --sequenced --in - --cores 4

The output has the input's format unless its name or --format sets another. `run --sequenced` then writes the same bytes
as `run` on the original capture. With `--loss-recovery on`, packets of the sequenced capture may be missing.")]
pub(super) struct Args {
    /// Function whose history is written (`millrace functions` lists them)
    #[arg(
        long,
        value_name = "FUNCTION",
        required = false,
        required_unless_present = "chain",
        default_value_if("chain", ArgPredicate::IsPresent, "chain")
    )]
    function: String,
    #[command(flatten)]
    input: captures::Input,
    /// Stop after this many packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, help_heading = PART)]
    packets: Option<u64>,
    /// File for the sequenced capture; - means standard output. The name sets format and compression: .pcap or .pcapng, then .gz or .zst
    /// or neither
    #[arg(long = "out", short, value_name = "FILE")]
    output: PathBuf,
    /// Capture format to write, whatever the file name
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Number of cores to spray packets over, at least 2, or `all`
    #[arg(long, value_name = "N", value_parser = engines::cores)]
    cores: usize,
    /// Where the history travels
    #[arg(long, value_enum, default_value_t = Carrier::Piggyback)]
    carrier: Carrier,
    /// Put an Ethernet header that names the core in front of everything (on), or write link type 147, USER0, without it (off)
    #[arg(long, value_enum, default_value_t = Switch::On)]
    ethernet: Switch,
    #[command(flatten)]
    configuration: Configuration,
    /// Print the summary as JSON, to standard output (with `--out -` to standard error)
    #[arg(long)]
    json: bool,
}

/// Ways to carry a history in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Carrier {
    /// In front of the packet, in the same frame
    Piggyback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    refuse_one_core(args.cores)?;
    let outer = match args.ethernet {
        Switch::On => Outer::Ethernet,
        Switch::Off => Outer::None,
    };
    if let Some(config) = &args.configuration.config
        && same_file(config, &args.output)
    {
        let name = args.output.display();
        return Err(Failed::usage(format_args!("{name} is also the configuration; write to another file")));
    }
    files::refuse_output(&args.output, args.format)?;
    let growth = program.shape(args.cores).overhead(outer) as u32;
    let (captures, output) = (&args.input.captures, Some(args.output.as_path()));
    let (mut capture, file) = files::open(captures, args.packets, None, output, args.format, growth)?;

    let control = Control::default();
    signals::stop_on_interrupt(&control.stop);
    let watched = control.clone();
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: watched.packets() };
    let progress = Progress::watch(args.json, "sequence", sample);
    let total = program.sequence(args.cores, outer, &mut capture.stream(), &control);
    drop(progress);

    if let Some(EngineError::Port(PortError::Capture(error))) = &total.failure
        && error.is_broken_pipe()
    {
        return Err(Failed::BrokenPipe);
    }
    let (clock_steps_back, stamps_not_believed) =
        (capture.reader().clock_steps_back(), capture.reader().stamps_not_believed());
    let done = Done { args, outer, total: &total, clock_steps_back, stamps_not_believed };
    match (args.json, files::is_standard(&args.output)) {
        (false, false) => print(&done.text(Style::stdout()))?,
        (false, true) => remark(&done.text(Style::stderr())),
        (true, false) => print_json(&done.json())?,
        (true, true) => note(&json_text(&done.json())),
    }
    match &total.failure {
        None if total.interrupted => Err(Failed::Said(INTERRUPTED)),
        None => Ok(()),
        Some(error) => {
            note(&format!("{} {}\n", Style::stderr().bad("error:"), placed(error, &args.input.captures.name())));
            if let EngineError::Port(cause) = error {
                note(&complete_before(cause, &[Some(&args.output)]));
            }
            Err(Failed::Said(INPUT))
        }
    }
}

/// Refuses to spray over a single core, which sees every packet itself.
pub(super) fn refuse_one_core(cores: usize) -> Result<(), Failed> {
    if cores < 2 {
        return Err(Failed::usage("a sequencer needs two cores or more; give --cores"));
    }
    Ok(())
}

/// The error with its file name.
pub(super) fn placed(error: &EngineError, input: &str) -> String {
    match error {
        EngineError::Port(PortError::Unfit(error)) => format!("{input}: {error}"),
        EngineError::Port(_) | EngineError::Refused(_) | EngineError::Panicked(_) => error.to_string(),
    }
}

/// The result, for text and JSON.
struct Done<'a> {
    args: &'a Args,
    outer: Outer,
    total: &'a SequencedTotal,
    clock_steps_back: u64,
    stamps_not_believed: u64,
}

impl Done<'_> {
    fn text(&self, style: Style) -> String {
        let SequencedTotal { packets, bytes_in, bytes_out, shape, elapsed, interrupted, .. } = self.total;
        let name = style.bold(&self.args.function);
        let (cores, what) = (self.args.cores, counted(*packets, "packet", "packets"));
        let mut out = format!(
            "{name} for {cores} cores, piggyback: {what} in {}, {}\n\n",
            span(*elapsed),
            style.bold(rate(*packets, *elapsed))
        );
        if *interrupted {
            out += &style.warn("interrupted: only the packets read so far are counted\n\n");
        }
        let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Right), ("", Align::Left)]);
        sheet.row(["before", &bytes(*bytes_in), ""]);
        let share = format!("{} of it is history", percent(bytes_out - bytes_in, *bytes_out));
        sheet.row(["after", &bytes(*bytes_out), &share]);
        sheet.row(["a packet carries", &bytes(shape.overhead(self.outer) as u64), &self.parts(*shape)]);
        out += &sheet.lines(2);
        out += &clock(self.clock_steps_back, self.stamps_not_believed);
        out
    }

    fn parts(&self, shape: Shape) -> String {
        let record = usize::from(shape.row_bytes()) - TIME_BYTES;
        let rows = counted(u64::from(shape.rows()), "record", "records");
        let ethernet = match self.outer {
            Outer::Ethernet => format!(", {ETHERNET_BYTES} of Ethernet"),
            Outer::None => String::new(),
        };
        format!("{rows} of {record} bytes, each with {TIME_BYTES} of time; {TRAILER_BYTES} of trailer{ethernet}")
    }

    fn json(&self) -> Value {
        let SequencedTotal { packets, bytes_in, bytes_out, shape, elapsed, interrupted, failure } = self.total;
        json!({
            "function": self.args.function,
            "cores": self.args.cores,
            "carrier": "piggyback",
            "ethernet": self.outer == Outer::Ethernet,
            "input": self.args.input.captures.name(),
            "output": self.args.output.display().to_string(),
            "packets": packets,
            "bytes_before": bytes_in,
            "bytes_after": bytes_out,
            "rows": shape.rows(),
            "row_bytes": shape.row_bytes(),
            "record_bytes": usize::from(shape.row_bytes()) - TIME_BYTES,
            "bytes_carried": shape.overhead(self.outer),
            "share_carried": (bytes_out - bytes_in) as f64 / (*bytes_out).max(1) as f64,
            "elapsed_s": elapsed.as_secs_f64(),
            "clock_steps_back": self.clock_steps_back,
            "stamps_not_believed": self.stamps_not_believed,
            "interrupted": interrupted,
            "error": failure.as_ref().map(ToString::to_string),
        })
    }
}

/// A sequenced capture as a port. Outgoing packets have the interfaces of the original packets.
pub(super) struct Original<'a> {
    capture: &'a mut Capture,
    shape: Shape,
    names: Names,
}

/// The original interfaces that packets have named so far.
struct Names {
    /// The interfaces of the sequenced capture.
    sequenced: Vec<Interface>,
    /// Original interfaces that were declared, each with its interface in the sequenced capture.
    described: Vec<(u16, u16)>,
    renamed: Renamed,
}

impl<'a> Original<'a> {
    pub(super) fn new(capture: &'a mut Capture, shape: Shape) -> Self {
        capture.rename();
        let names = Names { sequenced: Vec::new(), described: Vec::new(), renamed: Renamed::new() };
        Self { capture, shape, names }
    }
}

impl Port for Original<'_> {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        let Self { capture, shape, names } = self;
        let Stream { input, output, order } = capture.stream();
        Ok(Opened::Stream(Stream { input: Box::new(Input { input, shape: *shape, names }), output, order }))
    }
}

struct Input<'a> {
    input: Box<dyn Receive + 'a>,
    shape: Shape,
    names: &'a mut Names,
}

impl Receive for Input<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let received = self.input.receive(batch)?;
        let Names { sequenced, described, renamed } = &mut *self.names;
        Renamed::names(batch, sequenced);
        for (index, packet) in batch.packets().iter().enumerate() {
            // A malformed packet is reported when it is processed.
            let Ok(carried) = parse(packet.link, batch.bytes(index), self.shape) else { continue };
            let pair = (carried.interface, packet.interface);
            if described.last() == Some(&pair) || described.contains(&pair) {
                continue;
            }
            described.push(pair);
            let outer = Outer::of(packet.link).map_or(0, |outer| self.shape.overhead(outer)) as u32;
            if let Some(interface) = sequenced.get(usize::from(packet.interface)) {
                let snaplen = interface.snaplen.saturating_sub(outer);
                renamed.describe(carried.interface, Interface { link: carried.link, snaplen, ..interface.clone() });
            }
        }
        renamed.name(batch);
        Ok(received)
    }

    port::forward_receive!(input);
}
