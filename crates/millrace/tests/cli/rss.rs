//! `millrace rss` as a user types it.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::folder::Folder;

/// Commands whose line of packet sets stands behind `--sets`, for it has blanks in it.
struct Bench(Folder);

impl Bench {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// The exit code, standard output and standard error.
    fn run(&self, line: &str, sets: &str) -> (i32, String, String) {
        let mut command = self.0.command(line);
        if !sets.is_empty() {
            command.args(["--sets", sets]);
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn stdout(&self, line: &str, sets: &str, code: i32) -> String {
        let (got, out, error) = self.run(line, sets);
        assert_eq!((got, error.as_str()), (code, ""), "{line}: {out}");
        out
    }

    fn json(&self, line: &str, sets: &str, code: i32) -> Value {
        let mut value: Value = serde_json::from_str(&self.stdout(line, sets, code)).unwrap();
        // When, and by which command.
        value.as_object_mut().map(|members| members.remove("made_by"));
        value
    }
}

const CARDS: [&str; 6] = ["mlx5", "ice", "i40e", "ixgbe", "ena", "virtio"];
const CLIENTS: &str = "lan: src, wan: dst";
const FLOWS: &str = "lan: src dst sport dport, wan: dst src dport sport";

#[test]
fn check_names_the_fields_in_the_way() {
    let folder = Bench::new();
    let text = folder.stdout("rss check --nic ice", CLIENTS, 0);
    assert!(text.contains("tcp4 udp4 sctp4 tcp6 udp6 sctp6  src     exact"), "{text}");
    assert!(text.contains("splits: src+dst, because of dst"), "{text}");
    assert!(text.contains("linux  no: ") && text.contains("dpdk   yes: "), "{text}");
    assert!(text.contains("not confirmed of ice"), "{text}");
    let text = folder.stdout("rss check --nic ixgbe", CLIENTS, 1);
    assert!(text.contains("splits: src+dst+sport+dport, because of dst+sport+dport"), "{text}");
    assert!(!text.contains("yes"), "{text}");

    for (port, field) in [("lan", "dst"), ("wan", "src")] {
        let text = folder.stdout("rss check --nic ice --driver linux", CLIENTS, 1);
        assert!(text.contains(&format!("other4 frag4 other6 frag6 at {port} are also hashed by {field}")), "{text}");
        assert!(!text.contains("tcp4 packets"), "those fit: {text}");
    }
    let check = folder.json("rss check --nic ixgbe --driver linux --json", CLIENTS, 1);
    let in_the_way = check["drivers"][0]["in_the_way"].as_array().unwrap();
    assert_eq!(in_the_way.len(), 4, "TCP by its ports, the others by an address, at either port: {check:#}");
    assert_eq!(in_the_way[0]["packets"], serde_json::json!(["tcp4"]));
    assert_eq!(in_the_way[0]["fields"], serde_json::json!(["dst", "sport", "dport"]));

    let check = folder.json("rss check --nic virtio --driver linux --json", FLOWS, 0);
    assert_eq!((&check["yes"], &check["drivers"][0]["by"]), (&Value::from(true), &Value::from("fields")));
    let row = |kind: &str| {
        let rows = check["drivers"][0]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["packets"] == kind && row["port"] == "wan").unwrap().clone()
    };
    assert_eq!(row("tcp4")["fit"], "exact");
    assert_eq!(row("sctp6")["fit"], "coarser");
    assert_eq!(row("sctp6")["hashed"], serde_json::json!(["src", "dst"]));
    let check = folder.json("rss check --nic ixgbe --driver linux --types udp4 --json", "wan: dst", 0);
    assert_eq!(check["drivers"][0]["by"], "key");
    assert_eq!(check["drivers"][0]["rows"][0]["in_the_way"], serde_json::json!(["src"]));
}

#[test]
fn every_card_answers_in_full() {
    let folder = Bench::new();
    for card in CARDS {
        let solved = folder.json(&format!("rss solve --nic {card} --queues 4 --in demo.pcap.zst --json"), FLOWS, 0);
        assert_eq!(solved["solved"], true, "{card}");
        let solution = &solved["solution"];
        let bytes = if ["ice", "i40e"].contains(&card) { 52 } else { 40 };
        for (key, port) in solution["keys"].as_array().unwrap().iter().zip(["lan", "wan"]) {
            assert_eq!(key["port"], port);
            assert_eq!(key["key"].as_str().unwrap().split(':').count(), bytes, "{card}");
        }
        let balance = solution["balance"]["ports"].as_array().unwrap();
        for port in balance {
            let queues: Vec<u64> =
                port["queues"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
            assert_eq!(queues.len(), 4);
            assert_eq!(queues.iter().sum::<u64>(), port["packets"].as_u64().unwrap());
            assert!(queues.iter().all(|count| *count > 0), "{card}: {queues:?}");
        }
        assert!(solution["commands"].as_array().unwrap().len() > 1 && solved["facts"].as_array().unwrap().len() > 3);
        let again = folder.json(&format!("rss solve --nic {card} --queues 4 --in demo.pcap.zst --json"), FLOWS, 0);
        assert_eq!(again, solved, "the same seed");
        let other = folder.json(&format!("rss solve --nic {card} --seed 2 --json"), FLOWS, 0);
        assert_ne!(other["solution"]["keys"], solution["keys"], "another seed");
    }
}

/// The packets of both directions, as one port sees them: a flow's two directions are one set, and one queue.
#[test]
fn symmetric_sets_halve_the_number_of_sets() {
    let folder = Bench::new();
    let balance = |sets: &str| {
        let solved = folder.json("rss solve --nic ixgbe --in demo.pcap.zst --json", sets, 0);
        solved["solution"]["balance"]["ports"][0].clone()
    };
    let (one_way, both) = (balance("tap: five-tuple"), balance("tap: five-tuple symmetric"));
    assert_eq!(one_way["packets"], both["packets"]);
    let sets = |balance: &Value| balance["sets"].as_u64().unwrap();
    assert!(sets(&both) < sets(&one_way) && sets(&both) * 2 >= sets(&one_way), "{both:#} {one_way:#}");
    let text = folder.stdout("rss solve --nic ixgbe --in demo.pcap.zst --queues 4", "tap: five-tuple symmetric", 0);
    for words in [
        "ixgbe (Intel 82599",
        "a key",
        "key of tap",
        "verified: 20,000",
        "busiest queue",
        "ethtool -X tap hfunc toeplitz hkey ",
    ] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour into a pipe");
}

/// Clients by their address on both sides: each port counts the packets of its side, and they go to the same queues.
#[test]
fn both_sides_of_clients_meet() {
    let folder = Bench::new();
    let line =
        "rss solve --nic ice --driver dpdk --in demo.pcap.zst --queues 4 --inside 10.0.0.0/8,192.168.0.0/16 --json";
    let solved = folder.json(line, CLIENTS, 0);
    let ports = solved["solution"]["balance"]["ports"].as_array().unwrap();
    let packets = |port: usize| ports[port]["packets"].as_u64().unwrap();
    assert!(packets(0) > 0 && packets(1) > 0);
    let whole = folder.json("rss solve --nic ice --driver dpdk --in demo.pcap.zst --json", CLIENTS, 0);
    let all = whole["solution"]["balance"]["ports"][0]["packets"].as_u64().unwrap();
    assert_eq!(packets(0) + packets(1), all, "each packet is of one side");
    assert_eq!(whole["solution"]["balance"]["packets"], 35_169);
    let text =
        |line: &str| folder.stdout(&format!("rss solve --nic ice --driver dpdk --in demo.pcap.zst {line}"), CLIENTS, 0);
    assert!(text("").contains("each port is shown with all 35,169 packets, as if all came in there"), "{}", text(""));
    let sides = text("--inside 10.0.0.0/8");
    assert!(sides.contains("of 35,169 packets, those from inside are counted at lan, the others at wan"), "{sides}");
    let probes = solved["solution"]["probes"].as_array().unwrap();
    assert!(probes.iter().all(|probe| probe["hash"].as_str().unwrap().len() == 8), "{probes:#?}");
}

#[test]
fn no_key_is_proved_in_words() {
    let folder = Bench::new();
    let text = folder.stdout("rss solve --nic virtio", CLIENTS, 1);
    for words in [
        "virtio (virtio-net with VIRTIO_NET_F_RSS) by linux: there is no key that spreads",
        "does not depend on the last 24 bits of src",
        "of lan's key are zero: lan hashes dst of tcp4 packets, which must be cancelled",
        "by dpdk: there is no key",
    ] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
    let text = folder.stdout("rss solve --nic virtio --driver linux", "wan: dst", 1);
    assert!(text.contains("if only IPv4 touches the state: --types tcp4,udp4,sctp4,other4,frag4"), "{text}");
    // What is said to do does.
    let solved =
        folder.stdout("rss solve --nic virtio --driver linux --types tcp4,udp4,sctp4,other4,frag4", "wan: dst", 0);
    assert!(solved.contains("src+dst (src cancelled)"), "{solved}");
    let refused = folder.json("rss solve --nic virtio --driver linux --json", CLIENTS, 1);
    assert_eq!((&refused["solved"], &refused["refused"][0]["proved"]), (&Value::from(false), &Value::from(true)));
    let proof = &refused["refused"][0]["proof"];
    assert!(!proof["zero_key_bits"][0]["because"].as_array().unwrap().is_empty(), "{proof:#}");
    for instead in refused["refused"][0]["instead"].as_array().unwrap() {
        let line = format!("rss solve --nic virtio --driver linux {}", instead["arguments"].as_str().unwrap());
        assert_eq!(folder.run(&line, CLIENTS).0, 0, "{line}");
    }
}

#[test]
fn sets_come_from_a_file_with_errors_that_point() {
    let folder = Bench::new();
    let file = "# clients\n[port.lan]\nfields = [\"src\"]\n[port.wan]\nfields = [\"dst\"]\n";
    fs::write(folder.path("sets.toml"), file).unwrap();
    let by_file = folder.json("rss solve sets.toml --nic ice --json", "", 0);
    assert_eq!(by_file, folder.json("rss solve --nic ice --json", CLIENTS, 0));
    fs::write(folder.path("bad.toml"), file.replace("\"dst\"", "\"dest\"")).unwrap();
    let (code, _, error) = folder.run("rss check bad.toml --nic ice", "");
    assert_eq!(code, 2);
    assert!(
        error.contains("bad.toml:5:11: `dest` is not a field; did you mean `dst`? (src, dst, sport, dport"),
        "{error}"
    );
    assert!(error.contains("5 | fields = [\"dest\"]\n  |           ^^^^^^"), "{error}");
}

#[test]
fn slips_are_answered_with_what_was_meant() {
    let folder = Bench::new();
    for (line, sets, hint) in [
        ("rss solve --nic ixgb", CLIENTS, "'ixgbe'"),
        ("rss solve --nic e1000", CLIENTS, "mlx5, ice, i40e, ixgbe, ena, virtio"),
        ("rss solve --nic ice", "", "a FILE, or --sets"),
        ("rss check --nic ice", "lan: scr", "--sets:1:6: `scr` is not a field"),
        ("rss solve --nic ice --table 100", CLIENTS, "512 or 2048"),
        ("rss solve --nic ice --driver dpdk --table 512 --queues 1024", CLIENTS, "has at most 512 queues"),
        ("rss solve --nic ice --types tcp", CLIENTS, "tcp4, udp4, sctp4"),
        ("rss solve --nic ice --types ether", CLIENTS, "give more types"),
        ("rss solve --nic ice --inside 10.0.0.0/8", CLIENTS, "--in"),
        ("rss solve --nic ice --vary-ipv4 33", CLIENTS, "1..=32"),
        ("rss solv", "", "'solve'"),
    ] {
        let (code, _, error) = folder.run(line, sets);
        assert_eq!(code, 2, "{line}: {error}");
        assert!(error.contains(hint), "{line}: {error}");
    }
    let (code, _, error) = folder.run("rss solve --nic ice --in none.pcap", FLOWS);
    assert!(code == 3 && error.contains("none.pcap"), "{error}");
    let (code, _, error) = folder.run("rss check none.toml --nic ice", "");
    assert!(code == 3 && error.contains("none.toml: can't be read: No such file"), "{error}");
}

#[test]
fn cards_tell_what_they_can_and_where_it_is_from() {
    let folder = Bench::new();
    let all = folder.stdout("rss cards", "", 0);
    assert!(CARDS.iter().all(|card| all.contains(card)), "{all}");
    let one = folder.stdout("rss cards mlx5", "", 0);
    assert!(one.contains("any of src+dst+sport+dport") && one.contains("mlx5e_set_rss_hash_opt"), "{one}");
    assert!(one.contains("not confirmed:") && one.contains("symmetric-or-xor"), "{one}");
    let cards = folder.json("rss cards --json", "", 0);
    assert_eq!(cards.as_array().unwrap().len(), CARDS.len());
    for command in ["", "check ", "solve ", "cards "] {
        let help = folder.stdout(&format!("rss {command}--help"), "", 0);
        assert!(help.contains("Usage: millrace rss") && help.contains("Example"), "{help}");
    }
    assert!(folder.stdout("--help", "", 0).contains("rss"));
}
