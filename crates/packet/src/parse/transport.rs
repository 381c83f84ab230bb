//! The transport layer: TCP (RFC 9293) with its options, UDP (RFC 768), SCTP (RFC 9260); ICMP has a file of its own.

use super::ip::Datagram;
use super::{array, be16, be32, icmp, tunnel};
use crate::headers::{Fragment, Malformed, Network, Tcp, TcpFlags, TcpOptions, Transport, Tunnel, protocol};

/// How the options of nearly every segment of an established connection begin: two fillers, then the timestamp.
pub(super) const TIMESTAMP_ALONE: [u8; 4] = [1, 1, 8, 10];

/// Window scales above this are taken as this (RFC 7323, section 2.3).
const WINDOW_SCALE_MAX: u8 = 14;

/// A transport header.
pub(super) struct Layer {
    pub(super) transport: Transport,
    pub(super) payload_offset: usize,
    /// What the transport carries of this datagram, in bytes.
    pub(super) payload_len: usize,
    pub(super) tunnel: Option<Tunnel>,
}

/// Reads the transport header of `ip`; `bytes` ends where the datagram does, or before.
pub(super) fn read(bytes: &[u8], ip: &Datagram) -> Result<Layer, Malformed> {
    let at = ip.transport_offset;
    if ip.fragment == Fragment::Later {
        return Ok(Layer { transport: Transport::None, payload_offset: at, payload_len: ip.end - at, tunnel: None });
    }
    let (transport, len, end) = match (ip.protocol, ip.network) {
        (protocol::TCP, _) => {
            let (tcp, len) = read_tcp(bytes, ip)?;
            (tcp, len, ip.end)
        }
        (protocol::UDP, _) => {
            let (udp, len) = read_udp(bytes, ip)?;
            (udp, 8, at + len)
        }
        (protocol::SCTP, _) => {
            let head: &[u8; 12] = array(bytes, at).ok_or(Malformed::TransportTruncated)?;
            (Transport::Sctp { src_port: be16(head, 0), dst_port: be16(head, 2) }, 12, ip.end)
        }
        (protocol::ICMP, Network::V4(_)) | (protocol::ICMPV6, Network::V6(_)) => {
            (Transport::Icmp(icmp::read(bytes, ip)?), 8, ip.end)
        }
        _ => (Transport::None, 0, ip.end),
    };
    let bytes = &bytes[..bytes.len().min(end)];
    // The inside of a tunnel's first fragment isn't whole, so it isn't offered.
    let tunnel = match (ip.fragment, transport) {
        (Fragment::Whole, Transport::Udp { dst_port, .. }) => tunnel::behind_udp(bytes, at + len, dst_port),
        (Fragment::Whole, Transport::None) => tunnel::behind_ip(bytes, ip)?,
        _ => None,
    };
    Ok(Layer { transport, payload_offset: at + len, payload_len: end - (at + len), tunnel })
}

/// Reads a UDP header. Returns with it how much of the datagram is UDP's: what lies behind that is surplus (RFC 9868).
fn read_udp(bytes: &[u8], ip: &Datagram) -> Result<(Transport, usize), Malformed> {
    let head: &[u8; 8] = array(bytes, ip.transport_offset).ok_or(Malformed::TransportTruncated)?;
    let room = ip.end - ip.transport_offset;
    let len = match (be16(head, 4), ip.network) {
        // A jumbogram (RFC 2675) leaves the length out.
        (0, Network::V6(_)) => room,
        (len, _) => usize::from(len),
    };
    // In a first fragment the length is the whole datagram's.
    if len < 8 || (len > room && ip.fragment == Fragment::Whole) {
        return Err(Malformed::TransportLength);
    }
    Ok((Transport::Udp { src_port: be16(head, 0), dst_port: be16(head, 2) }, len.min(room)))
}

/// Reads a TCP header, which must be whole, and its options, as far as they were captured.
fn read_tcp(bytes: &[u8], ip: &Datagram) -> Result<(Transport, usize), Malformed> {
    let at = ip.transport_offset;
    let head: &[u8; 20] = array(bytes, at).ok_or(Malformed::TransportTruncated)?;
    let header_len = usize::from(head[12] >> 4) * 4;
    if header_len < 20 {
        return Err(Malformed::TransportLength);
    }
    if at + header_len > ip.end {
        let is_whole = ip.fragment == Fragment::Whole;
        return Err(if is_whole { Malformed::TransportLength } else { Malformed::TransportTruncated });
    }
    let options = &bytes[at + 20..bytes.len().min(at + header_len)];
    let (ack, flags) = (be32(head, 8), TcpFlags(head[13]));
    let options = if options.len() == 12 && options.starts_with(&TIMESTAMP_ALONE) {
        TcpOptions::default()
    } else {
        read_options(options, ack, flags.contains(TcpFlags::SYN))
    };
    let tcp = Tcp {
        src_port: be16(head, 0),
        dst_port: be16(head, 2),
        seq: be32(head, 4),
        ack,
        flags,
        window: be16(head, 14),
        options,
    };
    Ok((Transport::Tcp(tcp), header_len))
}

/// Reads TCP options up to the first that has no end (a length of 0 or 1, or beyond the header): the segment counts with those in
/// front of it, as it does for hosts. What only a SYN may carry is ignored elsewhere (RFC 7323, section 2.2), and so are known
/// options of a length that they don't have.
pub(super) fn read_options(mut options: &[u8], ack: u32, is_syn: bool) -> TcpOptions {
    let mut found = TcpOptions::default();
    while let [kind, rest @ ..] = options {
        let len = match (kind, rest) {
            (0, _) => break,
            (1, _) => 1,
            (_, [len, ..]) if *len >= 2 => usize::from(*len),
            _ => break,
        };
        let Some((option, behind)) = options.split_at_checked(len) else { break };
        match *option {
            [2, _, high, low] if is_syn => found.mss = Some(u16::from_be_bytes([high, low])),
            [3, _, shift] if is_syn => {
                found.window_scale = Some(shift.min(WINDOW_SCALE_MAX));
                found.sack_first = found.sack_permitted;
            }
            [4, _] if is_syn => found.sack_permitted = true,
            [5, _, ref blocks @ ..] => found.sack_edge = highest_edge(blocks, ack).or(found.sack_edge),
            _ => {}
        }
        options = behind;
    }
    found
}

/// The highest right edge of selective acknowledgement blocks (RFC 2018), counted on from `ack`.
fn highest_edge(blocks: &[u8], ack: u32) -> Option<u32> {
    let (blocks, _) = blocks.as_chunks::<8>();
    blocks.iter().map(|block| be32(block, 4)).max_by_key(|right| right.wrapping_sub(ack).cast_signed())
}
