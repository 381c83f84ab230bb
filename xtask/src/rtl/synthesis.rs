//! Synthesises the ring and the prepender for an FPGA and compares with table 2 of state-compute replication.

use std::process::Command;

use anyhow::{Context, Result};

use super::{folder, in_parallel, quiet, sources};
use crate::packages;
use crate::tests::Totals;

/// Rows, and the paper's LUTs and flip-flops for them: table 2, in the NetFPGA-PLUS reference switch.
const PAPER: [(usize, u64, u64); 4] = [(16, 1_045, 2_369), (32, 1_852, 3_158), (64, 2_637, 4_707), (128, 3_390, 7_786)];
/// The paper's rows: 112 bits.
const ROW_BYTES: usize = 14;
const TRAILER_BYTES: usize = 32;
const BUS_BYTES: usize = 128;
/// The paper's clock.
const MHZ: f64 = 250.0;

/// Multiplexer mappings of yosys; neither is better for all sizes.
const MAPPINGS: [&str; 2] = ["", "-widemux 5"];

/// Cell counts of a netlist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cells {
    luts: u64,
    flip_flops: u64,
}

/// Synthesises for the paper's sizes and prints the table.
pub(super) fn run(totals: &mut Totals) -> Result<()> {
    if !packages::exists("yosys") {
        println!("   SKIPPED (yosys is not installed: apt-get install yosys): synthesis");
        totals.skipped += 1;
        return Ok(());
    }
    let jobs: Vec<_> = PAPER.iter().flat_map(|(rows, ..)| MAPPINGS.map(|mapping| (*rows, mapping))).collect();
    let cells = in_parallel(&jobs, |(rows, mapping)| synthesise(*rows, mapping))?;
    println!(
        "   UltraScale+, rows of 112 bits; the paper's numbers are after place and route in a whole switch, ours are not"
    );
    println!("   | rows | LUTs | paper | flip-flops | paper | bytes a packet | Mpps of 64 bytes at {MHZ} MHz |");
    println!("   |---|---|---|---|---|---|---|");
    for ((rows, paper_luts, paper_flip_flops), cells) in PAPER.iter().zip(cells.chunks(MAPPINGS.len())) {
        let best = cells.iter().min_by_key(|cells| cells.luts).context("there is a mapping")?;
        let added = rows * ROW_BYTES + TRAILER_BYTES;
        let Cells { luts, flip_flops } = best;
        println!(
            "   | {rows} | {luts} | {paper_luts} | {flip_flops} | {paper_flip_flops} | {added} | {:.1} |",
            mpps(added + 64)
        );
        totals.passed += 1;
    }
    println!(
        "   a beat a cycle at {MHZ} MHz is {:.0} Gbit/s out of the bus, {:.1} Mpps where packet and history fit a beat; yosys knows no \
         timing, so the clock is the paper's and not shown for ours",
        MHZ * 8.0 * BUS_BYTES as f64 / 1e3,
        mpps(BUS_BYTES)
    );
    Ok(())
}

/// Millions of packets a second, of so many bytes including the history.
fn mpps(bytes: usize) -> f64 {
    MHZ / bytes.div_ceil(BUS_BYTES) as f64
}

fn synthesise(rows: usize, mapping: &str) -> Result<Cells> {
    let log = folder("synthesis")?.join(format!("{rows}{}.txt", mapping.replace(' ', "")));
    let files: Vec<String> = sources()?.iter().map(|file| file.display().to_string()).collect();
    let script = format!(
        "read_verilog {}; chparam -set ROWS {rows} -set ROW_BYTES {ROW_BYTES} prepender; \
         synth_xilinx -family xcup -top prepender -noiopad -noclkbuf {mapping}; tee -q -o {} stat",
        files.join(" "),
        log.display()
    );
    quiet(Command::new("yosys").args(["-Q", "-q", "-p", &script]))?;
    let text = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    Ok(cells(&text))
}

/// Reads the last section of yosys's statistics, which is the whole design's.
fn cells(text: &str) -> Cells {
    let whole = text.rfind("Number of cells").map_or("", |at| &text[at..]);
    let mut cells = Cells::default();
    for line in whole.lines() {
        let mut words = line.split_whitespace();
        let (Some(cell), Some(count)) = (words.next(), words.next().and_then(|count| count.parse::<u64>().ok())) else {
            continue;
        };
        if cell.starts_with("LUT") {
            cells.luts += count;
        } else if cell.starts_with("FD") {
            cells.flip_flops += count;
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_section_counts() {
        let text = "Number of cells: 9\n FDRE 4\n LUT2 5\n=== design hierarchy ===\n Number of cells: 99\n CARRY4 1\n \
                    FDRE 70\n FDSE 2\n LUT2 5\n LUT6 21\n MUXF7 3\n";
        assert_eq!(cells(text), Cells { luts: 26, flip_flops: 72 });
        assert_eq!(cells("nothing"), Cells::default());
    }

    #[test]
    fn beats_are_whole() {
        assert!((mpps(128) - 250.0).abs() < 1e-9 && (mpps(129) - 125.0).abs() < 1e-9);
    }
}
