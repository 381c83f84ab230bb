//! Parses the head of an HTTP/1 message (RFC 9112) at the beginning of a segment, without reassembly. If the head continues in the next
//! segment, the fields in this one are read; the first line must be complete.

use core::fmt;

use httparse::{EMPTY_HEADER, Header, Status};
use nf::Fingerprint;
use packet::{Host6, Key, Words};

/// Maximum number of fields of a head.
const FIELDS_MAX: usize = 64;

/// The fields of a head, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    fields: &'a [Header<'a>],
    /// The head ends in this segment.
    pub(crate) is_whole: bool,
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

/// Calls `look` with the request that a payload begins with; `None` if it begins with none.
#[inline]
pub(crate) fn request<T>(payload: &[u8], look: impl FnOnce(Request<'_>) -> T) -> Option<T> {
    // A quick test that rejects most segments.
    if !payload.first()?.is_ascii_uppercase() {
        return None;
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(payload);
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        // Without a version it may not be HTTP.
        return None;
    };
    if !has_first_line(payload, version) {
        return None;
    }
    if let Ok(status) = parsed {
        let is_whole = matches!(status, Status::Complete(_));
        let fields = Fields { fields: request.headers, is_whole, is_legible: true };
        return Some(look(Request { method, target, version, fields }));
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut begun = httparse::Request::new(&mut fields);
    let is_legible = begun.parse(lines(payload)).is_ok();
    let fields = Fields { fields: begun.headers, is_whole: false, is_legible };
    Some(look(Request { method, target, version, fields: if is_legible { fields } else { Fields::ILLEGIBLE } }))
}

/// Cuts the payload after its last complete line, because an incomplete line may look invalid.
fn lines(payload: &[u8]) -> &[u8] {
    let end = payload.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    &payload[..end]
}

/// Calls `look` with the response that a payload begins with; `None` if it begins with none.
#[inline]
pub(crate) fn response<T>(payload: &[u8], look: impl FnOnce(Response<'_>) -> T) -> Option<T> {
    if !payload.starts_with(b"HTTP/1.") {
        return None;
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(payload);
    let status = response.code?;
    if !payload.contains(&b'\n') {
        return None;
    }
    if let Ok(parsed) = parsed {
        let is_whole = matches!(parsed, Status::Complete(_));
        return Some(look(Response {
            status,
            fields: Fields { fields: response.headers, is_whole, is_legible: true },
        }));
    }
    // The status line is invalid.
    response.reason?;
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut begun = httparse::Response::new(&mut fields);
    let is_legible = begun.parse(lines(payload)).is_ok();
    let fields = Fields { fields: begun.headers, is_whole: false, is_legible };
    Some(look(Response { status, fields: if is_legible { fields } else { Fields::ILLEGIBLE } }))
}

/// Returns true if the first line is complete and ends with the version.
fn has_first_line(payload: &[u8], version: u8) -> bool {
    let Some(end) = payload.iter().position(|byte| *byte == b'\n') else { return false };
    let line = payload[..end].strip_suffix(b"\r").unwrap_or(&payload[..end]);
    line.ends_with(if version == 0 { b"HTTP/1.0" } else { b"HTTP/1.1" })
}

impl<'a> Fields<'a> {
    const ILLEGIBLE: Self = Self { fields: &[], is_whole: false, is_legible: false };

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
    use std::string::{String, ToString};
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_read_as_far_as_it_is_here() {
        let text = "GET /a?b HTTP/1.1\r\nHost: Example.net:80\r\nCookie: a=1\r\ncookie:  b=2 \r\nAccept: x\r\n\r\nbody";
        let end = text.find("body").unwrap();
        for len in 0..=text.len() {
            let seen = request(&text.as_bytes()[..len], |request| {
                assert_eq!((request.method, request.target), ("GET", "/a?b"));
                assert_eq!(request.fields.is_whole, len >= end, "{len} bytes");
                let cookies: Vec<_> = request.fields.all("Cookie").map(<[u8]>::to_vec).collect();
                (request.resource().map(|(host, path)| (host.to_string(), path.to_string())), cookies)
            });
            let (host, second) = (text.find("Cookie").unwrap(), text.find("Accept").unwrap());
            match seen {
                None => assert!(len < text.find("Host").unwrap(), "{len} bytes are a request"),
                Some((resource, cookies)) => {
                    let expected = (len >= host).then(|| (String::from("Example.net"), String::from("/a?b")));
                    assert_eq!(resource, expected, "{len} bytes");
                    if len >= second {
                        assert_eq!(cookies, [b"a=1", b"b=2"]);
                    }
                }
            }
        }
    }

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
            // Whole, and with a line begun that goes on in another segment.
            for end in ["\r\n", "X ", "", "X: y\r"] {
                let text = std::format!("GET / HTTP/1.1\r\n{fields}{end}");
                assert_eq!(request(text.as_bytes(), |request| request.is_valid()), Some(is_valid), "{text:?}");
            }
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
        for text in [
            "",
            "get / HTTP/1.1\r\n\r\n",
            "GET /\r\n\r\n",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
        ] {
            assert!(request(text.as_bytes(), |_| ()).is_none(), "{text:?}");
        }
        for text in ["", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/2 200\r\n\r\n"] {
            assert!(response(text.as_bytes(), |_| ()).is_none(), "{text:?}");
        }
        let text = b"HTTP/1.1 200 OK\r\nVary: a, b\r\nVary:c,\r\n\r\n";
        let members = response(text, |response| {
            assert_eq!((response.status, response.fields.is_whole), (200, true));
            response.fields.members("vary").map(<[u8]>::to_vec).collect::<Vec<_>>()
        });
        assert_eq!(members.unwrap(), [b"a", b"b", b"c"]);
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
