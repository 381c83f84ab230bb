//! Moves state between cores at a packet number, without loss and without reordering inside a packet set.
//!
//! The dispatcher decides ahead of a packet what moves. When a core reaches that packet, it first *releases* the state that leaves it,
//! without waiting. Then it *acquires* the state that comes to it, and waits until the other core has released that. A core waits only for
//! cores that are behind it, so no cycle of waiting cores is possible. A core that fails sets a flag, and the others stop waiting.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nf::NetworkFunction;

use crate::placement::owned::MovingFlow;
use crate::placement::private::Private;

/// The state that one core has released and others have not acquired yet.
pub(crate) struct Exchange<N: NetworkFunction> {
    parked: Mutex<Vec<Parked<N>>>,
    failed: AtomicBool,
}

/// A piece of released state.
struct Parked<N: NetworkFunction> {
    name: (u64, u64),
    cargo: Cargo<N>,
    /// How many cores still have to take it.
    takers: usize,
}

/// The content of a piece.
pub(crate) enum Cargo<N: NetworkFunction> {
    /// The flows of a bucket.
    Shard(Box<Private<N>>),
    /// One flow; `None` if the packet set had none.
    Flow(Option<MovingFlow<N>>),
}

/// More than the pieces on their way at any time of a run, so nothing is allocated later.
const ROOM: usize = 1024;

impl<N: NetworkFunction> Exchange<N> {
    pub(crate) fn new() -> Self {
        Self { parked: Mutex::new(Vec::with_capacity(ROOM)), failed: AtomicBool::new(false) }
    }

    /// Parks state for `takers` cores.
    pub(crate) fn park(&self, name: (u64, u64), cargo: Cargo<N>, takers: usize) {
        if takers > 0 {
            self.lock().push(Parked { name, cargo, takers });
        }
    }

    /// True if the state was parked.
    pub(crate) fn holds(&self, name: (u64, u64)) -> bool {
        self.lock().iter().any(|parked| parked.name == name)
    }

    /// Takes a shard; `None` if it isn't here.
    pub(crate) fn take_shard(&self, name: (u64, u64)) -> Option<Box<Private<N>>> {
        let mut parked = self.lock();
        let index = parked.iter().position(|parked| parked.name == name)?;
        match parked.swap_remove(index).cargo {
            Cargo::Shard(shard) => Some(shard),
            Cargo::Flow(_) => None,
        }
    }

    /// Takes a copy of a flow; `None` if the packet set had none.
    pub(crate) fn take_flow(&self, name: (u64, u64)) -> Option<MovingFlow<N>> {
        let mut parked = self.lock();
        let index = parked.iter().position(|parked| parked.name == name)?;
        parked[index].takers -= 1;
        let carried = match &parked[index].cargo {
            Cargo::Flow(carried) => *carried,
            Cargo::Shard(_) => None,
        };
        if parked[index].takers == 0 {
            parked.swap_remove(index);
        }
        carried
    }

    /// Records that a core has failed and will release nothing more.
    pub(crate) fn fail(&self) {
        // ORDERING: Relaxed. The flag carries no data, and a waiting core reads it repeatedly.
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Waits until `ready` returns true. Returns false if a core has failed meanwhile.
    pub(crate) fn wait(&self, mut ready: impl FnMut() -> bool) -> bool {
        for look in 0_u32.. {
            if ready() {
                return true;
            }
            // ORDERING: Relaxed, as in `fail`.
            if self.failed.load(Ordering::Relaxed) {
                return false;
            }
            // The other core is usually less than a burst behind. If cores share a processor, it must get to run.
            if look < 64 { hint::spin_loop() } else { thread::yield_now() }
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Parked<N>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
