//! The headers of ordinary packets in little memory: [`OrdinaryHeaders`].

use core::net::{IpAddr, Ipv4Addr};

use crate::headers::{Fragment, Headers, Ipv4, Mac, Network, Tcp, TcpFlags, TcpOptions, Transport, Vlans, protocol};
use crate::link::LinkType;
use crate::parse::IPV4;
use crate::rewrite::{Macs, Rewrite};

/// The headers of an ordinary packet: Ethernet, a whole IPv4 datagram without options, TCP without options that are kept, or UDP. They take
/// a quarter of the memory of [`Headers`], for code that keeps the headers of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrdinaryHeaders {
    macs: (Mac, Mac),
    interface: u16,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    src_port: u16,
    dst_port: u16,
    seq: u32,
    ack: u32,
    window: u16,
    id: u16,
    total_len: u16,
    payload_offset: u16,
    payload_len: u32,
    wire_len: u32,
    flags: TcpFlags,
    ttl: u8,
    tos: u8,
    is_tcp: bool,
}

/// Offset of the IP header.
const NETWORK: u16 = 14;
/// Offset of the transport header.
const TRANSPORT: u16 = 34;

impl OrdinaryHeaders {
    /// Makes the short form of these headers; `None` if the packet isn't ordinary.
    // Inlined, so that of headers that were just parsed only the fields kept here are computed.
    #[inline(always)]
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let Headers { link, interface, macs, vlans, ethertype, network, fragment, transport, tunnel, .. } = headers;
        let Headers { protocol, network_offset, transport_offset, payload_offset, payload_len, wire_len, .. } = headers;
        let (Some(macs), Network::V4(ip)) = (macs, network) else { return None };
        let is_plain = matches!(link, LinkType::Ethernet)
            && vlans.count == 0
            && *ethertype == IPV4
            && ip.header_len == 20
            && matches!(fragment, Fragment::Whole)
            && tunnel.is_none()
            && (*network_offset, *transport_offset) == (NETWORK, TRANSPORT);
        let (is_tcp, src_port, dst_port) = match transport {
            Transport::Tcp(tcp) if *protocol == protocol::TCP && tcp.options == TcpOptions::default() => {
                (true, tcp.src_port, tcp.dst_port)
            }
            Transport::Udp { src_port, dst_port } if *protocol == protocol::UDP => (false, *src_port, *dst_port),
            _ => return None,
        };
        let (seq, ack, window, flags) = match transport {
            Transport::Tcp(tcp) => (tcp.seq, tcp.ack, tcp.window, tcp.flags),
            _ => (0, 0, 0, TcpFlags(0)),
        };
        is_plain.then_some(Self {
            macs: *macs,
            interface: *interface,
            src: ip.src,
            dst: ip.dst,
            src_port,
            dst_port,
            seq,
            ack,
            window,
            id: ip.id,
            total_len: ip.total_len,
            payload_offset: *payload_offset,
            payload_len: *payload_len,
            wire_len: *wire_len,
            flags,
            ttl: ip.ttl,
            tos: ip.tos,
            is_tcp,
        })
    }

    /// Calls `look` with all headers. It is inlined, so only the fields that it reads are computed, as in
    /// [`parse_ordinary`](crate::parse_ordinary).
    #[inline(always)]
    pub fn look<R>(&self, look: impl FnOnce(&Headers) -> R) -> R {
        let Self { src_port, dst_port, seq, ack, window, flags, .. } = *self;
        // Each transport has its own look: joining the two in one place would send every field over the stack.
        if self.is_tcp {
            let segment = Tcp { src_port, dst_port, seq, ack, flags, window, options: TcpOptions::default() };
            look(&self.with(protocol::TCP, Transport::Tcp(segment)))
        } else {
            look(&self.with(protocol::UDP, Transport::Udp { src_port, dst_port }))
        }
    }

    #[inline(always)]
    fn with(&self, protocol: u8, transport: Transport) -> Headers {
        let Self { src, dst, ttl, tos, id, total_len, .. } = *self;
        Headers {
            link: LinkType::Ethernet,
            interface: self.interface,
            macs: Some(self.macs),
            vlans: Vlans::default(),
            ethertype: IPV4,
            network: Network::V4(Ipv4 { src, dst, ttl, tos, id, total_len, header_len: 20 }),
            protocol,
            fragment: Fragment::Whole,
            transport,
            tunnel: None,
            network_offset: NETWORK,
            transport_offset: TRANSPORT,
            payload_offset: self.payload_offset,
            payload_len: self.payload_len,
            wire_len: self.wire_len,
        }
    }

    /// Number of the input interface.
    #[inline]
    #[must_use]
    pub const fn interface(&self) -> u16 {
        self.interface
    }

    /// Changes the headers as [`Rewrite::seen_in`] does.
    #[inline]
    pub fn rewrite(&mut self, rewrite: &Rewrite) {
        if let Some(macs) = rewrite.macs {
            self.macs = match macs {
                Macs::Swap => (self.macs.1, self.macs.0),
                Macs::Set(src, dst) => (src, dst),
            };
        }
        if let Some(end) = rewrite.src
            && let IpAddr::V4(address) = end.address
        {
            (self.src, self.src_port) = (address, end.port);
        }
        if let Some(end) = rewrite.dst
            && let IpAddr::V4(address) = end.address
        {
            (self.dst, self.dst_port) = (address, end.port);
        }
        self.ttl = rewrite.ttl.unwrap_or(self.ttl.saturating_sub(u8::from(rewrite.decrement_ttl)));
        self.tos = rewrite.tos.unwrap_or(self.tos);
    }
}
