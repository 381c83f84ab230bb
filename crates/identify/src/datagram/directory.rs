//! Directories and management.

use crate::asn1::{INTEGER, OCTETS, SEQUENCE, integer, tagged};
use crate::bytes::{Bytes, Found, Stop, Told, ensure};
use crate::protocol::{KERBEROS, RADIUS, SNMP};
use crate::stream::directory;

/// RFC 3416 and RFC 3412: a version, then a community and a request, or the head of version 3.
pub(super) fn snmp(bytes: &Bytes<'_>) -> Told<Found> {
    let whole = tagged(bytes, 0, SEQUENCE)?;
    ensure(whole.end == bytes.datagram_len())?;
    let (version, at) = integer(bytes, whole.at, INTEGER)?;
    match version {
        0 | 1 => {
            let community = tagged(bytes, at, OCTETS)?;
            let kind = bytes.u8(community.end)?;
            ensure(matches!(kind, 0xa0..=0xa8))?;
            let request = tagged(bytes, community.end, kind)?;
            ensure(request.end == whole.end)?;
            // A number, or the enterprise of a trap of version 1.
            ensure(bytes.u8(request.at)? == if kind == 0xa4 { 6 } else { INTEGER })?;
        }
        3 => {
            let head = tagged(bytes, at, SEQUENCE)?;
            let id = tagged(bytes, head.at, INTEGER)?;
            let size = tagged(bytes, id.end, INTEGER)?;
            let flags = tagged(bytes, size.end, OCTETS)?;
            ensure(flags.len() == 1)?;
        }
        _ => return Err(Stop::No),
    }
    Ok(SNMP.certain())
}

/// LDAP without a connection (RFC 1798, MS-ADTS): messages fill the datagram.
pub(super) fn ldap(bytes: &Bytes<'_>) -> Told<Found> {
    let whole = tagged(bytes, 0, SEQUENCE)?;
    ensure(whole.end <= bytes.datagram_len())?;
    directory::ldap(bytes)
}

/// RFC 4120, section 7.2.1.
pub(super) fn kerberos(bytes: &Bytes<'_>) -> Told<Found> {
    let _end = directory::kerberos_at(bytes, 0)?;
    Ok(KERBEROS.certain())
}

/// RFC 2865: a length that is the datagram's, and attributes that fill it.
pub(super) fn radius(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(matches!(bytes.u8(0)?, 1..=5 | 11..=13 | 40..=45))?;
    let len = bytes.datagram_len();
    ensure(usize::from(bytes.be16(2)?) == len && len >= 20)?;
    let mut at = 20;
    while at < len {
        let size = bytes.u8(at + 1)?;
        ensure(size >= 2 && bytes.u8(at)? != 0)?;
        at += usize::from(size);
    }
    ensure(at == len)?;
    ensure(bytes.array::<16>(4)? != [0; 16] || len > 20)?;
    // A bare head is an answer, and little to go by.
    Ok(if len > 20 { RADIUS.certain() } else { RADIUS.guess() })
}
