//! Counts what a capture holds.

use std::collections::HashMap;

use packet::{
    FiveTuple, Fragment, Headers, LinkType, Malformed, Nanos, Network, TcpFlags, Transport, TunnelKind, protocol,
};
use port::Packet;

/// What a capture holds.
#[derive(Default)]
pub(super) struct Census {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets of which the capture holds less than there was.
    pub(super) cut: u64,
    pub(super) first: Option<Nanos>,
    pub(super) last: Nanos,
    pub(super) links: Vec<(LinkType, u64)>,
    pub(super) v4: u64,
    pub(super) v6: u64,
    pub(super) arp: u64,
    pub(super) other: u64,
    /// Packets with one VLAN tag, and with more.
    pub(super) vlan: u64,
    pub(super) qinq: u64,
    pub(super) fragments_first: u64,
    pub(super) fragments_later: u64,
    pub(super) syns: u64,
    pub(super) resets: u64,
    pub(super) malformed: [u64; Malformed::ALL.len()],
    pub(super) tunnels: [u64; TUNNELS.len()],
    flows: HashMap<FiveTuple, Flow>,
    /// Packets of flows that found no room.
    pub(super) uncounted: u64,
}

/// The packets of both directions.
#[derive(Clone, Copy, Default)]
struct Flow {
    packets: u64,
    bytes: u64,
}

/// Every tunnel, in the order in which they are counted.
pub(super) const TUNNELS: [(TunnelKind, &str); 4] = [
    (TunnelKind::Gre, "GRE"),
    (TunnelKind::Vxlan, "VXLAN"),
    (TunnelKind::Geneve, "Geneve"),
    (TunnelKind::Ip, "IP in IP"),
];

/// A census is bounded as everything is: so many flows take about a gigabyte.
const FLOWS_MAX: usize = 16 << 20;

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
    /// 0 when all flows are alike, towards 1 when one flow has everything.
    pub(super) gini: f64,
}

impl Census {
    pub(super) fn count(&mut self, packet: &Packet, bytes: &[u8]) {
        self.packets += 1;
        self.bytes += u64::from(packet.wire_len);
        self.cut += u64::from(packet.len < packet.wire_len);
        self.first.get_or_insert(packet.time);
        self.last = packet.time;
        match self.links.iter_mut().find(|(link, _)| *link == packet.link) {
            Some((_, count)) => *count += 1,
            None => self.links.push((packet.link, 1)),
        }
        match packet::parse(packet.link, bytes, packet.wire_len, packet.interface) {
            Ok(headers) => self.headers(&headers, packet.wire_len),
            Err(kind) => self.malformed[kind as usize] += 1,
        }
    }

    fn headers(&mut self, headers: &Headers, wire_len: u32) {
        match headers.network {
            Network::V4(_) => self.v4 += 1,
            Network::V6(_) => self.v6 += 1,
            Network::Arp => self.arp += 1,
            Network::None => self.other += 1,
        }
        match headers.vlans.count {
            0 => {}
            1 => self.vlan += 1,
            _ => self.qinq += 1,
        }
        match headers.fragment {
            Fragment::Whole => {}
            Fragment::First => self.fragments_first += 1,
            // Without ports there is no telling whose flow it is.
            Fragment::Later => {
                self.fragments_later += 1;
                return;
            }
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
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&tuple) {
            self.uncounted += 1;
            return;
        }
        let flow = self.flows.entry(tuple).or_default();
        flow.packets += 1;
        flow.bytes += u64::from(wire_len);
    }

    /// The flows of each protocol, those with the most packets first.
    pub(super) fn by_protocol(&self) -> Vec<Share> {
        let mut shares: HashMap<u8, Share> = HashMap::new();
        for (tuple, flow) in &self.flows {
            let share = shares.entry(tuple.protocol()).or_default();
            share.protocol = tuple.protocol();
            share.flows += 1;
            share.packets += flow.packets;
            share.bytes += flow.bytes;
        }
        let mut shares: Vec<Share> = shares.into_values().collect();
        shares.sort_by_key(|share| (std::cmp::Reverse(share.packets), share.protocol));
        shares
    }

    /// How packets are spread over flows; `None` without any.
    pub(super) fn skew(&self) -> Option<Skew> {
        let (largest, flow) =
            self.flows.iter().max_by_key(|(tuple, flow)| (flow.packets, std::cmp::Reverse(**tuple)))?;
        let mut sizes: Vec<u64> = self.flows.values().map(|flow| flow.packets).collect();
        sizes.sort_unstable();
        let packets: u64 = sizes.iter().sum();
        let (count, total) = (sizes.len() as f64, packets as f64);
        let weighted: f64 = sizes.iter().enumerate().map(|(rank, size)| (rank as f64 + 1.0) * *size as f64).sum();
        let top = |flows: usize| sizes.iter().rev().take(flows).sum();
        Some(Skew {
            flows: sizes.len() as u64,
            packets,
            largest: *largest,
            largest_packets: flow.packets,
            top10_packets: top(10),
            tenth_packets: top(sizes.len().div_ceil(10)),
            gini: (2.0 * weighted / (count * total) - (count + 1.0) / count).max(0.0),
        })
    }
}

/// The protocol's name, or its number.
pub(super) fn protocol_name(number: u8) -> String {
    match number {
        protocol::TCP => "TCP".to_owned(),
        protocol::UDP => "UDP".to_owned(),
        protocol::ICMP => "ICMP".to_owned(),
        protocol::ICMPV6 => "ICMPv6".to_owned(),
        protocol::SCTP => "SCTP".to_owned(),
        protocol::GRE => "GRE".to_owned(),
        protocol::ESP => "ESP".to_owned(),
        protocol::AH => "AH".to_owned(),
        protocol::IGMP => "IGMP".to_owned(),
        protocol::IPIP => "IP in IP".to_owned(),
        protocol::IPV6 => "IPv6 in IP".to_owned(),
        number => format!("protocol {number}"),
    }
}
