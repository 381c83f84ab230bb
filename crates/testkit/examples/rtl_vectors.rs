//! Writes the test vectors of the hardware sequencer: `cargo run -p millrace-testkit --example rtl_vectors -- FOLDER`.
//! Prints a line for each file with the parameters of the hardware and the number of packets:
//! name, function, rows, bytes of a record, outer header, packets with a step, without one, left to software.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use millrace_testkit::rtl::functions::{Set, all};

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/rtl"), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let file = |name: &str, rows: u16| folder.join(format!("{name}-{rows}.vec"));
    let sets = all(|name, unit| File::create(file(name, unit.rows)).map(BufWriter::new))?;
    let mut stdout = io::stdout().lock();
    for Set { name, unit, counts } in sets {
        let outer = u8::from(unit.outer);
        write!(stdout, "{name} {} {} {} {outer} ", unit.function, unit.rows, unit.record_len)?;
        writeln!(stdout, "{} {} {}", counts.records, counts.nothing, counts.software)?;
    }
    Ok(())
}
