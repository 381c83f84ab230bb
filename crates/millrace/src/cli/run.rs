//! `millrace run` runs a function over a capture.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{panic, process, thread};

use clap::builder::ArgPredicate;
use engine::{Control, Counters, EngineError, EngineKind, FailedPacket, Failure, Options};
use l7::defrag::{Defragmented, Limits};
use nf::{Description, Fates, Reason, Sharing};
use packet::{LinkType, Seq};
use port::pcap::{Container, Reader, Writer, same_file};
use port::{Fate, Packet, Port, PortError};
use split::Splitting;

use super::captures::{self, PART};
use super::control::{self, ControlOption, Served};
use super::defragment::DefragmentOption;
use super::dropped::{DroppedArgs, Watched};
use super::engines::Wanted;
use super::failure::{Failed, INPUT, INTERRUPTED, OUTCOME};
use super::files::{self, Format};
use super::flows::{self, Recorder};
use super::link::LinkArgs;
use super::memory::Bound;
use super::observers::Observers;
use super::offload::OffloadOptions;
use super::pipeline_options::PipelineOptions;
use super::reorder::ReorderOption;
use super::restart::{Ended, RestartOptions};
use super::sequence::Original;
use super::service::ServiceOptions;
use super::split::SplitOption;
use super::steering_options::SteeringOptions;
use super::table_options::TableOptions;
use super::traffic::nothing_in;
use super::{Configuration, advise, engines, live, refuse_too_much, sequence, signals, stalled};
use crate::print::number::{self, counted, span};
use crate::print::outcome::Run;
use crate::print::output::{detail, json_text, note, print, print_json, remark};
use crate::print::ports::Ports;
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use catalogue::{Catalogue, Program};

/// Run a function over a capture, or on live interfaces
///
/// Over a capture: reads pcap or pcapng, plain or compressed (.gz, .zst), from files or a pipe. Writes the packets that the function forwards, and its
/// replies, in input order under every engine. The summary goes to standard output. With `--out -` the packets go to standard output and
/// the summary goes to standard error.
///
/// With --interface: takes the interfaces' packets by AF_XDP, as root or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and
/// CAP_IPC_LOCK, until Ctrl-C or `millrace ctl stop`. What the function forwards goes out by the paired interface.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace run conntrack --in a.pcap --out b.pcap --cores 2
  millrace run nat --config nat.toml --in a.pcapng.zst --out - | tcpdump -nr -
  millrace run policer --set rate=10Mbit --in a.pcap --json
  millrace run firewall --config fw.toml --in a.pcap --dropped dropped.pcapng
  millrace run conntrack --in a.pcap --cores 8 --engine auto
  millrace run conntrack --in a.pcap --engine scr --cores 7 --loss-recovery on --link-loss 0.1%
  millrace run conntrack --in a.pcap --engine rss++ --cores 8 --core-rate 2.5
  millrace run identify --in a.pcap --engine pipeline --cores 4 --stages 2 --ways 3
  millrace run conntrack --sequenced --in seq.pcap --cores 7
  millrace run nat --config nat.toml --in a.pcap --defragment linux
  millrace run nat --config nat.toml --in a.pcap --split 128 --store udp://127.0.0.1:7000-7003
  millrace run conntrack --in a.pcap --reorder 100us
  millrace run firewall --in a.pcap --offload 4096 --offload-threshold 16
  millrace run firewall --config fw.toml --interface inside0 --interface outside0
  millrace run firewall --interface inside0 --interface outside0 --offload 4096

Without --engine: `sequential` on one core; on several cores the first of rss, scr and shared that supports the function.
Ctrl-C finishes the packets already read and leaves a valid output file; a second Ctrl-C exits at once.")]
pub(super) struct Args {
    /// Name of the function (`millrace functions` lists them)
    #[arg(
        value_name = "FUNCTION",
        required = false,
        required_unless_present = "chain",
        default_value_if("chain", ArgPredicate::IsPresent, "chain")
    )]
    pub(super) function: String,
    #[command(flatten)]
    pub(super) source: captures::Source,
    /// File for the outgoing packets; - means standard output. The name sets format and compression: .pcap or .pcapng, then .gz or .zst
    /// or neither [default: packets are not written]
    #[arg(long = "out", short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Capture format to write, whatever the file name
    #[arg(long, value_enum)]
    pub(super) format: Option<Format>,
    #[command(flatten)]
    pub(super) configuration: Configuration,
    /// Parallel engine. `auto` times every engine on the capture's first packets, for about one second in all, and takes the fastest
    #[arg(long, value_parser = engines::wanted())]
    pub(super) engine: Option<Wanted>,
    /// Read a capture that `millrace sequence` wrote for the same number of cores. Each core gets its own packets and learns of the other
    /// cores' packets from the history in them. The engine is scr
    #[arg(long, conflicts_with_all = ["engine", "packets", "filter", "from", "to", "flows", "control", "restore", "snapshot"])]
    pub(super) sequenced: bool,
    /// Stop after this many packets
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive, help_heading = PART)]
    pub(super) packets: Option<u64>,
    /// Number of cores to use, or `all`
    #[arg(long, default_value = "1", value_name = "N", value_parser = engines::cores)]
    pub(super) cores: usize,
    /// Pin each core to its own processor, from the lowest number on. Use it only where nothing else runs on these processors: two pinned
    /// runs share them
    #[arg(long)]
    pub(super) pin: bool,
    /// Hash seed of the tables; random if omitted. It affects the outcome only where full tables evict by lru or random, drop early, are
    /// tagged, or age by anything but the wheel
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,
    /// Print the summary as JSON, to standard output (with `--out -` to standard error)
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) control: ControlOption,
    #[command(flatten)]
    pub(super) restart: RestartOptions,
    #[command(flatten)]
    pub(super) service: ServiceOptions,
    #[command(flatten)]
    pub(super) defragment: DefragmentOption,
    #[command(flatten)]
    pub(super) split: SplitOption,
    #[command(flatten)]
    pub(super) reorder: ReorderOption,
    #[command(flatten)]
    pub(super) dropped: DroppedArgs,
    /// Write a session table of the input packets to this file, one row for each session: .csv or .jsonl (`millrace flows --help`
    /// describes the columns)
    #[arg(long, value_name = "FILE")]
    pub(super) flows: Option<PathBuf>,
    #[command(flatten)]
    pub(super) table_options: TableOptions,
    #[command(flatten)]
    pub(super) link: LinkArgs,
    #[command(flatten)]
    pub(super) steering_options: SteeringOptions,
    #[command(flatten)]
    pub(super) pipeline_options: PipelineOptions,
    #[command(flatten)]
    pub(super) offload: OffloadOptions,
}

/// Number of flows that a program's tables have room for.
pub(super) fn flows_max(program: &dyn Program) -> u64 {
    let sizing = program.sizing();
    if program.keeps_flows() { sizing.flows as u64 + sizing.flows_v6 as u64 } else { 0 }
}

/// Prints the function's notes for operators.
pub(super) fn tell(program: &dyn Program, quiet: bool) {
    let notes = if quiet { Vec::new() } else { program.notes() };
    notes.iter().for_each(|note| remark(&format!("{}: {note}\n", program.description().name)));
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    if args.source.live.is_given() {
        return live::perform(args, entry);
    }
    args.source.live.refuse_without_interface()?;
    if let Some(option) = args.service.given() {
        return Err(Failed::usage(format_args!("{option} is for runs on interfaces; name one with --interface")));
    }
    let program = entry.load(&args.configuration.settings()?)?;
    tell(&*program, args.json);
    args.reorder.tell(&*program, args.json);
    let description = program.description();
    let input = &args.source.captures;
    if let (Some(config), Some(output)) = (&args.configuration.config, &args.output)
        && same_file(config, output)
    {
        let name = output.display();
        return Err(Failed::usage(format_args!("{name} is also the configuration; write to another file")));
    }
    if let Some(output) = &args.output {
        files::refuse_output(output, args.format)?;
    }
    let others = [
        ("the output", args.output.as_deref()),
        ("the configuration", args.configuration.config.as_deref()),
        ("the file of --dropped", args.dropped.file()),
    ];
    args.dropped.refuse(input, &others[..2])?;
    if let Some(file) = &args.flows {
        flows::refuse_file(file, input, &others)?;
    }
    let tables = args.table_options.tables(&*program)?;
    let seed = args.seed.unwrap_or_else(secret);
    let mut options = Options { seed, tables, link: args.link.link(seed), pin: args.pin, ..Options::default() };
    let (kind, cores) = match args.engine {
        _ if args.sequenced => {
            sequence::refuse_one_core(args.cores)?;
            (EngineKind::Scr, args.cores)
        }
        Some(Wanted::Auto) if args.offload.is_given() => {
            return Err(Failed::usage(
                "--engine auto times engines without a card; with --offload name sequential or rss",
            ));
        }
        Some(Wanted::Auto) => {
            args.steering_options.set(&EngineKind::ALL, args.cores, &mut options)?;
            let (output, format) = (args.output.as_deref(), args.format.map(Container::from));
            let again = advise::again(&args.configuration, &args.table_options)?;
            let (about, most) = (&description, (args.cores, args.packets));
            let here = advise::tried(about, again, input, output, format, most, args.json)?;
            let (kind, cores) = (here.best().engine, here.best().cores);
            if !args.json {
                let on = counted(cores as u64, "core", "cores");
                remark(&format!("auto: {kind} on {on}; {} ({})\n", here.reason(), span(here.took)));
                if cores < args.cores && args.cores > engines::machine_cores() {
                    let here = counted(engines::machine_cores() as u64, "core", "cores");
                    remark(&format!("auto: this machine has {here}; more were not tried\n"));
                }
                if let Some(option) = args.steering_options.idle(kind) {
                    remark(&format!("auto: {option} has no effect with {kind}\n"));
                }
            }
            (kind, cores)
        }
        Some(Wanted::One(kind)) => (kind, args.cores),
        None => (engines::fitting(&description, args.cores)?, args.cores),
    };
    kind.accepts(&description, cores).map_err(Failed::usage)?;
    let named = matches!(args.engine, Some(Wanted::One(EngineKind::Pipeline)));
    options.cuts = args.pipeline_options.cuts(named, cores)?;
    if !matches!(args.engine, Some(Wanted::Auto)) {
        args.steering_options.set(&[kind], cores, &mut options)?;
    }
    options.offload = args.offload.offload(&*program, kind, &options.tables)?;
    if let Some(link) = &options.link {
        link.accepts(kind, cores).map_err(Failed::usage)?;
        args.reorder.refuse(
            "a link that loses packets takes a limited number of packets at a time, and --reorder releases as many as it holds",
            "omit --reorder, or --link-loss and --loss-recovery",
        )?;
    }
    refuse_too_much(&*program, &[(kind, cores)])?;
    let policy = match args.sequenced {
        true => {
            args.defragment.refuse("--sequenced")?;
            None
        }
        false => args.defragment.policy(program.wants_whole_datagrams()),
    };
    if args.sequenced && args.split.is_given() {
        return Err(Failed::usage(
            "--sequenced: packets are split ahead of a sequencer, not behind it; leave --split out",
        ));
    }
    let park = args.split.open(&*program)?;
    let bound = (description.sharing == Sharing::Streams)
        .then(|| Bound::new(program.memory_max(kind, cores, &options), policy));
    // Ahead of the input, which may be a pipe that has nothing yet.
    let control = Control::default();
    let configuration = &args.configuration;
    let observers = args.control.path().map(|_| Observers::new(1));
    let about = Served {
        sequenced: false,
        control: &control,
        configuration,
        entry,
        description: &description,
        kind,
        flows_max: flows_max(&*program),
        observers: observers.as_ref(),
        monitor: None,
        background: None,
    };
    let served = about.at(control::bind(args.control.path().as_deref())?)?;
    // A datagram may be longer than all packets of the capture.
    let longer = if policy.is_some() { DATAGRAM_MAX } else { 0 };
    let recorder = args.flows.as_deref().map(Recorder::create).transpose()?;
    let (tap, output) = (recorder.as_ref().map(Recorder::tap), args.output.as_deref());
    let (mut capture, file) = files::open(input, args.packets, tap, output, args.format, program.growth() + longer)?;
    capture.write_ports();
    if !args.sequenced {
        capture.refuse_mixed_links()?;
    }
    let format = capture.reader().format();
    let watched_drops = args.dropped.watch(&mut capture, &format, description.drop_reasons, longer)?;

    detail(|| {
        let on = counted(cores as u64, "core", "cores");
        let source = input.name();
        let (name, seed) = (&description.name, options.seed);
        let config = args.configuration.again();
        format!("{source}: {name}{config} under {kind} on {on}, seed {seed}\n")
    });
    if let Some(bound) = bound.filter(|_| !args.json) {
        bound.tell();
    }
    signals::stop_on_interrupt(&control.stop);
    let watched = control.clone();
    let sample = move || Sample { done: file.consumed(), total: file.total(), packets: watched.packets() };
    let progress = Progress::watch(args.json, &args.function, sample);
    let watch = (kind == EngineKind::Pipeline && cores > 1).then(|| stalled::Watch::begin(&control, options.cuts));
    let place = PanicPlace::watch();
    let (mut fragments, mut totals) = (None, None);
    let outcome = if args.sequenced {
        let mut original = Original::new(&mut capture, program.shape(args.cores));
        program.run_sequenced(args.cores, &options, &mut original, &control).map(Ended::unsaved).map_err(Failed::from)
    } else {
        let over = |port: &mut (dyn Port + Send)| {
            let (restart, settings) = (&args.restart, served.configuration());
            let run = |port: &mut (dyn Port + Send)| {
                restart
                    .over(&*program, (kind, cores), options, port, &control, settings, |running| served.wait(running))
            };
            match &park {
                Some(park) => run(&mut Splitting::new(port, park.clone())),
                None => run(port),
            }
        };
        let mut reordered = args.reorder.over(&mut capture);
        totals = Some(reordered.totals());
        let mut watched;
        let mut port: &mut (dyn Port + Send) = &mut reordered;
        if let Some(observers) = &observers {
            watched = port::Watched::new(port, observers.watch(None));
            port = &mut watched;
        }
        match policy {
            Some(policy) => {
                let mut gathering = Defragmented::new(port, policy, Limits::default());
                let outcome = over(&mut gathering);
                fragments = Some(gathering.totals().get());
                outcome
            }
            None => over(port),
        }
    };
    let place = place.take();
    drop((progress, watch));

    let Ended { outcome, saved } = outcome?;
    args.split.tell_missing(park.as_ref());
    if let Some(recorder) = recorder {
        recorder.finish()?;
    }
    let counters = &outcome.counters;
    let fates = Fates { received: counters.received, dropped: &counters.dropped };
    let run = Run {
        description: &description,
        kind,
        cores,
        seed: options.seed,
        tables: program.keeps_flows().then_some(&options.tables),
        input: input.name(),
        output: args.output.as_deref(),
        clock_steps_back: capture.reader().clock_steps_back(),
        stamps_not_believed: capture.reader().stamps_not_believed(),
        ports: Ports::of(program.ports(), capture.reader().interfaces().len(), capture.misplaced()),
        unread_links: if args.sequenced { Vec::new() } else { unread_links(capture.reader()) },
        fragments: policy.zip(fragments),
        split: args.split.counted(park.as_ref()),
        reordered: totals.and_then(|totals| args.reorder.counted(&totals)),
        bound,
        dropped: watched_drops.map(Watched::take),
        dropped_file: args.dropped.file(),
        remark: (counters.received > 0)
            .then(|| program.remark(&fates))
            .flatten()
            .map(|note| args.configuration.named(&note)),
        live: None,
        latency: None,
        outcome: &outcome,
    };
    if let Some(EngineError::Port(PortError::Capture(error))) = &outcome.failure
        && error.is_broken_pipe()
    {
        return Err(Failed::BrokenPipe);
    }
    let to_pipe = args.output.as_deref().is_some_and(files::is_standard);
    match (args.json, to_pipe) {
        (false, false) => print(&run.text(Style::stdout()))?,
        (false, true) => remark(&run.text(Style::stderr())),
        (true, false) => print_json(&run.json())?,
        (true, true) => note(&json_text(&run.json())),
    }
    let has_held = fragments.is_some_and(|counts| counts.fragments > 0);
    if counters.received == 0 && !has_held && outcome.failure.is_none() && !outcome.interrupted {
        remark(&format!("{}\n", nothing_in(input)));
    }
    saved?;
    match &outcome.failure {
        None if outcome.interrupted => Err(Failed::Said(INTERRUPTED)),
        None => declared(&description, counters),
        Some(error) => Err(report(error, place, args)),
    }
}

/// The longest IP datagram, in bytes.
const DATAGRAM_MAX: u32 = 65_535;

/// Refuses an outcome with undeclared drop reasons, because they have no name.
pub(super) fn declared(description: &Description, counters: &Counters) -> Result<(), Failed> {
    let own = |reason: Reason| reason.0.checked_sub(Reason::OWN).map(usize::from);
    let declared = description.drop_reasons.len();
    let undeclared =
        counters.drops().find_map(|(reason, count)| Some((own(reason).filter(|own| *own >= declared)?, count)));
    undeclared.map_or(Ok(()), |(own, count)| {
        Err(Failed::Outcome(anyhow::anyhow!(
            "`{}` dropped {} with `Reason::own({own})`, but DESCRIPTION.drop_reasons has {}; this is a bug in the function",
            description.name,
            counted(count, "packet", "packets"),
            counted(declared as u64, "reason", "reasons")
        )))
    })
}

/// Unsupported link types of a capture.
fn unread_links(reader: &Reader) -> Vec<LinkType> {
    let mut links: Vec<LinkType> = reader.interfaces().iter().map(|interface| interface.link).collect();
    links.retain(|link| matches!(link, LinkType::Other(_)));
    links.sort_unstable();
    links.dedup();
    links
}

/// A random number that senders of packets can't guess.
pub(super) fn secret() -> u64 {
    // The standard library's hash keys are random numbers from the system.
    RandomState::new().hash_one(process::id())
}

/// Prints why the run ended early.
fn report(error: &EngineError, place: Option<String>, args: &Args) -> Failed {
    let say = |text: &str| note(&format!("{} {text}\n", Style::stderr().bad("error:")));
    match error {
        EngineError::Panicked(failure) => {
            let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
            say(&format!("{failure}{place}; this is a bug in the function"));
            if let Some(packet) = &failure.packet {
                match save(failure, packet) {
                    Ok(path) => note(&format!("  the packet is in {}\n", path.display())),
                    Err(error) => note(&format!("  the packet can't be saved: {error}\n")),
                }
            }
            if let Some(output) = args.output.as_ref().filter(|_| !args.json) {
                note(&format!("  {} has all packets forwarded before that\n", output.display()));
            }
            Failed::Said(OUTCOME)
        }
        EngineError::Port(cause) => {
            say(&sequence::placed(error, &args.source.captures.name()));
            note(&complete_before(cause, &[args.output.as_deref(), args.dropped.file(), args.flows.as_deref()]));
            Failed::Said(INPUT)
        }
        EngineError::Refused(reason) => Failed::usage(reason),
    }
}

/// Says that outputs hold what came before the place where the input is damaged. Nothing if an output itself failed.
pub(super) fn complete_before(error: &PortError, outputs: &[Option<&Path>]) -> String {
    let outputs: Vec<&Path> = outputs.iter().flatten().copied().collect();
    let failed = match error {
        PortError::Capture(error) => Some(error.path.as_path()),
        _ => None,
    };
    let names = outputs.iter().map(|path| match files::is_standard(path) {
        true => "standard output".to_owned(),
        false => path.display().to_string(),
    });
    let names: Vec<String> = names.collect();
    match names.as_slice() {
        [] => String::new(),
        _ if failed.is_none_or(|failed| outputs.contains(&failed)) => String::new(),
        [name] => format!("  {name} is valid, and has only what comes of the packets before that place\n"),
        names => {
            format!("  {} are valid, and have only what comes of the packets before that place\n", names.join(", "))
        }
    }
}

/// Writes the packet on which a function panicked, in the current folder.
fn save(failure: &Failure, packet: &FailedPacket) -> Result<PathBuf, port::pcap::Error> {
    let path = PathBuf::from(format!("millrace-panic-{}.pcap", failure.seq));
    let FailedPacket { time, link, wire_len, bytes } = packet;
    let descriptor = Packet {
        seq: Seq(0),
        time: *time,
        offset: 0,
        len: bytes.len() as u32,
        wire_len: *wire_len,
        interface: 0,
        link: *link,
        bucket: 0,
        fate: Fate::Pending,
    };
    let mut writer = Writer::create(&path, Some(Container::Pcap), None)?;
    writer.write(&descriptor, bytes)?;
    writer.finish()?;
    Ok(path)
}

/// Records the place of a run's first panic, instead of printing a message for each.
pub(super) struct PanicPlace {
    place: Arc<Mutex<Option<String>>>,
    /// Message of the first panic, for a panic that is not the function's.
    words: Arc<Mutex<Option<String>>>,
}

impl PanicPlace {
    pub(super) fn watch() -> Self {
        let (place, words) = (Arc::default(), Arc::default());
        let watching = Self { place: Arc::clone(&place), words: Arc::clone(&words) };
        panic::set_hook(Box::new(move |panic| {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            if place.is_none() {
                *place = panic.location().map(ToString::to_string);
                *words.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string());
            }
        }));
        watching
    }

    pub(super) fn take(self) -> Option<String> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for PanicPlace {
    fn drop(&mut self) {
        if thread::panicking() {
            // An uncaught panic is not the function's.
            let words = self.words.lock().unwrap_or_else(PoisonError::into_inner).take();
            note(&format!("{} {}\n", Style::stderr().bad("bug in millrace:"), words.unwrap_or_default()));
        } else {
            // Restore the standard panic message.
            let _ = panic::take_hook();
        }
    }
}
