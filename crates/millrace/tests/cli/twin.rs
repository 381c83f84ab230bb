//! The kernel's netfilter as a twin: the same frames go through a function on live interfaces and through the kernel, from raw sockets,
//! and what comes out is compared byte by byte. Scenarios, their language and the comparison are those of the test `netfilter` of
//! `millrace-testkit`, which does the same without interfaces.
//!
//! ```text
//! [h0] --- [inside0] wall, millrace [outside0] --- [h1]
//! [w0] --- [rin] router, the kernel     [rout] --- [w1]
//! ```

use std::fs;
use std::time::{Duration, Instant};

use testkit::netns::{Wire, missing};

use crate::compare::{self, Told};
use crate::folder::Folder;
use crate::kernel::Kernel;
use crate::live::{LONG, Row, Run, hold_accounts};
use crate::player::{Outcome, Router, play};
use crate::script::{self, Scenario, Side};

const FIREWALL: &str = include_str!("../../../testkit/tests/netfilter/firewall.txt");
const NAT: &str = include_str!("../../../testkit/tests/netfilter/nat.txt");

#[test]
fn a_firewall_decides_as_its_twin() {
    let configuration = "inside_interfaces = [0]\nloose = true\n";
    let twin =
        Twin { label: "twf", ruleset: include_str!("../../../testkit/tests/netfilter/firewall.nft"), told: Told::All };
    let engines = ["--engine sequential", "--engine rss --cores 2", "--engine scr --cores 2"];
    let [passed, dropped] = twin.hold("firewall", configuration, FIREWALL, &engines);
    assert!(passed >= 200 && dropped >= 60, "{passed} passed and {dropped} didn't");
}

#[test]
fn a_tracker_decides_as_its_twin() {
    let twin = Twin {
        label: "twc",
        ruleset: include_str!("../../../testkit/tests/netfilter/conntrack.nft"),
        told: Told::Differences,
    };
    let [passed, dropped] = twin.hold("conntrack", "", FIREWALL, &["--engine rss++ --cores 2", "--engine shared"]);
    assert!(passed >= 200 && dropped >= 40, "{passed} passed and {dropped} didn't");
}

#[test]
fn a_translator_rewrites_as_its_twin() {
    let configuration = "inside = [\"192.168.10.0/24\"]\nexternal = [\"198.51.100.1\"]\nports = \"1-65535\"\n\
                         filtering = \"address-and-port-dependent\"\n";
    let twin =
        Twin { label: "twn", ruleset: include_str!("../../../testkit/tests/netfilter/nat.nft"), told: Told::All };
    let engines = ["--engine sequential", "--engine transactional --cores 2", "--engine scr --cores 2"];
    let [passed, dropped] = twin.hold("nat", configuration, NAT, &engines);
    assert!(passed >= 100 && dropped >= 20, "{passed} passed and {dropped} didn't");
}

/// A comparison with the kernel.
struct Twin {
    label: &'static str,
    /// The kernel's rules, for nft.
    ruleset: &'static str,
    told: Told,
}

impl Twin {
    /// Plays the scenarios that need no settings and no waiting to the kernel, and to the function under each engine. Returns how many
    /// packets both let pass, and how many neither. Where it can't be done, prints why, and returns what is enough.
    fn hold(&self, function: &str, configuration: &str, scenarios: &str, engines: &[&str]) -> [usize; 2] {
        const ENOUGH: [usize; 2] = [usize::MAX; 2];
        let Some(row) = Row::new(self.label) else { return ENOUGH };
        if let Some(missing) = missing(&["nft"]) {
            eprintln!("SKIPPED (needs nft: no {missing}): live packets through a twin by netfilter");
            return ENOUGH;
        }
        let folder = Folder::empty();
        fs::write(folder.path("twin.nft"), self.ruleset).expect("it is ours");
        fs::write(folder.path("twin.toml"), configuration).expect("it is ours");
        let rules = folder.path("twin.nft");
        let kernel = Kernel::new(self.label, &["-f", rules.to_str().expect("it is text")]);
        let mut kernel = kernel.unwrap_or_else(|error| panic!("the twin can't be set up: {error}"));
        // Each of them has endpoints of its own, so that one run serves all.
        let mut scenarios = script::read(scenarios);
        scenarios.retain(|scenario| {
            scenario.settings.is_empty()
                && scenario.ours.is_empty()
                && scenario.steps.iter().all(|step| step.at_ms == 0)
        });
        let theirs: Vec<Vec<Outcome>> = scenarios.iter().map(|scenario| play(&mut kernel, scenario)).collect();

        let mut both = ENOUGH;
        for engine in engines {
            let line = format!("{function} --config twin.toml --defragment linux --link-traffic function {engine}");
            let mut ours = Live { wires: row.wires(), run: row.run(&folder, &line), sentinels: 0 };
            let (mut wrong, mut used, mut counts) = (Vec::new(), Vec::new(), [0; 2]);
            for (scenario, theirs) in scenarios.iter().zip(&theirs) {
                let ours = play(&mut ours, scenario);
                let complaints = compare::compare(scenario, self.told, theirs, &ours, &mut used);
                if !complaints.is_empty() {
                    let [theirs, ours] = [theirs, &ours].map(|played| compare::transcript(scenario, played));
                    eprintln!("{engine}\nkernel: {theirs}\nours: {ours}");
                }
                wrong.extend(complaints);
                for (theirs, ours) in theirs.iter().zip(&ours) {
                    match (theirs.came_out.is_empty(), ours.came_out.is_empty()) {
                        (false, false) => counts[0] += 1,
                        (true, true) => counts[1] += 1,
                        _ => {}
                    }
                }
            }
            assert!(wrong.is_empty(), "{function} {engine}\n{}", wrong.join("\n"));
            let packets: usize = scenarios.iter().map(|scenario| scenario.steps.len()).sum();
            eprintln!(
                "{function} {engine}: {packets} packets of {} scenarios; both let {} pass and {} not; {} named differences",
                scenarios.len(),
                counts[0],
                counts[1],
                used.len()
            );
            hold_accounts(&ours.run.stop(), &line);
            both = [0, 1].map(|verdict| both[verdict].min(counts[verdict]));
        }
        both
    }
}

/// A run between raw sockets, as a router.
struct Live<'a> {
    /// Ends inside and outside.
    wires: [Wire; 2],
    run: Run<'a>,
    sentinels: u32,
}

impl Live<'_> {
    /// Sends a frame that the function forwards after the frames before it, and collects what comes out on the other side until it is
    /// there. Runs keep the order of what they receive by one queue.
    fn sweep(&mut self, from: Side, came_out: &mut Vec<(Side, Vec<u8>)>) {
        self.sentinels += 1;
        let number = self.sentinels.to_be_bytes();
        // ARP that nobody answers: the hosts have other Ethernet addresses.
        let mut sentinel = [HOST, mac(from)].concat();
        sentinel.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        sentinel.extend(mac(from));
        sentinel.extend(number);
        sentinel.extend([0; 28]);
        self.wires[from as usize].send(&sentinel).expect("the wire takes it");
        let (far, end) = (from.other(), Instant::now() + LONG);
        let wire = &self.wires[far as usize];
        loop {
            while let Some(frame) = wire.take().expect("the wire is up") {
                if frame == sentinel {
                    return;
                }
                // Hosts may say something of their own.
                if frame[6..10] == MAC {
                    let packet = &frame[14..];
                    came_out.push((far, packet[..ip_len(packet)].to_vec()));
                }
            }
            assert!(Instant::now() < end, "the sentinel doesn't come out at {far:?}");
            Wire::wait(&[wire], Instant::now() + Duration::from_millis(20)).expect("a poll");
        }
    }
}

impl Router for Live<'_> {
    fn begin(&mut self, _: &Scenario) {}

    fn inject(&mut self, from: Side, packet: &[u8], _: u64) -> Vec<(Side, Vec<u8>)> {
        let mut frame = [HOST, mac(from)].concat();
        frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] });
        frame.extend(packet);
        self.wires[from as usize].send(&frame).expect("the wire takes it");
        let (mut across, mut back) = (Vec::new(), Vec::new());
        self.sweep(from, &mut across);
        self.sweep(from.other(), &mut back);
        // As the kernel's packets come: what went back first.
        back.extend(across);
        back
    }
}

/// The Ethernet address that frames go to. No host has it.
const HOST: [u8; 6] = [2, 0, 0, 7, 9, 9];
/// The beginning of the addresses that they come from.
const MAC: [u8; 4] = [2, 0, 0, 7];

const fn mac(side: Side) -> [u8; 6] {
    [2, 0, 0, 7, 0, side as u8]
}

/// A packet's length by its IP header.
fn ip_len(packet: &[u8]) -> usize {
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 4 { word(2) } else { 40 + word(4) }
}
