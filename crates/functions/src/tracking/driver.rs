//! The naive engine of this crate's tests: a `HashMap` of flows, expiry at the next look-up, and builders of packets.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use memory::{Local, LocalTx};
use nf::{Context, Effects, Meta, NetworkFunction, Opened, Verdict};
use packet::{
    Embedded, FiveTuple, Fragment, Headers, Icmp, Ipv4, Ipv6, LinkType, Nanos, Network, Seq, Tcp, TcpFlags, Transport,
    Vlans, protocol,
};

type Key<N> = <<N as NetworkFunction>::Meta as Meta>::Key;

pub(crate) struct Driver<N: NetworkFunction<Shared<Local> = ()>> {
    pub(crate) function: N,
    pub(crate) flows: HashMap<Key<N>, StoredFlow<N::Flow>>,
    pub(crate) now: Nanos,
    seq: Seq,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredFlow<F> {
    pub(crate) flow: F,
    pub(crate) deadline: Option<Nanos>,
    pub(crate) assured: bool,
}

impl<N: NetworkFunction<Shared<Local> = ()>> Driver<N> {
    pub(crate) fn new(function: N) -> Self {
        Self { function, flows: HashMap::new(), now: Nanos::from_secs(1_000_000), seq: Seq(0) }
    }

    pub(crate) fn give(&mut self, headers: &Headers) -> Verdict {
        match self.function.meta(headers, &[]) {
            Some(meta) => self.step(&meta),
            None => self.function.other(headers),
        }
    }

    pub(crate) fn step(&mut self, meta: &N::Meta) -> Verdict {
        let (key, now) = (meta.key(), self.now);
        self.seq = self.seq.next();
        if self.flows.get(&key).is_some_and(|entry| entry.deadline.is_some_and(|deadline| deadline <= now)) {
            self.flows.remove(&key);
        }
        let mut cx = Context::<N, Local>::new(&(), LocalTx::default(), now, self.seq);
        let mut entry = match self.flows.get(&key) {
            Some(entry) => *entry,
            None => match self.function.open(&mut cx, meta) {
                Ok(Opened::Flow(flow)) => StoredFlow { flow, deadline: None, assured: false },
                Ok(Opened::Refused(verdict)) => return verdict,
                Err(never) => match never {},
            },
        };
        let Ok(verdict) = self.function.packet(&mut cx, &mut entry.flow, meta);
        let Effects { deadline, close, assured } = cx.effects();
        entry.deadline = deadline.or(entry.deadline);
        entry.assured |= assured;
        if close {
            self.flows.remove(&key);
        } else {
            assert!(entry.deadline.is_some(), "a flow without a deadline stays for ever: {entry:?}");
            self.flows.insert(key, entry);
        }
        verdict
    }

    pub(crate) fn wait(&mut self, secs: f64) {
        self.now = self.now + Nanos((secs * 1e9) as u64);
    }

    /// Returns the only flow, and the seconds until its deadline.
    pub(crate) fn only(&self) -> Option<(&StoredFlow<N::Flow>, f64)> {
        assert!(self.flows.len() <= 1);
        let entry = self.flows.values().next()?;
        Some((entry, entry.deadline?.since(self.now).as_secs_f64()))
    }

    pub(crate) fn flows(&self) -> Vec<(Key<N>, N::Flow)> {
        self.flows.iter().map(|(key, entry)| (*key, entry.flow)).collect()
    }
}

/// Builds a packet from `src` to `dst`.
pub(crate) fn ip(src: IpAddr, dst: IpAddr, protocol: u8, transport: Transport) -> Headers {
    let network = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            Network::V4(Ipv4 { src, dst, ttl: 64, tos: 0, id: 0, total_len: 40, header_len: 20 })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Network::V6(Ipv6 { src, dst, hop_limit: 64, traffic_class: 0, payload_len: 40, header_len: 40 })
        }
        _ => panic!("one family"),
    };
    Headers {
        link: LinkType::RawIp,
        interface: 0,
        macs: None,
        vlans: Vlans::default(),
        ethertype: if src.is_ipv4() { 0x0800 } else { 0x86dd },
        network,
        protocol,
        fragment: Fragment::Whole,
        transport,
        tunnel: None,
        network_offset: 0,
        transport_offset: 20,
        payload_offset: 40,
        payload_len: 0,
        wire_len: 40,
    }
}

pub(crate) fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

pub(crate) fn v6(last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last))
}

pub(crate) fn tcp(src: (IpAddr, u16), dst: (IpAddr, u16), segment: Tcp, payload_len: u32) -> Headers {
    let segment = Tcp { src_port: src.1, dst_port: dst.1, ..segment };
    Headers { payload_len, ..ip(src.0, dst.0, protocol::TCP, Transport::Tcp(segment)) }
}

pub(crate) fn segment(flags: TcpFlags, seq: u32, ack: u32, window: u16) -> Tcp {
    Tcp { src_port: 0, dst_port: 0, seq, ack, flags, window, options: Default::default() }
}

pub(crate) fn udp(src: (IpAddr, u16), dst: (IpAddr, u16)) -> Headers {
    ip(src.0, dst.0, protocol::UDP, Transport::Udp { src_port: src.1, dst_port: dst.1 })
}

pub(crate) fn icmp(src: IpAddr, dst: IpAddr, kind: u8, identifier: Option<u16>) -> Headers {
    let protocol = if src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
    ip(src, dst, protocol, Transport::Icmp(Icmp { kind, code: 0, identifier, embedded: None }))
}

/// Builds an ICMP error of this kind about `quoted`, from `src` to `dst`.
pub(crate) fn icmp_error(src: IpAddr, dst: IpAddr, kind: u8, quoted: FiveTuple) -> Headers {
    let embedded = Embedded { tuple: quoted, network_offset: 28, transport_offset: 48 };
    let protocol = if src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
    ip(src, dst, protocol, Transport::Icmp(Icmp { kind, code: 0, identifier: None, embedded: Some(embedded) }))
}
