//! An index whose design is chosen at run time. Each operation branches on the design, which the processor predicts. The operations are
//! calls, except for the default design's; inlining six designs everywhere would treble the code to compile.

use core::fmt;

use crate::index::{Chaining, Cuckoo, CuckooPp, Hopscotch, Index, RobinHood, Tagged};

/// The designs of index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// [`Chaining`].
    Chaining,
    /// [`Cuckoo`].
    Cuckoo,
    /// [`CuckooPp`].
    #[default]
    CuckooPp,
    /// [`RobinHood`].
    RobinHood,
    /// [`Hopscotch`].
    Hopscotch,
    /// [`Tagged`].
    Tagged,
}

impl IndexKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Chaining, Self::Cuckoo, Self::CuckooPp, Self::RobinHood, Self::Hopscotch, Self::Tagged];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chaining => "chaining",
            Self::Cuckoo => "cuckoo",
            Self::CuckooPp => "cuckoo++",
            Self::RobinHood => "robin-hood",
            Self::Hopscotch => "hopscotch",
            Self::Tagged => "tagged",
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An index of any design.
pub enum AnyIndex {
    /// Linked lists.
    Chaining(Chaining),
    /// Two buckets for each key.
    Cuckoo(Cuckoo),
    /// Two buckets for each key, with a filter.
    CuckooPp(CuckooPp),
    /// Linear probing in hash order.
    RobinHood(RobinHood),
    /// Linear probing within neighbourhoods.
    Hopscotch(Hopscotch),
    /// Chunks of tags.
    Tagged(Tagged),
}

/// Calls the same method of whichever design it is.
macro_rules! each {
    ($any:expr, $index:ident => $call:expr) => {
        match $any {
            AnyIndex::Chaining($index) => $call,
            AnyIndex::Cuckoo($index) => $call,
            AnyIndex::CuckooPp($index) => $call,
            AnyIndex::RobinHood($index) => $call,
            AnyIndex::Hopscotch($index) => $call,
            AnyIndex::Tagged($index) => $call,
        }
    };
}

/// Calls that come with every packet, for all designs but the default.
impl AnyIndex {
    #[inline(never)]
    fn prefetch_other(&self, hash: u64) {
        each!(self, index => index.prefetch(hash));
    }

    #[inline(never)]
    fn guess_other(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        each!(self, index => index.guess(hash, prefetch_slot))
    }
}

impl Index for AnyIndex {
    type Choice = IndexKind;

    fn load_percent(choice: IndexKind) -> usize {
        match choice {
            IndexKind::Chaining => Chaining::load_percent(()),
            IndexKind::Cuckoo => Cuckoo::load_percent(()),
            IndexKind::CuckooPp => CuckooPp::load_percent(()),
            IndexKind::RobinHood => RobinHood::load_percent(()),
            IndexKind::Hopscotch => Hopscotch::load_percent(()),
            IndexKind::Tagged => Tagged::load_percent(()),
        }
    }

    fn new(choice: IndexKind, places: usize) -> Self {
        match choice {
            IndexKind::Chaining => Self::Chaining(Chaining::new((), places)),
            IndexKind::Cuckoo => Self::Cuckoo(Cuckoo::new((), places)),
            IndexKind::CuckooPp => Self::CuckooPp(CuckooPp::new((), places)),
            IndexKind::RobinHood => Self::RobinHood(RobinHood::new((), places)),
            IndexKind::Hopscotch => Self::Hopscotch(Hopscotch::new((), places)),
            IndexKind::Tagged => Self::Tagged(Tagged::new((), places)),
        }
    }

    #[inline]
    fn assigns(&self) -> bool {
        each!(self, index => index.assigns())
    }

    fn places(&self) -> usize {
        each!(self, index => index.places())
    }

    fn bytes(&self) -> usize {
        each!(self, index => index.bytes())
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        match self {
            Self::CuckooPp(index) => index.prefetch(hash),
            _ => self.prefetch_other(hash),
        }
    }

    #[inline(always)]
    fn guess(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        match self {
            Self::CuckooPp(index) => index.guess(hash, prefetch_slot),
            _ => self.guess_other(hash, prefetch_slot),
        }
    }

    #[inline(always)]
    fn guess_any(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        match self {
            Self::CuckooPp(index) => index.guess_any(hash, prefetch_slot),
            _ => self.guess_other(hash, prefetch_slot),
        }
    }

    #[inline(never)]
    fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        each!(self, index => index.find(hash, is_it))
    }

    #[inline(never)]
    fn insert(&mut self, hash: u64, free: u32) -> Option<u32> {
        each!(self, index => index.insert(hash, free))
    }

    fn prefetch_removal(&self, hash: u64, slot: u32) {
        each!(self, index => index.prefetch_removal(hash, slot));
    }

    #[inline(never)]
    fn remove(&mut self, hash: u64, slot: u32) -> bool {
        each!(self, index => index.remove(hash, slot))
    }

    fn collapse(&self, piece: usize) -> bool {
        each!(self, index => index.collapse(piece))
    }

    fn neighbours(&self, hash: u64, see: impl FnMut(u32)) {
        each!(self, index => index.neighbours(hash, see));
    }
}
