//! Captures against tshark: number, time to the nanosecond, lengths. A stratified sample; all with MILLRACE_DEEP=1.

mod shared;

use std::path::Path;
use std::process::{Command, Stdio};

use millrace_port::Packet;
use millrace_port::pcap::Reader;
use shared::{Read, Row, deep, manifest, read_all};

/// Malformed captures that tshark refuses: an unknown link type, an absurd record length.
const REFUSED_MAX: usize = 7;
/// Damaged captures of which tshark makes something of its own: a fraction of more than a second overflows its arithmetic;
/// behind an absurd record length it tries other layouts of the record.
const NOT_COMPARED: [&str; 2] =
    ["malformed/ndpi__fuzz-2021-06-07-c6c72a0a56.pcap", "malformed/sv__bug-6875-01__fuzz.pcap"];
const SAMPLE_EACH: usize = 6;
/// Wiretap's number for ATM, and the header of SunATM captures (flags, VPI, VCI), which it takes off and doesn't count: a capture's own lengths have it.
const ATM: (&str, u32) = ("13", 4);

#[test]
#[allow(clippy::print_stderr)]
fn as_tshark_reads_them() {
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED (no tshark)");
        return;
    }
    let (mut wrong, mut refused, mut compared) = (Vec::new(), Vec::new(), 0);
    for row in sample() {
        match tshark(&row.path) {
            None => refused.push(row.name),
            Some(want) => {
                let read = read_all(Reader::open(&row.path).expect("a capture"));
                compared += 1;
                if let Err(why) = compare(&read, &want) {
                    wrong.push(format!("{}: {why}", row.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused.len() <= REFUSED_MAX, "refused by tshark: {refused:?}");
    assert!(refused.iter().all(|name| name.starts_with("malformed/")), "refused by tshark: {refused:?}");
    eprintln!("{compared} captures compared, {} refused by tshark", refused.len());
}

/// All of `fmt`, and of each other folder some, spread evenly.
fn sample() -> Vec<Row> {
    let mut rows = manifest();
    rows.retain(|row| !NOT_COMPARED.contains(&&*row.name));
    if deep() {
        return rows;
    }
    let of = |category: &str| rows.iter().filter(|row| row.category == category).count();
    let mut seen = std::collections::HashMap::<String, usize>::new();
    let chosen: Vec<bool> = rows
        .iter()
        .map(|row| {
            let number = seen.entry(row.category.clone()).or_default();
            *number += 1;
            let step = of(&row.category).div_ceil(SAMPLE_EACH);
            row.category == "fmt" || (row.category != "mix" && (*number - 1).is_multiple_of(step))
        })
        .collect();
    rows.into_iter().zip(chosen).filter_map(|(row, chosen)| chosen.then_some(row)).collect()
}

/// A packet as tshark prints it.
struct Line {
    /// In nanoseconds; `None` where the packet has no time.
    time: Option<u64>,
    wire_len: u32,
    len: u32,
}

/// What tshark prints of each packet; `None` when it refuses the file.
fn tshark(path: &Path) -> Option<Vec<Line>> {
    let fields = ["frame.encap_type", "frame.time_epoch", "frame.len", "frame.cap_len"];
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-E", "occurrence=f"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .arg("-r")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Line> = text.lines().filter_map(line).collect();
    (output.status.success() || !lines.is_empty()).then_some(lines)
}

/// Blocks of pcapng that are no packets have a line too, with no encapsulation in it.
fn line(line: &str) -> Option<Line> {
    let (encapsulation, rest) = line.split_once('\t').filter(|(encapsulation, _)| !encapsulation.is_empty())?;
    let taken_off = if encapsulation == ATM.0 { ATM.1 } else { 0 };
    let mut fields = rest.split('\t');
    let mut next = || fields.next().unwrap_or_default();
    let time = nanos(next());
    let mut length = || next().parse::<u32>().expect("a length") + taken_off;
    Some(Line { time, wire_len: length(), len: length() })
}

/// Seconds with nine digits behind the point.
fn nanos(text: &str) -> Option<u64> {
    let (secs, fraction) = text.split_once('.')?;
    assert_eq!(fraction.len(), 9, "{text}");
    Some(secs.parse::<u64>().ok()?.saturating_mul(1_000_000_000).saturating_add(fraction.parse().expect("digits")))
}

fn compare(read: &Read, want: &[Line]) -> Result<(), String> {
    let have: Vec<&Packet> = read.packets.iter().map(|(packet, _)| packet).collect();
    if have.len() != want.len() {
        return Err(format!("{} packets, not {}", have.len(), want.len()));
    }
    for (number, ((have, stamp), want)) in have.iter().zip(&read.stamps).zip(want).enumerate() {
        // A packet without a stamp has its neighbour's.
        let want = (want.time.unwrap_or(*stamp), want.wire_len.max(want.len), want.len);
        let have = (*stamp, have.wire_len, have.len);
        if have != want {
            return Err(format!("packet {}: {have:?}, not {want:?}", number + 1));
        }
    }
    Ok(())
}
