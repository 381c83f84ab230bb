//! The signatures of a direction in their order, and how they are asked.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::answer::{Answer, How, Identified, Side};
use crate::automaton::{Automaton, NONE};
use crate::bytes::{Bytes, Found, Stop};
use crate::decoder::{Reads, by_first_byte};
use crate::file::Pattern;
use crate::{datagram, stream};

/// A pattern that an automaton knows by its number.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) found: Found,
    pub(super) rank: u16,
    pub(super) pattern: Pattern,
}

/// What reads one side of streams.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    pub(super) automaton: Automaton,
    pub(super) patterns: Vec<Compiled>,
    /// Decoders, the best first. A smaller rank is better.
    decoders: Vec<(u16, Reads)>,
    /// For each first byte, the decoders that take it.
    by_first_byte: Box<[u128; 256]>,
    /// The rank of the best signature of this side.
    pub(super) best: u16,
}

/// What reads datagrams.
#[derive(Clone, Debug)]
pub(super) struct Datagrams {
    pub(super) automaton: Automaton,
    pub(super) patterns: Vec<Compiled>,
    /// Decoders by their index in the list, the best first.
    decoders: Vec<(u16, usize)>,
    by_first_byte: Box<[u128; 256]>,
}

/// The best finding, and the best signature that is still open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    yes: u16,
    open: u16,
    pub(super) found: Option<(Found, How)>,
}

impl Best {
    pub(super) const NOTHING: Self = Self { yes: NONE, open: NONE, found: None };

    /// Returns true if signatures of this rank and worse ones cannot change the answer.
    pub(super) const fn is_settled_before(&self, rank: u16) -> bool {
        self.yes < rank || self.open < rank
    }

    fn take(&mut self, rank: u16, found: Found, how: How) {
        if rank < self.yes {
            (self.yes, self.found) = (rank, Some((found, how)));
        }
    }

    pub(super) fn answer(&self) -> Answer {
        match self.found {
            _ if self.open < self.yes => Answer::More,
            Some((found, how)) => Answer::Is(identified(found, how)),
            None => Answer::Unknown,
        }
    }
}

pub(super) fn identified(found: Found, how: How) -> Identified {
    Identified { protocol: found.protocol, confidence: found.confidence, how }
}

/// A direction whose automaton is not compiled yet.
pub(super) struct Ranked {
    pub(super) patterns: Vec<Compiled>,
    decoders: Vec<(u16, Reads)>,
    by_first_byte: Box<[u128; 256]>,
    pub(super) best: u16,
}

impl Ranked {
    pub(super) fn with(self, automaton: Automaton) -> Direction {
        let Self { patterns, decoders, by_first_byte, best } = self;
        Direction { automaton, patterns, decoders, by_first_byte, best }
    }
}

/// Orders the signatures of both directions: by priority, then the initiator's first, then decoders first.
pub(super) fn directions(initiator: Vec<Compiled>, responder: Vec<Compiled>) -> [Ranked; 2] {
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
    pub(super) fn read(&self, own: &Bytes<'_>, initiator: &Bytes<'_>, responder: &Bytes<'_>, best: &mut Best) {
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
pub(super) struct RankedDatagrams {
    pub(super) patterns: Vec<Compiled>,
    decoders: Vec<(u16, usize)>,
    by_first_byte: Box<[u128; 256]>,
}

impl RankedDatagrams {
    pub(super) fn with(self, automaton: Automaton) -> Datagrams {
        let Self { patterns, decoders, by_first_byte } = self;
        Datagrams { automaton, patterns, decoders, by_first_byte }
    }
}

impl Datagrams {
    /// Orders the signatures: by priority, then decoders first.
    #[allow(clippy::new_ret_no_self)]
    pub(super) fn new(all: Vec<Compiled>) -> RankedDatagrams {
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
    pub(super) fn read(&self, bytes: &Bytes<'_>, side: Side) -> Option<(Identified, u8)> {
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
