//! The filter: what passes to the kernel, what goes across, and what goes to the function.
//!
//! The XDP program `bpf/xsk.c` applies it. What goes across is told here, and a test holds the program against the same filter in Rust.

use std::fmt;

use crate::error::XdpError;

/// A choice of packets that pass to the kernel or go across. All else goes to the function, and is dropped where no socket is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What becomes of link traffic: all that is not IP, such as ARP, and IPv6 neighbour discovery (ICMPv6 types 133 to 137).
    pub link: LinkPolicy,
    /// Packets to these ports pass to the kernel, whatever their address: keep it empty, or to ports that only this machine serves.
    /// Fragments never match, and neither do IPv6 packets with extension headers. At most [`MANAGEMENT_MAX`].
    pub management: Vec<ManagementPort>,
}

/// Management ports that a filter has room for.
pub const MANAGEMENT_MAX: usize = 8;

/// Destination of link traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPolicy {
    /// It passes to the kernel, which answers for its own addresses.
    Kernel,
    /// It goes to the function, as all else.
    Function,
    /// The port sends it to the paired interface itself. The function doesn't see it.
    Across,
}

/// A port whose packets pass to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementPort {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination port.
    pub port: u16,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Destination of a packet.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// To the socket, for the function.
    Function,
    /// Link traffic.
    Link,
    /// To the kernel.
    Management,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// Bytes of a filter in the program's map: `struct filter` of `bpf/xsk.c`.
pub(crate) const ENCODED_LEN: usize = 8 + 4 * MANAGEMENT_MAX;

impl Filter {
    /// The default: link traffic goes across if the interfaces are paired, and to the kernel otherwise; no management ports.
    #[must_use]
    pub const fn for_interfaces(interfaces: usize) -> Self {
        let link = if interfaces.is_multiple_of(2) { LinkPolicy::Across } else { LinkPolicy::Kernel };
        Self { link, management: Vec::new() }
    }

    pub(crate) fn check(&self, interfaces: usize) -> Result<(), XdpError> {
        if self.link == LinkPolicy::Across && !interfaces.is_multiple_of(2) {
            return Err(XdpError::Option(format!(
                "link traffic goes across between pairs of interfaces, and here is an odd number of them, {interfaces}; let it pass to the kernel or to the \
                 function"
            )));
        }
        if self.management.len() > MANAGEMENT_MAX {
            return Err(XdpError::Option(format!(
                "{} management ports: the filter has room for {MANAGEMENT_MAX}",
                self.management.len()
            )));
        }
        Ok(())
    }

    /// The filter as the program reads it.
    pub(crate) fn encode(&self) -> [u8; ENCODED_LEN] {
        let mut words = [0_u32; ENCODED_LEN / 4];
        words[0] = match self.link {
            LinkPolicy::Function => 0,
            LinkPolicy::Kernel => 1,
            LinkPolicy::Across => 2,
        };
        words[1] = self.management.len() as u32;
        for (word, management) in words[2..].iter_mut().zip(&self.management) {
            *word = u32::from(management.protocol.number()) << 16 | u32::from(management.port);
        }
        let mut bytes = [0; ENCODED_LEN];
        for (four, word) in bytes.chunks_exact_mut(4).zip(words) {
            four.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// What the program does with a frame. Frames too short for their headers go to the function.
    #[cfg(test)]
    pub(crate) fn decide(&self, frame: &[u8]) -> Verdict {
        if is_link(frame) {
            return Verdict::Link;
        }
        let matches = |protocol: u8, transport: usize| {
            let Some(port) = word(frame, transport + 2) else { return false };
            self.management.iter().any(|one| one.protocol.number() == protocol && one.port == port)
        };
        let Some((kind, at)) = layer3(frame) else { return Verdict::Function };
        let is_management = match kind {
            IPV4 if frame.len() >= at + 20 => {
                let (header, flags) = (usize::from(frame[at] & 15) * 4, word(frame, at + 6).unwrap_or(0));
                header >= 20 && flags & 0x3fff == 0 && matches(frame[at + 9], at + header)
            }
            IPV6 if frame.len() >= at + 40 => matches(frame[at + 6], at + 40),
            _ => false,
        };
        if is_management { Verdict::Management } else { Verdict::Function }
    }
}

/// True for link traffic: what is not IP, and neighbour discovery.
#[inline]
pub(crate) fn is_link(frame: &[u8]) -> bool {
    // By far the most packets end here.
    if frame.len() >= 14 && frame[12..14] == IPV4.to_be_bytes() {
        return false;
    }
    match layer3(frame) {
        Some((IPV6, at)) => frame.len() > at + 40 && frame[at + 6] == ICMPV6 && (133..=137).contains(&frame[at + 40]),
        Some((IPV4, _)) | None => false,
        Some(_) => true,
    }
}

/// The type of the header behind up to two VLAN tags, and where it begins; `None` if the frame ends before.
fn layer3(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = 14;
    let mut kind = word(frame, 12)?;
    for _ in TAGS {
        if !TAGS.contains(&kind) {
            break;
        }
        kind = word(frame, at + 2)?;
        at += 4;
    }
    Some((kind, at))
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

impl Protocol {
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match self.link {
            LinkPolicy::Kernel => "to the kernel",
            LinkPolicy::Function => "to the function",
            LinkPolicy::Across => "across",
        };
        write!(to, "ARP, neighbour discovery and what is not IP go {link}")?;
        for (nth, ManagementPort { protocol, port }) in self.management.iter().enumerate() {
            let protocol = match protocol {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
            };
            write!(to, "{} {protocol} {port}", if nth == 0 { "; to the kernel go packets to" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_traffic_is_told_behind_tags_and_a_short_frame_goes_to_the_function() {
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(is_link(&arp));
        let mut tagged = vec![0; 60];
        tagged[12..20].copy_from_slice(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
        tagged[20..22].copy_from_slice(&[8, 6]);
        assert!(is_link(&tagged));
        tagged[20..22].copy_from_slice(&[8, 0]);
        assert!(!is_link(&tagged));
        assert!(!is_link(&tagged[..19]) && !is_link(&[]));
        let mut solicitation = vec![0; 80];
        solicitation[12..14].copy_from_slice(&[0x86, 0xdd]);
        (solicitation[20], solicitation[54]) = (58, 135);
        assert!(is_link(&solicitation));
        solicitation[54] = 128;
        assert!(!is_link(&solicitation), "an echo is for the function");
    }

    #[test]
    fn a_filter_says_what_it_does() {
        let mut filter = Filter::for_interfaces(2);
        assert_eq!(filter.to_string(), "ARP, neighbour discovery and what is not IP go across");
        filter.management = vec![
            ManagementPort { protocol: Protocol::Tcp, port: 22 },
            ManagementPort { protocol: Protocol::Udp, port: 161 },
        ];
        assert!(filter.to_string().ends_with("; to the kernel go packets to tcp 22, udp 161"), "{filter}");
        assert!(filter.check(1).is_err() && filter.check(2).is_ok());
    }
}
