//! Tunnels and virtual networks.

use crate::bytes::{Bytes, Found, Stop, Told, either, ensure};
use crate::protocol::{AYIYA, CAPWAP, GENEVE, GTP, IKE, L2TP, LISP, OPENVPN, RDPEUDP, TEREDO, VXLAN, WIREGUARD};

/// RFC 7296, section 3.1, and RFC 2408: a head with the datagram's length, behind four zeros with a NAT (RFC 3948).
pub(super) fn ike(bytes: &Bytes<'_>) -> Told<Found> {
    let at = if bytes.be32(0)? == 0 { 4 } else { 0 };
    let (version, exchange, len) = (bytes.u8(at + 17)?, bytes.u8(at + 18)?, bytes.be32(at + 24)?);
    ensure(match version {
        0x10 => matches!(exchange, 1..=6 | 32 | 33),
        0x20 => matches!(exchange, 34..=44),
        _ => false,
    })?;
    ensure(len as usize + at == bytes.datagram_len() && bytes.be32(at)? != 0)?;
    Ok(IKE.certain())
}

/// The WireGuard paper, section 5.4: messages of one length each.
pub(super) fn wireguard(bytes: &Bytes<'_>) -> Told<Found> {
    let kind = bytes.u8(0)?;
    bytes.has(1, &[0, 0, 0])?;
    ensure(
        bytes.datagram_len()
            == match kind {
                1 => 148,
                2 => 92,
                _ => 64,
            },
    )?;
    // A key and a digest, which are not mostly zeros.
    let key = bytes.slice(8, 32)?;
    ensure(bytes.be32(4)? != 0 && key.iter().filter(|byte| **byte == 0).count() < 8)?;
    Ok(WIREGUARD.certain())
}

/// Data: a counter far from its end, and padded content.
pub(super) fn wireguard_data(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[4, 0, 0, 0])?;
    let len = bytes.datagram_len();
    ensure(len >= 32 && len.is_multiple_of(16) && bytes.be32(4)? != 0)?;
    bytes.has(12, &[0; 4])?;
    let tag = bytes.slice(16, 16)?;
    ensure(tag.iter().filter(|byte| **byte == 0).count() < 4)?;
    Ok(WIREGUARD.likely())
}

/// A reset of either side: bare, signed or encrypted.
pub(super) fn openvpn(bytes: &Bytes<'_>) -> Told<Found> {
    openvpn_reset(bytes)?;
    Ok(OPENVPN.certain())
}

/// Checks a reset: its operation above three bits for the key, a session, and what follows by the way that it is protected.
pub(crate) fn openvpn_reset(bytes: &Bytes<'_>) -> Told<()> {
    ensure(matches!(bytes.u8(0)?, 0x38 | 0x40 | 0x50))?;
    let session: [u8; 8] = bytes.array(1)?;
    ensure(session.iter().filter(|byte| **byte == 0).count() < 5)?;
    let len = bytes.datagram_len();
    let first = |at: usize| bytes.be32(at).is_ok_and(|number| (1..=4).contains(&number));
    // A number of the packet and the seconds since 1970, between 2001 and 2069.
    let replay =
        |at: usize| first(at) && bytes.be32(at + 4).is_ok_and(|time| (0x3a00_0000..0xbb00_0000).contains(&time));
    // Bare: no acknowledgements and number 0, or one acknowledgement with its session.
    let bare =
        (len == 14 && bytes.array(9) == Ok([0; 5])) || (len == 26 && bytes.u8(9) == Ok(1) && bytes.be32(22) == Ok(0));
    // Signed: a digest of 16 to 64 bytes, then the packet's number.
    let signed = [16, 20, 28, 32, 48, 64]
        .iter()
        .any(|digest| (len == 14 + digest + 8 || len == 26 + digest + 8) && replay(9 + digest));
    // Encrypted: the number at once, a digest of 32 bytes, and a packet; a client's key may follow.
    let encrypted = len >= 54 && replay(9);
    ensure(bare || signed || encrypted)
}

/// RFC 2661, section 3.1: bits of a control message, version 2, the length; then its kind as the first attribute.
pub(super) fn l2tp(bytes: &Bytes<'_>) -> Told<Found> {
    let bits = bytes.be16(0)?;
    ensure(bits & 0xcb0f == 0xc802 && usize::from(bytes.be16(2)?) == bytes.datagram_len())?;
    if bytes.datagram_len() == 12 {
        ensure(bytes.be16(6)? == 0 && bytes.be16(8)? < 64 && bytes.be16(10)? < 64)?;
        return Ok(L2TP.likely());
    }
    bytes.has(12, &[0x80, 8, 0, 0, 0, 0, 0])?;
    ensure((1..=16).contains(&bytes.u8(19)?))?;
    Ok(L2TP.certain())
}

/// 3GPP TS 29.060, 29.274 and 29.281: a version, a kind, a length that fits.
pub(super) fn gtp(bytes: &Bytes<'_>) -> Told<Found> {
    let (first, kind) = (bytes.u8(0)?, bytes.u8(1)?);
    let (len, whole) = (usize::from(bytes.be16(2)?), bytes.datagram_len());
    match first >> 5 {
        1 => {
            ensure(first & 0x18 == 0x10 && len + 8 == whole)?;
            // The optional part comes whole.
            let head = if first & 7 != 0 { 12 } else { 8 };
            ensure(whole >= head)?;
            match kind {
                // A packet of a user: IPv4 or IPv6 whose length fits.
                255 => {
                    let mut at = head;
                    if first & 4 != 0 {
                        let mut next = bytes.u8(11)?;
                        for _ in 0..4 {
                            if next == 0 {
                                break;
                            }
                            let words = usize::from(bytes.u8(at)?);
                            ensure(words > 0)?;
                            at += 4 * words;
                            next = bytes.u8(at - 1)?;
                        }
                    }
                    ip_packet(bytes, at)?;
                }
                // Echoes, errors, extension headers; sessions are made, changed and deleted.
                1 | 2 | 26 | 31 => ensure(bytes.be32(4)? == 0 && (kind != 1 || len <= 32))?,
                3 | 16..=33 | 48..=61 | 96..=129 | 240 | 241 | 254 => {
                    ensure(first & 2 != 0 && len >= 6)?;
                    ensure(kind == 254 || matches!(bytes.u8(12)?, 1..=29 | 0x80..=0xff))?;
                }
                _ => return Err(Stop::No),
            }
            ensure(kind != 1 || first & 2 != 0)?;
        }
        2 => {
            ensure(
                first & 7 == 0
                    && matches!(kind, 1..=3 | 25..=41 | 64..=73 | 95..=103 | 128..=141 | 149..=171 | 176 | 177 | 179 | 200 | 201 | 211 | 212 | 231..=236),
            )?;
            ensure(len + 4 <= whole)?;
            // The first element of information: a kind, a length, an instance, within the message.
            let at = if first & 8 != 0 { 12 } else { 8 };
            ensure(len + 4 > at || kind > 3)?;
            let size = usize::from(bytes.be16(at + 1)?);
            ensure(bytes.u8(at)? != 0 && at + 4 + size <= len + 4 && bytes.u8(at + 3)? & 0xf0 == 0)?;
            ensure(first & 8 != 0 || matches!(bytes.u8(at)?, 3))?;
            ensure(first & 0x10 != 0 || len + 4 == whole)?;
        }
        _ => return Err(Stop::No),
    }
    Ok(GTP.certain())
}

/// Checks for a packet of IPv4 or IPv6 that fills the rest.
fn ip_packet(bytes: &Bytes<'_>, at: usize) -> Told<()> {
    let rest = bytes.datagram_len().checked_sub(at).ok_or(Stop::No)?;
    match bytes.u8(at)? >> 4 {
        4 => ensure(bytes.u8(at)? & 0xf >= 5 && usize::from(bytes.be16(at + 2)?) == rest && bytes.u8(at + 8)? > 0),
        6 => ensure(usize::from(bytes.be16(at + 4)?) + 40 == rest),
        _ => Err(Stop::No),
    }
}

/// Checks for a frame of Ethernet with IP or ARP.
fn frame(bytes: &Bytes<'_>, at: usize) -> Told<()> {
    match bytes.be16(at + 12)? {
        0x0800 => {
            let len = usize::from(bytes.be16(at + 16)?);
            ensure(
                bytes.u8(at + 14)? >> 4 == 4 && bytes.u8(at + 14)? & 0xf >= 5 && at + 14 + len <= bytes.datagram_len(),
            )
        }
        0x86dd => {
            let len = usize::from(bytes.be16(at + 18)?);
            ensure(bytes.u8(at + 14)? >> 4 == 6 && at + 54 + len <= bytes.datagram_len())
        }
        0x0806 => bytes.has(at + 14, &[0, 1, 8, 0, 6, 4, 0]),
        0x8100 => ensure(matches!(bytes.be16(at + 16)?, 0x0800 | 0x86dd | 0x0806)),
        _ => Err(Stop::No),
    }
}

/// RFC 8926: version 0, reserved bits, a kind of content, options.
pub(super) fn geneve(bytes: &Bytes<'_>) -> Told<Found> {
    let (first, flags, kind) = (bytes.u8(0)?, bytes.u8(1)?, bytes.be16(2)?);
    ensure(flags & 0x3f == 0 && bytes.u8(7)? == 0)?;
    let at = 8 + 4 * usize::from(first & 0x3f);
    match kind {
        0x6558 => frame(bytes, at)?,
        0x0800 | 0x86dd => ip_packet(bytes, at)?,
        _ => return Err(Stop::No),
    }
    Ok(GENEVE.certain())
}

/// RFC 7348: one flag, reserved bytes, then a frame.
pub(super) fn vxlan(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[8, 0, 0, 0])?;
    ensure(bytes.u8(7)? == 0)?;
    frame(bytes, 8)?;
    Ok(VXLAN.certain())
}

/// RFC 4380: IPv6 in a datagram, behind its own indications, with an address of the prefix.
pub(super) fn teredo(bytes: &Bytes<'_>) -> Told<Found> {
    let mut at = 0;
    for _ in 0..2 {
        match bytes.be16(at)? {
            // An authentication, an origin.
            1 => at += 13 + usize::from(bytes.u8(at + 2)?) + usize::from(bytes.u8(at + 3)?),
            0 => at += 8,
            _ => break,
        }
    }
    ensure(bytes.u8(at)? >> 4 == 6)?;
    ensure(usize::from(bytes.be16(at + 4)?) + at + 40 <= bytes.datagram_len())?;
    let is_teredo = |at: usize| bytes.has(at, &[0x20, 1, 0, 0]);
    let is_local = |at: usize| bytes.has(at, &[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
    either(is_teredo(at + 8), || either(is_teredo(at + 24), || is_local(at + 8)))?;
    Ok(TEREDO.certain())
}

/// RFC 9301, section 5: control messages.
pub(super) fn lisp(bytes: &Bytes<'_>) -> Told<Found> {
    let first = bytes.u8(0)?;
    match first >> 4 {
        // A registration, and its acknowledgement: reserved bits, one record, a known algorithm with its length.
        3 | 4 => {
            ensure((1..=8).contains(&bytes.u8(3)?))?;
            let (key, len) = (bytes.be16(12)?, bytes.be16(14)?);
            ensure(matches!((key & 0xff, len), (0, 0) | (1, 12 | 20) | (2, 16 | 32)))?;
            ensure(key >> 8 <= 4)?;
            let record = 16 + usize::from(len);
            ensure(matches!(bytes.be16(record + 10)?, 1 | 2 | 0x4003 | 6))?;
        }
        // An encapsulated message: IP behind the head.
        8 => {
            ensure(bytes.u8(0)? & 3 == 0 && bytes.be16(1)? == 0)?;
            ip_packet(bytes, 4)?;
        }
        // A request: a source address of a known family, then records.
        1 => {
            ensure((1..=8).contains(&bytes.u8(3)?) && bytes.be32(4)? != 0)?;
            let address = match bytes.be16(12)? {
                1 => 4,
                2 => 16,
                _ => return Err(Stop::No),
            };
            ensure(bytes.u8(1)? & 0x3f == 0)?;
            // Addresses of those who ask: one more than counted.
            let askers = usize::from(bytes.u8(2)? & 0x1f) + 1;
            let mut at = 14 + address;
            for _ in 0..askers {
                at += match bytes.be16(at)? {
                    1 => 6,
                    2 => 18,
                    _ => return Err(Stop::No),
                };
            }
            ensure(bytes.u8(at)? == 0 && bytes.u8(at + 1)? <= 128 && matches!(bytes.be16(at + 2)?, 1 | 2))?;
        }
        _ => return Err(Stop::No),
    }
    Ok(LISP.certain())
}

/// RFC 5415, section 4: a preamble, lengths, and a message that fills the datagram; or data with a frame of 802.11.
pub(super) fn capwap(bytes: &Bytes<'_>) -> Told<Found> {
    if bytes.u8(0)? == 1 {
        // DTLS follows.
        bytes.has(1, &[0, 0, 0])?;
        ensure(matches!(bytes.u8(4)?, 20..=23) && matches!(bytes.be16(5)?, 0xfeff | 0xfefd | 0x0100))?;
        return Ok(CAPWAP.certain());
    }
    let head = 4 * usize::from(bytes.u8(1)? >> 3);
    ensure((8..=32).contains(&head))?;
    // The binding: 802.11, a kind of radio; no fragment.
    let bits = bytes.be24(1)?;
    ensure(bits >> 9 & 0x1f <= 3)?;
    ensure(bytes.be32(4)? & 0xffff_0007 == 0)?;
    // Data that keep a path alive: one element with the session.
    if bytes.u8(3)? & 8 != 0 {
        ensure(usize::from(bytes.be16(head)?) + head == bytes.datagram_len())?;
        bytes.has(head + 2, &[0, 35, 0, 16])?;
        return Ok(CAPWAP.certain());
    }
    // A control message: an enterprise of zero, a kind, a sequence, a length.
    ensure(bytes.be24(head)? == 0 || bytes.be24(head)? == 0x33_f0)?;
    ensure((1..=26).contains(&bytes.u8(head + 3)?))?;
    let len = usize::from(bytes.be16(head + 5)?);
    ensure(
        bytes.u8(head + 7)? == 0 && head + 5 + len <= bytes.datagram_len() && head + 8 + len >= bytes.datagram_len(),
    )?;
    // The first element.
    let (kind, size) = (bytes.be16(head + 8)?, usize::from(bytes.be16(head + 10)?));
    ensure((1..=53).contains(&kind) || (1_024..=1_048).contains(&kind))?;
    ensure(size > 0 && head + 12 + size <= bytes.datagram_len())?;
    Ok(CAPWAP.certain())
}

/// The draft's section 4: an identity, a signature, and a packet of IP. Signs of life without one have too little that is fixed.
pub(super) fn ayiya(bytes: &Bytes<'_>) -> Told<Found> {
    let [identity, signature, operation, next] = bytes.array(0)?;
    ensure(matches!(identity, 0x41..=0x44) && matches!(signature >> 4, 0 | 4 | 5 | 8) && signature & 0xf <= 4)?;
    ensure(operation >> 4 <= 2 && operation & 0xf <= 8 && matches!(next, 41 | 4))?;
    ensure((0x3a00_0000..0xbb00_0000).contains(&bytes.be32(4)?))?;
    let at = 8 + (1 << (identity >> 4)) + 4 * usize::from(signature >> 4);
    ip_packet(bytes, at)?;
    Ok(AYIYA.certain())
}

/// MS-RDPEUDP, section 2.2: a SYN, all ones as the number that is acknowledged, sizes.
pub(super) fn rdpeudp(bytes: &Bytes<'_>) -> Told<Found> {
    let flags = bytes.be16(6)?;
    ensure(flags & 1 != 0 && flags & 0xe000 == 0)?;
    let acknowledges = flags & 4 != 0;
    ensure(acknowledges || bytes.be32(0)? == u32::MAX)?;
    let (up, down) = (bytes.be16(12)?, bytes.be16(14)?);
    ensure((1_132..=1_232).contains(&up) && (1_132..=1_232).contains(&down))?;
    ensure((1..=1_024).contains(&bytes.be16(4)?) && bytes.be32(8)? != 0)?;
    // Such datagrams are padded to the size that they offer.
    ensure((1_132..=1_232).contains(&bytes.datagram_len()))?;
    Ok(RDPEUDP.certain())
}
