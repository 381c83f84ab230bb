//! State that changes cores between two packets, without loss and without reordering inside a packet set.
//!
//! A dispatcher decides ahead of a packet what moves. Every core, when it has come to that packet, first *releases* what
//! leaves it, which waits for nobody, and then *acquires* what comes, which waits until the other core has come there too.
//! A core waits only for cores that are behind it, and those wait only for cores behind themselves: nobody waits for ever,
//! as long as every core goes on. A core that fails says so, and the others stop waiting.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nf::NetworkFunction;

use crate::placement::owned::Carried;
use crate::placement::private::Private;

/// Where state lies that one core has released and others are still to acquire.
pub(crate) struct Exchange<N: NetworkFunction> {
    parked: Mutex<Vec<Parked<N>>>,
    failed: AtomicBool,
}

/// State on its way.
struct Parked<N: NetworkFunction> {
    name: (u64, u64),
    cargo: Cargo<N>,
    /// How many cores are still to take it.
    takers: usize,
}

/// What is on its way.
pub(crate) enum Cargo<N: NetworkFunction> {
    /// A bucket's flows.
    Shard(Box<Private<N>>),
    /// A packet set's state, if it had any.
    Flow(Option<Carried<N>>),
}

/// More than are ever on their way at once in a run: nothing is allocated later.
const ROOM: usize = 1024;

impl<N: NetworkFunction> Exchange<N> {
    pub(crate) fn new() -> Self {
        Self { parked: Mutex::new(Vec::with_capacity(ROOM)), failed: AtomicBool::new(false) }
    }

    /// Parks state for so many cores.
    pub(crate) fn park(&self, name: (u64, u64), cargo: Cargo<N>, takers: usize) {
        if takers > 0 {
            self.lock().push(Parked { name, cargo, takers });
        }
    }

    /// Whether this was parked.
    pub(crate) fn holds(&self, name: (u64, u64)) -> bool {
        self.lock().iter().any(|parked| parked.name == name)
    }

    /// Takes a shard; `None` when it isn't there.
    pub(crate) fn take_shard(&self, name: (u64, u64)) -> Option<Box<Private<N>>> {
        let mut parked = self.lock();
        let index = parked.iter().position(|parked| parked.name == name)?;
        match parked.swap_remove(index).cargo {
            Cargo::Shard(shard) => Some(shard),
            Cargo::Flow(_) => None,
        }
    }

    /// Takes a copy of a packet set's state, if it had any.
    pub(crate) fn take_flow(&self, name: (u64, u64)) -> Option<Carried<N>> {
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

    /// A core has failed: it will release nothing more.
    pub(crate) fn fail(&self) {
        // ORDERING: Relaxed. The flag carries no data; whoever waits looks again and again.
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Waits until this is so; `false` when a core has failed meanwhile.
    pub(crate) fn wait(&self, mut ready: impl FnMut() -> bool) -> bool {
        for look in 0_u32.. {
            if ready() {
                return true;
            }
            // ORDERING: Relaxed, as in `fail`.
            if self.failed.load(Ordering::Relaxed) {
                return false;
            }
            // The other core is mostly a burst behind, or, where cores share a processor, has to be let run.
            if look < 64 { hint::spin_loop() } else { thread::yield_now() }
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Parked<N>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
