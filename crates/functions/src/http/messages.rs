//! Finds the messages of HTTP/1 in a side's stream (RFC 9112), however it is cut: heads, and the bodies between them, which are skipped.

/// Where one side is in its messages. Plain data; bytes of a head that isn't whole yet are held by the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    place: Place,
    /// The first line of a head has come, and not all of the head.
    in_head: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// At the beginning of a line that may begin a head.
    #[default]
    Line,
    /// In a line that begins none.
    OtherLine,
    /// In a body, with so many bytes to come.
    Length(u64),
    /// In the line with a chunk's size, of which so many digits have come.
    ChunkSize { size: u64, digits: u8, in_extension: bool },
    /// In a chunk, with so many bytes to come.
    Chunk(u64),
    /// In the end of line behind a chunk.
    ChunkEnd,
    /// In the trailer section. True if its line is empty so far.
    Trailer { is_empty: bool },
    /// No further messages: a body without length, another protocol, or a head that can't be trusted.
    Rest,
}

/// What is behind a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes, then the next head.
    Length(u64),
    /// Chunks, then the next head.
    Chunked,
    /// Nothing that could be understood, to the end.
    Rest,
}

/// A head, or the beginning of one that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head<'a> {
    /// The whole head of a request, with the empty line.
    Request(&'a [u8]),
    /// The whole head of a response, with the empty line.
    Response(&'a [u8]),
    /// More than can be held.
    TooLong,
}

/// What a gap took away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// A part of a body. The next head is found.
    Body,
    /// A part of a head.
    Head,
    /// It can't be said: perhaps whole messages.
    Unknown,
}

/// The kind of messages to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Requests,
    Responses,
    /// It isn't known yet who is the client.
    Either,
}

/// What a line may be.
enum Line {
    /// The first line of a head, up to its end.
    First {
        len: usize,
        is_request: bool,
    },
    /// The beginning of one, perhaps.
    Perhaps,
    Other,
}

/// The length of the longest method that is looked for.
const METHOD_MAX: usize = 24;

impl Messages {
    /// Reads the next bytes, of which the first `held` were read before. `found` is called for each head, and says what is behind it and what
    /// to look for then. Returns how many of the last bytes have to be held until more follow, less than `most`.
    pub(crate) fn read<E>(
        &mut self,
        bytes: &[u8],
        held: usize,
        mut kind: Kind,
        most: usize,
        mut found: impl FnMut(Head<'_>) -> Result<(Body, Kind), E>,
    ) -> Result<usize, E> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.place != Place::Line {
                rest = &rest[self.skip(rest)..];
                continue;
            }
            // Where the search for the end of a head goes on: its last three bytes may be a part of that.
            let known = held.saturating_sub(bytes.len() - rest.len()).saturating_sub(3);
            let whole = match line(rest, kind) {
                Line::Other => {
                    self.place = Place::OtherLine;
                    continue;
                }
                Line::Perhaps => None,
                Line::First { len, is_request } => {
                    self.in_head = true;
                    end_of_head(rest, known.max(len - 1)).map(|end| (end, is_request))
                }
            };
            let Some((end, is_request)) = whole else {
                if rest.len() < most {
                    return Ok(rest.len());
                }
                if self.in_head {
                    let (body, next) = found(Head::TooLong)?;
                    self.follow(body);
                    kind = next;
                } else {
                    self.place = Place::OtherLine;
                }
                continue;
            };
            let head = &rest[..end];
            let (body, next) = found(if is_request { Head::Request(head) } else { Head::Response(head) })?;
            self.follow(body);
            kind = next;
            rest = &rest[end..];
        }
        Ok(0)
    }

    /// Goes on behind a gap.
    pub(crate) fn gap(&mut self, len: u32) -> Lost {
        let (len, was_in_head) = (u64::from(len), core::mem::take(&mut self.in_head));
        match &mut self.place {
            Place::Length(left) | Place::Chunk(left) if *left > len => *left -= len,
            Place::Length(left) if *left == len => self.place = Place::Line,
            Place::Chunk(left) if *left == len => self.place = Place::ChunkEnd,
            Place::Rest => {}
            _ => {
                // Segments begin with heads often enough.
                self.place = Place::Line;
                return if was_in_head { Lost::Head } else { Lost::Unknown };
            }
        }
        Lost::Body
    }

    /// True if there will be no further messages.
    pub(crate) fn are_over(&self) -> bool {
        self.place == Place::Rest
    }

    /// True if the stream breaks off in a head.
    pub(crate) const fn is_in_head(&self) -> bool {
        self.in_head
    }

    /// Goes on behind a head.
    fn follow(&mut self, body: Body) {
        self.in_head = false;
        self.place = match body {
            Body::Length(0) => Place::Line,
            Body::Length(length) => Place::Length(length),
            Body::Chunked => Place::ChunkSize { size: 0, digits: 0, in_extension: false },
            Body::Rest => Place::Rest,
        };
    }

    /// Skips bytes that belong to no head. Returns how many, at least one.
    fn skip(&mut self, bytes: &[u8]) -> usize {
        let line_end = || memchr::memchr(b'\n', bytes);
        match &mut self.place {
            Place::Line => 0,
            Place::Rest => bytes.len(),
            Place::OtherLine => match line_end() {
                Some(end) => {
                    self.place = Place::Line;
                    end + 1
                }
                None => bytes.len(),
            },
            Place::Length(left) | Place::Chunk(left) => {
                let count = (bytes.len() as u64).min(*left);
                *left -= count;
                if *left == 0 {
                    let is_chunk = matches!(self.place, Place::Chunk(_));
                    self.place = if is_chunk { Place::ChunkEnd } else { Place::Line };
                }
                count as usize
            }
            Place::ChunkEnd => {
                match bytes[0] {
                    b'\r' => {}
                    b'\n' => self.place = Place::ChunkSize { size: 0, digits: 0, in_extension: false },
                    _ => self.place = Place::OtherLine,
                }
                1
            }
            Place::ChunkSize { size, digits, in_extension } => {
                match bytes[0] {
                    b'\n' if *digits == 0 => self.place = Place::Line,
                    b'\n' if *size == 0 => self.place = Place::Trailer { is_empty: true },
                    b'\n' => self.place = Place::Chunk(*size),
                    _ if *in_extension => {}
                    byte @ (b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if *digits < 16 => {
                        *size = *size << 4 | u64::from((byte as char).to_digit(16).unwrap_or_default());
                        *digits += 1;
                    }
                    b';' | b'\r' | b' ' | b'\t' if *digits > 0 => *in_extension = true,
                    _ => self.place = Place::OtherLine,
                }
                1
            }
            Place::Trailer { is_empty } => {
                match bytes[0] {
                    b'\n' if *is_empty => self.place = Place::Line,
                    b'\n' => *is_empty = true,
                    b'\r' => {}
                    _ => *is_empty = false,
                }
                1
            }
        }
    }
}

/// Looks at the beginning of a line, which isn't empty.
fn line(bytes: &[u8], kind: Kind) -> Line {
    const VERSION: &[u8] = b"HTTP/1.";
    let may_be = |wanted: Kind| kind == wanted || kind == Kind::Either;
    let start = &bytes[..bytes.len().min(VERSION.len())];
    let is_response = may_be(Kind::Responses) && VERSION.starts_with(start);
    let is_request = may_be(Kind::Requests) && !is_response && begins_request(bytes);
    if !is_response && !is_request {
        return Line::Other;
    }
    let Some(end) = bytes.iter().position(|byte| byte.is_ascii_control()) else { return Line::Perhaps };
    let len = match &bytes[end..] {
        [b'\n', ..] => end + 1,
        [b'\r', b'\n', ..] => end + 2,
        [b'\r'] => return Line::Perhaps,
        _ => return Line::Other,
    };
    let text = &bytes[..end];
    let is_first = if is_response {
        text.len() > VERSION.len()
    } else {
        text.ends_with(b" HTTP/1.1") || text.ends_with(b" HTTP/1.0")
    };
    if is_first { Line::First { len, is_request } } else { Line::Other }
}

/// True if these bytes may begin a request: a method, which begins with a capital letter, and a space.
fn begins_request(bytes: &[u8]) -> bool {
    let part = &bytes[..bytes.len().min(METHOD_MAX + 1)];
    let is_of_method = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(*byte, b'-' | b'_');
    bytes.first().is_some_and(u8::is_ascii_uppercase)
        && match part.iter().position(|byte| !is_of_method(byte)) {
            Some(end) => part[end] == b' ',
            None => part.len() <= METHOD_MAX,
        }
}

/// The end of a head: behind the first empty line whose line before ends at `from` or later.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr::memchr(b'\n', bytes.get(at..)?)? + 1;
        match &bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 200;

    /// Reads the pieces of a stream one by one, as a function over streams does. A head is told by its first line.
    fn read(pieces: &[&[u8]], kind: Kind) -> (Vec<String>, Messages) {
        let (mut messages, mut held, mut found) = (Messages::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let told = [held.as_slice(), piece].concat();
            let Ok(hold) = messages.read(&told, held.len(), kind, MOST, |head| {
                let (Head::Request(head) | Head::Response(head)) = head else {
                    found.push("too long".to_string());
                    return Ok::<_, Infallible>((Body::Rest, kind));
                };
                let text = String::from_utf8_lossy(head).into_owned();
                assert!(text.ends_with("\r\n\r\n") || text.ends_with("\n\n"), "{text:?}");
                found.push(text.lines().next().unwrap_or_default().to_string());
                let field = |name: &str| text.split("\r\n").find_map(|line| line.strip_prefix(name));
                let body = match field("Content-Length: ") {
                    Some(length) => Body::Length(length.parse().unwrap()),
                    None if field("Transfer-Encoding: ").is_some() => Body::Chunked,
                    None if field("Connection: ").is_some() => Body::Rest,
                    None => Body::Length(0),
                };
                Ok((body, kind))
            });
            assert!(hold < MOST);
            held = told[told.len() - hold..].to_vec();
        }
        (found, messages)
    }

    #[test]
    fn heads_follow_bodies_of_each_kind() {
        let chunks = "3;x=y\r\nGET\r\n A \r\n0123456789\r\n0\r\nX: GET / HTTP/1.1\r\n\r\n";
        let text = format!(
            "\r\nPOST /1 HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET /0 HTTP/1.1\r\n\nPUT /2 HTTP/1.0\nTransfer-Encoding: x\n\n\
             PUT /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}GET /4 HTTP/1.1\r\n\r\n\
             GET /5 HTTP/1.1\r\nConnection: close\r\n\r\nGET /6 HTTP/1.1\r\n\r\n"
        );
        let (found, _) = read(&[text.replacen("\n\nPUT /2", "\n\r\nPUT /2", 1).as_bytes()], Kind::Requests);
        assert_eq!(
            found,
            ["POST /1 HTTP/1.1", "PUT /2 HTTP/1.0", "PUT /3 HTTP/1.1", "GET /4 HTTP/1.1", "GET /5 HTTP/1.1"]
        );
    }

    #[test]
    fn other_lines_are_no_heads() {
        for text in [
            "get / HTTP/1.1\r\n\r\n",
            "GET /\r\n\r\n",
            "GET /\tHTTP/1.1 HTTP/1.1\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "NotAMethodThatIsAnywhereNearShortEnough / HTTP/1.1\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "QUJD\u{1}GET / HTTP/1.1\r\n\r\n",
        ] {
            assert!(read(&[text.as_bytes()], Kind::Requests).0.is_empty(), "{text:?}");
            let found = read(&[format!("{text}GET /x HTTP/1.1\r\n\r\n").as_bytes()], Kind::Requests).0;
            assert_eq!(found, ["GET /x HTTP/1.1"], "{text:?}");
        }
        for text in ["GET / HTTP/1.1\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.\r\n\r\n"] {
            assert!(read(&[text.as_bytes()], Kind::Responses).0.is_empty(), "{text:?}");
        }
        assert_eq!(read(&[b"HTTP/1.1 200 OK\r\n\r\n"], Kind::Either).0, ["HTTP/1.1 200 OK"]);
    }

    #[test]
    fn a_head_that_is_too_long_is_told_as_such() {
        let text = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\nGET /x HTTP/1.1\r\n\r\n", "y".repeat(MOST));
        assert_eq!(
            read(&[text.as_bytes()], Kind::Requests).0,
            ["GET / HTTP/1.1", "GET /x HTTP/1.1"],
            "it is here as a whole"
        );
        let (one, other) = text.as_bytes().split_at(MOST + 10);
        assert_eq!(read(&[one, other], Kind::Requests).0, ["too long"]);
        let (one, other) = text.as_bytes().split_at(MOST - 1);
        assert_eq!(read(&[one, &other[..30], &other[30..]], Kind::Requests).0, ["GET / HTTP/1.1", "GET /x HTTP/1.1"]);
    }

    #[test]
    fn a_gap_in_a_body_loses_no_message() {
        let of = |text: &str, gap: u32| {
            let mut messages = read(&[text.as_bytes()], Kind::Requests).1;
            let lost = messages.gap(gap);
            let mut found = 0;
            let next = b"GET /2 HTTP/1.1\r\n\r\n";
            let Ok(_) = messages.read(next, 0, Kind::Requests, MOST, |_| {
                found += 1;
                Ok::<_, Infallible>((Body::Length(0), Kind::Requests))
            });
            (lost, found)
        };
        let post = "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n012";
        assert_eq!([of(post, 7), of(post, 4), of(post, 8)], [(Lost::Body, 1), (Lost::Body, 0), (Lost::Unknown, 1)]);
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n012";
        assert_eq!([of(chunked, 13), of(chunked, 15)], [(Lost::Body, 0), (Lost::Unknown, 1)]);
        assert_eq!(of("GET / HTTP/1.1\r\nHost: a\r\n", 2), (Lost::Head, 1));
        assert_eq!(of("GET / HTTP/1.1\r\n\r\nGE", 2), (Lost::Unknown, 1));
        assert_eq!(of("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 2), (Lost::Body, 0));
    }

    /// Heads with bodies of each kind, and other lines between them.
    fn stream() -> impl Strategy<Value = String> {
        let message = prop_oneof![
            (0..40usize)
                .prop_map(|len| format!("POST /{len} HTTP/1.1\r\nContent-Length: {len}\r\n\r\n{}", "G".repeat(len))),
            (1..40usize).prop_map(|len| format!(
                "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{}\r\n0\r\nA: b\r\n\r\n",
                "\n".repeat(len)
            )),
            (0..70usize).prop_map(|len| format!("GET /{} HTTP/1.0\nHost: a\n\n", "x".repeat(len))),
            Just(String::from("HTTP/1.1 204 No\r\n\r\n")),
            Just(String::from("HTTPX /a HTTP/1.1\r\nX: y\r\n\r\n")),
            "[A-Z ]{0,30}\r\n".prop_map(|text| text),
        ];
        proptest::collection::vec(message, 1..8).prop_map(|all| all.concat())
    }

    proptest! {
        /// However a stream is cut, its messages are the same, as long as no head is longer than what can be held.
        #[test]
        fn any_cutting_has_the_same_messages(
            text in stream(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..30),
            kind in prop_oneof![Just(Kind::Requests), Just(Kind::Responses), Just(Kind::Either)],
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).chain([0, text.len()]).collect();
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]).collect();
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            let whole = read(&[text.as_bytes()], kind);
            prop_assert_eq!(&read(&pieces, kind), &whole);
            prop_assert_eq!(&read(&bytes, kind), &whole);
        }

        #[test]
        fn any_bytes_are_read(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..9)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = read(&pieces, Kind::Either);
        }
    }
}
