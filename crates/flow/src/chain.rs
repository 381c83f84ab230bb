//! Doubly linked lists through the entries, each node on at most one list of each kind.
//!
//! The last node's `next` and the first node's `prev` name the list itself, so that a node leaves its list in constant
//! time without anyone having to remember which list that was.

use packet::Key;

use crate::slab::Slab;

/// From this bit on, a link names a list and not an entry.
pub(crate) const END: u32 = 1 << 31;
/// In `next` and `prev` of an entry that is on no list.
pub(crate) const LOOSE: u32 = u32::MAX;

/// The neighbours of a node.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) next: u32,
    pub(crate) prev: u32,
}

/// The links of an entry.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// On a list of the timing wheel, or on the free list.
    pub(crate) wheel: Pair,
    /// On the queue of the flows that nobody has answered.
    pub(crate) unassured: Pair,
}

impl Links {
    /// On no list at all.
    pub(crate) const LOOSE: Self =
        Self { wheel: Pair { next: LOOSE, prev: LOOSE }, unassured: Pair { next: LOOSE, prev: LOOSE } };
}

/// Which of an entry's links a list runs through.
pub(crate) trait Chain {
    fn pair(links: &Links) -> Pair;
    fn pair_mut(links: &mut Links) -> &mut Pair;
}

/// The lists of the timing wheel.
pub(crate) enum Wheel {}
/// The queue of the flows that nobody has answered.
pub(crate) enum Unassured {}

impl Chain for Wheel {
    #[inline(always)]
    fn pair(links: &Links) -> Pair {
        links.wheel
    }

    #[inline(always)]
    fn pair_mut(links: &mut Links) -> &mut Pair {
        &mut links.wheel
    }
}

impl Chain for Unassured {
    #[inline(always)]
    fn pair(links: &Links) -> Pair {
        links.unassured
    }

    #[inline(always)]
    fn pair_mut(links: &mut Links) -> &mut Pair {
        &mut links.unassured
    }
}

/// A list's first and last node; its own name in both when it is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    /// The empty list number `list`.
    pub(crate) const fn empty(list: u32) -> Self {
        Self { first: END | list, last: END | list }
    }

    /// The first node.
    #[inline]
    pub(crate) const fn first(self) -> Option<u32> {
        if self.first < END { Some(self.first) } else { None }
    }
}

/// Appends the node to list number `list` of `lists`.
#[inline]
pub(crate) fn append<C: Chain, K: Key, V: Copy>(slab: &mut Slab<K, V>, lists: &mut [List], list: u32, node: u32) {
    let ends = &mut lists[list as usize];
    let last = ends.last;
    ends.last = node;
    *C::pair_mut(slab.links_mut(node)) = Pair { next: END | list, prev: last };
    if last < END {
        C::pair_mut(slab.links_mut(last)).next = node;
    } else {
        ends.first = node;
    }
}

/// Takes the node out of whatever list of `lists` it is on; the list's number if it is empty now.
#[inline]
pub(crate) fn unlink<C: Chain, K: Key, V: Copy>(slab: &mut Slab<K, V>, lists: &mut [List], node: u32) -> Option<u32> {
    let pair = C::pair_mut(slab.links_mut(node));
    let Pair { next, prev } = *pair;
    *pair = Pair { next: LOOSE, prev: LOOSE };
    if next < END {
        C::pair_mut(slab.links_mut(next)).prev = prev;
    } else {
        lists[(next ^ END) as usize].last = prev;
    }
    if prev < END {
        C::pair_mut(slab.links_mut(prev)).next = next;
    } else {
        lists[(prev ^ END) as usize].first = next;
    }
    if next == prev { Some(next ^ END) } else { None }
}

/// The node behind this one on its list.
#[inline]
pub(crate) fn next<C: Chain, K: Key, V: Copy>(slab: &Slab<K, V>, node: u32) -> Option<u32> {
    let next = C::pair(slab.links(node)).next;
    (next < END).then_some(next)
}
