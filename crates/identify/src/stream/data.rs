//! Databases, caches, queues.

use crate::bytes::{Bytes, Found, Stop, Told, either, ensure, is_printable};
use crate::protocol::{CASSANDRA, DRDA, KAFKA, MEMCACHED, MONGODB, MQTT, MYSQL, ORACLE, POSTGRESQL, TDS, ZOOKEEPER};

/// The greeting or the refusal of a server, or the answer of a client.
pub(super) fn mysql(bytes: &Bytes<'_>) -> Told<Found> {
    let [a, b, c, number] = bytes.array(0)?;
    let len = u32::from_le_bytes([a, b, c, 0]);
    ensure((5..4_096).contains(&len) && number <= 2)?;
    match (number, bytes.u8(4)?) {
        // Version 10 of the greeting: the server's version as text; then a connection's number, eight bytes of salt, a zero.
        (0, 10) => {
            let end = bytes.find(5, 0, 64)?;
            let version = bytes.slice(5, end - 5)?;
            ensure(version.len() >= 3 && version[0].is_ascii_digit() && is_printable(version))?;
            ensure(bytes.u8(end + 13)? == 0)?;
        }
        // A refusal: a number from 1000 on, then text.
        (0, 0xff) => {
            ensure((1_000..5_000).contains(&bytes.le16(5)?))?;
            let text = bytes.slice(7, 8)?;
            ensure(is_printable(text))?;
        }
        // Capabilities of version 4.1, the size of a packet, a character set and 23 zeros.
        (1 | 2, low) => {
            let high = bytes.u8(5)?;
            ensure(low & 1 != 0 || low & 0x80 != 0 || high & 0x80 != 0)?;
            ensure(high & 2 != 0)?;
            ensure(bytes.u8(12)? != 0)?;
            bytes.has(13, &[0; 19])?;
            ensure(bytes.le32(8)? != 0)?;
        }
        _ => return Err(Stop::No),
    }
    Ok(MYSQL.certain())
}

/// A client's first message: a version with parameters, or a request for encryption or to cancel.
pub(super) fn postgresql(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be32(0)?;
    ensure((8..10_000).contains(&len))?;
    match bytes.be32(4)? {
        0x0003_0000..=0x0003_0002 => {
            let name = bytes.find(8, 0, 64)?;
            ensure(name > 8 && is_printable(bytes.slice(8, name - 8)?))?;
        }
        0x04d2_162f | 0x04d2_1630 => ensure(len == 8)?,
        0x04d2_162e => ensure(len == 16)?,
        _ => return Err(Stop::No),
    }
    Ok(POSTGRESQL.certain())
}

/// A server's first message: it asks for a proof of identity, or fails.
pub(super) fn postgresql_answer(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, len) = (bytes.u8(0)?, bytes.be32(1)?);
    match kind {
        b'R' => {
            let method = bytes.be32(5)?;
            // Lengths of the methods: a plain request, a salt, the names of mechanisms.
            ensure(match method {
                // Accepted: parameters follow.
                0 => len == 8 && matches!(bytes.u8(9)?, b'S' | b'K'),
                3 => len == 8,
                5 => len == 12,
                10 => (12..200).contains(&len) && is_printable(bytes.slice(9, 4)?),
                _ => false,
            })?;
        }
        _ => {
            ensure((20..2_048).contains(&len))?;
            let severity = bytes.slice(5, 6)?;
            ensure(matches!(severity, b"SERROR" | b"SFATAL" | b"SPANIC"))?;
        }
    }
    Ok(POSTGRESQL.certain())
}

/// A message of a known operation.
pub(super) fn mongodb(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.le32(0)?;
    ensure((17..48_000_000).contains(&len))?;
    let operation = bytes.le32(12)?;
    ensure(matches!(operation, 1 | 2001 | 2002 | 2004..=2007 | 2010..=2013))?;
    match operation {
        // A query: flags, the name of a collection.
        2004 => {
            ensure(bytes.le32(16)? < 256)?;
            let end = bytes.find(20, 0, 120)?;
            let name = bytes.slice(20, end - 20)?;
            ensure(name.contains(&b'.') && is_printable(name))?;
        }
        // A message: flags, a section's kind, a document that fits in.
        2013 => {
            ensure(bytes.le32(16)? & 0xfffe_fffc == 0 && bytes.u8(20)? <= 1)?;
            ensure(bytes.le32(21)? < len)?;
        }
        // A reply: flags, a cursor, where it starts, how many documents, the first one.
        1 => ensure(bytes.le32(16)? < 16 && bytes.le32(32)? < 100_000 && bytes.le32(36)? < len)?,
        // A compressed message.
        2012 => ensure(matches!(bytes.le32(16)?, 2001..=2013) && bytes.u8(24)? <= 3)?,
        _ => {
            let request = bytes.le32(4)?;
            ensure(bytes.le32(16)? < 256 && request != 0 && bytes.le32(8)? == 0)?;
            let end = bytes.find(20, 0, 120)?;
            let name = bytes.slice(20, end - 20)?;
            ensure(name.len() >= 3 && name.contains(&b'.') && is_printable(name))?;
        }
    }
    Ok(MONGODB.certain())
}

/// Heads of packets on both sides: a request and an answer.
pub(super) fn tds_heads(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let head = |side: &Bytes<'_>| {
        let (kind, status, len) = (side.u8(0)?, side.u8(1)?, side.be16(2)?);
        ensure(status <= 0x1f && (8..=32_767).contains(&len) && side.u8(7)? == 0)?;
        Ok((kind, len))
    };
    let (request, _) = head(bytes)?;
    ensure(matches!(request, 1..=3 | 6..=8 | 0x0e..=0x12))?;
    ensure(answer.u8(0)? == 4)?;
    let (_, len) = head(answer)?;
    ensure(answer.u8(1)? <= 1 && len > 8)?;
    // The answer begins with a token.
    ensure(matches!(answer.u8(8)?, 0 | 0x79 | 0x81 | 0xa0..=0xae | 0xd1..=0xd7 | 0xe2..=0xee | 0xfd..=0xff))?;
    Ok(TDS.likely())
}

/// A request in the middle of a session (MS-TDS, sections 2.2.1.4 and 2.2.6.6): a batch of statements or a call, with the headers of version
/// 7.2, or text of two bytes a letter.
pub(super) fn tds_request(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, status, len) = (bytes.u8(0)?, bytes.u8(1)?, bytes.be16(2)?);
    ensure(matches!(kind, 1 | 3) && status <= 0x1f && (17..=32_767).contains(&len))?;
    bytes.has(4, &[0, 0, 1, 0])?;
    let headers = bytes.le32(8)?;
    if (22..=1_024).contains(&headers) && bytes.le32(12)? == 18 {
        // The header of a transaction.
        ensure(bytes.le16(16)? == 2)?;
        return Ok(TDS.certain());
    }
    let text = if kind == 1 { 8 } else { 10 };
    ensure(kind == 1 || (3..=128).contains(&bytes.le16(8)?))?;
    let letters = bytes.slice(text, 6)?.chunks_exact(2);
    ensure(letters.into_iter().all(|letter| (letter[0].is_ascii_alphabetic() || letter[0] == b'_') && letter[1] == 0))?;
    Ok(TDS.likely())
}

/// A packet that opens a session: a pre-login, a login, or the answer to one.
pub(super) fn tds(bytes: &Bytes<'_>) -> Told<Found> {
    let (kind, status, len) = (bytes.u8(0)?, bytes.u8(1)?, bytes.be16(2)?);
    ensure(matches!(kind, 1..=4 | 0x10 | 0x12) && status <= 1 && (9..=32_767).contains(&len))?;
    ensure(bytes.u8(7)? == 0 && bytes.u8(6)? <= 2)?;
    let first = bytes.u8(8)?;
    match kind {
        // A pre-login, or its answer: the option "version" comes first, with its offset and six bytes.
        0x12 | 4 if first == 0 => {
            let offset = bytes.be16(9)?;
            // Options take five bytes each, and one byte ends them.
            ensure(offset < 100 && offset % 5 == 1 && bytes.be16(11)? == 6)?;
            // The next option.
            ensure(matches!(bytes.u8(13)?, 1..=8 | 0xff))?;
        }
        // The handshake of TLS goes inside such packets.
        0x12 if first == 0x16 => bytes.has(9, &[3])?,
        // Version 7: its own length, then a version of the protocol.
        0x10 => {
            ensure(bytes.le32(8)? <= u32::from(len).max(4_096))?;
            ensure(matches!(bytes.u8(15)?, 0x70..=0x74) && bytes.u8(12)? <= 4 && bytes.u8(13)? == 0)?;
            // The size of packets.
            ensure((512..=32_767).contains(&bytes.le32(16)?))?;
        }
        // Version 5: the names of host and user, each of 30 bytes with its length behind.
        2 => {
            let name = bytes.slice(8, 4)?;
            let (host, user) = (bytes.u8(38)?, bytes.u8(69)?);
            ensure(host <= 30 && user <= 30 && host + user > 0 && is_printable(&name[..usize::from(host).min(4)]))?;
            let rest = usize::from(host);
            ensure(bytes.slice(8 + rest, 30 - rest)?.iter().all(|byte| *byte == 0))?;
        }
        // The end of an answer alone, or behind a status.
        4 if matches!(first, 0xfd..=0xff) => {
            ensure(matches!(len, 17 | 21) && bytes.le16(9)? < 0x0800)?;
        }
        4 if first == 0x79 => ensure(bytes.u8(13)? == 0xfe && matches!(len, 22 | 26))?,
        // Columns: how many, then the first one's kind and flags.
        4 if first == 0x81 => {
            ensure((1..=1_024).contains(&bytes.le16(9)?) && bytes.le16(11)? < 256 && bytes.le16(13)? < 256)?
        }
        // The answer to a login: an acknowledgement, a change of the environment, information or an error.
        4 => {
            ensure(matches!(first, 0xad | 0xe3 | 0xab | 0xaa | 0xed))?;
            let token = bytes.le16(9)?;
            ensure(u32::from(token) + 3 <= u32::from(len) && token > 2)?;
            // Text in two bytes a letter somewhere in its first twenty bytes.
            let text = bytes.slice(11, 12)?;
            ensure(
                text.windows(4).any(|four| matches!(four, [32..=126, 0, 32..=126, 0] | [0, 32..=126, 0, 32..=126])),
            )?;
        }
        // A batch in two bytes a letter or a call, perhaps behind headers.
        1 | 3 => {
            let has_headers = bytes.le32(8)? == 22 && bytes.le32(12)? == 18 && bytes.le16(16)? == 2;
            if !has_headers {
                let at = if kind == 3 { 10 } else { 8 };
                // A procedure by its number, or by its name behind the name's length.
                if kind == 3 && bytes.le16(8)? == 0xffff {
                    ensure((1..=15).contains(&bytes.le16(10)?) && bytes.le16(12)? < 4)?;
                } else {
                    ensure(kind == 1 || (3..=128).contains(&bytes.le16(8)?))?;
                    let text = bytes.slice(at, 8)?;
                    ensure(text.chunks(2).all(|pair| matches!(pair, [9..=126, 0])))?;
                }
            }
        }
        _ => return Err(Stop::No),
    }
    Ok(TDS.certain())
}

/// The first frame of either side: options and start-up of clients, what a server supports.
pub(super) fn cassandra(bytes: &Bytes<'_>) -> Told<Found> {
    let version = bytes.u8(0)?;
    ensure(matches!(version & 0x7f, 1..=5))?;
    let flags = bytes.u8(1)?;
    ensure(flags <= 0x1f)?;
    // The number of the stream has two bytes since version 3.
    let at = if version & 0x7f >= 3 { 4 } else { 3 };
    let (operation, len) = (bytes.u8(at)?, bytes.be32(at + 1)?);
    ensure(len < 1 << 20)?;
    match (version >> 7, operation) {
        // Options: nothing follows.
        (0, 5) => ensure(len == 0 && flags & 3 == 0 && (at == 3 || bytes.be16(2)? < 0x8000))?,
        // Start-up: a map of strings; one names the version of the language.
        (0, 1) => {
            ensure((1..10).contains(&bytes.be16(at + 5)?))?;
            let first = bytes.be16(at + 7)?;
            ensure((5..=30).contains(&first))?;
            let name = bytes.slice(at + 9, 4)?;
            ensure(matches!(name, b"CQL_" | b"COMP" | b"DRIV" | b"NO_C" | b"THRO"))?;
        }
        // Supported: a map of lists.
        (1, 6) => {
            ensure((1..10).contains(&bytes.be16(at + 5)?))?;
            let name = bytes.slice(at + 9, 4)?;
            ensure(matches!(name, b"CQL_" | b"COMP" | b"PROT"))?;
        }
        // An error: a code, text of a length.
        (1, 0) => ensure(
            bytes.be32(at + 5)? < 0x3000
                && u32::from(bytes.be16(at + 9)?) + 6 <= len
                && is_printable(bytes.slice(at + 11, 8)?),
        )?,
        // A query: text of a length.
        (0, 7) => {
            ensure(bytes.be32(at + 5)? < len && is_printable(bytes.slice(at + 9, 6)?))?;
        }
        _ => return Err(Stop::No),
    }
    Ok(CASSANDRA.certain())
}

/// The binary protocol: a header whose lengths fit the operation.
pub(crate) fn memcached(bytes: &Bytes<'_>) -> Told<Found> {
    let (magic, operation, key, extras) = (bytes.u8(0)?, bytes.u8(1)?, bytes.be16(2)?, bytes.u8(4)?);
    ensure(operation <= 0x24 && key <= 250 && matches!(extras, 0 | 4 | 8 | 20))?;
    ensure(bytes.u8(5)? == 0)?;
    let (status, body) = (bytes.be16(6)?, bytes.be32(8)?);
    ensure(status <= 0x0086 && u32::from(key) + u32::from(extras) <= body && body <= 1 << 20)?;
    ensure(magic == 0x81 || status == 0)?;
    let fits = match operation {
        // Get and its kin; set, add, replace.
        0 | 9 | 0xc | 0xd if magic == 0x80 => key > 0 && extras == 0 && u32::from(key) == body,
        1..=3 if magic == 0x80 => key > 0 && extras == 8,
        // No operation, version, quit, statistics.
        7 | 0xa | 0xb if magic == 0x80 => body == 0,
        0x10 if magic == 0x80 => extras == 0 && u32::from(key) == body,
        // Requests for a mechanism, and to authenticate.
        0x20..=0x22 => extras == 0,
        _ => magic == 0x81 && status <= 5 && body > 0,
    };
    ensure(fits)?;
    Ok(MEMCACHED.certain())
}

/// A connect packet, or the answer to one: lengths and zeros in the head.
pub(super) fn oracle(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be16(0)?;
    ensure((8..=4_096).contains(&len))?;
    bytes.has(2, &[0, 0])?;
    let kind = bytes.u8(4)?;
    ensure(matches!(kind, 1 | 2 | 4..=6 | 11))?;
    ensure(bytes.u8(5)? <= 0x20)?;
    bytes.has(6, &[0, 0])?;
    match kind {
        // Version and compatible version; the connect data lies behind the head and ends with the packet.
        1 => {
            let (version, compatible) = (bytes.be16(8)?, bytes.be16(10)?);
            ensure((300..400).contains(&version) && compatible <= version && compatible >= 200)?;
            let (data, offset) = (bytes.be16(24)?, bytes.be16(26)?);
            ensure(offset >= 34 && (data.saturating_add(offset) == len || len == offset))?;
        }
        2 => ensure((300..400).contains(&bytes.be16(8)?) && len >= 24)?,
        // Refusals and redirections in brackets.
        4 => ensure(len.checked_sub(12) == Some(bytes.be16(10)?) && bytes.u8(12)? == b'(')?,
        5 => ensure(len.checked_sub(10) == Some(bytes.be16(8)?) && bytes.u8(10)? == b'(')?,
        // Data: flags, and another packet behind it or nothing.
        6 => {
            ensure(len > 10 && matches!(bytes.be16(8)?, 0 | 0x40 | 0x20 | 0x2000 | 0x0800))?;
            let next = usize::from(len);
            either(bytes.ends_at(next), || {
                bytes.has(next + 2, &[0, 0])?;
                ensure(matches!(bytes.u8(next + 4)?, 6 | 12) && bytes.be16(next)? >= 8)?;
                bytes.has(next + 6, &[0, 0])
            })?;
        }
        // Resend has nothing else: the length.
        _ => return Err(Stop::No),
    }
    Ok(ORACLE.certain())
}

/// A command of DDM: a length, the letter D0, a format, a number; then the command's own length, and it exchanges attributes.
pub(super) fn drda(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be16(0)?;
    ensure(len >= 10)?;
    ensure(bytes.u8(2)? == 0xd0)?;
    ensure(bytes.u8(3)? & 0xf <= 5 && bytes.be16(6)? == len - 6)?;
    // EXCSAT, ACCSEC.
    ensure(matches!(bytes.be16(8)?, 0x1041 | 0x106d))?;
    Ok(DRDA.certain())
}

/// A request: a length, a key and a version, a number, and the client's name.
pub(super) fn kafka(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be32(0)?;
    ensure((10..1 << 24).contains(&len))?;
    let (key, version) = (bytes.be16(4)?, bytes.be16(6)?);
    ensure(key <= 67 && version <= 15)?;
    let name = bytes.be16(12)?;
    ensure((1..=200).contains(&name) && u32::from(name) + 10 <= len)?;
    let text = bytes.slice(14, name.into())?;
    ensure(text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@#: ".contains(byte)))?;
    ensure(name >= 3)?;
    Ok(KAFKA.likely())
}

/// A request to connect: version 0, the last transaction, a timeout, a session and its password.
pub(super) fn zookeeper(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(matches!(bytes.be32(0)?, 44 | 45))?;
    ensure(bytes.be32(4)? == 0)?;
    let timeout = bytes.be32(16)?;
    ensure((1_000..600_000).contains(&timeout))?;
    ensure(bytes.be32(28)? == 16)?;
    Ok(ZOOKEEPER.certain())
}

/// MQTT 3.1 to 5: CONNECT names the protocol. CONNACK is four bytes in versions up to 3.1.1.
pub(super) fn mqtt(bytes: &Bytes<'_>) -> Told<Found> {
    let kind = bytes.u8(0)?;
    if kind == 0x20 {
        // Its second half is the first message from a server: an answer to a subscription, an acknowledgement, a message.
        bytes.has(1, &[2])?;
        ensure(bytes.u8(2)? <= 1 && bytes.u8(3)? <= 5)?;
        ensure(matches!(bytes.u8(4)?, 0x90 | 0x40 | 0x30..=0x33 | 0xd0 | 0x50 | 0xb0))?;
        let len = bytes.u8(5)?;
        ensure(len < 0x80)?;
        return Ok(MQTT.likely());
    }
    // The remaining length: seven bits in a byte.
    let mut at = 1;
    while bytes.u8(at)? >= 0x80 {
        at += 1;
        ensure(at <= 4)?;
    }
    bytes.u8(at + 1).and_then(|high| ensure(high == 0))?;
    match bytes.u8(at + 2)? {
        4 => bytes.has(at + 3, b"MQTT")?,
        6 => bytes.has(at + 3, b"MQIsdp")?,
        _ => return Err(Stop::No),
    }
    Ok(MQTT.certain())
}
