//! Time, routing, reports, and control of machines.

use crate::bytes::{Bytes, Found, Stop, Told, ensure};
use crate::protocol::{COAP, DTLS, EAQ, HSRP, IPFIX, NETFLOW, NTP, PTP, RIP, SFLOW, SOMEIP, SYSLOG, TFTP};
use crate::stream::industry;

/// RFC 9147 and RFC 6347: records of a known version that fill the datagram, or a hello whose record is cut.
pub(super) fn dtls(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, version, len) = (bytes.u8(0)?, bytes.be16(1)?, usize::from(bytes.be16(11)?));
    ensure(matches!(kind, 20..=26) && matches!(version, 0xfeff | 0xfefd | 0xfefc | 0x0100) && len > 0)?;
    let next = 13 + len;
    ensure(next <= bytes.datagram_len())?;
    if next + 13 <= bytes.datagram_len() {
        ensure(matches!(bytes.u8(next)?, 20..=63) && (bytes.be16(next + 1)? == version || bytes.u8(next)? >= 32))?;
    }
    if kind == 22 && bytes.be16(3)? == 0 {
        // In clear: a handshake message whose piece lies in the record.
        let (message, piece) = (bytes.be24(14)?, bytes.be24(22)?);
        ensure(matches!(bytes.u8(13)?, 0..=24) && piece <= message && piece as usize + 12 <= len)?;
    }
    Ok(DTLS.certain())
}

/// RFC 5905: 48 bytes with plausible fields, perhaps followed by extensions or a digest; control messages (RFC 9327), and those of ntpdc.
pub(super) fn ntp(bytes: &Bytes<'_>) -> Told<Found> {
    let (first, len) = (bytes.u8(0)?, bytes.datagram_len());
    let (version, mode) = (first >> 3 & 7, first & 7);
    match mode {
        6 => {
            let content = usize::from(bytes.be16(10)?);
            ensure((2..=4).contains(&version) && first >> 6 == 0 && len.is_multiple_of(4))?;
            ensure(bytes.u8(1)? & 0x1f <= 12 && 12 + content.next_multiple_of(4) == len && bytes.be16(8)? < 480)?;
            ensure(bytes.be16(6)? < 0x1000 && (content > 0 || bytes.u8(1)? & 0xe0 == 0) && bytes.be16(2)? != 0)?;
            Ok(NTP.likely())
        }
        7 => {
            ensure(version == 2 && matches!(bytes.u8(2)?, 2 | 3) && bytes.u8(3)? <= 45 && bytes.be16(4)? <= 500)?;
            ensure(bytes.be16(6)? <= 500 && matches!(len, 8 | 48 | 192 | 72..=500))?;
            ensure(bytes.u8(1)? & 0x7f == 0 || first & 0x80 != 0)?;
            ensure(bytes.u8(3)? != 0)?;
            Ok(NTP.likely())
        }
        1..=5 => {
            ensure(matches!(len, 48 | 52 | 60 | 64 | 68 | 72) || (version == 4 && len > 48 && len.is_multiple_of(4)))?;
            let (stratum, poll, precision) = (bytes.u8(1)?, bytes.u8(2)?, bytes.u8(3)?.cast_signed());
            ensure((1..=4).contains(&version) && stratum <= 16 && poll <= 17 && (-32..=0).contains(&precision))?;
            // No clock has a delay or dispersion of a minute or more.
            ensure(bytes.be16(4)? < 64 && bytes.be16(8)? < 64)?;
            if len > 72 {
                // Extensions of RFC 7822 and RFC 8915: known kinds, and lengths that fill the datagram.
                let size = usize::from(bytes.be16(50)?);
                ensure(size >= 16 && size <= len - 48 && size.is_multiple_of(4))?;
            }
            // A time is in some place, except with a client that hides all.
            let times = [16, 24, 32, 40].map(|at| bytes.be32(at).unwrap_or(0));
            ensure(mode == 3 || times.iter().any(|time| *time != 0))?;
            ensure(mode == 3 || mode == 5 || stratum > 0 || bytes.be32(12)? != 0)?;
            ensure(mode == 3 && stratum == 0 || bytes.be32(8)? < 64 << 16)?;
            ensure(first != 0 && (mode != 3 || first >> 6 == 0 || first >> 6 == 3))?;
            // What random bytes would not have: the times of transmission since 1990, or zero, or a client's random number.
            let transmitted = bytes.be32(40)?;
            ensure(transmitted == 0 || transmitted > 0xb000_0000 || mode == 3)?;
            Ok(NTP.certain())
        }
        _ => Err(Stop::No),
    }
}

/// IEEE 1588: version 1 or 2, the message's length, fields that fit the kind.
pub(super) fn ptp(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.datagram_len();
    if bytes.u8(1)? & 0xf == 2 {
        let kind = bytes.u8(0)? & 0xf;
        ensure(usize::from(bytes.be16(2)?) <= len && bytes.be16(2)? >= 44 && bytes.u8(1)? >> 4 <= 1)?;
        ensure(matches!(kind, 0..=3 | 8..=0xd) && bytes.u8(0)? >> 4 <= 1)?;
        // The control field of version 1, kept for its readers.
        let control = bytes.u8(32)?;
        ensure(
            control
                == match kind {
                    0 => 0,
                    1 => 1,
                    8 => 2,
                    9 => 3,
                    0xd => 4,
                    _ => 5,
                }
                || control == 0,
        )?;
        bytes.has(16, &[0; 4])?;
        return Ok(PTP.certain());
    }
    // Version 1: both versions, a subdomain in letters, a kind.
    bytes.has(0, &[0, 1, 0, 1])?;
    bytes.has(4, b"_DFLT\0")?;
    ensure(matches!(bytes.u8(20)?, 1 | 2) && len >= 60)?;
    Ok(PTP.certain())
}

/// RFC 1350: a request has a name and a mode. Later packets use other ports.
pub(super) fn tftp(bytes: &Bytes<'_>) -> Told<Found> {
    match bytes.u8(1)? {
        1 | 2 => {
            let mut words = bytes.whole()[2..].split(|byte| *byte == 0);
            let (name, mode) = (words.next().ok_or(Stop::No)?, words.next().ok_or(Stop::No)?);
            ensure(name.iter().all(|byte| *byte >= b' '))?;
            ensure([&b"octet"[..], b"netascii", b"mail"].iter().any(|known| mode.eq_ignore_ascii_case(known)))?;
            Ok(TFTP.certain())
        }
        // An error: a code, text, a zero. Options that are accepted (RFC 2347).
        5 => {
            ensure(bytes.be16(2)? <= 8)?;
            let text = bytes.slice(4, bytes.datagram_len().saturating_sub(5))?;
            ensure(text.len() >= 4 && text.iter().all(|byte| matches!(byte, b' '..=b'~')))?;
            ensure(bytes.whole().last() == Some(&0))?;
            Ok(TFTP.certain())
        }
        6 => {
            let options = [&b"blksize\0"[..], b"tsize\0", b"timeout\0", b"windowsize\0", b"multicast\0"];
            ensure(options.iter().any(|option| bytes.has_word(2, option).is_ok()))?;
            Ok(TFTP.certain())
        }
        _ => Err(Stop::No),
    }
}

/// A full block of data, or an acknowledgement. These lie in sessions of their own, and several of them tell.
pub(super) fn tftp_blocks(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, block, len) = (bytes.be16(0)?, bytes.be16(2)?, bytes.datagram_len());
    ensure(block < 4_096 && matches!((kind, len), (3, 516 | 1_028 | 1_432 | 1_460) | (4, 4)))?;
    Ok(TFTP.likely())
}

/// RFC 5424 and RFC 3164: a priority of up to 191 in brackets, then text.
pub(super) fn syslog(bytes: &Bytes<'_>) -> Told<Found> {
    let close = bytes.find(1, b'>', 4)?;
    let digits = bytes.slice(1, close - 1)?;
    ensure((1..=3).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit))?;
    let priority = digits.iter().fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    ensure(priority <= 191)?;
    let text = bytes.from(close + 1)?;
    let rest = text.whole();
    let is_text = rest.iter().take(32).all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n' | 0x80..));
    ensure(rest.len() >= 8 && is_text && begins_syslog(rest.strip_prefix(b" ").unwrap_or(rest)))?;
    Ok(SYSLOG.certain())
}

/// True for what messages begin with: a version and a time, a month, a number of the sender's with a colon, or a tag.
fn begins_syslog(text: &[u8]) -> bool {
    const MONTHS: [&[u8]; 12] =
        [b"Jan ", b"Feb ", b"Mar ", b"Apr ", b"May ", b"Jun ", b"Jul ", b"Aug ", b"Sep ", b"Oct ", b"Nov ", b"Dec "];
    let tag = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-./%[]".contains(byte)).count();
    let is_tag = tag >= 2 && text.get(tag) == Some(&b':') && matches!(text.get(tag + 1), Some(b' ' | b'*'));
    let is_date = text.len() >= 10 && text[..4].iter().all(u8::is_ascii_digit) && text[4] == b'-' && text[7] == b'-';
    let is_version = matches!(text, [b'1', b' ', b'0'..=b'9' | b'-', ..]);
    // Firewalls write words with values.
    let is_pairs = text.starts_with(b"date=") || text.starts_with(b"id=") || text.starts_with(b"logver=");
    MONTHS.iter().any(|month| text.starts_with(month)) || is_tag || is_date || is_version || is_pairs
}

/// NetFlow 5, 7 and 9, and IPFIX: a version, a count or a length, a time; what follows fits.
pub(super) fn flows(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.datagram_len();
    match bytes.be16(0)? {
        version @ (1 | 5 | 7) => {
            let count = usize::from(bytes.be16(2)?);
            let (head, record) = match version {
                1 => (16, 52),
                5 => (24, 48),
                _ => (24, 52),
            };
            ensure((1..=30).contains(&count) && len == head + count * record)?;
            Ok(NETFLOW.certain())
        }
        9 => {
            ensure((1..=100).contains(&bytes.be16(2)?))?;
            sets(bytes, 20, &|kind| matches!(kind, 0 | 1 | 256..))?;
            Ok(NETFLOW.certain())
        }
        10 => {
            ensure(usize::from(bytes.be16(2)?) == len)?;
            sets(bytes, 16, &|kind| matches!(kind, 2 | 3 | 256..))?;
            Ok(IPFIX.certain())
        }
        _ => Err(Stop::No),
    }
}

/// Goes over sets, each with its kind and length, that fill the datagram.
fn sets(bytes: &Bytes<'_>, mut at: usize, is_kind: &dyn Fn(u16) -> bool) -> Told<()> {
    ensure(at < bytes.datagram_len() && bytes.be32(4)? != 0)?;
    while at < bytes.datagram_len() {
        let (kind, len) = (bytes.be16(at)?, usize::from(bytes.be16(at + 2)?));
        ensure(is_kind(kind) && len >= 4)?;
        at += len;
    }
    ensure(at == bytes.datagram_len())
}

/// Version 5, an address of a known family, then samples.
pub(super) fn sflow(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[0, 0, 0])?;
    ensure(matches!(bytes.u8(3)?, 2 | 4 | 5))?;
    let at = match bytes.be32(4)? {
        1 => 12,
        2 => 24,
        _ => return Err(Stop::No),
    };
    // Version 5 has an agent's part before the numbers.
    let at = if bytes.u8(3)? == 5 { at + 4 } else { at };
    ensure((1..=100).contains(&bytes.be32(at + 8)?))?;
    ensure(bytes.be32(at + 12)? & 0xfff <= 4)?;
    Ok(SFLOW.certain())
}

/// RFC 2453: a command, a version, zeros, entries of twenty bytes.
pub(super) fn rip(bytes: &Bytes<'_>) -> Told<Found> {
    let [_, version] = bytes.array(0)?;
    bytes.has(2, &[0, 0])?;
    let len = bytes.datagram_len();
    ensure(matches!(version, 1 | 2) && len > 4 && (len - 4).is_multiple_of(20) && len <= 504)?;
    let mut at = 4;
    while at < len {
        let (family, metric) = (bytes.be16(at)?, bytes.be32(at + 16)?);
        ensure(family == 0xffff || (matches!(family, 0 | 2) && (1..=16).contains(&metric)))?;
        at += 20;
    }
    Ok(RIP.certain())
}

/// RFC 2281: version 0, an operation, a state, times, a priority, a group; then a password of eight bytes. And version 2.
pub(super) fn hsrp(bytes: &Bytes<'_>) -> Told<Found> {
    if bytes.u8(0)? == 1 {
        // Version 2: a part of forty bytes for a group's state.
        bytes.has(1, &[40, 2])?;
        ensure(bytes.u8(3)? <= 2 && bytes.u8(4)? <= 6 && matches!(bytes.u8(5)?, 4 | 6) && bytes.datagram_len() >= 42)?;
        return Ok(HSRP.certain());
    }
    ensure(bytes.u8(1)? <= 2 && matches!(bytes.u8(2)?, 0 | 1 | 2 | 4 | 8 | 16))?;
    let (hello, hold) = (bytes.u8(3)?, bytes.u8(4)?);
    ensure(hello > 0 && hold > hello && bytes.u8(7)? == 0)?;
    ensure(bytes.datagram_len() == 20 || bytes.datagram_len() == 50)?;
    let password: [u8; 8] = bytes.array(8)?;
    let text = password.iter().take_while(|byte| matches!(byte, b' '..=b'~')).count();
    ensure(password[text..].iter().all(|byte| *byte == 0) && (text >= 3 || bytes.datagram_len() == 50))?;
    Ok(HSRP.certain())
}

/// Sixteen bytes that begin with a number of four digits, each in a byte.
pub(super) fn eaq(bytes: &Bytes<'_>) -> Told<Found> {
    let digits: [u8; 4] = bytes.array(0)?;
    ensure(bytes.datagram_len() == 16 && digits.iter().all(|digit| *digit <= 9))?;
    ensure(bytes.whole()[4..].iter().any(|byte| *byte != bytes.whole()[4]))?;
    Ok(EAQ.likely())
}

/// RFC 7252: a request of version 1: a code, a token, and options whose numbers are known, among them a path in plain letters. Answers have
/// too little that is fixed.
pub(super) fn coap(bytes: &Bytes<'_>) -> Told<Found> {
    let (first, code) = (bytes.u8(0)?, bytes.u8(1)?);
    let (kind, token) = (first >> 4 & 3, usize::from(first & 0xf));
    ensure(token <= 8 && matches!(code, 1..=7) && kind <= 1)?;
    let (mut at, mut number, mut letters) = (4 + token, 0_u32, 0);
    while at < bytes.datagram_len() {
        let head = bytes.u8(at)?;
        at += 1;
        if head == 0xff {
            ensure(at < bytes.datagram_len())?;
            break;
        }
        let mut extended = |nibble: u8| match nibble {
            0..=12 => Ok(u32::from(nibble)),
            13 => {
                at += 1;
                Ok(u32::from(bytes.u8(at - 1)?) + 13)
            }
            14 => {
                at += 2;
                Ok(u32::from(bytes.be16(at - 2)?) + 269)
            }
            _ => Err(Stop::No),
        };
        let (delta, len) = (extended(head >> 4)?, extended(head & 0xf)?);
        number += delta;
        ensure(matches!(number, 1 | 3..=9 | 11 | 12 | 14..=17 | 20 | 23 | 27 | 28 | 35 | 39 | 60 | 252 | 258 | 292))?;
        // Paths, queries and hosts are text; formats and sizes are small numbers.
        let content = bytes.slice(at, len as usize)?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_/=:".contains(byte);
        if matches!(number, 3 | 11) {
            ensure(content.iter().all(is_plain))?;
            letters += content.len();
        }
        ensure(!matches!(number, 6 | 7 | 12 | 14 | 17 | 23 | 27 | 28 | 60) || content.len() <= 4)?;
        at += len as usize;
    }
    ensure(letters >= 4 && at <= bytes.datagram_len())?;
    Ok(COAP.certain())
}

/// As over TCP; lists may be asked for in datagrams.
pub(super) fn ethernet_ip(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(usize::from(bytes.le16(2)?) + 24 == bytes.datagram_len())?;
    ensure(matches!(bytes.le16(0)?, 4 | 0x63 | 0x64))?;
    // All zeros but the command say little more than that; the answers say all.
    industry::ethernet_ip(bytes)
}

/// As over TCP, and messages fill the datagram.
pub(super) fn someip(bytes: &Bytes<'_>) -> Told<Found> {
    let mut at = 0;
    while at < bytes.datagram_len() {
        let len = bytes.be32(at + 4)? as usize;
        ensure((8..=bytes.datagram_len()).contains(&len))?;
        industry::someip(&bytes.from(at)?)?;
        at += len + 8;
    }
    ensure(at == bytes.datagram_len())?;
    Ok(SOMEIP.certain())
}

/// As over TCP, and the message fills the datagram.
pub(super) fn doip(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.be32(4)? as usize + 8 == bytes.datagram_len())?;
    industry::doip(bytes)
}
