//! Messages of HTTP/1 (RFC 9112): the stream of a side is cut into them by [`messages`], and their heads are parsed here.

pub(crate) mod messages;

use core::fmt;

use httparse::{EMPTY_HEADER, Header};
use nf::Fingerprint;
use packet::{Host6, Key, Words};

use self::messages::Body;

/// Maximum number of fields of a head.
const FIELDS_MAX: usize = 64;

/// The fields of a head, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    fields: &'a [Header<'a>],
    /// False if a line after the first is no field; then `fields` is empty.
    is_legible: bool,
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// Minor HTTP version.
    version: u8,
    pub(crate) fields: Fields<'a>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) fields: Fields<'a>,
}

/// Calls `look` with the request of a whole head; `None` if it is none.
#[inline]
pub(crate) fn request<T>(head: &[u8], look: impl FnOnce(Request<'_>) -> T) -> Option<T> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(head);
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        // Without a version it may not be HTTP.
        return None;
    };
    if parsed.is_ok_and(|status| status.is_partial()) || !has_first_line(head, version) {
        return None;
    }
    let fields = match parsed {
        Ok(_) => Fields { fields: request.headers, is_legible: true },
        Err(_) => Fields::ILLEGIBLE,
    };
    Some(look(Request { method, target, version, fields }))
}

/// Calls `look` with the response of a whole head; `None` if it is none.
#[inline]
pub(crate) fn response<T>(head: &[u8], look: impl FnOnce(Response<'_>) -> T) -> Option<T> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(head);
    let status = response.code?;
    let fields = match parsed {
        Ok(status) if status.is_partial() => return None,
        Ok(_) => Fields { fields: response.headers, is_legible: true },
        Err(_) => {
            // The status line is invalid.
            response.reason?;
            Fields::ILLEGIBLE
        }
    };
    Some(look(Response { status, fields }))
}

/// Returns true if the first line is complete and ends with the version.
fn has_first_line(payload: &[u8], version: u8) -> bool {
    let Some(end) = payload.iter().position(|byte| *byte == b'\n') else { return false };
    let line = payload[..end].strip_suffix(b"\r").unwrap_or(&payload[..end]);
    line.ends_with(if version == 0 { b"HTTP/1.0" } else { b"HTTP/1.1" })
}

impl<'a> Fields<'a> {
    const ILLEGIBLE: Self = Self { fields: &[], is_legible: false };

    /// Returns true if the fields are legible and give the length of the body in one way at most (RFC 9112, section 6.3). Otherwise two
    /// readers may disagree where the next message begins.
    pub(crate) fn frame_a_body(self) -> bool {
        let mut lengths = self.all("content-length");
        let first = lengths.next();
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        self.is_legible
            && first.is_none_or(|first| is_number(first) && lengths.all(|other| other == first))
            && (first.is_none() || self.first("transfer-encoding").is_none())
    }

    /// The body that the fields announce; `None` if they announce none.
    fn body(self) -> Option<Body> {
        if let Some(coding) = self.members("transfer-encoding").last() {
            return Some(if coding.eq_ignore_ascii_case(b"chunked") { Body::Chunked } else { Body::Rest });
        }
        let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit.wrapping_sub(b'0')));
        self.first("content-length").map(|length| Body::Length(length.iter().fold(0, add)))
    }

    /// Iterates over the values of the fields with this name, trimmed.
    pub(crate) fn all(self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_named = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name);
        self.fields.iter().filter(is_named).map(|field| field.value.trim_ascii())
    }

    /// Returns the value of the first field with this name.
    pub(crate) fn first(self, name: &'a str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Iterates over the comma-separated members of the fields with this name. Quoted strings are not recognised.
    pub(crate) fn members(self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let members = |list: &'a [u8]| list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        self.all(name).flat_map(members).filter(|member| !member.is_empty())
    }
}

impl<'a> Request<'a> {
    /// Returns true if every server reads the request alike. RFC 9112 (sections 3.2, 5 and 6) refuses requests with two `Host` fields or
    /// an invalid one, with lines that are no fields, and with a body of ambiguous length.
    pub(crate) fn is_valid(&self) -> bool {
        let fields = self.fields;
        let mut hosts = fields.all("host");
        let host = hosts.next().unwrap_or_default();
        let is_coded = fields.first("transfer-encoding").is_some();
        let is_framed = match fields.members("transfer-encoding").last() {
            Some(coding) => coding.eq_ignore_ascii_case(b"chunked") && self.version > 0,
            None => !is_coded,
        };
        hosts.next().is_none() && host.iter().all(is_of_host) && is_framed && fields.frame_a_body()
    }

    /// What is behind the head. Behind one that servers may read differently nothing can be trusted.
    pub(crate) fn body(&self) -> Body {
        if self.is_valid() { self.fields.body().unwrap_or(Body::Length(0)) } else { Body::Rest }
    }

    /// Returns true if the request needs a `Host` field (HTTP/1.1) and has none.
    pub(crate) fn lacks_host(&self) -> bool {
        self.version > 0 && self.fields.first("host").is_none()
    }

    /// Returns the host (without port 80) and the path with its query (RFC 9112, section 3.3); `None` without a host, or if the target is
    /// not a resource.
    pub(crate) fn resource(&self) -> Option<(&'a str, &'a str)> {
        let told = self.fields.first("host").and_then(|host| core::str::from_utf8(host).ok());
        let (host, path) = match self.target.get(..7) {
            Some(scheme) if scheme.eq_ignore_ascii_case("http://") => {
                let rest = &self.target[7..];
                let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                (host, if path.is_empty() { "/" } else { path })
            }
            _ => (told?, self.target),
        };
        let host = host.strip_suffix(":80").unwrap_or(host);
        (!host.is_empty() && path.starts_with(['/', '?'])).then_some((host, path))
    }
}

/// How the method of a request changes what is behind the response's head (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It doesn't.
    Usually,
    /// HEAD: there is no body.
    WithoutBody,
    /// CONNECT: behind a success is another protocol.
    ByTunnel,
}

impl Answered {
    /// How a request with this method is answered.
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "HEAD" => Self::WithoutBody,
            "CONNECT" => Self::ByTunnel,
            _ => Self::Usually,
        }
    }
}

impl Response<'_> {
    /// What is behind the head of a response.
    pub(crate) fn body(&self, answered: Answered) -> Body {
        match (self.status, answered) {
            (101, _) | (200..300, Answered::ByTunnel) => Body::Rest,
            (100..200 | 204 | 304, _) | (_, Answered::WithoutBody) => Body::Length(0),
            _ if !self.fields.frame_a_body() => Body::Rest,
            // Without a length it lasts until the connection ends.
            _ => self.fields.body().unwrap_or(Body::Rest),
        }
    }
}

/// Returns true for a byte that a host and port may contain (RFC 3986, section 3.2.2).
const fn is_of_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(*byte, b'-' | b'.' | b'_' | b'~' | b'!' | b'$'..=b',' | b';' | b'=' | b':' | b'[' | b']')
}

/// A 64-bit hash in place of a long key. It has no secret key, so all cores compute the same, and collisions can be constructed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(pub(crate) u64);

packet::words! {
    Digest: [1], digest => [digest.0], words => Self(words[0]);
}

impl Digest {
    /// Hashes a host, ignoring case, and other parts.
    pub(crate) fn of(host: &str, parts: &[&[u8]]) -> Self {
        let mut digest = Fingerprint::default();
        add(&mut digest, host.len(), host.bytes().map(|byte| byte.to_ascii_lowercase()));
        parts.iter().for_each(|part| add(&mut digest, part.len(), part.iter().copied()));
        Self(digest.value())
    }
}

/// Adds the length and then the bytes to the hash, eight bytes a word.
fn add(digest: &mut Fingerprint, len: usize, mut bytes: impl Iterator<Item = u8>) {
    digest.add(len as u64);
    for _ in 0..len.div_ceil(8) {
        digest.add(bytes.by_ref().take(8).fold(0, |word, byte| word << 8 | u64::from(byte)));
    }
}

impl Key for Digest {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        Host6::from_words([self.0, 0]).hash(seed)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn resources_have_a_host_and_a_path() {
        for (line, host, expected) in [
            ("GET /x", "a", Some(("a", "/x"))),
            ("GET http://b:80/x?y", "a", Some(("b", "/x?y"))),
            ("GET HTTP://b:8080", "a", Some(("b:8080", "/"))),
            ("OPTIONS *", "a", None),
            ("CONNECT a:443", "a", None),
            ("GET /x", "", None),
        ] {
            let text = std::format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let found = request(text.as_bytes(), |request| {
                assert_eq!(request.resource(), expected, "{line}");
            });
            assert!(found.is_some(), "{line}");
        }
    }

    #[test]
    fn requests_that_servers_may_read_differently_are_not_valid() {
        for (fields, is_valid) in [
            ("Host: a\r\n", true),
            ("Host: [2001:db8::1]:8080\r\nContent-Length: 3\r\nContent-Length: 3\r\n", true),
            ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", true),
            ("", true),
            ("Host: a\r\nHost: b\r\n", false),
            ("Host: a\r\nhost: a\r\n", false),
            ("Host: a b\r\n", false),
            ("Host: a/b\r\n", false),
            ("Host: u@a\r\n", false),
            ("Host : a\r\n", false),
            ("Host: a\r\n folded\r\n", false),
            ("Host: a\r\nno field\r\n", false),
            ("Host: a\r\n: none\r\n", false),
            ("Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n", false),
            ("Host: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n", false),
            ("Host: a\r\nContent-Length: 3, 4\r\n", false),
            ("Host: a\r\nContent-Length: +3\r\n", false),
            ("Host: a\r\nContent-Length:\r\n", false),
            ("Host: a\r\nTransfer-Encoding: chunked, gzip\r\n", false),
            ("Host: a\r\nTransfer-Encoding:\r\n", false),
        ] {
            let text = std::format!("GET / HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(request(text.as_bytes(), |request| request.is_valid()), Some(is_valid), "{text:?}");
        }
        let old = request(b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", |request| {
            (request.is_valid(), request.lacks_host())
        });
        assert_eq!(old, Some((false, false)));
        let many = std::format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(FIELDS_MAX));
        assert_eq!(request(many.as_bytes(), |request| request.is_valid()), Some(false), "it isn't read to its end");
        let response = |text: &[u8]| response(text, |response| (response.status, response.fields.frame_a_body()));
        assert_eq!(response(b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n"), Some((200, false)));
        assert_eq!(response(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"), Some((200, true)));
    }

    #[test]
    fn what_begins_otherwise_is_no_message() {
        for text in ["", "GET /\r\n\r\n", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\n\r\n", "GET / HTTP/2.0\r\n\r\n"] {
            assert!(request(text.as_bytes(), |_| ()).is_none(), "{text:?}");
        }
        for text in ["", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/2 200\r\n\r\n"] {
            assert!(response(text.as_bytes(), |_| ()).is_none(), "{text:?}");
        }
        let text = b"HTTP/1.1 200 OK\r\nVary: a, b\r\nVary:c,\r\n\r\n";
        let members = response(text, |response| {
            assert_eq!(response.status, 200);
            response.fields.members("vary").map(<[u8]>::to_vec).collect::<Vec<_>>()
        });
        assert_eq!(members.unwrap(), [b"a", b"b", b"c"]);
    }

    #[test]
    fn bodies_are_as_long_as_they_say() {
        let of = |method: &str, fields: &str| {
            request(std::format!("{method} / HTTP/1.1\r\n{fields}\r\n").as_bytes(), |request| request.body())
        };
        for (fields, body) in [
            ("", Body::Length(0)),
            ("Content-Length: 12\r\nContent-Length: 12\r\n", Body::Length(12)),
            ("Content-Length: 99999999999999999999\r\n", Body::Length(u64::MAX)),
            ("Transfer-Encoding: gzip, Chunked\r\n", Body::Chunked),
            ("Transfer-Encoding: gzip\r\n", Body::Rest),
            ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", Body::Rest),
        ] {
            assert_eq!(of("POST", fields), Some(body), "{fields:?}");
        }
        for (status, answered, fields, body) in [
            ("200 OK", Answered::Usually, "Content-Length: 12\r\n", Body::Length(12)),
            ("200 OK", Answered::Usually, "Transfer-Encoding: chunked\r\n", Body::Chunked),
            ("200 OK", Answered::Usually, "", Body::Rest),
            ("200 OK", Answered::of("HEAD"), "Content-Length: 12\r\n", Body::Length(0)),
            ("200 OK", Answered::of("CONNECT"), "Content-Length: 12\r\n", Body::Rest),
            ("407 No", Answered::of("CONNECT"), "Content-Length: 12\r\n", Body::Length(12)),
            ("304 Not Modified", Answered::Usually, "Content-Length: 12\r\n", Body::Length(0)),
            ("100 Continue", Answered::Usually, "", Body::Length(0)),
            ("101 Switching Protocols", Answered::Usually, "", Body::Rest),
            ("200 OK", Answered::Usually, "Content-Length: 1\r\nContent-Length: 2\r\n", Body::Rest),
        ] {
            let text = std::format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            assert_eq!(
                response(text.as_bytes(), |response| response.body(answered)),
                Some(body),
                "{text:?} {answered:?}"
            );
        }
    }

    #[test]
    fn digests_tell_parts_from_parts() {
        let names = [
            Digest::of("a", &[b"b", b"c"]),
            Digest::of("a", &[b"bc", b""]),
            Digest::of("ab", &[b"c", b""]),
            Digest::of("a", &[b"b", b"C"]),
            Digest::of("a", &[b"b\0", b"c"]),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{at}");
        }
        assert_eq!(Digest::of("WWW.A", &[b"b"]), Digest::of("www.a", &[b"b"]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(start in 0..3_usize, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut text = ["", "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n"][start].as_bytes().to_vec();
            text.extend(bytes);
            let _ = request(&text, |request| request.resource().is_some() || request.fields.members("a").count() > 0);
            let _ = response(&text, |response| response.fields.members("a").count());
        }
    }
}
