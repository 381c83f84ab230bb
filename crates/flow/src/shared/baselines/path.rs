//! The shortest cuckoo path to a free place: breadth-first search (Li et al., "Algorithmic improvements for fast concurrent cuckoo
//! hashing", EuroSys '14). The search takes no lock, so its result is a guess, and each step along the path is checked under the locks.

use core::iter;

use packet::{Key, Words};

use crate::shared::baselines::optimistic::Optimistic;

/// How many buckets the search looks at before it gives up. At a load of 95 % it needs a dozen.
const NODES_MAX: usize = 128;

/// A move of an entry to its other bucket.
#[derive(Clone, Copy, Default)]
pub(super) struct Move {
    pub(super) bucket: u32,
    pub(super) place: u8,
    pub(super) tag: u8,
}

/// A visited bucket.
#[derive(Clone, Copy, Default)]
struct Node {
    bucket: u32,
    /// The move that would fill this bucket, and the node that it leaves. First nodes have no move and are their own parents.
    from: Move,
    parent: u8,
}

/// A path to a free place.
pub(super) struct Path {
    /// The visited buckets, in the order of the search.
    nodes: [Node; NODES_MAX],
    len: usize,
}

const _: () = assert!(NODES_MAX <= 1 << u8::BITS);

impl Path {
    /// The moves that free a place in one of two full buckets. The first move fills a place that is free already.
    pub(super) fn search<K, V, const WIDTH: usize>(
        table: &Optimistic<K, V, WIDTH>,
        first: usize,
        second: usize,
    ) -> Option<impl Iterator<Item = Move>>
    where
        K: Key + Words,
        V: Words,
    {
        let mut path = Self { nodes: [Node::default(); NODES_MAX], len: 0 };
        path.push(first, Move::default(), 0);
        if second != first {
            path.push(second, Move::default(), 1);
        }
        let mut at = 0;
        while at < path.len {
            let from = path.nodes[at].bucket;
            let bucket = table.bucket(from as usize);
            for place in 0..WIDTH {
                let tag = bucket.tag(place);
                let target = table.other(from as usize, tag);
                // The place was freed meanwhile, or the entry has no other bucket.
                if tag == 0 || target == from as usize {
                    continue;
                }
                let step = Move { bucket: from, place: place as u8, tag };
                if table.bucket(target).vacant().is_some() {
                    return Some(iter::once(step).chain(path.back_from(at)));
                }
                path.push(target, step, at);
            }
            at += 1;
        }
        None
    }

    /// The moves that fill the place freed at node `at`, and so on back to a first node.
    fn back_from(self, mut at: usize) -> impl Iterator<Item = Move> {
        iter::from_fn(move || {
            let Node { from, parent, .. } = self.nodes[at];
            let is_first = usize::from(parent) == at;
            at = parent.into();
            (!is_first).then_some(from)
        })
    }

    /// Adds a node if there is room.
    fn push(&mut self, bucket: usize, from: Move, parent: usize) {
        if self.len < NODES_MAX {
            self.nodes[self.len] = Node { bucket: bucket as u32, from, parent: parent as u8 };
            self.len += 1;
        }
    }
}
