//! Writes what the sequencer in hardware is held against: `cargo run -p millrace-testkit --example rtl_vectors -- FOLDER`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use testkit::rtl::corpus::{self, Kind};
use testkit::rtl::vectors::{self, Made, Unit};

/// Units for the part that no function shapes: rings of all sizes, with and without an outer header, one whose history
/// ends with a beat of the bus.
const CORES: [Unit; 5] = [
    Unit { function: 0, rows: 16, record_len: 6, outer: false },
    Unit { function: 0, rows: 1, record_len: 6, outer: false },
    Unit { function: 0, rows: 7, record_len: 6, outer: true },
    Unit { function: 0, rows: 16, record_len: 6, outer: true },
    Unit { function: 0, rows: 128, record_len: 6, outer: false },
];

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/rtl"), PathBuf::from);
    fs::create_dir_all(&folder)?;
    for unit in CORES {
        let trace = corpus::packets(Kind::Any, u64::from(unit.rows));
        write(&folder, "core", unit, |out| {
            vectors::write(out, unit, &trace, |packet, _| {
                let fields = [&packet.wire_len.to_be_bytes()[..], &packet.interface.to_be_bytes()].concat();
                if packet.wire_len & 1 == 1 { Made::Record(fields) } else { Made::Nothing }
            })
        })?;
    }
    Ok(())
}

fn write(
    folder: &Path,
    name: &str,
    unit: Unit,
    vectors: impl FnOnce(&mut BufWriter<File>) -> io::Result<vectors::Counts>,
) -> io::Result<()> {
    let outer = if unit.outer { "-outer" } else { "" };
    let file = folder.join(format!("{name}-{}{outer}.vec", unit.rows));
    let mut out = BufWriter::new(File::create(&file)?);
    let counts = vectors(&mut out)?;
    out.flush()?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{name} {} {} {} {} {}", unit.function, unit.rows, unit.record_len, u8::from(unit.outer), file.display())?;
    let _ = counts;
    Ok(())
}
