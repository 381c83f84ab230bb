//! Writes the seeds of the fuzzers: `cargo run -p millrace-testkit --example fuzz_seeds -- FOLDER`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("fuzz/seeds"), PathBuf::from);
    millrace_testkit::fuzz::seeds::write(&folder)
}
