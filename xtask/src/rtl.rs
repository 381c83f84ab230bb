//! `cargo xtask rtl`: the sequencer in hardware, simulated against the software sequencer and synthesised.

mod synthesis;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::check::{cargo, root, target};
use crate::packages;
use crate::tests::Totals;

/// Seeds of the bench's stalls; 0 means no stalls.
const SEEDS: [&str; 4] = ["0", "1", "2", "3"];

/// Faults that can be built into the Verilog, each with the vectors that must find it.
const FAULTS: [(&str, &str); 7] = [
    ("ORDER", "conntrack"),
    ("OPTION", "conntrack"),
    ("MARK", "conntrack"),
    ("WRAP", "conntrack"),
    ("TAIL", "heavy-hitter"),
    ("EARLY", "core"),
    ("STALL", "core"),
];

/// How much to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Connection tracking, which has the richest parser, and one fault.
    Sample,
    /// Every function, every fault.
    All,
}

/// Runs simulation, then synthesis.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    packages::install_for_rtl()?;
    let mut totals = Totals::default();
    println!("== simulation");
    simulate(Extent::All, &mut totals)?;
    println!("== synthesis");
    synthesis::run(&mut totals)?;
    println!(
        "\n{} passed, 0 failed, {} skipped in {:.0} s",
        totals.passed,
        totals.skipped,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The parameters of a test bench.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bench {
    function: u16,
    rows: u16,
    record_len: u16,
    outer: u16,
    fault: Option<&'static str>,
}

/// A file of test vectors.
struct Vectors {
    name: String,
    bench: Bench,
    file: PathBuf,
    /// How many packets take a step, take none, or are left to software.
    packets: [u64; 3],
}

/// Simulates the Verilog on the software sequencer's vectors, with seeded stalls on both sides.
pub(crate) fn simulate(extent: Extent, totals: &mut Totals) -> Result<()> {
    for program in ["verilator", "g++", "make"] {
        if !packages::exists(program) {
            println!("   SKIPPED ({program} is not installed: apt-get install verilator g++ make): simulation");
            totals.skipped += 1;
            return Ok(());
        }
    }
    lint()?;
    let sample = |name: &str| extent == Extent::All || name.starts_with("conntrack");
    let vectors: Vec<Vectors> = make_vectors()?.into_iter().filter(|vectors| sample(&vectors.name)).collect();
    let faults = if extent == Extent::All { &FAULTS[..] } else { &FAULTS[..1] };

    let mut jobs: BTreeMap<Bench, Vec<&Vectors>> = BTreeMap::new();
    for one in &vectors {
        jobs.entry(one.bench.clone()).or_default().push(one);
    }
    for (fault, name) in faults {
        let one = vectors.iter().find(|one| one.name == *name).with_context(|| format!("no vectors of {name}"))?;
        jobs.entry(Bench { fault: Some(fault), ..one.bench.clone() }).or_default().push(one);
    }
    let jobs: Vec<_> = jobs.into_iter().collect();
    let lines = in_parallel(&jobs, |(bench, vectors)| {
        let program = build(bench)?;
        vectors.iter().map(|one| check_vectors(&program, bench.fault, one)).collect::<Result<Vec<String>>>()
    })?;
    for line in lines.into_iter().flatten() {
        println!("   {line}");
        totals.passed += 1;
    }
    Ok(())
}

/// Every warning is an error, except those about signals that a function doesn't need.
fn lint() -> Result<()> {
    let mut command = Command::new("verilator");
    command.args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM"]);
    command.args(["--top-module", "sequencer", "-GFUNCTION=5", "-GRECORD_BYTES=60"]).args(sources()?);
    quiet(&mut command).map(drop)
}

fn make_vectors() -> Result<Vec<Vectors>> {
    let folder = folder("vectors")?;
    // As the tests build it: one package by itself has other features, and all would be compiled once more.
    cargo(&["build", "--quiet", "--workspace", "--example", "rtl_vectors"])?;
    let text = quiet(Command::new(target().join("debug/examples/rtl_vectors")).arg(&folder).current_dir(root()))?;
    text.lines()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().context(line.to_owned())?;
            let [function, rows, record_len, outer, steps, none, software] = numbers[..] else { bail!("{line:?}") };
            let [function, rows, record_len, outer] = [function, rows, record_len, outer].map(|number| number as u16);
            let bench = Bench { function, rows, record_len, outer, fault: None };
            Ok(Vectors {
                file: folder.join(format!("{name}-{rows}.vec")),
                name,
                bench,
                packets: [steps, none, software],
            })
        })
        .collect()
}

/// Builds the bench and returns the program.
fn build(bench: &Bench) -> Result<PathBuf> {
    let Bench { function, rows, record_len, outer, fault } = bench;
    let name = format!("bench-{function}-{rows}-{outer}{}", fault.map_or(String::new(), |fault| format!("-{fault}")));
    let to = folder(&name)?;
    let mut command = Command::new("verilator");
    command.args(["--cc", "--exe", "--build", "-O3", "--x-assign", "unique", "--x-initial", "unique"]);
    command.args(["--top-module", "sequencer", "-CFLAGS", "-std=c++17", "-MAKEFLAGS", "OPT_FAST=-O1 OPT_SLOW=-O0"]);
    command.args([format!("-GFUNCTION={function}"), format!("-GROWS={rows}")]);
    command.args([format!("-GRECORD_BYTES={record_len}"), format!("-GOUTER={outer}")]);
    command.args(fault.map(|fault| format!("-DFAULT_{fault}")));
    command.arg("--Mdir").arg(&to).args(sources()?).arg(root().join("rtl/bench/main.cpp")).args(["-o", "bench"]);
    quiet(&mut command)?;
    Ok(to.join("bench"))
}

/// Runs the bench on vectors. It must pass, or fail if a fault is built in. Returns a line about it.
fn check_vectors(program: &Path, fault: Option<&str>, vectors: &Vectors) -> Result<String> {
    let output = Command::new(program).arg(&vectors.file).args(SEEDS).output().context("the bench can't be run")?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let Vectors { name, bench, packets: [steps, none, software], .. } = vectors;
    match fault {
        None => {
            ensure!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
            Ok(format!(
                "{name}, {} rows: {} packets, {steps} take a step, {none} none, {software} left to software",
                bench.rows,
                steps + none + software
            ))
        }
        Some(fault) => {
            let found = text.split("FAILED: ").nth(1).filter(|_| !output.status.success());
            let found = found.ok_or_else(|| anyhow!("{name}: the fault {fault} was not found: {text}"))?;
            Ok(format!("{name} with the fault {fault} fails as expected: {found}"))
        }
    }
}

/// The Verilog files, by name.
fn sources() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(root().join("rtl")).context("rtl/ can't be read")?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "v"));
    files.sort();
    Ok(files)
}

/// A folder below `target/rtl`, which is created if needed.
fn folder(name: &str) -> Result<PathBuf> {
    let folder = target().join("rtl").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
    Ok(folder)
}

/// Runs a command and returns its output. Shows it if the command fails.
fn quiet(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{program} can't be run"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{program} failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Runs the jobs in parallel, one for each core. Results come in the order of the jobs.
fn in_parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = Mutex::new(jobs.iter().enumerate());
    let results = Mutex::new(Vec::new());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((index, job)) = next.lock().ok().and_then(|mut next| next.next()) {
                    let result = work(job);
                    if let Ok(mut results) = results.lock() {
                        results.push((index, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().map_err(|_| anyhow!("a job panicked"))?;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
