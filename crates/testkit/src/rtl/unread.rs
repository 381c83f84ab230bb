//! Decides which packets the hardware's parser leaves to software, from the bytes and without the software parser that it copies.

use packet::LinkType;

/// The part of a packet that only software parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// A link other than Ethernet.
    Link,
    /// More than two VLAN tags.
    Tags,
    /// MPLS labels or PPPoE.
    Encapsulated,
    /// A length in place of an EtherType.
    Llc,
    /// IPv6 extension headers.
    Extensions,
    /// An ICMP message that quotes a packet, if the record is about the quoted packet.
    Quote,
}

/// The ICMP errors for which a function's record is about the quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotes {
    /// None.
    None,
    /// All, as for connection tracking.
    All,
    /// Those in IPv4 except redirects, as for address translation.
    Translated,
}

impl Quotes {
    const fn of_v4(self) -> &'static [u8] {
        match self {
            Self::None => &[],
            Self::All => &[3, 4, 5, 11, 12],
            Self::Translated => &[3, 4, 11, 12],
        }
    }

    /// Returns true if an ICMPv6 message of this type is one: all below 128 are errors, assigned or not.
    fn has_v6(self, kind: u8) -> bool {
        self == Self::All && kind < 128
    }
}

impl Unread {
    /// Returns why the hardware can't parse the packet, if it can't.
    #[must_use]
    pub fn of(link: LinkType, bytes: &[u8], wire_len: u32, quotes: Quotes) -> Option<Self> {
        if link != LinkType::Ethernet {
            return Some(Self::Link);
        }
        let mut at = 12;
        let mut ethertype = be16(bytes, at)?;
        for tags in 0.. {
            match ethertype {
                0x8100 | 0x88a8 | 0x9100 if tags == 2 => return Some(Self::Tags),
                0x8100 | 0x88a8 | 0x9100 => {
                    at += 4;
                    ethertype = be16(bytes, at)?;
                }
                _ => break,
            }
        }
        let ip = bytes.get(at + 2..)?;
        let wire = wire_len as usize - (at + 2);
        match ethertype {
            0x8847 | 0x8848 | 0x8864 => Some(Self::Encapsulated),
            ..=1500 => Some(Self::Llc),
            0x0800 => quoted4(ip, wire, quotes),
            0x86dd => behind6(ip, wire, quotes),
            _ => None,
        }
    }
}

/// Tests for an ICMP error in a valid IPv4 packet.
fn quoted4(ip: &[u8], wire: usize, quotes: Quotes) -> Option<Unread> {
    let header = usize::from(ip.first()? & 15) * 4;
    let total = match be16(ip, 2)? {
        0 => wire,
        total => usize::from(total),
    };
    let sound = ip.len() >= header.max(20) && ip[0] >> 4 == 4 && (20..=total).contains(&header) && total <= wire;
    let starts = be16(ip, 6)? & 0x1fff == 0;
    let message = ip.get(header..total.min(ip.len()))?;
    let quotes = sound && starts && ip[9] == 1 && message.len() >= 8 && quotes.of_v4().contains(&message[0]);
    quotes.then_some(Unread::Quote)
}

/// Tests for extension headers, or an ICMPv6 error, after a valid IPv6 header.
fn behind6(ip: &[u8], wire: usize, quotes: Quotes) -> Option<Unread> {
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return None;
    }
    let len = match (be16(ip, 4)?, ip[6]) {
        (0, 59) => 0,
        (0, _) => wire - 40,
        (len, _) => usize::from(len),
    };
    if 40 + len > wire {
        return None;
    }
    let message = &ip[40..(40 + len).min(ip.len())];
    match ip[6] {
        0 | 43 | 44 | 51 | 60 => Some(Unread::Extensions),
        58 if message.len() >= 8 && quotes.has_v6(message[0]) => Some(Unread::Quote),
        _ => None,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}
