//! A list of a transaction's accesses: the first few inline, the rest in a heap buffer that outlives the transaction.

use alloc::vec::Vec;
use core::mem;

/// The read set, the locked objects or the undo log: references with a number each, in order.
///
/// Most transactions have a few entries. The heap buffer is taken over from the handle only when it is needed, since converting its
/// lifetime and giving it back takes as long as a short step.
pub(crate) struct AccessList<'a, T, const INLINE: usize> {
    inline: [Option<(&'a T, u64)>; INLINE],
    /// How many inline entries there are.
    len: usize,
    heap: Vec<(&'a T, u64)>,
}

/// An empty buffer for entries.
pub(crate) type SpareHeap<T> = Vec<(&'static T, u64)>;

impl<'a, T, const INLINE: usize> AccessList<'a, T, INLINE> {
    pub(crate) const fn new() -> Self {
        Self { inline: [None; INLINE], len: 0, heap: Vec::new() }
    }

    /// Adds an entry.
    #[inline(always)]
    pub(crate) fn push(&mut self, word: &'a T, said: u64, spare: &mut SpareHeap<T>) {
        // A burst's transaction has a hundred entries, and has taken the buffer.
        if self.heap.len() < self.heap.capacity() {
            self.heap.push((word, said));
        } else if let Some(inline) = self.inline.get_mut(self.len) {
            *inline = Some((word, said));
            self.len += 1;
        } else {
            self.push_heap(word, said, spare);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_heap(&mut self, word: &'a T, said: u64, spare: &mut SpareHeap<T>) {
        if self.heap.is_empty() {
            self.heap = mem::take(spare);
        }
        self.heap.push((word, said));
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a T, u64)> {
        self.inline[..self.len].iter().copied().flatten().chain(self.heap.iter().copied())
    }

    /// Clears the list and gives the buffer back if it was taken.
    #[inline]
    pub(crate) fn clear(&mut self, spare: &mut SpareHeap<T>) {
        if !self.heap.is_empty() {
            self.heap.clear();
            // Collecting in place keeps the capacity.
            let emptied = mem::take(&mut self.heap).into_iter();
            *spare = emptied.map(|_| -> (&'static T, u64) { unreachable!("it was cleared") }).collect();
        }
        self.len = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_in_order_and_their_room_is_kept_too() {
        let words: Vec<u64> = (0..20).collect();
        let mut spare: SpareHeap<u64> = Vec::with_capacity(32);
        for count in [0, 2, 3, 4, 20, 1] {
            let mut list = AccessList::<u64, 3>::new();
            for word in &words[..count] {
                list.push(word, word + 100, &mut spare);
            }
            assert_eq!(list.is_empty(), count == 0);
            let kept: Vec<_> = list.iter().map(|(word, said)| (*word, said)).collect();
            assert_eq!(kept, (0..count as u64).map(|n| (n, n + 100)).collect::<Vec<_>>());
            let back: Vec<_> = list.iter().rev().map(|(word, _)| *word).collect();
            assert_eq!(back, (0..count as u64).rev().collect::<Vec<_>>());
            list.clear(&mut spare);
            assert!(list.is_empty() && list.iter().next().is_none());
            assert!(spare.capacity() >= 32, "{count} list cost the spare");
        }
    }
}
