//! Cuts a gathered packet into fragments again: [`cut`].

use packet::{Checksum, LinkType, Network};

use super::piece::V6_LEN;

/// Calls `emit` with each fragment of a frame that was gathered, in order of offset, and returns true. `words` are those that came with the
/// frame: version, value of the length field, identification and place of the header, and where the fragments begin, in units of eight bytes.
/// Returns false if the frame is no longer that datagram: it has another length, identification or version.
pub fn cut(link: LinkType, frame: &[u8], words: &[u16], scratch: &mut Vec<u8>, mut emit: impl FnMut(&[u8])) -> bool {
    let Some((&[version, len, a, b, c, d], starts)) = words.split_first_chunk() else { return false };
    let Some(headers) = packet::parse_what_is_whole(link, frame, frame.len() as u32, 0) else { return false };
    let at = usize::from(headers.network_offset);
    let len = usize::from(len);
    if frame.len() != at + len + if version == 6 { V6_LEN } else { 0 } {
        return false;
    }
    // The header that all fragments have.
    let header_len = match (headers.network, version) {
        (Network::V4(ip), 4) if usize::from(ip.total_len) == len && ip.id == a => usize::from(ip.header_len),
        (Network::V6(ip), 6)
            if usize::from(ip.payload_len) == len && usize::from(c) >= V6_LEN && d < c && ip.header_len >= c =>
        {
            usize::from(c)
        }
        _ => return false,
    };
    let (header, payload) = frame.split_at(at + header_len);
    let mut start = 0;
    for (index, next) in starts.iter().map(|next| usize::from(*next) * 8).chain([payload.len()]).enumerate() {
        let Some(part) = payload.get(start..next).filter(|part| !part.is_empty()) else { continue };
        let more = next < payload.len();
        scratch.clear();
        scratch.extend_from_slice(header);
        let ip = &mut scratch[at..];
        if version == 4 {
            let field = (start / 8) as u16 | u16::from(more) << 13 | b;
            write_v4(ip, (header_len + part.len()) as u16, field, index > 0);
        } else {
            let next_header = ip[usize::from(d)];
            ip[usize::from(d)] = 44;
            ip[4..6].copy_from_slice(&((header_len - V6_LEN + 8 + part.len()) as u16).to_be_bytes());
            let [offset_high, offset_low] = (start as u16 | u16::from(more)).to_be_bytes();
            let ([id_0, id_1], [id_2, id_3]) = (a.to_be_bytes(), b.to_be_bytes());
            scratch.extend([next_header, 0, offset_high, offset_low, id_0, id_1, id_2, id_3]);
        }
        scratch.extend_from_slice(part);
        emit(scratch);
        start = next;
    }
    true
}

fn write_v4(ip: &mut [u8], len: u16, field: u16, is_later: bool) {
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    ip[6..8].copy_from_slice(&field.to_be_bytes());
    if is_later {
        forget_options(&mut ip[20..]);
    }
    ip[10..12].fill(0);
    let mut sum = Checksum::default();
    sum.add(ip);
    ip[10..12].copy_from_slice(&sum.value().to_be_bytes());
}

/// Replaces the options that only the first fragment has (RFC 791, section 3.1) by no-operations.
fn forget_options(mut options: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const IS_COPIED: u8 = 0x80;
    while let [kind, ..] = options {
        let len = match (*kind, options.get(1)) {
            (END, _) => return,
            (NO_OPERATION, _) => 1,
            (_, Some(len)) if *len >= 2 && usize::from(*len) <= options.len() => usize::from(*len),
            _ => return,
        };
        let (option, rest) = options.split_at_mut(len);
        if option[0] & IS_COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        options = rest;
    }
}
