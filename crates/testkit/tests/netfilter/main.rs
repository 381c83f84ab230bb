//! Compares `firewall`, `nat` and matches of iptables with the kernel's netfilter: for the same packets, the same verdicts and bytes.
#![allow(clippy::print_stderr)]

mod compare;
mod craft;
mod gather;
mod kernel;
mod matches;
mod ours;
mod packets;
mod player;
mod replies;
mod rules;
mod script;

use std::collections::BTreeSet;

use compare::Told;
use functions::{conntrack, firewall, nat};
use kernel::Kernel;
use ours::{Ours, configuration};
use player::{Outcome, Router, play};
use script::Scenario;

#[test]
fn firewall_decides_as_the_kernel_does() {
    let ours = Ours::new(|scenario: &Scenario| firewall::Firewall::new(firewall_config(scenario)));
    hold("firewall", include_str!("firewall.nft"), include_str!("firewall.txt"), Told::All, ours);
}

/// The firewall's scenarios again with both sides allowed to open. The scripts' verdicts are for other rules, so only differences from the
/// kernel are checked.
#[test]
fn conntrack_judges_as_the_kernel_does() {
    let ours = Ours::new(|scenario: &Scenario| conntrack::Conntrack::new(conntrack_config(scenario)));
    hold("conntrack", include_str!("conntrack.nft"), include_str!("firewall.txt"), Told::Differences, ours);
}

#[test]
fn nat_rewrites_as_the_kernel_does() {
    let ours = Ours::new(|scenario: &Scenario| nat::Nat::new(nat_config(scenario)));
    hold("nat", include_str!("nat.nft"), include_str!("nat.txt"), Told::All, ours);
}

/// The kernel picks up connections midstream by default; so does this configuration.
fn firewall_config(scenario: &Scenario) -> firewall::Config {
    let anyway = [("inside_interfaces", "[0]"), ("loose", "true")];
    // The firewall is never liberal about windows.
    parsed(&configuration(&anyway, scenario, |key| if key == "tcp_be_liberal" { None } else { tracking_key(key) }))
}

fn conntrack_config(scenario: &Scenario) -> conntrack::Config {
    parsed(&configuration(&[], scenario, tracking_key))
}

/// Returns our name for a setting of the kernel's tracker, if there is one.
fn tracking_key(kernel: &str) -> Option<&'static str> {
    Some(match kernel {
        "tcp_loose" => "loose",
        "tcp_be_liberal" => "liberal",
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
        // We never verify checksums: the scenarios name the difference.
        "checksum" => return None,
        other => panic!("what is {other} to a tracker of ours?"),
    })
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The kernel filters by address and port; so does this configuration.
fn nat_config(scenario: &Scenario) -> nat::Config {
    let anyway = [
        ("inside", "[\"192.168.10.0/24\"]"),
        ("external", "[\"198.51.100.1\"]"),
        ("ports", "\"1-65535\""),
        ("filtering", "\"address-and-port-dependent\""),
    ];
    parsed(&configuration(&anyway, scenario, |key| {
        Some(match key {
            "udp_timeout" | "udp_timeout_stream" => "timeouts.udp",
            "icmp_timeout" => "timeouts.icmp",
            "tcp_timeout_established" => "timeouts.tcp_established",
            "tcp_timeout_syn_sent" | "tcp_timeout_time_wait" | "tcp_timeout_last_ack" => "timeouts.tcp_transitory",
            "tcp_loose" => "pick_up",
            "checksum" => return None,
            other => panic!("what is {other} to a NAT of ours?"),
        })
    }))
}

/// Plays every scenario to the kernel and to our function, and compares them.
fn hold(label: &str, ruleset: &str, scenarios: &str, told: Told, mut ours: impl Router) {
    let Some(mut kernel) = kernel(label, ruleset) else { return };
    let scenarios = script::read(scenarios);
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for scenario in &scenarios {
        let (kernel, ours) = (play_in_time(&mut kernel, scenario), play(&mut ours, scenario));
        let complaints = compare::compare(scenario, told, &kernel, &ours, &mut used);
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

/// Plays a scenario to the kernel, and repeats it if the machine was too busy for its times.
fn play_in_time(kernel: &mut Kernel, scenario: &Scenario) -> Vec<Outcome> {
    for _ in 0..5 {
        let outcomes = play(kernel, scenario);
        if !kernel.was_late() {
            return outcomes;
        }
    }
    panic!("{}: the machine is too busy to keep the scenario's times", scenario.name);
}

/// Returns the kernel as a router; otherwise prints why there is none.
fn kernel(label: &str, ruleset: &str) -> Option<Kernel> {
    if let Some(missing) = millrace_testkit::netns::missing(&["ip", "nft", "ethtool"]) {
        eprintln!("SKIPPED (needs root / ip / nft / ethtool: no {missing})");
        return None;
    }
    let path = std::env::temp_dir().join(format!("mr-{}-{label}.nft", std::process::id()));
    std::fs::write(&path, ruleset).expect("the temporary directory is writable");
    let kernel = Kernel::new(label, &["-f", path.to_str().expect("it is UTF-8")]);
    let _ = std::fs::remove_file(&path);
    Some(kernel.unwrap_or_else(|error| panic!("the namespaces can't be set up: {error}")))
}
