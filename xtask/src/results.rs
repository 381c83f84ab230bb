//! `cargo xtask results scr`: the claims of state-compute replication, reproduced: every run, then the page.
//!
//! The page is made of what `millrace bench --json` says and of nothing else, so that a run's sentences are that run's.

mod claims;
mod page;
mod paper;
mod plot;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::check::{cargo, root};
use paper::PROGRAMS;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All, in some minutes.
    Full,
    /// Small traces and one or two rounds, in about a minute: to see that the page can be made.
    Quick,
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
    /// Load averages at the start, as the system tells them.
    load: String,
}

/// Runs everything and writes the page with its pictures to `docs/results`, or elsewhere where that is told.
pub(crate) fn scr(extent: Extent, to: Option<&Path>) -> Result<()> {
    let start = Instant::now();
    cargo(&["build", "--release", "--quiet", "--package", "millrace"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let program = target.join("release/millrace");
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(", ");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = plan(extent, cores);
    let mut runs = BTreeMap::new();
    for (index, run) in plan.iter().enumerate() {
        println!(
            "{}/{} {:.0} s: millrace {}",
            index + 1,
            plan.len(),
            start.elapsed().as_secs_f64(),
            run.arguments.join(" ")
        );
        runs.insert(run.name.clone(), json(&program, run)?);
    }
    let decision = root().join("docs/decisions/0012-sequencer-in-hardware.md");
    let decision = fs::read_to_string(&decision).with_context(|| format!("{} can't be read", decision.display()))?;
    let results = Results {
        quick: extent == Extent::Quick,
        machine: Machine { cores, load },
        runs,
        hardware: table::in_text(&decision, "| rows of 112 bits"),
    };
    let to = to.map_or_else(|| root().join("docs/results"), Path::to_path_buf);
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    for (name, text) in page::files(&results)? {
        let path = to.join(name);
        fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))?;
    }
    println!("{} in {:.0} s", to.join("scr.md").display(), start.elapsed().as_secs_f64());
    Ok(())
}

/// Every run, in order.
fn plan(extent: Extent, cores: usize) -> Vec<Run> {
    let quick = extent == Extent::Quick;
    let small = if quick {
        "--packets 20k --round-packets 40k --rounds 2"
    } else {
        "--packets 200k --round-packets 400k --rounds 5"
    };
    // So few packets that they stay in the last-level cache: what is to be told is a record's cost, not the memory's.
    let cached = if quick { small } else { "--packets 20k --round-packets 400k --rounds 7" };
    let (flows, model_to) = if quick { (2_000, 8) } else { (20_000, 16) };
    let loss = if quick { "1%" } else { "0.01%,0.1%,1%,10%" };
    let measured = cores.min(2);
    let tables = format!("--set flows={} --set flows_v6=1", flows * 2);
    let mut runs = Vec::new();
    let mut add = |name: String, line: String| {
        runs.push(Run { name, arguments: line.split_whitespace().map(str::to_owned).collect() });
    };
    let engines = "--engines shared,rss,rss++,scr,hybrid";
    let to = format!("--cores 1-{measured} --model-to {model_to} --json");
    add("functions".into(), "functions --json".into());
    add("figure-1".into(), format!("bench conntrack --synth single-flow {small} {tables} {engines} {to}"));
    for program in &PROGRAMS {
        let (function, traces): (_, &[&str]) = match program.name {
            "conntrack" => ("conntrack", &["hyperscaler"]),
            name => (name, &["university-dc", "backbone"]),
        };
        for trace in traces {
            let line = format!("bench {function} --synth {trace} --flows {flows} {small} {tables} {engines} {to}");
            add(format!("traces/{trace}/{function}"), line);
        }
    }
    let sweep = if quick { "--rounds 1 --round-packets 1" } else { "--rounds 3 --round-packets 400k" };
    add("sweep".into(), format!("bench sweep {sweep} {to}"));
    for program in &PROGRAMS {
        let (name, d) = (program.name, program.d);
        for trace in ["university-dc", "single-flow"] {
            let fit = format!("bench {name} --synth {trace} --flows 1k {cached} --set flows=4000 --set flows_v6=1");
            let fit = format!("{fit} --engines sequential,scr {to}");
            add(format!("fit/{trace}/{name}"), fit.clone());
            add(format!("fit-dispatch/{trace}/{name}"), format!("{fit} --dispatch {d}ns"));
        }
        if measured > 1 {
            let link =
                format!("bench {name} --synth university-dc --flows 1k {cached} --set flows=4000 --set flows_v6=1");
            let link = format!("{link} --cores 2 --link-loss {loss} --json");
            add(format!("link/{name}"), link.clone());
            add(format!("link-dispatch/{name}"), format!("{link} --dispatch {d}ns"));
        }
    }
    runs
}

/// Runs the program and reads what it prints.
fn json(program: &Path, run: &Run) -> Result<Value> {
    let output = Command::new(program).args(&run.arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{} can't be run", program.display()))?;
    let line = run.arguments.join(" ");
    ensure!(output.status.success(), "millrace {line} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).with_context(|| format!("millrace {line} printed no JSON"))
}

#[cfg(test)]
mod tests;
