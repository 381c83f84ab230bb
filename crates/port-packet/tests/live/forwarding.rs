//! Forwarding: every packet arrives once, and what the port sends does not come back.

use millrace_port_packet::Options;
use port::{Fate, ReceiveLosses, TransmitCounts};

use crate::bench::{Outcome, Row, across, both, exchange, numbered};

fn add(outcomes: &[Outcome]) -> (u64, TransmitCounts, ReceiveLosses) {
    let (mut received, mut sent, mut lost) = (0, TransmitCounts::default(), ReceiveLosses::default());
    for outcome in outcomes {
        received += outcome.received;
        sent.add(&outcome.sent.expect("a port that forwards counts"));
        lost.add(&outcome.lost);
    }
    (received, sent, lost)
}

fn each_arrives_once(label: &str, options: Options, cores: usize) {
    let Some(row) = Row::new(label) else { return };
    let server = row.serve(options, cores, across);
    let (wires, total) = (row.wires(), 4000);
    let arrived = exchange(&wires, &[0, 1], 300, total);
    assert!(arrived.iter().all(|arrived| arrived.len() as u64 == total && arrived.values().all(|count| *count == 1)));
    let counts = server.monitor.counts();
    let (received, sent, lost) = add(&server.stop());
    // Nothing of it is the port's own.
    assert_eq!((received, lost), (2 * total, ReceiveLosses::default()));
    assert_eq!(sent, TransmitCounts { sent: 2 * total, lost: 0 });
    assert!(counts.iter().all(|counts| counts.offered == total && counts.received == total), "{counts:?}");
    for wire in &wires {
        assert_eq!(wire.take().expect("the wire is up"), None, "nothing came twice");
    }
}

#[test]
fn every_packet_arrives_once_by_one_core() {
    each_arrives_once("once", both(), 1);
}

#[test]
fn every_packet_arrives_once_by_two_cores() {
    each_arrives_once("twice", both(), 2);
}

#[test]
fn every_packet_arrives_once_by_a_stream() {
    each_arrives_once("stream", Options { single_queue: true, ..both() }, 2);
}

#[test]
fn every_packet_arrives_once_past_the_queueing_discipline() {
    each_arrives_once("bypass", Options { bypass_qdisc: true, ..both() }, 1);
}

#[test]
fn fates_are_obeyed_and_add_up() {
    let Some(row) = Row::new("fates") else { return };
    let server = row.serve(both(), 1, |_, packet, _| match packet.seq.0 % 4 {
        0 => Fate::Transmit(1),
        1 => Fate::Both(1, 1),
        2 => Fate::Drop(3),
        // There is no such interface.
        _ => Fate::Transmit(7),
    });
    let wires = row.wires();
    (0..400).for_each(|number| wires[0].send(&numbered(0, number, 100)).expect("the wire takes it"));
    crate::bench::eventually("all are received", || server.received() == 400);
    let (received, sent, lost) = add(&server.stop());
    assert_eq!((received, lost), (400, ReceiveLosses::default()));
    assert_eq!(sent, TransmitCounts { sent: 300, lost: 100 });
    let arrived = std::iter::from_fn(|| wires[1].take().expect("the wire is up")).count();
    assert_eq!(arrived, 300);
}

#[test]
fn a_packet_longer_than_the_interface_takes_is_lost_and_counted() {
    let Some(row) = Row::new("long") else { return };
    row.middle.ip(&["link", "set", "a1", "mtu", "1000"]).expect("the end is there");
    let server = row.serve(both(), 1, across);
    let wires = row.wires();
    for number in 0..10 {
        wires[0].send(&numbered(0, number, 1400)).expect("the wire takes it");
        wires[0].send(&numbered(0, number, 900)).expect("the wire takes it");
    }
    crate::bench::eventually("all are received", || server.received() == 20);
    crate::bench::eventually("they are counted", || server.monitor.counts()[1].too_long == 10);
    assert!(server.monitor.describe()[1].contains("10 packets were too long to send"));
    assert_eq!(add(&server.stop()).1, TransmitCounts { sent: 10, lost: 10 });
}
