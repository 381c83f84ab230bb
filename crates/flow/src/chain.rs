//! The doubly linked list through the entries, of those that nobody has answered.
//!
//! Behind the last node and before the first one is the list itself.

use packet::Key;

use crate::slab::{LOOSE, Slab};

/// From this bit on, a link names no entry.
pub(crate) const END: u32 = 1 << 31;

/// The neighbours of a node.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) next: u32,
    pub(crate) prev: u32,
}

impl Pair {
    /// On no list at all.
    pub(crate) const LOOSE: Self = Self { next: LOOSE, prev: LOOSE };
}

/// The list's first and last node; [`END`] in both when it is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: END, last: END };

    /// The first node.
    #[inline]
    pub(crate) const fn first(self) -> Option<u32> {
        if self.first < END { Some(self.first) } else { None }
    }

    /// Puts a node behind the last.
    #[inline]
    pub(crate) fn append<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, node: u32) {
        let last = self.last;
        self.last = node;
        slab.links_mut(node).unassured = Pair { next: END, prev: last };
        if last < END {
            slab.links_mut(last).unassured.next = node;
        } else {
            self.first = node;
        }
    }

    /// Takes a node out.
    #[inline]
    pub(crate) fn unlink<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, node: u32) {
        let pair = &mut slab.links_mut(node).unassured;
        let Pair { next, prev } = *pair;
        *pair = Pair::LOOSE;
        if next < END {
            slab.links_mut(next).unassured.prev = prev;
        } else {
            self.last = prev;
        }
        if prev < END {
            slab.links_mut(prev).unassured.next = next;
        } else {
            self.first = next;
        }
    }
}

/// The node behind this one.
#[inline]
pub(crate) fn next<K: Key, V: Copy>(slab: &Slab<K, V>, node: u32) -> Option<u32> {
    let next = slab.links(node).unassured.next;
    (next < END).then_some(next)
}
