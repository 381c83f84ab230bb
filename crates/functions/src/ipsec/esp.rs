//! Encapsulation and decapsulation: ESP in tunnel mode (RFC 4303) with AES-GCM (RFC 4106), without state.

use alloc::vec::Vec;
use core::net::IpAddr;

use nf::Reason;
use packet::{Checksum, Headers, LinkType, Network, protocol};

use super::gcm::{Gcm, NONCE, TAG};
use super::reason;

/// Bytes of SPI, sequence number and explicit part of the nonce.
pub(super) const HEADER: usize = 16;

/// Maximum growth of a packet: the longest outer header, padding, trailer and tag.
pub(super) const GROWTH: u32 = 40 + (HEADER + 3 + 2 + TAG) as u32;

const ETHERTYPE_V4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];

/// The security association of one direction of a tunnel.
#[derive(Clone, Debug)]
pub(super) struct Association {
    pub(super) spi: u32,
    pub(super) salt: [u8; 4],
    pub(super) gcm: Gcm,
}

/// The parts of an ESP packet.
struct Parts<'a> {
    /// Authenticated, but not encrypted.
    head: &'a [u8],
    nonce: [u8; NONCE],
    ciphertext: &'a [u8],
    tag: &'a [u8; TAG],
}

impl Association {
    fn nonce(&self, explicit: [u8; 8]) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&explicit);
        nonce
    }

    /// Splits an ESP packet of this association into its parts; `None` if it is too short.
    fn parts<'a>(&self, esp: &'a [u8]) -> Option<Parts<'a>> {
        let (header, sealed) = esp.split_first_chunk::<HEADER>()?;
        let (ciphertext, tag) = sealed.split_last_chunk()?;
        let (head, explicit) = header.split_first_chunk::<8>()?;
        Some(Parts { head, nonce: self.nonce(*explicit.first_chunk()?), ciphertext, tag })
    }

    /// Returns true if the packet's tag matches this key.
    pub(super) fn is_authentic(&self, esp: &[u8]) -> bool {
        let is_authentic = |parts: Parts<'_>| {
            let Parts { head, nonce, ciphertext, tag } = parts;
            self.gcm.is_authentic(nonce, head, ciphertext, tag)
        };
        self.parts(esp).is_some_and(is_authentic)
    }
}

/// Appends to `out` the frame with its packet encrypted, from `local` to `peer`.
pub(super) fn encapsulate(
    association: &Association,
    [local, peer]: [IpAddr; 2],
    (number, mtu): (u32, u64),
    headers: &Headers,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let inner = inner_of(headers, bytes)?;
    let padding = (inner.len() + 2).next_multiple_of(4) - (inner.len() + 2);
    let esp_len = HEADER + inner.len() + padding + 2 + TAG;
    let ip_len = if local.is_ipv4() { 20 } else { 40 };
    if (ip_len + esp_len) as u64 > mtu {
        return Err(reason::TOO_BIG);
    }
    link_header(headers, bytes, local.is_ipv4(), out)?;
    let (tos, dont_fragment, next) = match headers.network {
        Network::V4(ip) => (ip.tos, inner[6] & 0x40 != 0, protocol::IPIP),
        Network::V6(ip) => (ip.traffic_class, true, protocol::IPV6),
        Network::None | Network::Unreadable | Network::Arp => return Err(reason::NO_POLICY),
    };
    match (local, peer) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => {
            let mut header = [0; 20];
            header[0] = 0x45;
            header[1] = tos;
            header[2..4].copy_from_slice(&((ip_len + esp_len) as u16).to_be_bytes());
            // Fragments on the path need an identification (RFC 6864).
            match dont_fragment {
                true => header[6] = 0x40,
                false => header[4..6].copy_from_slice(&(number as u16).to_be_bytes()),
            }
            header[8] = 64;
            header[9] = protocol::ESP;
            header[12..16].copy_from_slice(&local.octets());
            header[16..].copy_from_slice(&peer.octets());
            let mut checksum = Checksum::default();
            checksum.add(&header);
            header[10..12].copy_from_slice(&checksum.value().to_be_bytes());
            out.extend_from_slice(&header);
        }
        (IpAddr::V6(local), IpAddr::V6(peer)) => {
            out.extend_from_slice(&(6 << 28 | u32::from(tos) << 20).to_be_bytes());
            out.extend_from_slice(&(esp_len as u16).to_be_bytes());
            out.extend_from_slice(&[protocol::ESP, 64]);
            out.extend_from_slice(&local.octets());
            out.extend_from_slice(&peer.octets());
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            unreachable!("a tunnel's ends are of one family")
        }
    }
    let esp = out.len();
    let explicit = u64::from(number).to_be_bytes();
    out.extend_from_slice(&association.spi.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&explicit);
    let text = out.len();
    out.extend_from_slice(inner);
    hop(&mut out[text..])?;
    out.extend((1..=padding as u8).chain([padding as u8, next]));
    let (head, sealed) = out.split_at_mut(text);
    let tag = association.gcm.seal(association.nonce(explicit), &head[esp..esp + 8], sealed);
    out.extend_from_slice(&tag);
    Ok(())
}

/// Appends to `out` the frame with the decrypted packet. Its addresses must satisfy `fits`. The tag has been checked before.
pub(super) fn decapsulate(
    association: &Association,
    fits: impl Fn(IpAddr, IpAddr) -> bool,
    headers: &Headers,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let Parts { nonce, ciphertext, .. } = association.parts(headers.payload(bytes)).ok_or(reason::FORGED)?;
    // Padding aligns it to four bytes.
    if !ciphertext.len().is_multiple_of(4) {
        return Err(reason::MALFORMED);
    }
    // Decrypted in place behind the link header, which needs the address family from the trailer.
    let link = link_header_len(headers)?;
    out.extend_from_slice(&bytes[..link]);
    out.extend_from_slice(ciphertext);
    association.gcm.crypt(nonce, &mut out[link..]);
    let (text, &[padding, next]) = out[link..].split_last_chunk().ok_or(reason::MALFORMED)?;
    let (text, pad) = text.split_at_checked(text.len().wrapping_sub(padding.into())).ok_or(reason::MALFORMED)?;
    if pad.iter().zip(1..).any(|(byte, expected)| *byte != expected) {
        return Err(reason::MALFORMED);
    }
    let kind = match next {
        protocol::IPIP => LinkType::Ipv4,
        protocol::IPV6 => LinkType::Ipv6,
        protocol::NO_NEXT => return Err(reason::DUMMY),
        _ => return Err(reason::MALFORMED),
    };
    let inner = packet::parse(kind, text, text.len() as u32, 0).map_err(|_| reason::MALFORMED)?;
    let (source, destination) = inner.addresses().ok_or(reason::MALFORMED)?;
    if !fits(source, destination) {
        return Err(reason::SELECTOR);
    }
    let len = inner_of(&inner, text)?.len();
    out.truncate(link + len);
    let tos = match headers.network {
        Network::V4(ip) => ip.tos,
        Network::V6(ip) => ip.traffic_class,
        Network::None | Network::Unreadable | Network::Arp => 0,
    };
    congestion(&mut out[link..], tos)?;
    hop(&mut out[link..])?;
    ethertype(headers, &mut out[..link], kind == LinkType::Ipv4)
}

/// Returns the IP packet of a frame, without a link trailer.
fn inner_of<'a>(headers: &Headers, bytes: &'a [u8]) -> Result<&'a [u8], Reason> {
    let end = usize::from(headers.payload_offset) + headers.payload_len as usize;
    bytes.get(usize::from(headers.network_offset)..end).ok_or(reason::TRUNCATED)
}

fn link_header_len(headers: &Headers) -> Result<usize, Reason> {
    match headers.link {
        LinkType::Ethernet | LinkType::RawIp => Ok(headers.network_offset.into()),
        LinkType::Null
        | LinkType::Loop
        | LinkType::LinuxSll
        | LinkType::LinuxSll2
        | LinkType::Ipv4
        | LinkType::Ipv6
        | LinkType::Other(_) => Err(reason::LINK),
    }
}

fn link_header(headers: &Headers, bytes: &[u8], is_v4: bool, out: &mut Vec<u8>) -> Result<(), Reason> {
    let start = out.len();
    out.extend_from_slice(&bytes[..link_header_len(headers)?]);
    ethertype(headers, &mut out[start..], is_v4)
}

/// Sets the EtherType at the end of an Ethernet header.
fn ethertype(headers: &Headers, link: &mut [u8], is_v4: bool) -> Result<(), Reason> {
    match (headers.link, link.last_chunk_mut()) {
        (LinkType::Ethernet, Some(ethertype)) => *ethertype = if is_v4 { ETHERTYPE_V4 } else { ETHERTYPE_V6 },
        (LinkType::Ethernet, None) => return Err(reason::LINK),
        _ => {}
    }
    Ok(())
}

/// Decrements the hop limit, as a forwarder must.
fn hop(ip: &mut [u8]) -> Result<(), Reason> {
    let is_v4 = ip[0] >> 4 == 4;
    let ttl = if is_v4 { &mut ip[8] } else { &mut ip[7] };
    let remaining = ttl.checked_sub(1).filter(|remaining| *remaining > 0).ok_or(reason::TTL)?;
    let old = core::mem::replace(ttl, remaining);
    if is_v4 {
        change_v4(ip, u16::from(old) << 8, u16::from(remaining) << 8);
    }
    Ok(())
}

/// Copies a congestion mark of the outer header to the inner packet (RFC 6040).
fn congestion(ip: &mut [u8], outer: u8) -> Result<(), Reason> {
    const MARKED: u8 = 0b11;
    if outer & MARKED != MARKED {
        return Ok(());
    }
    if ip[0] >> 4 == 4 {
        let old = ip[1];
        if old & MARKED == 0 {
            return Err(reason::CONGESTION);
        }
        ip[1] |= MARKED;
        change_v4(ip, old.into(), u16::from(old | MARKED));
    } else {
        // The traffic class spans the first two bytes.
        if ip[1] & MARKED << 4 == 0 {
            return Err(reason::CONGESTION);
        }
        ip[1] |= MARKED << 4;
    }
    Ok(())
}

fn change_v4(ip: &mut [u8], old: u16, new: u16) {
    let mut change = Checksum::default();
    change.replace_word(old, new);
    let checksum = change.adjust(u16::from_be_bytes([ip[10], ip[11]]));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}
