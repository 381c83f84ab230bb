//! Observers see what passes through a port.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use millrace_watch::{DropSample, Latency, TopFlows, Traces};
use packet::{LinkType, Nanos, Seq, parse};
use port::pcap::{Container, Reader, Writer};
use port::{Batch, Fate, Packet, Watch};

/// A UDP packet from a host to another, with this source port and length.
fn frame(port: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[12] = 0x08;
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    (bytes[22], bytes[23]) = (64, 17);
    bytes[26..30].copy_from_slice(&[10, 0, 0, 1]);
    bytes[30..34].copy_from_slice(&[10, 0, 0, 2]);
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    bytes[36..38].copy_from_slice(&53_u16.to_be_bytes());
    bytes[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
    bytes
}

/// A batch of these packets, numbered from `first`.
fn batch(first: u64, packets: &[(Vec<u8>, Fate)]) -> Batch {
    let mut batch = Batch::default();
    for (number, (bytes, fate)) in packets.iter().enumerate() {
        let packet = Packet {
            seq: Seq(first + number as u64),
            time: Nanos(first + number as u64),
            offset: 0,
            len: 0,
            wire_len: bytes.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: *fate,
        };
        batch.push(packet, bytes);
    }
    batch
}

fn burst(first: u64, packets: usize, fate: Fate) -> Batch {
    batch(first, &vec![(frame(1, 60), fate); packets])
}

const SENT: Fate = Fate::Transmit(1);

#[test]
fn each_packet_is_measured_from_its_own_burst() {
    let latency = Latency::new(1, 1);
    latency.received(0, &burst(0, 4, Fate::Pending));
    let between = Instant::now();
    while between.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    latency.received(0, &burst(4, 4, Fate::Pending));
    // Both bursts go out in one batch, without the packet 5, and one of them is dropped.
    let mut both = burst(0, 8, SENT);
    both.packets_mut()[7].fate = Fate::Drop(2);
    both.retain(|packet| packet.seq != Seq(5));
    latency.decided(0, &both);
    let quantiles = latency.quantiles();
    assert_eq!(quantiles.packets, 6);
    assert!(quantiles.worst >= Duration::from_millis(20), "{quantiles:?}");
    assert!(quantiles.p50 >= Duration::from_millis(19), "4 of 6 waited: {quantiles:?}");
    assert!(quantiles.sum >= Duration::from_millis(80) && quantiles.sum <= quantiles.worst * 6, "{quantiles:?}");
    // A burst whose packets were all lost doesn't stand in the way.
    latency.received(0, &burst(8, 2, Fate::Pending));
    latency.received(0, &burst(10, 2, Fate::Pending));
    latency.decided(0, &burst(10, 2, SENT));
    assert_eq!(latency.quantiles().packets, 8);
    latency.decided(0, &burst(12, 2, SENT));
    assert_eq!(latency.quantiles().packets, 8, "nobody saw these come");
}

#[test]
fn one_burst_of_several_is_measured() {
    let latency = Latency::new(1, 4);
    for number in 0..16 {
        latency.received(0, &burst(number * 10, 10, Fate::Pending));
        latency.decided(0, &burst(number * 10, 10, SENT));
    }
    assert_eq!(latency.quantiles().packets, 40);
}

#[test]
fn large_flows_come_first_with_rates_near_the_truth() {
    let top = TopFlows::new(2);
    // Somebody looks: from now on every packet counts.
    assert!(top.take(2).is_empty());
    let begun = Instant::now();
    let mut bytes = 0;
    for round in 0..4000_u64 {
        // Of 16 packets, 10 are of port 7, 5 of port 8, one of another each time.
        let port = |at: u64| {
            if at < 10 {
                7
            } else if at < 15 {
                8
            } else {
                1000 + round as u16
            }
        };
        let packets: Vec<_> = (0..16).map(|at| (frame(port(at), 100), Fate::Pending)).collect();
        bytes += 1000;
        top.received((round % 2) as usize, &batch(round * 16, &packets));
    }
    thread::sleep(Duration::from_millis(20));
    let seconds = begun.elapsed().as_secs_f64();
    let flows = top.take(2);
    let ports: Vec<u16> = flows.iter().map(|top| top.flow.source().port.min(top.flow.destination().port)).collect();
    assert_eq!(flows.len(), 2);
    assert_eq!(ports, [7, 8]);
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    assert!(flows.iter().all(|top| [top.flow.source().address, top.flow.destination().address].contains(&address)));
    let told = flows[0].bytes * seconds;
    assert!((told / f64::from(bytes) - 1.0).abs() < 0.05, "{told} of {bytes}");
    let share = flows[0].bytes / flows[1].bytes;
    assert!((1.6..2.5).contains(&share), "twice as large: {share}");
    // A look in between sees that packets come fast.
    for round in 0..4000_u64 {
        top.received((round % 2) as usize, &burst(round * 16, 16, Fate::Pending));
    }
    let _ = top.take(2);
    // At this rate one packet of 16 is looked at, and the rates come out the same.
    let begun = Instant::now();
    let packets: Vec<_> = (0..16).map(|at| (frame(if at < 10 { 7 } else { 8 }, 100), Fate::Pending)).collect();
    for round in 0..4000_u64 {
        top.received((round % 2) as usize, &batch(round * 16, &packets));
    }
    thread::sleep(Duration::from_millis(20));
    let seconds = begun.elapsed().as_secs_f64();
    let flows = top.take(2);
    let told = flows[0].bytes * seconds;
    assert!((told / f64::from(bytes) - 1.0).abs() < 0.3, "{told} of {bytes}");
}

#[test]
fn dropped_packets_come_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dropped.pcapng");
    let writer = Writer::create(&path, Some(Container::PcapNg), None).unwrap();
    let sample = DropSample::new(writer, |reason| if reason == 2 { "no-room" } else { "other" });
    let fate = |number: u64| if number.is_multiple_of(2) { Fate::Drop(2) } else { SENT };
    let packets: Vec<_> = (0..100).map(|number| (frame(number as u16, 60), fate(number))).collect();
    sample.decided(0, &batch(0, &packets));
    let ended = sample.finish().unwrap();
    assert_eq!((ended.written, ended.left_out), (u64::from(DropSample::PER_SECOND), 40));
    let mut reader = Reader::open(&path).unwrap();
    let mut read = Batch::default();
    let _ = reader.read(&mut read).unwrap();
    let times: Vec<u64> = read.packets().iter().map(|packet| packet.time.0).collect();
    assert_eq!(times, (0..10).map(|number| number * 2).collect::<Vec<_>>());
    let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
    assert_eq!(text.matches("no-room").count(), 10);
}

#[test]
fn a_full_disk_ends_the_sample_and_not_the_run() {
    let writer = Writer::create("/dev/full", Some(Container::PcapNg), None).unwrap();
    let sample = DropSample::new(writer, |_| "no-room");
    for second in 0..3 {
        sample.decided(0, &burst(second * 100, 100, Fate::Drop(1)));
    }
    let error = sample.finish().unwrap_err().to_string();
    assert!(error.contains("/dev/full"), "{error}");
    assert_eq!(sample.trouble(), Some(&*error));
}

#[test]
fn a_trace_has_what_was_asked_for_with_its_fate() {
    let traces = Traces::default();
    assert!(traces.take().is_none());
    traces.received(0, &burst(0, 4, Fate::Pending));
    let fits = |packet: &Packet, bytes: &[u8]| {
        parse(packet.link, bytes, packet.wire_len, 0).is_ok_and(|headers| headers.ports().0 == 9)
    };
    traces.begin(Box::new(fits), 3);
    let ports = [9, 1, 9, 9, 9].map(|port| (frame(port, 60), Fate::Pending));
    traces.received(0, &batch(10, &ports));
    let mut gone = batch(10, &ports);
    gone.packets_mut().iter_mut().for_each(|packet| packet.fate = SENT);
    gone.packets_mut()[2].fate = Fate::Drop(4);
    traces.decided(1, &gone);
    let taken = traces.take().unwrap();
    assert!(taken.packets.is_empty(), "another queue's packets have the same numbers");
    assert_eq!(taken.left_out, 1, "4 fit");
    traces.decided(0, &gone);
    let taken = traces.take().unwrap();
    assert_eq!(taken.left_out, 0, "they were told before");
    let traced = taken.packets;
    let seen: Vec<_> = traced.iter().map(|traced| (traced.packet.seq.0, traced.packet.fate)).collect();
    assert_eq!(seen, [(10, SENT), (12, Fate::Drop(4)), (13, SENT)], "at most 3");
    assert_eq!(traced[0].bytes, ports[0].0);
    traces.end();
    traces.received(0, &batch(20, &ports));
    assert!(traces.take().is_none());
}
