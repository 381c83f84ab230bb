//! The unit file for systemd, as systemd-analyze(1) judges it.
#![allow(clippy::print_stderr)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use millrace_daemon::Capability;

/// The highest exposure that is accepted, in tenths; 100 is a service without any limits.
const EXPOSURE_MAX: &str = "30";

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/millrace@.service");
    fs::read_to_string(path).expect("it is in the repository")
}

/// Writes the unit to a folder, with a program that is there in place of the installed one.
fn installed(folder: &Path, text: &str) -> PathBuf {
    let program = std::env::current_exe().expect("it is running");
    let path = folder.join("millrace@.service");
    let text = text.replace("/usr/bin/millrace", program.to_str().expect("build folders have plain names"));
    fs::write(&path, text).expect("there is room");
    path
}

/// Runs systemd-analyze. None where there is none, or where it lacks an option.
fn analyze(arguments: &[&str], unit: &Path) -> Option<Output> {
    let reason = match Command::new("systemd-analyze").args(arguments).arg(unit).env("SYSTEMD_COLORS", "0").output() {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unrecognized option") => "a newer systemd",
        Ok(output) => return Some(output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "systemd-analyze",
        Err(error) => panic!("systemd-analyze can't be started: {error}"),
    };
    eprintln!("SKIPPED (needs {reason}): the unit file");
    None
}

/// What systemd-analyze finds wrong.
fn complaints(text: &str) -> Option<(bool, String)> {
    let folder = tempfile::tempdir().expect("there is room");
    // A template is judged by an instance.
    installed(folder.path(), text);
    let output = analyze(&["verify", "--man=no"], &folder.path().join("millrace@inside.service"))?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn systemd_understands_the_unit() {
    let Some(found) = complaints(&unit()) else { return };
    assert_eq!(found, (true, String::new()));
    // It would see an error.
    let (_, seen) = complaints(&unit().replace("WatchdogSec", "WatchdogSeconds")).expect("it is there");
    assert!(seen.contains("WatchdogSeconds"), "{seen}");
}

#[test]
fn the_run_is_confined() {
    let folder = tempfile::tempdir().expect("there is room");
    let judge = |text: &str| {
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        let path = installed(folder.path(), text);
        analyze(&["security", "--offline=true", "--no-pager", &threshold], &path)
    };
    let Some(output) = judge(&unit()) else { return };
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    let open = judge(&unit().replace("CapabilityBoundingSet=", "# ")).expect("it is there");
    assert!(!open.status.success(), "a run with all capabilities would be seen");
}

/// What the unit gives is what a run on interfaces keeps.
#[test]
fn the_unit_gives_the_capabilities_that_a_run_keeps() {
    let kept = Capability::FOR_INTERFACES.map(|capability| capability.to_string()).join(" ");
    for key in ["CapabilityBoundingSet", "AmbientCapabilities"] {
        let line = format!("{key}={kept}");
        assert!(unit().lines().any(|other| other == line), "{line}");
    }
}
