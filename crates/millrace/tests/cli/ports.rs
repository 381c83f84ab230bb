//! Ports and the interfaces of captures: what a capture lacks is told.

use std::fs;

use millrace::packet::{LinkType, Nanos, Seq};
use millrace::port::pcap::{Container, Reader, Writer};
use millrace::port::{Fate, Packet, Trace};
use millrace::synth::Build;

use super::folder::{ENGINES, Folder};

const RULES: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i lan -j ACCEPT\nCOMMIT\n";

const ROUTER: &str = r#"
[[interface]]
name = "lan"
port = 0
addresses = ["10.0.0.254/24"]

[[interface]]
name = "wan"
port = 1
addresses = ["203.0.113.1/24"]

[[route]]
to = "default"
via = "203.0.113.254"
interface = "wan"
"#;

/// Writes a packet for each of these interfaces, from inside to outside.
fn write(folder: &Folder, name: &str, container: Container, interfaces: &[u16]) {
    let mut writer = Writer::create(folder.path(name), Some(container), None).unwrap();
    for (number, interface) in (0..).zip(interfaces) {
        let bytes = Build::udp(format!("10.0.0.1:{}", 1_000 + number).as_str(), "198.51.100.2:53").payload(20).bytes();
        let packet = Packet {
            seq: Seq(number),
            time: Nanos::from_millis(number),
            offset: 0,
            len: bytes.len() as u32,
            wire_len: bytes.len() as u32,
            interface: *interface,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        writer.write(&packet, &bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn folder() -> Folder {
    let folder = Folder::empty();
    fs::write(folder.path("rules.v4"), RULES).unwrap();
    fs::write(folder.path("router.toml"), ROUTER).unwrap();
    // The interfaces get their numbers in the order in which they are used first.
    write(&folder, "three.pcapng", Container::PcapNg, &[0, 1, 2, 2, 0]);
    write(&folder, "one.pcap", Container::Pcap, &[0, 0]);
    folder
}

#[test]
fn packets_by_ports_that_the_router_lacks_are_dropped_and_told() {
    let folder = folder();
    let line = "run rules --rules rules.v4 --router router.toml --in three.pcapng";
    for engine in ENGINES {
        let json = folder.json(&format!("{line} --json {engine}"));
        assert_eq!(json["packets"]["drops"]["unknown-port"], 2, "{engine}: {json}");
        assert_eq!((&json["packets"]["forwarded"], &json["packets"]["drops"]["policy"]), (&2.into(), &1.into()));
    }
    let words =
        "2 of 5 packets came in by ports that no interface of the router's configuration has, and were dropped: ";
    let text = folder.stdout(line);
    assert!(text.contains(words) && text.contains("give an interface of --router each port"), "{text}");
    let args = "rules.v4 --router router.toml --in three.pcapng";
    for line in [format!("rules explain {args}"), format!("rules diff rules.v4 {args}")] {
        let (code, _, error) = folder.run(&line);
        let words = "2 packets came in by ports that no interface of --router has; the rules don't see them\n";
        assert!(code == 0 && error.contains(words), "{line}: {error}");
    }
    let told = folder.stdout(&format!("rules explain {args} --packet 3"));
    assert!(told.contains("came in by port 2, which no interface of --router has"), "{told}");
    assert!(told.contains("verdict: dropped (unknown-port)"), "{told}");
}

#[test]
fn ports_that_a_capture_lacks_are_told() {
    let folder = folder();
    let run = |rest: &str| folder.stdout(&format!("run rules --rules rules.v4 --router router.toml {rest}"));
    let names = "the configuration names port 1, and one.pcap has one interface, port 0: no packet comes in by it\n";
    let text = run("--in one.pcap --out out.pcap");
    assert!(text.contains(names), "{text}");
    let misplaced =
        "2 packets left by port 1, for which out.pcap has no interface: they are written under the interface";
    assert!(text.contains(misplaced) && text.contains("mergecap -I none"), "{text}");
    // Without an output nothing is written under a wrong interface.
    assert!(!run("--in one.pcap").contains("left by port"));
    // With the interfaces, nothing is missing.
    let text = run("--in three.pcapng --out out.pcapng --packets 2");
    assert!(!text.contains("names port") && !text.contains("has no interface"), "{text}");
    let out = Trace::load(&mut Reader::open(folder.path("out.pcapng")).unwrap(), usize::MAX).unwrap();
    assert_eq!(out.packets().iter().map(|packet| packet.interface).collect::<Vec<_>>(), [1]);
    let (_, _, error) = folder.run("rules explain rules.v4 --router router.toml --in one.pcap");
    assert!(error.contains(names), "{error}");

    // The same for programs and for the firewall's inside.
    fs::write(folder.path("out.efsm"), "stage all\n  on * ip.src=10.0.0.0/8 : out 300\n  on * : out back\n").unwrap();
    for engine in ["", "--engine shared --cores 2", "--engine scr --cores 2"] {
        let text = folder.stdout(&format!("efsm run out.efsm --in one.pcap --out out.pcap {engine}"));
        assert!(text.contains("the configuration names port 300, and one.pcap has one interface"), "{text}");
        assert!(text.contains("2 packets left by port 300, for which out.pcap has no interface"), "{text}");
    }
    let json = folder.json("efsm run out.efsm --in one.pcap --out out.pcap --json");
    assert_eq!((&json["ports"]["misplaced"], &json["ports"]["lacking"][0]), (&2.into(), &300.into()));
    let text = folder.stdout("run firewall --set inside_interfaces=[1,2] --in one.pcap");
    assert!(text.contains("names ports 1, 2, and one.pcap has one interface"), "{text}");
}
