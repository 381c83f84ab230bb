//! The configuration of `flow-buffer`, checked while it is read.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nf::ConfigKey;
use serde::Deserialize;

use super::side::HEAD_MAX;
use crate::config::{Count, Pattern};
use crate::streams::{STREAM_KEYS, StreamConfig, StreamKeys};
use crate::tracking::rules::join_keys;

/// The configuration of [`FlowBuffer`](super::FlowBuffer).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(Fields);

/// The keys of the configuration file. Defaults and meanings: `docs/flow-buffer.md`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    bytes: Count<1, { HEAD_MAX as u64 }>,
    patterns: Vec<Pattern<HEAD_MAX>>,
    block: bool,
    drop_contradictions: bool,
    top: Count<0, 10_000>,
    streams: StreamConfig,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            bytes: Count::new(HEAD_MAX as u64),
            patterns: Vec::new(),
            block: true,
            drop_contradictions: false,
            top: Count::new(10),
            streams: StreamConfig::default(),
        }
    }
}

/// Maximum number of patterns: a session stores the number of its pattern in a byte.
const PATTERNS_MAX: usize = 255;

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        if fields.patterns.len() > PATTERNS_MAX {
            return Err(format!("there are {} `patterns`: {PATTERNS_MAX} at most", fields.patterns.len()));
        }
        let len = fields.bytes.get() as usize;
        // It could never match.
        match fields.patterns.iter().find(|pattern| pattern.bytes.len() > len) {
            Some(pattern) => Err(format!("`{}` is longer than `bytes` ({len})", pattern.text)),
            None => Ok(Self(fields)),
        }
    }
}

impl Config {
    pub(super) const fn head_len(&self) -> usize {
        self.0.bytes.get() as usize
    }

    /// Returns the number of the shortest pattern that matches, counted from 1; 0 for none. It is complete before all others, however the
    /// bytes were cut.
    pub(super) fn matching(&self, head: &[u8]) -> u8 {
        let fits = self.0.patterns.iter().enumerate().filter(|(_, pattern)| head.starts_with(&pattern.bytes));
        fits.min_by_key(|(_, pattern)| pattern.bytes.len()).map_or(0, |(at, _)| at as u8 + 1)
    }

    /// Returns the text of the pattern with this number.
    pub(super) fn name(&self, pattern: u8) -> &str {
        let at = usize::from(pattern).checked_sub(1).and_then(|at| self.0.patterns.get(at));
        at.map_or("-", |pattern| &pattern.text)
    }

    pub(super) const fn blocks(&self) -> bool {
        self.0.block
    }

    pub(super) const fn drops_contradictions(&self) -> bool {
        self.0.drop_contradictions
    }

    pub(super) const fn drops_nothing(&self) -> bool {
        (self.0.patterns.is_empty() || !self.0.block) && !self.0.drop_contradictions
    }

    /// The settings of reassembly. Where contradictions are dropped, the receiver gets first copies alone, so those count.
    pub(super) fn streams(&self) -> StreamConfig {
        if self.0.drop_contradictions { self.0.streams.taking_first() } else { self.0.streams }
    }

    pub(super) const fn top(&self) -> usize {
        self.0.top.get() as usize
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

const OWN_KEYS: [ConfigKey; 5] = [
    key("bytes", "64", "number of bytes to keep of each side; 1 to 64"),
    key(
        "patterns",
        "[]",
        "patterns to look for at the beginning, as text or as \"hex:16 03 01\"; up to 255, each up to `bytes` bytes long",
    ),
    key("block", "true", "drop sessions with a pattern; if false, they are only reported"),
    key("drop_contradictions", "false", "drop segments that contradict earlier bytes"),
    key("top", "10", "number of sessions in the report; 0 to 10000"),
];

pub(super) const KEYS: [ConfigKey; OWN_KEYS.len() + size_of::<StreamKeys>() / size_of::<ConfigKey>()] =
    join_keys(&OWN_KEYS, &STREAM_KEYS);

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn patterns_are_text_or_digits() {
        let config: Config = toml::from_str("patterns = [\"GET \", \"hex:16 0301\"]").unwrap();
        let of = |head: &[u8]| config.name(config.matching(head)).to_string();
        assert_eq!(of(b"GET / HTTP/1.1"), "GET ");
        assert_eq!(of(&[0x16, 3, 1, 2]), "hex:16 0301");
        assert_eq!((of(b"GET"), of(&[]), of(&[0x16, 3])), ("-".into(), "-".into(), "-".into()));
    }

    #[test]
    fn the_pattern_that_is_complete_first_matches() {
        let config: Config = toml::from_str("patterns = [\"GET /\", \"GET \", \"GE\"]").unwrap();
        assert_eq!(["GET /x", "GET", "G"].map(|head| config.name(config.matching(head.as_bytes()))), ["GE", "GE", "-"]);
    }

    #[test]
    fn patterns_that_cannot_be_are_refused() {
        for (text, says) in [
            ("patterns = [\n\"\"]", "line 2, column 1"),
            ("patterns = [\"hex:1\"]", "digits in pairs"),
            ("patterns = [\"hex:zz\"]", "digits in pairs"),
            ("bytes = 3\npatterns = [\"GET \"]", "longer than `bytes` (3)"),
            ("bytes = 65", "from 1 to 64"),
            ("pattern = []", "unknown field"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let many: String = (0..256).map(|number| format!("\"{number}\",")).collect();
        assert!(toml::from_str::<Config>(&format!("patterns = [{many}]")).unwrap_err().to_string().contains("255"));
    }
}
