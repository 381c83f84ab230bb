//! TLS: hellos and records.

use crate::bytes::{Bytes, Found, Stop, Told, ensure};
use crate::protocol::TLS;

/// Content of a record, at most, with what encryption adds.
const RECORD_MAX: u16 = 16_384 + 2_048;

/// A hello inside records (RFC 8446, sections 4.1 and 5.1). The first record may be shorter than the hello's head.
pub(super) fn hello(bytes: &Bytes<'_>) -> Told<Found> {
    record(bytes, 0)?;
    let mut joined = Handshake::new(bytes);
    // A server may ask for a hello before it gets one.
    let kind = joined.u8()?;
    ensure(matches!(kind, 0..=2))?;
    let (a, b, c) = (joined.u8()?, joined.u8()?, joined.u8()?);
    let len = u32::from_be_bytes([0, a, b, c]);
    if kind == 0 {
        ensure(len == 0)?;
        return Ok(TLS.certain());
    }
    ensure((38..=65_536).contains(&len))?;
    // A hello begins with a version, whatever the record's version is.
    ensure(joined.u8()? == 3 && joined.u8()? <= 4)?;
    Ok(TLS.certain())
}

/// Checks the head of a record. Returns its content's length.
fn record(bytes: &Bytes<'_>, at: usize) -> Told<usize> {
    let kind = bytes.u8(at)?;
    ensure(matches!(kind, 0x14..=0x17))?;
    ensure(bytes.u8(at + 1)? == 3)?;
    ensure(bytes.u8(at + 2)? <= 4)?;
    let len = bytes.be16(at + 3)?;
    ensure((1..=RECORD_MAX).contains(&len))?;
    Ok(len.into())
}

/// A stream that is picked up behind its hello, or a refusal: records that follow each other.
pub(super) fn records(bytes: &Bytes<'_>) -> Told<Found> {
    let kind = bytes.u8(0)?;
    let len = record(bytes, 0)?;
    match kind {
        0x14 => ensure(len == 1 && bytes.u8(5)? == 1)?,
        0x15 if len == 2 => {
            ensure(matches!(bytes.u8(5)?, 1 | 2) && is_alert(bytes.u8(6)?))?;
            return Ok(TLS.certain());
        }
        _ => ensure(len >= 16)?,
    }
    // Whoever changes the cipher goes on encrypted. Or a record is the last.
    match record(bytes, 5 + len) {
        Ok(_) => Ok(TLS.certain()),
        Err(Stop::No) if kind != 0x14 => bytes.ends_at(5 + len).map(|()| TLS.likely()),
        Err(stop) => Err(stop),
    }
}

/// The assigned alerts (RFC 8446, section 6, and the registry).
const fn is_alert(code: u8) -> bool {
    matches!(code, 0 | 10 | 20..=22 | 30 | 40..=51 | 60 | 70 | 71 | 80 | 86 | 90 | 100 | 109..=116 | 120 | 121)
}

/// The first message of old clients (RFC 6101, appendix E): lengths that add up.
pub(super) fn hello_of_ssl2(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be16(0)? & 0x7fff;
    ensure(bytes.u8(2)? == 1)?;
    ensure(matches!(bytes.array(3)?, [3, 0..=3] | [0, 2]))?;
    let (ciphers, session, challenge) = (bytes.be16(5)?, bytes.be16(7)?, bytes.be16(9)?);
    ensure(ciphers > 0 && ciphers.is_multiple_of(3) && matches!(session, 0 | 16) && (16..=32).contains(&challenge))?;
    ensure(u32::from(len) == 9 + u32::from(ciphers) + u32::from(session) + u32::from(challenge))?;
    Ok(TLS.certain())
}

/// The bytes of the handshake, joined out of records.
pub(crate) struct Handshake<'a> {
    bytes: Bytes<'a>,
    at: usize,
    left: usize,
}

impl<'a> Handshake<'a> {
    /// Begins at the first record.
    pub(crate) const fn new(bytes: &Bytes<'a>) -> Self {
        Self { bytes: *bytes, at: 0, left: 0 }
    }

    /// Returns the next byte of the handshake.
    pub(crate) fn u8(&mut self) -> Told<u8> {
        if self.left == 0 {
            ensure(self.bytes.u8(self.at)? == 0x16)?;
            self.left = record(&self.bytes, self.at)?;
            self.at += 5;
        }
        let byte = self.bytes.u8(self.at)?;
        self.at += 1;
        self.left -= 1;
        Ok(byte)
    }
}
