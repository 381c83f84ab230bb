//! Proxies, relays and tunnels.

use crate::bytes::{Bytes, Found, Stop, Told, ensure, is_printable};
use crate::datagram::openvpn_reset;
use crate::protocol::{OPENVPN, SOCKS, STUN};

/// RFC 1928: the methods that a client offers, the one that the server takes; then a request.
pub(super) fn socks5(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let methods = bytes.u8(1)?;
    ensure((1..=9).contains(&methods))?;
    let offered = bytes.slice(2, methods.into())?;
    ensure(offered.iter().all(|method| *method <= 9 || *method >= 0x80))?;
    ensure(offered.windows(2).all(|pair| pair[0] != pair[1]))?;
    ensure(answer.u8(0)? == 5)?;
    let taken = answer.u8(1)?;
    ensure(taken == 0xff || offered.contains(&taken))?;
    if taken != 0 {
        // Whether the client proves who it is, or leaves, nothing else begins so.
        if taken == 2 {
            ensure(bytes.u8(2 + usize::from(methods))? == 1)?;
        }
        return Ok(SOCKS.certain());
    }
    let at = 2 + usize::from(methods);
    ensure(bytes.u8(at)? == 5)?;
    ensure(matches!(bytes.u8(at + 1)?, 1..=3) && bytes.u8(at + 2)? == 0 && matches!(bytes.u8(at + 3)?, 1 | 3 | 4))?;
    Ok(SOCKS.certain())
}

/// Version 4 and 4A: a request with a name that ends with zero, and the answer of eight bytes.
pub(super) fn socks4(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    ensure(matches!(bytes.u8(1)?, 1 | 2))?;
    ensure(bytes.be16(2)? != 0)?;
    let end = bytes.find(8, 0, 128)?;
    ensure(is_printable(bytes.slice(8, end - 8)?))?;
    ensure(answer.u8(0)? == 0 && matches!(answer.u8(1)?, 0x5a..=0x5d))?;
    answer.slice(2, 6)?;
    Ok(SOCKS.likely())
}

/// STUN over TCP (RFC 8489, section 6.2.2): as in datagrams, or behind a length (RFC 4571).
pub(super) fn stun(bytes: &Bytes<'_>) -> Told<Found> {
    let at = |at: usize| {
        let (kind, len) = (bytes.be16(at)?, bytes.be16(at + 2)?);
        ensure(kind & 0xc000 == 0 && len.is_multiple_of(4))?;
        bytes.has(at + 4, &[0x21, 0x12, 0xa4, 0x42])
    };
    match at(0) {
        Ok(()) => Ok(STUN.certain()),
        Err(Stop::More) => Err(Stop::More),
        Err(Stop::No) => {
            ensure(bytes.be16(0)? >= 20)?;
            at(2)?;
            Ok(STUN.certain())
        }
    }
}

/// Resets of both sides, each behind its length.
pub(super) fn openvpn(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let reset = |side: &Bytes<'_>| {
        let len = usize::from(side.be16(0)?);
        ensure((14..=1_500).contains(&len))?;
        ensure(matches!(side.u8(2)?, 0x38 | 0x40 | 0x50))?;
        openvpn_reset(&Bytes::datagram(side.slice(2, len)?))
    };
    reset(bytes)?;
    reset(answer)?;
    Ok(OPENVPN.certain())
}
