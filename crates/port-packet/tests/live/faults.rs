//! Interfaces that go down, vanish and come back.

use port::{Fate, ReceiveLosses};
use testkit::row::{Row, crossing, eventually, exchange, numbered};

use crate::bench::{Serves, across, both, received, tap};

#[test]
fn a_link_that_was_down_carries_packets_again() {
    let Some(row) = Row::new("down", 1500) else { return };
    let server = row.serve(both(), 1, across);
    let wires = row.wires();
    exchange(&wires, &[0, 1], 100, 300, crossing);
    row.middle.ip(&["link", "set", "a1", "down"]).expect("the end is there");
    eventually("the port sees it", || server.monitor.describe()[1].ends_with("now: it is down"));
    // They are for an interface that is down.
    (0..200).for_each(|number| wires[0].send(&numbered(0, number, 100)).expect("the wire takes it"));
    eventually("they are received", || received(&server) == 800);
    row.middle.ip(&["link", "set", "a1", "up"]).expect("the end is there");
    eventually("the port sees it", || !server.monitor.describe()[1].contains("now:"));
    let arrived = exchange(&wires, &[0, 1], 100, 300, crossing);
    assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    let outcome = server.stop().remove(0);
    let sent = outcome.sent.expect("a port that forwards counts");
    assert_eq!((outcome.received, sent.sent, sent.lost), (1400, 1200, 200));
    assert_eq!((outcome.down, outcome.lost), (vec!["a1".to_owned()], ReceiveLosses::default()));
}

fn made_again(label: &str, cores: usize) {
    let Some(row) = Row::new(label, 1500) else { return };
    let server = row.serve(both(), cores, across);
    exchange(&row.wires(), &[0, 1], 100, 300, crossing);
    for side in [1, 0, 1] {
        let name = format!("a{side}");
        row.middle.ip(&["link", "del", &name]).expect("the end is there");
        eventually("the port sees it", || {
            server.monitor.describe()[side].contains(&format!("now: there is no interface {name}"))
        });
        row.lay(side, 1500);
        eventually("the port takes it up", || !server.monitor.describe()[side].contains("now:"));
        // A core that has not fetched its ring yet reads it as soon as it does.
        let arrived = exchange(&row.wires(), &[0, 1], 100, 300, crossing);
        assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    }
    let counts = server.monitor.counts();
    let outcomes = server.stop();
    let received: u64 = outcomes.iter().map(|outcome| outcome.received).sum();
    assert_eq!(received, 2400);
    assert!(counts.iter().all(|counts| counts.offered == 1200 && counts.received == 1200), "{counts:?}");
    assert!(outcomes.iter().all(|outcome| outcome.lost == ReceiveLosses::default()), "{outcomes:?}");
    let down: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.down).map(String::as_str).collect();
    assert!(down.contains(&"a0") && down.contains(&"a1"), "{down:?}");
}

#[test]
fn an_interface_deleted_and_made_again_is_taken_up() {
    made_again("again", 1);
}

#[test]
fn an_interface_deleted_and_made_again_is_taken_up_by_both_cores() {
    made_again("againtwo", 2);
}

#[test]
fn a_tap_tells_of_an_interface_that_is_switched_off_while_nothing_arrives() {
    let Some(row) = Row::new("tapdown", 1500) else { return };
    let server = row.serve(tap("a0"), 1, |_, _, _| Fate::Transmit(0));
    row.middle.ip(&["link", "set", "a0", "down"]).expect("the end is there");
    eventually("the port sees it", || server.monitor.describe()[0].ends_with("now: it is down"));
    row.middle.ip(&["link", "set", "a0", "up"]).expect("the end is there");
    let wires = row.wires();
    eventually("it receives again", || {
        wires[0].send(&numbered(0, 1, 100)).expect("the wire takes it");
        received(&server) > 0
    });
    let outcome = server.stop().remove(0);
    assert_eq!((outcome.down, outcome.sent), (vec!["a0".to_owned()], None));
}

#[test]
fn an_interface_that_was_in_another_namespace_is_taken_up_when_it_is_back() {
    let Some(row) = Row::new("moved", 1500) else { return };
    let server = row.serve(both(), 2, across);
    exchange(&row.wires(), &[0, 1], 100, 300, crossing);
    // It keeps its number, so that only the sockets tell.
    row.middle.ip(&["link", "set", "a1", "netns", row.left.name()]).expect("the end is there");
    eventually("the port sees it", || server.monitor.describe()[1].contains("now: there is no interface a1"));
    row.left.ip(&["link", "set", "a1", "netns", row.middle.name()]).expect("the end is there");
    eventually("the port sees it", || server.monitor.describe()[1].contains("now: a1 is down; type"));
    row.middle.ip(&["link", "set", "a1", "up"]).expect("the end is there");
    eventually("the port takes it up", || !server.monitor.describe()[1].contains("now:"));
    let arrived = exchange(&row.wires(), &[0, 1], 100, 300, crossing);
    assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    assert_eq!(server.stop().iter().map(|outcome| outcome.received).sum::<u64>(), 1200);
}
