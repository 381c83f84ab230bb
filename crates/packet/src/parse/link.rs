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

/// EtherTypes of protocols that carry no IP (IEEE and IANA registries).
const NEVER_IP: [u16; 36] = [
    0x0842, // Wake-on-LAN
    0x22ea, // stream reservation (802.1Q)
    0x22f0, // audio and video transport (1722)
    0x6001, 0x6002, 0x6004, // DEC maintenance and local area transport
    0x8035, // reverse address resolution
    0x80f3, // AppleTalk address resolution
    0x8808, // pause and priority flow control (802.3)
    0x8809, // slow protocols: link aggregation, Ethernet OAM (802.3)
    0x8863, // PPPoE discovery
    0x886d, 0x8899, // Intel teaming, Realtek remote control
    0x887b, 0x88e1, // HomePlug
    0x888e, // port authentication (802.1X)
    0x8892, 0x88a4, 0x88ab, 0x88cd, // PROFINET, EtherCAT, Powerlink, SERCOS III
    0x88a2, // ATA over Ethernet
    0x88b8, 0x88b9, 0x88ba, // substation events, management and samples (IEC 61850)
    0x88c7, // pre-authentication (802.11i)
    0x88cc, // link layer discovery (802.1AB)
    0x88e3, // media redundancy (IEC 62439)
    0x88f5, 0x88f6, // registration of VLANs and of groups (802.1ak)
    0x88f7, // precision time (1588)
    0x88fb, // parallel redundancy supervision (IEC 62439)
    0x8902, // connectivity faults (802.1ag)
    0x8906, 0x8914, // Fibre Channel over Ethernet
    0x9000, // loopback test
    0x9003, // loop detection
];

/// Larger values of the field behind Ethernet's addresses are EtherTypes (IEEE 802.3).
pub(crate) const LENGTH_MAX: u16 = 1500;
/// SLL's protocol for an IEEE 802.2 header, and those that carry no IP: raw 802.3 (IPX), CAN, CAN FD.
const SLL_LLC: u16 = 4;
const SLL_NEVER_IP: [u16; 3] = [0x0001, 0x000c, 0x000d];

/// Maximum depth of a label stack.
const MPLS_LABELS_MAX: usize = 16;
/// Maximum length of the headers before IP, mostly tags.
const LINK_HEADERS_MAX: usize = 16 << 10;

/// The headers before the network header.
pub(super) struct Outside {
    pub(super) macs: Option<(Mac, Mac)>,
    pub(super) vlans: Vlans,
    pub(super) ethertype: u16,
    /// Bytes in front of the network header.
    pub(super) len: usize,
    pub(super) inside: Inside,
}

/// The payload of the link layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    V4,
    V6,
    Arp,
    /// Perhaps IP, at this offset: its first nibble is 4 or 6.
    Guess(usize),
    /// Certainly not IP.
    Other,
    /// May contain IP that is not found.
    Unreadable,
}

pub(super) fn read(link: LinkType, bytes: &[u8]) -> Result<Outside, Malformed> {
    match link {
        LinkType::Ethernet => {
            let head: &[u8; 14] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, Some(macs(head)), Field::Ethernet(be16(head, 12)), 14)
        }
        LinkType::LinuxSll => {
            let head: &[u8; 16] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, None, Field::Sll(be16(head, 14)), 16)
        }
        LinkType::LinuxSll2 => {
            let head: &[u8; 20] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, None, Field::Sll(be16(head, 0)), 20)
        }
        LinkType::Null | LinkType::Loop => {
            let head: &[u8; 4] = array(bytes, 0).ok_or(Malformed::LinkTruncated)?;
            behind_ethertype(bytes, None, Field::EtherType(of_family(be32(head, 0))), 4)
        }
        LinkType::RawIp => match bytes.first().ok_or(Malformed::IpTruncated)? >> 4 {
            4 => behind_ethertype(bytes, None, Field::EtherType(IPV4), 0),
            6 => behind_ethertype(bytes, None, Field::EtherType(IPV6), 0),
            _ => Err(Malformed::IpVersion),
        },
        LinkType::Ipv4 => behind_ethertype(bytes, None, Field::EtherType(IPV4), 0),
        LinkType::Ipv6 => behind_ethertype(bytes, None, Field::EtherType(IPV6), 0),
        LinkType::Other(_) => {
            Ok(Outside { macs: None, vlans: Vlans::default(), ethertype: 0, len: 0, inside: Inside::Unreadable })
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

/// True for the EtherTypes of VLAN tags.
#[inline]
pub(crate) const fn is_vlan_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

/// The field that names the payload of a link header.
#[derive(Clone, Copy)]
enum Field {
    /// Behind Ethernet's addresses or a tag: an EtherType, or the length of an IEEE 802.3 frame, which an LLC header begins.
    Ethernet(u16),
    /// Linux's "cooked" capture: an EtherType or a number of its own.
    Sll(u16),
    /// An EtherType, and nothing else.
    EtherType(u16),
}

/// Goes on at `len`, where the payload that `field` names begins.
fn behind_ethertype(
    bytes: &[u8],
    macs: Option<(Mac, Mac)>,
    mut field: Field,
    mut len: usize,
) -> Result<Outside, Malformed> {
    let mut vlans = Vlans::default();
    loop {
        let (Field::Ethernet(ethertype) | Field::Sll(ethertype) | Field::EtherType(ethertype)) = field;
        if is_vlan_tag(ethertype) && len < LINK_HEADERS_MAX {
            let tag: &[u8; 4] = array(bytes, len).ok_or(Malformed::LinkTruncated)?;
            if let Some(id) = vlans.ids.get_mut(usize::from(vlans.count)) {
                *id = be16(tag, 0) & 0x0fff;
            }
            vlans.count = vlans.count.saturating_add(1);
            field = Field::Ethernet(be16(tag, 2));
            len += 4;
            continue;
        }
        let inside = match (ethertype, field) {
            (..=LENGTH_MAX, Field::Ethernet(_)) | (SLL_LLC, Field::Sll(_)) => match behind_llc(bytes, len) {
                Llc::EtherType(named) => {
                    field = Field::EtherType(named);
                    len += 8;
                    continue;
                }
                Llc::Other => Inside::Other,
                Llc::Unreadable => Inside::Unreadable,
            },
            (number, Field::Sll(_)) if SLL_NEVER_IP.contains(&number) => Inside::Other,
            (IPV4, _) => Inside::V4,
            (IPV6, _) => Inside::V6,
            (ARP, _) => Inside::Arp,
            (MPLS_UNICAST | MPLS_MULTICAST, _) => behind_labels(bytes, len)?,
            (PPPOE_SESSION, _) => {
                let (inside, len) = behind_pppoe(bytes, len)?;
                return Ok(Outside { macs, vlans, ethertype, len, inside });
            }
            (ethertype, _) if NEVER_IP.contains(&ethertype) => Inside::Other,
            _ => Inside::Unreadable,
        };
        return Ok(Outside { macs, vlans, ethertype, len, inside });
    }
}

/// The payload of an IEEE 802.2 header (LLC).
enum Llc {
    /// SNAP (RFC 1042): a payload of this EtherType, 8 bytes on.
    EtherType(u16),
    /// Surely no IP.
    Other,
    /// There may be IP, which is not found.
    Unreadable,
}

/// Reads the IEEE 802.2 header at `at`.
fn behind_llc(bytes: &[u8], at: usize) -> Llc {
    /// Spanning tree, NetBIOS, IPX (in LLC and without), the station itself (XID, TEST).
    const NEVER_IP: [u8; 5] = [0x42, 0xf0, 0xe0, 0xff, 0x00];
    /// Link control of other vendors' bridges: Cisco's loop detection, aggregation, PVST+, discovery, trunking.
    const CISCO: [u16; 7] = [0x0102, 0x0104, 0x010b, 0x0111, 0x2000, 0x2003, 0x2004];

    let (Some(&[dsap, ssap, control]), snap) = (array(bytes, at), array::<8>(bytes, at)) else {
        return Llc::Unreadable;
    };
    match (dsap, ssap, control) {
        (0xaa, 0xaa, 3) => match snap {
            // Encapsulated Ethernet, and the same where bridges tell the two apart (802.1H).
            Some(&[.., 0, 0, 0 | 0xf8, high, low]) => Llc::EtherType(u16::from_be_bytes([high, low])),
            Some(&[.., 0, 0, 0x0c, high, low]) if CISCO.contains(&u16::from_be_bytes([high, low])) => Llc::Other,
            _ => Llc::Unreadable,
        },
        // OSI's network layer, of which the next byte tells more: CLNP, ES-IS, IS-IS.
        (0xfe, 0xfe, 3) if matches!(bytes.get(at + 3), Some(0x81..=0x83)) => Llc::Other,
        // The lowest bits tell groups from single stations, and answers from commands.
        _ if dsap & !1 == ssap & !1 && (NEVER_IP.contains(&dsap) || NEVER_IP.contains(&(dsap & !1))) => Llc::Other,
        _ => Llc::Unreadable,
    }
}

/// Looks through a stack of MPLS labels (RFC 3032), which doesn't say what it is on top of.
fn behind_labels(bytes: &[u8], start: usize) -> Result<Inside, Malformed> {
    for at in (start..).step_by(4).take(MPLS_LABELS_MAX) {
        let label: &[u8; 4] = array(bytes, at).ok_or(Malformed::LinkTruncated)?;
        if label[2] & 1 == 1 {
            return Ok(match bytes.get(at + 4) {
                Some(first) if matches!(first >> 4, 4 | 6) => Inside::Guess(at + 4),
                // A pseudowire: a frame of any kind, behind a control word or not.
                _ => Inside::Unreadable,
            });
        }
    }
    Ok(Inside::Unreadable)
}

/// Looks through PPPoE (RFC 2516) and PPP's protocol field, which one byte is enough for when it is compressed.
fn behind_pppoe(bytes: &[u8], at: usize) -> Result<(Inside, usize), Malformed> {
    let head: &[u8; 8] = array(bytes, at).ok_or(Malformed::LinkTruncated)?;
    Ok(match (head[0], head[1], head[6], head[7]) {
        (0x11, 0, 0, 0x21) => (Inside::V4, at + 8),
        (0x11, 0, 0, 0x57) => (Inside::V6, at + 8),
        (0x11, 0, 0x21, _) => (Inside::V4, at + 7),
        (0x11, 0, 0x57, _) => (Inside::V6, at + 7),
        // The link's own control, and what sets network protocols up (RFC 1661, section 2).
        (0x11, 0, 0x80..=0xff, _) => (Inside::Other, at),
        _ => (Inside::Unreadable, at),
    })
}
