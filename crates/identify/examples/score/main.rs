//! Compares identification with nDPI on labelled captures, protocol by protocol:
//! `cargo run --release -p millrace-identify --example score -- TRACES FOLDER [even|odd] [FILE]`.
//!
//! With `even` or `odd` only every second capture counts. Disagreements are listed, except with `odd`: those captures are kept back.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;

#[allow(dead_code)]
mod judge;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [traces, folder, rest @ ..] = &arguments[..] else {
        eprintln!("usage: score TRACES FOLDER [even|odd] [FILE]");
        return;
    };
    let half = rest.iter().find_map(|word| match word.as_str() {
        "even" => Some(0),
        "odd" => Some(1),
        _ => None,
    });
    let only = rest.iter().find(|word| !matches!(word.as_str(), "even" | "odd"));
    let report = judge::compare(Path::new(traces), folder, half, only.map(String::as_str));
    if half != Some(1) {
        for line in report.disagreements.iter().chain(&report.unjudged) {
            println!("{line}");
        }
    }
    print!("{report}");
}
