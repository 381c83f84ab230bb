//! `millrace explain`: what it tells of each packet is what `run` does with it.

use serde_json::Value;

use crate::folder::Folder;

const FIREWALL: &str = "firewall --set inside=[\"192.168.10.0/24\"] --in demo.pcap.zst";

/// The first packet that a run drops is the first that is told to be dropped, and for the same reason.
#[test]
fn verdicts_are_those_of_a_run() {
    let folder = Folder::new();
    let run = |packets: u64| folder.json(&format!("run {FIREWALL} --packets {packets} --json"))["packets"].clone();
    let explain = |number: u64| folder.json(&format!("explain {FIREWALL} --packet {number} --json"));
    let (mut none, mut some) = (0, 2_000);
    while some - none > 1 {
        let middle = (none + some) / 2;
        if run(middle)["dropped"] == 0 { none = middle } else { some = middle }
    }
    let drops = run(some)["drops"].as_object().expect("there are some").clone();
    let told = explain(some);
    assert_eq!(
        (&told["verdict"], &told["reason"]),
        (&Value::from("dropped"), &Value::from(&**drops.keys().next().unwrap()))
    );
    assert_eq!((drops.len(), &told["bytes_sent"]), (1, &Value::Null));
    let before = explain(some - 1);
    assert_eq!(
        (&before["verdict"], &before["reason"], &before["ports"]),
        (&Value::from("forwarded"), &Value::Null, &serde_json::json!([0]))
    );
    // A flow that a packet opens is there before a later one.
    let opens = |one: &Value| one["state_before"].is_null() && !one["state_after"].is_null();
    let all: Vec<Value> = (1..60).map(explain).collect();
    let first = all.iter().position(opens).expect("a flow is opened");
    let key = &all[first]["key"];
    let again = all[first + 1..].iter().find(|one| one["key"] == *key).expect("the flow has more packets");
    assert!(!again["state_before"].is_null(), "{again}");
}

#[test]
fn a_rewrite_is_told() {
    let folder = Folder::new();
    let nat = "nat --set external=[\"203.0.113.0/28\"] --in demo.pcap.zst";
    let changed = (1..=10).map(|number| folder.json(&format!("explain {nat} --packet {number} --json"))).find(|one| {
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
