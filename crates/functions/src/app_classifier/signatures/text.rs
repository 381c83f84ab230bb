//! Protocols of text lines.
//!
//! Each test checks the first bytes before it searches for the end of the first line, because most payloads have none.

use super::super::classifier::Payload;

/// Methods of RFC 9110, of RFC 5789 and of WebDAV (RFC 4918, RFC 3253).
const METHODS: [&[u8]; 17] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"CONNECT ",
    b"TRACE ",
    b"PATCH ",
    b"PROPFIND ",
    b"PROPPATCH ",
    b"MKCOL ",
    b"COPY ",
    b"MOVE ",
    b"LOCK ",
    b"UNLOCK ",
    b"REPORT ",
];

fn starts_with_any(bytes: &[u8], beginnings: &[&[u8]]) -> bool {
    beginnings.iter().any(|beginning| bytes.starts_with(beginning))
}

/// Returns true if `bytes` begins with `beginning`, ignoring case.
fn begins(bytes: &[u8], beginning: &[u8]) -> bool {
    bytes.get(..beginning.len()).is_some_and(|head| head.eq_ignore_ascii_case(beginning))
}

/// Returns true if `bytes` contains `word`, ignoring case.
fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n' | 0x80..))
}

/// Returns true for this reply code followed by a space or a hyphen.
fn reply(bytes: &[u8], code: &[u8; 3]) -> bool {
    bytes.starts_with(code) && matches!(bytes.get(3), Some(b' ' | b'-'))
}

/// HTTP/1 (RFC 9112): a request line or a status line. A request line that is longer than the packet has no version yet.
pub(super) fn http(payload: &Payload<'_>) -> Option<bool> {
    if payload.has(0, b"HTTP/1.") {
        return Some(matches!(payload.bytes.get(7..10), Some([b'0' | b'1', b' ', b'1'..=b'5'])));
    }
    if !starts_with_any(payload.bytes, &METHODS) {
        return Some(false);
    }
    let (line, ended) = payload.line();
    let target = line.split(|byte| *byte == b' ').nth(1)?;
    let is_target =
        line.starts_with(b"CONNECT ") || target.starts_with(b"/") || target == b"*" || begins(target, b"http");
    let version = contains(line, b" HTTP/1.") || (!ended && !contains(line, b" HTTP/"));
    Some(is_target && version && is_text(line))
}

/// The preface of HTTP/2 without TLS (RFC 9113, section 3.4).
pub(super) fn http2(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.has(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
}

/// The identification string of RFC 4253, section 4.2.
pub(super) fn ssh(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.has(0, b"SSH-2.0-") || payload.has(0, b"SSH-1."))
}

/// RFC 5321: a greeting that names the protocol, or the client's first command.
pub(super) fn smtp(payload: &Payload<'_>) -> Option<bool> {
    let word = [&b"EHLO "[..], b"HELO ", b"MAIL FROM:", b"RCPT TO:"].iter().any(|word| begins(payload.bytes, word));
    if !word && !reply(payload.bytes, b"220") {
        return Some(false);
    }
    let (line, _) = payload.line();
    Some((word || contains(line, b"SMTP")) && is_text(line))
}

/// RFC 959: a greeting that names the protocol, the request for a password, or a command that no other protocol has.
pub(super) fn ftp(payload: &Payload<'_>) -> Option<bool> {
    const WORDS: [&[u8]; 7] = [b"PASV", b"EPSV", b"FEAT", b"TYPE I", b"TYPE A", b"AUTH TLS", b"AUTH SSL"];
    if !payload.u8(0)?.is_ascii_digit() && !WORDS.iter().any(|word| begins(payload.bytes, word)) {
        return Some(false);
    }
    let (line, ended) = payload.line();
    let greets = reply(line, b"220") && contains(line, b"FTP");
    let asks = reply(line, b"331") && contains(line, b"password");
    let passive = line.starts_with(b"227 Entering Passive Mode") || line.starts_with(b"229 Entering Extended Passive");
    let word = WORDS.iter().any(|word| line.eq_ignore_ascii_case(word));
    Some((greets || asks || passive || (word && ended)) && is_text(line))
}

/// RFC 1939. `+OK` alone is an answer of Redis, too.
pub(super) fn pop3(payload: &Payload<'_>) -> Option<bool> {
    if !payload.has(0, b"+OK ") && !begins(payload.bytes, b"CAPA") && !begins(payload.bytes, b"STLS") {
        return Some(false);
    }
    let (line, ended) = payload.line();
    let answers = line.starts_with(b"+OK ") && line.len() > 4;
    let word = line.eq_ignore_ascii_case(b"CAPA") || line.eq_ignore_ascii_case(b"STLS");
    Some(ended && (answers || word) && is_text(line))
}

/// Maximum length of a tag. Longer tags are legal, but no client uses them.
const IMAP_TAG_MAX: usize = 12;

/// RFC 9051: the server's greeting, or a client's command after its tag.
pub(super) fn imap(payload: &Payload<'_>) -> Option<bool> {
    let head = &payload.bytes[..payload.bytes.len().min(IMAP_TAG_MAX + 1)];
    if !head.contains(&b' ') {
        return Some(false);
    }
    let (line, ended) = payload.line();
    let greets = starts_with_any(line, &[b"* OK ", b"* OK [", b"* PREAUTH ", b"* CAPABILITY IMAP4", b"* BYE "]);
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (tag, command) = (words.next()?, words.next().unwrap_or_default());
    let is_tag = matches!(tag.len(), 1..=IMAP_TAG_MAX)
        && tag.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.')
        && tag.iter().any(u8::is_ascii_digit);
    let known = [&b"CAPABILITY"[..], b"LOGIN", b"STARTTLS", b"AUTHENTICATE", b"SELECT", b"EXAMINE"];
    let commands = is_tag && known.iter().any(|known| command.eq_ignore_ascii_case(known));
    Some(ended && (greets || commands) && is_text(line))
}

/// RFC 3261: both kinds of first lines name the version.
pub(super) fn sip(payload: &Payload<'_>) -> Option<bool> {
    if payload.has(0, b"SIP/2.0 ") {
        return Some(true);
    }
    if !payload.u8(0)?.is_ascii_uppercase() {
        return Some(false);
    }
    let (line, ended) = payload.line();
    Some(ended && line.ends_with(b" SIP/2.0") && is_text(line))
}

/// RFC 7826 and RFC 2326.
pub(super) fn rtsp(payload: &Payload<'_>) -> Option<bool> {
    if payload.has(0, b"RTSP/1.0 ") || payload.has(0, b"RTSP/2.0 ") {
        return Some(true);
    }
    if !payload.u8(0)?.is_ascii_uppercase() {
        return Some(false);
    }
    let (line, ended) = payload.line();
    Some(ended && (line.ends_with(b" RTSP/1.0") || line.ends_with(b" RTSP/2.0")) && is_text(line))
}

/// UPnP Device Architecture 2.0, section 1: HTTP in datagrams.
pub(super) fn ssdp(payload: &Payload<'_>) -> Option<bool> {
    Some(starts_with_any(payload.bytes, &[b"M-SEARCH * HTTP/1.", b"NOTIFY * HTTP/1.", b"HTTP/1.1 200 OK\r\n"]))
}

/// RESP: a command as an array of strings, or the answer to `PING`.
pub(super) fn redis(payload: &Payload<'_>) -> Option<bool> {
    if payload.has(0, b"+PONG\r\n") {
        return Some(true);
    }
    let rest = payload.bytes.strip_prefix(b"*")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest[digits..].strip_prefix(b"\r\n$")?;
    Some((1..=7).contains(&digits) && rest.first()?.is_ascii_digit())
}

/// The text protocol, and the binary one by its header with a matching body length.
pub(super) fn memcached(payload: &Payload<'_>) -> Option<bool> {
    Some(memcached_text(payload.bytes) || memcached_binary(payload).unwrap_or(false))
}

/// As over TCP, after a header of eight bytes: request, sequence number, number of datagrams, zeros.
pub(super) fn memcached_datagram(payload: &Payload<'_>) -> Option<bool> {
    let inner = payload.bytes.get(8..).filter(|inner| !inner.is_empty())?;
    let (number, total, reserved) = (payload.u16(2)?, payload.u16(4)?, payload.u16(6)?);
    Some(reserved == 0 && number < total && memcached_text(inner))
}

fn memcached_text(bytes: &[u8]) -> bool {
    const WORDS: [&[u8]; 11] = [
        b"set ",
        b"add ",
        b"replace ",
        b"append ",
        b"prepend ",
        b"cas ",
        b"get ",
        b"gets ",
        b"VALUE ",
        b"STAT ",
        b"stats",
    ];
    if !starts_with_any(bytes, &WORDS) {
        return false;
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(line) = line.strip_suffix(b"\r") else { return false };
    let words = line.split(|byte| *byte == b' ').count();
    let stores =
        words >= 5 && starts_with_any(line, &[b"set ", b"add ", b"replace ", b"append ", b"prepend ", b"cas "]);
    let gets = words >= 2 && starts_with_any(line, &[b"get ", b"gets "]);
    let told = words >= 3 && starts_with_any(line, &[b"VALUE ", b"STAT pid", b"STAT ", b"stats "]);
    (stores || gets || told || line == b"stats") && is_text(line)
}

fn memcached_binary(payload: &Payload<'_>) -> Option<bool> {
    let (magic, opcode, key, extras) = (payload.u8(0)?, payload.u8(1)?, payload.u16(2)?, payload.u8(4)?);
    let (data_type, body) = (payload.u8(5)?, payload.u32(8)?);
    let fits = u32::from(key) + u32::from(extras) <= body && body.checked_add(24) == Some(payload.wire_len);
    Some(matches!(magic, 0x80 | 0x81) && opcode <= 0x50 && extras <= 20 && data_type == 0 && fits)
}

/// RFC 2812: a client's registration, or the server's first numeric.
pub(super) fn irc(payload: &Payload<'_>) -> Option<bool> {
    if !starts_with_any(payload.bytes, &[b"NICK ", b"USER ", b"CAP LS", b"JOIN #", b"PRIVMSG ", b":"]) {
        return Some(false);
    }
    let (line, ended) = payload.line();
    let words = line.split(|byte| *byte == b' ').count();
    let client = (line.starts_with(b"NICK ") && words == 2)
        || (line.starts_with(b"USER ") && words >= 5 && contains(line, b" :"))
        || line.starts_with(b"CAP LS")
        || starts_with_any(line, &[b"JOIN #", b"PRIVMSG "]);
    let server = line.starts_with(b":") && (contains(line, b" NOTICE ") || contains(line, b" 001 "));
    Some(ended && (client || server) && is_text(line))
}

/// RFC 6120: the stream's opening.
pub(super) fn xmpp(payload: &Payload<'_>) -> Option<bool> {
    if payload.u8(0)? != b'<' {
        return Some(false);
    }
    let head = &payload.bytes[..payload.bytes.len().min(200)];
    Some(contains(head, b"<stream:stream") || contains(head, b"jabber:client") || contains(head, b"jabber:server"))
}

/// RFC 6143, section 7.1.1.
pub(super) fn rfb(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.has(0, b"RFB 0") && payload.u8(7)? == b'.' && payload.u8(11)? == b'\n' && payload.wire_len == 12)
}

/// BEP 3: the handshake of peers.
pub(super) fn bittorrent(payload: &Payload<'_>) -> Option<bool> {
    Some(payload.has(0, b"\x13BitTorrent protocol"))
}

/// BEP 5 (the hash table), BEP 15 (a tracker's first request), and the handshake inside uTP (BEP 29).
pub(super) fn bittorrent_datagram(payload: &Payload<'_>) -> Option<bool> {
    let table = starts_with_any(payload.bytes, &[b"d1:ad2:id20:", b"d1:rd2:id20:", b"d1:eli2"]);
    let tracker = payload.has(0, &[0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0]) && payload.wire_len == 16;
    Some(table || tracker || payload.has(20, b"\x13BitTorrent protocol"))
}

/// RFC 5424 and RFC 3164: a priority of up to 191 in brackets, then text.
pub(super) fn syslog(payload: &Payload<'_>) -> Option<bool> {
    let rest = payload.bytes.strip_prefix(b"<")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let priority = rest.iter().take(digits).fold(0_u32, |sum, digit| sum.saturating_mul(10) + u32::from(digit - b'0'));
    let text = rest.get(digits..)?.strip_prefix(b">")?;
    let head = &text[..text.len().min(32)];
    Some((1..=3).contains(&digits) && priority <= 191 && head.len() >= 8 && is_text(head))
}
