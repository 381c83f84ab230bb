//! How a frame's bytes lie, lengths and checksums filled in.

use std::net::IpAddr;

use packet::{LinkType, protocol};

use super::{Build, Layer};

impl Build {
    /// The link layer around an IP packet.
    pub(super) fn frame(&self, datagram: &[u8]) -> Vec<u8> {
        let v4 = self.src.address.is_ipv4();
        let ethertype: u16 = if v4 { 0x0800 } else { 0x86dd };
        // BSD's number for IPv6 is 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS.
        let family: u32 = if v4 { 2 } else { 24 };
        let mut out = Vec::with_capacity(22 + datagram.len());
        match self.link {
            LinkType::Ethernet => {
                out.extend(self.macs.1.0);
                out.extend(self.macs.0.0);
                for (kind, tag) in &self.vlans {
                    out.extend(kind.to_be_bytes());
                    out.extend(tag.to_be_bytes());
                }
                out.extend(ethertype.to_be_bytes());
            }
            LinkType::RawIp | LinkType::Ipv4 | LinkType::Ipv6 | LinkType::Other(_) => {}
            LinkType::Null => out.extend(family.to_le_bytes()),
            LinkType::Loop => out.extend(family.to_be_bytes()),
            LinkType::LinuxSll => {
                out.extend([0, 0, 0, 1, 0, 6]);
                out.extend(self.macs.0.0);
                out.extend([0, 0]);
                out.extend(ethertype.to_be_bytes());
            }
            LinkType::LinuxSll2 => {
                out.extend(ethertype.to_be_bytes());
                out.extend([0, 0, 0, 0, 0, 1, 0, 1, 0, 6]);
                out.extend(self.macs.0.0);
                out.extend([0, 0]);
            }
        }
        out.extend_from_slice(datagram);
        out.resize(out.len().max(self.pad_to), 0);
        out
    }

    /// The IP header before its content.
    pub(super) fn network(&self, content: &[u8], fragment: Option<(u16, bool)>) -> Vec<u8> {
        match (self.src.address, self.dst.address) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header_len = 20 + self.ip_options.len();
                let mut out = vec![0; header_len];
                out[0] = 0x40 | (header_len / 4) as u8;
                out[1] = self.tos;
                out[2..4].copy_from_slice(&((header_len + content.len()) as u16).to_be_bytes());
                out[4..6].copy_from_slice(&self.id.to_be_bytes());
                let (offset, more) = fragment.unwrap_or((0, false));
                out[6..8].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
                out[8] = self.ttl;
                out[9] = self.protocol();
                out[12..16].copy_from_slice(&src.octets());
                out[16..20].copy_from_slice(&dst.octets());
                out[20..].copy_from_slice(&self.ip_options);
                let sum = !folded(sum(0, &out));
                out[10..12].copy_from_slice(&sum.to_be_bytes());
                out.extend_from_slice(content);
                out
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut headers = self.extensions.clone();
                if let Some((offset, more)) = fragment {
                    let mut body = (offset | u16::from(more)).to_be_bytes().to_vec();
                    body.extend(u32::from(self.id).to_be_bytes());
                    headers.push((44, body));
                }
                let mut chain = Vec::new();
                for (index, (number, body)) in headers.iter().enumerate() {
                    let next = headers.get(index + 1).map_or(self.protocol(), |(number, _)| *number);
                    // Fragment headers have no length, and the authentication header counts in words.
                    let len = match number {
                        44 => 0,
                        51 => (body.len() + 2) / 4 - 2,
                        _ => (body.len() + 2) / 8 - 1,
                    };
                    chain.extend([next, len as u8]);
                    chain.extend_from_slice(body);
                }
                let mut out = (0x6000_0000 | (u32::from(self.tos) << 20)).to_be_bytes().to_vec();
                out.extend(((chain.len() + content.len()) as u16).to_be_bytes());
                out.extend([headers.first().map_or(self.protocol(), |(number, _)| *number), self.ttl]);
                out.extend(src.octets());
                out.extend(dst.octets());
                out.extend(chain);
                out.extend_from_slice(content);
                out
            }
            _ => unreachable!("both addresses are of one family"),
        }
    }

    /// The transport header and the payload.
    pub(super) fn segment(&self) -> Vec<u8> {
        let ports = [self.src.port.to_be_bytes(), self.dst.port.to_be_bytes()].concat();
        let (mut out, checksum_at) = match &self.transport {
            Layer::Tcp { seq, ack, flags, window, options } => {
                let options = whole_words(options);
                let mut out = ports;
                out.extend(seq.to_be_bytes());
                out.extend(ack.to_be_bytes());
                out.extend([(((20 + options.len()) / 4) << 4) as u8, flags.0]);
                out.extend(window.to_be_bytes());
                out.extend([0; 4]);
                out.extend(options);
                (out, Some(16))
            }
            Layer::Udp { checksum } => {
                let mut out = ports;
                out.extend(((8 + self.payload.len()) as u16).to_be_bytes());
                out.extend([0; 2]);
                (out, checksum.then_some(6))
            }
            Layer::Icmp { kind, code, rest } => {
                let mut out = vec![*kind, *code, 0, 0];
                out.extend(rest);
                (out, Some(2))
            }
            Layer::Other(_) => (Vec::new(), None),
        };
        out.extend_from_slice(&self.payload);
        if let Some(at) = checksum_at {
            let mut checksum = !folded(sum(self.pseudo_header(out.len()), &out));
            if self.spoiled {
                checksum = checksum.wrapping_add(0x1111);
            }
            if checksum == 0 && matches!(self.transport, Layer::Udp { .. }) {
                checksum = 0xffff;
            }
            out[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        out
    }

    /// The sum of the pseudo-header before `len` bytes of transport. ICMP has none, ICMPv6 has.
    fn pseudo_header(&self, len: usize) -> u64 {
        match (self.src.address, self.dst.address) {
            (IpAddr::V4(_), IpAddr::V4(_)) if matches!(self.transport, Layer::Icmp { .. }) => 0,
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let addresses = sum(sum(0, &src.octets()), &dst.octets());
                addresses + u64::from(self.protocol()) + len as u64
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let addresses = sum(sum(0, &src.octets()), &dst.octets());
                addresses + u64::from(self.protocol()) + len as u64
            }
            _ => unreachable!("both addresses are of one family"),
        }
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            Layer::Tcp { .. } => protocol::TCP,
            Layer::Udp { .. } => protocol::UDP,
            Layer::Icmp { .. } if self.src.address.is_ipv4() => protocol::ICMP,
            Layer::Icmp { .. } => protocol::ICMPV6,
            Layer::Other(number) => number,
        }
    }
}

/// Adds big-endian 16-bit words to a one's complement sum (RFC 1071).
pub fn sum(start: u64, bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<2>();
    let whole: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    start + whole + tail.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// Brings a one's complement sum down to 16 bits.
pub fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub(super) fn whole_words(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
