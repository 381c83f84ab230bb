//! What a function has to tell at the end of a run.

use alloc::string::String;
use alloc::vec::Vec;

/// A table of findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the table shows.
    pub title: String,
    /// The columns' names.
    pub columns: Vec<&'static str>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
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
