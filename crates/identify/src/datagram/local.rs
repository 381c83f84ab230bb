//! What hosts of one network say to each other: names, addresses, services.

use crate::bytes::{Bytes, Found, Stop, Told, contains, ensure, is_printable};
use crate::names_format::Message;
use crate::protocol::{DHCP, DHCPV6, DNS, LLMNR, MDNS, NETBIOS, PANA, SLP, WSD, XDMCP};
use crate::stream::misc;

/// DNS and its kin. They have one format, and differ in what they use of it.
pub(super) fn dns(bytes: &Bytes<'_>) -> Told<Found> {
    let message = Message::read(bytes, 0)?;
    let is_response = message.is_response();
    // Multicast DNS (RFC 6762, section 18): no number, no recursion, no code.
    if message.id == 0 && message.flags & 0x7bff == 0 {
        return Ok(MDNS.certain());
    }
    // LLMNR (RFC 4795, section 2.1.1): one question of one label, and flags of its own instead of those for recursion.
    let [questions, answers, authorities, more] = message.counts;
    if message.flags & 0x79ff == 0 && questions == 1 && authorities == 0 && more == 0 && (is_response || answers == 0) {
        let label = usize::from(bytes.u8(message.name)?);
        let single = bytes.u8(message.name + 1 + label)? == 0;
        let name = bytes.slice(message.name + 1, label)?;
        let local = contains(bytes.slice(message.name, message.name_end - message.name)?, b"\x05local\0");
        if (single || local) && is_printable(name) && message.flags & 0x0400 == 0 {
            return Ok(LLMNR.likely());
        }
    }
    ensure(is_response || message.flags & 0xf == 0)?;
    ensure(!is_bare(&message))?;
    Ok(DNS.certain())
}

/// A bare message that may be of DNS or of LLMNR. Answers of LLMNR lie in a session of their own, as questions go to many hosts.
pub(super) fn dns_or_llmnr(bytes: &Bytes<'_>) -> Told<Found> {
    let message = Message::read(bytes, 0)?;
    ensure(message.id != 0 && is_bare(&message))?;
    Ok(LLMNR.guess())
}

/// True without any flag, authority or extension: resolvers ask for recursion or have extensions, and servers say what they are.
const fn is_bare(message: &Message) -> bool {
    let [questions, answers, authorities, more] = message.counts;
    let is_alone = questions == 1 && authorities == 0 && more == 0;
    is_alone && (message.flags == 0 && answers == 0 || message.flags == 0x8000 && answers > 0)
}

/// RFC 1002: names of 32 letters from A to P, in the name service (section 4.2) and in datagrams (section 4.4).
pub(super) fn netbios(bytes: &Bytes<'_>) -> Told<Found> {
    let is_name = |at: usize| {
        bytes.u8(at).is_ok_and(|len| len == 32)
            && bytes.slice(at + 1, 32).is_ok_and(|name| name.iter().all(|letter| matches!(letter, b'A'..=b'P')))
    };
    let counts = [4, 6, 8, 10].iter().all(|at| bytes.be16(*at).is_ok_and(|count| count <= 2));
    let datagram = matches!(bytes.array(0)?, [0x10..=0x12, 0..=0x0f]) && is_name(14);
    ensure((counts && is_name(12)) || datagram)?;
    Ok(NETBIOS.certain())
}

/// RFC 2131: the fixed part of BOOTP, and the magic cookie; or BOOTP alone (RFC 951).
pub(super) fn dhcp(bytes: &Bytes<'_>) -> Told<Found> {
    ensure((1..=8).contains(&bytes.u8(1)?) && bytes.u8(2)? <= 16 && bytes.u8(3)? <= 16)?;
    bytes.has(236, &[0x63, 0x82, 0x53, 0x63])?;
    Ok(DHCP.certain())
}

/// RFC 8415: options that fill the datagram exactly, the first of them known and one that each message has.
pub(super) fn dhcpv6(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.datagram_len();
    let mut at = match bytes.u8(0)? {
        1..=11 => 4,
        // Relayed: a count of relays and two addresses.
        12 | 13 => {
            ensure(bytes.u8(1)? <= 32)?;
            34
        }
        _ => return Err(Stop::No),
    };
    let (mut options, mut telling) = (0, false);
    while at < len {
        let (kind, size) = (bytes.be16(at)?, usize::from(bytes.be16(at + 2)?));
        ensure((1..=150).contains(&kind))?;
        telling |= match kind {
            // Who is asking or answering: a DUID of a known type.
            1 | 2 => (4..=130).contains(&size) && (1..=4).contains(&bytes.be16(at + 4)?),
            // What is relayed.
            9 => size >= 4 && matches!(bytes.u8(at + 4)?, 1..=13),
            // How long a client has been asking, and for what: inform-requests need not say who they are.
            8 => size == 2 && bytes.u8(0)? == 11,
            _ => false,
        };
        (at, options) = (at + 4 + size, options + 1);
    }
    ensure(at == len && options > 0 && telling)?;
    Ok(DHCPV6.certain())
}

/// RFC 2608; and version 1 (RFC 2165), whose head is shorter.
pub(super) fn slp(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.datagram_len();
    if bytes.u8(0)? == 2 {
        ensure(bytes.be24(2)? as usize == len)?;
        return misc::slp(bytes);
    }
    ensure((1..=10).contains(&bytes.u8(1)?) && usize::from(bytes.be16(2)?) == len)?;
    // Flags, a dialect of zero, a language in two letters, an encoding.
    ensure(bytes.u8(4)? & 0x07 == 0 && bytes.u8(5)? == 0)?;
    let language: [u8; 2] = bytes.array(6)?;
    ensure(language.iter().all(u8::is_ascii_lowercase))?;
    Ok(SLP.certain())
}

/// RFC 5191, section 6.2: zeros, the length, flags, a kind, a session.
pub(super) fn pana(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[0, 0])?;
    ensure(usize::from(bytes.be16(2)?) == bytes.datagram_len())?;
    ensure(bytes.be16(4)? & 0x03ff == 0 && (1..=4).contains(&bytes.be16(6)?))?;
    // Attributes fill the rest.
    let mut at = 16;
    while at < bytes.datagram_len() {
        ensure(bytes.be16(at)? <= 64 && bytes.be16(at + 2)? <= 1)?;
        at += 8 + usize::from(bytes.be16(at + 4)?).next_multiple_of(4);
    }
    ensure(at == bytes.datagram_len() && (at > 16 || bytes.be32(12)? != 0))?;
    Ok(PANA.certain())
}

/// JSON, each byte XOR the one before.
pub(super) fn tplink(bytes: &Bytes<'_>) -> Told<Found> {
    misc::tplink_at(bytes, 0)
}

/// An envelope of SOAP that names the discovery.
pub(super) fn wsd(bytes: &Bytes<'_>) -> Told<Found> {
    let head = &bytes.whole()[..bytes.datagram_len().min(800)];
    ensure(
        contains(head, b"Envelope") && contains(head, b"/ws/2005/04/discovery")
            || contains(head, b"ws-dd/ns/discovery"),
    )?;
    Ok(WSD.certain())
}

/// Version 1, an operation, the length of what follows.
pub(super) fn xdmcp(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[0, 1, 0])?;
    let (operation, len) = (bytes.u8(3)?, usize::from(bytes.be16(4)?));
    ensure((1..=14).contains(&operation) && len + 6 == bytes.datagram_len())?;
    // Queries: a list of strings that fills the datagram.
    if matches!(operation, 1..=3) {
        let mut at = 7;
        for _ in 0..bytes.u8(6)? {
            at += 2 + usize::from(bytes.be16(at)?);
        }
        ensure(at == bytes.datagram_len())?;
        return Ok(XDMCP.likely());
    }
    ensure(matches!(operation, 5 | 6 | 7 | 9))?;
    let first = usize::from(bytes.be16(6)?);
    ensure(first < len && first > 0 && is_printable(bytes.slice(8, first)?))?;
    Ok(XDMCP.likely())
}
