//! Counts the content of a capture.

use packet::{
    FiveTuple, Fragment, Headers, LinkType, Malformed, Nanos, Network, TcpFlags, Transport, TunnelKind, protocol,
};
use port::{Batch, Packet};

use super::flows::{FlowCounter, Volume};

/// EtherTypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Counts of a capture.
#[derive(Default)]
pub(super) struct Census {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets that were captured only in part.
    pub(super) cut: u64,
    pub(super) first: Option<Nanos>,
    pub(super) last: Nanos,
    pub(super) links: Vec<(LinkType, u64)>,
    /// Packets by network layer, including malformed ones; together all packets.
    pub(super) v4: u64,
    pub(super) v6: u64,
    pub(super) arp: u64,
    pub(super) other: u64,
    /// Packets that may contain IP which was not found.
    pub(super) unreadable: u64,
    /// Packets with one VLAN tag, and with more.
    pub(super) vlan: u64,
    pub(super) qinq: u64,
    pub(super) fragments_first: u64,
    pub(super) fragments_later: u64,
    pub(super) syns: u64,
    pub(super) resets: u64,
    pub(super) malformed: [u64; Malformed::ALL.len()],
    pub(super) tunnels: [u64; TUNNELS.len()],
    flows: FlowCounter,
}

/// Every tunnel, in the order in which they are counted.
pub(super) const TUNNELS: [(TunnelKind, &str); 4] = [
    (TunnelKind::Gre, "GRE"),
    (TunnelKind::Vxlan, "VXLAN"),
    (TunnelKind::Geneve, "Geneve"),
    (TunnelKind::Ip, "IP in IP"),
];

/// The flows of one protocol.
#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) protocol: u8,
    pub(super) flows: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// How packets are spread over flows.
#[derive(Clone, Copy)]
pub(super) struct Skew {
    pub(super) flows: u64,
    pub(super) packets: u64,
    pub(super) largest: FiveTuple,
    pub(super) largest_packets: u64,
    /// The packets of the ten largest flows.
    pub(super) top10_packets: u64,
    /// The largest tenth of the flows, and their packets.
    pub(super) tenth_packets: u64,
    /// Gini coefficient: 0 if all flows are equal, near 1 if one flow has everything.
    pub(super) gini: f64,
}

impl Census {
    /// Counts the packets of a batch.
    pub(super) fn count(&mut self, batch: &Batch) {
        let packets = batch.packets();
        let (Some(first), Some(last)) = (packets.first(), packets.last()) else { return };
        self.packets += packets.len() as u64;
        self.first.get_or_insert(first.time);
        self.last = last.time;
        for alike in packets.chunk_by(|one, next| one.link == next.link) {
            self.link(alike[0].link, alike.len() as u64);
        }
        for (index, packet) in packets.iter().enumerate() {
            self.bytes += u64::from(packet.wire_len);
            self.cut += u64::from(packet.len < packet.wire_len);
            self.packet(packet, batch.bytes(index));
        }
        self.flows.flush();
    }

    fn link(&mut self, link: LinkType, packets: u64) {
        match self.links.iter_mut().find(|(known, _)| *known == link) {
            Some((_, count)) => *count += packets,
            None => self.links.push((link, packets)),
        }
    }

    #[inline(always)]
    fn packet(&mut self, packet: &Packet, bytes: &[u8]) {
        let &Packet { link, wire_len, interface, .. } = packet;
        // Ordinary packets are parsed only as far as needed.
        let ordinary =
            packet::parse_ordinary(link, bytes, wire_len, interface, |headers| self.headers(headers, wire_len));
        if ordinary.is_none() {
            self.odd_packet(packet, bytes);
        }
    }

    #[inline(never)]
    fn odd_packet(&mut self, packet: &Packet, bytes: &[u8]) {
        match packet::parse(packet.link, bytes, packet.wire_len, packet.interface) {
            Ok(headers) => self.headers(&headers, packet.wire_len),
            Err(kind) => {
                self.malformed[kind as usize] += 1;
                self.malformed_packet(packet, bytes);
            }
        }
    }

    #[inline(always)]
    fn headers(&mut self, headers: &Headers, wire_len: u32) {
        match headers.network {
            Network::V4(_) => self.v4 += 1,
            Network::V6(_) => self.v6 += 1,
            Network::Arp => self.arp += 1,
            Network::None => self.other += 1,
            Network::Unreadable => self.unreadable += 1,
        }
        self.tags_and_fragments(headers);
        // Without ports the flow is unknown.
        if headers.fragment == Fragment::Later {
            return;
        }
        if let Some(tunnel) = headers.tunnel
            && let Some(index) = TUNNELS.iter().position(|(kind, _)| *kind == tunnel.kind)
        {
            self.tunnels[index] += 1;
        }
        if let Transport::Tcp(tcp) = headers.transport {
            self.syns += u64::from(tcp.flags.contains(TcpFlags::SYN) && !tcp.flags.contains(TcpFlags::ACK));
            self.resets += u64::from(tcp.flags.contains(TcpFlags::RST));
        }
        let Some(tuple) = headers.five_tuple() else { return };
        let (tuple, _) = tuple.symmetric();
        self.flows.count(&tuple, wire_len);
    }

    #[inline(always)]
    fn tags_and_fragments(&mut self, headers: &Headers) {
        match headers.vlans.count {
            0 => {}
            1 => self.vlan += 1,
            _ => self.qinq += 1,
        }
        match headers.fragment {
            Fragment::Whole => {}
            Fragment::First => self.fragments_first += 1,
            Fragment::Later => self.fragments_later += 1,
        }
    }

    /// Counts the valid layers of a malformed packet. It belongs to no flow, because the ports may be wrong.
    fn malformed_packet(&mut self, packet: &Packet, bytes: &[u8]) {
        let whole = packet::parse_what_is_whole(packet.link, bytes, packet.wire_len, packet.interface);
        match whole.as_ref().map(|headers| (headers.network, headers.ethertype)) {
            Some((Network::V4(_), _) | (Network::Unreadable, IPV4)) => self.v4 += 1,
            Some((Network::V6(_), _) | (Network::Unreadable, IPV6)) => self.v6 += 1,
            Some(_) | None => self.unreadable += 1,
        }
        if let Some(headers) = &whole {
            self.tags_and_fragments(headers);
        }
    }

    /// Packets of flows that did not fit.
    pub(super) const fn uncounted(&self) -> u64 {
        self.flows.uncounted()
    }

    /// The flows of each protocol, those with the most packets first.
    pub(super) fn by_protocol(&self) -> Vec<Share> {
        let mut shares = [Share::default(); 256];
        for (tuple, volume) in self.flows.iter() {
            let share = &mut shares[usize::from(tuple.protocol())];
            share.protocol = tuple.protocol();
            share.flows += 1;
            share.packets += volume.packets;
            share.bytes += volume.bytes;
        }
        let mut shares: Vec<Share> = shares.into_iter().filter(|share| share.flows > 0).collect();
        shares.sort_by_key(|share| (std::cmp::Reverse(share.packets), share.protocol));
        shares
    }

    /// How packets are spread over flows; `None` without any.
    pub(super) fn skew(&self) -> Option<Skew> {
        let (largest, Volume { packets: largest_packets, .. }) =
            self.flows.iter().max_by_key(|(tuple, volume)| (volume.packets, std::cmp::Reverse(*tuple)))?;
        let mut sizes: Vec<u64> = self.flows.iter().map(|(_, volume)| volume.packets).collect();
        sizes.sort_unstable();
        let packets: u64 = sizes.iter().sum();
        let (count, total) = (sizes.len() as f64, packets as f64);
        let weighted: f64 = sizes.iter().enumerate().map(|(rank, size)| (rank as f64 + 1.0) * *size as f64).sum();
        let top = |flows: usize| sizes.iter().rev().take(flows).sum();
        Some(Skew {
            flows: sizes.len() as u64,
            packets,
            largest,
            largest_packets,
            top10_packets: top(10),
            tenth_packets: top(sizes.len().div_ceil(10)),
            gini: (2.0 * weighted / (count * total) - (count + 1.0) / count).max(0.0),
        })
    }
}

/// The protocol's name, or its number.
pub(super) fn protocol_name(number: u8) -> String {
    protocol::name(number).map_or_else(|| format!("protocol {number}"), str::to_owned)
}
