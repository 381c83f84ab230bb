//! What a transaction notes down: the first few beside it, the rest in room that outlives it.

use alloc::vec::Vec;
use core::mem;

/// Words of one kind with what they said, in the order in which they were met.
///
/// Most steps note a few. To take a vector from where it outlives its contents' lifetime and to give it back costs 10 ns each
/// time, as much as such a step, so it is taken when it is needed.
pub(crate) struct AccessList<'a, T, const INLINE: usize> {
    inline: [Option<(&'a T, u64)>; INLINE],
    /// How many of those hold one.
    len: usize,
    heap: Vec<(&'a T, u64)>,
}

/// Room for notes, with none in it.
pub(crate) type SpareHeap<T> = Vec<(&'static T, u64)>;

impl<'a, T, const INLINE: usize> AccessList<'a, T, INLINE> {
    pub(crate) const fn new() -> Self {
        Self { inline: [None; INLINE], len: 0, heap: Vec::new() }
    }

    /// Notes one more.
    #[inline(always)]
    pub(crate) fn push(&mut self, word: &'a T, said: u64, spare: &mut SpareHeap<T>) {
        // A burst's transaction notes a hundred, and has taken the room.
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

    /// Forgets them all, and gives the room back if it was taken.
    #[inline]
    pub(crate) fn clear(&mut self, spare: &mut SpareHeap<T>) {
        if !self.heap.is_empty() {
            self.heap.clear();
            // Collecting nothing in place keeps the room.
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
