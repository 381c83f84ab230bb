//! All signatures, compiled.

mod direction;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use direction::{Best, Compiled, Datagrams, Direction, directions};
use once_cell::race::OnceBox;

use crate::answer::{Answer, LIMIT, Prefixes, Protocol, Side};
use crate::automaton::{Automaton, NONE, PATTERN_SIZE_MAX};
use crate::built_in::{self, Reads, SIZE_MAX};
use crate::bytes::{Bytes, Found};
use crate::compiled;
use crate::file::{Carrier, Declared, Error, SignatureFile, Vector};
use crate::protocol::BUILT_IN;
use crate::session::DatagramState;

/// What is known about a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name in configurations and reports.
    pub name: String,
    /// What it is for, in one word.
    pub category: String,
    /// True if a decoder of its messages identifies it.
    pub by_decoder: bool,
    /// True if a pattern identifies it.
    pub by_pattern: bool,
    /// The specification that its signatures follow.
    pub source: String,
}

/// The signatures of all protocols, compiled. Immutable, so any number of threads can share them.
#[derive(Clone, Debug)]
pub struct Signatures {
    protocols: Vec<About>,
    initiator: Direction,
    responder: Direction,
    datagrams: Datagrams,
}

impl Signatures {
    /// The built-in signatures. They take some milliseconds and megabytes: share the result.
    ///
    /// # Panics
    /// Never: the tests read the same files.
    #[must_use]
    pub fn built_in() -> Self {
        Self::new(None).expect("the built-in files are tested")
    }

    /// The built-in signatures, made at the first call.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static BUILT_IN: OnceBox<Arc<Signatures>> = OnceBox::new();
        Arc::clone(BUILT_IN.get_or_init(|| Box::new(Arc::new(Self::built_in()))))
    }

    /// Compiles the built-in signatures with a user's file. At equal priority the user's patterns come first. `file` is the name in errors.
    ///
    /// # Errors
    /// The first mistake in the file: of its form, an example that does not do what it should, or patterns that are too large together.
    pub fn built_in_and(text: &str, file: &str) -> Result<Self, Error> {
        Self::check(text, file)?;
        let read = SignatureFile::parse(text, file)?;
        let signatures = Self::new(Some((&read, file)))?;
        signatures.check_examples(&read, file)?;
        Ok(signatures)
    }

    /// Checks the form of a signature file, and compiles its patterns by themselves. Much faster than [`built_in_and`](Self::built_in_and),
    /// which also checks the examples.
    ///
    /// # Errors
    /// The first mistake in the file.
    pub fn check(text: &str, file: &str) -> Result<(), Error> {
        let read = SignatureFile::parse(text, file)?;
        for pattern in &read.patterns {
            Automaton::new(&[&pattern.regex], PATTERN_SIZE_MAX).map_err(|error| Error {
                file: file.to_owned(),
                line: pattern.line,
                column: pattern.column,
                message: format!("the pattern is too large ({error}): bound its repetitions"),
            })?;
        }
        Ok(())
    }

    fn new(user: Option<(&SignatureFile, &str)>) -> Result<Self, Error> {
        let mut protocols: Vec<About> = BUILT_IN
            .iter()
            .map(|(name, category, source)| About {
                name: (*name).to_owned(),
                category: (*category).to_owned(),
                by_decoder: true,
                by_pattern: false,
                source: (*source).to_owned(),
            })
            .collect();
        // A user's patterns first, so that they win among equals.
        let mut patterns = Vec::new();
        let user_patterns = user.map_or(0, |(read, _)| read.patterns.len());
        for (read, name) in &built_in::files()? {
            add(&mut protocols, &mut patterns, read, name)?;
        }
        if let Some((read, name)) = user {
            add(&mut protocols, &mut patterns, read, name)?;
        }
        patterns.rotate_right(user_patterns);

        let of = |reads: Reads| -> Vec<Compiled> {
            patterns.iter().filter(|compiled| reads.has(&compiled.pattern)).cloned().collect()
        };
        let [initiator, responder] = directions(of(Reads::Initiator), of(Reads::Responder));
        let datagrams = Datagrams::new(of(Reads::Datagrams));
        let automaton = |reads, patterns: &[Compiled]| match user {
            None => Ok(compiled::load(reads)),
            Some(_) => compile(patterns).map_err(|error| too_large(patterns, user, &error)),
        };
        let of_initiator = automaton(Reads::Initiator, &initiator.patterns)?;
        let of_responder = automaton(Reads::Responder, &responder.patterns)?;
        let of_datagrams = automaton(Reads::Datagrams, &datagrams.patterns)?;
        Ok(Self {
            protocols,
            initiator: initiator.with(of_initiator),
            responder: responder.with(of_responder),
            datagrams: datagrams.with(of_datagrams),
        })
    }

    /// Identifies the protocol of a TCP stream by the beginnings of both sides.
    ///
    /// A final answer holds for all longer beginnings. While the answer is [`Answer::More`], ask again when more bytes have come.
    #[must_use]
    pub fn stream(&self, prefixes: &Prefixes<'_>) -> Answer {
        let [initiator, responder] = both(prefixes);
        let mut best = Best::NOTHING;
        self.initiator.read(&initiator, &initiator, &responder, &mut best);
        if !best.is_settled_before(self.responder.best) {
            self.responder.read(&responder, &initiator, &responder, &mut best);
        }
        best.answer()
    }

    /// Identifies the protocol of a UDP session by its next datagram. The caller keeps the state between datagrams.
    ///
    /// A final answer holds for the whole session.
    #[must_use]
    pub fn datagram(&self, state: &mut DatagramState, side: Side, payload: &[u8]) -> Answer {
        if let Some(answer) = state.settled() {
            return answer;
        }
        if payload.is_empty() {
            return Answer::More;
        }
        let bytes = Bytes::datagram(payload);
        let found = self.datagrams.read(&bytes, side);
        let answer = state.advance(found, side, &bytes);
        state.settle(answer)
    }

    /// Returns the final answer for a UDP session that has ended.
    #[must_use]
    pub fn datagrams_end(&self, state: &DatagramState) -> Answer {
        state.settled().unwrap_or_else(|| state.end())
    }

    /// Returns the name of a protocol; an empty string if it has another number than any of these signatures.
    #[must_use]
    pub fn name(&self, protocol: Protocol) -> &str {
        self.protocols.get(usize::from(protocol.0)).map_or("", |about| &about.name)
    }

    /// Returns the protocol of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Protocol> {
        self.protocols().find(|(_, about)| about.name == name).map(|(protocol, _)| protocol)
    }

    /// Returns all protocols, in the order of their numbers.
    pub fn protocols(&self) -> impl Iterator<Item = (Protocol, &About)> {
        self.protocols.iter().enumerate().map(|(number, about)| (Protocol(number as u16), about))
    }

    /// Returns the memory that the compiled patterns take, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        [&self.initiator.automaton, &self.responder.automaton, &self.datagrams.automaton]
            .iter()
            .map(|automaton| automaton.memory())
            .sum()
    }

    /// The patterns of an automaton, in the order of their numbers.
    #[cfg(test)]
    pub(crate) fn regexes(&self, reads: Reads) -> Vec<&str> {
        let patterns = match reads {
            Reads::Initiator => &self.initiator.patterns,
            Reads::Responder => &self.responder.patterns,
            Reads::Datagrams => &self.datagrams.patterns,
        };
        patterns.iter().map(|compiled| compiled.pattern.regex.as_str()).collect()
    }

    /// Checks the examples of a file. A `match` must have the name of its protocol, and a `miss` must not.
    pub(crate) fn check_examples(&self, read: &SignatureFile, file: &str) -> Result<(), Error> {
        for Vector { protocol, carrier, side, bytes, matches, line } in &read.vectors {
            let answer = match (carrier, side) {
                (Carrier::Tcp, Side::Initiator) => self.stream(&Prefixes {
                    initiator: bytes,
                    initiator_ended: true,
                    responder_ended: true,
                    ..Prefixes::default()
                }),
                (Carrier::Tcp, Side::Responder) => self.stream(&Prefixes {
                    responder: bytes,
                    initiator_ended: true,
                    responder_ended: true,
                    ..Prefixes::default()
                }),
                (Carrier::Udp, side) => {
                    let mut state = DatagramState::default();
                    let _first = self.datagram(&mut state, *side, bytes);
                    self.datagrams_end(&state)
                }
            };
            let told = answer.protocol().map(|protocol| self.name(protocol));
            let name = read.protocols[*protocol].name.as_str();
            if (told == Some(name)) != *matches {
                let told = told.unwrap_or("no protocol");
                let message = if *matches {
                    format!("this example should be {name}, and is {told}")
                } else {
                    format!("this example should not be {name}, and is")
                };
                return Err(Error { file: file.to_owned(), line: *line, column: 1, message });
            }
        }
        Ok(())
    }
}

/// Both sides as decoders read them.
pub(crate) fn both<'a>(prefixes: &Prefixes<'a>) -> [Bytes<'a>; 2] {
    let side =
        |bytes: &'a [u8], ended: bool| Bytes::stream(&bytes[..bytes.len().min(LIMIT)], ended || bytes.len() >= LIMIT);
    [side(prefixes.initiator, prefixes.initiator_ended), side(prefixes.responder, prefixes.responder_ended)]
}

/// Adds a file's protocols and patterns.
fn add(
    protocols: &mut Vec<About>,
    patterns: &mut Vec<Compiled>,
    read: &SignatureFile,
    file: &str,
) -> Result<(), Error> {
    let mut numbers = Vec::new();
    for Declared { name, category, source, line } in &read.protocols {
        let error = |message: String| Error { file: file.to_owned(), line: *line, column: 1, message };
        let number = protocols.iter().position(|about| about.name == *name);
        let number = match (number, category) {
            (Some(number), _) => number,
            (None, None) => return Err(error(format!("`{name}` is a new protocol: write its category behind it"))),
            (None, Some(category)) => {
                if source.is_empty() {
                    return Err(error(format!("`{name}` needs a line `source`: the specification, or who says so")));
                }
                let (by_decoder, by_pattern) = (false, false);
                let (category, source) = (category.clone(), source.clone());
                protocols.push(About { name: name.clone(), category, by_decoder, by_pattern, source });
                protocols.len() - 1
            }
        };
        if protocols.len() > usize::from(u16::MAX) {
            return Err(error("there are more than 65535 protocols".to_owned()));
        }
        numbers.push(number);
    }
    for pattern in &read.patterns {
        let number = numbers[pattern.protocol];
        protocols[number].by_pattern = true;
        let found = Found { protocol: Protocol(number as u16), confidence: pattern.confidence };
        patterns.push(Compiled { found, rank: NONE, pattern: pattern.clone() });
    }
    Ok(())
}

fn compile(patterns: &[Compiled]) -> Result<Automaton, String> {
    let regexes: Vec<&str> = patterns.iter().map(|compiled| compiled.pattern.regex.as_str()).collect();
    Automaton::new(&regexes, SIZE_MAX)
}

/// Finds the place to blame if the automaton of all patterns grows too large: the largest pattern of a user's.
fn too_large(patterns: &[Compiled], user: Option<(&SignatureFile, &str)>, error: &str) -> Error {
    let own = |compiled: &&Compiled| user.is_some_and(|(read, _)| read.patterns.contains(&compiled.pattern));
    let size =
        |compiled: &&Compiled| compile(&[(*compiled).clone()]).map_or(usize::MAX, |automaton| automaton.memory());
    let largest = patterns.iter().filter(own).max_by_key(size);
    let (line, column) = largest.map_or((1, 1), |compiled| (compiled.pattern.line, compiled.pattern.column));
    let file = user.map_or_else(String::new, |(_, file)| file.to_owned());
    let message = format!(
        "all patterns together are too large ({error}); this is the largest of yours: bound its repetitions, as in `.{{0,20}}`"
    );
    Error { file, line, column, message }
}
