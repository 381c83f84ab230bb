//! The kernel as a runner of rule sets.

use std::collections::BTreeSet;
use std::io;

use iptables::{Family, Options, RuleSet, TableKind};
use millrace_testkit::netns::{KernelRouter, PacketLog, flush_conntrack};

use super::case::Rules;
use super::layout::Layout;
use super::runner::{Outcome, RuleRunner};

/// Settings of the router, from `net/`. New interfaces take those of `default`.
const SETTINGS: [(&str, &str); 23] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_local", "1"),
    ("ipv4/conf/default/accept_local", "1"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    ("ipv4/conf/all/route_localnet", "1"),
    ("ipv4/conf/default/route_localnet", "1"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_ratemask", "0"),
    ("ipv4/icmp_echo_ignore_broadcasts", "0"),
    ("ipv4/ip_default_ttl", "64"),
    ("ipv4/ip_no_pmtu_disc", "1"),
    ("ipv4/tcp_timestamps", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/default/forwarding", "1"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/autoconf", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    // A type that there is not.
    ("ipv6/icmp/ratemask", "255"),
];

/// Settings of tracking. Most are the kernel's defaults.
const TRACKING: [(&str, &str); 4] = [("checksum", "1"), ("tcp_be_liberal", "0"), ("tcp_loose", "1"), ("acct", "1")];

/// The group to which packets are logged that have passed INPUT.
const GROUP: u16 = 5;

/// Logs and drops what has passed INPUT and is tracked, so that the router's own stack never answers.
const PASSED_INPUT: &str = "table inet passed {
    chain input {
        type filter hook input priority 2147483647; policy drop;
        log group 5 queue-threshold 1
    }
}
";

/// One of the kernel's two ways to run rules of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `x_tables`, which Millrace follows.
    Legacy,
    /// `nf_tables`.
    Nft,
}

/// A router in a namespace that runs rule sets of one family.
pub(crate) struct KernelRules {
    router: KernelRouter,
    log: PacketLog,
    tool: Tool,
    family: Family,
    /// The tables that have been loaded so far.
    tables: BTreeSet<TableKind>,
    has_sets: bool,
}

impl KernelRules {
    pub(crate) fn new(label: &str, layout: &Layout, family: Family, tool: Tool) -> io::Result<Self> {
        let router = KernelRouter::new(label, &layout.for_kernel(), &SETTINGS, &layout.ip_lines())?;
        // It must be there before tracking is, to be called after it.
        router.namespace().feed("nft", &["-f", "-"], PASSED_INPUT)?;
        let log = router.namespace().enter(|| PacketLog::open(GROUP))?;
        router.namespace().enter(|| {
            for (key, value) in TRACKING {
                // Not there before the kernel's module is loaded, and then only a default.
                let _ = std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{key}"), value);
            }
        });
        Ok(Self { router, log, tool, family, tables: BTreeSet::new(), has_sets: false })
    }

    /// The best tool that is installed for a family.
    pub(crate) fn tool() -> Option<Tool> {
        let is_there =
            |tool: Tool| millrace_testkit::netns::missing(&[&program(Family::V4, tool, "restore")]).is_none();
        [Tool::Legacy, Tool::Nft].into_iter().find(|tool| is_there(*tool))
    }

    fn restore(&self, text: &str) -> io::Result<String> {
        let wait: &[&str] = if self.tool == Tool::Legacy { &["-w", "20"] } else { &[] };
        self.router.namespace().feed(&program(self.family, self.tool, "restore"), wait, text)
    }

    fn try_load(&mut self, rules: &Rules, tables: impl Iterator<Item = TableKind>) -> io::Result<()> {
        // Tables of `recent` and `hashlimit` live as long as a rule names them, so no rule may remain.
        if !self.tables.is_empty() {
            self.restore(&self.tables.iter().map(|kind| empty(*kind)).collect::<String>())?;
        }
        if self.has_sets {
            self.router.namespace().feed("ipset", &["destroy"], "")?;
            self.has_sets = false;
        }
        if !rules.sets.is_empty() {
            self.has_sets = true;
            self.router.namespace().feed("ipset", &["restore", "-exist"], &rules.sets)?;
        }
        self.tables.extend(tables);
        self.restore(&rules.text)?;
        self.router.namespace().enter(flush_conntrack)
    }
}

impl RuleRunner for KernelRules {
    fn load(&mut self, rules: &Rules) -> Result<(), String> {
        let named = |kind: &TableKind| rules.text.lines().any(|line| line.trim_end() == format!("*{}", kind.name()));
        let loaded = self.try_load(rules, TableKind::ALL.into_iter().filter(named));
        loaded.map_err(|error| error.to_string())
    }

    fn inject(&mut self, from: usize, packet: &[u8]) -> Outcome {
        let left = self.router.inject(from, packet);
        let mut left = left.unwrap_or_else(|error| panic!("{error}, after {packet:02x?}"));
        left.sort_by_key(|sent| sent.0);
        Outcome { left, delivered: self.log.take().expect("the socket is open").len() }
    }

    fn counters(&mut self) -> RuleSet {
        let saved = self.router.namespace().feed(&program(self.family, self.tool, "save"), &["-c"], "");
        let saved = saved.unwrap_or_else(|error| panic!("{error}"));
        let options = Options { family: Some(self.family), skip_unsupported: true, ..Options::default() };
        let parsed = iptables::parse(&saved, &options).unwrap_or_else(|errors| panic!("{errors}\n{saved}"));
        parsed.rules
    }
}

fn program(family: Family, tool: Tool, verb: &str) -> String {
    let tool = match tool {
        Tool::Legacy => "legacy",
        Tool::Nft => "nft",
    };
    format!("{}-{tool}-{verb}", family.command())
}

/// A table without rules.
fn empty(kind: TableKind) -> String {
    let chains: String = kind.hooks().iter().map(|hook| format!(":{} ACCEPT [0:0]\n", hook.name())).collect();
    format!("*{}\n{chains}COMMIT\n", kind.name())
}
