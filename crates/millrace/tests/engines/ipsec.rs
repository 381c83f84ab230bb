//! Tunnels from one gateway to the other: what went in comes out; what was changed, copied or held back on the way doesn't. tshark,
//! given the keys, reads what we sealed.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;

use engine::{EngineKind, Options, private_instance};
use functions::ipsec::Ipsec;
use lab::conformance::{Plan, verify};
use nf::{NetworkFunction, Reason};
use packet::{Headers, LinkType, Nanos, Network, TcpFlags};
use port::{Batch, Fate};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::{Build, Frames};

const KEYS: [&str; 2] = [
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223",
    "f00102030405060708090a0b0c0d0e0f10111213",
];

/// One of two gateways, between 10.1/16 and 10.2/16 (and the same of IPv6), whose tunnel is of the family that is asked for.
fn gateway(west: bool, outer_v6: bool, more: &str) -> Ipsec {
    let ends = if outer_v6 { ["2001:db8:f::1", "2001:db8:f::2"] } else { ["192.0.2.1", "198.51.100.1"] };
    let nets = ["[\"10.1.0.0/16\", \"2001:db8:1::/48\"]", "[\"10.2.0.0/16\", \"2001:db8:2::/48\"]"];
    let ([here, there], spis) = if west { ([0, 1], [4097, 8193]) } else { ([1, 0], [8193, 4097]) };
    let text = format!(
        "{more}\n[[tunnels]]\nlocal = {:?}\npeer = {:?}\ninside = {}\nbeyond = {}\nspi_out = {}\nkey_out = {:?}\nspi_in = {}\n\
         key_in = {:?}\n",
        ends[here], ends[there], nets[here], nets[there], spis[0], KEYS[here], spis[1], KEYS[there]
    );
    Ipsec::new(toml::from_str(&text).expect("it is a configuration"))
}

/// What a gateway makes of each frame: another, or the reason why not.
fn through(gateway: &Ipsec, frames: &[Vec<u8>]) -> Vec<Result<Vec<u8>, &'static str>> {
    let options = Options { pin: false, ..Options::default() };
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(gateway.clone()), 1, &options);
    let mut all = Frames::default();
    frames.iter().zip(1..).for_each(|(frame, at)| all.push(Nanos(at), frame));
    let trace = all.trace();
    let (mut out, mut dropped) = (Vec::new(), instance.counters().dropped);
    for (packet, bytes) in trace.iter() {
        let mut batch = Batch::default();
        batch.push(*packet, bytes);
        instance.workers[0].process(&mut batch);
        let now = instance.counters();
        let reason = (0..Reason::COUNT).find(|reason| now.dropped[*reason] > dropped[*reason]);
        dropped = now.dropped;
        out.push(match (batch.packets()[0].fate, reason) {
            (Fate::Transmit(_), None) => {
                assert_eq!(batch.packets()[0].wire_len as usize, batch.bytes(0).len());
                Ok(batch.bytes(0).to_vec())
            }
            (Fate::Drop(number), Some(reason)) if usize::from(number) == reason => {
                Err(Reason(reason as u8).name(Ipsec::DESCRIPTION.drop_reasons))
            }
            other => panic!("{other:?}"),
        });
    }
    assert!(instance.counters().add_up());
    out
}

fn parsed(frame: &[u8]) -> Headers {
    packet::parse(LinkType::Ethernet, frame, frame.len() as u32, 0).expect("it is whole")
}

/// Some packet from 10.1/16 to 10.2/16 or the other way around.
fn packets() -> impl Strategy<Value = Build> {
    let payload = prop_oneof![vec(any::<u8>(), 0..80), vec(any::<u8>(), 1300..1500)];
    (0..2_u8, any::<bool>(), 1..250_u8, payload, any::<bool>()).prop_map(|(kind, v6, host, payload, west)| {
        let name = |net: u8, port: u16| match v6 {
            true => format!("[2001:db8:{net}::{host:x}]:{port}"),
            false => format!("10.{net}.0.{host}:{port}"),
        };
        let (from, to) = if west { (name(1, 4000), name(2, 80)) } else { (name(2, 80), name(1, 4000)) };
        match kind {
            0 => Build::tcp(&*from, &*to).flags(TcpFlags::ACK.with(TcpFlags::PSH)).data(&payload),
            _ => Build::udp(&*from, &*to).data(&payload),
        }
    })
}

/// The frame as two gateways leave it: two hops less, its checksum right.
fn two_hops_on(frame: &[u8]) -> Vec<u8> {
    let headers = parsed(frame);
    let mut frame = frame.to_vec();
    let once = packet::Rewrite { decrement_ttl: true, ..packet::Rewrite::NONE };
    once.apply(&mut frame, &headers);
    once.apply(&mut frame, &headers);
    // Padding that Ethernet asked for doesn't go through a tunnel.
    frame.truncate(usize::from(headers.payload_offset) + headers.payload_len as usize);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_into_a_tunnel_comes_out_of_it(builds in vec(packets(), 1..40), outer_v6: bool, vlan: bool) {
        let (west, east) = (gateway(true, outer_v6, ""), gateway(false, outer_v6, ""));
        let tagged = |build: &Build| if vlan { build.clone().vlan(7) } else { build.clone() };
        let frames: Vec<_> = builds.iter().map(|build| tagged(build).bytes()).collect();
        let goes_west = |frame: &Vec<u8>| match parsed(frame).network {
            Network::V4(ip) => ip.src.octets()[1] == 2,
            Network::V6(ip) => ip.src.segments()[2] == 2,
            Network::None | Network::Unreadable | Network::Arp => false,
        };
        let (from_east, from_west): (Vec<_>, Vec<_>) = frames.into_iter().partition(goes_west);
        for (sender, receiver, frames) in [(&west, &east, from_west), (&east, &west, from_east)] {
            let sealed: Vec<_> = through(sender, &frames).into_iter().map(|made| made.expect("it is for the tunnel")).collect();
            let numbers: Vec<_> = sealed.iter().map(|frame| number_of(frame)).collect();
            prop_assert_eq!(numbers, (1..=frames.len() as u32).collect::<Vec<_>>());
            let opened = through(receiver, &sealed);
            for (opened, frame) in opened.into_iter().zip(&frames) {
                prop_assert_eq!(opened, Ok(two_hops_on(frame)));
            }
        }
    }

    /// Copies, delays and changed bytes: exactly what the window and the tag let through gets through.
    #[test]
    fn the_road_is_hostile(
        order in vec((0..120_usize, prop_oneof![8 => Just(None), 1 => (any::<prop::sample::Index>(), 0..8_u32).prop_map(Some)]), 1..300),
        window in prop_oneof![Just(1_u32), Just(32), Just(64), Just(256)],
    ) {
        let (west, east) = (gateway(true, false, ""), gateway(false, false, &format!("replay_window = {window}")));
        let frames: Vec<_> = (0..120).map(|n| Build::udp("10.1.0.1:1", "10.2.0.1:2").payload(n).bytes()).collect();
        let sealed: Vec<_> = through(&west, &frames).into_iter().map(|made| made.expect("it is for the tunnel")).collect();
        let mut road = Vec::new();
        let (mut expected, mut come, mut top) = (Vec::new(), HashSet::new(), 0);
        for (nth, harm) in order {
            let (mut frame, number) = (sealed[nth].clone(), nth as u32 + 1);
            if let Some((at, bit)) = harm {
                // Behind the index, which would be another's: what a changed number is worth the tag tells.
                let esp = usize::from(parsed(&frame).payload_offset) + 4;
                let at = esp + at.index(frame.len() - esp);
                frame[at] ^= 1_u8 << bit;
                expected.push(Err("forged"));
            } else if number + window <= top || !come.insert(number) {
                expected.push(Err("replayed"));
            } else {
                top = top.max(number);
                expected.push(Ok(two_hops_on(&frames[nth])));
            }
            road.push(frame);
        }
        prop_assert_eq!(through(&east, &road), expected);
    }
}

fn number_of(frame: &[u8]) -> u32 {
    let esp = parsed(frame).payload(frame);
    u32::from_be_bytes(*esp[4..].first_chunk().expect("it has a number"))
}

#[test]
fn what_is_for_no_tunnel_is_dropped_for_its_reason() {
    let west = gateway(true, false, "mtu = 1000");
    let dropped = |frame: Vec<u8>| through(&west, &[frame])[0].clone().expect_err("it is dropped");
    assert_eq!(dropped(Build::udp("10.1.0.1:1", "10.3.0.1:1").bytes()), "no-policy");
    assert_eq!(dropped(Build::udp("10.2.0.1:1", "10.1.0.1:1").bytes()), "no-policy", "from beyond, not sealed");
    assert_eq!(dropped(Build::udp("10.1.0.1:1", "10.2.0.1:1").payload(1_000).bytes()), "too-big");
    let mut last_hop = Build::udp("10.1.0.1:1", "10.2.0.1:1").bytes();
    last_hop[14 + 8] = 1;
    assert_eq!(dropped(last_hop), "ttl-exceeded");
    let esp = |from: &str, spi: u32| {
        let data = [&spi.to_be_bytes()[..], &[0; 60]].concat();
        Build::ip(from, "192.0.2.1:0", 50).data(&data)
    };
    assert_eq!(dropped(esp("198.51.100.1:0", 1).bytes()), "unknown-spi");
    assert_eq!(dropped(esp("198.51.100.1:0", 8193).bytes()), "forged");
    assert_eq!(dropped(esp("198.51.100.9:0", 8193).bytes()), "no-policy", "nobody that we know");
    assert_eq!(dropped(esp("198.51.100.1:0", 8193).fragment(0, true).bytes()), "fragment");

    // Sealed rightly, by a peer that sends what isn't from its side.
    let east = gateway(false, false, "");
    let strange = through(&gateway(true, false, ""), &[Build::udp("10.1.0.1:1", "10.2.0.1:1").bytes()]);
    let strange = strange[0].clone().expect("it is sealed");
    let narrow = toml::from_str(&format!(
        "[[tunnels]]\nlocal = \"198.51.100.1\"\npeer = \"192.0.2.1\"\ninside = [\"10.9.0.0/16\"]\nbeyond = [\"10.1.0.0/16\"]\n\
         spi_out = 8193\nkey_out = {:?}\nspi_in = 4097\nkey_in = {:?}\n",
        KEYS[1], KEYS[0]
    ));
    let narrow = Ipsec::new(narrow.expect("it is a configuration"));
    assert_eq!(through(&narrow, std::slice::from_ref(&strange)), [Err("wrong-selector")]);
    // A mark of congestion on the way: taken over where it can be.
    let mark = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        frame[15] |= 3;
        frame
    };
    assert_eq!(through(&east, &[mark(&strange)]), [Err("congestion-unmarkable")]);
    let mut able = Build::udp("10.1.0.1:1", "10.2.0.1:1").bytes();
    able[15] |= 2;
    let sealed = through(&gateway(true, false, ""), &[able]).remove(0).expect("it is sealed");
    assert_eq!(sealed[15] & 3, 2, "as inside");
    let opened = through(&east, &[mark(&sealed)]).remove(0).expect("it is opened");
    assert_eq!(opened[15] & 3, 3);
}

/// Both ways through one gateway, with copies and forgeries among what comes: the same bytes and states under every engine.
#[test]
fn every_engine_seals_and_opens_alike() {
    let (west, east) = (gateway(true, true, ""), gateway(false, true, "replay_window = 8"));
    let to_east: Vec<_> = (0..300).map(|n| Build::udp("10.1.0.1:1", "10.2.0.1:2").payload(n).bytes()).collect();
    let sealed: Vec<_> = through(&west, &to_east).into_iter().map(|made| made.expect("it is sealed")).collect();
    let mut frames = Frames::default();
    let mut clock = 0;
    let mut push = |bytes: &[u8]| {
        clock += 1_000;
        frames.push(Nanos(clock), bytes);
    };
    for (nth, frame) in sealed.iter().enumerate() {
        push(frame);
        push(&Build::tcp("10.2.0.7:80", &*format!("10.1.0.9:{}", 1_000 + nth)).payload(nth).bytes());
        match nth % 7 {
            3 => push(&sealed[nth.saturating_sub(nth % 20)]),
            5 => {
                let mut forged = frame.clone();
                *forged.last_mut().expect("it has a tag") ^= 1;
                push(&forged);
            }
            _ => {}
        }
    }
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..6,
        threads: true,
        options: Options::default(),
    };
    let verified = verify(&Arc::new(east), &frames.trace(), &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None);
    assert!(verified.refused.is_empty() && verified.runs > 100, "{verified:?}");
}

#[test]
fn tshark_reads_what_was_sealed() {
    let builds: Vec<_> = (0..20_usize)
        .map(|n| Build::tcp("10.1.0.5:4000", "10.2.0.6:8080").seq(100 * n as u32).ack(7).payload(10 * n))
        .collect();
    for outer_v6 in [false, true] {
        let frames: Vec<_> = builds.iter().map(Build::bytes).collect();
        let sealed = through(&gateway(true, outer_v6, ""), &frames);
        let mut capture = Frames::default();
        for (frame, at) in sealed.iter().zip(1..) {
            capture.push(Nanos(at), frame.as_ref().expect("it is sealed"));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sealed.pcap");
        let trace = capture.trace();
        let mut writer = port::pcap::Writer::create(&path, None, None).expect("a file");
        trace.iter().for_each(|(packet, bytes)| writer.write(packet, bytes).expect("it is written"));
        writer.finish().expect("it is finished");

        let key = KEYS[0];
        let family = if outer_v6 { "IPv6" } else { "IPv4" };
        let association = format!(
            "uat:esp_sa:\"{family}\",\"*\",\"*\",\"*\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\""
        );
        let output = Command::new("tshark")
            .args(["-n", "-r"])
            .arg(&path)
            .args(["-o", "esp.enable_encryption_decode:TRUE", "-o", &association, "-T", "fields", "-E", "separator=|"])
            .args([
                "-e",
                "esp.sequence",
                "-e",
                "tcp.seq_raw",
                "-e",
                "tcp.len",
                "-e",
                "tcp.dstport",
                "-o",
                "ip.check_checksum:TRUE",
            ])
            .args(["-e", "ip.checksum.status"])
            .output()
            .expect("tshark is among the packages that the check installs");
        let text = String::from_utf8(output.stdout).expect("fields are text");
        let expected: Vec<_> = (0..20)
            .map(|n| {
                let good = if outer_v6 { "1" } else { "1,1" };
                format!("{}|{}|{}|8080|{good}", n + 1, 100 * n, 10 * n)
            })
            .collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{errors}");
    }
}
