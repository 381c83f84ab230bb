//! `cargo xtask results live`: functions on live interfaces beside bare loops on the same sockets and beside the kernel.
//!
//! Everything runs in network namespaces on two processors: the generator on one, what is measured on the other. Rounds are interleaved,
//! and a ratio is of two runs of the same round.

mod page;
mod row;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::run_cache::utc;
use super::{Options, campaign, stop_on_interrupt};
use crate::check::{cargo, root, target};
use row::{Kernel, Placement, Row, Window};

/// What is measured.
struct Subject {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// An example of `port-xdp`, on interfaces.
    Bare(&'static [&'static str]),
    /// A function under `sequential`, with settings, on interfaces.
    Function(&'static [&'static str], &'static [&'static str]),
    /// The kernel.
    Kernel(Kernel),
}

const ONE: &[&str] = &["a0"];
const BOTH: &[&str] = &["a0", "a1"];

/// Subjects that receive. All packets are dropped.
const RECEIVE: [Subject; 2] = [
    Subject { name: "count", kind: Kind::Bare(ONE) },
    Subject { name: "ddos", kind: Kind::Function(&["threshold=1", "window=0"], ONE) },
];

/// The inside host of functions that have two sides.
const INSIDE: &str = "inside=[\"10.9.0.1/32\"]";

/// Subjects that forward from `a0` to `a1`.
const FORWARD: [Subject; 9] = [
    Subject { name: "swap", kind: Kind::Bare(BOTH) },
    Subject { name: "bridge", kind: Kind::Function(&[], BOTH) },
    Subject { name: "firewall", kind: Kind::Function(&[INSIDE], BOTH) },
    Subject { name: "policer", kind: Kind::Function(&["rate=1Tbit", "burst=1000000000"], BOTH) },
    Subject { name: "conntrack", kind: Kind::Function(&[], BOTH) },
    Subject { name: "nat", kind: Kind::Function(&[INSIDE], BOTH) },
    Subject { name: "load-balancer", kind: Kind::Function(&[SERVICE], BOTH) },
    Subject { name: "the kernel, forwarding", kind: Kind::Kernel(Kernel::Forwarding) },
    Subject { name: "the kernel, with conntrack", kind: Kind::Kernel(Kernel::Tracking) },
];

/// The service that the generator's packets go to.
const SERVICE: &str = "services=[{address=\"10.9.0.2:9\",protocol=\"udp\",backends=[\"10.9.0.3:9\",\"10.9.0.4:9\"]}]";

/// Limits of the cost relative to the bare loop of the same table.
const MUSTS: [(&str, f64); 3] = [("ddos", 1.15), ("bridge", 1.1), ("firewall", 1.1)];

/// A run of a subject.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Million packets a second.
    offered: f64,
    handled: f64,
    /// Packets that were not handled, in percent.
    lost: f64,
    /// Nanoseconds of processor time for each handled packet, in user and kernel mode; `None` for the kernel.
    processor: Option<(f64, f64)>,
    /// From receive to transmit, in microseconds: median, 99 % and 99.9 %; `None` where nobody measures.
    latency: Option<[f64; 3]>,
}

impl Sample {
    fn cost(&self) -> Option<f64> {
        self.processor.map(|(user, system)| user + system)
    }
}

/// The programs.
struct Programs {
    millrace: PathBuf,
    examples: PathBuf,
}

/// Measures, and writes the page.
pub(crate) fn make(options: &Options) -> Result<()> {
    let uid = fs::read_to_string("/proc/self/status")?;
    let is_root = uid.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    ensure!(is_root, "live interfaces are measured in network namespaces, which only root can make; run it as root");
    let placement = placement()?;
    let programs = build(options)?;
    let (rounds, seconds) = if options.is_quick() { (1, 1) } else { (7, 1) };
    let campaign = campaign();
    let live = Row::new("x")?;
    let kernels = [Kernel::Forwarding, Kernel::Tracking].map(|kernel| -> Result<_> {
        let row = Row::new(if kernel == Kernel::Tracking { "t" } else { "k" })?;
        row.forward(kernel, placement)?;
        Ok(row)
    });
    let [forwarding, tracking] = kernels;
    let kernels = [forwarding?, tracking?];
    let stop = stop_on_interrupt()?;
    let subjects: Vec<&Subject> = RECEIVE.iter().chain(&FORWARD).collect();
    let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            // ORDERING: Relaxed. A flag alone; pairs with the store of the signal handler.
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let sample = match &subject.kind {
                Kind::Kernel(kernel) => {
                    let row = &kernels[usize::from(*kernel == Kernel::Tracking)];
                    let window = row.flood(&programs.flood(), seconds, None, placement)?;
                    Sample::new(&window, window.arrived)
                }
                _ => programs.measure(&live, subject, seconds, placement),
            }
            .with_context(|| format!("{}: can't be measured", subject.name))?;
            let cost = sample.cost().map(|cost| format!(", {cost:.0} ns")).unwrap_or_default();
            println!("{round}/{rounds} {}: {:.2} Mpps{cost}", subject.name, sample.handled);
            samples.push(sample);
        }
    }
    let measured = Measured { subjects, samples };
    let to = options.to.clone().unwrap_or_else(|| root().join("docs/results"));
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    let path = to.join("live.md");
    let when = format!("Rounds: {rounds}, begun {}, load averages then {}", utc(campaign.start_s), campaign.load);
    fs::write(&path, page::page(options.is_quick(), &when, &measured)?)
        .with_context(|| format!("{} can't be written", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// The first two processors that this process may use.
fn placement() -> Result<Placement> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let processors = list.trim().split(',').flat_map(|range| {
        let mut ends = range.split('-').filter_map(|end| end.parse::<usize>().ok());
        let first = ends.next().unwrap_or_default();
        first..=ends.next().unwrap_or(first)
    });
    match processors.take(2).collect::<Vec<_>>()[..] {
        [generator, function] => Ok(Placement { generator, function }),
        _ => bail!("live interfaces are measured on two processors, one for the generator and one for the function"),
    }
}

/// Builds the programs that aren't given.
fn build(options: &Options) -> Result<Programs> {
    let release = target().join("release");
    cargo(&["build", "--release", "--quiet", "--package", "millrace-port-xdp", "--examples"])?;
    let millrace = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("{} can't be found", program.display()))?,
        None => {
            cargo(&["build", "--release", "--quiet", "--package", "millrace-net"])?;
            release.join("millrace")
        }
    };
    Ok(Programs { millrace, examples: release.join("examples") })
}

impl Programs {
    fn flood(&self) -> PathBuf {
        self.examples.join("flood")
    }

    /// Runs a program while the generator sends.
    fn measure(&self, row: &Row, subject: &Subject, seconds: u64, placement: Placement) -> Result<Sample> {
        let (program, arguments) = self.command(subject);
        // Its time begins once it runs, a moment before the generator.
        let arguments = [arguments, vec!["--seconds".to_owned(), (seconds + 1).to_string()]].concat();
        let last = if arguments.iter().any(|argument| argument == "a1") { "a1" } else { "a0" };
        let running = row.start(&program, &arguments, last, placement)?;
        let window = row.flood(&self.flood(), seconds, Some(&running), placement)?;
        let printed = running.end()?;
        let (received, latency) = match &subject.kind {
            Kind::Bare(_) => (bare_count(&printed, "received"), None),
            _ => {
                let summary: Value = serde_json::from_str(&printed)?;
                (summary["packets"]["received"].as_u64(), latency(&summary["latency_ns"]))
            }
        };
        let received = received.with_context(|| format!("it printed no count: {printed}"))?;
        // What a program that forwards has handled is what has arrived on the other side.
        let handled = if last == "a1" { window.arrived } else { received };
        Ok(Sample { latency, ..Sample::new(&window, handled)? })
    }

    /// The program and its arguments, but for its time.
    fn command(&self, subject: &Subject) -> (PathBuf, Vec<String>) {
        let program = match &subject.kind {
            Kind::Bare(_) => self.examples.join(subject.name),
            Kind::Function(..) | Kind::Kernel(_) => self.millrace.clone(),
        };
        (program, arguments(subject))
    }
}

/// A program's arguments, but for its time; the kernel has none.
fn arguments(subject: &Subject) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match &subject.kind {
        Kind::Bare(interfaces) => owned(interfaces),
        Kind::Function(settings, interfaces) => {
            let interfaces = interfaces.iter().flat_map(|name| ["--interface", name]).collect::<Vec<_>>();
            let settings = settings.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
            let fixed = ["--engine", "sequential", "--control=none", "--json"];
            [owned(&["run", subject.name]), owned(&interfaces), owned(&fixed), owned(&settings)].concat()
        }
        Kind::Kernel(_) => Vec::new(),
    }
}

/// A program's command as it is typed; `None` for the kernel.
fn command_line(subject: &Subject) -> Option<String> {
    let program = match &subject.kind {
        Kind::Bare(_) => subject.name,
        Kind::Function(..) => "millrace",
        Kind::Kernel(_) => return None,
    };
    let quoted = |word: String| if word.contains('[') { format!("'{word}'") } else { word };
    let words = arguments(subject).into_iter().map(quoted);
    Some([program.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" "))
}

/// The fewest packets of which quantiles are told.
const MEASURED_MIN: u64 = 1000;

/// The times that a summary tells, in microseconds; `None` for a handful of packets.
fn latency(times: &Value) -> Option<[f64; 3]> {
    times["packets"].as_u64().filter(|packets| *packets >= MEASURED_MIN)?;
    let micros = |name: &str| Some(times[name].as_f64()? / 1e3);
    Some([micros("p50")?, micros("p99")?, micros("p999")?])
}

/// The number before a word in an example's line of counts.
fn bare_count(printed: &str, word: &str) -> Option<u64> {
    let words: Vec<&str> = printed.lines().last()?.split_whitespace().collect();
    let at = words.iter().position(|one| *one == word)?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

impl Sample {
    fn new(window: &Window, handled: u64) -> Result<Self> {
        ensure!(handled > 0, "no packet was handled");
        let (offered, each) = (window.offered as f64, 1e9 / handled as f64);
        Ok(Self {
            offered: offered / window.took_s / 1e6,
            handled: handled as f64 / window.took_s / 1e6,
            lost: (100.0 * (1.0 - handled as f64 / offered)).max(0.0),
            processor: window.processor_s.map(|(user, system)| (user * each, system * each)),
            latency: None,
        })
    }
}

/// Subjects, and for each its samples by round.
struct Measured<'a> {
    subjects: Vec<&'a Subject>,
    samples: Vec<Vec<Sample>>,
}

impl Measured<'_> {
    fn of(&self, name: &str) -> Result<&[Sample]> {
        let at = self.subjects.iter().position(|subject| subject.name == name);
        at.map(|at| &*self.samples[at]).with_context(|| format!("{name} was not measured"))
    }

    /// For each round, a figure of a subject relative to that of another.
    fn ratios(&self, name: &str, of: &str, figure: fn(&Sample) -> Option<f64>) -> Result<Vec<f64>> {
        let (samples, others) = (self.of(name)?, self.of(of)?);
        Ok(samples.iter().zip(others).filter_map(|(one, other)| Some(figure(one)? / figure(other)?)).collect())
    }
}

/// The median, and the least and the most.
fn spread(mut values: Vec<f64>, decimals: usize) -> String {
    values.sort_by(f64::total_cmp);
    match *values {
        [] => "-".to_owned(),
        [one] => format!("{one:.decimals$}"),
        [least, .., most] => {
            let median = values[values.len() / 2];
            format!("{median:.decimals$} ({least:.decimals$} to {most:.decimals$})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_an_example_are_read_from_its_last_line() {
        let printed =
            "a0: native XDP, copy\n123 received in 2.0 s, 120 sent, 3 lost in transmit, 7 lost before, 0 unclaimed\n";
        assert_eq!(bare_count(printed, "received"), Some(123));
        assert_eq!(bare_count(printed, "sent,"), Some(120));
        assert_eq!(bare_count("", "received"), None);
    }

    #[test]
    fn commands_are_typed_as_they_run() {
        let line = command_line(&FORWARD[2]).expect("it is a program");
        assert!(line.starts_with("millrace run firewall --interface a0 --interface a1 --engine sequential"), "{line}");
        assert!(line.ends_with("--set 'inside=[\"10.9.0.1/32\"]'"), "{line}");
        assert_eq!(command_line(&RECEIVE[0]).as_deref(), Some("count a0"));
        assert_eq!(command_line(&FORWARD[7]), None);
    }

    #[test]
    fn figures_come_with_their_spread() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0], 1), "2.0 (1.0 to 3.0)");
        assert_eq!(spread(vec![3.0], 0), "3");
        let window = Window { offered: 4_000_000, took_s: 2.0, arrived: 1_000_000, processor_s: Some((0.5, 1.5)) };
        let sample = Sample::new(&window, 1_000_000).expect("there are packets");
        assert_eq!((sample.offered, sample.handled, sample.lost, sample.cost()), (2.0, 0.5, 75.0, Some(2000.0)));
        let times = serde_json::json!({ "packets": 1000, "p50": 1500, "p99": 20_000, "p999": 50_000, "worst": 90_000 });
        assert_eq!((latency(&times), latency(&Value::Null)), (Some([1.5, 20.0, 50.0]), None));
        assert!(Sample::new(&window, 0).is_err(), "a figure of no packets is none");
    }
}
