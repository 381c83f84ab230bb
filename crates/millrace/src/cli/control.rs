//! The control socket of `millrace run`: what `millrace ctl` asks, and what the run answers.

use std::cell::{self, RefCell};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use catalogue::{CatalogueEntry, FlowEnds, FlowRow, Runs, TakeOver};
use daemon::{
    ControlSocket, Core, DaemonError, Dropped, FlowLine, Flows, Reply, Request, Stats, Table, TracedPacket,
    Transactions,
};
use engine::{Control, CoreProgress, Counters, EngineError, EngineKind, Options, Outcome};
use nf::{Cell, Description, Reason, Report};
use packet::{FiveTuple, parse};
use port::{Fate, Packet};
use watch::Traced;

use super::Configuration;
use super::explain::read;
use super::failure::Failed;
use super::filter::Filter;
use super::live::Monitor;
use super::observers::Observers;
use super::restart;
use super::service::Background;
use crate::print::output::{detail, note, warn};

/// The option that opens a control socket.
#[derive(clap::Args)]
pub(super) struct ControlOption {
    /// Answer `millrace ctl` at this socket while the run goes on. Only the user who runs this may ask. Runs on interfaces always do,
    /// unless PATH is none [default path: /run/millrace.sock for root, else $XDG_RUNTIME_DIR/millrace.sock]
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    control: Option<PathBuf>,
}

impl ControlOption {
    /// The path, if there is to be a socket.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let path = self.control.as_ref().filter(|path| path.as_os_str() != "none")?;
        Some(if path.as_os_str().is_empty() { default_path() } else { path.clone() })
    }

    /// The path, if nobody has asked for none.
    pub(super) fn path_or_default(&self) -> Option<PathBuf> {
        if self.control.is_none() { Some(default_path()) } else { self.path() }
    }
}

/// Where a control socket is if nobody says.
pub(super) fn default_path() -> PathBuf {
    const NAME: &str = "millrace.sock";
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        _ if rustix::process::geteuid().is_root() => Path::new("/run").join(NAME),
        Some(folder) => Path::new(&folder).join(NAME),
        None => env::temp_dir().join(format!("millrace-{}.sock", rustix::process::geteuid().as_raw())),
    }
}

/// Interval at which a run without a socket is checked for its end.
const LOOK: Duration = Duration::from_millis(50);

/// A run's function, engine and configuration, from which its replies are made.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) control: &'a Control,
    pub(super) configuration: &'a Configuration,
    pub(super) entry: &'a CatalogueEntry,
    pub(super) description: &'a Description,
    pub(super) kind: EngineKind,
    /// Number of flows that the tables have room for; 0 for a function without flows.
    pub(super) flows_max: u64,
    pub(super) observers: Option<&'a Observers>,
    pub(super) monitor: Option<&'a Monitor>,
    /// What goes on beside a run on interfaces.
    pub(super) background: Option<&'a Background>,
    /// True if the port sequences, so that other configurations have to be able to go behind it, too.
    pub(super) sequenced: bool,
}

/// Opens the socket at `path`, if there is to be one.
pub(super) fn bind(path: Option<&Path>) -> Result<Option<ControlSocket>, Failed> {
    let socket = path.map(ControlSocket::bind).transpose().map_err(|error| match error {
        DaemonError::InUse(_) | DaemonError::NoSocket(_) => Failed::usage(error),
        error => Failed::input(error),
    })?;
    if let Some(socket) = &socket {
        detail(|| format!("control socket: {}\n", socket.path().display()));
    }
    Ok(socket)
}

/// A run's socket, if it has one.
pub(super) struct Service<'a> {
    about: Served<'a>,
    socket: Option<ControlSocket>,
    begun: Instant,
    stall: RefCell<Stall>,
    /// When the interfaces were looked at, and how they were.
    interfaces: RefCell<(Instant, Vec<String>)>,
    /// True once it is told that dropped packets can't be written.
    is_trouble_told: cell::Cell<bool>,
    /// The settings that the run has now, as text.
    settings: Arc<Mutex<String>>,
}

/// Looks for cores that do nothing.
struct Stall {
    looked: Instant,
    /// Progress at the last look.
    before: Vec<CoreProgress>,
    /// The core that neither worked nor waited since.
    core: Option<usize>,
}

/// A core that neither works on packets nor waits for them for so long has stalled. A waiting core looks up many times meanwhile.
const STALLED: Duration = Duration::from_secs(3);

impl Stall {
    /// Looks at the cores' progress, and returns a core that has just stalled.
    fn look(&mut self, control: &Control) -> Option<usize> {
        if self.looked.elapsed() < STALLED {
            return None;
        }
        let now = control.cores();
        let stands = |(before, now): (&CoreProgress, &CoreProgress)| before == now;
        let core = self.before.iter().zip(&now).position(stands).filter(|_| self.before.len() == now.len());
        let news = core.filter(|_| core != self.core);
        *self = Self { looked: Instant::now(), before: now, core };
        news
    }
}

impl<'a> Served<'a> {
    /// Answers at this socket, if there is one.
    pub(super) fn at(self, socket: Option<ControlSocket>) -> Result<Service<'a>, Failed> {
        let stall = RefCell::new(Stall { looked: Instant::now(), before: Vec::new(), core: None });
        let settings = Arc::new(Mutex::new(self.configuration.settings()?.canonical()));
        let interfaces = RefCell::new((Instant::now(), Vec::new()));
        Ok(Service {
            about: self,
            socket,
            begun: Instant::now(),
            stall,
            interfaces,
            is_trouble_told: cell::Cell::new(false),
            settings,
        })
    }
}

impl Service<'_> {
    /// Answers requests until the run has ended, and waits for its outcome.
    pub(super) fn wait(&self, running: Box<dyn Runs + '_>) -> Result<Outcome, EngineError> {
        self.serve(&*running, || ());
        running.wait()
    }

    /// The run's configuration.
    pub(super) fn configuration(&self) -> restart::Configured<'_> {
        let Served { entry, configuration, .. } = self.about;
        restart::Configured { entry, configuration, settings: Arc::clone(&self.settings) }
    }

    /// The same. Calls `often` some times a second meanwhile.
    pub(super) fn wait_until(&self, running: Box<dyn Runs + '_>, often: impl Fn()) -> Result<Outcome, EngineError> {
        self.serve(&*running, &often);
        while !running.has_ended() {
            often();
            self.look_around(&*running);
            thread::sleep(LOOK);
        }
        running.wait()
    }

    fn serve(&self, running: &dyn Runs, often: impl Fn()) {
        let is_over = || {
            often();
            self.look_around(running);
            running.has_ended()
        };
        if let Some(socket) = &self.socket {
            socket.serve(is_over, |request| self.answer(running, request));
        }
    }

    /// Names a core that has stalled, and lets the background work go on.
    fn look_around(&self, running: &dyn Runs) {
        let news = self.stall.borrow_mut().look(self.about.control);
        if let Some(core) = news {
            let seconds = STALLED.as_secs();
            match self.about.background.filter(|background| background.logs()) {
                Some(_) => tracing::warn!(core, seconds, "a core has neither worked nor waited for packets"),
                None => warn(&format!(
                    "core {core} has stalled: it has neither worked nor waited for packets for {seconds} seconds\n"
                )),
            }
        }
        self.watch_interfaces();
        self.watch_drops();
        if let Some(background) = self.about.background {
            let works = self.stall.borrow().core.is_none();
            background.often(|| self.stats(running), works);
        }
    }

    /// Tells, once, that the file of dropped packets can't be written. The run goes on without it.
    fn watch_drops(&self) {
        let trouble = self.about.observers.and_then(|observers| observers.trouble());
        let Some(trouble) = trouble.filter(|_| !self.is_trouble_told.get()) else { return };
        self.is_trouble_told.set(true);
        match self.about.background.filter(|background| background.logs()) {
            Some(_) => tracing::error!("--dropped ends here: {trouble}"),
            None => note(&format!("--dropped ends here: {trouble}\n")),
        }
    }

    /// Tells what has changed about the interfaces: one is down, gone, or back.
    fn watch_interfaces(&self) {
        let Some(monitor) = self.about.monitor else { return };
        let (looked, before) = &mut *self.interfaces.borrow_mut();
        // At the end programs are taken off, which is no news.
        if self.about.control.is_stopping() {
            return;
        }
        // The first look is at the start, so that a change in the first second is told.
        if looked.elapsed() < Duration::from_secs(1) && !before.is_empty() {
            return;
        }
        let now = monitor.describe();
        let changed = |(now, before): &(&String, &String)| now != before;
        let in_trouble = monitor.interfaces().into_iter().map(|interface| interface.trouble.is_some());
        for ((line, _), in_trouble) in now.iter().zip(before.iter()).zip(in_trouble).filter(|(lines, _)| changed(lines))
        {
            let tell = if in_trouble { warn } else { note };
            tell(&format!("{line}\n"));
        }
        (*looked, *before) = (Instant::now(), now);
    }

    /// Tells who asks that the function has panicked, until the run is told to stop.
    pub(super) fn tell_panic(&self, what: &str) {
        let Some(socket) = &self.socket else { return };
        let control = self.about.control;
        socket.serve(
            || control.is_stopping(),
            |request| match request {
                Request::Stop {} => {
                    control.stop();
                    Reply::Done("the run ends".to_owned())
                }
                _ => Reply::Error(format!("the function has panicked; {what}")),
            },
        );
    }

    fn answer(&self, running: &dyn Runs, request: Request) -> Reply {
        let answer = match request {
            Request::Stats {} => self.stats(running).map(Reply::Stats),
            Request::Flows { filter, rows_max } => match filter.as_deref().map(Filter::parse).transpose() {
                Ok(filter) => flows(running, filter, rows_max).map(Reply::Flows),
                Err(error) => Some(Reply::Error(error)),
            },
            Request::Snapshot { path } => self.snapshot(running, &path),
            Request::Trace { filter, packets_max } => Some(self.trace(filter.as_deref(), packets_max)),
            Request::Traced { with_state } => Some(self.traced(running, with_state)),
            Request::Report {} => running.report().map(|report| Reply::Report(report.as_ref().map(table))),
            Request::Reload { name, text } => Some(self.reload(running, name, text)),
            Request::Stop {} => {
                self.about.control.stop();
                Some(Reply::Done("the run finishes the packets that it has, and ends".to_owned()))
            }
        };
        answer.unwrap_or_else(|| Reply::Error("the run has just ended".to_owned()))
    }

    fn stats(&self, running: &dyn Runs) -> Option<Stats> {
        let Served { control, description, kind, flows_max, observers, monitor, .. } = self.about;
        let numbers = running.numbers()?;
        let progress = control.cores();
        let mut total = Counters::default();
        numbers.cores.iter().for_each(|core| total.add(core));
        let core = |(number, core): (usize, &Counters)| Core {
            received: core.received,
            received_bytes: core.received_bytes,
            forwarded: core.forwarded,
            replied: core.replied,
            dropped: core.dropped_total(),
            idle_ns: progress.get(number).map_or(0, |core| nanos(core.idle)),
        };
        let reasons = description.drop_reasons;
        let dropped = |(reason, packets): (Reason, u64)| Dropped { reason: reason.name(reasons).to_owned(), packets };
        Some(Stats {
            function: description.name.to_owned(),
            engine: kind.to_string(),
            uptime_ms: millis(self.begun.elapsed()),
            cores: numbers.cores.iter().enumerate().map(core).collect(),
            dropped: total.drops().map(dropped).collect(),
            flows: numbers.entries(),
            flows_opened: numbers.flows.opened,
            flows_max,
            transactions: numbers.transactions.map(|(committed, aborted)| Transactions { committed, aborted }),
            interfaces: monitor.map(Monitor::interfaces).unwrap_or_default(),
            latency: observers.and_then(Observers::latency),
            top_flows: observers.map(Observers::top_flows).unwrap_or_default(),
            stalled: self.stall.borrow().core.map(|core| core as u64),
        })
    }

    fn snapshot(&self, running: &dyn Runs, path: &Path) -> Option<Reply> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let name = path.display();
        Some(match running.snapshot(settings)? {
            Err(error) => Reply::Error(error.to_string()),
            Ok(snapshot) => match restart::write(&snapshot, path) {
                Ok(()) => Reply::Done(format!("{name}: {}", restart::content(&snapshot))),
                Err(error) => Reply::Failed(format!("{name}: can't be written: {error}")),
            },
        })
    }

    fn trace(&self, filter: Option<&str>, packets_max: u32) -> Reply {
        let Some(observers) = self.about.observers else {
            return Reply::Error("this run's packets can't be traced".to_owned());
        };
        let filter = match filter.map(Filter::parse).transpose() {
            Ok(filter) => filter,
            Err(error) => return Reply::Error(error),
        };
        let fits = move |packet: &Packet, bytes: &[u8]| {
            let headers = parse(packet.link, bytes, packet.wire_len, packet.interface);
            filter.as_ref().is_none_or(|filter| filter.fits(packet, headers.as_ref().ok()))
        };
        // More would be no help to anybody, and would fill the memory.
        observers.traces.begin(Box::new(fits), packets_max.min(TRACED_MAX) as usize);
        Reply::Done("packets are traced from now on".to_owned())
    }

    fn traced(&self, running: &dyn Runs, with_state: bool) -> Reply {
        match self.about.observers.and_then(|observers| observers.traces.take()) {
            None => Reply::Error("there is no trace".to_owned()),
            Some(taken) => {
                let packet = |traced| self.traced_packet(running, traced, with_state);
                let packets = taken.packets.iter().map(packet).collect();
                Reply::Traced(daemon::Traced { packets, left_out: taken.left_out })
            }
        }
    }

    /// The name of an interface, or its number in a capture.
    fn interface(&self, number: u16) -> String {
        let names = self.about.monitor.map(Monitor::interfaces).unwrap_or_default();
        names.into_iter().nth(number.into()).map_or_else(|| number.to_string(), |interface| interface.name)
    }

    fn traced_packet(&self, running: &dyn Runs, traced: &Traced, with_state: bool) -> TracedPacket {
        let Traced { packet, bytes, .. } = traced;
        let headers = parse(packet.link, bytes, packet.wire_len, packet.interface);
        let tuple = headers.as_ref().ok().and_then(packet::Headers::five_tuple).filter(|_| with_state);
        let found = tuple.and_then(|tuple| running.flows(Box::new(move |ends| is_about(ends, &tuple)), STATES_MAX));
        let reason = match packet.fate {
            Fate::Drop(reason) => Some(Reason(reason).name(self.about.description.drop_reasons).to_owned()),
            Fate::Pending | Fate::Transmit(_) | Fate::Both(..) => None,
        };
        TracedPacket {
            number: packet.seq.0,
            time_ns: packet.time.0,
            interface: self.interface(packet.interface),
            parsed: read(&headers),
            sent_by: packet.fate.ports().map(|port| self.interface(port)).collect(),
            reason,
            flows: found.map(|found| found.rows.into_iter().map(line).collect()).unwrap_or_default(),
        }
    }

    fn reload(&self, running: &dyn Runs, name: String, text: String) -> Reply {
        let background = self.about.background;
        if let Some(background) = background {
            background.reloading();
        }
        let file = name.clone();
        let reply = self.reload_now(running, name, text);
        if let Some(background) = background {
            background.reloaded();
            if background.logs() {
                match &reply {
                    Reply::Done(done) => tracing::info!(file, "reloaded: {done}"),
                    Reply::Error(error) => tracing::error!(file, "not reloaded: {error}"),
                    _ => {}
                }
            }
        }
        reply
    }

    fn reload_now(&self, running: &dyn Runs, name: String, text: String) -> Reply {
        let Served { entry, kind, sequenced, .. } = self.about;
        let loaded = self.configured(name, text).and_then(|settings| {
            let program = entry.load(&settings)?;
            if sequenced {
                program.takes_sequencer(kind, &Options::default()).map_err(Failed::usage)?;
            }
            Ok((program, settings.canonical()))
        });
        match loaded {
            Err(failed) => Reply::Error(failed.into_parts().1.map_or_else(String::new, |error| error.to_string())),
            Ok((program, settings)) => match running.reload(program) {
                Ok(TakeOver::From(first)) => {
                    *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
                    Reply::Done(format!("packets from number {first} on get the new configuration"))
                }
                Ok(TakeOver::Ended) => Reply::Error("the run has just ended".to_owned()),
                Ok(TakeOver::OtherFunction) => Reply::Error("this is another function's configuration".to_owned()),
                Err(error) => Reply::Error(error.to_string()),
            },
        }
    }

    /// The settings with the text of a file in place of the one that the run began with. Its ending tells which; a function of rules or of a
    /// program takes these, unless it is TOML.
    fn configured(&self, name: String, text: String) -> Result<catalogue::config::Settings, Failed> {
        // A file that an editor or a full disk has just emptied would set everything to its default.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Err(Failed::usage(format_args!("{name} is empty; nothing was changed")));
        }
        let Served { configuration, description, .. } = &self.about;
        let is_toml = Path::new(&name).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
        let key = match description.name {
            _ if is_toml => None,
            "rules" => Some("rules"),
            "efsm" => Some("program"),
            _ => None,
        };
        match key {
            None => configuration.settings_on(name, text, true),
            Some(key) => configuration.settings_with_text(key, name, text),
        }
    }
}

fn flows(running: &dyn Runs, filter: Option<Filter>, rows_max: u32) -> Option<Flows> {
    let fits = move |ends: &FlowEnds| filter.as_ref().is_none_or(|filter| filter.fits_flow(ends));
    let seen = running.flows(Box::new(fits), rows_max as usize)?;
    Some(Flows { rows: seen.rows.into_iter().map(line).collect(), fit: seen.fit, all: seen.all })
}

fn line(row: FlowRow) -> FlowLine {
    FlowLine { key: row.key, state: row.state, expires_in_ms: row.expires_in.0 / 1_000_000 }
}

/// Packets of a trace at most.
const TRACED_MAX: u32 = 1000;
/// Flows of a traced packet at most.
const STATES_MAX: usize = 8;

/// True if a flow with these ends is one of a packet with this tuple, in either direction.
fn is_about(ends: &FlowEnds, tuple: &FiveTuple) -> bool {
    let one_way = |tuple: &FiveTuple| {
        let (source, destination) = (tuple.source(), tuple.destination());
        ends.source.is_none_or(|address| address == source.address)
            && ends.destination.is_none_or(|address| address == destination.address)
            && ends.ports.is_none_or(|ports| ports == (source.port, destination.port))
            && ends.protocol.is_none_or(|protocol| protocol == tuple.protocol())
    };
    ends.source.is_some() && (one_way(tuple) || one_way(&tuple.reversed()))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn table(report: &Report) -> Table {
    let cell = |cell: &Cell| match cell {
        Cell::Text(text) => text.clone(),
        Cell::Count(number) | Cell::Number(number) => number.to_string(),
    };
    Table {
        title: report.title.clone(),
        columns: report.columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: report.rows.iter().map(|row| row.iter().map(cell).collect()).collect(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
