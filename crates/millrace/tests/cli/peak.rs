//! The most memory that a command takes for itself.

use std::fs;
use std::io::{Read, Write, pipe};
use std::process::{Child, Stdio};

use rustix::pipe::fcntl_setpipe_size;
use serde_json::Value;

use crate::folder::Folder;

/// The most memory of its own, in bytes, that a command had by the time it reported, and its report. Pages of files, as those of the program,
/// aren't counted: how many of them are there at once depends on what the kernel has read of the file.
pub(crate) fn own_peak(folder: &Folder, line: &str) -> (u64, Value) {
    // There is no room for its report, so it is still there to be looked at.
    let (mut reader, mut writer) = pipe().unwrap();
    let room = fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b' '; room]).unwrap();
    let mut child = folder.command(line).stdin(Stdio::null()).stdout(writer).stderr(Stdio::inherit()).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let (own, is_reporting) = look(&child);
        peak = peak.max(own);
        if is_reporting {
            break;
        }
        std::thread::yield_now();
    }
    let mut report = Vec::new();
    reader.read_to_end(&mut report).unwrap();
    assert!(child.wait().unwrap().success(), "{line}");
    (peak, serde_json::from_slice(&report).unwrap())
}

/// The most memory that a process had so far without pages of files, as far as can be told, and true if it waits to report.
fn look(child: &Child) -> (u64, bool) {
    let place = |name: &str| format!("/proc/{}/{name}", child.id());
    // For a moment it still has the memory of this process.
    if !fs::read_link(place("exe")).is_ok_and(|program| program.ends_with("millrace")) {
        return (0, false);
    }
    let wait = fs::read_to_string(place("wchan")).unwrap_or_default();
    let status = fs::read_to_string(place("status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_ascii);
    let kilobytes = |name: &str| field(name)?.strip_suffix(" kB")?.parse::<u64>().ok();
    let own = kilobytes("RssAnon:").unwrap_or(0);
    let before = kilobytes("VmHWM:").zip(kilobytes("RssFile:")).map_or(0, |(all, files)| all.saturating_sub(files));
    let is_reporting = match wait.as_str() {
        // The kernel doesn't say where it waits.
        "" | "0" => field("State:").is_some_and(|state| state.starts_with('S')) && field("Threads:") == Some("1"),
        place => place.contains("pipe_write"),
    };
    (own.max(before) << 10, is_reporting)
}
