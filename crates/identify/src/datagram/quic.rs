//! QUIC: heads of long packets, and Google's own of old.

use crate::bytes::{Bytes, Found, Stop, Told, ensure};
use crate::protocol::{GQUIC, QUIC};

/// Version 1 (RFC 9000).
pub(crate) const V1: u32 = 1;
/// Version 2 (RFC 9369).
pub(crate) const V2: u32 = 0x6b33_43cf;

/// Returns true for versions with the head of RFC 8999 that are or were spoken: 1, 2, drafts, those of mvfst and of picoquic, and those
/// that exercise negotiation.
const fn is_known(version: u32) -> bool {
    version == V1
        || version == V2
        || matches!(version, 0xff00_0012..=0xff00_0022 | 0xface_b000..=0xface_b010 | 0xff02_0000 | 0x709a_50c4)
        || version & 0x0f0f_0f0f == 0x0a0a_0a0a
        || is_google(version)
}

/// Returns true for `Q0` or `T0` with two digits.
const fn is_google(version: u32) -> bool {
    matches!(version.to_be_bytes(), [b'Q' | b'T', b'0', b'0'..=b'9', b'0'..=b'9'])
}

/// A packet with a long head (RFC 8999, section 5.1).
pub(super) fn quic(bytes: &Bytes<'_>) -> Told<Found> {
    let version = bytes.be32(1)?;
    if version == 0 {
        return negotiation(bytes);
    }
    ensure(is_known(version))?;
    ensure(bytes.datagram_len() >= 20)?;
    if version >> 24 == u32::from(b'Q') {
        // Q046: both lengths in one byte. From Q050 on as in RFC 8999.
        let lens = bytes.u8(5)?;
        ensure(matches!(lens, 0x50 | 0x05 | 0x55 | 0x00) || lens <= 20)?;
        return Ok(GQUIC.certain());
    }
    let destination = bytes.u8(5)?;
    let source = bytes.u8(6 + usize::from(destination))?;
    ensure(destination <= 20 && source <= 20)?;
    // An exercise of negotiation proves less: such datagrams are padded.
    ensure(version & 0x0f0f_0f0f != 0x0a0a_0a0a || bytes.datagram_len() >= 1_200)?;
    Ok(if is_google(version) { GQUIC.certain() } else { QUIC.certain() })
}

/// Version negotiation (RFC 8999, section 6): a list of versions, one of them known.
fn negotiation(bytes: &Bytes<'_>) -> Told<Found> {
    let destination = usize::from(bytes.u8(5)?);
    let source = usize::from(bytes.u8(6 + destination)?);
    ensure(destination <= 20 && source <= 20)?;
    let list = bytes.from(7 + destination + source)?;
    let len = list.datagram_len();
    ensure(len >= 4 && len.is_multiple_of(4) && len <= 128)?;
    let known = (0..len / 4).any(|index| {
        list.be32(4 * index).is_ok_and(|version| version & 0x0f0f_0f0f != 0x0a0a_0a0a && is_known(version))
    });
    ensure(known)?;
    Ok(QUIC.certain())
}

/// Google's head up to Q043: flags, a connection, a version in letters.
pub(super) fn google(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.u8(0)? & 0xcb == 0x09)?;
    let version = bytes.be32(9)?;
    ensure(version >> 24 == u32::from(b'Q') && is_google(version))?;
    // A version is named by the first packets alone.
    ensure(bytes.u8(13)? < b' ')?;
    Ok(GQUIC.certain())
}

/// The parts of an Initial packet (RFC 9000, section 17.2.2) of version 1 or 2, or of a draft that encrypts alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initial<'a> {
    pub(crate) version: u32,
    pub(crate) destination: &'a [u8],
    /// Offset of the packet's number.
    pub(crate) number: usize,
    /// Offset behind the packet.
    pub(crate) end: usize,
}

impl<'a> Initial<'a> {
    /// Reads the head of the packet at the beginning of a datagram.
    pub(crate) fn read(bytes: &Bytes<'a>) -> Told<Self> {
        let (first, version) = (bytes.u8(0)?, bytes.be32(1)?);
        ensure(is_known(version) && version & 0x0f0f_0f0f != 0x0a0a_0a0a)?;
        let kind = if version == V2 { 1 } else { 0 };
        ensure(first & 0x80 != 0 && first >> 4 & 3 == kind)?;
        let destination = bytes.slice(6, bytes.u8(5)?.into())?;
        let at = 6 + destination.len();
        let source = usize::from(bytes.u8(at)?);
        ensure(destination.len() <= 20 && source <= 20)?;
        let (token, at) = varint(bytes, at + 1 + source)?;
        let (len, number) = varint(bytes, at.saturating_add(token))?;
        let end = number.checked_add(len).ok_or(Stop::No)?;
        ensure(len >= 20 && end <= bytes.datagram_len())?;
        Ok(Self { version, destination, number, end })
    }
}

/// Reads a number of variable length (RFC 9000, section 16), and the offset behind it.
pub(crate) fn varint(bytes: &Bytes<'_>, at: usize) -> Told<(usize, usize)> {
    let first = bytes.u8(at)?;
    let len = 1 << (first >> 6);
    let number = bytes.slice(at, len)?.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    // The two bits of the length.
    let number = number & (u64::MAX >> (66 - 8 * len));
    Ok((usize::try_from(number).map_err(|_| Stop::No)?, at + len))
}
