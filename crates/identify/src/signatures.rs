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
use crate::automaton::{Automaton, NONE, PATTERN_SIZE_MAX, SIZE_MAX};
use crate::bytes::{Bytes, Found};
use crate::file::{Carrier, Declared, Error, SignatureFile, Vector};
use crate::protocol::BUILT_IN;
use crate::session::DatagramState;

/// The built-in signature files with their names.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("decoders.sig", include_str!("../signatures/decoders.sig")),
    ("web.sig", include_str!("../signatures/web.sig")),
    ("mail.sig", include_str!("../signatures/mail.sig")),
    ("data.sig", include_str!("../signatures/data.sig")),
    ("industry.sig", include_str!("../signatures/industry.sig")),
    ("network.sig", include_str!("../signatures/network.sig")),
    ("media.sig", include_str!("../signatures/media.sig")),
    ("systems.sig", include_str!("../signatures/systems.sig")),
    ("games.sig", include_str!("../signatures/games.sig")),
];

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
    /// Compiles the built-in signatures. This takes a while: share the result.
    ///
    /// # Panics
    /// Never: the tests compile the same files.
    #[must_use]
    pub fn built_in() -> Self {
        Self::new(None).expect("the built-in files are tested")
    }

    /// The built-in signatures, compiled at the first call.
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
        let mut built_in = Vec::new();
        for (name, text) in FILES {
            built_in.push((SignatureFile::parse(text, name)?, *name));
        }
        let user_patterns = user.map_or(0, |(read, _)| read.patterns.len());
        for (read, name) in &built_in {
            add(&mut protocols, &mut patterns, read, name)?;
        }
        if let Some((read, name)) = user {
            add(&mut protocols, &mut patterns, read, name)?;
        }
        patterns.rotate_right(user_patterns);

        let of = |carrier, side: Option<Side>| -> Vec<Compiled> {
            let fits = |pattern: &&Compiled| {
                let sent = pattern.pattern.side;
                pattern.pattern.carrier == carrier && (side.is_none() || sent.is_none() || sent == side)
            };
            patterns.iter().filter(fits).cloned().collect()
        };
        let [initiator, responder] =
            directions(of(Carrier::Tcp, Some(Side::Initiator)), of(Carrier::Tcp, Some(Side::Responder)));
        let all = [(&initiator.patterns, "tcp"), (&responder.patterns, "tcp")];
        let datagrams = Datagrams::new(of(Carrier::Udp, None));
        let fail = |patterns: &[Compiled], error: String| too_large(patterns, user, &error);
        let [a, b] = all.map(|(patterns, _)| compile(patterns));
        let a = a.map_err(|error| fail(&initiator.patterns, error))?;
        let b = b.map_err(|error| fail(&responder.patterns, error))?;
        let c = compile(&datagrams.patterns).map_err(|error| fail(&datagrams.patterns, error))?;
        Ok(Self { protocols, initiator: initiator.with(a), responder: responder.with(b), datagrams: datagrams.with(c) })
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
