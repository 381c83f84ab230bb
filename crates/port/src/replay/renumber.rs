//! Changes addresses from loop to loop, so that the flows of a replayed trace end and new ones begin.

use packet::{Checksum, Network, Transport, parse, protocol};

use crate::batch::Packet;

/// Combines the host part of both addresses of every IP packet with the loop number (exclusive or). Right checksums stay right, wrong
/// ones stay wrong.
///
/// Both addresses change in the same way, so that both directions of a flow stay together. The bits of the loop number are reversed, so
/// that the first loops change the bits in which the trace's hosts differ least. Loop 0 is the unchanged trace. Only the outermost IP
/// header changes, not tunnelled packets or packets quoted by ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renumber {
    host_bits: u32,
}

impl Renumber {
    /// Changes the lowest `host_bits` bits of IPv4 addresses, and the upper half of the lower 64 bits of IPv6 addresses. Loops repeat
    /// after 2^`host_bits`.
    ///
    /// # Panics
    /// `host_bits` is not 1 to 32.
    #[must_use]
    pub const fn new(host_bits: u32) -> Self {
        assert!(host_bits >= 1 && host_bits <= 32, "an IPv4 address has 1 to 32 host bits");
        Self { host_bits }
    }

    /// Changes the packets of a burst, `sites` being theirs.
    pub(super) fn apply(self, looped: u64, sites: &[Site], packets: &[Packet], memory: &mut [u8]) {
        let reversed = (looped as u32).reverse_bits();
        let (v4, v6) = (reversed >> (32 - self.host_bits), reversed);
        for (site, packet) in sites.iter().zip(packets) {
            let bytes = &mut memory[packet.offset as usize..][..packet.len as usize];
            match site.addresses {
                Addresses::None => {}
                Addresses::V4 => site.change_v4(bytes, v4),
                Addresses::V6 => site.change_v6(bytes, v6),
            }
        }
    }
}

impl Default for Renumber {
    /// 16 bits, so that private /16 networks stay the same.
    fn default() -> Self {
        Self::new(16)
    }
}

/// Positions of a packet's addresses and checksums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    addresses: Addresses,
    /// The IP header.
    network: u16,
    /// The transport's checksum if it covers the addresses and was captured; 0 otherwise.
    transport: u16,
    /// That checksum is UDP's, where 0 stands for none.
    is_udp: bool,
}

#[derive(Clone, Copy, Debug)]
enum Addresses {
    None,
    V4,
    V6,
}

impl Site {
    /// Finds them. A malformed packet is left unchanged.
    pub(super) fn find(packet: &Packet, bytes: &[u8]) -> Self {
        let none = Self { addresses: Addresses::None, network: 0, transport: 0, is_udp: false };
        let Ok(headers) = parse(packet.link, bytes, packet.wire_len, packet.interface) else { return none };
        let addresses = match headers.network {
            Network::None | Network::Unreadable | Network::Arp => return none,
            Network::V4(_) => Addresses::V4,
            Network::V6(_) => Addresses::V6,
        };
        let checksum = match headers.transport {
            Transport::Tcp(_) => Some(16),
            Transport::Udp { .. } => Some(6),
            Transport::Icmp(_) if headers.protocol == protocol::ICMPV6 => Some(2),
            Transport::Icmp(_) | Transport::Sctp { .. } | Transport::None => None,
        };
        let transport = checksum.map_or(0, |offset| headers.transport_offset + offset);
        let captured = usize::from(transport) + 2 <= bytes.len();
        Self {
            addresses,
            network: headers.network_offset,
            transport: if captured { transport } else { 0 },
            is_udp: matches!(headers.transport, Transport::Udp { .. }),
        }
    }

    #[inline]
    fn change_v4(&self, bytes: &mut [u8], with: u32) {
        let network = usize::from(self.network);
        let Some(header) = bytes[network..].first_chunk_mut::<20>() else { return };
        let mut change = Checksum::default();
        for at in [12, 16] {
            exclusive_or(&mut header[at..at + 4], with, &mut change);
        }
        let checksum = u16::from_be_bytes([header[10], header[11]]);
        header[10..12].copy_from_slice(&change.adjust(checksum).to_be_bytes());
        self.adjust_transport(bytes, change);
    }

    #[inline]
    fn change_v6(&self, bytes: &mut [u8], with: u32) {
        let network = usize::from(self.network);
        let Some(header) = bytes[network..].first_chunk_mut::<40>() else { return };
        let mut change = Checksum::default();
        for at in [16, 32] {
            exclusive_or(&mut header[at..at + 4], with, &mut change);
        }
        self.adjust_transport(bytes, change);
    }

    #[inline]
    fn adjust_transport(&self, bytes: &mut [u8], change: Checksum) {
        if self.transport == 0 {
            return;
        }
        let place = &mut bytes[usize::from(self.transport)..][..2];
        let checksum = u16::from_be_bytes([place[0], place[1]]);
        if self.is_udp && checksum == 0 {
            return;
        }
        let adjusted = match change.adjust(checksum) {
            0 if self.is_udp => 0xffff,
            adjusted => adjusted,
        };
        place.copy_from_slice(&adjusted.to_be_bytes());
    }
}

#[inline]
fn exclusive_or(place: &mut [u8], with: u32, change: &mut Checksum) {
    let old = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
    let new = old ^ with;
    place.copy_from_slice(&new.to_be_bytes());
    change.replace_word((old >> 16) as u16, (new >> 16) as u16);
    change.replace_word(old as u16, new as u16);
}
