//! Reads a request: its head alone, bounded in bytes and in time.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::http::response::{Refusal, Status};
use crate::line::{left, timely};

/// The longest head of a request in bytes.
const HEAD_LEN_MAX: usize = 8 << 10;
/// The most header fields of a request.
const HEADERS_MAX: usize = 64;

/// Request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path, without a query.
    pub(crate) path: String,
    /// False for HEAD: the answer has no body.
    pub(crate) wants_body: bool,
}

/// Reads the head of a request.
pub(crate) fn read(mut stream: &TcpStream, within: Duration) -> Result<Request, Refusal> {
    let end = Instant::now() + within;
    let mut head = Vec::new();
    let mut part = [0; 2 << 10];
    loop {
        let gone = |error: std::io::Error| match timely(error).kind() {
            ErrorKind::TimedOut => Refusal::new(Status::TooSlow, "The request took too long to arrive."),
            _ => Refusal::gone(),
        };
        left(end).and_then(|left| stream.set_read_timeout(Some(left))).map_err(gone)?;
        match stream.read(&mut part) {
            Ok(0) => return Err(Refusal::gone()),
            Ok(len) => head.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(gone(error)),
        }
        if let Some(request) = parse(&head)? {
            return Ok(request);
        }
        if head.len() >= HEAD_LEN_MAX {
            return Err(Refusal::new(Status::TooLarge, "The head of the request is longer than 8 KiB."));
        }
    }
}

/// Parses the head of a request; none if more of it is to come.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::new(Status::TooLarge, "The request has more than 64 header fields."));
        }
        Err(_) => return Err(Refusal::new(Status::Malformed, "This is not a request of HTTP/1.1.")),
    }
    let (method, target) = (head.method.unwrap_or_default(), head.path.unwrap_or_default());
    // A target with a host in it, as a proxy sends it. It counts beside the header field.
    let (named, target) = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            let at = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(&rest[..at]), &rest[at..])
        }
        _ => (None, target),
    };
    let mut hosts = head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => std::str::from_utf8(host.value).unwrap_or_default(),
        // HTTP/1.0 has no such field, and no browser speaks it.
        (None, _) if head.version == Some(0) => "localhost",
        (None, _) => return Err(Refusal::new(Status::Malformed, "The request has no Host.")),
        (Some(_), Some(_)) => return Err(Refusal::new(Status::Malformed, "The request has more than one Host.")),
    };
    if !is_plain(host) || !named.is_none_or(is_plain) {
        let why = "Ask by an IP address, as localhost, or by the name of this machine: another name could be another site's (DNS rebinding).";
        return Err(Refusal::new(Status::Misdirected, why));
    }
    let wants_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Err(Refusal::new(Status::MethodNotAllowed, "Only GET and HEAD are served here.")),
    };
    let path = target.split('?').next().unwrap_or_default();
    Ok(Some(Request { path: if path.is_empty() { "/" } else { path }.to_owned(), wants_body }))
}

/// True if a host is an IP address or localhost, with or without a TCP port. A page of another site can have its own name resolved to this
/// machine, but it can't make a browser send one of these.
fn is_plain(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.parse::<u16>().is_ok() && !port.starts_with('+');
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok() && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
    }
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_plain = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok() || is_own(name);
    is_plain && port.is_none_or(is_port)
}

/// True for the name of this machine, with or without a domain behind it.
fn is_own(name: &str) -> bool {
    let system = rustix::system::uname();
    let own = system.nodename().to_string_lossy();
    let (own, _) = own.split_once('.').unwrap_or((&own, ""));
    let (host, _) = name.split_once('.').unwrap_or((name, ""));
    !own.is_empty() && own.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Option<(String, bool)>, Status> {
        parse(head.as_bytes())
            .map(|request| request.map(|request| (request.path, request.wants_body)))
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn heads() {
        let host = "Host: 127.0.0.1:9100\r\n\r\n";
        for (line, path, wants_body) in [
            ("GET / HTTP/1.1", "/", true),
            ("HEAD /metrics HTTP/1.1", "/metrics", false),
            ("GET /metrics?a=b HTTP/1.1", "/metrics", true),
            ("GET http://localhost/metrics HTTP/1.1", "/metrics", true),
            ("GET http://localhost:80 HTTP/1.1", "/", true),
            ("GET http://[::1]?a HTTP/1.1", "/", true),
        ] {
            assert_eq!(parsed(&format!("{line}\r\n{host}")), Ok(Some((path.to_owned(), wants_body))), "{line}");
        }
        for (head, status) in [
            ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", Status::MethodNotAllowed),
            ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", Status::MethodNotAllowed),
            ("GET / HTTP/1.1\r\n\r\n", Status::Malformed),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n", Status::Malformed),
            ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", Status::Misdirected),
            ("PRI * HTTP/2.0\r\n\r\n", Status::Malformed),
            ("\u{1f600}\r\n\r\n", Status::Malformed),
        ] {
            assert_eq!(parsed(head), Err(status), "{head}");
        }
        assert_eq!(parsed("GET / HTTP/1.1\r\nHost: local"), Ok(None));
        assert_eq!(parsed("GET / HTTP/1.0\r\n\r\n"), Ok(Some(("/".to_owned(), true))));
    }

    #[test]
    fn hosts() {
        for host in ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:65535", "[::1]", "[fe80::1]:80", "10.1.2.3"] {
            assert!(is_plain(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "localhost:",
            "localhost:65536",
            "localhost:+1",
            "127.1",
            "[::1",
            "[::1]x",
            "::1",
            "[127.0.0.1]",
            "a@localhost",
            "localhost:80@evil.example",
        ] {
            assert!(!is_plain(host), "{host}");
        }
    }
}
