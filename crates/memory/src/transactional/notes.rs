//! What a transaction notes down: the first few beside it, the rest in room that outlives it.

use alloc::vec::Vec;
use core::mem;

/// Words of one kind with what they said, in the order in which they were met.
///
/// Most steps note a few. To take a vector from where it outlives its contents' lifetime and to give it back costs 10 ns each
/// time, as much as such a step, so it is taken when it is needed.
pub(crate) struct Notes<'a, T, const NEAR: usize> {
    near: [Option<(&'a T, u64)>; NEAR],
    /// How many of those hold one.
    len: usize,
    far: Vec<(&'a T, u64)>,
}

/// Room for notes, with none in it.
pub(crate) type Room<T> = Vec<(&'static T, u64)>;

impl<'a, T, const NEAR: usize> Notes<'a, T, NEAR> {
    pub(crate) const fn new() -> Self {
        Self { near: [None; NEAR], len: 0, far: Vec::new() }
    }

    /// Notes one more.
    #[inline(always)]
    pub(crate) fn push(&mut self, word: &'a T, said: u64, room: &mut Room<T>) {
        // A burst's transaction notes a hundred, and has taken the room.
        if self.far.len() < self.far.capacity() {
            self.far.push((word, said));
        } else if let Some(near) = self.near.get_mut(self.len) {
            *near = Some((word, said));
            self.len += 1;
        } else {
            self.push_far(word, said, room);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_far(&mut self, word: &'a T, said: u64, room: &mut Room<T>) {
        if self.far.is_empty() {
            self.far = mem::take(room);
        }
        self.far.push((word, said));
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a T, u64)> {
        self.near[..self.len].iter().copied().flatten().chain(self.far.iter().copied())
    }

    /// Forgets them all, and gives the room back if it was taken.
    #[inline]
    pub(crate) fn clear(&mut self, room: &mut Room<T>) {
        if !self.far.is_empty() {
            self.far.clear();
            // Collecting nothing in place keeps the room.
            let emptied = mem::take(&mut self.far).into_iter();
            *room = emptied.map(|_| -> (&'static T, u64) { unreachable!("it was cleared") }).collect();
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
        let mut room: Room<u64> = Vec::with_capacity(32);
        for count in [0, 2, 3, 4, 20, 1] {
            let mut notes = Notes::<u64, 3>::new();
            for word in &words[..count] {
                notes.push(word, word + 100, &mut room);
            }
            assert_eq!(notes.is_empty(), count == 0);
            let kept: Vec<_> = notes.iter().map(|(word, said)| (*word, said)).collect();
            assert_eq!(kept, (0..count as u64).map(|n| (n, n + 100)).collect::<Vec<_>>());
            let back: Vec<_> = notes.iter().rev().map(|(word, _)| *word).collect();
            assert_eq!(back, (0..count as u64).rev().collect::<Vec<_>>());
            notes.clear(&mut room);
            assert!(notes.is_empty() && notes.iter().next().is_none());
            assert!(room.capacity() >= 32, "{count} notes cost the room");
        }
    }
}
