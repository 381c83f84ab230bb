//! Looks for patterns in what both sides of a session say: the smallest function over streams, to be copied by authors.
//!
//! Behaviour and choices: `docs/stream-match.md`.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, MatchKind};
use nf::{ConfigKey, Description, Flow, Report, Sharing};
use packet::FiveTuple;
use serde::Deserialize;

use crate::config::Pattern;
use crate::list::Catalogued;
use crate::streams::{Hearing, STREAM_KEYS, Said, Session, StreamConfig, StreamFunction, StreamKeys, Streams, Tallies};
use crate::tracking::rules::join_keys;

/// The `stream-match` function: all patterns in one automaton.
#[derive(Clone, Debug)]
pub struct StreamMatch {
    patterns: Vec<String>,
    automaton: DFA,
    start: StateID,
    action: Action,
}

/// The state of a session: where the automaton is on each side, and the first pattern that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matching {
    states: [StateID; 2],
    found: Option<u16>,
}

impl Flow for Matching {}

/// The fate of a session with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is counted.
    Count,
    /// The packet that completes the pattern is dropped, and all behind it.
    Drop,
    /// They are answered with a TCP reset, and dropped.
    Reset,
}

/// The configuration of [`StreamMatch`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Patterns to look for.
    patterns: Patterns,
    /// The fate of a session with a pattern.
    action: Action,
    /// Reassembly and tracking.
    streams: StreamConfig,
}

/// Few and short enough patterns that their automaton is small.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Vec<Pattern<PATTERN_MAX>>")]
struct Patterns(Vec<Pattern<PATTERN_MAX>>);

const PATTERN_MAX: usize = 64;
const PATTERNS_MAX: usize = 1000;

impl TryFrom<Vec<Pattern<PATTERN_MAX>>> for Patterns {
    type Error = String;

    fn try_from(patterns: Vec<Pattern<PATTERN_MAX>>) -> Result<Self, String> {
        match patterns.len() {
            0..=PATTERNS_MAX => Ok(Self(patterns)),
            len => Err(format!("there are {len} `patterns`: {PATTERNS_MAX} at most")),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { patterns: Patterns::default(), action: Action::Count, streams: StreamConfig::default() }
    }
}

const KEYS: [ConfigKey; 2 + size_of::<StreamKeys>() / size_of::<ConfigKey>()] = join_keys(
    &[
        ConfigKey {
            name: "patterns",
            default: "[]",
            help: "what to look for: texts, or \"hex:16 03\"; at most 1000 of 64 bytes",
        },
        ConfigKey {
            name: "action",
            default: "\"count\"",
            help: "what happens to a session with a pattern: \"count\", \"drop\", or \"reset\" (TCP)",
        },
    ],
    &STREAM_KEYS,
);

impl StreamMatch {
    fn new(patterns: &Patterns, action: Action) -> Self {
        let automaton = DFA::builder().match_kind(MatchKind::Standard).build(patterns.0.iter().map(|one| &one.bytes));
        let automaton = automaton.expect("the number of patterns and their lengths are limited");
        let start = automaton.start_state(Anchored::No).expect("an automaton without anchor has this state");
        Self { patterns: patterns.0.iter().map(|one| one.text.clone()).collect(), automaton, start, action }
    }
}

impl StreamFunction for StreamMatch {
    type Flow = Matching;

    const DESCRIPTION: Description = Description {
        name: "stream-match",
        summary: "looks for patterns in what both sides of a session say, and counts, drops or resets sessions that have one",
        state: "where the automaton is on each side, and the first pattern that was found",
        sharing: Sharing::Streams,
        keys: &KEYS,
        drop_reasons: &["pattern"],
        recipes: &[],
    };

    fn counters(&self) -> usize {
        self.patterns.len()
    }

    fn drops(&self) -> bool {
        self.action != Action::Count
    }

    fn open(&self, _: &Session) -> Matching {
        Matching { states: [self.start; 2], found: None }
    }

    fn hear(&self, cx: &mut Hearing<'_>, flow: &mut Matching, said: Said<'_>) {
        let state = &mut flow.states[said.direction() as usize];
        let bytes = match said {
            Said::Data(_, bytes) => bytes,
            // A pattern doesn't reach over a gap, or from one datagram into the next.
            Said::Gap(..) => return *state = self.start,
            Said::Datagram(_, bytes) => {
                *state = self.start;
                bytes
            }
            Said::Deviation(..) | Said::End(_) => return,
        };
        for byte in bytes {
            *state = self.automaton.next_state(Anchored::No, *state, *byte);
            if self.automaton.is_special(*state) && self.automaton.is_match(*state) {
                let pattern = self.automaton.match_pattern(*state, 0);
                flow.found = Some(pattern.as_usize() as u16);
                cx.count(pattern.as_usize(), 0);
                match self.action {
                    Action::Count => cx.enough_of_both(),
                    Action::Drop => cx.drop(0),
                    Action::Reset => cx.reset(),
                }
                return;
            }
        }
    }

    fn report(&self, _: &mut dyn Iterator<Item = (FiveTuple, Matching)>, tallies: &Tallies<'_>) -> Option<Report> {
        let row =
            |(number, pattern): (usize, &String)| vec![pattern.as_str().into(), tallies.own(number).packets.into()];
        Some(Report {
            title: String::from("sessions by the first pattern found"),
            columns: vec!["pattern", "sessions"],
            rows: self.patterns.iter().enumerate().map(row).collect(),
        })
    }
}

impl Catalogued for Streams<StreamMatch> {
    type Config = Config;

    const CRAMPED: &'static str = "patterns = [\"GET \"]\nstreams = { flows = 64, flows_v6 = 64 }";
    const SMALL: &'static str =
        "patterns = [\"HTTP/1\", \"ssl\"]\naction = \"drop\"\nstreams = { flows = 1000, flows_v6 = 1000 }";

    fn from_config(config: Config) -> Self {
        Self::new(StreamMatch::new(&config.patterns, config.action), &config.streams)
    }
}
