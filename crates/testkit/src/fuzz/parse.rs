//! Check of the parser: offsets are inside the frame, and rewritten packets parse as requested.

use std::net::IpAddr;
use std::num::NonZeroU16;

use packet::{
    Endpoint, FlowKey, Fragment, Headers, Host, ICMP_ERROR_GROWTH, ICMP_ERROR_MAX, IcmpError, LinkType, Macs, Network,
    Rewrite, RssFields, TcpFlags, TcpOptions, Transport, icmp_error, protocol, tcp_reset,
};

use crate::At;
use synth::{folded, sum};

/// All link types.
pub(super) const LINKS: [LinkType; 9] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::Null,
    LinkType::Loop,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Ipv4,
    LinkType::Ipv6,
    LinkType::Other(147),
];

const INTERFACE: u16 = 7;

/// Reads the input as a frame of every link type, whole and cut by the capture.
pub fn parse(bytes: &[u8]) {
    let len = bytes.len() as u32;
    for link in LINKS {
        for wire_len in [len, len + 40] {
            let Ok(headers) = packet::parse(link, bytes, wire_len, INTERFACE) else { continue };
            assert!(headers.wire_len == wire_len && headers.link == link && headers.interface == INTERFACE);
            in_bounds(&headers, bytes);
            headers_alone(&headers, bytes);
            without_ethernet(&headers, bytes);
            steered(&headers, bytes);
            changed(&headers, bytes);
        }
    }
}

/// Rewrites the packet, and the packet inside a tunnel.
fn changed(headers: &Headers, bytes: &[u8]) {
    rewritten(headers, bytes);
    reset(headers, bytes);
    error(headers, bytes);
    let (Some(tunnel), Some(inner)) = (headers.tunnel, headers.inner(bytes)) else { return };
    let Ok(inner) = inner else { return };
    // Bytes after the tunnel's end don't belong to the packet, but may seem to if it has no length field.
    let bytes = &bytes[usize::from(tunnel.inner_offset)..];
    let bytes = &bytes[..bytes.len().min(inner.wire_len as usize)];
    in_bounds(&inner, bytes);
    changed(&inner, bytes);
}

/// Every offset is inside the captured bytes, and the layers are in order.
fn in_bounds(headers: &Headers, bytes: &[u8]) {
    let Headers { network_offset, transport_offset, payload_offset, .. } = *headers;
    assert!(network_offset <= transport_offset && transport_offset <= payload_offset, "{headers:?}");
    // A capture may cut the options of a TCP header, but not its beginning.
    let is_segment = matches!(headers.transport, Transport::Tcp(_));
    let header_end = if is_segment { payload_offset.min(transport_offset + 20) } else { payload_offset };
    assert!(usize::from(header_end) <= bytes.len(), "{headers:?}");
    assert!(u32::from(payload_offset) + headers.payload_len <= headers.wire_len, "{headers:?}");
    if let Some(tunnel) = headers.tunnel {
        assert!(tunnel.inner_offset >= transport_offset && tunnel.inner_offset > network_offset, "{headers:?}");
        assert!(usize::from(tunnel.inner_offset) <= bytes.len(), "{headers:?}");
    }
    if let Transport::Icmp(icmp) = headers.transport
        && let Some(quoted) = icmp.embedded
    {
        assert!(quoted.network_offset >= transport_offset + 8, "{headers:?}");
        assert!(quoted.transport_offset >= quoted.network_offset + 20, "{headers:?}");
        assert!(usize::from(quoted.transport_offset) <= bytes.len(), "{headers:?}");
    }
    let has_ip = headers.addresses().is_some();
    assert!(headers.five_tuple().is_some() == has_ip && headers.source().is_some() == has_ip);
    if let Some(tuple) = headers.five_tuple() {
        let (name, _) = tuple.symmetric();
        assert_eq!(name.symmetric().0, name, "a name of both directions is its own");
    }
}

/// A frame cut after its headers parses to the same headers, unless the payload is read too.
fn headers_alone(headers: &Headers, bytes: &[u8]) {
    let ends_there = match headers.transport {
        Transport::Tcp(_) | Transport::Sctp { .. } => true,
        Transport::Udp { dst_port, .. } => ![4789, 6081].contains(&dst_port),
        Transport::Icmp(_) | Transport::None => false,
    };
    if ends_there {
        let Some(cut) = bytes.get(..usize::from(headers.payload_offset)) else { return };
        assert_eq!(packet::parse(headers.link, cut, headers.wire_len, headers.interface), Ok(*headers));
    }
}

/// The IP packet in an Ethernet frame parses as it does without the frame, although other code reads it.
fn without_ethernet(headers: &Headers, bytes: &[u8]) {
    if headers.link != LinkType::Ethernet || headers.ethertype != 0x0800 || headers.network_offset != 14 {
        return;
    }
    let bare = packet::parse(LinkType::Ipv4, &bytes[14..], headers.wire_len - 14, INTERFACE).expect("it parsed framed");
    let same = bare.network == headers.network
        && bare.fragment == headers.fragment
        && bare.five_tuple() == headers.five_tuple()
        && bare.payload_offset + 14 == headers.payload_offset
        && bare.payload_len == headers.payload_len;
    assert!(same, "{bare:?} without the frame, {headers:?} in it");
    if !matches!(headers.transport, Transport::Icmp(_)) {
        assert_eq!(bare.transport, headers.transport);
    }
}

/// The fields by which a card would steer a packet are those of its packet set.
fn steered(headers: &Headers, bytes: &[u8]) {
    let Some(fields) = RssFields::read(headers.link, bytes) else { return };
    let tuple = headers.five_tuple().expect("it is TCP or UDP");
    assert_eq!(fields, tuple.rss_fields(), "{headers:?}");
    assert_eq!(RssFields { dst: [0; 4], ports: [0; 4], ..fields }, Host::from(tuple.source().address).rss_fields());
}

/// Rewrites change the requested fields, keep checksums valid or invalid, and change nothing after the packet.
fn rewritten(headers: &Headers, bytes: &[u8]) {
    let (src, dst) = match headers.network {
        Network::V6(_) => ("[2001:db8::7]:40001".endpoint(), "[2001:db8:1::9]:40003".endpoint()),
        Network::V4(_) | Network::None | Network::Unreadable | Network::Arp => {
            ("198.51.100.7:40001".endpoint(), "192.0.2.9:40003".endpoint())
        }
    };
    let both = Rewrite { src: Some(src), dst: Some(dst), ..Rewrite::NONE };
    for rewrite in [
        Rewrite { src: Some(src), decrement_ttl: true, ..Rewrite::NONE },
        Rewrite { dst: Some(dst), macs: Some(Macs::Swap), ..Rewrite::NONE },
        both,
        Rewrite { embedded: true, decrement_ttl: true, ..both },
        Rewrite { ttl: Some(9), tos: Some(0x5a), mss_max: NonZeroU16::new(700), ..both },
    ] {
        let mut after = bytes.to_vec();
        rewrite.apply(&mut after, headers);
        if headers.addresses().is_none() {
            let from = if rewrite.macs.is_some() && headers.macs.is_some() { 12 } else { 0 };
            assert_eq!(after[from..], bytes[from..], "nothing but Ethernet's addresses could change");
            continue;
        }
        let end = bytes.len().min(headers.payload_offset as usize + headers.payload_len as usize);
        assert_eq!(after[end..], bytes[end..], "{rewrite:?} went behind {headers:?}");
        sums_are_kept(&rewrite, headers, &bytes[..end], &after[..end]);
        if headers.tunnel.is_none() {
            reads_as_asked(&rewrite, headers, bytes, &after);
        }
    }
}

/// Checksums are updated incrementally, so the sum over the covered bytes stays the same, valid or not.
fn sums_are_kept(rewrite: &Rewrite, headers: &Headers, before: &[u8], after: &[u8]) {
    let at = usize::from(headers.network_offset);
    // Zero has two representations in one's complement.
    let residue = |total| folded(total) % 0xffff;
    let (addresses, has_options) = match headers.network {
        Network::V4(ip) => {
            let header = at..at + usize::from(ip.header_len);
            assert_eq!(residue(sum(0, &before[header.clone()])), residue(sum(0, &after[header])), "{rewrite:?}");
            (at + 12..at + 20, false)
        }
        Network::V6(ip) => (at + 8..at + 40, ip.header_len != 40),
        Network::None | Network::Unreadable | Network::Arp => return,
    };
    let transport = usize::from(headers.transport_offset);
    let covers_addresses = match headers.transport {
        Transport::Tcp(_) => true,
        // Zero means no checksum.
        Transport::Udp { .. } if before[transport + 6..transport + 8] == [0, 0] => return,
        Transport::Udp { .. } => true,
        Transport::Icmp(_) => headers.protocol == protocol::ICMPV6,
        Transport::None | Transport::Sctp { .. } => return,
    };
    // With a routing header another destination is covered.
    if has_options && rewrite.dst.is_some() {
        return;
    }
    let total = |bytes: &[u8]| {
        let pseudo = if covers_addresses { sum(0, &bytes[addresses.clone()]) } else { 0 };
        residue(sum(pseudo, &bytes[transport..]))
    };
    assert_eq!(total(before), total(after), "{rewrite:?} of {headers:?}");
}

fn reads_as_asked(rewrite: &Rewrite, headers: &Headers, before: &[u8], after: &[u8]) {
    let parsed = packet::parse(headers.link, after, headers.wire_len, headers.interface);
    let parsed = parsed.unwrap_or_else(|kind| panic!("{kind} after {rewrite:?} of {headers:?}"));
    let new = |endpoint: Option<Endpoint>, old: IpAddr| endpoint.map_or(old, |endpoint| endpoint.address);
    let (src, dst) = headers.addresses().expect("it has an IP layer");
    assert_eq!(parsed.addresses(), Some((new(rewrite.src, src), new(rewrite.dst, dst))), "{rewrite:?}");
    let same = parsed.protocol == headers.protocol
        && parsed.fragment == headers.fragment
        && parsed.payload_offset == headers.payload_offset
        && parsed.payload_len == headers.payload_len;
    assert!(same, "{parsed:?} after {rewrite:?} of {headers:?}");
    let (ttl, tos) = ttl_and_tos(headers);
    let ttl = if rewrite.decrement_ttl { ttl.saturating_sub(1) } else { ttl };
    assert_eq!(ttl_and_tos(&parsed), (rewrite.ttl.unwrap_or(ttl), rewrite.tos.unwrap_or(tos)), "{rewrite:?}");
    if let (Some((src, dst)), Some(Macs::Swap)) = (headers.macs, rewrite.macs) {
        assert_eq!(parsed.macs, Some((dst, src)));
    }
    let new = |endpoint: Option<Endpoint>, old: u16| endpoint.map_or(old, |endpoint| endpoint.port);
    let (src, dst) = headers.ports();
    match (headers.transport, parsed.transport) {
        (Transport::Tcp(old), Transport::Tcp(tcp)) => {
            assert_eq!((tcp.src_port, tcp.dst_port), (new(rewrite.src, src), new(rewrite.dst, dst)));
            let limit = rewrite.mss_max.map_or(u16::MAX, NonZeroU16::get);
            let options = TcpOptions { mss: old.options.mss.map(|mss| mss.min(limit)), ..old.options };
            assert_eq!((tcp.seq, tcp.ack, tcp.flags, tcp.options), (old.seq, old.ack, old.flags, options));
        }
        (Transport::Udp { .. }, Transport::Udp { .. }) => {
            assert_eq!(parsed.ports(), (new(rewrite.src, src), new(rewrite.dst, dst)));
        }
        (Transport::Icmp(old), Transport::Icmp(icmp)) => {
            assert_eq!((icmp.kind, icmp.code), (old.kind, old.code));
            assert_eq!(icmp.identifier.is_some(), old.identifier.is_some());
        }
        (Transport::Sctp { .. }, Transport::Sctp { .. }) => {}
        (Transport::None, Transport::None) => assert_eq!(
            after[usize::from(headers.transport_offset)..],
            before[usize::from(headers.transport_offset)..],
            "what is not read is not written"
        ),
        (old, new) => panic!("{new:?} after {rewrite:?} of {old:?}"),
    }
}

fn ttl_and_tos(headers: &Headers) -> (u8, u8) {
    match headers.network {
        Network::V4(ip) => (ip.ttl, ip.tos),
        Network::V6(ip) => (ip.hop_limit, ip.traffic_class),
        Network::None | Network::Unreadable | Network::Arp => (0, 0),
    }
}

/// A reset is a well-formed answer to the sender; packets that can't be answered get none.
fn reset(headers: &Headers, bytes: &[u8]) {
    let mut answer = bytes.to_vec();
    let Some(len) = tcp_reset(&mut answer, headers) else {
        assert_eq!(answer, bytes, "nothing was answered");
        return;
    };
    let answer = &answer[..len];
    let parsed = packet::parse(headers.link, answer, len as u32, headers.interface);
    let parsed = parsed.unwrap_or_else(|kind| panic!("{kind}: the answer to {headers:?}"));
    let ((src, dst), (src_port, dst_port)) = (headers.addresses().expect("it was TCP"), headers.ports());
    assert_eq!(parsed.addresses(), Some((dst, src)), "{headers:?}");
    assert_eq!(parsed.ports(), (dst_port, src_port), "{headers:?}");
    assert_eq!((parsed.fragment, parsed.payload_len), (Fragment::Whole, 0));
    assert_eq!(parsed.macs, headers.macs.map(|(src, dst)| (dst, src)));
    let Transport::Tcp(tcp) = parsed.transport else { panic!("{parsed:?}: no TCP") };
    assert!(tcp.flags.contains(TcpFlags::RST));
    let network = usize::from(parsed.network_offset);
    let addresses = if src.is_ipv4() { network + 12..network + 20 } else { network + 8..network + 40 };
    let pseudo = sum(u64::from(protocol::TCP) + 20, &answer[addresses]);
    assert_eq!(folded(sum(pseudo, &answer[usize::from(parsed.transport_offset)..])), 0xffff, "its checksum");
}

/// An ICMP error is a well-formed answer to the sender, and quotes the packet.
fn error(headers: &Headers, bytes: &[u8]) {
    let mut answer = vec![0; usize::from(headers.network_offset) + ICMP_ERROR_MAX];
    let kind = if matches!(headers.network, Network::V4(_)) { 3 } else { 1 };
    let Some(len) = icmp_error(bytes, headers, IcmpError { kind, code: 1, from: None, ttl: None }, &mut answer) else {
        return;
    };
    assert!(len <= bytes.len() + ICMP_ERROR_GROWTH as usize, "{len}: the answer to {headers:?}");
    let answer = &answer[..len];
    let parsed = packet::parse(headers.link, answer, len as u32, headers.interface);
    let parsed = parsed.unwrap_or_else(|kind| panic!("{kind}: the answer to {headers:?}"));
    let (src, dst) = headers.addresses().expect("it was IP");
    assert_eq!(parsed.addresses(), Some((dst, src)), "{headers:?}");
    assert_eq!((parsed.fragment, parsed.network_offset), (Fragment::Whole, headers.network_offset));
    assert_eq!(parsed.macs, headers.macs.map(|(src, dst)| (dst, src)));
    let Transport::Icmp(icmp) = parsed.transport else { panic!("{parsed:?}: no ICMP") };
    assert_eq!((icmp.kind, icmp.code), (kind, 1));
    assert!(parsed.checksums_hold(answer), "{headers:?}");
    let quote = &answer[usize::from(parsed.payload_offset)..];
    assert_eq!(quote, &bytes[usize::from(headers.network_offset)..][..quote.len()]);
}
