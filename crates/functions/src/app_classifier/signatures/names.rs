//! The format of DNS (RFC 1035), which several protocols share.

use super::super::classifier::Payload;

const HEADER: usize = 12;
const MDNS: u16 = 5353;
const LLMNR: u16 = 5355;

/// RFC 6762, at its port: the format is that of DNS.
pub(super) fn mdns(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.is_at(MDNS) && message(payload, 0)?)
}

/// RFC 4795, at its port: the format is that of DNS.
pub(super) fn llmnr(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.is_at(LLMNR) && message(payload, 0)?)
}

/// RFC 1002: names of 32 letters from A to P, in the name service (section 4.2) and in datagrams (section 4.4).
pub(super) fn netbios(payload: &Payload<'_>) -> Option<bool> {
    let is_name = |at: usize| {
        let name: Option<[u8; 33]> = payload.array(at);
        name.is_some_and(|[len, letters @ ..]| len == 32 && letters.iter().all(|letter| matches!(letter, b'A'..=b'P')))
    };
    let counts = [4, 6, 8, 10].map(|at| payload.u16(at));
    let service = is_name(HEADER) && counts.iter().all(|count| count.is_some_and(|count| count <= 2));
    let datagram = matches!(payload.u8(0)?, 0x10..=0x12) && payload.u8(1)? & 0xf0 == 0 && is_name(14);
    Some(service || datagram)
}

/// DNS in a datagram, except at the ports of protocols with the same format.
pub(super) fn dns(payload: &Payload<'_>) -> Option<bool> {
    Some(!payload.is_at(MDNS) && !payload.is_at(LLMNR) && message(payload, 0)?)
}

/// DNS over TCP: a message after its length. It may continue in the next segment.
pub(super) fn dns_over_tcp(payload: &Payload<'_>) -> Option<bool> {
    let len = u32::from(payload.u16(0)?);
    // Nearly all messages are complete in one segment.
    Some(len >= 17 && len + 2 >= payload.wire_len && message(payload, 2)?)
}

/// Returns true if a message begins at `at`: a plausible header, and a complete first name.
fn message(payload: &Payload<'_>, at: usize) -> Option<bool> {
    let flags = payload.u16(at + 2)?;
    let [questions, answers, authorities, more] = [4, 6, 8, 10].map(|field| payload.u16(at + field));
    let (questions, answers, authorities, more) = (questions?, answers?, authorities?, more?);
    let (is_response, opcode, code) = (flags >> 15 == 1, flags >> 11 & 0xf, flags & 0xf);
    let records = u32::from(answers) + u32::from(authorities) + u32::from(more);
    let is_sane = matches!(opcode, 0 | 1 | 2 | 4 | 5)
        && code <= 11
        && flags & 0x40 == 0
        && questions <= 32
        && records <= 512
        && (questions > 0 || (is_response && records > 0))
        && (is_response || code == 0);
    if !is_sane {
        return Some(false);
    }
    let end = name_end(payload, at + HEADER)?;
    // The top bit of the class asks for an answer to one host alone, or for the cache to be flushed (RFC 6762).
    let (kind, class) = (payload.u16(end)?, payload.u16(end + 2)? & 0x7fff);
    Some(kind != 0 && matches!(class, 1 | 3 | 4 | 254 | 255))
}

/// Returns the offset after the name at `at`.
fn name_end(payload: &Payload<'_>, mut at: usize) -> Option<usize> {
    for _ in 0..128 {
        match payload.u8(at)? {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. => return Some(at + 2),
            64..0xc0 => return None,
        }
    }
    None
}
