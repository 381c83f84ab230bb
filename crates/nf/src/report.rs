//! Reports: the table that a function prints at the end of a run, and fingerprints of state.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A report: one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The title of the table.
    pub title: String,
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of the table. JSON gets numbers as numbers; printed counts are grouped by thousands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text: a name, an address.
    Text(String),
    /// A count.
    Count(u64),
    /// A number that isn't a count, such as a time. It is printed without grouping.
    Number(u64),
}

impl Cell {
    /// The number of a count or number cell.
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

/// Printed form: `GET`, `35,169`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => f.write_str(&grouped(*count)),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Compares the printed form.
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

/// A count with its noun: `1 packet`, `35,169 packets`.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let mut out = grouped(count);
    out.push(' ');
    out.push_str(if count == 1 { one } else { many });
    out
}

/// A count grouped by thousands: `35,169`.
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

/// A digest of state, for comparing runs. The order of the words matters.
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
