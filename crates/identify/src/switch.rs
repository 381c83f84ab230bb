//! Where another protocol begins inside a stream: in a tunnel, or after STARTTLS.

use crate::answer::{Prefixes, Protocol, Switch};
use crate::asn1::{ENUMERATED, INTEGER, SEQUENCE, integer, tagged};
use crate::bytes::{Bytes, Stop, Told, ensure};
use crate::protocol::{FTP, HTTP_CONNECT, IMAP, LDAP, MYSQL, NNTP, POP3, POSTGRESQL, RDP, SMTP, SOCKS, XMPP};
use crate::signatures::{Signatures, both};
use crate::stream::http;

/// Offsets in the initiator's and the responder's bytes.
type Offsets = (usize, usize);

impl Signatures {
    /// Returns where another protocol begins inside a stream of this protocol.
    ///
    /// As with [`stream`](Self::stream), a final answer holds for all longer beginnings.
    #[must_use]
    pub fn switch(&self, protocol: Protocol, prefixes: &Prefixes<'_>) -> Switch {
        let [initiator, responder] = both(prefixes);
        let told = match protocol {
            HTTP_CONNECT => connect(&initiator, &responder),
            SOCKS => socks(&initiator, &responder),
            SMTP => replies(&initiator, &responder, &[b"STARTTLS"], b"220", &[b"DATA", b"BDAT"]),
            FTP => replies(
                &initiator,
                &responder,
                &[b"AUTH TLS", b"AUTH SSL", b"AUTH TLS-C"],
                b"234",
                &[b"RETR", b"STOR", b"LIST"],
            ),
            NNTP => replies(
                &initiator,
                &responder,
                &[b"STARTTLS"],
                b"382",
                &[b"ARTICLE", b"GROUP", b"LIST", b"CAPABILITIES"],
            ),
            POP3 => pop3(&initiator, &responder),
            IMAP => imap(&initiator, &responder),
            XMPP => xmpp(&initiator, &responder),
            LDAP => ldap(&initiator, &responder),
            POSTGRESQL => postgresql(&initiator, &responder),
            MYSQL => mysql(&initiator, &responder),
            RDP => rdp(&initiator, &responder),
            _ => Err(Stop::No),
        };
        match told {
            Ok((initiator, responder)) => Switch::At { initiator, responder },
            Err(Stop::More) => Switch::More,
            Err(Stop::No) => Switch::Never,
        }
    }
}

/// RFC 9110, section 9.3.6: a tunnel begins behind the fields of a request and of a positive answer.
fn connect(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    responder.has(0, b"HTTP/1.")?;
    ensure(responder.u8(9)? == b'2')?;
    Ok((http::fields_end(initiator)?, http::fields_end(responder)?))
}

/// RFC 1928 and RFC 1929; version 4.
fn socks(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    if initiator.u8(0)? == 4 {
        let mut end = initiator.find(8, 0, 300)? + 1;
        // 4A: an address of 0.0.0.x, then a host's name.
        let [a, b, c, d] = initiator.array(4)?;
        if a == 0 && b == 0 && c == 0 && d != 0 {
            end = initiator.find(end, 0, 300)? + 1;
        }
        responder.has(0, &[0, 0x5a])?;
        responder.slice(0, 8)?;
        return Ok((end, 8));
    }
    let mut at = 2 + usize::from(initiator.u8(1)?);
    let mut answer = 2;
    match responder.u8(1)? {
        0 => {}
        2 => {
            let user = usize::from(initiator.u8(at + 1)?);
            at += 3 + user + usize::from(initiator.u8(at + 2 + user)?);
            responder.has(2, &[1, 0])?;
            answer = 4;
        }
        _ => return Err(Stop::No),
    }
    // A request to connect; others carry datagrams or another connection.
    initiator.has(at, &[5, 1, 0])?;
    responder.has(answer, &[5, 0, 0])?;
    let end = |side: &Bytes<'_>, at: usize| {
        Ok(at
            + match side.u8(at + 3)? {
                1 => 10,
                4 => 22,
                3 => 7 + usize::from(side.u8(at + 4)?),
                _ => return Err(Stop::No),
            })
    };
    let (initiator_end, responder_end) = (end(initiator, at)?, end(responder, answer)?);
    initiator.slice(0, initiator_end)?;
    responder.slice(0, responder_end)?;
    Ok((initiator_end, responder_end))
}

/// The longest line of a command or a reply.
const LINE_MAX: usize = 1_024;

/// Protocols whose server greets and then answers each line with one reply of three digits. `data` are the commands behind which that is
/// no longer so.
fn replies(
    initiator: &Bytes<'_>,
    responder: &Bytes<'_>,
    words: &[&[u8]],
    code: &[u8; 3],
    data: &[&[u8]],
) -> Told<Offsets> {
    let (mut at, mut answer) = (0, reply(responder, 0)?.1);
    loop {
        let (line, next) = initiator.line(at, LINE_MAX)?;
        let line = line.trim_ascii();
        ensure(!data.iter().any(|word| line.len() >= word.len() && line[..word.len()].eq_ignore_ascii_case(word)))?;
        let (got, behind) = reply(responder, answer)?;
        if words.iter().any(|word| line.eq_ignore_ascii_case(word)) && got == code {
            return Ok((next, behind));
        }
        (at, answer) = (next, behind);
    }
}

/// Returns the code of the reply at an offset, and the offset behind its last line.
fn reply<'a>(bytes: &Bytes<'a>, mut at: usize) -> Told<(&'a [u8], usize)> {
    loop {
        let (line, next) = bytes.line(at, LINE_MAX)?;
        ensure(line.len() >= 3)?;
        // Lines between the first and the last may begin in any way.
        let is_last = line[..3].iter().all(u8::is_ascii_digit) && line.get(3) != Some(&b'-');
        if is_last {
            return Ok((&line[..3], next));
        }
        at = next;
    }
}

/// RFC 2595: STLS, after commands with short and long answers.
fn pop3(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    let (mut at, mut answer) = (0, responder.line(0, LINE_MAX)?.1);
    loop {
        let (line, next) = initiator.line(at, LINE_MAX)?;
        let (status, mut behind) = responder.line(answer, LINE_MAX)?;
        let is_long = line.eq_ignore_ascii_case(b"CAPA") || line.eq_ignore_ascii_case(b"AUTH");
        ensure(
            is_long
                || [&b"STLS"[..], b"USER", b"NOOP"]
                    .iter()
                    .any(|word| line.len() >= 4 && line[..4].eq_ignore_ascii_case(word)),
        )?;
        if line.eq_ignore_ascii_case(b"STLS") && status.starts_with(b"+OK") {
            return Ok((next, behind));
        }
        if is_long && status.starts_with(b"+OK") {
            loop {
                let (line, end) = responder.line(behind, LINE_MAX)?;
                behind = end;
                if line == b"." {
                    break;
                }
            }
        }
        (at, answer) = (next, behind);
    }
}

/// RFC 9051, section 6.2.1: the answer has the command's tag.
fn imap(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    let mut at = 0;
    let (tag, end) = loop {
        let (line, next) = initiator.line(at, LINE_MAX)?;
        let space = line.iter().position(|byte| *byte == b' ').ok_or(Stop::No)?;
        let command = line[space + 1..].trim_ascii();
        if command.eq_ignore_ascii_case(b"STARTTLS") {
            break (&line[..space], next);
        }
        ensure(
            [&b"CAPABILITY"[..], b"NOOP", b"ID"]
                .iter()
                .any(|word| command.len() >= word.len() && command[..word.len()].eq_ignore_ascii_case(word)),
        )?;
        at = next;
    };
    let mut at = 0;
    loop {
        let (line, next) = responder.line(at, LINE_MAX)?;
        if let Some(status) = line.strip_prefix(tag).and_then(|rest| rest.strip_prefix(b" ")) {
            ensure(status.len() >= 2 && status[..2].eq_ignore_ascii_case(b"OK"))?;
            return Ok((end, next));
        }
        at = next;
    }
}

/// RFC 6120, section 5.4: an element of each side.
fn xmpp(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    Ok((element_end(initiator, b"starttls")?, element_end(responder, b"proceed")?))
}

/// Returns the offset behind the first element of a name.
fn element_end(bytes: &Bytes<'_>, name: &[u8]) -> Told<usize> {
    let mut at = 0;
    loop {
        let open = bytes.find(at, b'<', crate::LIMIT)?;
        let close = bytes.find(open, b'>', crate::LIMIT)?;
        let tag = bytes.slice(open + 1, close - open - 1)?;
        let is_name =
            tag.strip_prefix(name).is_some_and(|rest| matches!(rest.first(), None | Some(b' ' | b'/' | b'\t')));
        if is_name && tag.ends_with(b"/") {
            return Ok(close + 1);
        }
        if is_name {
            return bytes.find(close + 1, b'>', 64).map(|end| end + 1);
        }
        at = close + 1;
    }
}

/// RFC 4511, section 4.14: an extended request of this name, and the answer to it without an error.
fn ldap(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    let request = tagged(initiator, 0, SEQUENCE)?;
    let (number, at) = integer(initiator, request.at, INTEGER)?;
    let operation = tagged(initiator, at, 0x77)?;
    let name = tagged(initiator, operation.at, 0x80)?;
    ensure(initiator.slice(name.at, name.len())? == b"1.3.6.1.4.1.1466.20037")?;
    let answer = tagged(responder, 0, SEQUENCE)?;
    let (same, at) = integer(responder, answer.at, INTEGER)?;
    let operation = tagged(responder, at, 0x78)?;
    ensure(same == number && integer(responder, operation.at, ENUMERATED)?.0 == 0)?;
    initiator.slice(0, request.end)?;
    responder.slice(0, answer.end)?;
    Ok((request.end, answer.end))
}

/// A request of eight bytes, and the letter S.
fn postgresql(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    initiator.has(0, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f])?;
    ensure(responder.u8(0)? == b'S')?;
    Ok((8, 1))
}

/// A packet of 32 bytes that asks for it, behind the server's greeting.
fn mysql(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    initiator.has(0, &[32, 0, 0, 1])?;
    ensure(initiator.u8(5)? & 8 != 0)?;
    initiator.slice(0, 36)?;
    let [a, b, c, number] = responder.array(0)?;
    ensure(number == 0)?;
    let end = 4 + u32::from_le_bytes([a, b, c, 0]) as usize;
    responder.slice(0, end)?;
    Ok((36, end))
}

/// MS-RDPBCGR, section 2.2.1.2: the server selects TLS, or what needs it.
fn rdp(initiator: &Bytes<'_>, responder: &Bytes<'_>) -> Told<Offsets> {
    let (asked, answered) = (usize::from(initiator.be16(2)?), usize::from(responder.be16(2)?));
    ensure(answered == 19)?;
    responder.has(11, &[2])?;
    ensure(responder.le32(15)? != 0)?;
    initiator.slice(0, asked)?;
    Ok((asked, answered))
}
