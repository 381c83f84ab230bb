//! Properties of any text: no panic, positions in the text, and what is printed reads back equal.

use std::fs;

use millrace_iptables::{Family, Options, RuleSet, Sets, Table, TableKind, parse};
use proptest::prelude::*;

use crate::shared::folder;

/// Rules with all kinds of words in them, to be put together and broken.
const PARTS: &[&str] = &[
    "*filter\n",
    "*nat\n",
    "*mangle\n",
    "*raw\n",
    "COMMIT\n",
    "\n",
    ":A - [0:0]\n",
    ":INPUT DROP [1:2]\n",
    "-A INPUT",
    "-A A",
    "-I FORWARD 1",
    "-D INPUT 1",
    "-N B\n",
    "-X\n",
    "-E A C\n",
    "-P INPUT DROP\n",
    "-F\n",
    "[3:4] -A A",
    " !",
    " -s 10.0.0.0/8,1.2.3.4",
    " -d 1.2.3.4/255.0.255.0",
    " -s ::1/64",
    " -i eth+",
    " -o br0",
    " -p tcp",
    " -p udp",
    " -p icmp",
    " -p 58",
    " -p all",
    " --dport 1:2",
    " --sport ssh",
    " --syn",
    " --tcp-flags ALL NONE",
    " -f",
    " -m multiport --ports 1,3:4",
    " -m conntrack --ctstate NEW,DNAT",
    " -m state --state ESTABLISHED",
    " -m limit --limit 7/hour",
    " --limit-burst 3",
    " -m comment --comment \"a \\\" b\"",
    " -m recent --update --seconds 5 --hitcount 3 --name x --rdest",
    " -m hashlimit --hashlimit-above 3/min --hashlimit-name h --hashlimit-mode srcip,dstport",
    " -m hashlimit --hashlimit-upto 1kb/s --hashlimit-burst 3mb --hashlimit-name h",
    " -m statistic --mode random --probability 0.33",
    " -m statistic --mode nth --every 3 --packet 2",
    " -m string --algo kmp --hex-string |00ff|a --to 9 --icase",
    " -m string --algo bm --string 'x\\",
    " -m time --timestart 1:2 --timestop 3:04:05 --weekdays Mo,7 --monthdays 31 --datestart 2024-02-29T1",
    " -m u32 --u32 0>>22&0x3C@0=1:2,3",
    " -m mark --mark 1/0x3",
    " -m connmark --mark 7",
    " -m connbytes --connbytes 1:2 --connbytes-mode avgpkt --connbytes-dir both",
    " -m connlimit --connlimit-upto 3 --connlimit-mask 24",
    " -m iprange --src-range 1.2.3.4-1.2.3.9",
    " -m mac --mac-source 1:2:3:a:b:c",
    " -m addrtype --dst-type LOCAL,BROADCAST",
    " -m set --match-set x src,dst",
    " -m tos --tos 3/7",
    " -m dscp --dscp-class EF",
    " -m length --length 4:",
    " -m ttl --ttl-gt 3",
    " -m hl --hl-eq 3",
    " -m rt --rt-type 0 --rt-0-addrs ::1,::2",
    " -m frag --fragid 3 --fraglast",
    " -m dst --dst-opts 1:2,3",
    " -m mh",
    " -m ipv6header --header frag,esp --soft",
    " -m physdev --physdev-in eth0",
    " -m rpfilter --invert",
    " -m pkttype --pkt-type mcast",
    " -m owner --uid-owner 0",
    " -m quota --quota 9",
    " -m tcpmss --mss :9",
    " -m ecn --ecn-ip-ect 1",
    " -m helper --helper ftp",
    " -j ACCEPT",
    " -j DROP",
    " -g A",
    " -j A",
    " -j REJECT",
    " --reject-with tcp-reset",
    " -j LOG --log-prefix \"a b\" --log-level 7",
    " -j NFLOG --nflog-group 3 --nflog-prefix x",
    " -j DNAT --to 1.2.3.4-1.2.3.5:6-7/8",
    " -j SNAT --to-source 1.2.3.4 --persistent",
    " -j MASQUERADE --random",
    " -j REDIRECT --to-ports 3",
    " -j NETMAP --to 1.2.3.0/24",
    " -j MARK --and-mark 7",
    " -j CONNMARK --save-mark --mask 3",
    " -j CT --zone 3",
    " -j NOTRACK",
    " -j TCPMSS --clamp-mss-to-pmtu",
    " -j TTL --ttl-set 3",
    " -j TOS --xor-tos 3",
    " -j DSCP --set-dscp 3",
    " -j CLASSIFY --set-class 1:f",
    " -j SET --add-set x src --exist --timeout 3",
    " -j TEE --gateway 1.2.3.4",
    " -j TCPOPTSTRIP --strip-options mss,9",
    " -4",
    " -w 5",
    " -c 5 6",
    "iptables -t nat -A OUTPUT",
    "ip6tables -A INPUT",
    "sudo iptables -A FORWARD",
    " && ",
    ";",
    "\\\n",
    "$x",
    "# c\n",
    "\r\n",
    "\u{e9}",
    "\0",
];

/// Reads a text in every way. Returns true if it holds rules.
fn holds(text: &str) -> bool {
    let mut is_taken = false;
    for family in [Family::V4, Family::V6] {
        for skip_unsupported in [false, true] {
            let options = Options { family: Some(family), skip_unsupported, ..Options::default() };
            match parse(text, &options) {
                Ok(parsed) => {
                    let printed = parsed.rules.with_counters().to_string();
                    let again = parse(&printed, &options).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
                    assert_eq!(again.rules, parsed.rules, "{printed}");
                    is_taken |= parsed.rules.rule_count() > 0;
                }
                Err(errors) => {
                    let lines = text.matches('\n').count() as u32 + 2;
                    for error in &errors.errors {
                        assert!((1..=lines).contains(&error.at.line) && error.at.column > 0, "{error:?}");
                        assert_eq!(error.to_string().lines().count(), 1 + error.word.matches('\n').count(), "{error}");
                    }
                }
            }
        }
    }
    is_taken
}

/// Random numbers without a library: a run can be repeated.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn rules_of_random_parts_are_read_back() {
    let (mut state, mut taken) = (7, 0);
    for _ in 0..4_000 {
        let mut text = String::new();
        for _ in 0..next(&mut state) % 3 + 1 {
            text.push_str(
                ["*filter\n:A -\n", "*nat\n:A -\n", "*mangle\n:A -\n", "*raw\n:A -\n", ""][next(&mut state) % 5],
            );
            text.push_str(["-A FORWARD", "-A A", "-A PREROUTING", "iptables -A INPUT"][next(&mut state) % 4]);
            for _ in 0..next(&mut state) % 4 {
                text.push_str(PARTS[next(&mut state) % PARTS.len()]);
            }
            text.push_str(if text.starts_with('*') { "\nCOMMIT\n" } else { "\n" });
        }
        taken += usize::from(holds(&text));
    }
    assert!(taken > 200, "{taken} texts held rules");
}

/// Each part alone, so that each kind of match and target is printed and read back.
#[test]
fn each_part_is_read_back() {
    let mut taken = 0;
    for part in PARTS {
        for before in ["", " -p tcp", " -p tcp --syn", " -p udp", " -p icmp"] {
            for (table, chain) in [
                ("filter", "FORWARD"),
                ("nat", "PREROUTING"),
                ("nat", "POSTROUTING"),
                ("mangle", "FORWARD"),
                ("raw", "PREROUTING"),
            ] {
                taken += usize::from(holds(&format!("*{table}\n:A -\n-A {chain}{before}{part}\nCOMMIT\n")));
            }
        }
    }
    assert!(taken > 500, "{taken} texts held rules");
}

#[test]
fn broken_rule_sets_never_panic() {
    let Some(folder) = folder("rulesets") else { return };
    let mut state = 11;
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rules"));
    files.sort_unstable();
    for path in files.iter().step_by(4) {
        let text = fs::read_to_string(path).unwrap();
        let mut lines: Vec<String> = text.lines().take(40).map(str::to_owned).collect();
        for line in &mut lines {
            let chars: Vec<char> = line.chars().collect();
            if chars.is_empty() || !next(&mut state).is_multiple_of(4) {
                continue;
            }
            let at = next(&mut state) % chars.len();
            let part = PARTS[next(&mut state) % PARTS.len()];
            let (before, after): (String, String) = (chars[..at].iter().collect(), chars[at..].iter().collect());
            *line = match next(&mut state) % 3 {
                0 => before,
                1 => before + part + &after,
                _ => before + &after.chars().skip(1).collect::<String>(),
            };
        }
        holds(&lines.join("\n"));
    }
}

#[test]
fn large_texts_are_read_in_bounded_time() {
    let mut text = "*filter\n".to_owned();
    for chain in 0..5_000 {
        text += &format!(":c{chain} - [0:0]\n");
    }
    text += "-A FORWARD -j c0\n";
    for chain in 0..4_999 {
        text += &format!("-A c{chain} -p tcp -m tcp --dport {chain} -j c{}\n", chain + 1);
    }
    for rule in 0..20_000_u32 {
        text += &format!(
            "-A c{} -s 10.{}.{}.0/24 -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -j ACCEPT\n",
            rule % 5_000,
            rule >> 8 & 255,
            rule & 255
        );
    }
    text += "COMMIT\n";
    assert_eq!(parse(&text, &Options::default()).unwrap().rules.rule_count(), 25_000);
    let mut sets = "create a hash:ip maxelem 100000\n".to_owned();
    for entry in 0..50_000_u32 {
        sets += &format!("add a {}\n", std::net::Ipv4Addr::from(entry.wrapping_mul(2_654_435_761)));
    }
    assert_eq!(Sets::parse(&sets, "").unwrap().sets[0].entries.len(), 50_000);
}

/// Sets that are printed read back, and broken ones are refused.
#[test]
fn sets_are_read_back() {
    const SETS: &[&str] = &[
        "create a hash:net",
        "create b hash:ip,port timeout 9 counters comment",
        "create c bitmap:ip range 10.0.0.0/24 netmask 30",
        "create d list:set size 2",
        "create e hash:net,iface forceadd",
        "create f hash:ip family inet6 maxelem 3",
        "add a 10.0.0.0/8",
        "add a 10.1.0.0/16 nomatch",
        "add b 1.2.3.4,udp:domain",
        "add b 1.2.3.4,7-9 timeout 3 comment \"-exist\"",
        "add b 1.2.3.4,icmp:ping packets 3",
        "add c 10.0.0.7",
        "add c 10.0.0.9-10.0.0.30",
        "add d a",
        "add d b before a",
        "add e 0/0,physdev:x+",
        "add f ::1-::3",
        "add f ::1 -exist",
        "del a 10.0.0.0/8",
        "flush b",
        "destroy f",
        "add a 1.2.3.4-1.2.3.9",
    ];
    let (mut state, mut taken) = (3, 0);
    for round in 0..3_000 {
        let mut text: String = SETS[..6].iter().rev().map(|line| format!("{line}\n")).collect();
        for _ in 0..next(&mut state) % 6 {
            let mut line = SETS[next(&mut state) % SETS.len()].to_owned();
            if round % 2 == 0 {
                line.truncate(next(&mut state) % line.len());
            }
            text += &line;
            text.push('\n');
        }
        if let Ok(sets) = Sets::parse(&text, "") {
            let printed = sets.to_string();
            let again = Sets::parse(&printed, "").unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
            assert_eq!(again.to_string(), printed, "{text}");
            taken += 1;
        }
    }
    assert!(taken > 300, "{taken} texts held sets");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "(\\*filter\n)?[-A-Z!a-z0-9 \"\\\\\n:/,.#$'|]{0,80}") {
        holds(&text);
        let _ = Sets::parse(&text, "");
    }
}

/// Rules of a chain and of all chains that it jumps to, jump by jump.
fn walked(table: &Table, chain: &str) -> u64 {
    let chain = table.chain(chain).expect("jumps lead to chains");
    chain
        .rules
        .iter()
        .map(|rule| 1 + rule.target.as_deref().and_then(|target| target.chain()).map_or(0, |to| walked(table, to)))
        .sum()
}

proptest! {
    /// The bound of tested rules is what a walk over all jumps counts. Chains jump to later ones only, so there are no loops.
    #[test]
    fn the_most_rules_of_a_packet_are_counted(
        rules in proptest::collection::vec((0..8_usize, 0..9_usize, any::<bool>()), 0..24),
        nat in 0..3_usize,
    ) {
        let mut text = "*nat\n".to_owned() + &"-A PREROUTING -j ACCEPT\n".repeat(nat) + "COMMIT\n*filter\n";
        (0..8).for_each(|chain| text += &format!(":c{chain} - [0:0]\n"));
        for (from, by, is_goto) in rules {
            let from_name = if from == 0 { "FORWARD".to_owned() } else { format!("c{}", from - 1) };
            let to = if from + by < 8 { format!("c{}", from + by) } else { "ACCEPT".to_owned() };
            let how = if is_goto && to != "ACCEPT" { "-g" } else { "-j" };
            text += &format!("-A {from_name} {how} {to}\n");
        }
        text += "-A INPUT -j c0\n-A OUTPUT -j ACCEPT\nCOMMIT\n";
        let set: RuleSet = parse(&text, &Options::default()).expect("the text is well-formed").rules;
        let filter = set.table(TableKind::Filter).expect("it is there");
        let expected = walked(filter, "FORWARD").max(walked(filter, "INPUT")) + 1 + nat as u64;
        prop_assert_eq!(set.tested_max(), expected);
    }
}
