//! One automaton for all patterns of a direction.
//!
//! Patterns are anchored at the first byte. For each state, `later` has the best pattern that may still match. So the automaton knows when
//! its answer is final.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use regex_automata::dfa::{Automaton as _, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind};

/// Stands for no pattern. Patterns have smaller numbers, the best the smallest.
pub(crate) const NONE: u16 = u16::MAX;

/// Memory of the automaton of one pattern, at most.
pub(crate) const PATTERN_SIZE_MAX: usize = 2 << 20;

/// The compiled patterns of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Automaton {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
    /// The best pattern that may match behind each state.
    later: Vec<u16>,
}

/// What the automaton says about some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The best pattern that matches.
    pub(crate) matched: u16,
    /// The best pattern that matches if certain bytes follow.
    pub(crate) later: u16,
}

/// How patterns are read: of bytes, not of characters; a dot is any byte.
pub(crate) fn syntax() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).dot_matches_new_line(true)
}

impl Automaton {
    /// Compiles patterns, the best first, in at most `size_max` bytes.
    pub(crate) fn new(patterns: &[&str], size_max: usize) -> Result<Self, String> {
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(regex_automata::dfa::StartKind::Anchored)
            .accelerate(false)
            .dfa_size_limit(Some(size_max))
            .determinize_size_limit(Some(size_max));
        let dfa = dense::Builder::new()
            .configure(config)
            .syntax(syntax())
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(size_max)))
            .build_many(patterns)
            .map_err(|error| error.to_string())?;
        let start = start_state(&dfa)?;
        let later = best_later(&dfa, start);
        Ok(Self { dfa, start, later })
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written. The bytes of the states are aligned to four.
    pub(crate) fn from_bytes(states: &[u8], later: &[u8]) -> Result<Self, String> {
        let (dfa, _) = dense::DFA::from_bytes(states).map_err(|error| error.to_string())?;
        let dfa = dfa.to_owned();
        let start = start_state(&dfa)?;
        let later = later.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        Ok(Self { dfa, start, later })
    }

    /// The states, for a target of this byte order, and for each the best pattern that may still match.
    #[allow(dead_code, reason = "the build script and tests write automata")]
    pub(crate) fn to_bytes(&self, is_big_endian: bool) -> [Vec<u8>; 2] {
        let (bytes, padding) =
            if is_big_endian { self.dfa.to_bytes_big_endian() } else { self.dfa.to_bytes_little_endian() };
        [bytes[padding..].to_vec(), self.later.iter().flat_map(|pattern| pattern.to_le_bytes()).collect()]
    }

    /// Returns the size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.dfa.memory_usage() + 2 * self.later.len()
    }

    /// Runs over the bytes. `fits` can refuse a pattern that matches.
    #[inline]
    pub(crate) fn run(&self, bytes: &[u8], fits: impl Fn(u16) -> bool) -> Seen {
        let mut state = self.start;
        let mut matched = NONE;
        for byte in bytes {
            state = self.dfa.next_state(state, *byte);
            if self.dfa.is_special_state(state) {
                if self.dfa.is_dead_state(state) || self.dfa.is_quit_state(state) {
                    return Seen { matched, later: NONE };
                }
                if self.dfa.is_match_state(state) {
                    matched = matched.min(self.best(state, &fits));
                    if matched <= self.later(state) {
                        // Patterns that match exactly here are found by one step more.
                        matched = matched.min(self.best_at_end(state, &fits));
                        return Seen { matched, later: NONE };
                    }
                }
            }
        }
        matched = matched.min(self.best_at_end(state, &fits));
        let later = self.later(state);
        Seen { matched, later: if matched <= later { NONE } else { later } }
    }

    fn later(&self, state: StateID) -> u16 {
        self.later.get(state.as_usize() >> self.dfa.stride2()).copied().unwrap_or(NONE)
    }

    /// The best pattern of a match state.
    fn best(&self, state: StateID, fits: &impl Fn(u16) -> bool) -> u16 {
        let patterns =
            (0..self.dfa.match_len(state)).map(|index| self.dfa.match_pattern(state, index).as_usize() as u16);
        patterns.filter(|pattern| fits(*pattern)).min().unwrap_or(NONE)
    }

    /// The best pattern that matches exactly up to a state. The automaton reports matches one byte late.
    fn best_at_end(&self, state: StateID, fits: &impl Fn(u16) -> bool) -> u16 {
        let end = self.dfa.next_eoi_state(state);
        if self.dfa.is_match_state(end) { self.best(end, fits) } else { NONE }
    }
}

fn start_state(dfa: &dense::DFA<Vec<u32>>) -> Result<StateID, String> {
    dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).map_err(|error| error.to_string())
}

/// For each state, the best pattern that matches after one byte more, or later.
fn best_later(dfa: &dense::DFA<Vec<u32>>, start: StateID) -> Vec<u16> {
    let index = |state: StateID| state.as_usize() >> dfa.stride2();
    let now = |state: StateID| {
        let end = dfa.next_eoi_state(state);
        let all = 0..if dfa.is_match_state(end) { dfa.match_len(end) } else { 0 };
        all.map(|at| dfa.match_pattern(end, at).as_usize() as u16).min().unwrap_or(NONE)
    };
    // All states in order of discovery, with their successors.
    let mut found = vec![start];
    let mut known = vec![false; index(start) + 1];
    known[index(start)] = true;
    let mut edges: Vec<(StateID, StateID)> = Vec::new();
    let mut at = 0;
    while at < found.len() {
        let state = found[at];
        at += 1;
        if dfa.is_dead_state(state) {
            continue;
        }
        let mut last = None;
        for byte in 0..=255 {
            let next = dfa.next_state(state, byte);
            if last == Some(next) || dfa.is_dead_state(next) {
                continue;
            }
            last = Some(next);
            edges.push((state, next));
            if known.len() <= index(next) {
                known.resize(index(next) + 1, false);
            }
            if !known[index(next)] {
                known[index(next)] = true;
                found.push(next);
            }
        }
    }
    let mut later = vec![NONE; known.len()];
    let here: Vec<u16> = {
        let mut here = vec![NONE; known.len()];
        for state in &found {
            here[index(*state)] = now(*state);
        }
        here
    };
    // Backwards, since most edges lead to states that were found later; again while something changes.
    loop {
        let mut changed = false;
        for (from, to) in edges.iter().rev() {
            let best = here[index(*to)].min(later[index(*to)]);
            if best < later[index(*from)] {
                later[index(*from)] = best;
                changed = true;
            }
        }
        if !changed {
            return later;
        }
    }
}
