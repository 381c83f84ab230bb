use packet::{LinkType, Seq, TcpFlags, protocol};
use port::Fate;
use synth::Build;

use super::*;
use crate::record::Direction;

const A: &str = "10.0.0.1:1000";
const B: &str = "10.0.0.2:80";
const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const FIN: TcpFlags = TcpFlags(0x11);
const RST: TcpFlags = TcpFlags::RST;

/// A meter and the records that it has ended.
struct Fixture {
    meter: Meter,
    ended: Vec<FlowRecord>,
    packets: u64,
}

impl Fixture {
    fn new() -> Self {
        Self::with(MeterOptions { flows: 100, seed: 7, ..MeterOptions::default() })
    }

    fn with(options: MeterOptions) -> Self {
        Self { meter: Meter::new(options), ended: Vec::new(), packets: 0 }
    }

    fn frame(&mut self, secs: u64, bytes: &[u8]) -> bool {
        let len = bytes.len() as u32;
        let packet = Packet {
            seq: Seq(self.packets),
            time: Nanos::from_secs(secs),
            offset: 0,
            len,
            wire_len: len,
            interface: 3,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        self.packets += 1;
        self.meter.packet(&packet, bytes, |record| self.ended.push(*record))
    }

    fn see(&mut self, secs: u64, build: &Build) {
        assert!(self.frame(secs, &build.bytes()));
    }

    fn tcp(&mut self, secs: u64, from: &str, to: &str, flags: TcpFlags, seq: u32) {
        self.see(secs, &Build::tcp(from, to).flags(flags).seq(seq));
    }

    /// Ends what is due, until nothing more is.
    fn poll(&mut self, secs: u64) {
        while self.meter.poll(Nanos::from_secs(secs), |record| self.ended.push(*record)) {}
    }

    fn finish(mut self) -> Vec<FlowRecord> {
        self.meter.end_all(|record| self.ended.push(*record));
        let counts = self.meter.counts();
        assert_eq!((counts.packets, counts.cached), (self.packets, 0));
        assert_eq!(counts.flows, self.ended.len() as u64);
        let recorded: u64 = self.ended.iter().map(FlowRecord::packets).sum();
        assert_eq!(counts.packets, recorded + counts.ignored());
        self.ended
    }
}

/// Packets of both directions and the reason.
fn sum(record: &FlowRecord) -> (u64, u64, EndReason) {
    (record.forward.packets, record.reverse.packets, record.reason)
}

#[test]
fn both_directions_are_one_flow() {
    let mut fixture = Fixture::new();
    fixture.see(1, &Build::udp(B, A).payload(100).vlan(12));
    fixture.see(2, &Build::udp(A, B).payload(10));
    fixture.see(4, &Build::udp(B, A).payload(200));
    let records = fixture.finish();
    let [record] = records[..] else { panic!("{records:?}") };
    assert_eq!((record.source.to_string(), record.destination.to_string()), (B.to_owned(), A.to_owned()));
    assert_eq!((record.protocol, record.vlan, record.direction), (protocol::UDP, 12, Direction::Initiator));
    assert_eq!(sum(&record), (2, 1, EndReason::Forced));
    // IP and UDP headers take 28 bytes; the frame's header and tag don't count.
    assert_eq!((record.forward.octets, record.reverse.octets), (28 + 100 + 28 + 200, 28 + 10));
    assert_eq!((record.forward.first, record.forward.last), (Nanos::from_secs(1), Nanos::from_secs(4)));
    assert_eq!((record.reverse.first, record.reverse.last), (Nanos::from_secs(2), Nanos::from_secs(2)));
    assert_eq!(record.forward.interface, 3);
}

#[test]
fn silence_ends_a_flow() {
    let mut fixture = Fixture::new();
    fixture.see(1, &Build::udp(A, B));
    fixture.poll(60);
    assert!(fixture.ended.is_empty(), "a minute has not passed");
    fixture.poll(62);
    assert_eq!(fixture.ended.iter().map(sum).collect::<Vec<_>>(), [(1, 0, EndReason::Idle)]);

    // Without a poll the flow's next packet, or that of any flow, finds it.
    fixture.see(100, &Build::udp(A, B));
    fixture.see(170, &Build::udp(B, A));
    assert_eq!(fixture.ended.len(), 2);
    let records = fixture.finish();
    assert_eq!(records[2].source.to_string(), B, "the sender of the first packet");
}

#[test]
fn a_long_flow_is_reported_in_parts() {
    let options = MeterOptions { active_timeout: Nanos::from_secs(100), flows: 100, ..MeterOptions::default() };
    let mut fixture = Fixture::with(options);
    for secs in 0..10 {
        fixture.see(secs * 20, &Build::udp(A, B));
        // The answers come late enough for a part to begin with one.
        if secs < 4 || secs == 8 {
            fixture.see(secs * 20 + 1, &Build::udp(B, A));
        }
    }
    assert_eq!(fixture.ended.iter().map(sum).collect::<Vec<_>>(), [(5, 4, EndReason::Active)]);
    let records = fixture.finish();
    assert_eq!(records.iter().map(sum).collect::<Vec<_>>()[1..], [(5, 1, EndReason::Forced)]);
    assert!(records.iter().all(|record| record.source.to_string() == A));
}

#[test]
fn a_part_of_answers_alone_is_exchanged() {
    let options = MeterOptions { active_timeout: Nanos::from_secs(10), flows: 100, ..MeterOptions::default() };
    let mut fixture = Fixture::with(options);
    fixture.see(0, &Build::udp(A, B));
    fixture.poll(11);
    fixture.see(12, &Build::udp(B, A));
    fixture.see(13, &Build::udp(B, A));
    let records = fixture.finish();
    assert_eq!(records.iter().map(sum).collect::<Vec<_>>(), [(1, 0, EndReason::Active), (2, 0, EndReason::Forced)]);
    assert_eq!((records[0].source.to_string(), records[0].direction), (A.to_owned(), Direction::Initiator));
    assert_eq!((records[1].source.to_string(), records[1].direction), (B.to_owned(), Direction::ReverseInitiator));
}

/// A flow that was reported and then sent nothing is no record, and its next packet opens a flow.
#[test]
fn silence_after_a_report_is_no_record() {
    let options = MeterOptions { active_timeout: Nanos::from_secs(10), flows: 100, ..MeterOptions::default() };
    let mut fixture = Fixture::with(options);
    fixture.see(0, &Build::udp(A, B));
    fixture.poll(11);
    assert_eq!(fixture.meter.counts().cached, 0);
    fixture.poll(100);
    fixture.see(200, &Build::udp(B, A));
    let records = fixture.finish();
    assert_eq!(records.iter().map(sum).collect::<Vec<_>>(), [(1, 0, EndReason::Active), (1, 0, EndReason::Forced)]);
    assert_eq!((records[1].source.to_string(), records[1].direction), (B.to_owned(), Direction::Initiator));
}

#[test]
fn a_closed_connection_ends_soon() {
    let mut fixture = Fixture::new();
    fixture.tcp(0, A, B, SYN, 1);
    fixture.tcp(0, B, A, SYN.with(ACK), 9);
    fixture.tcp(1, A, B, FIN, 2);
    fixture.poll(30);
    assert!(fixture.ended.is_empty(), "half closed");
    fixture.tcp(30, B, A, FIN, 10);
    fixture.tcp(31, A, B, ACK, 3);
    fixture.poll(37);
    let [record] = fixture.ended[..] else { panic!("{:?}", fixture.ended) };
    assert_eq!(sum(&record), (3, 2, EndReason::EndOfFlow));
    assert_eq!((record.forward.tcp_flags, record.reverse.tcp_flags), (0x13, 0x13));
    fixture.finish();
}

#[test]
fn a_syn_opens_a_closed_connection_anew() {
    let mut fixture = Fixture::new();
    fixture.tcp(0, A, B, SYN, 1);
    fixture.tcp(0, B, A, RST, 0);
    // The same SYN again asks for the same connection, another one for another.
    fixture.tcp(1, A, B, SYN, 1);
    fixture.tcp(1, B, A, RST, 0);
    assert!(fixture.ended.is_empty());
    fixture.tcp(2, A, B, SYN, 5000);
    assert_eq!(fixture.ended.iter().map(sum).collect::<Vec<_>>(), [(2, 2, EndReason::EndOfFlow)]);
    // An open connection is not opened again.
    fixture.tcp(3, A, B, SYN, 6000);
    assert_eq!(fixture.finish().iter().map(sum).collect::<Vec<_>>()[1..], [(2, 0, EndReason::Forced)]);
}

#[test]
fn the_opener_is_told_by_flags() {
    let mut fixture = Fixture::new();
    fixture.tcp(0, "10.0.0.9:1", B, SYN, 1);
    fixture.tcp(0, B, "10.0.0.9:2", SYN.with(ACK), 1);
    fixture.tcp(0, A, B, ACK, 1);
    let mut directions: Vec<_> = fixture.finish().iter().map(|record| record.direction).collect();
    directions.sort_unstable();
    assert_eq!(directions, [Direction::Arbitrary, Direction::Initiator, Direction::ReverseInitiator]);
}

#[test]
fn questions_of_icmp_meet_their_answers() {
    let mut fixture = Fixture::new();
    for (a, b) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
        for identifier in [5, 6] {
            fixture.see(0, &Build::echo(a, b, identifier, 1));
            fixture.see(0, &Build::echo_reply(b, a, identifier, 1));
        }
    }
    // Timestamps with the identifier of an echo are others; unreachables differ by code.
    fixture.see(1, &Build::icmp("10.0.0.1", "10.0.0.2", 13, 0, [0, 5, 0, 0]));
    fixture.see(1, &Build::icmp("10.0.0.2", "10.0.0.1", 14, 0, [0, 5, 0, 0]));
    for code in [1, 3] {
        fixture.see(2, &Build::icmp("10.0.0.1", "10.0.0.2", 3, code, [0; 4]));
    }
    let records = fixture.finish();
    assert_eq!(records.iter().filter(|record| record.reverse.packets == 1).count(), 5);
    assert_eq!(records.len(), 7);
    let of = |icmp| records.iter().find(|record| record.forward.icmp == Some(icmp)).expect("it is recorded");
    assert_eq!((of(8 << 8).reverse.icmp, of(8 << 8).source.port), (Some(0), 0));
    assert_eq!(of(128 << 8).reverse.icmp, Some(129 << 8));
    assert_eq!(of(13 << 8).reverse.icmp, Some(14 << 8));
    assert_eq!(of(3 << 8 | 3).reverse.packets, 0);
}

#[test]
fn later_fragments_count_by_addresses() {
    let mut fixture = Fixture::new();
    for port in ["10.0.0.2:53", "10.0.0.2:54"] {
        for fragment in Build::udp(A, port).payload(3000).fragments(1500) {
            assert!(fixture.frame(0, &fragment));
        }
    }
    let records = fixture.finish();
    let mut found: Vec<_> = records.iter().map(|record| (record.destination.port, record.packets())).collect();
    found.sort_unstable();
    // Three fragments each.
    assert_eq!(found, [(0, 4), (53, 1), (54, 1)]);
    assert!(records.iter().all(|record| record.protocol == protocol::UDP));
}

#[test]
fn what_is_not_ip_or_malformed_is_counted() {
    let mut fixture = Fixture::new();
    assert!(!fixture.frame(0, &Build::arp()));
    assert!(!fixture.frame(0, &Build::udp(A, B).bytes()[..20]));
    assert!(!fixture.frame(0, &[1; 5]));
    let counts = fixture.meter.counts();
    assert_eq!((counts.not_ip, counts.malformed, counts.ignored()), (1, 2, 3));
    assert!(fixture.finish().is_empty());
}

#[test]
fn mapped_addresses_are_not_ipv4() {
    let mut fixture = Fixture::new();
    fixture.see(0, &Build::udp("10.0.0.1:1", "10.0.0.2:2"));
    fixture.see(0, &Build::udp("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:2"));
    fixture.see(0, &Build::udp("[::a00:1]:1", "[::a00:2]:2"));
    let records = fixture.finish();
    assert_eq!(records.len(), 3);
    assert!(records.iter().any(|record| record.source.address.is_ipv4()));
    assert!(records.iter().any(|record| record.source.to_string() == "[::ffff:10.0.0.1]:1"));
}

/// Of a full cache the flow goes that has been silent the longest, among those looked at; a flow that speaks stays.
#[test]
fn a_full_cache_ends_silent_flows() {
    let long = Nanos::from_secs(10_000);
    let options = MeterOptions {
        flows: 64,
        seed: 7,
        idle_timeout: long,
        active_timeout: Nanos::NEVER,
        ..MeterOptions::default()
    };
    let mut fixture = Fixture::with(options);
    for number in 0..1000 {
        fixture.see(number, &Build::udp(A, B));
        let other = format!("10.1.{}.{}:7", number / 256, number % 256);
        fixture.see(number, &Build::udp(other.as_str(), B));
    }
    let evicted = fixture.meter.counts().ended_by_reason[EndReason::LackOfResources as usize - 1];
    assert_eq!(evicted, 1000 + 1 - 64);
    let records = fixture.finish();
    let of_a: Vec<_> = records.iter().filter(|record| record.source.to_string() == A).collect();
    assert_eq!(of_a.len(), 1, "a flow that speaks is not ended: {of_a:?}");
}

#[test]
fn a_cache_without_room_makes_every_packet_a_record() {
    let mut fixture = Fixture::with(MeterOptions { flows: 0, ..MeterOptions::default() });
    fixture.see(0, &Build::udp(A, B));
    fixture.see(0, &Build::udp(A, B));
    let records = fixture.finish();
    assert_eq!(records.iter().map(sum).collect::<Vec<_>>(), [(1, 0, EndReason::LackOfResources); 2]);
}

#[test]
fn counts_of_several_meters_are_added() {
    let (mut one, mut other) = (Fixture::new(), Fixture::new());
    one.see(0, &Build::udp(A, B));
    one.poll(100);
    other.see(0, &Build::udp(A, B));
    assert!(!other.frame(0, &Build::arp()) && !other.frame(0, &[1; 5]));
    let mut sum = one.meter.counts();
    sum.add(&other.meter.counts());
    let expected = MeterCounts {
        packets: 4,
        not_ip: 1,
        malformed: 1,
        recorded_packets: 1,
        flows: 2,
        ended_by_reason: [1, 0, 0, 0, 0],
        cached: 1,
    };
    assert_eq!(sum, expected);
}

#[test]
fn headers_and_frames_are_counted_alike() {
    let (mut by_frame, mut by_headers) = (Fixture::new(), Fixture::new());
    let builds = [
        Build::udp(A, B).payload(7),
        Build::tcp(A, B).flags(SYN).mss(1460),
        Build::tcp(A, B).vlan(9),
        Build::echo("2001:db8::1", "2001:db8::2", 1, 1),
        Build::ip("10.0.0.1", "10.0.0.2", 50),
    ];
    for build in &builds {
        by_frame.see(0, build);
        let bytes = build.bytes();
        let headers = packet::parse(LinkType::Ethernet, &bytes, bytes.len() as u32, 3).expect("it is well-formed");
        by_headers.packets += 1;
        assert!(by_headers.meter.observe(Nanos(0), Ok(&headers), |record| by_headers.ended.push(*record)));
    }
    assert_eq!(by_frame.finish(), by_headers.finish());
}

/// The memory that the options' documentation speaks of.
#[test]
fn the_default_cache_takes_as_much_memory_as_is_said() {
    let bytes = Meter::new(MeterOptions::default()).memory_bytes();
    assert!((46_000_000..50_000_000).contains(&bytes), "{bytes}");
}
