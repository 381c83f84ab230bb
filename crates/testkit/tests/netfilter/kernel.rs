//! The kernel's netfilter as a router with an inside and an outside, for scenarios.

use std::io;
use std::time::{Duration, Instant};

use millrace_testkit::netns::{Interface, KernelRouter, flush_conntrack};

use crate::player::Router;
use crate::script::{HOSTS, Scenario, Side};

/// Maximum delay, less than any scenario's margin between a wait and a timeout.
const LATE: Duration = Duration::from_millis(150);

const SETTINGS: [(&str, &str); 7] = [
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/all/accept_local", "1"),
];

pub(crate) struct Kernel {
    router: KernelRouter,
    began: Instant,
    late: bool,
    /// Settings to restore, with their old values.
    restore: Vec<(String, String)>,
}

impl Kernel {
    /// Creates the namespaces with names that contain `label`, and runs `nft` with the arguments `ruleset`.
    pub(crate) fn new(label: &str, ruleset: &[&str]) -> io::Result<Self> {
        let interface =
            |name: &str, address: [u8; 4]| Interface { name: name.to_owned(), address: address.into(), mtu: 1500 };
        let interfaces = [interface("rin", [192, 168, 10, 1]), interface("rout", [198, 51, 100, 1])];
        let router = KernelRouter::new(label, &interfaces, &SETTINGS, &addresses())?;
        router.namespace().run("nft", ruleset)?;
        Ok(Self { router, began: Instant::now(), late: false, restore: vec![] })
    }

    /// Runs a program in the router's namespace.
    #[allow(dead_code)] // The live twin of the command's tests has rules that are not for nft.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> io::Result<String> {
        self.router.namespace().feed(program, arguments, "")
    }

    /// Makes the router answer every packet with an error, without a flow label of its own.
    pub(crate) fn answer_all(&self) -> io::Result<()> {
        self.router.namespace().enter(|| {
            for (key, value) in [
                ("ipv4/icmp_ratelimit", "0"),
                ("ipv4/icmp_ratemask", "0"),
                ("ipv6/icmp/ratelimit", "0"),
                ("ipv6/auto_flowlabels", "0"),
            ] {
                std::fs::write(format!("/proc/sys/net/{key}"), value)?;
            }
            Ok(())
        })
    }

    /// Returns true if a packet of the scenario was too late for a test of timeouts, because the machine was busy.
    pub(crate) const fn was_late(&self) -> bool {
        self.late
    }

    fn set(&self, key: &str, value: &str) -> io::Result<String> {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{key}");
        self.router.namespace().enter(|| {
            let before = std::fs::read_to_string(&path)?;
            std::fs::write(&path, value)?;
            Ok(before.trim().to_owned())
        })
    }
}

impl Router for Kernel {
    fn begin(&mut self, scenario: &Scenario) {
        self.router.namespace().enter(flush_conntrack).expect("root may flush its own namespace");
        for (key, value) in std::mem::take(&mut self.restore) {
            self.set(&key, &value).expect("it was so before");
        }
        for (key, value) in &scenario.settings {
            let before = self.set(key, &value.to_string()).unwrap_or_else(|error| panic!("{key}: {error}"));
            self.restore.push((key.clone(), before));
        }
        (self.began, self.late) = (Instant::now(), false);
    }

    fn inject(&mut self, from: Side, packet: &[u8], at_ms: u64) -> Vec<(Side, Vec<u8>)> {
        // The kernel's timeouts use the real clock, so a scenario has to wait.
        let due = self.began + Duration::from_millis(at_ms);
        while Instant::now() < due {
            std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        self.late |= due.elapsed() > LATE;
        let sent = self.router.inject(from as usize, packet);
        let sent = sent.unwrap_or_else(|error| panic!("{error}, after {packet:02x?}"));
        sent.into_iter().map(|(nth, packet)| ([Side::Inside, Side::Outside][nth], packet)).collect()
    }
}

fn addresses() -> Vec<String> {
    let mut lines: Vec<String> = [
        "addr add 192.168.10.1/24 dev rin",
        "addr add 198.51.100.1/24 dev rout",
        "addr add 2001:db8:1::1/64 dev rin nodad",
        "addr add 2001:db8:f::1/64 dev rout nodad",
        "neigh replace 198.51.100.2 dev rout nud permanent lladdr 02:00:00:00:02:02",
        "neigh replace 2001:db8:f::2 dev rout nud permanent lladdr 02:00:00:00:02:02",
        "route add default via 198.51.100.2",
        "route add ::/0 via 2001:db8:f::2",
    ]
    .map(str::to_owned)
    .to_vec();
    for (_, host) in HOSTS {
        if host.starts_with("192.168.10.") || host.starts_with("2001:db8:1:") {
            lines.push(format!("neigh replace {host} dev rin nud permanent lladdr 02:00:00:00:01:02"));
        }
    }
    lines
}
