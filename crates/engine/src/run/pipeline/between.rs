//! State that the stages of a pipeline share besides the queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, Thread};
use std::time::Duration;

use fifo::{Consumer, Fifo, Producer};
use packet::Nanos;
use port::{Batch, Block};

use crate::run::quiet::Quiet;
use crate::run::turns::look_out;
use crate::steer::core_batch::CoreBatch;

/// Slots for each core: one that it works on, one that waits for it, one that waits for others.
const SLOTS_PER_CORE: usize = 3;

/// A slot's number.
pub(super) type Slot = u32;

/// State that all stages share besides the queues. No lock in it is ever waited for: who pops a slot's number from a queue has what is in
/// the slot.
pub(super) struct Between<M> {
    /// The number of cores ahead of the ways.
    pub(super) ahead: usize,
    /// The pieces by slot.
    pub(super) pieces: Box<[Mutex<Piece<M>>]>,
    /// The shares that the ways have, by way and slot; others are empty.
    pub(super) shares: Box<[SharesOfWay<M>]>,
    /// The cores' threads, to wake them. A thread that has not begun is not there yet.
    threads: Box<[RwLock<Option<Thread>>]>,
    /// Nothing more is read.
    is_closed: AtomicBool,
    /// A core has ended without giving its work back, so the others must not wait for it.
    is_abandoned: AtomicBool,
}

/// The shares of a way, by slot.
type SharesOfWay<M> = Box<[Mutex<Share<M>>]>;

/// A piece of the stream, or an unused one.
pub(super) struct Piece<M> {
    /// The packets as read. With one way, the way has them.
    pub(super) batch: Batch,
    /// The packets' bytes, while several ways share them.
    pub(super) memory: Arc<Block>,
    /// The shares by core, but for those that ways have. Those of cores ahead of the ways stay empty.
    pub(super) shares: Box<[CoreBatch<M>]>,
    /// By way: it was given a share.
    pub(super) is_dealt: Box<[bool]>,
    /// Set for a piece without packets: the ways age their state to this time.
    pub(super) quiet: Option<Nanos>,
}

/// A way's share of a piece.
pub(super) struct Share<M> {
    pub(super) packets: CoreBatch<M>,
    /// Set for a piece without packets: the way ages its state to this time.
    pub(super) quiet: Option<Quiet>,
}

impl<M> Default for Share<M> {
    fn default() -> Self {
        Self { packets: CoreBatch::default(), quiet: None }
    }
}

impl<M> Between<M> {
    pub(super) fn new(ahead: usize, cores: usize) -> Self {
        let slots = SLOTS_PER_CORE * cores;
        let ways = cores - ahead;
        let way = |_| (0..slots).map(|_| Mutex::default()).collect();
        let piece = || Piece {
            batch: Batch::default(),
            memory: Arc::new(Block::Filled(Vec::new())),
            shares: (0..cores).map(|_| CoreBatch::default()).collect(),
            is_dealt: vec![false; ways].into(),
            quiet: None,
        };
        Self {
            ahead,
            pieces: (0..slots).map(|_| Mutex::new(piece())).collect(),
            shares: (0..ways).map(way).collect(),
            threads: (0..cores).map(|_| RwLock::default()).collect(),
            is_closed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn ways(&self) -> usize {
        self.shares.len()
    }

    /// A queue that is never full: each slot's number may have a line to itself.
    pub(super) fn queue<T: Copy + Send>(&self) -> (Producer<T>, Consumer<T>) {
        Fifo::with_capacity(self.slots() * Fifo::<T>::LINE_ITEMS)
    }

    /// Hands an item over and wakes the core that gets it.
    pub(super) fn hand_over<T: Copy + Send>(&self, queue: &mut Producer<T>, item: T, core: usize) {
        let pushed = queue.push(item);
        debug_assert!(pushed.is_ok(), "there are as many lines as slots");
        queue.flush();
        self.wake(core);
    }

    /// Wakes a core from [`sleep`]. The lock orders this with the core's own [`enter`](Self::enter): either the core is woken, or it has
    /// not looked for work yet.
    fn wake(&self, core: usize) {
        if let Some(thread) = &*self.threads[core].read().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    pub(super) fn wake_all(&self) {
        (0..self.threads.len()).for_each(|core| self.wake(core));
    }

    /// Notes a core's thread, once.
    pub(super) fn enter(&self, core: usize, has_entered: &mut bool) {
        if !std::mem::replace(has_entered, true) {
            *self.threads[core].write().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        // ORDERING: Relaxed. The flag carries no data, and a short delay doesn't matter; pairs with the store in `close`.
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Ends reading.
    pub(super) fn close(&self) {
        // ORDERING: Relaxed, as in `is_closed`.
        self.is_closed.store(true, Ordering::Relaxed);
        self.wake(0);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        // ORDERING: Relaxed. The flag carries no data; pairs with the store in `abandon`.
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Lets no core wait for another any more.
    pub(super) fn abandon(&self) {
        // ORDERING: Relaxed, as in `is_abandoned`.
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.wake_all();
    }
}

/// Waits until `has_work`, at most `at_most`.
pub(super) fn sleep(at_most: Duration, has_work: impl Fn() -> bool) {
    if !look_out(has_work) {
        // What was handed over since has left a token, so this returns at once.
        thread::park_timeout(at_most);
    }
}
