//! Payload splitting: `run --split`, and `split` and `store` between machines.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::netns::Namespace;
use testkit::row::bound;

use crate::folder::{ENGINES, Folder};
use crate::live::{LONG, Row, carry};

/// Byte for byte what the function sends without, whatever the engine.
#[test]
fn a_function_that_sees_headers_sends_the_same() {
    let folder = Folder::new();
    fs::write(folder.path("policer.toml"), "rate = 50000\nburst = 3000\n").unwrap();
    for (function, engines) in [
        ("policer --config policer.toml", &ENGINES[..]),
        ("firewall", &["--engine sequential", "--engine scr --cores 3"]),
        ("nat", &["--engine sequential", "--engine transactional --cores 1"]),
    ] {
        folder.stdout(&format!("run {function} --in demo.pcap.zst --out alone.pcap"));
        // Cores that share all flows decide a flow's packets in an order of their own.
        for engine in engines.iter().filter(|engine| !engine.contains("shared")) {
            let line = format!("run {function} --in demo.pcap.zst --out split.pcap --split 128 --json {engine}");
            let summary = folder.json(&line);
            assert!(folder.bytes("split.pcap") == folder.bytes("alone.pcap"), "{line}");
            let split = &summary["split"];
            assert_eq!(split["balances"], true, "{line}: {split}");
            assert!(split["joins"].as_u64() > Some(300), "{line}: {split}");
            assert_eq!((&split["parked"], &split["evicted"]), (&Value::from(0), &Value::from(0)), "{line}: {split}");
        }
    }
    // With fewer slots than packets on their way, payloads are given up, and that is accounted for.
    let summary = folder.json("run conntrack --in demo.pcap.zst --out few.pcap --split 128 --slots 4 --json");
    let number = |pointer: &str| summary.pointer(pointer).and_then(Value::as_u64).expect("a number");
    assert!(number("/split/late") > 100 && summary["split"]["balances"] == true, "{summary}");
    assert_eq!(number("/sent/sent") + number("/sent/lost"), number("/packets/forwarded"), "{summary}");
    assert!(number("/sent/lost") > 0, "{summary}");
    // What is dropped is recorded whole.
    let line = "run policer --config policer.toml --in demo.pcap.zst";
    folder.stdout(&format!("{line} --dropped alone.pcapng"));
    folder.stdout(&format!("{line} --dropped split.pcapng --split 64"));
    assert!(folder.bytes("split.pcapng") == folder.bytes("alone.pcapng"));
}

/// Captures with tunnels, fragments, other links and damage.
#[test]
fn captures_of_all_kinds_come_out_the_same() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = Folder::new();
    let (mut captures, mut splits) = (0, 0);
    for kind in ["malformed", "l2tun", "l3", "fmt", "tcp"] {
        let Ok(files) = fs::read_dir(beside.join(kind)) else {
            eprintln!("SKIPPED (no ../shared/traces/{kind}): splitting captures of all kinds");
            continue;
        };
        for file in files.flatten().map(|entry| entry.path()) {
            let is_small = fs::metadata(&file).is_ok_and(|data| data.len() < 1 << 20);
            let name = file.display();
            if !is_small || folder.run(&format!("run conntrack --in {name} --out alone.pcapng")).0 != 0 {
                continue;
            }
            let summary = folder.json(&format!("run conntrack --in {name} --out split.pcapng --split 64 --json"));
            assert!(folder.bytes("split.pcapng") == folder.bytes("alone.pcapng"), "{name}");
            captures += 1;
            splits += summary["split"]["splits"].as_u64().expect("a number");
        }
    }
    assert!(captures == 0 || captures > 20 && splits > 500, "{captures} captures, {splits} splits");
}

/// A run says on standard error how many packets are missing in its output.
#[test]
fn packets_without_payload_are_told() {
    let folder = Folder::new();
    let told = folder.run("run nat --in demo.pcap.zst --split 64 --slots 16 --out few.pcap");
    let (said, code) = (told.2, told.0);
    assert!(code == 0 && said.contains("missing in what is sent") && said.contains("raise --slots"), "{said}");
}

#[test]
fn wrong_options_are_named() {
    let folder = Folder::new();
    for (line, says) in [
        ("run nat --in demo.pcap.zst --split 63", "from 64 to 512 bytes"),
        ("run nat --in demo.pcap.zst --slots 9", "--slots is for payload splitting; add --split BYTES"),
        (
            "run nat --in demo.pcap.zst --split 64 --store tcp://h:1",
            "`tcp://h:1` is no store: write local, udp://HOST:PORT",
        ),
        ("run identify --in demo.pcap.zst --split 64", "identify reads payloads, which --split keeps from it"),
        ("run nat --in demo.pcap.zst --split 64 --store-timeout 1ms", "a whole number of milliseconds"),
        ("run nat --in demo.pcap.zst --split 64 --slots 5000000", "--slots: at most 4,194,304 payloads"),
        ("store --listen nowhere", "write ADDRESS:PORT"),
        ("run nat --in demo.pcap.zst --parked", "--parked is for runs on interfaces"),
        ("split --interface a --function-port b --function-port c", "as many --function-port as --interface"),
        ("store --listen 127.0.0.1:0 --memory 5", "one payload takes 2048 bytes"),
        ("store --listen 192.0.2.7:1", "192.0.2.7:1: can't be listened on"),
        (
            "run nat --in demo.pcap.zst --split 64 --store udp://127.0.0.1:9",
            "no store answers at 127.0.0.1:9; start one with",
        ),
    ] {
        let (_, error) = folder.fails(line);
        assert!(error.contains(says), "{line}: {error}");
    }
}

/// A command in a namespace, which has said that it is ready. It ends with the test.
struct Started(Child);

impl Started {
    fn new(space: &Namespace, folder: &Folder, line: &str, ready: &str) -> Self {
        let mut command = folder.command(line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = space.enter(|| command.spawn()).expect("the program is there");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        while !said.contains(ready) {
            let len = lines.read_line(&mut said).expect("it is text");
            assert!(len > 0, "{line}: {said}");
        }
        // Nobody reads what it says further; it says little.
        child.stderr = Some(lines.into_inner());
        Self(child)
    }

    /// Ends it; its summary.
    fn end(mut self) -> Value {
        let id = self.0.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().expect("there is kill").success());
        let mut out = String::new();
        self.0.stdout.as_mut().expect("it is piped").read_to_string(&mut out).expect("it is text");
        let mut said = String::new();
        self.0.stderr.as_mut().expect("it is piped").read_to_string(&mut said).expect("it is text");
        assert!(self.0.wait().expect("it is ours").success(), "{out}{said}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ```text
/// inside [h0] --- [inside0] split [outside0] --- [h1] outside
///                 [nf0]        [nf1]
///                   |            |
///                 [n0]  wall   [n1]
/// ```
fn rig(label: &str) -> Option<(Row, Namespace)> {
    let row = Row::new(label)?;
    let wall = Namespace::new(&format!("{label}-f")).expect("root may");
    row.wall.lay_wire("nf0", &wall, "n0", 1600).expect("the wire is laid");
    row.wall.lay_wire("nf1", &wall, "n1", 1600).expect("the wire is laid");
    row.wall.ip(&["link", "set", "lo", "up"]).expect("it is there");
    Some((row, wall))
}

const SPLIT: &str = "split --interface inside0 --function-port nf0 --interface outside0 --function-port nf1 --json";
const FIREWALL: &str = "run firewall --set inside=[\"10.9.0.1/32\"] --interface n0 --interface n1 --parked \
                        --control=none --json --log text";

/// Without XDP the kernel tells how long a packet is, and only whole ones are sent.
#[test]
fn a_split_and_a_firewall_stand_without_xdp() {
    let Some((row, wall)) = rig("sq") else { return };
    let folder = Folder::empty();
    let split = Started::new(&row.wall, &folder, &format!("{SPLIT} --xdp off"), "splitting behind 128 bytes");
    let run = Started::new(&wall, &folder, &format!("{FIREWALL} --xdp off"), "n1: ");
    carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).expect("it goes through");
    let summary = split.end();
    assert!(summary["joins"].as_u64() > Some(100) && summary["balances"] == true, "{summary}");
    let summary = run.end();
    assert!(summary["packets"]["forwarded"].as_u64() > Some(100), "{summary}");
}

#[test]
fn a_split_stands_between_hosts_and_a_firewall_elsewhere() {
    let Some((row, wall)) = rig("sp") else { return };
    let folder = Folder::empty();
    let store = |port: u16| {
        Started::new(&row.wall, &folder, &format!("store --listen 127.0.0.1:{port} --json"), "listening on")
    };
    let (first, second) = (store(7000), store(7001));
    let line = format!("{SPLIT} --store udp://127.0.0.1:7000-7001");
    let split = Started::new(&row.wall, &folder, &line, "splitting behind 128 bytes");
    let run = Started::new(&wall, &folder, FIREWALL, "n1: ");

    carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).expect("it goes through");
    // What the firewall drops is released.
    let from = row.outside.enter(|| bound(|| UdpSocket::bind("10.9.0.2:6000")));
    (0..50).for_each(|_| drop(from.send_to(&[7; 1_000], "10.9.0.1:6001")));
    carry(&row.inside, &row.outside, "10.9.0.2:5002", LONG).expect("it goes through");
    // A store that stops takes some payloads with it; TCP sends them again.
    let served = second.end();
    assert!(served["put"].as_u64() > Some(100), "{served}");
    carry(&row.inside, &row.outside, "10.9.0.2:5003", LONG).expect("the other store takes all");
    let second = store(7001);
    // It is greeted ten times a second.
    std::thread::sleep(Duration::from_secs(1));
    carry(&row.inside, &row.outside, "10.9.0.2:5004", LONG).expect("both take some");

    let summary = split.end();
    let number = |name: &str| summary[name].as_u64().expect("a number");
    assert_eq!(summary["balances"], true, "{summary}");
    assert_eq!((number("parked"), number("damaged"), number("wrong_generation")), (0, 0, 0), "{summary}");
    assert!(number("joins") > 1_000 && number("released") >= 50, "{summary}");
    assert!(number("bytes_to_function") < number("bytes") / 2, "{summary}");
    assert!(second.end()["put"].as_u64() > Some(100) && first.end()["put"].as_u64() > Some(100));
    let summary = run.end();
    assert!(summary["packets"]["dropped"].as_u64() >= Some(50), "{summary}");
}
