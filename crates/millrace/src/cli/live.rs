//! `millrace run --interface`: a function on live interfaces.

use std::thread;
use std::time::{Duration, Instant};

use catalogue::{CatalogueEntry, Runs};
use clap::ValueEnum;
use daemon::Interface;
use engine::{Control, EngineError, EngineKind, Options};
use l7::defrag::{Defragmented, Limits};
use nf::{Fates, Sharing};
use port::pcap::{Container, Writer};
use port::{Port, Watched};
use port_packet::{Options as PacketOptions, PacketPort};
use port_xdp::{BusyPoll, Copying, LinkPolicy, ManagementPort, Mode, Protocol, Spread, XdpPort};
use split::Headed;

use super::control::{self, Served, Service};
use super::engines::Wanted;
use super::failure::{Failed, OUTCOME};
use super::fallback::{self, Carried};
use super::memory::Bound;
use super::observers::Observers;
use super::restart::Ended;
use super::run::{self, PanicPlace, secret};
use super::service::OnPanic;
use super::split::needs_headers_only;
use super::{engines, files, refuse_too_much, signals};
use crate::print::number::{self, count, counted};
use crate::print::outcome::{Live, Run};
use crate::print::output::{detail, note, print, print_json, remark};
use crate::print::ports::Ports;
use crate::print::style::Style;

/// Heading of these options.
const LIVE: &str = "Live interfaces";

/// Options of runs on live interfaces.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct LiveOptions {
    /// Network interface to take packets from. May be repeated: with two, what comes in by one goes out by the other; with four, the third
    /// and the fourth are paired as well
    #[arg(long = "interface", value_name = "NAME", help_heading = LIVE, conflicts_with_all = ["captures", "inputs"])]
    pub(super) interfaces: Vec<String>,
    /// Only watch: take copies of what the interfaces receive and send, by AF_PACKET. Nothing is sent, whatever the verdict, and the kernel
    /// goes on as before
    #[arg(long, help_heading = LIVE, conflicts_with_all = ["xdp", "copying", "link_traffic", "management", "busy_poll"])]
    observe: bool,
    /// Where the XDP program runs that takes the packets [default: best]
    #[arg(long, value_enum, help_heading = LIVE)]
    xdp: Option<Xdp>,
    /// Whether the kernel copies packets [default: best]
    #[arg(long, value_enum, help_heading = LIVE)]
    copying: Option<Copies>,
    /// What becomes of link traffic: ARP, IPv6 neighbour discovery, and all else that is no IP [default: across with paired interfaces,
    /// else kernel]
    #[arg(long, value_enum, help_heading = LIVE)]
    link_traffic: Option<LinkTraffic>,
    /// Port of this machine itself, such as tcp:22: its packets pass to the kernel, past the function. May be repeated
    #[arg(long, value_name = "PROTOCOL:PORT", value_parser = management, help_heading = LIVE)]
    management: Vec<ManagementPort>,
    /// Take each core's packets from a hardware queue of its own, as the card steers them. Both directions of a connection must come to
    /// the same queue (`millrace rss` helps); otherwise one queue feeds all cores, and Millrace steers
    #[arg(long, help_heading = LIVE)]
    card_steers: bool,
    /// Sequencer of a run under scr on several cores: it numbers packets and hands them to cores in turn [default: engine]
    #[arg(long, value_enum, help_heading = LIVE, conflicts_with_all = ["observe", "card_steers"])]
    sequencer: Option<Sequencing>,
    /// Packets are headers whose payloads `millrace split` has parked: the function sees the lengths of whole packets, and what it drops goes
    /// back, so that the payload is released
    #[arg(long, help_heading = LIVE, conflicts_with = "observe")]
    parked: bool,
    /// Poll the card from the receiving core, without interrupts
    #[arg(long, help_heading = LIVE)]
    busy_poll: bool,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = number::parse_positive, help_heading = LIVE)]
    seconds: Option<u64>,
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Xdp {
    /// In the driver.
    Native,
    /// In the network stack: slower, for drivers without XDP.
    Generic,
    /// In the driver if it can; else in the network stack, and a line says so.
    Best,
    /// Nowhere: packets come and go by AF_PACKET. Slower, and the kernel has copies of them, so it must not forward itself.
    Off,
}

/// The place of the sequencer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sequencing {
    /// The XDP program: each core has sockets of its own, and reads the beginnings of all packets in memory that they share. Cores send
    /// what they forward each for itself, so that packets may overtake each other on their way out.
    Xdp,
    /// The engine: cores take turns to read, to steer and to send. Packets go out in the order in which they came.
    Engine,
}

/// Whether the kernel copies packets.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Copies {
    /// It copies.
    Copy,
    /// The card writes to the memory of the run.
    ZeroCopy,
    /// No copy if the driver can; else a copy, and a line says so.
    Best,
}

/// What becomes of link traffic.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LinkTraffic {
    /// It passes to the kernel, which answers for its own addresses.
    Kernel,
    /// It goes to the function.
    Function,
    /// It goes out by the paired interface. The function doesn't see it.
    Across,
}

/// Parses a management port.
fn management(text: &str) -> Result<ManagementPort, String> {
    let wrong = || "write tcp:PORT or udp:PORT, such as tcp:22".to_owned();
    let (protocol, port) = text.split_once(':').ok_or_else(wrong)?;
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return Err(wrong()),
    };
    Ok(ManagementPort { protocol, port: port.parse().map_err(|_| wrong())? })
}

impl LiveOptions {
    /// True if the run takes its packets from interfaces.
    pub(super) const fn is_given(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// Refuses these options where no interface is named.
    pub(super) fn refuse_without_interface(&self) -> Result<(), Failed> {
        let given = [
            ("--observe", self.observe),
            ("--xdp", self.xdp.is_some()),
            ("--copying", self.copying.is_some()),
            ("--link-traffic", self.link_traffic.is_some()),
            ("--management", !self.management.is_empty()),
            ("--card-steers", self.card_steers),
            ("--sequencer", self.sequencer.is_some()),
            ("--parked", self.parked),
            ("--busy-poll", self.busy_poll),
            ("--seconds", self.seconds.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                Err(Failed::usage(format_args!("{option} is for runs on interfaces; name one with --interface")))
            }
            None => Ok(()),
        }
    }

    /// Chooses how packets are spread over the cores of a run. `takes_sequencer` says whether the engine can run behind a sequencer.
    fn spread(&self, cores: usize, takes_sequencer: Result<(), String>) -> Result<Spread, Failed> {
        if self.card_steers || cores == 1 {
            return match self.sequencer {
                Some(_) => Err(Failed::usage(
                    "--sequencer: on one core nothing is handed to cores in turn; take more, or leave it out",
                )),
                None => Ok(Spread::Queues),
            };
        }
        match (self.sequencer.unwrap_or(Sequencing::Engine), takes_sequencer) {
            (Sequencing::Engine, _) => Ok(Spread::Stream),
            (Sequencing::Xdp, Err(reason)) => Err(Failed::usage(format_args!("--sequencer xdp: {reason}"))),
            (Sequencing::Xdp, Ok(())) => Ok(Spread::Sequencer),
        }
    }

    /// The port.
    fn open(&self, spread: Spread, offload: u32) -> Result<Taken, Failed> {
        if self.observe || matches!(self.xdp, Some(Xdp::Off)) {
            if let Some(option) = self.only_xdp() {
                return Err(Failed::usage(format_args!("{option} is for XDP; leave it out with --xdp off")));
            }
            let names = self.interfaces.iter().cloned();
            let options = if self.observe { PacketOptions::observe(names) } else { PacketOptions::forward(names) };
            let single_queue = spread != Spread::Queues;
            let port = PacketPort::new(PacketOptions { single_queue, ..options }).map_err(Failed::usage)?;
            let monitor = Monitor::Packet(port.monitor());
            return Ok(Taken { port: Box::new(port), monitor });
        }
        let port = XdpPort::new(self.xdp_options(spread, offload)).map_err(Failed::usage)?;
        let monitor = Monitor::Xdp(port.monitor());
        Ok(Taken { port: Box::new(port), monitor })
    }

    /// An option that is given and has no meaning without XDP.
    fn only_xdp(&self) -> Option<&'static str> {
        let given = [
            ("--copying", self.copying.is_some()),
            ("--link-traffic", self.link_traffic.is_some()),
            ("--management", !self.management.is_empty()),
            ("--busy-poll", self.busy_poll),
            ("--sequencer xdp", self.sequencer == Some(Sequencing::Xdp)),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    fn xdp_options(&self, spread: Spread, offload: u32) -> port_xdp::Options {
        let mut options = port_xdp::Options::new(self.interfaces.iter().cloned());
        options.mode = match self.xdp.unwrap_or(Xdp::Best) {
            Xdp::Native => Mode::Native,
            Xdp::Generic => Mode::Generic,
            Xdp::Best | Xdp::Off => Mode::Best,
        };
        options.copying = match self.copying.unwrap_or(Copies::Best) {
            Copies::Copy => Copying::Copy,
            Copies::ZeroCopy => Copying::ZeroCopy,
            Copies::Best => Copying::Best,
        };
        if let Some(link) = self.link_traffic {
            options.filter.link = match link {
                LinkTraffic::Kernel => LinkPolicy::Kernel,
                LinkTraffic::Function => LinkPolicy::Function,
                LinkTraffic::Across => LinkPolicy::Across,
            };
        }
        options.filter.management.clone_from(&self.management);
        options.busy_poll = self.busy_poll.then(BusyPoll::default);
        options.spread = spread;
        options.offload = offload;
        options
    }
}

/// A port, and the handle that describes it while it runs.
struct Taken {
    port: Box<dyn Port + Send>,
    monitor: Monitor,
}

/// Handle that describes a port while it runs, and has its counters.
pub(super) enum Monitor {
    Xdp(port_xdp::Monitor),
    Packet(port_packet::Monitor),
}

impl Monitor {
    /// A line for each interface, once the port is open.
    pub(super) fn describe(&self) -> Vec<String> {
        match self {
            Self::Xdp(monitor) => monitor.describe(),
            Self::Packet(monitor) => monitor.describe(),
        }
    }

    /// The counters of each interface.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        let interface = |name: &str, trouble: &Option<String>, counters: &[(&str, u64)]| Interface {
            name: name.to_owned(),
            trouble: trouble.clone(),
            counters: counters.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
        };
        match self {
            Self::Xdp(monitor) => {
                let of = |counts: &port_xdp::InterfaceCounts| {
                    let program = &counts.program;
                    interface(
                        &counts.interface,
                        &counts.trouble,
                        &[
                            ("to-function", program.redirected),
                            ("offloaded", program.offloaded),
                            ("ring-full", counts.ring_full),
                            ("unclaimed", program.unclaimed),
                            ("unsequenced", program.history_full + program.unstamped),
                            ("link-to-kernel", program.link_passed),
                            ("management-to-kernel", program.management_passed),
                            ("link-across", counts.sent_across),
                            ("link-lost", counts.lost_across),
                        ],
                    )
                };
                monitor.counts().iter().map(of).collect()
            }
            Self::Packet(monitor) => {
                let of = |counts: &port_packet::InterfaceCounts| {
                    interface(
                        &counts.interface,
                        &counts.trouble,
                        &[
                            ("to-function", counts.received),
                            ("ring-full", counts.ring_full),
                            ("unread", counts.unread),
                            ("cut", counts.cut),
                            ("too-long", counts.too_long),
                            ("link-across", counts.across),
                            ("link-lost", counts.lost_across),
                        ],
                    )
                };
                monitor.counts().iter().map(of).collect()
            }
        }
    }

    /// The counters of the port.
    fn counted(&self) -> Live {
        match self {
            Self::Xdp(monitor) => Live::Xdp { interfaces: monitor.counts(), balances: monitor.balances() },
            Self::Packet(monitor) => Live::Packet(monitor.counts()),
        }
    }
}

pub(super) fn perform(args: &run::Args, entry: &CatalogueEntry) -> Result<(), Failed> {
    let live = &args.source.live;
    refuse_captures(args)?;
    args.dropped.refuse_name()?;
    refuse_same_files(args)?;
    refuse_with_offload(args)?;
    if live.observe && args.service.on_panic == OnPanic::Open {
        return Err(Failed::usage("--observe sends nothing, so that --on-panic open has nothing to do; leave one out"));
    }
    let program = entry.load(&args.configuration.settings()?)?;
    if live.parked {
        needs_headers_only(&*program, "--parked")?;
    }
    run::tell(&*program, args.json);
    args.reorder.tell(&*program, args.json);
    let description = program.description();
    let cores = args.cores;
    let kind = match args.engine {
        Some(Wanted::Auto) => {
            return Err(Failed::usage(
                "--engine auto times engines on a capture; take one with `millrace advise` on a capture of this traffic",
            ));
        }
        Some(Wanted::One(kind)) => kind,
        None if live.sequencer == Some(Sequencing::Xdp) => EngineKind::Scr,
        None => engines::fitting(&description, cores)?,
    };
    if live.sequencer.is_some() && kind != EngineKind::Scr {
        return Err(Failed::usage(format_args!(
            "{kind} has no sequencer; take --engine scr, or leave --sequencer out"
        )));
    }
    kind.accepts(&description, cores).map_err(Failed::usage)?;
    if live.card_steers && cores > 1 && !kind.takes_queues() {
        return Err(Failed::usage(format_args!(
            "{kind} steers packets itself, so the card can't; leave --card-steers out, or take rss, transactional or shared"
        )));
    }
    if live.card_steers {
        args.restart.refuse_with_card(kind, cores)?;
    }
    let seed = args.seed.unwrap_or_else(secret);
    let mut options =
        Options { seed, tables: args.table_options.tables(&*program)?, pin: args.pin, ..Options::default() };
    options.cuts = args.pipeline_options.cuts(matches!(args.engine, Some(Wanted::One(EngineKind::Pipeline))), cores)?;
    args.steering_options.set(&[kind], cores, &mut options)?;
    options.offload = args.offload.offload(&*program, kind, &options.tables)?;
    refuse_too_much(&*program, &[(kind, cores)])?;
    let policy = args.defragment.policy(program.wants_whole_datagrams());
    let bound = (description.sharing == Sharing::Streams)
        .then(|| Bound::new(program.memory_max(kind, cores, &options), policy));

    let takes_sequencer = match policy {
        _ if args.reorder.delay().is_some() => {
            Err("packets are held ahead of the engine, and this sequencer is ahead of that; take --sequencer engine, or leave --reorder out".into())
        }
        Some(_) => Err(format!(
            "fragments are put together ahead of the engine, and this sequencer is ahead of that; take --sequencer engine{}",
            if args.defragment.again().is_empty() { ", or --defragment off" } else { ", or leave --defragment out" }
        )),
        None => program.takes_sequencer(kind, &options),
    };
    let spread = live.spread(cores, takes_sequencer)?;
    if live.parked && spread == Spread::Sequencer {
        return Err(Failed::usage(
            "--parked: behind the sequencer in XDP nothing goes back for dropped packets; take --sequencer engine",
        ));
    }
    let queues = if spread == Spread::Stream { 1 } else { cores };
    let Taken { port, monitor } = live.open(spread, args.offload.entries())?;
    let port: Box<dyn Port + Send> = if live.parked { Box::new(Headed::new(port)) } else { port };
    let drops = args.dropped.file().map(|file| Writer::create(file, Some(Container::PcapNg), None)).transpose()?;
    let socket = control::bind(args.control.path_or_default().as_deref())?;
    // What follows has fewer rights. Threads come after it.
    let background = args.service.begin(queues)?;
    let mut observers = Observers::new(queues);
    if let Some(drops) = drops {
        observers.sample_drops(drops, description.drop_reasons);
    }
    let port = args.reorder.over(port);
    let totals = port.totals();
    let mut port = Watched::new(port, observers.watch(background.watch()));
    let control = Control::default();
    let configuration = &args.configuration;
    let about = Served {
        sequenced: spread == Spread::Sequencer,
        control: &control,
        configuration,
        entry,
        description: &description,
        kind,
        flows_max: run::flows_max(&*program),
        observers: Some(&observers),
        monitor: Some(&monitor),
        background: Some(&background),
    };
    let served = about.at(socket)?;
    signals::stop_on_interrupt(&control.stop);
    signals::stop_on_hangup(&control.stop);
    detail(|| format!("{} under {kind}, seed {seed}\n", description.name));
    if let Some(bound) = bound.filter(|_| !args.json) {
        bound.tell();
    }
    let place = PanicPlace::watch();
    let mut fragments = None;
    let wait = |running: Box<dyn Runs + '_>| {
        let lines = opened(&*running, &monitor);
        for line in &lines {
            match background.logs() {
                true => tracing::info!("{line}"),
                false if args.json => {}
                false => remark(&format!("{line}\n")),
            }
        }
        if !lines.is_empty() {
            background.ready(format!("{} under {kind} on {}", description.name, live.interfaces.join(", ")));
        }
        let end = live.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        served.wait_until(running, || {
            if end.is_some_and(|end| Instant::now() >= end) {
                control.stop();
            }
        })
    };
    let (restart, settings) = (&args.restart, served.configuration());
    let outcome = match policy {
        Some(policy) => {
            let mut gathering = Defragmented::new(&mut port, policy, Limits::default());
            let outcome = restart.over(&*program, (kind, cores), options, &mut gathering, &control, settings, wait);
            fragments = Some(gathering.totals().get());
            outcome
        }
        None => restart.over(&*program, (kind, cores), options, &mut port, &control, settings, wait),
    };
    let place = place.take();
    background.stopping();
    let Ended { outcome, saved } = outcome?;
    let failure = outcome.failure.as_ref().filter(|error| matches!(error, EngineError::Panicked(_)));
    if let Some(error) = failure {
        let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
        note(&format!("{} {error}{place}; this is a bug in the function\n", Style::stderr().bad("error:")));
        if !live.observe && args.service.on_panic != OnPanic::Exit {
            let is_open = args.service.on_panic == OnPanic::Open;
            stand_in(&mut port, cores, is_open, &control, &served)?;
        }
    }
    drop(port);
    let sampled = observers.finish();
    let fates = Fates { received: outcome.counters.received, dropped: &outcome.counters.dropped };
    let input = live.interfaces.join(", ");
    let summary = Run {
        description: &description,
        kind,
        cores,
        seed: options.seed,
        tables: program.keeps_flows().then_some(&options.tables),
        input: input.clone(),
        output: None,
        clock_steps_back: 0,
        stamps_not_believed: 0,
        ports: Ports::of(program.ports(), live.interfaces.len(), &port::pcap::Misplaced::default()),
        unread_links: Vec::new(),
        fragments: policy.zip(fragments),
        split: None,
        reordered: args.reorder.counted(&totals),
        bound,
        dropped: None,
        dropped_file: None,
        remark: program.remark(&fates).map(|note| args.configuration.named(&note)),
        live: Some(monitor.counted()),
        latency: observers.latency(),
        outcome: &outcome,
    };
    background.finish();
    match args.json {
        false => print(&summary.text(Style::stdout()))?,
        true => print_json(&summary.json())?,
    }
    saved?;
    sampled?;
    match &outcome.failure {
        None => run::declared(&description, &outcome.counters),
        Some(EngineError::Port(error)) => Err(Failed::input(error)),
        Some(EngineError::Panicked(_)) => Err(Failed::Said(OUTCOME)),
        Some(error) => {
            note(&format!("{} {error}\n", Style::stderr().bad("error:")));
            Err(Failed::Said(OUTCOME))
        }
    }
}

/// Takes the packets in place of a function that has panicked, until the run is told to stop.
fn stand_in(
    port: &mut (dyn Port + Send),
    cores: usize,
    is_open: bool,
    control: &Control,
    served: &Service<'_>,
) -> Result<(), Failed> {
    let what = match is_open {
        true => "packets go across as they are, until the run is stopped (--on-panic open)",
        false => "packets are dropped, until the run is stopped (--on-panic closed)",
    };
    note(&format!("{what}\n"));
    let carried = thread::scope(|scope| {
        let carrying = scope.spawn(|| {
            let carried = fallback::carry(port, cores, is_open, control);
            // An error of the port ends the run, too.
            control.stop();
            carried
        });
        served.tell_panic(what);
        carrying.join().expect("nothing panics there")
    });
    let Carried { received, sent } = carried.map_err(Failed::input)?;
    note(&format!("after the panic: {} received, {} sent\n", counted(received, "packet", "packets"), count(sent)));
    Ok(())
}

/// Interval at which a starting run is checked for open interfaces.
const LOOK: Duration = Duration::from_millis(5);

/// A line for each interface, once it is open: how it is used. Empty if the run ends before.
fn opened(running: &dyn Runs, monitor: &Monitor) -> Vec<String> {
    while !running.has_ended() {
        let lines = monitor.describe();
        if !lines.is_empty() {
            return lines;
        }
        thread::sleep(LOOK);
    }
    Vec::new()
}

/// Refuses a file that the run would write for two options, or read and write. Flows may come from a file and go to it again.
fn refuse_same_files(args: &run::Args) -> Result<(), Failed> {
    let written = [
        ("the file of --dropped", args.dropped.file()),
        ("the file of --ipfix", args.service.file()),
        ("the file of --snapshot", args.restart.snapshot()),
    ];
    let read = args.configuration.files().map(|(_, path)| ("a configuration", Some(path.as_path())));
    let read: Vec<_> = read.chain([("the file of --restore", args.restart.restored())]).collect();
    for (number, (what, file)) in written.iter().enumerate() {
        let Some(file) = file else { continue };
        files::refuse_same(file, &written[number + 1..])?;
        let is_flows = *what == "the file of --snapshot";
        files::refuse_same(file, &read[..read.len() - usize::from(is_flows)])?;
    }
    Ok(())
}

/// Refuses options with which the XDP program can't take packets ahead of the function.
fn refuse_with_offload(args: &run::Args) -> Result<(), Failed> {
    if !args.offload.is_given() {
        return Ok(());
    }
    let live = &args.source.live;
    let given = [
        (live.observe, "--observe", "nothing is sent, so the XDP program can't forward packets"),
        (
            matches!(live.xdp, Some(Xdp::Off)),
            "--xdp off",
            "packets come and go by AF_PACKET, and only an XDP program takes some ahead of the function",
        ),
        (live.parked, "--parked", "the function has to see each packet, as payloads of dropped ones are released"),
        (
            args.reorder.delay().is_some(),
            "--reorder",
            "packets are held ahead of the function, and those of the XDP program would overtake them",
        ),
        (
            args.service.exports_flows(),
            "--ipfix",
            "flows are exported as the function's packets show them, and it doesn't see all",
        ),
        (
            args.offload.has_card_limits(),
            "--card-insertions",
            "it is a limit of the simulated card, which is for captures",
        ),
    ];
    match given.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, reason)) => {
            Err(Failed::usage(format_args!("--offload with --interface: {reason}; leave {option} or --offload out")))
        }
        None => Ok(()),
    }
}

/// Refuses options that are about captures.
fn refuse_captures(args: &run::Args) -> Result<(), Failed> {
    let given = [
        ("--out", args.output.is_some()),
        ("--format", args.format.is_some()),
        ("--sequenced", args.sequenced),
        ("--packets", args.packets.is_some()),
        ("--flows", args.flows.is_some()),
        ("--sources", args.dropped.lists_sources()),
        ("--filter, --from and --to", args.source.captures.is_part()),
        ("--split", args.split.is_given()),
        ("--link-loss and --loss-recovery", args.link.link(0).is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            let (are, them) = if option.contains(" and ") { ("are", "them") } else { ("is", "it") };
            Err(Failed::usage(format_args!("{option} {are} for captures; leave {them} out with --interface")))
        }
        None => Ok(()),
    }
}
