//! Software transactional memory that all cores share. A step sees one consistent state, and its writes become visible together or not at
//! all.
//!
//! An engine begins a transaction on a core's [`CoreHandle`], runs the handler and commits. If that fails, it runs the step again. After
//! [`ABORTS_MAX`] failures it runs the step as an irrevocable transaction, which can't fail. The algorithm is described in `log.rs`.

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

/// A transactional memory.
#[derive(Clone)]
pub struct Transactional {
    stm: Arc<Stm>,
    seed: u64,
}

/// The transaction can't go on. Its engine aborts it and runs it again.
#[derive(Debug)]
pub struct Conflict(());

/// A committed transaction's position in the equivalent serial order. A transaction that wrote stands at the version that it made, a
/// transaction that only read behind the version that it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPosition {
    version: u64,
    reads_only: bool,
}

impl Transactional {
    /// A memory for `cores` cores, with a hash seed for its maps, as in [`Local::keyed`](crate::Local::keyed).
    ///
    /// # Panics
    /// If there are no cores.
    #[must_use]
    pub fn new(cores: usize, seed: u64) -> Self {
        assert!(cores > 0, "a memory is for at least one core");
        Self { stm: Arc::new(Stm::new(cores)), seed }
    }

    /// The handles of all cores. Call this once.
    #[must_use]
    pub fn core_handles(&self) -> Vec<CoreHandle> {
        CoreHandle::all(&self.stm)
    }

    fn stm(&self) -> &Stm {
        &self.stm
    }
}

impl CoreHandle {
    /// Starts or stops recording which source lines use shared state, so that collisions can name them.
    pub fn record(&mut self, recording: bool) {
        self.buffers.recording = recording;
    }

    /// True while it records.
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

    #[inline(always)]
    fn take<'a>(tx: &mut Tx<'a>) -> Tx<'a>
    where
        'a: 'a,
    {
        tx.take()
    }

    fn irrevocable(tx: &mut Tx<'_>) -> Result<(), Conflict> {
        tx.make_irrevocable()
    }

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
