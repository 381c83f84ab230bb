//! What a run takes: no more than its packets need, however many flows there is room for.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write, pipe};
use std::process::{Child, Stdio};

use rustix::pipe::fcntl_setpipe_size;
use serde_json::Value;

use crate::commands::replicates;
use crate::folder::Folder;

/// Kilobytes that a run may take for a hundred packets, beyond what the program takes that only checks the function. Pages of the program
/// itself aren't counted: how many of them are there at once depends on what the kernel has read of the file.
const PEAK_KB: u64 = 2_000;

/// Kilobytes that functions over streams may take besides: for gathering fragments, and for early segments.
const STREAMS_KB: u64 = 5_000;

#[test]
fn a_short_capture_takes_little_memory() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 100 --seed 7 --out small.pcap");
    for function in folder.json("functions --json").as_array().unwrap() {
        let function = function["name"].as_str().unwrap();
        let (program, _) = peak_kb(&folder, &format!("check {function} --json"));
        let (peak, report) = peak_kb(&folder, &format!("run {function} --in small.pcap --json"));
        assert_eq!(report["packets"]["received"], 100, "{function}");
        let most = program + PEAK_KB + if replicates(function) { 0 } else { STREAMS_KB };
        assert!((program..=most).contains(&peak), "{function} takes {peak} kB, the program {program} kB");
    }
}

/// The most memory of its own that a command had by the time it reported, and its report.
fn peak_kb(folder: &Folder, line: &str) -> (u64, Value) {
    // There is no room for its report, so it is still there to be looked at.
    let (mut reader, mut writer) = pipe().unwrap();
    let room = fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b' '; room]).unwrap();
    let mut child = folder.command(line).stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    loop {
        let status = Status::of(&child);
        peak = status.own_peak_kb.unwrap_or(peak).max(peak);
        if status.is_writing || child.try_wait().unwrap().is_some() {
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
    /// It waits for room in a pipe.
    is_writing: bool,
    /// The most memory that it had so far, without the pages of files that it has now.
    own_peak_kb: Option<u64>,
}

impl Status {
    fn of(child: &Child) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
        let is_writing = read("wchan").contains("pipe_write");
        let status = read("status");
        let kilobytes = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim_ascii().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        let own_peak_kb = kilobytes("VmHWM:").zip(kilobytes("RssFile:")).map(|(all, files)| all.saturating_sub(files));
        Self { is_writing, own_peak_kb }
    }
}
