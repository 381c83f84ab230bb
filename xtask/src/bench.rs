//! `cargo xtask bench`: benches that need more than cargo.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::check::root;

/// The reason why the feature `dpdk` can't be built here; `None` if it can.
pub(crate) fn without_dpdk() -> Option<&'static str> {
    let found = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !found(&["--version"]) {
        Some("pkg-config is not installed: apt-get install pkg-config libdpdk-dev")
    } else if !found(&["--exists", "libdpdk"]) {
        Some("pkg-config finds no libdpdk: apt-get install libdpdk-dev")
    } else {
        None
    }
}

/// Runs our tables against DPDK's rte_hash and the standard library's map. The exit code is 2 if DPDK is missing.
pub(crate) fn tables(arguments: &[&str]) -> Result<ExitCode> {
    if let Some(reason) = without_dpdk() {
        eprintln!("xtask: the comparison is with DPDK's rte_hash, and {reason}");
        return Ok(ExitCode::from(2));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["bench", "--quiet", "--package", "millrace-flow", "--features", "dpdk", "--bench", "rte_hash", "--"]);
    // The standard map gets huge pages too, as the other tables have them.
    command.args(arguments).env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1").current_dir(root());
    let status = command.status().context("cargo can't be run")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
