//! Memory that all cores share, by transactions: each step sees one state of it, and what it writes is seen at once or never.
//!
//! Engines begin a transaction with a core's [`CoreHandle`], run a handler and commit; when that fails they run it again, and
//! after a bounded number of times in a turn, in which nothing can fail. How it is done is told in `log.rs`.

mod access_list;
mod allocator;
mod cause;
mod distributed;
mod log;
mod map;
mod object;
mod sites;
mod stm;
mod sync;
mod vector;

use alloc::sync::Arc;
use alloc::vec::Vec;

use packet::Nanos;

use crate::{Memory, Name, Portion, Value};

pub use allocator::TxAllocator;
pub use cause::{CAUSES, Cause, Collision, Operation};
pub use distributed::TxDistributed;
pub use log::{ABORTS_MAX, Log, Tx};
pub use map::TxMap;
pub use sites::Site;
pub use stm::CoreHandle;
#[cfg(loom)]
pub use sync::Fault;
pub use vector::TxVector;

use stm::Stm;

/// A memory of objects that cores change by transactions.
#[derive(Clone)]
pub struct Transactional {
    stm: Arc<Stm>,
    seed: u64,
}

/// A transaction can't go on: its engine undoes it and runs it again.
#[derive(Debug)]
pub struct Conflict(());

/// Where a committed transaction stands in the serial order that it is equivalent to: those that wrote by the version that
/// they made, those that only read right behind the version that they saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPosition {
    version: u64,
    reads_only: bool,
}

impl Transactional {
    /// A memory for `cores` cores. Its maps' hashes are keyed by `seed`, as [`Local::keyed`](crate::Local::keyed) has it.
    ///
    /// # Panics
    /// For no cores.
    #[must_use]
    pub fn new(cores: usize, seed: u64) -> Self {
        assert!(cores > 0, "a memory is for at least one core");
        Self { stm: Arc::new(Stm::new(cores)), seed }
    }

    /// The places of all cores at it, to be taken once.
    #[must_use]
    pub fn core_handles(&self) -> Vec<CoreHandle> {
        CoreHandle::all(&self.stm)
    }

    fn stm(&self) -> &Stm {
        &self.stm
    }
}

impl CoreHandle {
    /// From now on it is recorded where the source uses shared state, so that collisions can say so.
    pub fn record(&mut self, recording: bool) {
        self.buffers.recording = recording;
    }

    /// Whether it is being recorded.
    #[must_use]
    pub const fn is_recording(&self) -> bool {
        self.buffers.recording
    }
}

impl Memory for Transactional {
    type Conflict = Conflict;
    type Tx<'a> = Tx<'a>;
    type Vector<T: Value> = TxVector<T>;
    type Map<K: Name, V: Value> = TxMap<K, V>;
    type Allocator = TxAllocator;
    type Distributed<T: Portion> = TxDistributed<T>;

    fn vector<T: Value>(&self, len: usize, initial: T) -> TxVector<T> {
        TxVector::new(len, &initial)
    }

    fn map<K: Name, V: Value>(&self, capacity: usize) -> TxMap<K, V> {
        TxMap::new(capacity, self.stm.cores(), self.seed)
    }

    fn allocator(&self, capacity: usize) -> TxAllocator {
        TxAllocator::new(capacity, self.stm.cores())
    }

    fn distributed<T: Portion>(&self, empty: T, staleness: Nanos) -> TxDistributed<T> {
        TxDistributed::new(&empty, self.stm.cores(), staleness)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
