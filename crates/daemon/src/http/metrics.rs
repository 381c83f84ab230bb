//! A sample as metrics in the text format of Prometheus, version 0.0.4.
//!
//! The crate `prometheus-client` writes OpenMetrics only, where a counter's type is declared under another name.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use crate::message::{Core, Stats};

/// The metrics of a sample that was taken some time ago.
pub(crate) fn encode(stats: &Stats, age: Duration) -> String {
    let mut to = Text(String::with_capacity(8 << 10));
    let about = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("function", stats.function.as_str()),
        ("engine", stats.engine.as_str()),
    ];
    to.family("millrace_build_info", Type::Gauge, "Version of Millrace, and what it runs. Always 1.");
    to.sample("millrace_build_info", &about, 1);
    to.lone("millrace_uptime_seconds", Type::Gauge, "Time since the start of the run.", Nanos::of_ms(stats.uptime_ms));
    to.lone(
        "millrace_sample_age_seconds",
        Type::Gauge,
        "Time since the run was last looked at. If it grows beyond a few seconds, the run is stuck.",
        Nanos(age.as_nanos()),
    );
    cores(&mut to, &stats.cores);
    dropped(&mut to, stats);
    to.lone("millrace_flows", Type::Gauge, "Flows that are in the tables now.", stats.flows);
    to.lone("millrace_flows_max", Type::Gauge, "Number of flows that the tables have room for.", stats.flows_max);
    to.lone("millrace_flows_opened_total", Type::Counter, "Flows opened.", stats.flows_opened);
    if let Some(transactions) = stats.transactions {
        let name = "millrace_transactions_total";
        to.family(name, Type::Counter, "Transactions that committed, and attempts that were aborted and ran again.");
        to.sample(name, &[("result", "committed")], transactions.committed);
        to.sample(name, &[("result", "aborted")], transactions.aborted);
    }
    interfaces(&mut to, stats);
    latency(&mut to, stats);
    stalled(&mut to, stats);
    to.0
}

/// A counter of a core: its name, what it counts, and its value.
type OfCore = (&'static str, &'static str, fn(&Core) -> u64);

const OF_CORES: [OfCore; 5] = [
    ("millrace_packets_received_total", "Packets received.", |core| core.received),
    ("millrace_received_bytes_total", "Bytes on the wire of received packets.", |core| core.received_bytes),
    ("millrace_packets_forwarded_total", "Packets forwarded.", |core| core.forwarded),
    ("millrace_packets_replied_total", "Packets answered.", |core| core.replied),
    ("millrace_core_packets_dropped_total", "Packets dropped for any reason.", |core| core.dropped),
];

fn cores(to: &mut Text, cores: &[Core]) {
    if cores.is_empty() {
        return;
    }
    for (name, help, value) in OF_CORES {
        to.family(name, Type::Counter, help);
        for (number, core) in cores.iter().enumerate() {
            to.sample(name, &[("core", &number.to_string())], value(core));
        }
    }
    let name = "millrace_idle_seconds_total";
    to.family(name, Type::Counter, "Time without packets to work on. The load of a core is 1 less the rate of this.");
    for (number, core) in cores.iter().enumerate() {
        to.sample(name, &[("core", &number.to_string())], Nanos(core.idle_ns.into()));
    }
}

fn dropped(to: &mut Text, stats: &Stats) {
    let name = "millrace_packets_dropped_total";
    // A series may occur once only, whatever the run calls its reasons.
    let mut reasons = BTreeMap::new();
    for dropped in &stats.dropped {
        *reasons.entry(dropped.reason.as_str()).or_insert(0) += u128::from(dropped.packets);
    }
    if !reasons.is_empty() {
        to.family(name, Type::Counter, "Packets dropped, by reason. Reasons that occurred.");
    }
    for (reason, packets) in reasons {
        to.sample(name, &[("reason", reason)], packets);
    }
}

fn interfaces(to: &mut Text, stats: &Stats) {
    let name = "millrace_interface_packets_total";
    let mut counters = BTreeMap::new();
    for interface in &stats.interfaces {
        for (counter, packets) in &interface.counters {
            *counters.entry((interface.name.as_str(), counter.as_str())).or_insert(0) += u128::from(*packets);
        }
    }
    let up: BTreeMap<_, _> =
        stats.interfaces.iter().map(|interface| (interface.name.as_str(), interface.trouble.is_none())).collect();
    if !up.is_empty() {
        to.family("millrace_interface_up", Type::Gauge, "1 for an interface that can be used, else 0.");
    }
    for (interface, is_up) in up {
        to.sample("millrace_interface_up", &[("interface", interface)], u64::from(is_up));
    }
    if !counters.is_empty() {
        to.family(name, Type::Counter, "What happened to packets at an interface.");
    }
    for ((interface, counter), packets) in counters {
        to.sample(name, &[("interface", interface), ("counter", counter)], packets);
    }
}

fn latency(to: &mut Text, stats: &Stats) {
    let Some(latency) = stats.latency else { return };
    let name = "millrace_latency_seconds";
    to.family(
        name,
        Type::Summary,
        "Time from receive to transmit since the start of the run. Quantile 1 is the slowest packet.",
    );
    let quantiles =
        [("0.5", latency.p50_ns), ("0.99", latency.p99_ns), ("0.999", latency.p999_ns), ("1", latency.worst_ns)];
    for (quantile, ns) in quantiles {
        to.sample(name, &[("quantile", quantile)], Nanos(ns.into()));
    }
    to.sample("millrace_latency_seconds_sum", &[], Nanos(u128::from(latency.sum_us) * 1_000));
    to.sample("millrace_latency_seconds_count", &[], latency.packets);
}

fn stalled(to: &mut Text, stats: &Stats) {
    if stats.cores.is_empty() {
        return;
    }
    let name = "millrace_core_stalled";
    to.family(name, Type::Gauge, "1 for the core that the others wait for, else 0.");
    for number in 0..stats.cores.len() {
        to.sample(name, &[("core", &number.to_string())], u64::from(stats.stalled == Some(number as u64)));
    }
}

#[derive(Clone, Copy)]
enum Type {
    Counter,
    Gauge,
    Summary,
}

/// The text. A line that is written to it can't fail.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: Type, help: &str) {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Summary => "summary",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0 += name;
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, Escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A metric with one sample and without labels.
    fn lone(&mut self, name: &str, kind: Type, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// The text of a label.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|sign| match sign {
            '\\' => to.write_str("\\\\"),
            '"' => to.write_str("\\\""),
            '\n' => to.write_str("\\n"),
            sign => to.write_char(sign),
        })
    }
}

/// Nanoseconds, printed as seconds. All digits are kept, so that a counter never goes back by rounding.
struct Nanos(u128);

impl Nanos {
    fn of_ms(ms: u64) -> Self {
        Self(u128::from(ms) * 1_000_000)
    }
}

impl Display for Nanos {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
