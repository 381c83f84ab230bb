//! Compares the model of `conntrack` with scenarios of one TCP connection and the kernel's answers (or hand-written answers that the kernel
//! confirmed). `crates/functions/testdata` describes the format.

use std::fs;
use std::path::Path;

use millrace_testkit::Build;
use millrace_testkit::model::{ConntrackModel, Fate, Model};
use packet::{Nanos, Seq, TcpFlags};

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "10.0.0.2:80";

/// Parses a segment, and the nanoseconds since the last one.
fn parse(text: &str) -> (u64, Build) {
    let mut words = text.split_whitespace().peekable();
    let wait = words.next_if(|word| word.starts_with('+')).map_or(0, nanos);
    let mut build = match words.next() {
        Some(">") => Build::tcp(CLIENT, SERVER),
        _ => Build::tcp(SERVER, CLIENT),
    };
    let flag = |letter| 1 << "FSRPAUEC".find(letter).expect("a flag");
    let flags = words.next().expect("flags").replace("none", "").chars().map(flag).sum();
    build = build.window(1000);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, "0"));
        let value: u32 = value.parse().expect("a number");
        build = match key {
            "seq" => build.seq(value),
            "ack" => build.ack(value),
            "len" => build.payload(value as usize),
            "win" => build.window(value as u16),
            "ws" => build.window_scale(value as u8),
            "sackok" => build.sack_permitted(),
            "sack" => build.sack(&[(value.wrapping_sub(1), value)]),
            _ => panic!("{word}"),
        };
    }
    (wait, build.flags(TcpFlags(flags)))
}

/// Parses `+119.999999999` without floating point.
fn nanos(text: &str) -> u64 {
    let (whole, part) = text[1..].split_once('.').unwrap_or((&text[1..], "0"));
    let part: u64 = format!("{part:0<9}").parse().expect("a number");
    whole.parse::<u64>().expect("a number") * 1_000_000_000 + part
}

/// Runs a file's scenarios. Returns the number of segments.
fn check(file: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions/testdata").join(file);
    let text = fs::read_to_string(path).expect("it is in the repository");
    let (mut name, mut model, mut now, mut checked) = ("", ConntrackModel::new(""), 0, 0);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("= ") {
            let (title, config) = title.split_once(" | ").unwrap_or((title, ""));
            (name, model, now) = (title, ConntrackModel::new(&config.replace(' ', "\n")), 0);
            continue;
        }
        let (segment, expected) = line.split_once("->").expect("an answer");
        let (wait, build) = parse(segment);
        now += wait;
        let fate = model.packet(Seq(0), Nanos(now), &build.headers(), &[]);
        let mut got = match fate {
            Fate::Drop(_) if expected.trim_start().starts_with("! ") => vec![String::from("!")],
            Fate::Drop(cause) => vec![format!("!{cause}")],
            Fate::Forward(_) | Fate::Reply(_) | Fate::Transform(_) => vec![],
        };
        match model.connections(Nanos(now)).first() {
            Some(tracked) => {
                got.push(String::from(tracked.state.expect("it is TCP")));
                got.push((tracked.deadline.0 - now).div_ceil(1_000_000_000).to_string());
                got.extend(tracked.assured.then(|| String::from("assured")));
            }
            None => got.push(String::from("gone")),
        }
        assert_eq!(got.join(" "), expected.trim(), "{name}: {line}");
        checked += 1;
    }
    checked
}

#[test]
fn the_model_answers_as_the_kernel_did() {
    assert!(check("tcp.kernel") > 3_000);
}

#[test]
fn the_model_answers_as_written_by_hand() {
    assert!(check("tcp.scenarios") > 250);
}
