//! Protocols of binary records over TCP.

use super::super::classifier::Payload;
use super::datagrams;

/// RFC 8446 and its predecessors: a hello inside its record, or an alert in a segment of its own. Also the SSL 2 hello of old clients.
pub(super) fn tls(payload: &Payload<'_>) -> Option<bool> {
    let (kind, major, minor, len) = (payload.u8(0)?, payload.u8(1)?, payload.u8(2)?, payload.u16(3)?);
    let is_version = major == 3 && minor <= 4;
    Some(match kind {
        0x16 if is_version && (4..=16_384 + 2_048).contains(&len) => {
            let hello_len = payload.u32(5)? & 0xff_ffff;
            // A hello begins with a version, whatever the record's version is.
            matches!(payload.u8(5)?, 1 | 2) && (38..=65_536).contains(&hello_len) && payload.u8(9)? == 3
        }
        0x15 if is_version => len == 2 && payload.wire_len == 7 && matches!(payload.u8(5)?, 1 | 2),
        0x80..=0x8f => {
            let record_len = u32::from(payload.u16(0)? & 0x7fff);
            let is_hello = minor == 1 && matches!((payload.u8(3)?, payload.u8(4)?), (3, 0..=3) | (0, 2));
            is_hello && record_len + 2 == payload.wire_len && payload.u16(5)? % 3 == 0
        }
        _ => false,
    })
}

/// MS-SMB and MS-SMB2 after the header of the session service (RFC 1002, section 4.3).
pub(super) fn smb(payload: &Payload<'_>) -> Option<bool> {
    let is_message = payload.u8(0)? == 0 && matches!(payload.u8(4)?, 0xfd..=0xff);
    Some(is_message && payload.has(5, b"SMB"))
}

/// MS-RDPBCGR, section 2.2.1: a request for a connection that has a cookie or asks for a protocol, and the answer to it.
pub(super) fn rdp(payload: &Payload<'_>) -> Option<bool> {
    let [3, 0, high, low, header_len, kind] = payload.array(0)? else { return Some(false) };
    let len = u16::from_be_bytes([high, low]);
    if u32::from(len) != payload.wire_len || u16::from(header_len) + 5 != len || !matches!(kind, 0xd0 | 0xe0) {
        return Some(false);
    }
    let is_bare = len == 11 && payload.u8(10)? == 0;
    let cookie = payload.has(11, b"Cookie: mst") || payload.has(11, b"Cookie: MSTS");
    let asks = payload.bytes.get(usize::from(len) - 8..).is_some_and(|end| matches!(end, [1..=3, _, 8, 0, ..]));
    Some(is_bare || cookie || (len >= 19 && asks))
}

/// The client/server protocol: the greeting or the refusal of a server, the answer of a client.
pub(super) fn mysql(payload: &Payload<'_>) -> Option<bool> {
    let [a, b, c, number, kind] = payload.array(0)?;
    if u32::from_le_bytes([a, b, c, 0]) + 4 != payload.wire_len {
        return Some(false);
    }
    Some(match (number, kind) {
        (0, 10) => {
            let version = &payload.bytes[5..payload.bytes.len().min(64)];
            let end = version.iter().position(|byte| *byte == 0)?;
            end >= 3 && version[0].is_ascii_digit() && version[..end].iter().all(|byte| (b' '..=b'~').contains(byte))
        }
        (0, 0xff) => payload.u8(6)? == 4 && payload.bytes[7..].iter().all(|byte| (b' '..=b'~').contains(byte)),
        // Capabilities of version 4.1, the size of a packet, a character set and 23 zeros.
        (1, _) => payload.u8(5)? & 2 != 0 && payload.array::<19>(13)? == [0; 19],
        _ => false,
    })
}

/// Version 3 of the frontend/backend protocol: a client's first message, or a server's answer.
pub(super) fn postgresql(payload: &Payload<'_>) -> Option<bool> {
    let (kind, first, second) = (payload.u8(0)?, payload.u32(0)?, payload.u32(4)?);
    let is_whole = first == payload.wire_len;
    Some(match second {
        0x0003_0000 if is_whole => payload.u8(8)?.is_ascii_lowercase(),
        // A request for TLS or GSS encryption, or a cancel request.
        0x04d2_162f | 0x04d2_1630 => is_whole && first == 8,
        0x04d2_162e => is_whole && first == 16,
        _ => {
            let len = payload.u32(1)?;
            let asks = kind == b'R' && (8..=64).contains(&len) && payload.u32(5)? <= 12;
            let fails = kind == b'E' && len < 2_048 && matches!(payload.array(5)?, [b'S', b'E' | b'F' | b'P']);
            asks || (fails && payload.bytes[5..].contains(&0))
        }
    })
}

/// The wire protocol: a message of a known operation with a matching length.
pub(super) fn mongodb(payload: &Payload<'_>) -> Option<bool> {
    let len = u32::from_le_bytes(payload.array(0)?);
    let operation = u32::from_le_bytes(payload.array(12)?);
    Some(len == payload.wire_len && len > 16 && matches!(operation, 1 | 2001..=2007 | 2010..=2013))
}

/// MS-TDS: a packet of a kind that opens a session, alone in its segment.
pub(super) fn tds(payload: &Payload<'_>) -> Option<bool> {
    let (kind, status, len) = (payload.u8(0)?, payload.u8(1)?, payload.u16(2)?);
    let (number, window) = (payload.u8(6)?, payload.u8(7)?);
    let is_packet = u32::from(len) == payload.wire_len && len > 8 && window == 0 && status <= 1;
    // A login of version 4.2, one of version 7, the pre-login, and their answers.
    Some(is_packet && number <= 1 && matches!(kind, 0x02 | 0x10 | 0x12 | 0x04))
}

/// MQTT 3.1 to 5: CONNECT names the protocol; CONNACK is one of very few.
pub(super) fn mqtt(payload: &Payload<'_>) -> Option<bool> {
    if payload.array(0)? == [0x20, 2] {
        return Some(payload.wire_len == 4 && payload.u8(2)? <= 1 && payload.u8(3)? <= 5);
    }
    if payload.u8(0)? != 0x10 {
        return Some(false);
    }
    // The remaining length: seven bits in a byte.
    let at = 1 + (1..5).position(|at| payload.u8(at).is_some_and(|byte| byte < 0x80))? + 1;
    Some(payload.has(at, b"\0\x04MQTT") || payload.has(at, b"\0\x06MQIsdp"))
}

/// RFC 4271, section 4.1.
pub(super) fn bgp(payload: &Payload<'_>) -> Option<bool> {
    Some(
        payload.array(0)? == [0xff; 16]
            && (19..=4_096).contains(&payload.u16(16)?)
            && (1..=5).contains(&payload.u8(18)?),
    )
}

/// IEEE 1815: the two bytes that a frame starts with, and a length that counts five bytes at least.
pub(super) fn dnp3(payload: &Payload<'_>) -> Option<bool> {
    let [5, 0x64, len] = payload.array(0)? else { return Some(false) };
    // A checksum of two bytes after the header and after each sixteen bytes of data.
    let data = u32::from(len.max(5)) - 5;
    Some(len >= 5 && 10 + data + 2 * data.div_ceil(16) <= payload.wire_len)
}

/// DCE 1.1, chapter 12: version 5 of the connection-oriented protocol.
pub(super) fn dce_rpc(payload: &Payload<'_>) -> Option<bool> {
    let [5, 0 | 1, kind, _flags, order, float, 0, 0] = payload.array(0)? else { return Some(false) };
    let len: [u8; 2] = payload.array(8)?;
    let len = if order & 0x10 != 0 { u16::from_le_bytes(len) } else { u16::from_be_bytes(len) };
    Some(kind <= 20 && matches!(order, 0 | 1 | 0x10 | 0x11) && float <= 3 && len >= 16)
}

/// RFC 5531 after a record mark (section 11).
pub(super) fn sun_rpc(payload: &Payload<'_>) -> Option<bool> {
    let mark = payload.u32(0)?;
    let len = mark & 0x7fff_ffff;
    Some(mark >> 31 == 1 && (24..=1 << 20).contains(&len) && datagrams::sun_rpc_at(payload, 4)?)
}

/// STUN over TCP (RFC 8489, section 6.2.2): as in datagrams, or after a length (RFC 4571).
pub(super) fn stun(payload: &Payload<'_>) -> Option<bool> {
    let framed = payload.u16(0)? >= 20 && datagrams::has_cookie(payload, 2) == Some(true);
    Some(framed || datagrams::has_cookie(payload, 0)?)
}

/// As in datagrams, after a length.
pub(super) fn openvpn(payload: &Payload<'_>) -> Option<bool> {
    let len = u32::from(payload.u16(0)?);
    Some(len + 2 == payload.wire_len && datagrams::openvpn_at(payload, 2)?)
}

/// RFC 854: only negotiation commands.
pub(super) fn telnet(payload: &Payload<'_>) -> Option<bool> {
    let mut rest = payload.bytes;
    let mut commands = 0;
    while let [0xff, 0xfb..=0xfe, option, behind @ ..] = rest {
        if *option > 50 {
            return Some(false);
        }
        (rest, commands) = (behind, commands + 1);
    }
    // A single command is three bytes, which may be anything.
    Some(commands >= 2 || (commands == 1 && rest.is_empty() && payload.wire_len == 3))
}

/// RFC 1928: the methods that a client offers, or the one that a server takes; and version 4.
pub(super) fn socks(payload: &Payload<'_>) -> Option<bool> {
    let [version, second] = payload.array(0)?;
    Some(match version {
        5 if payload.wire_len == 2 => matches!(second, 0..=2 | 0xff),
        5 => (1..=9).contains(&second) && u32::from(second) + 2 == payload.wire_len,
        4 => matches!(second, 1 | 2) && payload.wire_len >= 9 && payload.bytes.last() == Some(&0),
        0 => (0x5a..=0x5d).contains(&second) && payload.wire_len == 8,
        _ => false,
    })
}
