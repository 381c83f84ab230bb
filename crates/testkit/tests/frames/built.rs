//! Built frames have the requested content, according to tshark and our own parser.

use millrace_testkit::{Build, Frames};
use packet::{Fragment, LinkType, Nanos, TcpFlags, Transport, protocol};

use super::tshark::tshark;

const V4: (&str, &str) = ("192.0.2.1:40000", "198.51.100.2:443");
const V6: (&str, &str) = ("[2001:db8::1]:40000", "[2001:db8::2]:443");

/// Builds one frame of each kind for a pair of hosts.
fn kinds((src, dst): (&str, &str)) -> Vec<Build> {
    let syn = Build::tcp(src, dst).flags(TcpFlags::SYN).seq(7).mss(1460).sack_permitted().window_scale(7);
    let quoted = Build::udp(dst, src).payload(30).datagram();
    let (unreachable, bare) = if src.starts_with('[') { (1, 0) } else { (3, 1) };
    let mut kinds = vec![
        syn.clone(),
        syn.clone().vlan(5),
        syn.service_vlan(6).vlan(7),
        Build::tcp(src, dst).seq(8).ack(u32::MAX).payload(1).ttl(3).tos(0xb8),
        Build::tcp(src, dst).ack(9).sack(&[(100, 200), (300, 400)]).payload(999),
        Build::udp(src, dst),
        Build::udp(src, dst).payload(77).pad_to(200),
        Build::udp(src, dst).frame_len(128),
        Build::echo(src, dst, 77, 1).payload(56),
        Build::echo_reply(src, dst, 77, 1).payload(55),
        Build::icmp_error(src, dst, unreachable, bare, &quoted),
    ];
    if src.starts_with('[') {
        kinds.push(Build::tcp(src, dst).extension(0, &[1, 4, 0, 0, 0, 0]).extension(60, &[1, 4]).payload(20));
    } else {
        kinds.push(Build::tcp(src, dst).ip_options(&[0x94, 4, 0, 0, 1]).payload(20));
    }
    kinds
}

fn trace(link: LinkType) -> Frames {
    let mut frames = Frames::new(link);
    for build in kinds(V4).into_iter().chain(kinds(V6)) {
        frames.build(Nanos(0), &build.link(link));
    }
    frames
}

#[test]
fn tshark_finds_every_checksum_good() {
    let statuses = ["ip", "tcp", "udp", "icmp", "icmpv6"].map(|protocol| format!("{protocol}.checksum.status"));
    let mut fields: Vec<&str> = statuses.iter().map(String::as_str).collect();
    fields.extend(["_ws.malformed", "frame.protocols"]);
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::Null, LinkType::LinuxSll, LinkType::LinuxSll2] {
        let frames = trace(link);
        let Some(rows) = tshark(&frames, &[], &fields) else { return };
        assert_eq!(rows.len(), frames.len());
        for row in rows {
            assert_eq!(row[5], "", "{link}: malformed: {row:?}");
            assert!(row[..5].concat().contains('1'), "{link}: none checked: {row:?}");
            // 1 is good, 2 unverified and 3 not present, as in quoted packets.
            assert!(row[..5].iter().all(|status| !status.contains('0')), "{link}: {row:?}");
        }
    }
}

#[test]
fn tshark_finds_spoiled_checksums() {
    let mut frames = Frames::default();
    for (src, dst) in [V4, V6] {
        frames.build(Nanos(0), &Build::tcp(src, dst).payload(3).spoiled());
        frames.build(Nanos(0), &Build::udp(src, dst).payload(3).spoiled());
    }
    let Some(rows) = tshark(&frames, &[], &["tcp.checksum.status", "udp.checksum.status"]) else { return };
    let statuses: Vec<String> = rows.iter().map(|row| row.concat()).collect();
    assert_eq!(statuses, ["0", "0", "0", "0"]);
}

#[test]
fn tshark_puts_fragments_together() {
    let mut frames = Frames::default();
    for ((src, dst), id) in [(V4, 1), (V6, 2)] {
        for frame in Build::udp(src, dst).id(id).payload(4_000).fragments(1_280) {
            frames.push(Nanos(0), &frame);
        }
    }
    let Some(rows) = tshark(&frames, &[], &["udp.length", "udp.checksum.status"]) else { return };
    let whole: Vec<&Vec<String>> = rows.iter().filter(|row| !row[0].is_empty()).collect();
    assert_eq!(whole, [&["4008", "1"], &["4008", "1"]]);
}

#[test]
fn our_parser_reads_what_was_built() {
    for (src, dst) in [V4, V6] {
        let build = Build::tcp(src, dst).flags(TcpFlags::SYN).seq(7).mss(1460).window_scale(7).vlan(12);
        let headers = build.headers();
        assert_eq!((headers.vlans.count, headers.vlans.ids[0]), (1, 12));
        let Transport::Tcp(tcp) = headers.transport else { panic!("{headers:?}") };
        assert_eq!((tcp.src_port, tcp.dst_port, tcp.seq, tcp.flags), (40_000, 443, 7, TcpFlags::SYN));
        assert_eq!((tcp.options.mss, tcp.options.window_scale), (Some(1460), Some(7)));
        let later = Build::udp(src, dst).fragment(1_480, true).payload(8).headers();
        assert_eq!(
            (later.fragment, later.transport, later.protocol),
            (Fragment::Later, Transport::None, protocol::UDP)
        );
        assert_eq!(Build::udp(src, dst).fragment(0, true).payload(8).headers().fragment, Fragment::First);
    }
    for link in
        [LinkType::Ethernet, LinkType::RawIp, LinkType::Null, LinkType::Loop, LinkType::LinuxSll, LinkType::LinuxSll2]
    {
        for (_, bytes) in trace(link).iter() {
            packet::parse(link, bytes, bytes.len() as u32, 0).expect("well-formed frames are built");
        }
    }
    let arp = Build::arp();
    assert_eq!(packet::parse(LinkType::Ethernet, &arp, arp.len() as u32, 0).unwrap().network, packet::Network::Arp);
}
