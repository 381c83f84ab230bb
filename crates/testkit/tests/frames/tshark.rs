//! Runs tshark over frames.
#![allow(clippy::print_stdout)]

use std::io::Write;
use std::process::{Command, Stdio};

use millrace_testkit::Frames;

/// Returns the fields that tshark reads from each frame, with checksums checked; `None` without tshark.
pub(crate) fn tshark(frames: &Frames, more: &[&str], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", "-", "-T", "fields", "-E", "separator=|"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    // Payloads are made up, so application dissectors are disabled.
    for protocol in ["tls", "http", "ssh", "dns", "quic", "gquic"] {
        command.args(["--disable-protocol", protocol]);
    }
    command.args(more);
    for field in fields {
        command.args(["-e", field]);
    }
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = spawned else {
        println!("SKIPPED (no tshark)");
        return None;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    let capture = pcap(frames);
    let writer = std::thread::spawn(move || stdin.write_all(&capture));
    let output = child.wait_with_output().expect("tshark ends");
    writer.join().expect("no panic").expect("tshark reads all");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("fields are text");
    Some(text.lines().map(|line| line.split('|').map(String::from).collect()).collect())
}

/// A capture file with nanoseconds.
fn pcap(frames: &Frames) -> Vec<u8> {
    let mut out = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
    out.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
    out.extend(u32::from(frames.link().number()).to_le_bytes());
    for (time, bytes) in frames.iter() {
        let len = bytes.len() as u32;
        for word in [(time.0 / 1_000_000_000) as u32, (time.0 % 1_000_000_000) as u32, len, len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(bytes);
    }
    out
}
