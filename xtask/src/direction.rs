//! Checks that dependencies between crates point one way.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::check::root;

/// The crates that each crate may depend on. Development dependencies may include `testkit` too.
const ALLOWED: &[(&str, &[&str])] = &[
    ("locality", &[]),
    ("packet", &[]),
    ("flow", &["packet", "locality"]),
    ("fifo", &["locality"]),
    ("memory", &["packet", "locality"]),
    ("nf", &["packet", "flow", "memory"]),
    ("port", &["packet", "locality"]),
    ("interface", &["locality"]),
    ("port-xdp", &["packet", "port", "locality", "interface"]),
    ("port-packet", &["packet", "port", "locality", "interface"]),
    ("l7", &["packet", "port"]),
    ("split", &["packet", "port"]),
    ("stream", &[]),
    ("identify", &["packet", "port"]),
    ("efsm", &["packet"]),
    ("rss", &["packet"]),
    ("iptables", &[]),
    ("ipfix", &["packet", "flow", "port", "synth"]),
    ("engine", &["packet", "flow", "memory", "nf", "port", "locality", "fifo"]),
    ("functions", &["packet", "flow", "memory", "nf", "stream", "identify", "efsm", "iptables"]),
    ("synth", &["packet", "port"]),
    ("case", &["packet", "nf", "port", "synth"]),
    ("lab", &["packet", "flow", "memory", "port", "nf", "engine", "synth", "locality"]),
    ("catalogue", &["packet", "memory", "nf", "port", "engine", "functions", "synth", "case", "lab"]),
    ("daemon", &[]),
    ("watch", &["packet", "port"]),
    ("top", &["daemon"]),
    ("sampler", &[]),
    (
        "testkit",
        &[
            "packet",
            "flow",
            "memory",
            "nf",
            "port",
            "l7",
            "split",
            "stream",
            "identify",
            "engine",
            "efsm",
            "functions",
            "lab",
            "rss",
            "synth",
            "case",
            "iptables",
        ],
    ),
    (
        "millrace",
        &[
            "locality",
            "packet",
            "flow",
            "fifo",
            "memory",
            "nf",
            "port",
            "l7",
            "split",
            "identify",
            "engine",
            "efsm",
            "functions",
            "lab",
            "rss",
            "sampler",
            "synth",
            "case",
            "catalogue",
            "daemon",
            "watch",
            "ipfix",
            "top",
            "port-packet",
            "port-xdp",
            "iptables",
        ],
    ),
    ("xtask", &[]),
];

/// Checks every crate's dependencies against the list.
pub(crate) fn check() -> Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .context("cargo metadata can't be run")?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("the output of cargo metadata can't be parsed")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    for package in packages {
        let name = room(package["name"].as_str().unwrap_or_default());
        let Some((_, allowed)) = ALLOWED.iter().find(|(room, _)| *room == name) else {
            bail!("crate {name} is not in the list in xtask/src/direction.rs; add it with the crates that it may use");
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let ours = packages.iter().any(|package| package["name"].as_str() == Some(target));
            let for_tests = dependency["kind"].as_str() == Some("dev") && room(target) == "testkit";
            if ours && !for_tests && !allowed.contains(&room(target)) {
                bail!("{name} may not use {}: dependencies point one way (xtask/src/direction.rs)", room(target));
            }
        }
    }
    Ok(())
}

/// The crate's name in the workspace. On the public registry the name `millrace` belongs to another project.
fn room(package: &str) -> &str {
    match package {
        "millrace-net" => "millrace",
        package => package.strip_prefix("millrace-").unwrap_or(package),
    }
}
