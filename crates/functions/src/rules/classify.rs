//! Finds the rules of a long chain that a packet may match: [bit vectors](bit_vectors) for up to some thousand rules, [tuple space
//! search](tuple_space) for more.
//!
//! Both look at addresses and ports; bit vectors also at protocol and interfaces. The rules that they find, the candidates, are compared in
//! full afterwards: a classifier may find too many rules, never too few.

mod bit_vectors;
mod fields;
mod tuple_space;

use self::bit_vectors::BitVectors;
use self::tuple_space::TupleSpace;
use super::machine::{Chain, Machine};

/// Finds the rules of a chain that a packet may match.
#[derive(Clone, Debug)]
pub(super) enum Classifier {
    BitVectors(BitVectors),
    TupleSpace(TupleSpace),
}

/// Ways to find the rules of a chain that a packet may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Compare all.
    Linear,
    /// Bit vectors.
    BitVectors,
    /// Tuple space search.
    TupleSpace,
}

/// The shortest chain that has a classifier.
const RULES_MIN: usize = 20;
/// The longest one that has bit vectors. How both were chosen: `docs/lab/rules-classification.md`.
const BIT_VECTORS_MAX: usize = BitVectors::RULES_MAX;

impl Method {
    /// The best one for a chain of so many rules.
    const fn of(rules: usize) -> Self {
        match rules {
            0..RULES_MIN => Self::Linear,
            RULES_MIN..=BIT_VECTORS_MAX => Self::BitVectors,
            _ => Self::TupleSpace,
        }
    }
}

impl Classifier {
    /// The classifier of a chain; `None` if comparing its rules one by one is as good.
    pub(super) fn of(machine: &Machine, chain: &Chain) -> Option<Self> {
        Self::build(machine, chain, Method::of(chain.rules(machine).len()))
    }

    /// The classifier of this kind.
    pub(super) fn build(machine: &Machine, chain: &Chain, method: Method) -> Option<Self> {
        let rules = chain.rules(machine);
        match method {
            Method::Linear => None,
            Method::BitVectors => {
                let vectors = BitVectors::new(machine, rules);
                vectors.tells_apart().then_some(Self::BitVectors(vectors))
            }
            Method::TupleSpace => Some(Self::TupleSpace(TupleSpace::new(machine, rules))),
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::BitVectors(vectors) => vectors.bytes(),
            Self::TupleSpace(space) => space.bytes(),
        }
    }

    /// The numbers of hash tables, of rules outside of them, and of bit vectors for those.
    pub(super) fn parts(&self) -> Option<[usize; 3]> {
        match self {
            Self::BitVectors(_) => None,
            Self::TupleSpace(space) => Some(space.parts()),
        }
    }
}

#[cfg(test)]
mod tests;
