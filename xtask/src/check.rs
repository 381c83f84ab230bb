//! The steps of `cargo xtask check`. Those that fail fastest come first.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::tests::Totals;
use crate::{bench, circles, concurrency, direction, models, packages, publish, readme, rtl, tests};

/// Runs all checks and stops at the first failure.
pub(crate) fn run(deep: bool) -> Result<()> {
    let start = Instant::now();
    let mut stages = Stages::default();
    stages.step("formatting", || cargo(&["fmt", "--all", "--", "--check"]))?;
    stages.step("dependency direction", || direction::check().and_then(|()| circles::check()))?;
    stages.step("system packages", packages::install)?;
    stages.step("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    stages.step("packages of the crates", publish::check)?;
    let mut totals = Totals::default();
    let mut skipped = 0;
    stages.step("lints of the bench against DPDK", || match bench::without_dpdk() {
        None => {
            let bench = ["--package", "millrace-flow", "--features", "dpdk", "--bench", "rte_hash"];
            cargo(&[&["clippy", "--quiet"], &bench[..], &["--", "-D", "warnings"]].concat())
        }
        Some(reason) => {
            skipped += 1;
            println!("   SKIPPED ({reason})");
            Ok(())
        }
    })?;
    totals.skipped += skipped;
    let tests: &[Counted] = if deep { &[("tests", tests::deep)] } else { &[("tests", tests::run)] };
    stages.side_by_side(&[tests, &MODELS], &mut totals)?;
    let mut commands = 0;
    stages.step("the README's commands", || {
        commands = readme::run(readme::Built::ByTests)?;
        Ok(())
    })?;
    println!("\n{stages}");
    println!("all checks passed in {:.0} s; {commands} commands of the README ran", start.elapsed().as_secs_f64());
    println!("{} passed, 0 failed, {} skipped", totals.passed, totals.skipped);
    Ok(())
}

/// The name of a step, and a function that counts its checks.
type Counted = (&'static str, fn(&mut Totals) -> Result<()>);

/// Steps beside the tests, one after the other: the largest crates and many tests keep only one core busy.
const MODELS: [Counted; 7] = [
    ("loss recovery under a model checker", concurrency::agreement),
    ("transactions under a model checker", concurrency::serializability),
    ("shared tables under a model checker", concurrency::linearizability),
    ("the queue between stages under a model checker", concurrency::handing_over),
    ("shared tables and transactions under a thread sanitizer", concurrency::sanitizer),
    ("loss recovery as a model", models::loss_recovery),
    ("the sequencer in hardware, a sample", |totals| rtl::simulate(rtl::Extent::Sample, totals)),
];

/// The time that each stage took.
#[derive(Default)]
struct Stages {
    taken: Vec<(&'static str, Duration)>,
}

impl Stages {
    /// Runs a stage.
    fn step(&mut self, name: &'static str, check: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        println!("== {name}");
        check().with_context(|| format!("{name}: failed"))?;
        println!("   {:.1} s", start.elapsed().as_secs_f64());
        self.taken.push((name, start.elapsed()));
        Ok(())
    }

    /// Runs rows of stages side by side.
    fn side_by_side(&mut self, rows: &[&[Counted]], totals: &mut Totals) -> Result<()> {
        println!(
            "== side by side: {}",
            rows.iter().copied().flatten().map(|(name, _)| *name).collect::<Vec<_>>().join("; ")
        );
        let all = |row: &[Counted]| {
            let (mut totals, mut taken) = (Totals::default(), Vec::new());
            for (name, check) in row {
                let start = Instant::now();
                check(&mut totals).with_context(|| format!("{name}: failed"))?;
                println!("   {name}: {:.1} s", start.elapsed().as_secs_f64());
                taken.push((*name, start.elapsed()));
            }
            Ok::<_, anyhow::Error>((totals, taken))
        };
        let counted: Vec<Result<_>> = thread::scope(|scope| {
            let rows: Vec<_> = rows.iter().map(|row| scope.spawn(move || all(row))).collect();
            rows.into_iter().map(|row| row.join().expect("a check doesn't panic")).collect()
        });
        for row in counted {
            let (row, taken): (Totals, Vec<_>) = row?;
            self.taken.extend(taken);
            totals.passed += row.passed;
            totals.skipped += row.skipped;
        }
        Ok(())
    }
}

impl Display for Stages {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        self.taken.iter().try_for_each(|(name, taken)| writeln!(to, "{:8.1} s  {name}", taken.as_secs_f64()))
    }
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}

/// The folder of what cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs cargo in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(arguments).current_dir(root()).status().context("cargo can't be run")?;
    if !status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    Ok(())
}
