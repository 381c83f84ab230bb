//! `cargo xtask results scr`: the claims of state-compute replication, reproduced: every run, then the page.
//!
//! The page is made of what `millrace bench --json` says and of nothing else, so that a run's sentences are that run's.

mod claims;
mod disturbance;
mod kept;
mod page;
mod paper;
mod plot;
pub(crate) mod shared_state;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::check::{cargo, root};
use kept::{Kept, Session, utc};
use paper::PROGRAMS;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All, in some minutes.
    Full,
    /// Small traces and one or two rounds, in about a minute: to see that the page can be made.
    Quick,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    extent: Extent,
    /// Whether nothing is taken from earlier calls.
    fresh: bool,
    /// Where the page goes, if not to `docs/results`.
    to: Option<PathBuf>,
}

impl Options {
    /// Reads the command's arguments, in any order; `None` for ones that there aren't.
    pub(crate) fn read(arguments: &[&str]) -> Option<Self> {
        let mut options = Self { extent: Extent::Full, fresh: false, to: None };
        for argument in arguments {
            match *argument {
                "--quick" => options.extent = Extent::Quick,
                "--fresh" => options.fresh = true,
                folder if !folder.starts_with('-') && options.to.is_none() => options.to = Some(folder.into()),
                _ => return None,
            }
        }
        Some(options)
    }

    fn is_quick(&self) -> bool {
        self.extent == Extent::Quick
    }
}

/// A run of the program by the name that the page knows it by.
struct Run {
    name: String,
    arguments: Vec<String>,
}

/// What the page is made of.
struct Results {
    quick: bool,
    machine: Machine,
    /// What each run printed, by its name.
    runs: BTreeMap<String, Value>,
    /// The table of the sequencer in hardware, as its decision has it.
    hardware: String,
}

/// The machine in words.
struct Machine {
    cores: usize,
    /// The sessions that the runs are of, by their start, each with the names of its runs.
    sessions: BTreeMap<u64, (Session, Vec<String>)>,
}

/// What runs printed, by their names, and when they were made.
struct Gathered {
    runs: BTreeMap<String, Value>,
    sessions: BTreeMap<u64, (Session, Vec<String>)>,
}

/// Runs everything that isn't kept under this name from an earlier call, unless that is to be made afresh.
fn gather(options: &Options, name: &str, plan: &[Run]) -> Result<Gathered> {
    let start = Instant::now();
    cargo(&["build", "--release", "--quiet", "--package", "millrace-net"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let program = target.join("release/millrace");
    let folder = target.join("results").join(name).join(if options.is_quick() { "quick" } else { "full" });
    if options.fresh {
        Kept::forget(&folder)?;
    }
    let kept = Kept::of(folder, &program, session())?;
    let (mut runs, mut sessions) = (BTreeMap::new(), BTreeMap::new());
    let stop = stop_on_interrupt()?;
    for (index, run) in plan.iter().enumerate() {
        let place = format!("{}/{} {:.0} s", index + 1, plan.len(), start.elapsed().as_secs_f64());
        let line = run.arguments.join(" ");
        if let Some((session, printed)) = kept.get(run) {
            println!("{place}: kept of {}: millrace {line}", utc(session.start_s));
            note(&mut runs, &mut sessions, run, session, printed);
            continue;
        }
        println!("{place}: millrace {line}");
        let Some(printed) = json(&program, run, &stop)? else {
            bail!("interrupted; {index} of {} runs are kept, and the same command goes on with the others", plan.len())
        };
        kept.keep(run, &printed)?;
        note(&mut runs, &mut sessions, run, kept.session().clone(), printed);
    }
    if !sessions.contains_key(&kept.session().start_s) {
        println!("nothing was run: all of it was kept; --fresh measures anew");
    }
    Ok(Gathered { runs, sessions })
}

/// Runs everything and writes the page with its pictures to `docs/results`, or elsewhere where that is told.
pub(crate) fn scr(options: &Options) -> Result<()> {
    let start = Instant::now();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let Gathered { runs, sessions } = gather(options, "scr", &plan(options.extent, cores))?;
    let decision = root().join("docs/decisions/0012-sequencer-in-hardware.md");
    let decision = fs::read_to_string(&decision).with_context(|| format!("{} can't be read", decision.display()))?;
    let results = Results {
        quick: options.is_quick(),
        machine: Machine { cores, sessions },
        runs,
        hardware: table::in_text(&decision, "| rows of 112 bits"),
    };
    let to = options.to.clone().unwrap_or_else(|| root().join("docs/results"));
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    for (name, text) in page::files(&results)? {
        let path = to.join(name);
        fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))?;
    }
    println!("{} in {:.0} s", to.join("scr.md").display(), start.elapsed().as_secs_f64());
    Ok(())
}

/// The session that begins now.
fn session() -> Session {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(", ");
    let start_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Session { start_s, load }
}

fn note(
    runs: &mut BTreeMap<String, Value>,
    sessions: &mut BTreeMap<u64, (Session, Vec<String>)>,
    run: &Run,
    session: Session,
    printed: Value,
) {
    sessions.entry(session.start_s).or_insert_with(|| (session, Vec::new())).1.push(run.name.clone());
    runs.insert(run.name.clone(), printed);
}

/// From now on Ctrl-C (and a polite kill) asks for an end, which the run under way comes to at once.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Processes in which `hybrid` is held against what it is made of.
const PROCESSES: usize = 3;
/// What a cache line of the log takes longer on more cores than there are here: found on sixteen of another machine (`sixteen.md`).
const FAR_LINE: &str = "12.5ns";

/// Every run, in order.
fn plan(extent: Extent, cores: usize) -> Vec<Run> {
    let quick = extent == Extent::Quick;
    let small = if quick {
        "--packets 20k --round-packets 40k --rounds 2"
    } else {
        // Several passes in a round: the first alone is of caches that somebody else left, which no function runs in for long.
        "--packets 200k --round-packets 1M --rounds 5 --undisturbed"
    };
    // So few packets that they stay in the last-level cache: what is to be told is a record's cost, not the memory's.
    let cached = if quick { small } else { "--packets 20k --round-packets 1M --rounds 7 --undisturbed" };
    let dispatched = if quick { small } else { "--packets 20k --round-packets 200k --rounds 7 --undisturbed" };
    let linked = if quick { small } else { "--packets 20k --round-packets 1M --rounds 15 --undisturbed" };
    let searched = if quick {
        "--packets 20k --round-packets 20k --rounds 1 --trial 2ms --warm-up 1ms --attempts 1"
    } else {
        "--packets 20k --round-packets 200k --rounds 3 --trial 20ms --warm-up 5ms"
    };
    let (flows, model_to) = if quick { (2_000, 8) } else { (20_000, 16) };
    let loss = if quick { "1%" } else { "0.01%,0.1%,1%,10%" };
    let measured = cores.min(2);
    let tables = format!("--set flows={} --set flows_v6=1", flows * 2);
    let mut runs = Vec::new();
    let mut add = |name: String, line: String| {
        runs.push(Run { name, arguments: line.split_whitespace().map(str::to_owned).collect() });
    };
    let engines = "--engines shared,rss,rss++,scr,hybrid";
    let to = format!("--cores 1-{measured} --model-to {model_to} --far-line {FAR_LINE} --json");
    add("functions".into(), "functions --json".into());
    add("figure-1".into(), format!("bench conntrack --synth single-flow {small} {tables} {engines} {to}"));
    let mut three = vec![("single-flow".to_owned(), "single-flow".to_owned(), "conntrack")];
    for program in &PROGRAMS {
        let (function, traces): (_, &[&str]) = match program.name {
            "conntrack" => ("conntrack", &["hyperscaler"]),
            name => (name, &["university-dc", "backbone"]),
        };
        for trace in traces {
            let line = format!("bench {function} --synth {trace} --flows {flows} {small} {tables} {engines} {to}");
            add(format!("traces/{trace}/{function}"), line);
            three.push(((*trace).to_owned(), format!("{trace} --flows {flows}"), function));
        }
    }
    for (trace, traffic, function) in [
        ("hyperscaler", format!("hyperscaler --flows {flows}"), "ddos"),
        ("single-flow", "single-flow".to_owned(), "ddos"),
        ("uniform", format!("uniform --flows {flows}"), "ddos"),
        ("backbone", format!("backbone --flows {flows}"), "conntrack"),
        ("uniform", format!("uniform --flows {flows}"), "conntrack"),
        ("university-dc", format!("university-dc --flows {flows}"), "conntrack"),
    ] {
        let line = format!("bench {function} --synth {traffic} {small} {tables} --engines rss++,scr,hybrid {to}");
        add(format!("hybrid/{trace}/{function}"), line);
        three.push((trace.to_owned(), traffic, function));
    }
    // Where tables come to lie differs from process to process, by more than rounds of one differ.
    let processes = if quick || measured < 2 { 1 } else { PROCESSES };
    for (process, (trace, traffic, function)) in
        (2..=processes).flat_map(|process| three.iter().map(move |of| (process, of)))
    {
        let line = format!("bench {function} --synth {traffic} {small} {tables} --engines rss++,scr,hybrid --cores 2");
        add(format!("again-{process}/{trace}/{function}"), format!("{line} --json"));
    }
    let sweep = if quick { "--rounds 1 --round-packets 1" } else { "--rounds 3 --round-packets 200k --undisturbed" };
    add("sweep".into(), format!("bench sweep {sweep} {to}"));
    for program in &PROGRAMS {
        let (name, d) = (program.name, program.d);
        for (trace, traffic) in [("university-dc", "university-dc --flows 1k"), ("single-flow", "single-flow")] {
            let fit = |rounds| {
                let tables = "--set flows=4000 --set flows_v6=1";
                format!("bench {name} --synth {traffic} {rounds} {tables} --engines sequential,scr {to}")
            };
            add(format!("fit/{trace}/{name}"), fit(cached));
            add(format!("fit-dispatch/{trace}/{name}"), format!("{} --dispatch {d}ns", fit(dispatched)));
            let offered =
                format!("bench {name} --synth {traffic} {searched} --set flows=4000 --set flows_v6=1 {engines}");
            let offered = format!("{offered} --cores 1-{measured} --dispatch {d}ns --mlffr --json");
            add(format!("loss-free/{trace}/{name}"), offered);
        }
        if measured > 1 {
            let link =
                format!("bench {name} --synth university-dc --flows 1k {linked} --set flows=4000 --set flows_v6=1");
            let link = format!("{link} --cores 2 --link-loss {loss} --json");
            add(format!("link/{name}"), link.clone());
            add(format!("link-dispatch/{name}"), format!("{link} --dispatch {d}ns"));
        }
    }
    runs
}

/// Runs the program and reads what it prints; `None` when it was to stop meanwhile.
fn json(program: &Path, run: &Run, stop: &AtomicBool) -> Result<Option<Value>> {
    let line = run.arguments.join(" ");
    let mut command = Command::new(program);
    command.args(&run.arguments).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{} can't be run", program.display()))?;
    let read = |mut pipe: Box<dyn Read + Send>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes)
        })
    };
    let printed = read(Box::new(child.stdout.take().context("its output is piped")?));
    let said = read(Box::new(child.stderr.take().context("its messages are piped")?));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // ORDERING: Relaxed. The flag carries no data; it is seen soon enough.
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
        }
        // Seldom enough to take nothing from what is measured.
        thread::sleep(Duration::from_millis(100));
    };
    let collect = |reader: thread::JoinHandle<std::io::Result<Vec<u8>>>| reader.join().expect("it doesn't panic");
    let (printed, said) = (collect(printed)?, collect(said)?);
    // ORDERING: Relaxed, as above. From a terminal the program has the signal too and may have ended by itself.
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    ensure!(status.success(), "millrace {line} failed:\n{}", String::from_utf8_lossy(&said));
    serde_json::from_slice(&printed).map(Some).with_context(|| format!("millrace {line} printed no JSON"))
}

#[cfg(test)]
mod tests;
