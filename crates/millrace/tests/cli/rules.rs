//! `millrace rules` as a user types it.

use std::fs;

use millrace::functions::rules::router::{Paths, Route, Router};
use testkit::netns::{Namespace, missing};

use super::folder::{ENGINES, Folder};

const RULES: &str = "*filter
:INPUT DROP [0:0]
:ssh - [0:0]
-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A INPUT -p tcp --dport ssh -m set --match-set admins src -j ssh
-A ssh -j ACCEPT
COMMIT
";

#[test]
fn a_rule_set_is_summed_up() {
    let folder = Folder::empty();
    fs::write(folder.path("rules.v4"), RULES).unwrap();
    fs::write(folder.path("sets"), "create admins hash:net\nadd admins 10.0.0.0/8\n").unwrap();
    let expected = "rules.v4: the rule set can be read
  IPv4, 3 rules
  table filter    4 chains, 3 rules
  1 set with 1 entry
  uses: conntrack (1), set (1), tcp (1)
  engines: all
";
    assert_eq!(folder.stdout("rules check rules.v4 --sets sets"), expected);
    let json = folder.json("rules check rules.v4 --json");
    assert_eq!((&json["valid"], &json["family"], &json["rules"]), (&true.into(), &4.into(), &3.into()));
    assert_eq!(json["tables"][0]["chains"][0]["policy"], "DROP");
    let printed = folder.stdout("rules check rules.v4 --print");
    assert!(printed.contains("-A INPUT -p tcp -m tcp --dport 22 -m set --match-set admins src -j ssh\n"), "{printed}");
    folder.millrace("rules check -").write_stdin(RULES).assert().success();
}

#[test]
fn refused_lines_are_named_with_their_reasons() {
    let folder = Folder::empty();
    let text = RULES.replace("-A ssh -j ACCEPT", "-A ssh -m owner --uid-owner 0 -j ACCEPT\n-A ssh --dport 1 -j DROP");
    fs::write(folder.path("rules.v4"), &text).unwrap();
    let (code, error) = folder.fails("rules check rules.v4");
    let expected =
        "rules.v4:6:11: the match owner is not supported: it tests sockets of the host, and a router has none
rules.v4:7:8: `--dport` needs a protocol or a match that has it; write `-p tcp` before it
error: rules.v4: 2 errors; --skip-unsupported leaves out what only Millrace refuses
";
    assert_eq!((code, error.as_str()), (1, expected));
    fs::write(folder.path("rules.v4"), text.replace("--dport 1 ", "")).unwrap();
    let (code, out, error) = folder.run("rules check rules.v4 --skip-unsupported");
    assert_eq!(code, 0, "{error}");
    assert!(error.starts_with("rules.v4:6:11: the match owner"), "{error}");
    assert!(String::from_utf8(out).unwrap().contains("3 rules; 1 line left out"));
    let (code, out, _) = folder.run("rules check rules.v4 --json");
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((code, &json["errors"][0]["feature"]), (1, &"owner".into()));
    fs::write(folder.path("sets"), "create other hash:ip\n").unwrap();
    let (code, error) = folder.fails("rules check rules.v4 --skip-unsupported --sets sets");
    assert!(code == 1 && error.starts_with("rules.v4:5:32: there is no set `admins`"), "{code} {error}");
    fs::write(folder.path("sets"), "create admins hash:net\nadd admins nowhere\n").unwrap();
    let (code, error) = folder.fails("rules check rules.v4 --skip-unsupported --sets sets");
    assert!(code == 1 && error.ends_with("error: sets: 1 error\n"), "{code} {error}");
}

#[test]
fn the_family_is_chosen_or_guessed() {
    let folder = Folder::empty();
    fs::write(folder.path("script"), "ip6tables -A INPUT -s fe80::/10 -j DROP\n").unwrap();
    assert!(folder.stdout("rules check script").contains("IPv6, 1 rule"));
    fs::write(folder.path("plain"), "*filter\nCOMMIT\n").unwrap();
    assert!(folder.stdout("rules check plain").contains("IPv4, 0 rules"));
    assert!(folder.stdout("rules check plain --family 6").contains("IPv6"));
    assert_eq!(folder.fails("rules check plain --family 5").0, 2);
    // Lines of both families in one file are read as a run reads them.
    let script = "iptables -A FORWARD -s 10.0.0.1 -j DROP\nip6tables -A FORWARD -s fe80::1 -j DROP\n";
    fs::write(folder.path("both"), script).unwrap();
    let (code, out, error) = folder.run("rules check both");
    assert!(code == 0 && String::from_utf8(out).unwrap().contains("IPv4, 1 rule; 1 line left out"), "{error}");
    assert!(error.starts_with("both:2:1: the line is for IPv6, and these rules are for IPv4\n"), "{error}");
    assert!(error.ends_with("--family 6 checks the lines of the other family; a run takes them by --rules-v6 both\n"));
    let check = folder.stdout("check rules --rules both");
    assert!(check.contains("left out: both:2:1: the line is for IPv6"), "{check}");
    let check = folder.stdout("check rules --rules both --rules-v6 both");
    assert!(!check.contains("left out"), "{check}");
    let (code, error) = folder.fails("rules check six --family 4");
    assert_eq!(code, 3, "{error}");
    fs::write(folder.path("six"), "*filter\n-A FORWARD -s fe80::1 -j DROP\nCOMMIT\n").unwrap();
    let (code, error) = folder.fails("rules check six --family 4");
    assert!(code == 1 && error.contains("these rules are for IPv4; give --family 6\n"), "{error}");
    let (code, error) = folder.fails("rules check nothing");
    assert!(code == 3 && error.contains("can't be read"), "{code} {error}");
}

#[test]
#[allow(clippy::print_stderr)]
fn a_machine_is_printed_as_a_router() {
    let (code, error) = {
        let output = Folder::empty().command("rules router").env("PATH", "/nowhere").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!((code, error.as_str()), (Some(3), "error: `ip` is not installed; it is a part of iproute2\n"));
    if let Some(what) = missing(&["ip"]) {
        eprintln!("SKIPPED (needs root / ip: no {what})");
        return;
    }
    let namespace = Namespace::new("router").unwrap();
    let lines = [
        "link add wan0 type veth peer name lan0",
        "addr add 192.0.2.1/24 dev wan0",
        "addr add 2001:db8::1/64 dev lan0 nodad",
        "link set wan0 address 02:00:00:00:01:01 mtu 1400",
        "link set wan0 up",
        "link set lan0 up",
        "route add default via 192.0.2.254",
        "neigh add 192.0.2.254 dev wan0 lladdr 02:00:00:00:09:09",
        "-6 route add prohibit 2001:db8:7::/48",
    ];
    for line in lines {
        namespace.ip(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
    }
    let text = namespace.run(env!("CARGO_BIN_EXE_millrace"), &["rules", "router"]).unwrap();
    let router: Router = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}{text}"));
    let paths = Paths::new(&router).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let wan = paths.number_of("wan0").expect("the interface is there");
    assert_eq!(paths.route(false, 0x0808_0808), Route::Interface(wan), "{text}");
    assert_eq!((paths.first_address(wan, false), paths.mtu(wan)), (Some(0xc000_0201), 1_400), "{text}");
    assert_eq!(paths.route(true, 0x2001_0db8_0007 << 80), Route::Prohibit, "{text}");
    assert_eq!(router.neighbours.len(), 1, "{text}");
}

const OFFICE: &str = include_str!("../../../../testdata/iptables/office.v4");

const ROUTER: &str = r#"
[[interface]]
name = "lan"
port = 0
addresses = ["192.168.10.1/24"]

[[interface]]
name = "wan"
port = 1
addresses = ["203.0.113.1/24"]

[[route]]
to = "default"
via = "203.0.113.254"
interface = "wan"
"#;

/// A folder with the demo's capture, rules of an office and a router.
fn office() -> Folder {
    let folder = Folder::new();
    fs::write(folder.path("office.v4"), OFFICE).unwrap();
    fs::write(folder.path("router.toml"), ROUTER).unwrap();
    folder
}

#[test]
fn rules_run_under_every_engine_that_takes_them() {
    let folder = office();
    let line = "run rules --rules office.v4 --in demo.pcap.zst --json";
    let expected = folder.json(line);
    assert!(expected["packets"]["forwarded"].as_u64() > Some(20_000), "{expected}");
    for engine in ENGINES {
        let run = folder.json(&format!("{line} {engine}"));
        // `shared` takes packets in the order of its steps.
        let keys = if engine.contains("shared") { &[] } else { &["packets", "report"][..] };
        for key in keys {
            assert_eq!(run[*key], expected[*key], "{engine}: {key}");
        }
    }
    // With NAT, connections are in tables that packet sets share.
    fs::write(folder.path("nat.v4"), "*nat\n-A POSTROUTING -o wan -j MASQUERADE\nCOMMIT\n").unwrap();
    let line = "run rules --rules nat.v4 --router router.toml --in demo.pcap.zst --out out.pcap";
    let (code, error) = folder.fails(&format!("{line} --engine rss --cores 2"));
    assert!(
        code == 2 && error.contains("its packet sets share connections with rewritten addresses"),
        "{code} {error}"
    );
    let mut outputs = Vec::new();
    for engine in ["--engine sequential", "--engine scr --cores 3"] {
        folder.stdout(&format!("{line} {engine}"));
        outputs.push(folder.bytes("out.pcap"));
    }
    assert!(outputs[0] == outputs[1], "both write the same bytes");
    let sessions = folder.stdout("flows out.pcap --top 5");
    assert!(sessions.contains("203.0.113.1:") && !sessions.contains("192.168.10.14:"), "{sessions}");
}

#[test]
fn a_check_says_which_engines_run_the_rules() {
    let folder = office();
    let nat = "*nat\n-A POSTROUTING -o wan -j MASQUERADE\nCOMMIT\n*filter\n-A FORWARD -m limit --limit 5/sec -j LOG\nCOMMIT\n";
    fs::write(folder.path("nat.v4"), nat).unwrap();
    assert!(folder.stdout("rules check office.v4").ends_with("  engines: all\n"));
    let expected = "  engines: sequential, shared, transactional, scr; packet sets share state, because of
    line 2: connections with rewritten addresses: -o wan -j MASQUERADE
    line 5: the bucket of `limit`: -m limit --limit 5/sec -j LOG
";
    assert!(folder.stdout("rules check nat.v4").contains(expected), "without a router too");
    fs::write(folder.path("set.v4"), "*filter\n-A FORWARD -m set --match-set s src -j DROP\nCOMMIT\n").unwrap();
    let unknown = folder.stdout("rules check set.v4");
    assert!(
        unknown.ends_with("  engines: give --sets, the sets that the rules name, to see which run it\n"),
        "{unknown}"
    );
    let known = folder.stdout("rules check nat.v4 --router router.toml");
    assert!(known.ends_with(expected), "{known}");
    assert_eq!(folder.json("rules check nat.v4 --router router.toml --json")["shared"].as_array().unwrap().len(), 2);
    fs::write(folder.path("tee.v4"), "*mangle\n-A FORWARD -j TEE --gateway 10.0.0.1\nCOMMIT\n").unwrap();
    let (code, error) = folder.fails("rules check tee.v4 --router router.toml");
    let expected = "error: the rules can be read, but not run\ntee.v4:2:15: TEE: a packet leaves at most once here\n";
    assert_eq!((code, error.as_str()), (1, expected));
    assert!(folder.stdout("rules check tee.v4 --skip-unsupported").ends_with("  engines: all\n"));
}

#[test]
fn errors_of_rules_name_their_file() {
    let folder = office();
    let files = [
        ("bad.v4", "*filter\n-A FORWARD -p tcp --dprt 1 -j DROP\n-A FORWARD -j NONE\nCOMMIT\n"),
        ("eth.v4", "*filter\n-A FORWARD -i eth0 -j DROP\nCOMMIT\n"),
        ("nat.v4", "*nat\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n"),
        ("set.v4", "*filter\n-A FORWARD -m set --match-set admins src -j DROP\nCOMMIT\n"),
        ("add.v4", "*filter\n-A FORWARD -j SET --add-set nets src\nCOMMIT\n"),
        ("tee.v4", "*mangle\n-A FORWARD -j TEE --gateway 10.0.0.1\nCOMMIT\n"),
        ("bad.v6", "*filter\n-A FORWARD -s 10.0.0.1 -j DROP\nCOMMIT\n"),
        ("six", "*filter\n-A FORWARD -s 2001:db8::1 -j DROP\nCOMMIT\n"),
        ("sets", "create nets hash:net\nadd nets 10.0.0.0/33\n"),
        ("other", "create nets hash:net\n"),
        ("wann.toml", &ROUTER.replace("interface = \"wan\"", "interface = \"wann\"")),
        ("bits.toml", &ROUTER.replace("default", "10.0.0.1/8")),
        ("prot.toml", &ROUTER.replace("port = 1", "prot = 1")),
    ];
    for (name, text) in files {
        fs::write(folder.path(name), text).unwrap();
    }
    let cases = [
        (
            "--rules bad.v4",
            "bad.v4:2:19: there is no option `--dprt`\nbad.v4:3:15: `NONE` is neither a target nor a chain of the table",
        ),
        ("--rules eth.v4", "eth.v4:2:12: the interface `eth0` isn't known: give the router's interfaces with --router"),
        ("--rules nat.v4", "nat.v4:2:19: MASQUERADE needs the router's addresses: give them with --router"),
        (
            "--rules six",
            "six:2:15: `2001:db8::1` is no IPv4 address, and these rules are for IPv4; give rules of IPv6 with --rules-v6",
        ),
        ("--rules tee.v4", "tee.v4:2:15: TEE: a packet leaves at most once here"),
        ("--rules set.v4", "set.v4:2:15: set: there is no set `admins`; give the sets with --sets"),
        ("--rules set.v4 --sets other", "set.v4:2:15: there is no set `admins`; create it in the file of sets"),
        ("--rules set.v4 --sets sets", "sets:2:19: `33` is not a mask"),
        ("--rules add.v4 --sets other", "add.v4: the set `nets`: packets can't change a set of the type hash:net here"),
        ("--rules office.v4 --rules-v6 bad.v6", "bad.v6:2:15: `10.0.0.1` is no IPv6 address"),
        ("--rules nat.v4 --router wann.toml", "wann.toml: route 1 (to default): there is no interface `wann`"),
        ("--rules nat.v4 --router bits.toml", "bits.toml: `10.0.0.1/8` has bits behind its prefix; write `10.0.0.0/8`"),
        ("--rules nat.v4 --router prot.toml", "prot.toml: `prot` is not a key here; did you mean `port`?"),
    ];
    for (files, expected) in cases {
        for line in [format!("run rules --in demo.pcap.zst {files}"), format!("check rules {files}")] {
            let (code, error) = folder.fails(&line);
            assert!(code == 2 && error.starts_with(&format!("error: {expected}")), "{line}: {code} {error}");
        }
    }
    let (_, error) = folder.fails("rules explain bad.v4 --in demo.pcap.zst");
    assert!(error.starts_with("error: bad.v4:2:19"), "{error}");
    let (_, error) = folder.fails("rules diff office.v4 bad.v4 --in demo.pcap.zst");
    assert!(error.starts_with("error: bad.v4:2:19"), "{error}");
    assert_eq!(folder.fails("run rules --rules none.v4 --in demo.pcap.zst").0, 3);
    // What is left out is named.
    let text = OFFICE.replace("-p tcp -j", "-p tcp -m owner --uid-owner 0 -j");
    fs::write(folder.path("owner.v4"), text).unwrap();
    let run = folder.stdout("run rules --rules owner.v4 --skip-unsupported --in demo.pcap.zst");
    assert!(run.contains("left out: owner.v4:7:"), "{run}");
    let check = folder.stdout("check rules --rules owner.v4 --skip-unsupported");
    assert!(check.contains("left out: owner.v4:7:"), "{check}");
    let (_, _, error) = folder.run("rules explain owner.v4 --skip-unsupported --in demo.pcap.zst");
    assert!(error.starts_with("left out: owner.v4:7:"), "{error}");
}

#[test]
fn what_needs_the_routers_configuration_is_told() {
    let folder = office();
    let text = "*filter\n-A FORWARD -i eth0 -j ACCEPT\n-A FORWARD -m addrtype --dst-type LOCAL -j DROP\nCOMMIT\n";
    fs::write(folder.path("i.v4"), text).unwrap();
    let told = folder.stdout("rules check i.v4");
    let (_, needs) = told.split_once("to run the rules, give --router").unwrap_or_else(|| panic!("{told}"));
    assert!(needs.contains("i.v4:2:") && needs.contains("i.v4:3:"), "{needs}");
    let json = folder.json("rules check i.v4 --json");
    assert_eq!(json["needs_router"].as_array().map(Vec::len), Some(2), "{json}");
    // Two options that name standard input get the same text, and none gets an empty one.
    let text = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n";
    let diff = folder.millrace("rules diff - - --in demo.pcap.zst").write_stdin(text).output().unwrap();
    assert!(diff.status.success(), "{diff:?}");
    fs::write(folder.path("empty.efsm"), "").unwrap();
    let (code, error) = folder.fails("efsm run empty.efsm --in demo.pcap.zst");
    assert!(code == 2 && error.contains("empty.efsm: there is no stage"), "{error}");
}

#[test]
fn a_packet_is_explained_rule_by_rule() {
    let folder = office();
    // A SYN of the scan.
    let line = "rules explain office.v4 --in demo.pcap.zst --packet 13765";
    let expected = "packet 13,765: 203.0.113.66:50235 > 192.168.10.80:80 tcp S
tracker: NEW
forwarded, ttl 57
filter FORWARD
     1  -m conntrack --ctstate INVALID -j DROP
        no: `-m conntrack --ctstate INVALID` doesn't hold
     2  -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        no: `-m conntrack --ctstate RELATED,ESTABLISHED` doesn't hold
     3  -s 192.168.10.0/24 -j ACCEPT
        no: source is 203.0.113.66
     4  -p icmp -m icmp --icmp-type 8 -j ACCEPT
        no: protocol is tcp
     5  -p tcp -j REJECT --reject-with tcp-reset
        matches: REJECT
the router answers; the answer goes through the chains of the router's own packets:
filter OUTPUT
        the end: policy ACCEPT
verdict: dropped, and answered by a reset
";
    assert_eq!(folder.stdout(line), expected);
    let json = folder.json(&format!("{line} --json"));
    assert_eq!(json["steps"][0], serde_json::json!({ "step": "tracker", "state": "NEW", "reply": false }));
    assert_eq!(json["steps"][5]["why_not"], "no: source is 203.0.113.66");
    assert_eq!(json["verdict"], "dropped, and answered by a reset");
    for number in [0, 35_170] {
        let (code, error) = folder.fails(&format!("rules explain office.v4 --in demo.pcap.zst --packet {number}"));
        assert!(code == 2 && error.contains("demo.pcap.zst has 35,169 packets"), "{code} {error}");
    }
    let (code, error) = folder.fails("rules explain office.v4 --in demo.pcap.zst --packets 3 --packet 5");
    assert!(code == 2 && error.contains("--packet 5: only the first 3 packets are taken; raise --packets"), "{error}");
    let listing = folder.stdout("rules explain office.v4 --in demo.pcap.zst");
    assert!(
        listing.starts_with("Table filter (IPv4)\n\nChain INPUT (policy ACCEPT 0 packets, 0 bytes)\n"),
        "{listing}"
    );
    // The columns are those of iptables 1.8.9.
    let listed = "*filter\n-A FORWARD -s 10.99.0.0/16 ! -d 192.0.2.1/32 -p tcp -m tcp --dport 22 -j ACCEPT\n\
                  -A FORWARD ! -p tcp -s 10.99.0.0/16 -j REJECT --reject-with icmp-port-unreachable\nCOMMIT\n";
    fs::write(folder.path("listed.v4"), listed).unwrap();
    let listing = folder.stdout("rules explain listed.v4 --in demo.pcap.zst");
    for row in [
        "    pkts      bytes target     prot opt in     out     source               destination         \n",
        "       0        0 ACCEPT     6    --  *      *       10.99.0.0/16        !192.0.2.1            -m tcp --dport 22\n",
        "       0        0 REJECT    !6    --  *      *       10.99.0.0/16         0.0.0.0/0            --reject-with icmp-port-unreachable\n",
    ] {
        assert!(listing.contains(row), "{listing}");
    }
    let run = folder.json("run rules --rules office.v4 --in demo.pcap.zst --json");
    let counters = folder.json("rules explain office.v4 --in demo.pcap.zst --json");
    let rule = &counters["rules"][0]["tables"][0]["chains"][1]["rules"][4];
    assert_eq!((&rule["line"], &rule["packets"]), (&7.into(), &run["report"]["rows"][5][2]), "{rule}");

    // Of two checks of one match and another match, the one that fails is named; long runs of other rules are cut short.
    let others = "-A FORWARD -s 8.8.8.8 -j DROP\n".repeat(30);
    let last =
        "-A FORWARD -m iprange --src-range 1.0.0.0-255.0.0.0 --dst-range 1.0.0.0-255.0.0.0 -m ttl --ttl-lt 2 -j DROP\n";
    fs::write(folder.path("long.v4"), format!("*filter\n{others}{last}COMMIT\n")).unwrap();
    let told = folder.stdout("rules explain long.v4 --in demo.pcap.zst --packet 13765");
    assert!(told.contains("    20  -s 8.8.8.8/32 -j DROP\n") && !told.contains("    21  "), "{told}");
    assert!(told.contains("        11 more rules do not match; --json lists all\n"), "{told}");
    let json = folder.json("rules explain long.v4 --in demo.pcap.zst --packet 13765 --json");
    assert!(json.to_string().contains("no: `-m ttl --ttl-lt 2` doesn't hold"), "{json}");
}

#[test]
fn rules_of_ip6tables_are_explained_too() {
    let folder = office();
    fs::write(folder.path("rules.v6"), "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p tcp -j ACCEPT\nCOMMIT\n").unwrap();
    assert!(folder.stdout("rules explain rules.v6 --in demo.pcap.zst").starts_with("Table filter (IPv6)"));
    let both = folder.stdout("rules explain office.v4 --rules-v6 rules.v6 --in demo.pcap.zst");
    assert!(both.contains("Table filter (IPv4)") && both.contains("Table filter (IPv6)"), "{both}");
    let (code, error) = folder.fails("rules explain rules.v6 --rules-v6 rules.v6 --in demo.pcap.zst");
    assert!(code == 2 && error.contains("omit one of them"), "{code} {error}");
}

#[test]
fn two_rule_sets_are_compared() {
    let folder = office();
    assert_eq!(
        folder.stdout("rules diff office.v4 office.v4 --in demo.pcap.zst"),
        "none of 35,169 packets would be treated differently\n"
    );
    let text = OFFICE.replace("-A FORWARD -p tcp -j REJECT --reject-with tcp-reset", "-A FORWARD -p tcp -j DROP");
    fs::write(folder.path("new.v4"), text).unwrap();
    let (code, out, error) = folder.run("rules diff office.v4 new.v4 --in demo.pcap.zst --most 1");
    assert_eq!((code, error.as_str()), (1, ""));
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("of 35,169 packets would be treated differently\n"), "{out}");
    assert!(out.contains("  rejected by a reset -> dropped\n\n  203.0.113.66:50235 > 192.168.10.80:"), "{out}");
    assert!(out.ends_with(" more; --most shows more\n"), "{out}");
    let (code, out, _) = folder.run("rules diff office.v4 new.v4 --in demo.pcap.zst --json");
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((code, &json["kinds"][0]["new"], &json["packets"]), (1, &"dropped".into(), &35_169.into()));
    assert_eq!(json["kinds"][0]["packets"], json["changed"]);
    // What packets are changed to counts.
    for (name, tos) in [("a.v4", "0x10"), ("b.v4", "0x08")] {
        let text = format!("*mangle\n-A FORWARD -p tcp -j TOS --set-tos {tos}\nCOMMIT\n");
        fs::write(folder.path(name), text).unwrap();
    }
    let (code, out, _) = folder.run("rules diff a.v4 b.v4 --in demo.pcap.zst");
    let out = String::from_utf8(out).unwrap();
    assert!(code == 1 && out.contains("forwarded, type of service 0x10 -> forwarded, type of service 0x08"), "{out}");
}

#[test]
fn chains_that_are_nested_or_jumped_to_too_often_are_told() {
    let folder = Folder::new();
    // A chain in a chain, each jumped to twice: 2 ^ 20 ways.
    let chains = |number: usize, jumps: usize| {
        let declared: String = (0..number).map(|nth| format!(":c{nth} - [0:0]\n")).collect();
        let inner: String = (1..number).flat_map(|nth| vec![format!("-A c{} -j c{nth}\n", nth - 1); jumps]).collect();
        format!("*filter\n:FORWARD ACCEPT [0:0]\n{declared}-A FORWARD -j c0\n{inner}COMMIT\n")
    };
    fs::write(folder.path("wide.v4"), chains(21, 2)).unwrap();
    // 1 rule of FORWARD, and 2 + 4 + ... + 2 ^ 20.
    let told = folder.stdout("rules check wide.v4");
    assert!(told.contains("a packet may be tested against 2,097,151 rules, as chains are jumped to again"), "{told}");
    assert_eq!(folder.json("rules check wide.v4 --json")["rules_tested_max"], 2_097_151);
    fs::write(folder.path("narrow.v4"), chains(63, 1)).unwrap();
    let told = folder.stdout("rules check narrow.v4");
    assert!(!told.contains("may be tested"), "{told}");
    fs::write(folder.path("huge.v4"), chains(63, 8)).unwrap();
    assert!(folder.stdout("rules check huge.v4").contains("against more rules than 64 bits count"));
    // The chain that is too deep is named in its own line.
    fs::write(folder.path("deep.v4"), chains(70, 1)).unwrap();
    let (code, error) = folder.fails("rules check deep.v4");
    let expected =
        "deep.v4:66:2: c63 would be the chain number 65 on the way from FORWARD, one inside the other: the limit is 64";
    assert!(code == 1 && error.contains(expected), "{error}");
}
