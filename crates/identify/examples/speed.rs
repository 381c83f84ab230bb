//! Measures identification by the first payloads of captures: `cargo run --release -p millrace-identify --example speed -- TRACES FOLDER`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use millrace_identify::{DatagramState, Prefixes, Side, Signatures};

#[path = "score/judge.rs"]
#[allow(dead_code)]
mod judge;

/// Rounds over all sessions; the fastest counts.
const ROUNDS: usize = 9;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [traces, folder] = &arguments[..] else {
        eprintln!("usage: speed TRACES FOLDER");
        return;
    };
    let start = Instant::now();
    let signatures = Signatures::built_in();
    println!("compiled in {:?}, {} KiB", start.elapsed(), signatures.memory() / 1024);

    let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
    for file in judge::files(Path::new(traces), folder) {
        let sessions = judge::sessions(&Path::new(traces).join(file)).unwrap_or_default();
        for session in sessions.into_values().filter(judge::Session::speaks) {
            match session.first_datagram() {
                Some(payload) => datagrams.push(payload),
                None => streams.push([session.first_segment(0), session.first_segment(1)]),
            }
        }
    }
    let settled = streams.iter().filter(|sides| stream(&signatures, sides)).count();
    println!(
        "{} streams, {settled} settled by the first payload of a side, {} datagrams",
        streams.len(),
        datagrams.len()
    );
    let by_stream = best(&streams, |sides| stream(&signatures, sides));
    let by_datagram = best(&datagrams, |payload| {
        signatures.datagram(&mut DatagramState::default(), Side::Initiator, payload).is_final()
    });
    println!("{by_stream:.0} ns a stream, {by_datagram:.0} ns a datagram");
}

/// Asks with the first payload of the side that speaks first. Returns true if that settles it.
fn stream(signatures: &Signatures, [initiator, responder]: &[Vec<u8>; 2]) -> bool {
    let responder = if initiator.is_empty() { &responder[..] } else { &[] };
    signatures.stream(&Prefixes { initiator, responder, ..Prefixes::default() }).is_final()
}

/// Returns the nanoseconds for one, in the fastest round.
fn best<T>(all: &[T], ask: impl Fn(&T) -> bool) -> f64 {
    let round = |_| {
        let start = Instant::now();
        for one in all {
            black_box(ask(black_box(one)));
        }
        start.elapsed().as_nanos() as f64 / all.len().max(1) as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
