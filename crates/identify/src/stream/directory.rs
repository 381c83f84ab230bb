//! Names and directories: DNS, LDAP, Kerberos.

use crate::asn1::{ENUMERATED, INTEGER, OCTETS, SEQUENCE, element, integer, tagged};
use crate::bytes::{Bytes, Found, Stop, Told, ensure};
use crate::names_format::Message;
use crate::protocol::{DNS, KERBEROS, LDAP};

/// A message behind its length (RFC 7766, section 8).
pub(super) fn dns(bytes: &Bytes<'_>) -> Told<Found> {
    let len = usize::from(bytes.be16(0)?);
    ensure(len >= 17)?;
    let message = Message::read(bytes, 2)?;
    ensure(message.name_end + 4 <= len + 2)?;
    ensure(message.is_response() || message.flags & 0xf == 0)?;
    Ok(DNS.certain())
}

/// A message with its number and an operation (RFC 4511, section 4.1.1), and the operation's first fields.
pub(crate) fn ldap(bytes: &Bytes<'_>) -> Told<Found> {
    let whole = tagged(bytes, 0, SEQUENCE)?;
    ensure(whole.len() >= 5)?;
    let (_, at) = integer(bytes, whole.at, INTEGER)?;
    let tag = bytes.u8(at)?;
    let operation = element(bytes, at)?;
    ensure(operation.end <= whole.end)?;
    match tag {
        // A bind: a version, a name, a choice of credentials.
        0x60 => {
            let (version, name) = integer(bytes, operation.at, INTEGER)?;
            ensure((1..=3).contains(&version))?;
            let name = tagged(bytes, name, OCTETS)?;
            ensure(matches!(bytes.u8(name.end)?, 0x80 | 0x82 | 0xa3 | 0x8a | 0x8b))?;
        }
        // Unbind.
        0x42 => ensure(operation.len() == 0 && operation.end == whole.end)?,
        // A search: a base, a scope, how to follow aliases.
        0x63 => {
            let base = tagged(bytes, operation.at, OCTETS)?;
            let (scope, at) = integer(bytes, base.end, ENUMERATED)?;
            let (aliases, _) = integer(bytes, at, ENUMERATED)?;
            ensure(scope <= 3 && aliases <= 3)?;
        }
        // An entry that was found, a reference, and requests to change: the entry's name, then a sequence.
        0x64 | 0x66 | 0x68 => {
            let name = tagged(bytes, operation.at, OCTETS)?;
            ensure(bytes.u8(name.end)? == SEQUENCE)?;
        }
        // Results: a code, the name that matched, a diagnosis.
        0x61 | 0x65 | 0x67 | 0x69 | 0x6b | 0x6d | 0x6f | 0x78 => {
            let (code, at) = integer(bytes, operation.at, ENUMERATED)?;
            let name = tagged(bytes, at, OCTETS)?;
            ensure(code <= 0x1000 && bytes.u8(name.end)? == OCTETS)?;
        }
        // An extended request: an identifier in digits.
        0x77 => {
            let name = tagged(bytes, operation.at, 0x80)?;
            let digits = bytes.slice(name.at, name.len().min(8))?;
            ensure(name.len() >= 3 && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.')))?;
        }
        _ => return Err(Stop::No),
    }
    Ok(LDAP.certain())
}

/// A message behind its length (RFC 4120, section 7.2.2).
pub(super) fn kerberos(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be32(0)?;
    ensure((20..1 << 20).contains(&len))?;
    let end = kerberos_at(bytes, 4)?;
    ensure(end <= len as usize + 4)?;
    Ok(KERBEROS.certain())
}

/// Checks the message at an offset (section 5): the application's tag tells which, and both first fields say what they are. Returns where
/// it ends.
pub(crate) fn kerberos_at(bytes: &Bytes<'_>, at: usize) -> Told<usize> {
    let tag = bytes.u8(at)?;
    let kind = tag & 0x1f;
    ensure(matches!(tag, 0x6a..=0x6f | 0x74..=0x76 | 0x7e))?;
    let whole = element(bytes, at)?;
    let fields = tagged(bytes, whole.at, SEQUENCE)?;
    // Requests to the key centre count their fields from 1, all other messages from 0.
    let context = bytes.u8(fields.at)?;
    ensure(matches!(context, 0xa0 | 0xa1))?;
    bytes.has(fields.at + 1, &[3, INTEGER, 1, 5])?;
    bytes.has(fields.at + 5, &[context + 1, 3, INTEGER, 1, kind])?;
    Ok(whole.end)
}
