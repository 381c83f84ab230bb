//! Answers, within a time.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::line::{left, timely};

/// Time for a client to close after its answer. If the server closed first while bytes of the client were on their way, the system would
/// throw away the answer.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// The most bytes that are read from a client that was answered.
const UNREAD_LEN_MAX: usize = 64 << 10;

/// How an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Fine,
    Malformed,
    NotFound,
    MethodNotAllowed,
    TooSlow,
    Misdirected,
    TooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Fine => "200 OK",
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed\r\nAllow: GET, HEAD",
            Self::TooSlow => "408 Request Timeout",
            Self::Misdirected => "421 Misdirected Request",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable\r\nRetry-After: 1",
        }
    }
}

/// A request that is not served, and why, in a sentence; none to a client that has gone.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    sentence: Option<String>,
}

impl Refusal {
    pub(crate) fn new(status: Status, sentence: impl Into<String>) -> Self {
        Self { status, sentence: Some(sentence.into()) }
    }

    /// The client has gone.
    pub(crate) fn gone() -> Self {
        Self { status: Status::Malformed, sentence: None }
    }

    /// Says so to the client, in a body if it wants one.
    pub(crate) fn tell(&self, stream: &TcpStream, wants_body: bool, within: Duration) -> io::Result<()> {
        let Some(sentence) = &self.sentence else { return Ok(()) };
        whole(stream, self.status, Kind::Text, &format!("{sentence}\n"), wants_body, within)
    }
}

/// Kind of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Metrics,
    Page,
    Events,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Self::Page => "text/html; charset=utf-8",
            Self::Events => "text/event-stream",
        }
    }
}

/// Answers with a body, or with its head alone.
pub(crate) fn whole(
    stream: &TcpStream,
    status: Status,
    kind: Kind,
    body: &str,
    wants_body: bool,
    within: Duration,
) -> io::Result<()> {
    let mut answer = head(status, kind, Some(body.len()), "");
    if wants_body {
        answer += body;
    }
    write(stream, answer.as_bytes(), within)
}

/// Answers with the live page. `body` has `{nonce}` where its own style and script say that they are the server's: a browser runs no other.
pub(crate) fn page(stream: &TcpStream, body: &str, wants_body: bool, within: Duration) -> io::Result<()> {
    // The keys of these hashers are random.
    let nonce = format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1));
    let body = body.replace("{nonce}", &nonce);
    let policy = format!(
        "Content-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    );
    let mut answer = head(Status::Fine, Kind::Page, Some(body.len()), &policy);
    if wants_body {
        answer += &body;
    }
    write(stream, answer.as_bytes(), within)
}

/// Begins an answer without an end.
pub(crate) fn begin(stream: &TcpStream, kind: Kind, within: Duration) -> io::Result<()> {
    write(stream, head(Status::Fine, kind, None, "").as_bytes(), within)
}

fn head(status: Status, kind: Kind, len: Option<usize>, more: &str) -> String {
    let len = len.map(|len| format!("Content-Length: {len}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\n{len}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\n{more}Connection: close\r\n\r\n",
        status.line(),
        kind.name()
    )
}

/// Writes bytes to a client that takes them in time.
pub(crate) fn write(mut stream: &TcpStream, mut bytes: &[u8], within: Duration) -> io::Result<()> {
    let end = Instant::now() + within;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(timely(error)),
        }
    }
    Ok(())
}

/// Ends an answer, and lets the client close.
pub(crate) fn end(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let end = Instant::now() + CLOSE_WITHIN;
    let (mut part, mut unread_len) = ([0; 4 << 10], 0);
    while unread_len < UNREAD_LEN_MAX {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut part)? {
            0 => break,
            len => unread_len += len,
        }
    }
    Ok(())
}
