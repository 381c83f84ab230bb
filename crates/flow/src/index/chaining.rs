//! Separate chaining: an array of list heads, and a preallocated node for each entry with its hash and the next node.
//!
//! This is the textbook table, and that of the Linux connection tracker. It never refuses an entry and never moves one. Each step down a
//! chain is a cache miss that depends on the one before.

use crate::index::{Index, scale, upper};
use crate::memory::{Filling, Region};
use locality::prefetch;

/// A node of a chain, with the entry's number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Node {
    /// The lower half of the hash. The leading bits of the upper half select the chain.
    hash: u32,
    /// The next node's number plus 1; 0 at the end.
    next: u32,
}

/// The index.
pub struct Chaining {
    /// Each chain's first node, as in [`Node::next`].
    heads: Region,
    nodes: Region,
    count: usize,
}

impl Chaining {
    #[inline(always)]
    const fn chain(&self, hash: u64) -> usize {
        scale(upper(hash), self.count)
    }

    #[inline(always)]
    fn head(&self, chain: usize) -> &u32 {
        debug_assert!(chain < self.count);
        // SAFETY: chain numbers come from `chain` alone, which is below `count`; the region holds that many words.
        unsafe { self.heads.base().cast::<u32>().add(chain).as_ref() }
    }

    #[inline(always)]
    fn head_mut(&mut self, chain: usize) -> &mut u32 {
        debug_assert!(chain < self.count);
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { self.heads.base().cast::<u32>().add(chain).as_mut() }
    }

    #[inline(always)]
    fn node(&self, at: u32) -> &Node {
        assert!((at as usize) < self.count, "an entry's number is below the number of places");
        // SAFETY: the region holds `count` nodes, and zeros are a node.
        unsafe { self.nodes.base().cast::<Node>().add(at as usize).as_ref() }
    }

    #[inline(always)]
    fn node_mut(&mut self, at: u32) -> &mut Node {
        assert!((at as usize) < self.count, "an entry's number is below the number of places");
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { self.nodes.base().cast::<Node>().add(at as usize).as_mut() }
    }
}

impl Index for Chaining {
    type Choice = ();

    fn load_percent((): ()) -> usize {
        100
    }

    fn new((): (), places: usize) -> Self {
        let count = places.max(1);
        Self {
            heads: Region::zeroed(count * size_of::<u32>(), Filling::Whole),
            nodes: Region::zeroed(count * size_of::<Node>(), Filling::Whole),
            count,
        }
    }

    #[inline(always)]
    fn assigns(&self) -> bool {
        false
    }

    fn places(&self) -> usize {
        self.count
    }

    fn bytes(&self) -> usize {
        self.heads.bytes() + self.nodes.bytes()
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch::address(self.heads.base().as_ptr().wrapping_add(self.chain(hash) * size_of::<u32>()));
    }

    /// The first entry of the chain, unread. Its node and the entry are prefetched together; nothing else can be prefetched.
    #[inline(always)]
    fn guess(&self, hash: u64, mut prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        let first = self.head(self.chain(hash)).checked_sub(1)?;
        prefetch::address(self.nodes.base().as_ptr().wrapping_add(first as usize * size_of::<Node>()));
        prefetch_slot(first);
        Some(first)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut link = *self.head(self.chain(hash));
        while let Some(at) = link.checked_sub(1) {
            let node = self.node(at);
            if node.hash == hash as u32 && is_it(at) {
                return Some(at);
            }
            link = node.next;
        }
        None
    }

    #[inline]
    fn insert(&mut self, hash: u64, free: u32) -> Option<u32> {
        let chain = self.chain(hash);
        let next = *self.head(chain);
        *self.node_mut(free) = Node { hash: hash as u32, next };
        *self.head_mut(chain) = free + 1;
        Some(free)
    }

    #[inline]
    fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let chain = self.chain(hash);
        let mut link = *self.head(chain);
        let mut before = None;
        while let Some(at) = link.checked_sub(1) {
            let next = self.node(at).next;
            if at == slot {
                match before {
                    Some(before) => self.node_mut(before).next = next,
                    None => *self.head_mut(chain) = next,
                }
                return true;
            }
            (before, link) = (Some(at), next);
        }
        false
    }

    fn neighbours(&self, hash: u64, mut see: impl FnMut(u32)) {
        let mut link = *self.head(self.chain(hash));
        while let Some(at) = link.checked_sub(1) {
            see(at);
            link = self.node(at).next;
        }
    }
}
