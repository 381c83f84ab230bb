//! The fill and the completion ring of an interface's queue, which all sockets on the queue share.
//!
//! Both rings belong to the memory that the queue's packets are put into, so that a queue has one of each, however many sockets take its
//! packets. The first socket registers the memory and makes the rings; each other one is bound beside it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::core::Core;
use crate::ring::{Consumer, Producer};
use crate::socket::Socket;

/// The rings of an interface's queue. Once the last socket has let go of them, their frames are free.
pub(crate) struct Common {
    core: Arc<Core>,
    interface: usize,
    /// Number of the interface that the sockets are bound to.
    pub(crate) index: u32,
    /// The socket that registered the memory. `None` only while this is dropped.
    first: Option<Arc<Socket>>,
    fill: Mutex<Producer<u64>>,
    completed: Mutex<Consumer<u64>>,
    /// Frames in the fill ring and in the receive rings.
    filled: AtomicU32,
}

impl Common {
    pub(crate) fn new(
        core: Arc<Core>,
        interface: usize,
        index: u32,
        first: Arc<Socket>,
        fill: Producer<u64>,
        completed: Consumer<u64>,
    ) -> Self {
        let (fill, completed) = (Mutex::new(fill), Mutex::new(completed));
        Self { core, interface, index, first: Some(first), fill, completed, filled: AtomicU32::new(0) }
    }

    /// The socket beside which others are bound.
    pub(crate) fn first(&self) -> &Socket {
        self.first.as_ref().expect("it is there until the end")
    }

    /// The fill ring; `None` if another thread fills it at this moment.
    pub(crate) fn fill(&self) -> Option<MutexGuard<'_, Producer<u64>>> {
        free_lock(&self.fill)
    }

    /// The completion ring; `None` if another thread empties it at this moment.
    pub(crate) fn completed(&self) -> Option<MutexGuard<'_, Consumer<u64>>> {
        free_lock(&self.completed)
    }

    /// Frames in the fill ring and in the receive rings.
    pub(crate) fn filled(&self) -> u32 {
        // ORDERING: Relaxed. A number by which frames are dealt out; frames pass by the rings. Pairs with the two methods below.
        self.filled.load(Ordering::Relaxed)
    }

    /// Frames have been put into the fill ring.
    pub(crate) fn add_filled(&self, frames: u32) {
        // ORDERING: Relaxed, as in `filled`.
        self.filled.fetch_add(frames, Ordering::Relaxed);
    }

    /// Frames have been taken out of a receive ring.
    pub(crate) fn take_filled(&self, frames: u32) {
        // ORDERING: Relaxed, as in `filled`.
        self.filled.fetch_sub(frames, Ordering::Relaxed);
    }
}

/// Takes a lock that no one holds, also if its last holder has panicked.
fn free_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        // The kernel must not use the rings any more when their frames are taken back.
        self.first = None;
        self.core.give_spare(self.core.ledger.reclaim(self.interface).into_iter());
    }
}
