//! `millrace explain`: what it tells of each packet is what `run` does with it.

use serde_json::Value;

use crate::folder::Folder;

const FIREWALL: &str = "firewall --set inside=[\"192.168.10.0/24\"] --in demo.pcap.zst";

/// The packets that it says are dropped, by reason, are as many as `run` counts.
#[test]
fn verdicts_are_those_of_a_run() {
    let folder = Folder::new();
    let run = folder.json(&format!("run {FIREWALL} --packets 30 --json"));
    let explained: Vec<Value> =
        (1..=30).map(|number| folder.json(&format!("explain {FIREWALL} --packet {number} --json"))).collect();
    for (reason, count) in run["packets"]["drops"].as_object().unwrap() {
        let told = explained.iter().filter(|one| one["reason"] == **reason).count();
        assert_eq!(count, told, "{reason}");
    }
    let forwarded = explained.iter().filter(|one| one["verdict"] == "forwarded").count();
    assert_eq!(run["packets"]["forwarded"], forwarded);
    // A flow that was opened by one packet is there before a later one.
    let opened = explained.iter().find(|one| one["state_before"].is_null() && !one["state_after"].is_null());
    let key = &opened.expect("a connection is opened")["key"];
    assert!(explained.iter().any(|one| one["key"] == *key && !one["state_before"].is_null()), "{key}");
}

#[test]
fn a_rewrite_is_told() {
    let folder = Folder::new();
    let nat = "nat --set external=[\"203.0.113.0/28\"] --in demo.pcap.zst";
    let changed = (1..=60).map(|number| folder.json(&format!("explain {nat} --packet {number} --json"))).find(|one| {
        one["changes"].as_array().unwrap().iter().any(|change| change.as_str().unwrap().contains("203.0.113."))
    });
    let changed = changed.expect("a packet of an inside host goes out");
    assert_eq!(changed["verdict"], "forwarded");
    assert_ne!(changed["bytes"], changed["bytes_sent"]);
    let text = folder.stdout(&format!("explain {nat} --packet {}", changed["packet"]));
    assert!(text.contains("source: ") && text.contains(" is now 203.0.113."), "{text}");
}

#[test]
fn a_packet_that_there_is_not() {
    let folder = Folder::new();
    for (number, error) in [("0", "from number 1"), ("99999999", "--packet 99,999,999")] {
        let (code, told) = folder.fails(&format!("explain {FIREWALL} --packet {number}"));
        assert!(code == 2 && told.contains(error), "{told}");
    }
    let (code, told) = folder.fails("explain nosuch --in demo.pcap.zst --packet 1");
    assert!(code == 2 && told.contains("nosuch"), "{told}");
}
