//! Several cores on one stream: they take turns to read, steer and write.
//!
//! The stream is read in pieces. Each piece goes through the same stages, and every stage is done by the first core that is free:
//!
//! 1. One core *reads* the piece and parses its packets, while another reads the next piece.
//! 2. Pieces are *steered* in order: each core gets its share of the packets.
//! 3. Every core *processes* its share, piece by piece. The last core *merges* the shares.
//! 4. Pieces are *written* in order, by an idle core or by the one that merged them.
//!
//! So bytes stay where they were read. Packets pass between cores as descriptors, with their metadata where other cores need them.
//!
//! One lock guards who does what. It is taken a few times for each piece and never held during work. A core waits for input only while no
//! piece is on its way.

use std::any::Any;
use std::hint;
use std::mem::swap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use locality::prefetch;
use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Block as Memory, Order, Packet, PortError, Receive, Received, Stream, Transmit};

use super::cores::message;
use super::feed::Feed;
use super::quiet::Quiet;
use crate::error::{EngineError, FailedPacket, Failure};
use crate::history::link::LinkEnd;
use crate::history::log::{AHEAD, Block};
use crate::history::recovery::Tally;
use crate::steer::core_batch::CoreBatch;
use crate::steer::dispatch::{ClassifiedBatch, Dispatcher, Router};
use crate::work::any_worker::AnyWorker;

/// A stream that several cores share.
pub(crate) struct Turns<'a, 'd, N: NetworkFunction> {
    input: Mutex<Box<dyn Receive + 'a>>,
    output: Mutex<Output<'a>>,
    dispatcher: Mutex<&'d mut Dispatcher<N>>,
    /// Steers pieces in any order, right after they were read, if steering doesn't depend on earlier packets.
    router: Option<Arc<Router<N>>>,
    /// Parses packets ahead of steering, if steering has to follow the order of pieces.
    looks: Arc<Router<N>>,
    /// Whether pieces are written in order. If not, each core sends its own share.
    order: Order,
    cores: usize,
    /// The most packets of a piece, if logs must hold all packets under way.
    piece_max: Option<usize>,
    slots: Box<[Mutex<Piece<N>>]>,
    state: Mutex<State>,
    changed: Condvar,
    /// Counts changes, for cores that spin for a moment before they sleep.
    changes: AtomicU64,
}

/// The output of the stream.
struct Output<'a> {
    transmit: Box<dyn Transmit + 'a>,
    /// True after an error: nothing more is written.
    failed: bool,
}

/// A piece of the stream, or an unused one.
struct Piece<N: NetworkFunction> {
    /// The packets as read.
    batch: Batch,
    /// The packets' bytes, while cores share them.
    memory: Arc<Memory>,
    found: ClassifiedBatch<N::Meta>,
    /// The history records that all cores need, if `router` steers.
    block: Arc<Block<N::Meta>>,
    shares: Vec<CoreBatch<N::Meta>>,
    /// Set for a piece without packets: every core ages its state to this time. Pieces are ordered like packets, so all replicas age at the
    /// same place.
    quiet: Option<Quiet>,
}

/// Who does what. Pieces are numbered from 0; piece `n` is in slot `n` modulo the slots.
struct State {
    /// The number of pieces read.
    read: u64,
    /// The number of pieces steered. Cores may take their shares of these.
    steered: u64,
    /// The number of pieces written. Their slots are free.
    written: u64,
    stages: Box<[Stage]>,
    reading: bool,
    steering: bool,
    writing: bool,
    /// A core waits for input, so written packets must be flushed.
    starved: bool,
    /// Nothing more is read.
    ended: bool,
    /// The input has ended or failed.
    exhausted: bool,
    /// A core has ended without giving its work back, so the others must not wait for it.
    abandoned: bool,
    /// How many cores sleep until a change.
    waiting: usize,
    /// How many cores have nothing to do: they sleep until a change, or spin before that.
    idle: usize,
    /// The last packet read.
    last: Seq,
    /// The last time by which state aged without packets.
    quiet: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    /// A core parses the packets.
    Read,
    /// Ready to be steered.
    Classified,
    /// This many cores still have to process their shares.
    Steered(usize),
    /// Ready to be written.
    Merged,
}

/// How long a core spins before it sleeps: about as long as another core's turn, and shorter than waking up.
const LOOK_OUT: Duration = Duration::from_micros(50);

/// Slots for each core: one that it reads, one that it processes, one that waits for others.
const SLOTS_PER_CORE: usize = 3;

impl<'a, 'd, N: NetworkFunction> Turns<'a, 'd, N> {
    /// `lockstep` is the most packets of a piece on a lossy link. A piece is then read only after the one before it was written, so that no
    /// core waits for another that writes.
    pub(crate) fn new(
        stream: Stream<'a>,
        dispatcher: &'d mut Dispatcher<N>,
        cores: usize,
        lockstep: Option<usize>,
    ) -> Self {
        let Stream { input, output: transmit, order } = stream;
        let slots = if lockstep.is_some() { 1 } else { SLOTS_PER_CORE * cores };
        let piece = || Piece {
            batch: Batch::default(),
            memory: Arc::new(Memory::Filled(Vec::new())),
            found: ClassifiedBatch::default(),
            block: Arc::default(),
            shares: (0..cores).map(|_| CoreBatch::default()).collect(),
            quiet: None,
        };
        let output = Output { transmit, failed: false };
        Self {
            input: Mutex::new(input),
            output: Mutex::new(output),
            router: dispatcher.router(),
            looks: dispatcher.any_router(),
            dispatcher: Mutex::new(dispatcher),
            order,
            cores,
            piece_max: lockstep,
            slots: (0..slots).map(|_| Mutex::new(piece())).collect(),
            state: Mutex::new(State {
                read: 0,
                steered: 0,
                written: 0,
                stages: vec![Stage::Free; slots].into(),
                reading: false,
                steering: false,
                writing: false,
                starved: false,
                ended: false,
                exhausted: false,
                abandoned: false,
                waiting: 0,
                idle: 0,
                last: Seq(0),
                quiet: None,
            }),
            changed: Condvar::new(),
            changes: AtomicU64::new(0),
        }
    }

    /// A core's feed from this stream.
    pub(crate) fn feed(&self, core: usize, link: Option<LinkEnd<N::Meta>>) -> StreamFeed<'_, 'a, 'd, N> {
        StreamFeed {
            turns: self,
            core,
            next: 0,
            share: CoreBatch::default(),
            link,
            sent: Seq(0),
            failed: false,
            recovery: None,
            ages: None,
            aged: None,
        }
    }

    /// True if the input has ended or failed.
    pub(crate) fn is_exhausted(&self) -> bool {
        lock(&self.state).exhausted
    }

    /// Returns the stream after all cores are done.
    pub(crate) fn into_stream(self) -> Stream<'a> {
        let input = self.input.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Output { transmit, .. } = self.output.into_inner().unwrap_or_else(PoisonError::into_inner);
        Stream { input, output: transmit, order: self.order }
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    fn piece(&self, number: u64) -> MutexGuard<'_, Piece<N>> {
        lock(&self.slots[self.slot(number)])
    }

    /// Wakes the waiting cores after a change.
    fn changed(&self, state: &State) {
        // ORDERING: Relaxed. A core that sees the change looks again under the lock; pairs with the loads in `look_out`.
        self.changes.fetch_add(1, Ordering::Relaxed);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Reads the next piece into its free slot. Returns false if no packets have come.
    fn read(&self, core: usize, number: u64) -> Result<bool, EngineError> {
        let mut piece = self.piece(number);
        let (received, now) = {
            let mut input = lock(&self.input);
            (self.receive(&mut **input, &mut piece.batch), input.now())
        };
        {
            let mut state = lock(&self.state);
            state.reading = false;
            match received {
                Ok(Received::Packets) => {
                    state.last = piece.batch.packets().last().map_or(state.last, |packet| packet.seq);
                    state.read += 1;
                    state.stages[self.slot(number)] = Stage::Read;
                }
                Ok(Received::Idle) => return Ok(self.age(state, &mut piece, now)),
                Ok(Received::End) | Err(_) => (state.ended, state.exhausted) = (true, true),
            }
            self.changed(&state);
        }
        if received? == Received::End {
            return Ok(true);
        }
        let failure = self.look(core, &mut piece);
        drop(piece);
        let mut state = lock(&self.state);
        state.stages[self.slot(number)] = Stage::Classified;
        state.ended |= failure.is_some();
        self.steer(state);
        failure.map_or(Ok(true), |failure| Err(EngineError::Panicked(Box::new(failure))))
    }

    /// Makes a piece without packets, by which every core ages its state to `now`. Only if all pieces are written and the last such piece
    /// is old enough; otherwise returns false.
    fn age<'s>(&'s self, mut state: MutexGuard<'s, State>, piece: &mut Piece<N>, now: Option<Nanos>) -> bool {
        let is_done = state.written == state.read;
        let Some(now) = now.filter(|now| is_done && Quiet::is_due(*now, state.quiet)) else { return false };
        state.quiet = Some(now);
        piece.quiet = Some(Quiet { now, last: state.last });
        let slot = self.slot(state.read);
        state.stages[slot] = Stage::Steered(self.cores);
        (state.read, state.steered) = (state.read + 1, state.steered + 1);
        self.changed(&state);
        true
    }

    /// Receives a piece. A piece that is too large for the logs is an error.
    fn receive(&self, input: &mut dyn Receive, batch: &mut Batch) -> Result<Received, EngineError> {
        let received = match input.receive(batch) {
            Err(PortError::Down(_)) => Received::Idle,
            received => received?,
        };
        match self.piece_max {
            Some(most) if received == Received::Packets && batch.len() > most => Err(EngineError::Refused(format!(
                "the port delivers {} packets at a time, but a link that loses packets takes at most {most}",
                batch.len()
            ))),
            Some(_) | None => Ok(received),
        }
    }

    /// Parses a piece's packets, and steers them if `router` can. If the function panics on a packet, that packet and all behind it are
    /// left out.
    fn look(&self, core: usize, piece: &mut Piece<N>) -> Option<Failure> {
        let Piece { batch, memory, found, block, shares, .. } = piece;
        batch.share(memory);
        let mut at = 0;
        let panic = match &self.router {
            Some(router) => {
                if Arc::get_mut(block).is_none() {
                    // A link's end keeps the old block until it has recovered what was lost.
                    *block = Arc::default();
                }
                router.deal(batch, shares, Some(block).filter(|_| router.replicates()), found, &mut at)
            }
            None => {
                let look = || self.looks.look(batch, found, &mut at);
                catch_unwind(AssertUnwindSafe(look)).err()
            }
        }?;
        Some(cut_at(core, batch, at, &*panic))
    }

    /// Steers the pieces that are ready, in order. If another core is steering, that core does it.
    fn steer<'s>(&'s self, mut state: MutexGuard<'s, State>) {
        if state.steering {
            return;
        }
        while state.stages[self.slot(state.steered)] == Stage::Classified {
            state.steering = true;
            let number = state.steered;
            drop(state);
            if self.router.is_none() {
                let Piece { batch, found, shares, .. } = &mut *self.piece(number);
                lock(&self.dispatcher).deal(batch, found, shares);
            }
            state = lock(&self.state);
            state.steering = false;
            state.stages[self.slot(number)] = Stage::Steered(self.cores);
            state.steered += 1;
            self.changed(&state);
        }
    }

    /// Ends a core's work on its share. The last core merges the shares; it also writes the piece, unless an idle core can.
    fn done(&self, number: u64) -> Result<(), EngineError> {
        let mut state = lock(&self.state);
        let slot = self.slot(number);
        let Stage::Steered(shares) = state.stages[slot] else { unreachable!("a share is of a piece that was steered") };
        if shares > 1 {
            state.stages[slot] = Stage::Steered(shares - 1);
            return Ok(());
        }
        if self.order != Order::Any {
            drop(state);
            let Piece { batch, shares, .. } = &mut *self.piece(number);
            merge(batch, shares);
            state = lock(&self.state);
        }
        state.stages[slot] = Stage::Merged;
        if !self.is_to_write(&state) {
            return Ok(());
        }
        if state.idle > 0 {
            self.changed(&state);
            return Ok(());
        }
        self.write_all(state)
    }

    /// True if the next piece is merged and no core writes.
    fn is_to_write(&self, state: &State) -> bool {
        !state.writing && state.stages[self.slot(state.written)] == Stage::Merged
    }

    /// Writes the next piece, and the merged pieces behind it.
    fn write_all<'s>(&'s self, mut state: MutexGuard<'s, State>) -> Result<(), EngineError> {
        let mut result = Ok(());
        while self.is_to_write(&state) {
            state.writing = true;
            let number = state.written;
            drop(state);
            let wrote = self.write(&mut self.piece(number));
            state = lock(&self.state);
            state.writing = false;
            state.stages[self.slot(number)] = Stage::Free;
            state.written += 1;
            state.ended |= wrote.is_err();
            self.changed(&state);
            result = result.and(wrote.map_err(EngineError::from));
        }
        if state.starved && state.written == state.read {
            drop(state);
            result = result.and(self.flush().map_err(EngineError::from));
        }
        result
    }

    /// Sends a core's share, if the order of packets doesn't matter.
    fn send(&self, batch: &mut Batch) -> Result<(), PortError> {
        let Output { transmit, failed, .. } = &mut *lock(&self.output);
        if *failed {
            return Ok(());
        }
        let result = transmit.transmit(batch);
        *failed = result.is_err();
        result
    }

    /// Writes a piece and frees its slot.
    fn write(&self, piece: &mut Piece<N>) -> Result<(), PortError> {
        let Output { transmit, failed } = &mut *lock(&self.output);
        let Piece { batch, memory, shares, quiet, .. } = piece;
        let mut result = Ok(());
        if self.order != Order::Any && !*failed {
            result = transmit.transmit(batch);
            *failed = result.is_err();
        }
        for share in shares {
            share.batch.clear();
            share.block = None;
        }
        *quiet = None;
        batch.unshare(memory);
        result
    }

    /// Flushes written packets.
    fn flush(&self) -> Result<(), PortError> {
        let Output { transmit, failed, .. } = &mut *lock(&self.output);
        if *failed {
            return Ok(());
        }
        let result = transmit.flush();
        *failed = result.is_err();
        result
    }

    /// Ends reading.
    fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        self.changed(&state);
    }
}

impl State {
    /// True if a core that has come to piece `next` has no more work. A core that still reads may bring one more piece, because it began
    /// before the end was known.
    const fn is_over(&self, next: u64) -> bool {
        self.ended && !self.reading && next == self.read
    }
}

/// Spins for a moment and returns true if something changed. Another core is usually almost done, and waking up takes longer.
pub(super) fn look_out(has_changed: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < LOOK_OUT {
        for _ in 0..16 {
            if has_changed() {
                return true;
            }
            hint::spin_loop();
        }
    }
    false
}

/// Leaves out the packet on which the function panicked while it was steered, and all behind it.
pub(super) fn cut_at(core: usize, batch: &mut Batch, at: usize, panic: &(dyn Any + Send)) -> Failure {
    let (packet, bytes) = batch.packet(at);
    let Packet { seq, time, link, wire_len, .. } = *packet;
    let packet = Some(FailedPacket { time, link, wire_len, bytes: bytes.to_vec() });
    batch.truncate(at);
    Failure { core, seq, message: message(panic), packet }
}

/// Copies the processed packets of all shares back to their places in the piece. Packets that were lost on the way to their core are in no
/// share.
pub(super) fn merge<M>(batch: &mut Batch, shares: &[CoreBatch<M>]) {
    let (Some(first), Some(last)) = (batch.packets().first().map(|packet| packet.seq.0), batch.len().checked_sub(1))
    else {
        return;
    };
    for CoreBatch { batch: share, .. } in shares {
        // The numbers missing between the first packet and this one: a sequenced capture may have gaps.
        let mut missing = 0;
        for (index, packet) in share.packets().iter().enumerate() {
            let number = (packet.seq.0 - first) as usize;
            let mut at = (number - missing).min(last);
            while batch.packets()[at].seq > packet.seq {
                at -= 1;
            }
            missing = number - at;
            batch.put_back(at, share, index);
        }
    }
}

/// A core's feed from a shared stream.
pub(crate) struct StreamFeed<'t, 'a, 'd, N: NetworkFunction> {
    turns: &'t Turns<'a, 'd, N>,
    core: usize,
    /// The number of the next piece to take a share of.
    next: u64,
    /// The current share. Its batch is with the run's loop.
    share: CoreBatch<N::Meta>,
    link: Option<LinkEnd<N::Meta>>,
    /// The number after the last packet that the core knows of.
    sent: Seq,
    failed: bool,
    recovery: Option<(Tally, bool)>,
    /// The time to age the worker's state to, for a piece without packets.
    ages: Option<Quiet>,
    aged: Option<Nanos>,
}

impl<N: NetworkFunction> StreamFeed<'_, '_, '_, N> {
    /// The losses and recoveries of this core, and whether it was fenced.
    pub(crate) const fn recovery(&self) -> Option<&(Tally, bool)> {
        self.recovery.as_ref()
    }

    /// Takes the core's share of the next steered piece.
    fn take(&mut self, batch: &mut Batch) {
        {
            let mut piece = self.turns.piece(self.next);
            swap(&mut self.share, &mut piece.shares[self.core]);
            self.ages = piece.quiet;
        }
        swap(&mut self.share.batch, batch);
    }
}

impl<N: NetworkFunction> Feed<N> for StreamFeed<'_, '_, '_, N> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        let turns = self.turns;
        loop {
            let mut state = lock(&turns.state);
            if state.abandoned {
                return Ok(Received::End);
            }
            if self.next < state.steered {
                drop(state);
                self.take(batch);
                return Ok(Received::Packets);
            }
            if turns.is_to_write(&state) {
                turns.write_all(state)?;
                continue;
            }
            if state.is_over(self.next) {
                return Ok(Received::End);
            }
            let has_room = state.read - state.written < turns.slots.len() as u64;
            if state.reading || state.ended || !has_room {
                return Ok(Received::Idle);
            }
            state.reading = true;
            let number = state.read;
            drop(state);
            if !turns.read(self.core, number)? {
                return Ok(Received::Idle);
            }
        }
    }

    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        if self.failed {
            return Ok(());
        }
        if let Some(quiet) = self.ages {
            self.aged = Some(quiet.now);
            quiet.age(worker);
            return Ok(());
        }
        let Self { share, link, sent, failed, .. } = self;
        // Usually another core wrote them. The later ones are prefetched on the way.
        prefetch::all(&share.owned()[..share.owned().len().min(AHEAD)]);
        *sent = share.block.as_ref().map_or(*sent, |block| block.end);
        match (&share.block, link) {
            // A core that was fenced reports that at the end. Until then its packets are dropped and counted.
            (Some(block), Some(link)) => drop(link.process(worker, batch, block)),
            // The core that failed reports its failure itself.
            (Some(block), None) if !worker.hand_over(&block.moves()) => {
                *failed = true;
                worker.fail();
            }
            (_, _) => share.process(worker, batch),
        }
        Ok(())
    }

    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        // Without merging, no other core reads these packets.
        let sent = if self.turns.order == Order::Any { self.turns.send(batch) } else { Ok(()) };
        swap(&mut self.share.batch, batch);
        {
            let mut piece = self.turns.piece(self.next);
            swap(&mut self.share, &mut piece.shares[self.core]);
        }
        let number = self.next;
        self.next += 1;
        self.turns.done(number).and(sent.map_err(EngineError::from))
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        let turns = self.turns;
        let mut state = lock(&turns.state);
        let is_done = state.is_over(self.next) || state.abandoned;
        if self.next < state.steered || is_done || turns.is_to_write(&state) {
            return Ok(());
        }
        if state.read == state.steered
            && !state.reading
            && !state.ended
            && state.read - state.written < turns.slots.len() as u64
        {
            // No other core can have work for this one before it has read some itself.
            (state.reading, state.starved) = (true, true);
            let is_written = state.written == state.read;
            drop(state);
            let flushed = if is_written { turns.flush() } else { Ok(()) };
            let result = flushed.and_then(|()| lock(&turns.input).wait(at_most));
            let mut state = lock(&turns.state);
            (state.reading, state.starved) = (false, false);
            turns.changed(&state);
            return match result {
                Err(PortError::Down(_)) => Ok(()),
                result => Ok(result?),
            };
        }
        // ORDERING: Relaxed, as in `changed`; under the lock, so it is of this state.
        let seen = turns.changes.load(Ordering::Relaxed);
        state.idle += 1;
        drop(state);
        // ORDERING: Relaxed, as in `changed`.
        let has_changed = look_out(|| turns.changes.load(Ordering::Relaxed) != seen);
        let mut state = lock(&turns.state);
        if has_changed {
            state.idle -= 1;
            return Ok(());
        }
        // ORDERING: Relaxed. It only changes under the lock.
        if turns.changes.load(Ordering::Relaxed) == seen {
            state.waiting += 1;
            (state, _) = turns.changed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.idle -= 1;
        drop(state);
        Ok(())
    }

    /// Set by pieces without packets.
    fn aged(&self) -> Option<Nanos> {
        self.aged
    }

    fn close(&mut self) {
        self.turns.end();
    }

    fn fail(&mut self) {
        // The link's end is dropped and leaves, so the others don't wait for it.
        (self.failed, self.link) = (true, None);
    }

    fn abandon(&mut self) {
        let mut state = lock(&self.turns.state);
        state.abandoned = true;
        self.turns.changed(&state);
    }

    fn finish(&mut self, worker: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        if let Some(link) = self.link.take() {
            let (tally, outcome) = link.finish(worker, self.sent);
            self.recovery = Some((tally, outcome.is_err()));
        }
        Ok(())
    }
}

/// Takes the lock even if it is poisoned: no panic happens while the guarded state is inconsistent.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
