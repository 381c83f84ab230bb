//! Tunnels, seen from outside: GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348), Geneve (RFC 8926), IP in IP.

use super::ip::Datagram;
use super::{array, be16, be32};
use crate::headers::{Malformed, Tunnel, TunnelKind, protocol};
use crate::link::LinkType;

const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;

/// True if UDP to this port may be a tunnel.
#[inline(always)]
pub(super) const fn is_port(dst_port: u16) -> bool {
    matches!(dst_port, VXLAN | GENEVE)
}

/// The tunnel in UDP to `dst_port`, whose payload begins at `at`. What doesn't look like one is other traffic.
pub(super) fn behind_udp(bytes: &[u8], at: usize, dst_port: u16) -> Option<Tunnel> {
    if !is_port(dst_port) {
        return None;
    }
    let head: &[u8; 8] = array(bytes, at)?;
    let id = be32(head, 4) >> 8;
    let (kind, inner_link, header_len) = match dst_port {
        // The flag that says that there is a network identifier.
        VXLAN if head[0] & 0x08 != 0 => (TunnelKind::Vxlan, LinkType::Ethernet, 8),
        // Version 0 and options.
        GENEVE if head[0] >> 6 == 0 => {
            (TunnelKind::Geneve, link_of(be16(head, 2))?, 8 + usize::from(head[0] & 0x3f) * 4)
        }
        _ => return None,
    };
    offer(bytes, kind, id, inner_link, at + header_len)
}

/// The tunnel directly in IP, if `ip` carries one.
pub(super) fn behind_ip(bytes: &[u8], ip: &Datagram) -> Result<Option<Tunnel>, Malformed> {
    let at = ip.transport_offset;
    match ip.protocol {
        protocol::IPIP => Ok(offer(bytes, TunnelKind::Ip, 0, LinkType::Ipv4, at)),
        protocol::IPV6 => Ok(offer(bytes, TunnelKind::Ip, 0, LinkType::Ipv6, at)),
        protocol::GRE => behind_gre(bytes, at),
        _ => Ok(None),
    }
}

fn behind_gre(bytes: &[u8], at: usize) -> Result<Option<Tunnel>, Malformed> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 0x0007;

    let head: &[u8; 4] = array(bytes, at).ok_or(Malformed::TransportTruncated)?;
    let flags = be16(head, 0);
    // Version 1 is PPTP's, which carries PPP; source routes are RFC 1701's and gone from its successors.
    let (true, Some(inner_link)) = (flags & (VERSION | ROUTING) == 0, link_of(be16(head, 2))) else {
        return Ok(None);
    };
    let key_offset = at + if flags & CHECKSUM != 0 { 8 } else { 4 };
    let (id, behind_key) = if flags & KEY != 0 {
        let key: &[u8; 4] = array(bytes, key_offset).ok_or(Malformed::TransportTruncated)?;
        (be32(key, 0), key_offset + 4)
    } else {
        (0, key_offset)
    };
    let inner_offset = behind_key + if flags & SEQUENCE != 0 { 4 } else { 0 };
    if inner_offset > bytes.len() {
        return Err(Malformed::TransportTruncated);
    }
    Ok(offer(bytes, TunnelKind::Gre, id, inner_link, inner_offset))
}

/// How a packet of this EtherType begins.
const fn link_of(ethertype: u16) -> Option<LinkType> {
    match ethertype {
        0x0800 => Some(LinkType::Ipv4),
        0x86dd => Some(LinkType::Ipv6),
        0x6558 => Some(LinkType::Ethernet),
        _ => None,
    }
}

/// A tunnel whose inside begins within what was captured.
fn offer(bytes: &[u8], kind: TunnelKind, id: u32, inner_link: LinkType, at: usize) -> Option<Tunnel> {
    (at <= bytes.len()).then_some(Tunnel { kind, id, inner_link, inner_offset: at as u16 })
}
