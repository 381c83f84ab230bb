//! Protocols of binary datagrams.

use super::super::classifier::Payload;

/// RFC 9000, section 17.2: a long header of a known version; and Google's own up to Q043, which has another form.
pub(super) fn quic(payload: &Payload<'_>) -> Option<bool> {
    let first = payload.u8(0)?;
    if first & 0x80 == 0 {
        let is_google = first & 0xc9 == 0x09 && matches!(payload.array(9)?, [b'Q', b'0', b'0'..=b'9', b'0'..=b'9']);
        return Some(is_google);
    }
    let version = payload.u32(1)?;
    let is_known = match version.to_be_bytes() {
        // Version negotiation; versions 1 and 2; drafts; versions of mvfst and Google; reserved versions that exercise negotiation.
        [0, 0, 0, 0 | 1] | [0x6b, 0x33, 0x43, 0xcf] | [0xff, 0, 0, 18..=34] | [0xfa, 0xce, 0xb0, _] => true,
        [b'Q' | b'T', b'0', b'0'..=b'9', b'0'..=b'9'] => true,
        [a, b, c, d] => [a, b, c, d].iter().all(|byte| byte & 0xf == 0xa),
    };
    if version.to_be_bytes()[0] == b'Q' {
        // Q046: both lengths in one byte.
        return Some(is_known && payload.wire_len > 18);
    }
    let destination = payload.u8(5)?;
    let source = payload.u8(6 + usize::from(destination))?;
    Some(is_known && destination <= 20 && source <= 20 && payload.wire_len > 18)
}

/// RFC 2131: the fixed part of BOOTP, and the magic cookie.
pub(super) fn dhcp(payload: &Payload<'_>) -> Option<bool> {
    Some(matches!(payload.u8(0)?, 1 | 2) && payload.has(236, &[0x63, 0x82, 0x53, 0x63]))
}

/// RFC 8415: options that fill the datagram exactly, between the ports of clients and of servers.
pub(super) fn dhcpv6(payload: &Payload<'_>) -> Option<bool> {
    let at = match payload.u8(0)? {
        1..=11 => 4,
        12 | 13 => 34,
        _ => return Some(false),
    };
    Some((payload.is_at(546) || payload.is_at(547)) && fills(payload, at, 4, |_, len| len))
}

/// Returns true if fields of type and length fill the payload from `at` on. Each content follows `head` bytes.
fn fills(payload: &Payload<'_>, mut at: usize, head: usize, padded: fn(u16, usize) -> usize) -> bool {
    let end = payload.wire_len as usize;
    // What the capture cut off can't be judged.
    while at < end.min(payload.bytes.len()) {
        let (Some(kind), Some(len)) = (payload.u16(at), payload.u16(at + 2)) else { return false };
        at += head + padded(kind, len.into());
    }
    at == end || (at > payload.bytes.len() && payload.bytes.len() < end)
}

/// RFC 9147 and RFC 6347: a record of a known version and fitting length; a handshake also by its type.
pub(super) fn dtls(payload: &Payload<'_>) -> Option<bool> {
    let (kind, version, len) = (payload.u8(0)?, payload.u16(1)?, payload.u16(11)?);
    let is_record = matches!(version, 0xfeff | 0xfefd | 0x0100) && u32::from(len) + 13 <= payload.wire_len;
    Some(is_record && len > 0 && matches!(kind, 20..=23))
}

/// RFC 8489 by its cookie; RFC 3489, which had none, by attributes that fill the datagram.
pub(super) fn stun(payload: &Payload<'_>) -> Option<bool> {
    if has_cookie(payload, 0) == Some(true) {
        return Some(true);
    }
    let (kind, len) = (payload.u16(0)?, payload.u16(2)?);
    let is_classic =
        matches!(kind, 1 | 0x0101 | 0x0111 | 2 | 0x0102 | 0x0112) && u32::from(len) + 20 == payload.wire_len;
    Some(is_classic && fills(payload, 20, 4, |_, len| len.next_multiple_of(4)))
}

/// Returns true if a message with a magic cookie begins at `at`.
pub(super) fn has_cookie(payload: &Payload<'_>, at: usize) -> Option<bool> {
    let (kind, len) = (payload.u16(at)?, u32::from(payload.u16(at + 2)?));
    let cookie = payload.u32(at + 4)? == 0x2112_a442;
    Some(cookie && kind & 0xc000 == 0 && len.is_multiple_of(4) && at as u32 + len + 20 <= payload.wire_len)
}

/// RFC 3550, section 6.4: packets that fill the datagram, the first a report.
pub(super) fn rtcp(payload: &Payload<'_>) -> Option<bool> {
    if payload.u8(0)? & 0xc0 != 0x80 || !matches!(payload.u8(1)?, 200..=207) {
        return Some(false);
    }
    let (mut at, end) = (0, payload.wire_len as usize);
    while at < end.min(payload.bytes.len()) {
        if payload.u8(at)? & 0xc0 != 0x80 || !matches!(payload.u8(at + 1)?, 200..=213) {
            // Encrypted, it is followed by an index and a tag (RFC 3711).
            return Some(at > 0 && end - at <= 14);
        }
        at += 4 + 4 * usize::from(payload.u16(at + 2)?);
    }
    Some(at >= end.min(payload.bytes.len()) && at <= end)
}

/// RFC 3550, section 5.1: a version and a payload type in use. Few bits, so several packets are needed.
pub(super) fn rtp(payload: &Payload<'_>) -> Option<bool> {
    let (first, kind) = (payload.u8(0)?, payload.u8(1)? & 0x7f);
    let contributors = u32::from(first & 0xf);
    let is_known = matches!(kind, 0..=18 | 25 | 26 | 28 | 31..=34 | 96..=127);
    Some(
        first & 0xc0 == 0x80
            && is_known
            && contributors <= 2
            && payload.wire_len > 12 + 4 * contributors
            && payload.u32(8)? != 0,
    )
}

/// RFC 7296, section 3.1 and RFC 2408: a header with the datagram's length, after four zeros behind a NAT (RFC 3948).
pub(super) fn ike(payload: &Payload<'_>) -> Option<bool> {
    let at = if payload.u32(0)? == 0 { 4 } else { 0 };
    let (version, exchange, len) = (payload.u8(at + 17)?, payload.u8(at + 18)?, payload.u32(at + 24)?);
    let is_exchange = match version {
        0x10 => matches!(exchange, 1..=6 | 32 | 33),
        0x20 => matches!(exchange, 34..=44),
        _ => false,
    };
    Some(is_exchange && len as usize + at == payload.wire_len as usize && payload.u32(at)? != 0)
}

/// The WireGuard paper (NDSS '17), section 5.4: four kinds of messages, three of them of one length.
pub(super) fn wireguard(payload: &Payload<'_>) -> Option<bool> {
    let [kind, 0, 0, 0] = payload.array(0)? else { return Some(false) };
    Some(match kind {
        1 => payload.wire_len == 148,
        2 => payload.wire_len == 92,
        3 => payload.wire_len == 64,
        // The counter is far from its end, and the data after it is padded.
        4 => {
            payload.wire_len >= 32
                && payload.wire_len.is_multiple_of(16)
                && payload.array(12)? == [0; 4]
                && payload.u32(4)? != 0
        }
        _ => false,
    })
}

/// A reset of either side (the protocol's `ssl.h` and `tls_crypt.h`): bare, signed or encrypted.
pub(super) fn openvpn(payload: &Payload<'_>) -> Option<bool> {
    openvpn_at(payload, 0)
}

/// [`openvpn`] at an offset.
pub(super) fn openvpn_at(payload: &Payload<'_>, at: usize) -> Option<bool> {
    // The operation's number above three bits for the key, the first of a session: resets of clients and servers.
    if !matches!(payload.u8(at)?, 0x38 | 0x40 | 0x50) || payload.array(at + 1)? == [0; 8] {
        return Some(false);
    }
    let first = |at: usize| payload.u32(at).is_some_and(|number| number == 1);
    let len = payload.wire_len as usize - at;
    // Bare: no acknowledgements and number 0, or one acknowledgement with its session.
    let bare = (len == 14 && payload.array(at + 9)? == [0; 5]) || (len == 26 && payload.u8(at + 9)? == 1);
    // Signed: a digest of 16 to 64 bytes, then the packet's number. Encrypted: the number at once.
    let signed = [16, 20, 32, 48, 64]
        .iter()
        .any(|digest| (len == 14 + digest + 8 || len == 26 + digest + 8) && first(at + 9 + digest));
    let encrypted = len >= 54 && first(at + 9);
    Some(bare || signed || encrypted)
}

/// RFC 2865: a length that is the datagram's, and attributes that fill it.
pub(super) fn radius(payload: &Payload<'_>) -> Option<bool> {
    if !matches!(payload.u8(0)?, 1..=5 | 11..=13 | 40..=45) || u32::from(payload.u16(2)?) != payload.wire_len {
        return Some(false);
    }
    let (mut at, end) = (20, payload.wire_len as usize);
    while at < end.min(payload.bytes.len()) {
        match payload.u8(at + 1)? {
            0 | 1 => return Some(false),
            len => at += usize::from(len),
        }
    }
    Some(at == end || (payload.bytes.len() < end && at > payload.bytes.len()))
}

/// RFC 5905: 48 bytes with plausible fields, perhaps followed by a digest; and control messages (appendix B of RFC 1305).
pub(super) fn ntp(payload: &Payload<'_>) -> Option<bool> {
    let first = payload.u8(0)?;
    let (version, mode) = (first >> 3 & 7, first & 7);
    if mode == 6 {
        let len = u32::from(payload.u16(10)?);
        return Some(
            matches!(version, 1..=4) && payload.u8(1)? & 0x1f <= 12 && 12 + len <= payload.wire_len && len < 500,
        );
    }
    let is_len = matches!(payload.wire_len, 48 | 52 | 60 | 64 | 68 | 72);
    let (stratum, poll, precision) = (payload.u8(1)?, payload.u8(2)?, payload.u8(3)?.cast_signed());
    let fits = matches!(version, 1..=4)
        && matches!(mode, 1..=5)
        && stratum <= 16
        && poll <= 17
        && (-32..=0).contains(&precision);
    // No clock has a delay or dispersion of a minute or more.
    Some(is_len && fits && payload.u16(4)? < 64 && payload.u16(8)? < 64)
}

/// RFC 1350: a request has a name and a mode. Later packets use other ports.
pub(super) fn tftp(payload: &Payload<'_>) -> Option<bool> {
    let [0, 1 | 2] = payload.array(0)? else { return Some(false) };
    let mut words = payload.bytes[2..].split(|byte| *byte == 0);
    let (name, mode) = (words.next()?, words.next()?);
    let is_mode = [&b"octet"[..], b"netascii", b"mail"].iter().any(|known| mode.eq_ignore_ascii_case(known));
    Some(!name.is_empty() && is_mode)
}

/// RFC 5531: a call of version 2 to an assigned program, or the answer to one.
pub(super) fn sun_rpc(payload: &Payload<'_>) -> Option<bool> {
    sun_rpc_at(payload, 0)
}

/// [`sun_rpc`] at an offset.
pub(super) fn sun_rpc_at(payload: &Payload<'_>, at: usize) -> Option<bool> {
    Some(match payload.u32(at + 4)? {
        0 => {
            payload.u32(at + 8)? == 2
                && (100_000..=400_000).contains(&payload.u32(at + 12)?)
                && payload.u32(at + 16)? <= 16
        }
        // Accepted, a verifier of no length, and one of six outcomes.
        1 => {
            payload.u32(at + 8)? == 0
                && payload.u32(at + 12)? <= 6
                && payload.u32(at + 16)? == 0
                && payload.u32(at + 20)? <= 5
        }
        _ => false,
    })
}
