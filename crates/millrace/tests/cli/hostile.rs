//! Hostile traffic: memory stays below the bound that is told at the start, all packets are accounted for, and honest sessions go on.
#![cfg(target_os = "linux")]

use serde_json::Value;
use testkit::hostile::{Attack, Hostile, NEEDLE};

use crate::folder::Folder;
use crate::peak::own_peak;

const ENGINES: [&str; 4] = [
    "--engine sequential",
    "--engine rss --cores 2",
    "--engine shared --cores 2",
    "--engine pipeline --cores 3 --ways 2",
];

/// Small enough that an attack of a few thousand packets fills everything.
const LIMITS: &str = "--set streams.flows=1000 --set streams.flows_v6=1 --set streams.memory=1";

/// Honest sessions among an attack's packets.
const HONEST: u64 = 50;

#[test]
fn syn_flood() {
    hold(Attack::SynFlood, 8_000, HONEST);
}

#[test]
fn fragments_that_never_end() {
    hold(Attack::EndlessFragments, 12_000, HONEST);
}

/// The attacker's sessions are established, too. So honest ones go on that began before the table was full of them.
#[test]
fn open_gaps() {
    hold(Attack::OpenGaps, 2_000, HONEST * 2 / 5);
}

#[test]
fn one_byte_a_segment() {
    hold(Attack::OneByte, 8_000, HONEST);
}

#[test]
fn overlapping_madness() {
    hold(Attack::Overlaps, 4_000, HONEST);
}

/// Runs an attack through both functions under all engines. So many honest sessions must be told at least.
fn hold(attack: Attack, size: u64, honest: u64) {
    let folder = Folder::empty();
    let write = |name: &str, size: u64| {
        let hostile = Hostile { attack, size, honest: HONEST, seed: 7 };
        hostile.write(&folder.path(name)).unwrap()
    };
    let packets = write("hostile.pcap", size);
    write("little.pcap", 1);
    let matching = format!("stream-match --set patterns=[\"{NEEDLE}\"] --set action=\"drop\"");
    for (function, row) in [("identify", "http"), (&*matching, NEEDLE)] {
        for engine in ENGINES {
            let line = format!("run {function} {engine} {LIMITS} --seed 1 --json");
            let (without, _) = own_peak(&folder, &format!("{line} --in little.pcap"));
            let (with, report) = own_peak(&folder, &format!("{line} --in hostile.pcap"));
            let most = report["memory_max"]["total"].as_u64().unwrap();
            assert!(with <= without + most, "{line}: {with} bytes, of {without} and {most}");

            let counted = |value: &Value| value.as_u64().unwrap();
            let fates = &report["packets"];
            let dropped: u64 = fates["drops"].as_object().unwrap().values().map(counted).sum();
            let [received, forwarded, replied] = ["received", "forwarded", "replied"].map(|fate| counted(&fates[fate]));
            assert_eq!(received, forwarded + replied + dropped, "{line}");
            let fragments = &report["fragments"];
            let lost: u64 = fragments["drops"].as_object().unwrap().values().map(counted).sum();
            let [seen, gathered, datagrams] =
                ["received", "gathered", "datagrams"].map(|count| counted(&fragments[count]));
            assert_eq!((seen, received), (gathered + lost, packets - seen + datagrams), "{line}");
            if function == "identify" {
                assert_eq!(dropped, 0, "{line}: nothing is unwanted");
            }

            let rows = report["report"]["rows"].as_array().unwrap();
            let told = rows.iter().find(|cells| cells[0] == row).map_or(0, |cells| counted(&cells[1]));
            // Cores that share flows step their packets in any order, and an acknowledgment ahead of its bytes ends the wait for them. So
            // what is told then depends on how the cores are scheduled.
            let least = if engine.contains("shared") { 0 } else { honest };
            assert!(told >= least, "{line}: {told} of {honest} honest sessions");
        }
    }
}
