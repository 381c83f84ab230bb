//! The control socket of `millrace run`: what `millrace ctl` asks, and what the run answers.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use catalogue::{CatalogueEntry, FlowEnds, Runs, TakeOver};
use daemon::{ControlSocket, Core, DaemonError, Dropped, FlowLine, Flows, Reply, Request, Stats, Table};
use engine::{Control, Counters, EngineError, EngineKind, Outcome};
use nf::{Cell, Description, Report};

use super::Configuration;
use super::failure::Failed;
use super::filter::Filter;
use crate::print::output::detail;

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
}

/// A run's socket, if it has one.
pub(super) struct Service<'a> {
    about: Served<'a>,
    socket: Option<ControlSocket>,
    begun: Instant,
}

impl<'a> Served<'a> {
    /// Opens the socket at `path`, if there is to be one.
    pub(super) fn at(self, path: Option<&Path>) -> Result<Service<'a>, Failed> {
        let socket = path.map(ControlSocket::bind).transpose().map_err(|error| match error {
            DaemonError::InUse(_) | DaemonError::NoSocket(_) => Failed::usage(error),
            error => Failed::input(error),
        })?;
        if let Some(socket) = &socket {
            detail(|| format!("control socket: {}\n", socket.path().display()));
        }
        Ok(Service { about: self, socket, begun: Instant::now() })
    }
}

impl Service<'_> {
    /// Answers requests until the run has ended, and waits for its outcome.
    pub(super) fn wait(&self, running: Box<dyn Runs + '_>) -> Result<Outcome, EngineError> {
        self.serve(&*running, || ());
        running.wait()
    }

    /// The same. Calls `often` some times a second meanwhile.
    pub(super) fn wait_until(&self, running: Box<dyn Runs + '_>, often: impl Fn()) -> Result<Outcome, EngineError> {
        self.serve(&*running, &often);
        while !running.has_ended() {
            often();
            thread::sleep(LOOK);
        }
        running.wait()
    }

    fn serve(&self, running: &dyn Runs, often: impl Fn()) {
        let is_over = || {
            often();
            running.has_ended()
        };
        if let Some(socket) = &self.socket {
            socket.serve(is_over, |request| self.answer(running, request));
        }
    }

    fn answer(&self, running: &dyn Runs, request: Request) -> Reply {
        let answer = match request {
            Request::Stats {} => self.stats(running).map(Reply::Stats),
            Request::Flows { filter, rows_max } => match filter.as_deref().map(Filter::parse).transpose() {
                Ok(filter) => flows(running, filter, rows_max).map(Reply::Flows),
                Err(error) => Some(Reply::Error(error)),
            },
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
        let counters = running.counters()?;
        let tables = running.tables()?;
        let mut total = Counters::default();
        counters.iter().for_each(|core| total.add(core));
        let core = |core: &Counters| Core {
            received: core.received,
            received_bytes: core.received_bytes,
            forwarded: core.forwarded,
            replied: core.replied,
            dropped: core.dropped_total(),
            ..Core::default()
        };
        let reasons = self.about.description.drop_reasons;
        let dropped =
            |(reason, packets): (nf::Reason, u64)| Dropped { reason: reason.name(reasons).to_owned(), packets };
        Some(Stats {
            function: self.about.description.name.to_owned(),
            engine: self.about.kind.to_string(),
            uptime_ms: millis(self.begun.elapsed()),
            cores: counters.iter().map(core).collect(),
            dropped: total.drops().map(dropped).collect(),
            flows: tables.entries as u64,
            flows_opened: tables.flows.opened,
            ..Stats::default()
        })
    }

    fn reload(&self, running: &dyn Runs, name: String, text: String) -> Reply {
        match self.configured(name, text).and_then(|settings| Ok(self.about.entry.load(&settings)?)) {
            Err(failed) => Reply::Error(failed.into_parts().1.map_or_else(String::new, |error| error.to_string())),
            Ok(program) => match running.reload(program) {
                Ok(TakeOver::From(first)) => {
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
            Some(key) => {
                let mut settings = configuration.settings()?;
                settings.set_text(key, name, text);
                Ok(settings)
            }
        }
    }
}

fn flows(running: &dyn Runs, filter: Option<Filter>, rows_max: u32) -> Option<Flows> {
    let fits = move |ends: &FlowEnds| filter.as_ref().is_none_or(|filter| filter.fits_flow(ends));
    let seen = running.flows(Box::new(fits), rows_max as usize)?;
    let row = |row: catalogue::FlowRow| FlowLine {
        key: row.key,
        state: row.state,
        expires_in_ms: row.expires_in.0 / 1_000_000,
    };
    Some(Flows { rows: seen.rows.into_iter().map(row).collect(), fit: seen.fit, all: seen.all })
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
