//! Protocols in ASN.1's basic encoding (X.690).

use super::super::classifier::Payload;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 2;

/// Returns the length of the element with its tag at `at`, and the offset of its content.
fn element(payload: &Payload<'_>, at: usize) -> Option<(usize, usize)> {
    match payload.u8(at + 1)? {
        len @ 0..=0x7f => Some((len.into(), at + 2)),
        0x81 => Some((payload.u8(at + 2)?.into(), at + 3)),
        0x82 => Some((payload.u16(at + 2)?.into(), at + 4)),
        0x83 => Some(((payload.u32(at + 1)? & 0xff_ffff) as usize, at + 5)),
        0x84 => Some((payload.u32(at + 2)? as usize, at + 6)),
        _ => None,
    }
}

/// Returns the offset of the content of the element at `at`, if it has this tag.
fn inside(payload: &Payload<'_>, at: usize, tag: u8) -> Option<usize> {
    if payload.u8(at)? != tag {
        return None;
    }
    element(payload, at).map(|(_, content)| content)
}

/// RFC 3416 and RFC 3412: a version, then a community, or the header of version 3.
pub(super) fn snmp(payload: &Payload<'_>) -> Option<bool> {
    let at = inside(payload, 0, SEQUENCE)?;
    let (len, _) = element(payload, 0)?;
    let (version, behind) = match payload.array(at)? {
        [INTEGER, 1, version] => (version, at + 3),
        _ => return Some(false),
    };
    let is_whole = len + at == payload.wire_len as usize;
    if version == 3 {
        return Some(is_whole && payload.u8(behind)? == SEQUENCE);
    }
    let community = inside(payload, behind, 4)?;
    let (community_len, _) = element(payload, behind)?;
    // One of the requests and answers, GetRequest to Report.
    Some(is_whole && version <= 1 && matches!(payload.u8(community + community_len)?, 0xa0..=0xa8))
}

/// RFC 4511: the number of a message, then an operation. Several messages may follow each other.
pub(super) fn ldap(payload: &Payload<'_>) -> Option<bool> {
    let at = inside(payload, 0, SEQUENCE)?;
    let (len, _) = element(payload, 0)?;
    let (number_len, number) = element(payload, at)?;
    if payload.u8(at)? != INTEGER || !matches!(number_len, 1..=4) || payload.u8(number)? > 0x7f {
        return Some(false);
    }
    let operation = number + number_len;
    let operations =
        matches!(payload.u8(operation)?, 0x42 | 0x4a | 0x50 | 0x60 | 0x61 | 0x63..=0x6e | 0x73 | 0x77..=0x79);
    let (operation_len, content) =
        if payload.u8(operation)? == 0x42 { (0, operation + 2) } else { element(payload, operation)? };
    // Controls may follow the operation.
    Some(operations && content + operation_len <= at + len)
}

/// RFC 4120, section 5: the application's tag tells the message, and both of the first fields say what they are.
pub(super) fn kerberos(payload: &Payload<'_>) -> Option<bool> {
    kerberos_at(payload, 0)
}

/// Kerberos over TCP: a message after its length (section 7.2.2).
pub(super) fn kerberos_over_tcp(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.u16(0)? == 0 && u32::from(payload.u16(2)?) + 4 >= payload.wire_len && kerberos_at(payload, 4)?)
}

fn kerberos_at(payload: &Payload<'_>, at: usize) -> Option<bool> {
    let tag = payload.u8(at)?;
    let kind = tag & 0x1f;
    if !matches!(tag, 0x6a..=0x6f | 0x74..=0x76 | 0x7e) {
        return Some(false);
    }
    let sequence = inside(payload, at, tag)?;
    let fields = inside(payload, sequence, SEQUENCE)?;
    let [context, 3, INTEGER, 1, 5] = payload.array(fields)? else { return Some(false) };
    // Requests to the key centre count their fields from 1, all other messages from 0.
    let next = match context {
        0xa0 | 0xa1 => context + 1,
        _ => return Some(false),
    };
    Some(payload.array(fields + 5)? == [next, 3, INTEGER, 1, kind])
}
