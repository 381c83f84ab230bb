//! The shortest way to a free place (breadth-first displacement: Li et al., "Algorithmic improvements for fast concurrent
//! cuckoo hashing", EuroSys '14). It is found without a lock, so it is a guess that each step along it has to check.

use core::iter;

use packet::{Key, Words};

use crate::shared::optimistic::Optimistic;

/// Buckets that are looked at before the search gives up. At a load of 95 % a dozen do.
const NODES_MAX: usize = 128;

/// An entry that goes to its other bucket.
#[derive(Clone, Copy, Default)]
pub(super) struct Move {
    pub(super) bucket: u32,
    pub(super) place: u8,
    pub(super) tag: u8,
}

/// A bucket that the search came to.
#[derive(Clone, Copy, Default)]
struct Node {
    bucket: u32,
    /// What would come here, and the node that it would leave; of the first nodes, nothing and themselves.
    from: Move,
    parent: u8,
}

/// The way to a free place.
pub(super) struct Path {
    /// In the order of the search.
    nodes: [Node; NODES_MAX],
    len: usize,
}

const _: () = assert!(NODES_MAX <= 1 << u8::BITS);

impl Path {
    /// The moves that free a place in one of two full buckets, in order: the first one goes where there is room already.
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
                // Freed meanwhile, or there is nowhere else to go.
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

    /// The moves that fill the place that a move leaves at node `at`, and so on back to a first node.
    fn back_from(self, mut at: usize) -> impl Iterator<Item = Move> {
        iter::from_fn(move || {
            let Node { from, parent, .. } = self.nodes[at];
            let is_first = usize::from(parent) == at;
            at = parent.into();
            (!is_first).then_some(from)
        })
    }

    /// Adds a node while there is room.
    fn push(&mut self, bucket: usize, from: Move, parent: usize) {
        if self.len < NODES_MAX {
            self.nodes[self.len] = Node { bucket: bucket as u32, from, parent: parent as u8 };
            self.len += 1;
        }
    }
}
