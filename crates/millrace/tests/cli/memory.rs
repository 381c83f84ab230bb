//! What a run takes: no more than its packets need, however many flows there is room for.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write, pipe};
use std::process::{Child, Stdio};

use rustix::pipe::fcntl_setpipe_size;
use serde_json::Value;

use crate::commands::replicates;
use crate::folder::Folder;

/// Kilobytes that a run may take for a hundred packets, beyond what the program takes that only checks the function.
/// Most of them are pages of the program itself.
const PEAK_KB: u64 = 10_000;

/// Kilobytes that gathering fragments may take besides, which functions over streams ask for.
const GATHERING_KB: u64 = 2_000;

#[test]
fn a_short_capture_takes_little_memory() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 100 --seed 7 --out small.pcap");
    for function in folder.json("functions --json").as_array().unwrap() {
        let function = function["name"].as_str().unwrap();
        let (program, _) = peak_kb(&folder, &format!("check {function} --json"));
        let (peak, report) = peak_kb(&folder, &format!("run {function} --in small.pcap --json"));
        assert_eq!(report["packets"]["received"], 100, "{function}");
        let most = program + PEAK_KB + if replicates(function) { 0 } else { GATHERING_KB };
        assert!((program..=most).contains(&peak), "{function} takes {peak} kB, the program {program} kB");
    }
}

/// The most memory that a command had by the time it reported, and its report.
fn peak_kb(folder: &Folder, line: &str) -> (u64, Value) {
    // There is no room for its report, so it is still there to be looked at.
    let (mut reader, mut writer) = pipe().unwrap();
    let room = fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b' '; room]).unwrap();
    let mut child = folder.command(line).stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    loop {
        let status = Status::of(&child);
        peak = status.peak_kb.unwrap_or(peak).max(peak);
        if status.is_waiting || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::yield_now();
    }
    let mut report = Vec::new();
    reader.read_to_end(&mut report).unwrap();
    assert!(child.wait().unwrap().success(), "{line}");
    (peak, serde_json::from_slice(&report).unwrap())
}

/// What the kernel says of a process.
struct Status {
    is_waiting: bool,
    peak_kb: Option<u64>,
}

impl Status {
    fn of(child: &Child) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_ascii);
        let kilobytes = |value: &str| value.strip_suffix(" kB").and_then(|number| number.parse().ok());
        Self {
            is_waiting: field("State:").is_some_and(|state| state.starts_with('S')),
            peak_kb: field("VmHWM:").and_then(kilobytes),
        }
    }
}
