//! Control of machines and vehicles.

use crate::asn1::{element, tagged};
use crate::bytes::{Bytes, Found, Stop, Told, ensure};
use crate::protocol::{C1222, C37118, DNP3, DOIP, ETHERNET_IP, IEC104, MODBUS, SOMEIP};

/// A request and its answer: the same number and unit, the same function.
pub(super) fn modbus(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let head = |side: &Bytes<'_>| {
        let number = side.be16(0)?;
        side.has(2, &[0, 0])?;
        let len = side.be16(4)?;
        ensure((2..=254).contains(&len))?;
        Ok((number, len, side.u8(6)?, side.u8(7)?))
    };
    let (number, len, unit, function) = head(bytes)?;
    ensure(matches!(function, 1..=8 | 11 | 12 | 15..=17 | 20..=24 | 43 | 90))?;
    let fits = match function {
        1..=6 | 8 => len == 6,
        7 | 11 | 12 | 17 => len == 2,
        15 | 16 => u16::from(bytes.u8(12)?) + 7 == len,
        _ => true,
    };
    ensure(fits)?;
    // Reads: how many, within the specification's bounds.
    if matches!(function, 1..=4) {
        ensure((1..=2_000).contains(&bytes.be16(10)?))?;
    }
    // The other side may not have been captured: then the next request tells.
    if answer.u8(0) == Err(Stop::No) {
        let next = bytes.from(6 + usize::from(len))?;
        let (following, _, same_unit, _) = head(&next)?;
        ensure(unit == same_unit && following.wrapping_sub(number) <= 16)?;
        return Ok(MODBUS.certain());
    }
    let (same_number, answer_len, same_unit, same_function) = head(answer)?;
    ensure(unit == same_unit && matches!(same_function & 0x7f, 1..=8 | 11 | 12 | 15..=17 | 20..=24 | 43 | 90))?;
    ensure(same_function < 0x80 || answer_len == 3)?;
    // In a session that is picked up the answer may be to an earlier request.
    ensure(number.wrapping_sub(same_number).wrapping_add(16) <= 32)?;
    ensure(number != same_number || same_function & 0x7f == function)?;
    // Values: as many bytes as are counted.
    if matches!(same_function, 1..=4) {
        ensure(u16::from(answer.u8(8)?) + 3 == answer_len)?;
    }
    Ok(MODBUS.certain())
}

/// IEEE 1815, section 9.2: two bytes, a length, a control byte, addresses, and a checksum that holds.
pub(crate) fn dnp3(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[5, 0x64])?;
    ensure(bytes.u8(2)? >= 5)?;
    let head = bytes.slice(0, 8)?;
    ensure(crc_dnp(head) == bytes.le16(8)?)?;
    Ok(DNP3.certain())
}

/// The checksum of IEEE 1815: x^16+x^13+x^12+x^11+x^10+x^8+x^6+x^5+x^2+1, reflected, inverted.
fn crc_dnp(bytes: &[u8]) -> u16 {
    let step = |sum: u16, _| if sum & 1 == 1 { sum >> 1 ^ 0xa6bc } else { sum >> 1 };
    !bytes.iter().fold(0, |sum, byte| (0..8).fold(sum ^ u16::from(*byte), step))
}

/// IEC 60870-5-104: frames of a start byte, a length and a control field, on both sides or two on one.
pub(super) fn iec104(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let frame = |side: &Bytes<'_>, at: usize| {
        ensure(side.u8(at)? == 0x68)?;
        let len = side.u8(at + 1)?;
        ensure((4..=253).contains(&len))?;
        let [a, b, c, _] = side.array(at + 2)?;
        let next = at + 2 + usize::from(len);
        match a & 3 {
            // Unnumbered: one of six functions, then zeros.
            3 => ensure(len == 4 && matches!(a, 0x07 | 0x0b | 0x13 | 0x23 | 0x43 | 0x83) && b == 0 && c == 0)?,
            1 => ensure(len == 4 && a == 1 && b == 0 && c & 1 == 0)?,
            // Information: a known type, a cause, and as many elements as the length says.
            _ => {
                ensure(len >= 10 && c & 1 == 0)?;
                let (kind, count) = (side.u8(at + 6)?, side.u8(at + 7)?);
                ensure(matches!(side.u8(at + 8)? & 0x3f, 1..=13 | 20..=41 | 44..=47))?;
                let objects = u16::from(count & 0x7f);
                let content = |size| if count >> 7 == 1 { 3 + objects * size } else { objects * (3 + size) };
                let fits = objects > 0 && element_size(kind).is_some_and(|size| content(size) + 10 == u16::from(len));
                // With other kinds, or shorter fields, the place of the next frame tells, or that of the end.
                if !fits {
                    match side.u8(next) {
                        Ok(start) => ensure(start == 0x68 && objects > 0)?,
                        Err(Stop::No) => side.ends_at(next)?,
                        Err(Stop::More) => return Err(Stop::More),
                    }
                }
            }
        }
        Ok(next)
    };
    let next = frame(bytes, 0)?;
    // Either the other side answers with a frame, or another follows.
    let second = match answer.u8(0) {
        Ok(_) => frame(answer, 0),
        Err(Stop::No) => frame(bytes, next),
        Err(Stop::More) => Err(Stop::More),
    };
    second?;
    Ok(IEC104.certain())
}

/// The size of an element of information without its address (IEC 60870-5-101, section 7.3).
const fn element_size(kind: u8) -> Option<u16> {
    Some(match kind {
        102 => 0,
        1 | 3 | 45..=47 | 70 | 100 | 101 | 105 | 113 => 1,
        5 | 21 | 104 | 106 => 2,
        9 | 11 | 48 | 49 | 110 | 111 => 3,
        51 => 4,
        7 | 13 | 15 | 50 | 112 => 5,
        103 => 7,
        30 | 31 | 58..=60 => 8,
        32 | 107 => 9,
        34 | 35 | 38 | 61 | 62 => 10,
        39 | 40 | 64 => 11,
        33 | 36 | 37 | 63 => 12,
        _ => return None,
    })
}

/// A head of 24 bytes: a command, a length, a session, a status, a context, options.
pub(crate) fn ethernet_ip(bytes: &Bytes<'_>) -> Told<Found> {
    let (command, len) = (bytes.le16(0)?, bytes.le16(2)?);
    let (session, status) = (bytes.le32(4)?, bytes.le32(8)?);
    ensure(status <= 0x69 && bytes.le32(20)? == 0)?;
    match command {
        // Services, identities or interfaces are listed: nothing, or a list.
        0x04 | 0x63 | 0x64 => {
            ensure(session == 0)?;
            ensure(len == 0 || (len >= 2 && bytes.le16(24)? <= 8 && matches!(bytes.le16(26)?, 0x0c | 0x100 | 0)))?;
        }
        // A session is registered: version 1, no options.
        0x65 => {
            ensure(len == 4)?;
            bytes.has(24, &[1, 0, 0, 0])?;
        }
        0x66 => ensure(len == 0 && session != 0)?,
        // Data: an interface of zeros, a timeout, items.
        0x6f | 0x70 => {
            ensure(session != 0 && len >= 16 && bytes.le32(24)? == 0)?;
            ensure((1..=4).contains(&bytes.le16(30)?) && matches!(bytes.le16(32)?, 0 | 0xa1))?;
        }
        _ => return Err(Stop::No),
    }
    Ok(ETHERNET_IP.certain())
}

/// IEEE C37.118.2: a frame whose checksum holds.
pub(crate) fn c37118(bytes: &Bytes<'_>) -> Told<Found> {
    let kind = bytes.u8(1)?;
    ensure(kind & 0x80 == 0 && kind >> 4 <= 5 && matches!(kind & 0xf, 1..=3))?;
    let len = usize::from(bytes.be16(2)?);
    ensure((16..=4_000).contains(&len))?;
    let frame = bytes.slice(0, len)?;
    let (content, sum) = frame.split_at(len - 2);
    // CCITT, from all ones.
    let step = |sum: u16, _| if sum >> 15 == 1 { sum << 1 ^ 0x1021 } else { sum << 1 };
    let wanted = content.iter().fold(0xffff, |sum, byte| (0..8).fold(sum ^ u16::from(*byte) << 8, step));
    ensure(wanted.to_be_bytes() == *sum)?;
    Ok(C37118.certain())
}

/// ANSI C12.22 over TCP or UDP (RFC 6142): a call of ACSE whose parts have the tags of the standard.
pub(crate) fn c1222(bytes: &Bytes<'_>) -> Told<Found> {
    let whole = tagged(bytes, 0, 0x60)?;
    ensure(whole.len() >= 12)?;
    let mut at = whole.at;
    let (mut last, mut parts, mut has_data) = (0xa0, 0, false);
    // Parts in rising order: the context, titles and numbers, the calling side, the data.
    while at < whole.end {
        let part = element(bytes, at)?;
        ensure(
            matches!(part.tag, 0xa1 | 0xa2 | 0xa4 | 0xa6..=0xa8 | 0x8b | 0xac | 0xbe) && part.tag & 0x1f > last & 0x1f,
        )?;
        ensure(part.end <= whole.end)?;
        if part.tag == 0xbe {
            // An external, perhaps within a tag, whose content is a string of bytes.
            ensure(matches!(bytes.u8(part.at)?, 0x28))?;
            has_data = true;
        } else if part.tag != 0x8b && part.tag != 0xac {
            ensure(matches!(bytes.u8(part.at)?, 0x02 | 0x06 | 0x0d | 0x80))?;
        }
        (last, parts, at) = (part.tag, parts + 1, part.end);
    }
    ensure(has_data && parts >= 3 && at == whole.end)?;
    Ok(C1222.certain())
}

/// A head of 16 bytes: a service and method, a length, a client and session, versions, a kind, a code.
pub(crate) fn someip(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be32(4)?;
    ensure((8..1 << 20).contains(&len))?;
    let [version, _interface, kind, code] = bytes.array(12)?;
    ensure(version == 1)?;
    ensure(matches!(kind, 0..=2 | 0x20..=0x22 | 0x80 | 0x81 | 0xa0 | 0xa1 | 0x40..=0x42))?;
    ensure(code <= 0x0e && (kind & 0x80 != 0 || code == 0))?;
    ensure(bytes.be32(0)? != 0)?;
    Ok(SOMEIP.likely())
}

/// ISO 13400-2: a version and its inverse, a known kind, a length.
pub(crate) fn doip(bytes: &Bytes<'_>) -> Told<Found> {
    let [version, inverse] = bytes.array(0)?;
    ensure(version == !inverse)?;
    let (kind, len) = (bytes.be16(2)?, bytes.be32(4)?);
    ensure(matches!(kind, 0..=8 | 0x4001..=0x4004 | 0x8001..=0x8003) && len < 1 << 16)?;
    ensure(match kind {
        0 => len == 1,
        1 | 7 | 8 | 0x4001 | 0x4003 => len == 0,
        2 => len == 6,
        3 => len == 17,
        4 => matches!(len, 32 | 33),
        5 => matches!(len, 7 | 11),
        6 => matches!(len, 9 | 13),
        0x4002 => matches!(len, 3 | 7),
        0x4004 => len == 1,
        _ => len >= 5,
    })?;
    Ok(DOIP.certain())
}
