//! `cargo xtask results scr`: reproduces the claims of state-compute replication: runs the benchmarks and writes the page.
//!
//! The page uses the output of `millrace bench --json` and nothing else, so every sentence follows from these runs.

pub(crate) mod chains;
mod claims;
mod disturbance;
pub(crate) mod efsm;
pub(crate) mod l2_l7;
pub(crate) mod live;
mod page;
mod paper;
mod plot;
mod run_cache;
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

use crate::check::{cargo, root, target};
use paper::PROGRAMS;
use run_cache::{Campaign, RunCache, utc};

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    Full,
    /// Small traces and one or two rounds, to see that the page can be made. It takes about a minute.
    Quick,
}

/// The command's options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    extent: Extent,
    /// True if no results of earlier calls are used.
    fresh: bool,
    /// The folder for the page, if not `docs/results`.
    to: Option<PathBuf>,
    /// The program to measure, if it isn't built here.
    program: Option<PathBuf>,
}

impl Options {
    /// Reads the command's arguments, in any order; `None` for unknown ones.
    pub(crate) fn read(arguments: &[&str]) -> Option<Self> {
        let mut options = Self { extent: Extent::Full, fresh: false, to: None, program: None };
        for argument in arguments {
            match *argument {
                "--quick" => options.extent = Extent::Quick,
                "--fresh" => options.fresh = true,
                program if program.starts_with("--program=") && options.program.is_none() => {
                    options.program = program.strip_prefix("--program=").map(PathBuf::from);
                }
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

/// A run of the program, and its name on the page.
struct Run {
    name: String,
    arguments: Vec<String>,
}

/// The input of the page.
struct Results {
    quick: bool,
    machine: Machine,
    /// The output of each run, by name.
    runs: BTreeMap<String, Value>,
    /// The table of the sequencer in hardware, from its decision note.
    hardware: String,
}

/// The machine that was measured.
struct Machine {
    cores: usize,
    /// The campaigns by start time, each with the names of its runs.
    campaigns: BTreeMap<u64, (Campaign, Vec<String>)>,
}

/// The output of the runs by name, and the campaigns.
struct Gathered {
    runs: BTreeMap<String, Value>,
    campaigns: BTreeMap<u64, (Campaign, Vec<String>)>,
}

/// Runs everything that isn't cached under this name from an earlier call, or everything if `fresh`.
fn gather(options: &Options, name: &str, plan: &[Run]) -> Result<Gathered> {
    let start = Instant::now();
    let target = target();
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("{} can't be found", program.display()))?,
        None => {
            cargo(&["build", "--release", "--quiet", "--package", "millrace-net"])?;
            target.join("release/millrace")
        }
    };
    let folder = target.join("results").join(name).join(if options.is_quick() { "quick" } else { "full" });
    if options.fresh {
        RunCache::clear(&folder)?;
    }
    let cache = RunCache::of(folder, &program, campaign())?;
    let (mut runs, mut campaigns) = (BTreeMap::new(), BTreeMap::new());
    let stop = stop_on_interrupt()?;
    for (index, run) in plan.iter().enumerate() {
        let place = format!("{}/{} {:.0} s", index + 1, plan.len(), start.elapsed().as_secs_f64());
        let line = run.arguments.join(" ");
        if let Some((campaign, printed)) = cache.get(run) {
            println!("{place}: cached from {}: millrace {line}", utc(campaign.start_s));
            note(&mut runs, &mut campaigns, run, campaign, printed);
            continue;
        }
        println!("{place}: millrace {line}");
        let Some(printed) = json(&program, run, &stop)? else {
            bail!("interrupted; {index} of {} runs are cached; the same command runs the others", plan.len())
        };
        cache.put(run, &printed)?;
        note(&mut runs, &mut campaigns, run, cache.campaign().clone(), printed);
    }
    if !campaigns.contains_key(&cache.campaign().start_s) {
        println!("nothing was run, as all runs were cached; use --fresh to measure again");
    }
    Ok(Gathered { runs, campaigns })
}

/// Runs everything and writes the page and its pictures to `docs/results` or the given folder.
pub(crate) fn scr(options: &Options) -> Result<()> {
    let start = Instant::now();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let Gathered { runs, campaigns } = gather(options, "scr", &plan(options.extent, cores))?;
    let decision = root().join("docs/decisions/0012-sequencer-in-hardware.md");
    let decision = fs::read_to_string(&decision).with_context(|| format!("{} can't be read", decision.display()))?;
    let results = Results {
        quick: options.is_quick(),
        machine: Machine { cores, campaigns },
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

/// A campaign that begins now.
fn campaign() -> Campaign {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(", ");
    let start_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Campaign { start_s, load }
}

fn note(
    runs: &mut BTreeMap<String, Value>,
    campaigns: &mut BTreeMap<u64, (Campaign, Vec<String>)>,
    run: &Run,
    campaign: Campaign,
    printed: Value,
) {
    campaigns.entry(campaign.start_s).or_insert_with(|| (campaign, Vec::new())).1.push(run.name.clone());
    runs.insert(run.name.clone(), printed);
}

/// Makes SIGINT and SIGTERM set a flag, which ends the current run.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// How many processes compare `hybrid` with `rss++` and `scr`.
const PROCESSES: usize = 3;
/// The extra time for a cache line of the log on more cores than there are here, measured on another machine with sixteen (`sixteen.md`).
const FAR_LINE: &str = "12.5ns";

/// All runs, in order.
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
    // The addresses of tables differ from process to process, which changes figures more than rounds of one process do.
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

/// Runs the program and parses its output; `None` if it was interrupted.
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
        // ORDERING: Relaxed. The flag carries no data.
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
        }
        // Seldom enough not to disturb the measurement.
        thread::sleep(Duration::from_millis(100));
    };
    let collect = |reader: thread::JoinHandle<std::io::Result<Vec<u8>>>| reader.join().expect("it doesn't panic");
    let (printed, said) = (collect(printed)?, collect(said)?);
    // ORDERING: Relaxed, as above. From a terminal the program gets the signal too and may have ended by itself.
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    ensure!(status.success(), "millrace {line} failed:\n{}", String::from_utf8_lossy(&said));
    let parsed = match run.arguments.iter().any(|word| word == "jsonl") {
        true => serde_json::Deserializer::from_slice(&printed).into_iter().collect::<Result<_, _>>().map(Value::Array),
        false => serde_json::from_slice(&printed),
    };
    parsed.map(Some).with_context(|| format!("millrace {line} printed no JSON"))
}

#[cfg(test)]
mod tests;
