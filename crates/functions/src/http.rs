//! The heads of HTTP/1 messages (RFC 9112), where a segment begins with one. Nothing is put together: of a head that goes on in the
//! next segment, the fields that are here are read; its first line has to be whole.

use core::fmt;

use httparse::{EMPTY_HEADER, Header, Status};
use nf::Fingerprint;
use packet::{Host6, Key, Words};

/// Fields of a head at most; one with more isn't read.
const FIELDS_MAX: usize = 64;

/// The fields of a head, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    fields: &'a [Header<'a>],
    /// Whether the head ends in this segment.
    pub(crate) is_whole: bool,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) fields: Fields<'a>,
}

/// A response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) fields: Fields<'a>,
}

/// Looks at the request that a payload begins with, if it does.
#[inline]
pub(crate) fn request<T>(payload: &[u8], look: impl FnOnce(Request<'_>) -> T) -> Option<T> {
    // Nearly all segments are none, and this tells it of most.
    if !payload.first()?.is_ascii_uppercase() {
        return None;
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let is_whole = matches!(request.parse(payload).ok()?, Status::Complete(_));
    if !has_first_line(payload) {
        return None;
    }
    // Without a version it isn't known that this is HTTP.
    let (method, target) = (request.method?, request.path.filter(|_| request.version.is_some())?);
    Some(look(Request { method, target, fields: Fields { fields: request.headers, is_whole } }))
}

/// Looks at the response that a payload begins with, if it does.
#[inline]
pub(crate) fn response<T>(payload: &[u8], look: impl FnOnce(Response<'_>) -> T) -> Option<T> {
    if !payload.starts_with(b"HTTP/1.") {
        return None;
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let is_whole = matches!(response.parse(payload).ok()?, Status::Complete(_));
    if !has_first_line(payload) {
        return None;
    }
    let status = response.code?;
    Some(look(Response { status, fields: Fields { fields: response.headers, is_whole } }))
}

/// Whether the first line, by which a message is known, is here to its end.
fn has_first_line(payload: &[u8]) -> bool {
    payload.contains(&b'\n')
}

impl<'a> Fields<'a> {
    /// The values of the fields of this name, blanks around them taken away.
    pub(crate) fn all(self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_named = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name);
        self.fields.iter().filter(is_named).map(|field| field.value.trim_ascii())
    }

    /// The first of them.
    pub(crate) fn first(self, name: &'a str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The members of the lists that these fields hold, between commas. One in a quoted string isn't known from another.
    pub(crate) fn members(self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let members = |list: &'a [u8]| list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        self.all(name).flat_map(members).filter(|member| !member.is_empty())
    }
}

impl<'a> Request<'a> {
    /// The host that is meant, without the port where that is 80, and the path with its query: the parts of a target URI that differ
    /// (RFC 9112, section 3.3). `None` where the host isn't told, or the target is none of a resource.
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

/// A name of things too long to keep: 64 bits of a hash. It isn't keyed, so that all cores make the same of it, and whoever wants two
/// things of one name can find them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(pub(crate) u64);

packet::words! {
    Digest: [1], digest => [digest.0], words => Self(words[0]);
}

impl Digest {
    /// The name of these parts. A host's letters are all alike, so give it as `host`.
    pub(crate) fn of(host: &str, parts: &[&[u8]]) -> Self {
        let mut digest = Fingerprint::default();
        add(&mut digest, host.len(), host.bytes().map(|byte| byte.to_ascii_lowercase()));
        parts.iter().for_each(|part| add(&mut digest, part.len(), part.iter().copied()));
        Self(digest.value())
    }
}

/// Adds the length and then the bytes, eight to a word.
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
