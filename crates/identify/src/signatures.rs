//! All signatures, compiled.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::answer::{Answer, How, Identified, LIMIT, Prefixes, Protocol, Side};
use crate::automaton::{Automaton, NONE, PATTERN_SIZE_MAX, SIZE_MAX};
use crate::bytes::{Bytes, Found, Stop};
use crate::decoder::{Reads, by_first_byte};
use crate::file::{Carrier, Declared, Error, Pattern, SignatureFile, Vector};
use crate::protocol::BUILT_IN;
use crate::session::DatagramState;
use crate::{datagram, stream};

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

/// A pattern that an automaton knows by its number.
#[derive(Clone, Debug)]
struct Compiled {
    found: Found,
    rank: u16,
    pattern: Pattern,
}

/// What reads one side of streams.
#[derive(Clone, Debug)]
struct Direction {
    automaton: Automaton,
    patterns: Vec<Compiled>,
    /// Decoders, the best first. A smaller rank is better.
    decoders: Vec<(u16, Reads)>,
    /// For each first byte, the decoders that take it.
    by_first_byte: Box<[u128; 256]>,
    /// The rank of the best signature of this side.
    best: u16,
}

/// What reads datagrams.
#[derive(Clone, Debug)]
struct Datagrams {
    automaton: Automaton,
    patterns: Vec<Compiled>,
    /// Decoders by their index in the list, the best first.
    decoders: Vec<(u16, usize)>,
    by_first_byte: Box<[u128; 256]>,
}

/// The best finding, and the best signature that is still open.
#[derive(Clone, Copy, Debug)]
struct Best {
    yes: u16,
    open: u16,
    found: Option<(Found, How)>,
}

impl Best {
    const NOTHING: Self = Self { yes: NONE, open: NONE, found: None };

    /// Returns true if signatures of this rank and worse ones cannot change the answer.
    const fn is_settled_before(&self, rank: u16) -> bool {
        self.yes < rank || self.open < rank
    }

    fn take(&mut self, rank: u16, found: Found, how: How) {
        if rank < self.yes {
            (self.yes, self.found) = (rank, Some((found, how)));
        }
    }

    fn answer(&self) -> Answer {
        match self.found {
            _ if self.open < self.yes => Answer::More,
            Some((found, how)) => Answer::Is(identified(found, how)),
            None => Answer::Unknown,
        }
    }
}

fn identified(found: Found, how: How) -> Identified {
    Identified { protocol: found.protocol, confidence: found.confidence, how }
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

/// A direction whose automaton is not compiled yet.
struct Ranked {
    patterns: Vec<Compiled>,
    decoders: Vec<(u16, Reads)>,
    by_first_byte: Box<[u128; 256]>,
    best: u16,
}

impl Ranked {
    fn with(self, automaton: Automaton) -> Direction {
        let Self { patterns, decoders, by_first_byte, best } = self;
        Direction { automaton, patterns, decoders, by_first_byte, best }
    }
}

/// Orders the signatures of both directions: by priority, then the initiator's first, then decoders first.
fn directions(initiator: Vec<Compiled>, responder: Vec<Compiled>) -> [Ranked; 2] {
    // (priority reversed, direction, 0 for decoders, index)
    let mut order: Vec<(u8, usize, u8, usize)> = Vec::new();
    let decoders = stream::DECODERS;
    let in_direction = |reads: &Reads, direction| match reads {
        Reads::Initiator(_) | Reads::Both(_) => direction == 0,
        Reads::Responder(_) | Reads::BothByResponder(_) => direction == 1,
        Reads::Either(_) => true,
    };
    for (direction, patterns) in [&initiator, &responder].into_iter().enumerate() {
        for (index, decoder) in decoders.iter().enumerate().filter(|(_, one)| in_direction(&one.reads, direction)) {
            order.push((99 - decoder.priority, direction, 0, index));
        }
        for (index, compiled) in patterns.iter().enumerate() {
            order.push((99 - compiled.pattern.priority, direction, 1, index));
        }
    }
    order.sort_unstable();
    let mut ranked =
        [Vec::new(), Vec::new()].map(|decoders: Vec<(u16, Reads)>| (Vec::new(), decoders, Vec::new(), NONE));
    for (rank, (_, direction, kind, index)) in order.iter().enumerate() {
        let rank = rank as u16;
        let (patterns, all, firsts, best) = &mut ranked[*direction];
        *best = rank.min(*best);
        if *kind == 0 {
            all.push((rank, decoders[*index].reads));
            firsts.push(&decoders[*index].first);
        } else {
            let source = if *direction == 0 { &initiator } else { &responder };
            let mut compiled: Compiled = source[*index].clone();
            compiled.rank = rank;
            patterns.push(compiled);
        }
    }
    ranked.map(|(patterns, decoders, firsts, best)| Ranked {
        patterns,
        decoders,
        by_first_byte: Box::new(by_first_byte(firsts.into_iter())),
        best,
    })
}

impl Direction {
    /// Asks all signatures of this side that may change the answer.
    #[inline]
    fn read(&self, own: &Bytes<'_>, initiator: &Bytes<'_>, responder: &Bytes<'_>, best: &mut Best) {
        let first = match own.u8(0) {
            Ok(first) => first,
            Err(Stop::More) => {
                best.open = best.open.min(self.best);
                return;
            }
            Err(Stop::No) => return,
        };
        let seen = self.automaton.run(own.whole(), |_| true);
        if let Some(compiled) = self.patterns.get(usize::from(seen.matched)) {
            best.take(compiled.rank, compiled.found, How::Pattern);
        }
        if let Some(compiled) = self.patterns.get(usize::from(seen.later)).filter(|_| !own.is_closed()) {
            best.open = best.open.min(compiled.rank);
        }
        let mut candidates = self.by_first_byte[usize::from(first)];
        while candidates != 0 {
            let (rank, reads) = self.decoders[candidates.trailing_zeros() as usize];
            candidates &= candidates - 1;
            if best.is_settled_before(rank) {
                break;
            }
            let told = match reads {
                Reads::Initiator(read) | Reads::Responder(read) | Reads::Either(read) => read(own),
                Reads::Both(read) | Reads::BothByResponder(read) => read(initiator, responder),
            };
            match told {
                Ok(found) => best.take(rank, found, How::Decoder),
                Err(Stop::More) => best.open = best.open.min(rank),
                Err(Stop::No) => {}
            }
        }
    }
}

/// Datagram signatures whose automaton is not compiled yet.
struct RankedDatagrams {
    patterns: Vec<Compiled>,
    decoders: Vec<(u16, usize)>,
    by_first_byte: Box<[u128; 256]>,
}

impl RankedDatagrams {
    fn with(self, automaton: Automaton) -> Datagrams {
        let Self { patterns, decoders, by_first_byte } = self;
        Datagrams { automaton, patterns, decoders, by_first_byte }
    }
}

impl Datagrams {
    /// Orders the signatures: by priority, then decoders first.
    #[allow(clippy::new_ret_no_self)]
    fn new(all: Vec<Compiled>) -> RankedDatagrams {
        let mut order: Vec<(u8, u8, usize)> = Vec::new();
        order.extend(datagram::DECODERS.iter().enumerate().map(|(index, one)| (99 - one.priority, 0, index)));
        order.extend(all.iter().enumerate().map(|(index, one)| (99 - one.pattern.priority, 1, index)));
        order.sort_unstable();
        let (mut patterns, mut decoders) = (Vec::new(), Vec::new());
        for (rank, (_, kind, index)) in order.iter().enumerate() {
            if *kind == 0 {
                decoders.push((rank as u16, *index));
            } else {
                let mut compiled = all[*index].clone();
                compiled.rank = rank as u16;
                patterns.push(compiled);
            }
        }
        let firsts = decoders.iter().map(|(_, index)| &datagram::DECODERS[*index].first);
        let by_first_byte = Box::new(by_first_byte(firsts));
        RankedDatagrams { patterns, decoders, by_first_byte }
    }

    /// Returns the best finding, and how many datagrams must give it.
    #[inline]
    fn read(&self, bytes: &Bytes<'_>, side: Side) -> Option<(Identified, u8)> {
        let payload = bytes.whole();
        let seen = self.automaton.run(payload, |number| {
            let pattern = &self.patterns[usize::from(number)].pattern;
            let (low, high) = pattern.len;
            (low..=high).contains(&payload.len())
                && pattern.side.is_none_or(|sent| sent == side)
                && pattern.size.is_none_or(|size| size.holds(payload))
        });
        let pattern = self.patterns.get(usize::from(seen.matched));
        let mut candidates = self.by_first_byte[usize::from(payload[0])];
        while candidates != 0 {
            let (rank, index) = self.decoders[candidates.trailing_zeros() as usize];
            candidates &= candidates - 1;
            if pattern.is_some_and(|compiled| compiled.rank < rank) {
                break;
            }
            let decoder = &datagram::DECODERS[index];
            if let Ok(found) = (decoder.read)(bytes) {
                return Some((identified(found, How::Decoder), decoder.repeats));
            }
        }
        pattern.map(|compiled| (identified(compiled.found, How::Pattern), 1))
    }
}
