//! Random rule sets, small, over what rule sets mostly use.

use iptables::Family;
use millrace_testkit::Rng;

use super::case::Rules;

/// The interfaces of the router.
pub(crate) const INTERFACES: [&str; 3] = ["eth0", "eth1", "eth2"];

/// Hosts and networks behind the interfaces, and the router's own addresses.
const ADDRESSES: [&str; 9] = [
    "10.200.0.1",
    "10.201.0.1",
    "10.200.0.9",
    "10.201.0.2",
    "10.201.0.0/24",
    "10.202.0.9",
    "198.51.100.0/24",
    "203.0.113.77",
    "10.0.0.0/8",
];
const PORTS: [&str; 6] = ["53", "80", "443", "1024:65535", "40000", "5000:5999"];
const USER_CHAINS: [&str; 3] = ["one", "two", "three"];

/// A rule set of the seed. It names all tables, so that both sides track connections.
pub(crate) fn rules(seed: u64) -> Rules {
    let mut random = Random(Rng::new(seed));
    let mut text = String::new();
    for (table, chains) in [
        ("raw", &["PREROUTING"][..]),
        ("mangle", &["PREROUTING", "FORWARD", "INPUT", "POSTROUTING"]),
        ("nat", &["PREROUTING", "POSTROUTING"]),
        ("filter", &["FORWARD", "FORWARD", "FORWARD", "INPUT"]),
    ] {
        text += &random.table(table, chains);
    }
    Rules { family: Family::V4, text, sets: String::new() }
}

struct Random(Rng);

impl Random {
    fn table(&mut self, table: &str, chains: &[&str]) -> String {
        let (mut declared, mut lines) = (String::new(), String::new());
        let hooks: &[&str] = match table {
            "filter" => &["INPUT", "FORWARD", "OUTPUT"],
            "raw" => &["PREROUTING", "OUTPUT"],
            "nat" => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
            _ => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        };
        for hook in hooks {
            let drops = table == "filter" && *hook != "OUTPUT" && self.0.chance(0.25);
            declared += &format!(":{hook} {} [0:0]\n", if drops { "DROP" } else { "ACCEPT" });
        }
        // A user's chain leads only to later ones, so that there are no loops.
        let users = if matches!(table, "filter" | "mangle") { self.0.below(4) as usize } else { 0 };
        for chain in &USER_CHAINS[..users] {
            declared += &format!(":{chain} - [0:0]\n");
        }
        let most = match table {
            "filter" => 8,
            "nat" => 4,
            _ => 2,
        };
        for _ in 0..self.0.below(most + 1) {
            let chain = *self.pick(chains);
            lines += &self.rule(table, chain, &USER_CHAINS[..users]);
        }
        for (nth, chain) in USER_CHAINS[..users].iter().enumerate() {
            for _ in 0..self.0.below(3) + 1 {
                lines += &self.rule(table, chain, &USER_CHAINS[nth + 1..users]);
            }
        }
        format!("*{table}\n{declared}{lines}COMMIT\n")
    }

    fn rule(&mut self, table: &str, chain: &str, users: &[&str]) -> String {
        let target = self.target(table, chain, users);
        let wants_tcp = target.contains("tcp-reset");
        let wants_ports = wants_tcp || target.contains(":5") || target.contains("--to-ports");
        let mut rule = format!("-A {chain}");
        let is_user = !chain.bytes().all(|byte| byte.is_ascii_uppercase());
        if self.0.chance(0.3) {
            rule += &format!("{} -s {}", self.not(), self.pick(&ADDRESSES));
        }
        if self.0.chance(0.3) {
            rule += &format!("{} -d {}", self.not(), self.pick(&ADDRESSES));
        }
        if self.0.chance(0.3) && !matches!(chain, "POSTROUTING") && !is_user {
            rule += &format!("{} -i {}", self.not(), self.pick(&["eth0", "eth1", "eth2", "eth+"]));
        }
        if self.0.chance(0.3) && matches!(chain, "POSTROUTING" | "FORWARD") {
            rule += &format!("{} -o {}", self.not(), self.pick(&INTERFACES));
        }
        if wants_ports || self.0.chance(0.55) {
            rule += &self.protocol(wants_tcp, wants_ports);
        }
        for _ in 0..2 {
            if self.0.chance(0.3) {
                rule += &self.test(table, chain);
            }
        }
        rule + &target + "\n"
    }

    fn protocol(&mut self, wants_tcp: bool, wants_ports: bool) -> String {
        let protocol = match (wants_tcp, wants_ports) {
            (true, _) => "tcp",
            (false, true) => *self.pick(&["tcp", "udp"]),
            (false, false) => *self.pick(&["tcp", "tcp", "udp", "udp", "icmp", "47"]),
        };
        let mut text = format!(" -p {protocol}");
        match protocol {
            "icmp" if self.0.chance(0.6) => {
                text += &format!(" --icmp-type {}", self.pick(&["8", "0", "3", "3/3", "11"]))
            }
            "tcp" | "udp" => match self.0.below(5) {
                0 | 1 => text += &format!("{} --dport {}", self.not(), self.pick(&PORTS)),
                2 => text += &format!("{} --sport {}", self.not(), self.pick(&PORTS)),
                3 => text += &format!(" -m multiport --{} 53,80,5000:5999", self.pick(&["dports", "sports", "ports"])),
                _ if protocol == "tcp" => text += *self.pick(&[" --syn", " ! --syn", " --tcp-flags SYN,ACK SYN,ACK"]),
                _ => {}
            },
            _ => {}
        }
        text
    }

    fn test(&mut self, table: &str, chain: &str) -> String {
        let states =
            ["NEW", "ESTABLISHED", "RELATED,ESTABLISHED", "INVALID", "UNTRACKED", "DNAT", "SNAT", "NEW,INVALID"];
        // Raw comes before tracking.
        let tracked = table != "raw";
        match self.0.below(9) {
            0..3 if tracked => format!(" -m conntrack{} --ctstate {}", self.not(), self.pick(&states)),
            3 => format!(" -m mark{} --mark {}", self.not(), self.pick(&["0x1", "0x2", "0x1/0x3"])),
            4 if tracked => format!(" -m connmark --mark {}", self.pick(&["0x0", "0x1", "0x2/0x2"])),
            5 => format!(" -m limit --limit 1/hour --limit-burst {}", self.0.below(4) + 1),
            6 => format!(" -m statistic --mode nth --every {} --packet 0", self.0.below(3) + 1),
            7 => format!(" -m length --length {}", self.pick(&["0:40", "28:50", "41:1500"])),
            8 => match chain {
                "PREROUTING" | "POSTROUTING" => format!(" -m ttl --ttl-{}", self.pick(&["eq 64", "lt 60", "gt 2"])),
                _ => " -m ttl --ttl-eq 63".to_owned(),
            },
            _ => String::new(),
        }
    }

    fn target(&mut self, table: &str, chain: &str, users: &[&str]) -> String {
        if !users.is_empty() && self.0.chance(0.3) {
            return format!(" -{} {}", self.pick(&["j", "j", "g"]), self.pick(users));
        }
        match (table, chain) {
            ("raw", _) => (*self.pick(&[" -j NOTRACK", " -j DROP", " -j ACCEPT", ""])).to_owned(),
            ("mangle", "one" | "two" | "three" | "FORWARD" | "INPUT" | "PREROUTING" | "POSTROUTING") => {
                let targets = [
                    " -j MARK --set-mark 0x1",
                    " -j MARK --set-xmark 0x2/0x2",
                    " -j CONNMARK --save-mark",
                    " -j CONNMARK --restore-mark",
                    " -j CONNMARK --set-mark 0x1",
                    " -j ACCEPT",
                    " -j RETURN",
                    "",
                ];
                (*self.pick(&targets)).to_owned()
            }
            ("nat", "PREROUTING") => {
                let targets = [
                    " -j DNAT --to-destination 10.201.0.2",
                    " -j DNAT --to-destination 10.202.0.9:5353",
                    " -j DNAT --to-destination :5000",
                    " -j REDIRECT --to-ports 5353",
                    " -j REDIRECT",
                    " -j ACCEPT",
                ];
                (*self.pick(&targets)).to_owned()
            }
            ("nat", _) => {
                let targets = [
                    " -j MASQUERADE",
                    " -j MASQUERADE",
                    " -j MASQUERADE --to-ports 5000-5999",
                    " -j SNAT --to-source 10.200.0.1",
                    " -j SNAT --to-source 10.200.0.77:5000-5999",
                    " -j ACCEPT",
                ];
                (*self.pick(&targets)).to_owned()
            }
            _ => {
                let targets = [
                    " -j ACCEPT",
                    " -j ACCEPT",
                    " -j ACCEPT",
                    " -j DROP",
                    " -j RETURN",
                    " -j REJECT",
                    " -j REJECT --reject-with icmp-admin-prohibited",
                    " -j REJECT --reject-with tcp-reset",
                    "",
                ];
                (*self.pick(&targets)).to_owned()
            }
        }
    }

    fn not(&mut self) -> &'static str {
        if self.0.chance(0.15) { " !" } else { "" }
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.0.below(from.len() as u64) as usize]
    }
}
