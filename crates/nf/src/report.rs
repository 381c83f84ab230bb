//! What a function has to tell at the end of a run.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A table of findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the table shows.
    pub title: String,
    /// The columns' names.
    pub columns: Vec<&'static str>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// What stands in a table: programs are given numbers as numbers, people as they read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A name, an address, some words.
    Text(String),
    /// How many there are of something.
    Count(u64),
    /// A number that counts nothing, a time for instance.
    Number(u64),
}

impl Cell {
    /// The number, if it is one.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Text(_) => None,
            Self::Count(number) | Self::Number(number) => Some(*number),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

/// As people read it: `GET`, `35,169`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => f.write_str(&grouped(*count)),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// As it is shown.
impl PartialEq<str> for Cell {
    fn eq(&self, shown: &str) -> bool {
        self.to_string().as_str() == shown
    }
}

impl PartialEq<&str> for Cell {
    fn eq(&self, shown: &&str) -> bool {
        self == *shown
    }
}

/// So many of something as people read it: `1 packet`, `35,169 packets`.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let mut out = grouped(count);
    out.push(' ');
    out.push_str(if count == 1 { one } else { many });
    out
}

/// A count as people read it: `35,169`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A digest of a state, to compare two runs by: order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Adds a word.
    pub const fn add(&mut self, word: u64) {
        let product = ((self.0 ^ word) as u128).wrapping_mul(0x2d35_8dcc_aa6c_78a5_8bb8_4b93_962e_acc9);
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23) ^ 0x9e37_79b9_7f4a_7c15;
    }

    /// The digest.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_other_numbers_are_not() {
        for (count, shown) in [(0, "0"), (999, "999"), (1_000, "1,000"), (35_169, "35,169"), (1_000_000, "1,000,000")] {
            assert_eq!(grouped(count), shown);
        }
        assert_eq!(Cell::from(1_700_000_000_u64), "1,700,000,000");
        assert_eq!(Cell::Number(1_700_000_000), "1700000000");
        assert_eq!(Cell::from("1000"), "1000");
    }
}
