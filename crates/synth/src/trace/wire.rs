//! Lays packets of conversations out as frames.

use packet::{TcpFlags, protocol};

use super::conversation::{Conversation, Hosts, Pattern, Segment, TcpSegment};
use super::{FrameLen, Params};
use crate::build::{folded, sum};
use crate::rng::Rng;

/// Who talks, and how the frames look.
pub(super) struct Wire {
    seed: u64,
    hosts: u64,
    servers: u64,
    ipv6_percent: u64,
    pattern: Pattern,
    frame_len: FrameLen,
    /// The frame. Everything behind the headers stays zero.
    buffer: Vec<u8>,
}

/// Room for the longest headers: IPv6, and TCP with options.
const HEADERS_MAX: usize = 14 + 40 + 28;

/// Maximum segment size and window scale, in eight bytes.
const SYN_OPTIONS: [u8; 8] = [2, 4, 0x05, 0xb4, 1, 3, 3, 7];

const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

impl Wire {
    pub(super) fn new(params: &Params, pattern: Pattern, hosts: u64, frame_len: FrameLen) -> Self {
        Self {
            seed: params.seed,
            hosts,
            servers: (hosts / 16).clamp(1, 1 << 16),
            ipv6_percent: params.ipv6_percent.into(),
            pattern,
            frame_len,
            buffer: vec![0; 2_048],
        }
    }

    pub(super) const fn frame_len(&self) -> FrameLen {
        self.frame_len
    }

    /// The conversation number `flow`. Client addresses and ports are unique, in no order that a hash could profit from.
    pub(super) fn open(&self, flow: u32, total: u32, rng: &mut Rng) -> Conversation {
        let (client, round) = (u64::from(flow) % self.hosts, u64::from(flow) / self.hosts);
        let mut own = Rng::new(self.seed ^ u64::from(flow).wrapping_mul(0xa076_1d64_78bd_642f));
        let pattern = self.pattern.of(total);
        let server_port = match (pattern, own.below(100)) {
            (Pattern::Tcp | Pattern::Syn | Pattern::ByLength, 0..60) => 443,
            (Pattern::Tcp | Pattern::Syn | Pattern::ByLength, 60..90) => 80,
            (Pattern::Tcp | Pattern::Syn | Pattern::ByLength, _) => 22,
            (Pattern::Udp | Pattern::OneWay, 0..70) => 53,
            (Pattern::Udp | Pattern::OneWay, _) => 443,
        };
        let who = Hosts {
            client: scatter(client as u32, self.seed),
            server: own.below(self.servers) as u16,
            client_port: 1_024 + round as u16,
            server_port,
            ipv6: own.below(100) < self.ipv6_percent,
        };
        Conversation::new(who, pattern, total, rng)
    }

    /// The frame of a packet.
    pub(super) fn write(&mut self, conversation: &Conversation, segment: &Segment) -> &[u8] {
        let who = &conversation.who;
        let options: &[u8] = match segment.tcp {
            Some(tcp) if tcp.flags.contains(TcpFlags::SYN) => &SYN_OPTIONS,
            _ => &[],
        };
        let transport_len = if segment.tcp.is_some() { 20 + options.len() } else { 8 };
        let payload = usize::from(segment.payload);
        let network_len = if who.ipv6 { 40 } else { 20 };
        let (network, transport) = (14, 14 + network_len);
        let end = transport + transport_len;

        let (macs, ethertype) = ([CLIENT_MAC, SERVER_MAC], if who.ipv6 { [0x86, 0xdd] } else { [8, 0] });
        let [from, to] = if segment.from_client { macs } else { [macs[1], macs[0]] };
        self.buffer[..6].copy_from_slice(&to);
        self.buffer[6..12].copy_from_slice(&from);
        self.buffer[12..14].copy_from_slice(&ethertype);

        let protocol = if segment.tcp.is_some() { protocol::TCP } else { protocol::UDP };
        let content = transport_len + payload;
        let addresses =
            network_header(&mut self.buffer[network..transport], who, segment.from_client, protocol, content);
        let header = &mut self.buffer[transport..end];
        transport_header(header, who, segment, options, content);
        let checksum = !folded(sum(addresses + u64::from(protocol) + content as u64, header));
        let at = if segment.tcp.is_some() { 16 } else { 6 };
        let checksum = if checksum == 0 && segment.tcp.is_none() { 0xffff } else { checksum };
        header[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.buffer[end..HEADERS_MAX.max(end)].fill(0);

        let len = end + payload;
        match self.frame_len {
            FrameLen::Fixed(fixed) => &self.buffer[..len.max(fixed.into())],
            FrameLen::Realistic => &self.buffer[..len.max(60)],
        }
    }
}

/// Writes the IP header; the sum of the addresses, for the pseudo-header.
fn network_header(out: &mut [u8], who: &Hosts, from_client: bool, protocol: u8, content: usize) -> u64 {
    if who.ipv6 {
        let mut client = [0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        client[12..].copy_from_slice(&who.client.to_be_bytes());
        let mut server = [0x20, 0x01, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        server[14..].copy_from_slice(&who.server.to_be_bytes());
        let [src, dst] = if from_client { [client, server] } else { [server, client] };
        out[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        out[4..6].copy_from_slice(&(content as u16).to_be_bytes());
        out[6..8].copy_from_slice(&[protocol, 64]);
        out[8..24].copy_from_slice(&src);
        out[24..40].copy_from_slice(&dst);
        return sum(0, &out[8..40]);
    }
    let client = (10 << 24 | who.client).to_be_bytes();
    // 198.18.0.0/15 is for benchmarks (RFC 2544).
    let server = (198 << 24 | 18 << 16 | u32::from(who.server)).to_be_bytes();
    let [src, dst] = if from_client { [client, server] } else { [server, client] };
    out[..2].copy_from_slice(&[0x45, 0]);
    out[2..4].copy_from_slice(&((20 + content) as u16).to_be_bytes());
    // Identification 0 is right where fragmentation is forbidden (RFC 6864).
    out[4..12].copy_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    out[12..16].copy_from_slice(&src);
    out[16..20].copy_from_slice(&dst);
    let checksum = !folded(sum(0, out));
    out[10..12].copy_from_slice(&checksum.to_be_bytes());
    sum(0, &out[12..20])
}

/// Writes the TCP or UDP header, its checksum zero.
fn transport_header(out: &mut [u8], who: &Hosts, segment: &Segment, options: &[u8], content: usize) {
    let ports = [who.client_port, who.server_port];
    let [src, dst] = if segment.from_client { ports } else { [ports[1], ports[0]] };
    out[..2].copy_from_slice(&src.to_be_bytes());
    out[2..4].copy_from_slice(&dst.to_be_bytes());
    match segment.tcp {
        Some(TcpSegment { seq, ack, flags }) => {
            out[4..8].copy_from_slice(&seq.to_be_bytes());
            out[8..12].copy_from_slice(&ack.to_be_bytes());
            out[12..14].copy_from_slice(&[((20 + options.len()) << 2) as u8, flags.0]);
            out[14..20].copy_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
            out[20..].copy_from_slice(options);
        }
        None => {
            out[4..6].copy_from_slice(&(content as u16).to_be_bytes());
            out[6..8].fill(0);
        }
    }
}

/// A permutation of 24 bits, another one for another seed.
fn scatter(number: u32, seed: u64) -> u32 {
    const MASK: u32 = (1 << 24) - 1;
    let mut x = (number ^ seed as u32) & MASK;
    x = x.wrapping_mul(0x2c_1b3d) & MASK;
    x ^= x >> 12;
    x = x.wrapping_mul(0x29_7a2d) & MASK;
    x ^ x >> 12
}

#[cfg(test)]
mod tests {
    use super::scatter;

    #[test]
    fn scattered_addresses_are_unique() {
        let mut seen = vec![false; 1 << 24];
        (0..1 << 24).for_each(|number| seen[scatter(number, 99) as usize] = true);
        assert!(seen.into_iter().all(|seen| seen));
    }
}
