//! The rows of a table that shows only the first ones.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::mem::take;

/// Keeps the rows with the smallest keys, and counts all. A key is one row's alone.
#[derive(Debug)]
pub(super) struct First<K, R> {
    /// Maximum number of rows kept; 0 for all.
    most: usize,
    /// The row with the greatest key on top.
    kept: BinaryHeap<Keyed<K, R>>,
    all: u64,
}

/// A row with its key.
#[derive(Debug)]
struct Keyed<K, R>(K, R);

impl<K: Ord, R> First<K, R> {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, kept: BinaryHeap::new(), all: 0 }
    }

    pub(super) fn add(&mut self, key: K, row: R) {
        self.all += 1;
        self.kept.push(Keyed(key, row));
        if self.most > 0 && self.kept.len() > self.most {
            self.kept.pop();
        }
    }

    /// Number of rows that were added.
    pub(super) const fn all(&self) -> u64 {
        self.all
    }

    /// Takes out the rows kept, by their keys.
    pub(super) fn take_rows(&mut self) -> Vec<R> {
        take(&mut self.kept).into_sorted_vec().into_iter().map(|Keyed(_, row)| row).collect()
    }
}

impl<K: Ord, R> Ord for Keyed<K, R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<K: Ord, R> PartialOrd for Keyed<K, R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord, R> PartialEq for Keyed<K, R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<K: Ord, R> Eq for Keyed<K, R> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_ones_are_kept(mut keys in proptest::collection::vec(0..50u64, 0..60), most in 0..20usize) {
            let mut first = First::new(most);
            keys.iter().for_each(|key| first.add(*key, *key));
            prop_assert_eq!(first.all(), keys.len() as u64);
            keys.sort_unstable();
            keys.truncate(if most == 0 { usize::MAX } else { most });
            prop_assert_eq!(first.take_rows(), keys);
        }
    }
}
