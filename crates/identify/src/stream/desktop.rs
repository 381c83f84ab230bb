//! Remote desktops and shells; and what else is framed by TPKT.

use crate::bytes::{Bytes, Found, Stop, Told, contains, ensure, is_printable};
use crate::protocol::{FINGER, GOPHER, H323, MMS, RDP, RSH, S7COMM, S7COMM_PLUS, TELNET, X11};

/// What RFC 1006 frames: RDP and industrial protocols behind a head of X.224, H.225.0 without one.
pub(super) fn tpkt(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.u8(1)? == 0)?;
    let len = bytes.be16(2)?;
    ensure(len >= 7)?;
    // Q.931 (ITU-T Q.931, section 4.2): its discriminator, a reference of two bytes, a kind of message.
    if bytes.u8(4)? == 8 {
        bytes.has(5, &[2])?;
        ensure(matches!(bytes.u8(8)?, 0x01 | 0x02 | 0x03 | 0x05 | 0x07 | 0x0d | 0x0f | 0x5a | 0x62 | 0x6e | 0x7d))?;
        return Ok(H323.certain());
    }
    let header = u16::from(bytes.u8(4)?);
    let kind = bytes.u8(5)?;
    ensure(header + 5 <= len)?;
    match kind {
        // A request for a connection, and its confirmation.
        0xe0 | 0xd0 => {
            ensure(header + 5 == len && (kind == 0xd0 || bytes.be16(6)? == 0))?;
            let class = bytes.u8(10)?;
            ensure(class == 0)?;
            if len == 11 {
                return Ok(RDP.likely());
            }
            match bytes.u8(11)? {
                b'C' => {
                    bytes.has(11, b"Cookie: mst")?;
                    Ok(RDP.certain())
                }
                // A request for a protocol, an answer, a refusal: eight bytes.
                1..=3 => {
                    bytes.u8(12)?;
                    bytes.has(13, &[8, 0])?;
                    Ok(RDP.certain())
                }
                // Parameters of the transport: sizes and selectors. What speaks over it is told by its first data.
                0xc0..=0xc2 => {
                    let next = usize::from(len);
                    bytes.has(next, &[3, 0])?;
                    over_cotp(&bytes.from(next)?)
                }
                _ => Err(Stop::No),
            }
        }
        0xf0 => over_cotp(bytes),
        _ => Err(Stop::No),
    }
}

/// Data over COTP: a head of three bytes, then the protocol.
fn over_cotp(bytes: &Bytes<'_>) -> Told<Found> {
    bytes.has(0, &[3, 0])?;
    let len = bytes.be16(2)?;
    bytes.has(4, &[2, 0xf0])?;
    ensure(bytes.u8(6)? & 0x7f == 0)?;
    match bytes.u8(7)? {
        0x32 => {
            ensure(matches!(bytes.u8(8)?, 1..=3 | 7))?;
            bytes.has(9, &[0, 0])?;
            ensure(len >= 17)?;
            Ok(S7COMM.certain())
        }
        0x72 => {
            ensure(matches!(bytes.u8(8)?, 1..=3 | 0xfe) && bytes.be16(9)? < len)?;
            Ok(S7COMM_PLUS.certain())
        }
        // A session's connect, accept or data (ISO 8327): units whose lengths fit, then a presentation in BER.
        0x0d | 0x0e => {
            ensure(usize::from(len) >= 20 && u16::from(bytes.u8(8)?) < len)?;
            ensure(matches!(bytes.u8(9)?, 0x05 | 0x13 | 0x14 | 0x33 | 0xc1))?;
            Ok(MMS.certain())
        }
        1 => {
            bytes.has(7, &[1, 0, 1, 0, 0x61])?;
            Ok(MMS.certain())
        }
        // A connection of T.125 (MCS), which RDP opens with.
        0x7f => {
            ensure(matches!(bytes.u8(8)?, 0x65 | 0x66))?;
            Ok(RDP.certain())
        }
        _ => Err(Stop::No),
    }
}

/// A client's first message: an order of bytes, version 11, the length of a proof.
pub(super) fn x11(bytes: &Bytes<'_>) -> Told<Found> {
    let big = bytes.u8(0)? == b'B';
    ensure(bytes.u8(1)? == 0)?;
    let number = |at| if big { bytes.be16(at) } else { bytes.le16(at) };
    ensure(number(2)? == 11 && number(4)? == 0)?;
    let (name, data) = (number(6)?, number(8)?);
    ensure(name <= 64 && data <= 256 && number(10)? == 0)?;
    Ok(X11.certain())
}

/// RFC 854: a command of negotiation, and another behind it or text.
pub(super) fn telnet(bytes: &Bytes<'_>) -> Told<Found> {
    let mut at = 0;
    for _ in 0..2 {
        ensure(bytes.u8(at)? == 0xff)?;
        match bytes.u8(at + 1)? {
            0xfb..=0xfe => {
                ensure(is_option(bytes.u8(at + 2)?))?;
                at += 3;
            }
            // A subnegotiation, up to its end.
            0xfa if at > 0 => {
                ensure(is_option(bytes.u8(at + 2)?))?;
                return Ok(TELNET.certain());
            }
            _ => return Err(Stop::No),
        }
    }
    Ok(TELNET.certain())
}

/// The options that are assigned.
const fn is_option(option: u8) -> bool {
    option <= 49 || matches!(option, 138..=140 | 200)
}

/// A remote shell or login: text that ends with zeros. The server answers one zero.
pub(super) fn rsh(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    // The number of a second port, in digits; none for a login.
    let port = bytes.find(0, 0, 6)?;
    ensure(bytes.slice(0, port)?.iter().all(u8::is_ascii_digit))?;
    let local = bytes.find(port + 1, 0, 32)?;
    let remote = bytes.find(local + 1, 0, 32)?;
    let command = bytes.find(remote + 1, 0, 1_000)?;
    let word = |from: usize, to: usize| bytes.slice(from + 1, to - from - 1);
    ensure(local > port + 1 && is_printable(word(port, local)?))?;
    ensure(remote > local + 1 && is_printable(word(local, remote)?))?;
    ensure(command > remote + 1 && is_printable(word(remote, command)?))?;
    ensure(answer.u8(0)? == 0)?;
    Ok(RSH.likely())
}

/// A line with a name, and an answer that begins as servers do.
pub(super) fn finger(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let (line, end) = bytes.line(0, 64)?;
    ensure(line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"@.-_/ ".contains(byte)))?;
    // Nothing follows the question.
    bytes.ends_at(end)?;
    let (first, _) = answer.line(0, 200)?;
    let known = first.starts_with(b"Login")
        || contains(first, b"Login name:")
        || contains(first, b"finger:")
        || first.starts_with(b"No one logged on");
    ensure(known)?;
    Ok(FINGER.likely())
}

/// RFC 1436, section 3.8: a menu's first line is a kind, what is displayed, a selector, a host and a port.
pub(super) fn gopher(bytes: &Bytes<'_>) -> Told<Found> {
    let (line, _) = bytes.line(0, 512)?;
    let mut fields = line.split(|byte| *byte == b'\t').skip(2);
    let (Some(host), Some(port), None) = (fields.next(), fields.next(), fields.next()) else { return Err(Stop::No) };
    ensure(!host.is_empty() && host.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-()".contains(byte)))?;
    ensure((1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit))?;
    Ok(GOPHER.likely())
}
