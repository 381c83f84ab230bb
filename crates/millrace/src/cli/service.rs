//! A run on interfaces as a service: metrics, a page, exported flows, fewer rights, logs, and the service manager.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use daemon::{
    Capability, DaemonError, Format, HttpServer, Latest, Logs, Notifier, Routes, Serving, Stats, drop_rights,
    restrict_system_calls,
};
use ipfix::{Destination, Exporter, ExporterOptions, MeterOptions, Tap};
use packet::Nanos;
use port::{Batch, Watch};
use tracing::Level;

use super::failure::Failed;
use crate::print::number::count;
use crate::print::output::{detail, log_notes, note, remark, warn};

/// Heading of these options.
const SERVICE: &str = "Service";

/// Options of a run on interfaces as a service.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct ServiceOptions {
    /// Serve metrics for Prometheus at http://ADDRESS/metrics. Whoever reaches the address can read them [default address:
    /// 127.0.0.1:9478]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9478", value_parser = address, help_heading = SERVICE)]
    metrics: Option<SocketAddr>,
    /// Serve a live page at http://ADDRESS/, such as 127.0.0.1:8080. Whoever reaches the address can read it
    #[arg(long, value_name = "ADDRESS", value_parser = address, help_heading = SERVICE)]
    page: Option<SocketAddr>,
    /// Export flows that have ended by IPFIX, both directions in one record: udp:HOST:PORT, tcp:HOST:PORT, or a file, which
    /// is begun anew
    #[arg(long, value_name = "COLLECTOR", value_parser = destination, help_heading = SERVICE)]
    ipfix: Option<Destination>,
    /// Become this user, a name or a number, once the interfaces are known. The user must be allowed to read the configuration,
    /// and must own the files of --ipfix, --dropped, --snapshot and --restore, and their folders
    #[arg(long, value_name = "USER", help_heading = SERVICE)]
    user: Option<String>,
    /// Keep all rights and system calls. By default a run keeps the capabilities that interfaces need, and can start no programs
    #[arg(long, conflicts_with = "user", help_heading = SERVICE)]
    keep_rights: bool,
    /// Log what happens to standard error, at most 10 lines of each kind in 10 seconds
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = SERVICE)]
    log: Option<LogFormat>,
    /// What happens to packets after the function has panicked, which is a bug in it
    #[arg(long, value_name = "WHAT", value_enum, default_value = "closed", help_heading = SERVICE)]
    pub(super) on_panic: OnPanic,
}

/// Form of logs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Lines for people.
    Text,
    /// An object of JSON on each line.
    Json,
}

/// Treatment of packets after a panic of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnPanic {
    /// Packets are dropped until the run is stopped.
    Closed,
    /// Packets go across as they are until the run is stopped.
    Open,
    /// The run ends. The kernel gets the packets then.
    Exit,
}

/// Parses an address of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is no address; write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080"))
}

/// Parses a collector.
fn destination(text: &str) -> Result<Destination, String> {
    let address = |text: &str| -> Result<SocketAddr, String> {
        let mut found = text.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?;
        let found = found.next().ok_or_else(|| format!("{text} has no address"))?;
        if found.port() == 0 { Err(format!("{text}: nobody listens at port 0")) } else { Ok(found) }
    };
    match text.split_once(':') {
        Some(("udp", rest)) => address(rest).map(Destination::Udp),
        Some(("tcp", rest)) => address(rest).map(Destination::Tcp),
        _ if text == "-" => Err("standard output is for the summary; name a file".to_owned()),
        Some((scheme, _)) if scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Err(format!("`{scheme}` is no transport here; write udp:HOST:PORT, tcp:HOST:PORT or a file"))
        }
        _ => Ok(Destination::File(PathBuf::from(text))),
    }
}

impl ServiceOptions {
    /// True if flows are exported.
    pub(super) const fn exports_flows(&self) -> bool {
        self.ipfix.is_some()
    }

    /// The file that flows are exported to.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.ipfix {
            Some(Destination::File(path)) => Some(path),
            Some(Destination::Udp(_) | Destination::Tcp(_)) | None => None,
        }
    }

    /// An option that is given, if one is. These options are for runs on interfaces.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--metrics", self.metrics.is_some()),
            ("--page", self.page.is_some()),
            ("--ipfix", self.ipfix.is_some()),
            ("--user", self.user.is_some()),
            ("--keep-rights", self.keep_rights),
            ("--log", self.log.is_some()),
            ("--on-panic", self.on_panic != OnPanic::Closed),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// Binds what needs rights, gives them up, and begins the rest. No thread may have been started before.
    pub(super) fn begin(&self, queues: usize) -> Result<Background, Failed> {
        let notifier = Notifier::from_env().map_err(Failed::usage)?;
        let one = self.metrics.is_some() && self.metrics == self.page;
        let routes = |metrics, page| Routes { metrics, page };
        let wanted = match one {
            true => vec![(self.page, routes(true, true))],
            false => vec![(self.metrics, routes(true, false)), (self.page, routes(false, true))],
        };
        let mut servers = Vec::new();
        for (address, routes) in wanted {
            if let Some(address) = address {
                servers.push((HttpServer::bind(address).map_err(Failed::usage)?, routes));
            }
        }
        if !self.keep_rights {
            let rights =
                drop_rights(self.user.as_deref(), &Capability::FOR_INTERFACES).map_err(|error| match error {
                    DaemonError::NoUser(_) | DaemonError::PrivilegedUser(_) | DaemonError::NotRoot(_) => {
                        Failed::usage(error)
                    }
                    error => Failed::input(error),
                })?;
            detail(|| format!("rights: {rights}\n"));
            restrict_system_calls()
                .map_err(|error| Failed::input(format_args!("{error}; --keep-rights does without")))?;
        }
        let logs = self.log.map(|format| {
            let format = match format {
                LogFormat::Text => Format::Text,
                LogFormat::Json => Format::Json,
            };
            Logs::begin(format, Level::INFO).map_err(Failed::input)
        });
        let logs = logs.transpose()?;
        if logs.is_some() {
            log_notes();
        }
        let latest = Arc::new(Latest::new());
        let mut serving = Vec::new();
        for (server, routes) in servers {
            let server = server.serve(routes, Arc::clone(&latest)).map_err(Failed::input)?;
            let path = if routes.page { "" } else { "metrics" };
            remark(&format!("http://{}/{path}\n", server.addr()));
            serving.push(server);
        }
        let exported = self.ipfix.as_ref().map(|to| Exported::begin(to, queues, !self.keep_rights)).transpose()?;
        Ok(Background {
            notifier,
            logs,
            latest,
            serving,
            exported,
            sampled: Mutex::new(None),
            alive: Mutex::new(None),
            status: Mutex::default(),
            trouble: Mutex::new(None),
        })
    }
}

/// Work beside a run.
pub(super) struct Background {
    notifier: Notifier,
    logs: Option<Logs>,
    latest: Arc<Latest>,
    serving: Vec<Serving>,
    exported: Option<Exported>,
    sampled: Mutex<Option<Instant>>,
    alive: Mutex<Option<Instant>>,
    /// Status line that the service manager was told.
    status: Mutex<String>,
    /// Reason why records can't be exported, as far as it was told.
    trouble: Mutex<Option<String>>,
}

/// Interval of samples for metrics and the page.
const SAMPLE: Duration = Duration::from_secs(1);

impl Background {
    /// The observer of packets whose flows are exported.
    pub(super) fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.exported.as_ref().map(|exported| Arc::clone(&exported.taps) as Arc<dyn Watch>)
    }

    /// True if events are logged, so that notes for people are not needed.
    pub(super) const fn logs(&self) -> bool {
        self.logs.is_some()
    }

    /// The run has begun. `status` says in words what runs.
    pub(super) fn ready(&self, status: String) {
        self.tell(self.notifier.ready(&status));
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// A reload has ended.
    pub(super) fn reloaded(&self) {
        self.tell(self.notifier.ready(&self.status.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// A reload begins, which [`reloaded`](Self::reloaded) ends.
    pub(super) fn reloading(&self) {
        self.tell(self.notifier.reloading());
    }

    /// The run begins to end.
    pub(super) fn stopping(&self) {
        self.tell(self.notifier.stopping());
    }

    fn tell(&self, told: Result<(), DaemonError>) {
        if let Err(error) = told {
            warn(&format!("the service manager: {error}\n"));
        }
    }

    /// To be called some times a second. Samples the run if somebody may look.
    pub(super) fn often(&self, stats: impl FnOnce() -> Option<Stats>, works: bool) {
        let is_due = |last: &Mutex<Option<Instant>>, interval: Duration| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let due = last.is_none_or(|last| last.elapsed() >= interval);
            if due {
                *last = Some(Instant::now());
            }
            due
        };
        if let Some(interval) = self.notifier.watchdog_interval().filter(|_| works)
            && is_due(&self.alive, interval / 2)
        {
            self.tell(self.notifier.alive());
        }
        if is_due(&self.sampled, SAMPLE) {
            if let Some(logs) = &self.logs {
                logs.tick();
            }
            if let Some(exported) = &self.exported {
                exported.poll();
                let trouble = exported.exporter.trouble();
                let mut told = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
                if *told != trouble {
                    match &trouble {
                        Some(trouble) => warn(&format!("IPFIX: {trouble}\n")),
                        None => note("IPFIX: the collector takes records again\n"),
                    }
                    *told = trouble;
                }
            }
            if !self.serving.is_empty()
                && let Some(stats) = stats()
            {
                self.latest.set(stats);
            }
        }
    }

    /// Completes what is exported, after the last packet.
    pub(super) fn finish(self) {
        drop(self.serving);
        if let Some(exported) = self.exported {
            exported.finish();
        }
    }
}

/// Flows that are exported.
struct Exported {
    taps: Arc<Taps>,
    exporter: Exporter,
}

/// A tap for each queue.
struct Taps(Box<[Mutex<Option<Tap>>]>);

/// Time for the exporter to take the flows that are left at the end.
const AT_END: Duration = Duration::from_secs(3);

impl Exported {
    fn begin(to: &Destination, queues: usize, has_dropped_rights: bool) -> Result<Self, Failed> {
        let exporter = Exporter::start(to, ExporterOptions::default()).map_err(|error| match to {
            Destination::File(_) if has_dropped_rights => Failed::input(format_args!(
                "{error}; the run has dropped its rights, so the folder must be its user's (or give --keep-rights)"
            )),
            _ => Failed::input(error),
        })?;
        let tap = |_| Mutex::new(Some(Tap::new(MeterOptions::default(), exporter.sender())));
        Ok(Self { taps: Arc::new(Taps((0..queues).map(tap).collect())), exporter })
    }

    /// Ends flows that are due, though no packets come.
    fn poll(&self) {
        // The clock of live packets follows this one.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = Nanos(now.as_nanos() as u64);
        for tap in &self.taps.0 {
            if let Some(tap) = &mut *tap.lock().unwrap_or_else(PoisonError::into_inner) {
                // What is left comes with the next look.
                let _ = tap.poll(now);
            }
        }
    }

    fn finish(self) {
        let mut flows = 0;
        for tap in &self.taps.0 {
            if let Some(tap) = tap.lock().unwrap_or_else(PoisonError::into_inner).take() {
                flows += tap.finish(AT_END).flows;
            }
        }
        let counts = self.exporter.finish();
        let (exported, lost) = (counts.exported.flows, counts.lost.flows);
        let losses = if lost > 0 { format!(", {} lost", count(lost)) } else { String::new() };
        remark(&format!("IPFIX: {} flows, {} exported{losses}\n", count(flows), count(exported)));
    }
}

impl Watch for Taps {
    fn received(&self, queue: usize, batch: &Batch) {
        let Some(tap) = self.0.get(queue) else { return };
        if let Some(tap) = &mut *tap.lock().unwrap_or_else(PoisonError::into_inner) {
            batch.each(0..batch.len()).for_each(|(packet, bytes)| tap.packet(packet, bytes));
        }
    }

    fn decided(&self, _: usize, _: &Batch) {}
}
