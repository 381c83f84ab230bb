//! Length fields of headers whose payload was taken away, or given back.

use packet::{Checksum, Headers, LinkType, Network, Transport, parse};

/// Lowers or raises the IP and UDP lengths of a frame by `by` bytes, also of packets inside tunnels; IPv4 header checksums follow. A UDP
/// checksum of a tunnel is set to zero, which means that there is none. Checksums of the innermost transport stay: they are right for the
/// whole packet. False if a length would leave its field, or the frame doesn't parse: then the frame may be half changed.
pub(crate) fn change(link: LinkType, frame: &mut [u8], wire_len: usize, by: i32) -> bool {
    let Ok(headers) = parse(link, frame, wire_len as u32, 0) else { return false };
    change_all(&headers, frame, by)
}

fn change_all(headers: &Headers, frame: &mut [u8], by: i32) -> bool {
    let network = usize::from(headers.network_offset);
    let changed = match headers.network {
        Network::V4(_) => change_ipv4(&mut frame[network..], by),
        Network::V6(_) => change_field(&mut frame[network..], 4, by).is_some(),
        Network::None | Network::Unreadable | Network::Arp => false,
    };
    let datagram = usize::from(headers.transport_offset);
    let changed = changed
        && match headers.transport {
            Transport::Udp { .. } => change_field(&mut frame[datagram..], 4, by).is_some(),
            _ => true,
        };
    let Some(tunnel) = headers.tunnel.filter(|_| changed) else { return changed };
    if matches!(headers.transport, Transport::Udp { .. })
        && let Some(checksum) = frame.get_mut(datagram + 6..datagram + 8)
    {
        checksum.fill(0);
    }
    match headers.inner(frame) {
        Some(Ok(inner)) => change_all(&inner, &mut frame[usize::from(tunnel.inner_offset)..], by),
        Some(Err(_)) | None => false,
    }
}

fn change_ipv4(header: &mut [u8], by: i32) -> bool {
    let Some((old, new)) = change_field(header, 2, by) else { return false };
    let Some(&[high, low]) = header.get(10..12) else { return false };
    // The other form of zero, which no sender writes, would not come back.
    if [high, low] == [0xff; 2] {
        return false;
    }
    let mut checksum = Checksum::default();
    checksum.replace_word(old, new);
    let checksum = checksum.adjust(u16::from_be_bytes([high, low]));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Changes a length field; returns its old and its new value.
fn change_field(header: &mut [u8], at: usize, by: i32) -> Option<(u16, u16)> {
    let field = header.get_mut(at..at + 2)?;
    let old = u16::from_be_bytes([field[0], field[1]]);
    // Zero means "the rest of the frame" where the card segments.
    let new = if old == 0 { 0 } else { u16::try_from(i32::from(old) + by).ok().filter(|new| *new > 0)? };
    field.copy_from_slice(&new.to_be_bytes());
    Some((old, new))
}
