//! The steps of `cargo xtask check`, in the order in which they fail fastest.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{bench, concurrency, direction, models, packages, readme, rtl, tests};

/// Runs every check; stops at the first that fails.
pub(crate) fn run(deep: bool) -> Result<()> {
    let start = Instant::now();
    step("formatting", || cargo(&["fmt", "--all", "--", "--check"]))?;
    step("dependency direction", direction::check)?;
    step("system packages", packages::install)?;
    step("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    let mut totals = tests::Totals::default();
    let mut skipped = 0;
    step("lints of what needs DPDK", || match bench::without_dpdk() {
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
    step("tests", || {
        totals = tests::run(deep)?;
        totals.skipped += skipped;
        Ok(())
    })?;
    step("shared tables under a model checker", || concurrency::linearizability(&mut totals))?;
    step("transactions under a model checker", || concurrency::serializability(&mut totals))?;
    step("loss recovery under a model checker", || concurrency::agreement(&mut totals))?;
    step("loss recovery as a model", || models::loss_recovery(&mut totals))?;
    step("shared tables and transactions under a thread sanitizer", || concurrency::sanitizer(&mut totals))?;
    step("the sequencer in hardware, a sample", || rtl::simulate(rtl::Extent::Sample, &mut totals))?;
    let mut commands = 0;
    step("the README's commands", || {
        commands = readme::run()?;
        Ok(())
    })?;
    println!("\nall checks passed in {:.0} s; {commands} commands of the README ran", start.elapsed().as_secs_f64());
    println!("{} passed, 0 failed, {} skipped", totals.passed, totals.skipped);
    Ok(())
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
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

fn step(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    println!("== {name}");
    check().with_context(|| format!("{name}: failed"))?;
    println!("   {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
