//! Any packets and any records: counters add up, memory is bounded, and an independent decoder reads what was encoded.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::{Decoder, expected};
use millrace_ipfix::{
    Direction, Encoder, EncoderOptions, EndReason, FlowRecord, Meter, MeterOptions, Side, Statistics,
};
use packet::{Endpoint, LinkType, Nanos, Seq, TcpFlags};
use port::{Fate, Packet};
use proptest::collection::vec;
use proptest::prelude::*;
use synth::Build;

/// A packet in the making: kind, addresses, port, flags, and the milliseconds since the one before.
type Choice = (u8, u8, u8, u8, u8, u64);

fn frame(&(kind, a, b, port, flags, _): &Choice) -> Vec<u8> {
    let v4 = |host: u8, port: u8| Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host % 4)), u16::from(port % 3));
    let v6 = |host: u8| {
        Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(host % 4))), u16::from(port % 3))
    };
    match kind % 8 {
        0..=2 => Build::tcp(v4(a, port), v4(b, port / 3)).flags(TcpFlags(flags)).seq(u32::from(port)).bytes(),
        3 => Build::udp(v4(a, port), v4(b, port / 3)).payload(flags.into()).vlan(7).bytes(),
        4 => Build::udp(v6(a), v6(b)).payload(flags.into()).bytes(),
        5 => Build::icmp(v4(a, 0), v4(b, 0), flags % 20, port % 4, [0, a % 2, 0, 0]).bytes(),
        6 => Build::udp(v4(a, port), v4(b, port)).payload(64).fragment(if flags > 99 { 8 } else { 0 }, true).bytes(),
        _ if flags > 128 => Build::arp(),
        _ => Build::tcp(v4(a, port), v4(b, port)).bytes()[..usize::from(flags % 54)].to_vec(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// After each packet, and at the end, what came in is what is in records, in the cache, or ignored.
    #[test]
    fn counters_add_up(
        choices in vec((any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), 0..3000_u64), 1..400),
        flows in 0..20_usize,
        timeouts in (1..5000_u64, 1..9000_u64, 1..3000_u64),
        seed: u64,
    ) {
        let options = MeterOptions {
            flows,
            idle_timeout: Nanos::from_millis(timeouts.0),
            active_timeout: Nanos::from_millis(timeouts.1),
            closed_timeout: Nanos::from_millis(timeouts.2),
            seed,
        };
        let mut meter = Meter::new(options);
        let memory = meter.memory_bytes();
        let mut records: Vec<FlowRecord> = Vec::new();
        let (mut now, mut octets) = (Nanos(0), 0);
        for (number, choice) in choices.iter().enumerate() {
            now = now + Nanos::from_millis(choice.5);
            let bytes = frame(choice);
            let len = bytes.len() as u32;
            let packet = Packet {
                seq: Seq(number as u64), time: now, offset: 0, len, wire_len: len, interface: 0,
                link: LinkType::Ethernet, bucket: 0, fate: Fate::Pending,
            };
            let before = records.len();
            if meter.packet(&packet, &bytes, |record| records.push(*record)) {
                let headers = packet::parse(LinkType::Ethernet, &bytes, len, 0).expect("it was counted");
                octets += match headers.network {
                    packet::Network::V4(ip) => u64::from(ip.total_len),
                    packet::Network::V6(ip) => 40 + u64::from(ip.payload_len),
                    _ => unreachable!("it was counted"),
                };
            }
            prop_assert!(records.len() - before <= 4, "a packet ends a bounded number of records");
            if choice.4 % 16 == 0 {
                meter.poll(now, |record| records.push(*record));
            }
            let counts = meter.counts();
            let recorded: u64 = records.iter().map(FlowRecord::packets).sum();
            prop_assert_eq!(counts.packets, number as u64 + 1);
            prop_assert_eq!(counts.recorded_packets, recorded);
            prop_assert_eq!(counts.ended(), records.len() as u64);
            prop_assert_eq!(counts.flows, counts.ended() + counts.cached);
            prop_assert!(counts.cached <= flows as u64);
            prop_assert!(counts.cached <= counts.packets - counts.ignored() - recorded, "each record has a packet");
            prop_assert_eq!(meter.memory_bytes(), memory);
        }
        meter.end_all(|record| records.push(*record));
        let counts = meter.counts();
        let recorded: u64 = records.iter().map(FlowRecord::packets).sum();
        prop_assert_eq!((counts.packets, counts.cached), (recorded + counts.not_ip + counts.malformed, 0));
        prop_assert_eq!(counts.flows, records.len() as u64);
        prop_assert_eq!(records.iter().map(FlowRecord::octets).sum::<u64>(), octets);
        for record in &records {
            prop_assert!(record.forward.packets > 0 && record.forward.first <= record.forward.last);
        }
    }

    /// However long messages may be, and wherever they are cut, the decoder has the same records in the same order.
    #[test]
    fn a_decoder_reads_the_same_records(
        records in vec(record(), 0..120),
        message_len_max in 512..3000_usize,
        cuts in vec(any::<bool>(), 120),
        domain: u32,
    ) {
        let options = EncoderOptions { domain, message_len_max, ..EncoderOptions::default() };
        let mut encoder = Encoder::new(options).expect("the length is in range");
        let mut decoder = Decoder::default();
        let statistics = Statistics { messages: 3, exported: 5, ignored_packets: 7, ..Statistics::default() };
        let mut flows = 0;
        let mut take = |encoder: &mut Encoder| {
            encoder.take(9, |message| {
                assert!(message.bytes.len() <= message_len_max);
                decoder.message(message.bytes, domain);
                flows += message.content.flows;
                assert_eq!(decoder.flows.len() as u64, flows);
            });
        };
        for number in 0..encoder.templates() {
            if !encoder.add_template(number) {
                take(&mut encoder);
                assert!(encoder.add_template(number));
            }
        }
        for (record, cut) in records.iter().zip(cuts) {
            if !encoder.add_record(record) {
                take(&mut encoder);
                assert!(encoder.add_record(record));
            }
            if cut {
                if !encoder.add_statistics(&statistics) {
                    take(&mut encoder);
                    assert!(encoder.add_statistics(&statistics));
                }
                take(&mut encoder);
            }
        }
        take(&mut encoder);
        prop_assert!(encoder.is_empty());
        let found: Vec<_> = decoder.flows.iter().collect();
        let wanted: Vec<_> = records.iter().map(expected).collect();
        prop_assert_eq!(found, wanted.iter().collect::<Vec<_>>());
        for fields in &decoder.statistics {
            let values = [149, 41, 42, 164, 166, 167, 168].map(|element| common::number(fields, 0, element));
            prop_assert_eq!(values, [domain.into(), 3, 5, 7, 0, 0, 0].map(Some));
        }
    }
}

fn record() -> impl Strategy<Value = FlowRecord> {
    let ends = (any::<bool>(), any::<[u128; 2]>(), any::<[u16; 2]>());
    let kinds = (
        prop_oneof![Just(6_u8), Just(17), Just(132), Just(1), Just(58), any::<u8>()],
        any::<u16>(),
        0..3_usize,
        0..5_usize,
    );
    (ends, kinds, side(1), prop_oneof![Just(Side::default()).boxed(), side(1).boxed()]).prop_map(
        |((is_v6, addresses, ports), (protocol, vlan, direction, reason), forward, reverse)| {
            let has_ports = [6, 17, 132].contains(&protocol);
            let end = |number: usize| {
                let address = match is_v6 {
                    true => IpAddr::V6(Ipv6Addr::from_bits(addresses[number])),
                    false => IpAddr::V4(Ipv4Addr::from_bits(addresses[number] as u32)),
                };
                Endpoint::new(address, if has_ports { ports[number] } else { 0 })
            };
            FlowRecord {
                source: end(0),
                destination: end(1),
                protocol,
                vlan,
                direction: [Direction::Arbitrary, Direction::Initiator, Direction::ReverseInitiator][direction],
                reason: EndReason::ALL[reason],
                forward,
                reverse,
            }
        },
    )
}

fn side(packets_min: u64) -> impl Strategy<Value = Side> {
    (packets_min << 8..u64::MAX, any::<[u64; 3]>(), any::<u16>(), any::<Option<u16>>(), any::<[u8; 2]>()).prop_map(
        |(packets, [first, last, octets], interface, icmp, [tcp_flags, class])| Side {
            first: Nanos(first),
            last: Nanos(last),
            packets: packets >> 8,
            octets: octets >> 8,
            interface,
            icmp,
            tcp_flags,
            class,
        },
    )
}
