//! Cases: a rule set, and the packets that are sent through it.

use std::net::IpAddr;

use iptables::Family;

use crate::craft::{self, End, ICMP, ICMPV6, Segment, TCP, UDP};

/// The text of a rule set.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) family: Family,
    /// As iptables-restore takes it.
    pub(crate) text: String,
    /// As `ipset restore` takes it; may be empty.
    pub(crate) sets: String,
}

/// A step with its number. Later steps refer to it.
pub(crate) type Numbered = (usize, Step);

/// A packet to send.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A packet as it is, to an interface.
    Send { from: usize, packet: Vec<u8> },
    /// A packet to the interface where the first packet that step `to` brought out left. Each side's is built from what it sent itself.
    Answer { to: usize, answer: Answer, spoilt: bool },
}

/// How a host answers a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A TCP segment that acknowledges the packet. `seq` counts if the packet acknowledges nothing.
    Segment { flags: u8, len: usize, seq: u32 },
    /// A datagram of the same protocol.
    Datagram { len: usize },
    /// The reply to an ICMP query.
    Echo,
    /// An ICMP error, by the packet's destination or by a router on the way.
    Error { kind: u8, code: u8, from: Option<IpAddr>, quote: usize },
}

impl Answer {
    /// Builds the answer to a packet.
    pub(crate) fn packet(self, about: &[u8]) -> Option<Vec<u8>> {
        let seen = craft::view(about);
        let (src, dst): (End, End) = (seen.dst, seen.src);
        Some(match self {
            Self::Segment { .. } if seen.protocol != TCP || about.len() < seen.transport + 20 => return None,
            Self::Segment { flags, len, seq } => {
                let word = |at: usize| {
                    let bytes = &about[seen.transport + at..seen.transport + at + 4];
                    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
                };
                let received = about[seen.transport + 13];
                let header = usize::from(about[seen.transport + 12] >> 4) * 4;
                let data = about.len().saturating_sub(seen.transport + header) as u32;
                let next = word(4).wrapping_add(data + u32::from(received & 1) + u32::from(received >> 1 & 1));
                let segment = Segment {
                    flags,
                    seq: if received & 16 == 0 { seq } else { word(8) },
                    ack: if flags & 16 == 0 { 0 } else { next },
                    window: 65_535,
                    ..Segment::default()
                };
                craft::tcp(src, dst, &segment, len)
            }
            Self::Datagram { len } if seen.protocol == UDP => craft::udp(src, dst, len),
            Self::Datagram { len } => craft::ip(src.0, dst.0, seen.protocol, &vec![0; len.max(12)]),
            Self::Echo => match (seen.protocol, about.get(seen.transport)) {
                (ICMP, Some(8)) => craft::query(src.0, dst.0, seen.src.1, 0, 1),
                (ICMPV6, Some(128)) => craft::query(src.0, dst.0, seen.src.1, 129, 1),
                _ => return None,
            },
            Self::Error { kind, code, from, quote } => {
                let mtu = if matches!((kind, code), (3, 4) | (2, 0)) { 1300 } else { 0 };
                craft::error(from.unwrap_or(src.0), dst.0, (kind, code), mtu, about, quote)
            }
        })
    }
}

/// Formats a packet.
pub(crate) fn described(packet: &[u8]) -> String {
    let seen = craft::view(packet);
    let ((src, src_port), (dst, dst_port)) = (seen.src, seen.dst);
    let ends = if src_port == 0 && dst_port == 0 {
        format!("{src} > {dst}")
    } else {
        format!("{src}:{src_port} > {dst}:{dst_port}")
    };
    let detail = match (seen.protocol, packet.get(seen.transport..)) {
        _ if seen.later_fragment => "later fragment".to_owned(),
        (TCP, Some(header)) if header.len() > 13 => {
            let flags = "FSRPAUEC".chars().enumerate().filter(|(bit, _)| header[13] >> bit & 1 == 1);
            let flags: String = flags.map(|(_, letter)| letter).collect();
            format!("tcp {}", if flags.is_empty() { "-" } else { &flags })
        }
        (UDP, _) => "udp".to_owned(),
        (ICMP | ICMPV6, Some([kind, code, ..])) => format!("icmp {kind}/{code}"),
        (protocol, _) => format!("protocol {protocol}"),
    };
    let ttl = if packet[0] >> 4 == 4 { packet[8] } else { packet[7] };
    let wrong = craft::complaint(packet).map(|what| format!(", {what}")).unwrap_or_default();
    let quoted = seen.quoted.filter(|at| packet.len() >= at + 20);
    let quoted = quoted.map(|at| format!(" about [{}]", described_ends(&packet[at..]))).unwrap_or_default();
    format!("{detail} {ends}{quoted}, ttl {ttl}, {} bytes{wrong}", packet.len())
}

fn described_ends(packet: &[u8]) -> String {
    let seen = craft::view(packet);
    format!("protocol {} {}:{} > {}:{}", seen.protocol, seen.src.0, seen.src.1, seen.dst.0, seen.dst.1)
}
