//! What a run takes: no more than its packets need, however many flows there is room for.
#![cfg(target_os = "linux")]

use crate::commands::replicates;
use crate::folder::Folder;
use crate::peak::own_peak;

/// Bytes that a run may take for a hundred packets, beyond what the program takes that only checks the function.
const PEAK: u64 = 2 << 20;

/// Bytes that functions over streams may take besides: for gathering fragments, and for early segments.
const STREAMS: u64 = 5 << 20;

#[test]
fn a_short_capture_takes_little_memory() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 100 --seed 7 --out small.pcap");
    for function in folder.json("functions --json").as_array().unwrap() {
        let function = function["name"].as_str().unwrap();
        let (program, _) = own_peak(&folder, &format!("check {function} --json"));
        let (peak, report) = own_peak(&folder, &format!("run {function} --in small.pcap --json"));
        assert_eq!(report["packets"]["received"], 100, "{function}");
        let most = program + PEAK + if replicates(function) { 0 } else { STREAMS };
        assert!(peak > 0 && peak <= most, "{function} takes {peak} bytes, the program {program}");
    }
}
