//! HTTP/1 and what looks like it: RTSP, SIP, Gnutella.

use crate::bytes::{Bytes, Found, Stop, Told, contains, ensure};
use crate::protocol::{BITTORRENT, GNUTELLA, HTTP, HTTP_CONNECT, RTSP, SIP, SSDP, WEBSOCKET};

/// Bytes of a first line that are searched for its end.
const LINE_MAX: usize = 2_000;
/// Bytes of header fields that are searched for an upgrade.
const FIELDS_MAX: usize = 2_048;

/// Methods of RFC 9110, of RFC 5789 and of WebDAV (RFC 4918, RFC 3253, RFC 3744), and those of UPnP and of HTTP for calls (MS-RPCH).
const METHODS: &[&[u8]] = &[
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"SEARCH",
    b"MERGE",
    b"CHECKOUT",
    b"ACL",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"NOTIFY",
    b"M-SEARCH",
    b"M-POST",
    b"PURGE",
    b"BPROPFIND",
    b"CCM_POST",
    b"RPC_IN_DATA",
    b"RPC_OUT_DATA",
    b"RDG_IN_DATA",
    b"RDG_OUT_DATA",
    b"SOURCE",
    b"MKCALENDAR",
    b"BIND",
    b"LINK",
    b"UNLINK",
    b"QUERY",
    b"BASELINE-CONTROL",
    b"VERSION-CONTROL",
    b"LABEL",
    b"MKACTIVITY",
    b"UPDATE",
    b"DESCRIBE",
];

/// A request line.
struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    /// Empty if the line is longer than what is searched.
    version: &'a [u8],
    end: usize,
}

fn request_line<'a>(bytes: &Bytes<'a>) -> Told<RequestLine<'a>> {
    // RFC 9112, section 2.2: an empty line may come first.
    if bytes.u8(0)? == b'\r' {
        bytes.has(0, b"\r\n")?;
        let line = request_line(&bytes.from(2)?)?;
        return Ok(RequestLine { end: line.end + 2, ..line });
    }
    // The method's end is near in all that is no request, or something else than letters comes first.
    let mut len = 0;
    loop {
        match bytes.u8(len)? {
            b' ' => break,
            b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' if len < 20 => len += 1,
            _ => return Err(Stop::No),
        }
    }
    ensure(len >= 2)?;
    let method = bytes.slice(0, len)?;
    // Only these say anything if the version is far.
    let known = METHODS.contains(&method);
    match bytes.line(0, if known { LINE_MAX } else { 300 }) {
        Ok((line, end)) => {
            let last = line.iter().rposition(|byte| *byte == b' ').ok_or(Stop::No)?;
            // HTTP/0.9 (RFC 1945, section 4.1) has no version.
            if last == len {
                ensure(matches!(method, b"GET" | b"POST" | b"HEAD"))?;
                return Ok(RequestLine { method, target: &line[len + 1..], version: b"", end });
            }
            ensure(last > len)?;
            Ok(RequestLine { method, target: &line[len + 1..last], version: &line[last + 1..], end })
        }
        Err(Stop::More) => Err(Stop::More),
        Err(Stop::No) => {
            ensure(known)?;
            // Text without an end: up to the limit, or all that comes.
            let text = &bytes.whole()[..bytes.whole().len().min(LINE_MAX)];
            ensure(text.len() >= 16 && text.iter().all(|byte| matches!(byte, b' '..=b'~' | 0x80..)))?;
            Ok(RequestLine { method, target: &text[len + 1..], version: b"", end: LINE_MAX })
        }
    }
}

fn is_target(target: &[u8]) -> bool {
    target.starts_with(b"/") || target == b"*" || contains(&target[..target.len().min(12)], b"://")
}

/// A request, of any of the protocols with this form.
pub(super) fn request(bytes: &Bytes<'_>) -> Told<Found> {
    let line = request_line(bytes)?;
    match line.version {
        b"RTSP/1.0" | b"RTSP/2.0" => return Ok(RTSP.certain()),
        b"SIP/2.0" => return Ok(SIP.certain()),
        b"" if is_target(line.target) => return Ok(HTTP.likely()),
        b"HTTP/1.0" | b"HTTP/1.1" | b"HTTP/0.9" | b"HTTP/1.2" => {}
        version if version.starts_with(b"CONNECT/0.") && line.method == b"GNUTELLA" => return Ok(GNUTELLA.certain()),
        _ => return Err(Stop::No),
    }
    if line.method == b"CONNECT" {
        ensure(!line.target.is_empty())?;
        return Ok(HTTP_CONNECT.certain());
    }
    ensure(is_target(line.target) || METHODS.contains(&line.method))?;
    if line.target.starts_with(b"/uri-res/N2R?urn:sha1:") {
        return Ok(GNUTELLA.likely());
    }
    Ok(if asks_for_websocket(bytes, line.end)? { WEBSOCKET.certain() } else { HTTP.certain() })
}

/// Searches the header fields for an upgrade.
fn asks_for_websocket(bytes: &Bytes<'_>, mut at: usize) -> Told<bool> {
    while at < FIELDS_MAX {
        let (line, end) = match bytes.line(at, FIELDS_MAX) {
            Ok(found) => found,
            Err(Stop::More) => return Err(Stop::More),
            Err(Stop::No) => return Ok(false),
        };
        if line.is_empty() {
            return Ok(false);
        }
        if line.len() >= 18 && line[..8].eq_ignore_ascii_case(b"Upgrade:") && contains(&line[8..], b"websocket") {
            return Ok(true);
        }
        at = end;
    }
    Ok(false)
}

/// A status line.
pub(super) fn response(bytes: &Bytes<'_>) -> Told<Found> {
    let status = |at: usize| {
        let [space, hundreds, tens, ones, behind] = bytes.array(at)?;
        let is_code = matches!(hundreds, b'1'..=b'6') && tens.is_ascii_digit() && ones.is_ascii_digit();
        ensure(space == b' ' && is_code && matches!(behind, b' ' | b'\r' | b'\n'))
    };
    match bytes.u8(0)? {
        b'H' => {
            bytes.has(0, b"HTTP/1.")?;
            ensure(matches!(bytes.u8(7)?, b'0' | b'1'))?;
            status(8)?;
            Ok(HTTP.certain())
        }
        b'R' => {
            bytes.has(0, b"RTSP/")?;
            ensure(matches!(bytes.u8(5)?, b'1' | b'2'))?;
            bytes.has(6, b".0")?;
            status(8)?;
            Ok(RTSP.certain())
        }
        b'S' => {
            bytes.has(0, b"SIP/2.0")?;
            status(7)?;
            Ok(SIP.certain())
        }
        _ => Err(Stop::No),
    }
}

/// A datagram of SIP, RTSP, SSDP or HTTP.
pub(crate) fn datagram(bytes: &Bytes<'_>) -> Told<Found> {
    if let Ok(found) = response(bytes) {
        return Ok(if found.protocol == HTTP { SSDP.certain() } else { found });
    }
    let line = request_line(bytes)?;
    match line.version {
        b"SIP/2.0" => Ok(SIP.certain()),
        b"RTSP/1.0" | b"RTSP/2.0" => Ok(RTSP.certain()),
        b"HTTP/1.0" | b"HTTP/1.1" if line.method == b"BT-SEARCH" => Ok(BITTORRENT.certain()),
        b"HTTP/1.0" | b"HTTP/1.1" if matches!(line.method, b"M-SEARCH" | b"NOTIFY") => Ok(SSDP.certain()),
        b"HTTP/1.0" | b"HTTP/1.1" if is_target(line.target) => Ok(HTTP.certain()),
        _ => Err(Stop::No),
    }
}

/// Returns the offset behind the empty line that ends a message's header fields.
pub(crate) fn fields_end(bytes: &Bytes<'_>) -> Told<usize> {
    let (mut at, mut lines) = (0, 0);
    loop {
        let (line, end) = bytes.line(at, crate::LIMIT)?;
        if line.is_empty() {
            ensure(lines > 0)?;
            return Ok(end);
        }
        (at, lines) = (end, lines + 1);
    }
}

/// Returns the content of the header field of this name, with the offset where it begins.
pub(crate) fn field<'a>(bytes: &Bytes<'a>, name: &[u8]) -> Told<(&'a [u8], usize)> {
    let (_, mut at) = bytes.line(0, crate::LIMIT)?;
    loop {
        let (line, end) = bytes.line(at, crate::LIMIT)?;
        ensure(!line.is_empty())?;
        if let Some((head, value)) = line.split_at_checked(name.len())
            && head.eq_ignore_ascii_case(name)
            && value.first() == Some(&b':')
        {
            let value = &value[1..];
            let trimmed = value.trim_ascii_start();
            return Ok((trimmed.trim_ascii_end(), at + name.len() + 1 + value.len() - trimmed.len()));
        }
        at = end;
    }
}
