//! The first stage of a pipeline.

use std::mem::{swap, take};
use std::time::{Duration, Instant};

use fifo::{Consumer, Producer};
use nf::NetworkFunction;
use packet::Nanos;
use port::{Batch, Order, PortError, Received, Stream};

use super::between::{Between, Piece, Slot, sleep};
use super::steer::{CORE, Dealt, Splitter};
use crate::error::EngineError;
use crate::run::feed::{Feed, received};
use crate::run::handle::Control;
use crate::run::quiet::Quiet;
use crate::run::turns::{lock, merge};
use crate::work::any_worker::AnyWorker;

/// Time without anything back from a core after which it is named as stalled.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where pieces go once they are read.
pub(super) enum Onward<'s, N: NetworkFunction> {
    /// This core hands them out.
    Here(Splitter<'s, N>),
    /// The core behind it does.
    Core {
        /// `None` once nothing more comes.
        to_second: Option<Producer<Slot>>,
        from_second: Consumer<Dealt>,
    },
}

/// The first stage: it reads pieces, and writes what comes back. Pieces are numbered from 0; piece `n` is in slot `n` modulo the slots.
pub(super) struct FirstStage<'s, 'a, N: NetworkFunction> {
    between: &'s Between<N::Meta>,
    stream: Stream<'a>,
    onward: Onward<'s, N>,
    /// By way.
    from_ways: Vec<Consumer<Slot>>,
    /// By slot: which ways have given their shares back, and how many have to, once that is known.
    back: Box<[Back]>,
    /// The number of pieces read.
    read: u64,
    /// The number of pieces written. Their slots are free.
    written: u64,
    /// The last time by which state aged without packets.
    quiet: Option<Nanos>,
    /// The input has ended or failed.
    is_exhausted: bool,
    /// The output has failed: nothing more is written.
    has_failed: bool,
    has_entered: bool,
    control: &'s Control,
    /// Since when nothing has come back while something is on its way.
    waits_since: Option<Instant>,
}

/// The shares of a piece that have come back.
struct Back {
    /// By way.
    ways: Box<[bool]>,
    came: u32,
    /// The number of ways that have a share; `None` until that is known.
    dealt: Option<u32>,
}

impl<'s, 'a, N: NetworkFunction> FirstStage<'s, 'a, N> {
    pub(super) fn new(
        between: &'s Between<N::Meta>,
        stream: Stream<'a>,
        onward: Onward<'s, N>,
        from_ways: Vec<Consumer<Slot>>,
        control: &'s Control,
    ) -> Self {
        let back = || Back { ways: vec![false; between.ways()].into(), came: 0, dealt: None };
        Self {
            between,
            stream,
            onward,
            from_ways,
            back: (0..between.slots()).map(|_| back()).collect(),
            read: 0,
            written: 0,
            quiet: None,
            is_exhausted: false,
            has_failed: false,
            has_entered: false,
            control,
            waits_since: None,
        }
    }

    /// The stream, and whether the input has ended or failed.
    pub(super) fn into_stream(self) -> (Stream<'a>, bool) {
        (self.stream, self.is_exhausted)
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.between.slots() as u64) as usize
    }

    /// The number of pieces on their way.
    const fn in_flight(&self) -> u64 {
        self.read - self.written
    }

    /// Takes back what the ways have decided, and writes the pieces that are whole. Returns true if there were some.
    fn take_back(&mut self) -> Result<bool, EngineError> {
        let Self { between, from_ways, back, stream, has_failed, .. } = self;
        let (mut any, mut result) = (false, Ok(()));
        for (way, (from_way, shares)) in from_ways.iter_mut().zip(&between.shares).enumerate() {
            while let Some(slot) = from_way.pop() {
                let back = &mut back[slot as usize];
                back.ways[way] = true;
                back.came += 1;
                any = true;
                if stream.order == Order::Any {
                    let sent = send(stream, has_failed, &mut lock(&shares[slot as usize]).packets.batch);
                    result = result.and(sent);
                }
            }
        }
        if let Onward::Core { from_second, .. } = &mut self.onward {
            while let Some(Dealt { slot, ways }) = from_second.pop() {
                back[slot as usize].dealt = Some(ways);
                any = true;
            }
        }
        while self.in_flight() > 0 && self.back[self.slot(self.written)].is_whole() {
            result = result.and(self.write());
        }
        result?;
        if any {
            self.waits_since = None;
            self.control.stall(None);
        }
        Ok(any)
    }

    /// Writes the oldest piece and frees its slot.
    fn write(&mut self) -> Result<(), PortError> {
        let slot = self.slot(self.written);
        let Self { between, stream, has_failed, .. } = self;
        let Piece { batch, memory, shares, is_dealt, .. } = &mut *lock(&between.pieces[slot]);
        let is_only = is_dealt.len() == 1;
        for (way, is_dealt) in is_dealt.iter_mut().enumerate() {
            if take(is_dealt) {
                let packets = &mut lock(&between.shares[way][slot]).packets;
                match is_only {
                    true => swap(batch, &mut packets.batch),
                    false => swap(&mut shares[between.ahead + way], packets),
                }
            }
        }
        let result = if stream.order == Order::Any {
            Ok(())
        } else {
            if !is_only {
                merge(batch, shares);
            }
            send(stream, has_failed, batch)
        };
        if is_only {
            batch.clear();
        } else {
            shares.iter_mut().for_each(|share| share.batch.clear());
            batch.unshare(memory);
        }
        let back = &mut self.back[slot];
        back.ways.fill(false);
        (back.came, back.dealt) = (0, None);
        self.written += 1;
        result
    }

    /// Reads the next piece into its free slot and hands it on. If the function panics on a packet, that packet and all behind it are left
    /// out.
    fn read(&mut self) -> Result<Received, EngineError> {
        let slot = self.slot(self.read);
        let received = {
            let piece = &mut *lock(&self.between.pieces[slot]);
            piece.quiet = None;
            received(&mut *self.stream.input, &mut piece.batch)
        };
        match received {
            Ok(Received::Packets) => {}
            Ok(Received::Idle) => return Ok(self.age(slot)),
            Ok(Received::End) | Err(_) => {
                self.is_exhausted = true;
                self.between.close();
                return received;
            }
        }
        self.hand_on(slot)?;
        Ok(Received::Packets)
    }

    /// Lets every way age its state, if nothing is on its way and the last time is long enough ago.
    fn age(&mut self, slot: usize) -> Received {
        let now = self.stream.input.now();
        let is_done = self.in_flight() == 0;
        let Some(now) = now.filter(|now| is_done && Quiet::is_due(*now, self.quiet)) else { return Received::Idle };
        self.quiet = Some(now);
        {
            let piece = &mut *lock(&self.between.pieces[slot]);
            piece.batch.clear();
            piece.quiet = Some(now);
        }
        let handed = self.hand_on(slot);
        debug_assert!(handed.is_ok(), "no packet, no panic on one");
        Received::Packets
    }

    /// Hands the piece of the slot to the ways, or to the stage that does so.
    fn hand_on(&mut self, slot: usize) -> Result<(), EngineError> {
        self.read += 1;
        match &mut self.onward {
            Onward::Here(splitter) => {
                let (ways, result) = splitter.split(slot, 0);
                self.back[slot].dealt = Some(ways);
                result
            }
            Onward::Core { to_second, .. } => {
                if let Some(to_second) = to_second {
                    self.between.hand_over(to_second, slot as Slot, CORE);
                }
                Ok(())
            }
        }
    }

    /// Tells the stages behind that nothing more comes.
    fn end(&mut self) -> Received {
        match &mut self.onward {
            Onward::Here(splitter) => splitter.end(),
            Onward::Core { to_second, .. } => *to_second = None,
        }
        self.between.wake_all();
        Received::End
    }

    /// Names the core that the oldest piece waits for, if it has waited for long.
    fn watch(&mut self) {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return;
        }
        let slot = self.slot(self.written);
        let back = &self.back[slot];
        let stalled = match back.dealt {
            None => Some(CORE),
            Some(_) => {
                let dealt = &lock(&self.between.pieces[slot]).is_dealt;
                let way = dealt.iter().zip(&back.ways).position(|(is_dealt, is_back)| *is_dealt && !is_back);
                way.map(|way| self.between.ahead + way)
            }
        };
        self.control.stall(stalled);
    }
}

impl Back {
    /// True if all shares have come back.
    fn is_whole(&self) -> bool {
        self.dealt == Some(self.came)
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
        self.between.enter(0, &mut self.has_entered);
        if self.between.is_abandoned() {
            return Ok(self.end());
        }
        let has_written = self.take_back()?;
        if self.between.is_closed() && self.in_flight() == 0 {
            return Ok(self.end());
        }
        let has_room = self.in_flight() < self.between.slots() as u64;
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
            self.watch();
            let Self { between, from_ways, onward, .. } = self;
            let is_told = || match &*onward {
                Onward::Here(_) => false,
                Onward::Core { from_second, .. } => !from_second.is_empty(),
            };
            sleep(at_most, || between.is_abandoned() || is_told() || from_ways.iter().any(|from| !from.is_empty()));
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
