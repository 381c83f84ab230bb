//! Link traffic: what hosts on a wire need to find each other, and what no function reads.

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const ICMPV6: u8 = 58;
/// Router and neighbour solicitations and advertisements, and redirects (RFC 4861).
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// True for an Ethernet frame that is not IP, behind up to two VLAN tags, and for IPv6 neighbour discovery.
#[inline]
pub(crate) fn is_link(frame: &[u8]) -> bool {
    let kind_at = |at: usize| frame.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
    let mut at = 12;
    for _ in 0..VLAN_TAGS.len() {
        match kind_at(at) {
            // By far the most packets end here.
            Some(IPV4) => return false,
            Some(kind) if VLAN_TAGS.contains(&kind) => at += 4,
            _ => break,
        }
    }
    let header = frame.get(at + 2..).unwrap_or_default();
    match kind_at(at) {
        Some(IPV6) => {
            header.get(6) == Some(&ICMPV6) && header.get(40).is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
        }
        Some(IPV4) | None => false,
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame whose addresses are followed by these bytes, and by nothing.
    fn frame(kinds: &[u8], header: &[u8]) -> Vec<u8> {
        [&[1; 12], kinds, header].concat()
    }

    #[test]
    fn what_is_not_ip_is_link_traffic_also_behind_tags() {
        assert!(is_link(&frame(&[8, 6], &[0; 46])));
        assert!(is_link(&frame(&[0x81, 0, 0, 1, 8, 6], &[0; 46])));
        assert!(is_link(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 8, 6], &[0; 46])));
        // A length, as of spanning tree.
        assert!(is_link(&frame(&[0, 38], &[0x42; 38])));
        assert!(!is_link(&frame(&[8, 0], &[0x45; 46])));
        assert!(!is_link(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 8, 0], &[0x45; 46])));
        // Nothing is known of what is cut off.
        let whole = frame(&[0x81, 0, 0, 1, 8, 0], &[0x45; 46]);
        assert!((0..whole.len()).all(|len| !is_link(&whole[..len])));
    }

    #[test]
    fn neighbour_discovery_is_link_traffic_and_other_icmpv6_is_not() {
        let message = |next: u8, kind: u8| {
            let mut header = [0; 60];
            (header[6], header[40]) = (next, kind);
            is_link(&frame(&[0x86, 0xdd], &header))
        };
        assert!((133..=137).all(|kind| message(58, kind)));
        assert!(!message(58, 128) && !message(58, 138) && !message(17, 135));
        assert!(!is_link(&frame(&[0x86, 0xdd], &[0; 20])));
    }
}
