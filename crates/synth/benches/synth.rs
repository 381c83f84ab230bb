//! How fast traces are synthesised: `cargo bench -p millrace-synth --bench synth`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use millrace_synth::{Params, Profile, Synth};

fn main() {
    println!("{:14} {:>9} {:>9} {:>8} {:>8} {:>10}", "profile", "flows", "packets", "seconds", "ns/pkt", "mean bytes");
    for profile in Profile::ALL {
        for flows in [None, Some(100_000)] {
            let params = Params {
                packets: 5_000_000,
                flows: flows.filter(|_| profile != Profile::SingleFlow),
                ..Params::default()
            };
            let start = Instant::now();
            let mut synth = Synth::new(profile, &params).expect("the parameters fit every profile");
            let (mut packets, mut bytes) = (0_u64, 0_u64);
            while let Some((_, frame)) = synth.next_frame() {
                packets += 1;
                bytes += frame.len() as u64;
            }
            let seconds = start.elapsed().as_secs_f64();
            let (each, mean) = (seconds * 1e9 / packets as f64, bytes as f64 / packets as f64);
            println!("{:14} {:9} {packets:9} {seconds:8.2} {each:8.1} {mean:10.1}", profile.name(), synth.flows());
        }
    }
}
