//! Remote calls and caches.

use crate::bytes::{Bytes, Found, Told, ensure};
use crate::protocol::{DCE_RPC, MEMCACHED, RX};
use crate::stream::{calls, data};

/// RFC 5531.
pub(super) fn sun_rpc(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.datagram_len().is_multiple_of(4))?;
    calls::sun_rpc_at(bytes, 0)
}

/// DCE 1.1, section 12.5: version 4, without connections. The length of the body fits.
pub(super) fn dce_rpc(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, flags) = (bytes.u8(1)?, bytes.u8(3)?);
    ensure(kind <= 10 && flags <= 3)?;
    let [order, float, zero] = bytes.array(4)?;
    ensure(matches!(order, 0 | 1 | 0x10 | 0x11) && float <= 3 && zero == 0)?;
    let body = if order & 0x10 != 0 { bytes.le16(74)? } else { bytes.be16(74)? };
    ensure(usize::from(body) + 80 <= bytes.datagram_len())?;
    // An interface's version, and its number of calls, are small.
    let version = if order & 0x10 != 0 { bytes.le32(60)? } else { bytes.be32(60)? };
    ensure(version & 0xffff <= 64)?;
    Ok(DCE_RPC.certain())
}

/// RX: an epoch, a connection, a call, numbers, a kind, flags, a status, a service.
pub(super) fn rx(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.datagram_len();
    ensure(len >= 28)?;
    let (call, sequence, serial) = (bytes.be32(8)?, bytes.be32(12)?, bytes.be32(16)?);
    let [kind, flags, status, security] = bytes.array(20)?;
    ensure((1..=13).contains(&kind) && flags & 0xc0 == 0 && status <= 1 && security <= 5)?;
    ensure(call < 1 << 20 && sequence < 1 << 16 && serial < 1 << 20 && serial > 0)?;
    ensure(bytes.be32(0)? != 0 && bytes.be32(4)? & 0xffff_fffc != 0)?;
    // The services of AFS, and of others that are assigned.
    let service = bytes.be16(26)?;
    ensure(matches!(service, 1 | 4 | 52 | 73 | 79 | 146 | 147 | 207 | 2_001 | 2_003 | 10_001 | 31_000..=31_010))?;
    ensure(kind != 1 || len > 28 || flags & 4 != 0)?;
    Ok(RX.certain())
}

/// Memcached in datagrams: a head of eight bytes, then text. What follows of the binary protocol is told as in streams.
pub(super) fn memcached(bytes: &Bytes<'_>) -> Told<Found> {
    if bytes.u8(0)? >= 0x80 {
        return data::memcached(bytes);
    }
    let (number, total) = (bytes.be16(2)?, bytes.be16(4)?);
    ensure(number < total && total <= 64 && bytes.be16(6)? == 0)?;
    let text = bytes.from(8)?;
    let words: [&[u8]; 8] = [b"get ", b"gets ", b"set ", b"stats", b"VALUE ", b"STAT ", b"version\r\n", b"END\r\n"];
    ensure(words.iter().any(|word| text.has(0, word).is_ok()))?;
    Ok(MEMCACHED.certain())
}
