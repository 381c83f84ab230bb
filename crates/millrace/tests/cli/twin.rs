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
use crate::conversations::{Kind, conversations};
use crate::counters::hold_accounts;
use crate::folder::Folder;
use crate::kernel::Kernel;
use crate::live::{LONG, Row, Run};
use crate::player::{Outcome, Router, play};
use crate::script::{self, Scenario, Side};

const FIREWALL: &str = include_str!("../../../testkit/tests/netfilter/firewall.txt");
const NAT: &str = include_str!("../../../testkit/tests/netfilter/nat.txt");

#[test]
fn a_firewall_decides_as_its_twin() {
    let twin = Twin {
        label: "twf",
        rules: Rules::Nft(include_str!("../../../testkit/tests/netfilter/firewall.nft")),
        told: Told::All,
        function: "firewall",
        configuration: "inside_interfaces = [0]\nloose = true\n",
        without: &[],
    };
    let engines = ["--engine sequential", "--engine rss --cores 2", "--engine scr --cores 2"];
    twin.hold(FIREWALL, &engines, [250, 50]);
}

#[test]
fn a_tracker_decides_as_its_twin() {
    let twin = Twin {
        label: "twc",
        rules: Rules::Nft(include_str!("../../../testkit/tests/netfilter/conntrack.nft")),
        told: Told::Differences,
        function: "conntrack",
        configuration: "",
        without: &[],
    };
    twin.hold(FIREWALL, &["--engine rss++ --cores 2", "--engine shared --cores 2"], [250, 40]);
}

#[test]
fn a_translator_rewrites_as_its_twin() {
    let twin = Twin {
        label: "twn",
        rules: Rules::Nft(include_str!("../../../testkit/tests/netfilter/nat.nft")),
        told: Told::All,
        function: "nat",
        configuration: TRANSLATOR,
        without: &[],
    };
    let engines = ["--engine sequential", "--engine transactional --cores 2", "--engine scr --cores 2"];
    twin.hold(NAT, &engines, [120, 20]);
}

const TRANSLATOR: &str = "inside = [\"192.168.10.0/24\"]\nexternal = [\"198.51.100.1\"]\nports = \"1-65535\"\n\
                          filtering = \"address-and-port-dependent\"\n";

/// Random conversations of a hundred flows; of many hundreds if `MILLRACE_DEEP` is set.
#[test]
fn random_conversations_are_judged_as_by_the_twin() {
    let seeds = if std::env::var_os("MILLRACE_DEEP").is_some() { 1..30 } else { 0..1 };
    for seed in seeds {
        let firewall = Twin {
            label: "twx",
            rules: Rules::Nft(include_str!("../../../testkit/tests/netfilter/firewall.nft")),
            told: Told::Differences,
            function: "firewall",
            configuration: "inside_interfaces = [0]\nloose = true\n",
            without: &[],
        };
        firewall.hold(
            &conversations(seed, 100, Kind::FromInside),
            &["--engine sequential", "--engine scr --cores 2"],
            [400, 60],
        );
        let tracker = Twin {
            label: "twy",
            rules: Rules::Nft(include_str!("../../../testkit/tests/netfilter/conntrack.nft")),
            function: "conntrack",
            configuration: "",
            ..firewall
        };
        let translator = Twin {
            label: "twz",
            rules: Rules::Nft(include_str!("../../../testkit/tests/netfilter/nat.nft")),
            function: "nat",
            configuration: TRANSLATOR,
            ..firewall
        };
        translator.hold(&conversations(seed, 100, Kind::Proper), &["--engine transactional --cores 2"], [400, 10]);
        tracker.hold(&conversations(seed, 100, Kind::Any), &["--engine rss --cores 2"], [400, 60]);
    }
}

/// Rules of iptables, run by us and by the kernel's `x_tables`.
#[test]
fn a_rule_set_decides_as_its_twin() {
    let twin = Twin {
        label: "twr",
        rules: Rules::Iptables { v4: RULES, v6: RULES_V6 },
        told: Told::Differences,
        function: "rules --rules twin.v4 --rules-v6 twin.v6",
        configuration: "",
        // Two hosts that ask each other with one identifier are one connection of ours (crates/functions/docs/rules.md).
        without: &["pings, asked and unasked"],
    };
    twin.hold(FIREWALL, &["--engine sequential", "--engine rss --cores 2", "--engine scr --cores 2"], [250, 70]);
}

/// The inside may open some services.
const RULES: &str = "*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT DROP [0:0]
:services - [0:0]
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -s 192.168.10.0/24 -m conntrack --ctstate NEW -j services
-A services -p tcp -m multiport --dports 22,80,443 -j ACCEPT
-A services -p udp -m length --length 0:400 -j ACCEPT
-A services -p icmp -m icmp --icmp-type 8 -j ACCEPT
COMMIT
";

const RULES_V6: &str = "*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT DROP [0:0]
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -s 2001:db8:1::/64 -p tcp -m tcp --dport 80 --tcp-flags SYN,RST,ACK SYN -j ACCEPT
-A FORWARD -s 2001:db8:1::/64 -p udp -m conntrack --ctstate NEW -j ACCEPT
-A FORWARD -s 2001:db8:1::/64 -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT
COMMIT
";

/// The kernel's rules.
enum Rules {
    Nft(&'static str),
    Iptables { v4: &'static str, v6: &'static str },
}

/// A comparison with the kernel.
struct Twin {
    label: &'static str,
    rules: Rules,
    told: Told,
    /// The function, and its options.
    function: &'static str,
    configuration: &'static str,
    /// Scenarios that are left out.
    without: &'static [&'static str],
}

impl Twin {
    /// Plays the scenarios that need no settings and no waiting to the kernel, and to the function under each engine. `at_least` are the
    /// packets that both must let pass, and those that neither may.
    fn hold(&self, scenarios: &str, engines: &[&str], at_least: [usize; 2]) {
        let folder = Folder::empty();
        let Some((row, mut kernel)) = self.start(&folder) else { return };
        // Each of them has endpoints of its own, so that one run serves all.
        let mut scenarios = script::read(scenarios);
        scenarios.retain(|scenario| {
            !self.without.contains(&&*scenario.name)
                && scenario.settings.is_empty()
                && scenario.ours.is_empty()
                && scenario.steps.iter().all(|step| step.at_ms == 0)
        });
        let theirs: Vec<Vec<Outcome>> = scenarios.iter().map(|scenario| play(&mut kernel, scenario)).collect();

        fs::write(folder.path("twin.toml"), self.configuration).expect("it is ours");
        for engine in engines {
            let function = self.function;
            let line = format!("{function} --config twin.toml --defragment linux --link-traffic function {engine}");
            let mut ours = Live { wires: row.wires(), run: row.run(&folder, &line), sentinels: 0 };
            let (mut wrong, mut used, mut both) = (Vec::new(), Vec::new(), [0; 2]);
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
                        (false, false) => both[0] += 1,
                        (true, true) => both[1] += 1,
                        _ => {}
                    }
                }
            }
            assert!(wrong.is_empty(), "{function} {engine}\n{}", wrong.join("\n"));
            let packets: usize = scenarios.iter().map(|scenario| scenario.steps.len()).sum();
            let ([passed, dropped], differences) = (both, used.len());
            eprintln!(
                "{function} {engine}: {packets} packets of {} scenarios: both let {passed} pass and {dropped} not, and \
                 {differences} differ as is documented",
                scenarios.len(),
            );
            assert!(passed >= at_least[0] && dropped >= at_least[1], "{function} {engine}: too few to tell");
            hold_accounts(&ours.run.stop(), &line);
        }
    }

    /// Two hosts, and the kernel with the rules. `None`, with a line that says why, where there can be none.
    fn start(&self, folder: &Folder) -> Option<(Row, Kernel)> {
        let row = Row::new(self.label)?;
        let programs: &[&str] = match self.rules {
            Rules::Nft(_) => &["nft"],
            Rules::Iptables { .. } => &["nft", "iptables-legacy-restore", "ip6tables-legacy-restore"],
        };
        if let Some(missing) = missing(programs) {
            eprintln!("SKIPPED (needs {}: no {missing}): live packets through a twin", programs.join(" / "));
            return None;
        }
        let file = |name: &str, content: &str| {
            fs::write(folder.path(name), content).expect("it is ours");
            folder.path(name).to_str().expect("it is text").to_owned()
        };
        let kernel = match self.rules {
            Rules::Nft(rules) => Kernel::new(self.label, &["-f", &file("twin.nft", rules)]),
            // The files are also ours.
            Rules::Iptables { v4, v6 } => Kernel::new(self.label, &["list", "tables"]).and_then(|kernel| {
                for (tool, name, rules) in
                    [("iptables-legacy-restore", "twin.v4", v4), ("ip6tables-legacy-restore", "twin.v6", v6)]
                {
                    kernel.run(tool, &["-w", "20", &file(name, rules)])?;
                }
                Ok(kernel)
            }),
        };
        Some((row, kernel.unwrap_or_else(|error| panic!("the twin can't be set up: {error}"))))
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
