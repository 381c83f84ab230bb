//! Reads signature files. The README describes the format.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::answer::{Confidence, Side};

/// A mistake in a signature file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file's name as the caller gave it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl core::error::Error for Error {}

/// What carries a pattern's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp,
    Udp,
}

/// A number in a datagram that is the datagram's length but for a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    width: u8,
    big: bool,
    at: u16,
    times: u16,
    plus: i32,
}

impl Size {
    /// Returns true if the datagram's length is what the number says.
    pub(crate) fn holds(&self, datagram: &[u8]) -> bool {
        let at = usize::from(self.at);
        let Some(bytes) = datagram.get(at..at + usize::from(self.width)) else { return false };
        let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let number = if self.big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) };
        let wanted = number.cast_signed() * i64::from(self.times) + i64::from(self.plus);
        usize::try_from(wanted) == Ok(datagram.len())
    }
}

/// A pattern of a signature file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Index in [`SignatureFile::protocols`].
    pub(crate) protocol: usize,
    pub(crate) carrier: Carrier,
    /// The side that sends it; either, if none.
    pub(crate) side: Option<Side>,
    pub(crate) priority: u8,
    pub(crate) confidence: Confidence,
    /// The shortest and the longest datagram.
    pub(crate) len: (usize, usize),
    pub(crate) size: Option<Size>,
    pub(crate) regex: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// An example of what must match, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) protocol: usize,
    pub(crate) carrier: Carrier,
    pub(crate) side: Side,
    pub(crate) bytes: Vec<u8>,
    pub(crate) matches: bool,
    pub(crate) line: usize,
}

/// A protocol as a signature file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) category: Option<String>,
    pub(crate) source: String,
    pub(crate) line: usize,
}

/// A signature file, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignatureFile {
    pub(crate) protocols: Vec<Declared>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) vectors: Vec<Vector>,
}

/// The rest of a line, with its place.
struct Line<'a> {
    file: &'a str,
    number: usize,
    whole: &'a str,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn column(&self) -> usize {
        let behind = self.whole.len() - self.rest.len();
        self.whole[..behind].chars().count() + 1
    }

    fn error(&self, message: impl Into<String>) -> Error {
        self.error_at(self.column(), message)
    }

    fn error_at(&self, column: usize, message: impl Into<String>) -> Error {
        Error { file: self.file.to_owned(), line: self.number, column, message: message.into() }
    }

    /// Takes the next word, and its column.
    fn word(&mut self, what: &str) -> Result<(&'a str, usize), Error> {
        self.rest = self.rest.trim_start();
        let column = self.column();
        let len = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        if len == 0 {
            return Err(self.error(format!("{what} is missing")));
        }
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok((word, column))
    }
}

impl SignatureFile {
    /// Reads a file.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Self, Error> {
        let mut read = Self::default();
        for (index, whole) in text.lines().enumerate() {
            let rest = whole.trim_start();
            if rest.is_empty() || rest.starts_with('#') {
                continue;
            }
            let mut line = Line { file, number: index + 1, whole, rest: rest.trim_end() };
            // Columns count from the line's beginning, whatever is trimmed at its end.
            line.whole = whole.trim_end();
            read.line(&mut line)?;
        }
        Ok(read)
    }

    fn line(&mut self, line: &mut Line<'_>) -> Result<(), Error> {
        let (word, column) = line.word("a word")?;
        if word == "protocol" {
            return self.protocol(line);
        }
        let Some(last) = self.protocols.len().checked_sub(1) else {
            return Err(line.error_at(column, "a line `protocol NAME CATEGORY` must come first"));
        };
        match word {
            "source" => {
                line.rest.trim().clone_into(&mut self.protocols[last].source);
                if self.protocols[last].source.is_empty() {
                    return Err(line.error("name the specification that the signatures follow"));
                }
                Ok(())
            }
            "tcp" => self.pattern(line, last, Carrier::Tcp),
            "udp" => self.pattern(line, last, Carrier::Udp),
            "match" => self.vector(line, last, true),
            "miss" => self.vector(line, last, false),
            _ => Err(line
                .error_at(column, format!("`{word}` is no directive; known: protocol, source, tcp, udp, match, miss"))),
        }
    }

    fn protocol(&mut self, line: &mut Line<'_>) -> Result<(), Error> {
        let (name, column) = line.word("a name")?;
        let is_name = |name: &str| {
            name.len() <= 32 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
        };
        if !is_name(name) {
            return Err(line.error_at(column, "a name has up to 32 small letters, digits, `-`, `_` and `.`"));
        }
        let category = match line.rest.trim() {
            "" => None,
            category if is_name(category) => Some(category.to_owned()),
            _ => {
                line.rest = line.rest.trim_start();
                return Err(line.error("a category is one word of small letters, digits, `-`, `_` and `.`"));
            }
        };
        if let Some(first) = self.protocols.iter().find(|declared| declared.name == name) {
            return Err(line.error_at(column, format!("`{name}` is declared in line {} already", first.line)));
        }
        let name = name.to_owned();
        self.protocols.push(Declared { name, category, source: String::new(), line: line.number });
        Ok(())
    }

    fn pattern(&mut self, line: &mut Line<'_>, protocol: usize, carrier: Carrier) -> Result<(), Error> {
        let side = match line.word("a side")? {
            ("initiator", _) => Some(Side::Initiator),
            ("responder", _) => Some(Side::Responder),
            ("either", _) => None,
            (_, column) => return Err(line.error_at(column, "a side is `initiator`, `responder` or `either`")),
        };
        let (priority, column) = line.word("a priority")?;
        let priority = priority.parse().ok().filter(|priority| (1..=99).contains(priority));
        let priority = priority.ok_or_else(|| line.error_at(column, "a priority is a number from 1 to 99"))?;
        let confidence = match line.word("a confidence")? {
            ("certain", _) => Confidence::Certain,
            ("likely", _) => Confidence::Likely,
            ("guess", _) => Confidence::Guess,
            (_, column) => return Err(line.error_at(column, "a confidence is `certain`, `likely` or `guess`")),
        };
        let (mut len, mut size) = ((0, usize::MAX), None);
        loop {
            line.rest = line.rest.trim_start();
            let is_option = line.rest.starts_with("len=") || line.rest.starts_with("size=");
            if !is_option {
                break;
            }
            let (word, column) = line.word("an option")?;
            if carrier == Carrier::Tcp {
                return Err(line.error_at(column, "`len` and `size` are for datagrams; a stream has no length"));
            }
            if let Some(range) = word.strip_prefix("len=") {
                len = parse_range(range).ok_or_else(|| line.error_at(column, "write `len=48` or `len=48..68`"))?;
            } else if let Some(number) = word.strip_prefix("size=") {
                let parsed = parse_size(number);
                size = Some(parsed.ok_or_else(|| {
                    line.error_at(column, "write `size=be16@2+8`: be or le, bits, offset, and what to add")
                })?);
            }
        }
        let column = line.column();
        let regex = line.rest.to_owned();
        check_regex(&regex).map_err(|(offset, message)| line.error_at(column + offset, message))?;
        let line = line.number;
        self.patterns.push(Pattern { protocol, carrier, side, priority, confidence, len, size, regex, line, column });
        Ok(())
    }

    fn vector(&mut self, line: &mut Line<'_>, protocol: usize, matches: bool) -> Result<(), Error> {
        let carrier = match line.word("`tcp` or `udp`")? {
            ("tcp", _) => Carrier::Tcp,
            ("udp", _) => Carrier::Udp,
            (_, column) => return Err(line.error_at(column, "an example is of `tcp` or `udp`")),
        };
        let side = match line.word("a side")? {
            ("initiator", _) => Side::Initiator,
            ("responder", _) => Side::Responder,
            (_, column) => return Err(line.error_at(column, "the side of an example is `initiator` or `responder`")),
        };
        let bytes = parse_bytes(line)?;
        self.vectors.push(Vector { protocol, carrier, side, bytes, matches, line: line.number });
        Ok(())
    }
}

fn parse_range(text: &str) -> Option<(usize, usize)> {
    match text.split_once("..") {
        Some((low, "")) => Some((low.parse().ok()?, usize::MAX)),
        Some((low, high)) => Some((low.parse().ok()?, high.parse().ok()?)),
        None => text.parse().ok().map(|len| (len, len)),
    }
}

/// Reads `be16@2*4+8`.
fn parse_size(text: &str) -> Option<Size> {
    let (kind, rest) = text.split_once('@')?;
    let big = kind.starts_with("be");
    let bits: u8 = kind.strip_prefix(if big { "be" } else { "le" })?.parse().ok()?;
    if !matches!(bits, 8 | 16 | 24 | 32) {
        return None;
    }
    let sign = rest.find(['+', '-']);
    let (rest, plus) = match sign {
        Some(at) => (&rest[..at], rest[at..].parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (at, times) = match rest.split_once('*') {
        Some((at, times)) => (at, times.parse().ok()?),
        None => (rest, 1),
    };
    Some(Size { width: bits / 8, big, at: at.parse().ok()?, times, plus })
}

/// Checks a pattern. An error has an offset in characters.
fn check_regex(regex: &str) -> Result<(), (usize, String)> {
    if regex.is_empty() {
        return Err((0, "a pattern is missing".to_owned()));
    }
    if regex.len() > 1_000 {
        return Err((0, "a pattern has at most 1000 characters".to_owned()));
    }
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).dot_matches_new_line(true).nest_limit(20);
    let hir = parser.build().parse(regex).map_err(|error| match error {
        regex_syntax::Error::Parse(error) => (error.span().start.column - 1, error.kind().to_string()),
        regex_syntax::Error::Translate(error) => (error.span().start.column - 1, error.kind().to_string()),
        _ => (0, "the pattern is malformed".to_owned()),
    })?;
    if !hir.properties().look_set().is_empty() {
        return Err((0, "patterns begin at the first byte by themselves; leave out `^`, `$` and `\\b`".to_owned()));
    }
    // Three bytes are too few: one in a few million random streams would match each of a hundred patterns.
    match hir.properties().minimum_len() {
        Some(len) if len >= 4 => {}
        _ => return Err((0, "a pattern needs four bytes at least; shorter ones match by chance".to_owned())),
    }
    Ok(())
}

/// Bytes of an example, at most.
const EXAMPLE_MAX: usize = 1 << 16;

/// Reads strings in quotes, perhaps repeated (`"a"*9`), and pairs of hexadecimal digits.
fn parse_bytes(line: &mut Line<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    loop {
        line.rest = line.rest.trim_start();
        if line.rest.is_empty() {
            break;
        }
        let piece = if line.rest.starts_with('"') { parse_string(line)? } else { parse_hex(line)? };
        let mut times = 1;
        if let Some(rest) = line.rest.strip_prefix('*') {
            let len = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            times = rest[..len].parse().map_err(|_| line.error("write how often: `*9`"))?;
            line.rest = &rest[len..];
        }
        if piece.len().saturating_mul(times).saturating_add(bytes.len()) > EXAMPLE_MAX {
            return Err(line.error("an example has at most 65536 bytes"));
        }
        for _ in 0..times {
            bytes.extend_from_slice(&piece);
        }
    }
    if bytes.is_empty() {
        return Err(line.error("an example is missing"));
    }
    Ok(bytes)
}

fn parse_hex(line: &mut Line<'_>) -> Result<Vec<u8>, Error> {
    let digits = line.rest.as_bytes();
    let pair = digits.first_chunk::<2>().and_then(|pair| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        u8::try_from(high? * 16 + low?).ok()
    });
    let byte = pair.ok_or_else(|| line.error("write a string in quotes, or pairs of hexadecimal digits"))?;
    line.rest = &line.rest[2..];
    Ok(Vec::from([byte]))
}

fn parse_string(line: &mut Line<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut letters = line.rest[1..].char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                line.rest = &line.rest[at + 2..];
                return Ok(bytes);
            }
            '\\' => match letters.next() {
                Some((_, 'r')) => bytes.push(b'\r'),
                Some((_, 'n')) => bytes.push(b'\n'),
                Some((_, 't')) => bytes.push(b'\t'),
                Some((_, '0')) => bytes.push(0),
                Some((_, letter @ ('\\' | '"'))) => bytes.push(letter as u8),
                Some((_, 'x')) => {
                    let digits = [letters.next(), letters.next()].map(|digit| digit.and_then(|(_, d)| d.to_digit(16)));
                    let [Some(high), Some(low)] = digits else {
                        line.rest = &line.rest[at + 1..];
                        return Err(line.error("write `\\x` with two hexadecimal digits"));
                    };
                    bytes.push((high * 16 + low) as u8);
                }
                _ => {
                    line.rest = &line.rest[at + 1..];
                    return Err(line.error("known escapes: \\r \\n \\t \\0 \\\\ \\\" \\xHH"));
                }
            },
            letter => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Err(line.error("the string has no closing quote"))
}
