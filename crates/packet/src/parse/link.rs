//! The link layer: everything in front of the network header, for each link type.

use super::{array, be16, be32, macs};
use crate::headers::{Mac, Malformed, Vlans};
use crate::link::LinkType;

pub(crate) const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
const MPLS_UNICAST: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;

/// Deeper label stacks than this are not looked through.
const MPLS_LABELS_MAX: usize = 16;

/// What stands in front of the network header.
pub(super) struct Outside {
    pub(super) macs: Option<(Mac, Mac)>,
    pub(super) vlans: Vlans,
    pub(super) ethertype: u16,
    /// Bytes in front of the network header.
    pub(super) len: usize,
    pub(super) inside: Inside,
}

/// What the link layer says that it carries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    V4,
    V6,
    Arp,
    /// IP, perhaps, at this offset: its first nibble is 4 or 6.
    Guess(usize),
    Other,
}

pub(super) fn read(link: LinkType, bytes: &[u8]) -> Result<Outside, Malformed> {
    match link {
        LinkType::Ethernet => {
            let head: &[u8; 14] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, Some(macs(head)), be16(head, 12), 14)
        }
        LinkType::LinuxSll => {
            let head: &[u8; 16] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, None, be16(head, 14), 16)
        }
        LinkType::LinuxSll2 => {
            let head: &[u8; 20] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, None, be16(head, 0), 20)
        }
        LinkType::Null | LinkType::Loop => {
            let head: &[u8; 4] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, None, of_family(be32(head, 0)), 4)
        }
        LinkType::RawIp => match bytes.first().ok_or(Malformed::IpTruncated)? >> 4 {
            4 => behind_ethertype(bytes, None, IPV4, 0),
            6 => behind_ethertype(bytes, None, IPV6, 0),
            _ => Err(Malformed::IpVersion),
        },
        LinkType::Ipv4 => behind_ethertype(bytes, None, IPV4, 0),
        LinkType::Ipv6 => behind_ethertype(bytes, None, IPV6, 0),
        LinkType::Other(_) => {
            Ok(Outside { macs: None, vlans: Vlans::default(), ethertype: 0, len: 0, inside: Inside::Other })
        }
    }
}

/// The EtherType for an address family of the loopback link types. Families are small, so the byte order shows.
const fn of_family(family: u32) -> u16 {
    match if family > 0xffff { family.swap_bytes() } else { family } {
        2 => IPV4,
        // Linux; NetBSD and OpenBSD; FreeBSD; Darwin.
        10 | 24 | 28 | 30 => IPV6,
        _ => 0,
    }
}

/// Goes on at `len`, where the payload that `ethertype` names begins. A frame of IEEE 802.3 has its length there, which
/// names nothing that is read.
fn behind_ethertype(
    bytes: &[u8],
    macs: Option<(Mac, Mac)>,
    mut ethertype: u16,
    mut len: usize,
) -> Result<Outside, Malformed> {
    let mut vlans = Vlans::default();
    while matches!(ethertype, 0x8100 | 0x88a8 | 0x9100) && vlans.count < u8::MAX {
        let tag: &[u8; 4] = array(bytes, len).ok_or(Malformed::LinkTruncated)?;
        if let Some(id) = vlans.ids.get_mut(usize::from(vlans.count)) {
            *id = be16(tag, 0) & 0x0fff;
        }
        vlans.count += 1;
        ethertype = be16(tag, 2);
        len += 4;
    }
    let (inside, len) = match ethertype {
        IPV4 => (Inside::V4, len),
        IPV6 => (Inside::V6, len),
        ARP => (Inside::Arp, len),
        MPLS_UNICAST | MPLS_MULTICAST => (behind_labels(bytes, len)?, len),
        PPPOE_SESSION => behind_pppoe(bytes, len)?,
        _ => (Inside::Other, len),
    };
    Ok(Outside { macs, vlans, ethertype, len, inside })
}

/// Looks through a stack of MPLS labels (RFC 3032), which doesn't say what it is on top of.
fn behind_labels(bytes: &[u8], start: usize) -> Result<Inside, Malformed> {
    for at in (start..).step_by(4).take(MPLS_LABELS_MAX) {
        let label: &[u8; 4] = array(bytes, at).ok_or(Malformed::LinkTruncated)?;
        if label[2] & 1 == 1 {
            return Ok(match bytes.get(at + 4) {
                Some(first) if matches!(first >> 4, 4 | 6) => Inside::Guess(at + 4),
                _ => Inside::Other,
            });
        }
    }
    Ok(Inside::Other)
}

/// Looks through PPPoE (RFC 2516) and PPP's protocol field, which one byte is enough for when it is compressed.
fn behind_pppoe(bytes: &[u8], at: usize) -> Result<(Inside, usize), Malformed> {
    let head: &[u8; 8] = array(bytes, at).ok_or(Malformed::LinkTruncated)?;
    Ok(match (head[0], head[1], head[6], head[7]) {
        (0x11, 0, 0, 0x21) => (Inside::V4, at + 8),
        (0x11, 0, 0, 0x57) => (Inside::V6, at + 8),
        (0x11, 0, 0x21, _) => (Inside::V4, at + 7),
        (0x11, 0, 0x57, _) => (Inside::V6, at + 7),
        _ => (Inside::Other, at),
    })
}
