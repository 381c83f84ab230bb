//! Verifies the checksums of a packet.

use crate::checksum::Checksum;
use crate::crc32c::crc32c;
use crate::headers::{Fragment, Headers, Network, Transport, protocol};

impl Headers {
    /// False if a checksum that Linux's connection tracker verifies is wrong: IPv4 header, TCP, UDP, ICMP, ICMPv6, SCTP. `frame` is the
    /// frame that these headers were parsed from.
    ///
    /// Fragments and truncated packets are verified up to their IPv4 header only. All else is as in Linux:
    ///
    /// - A UDP checksum of zero means that there is none, in IPv6 too.
    /// - Checksums cover the whole IP payload, also what follows the UDP length (RFC 9868).
    /// - They cover the IPv6 destination as it is, also if a routing header has stops left.
    ///
    /// A packet that was captured on its sender is wrong if the network card computes checksums there.
    #[must_use]
    pub fn checksums_hold(&self, frame: &[u8]) -> bool {
        let at = usize::from(self.network_offset);
        let (addresses, len) = match self.network {
            Network::V4(ip) => {
                let header_len = usize::from(ip.header_len);
                if frame.get(at..at + header_len).is_some_and(|header| sum(header).value() != 0) {
                    return false;
                }
                (at + 12..at + 20, usize::from(ip.total_len).saturating_sub(header_len))
            }
            Network::V6(ip) => {
                let len = (40 + usize::from(ip.payload_len)).saturating_sub(ip.header_len.into());
                (at + 8..at + 40, len)
            }
            Network::None | Network::Unreadable | Network::Arp => return true,
        };
        if self.fragment != Fragment::Whole {
            return true;
        }
        let at = usize::from(self.transport_offset);
        let (Some(addresses), Some(segment)) = (frame.get(addresses), frame.get(at..at + len)) else { return true };
        let mut pseudo = Checksum::default();
        match self.transport {
            Transport::None => return true,
            Transport::Sctp { .. } => return sctp_holds(segment),
            Transport::Udp { .. } if segment.get(6..8) == Some(&[0, 0]) => return true,
            Transport::Icmp(_) if self.protocol == protocol::ICMP => {}
            Transport::Tcp(_) | Transport::Udp { .. } | Transport::Icmp(_) => {
                pseudo = sum(addresses);
                pseudo.add_word(self.protocol.into());
                pseudo.add_word(len as u16);
            }
        }
        pseudo.merge(sum(segment));
        pseudo.value() == 0
    }
}

#[inline(always)]
fn sum(bytes: &[u8]) -> Checksum {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum
}

/// The CRC is over the whole message, with zeros in its own place.
fn sctp_holds(message: &[u8]) -> bool {
    let Some((head, chunks)) = message.split_first_chunk::<12>() else { return true };
    let crc = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    crc == crc32c(head[..8].iter().chain(&[0; 4]).chain(chunks))
}
