//! Forwarding: every packet arrives once, and what the port sends does not come back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use millrace_port_packet::Options;
use port::{Fate, ReceiveLosses, TransmitCounts};
use testkit::row::{LONG, Outcome, Row, crossing, eventually, exchange, numbered};

use crate::bench::{Serves, across, both, received};

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
    let Some(row) = Row::new(label, 1500) else { return };
    let server = row.serve(options, cores, across);
    let (wires, total) = (row.wires(), 4000);
    let arrived = exchange(&wires, &[0, 1], 300, total, crossing);
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
    let Some(row) = Row::new("fates", 1500) else { return };
    let server = row.serve(both(), 1, |_, packet, _| match packet.seq.0 % 4 {
        0 => Fate::Transmit(1),
        1 => Fate::Both(1, 1),
        2 => Fate::Drop(3),
        // There is no such interface.
        _ => Fate::Transmit(7),
    });
    let wires = row.wires();
    (0..400).for_each(|number| wires[0].send(&numbered(0, number, 100)).expect("the wire takes it"));
    eventually("all are received", || received(&server) == 400);
    let (received, sent, lost) = add(&server.stop());
    assert_eq!((received, lost), (400, ReceiveLosses::default()));
    assert_eq!(sent, TransmitCounts { sent: 300, lost: 100 });
    let arrived = std::iter::from_fn(|| wires[1].take().expect("the wire is up")).count();
    assert_eq!(arrived, 300);
}

#[test]
fn a_packet_longer_than_the_interface_takes_is_lost_and_counted() {
    let Some(row) = Row::new("long", 1500) else { return };
    row.middle.ip(&["link", "set", "a1", "mtu", "1000"]).expect("the end is there");
    let server = row.serve(both(), 1, across);
    let wires = row.wires();
    for number in 0..10 {
        wires[0].send(&numbered(0, number, 1400)).expect("the wire takes it");
        wires[0].send(&numbered(0, number, 900)).expect("the wire takes it");
    }
    eventually("all are received", || received(&server) == 20);
    eventually("they are counted", || server.monitor.counts()[1].too_long == 10);
    assert!(server.monitor.describe()[1].contains("10 packets were too long to send"));
    assert_eq!(add(&server.stop()).1, TransmitCounts { sent: 10, lost: 10 });
}

#[test]
fn hosts_talk_by_tcp_through_two_cores() {
    let Some(row) = Row::new("tcp", 1500) else { return };
    row.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
    row.right.ip(&["addr", "add", "10.9.0.2/24", "dev", "h1"]).expect("the end is there");
    let server = row.serve(both(), 2, |_, packet, bytes| {
        assert_eq!(bytes[12..14], [8, 0], "ARP goes across without the function");
        Fate::Transmit(packet.interface ^ 1)
    });
    let listener = row.right.enter(|| TcpListener::bind((Ipv4Addr::new(10, 9, 0, 2), 80))).expect("it is there");
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // Both ways at once, in several connections.
    let left = Arc::clone(&row.left);
    let bytes = sent.clone();
    let client = thread::spawn(move || {
        left.enter(|| {
            for _ in 0..4 {
                let stream = TcpStream::connect_timeout(&(Ipv4Addr::new(10, 9, 0, 2), 80).into(), LONG);
                let mut stream = stream.expect("the handshake passes");
                stream.set_read_timeout(Some(LONG)).expect("a socket has a timeout");
                stream.set_write_timeout(Some(LONG)).expect("a socket has a timeout");
                let mut writer = stream.try_clone().expect("a socket can be cloned");
                thread::scope(|scope| {
                    scope.spawn(|| {
                        writer.write_all(&bytes).expect("the other end reads");
                        writer.shutdown(Shutdown::Write).expect("it is open");
                    });
                    let mut echoed = Vec::new();
                    stream.read_to_end(&mut echoed).expect("the other end writes");
                    assert!(echoed == bytes, "every byte comes back");
                });
            }
        });
    });
    listener.set_nonblocking(true).expect("a socket can be");
    for _ in 0..4 {
        let mut accepted = None;
        eventually("a connection comes", || {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (mut stream, _) = accepted.expect("it has come");
        stream.set_nonblocking(false).expect("a socket can be");
        stream.set_read_timeout(Some(LONG)).expect("a socket has a timeout");
        stream.set_write_timeout(Some(LONG)).expect("a socket has a timeout");
        let mut writer = stream.try_clone().expect("a socket can be cloned");
        std::io::copy(&mut stream, &mut writer).expect("it echoes");
        writer.shutdown(Shutdown::Write).expect("it is open");
    }
    client.join().expect("it doesn't panic");
    let counts = server.monitor.counts();
    assert!(counts.iter().all(|counts| counts.too_long == 0 && counts.lack_checksum == 0), "{counts:?}");
    assert!(counts.iter().all(|counts| counts.across > 0 && counts.lost_across == 0), "both have asked: {counts:?}");
    let (received, sent, lost) = add(&server.stop());
    assert_eq!(received, sent.sent + sent.lost);
    assert_eq!(lost.unclaimed, 0);
}

#[test]
fn a_kernel_that_forwards_too_is_told_of() {
    let Some(row) = Row::new("router", 1500) else { return };
    let described = || {
        let server = row.serve(both(), 1, across);
        server.monitor.describe()
    };
    let set = |value: &str| {
        row.middle.enter(|| std::fs::write("/proc/sys/net/ipv4/conf/a1/forwarding", value)).expect("root may");
    };
    set("0");
    assert!(described().iter().all(|line| !line.contains("forwards")));
    set("1");
    let lines = described();
    assert!(!lines[0].contains("forwards"), "{lines:?}");
    let told = "; the kernel forwards its packets too: type `sysctl net/ipv4/conf/a1/forwarding=0`";
    assert!(lines[1].ends_with(told), "{lines:?}");
}
