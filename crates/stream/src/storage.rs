//! The pools of all tables of a run: [`Storage`].

use alloc::sync::{Arc, Weak};
use std::sync::{Mutex, PoisonError};

use crate::pool::{Budget, Pool};

/// The memory of the sessions of a table. Two pools, since one of them is locked while a function hears early segments.
#[derive(Debug)]
pub struct Pools {
    /// Early segments.
    pub early: Pool,
    /// Beginnings.
    pub kept: Pool,
}

/// Hands out pools to tables. Those of a kind share a budget: hosts that leave gaps open don't take the room of beginnings.
#[derive(Clone, Debug)]
pub struct Storage {
    early: Budget,
    kept: Budget,
    handed_out: Arc<Mutex<HandedOut>>,
}

#[derive(Debug, Default)]
struct HandedOut {
    /// The number of tables so far.
    tables: usize,
    /// Those in use. Pools go with the last of their tables.
    pools: [Weak<Pools>; POOLS_MAX],
}

/// The most pools of each kind. Each lists its blocks, so very many of them would take more memory than the blocks; with very few of them cores
/// would wait for each other.
const POOLS_MAX: usize = 16;

impl Storage {
    /// Pools for `early` bytes of early segments and `kept` bytes of beginnings in all.
    #[must_use]
    pub fn new(early: usize, kept: usize) -> Self {
        Self { early: Budget::new(early), kept: Budget::new(kept), handed_out: Arc::default() }
    }

    /// Another storage of the same size.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.early.bytes(), self.kept.bytes())
    }

    /// The pools for one more table: its own, unless there are many tables.
    #[must_use]
    pub fn pools(&self) -> Arc<Pools> {
        let HandedOut { tables, pools } = &mut *self.handed_out.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut pools[*tables % POOLS_MAX];
        *tables += 1;
        place.upgrade().unwrap_or_else(|| {
            let pools = Arc::new(Pools { early: Pool::new(&self.early), kept: Pool::new(&self.kept) });
            *place = Arc::downgrade(&pools);
            pools
        })
    }

    /// The most memory that this many tables use, in bytes.
    #[must_use]
    pub fn memory_max(&self, tables: usize) -> usize {
        let pools = tables.min(POOLS_MAX);
        self.early.memory_max(pools) + self.kept.memory_max(pools)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn many_tables_share_few_pools() {
        let storage = Storage::new(1 << 20, 1 << 20);
        let own = storage.pools();
        let many: Vec<_> = (0..2 * POOLS_MAX).map(|_| storage.pools()).collect();
        let sharers = many.iter().filter(|pools| Arc::ptr_eq(pools, &own)).count();
        assert_eq!((Arc::strong_count(&own), sharers), (3, 2));
        drop(many);
        assert_eq!(Arc::strong_count(&own), 1);
        assert_eq!(storage.memory_max(16), storage.memory_max(usize::MAX));
        assert!(storage.memory_max(1) < storage.memory_max(2));
    }
}
