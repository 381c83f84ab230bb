//! Compares identification with nDPI on labelled captures, protocol by protocol:
//! `cargo run --release -p millrace-identify --example score -- TRACES FOLDER [even|odd] [FILE]`.
//!
//! With `even` or `odd` only every second capture counts. Disagreements are listed, except with `odd`: those captures are kept back.
//!
//! For a capture of one's own: `ndpiReader -d -v 2 -i a.pcap > listing`, then `... --example score -- --listing listing a.pcap`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;

#[allow(dead_code)]
mod judge;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (report, half) = match &arguments[..] {
        [option, listing, capture] if option == "--listing" => {
            let labels = judge::listed(Path::new(listing)).expect("the listing can be read");
            (judge::compare(Path::new(""), [(capture.clone(), labels)]), None)
        }
        [traces, folder, rest @ ..] if !folder.starts_with('-') => {
            let half = rest.iter().find_map(|word| match word.as_str() {
                "even" => Some(0),
                "odd" => Some(1),
                _ => None,
            });
            let only = rest.iter().find(|word| !matches!(word.as_str(), "even" | "odd"));
            let traces = Path::new(traces);
            let counts = |(number, (file, _)): &(usize, (String, _))| {
                half.is_none_or(|half| number % 2 == half) && only.is_none_or(|only| file.contains(only.as_str()))
            };
            let labelled = judge::labels(traces, folder).into_iter().enumerate().filter(counts);
            (judge::compare(traces, labelled.map(|(_, labelled)| labelled)), half)
        }
        _ => {
            eprintln!("usage: score TRACES FOLDER [even|odd] [FILE]\n       score --listing LISTING CAPTURE");
            return;
        }
    };
    if half != Some(1) {
        for line in report.disagreements.iter().chain(&report.unjudged) {
            println!("{line}");
        }
    }
    print!("{report}");
}
