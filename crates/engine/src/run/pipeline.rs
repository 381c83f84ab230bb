//! A pipeline of two stages on one stream (Wang et al., "Practice of Parallelizing Network Applications on Multi-core Architectures",
//! ICS '09, section 3.2).
//!
//! 1. The *first stage*, core 0, reads a piece of the stream, finds each packet's way as a card would, and hands every way its share.
//! 2. A *way*, each other core, owns a shard of the flows. It decides the packets of its share where they lie and hands the share back.
//! 3. The first stage puts the shares back into the piece, and writes pieces in the order in which they came.
//!
//! Two queues between the first stage and each way carry slot numbers: a share stays where it is, and so do the packets' bytes. The slots
//! bound what is on its way. If none is free, the first stage reads nothing until the oldest piece is written, so no packet is lost.
//!
//! A stage without work spins for a moment and then sleeps. It is woken when something is handed to it.

use std::mem::swap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, Thread};
use std::time::Duration;

use fifo::{Consumer, Fifo, Producer};
use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Block, Order, PortError, Received, Stream};

use super::cores::{CoreRun, run_cores};
use super::feed::{Feed, received};
use super::handle::Control;
use super::mail::Mail;
use super::quiet::Quiet;
use super::turns::{cut_at, lock, look_out, merge};
use crate::error::EngineError;
use crate::steer::core_batch::CoreBatch;
use crate::steer::dispatch::{ClassifiedBatch, Dispatcher, Router};
use crate::work::any_worker::AnyWorker;

/// Runs the first core as the first stage and each other core as a way, on one stream. Returns the stream, what came of each core, and
/// whether the input has ended or failed.
pub(super) fn over_stream<'a, N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    dispatcher: &Dispatcher<N>,
    stream: Stream<'a>,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
) -> (Stream<'a>, Vec<CoreRun>, bool) {
    let between = Between::new(workers.len());
    let (mut first, mut ways) = stages(&between, stream, dispatcher.any_router(), workers.len());
    let mut feeds: Vec<&mut dyn Feed<N>> = vec![&mut first];
    feeds.extend(ways.iter_mut().map(|way| way as &mut dyn Feed<N>));
    let runs = run_cores(workers, feeds, cpus, control, mail);
    (first.stream, runs, first.is_exhausted)
}

/// Slots for each core: one that it works on, one that waits for it, one that waits for others.
const SLOTS_PER_CORE: usize = 3;

/// A slot's number.
type Slot = u32;

/// State that all stages share besides the queues.
struct Between<M> {
    slots: usize,
    /// The shares that the ways have, by way and slot; others are empty. A share's lock is never waited for: who pops the slot's number
    /// from a queue has the share.
    shares: Box<[SharesOfWay<M>]>,
    /// The cores' threads, to wake them. A thread that has not begun is not there yet.
    threads: Box<[RwLock<Option<Thread>>]>,
    /// Nothing more is read.
    is_closed: AtomicBool,
    /// A core has ended without giving its work back, so the others must not wait for it.
    is_abandoned: AtomicBool,
}

/// The shares of a way, by slot.
type SharesOfWay<M> = Box<[Mutex<Share<M>>]>;

/// A way's share of a piece.
struct Share<M> {
    packets: CoreBatch<M>,
    /// Set for a piece without packets: the way ages its state to this time.
    quiet: Option<Quiet>,
}

impl<M> Default for Share<M> {
    fn default() -> Self {
        Self { packets: CoreBatch::default(), quiet: None }
    }
}

impl<M> Between<M> {
    fn new(cores: usize) -> Self {
        let slots = SLOTS_PER_CORE * cores;
        let way = |_| (0..slots).map(|_| Mutex::default()).collect();
        Self {
            slots,
            shares: (1..cores).map(way).collect(),
            threads: (0..cores).map(|_| RwLock::default()).collect(),
            is_closed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// A queue that is never full: each slot's number may have a line to itself.
    fn queue(&self) -> (Producer<Slot>, Consumer<Slot>) {
        Fifo::with_capacity(self.slots * Fifo::<Slot>::LINE_ITEMS)
    }

    /// Hands a slot over and wakes the core that gets it.
    fn hand_over(&self, queue: &mut Producer<Slot>, slot: usize, core: usize) {
        let pushed = queue.push(slot as Slot);
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

    fn wake_all(&self) {
        (0..self.threads.len()).for_each(|core| self.wake(core));
    }

    /// Notes a core's thread.
    fn enter(&self, core: usize) {
        *self.threads[core].write().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
    }

    fn is_closed(&self) -> bool {
        // ORDERING: Relaxed. The flag carries no data, and a short delay doesn't matter; pairs with the store in `close`.
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Ends reading.
    fn close(&self) {
        // ORDERING: Relaxed, as in `is_closed`.
        self.is_closed.store(true, Ordering::Relaxed);
        self.wake(0);
    }

    fn is_abandoned(&self) -> bool {
        // ORDERING: Relaxed. The flag carries no data; pairs with the store in `abandon`.
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Lets no core wait for another any more.
    fn abandon(&self) {
        // ORDERING: Relaxed, as in `is_abandoned`.
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.wake_all();
    }
}

/// Waits until `has_work`, at most `at_most`.
fn sleep(at_most: Duration, has_work: impl Fn() -> bool) {
    if !look_out(has_work) {
        // What was handed over since has left a token, so this returns at once.
        thread::park_timeout(at_most);
    }
}

/// The feeds of all cores.
fn stages<'s, 'a, N: NetworkFunction>(
    between: &'s Between<N::Meta>,
    stream: Stream<'a>,
    router: Arc<Router<N>>,
    cores: usize,
) -> (FirstStage<'s, 'a, N>, Vec<Way<'s, N::Meta>>) {
    let (ends, ways) = (1..cores)
        .map(|core| {
            let ((to_way, from_first), (to_first, from_way)) = (between.queue(), between.queue());
            let way = Way {
                between,
                core,
                from_first,
                to_first,
                slot: 0,
                share: Share::default(),
                has_entered: false,
                aged: None,
            };
            (WayEnd { to_way: Some(to_way), from_way }, way)
        })
        .unzip();
    let piece = || Piece {
        batch: Batch::default(),
        memory: Arc::new(Block::Filled(Vec::new())),
        shares: (0..cores).map(|_| CoreBatch::default()).collect(),
        out: 0,
    };
    let first = FirstStage {
        between,
        stream,
        router,
        ways: ends,
        found: ClassifiedBatch::default(),
        pieces: (0..between.slots).map(|_| piece()).collect(),
        read: 0,
        written: 0,
        last: Seq(0),
        quiet: None,
        is_exhausted: false,
        has_failed: false,
        has_entered: false,
    };
    (first, ways)
}

/// A piece of the stream, or an unused one.
struct Piece<M> {
    /// The packets as read.
    batch: Batch,
    /// The packets' bytes, while stages share them.
    memory: Arc<Block>,
    /// The shares by core, but for those that ways have. That of core 0 stays empty.
    shares: Box<[CoreBatch<M>]>,
    /// The number of ways that still have their shares.
    out: usize,
}

/// The first stage's ends of the queues to a way and back.
struct WayEnd {
    /// `None` once nothing more comes.
    to_way: Option<Producer<Slot>>,
    from_way: Consumer<Slot>,
}

/// The first stage: it reads and steers, and writes what comes back. Pieces are numbered from 0; piece `n` is in slot `n` modulo the slots.
struct FirstStage<'s, 'a, N: NetworkFunction> {
    between: &'s Between<N::Meta>,
    stream: Stream<'a>,
    router: Arc<Router<N>>,
    ways: Vec<WayEnd>,
    found: ClassifiedBatch<N::Meta>,
    pieces: Box<[Piece<N::Meta>]>,
    /// The number of pieces read.
    read: u64,
    /// The number of pieces written. Their slots are free.
    written: u64,
    /// The last packet read.
    last: Seq,
    /// The last time by which state aged without packets.
    quiet: Option<Nanos>,
    /// The input has ended or failed.
    is_exhausted: bool,
    /// The output has failed: nothing more is written.
    has_failed: bool,
    has_entered: bool,
}

impl<N: NetworkFunction> FirstStage<'_, '_, N> {
    fn slot(&self, number: u64) -> usize {
        (number % self.pieces.len() as u64) as usize
    }

    /// The number of pieces on their way.
    const fn in_flight(&self) -> u64 {
        self.read - self.written
    }

    /// Takes back what the ways have decided, and writes the pieces that are whole. Returns true if there were some.
    fn take_back(&mut self) -> Result<bool, EngineError> {
        let Self { between, ways, pieces, stream, has_failed, .. } = self;
        let (mut any, mut result) = (false, Ok(()));
        for (way, (end, shares)) in ways.iter_mut().zip(&between.shares).enumerate() {
            while let Some(slot) = end.from_way.pop() {
                let piece = &mut pieces[slot as usize];
                let packets = &mut piece.shares[way + 1];
                swap(packets, &mut lock(&shares[slot as usize]).packets);
                piece.out -= 1;
                any = true;
                if stream.order == Order::Any {
                    result = result.and(send(stream, has_failed, &mut packets.batch));
                }
            }
        }
        while self.in_flight() > 0 && self.pieces[self.slot(self.written)].out == 0 {
            result = result.and(self.write());
        }
        result?;
        Ok(any)
    }

    /// Writes the oldest piece and frees its slot.
    fn write(&mut self) -> Result<(), PortError> {
        let slot = self.slot(self.written);
        let Piece { batch, memory, shares, .. } = &mut self.pieces[slot];
        let result = if self.stream.order == Order::Any {
            Ok(())
        } else {
            merge(batch, shares);
            send(&mut self.stream, &mut self.has_failed, batch)
        };
        shares.iter_mut().for_each(|share| share.batch.clear());
        batch.unshare(memory);
        self.written += 1;
        result
    }

    /// Reads the next piece into its free slot and hands each way its share. If the function panics on a packet, that packet and all behind
    /// it are left out.
    fn read(&mut self) -> Result<Received, EngineError> {
        let slot = self.slot(self.read);
        let Self { pieces, stream, router, found, .. } = self;
        let Piece { batch, memory, shares, .. } = &mut pieces[slot];
        let received = received(&mut *stream.input, batch);
        match received {
            Ok(Received::Packets) => {}
            Ok(Received::Idle) => return Ok(self.age(slot)),
            Ok(Received::End) | Err(_) => {
                self.is_exhausted = true;
                self.between.close();
                return received;
            }
        }
        self.last = batch.packets().last().map_or(self.last, |packet| packet.seq);
        batch.share(memory);
        let mut at = 0;
        let panic = router.deal(batch, shares, None, found, &mut at);
        let failure = panic.map(|panic| cut_at(0, batch, at, &*panic));
        self.read += 1;
        for way in 0..self.ways.len() {
            if !self.pieces[slot].shares[way + 1].batch.is_empty() {
                self.hand_to(way, slot, None);
            }
        }
        failure.map_or(Ok(Received::Packets), |failure| Err(EngineError::Panicked(Box::new(failure))))
    }

    /// Lets every way age its state, if nothing is on its way and the last time is long enough ago.
    fn age(&mut self, slot: usize) -> Received {
        let now = self.stream.input.now();
        let is_done = self.in_flight() == 0;
        let Some(now) = now.filter(|now| is_done && Quiet::is_due(*now, self.quiet)) else { return Received::Idle };
        self.quiet = Some(now);
        self.read += 1;
        for way in 0..self.ways.len() {
            self.hand_to(way, slot, Some(Quiet { now, last: self.last }));
        }
        Received::Packets
    }

    fn hand_to(&mut self, way: usize, slot: usize, quiet: Option<Quiet>) {
        let piece = &mut self.pieces[slot];
        {
            let mut share = lock(&self.between.shares[way][slot]);
            swap(&mut share.packets, &mut piece.shares[way + 1]);
            share.quiet = quiet;
        }
        piece.out += 1;
        if let Some(to_way) = &mut self.ways[way].to_way {
            self.between.hand_over(to_way, slot, way + 1);
        }
    }

    /// Tells the ways that nothing more comes.
    fn end(&mut self) -> Received {
        self.ways.iter_mut().for_each(|end| end.to_way = None);
        self.between.wake_all();
        Received::End
    }
}

/// Gives packets to the output, unless it has failed.
fn send(stream: &mut Stream<'_>, has_failed: &mut bool, batch: &mut Batch) -> Result<(), PortError> {
    if *has_failed {
        return Ok(());
    }
    let result = stream.output.transmit(batch);
    *has_failed = result.is_err();
    result
}

impl<N: NetworkFunction> Feed<N> for FirstStage<'_, '_, N> {
    /// Does the stage's work. The run loop's own batch stays empty: this core's worker decides nothing.
    fn receive(&mut self, _: &mut Batch) -> Result<Received, EngineError> {
        if !self.has_entered {
            self.between.enter(0);
            self.has_entered = true;
        }
        if self.between.is_abandoned() {
            return Ok(self.end());
        }
        let has_written = self.take_back()?;
        if self.between.is_closed() && self.in_flight() == 0 {
            return Ok(self.end());
        }
        let has_room = self.in_flight() < self.pieces.len() as u64;
        let received = if self.between.is_closed() || !has_room { Received::Idle } else { self.read()? };
        Ok(match received {
            Received::Packets => Received::Packets,
            // The ways may still have something; then the next call says that this is the end.
            Received::Idle | Received::End if has_written => Received::Packets,
            Received::Idle | Received::End => Received::Idle,
        })
    }

    fn process(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }

    fn transmit(&mut self, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }

    /// Waits for the ways while they have something, and only then for input.
    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        if self.in_flight() > 0 {
            let Self { between, ways, .. } = self;
            sleep(at_most, || between.is_abandoned() || ways.iter().any(|end| !end.from_way.is_empty()));
            return Ok(());
        }
        if self.between.is_closed() {
            return Ok(());
        }
        if !self.has_failed {
            let flushed = self.stream.output.flush();
            self.has_failed = flushed.is_err();
            flushed?;
        }
        match self.stream.input.wait(at_most) {
            Err(PortError::Down(_)) => Ok(()),
            result => Ok(result?),
        }
    }

    fn close(&mut self) {
        self.between.close();
    }

    fn abandon(&mut self) {
        self.between.abandon();
    }

    fn finish(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }
}

/// A way: it decides its shares of the pieces, in their order.
struct Way<'s, M> {
    between: &'s Between<M>,
    core: usize,
    from_first: Consumer<Slot>,
    to_first: Producer<Slot>,
    /// The slot of the current share.
    slot: usize,
    /// The current share. Its batch is with the run's loop.
    share: Share<M>,
    has_entered: bool,
    aged: Option<Nanos>,
}

impl<M> Way<'_, M> {
    /// Exchanges the share at hand with the one in the current slot.
    fn exchange(&mut self) {
        swap(&mut self.share, &mut lock(&self.between.shares[self.core - 1][self.slot]));
    }
}

impl<N: NetworkFunction> Feed<N> for Way<'_, N::Meta> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        if !self.has_entered {
            self.between.enter(self.core);
            self.has_entered = true;
        }
        if self.between.is_abandoned() {
            return Ok(Received::End);
        }
        let Some(slot) = self.from_first.pop() else {
            return Ok(if self.from_first.is_finished() { Received::End } else { Received::Idle });
        };
        self.slot = slot as usize;
        self.exchange();
        swap(&mut self.share.packets.batch, batch);
        Ok(Received::Packets)
    }

    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        match self.share.quiet {
            Some(quiet) => {
                self.aged = Some(quiet.now);
                quiet.age(worker);
            }
            None => self.share.packets.process(worker, batch),
        }
        Ok(())
    }

    /// Hands the share back.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        swap(&mut self.share.packets.batch, batch);
        self.exchange();
        self.between.hand_over(&mut self.to_first, self.slot, 0);
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        let Self { between, from_first, .. } = self;
        sleep(at_most, || between.is_abandoned() || !from_first.is_empty() || from_first.is_finished());
        Ok(())
    }

    /// Set by pieces without packets.
    fn aged(&self) -> Option<Nanos> {
        self.aged
    }

    fn close(&mut self) {
        self.between.close();
    }

    fn abandon(&mut self) {
        self.between.abandon();
    }

    fn finish(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(())
    }
}
