//! The exporter's sessions: templates, counts, and collectors that are away.

mod common;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use common::{Decoder, expected};
use millrace_ipfix::{Destination, Direction, EncoderOptions, EndReason, Exporter, ExporterOptions, FlowRecord, Side};
use packet::{Endpoint, Nanos};

/// A bound on waiting for another thread, which no test that passes comes near.
const PATIENCE: Duration = Duration::from_secs(60);

fn record(number: u32) -> FlowRecord {
    let end = |host: u32| Endpoint::new(IpAddr::V4(Ipv4Addr::from_bits(host)), 7);
    FlowRecord {
        source: end(number),
        destination: end(0x0a00_0001),
        protocol: 17,
        vlan: 0,
        direction: Direction::Initiator,
        reason: EndReason::Idle,
        forward: Side {
            first: Nanos::from_secs(5),
            last: Nanos::from_secs(6),
            packets: 2,
            octets: 100,
            ..Side::default()
        },
        reverse: Side::default(),
    }
}

fn quick() -> ExporterOptions {
    let retry = [Duration::from_millis(1), Duration::from_millis(20)];
    ExporterOptions { retry, delay_max: Duration::from_millis(1), ..ExporterOptions::default() }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never happened");
        std::thread::yield_now();
    }
}

#[test]
fn a_file_has_templates_first_and_statistics_last() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("a.ipfix");
    let bytes: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let exporter = Exporter::start(&Destination::File(path.clone()), quick()).expect("the folder is ours");
            let sender = exporter.sender();
            (0..100).for_each(|number| sender.send(&record(number)));
            sender.add_ignored(3);
            let counts = exporter.finish();
            assert_eq!((counts.offered, counts.exported.flows, counts.lost.flows, counts.waiting), (100, 100, 0, 0));
            assert_eq!((counts.exported.packets, counts.exported.octets), (200, 10_000));
            std::fs::read(&path).expect("it was written")
        })
        .collect();
    let mut decoder = Decoder::default();
    assert_eq!(decoder.messages(&bytes[1], 1), 0, "no part of a message");
    assert_eq!(decoder.flows.len(), 100);
    assert!((0..).zip(&decoder.flows).all(|(number, fields)| *fields == expected(&record(number))));
    assert_eq!(decoder.export_secs, 6, "the time of the packets, so that the file is the same each time");
    let last = decoder.statistics.last().expect("the last message has them");
    assert_eq!(common::number(last, 0, 42), Some(100));
    assert_eq!(common::number(last, 0, 164), Some(3));
}

#[test]
fn templates_go_again_over_udp() {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    collector.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let options = ExporterOptions { template_messages: 3, ..quick() };
    let destination = Destination::Udp(collector.local_addr().expect("it is bound"));
    let exporter = Exporter::start(&destination, options).expect("loopback is up");
    let sender = exporter.sender();
    let mut decoder = Decoder::default();
    let mut buffer = [0; 2000];
    for number in 0..50 {
        sender.send(&record(number));
        // One after the other, so that no buffer overflows.
        while decoder.flows.len() <= number as usize {
            let len = collector.recv(&mut buffer).expect("a message comes");
            assert!(len <= 1400);
            decoder.message(&buffer[..len], 1);
        }
    }
    let counts = exporter.finish();
    assert_eq!((counts.exported.flows, counts.lost.flows), (50, 0));
    assert!(decoder.template_messages >= 50 / 3, "{}", decoder.template_messages);
    assert!((0..).zip(&decoder.flows).all(|(number, fields)| *fields == expected(&record(number))));
}

#[test]
fn nobody_listens_on_udp() {
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
    let exporter = Exporter::start(&Destination::Udp(free), quick()).expect("loopback is up");
    let sender = exporter.sender();
    let mut sent = 0;
    wait_until(|| {
        sender.send(&record(sent));
        sent += 1;
        exporter.counts().lost.flows > 0
    });
    assert!(exporter.trouble().is_some_and(|trouble| trouble.contains("refused")), "{:?}", exporter.trouble());
    let counts = exporter.finish();
    assert_eq!(counts.offered, u64::from(sent));
    assert_eq!(counts.exported.flows + counts.lost.flows, u64::from(sent));
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let destination = Destination::Tcp(collector.local_addr().expect("it is bound"));
    let exporter = Exporter::start(&destination, quick()).expect("TCP needs nothing at the start");
    let sender = exporter.sender();
    let mut received = 0;
    for round in 0..3 {
        let (mut stream, _) = collector.accept().expect("the exporter connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        let mut decoder = Decoder::default();
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        for number in 0..50 {
            sender.send(&record(number));
        }
        // A new connection begins with templates and sequence number 0, or the decoder panics.
        while decoder.flows.len() < 50 {
            let len = stream.read(&mut buffer).expect("records come");
            assert!(len > 0, "the exporter doesn't close");
            bytes.extend(&buffer[..len]);
            let rest = decoder.messages(&bytes, 1);
            bytes.drain(..bytes.len() - rest);
        }
        received += decoder.flows.len() as u64;
        drop(stream);
        // Nothing is sent into the closed connection.
        wait_until(|| exporter.counts().connections > round + 1);
    }
    let (stream, _) = collector.accept().expect("the exporter connects");
    let counts = exporter.finish();
    assert_eq!((counts.offered, counts.exported.flows, counts.lost.flows), (150, received, 0));
    assert_eq!(counts.connections, 4);
    drop(stream);
}

#[test]
fn records_wait_for_a_collector_and_then_are_lost() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
    let options = ExporterOptions { queue: 10, ..quick() };
    let exporter = Exporter::start(&Destination::Tcp(free), options).expect("TCP needs nothing at the start");
    let sender = exporter.sender();
    (0..25).for_each(|number| sender.send(&record(number)));
    let counts = exporter.counts();
    assert_eq!((counts.offered, counts.exported.flows, counts.lost.flows, counts.waiting), (25, 0, 15, 10));
    wait_until(|| exporter.trouble().is_some());
    let counts = exporter.finish();
    assert_eq!((counts.exported.flows, counts.lost.flows, counts.waiting), (0, 25, 0));
    assert_eq!((counts.lost.packets, counts.lost.octets), (50, 2500));
    sender.send(&record(0));
}

#[test]
fn a_collector_that_takes_nothing_holds_nobody_up() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let destination = Destination::Tcp(collector.local_addr().expect("it is bound"));
    let options = ExporterOptions { queue: 10_000, timeout: Duration::from_millis(50), ..quick() };
    let exporter = Exporter::start(&destination, options).expect("TCP needs nothing at the start");
    let sender = exporter.sender();
    let stream = collector.accept().expect("the exporter connects");
    // The buffers of the system take some megabytes before the connection is given up.
    let mut sent = 0;
    wait_until(|| {
        (0..10_000).for_each(|number| sender.send(&record(number)));
        sent += 10_000;
        exporter.trouble().is_some()
    });
    let counts = exporter.finish();
    assert!(counts.lost.flows > 0);
    assert_eq!(counts.offered, sent);
    assert_eq!(counts.exported.flows + counts.lost.flows, sent);
    drop(stream);
}

#[test]
fn a_full_disk_leaves_whole_messages() {
    let full = Destination::File("/dev/full".into());
    let exporter = Exporter::start(&full, quick()).expect("it opens");
    let sender = exporter.sender();
    (0..100).for_each(|number| sender.send(&record(number)));
    wait_until(|| exporter.trouble().is_some());
    assert!(exporter.trouble().is_some_and(|trouble| trouble.contains("/dev/full")));
    let counts = exporter.finish();
    assert_eq!((counts.exported.flows, counts.lost.flows), (0, 100));
}

#[test]
fn options_out_of_range_are_refused() {
    for message_len_max in [0, 511, 65_536] {
        let encoder = EncoderOptions { message_len_max, ..EncoderOptions::default() };
        let options = ExporterOptions { encoder, ..quick() };
        let error = Exporter::start(&Destination::File("/dev/null".into()), options).expect_err("it is out of range");
        assert!(error.to_string().contains("512 to 65535"), "{error}");
    }
    let nowhere = Destination::File("/no/such/folder/a.ipfix".into());
    let error = Exporter::start(&nowhere, quick()).expect_err("there is no such folder");
    assert!(error.to_string().contains("/no/such/folder/a.ipfix"), "{error}");
}
