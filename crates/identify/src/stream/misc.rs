//! Routing, telephony, files between peers, and others.

use crate::bytes::{Bytes, Found, Stop, Told, ensure, is_printable};
use crate::protocol::{
    BGP, DIAMETER, DICOM, EDONKEY, FASTCGI, LDP, MINECRAFT, RTMP, SKINNY, SLP, SMPP, TACACS, TPLINK_SHP,
};

/// RFC 4271, section 4.1: a marker, a length, a kind.
pub(super) fn bgp(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[0xff; 16])?;
    let len = bytes.be16(16)?;
    ensure((19..=4_096).contains(&len) && (1..=5).contains(&bytes.u8(18)?))?;
    Ok(BGP.certain())
}

/// RFC 5036, section 3.5: version 1, a length, an identifier; then a message.
pub(crate) fn ldp(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[0, 1])?;
    let len = bytes.be16(2)?;
    ensure((14..=4_096).contains(&len))?;
    ensure(bytes.be32(4)? != 0 && bytes.be16(8)? == 0)?;
    let (kind, message) = (bytes.be16(10)?, bytes.be16(12)?);
    ensure(matches!(kind & 0x7fff, 0x0001 | 0x0100 | 0x0200 | 0x0201 | 0x0300 | 0x0301 | 0x0400..=0x0404))?;
    ensure(message >= 4 && message + 10 <= len)?;
    Ok(LDP.certain())
}

/// RFC 6733, section 3: version 1, a length, flags, a command, an application.
pub(super) fn diameter(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be24(1)?;
    ensure((20..65_536).contains(&len) && len.is_multiple_of(4))?;
    ensure(bytes.u8(4)? & 0x0f == 0)?;
    let (command, application) = (bytes.be24(5)?, bytes.be32(8)?);
    ensure((257..=16_777_213).contains(&command) && command & 0xff_0000 <= 0x7f_0000)?;
    ensure(application < 0x0200_0000 || application == u32::MAX)?;
    // The first attribute: a code that is not far, flags, a length.
    ensure(bytes.be32(20)? < 10_000 && bytes.u8(24)? & 0x1f == 0)?;
    let first = bytes.be24(25)?;
    ensure(first >= 8 && first + 20 <= len)?;
    Ok(DIAMETER.certain())
}

/// RFC 8907, section 4.1: a session's first packet.
pub(super) fn tacacs(bytes: &Bytes<'_>) -> Told<Found> {
    let [_, kind, number, flags] = bytes.array(0)?;
    ensure(matches!(kind, 1..=3) && number == 1 && matches!(flags, 0 | 1 | 4 | 5))?;
    let len = bytes.be32(8)?;
    ensure((8..4_096).contains(&len) && bytes.be32(4)? != 0)?;
    Ok(TACACS.likely())
}

/// A message: its length, a version, its kind.
pub(super) fn skinny(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.le32(0)?;
    ensure((4..2_048).contains(&len))?;
    ensure(matches!(bytes.le32(4)?, 0 | 0x0a..=0x16))?;
    let kind = bytes.le32(8)?;
    match kind {
        // A registration: the device's name.
        1 => {
            let name = bytes.slice(12, 4)?;
            ensure(name.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_'))?;
        }
        // Keep-alives; both sides have their own.
        0 | 0x100 => {
            ensure(len == 4 && bytes.le32(12)? == 4)?;
            ensure(matches!(bytes.le32(20)?, 0 | 0x100))?;
        }
        // A registration is acknowledged, refused; capabilities are asked for.
        0x81 | 0x9b | 0x9d => ensure(len <= 64 && bytes.le32(4)? < 0x17 && matches!(bytes.le32(12)?, 1..=600))?,
        _ => return Err(Stop::No),
    }
    Ok(SKINNY.certain())
}

/// A request begins: version 1, kind 1, eight bytes with a role and five zeros.
pub(super) fn fastcgi(bytes: &Bytes<'_>) -> Told<Found> {
    let kind = bytes.u8(1)?;
    match kind {
        1 => {
            bytes.has(4, &[0, 8])?;
            ensure(bytes.u8(6)? < 8)?;
            let [zero, role, flags] = bytes.array(8)?;
            ensure(zero == 0 && matches!(role, 1..=3) && flags <= 1)?;
            bytes.has(11, &[0; 5])?;
            Ok(FASTCGI.certain())
        }
        // Its output: text as of HTTP.
        6 => {
            ensure(bytes.be16(4)? > 8 && bytes.u8(7)? == 0)?;
            let text = bytes.slice(8, 8)?;
            ensure(matches!(text, b"Status: " | b"Content-" | b"X-Powere" | b"Set-Cook"))?;
            Ok(FASTCGI.certain())
        }
        _ => Err(Stop::No),
    }
}

/// JSON behind its length, each byte XOR the one before, the first XOR 171.
pub(super) fn tplink(bytes: &Bytes<'_>) -> Told<Found> {
    ensure((2..1 << 16).contains(&bytes.be32(0)?))?;
    tplink_at(bytes, 4)
}

/// The JSON's beginning: an object whose first key is a word.
pub(crate) fn tplink_at(bytes: &Bytes<'_>, at: usize) -> Told<Found> {
    bytes.has(at, &[b'{' ^ 171])?;
    let text: [u8; 8] = bytes.array(at)?;
    let plain = |index: usize| text[index] ^ text[index - 1];
    ensure(
        plain(1) == b'"'
            && (2..8).all(|index| matches!(plain(index), b'a'..=b'z' | b'_' | b'"' | b':' | b'{' | b'A'..=b'Z' | b'.')),
    )?;
    ensure(plain(2) != b'"')?;
    Ok(TPLINK_SHP.certain())
}

/// A request for an association (DICOM PS3.8, section 9.3.2).
pub(super) fn dicom(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.u8(1)? == 0 && (74..1 << 20).contains(&bytes.be32(2)?))?;
    bytes.has(6, &[0, 1, 0, 0])?;
    let titles = bytes.slice(10, 32)?;
    ensure(is_printable(titles) && titles[0] != b' ')?;
    Ok(DICOM.certain())
}

/// A bind, or the answer to one (SMPP 3.4, section 4.1).
pub(super) fn smpp(bytes: &Bytes<'_>) -> Told<Found> {
    ensure((16..200).contains(&bytes.be32(0)?))?;
    let (command, status) = (bytes.be32(4)?, bytes.be32(8)?);
    ensure(matches!(command & 0x7fff_ffff, 1 | 2 | 9) && (command >> 31 == 1 || status == 0) && status < 0x500)?;
    let number = bytes.be32(12)?;
    ensure((1..=0x7fff_ffff).contains(&number))?;
    let end = bytes.find(16, 0, 16)?;
    ensure(is_printable(bytes.slice(16, end - 16)?) && end > 16)?;
    Ok(SMPP.certain())
}

/// Both first chunks: version 3, a time, four zeros or a version, and 1528 bytes (Adobe RTMP 1.0, section 5.2).
pub(super) fn rtmp(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    // The server's second chunk repeats the client's first.
    let own: [u8; 4] = bytes.array(1)?;
    bytes.slice(0, 1_537)?;
    ensure(answer.u8(0)? == 3)?;
    ensure(answer.array::<4>(1_537)? == own)?;
    // Random bytes follow: the same ones.
    let random: [u8; 8] = bytes.array(9)?;
    ensure(answer.array::<8>(1_545)? == random)?;
    Ok(RTMP.certain())
}

/// A handshake: lengths, a version, a host's name with its length, a port, a state of 1 or 2; then the next packet.
pub(super) fn minecraft(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.u8(0)?;
    ensure((8..0x80).contains(&len))?;
    ensure(bytes.u8(1)? == 0)?;
    let mut at = 2;
    while bytes.u8(at)? >= 0x80 {
        at += 1;
        ensure(at <= 6)?;
    }
    let name = bytes.u8(at + 1)?;
    ensure(usize::from(len) == at + usize::from(name) + 4 && name >= 3)?;
    let text = bytes.slice(at + 2, name.into())?;
    ensure(text.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(byte)))?;
    ensure(matches!(bytes.u8(usize::from(len))?, 1..=3))?;
    Ok(MINECRAFT.certain())
}

/// A hello of eDonkey or eMule: a mark, a length, an operation, sixteen bytes of a hash.
pub(super) fn edonkey(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.u8(0)? == 0xe3)?;
    let len = bytes.le32(1)?;
    ensure((23..1_000).contains(&len) && bytes.u8(5)? == 1)?;
    let at = if bytes.u8(6)? == 16 { 7 } else { 6 };
    // Clients mark their hash in two bytes; the number of tags follows address and port.
    ensure(bytes.u8(at + 5)? == 14 && bytes.u8(at + 14)? == 111)?;
    Ok(EDONKEY.certain())
}

/// RFC 2608, section 8: version 2, a function, a length, flags, a language.
pub(crate) fn slp(bytes: &Bytes<'_>) -> Told<Found> {
    ensure((1..=11).contains(&bytes.u8(1)?))?;
    let len = bytes.be24(2)?;
    ensure((16..1 << 16).contains(&len))?;
    ensure(bytes.be16(5)? & 0x1fff == 0 && bytes.be24(7)? < len)?;
    let language = bytes.be16(12)?;
    ensure((2..=8).contains(&language))?;
    let tag = bytes.slice(14, language.into())?;
    ensure(tag.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-'))?;
    Ok(SLP.certain())
}
