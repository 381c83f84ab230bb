//! `firewall` and `nat` against the kernel's own netfilter: the same packets in, the same verdicts and bytes out.
#![allow(clippy::print_stderr)]

mod compare;
mod craft;
mod kernel;
mod ours;
mod player;
mod script;

use std::collections::BTreeSet;

use functions::{firewall, nat};
use kernel::Kernel;
use ours::{Ours, configuration};
use player::{Router, play};
use script::Scenario;

#[test]
fn firewall_decides_as_the_kernel_does() {
    let ours = Ours::new(|scenario: &Scenario| firewall::Firewall::new(firewall_config(scenario)));
    hold("firewall", include_str!("firewall.nft"), include_str!("firewall.txt"), ours);
}

#[test]
fn nat_rewrites_as_the_kernel_does() {
    let ours = Ours::new(|scenario: &Scenario| nat::Nat::new(nat_config(scenario)));
    hold("nat", include_str!("nat.nft"), include_str!("nat.txt"), ours);
}

/// The kernel picks connections up half-way if it isn't told otherwise; so do we here.
fn firewall_config(scenario: &Scenario) -> firewall::Config {
    let anyway = [("inside_interfaces", "[0]"), ("loose", "true")];
    let text = configuration(&anyway, scenario, |key| {
        Some(match key {
            "tcp_loose" => "loose",
            "tcp_timeout_syn_sent" => "timeouts.tcp_syn_sent",
            "tcp_timeout_syn_recv" => "timeouts.tcp_syn_recv",
            "tcp_timeout_established" => "timeouts.tcp_established",
            "tcp_timeout_fin_wait" => "timeouts.tcp_fin_wait",
            "tcp_timeout_close_wait" => "timeouts.tcp_close_wait",
            "tcp_timeout_last_ack" => "timeouts.tcp_last_ack",
            "tcp_timeout_time_wait" => "timeouts.tcp_time_wait",
            "tcp_timeout_close" => "timeouts.tcp_close",
            "tcp_timeout_max_retrans" => "timeouts.tcp_retransmitted",
            "tcp_timeout_unacknowledged" => "timeouts.tcp_unacknowledged",
            "udp_timeout" => "timeouts.udp",
            "udp_timeout_stream" => "timeouts.udp_stream",
            "icmp_timeout" => "timeouts.icmp",
            // We never look at checksums, and are never liberal about windows: these scenarios tell the differences.
            "checksum" | "tcp_be_liberal" => return None,
            other => panic!("what is {other} to a firewall of ours?"),
        })
    });
    toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The kernel filters by address and port; so do we here.
fn nat_config(scenario: &Scenario) -> nat::Config {
    let anyway = [
        ("inside", "[\"192.168.10.0/24\"]"),
        ("external", "[\"198.51.100.1\"]"),
        ("ports", "\"1-65535\""),
        ("filtering", "\"address-and-port-dependent\""),
    ];
    let text = configuration(&anyway, scenario, |key| {
        Some(match key {
            "udp_timeout" | "udp_timeout_stream" => "timeouts.udp",
            "icmp_timeout" => "timeouts.icmp",
            "tcp_timeout_established" => "timeouts.tcp_established",
            "tcp_timeout_syn_sent" | "tcp_timeout_time_wait" | "tcp_timeout_last_ack" => "timeouts.tcp_transitory",
            "tcp_loose" => "pick_up",
            "checksum" => return None,
            other => panic!("what is {other} to a NAT of ours?"),
        })
    });
    toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Plays every scenario to the kernel and to our function, and holds one against the other.
fn hold(label: &str, ruleset: &str, scenarios: &str, mut ours: impl Router) {
    let Some(mut kernel) = kernel(label, ruleset) else { return };
    let scenarios = script::read(scenarios);
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for scenario in &scenarios {
        let (kernel, ours) = (play(&mut kernel, scenario), play(&mut ours, scenario));
        let complaints = compare::compare(scenario, &kernel, &ours, &mut used);
        if !complaints.is_empty() {
            eprintln!(
                "kernel: {}\nours: {}",
                compare::transcript(scenario, &kernel),
                compare::transcript(scenario, &ours)
            );
        }
        wrong.extend(complaints);
    }
    let steps: usize = scenarios.iter().map(|scenario| scenario.steps.len()).sum();
    eprintln!("{label}: {} scenarios, {steps} packets, {} known differences", scenarios.len(), used.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_difference_is_explained_once() {
    let explained = include_str!("../../../../docs/netfilter-differences.md").lines();
    let explained: BTreeSet<String> =
        explained.filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    let scripts = [include_str!("firewall.txt"), include_str!("nat.txt")].map(script::read).concat();
    let steps = scripts.iter().flat_map(|scenario| &scenario.steps);
    let named: BTreeSet<String> =
        steps.filter_map(|step| step.expected.ours.as_ref()).map(|ours| ours.1.clone()).collect();
    assert_eq!(named, explained);
}

/// The kernel as a router, or none and one line that says why.
fn kernel(label: &str, ruleset: &str) -> Option<Kernel> {
    if let Some(missing) = testkit::netns::missing(&["ip", "nft", "ethtool"]) {
        eprintln!("SKIPPED (needs root / ip / nft / ethtool: no {missing})");
        return None;
    }
    let path = std::env::temp_dir().join(format!("mr-{}-{label}.nft", std::process::id()));
    std::fs::write(&path, ruleset).expect("the temporary directory is writable");
    let kernel = Kernel::new(label, &["-f", path.to_str().expect("it is UTF-8")]);
    let _ = std::fs::remove_file(&path);
    Some(kernel.unwrap_or_else(|error| panic!("the namespaces can't be set up: {error}")))
}
