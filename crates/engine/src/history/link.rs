//! A link between sequencer and cores that loses packets, with recovery that keeps the replicas equal.

mod replayed;

use std::collections::VecDeque;
use std::sync::Arc;

use nf::{Meta, NetworkFunction, Reason};
use packet::{Nanos, Seq};
use port::{Batch, Packet};

use crate::history::log::{Block, Log, Record};
use crate::history::recovery::{Apply, Fenced, Logs, Member, Patience, Refusal, Shape, Tally, Words};
use crate::kind::EngineKind;
use crate::placement::hash_of;
use crate::work::any_worker::AnyWorker;

/// A link that loses packets with their history, between the sequencer and their cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Loss rate in packets of a million. Losses are independent of each other.
    pub loss_ppm: u32,
    /// The seed of the losses. Runs with the same seed lose the same packets.
    pub seed: u64,
    /// True if cores copy missing records from each other's logs. Without it replicas would differ after the first loss, so a run that
    /// loses packets is refused.
    pub recovery: bool,
    /// How long a core waits for one that stalls.
    pub patience: Patience,
}

impl Default for Link {
    fn default() -> Self {
        Self { loss_ppm: 0, seed: 0, recovery: true, patience: Patience::default() }
    }
}

impl Link {
    /// True if the packet is lost.
    #[must_use]
    pub const fn loses(&self, seq: Seq) -> bool {
        let mut word = self.seed ^ seq.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % 1_000_000) < self.loss_ppm as u64
    }

    /// The packets before the first lost one.
    fn reach<'a>(&self, packets: &'a [Packet]) -> &'a [Packet] {
        let lost = if self.loss_ppm == 0 { None } else { packets.iter().position(|packet| self.loses(packet.seq)) };
        &packets[..lost.unwrap_or(packets.len())]
    }

    /// Checks that the engine can run over this link.
    ///
    /// # Errors
    /// The reason why not, as a sentence.
    pub fn accepts(&self, kind: EngineKind, cores: usize) -> Result<(), String> {
        if kind != EngineKind::Scr || cores == 1 {
            let on = if cores == 1 { "one core" } else { "that engine" };
            return Err(format!(
                "a link that loses packets needs scr on several cores: on {on} no packet travels from a sequencer to cores"
            ));
        }
        if self.loss_ppm > 0 && !self.recovery {
            return Err(format!(
                "the link loses {} packets of a million and loss recovery is off, so replicas would differ after the first loss; \
                 turn recovery on",
                self.loss_ppm
            ));
        }
        Ok(())
    }
}

/// Where cores find the records of lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Histories {
    /// In memory that all cores can read. It is not overwritten before every core has applied its records.
    InMemory,
    /// In each core's log, with copies of what its packets carry.
    Copied,
}

/// A core's end of the link.
pub struct LinkEnd<M> {
    link: Link,
    member: Member,
    /// The blocks with records that the core still has to apply, under [`Histories::InMemory`].
    blocks: VecDeque<Arc<Block<M>>>,
    /// The records that the core applies next.
    block: Block<M>,
    arrived: Batch,
}

impl<M: Meta> LinkEnd<M> {
    /// The ends of a link to `cores` cores. The sequencer numbers at most `window` packets past the slowest core's last batch.
    #[must_use]
    pub fn ends(link: Link, cores: usize, window: usize, histories: Histories) -> Vec<Self> {
        let words = if histories == Histories::InMemory { 0 } else { words_of::<M>() };
        let least = Shape::for_window(cores, window, words);
        let shape = Shape { slots: least.slots.next_power_of_two(), ..least };
        assert!(shape.window() >= window, "cores don't wait for room in a log");
        let members = Logs::members(shape, link.patience).into_iter();
        let end =
            |member| Self { link, member, blocks: VecDeque::new(), block: Block::default(), arrived: Batch::default() };
        members.map(end).collect()
    }

    /// The losses and recoveries of this core.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        self.member.tally()
    }

    /// Decides the packets of the core's share that arrive, and removes the others. `block` has the records of the whole batch; each packet
    /// carries the latest of them. Under [`Histories::Copied`] it has the [words](Block::carried) of the packets that came here, and a
    /// missing packet was lost before.
    ///
    /// # Errors
    /// If this core was fenced. Its packets that were not applied in time are dropped.
    pub fn process<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        block: &Arc<Block<M>>,
    ) -> Result<(), Fenced> {
        let Self { link, member, blocks, block: decided, arrived } = self;
        arrived.clear();
        decided.records.clear();
        let seed = worker.seed();
        let result = match &block.carried {
            Some(carried) => {
                let mut apply = Words(|seq: Seq, words: Option<&[u64]>| {
                    decided.records.extend(words.and_then(|words| record_of::<N>(seq, words, seed)));
                });
                take_in(link, member, worker, batch, carried, arrived, &mut apply)
                    .and_then(|()| member.advance_into(block.end, &mut apply))
            }
            None => {
                blocks.push_back(Arc::clone(block));
                let mut apply = FromBlocks { blocks, records: &mut decided.records };
                take_in(link, member, worker, batch, &[], arrived, &mut apply)
                    .and_then(|()| member.advance_into(block.end, &mut apply))
            }
        };
        decided.end = member.next();
        while blocks.front().is_some_and(|block| block.end <= decided.end) {
            blocks.pop_front();
        }
        self.step(worker, batch);
        result
    }

    /// Applies the records that the core still misses at the end of the stream, and leaves.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn finish<N: NetworkFunction<Meta = M>>(
        self,
        worker: &mut dyn AnyWorker<N>,
        sent: Seq,
    ) -> (Tally, Result<(), Fenced>) {
        let Self { member, blocks, block: mut decided, mut arrived, .. } = self;
        decided.records.clear();
        let seed = worker.seed();
        let outcome = if member.logs().shape().words == 0 {
            member.finish_into(sent, &mut FromBlocks { blocks: &blocks, records: &mut decided.records })
        } else {
            member.finish(sent, |seq, words| {
                decided.records.extend(words.and_then(|words| record_of::<N>(seq, words, seed)));
            })
        };
        arrived.clear();
        worker.process_with(&mut arrived, &mut Log::of_block(&decided), sent);
        outcome
    }

    /// Lets the worker apply the records and decide the packets that it has, and puts these into `batch`.
    fn step<N: NetworkFunction<Meta = M>>(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) {
        let Self { block, arrived, .. } = self;
        batch.clear();
        // A fenced core has packets whose records will never be applied.
        for (index, packet) in arrived.packets().iter().enumerate() {
            if packet.seq < block.end {
                batch.push(*packet, arrived.bytes(index));
            } else {
                worker.drop_unseen(packet, Reason::FENCED);
            }
        }
        worker.process_with(batch, &mut Log::of_block(block), block.end);
    }
}

/// Copies the records to apply from the core's blocks.
struct FromBlocks<'a, M> {
    blocks: &'a VecDeque<Arc<Block<M>>>,
    records: &'a mut Vec<Record<M>>,
}

impl<M: Meta> Apply for FromBlocks<'_, M> {
    fn record(&mut self, seq: Seq, words: Option<&[u64]>) {
        if words.is_some() {
            self.carried(seq, seq.next());
        }
    }

    fn carried(&mut self, first: Seq, end: Seq) -> bool {
        for block in self.blocks.iter().filter(|block| block.first < end && first < block.end) {
            let from = block.records.partition_point(|record| record.seq < first);
            let count = block.records[from..].partition_point(|record| record.seq < end);
            self.records.extend_from_slice(&block.records[from..from + count]);
        }
        true
    }
}

/// Takes in the packets that the link doesn't lose, with their words of `carried`, and puts them into `arrived`.
fn take_in<N: NetworkFunction>(
    link: &Link,
    member: &mut Member,
    worker: &mut dyn AnyWorker<N>,
    batch: &Batch,
    carried: &[u64],
    arrived: &mut Batch,
    apply: &mut impl Apply,
) -> Result<(), Fenced> {
    let Shape { cores, words, .. } = member.logs().shape();
    let (mut result, mut at, mut rest) = (Ok(()), 0, carried);
    while let Some(packet) = batch.packets().get(at) {
        let lost = link.loses(packet.seq);
        let count = if lost { 1 } else { run_of(link.reach(&batch.packets()[at..]), cores) };
        let run = at..at + count;
        at = run.end;
        let len = (cores.min(packet.seq.0 as usize + 1) + (count - 1) * cores) * words;
        let (records, later) = rest.split_at(len);
        rest = later;
        if lost {
            worker.drop_unseen(packet, Reason::LINK_LOSS);
            continue;
        }
        let taken = member.receive_run(packet.seq, count, records, apply);
        for (packet, index) in batch.packets()[run.clone()].iter().zip(run) {
            match taken {
                // Packets that were not applied before the fence are dropped later, with the others that the fence stops.
                Ok(()) | Err(Refusal::Fenced(_)) => arrived.push(*packet, batch.bytes(index)),
                Err(Refusal::Late | Refusal::Astray) => worker.drop_unseen(packet, Reason::FENCED),
            }
        }
        if taken.is_err() {
            result = Err(Fenced);
        }
    }
    result
}

/// Counts the packets at the start that follow each other without a loss. The packets are one core's, in order.
#[inline]
fn run_of(packets: &[Packet], cores: usize) -> usize {
    let step = cores as u64;
    match packets {
        // The usual case: none is missing.
        [first, .., last] if last.seq.0 - first.seq.0 == (packets.len() as u64 - 1) * step => packets.len(),
        _ => 1 + packets.array_windows().take_while(|[one, next]| next.seq.0 == one.seq.0 + step).count(),
    }
}

/// The bit of a record's first word, its time, that says that the packet takes a step.
const TAKES_STEP: u64 = 1 << 63;
/// Room for any function's record.
const RECORD_BYTES_MAX: usize = 256;

/// The words of a record: its time, then its wire form.
pub(crate) fn words_of<M: Meta>() -> usize {
    assert!(M::RECORD_BYTES <= RECORD_BYTES_MAX, "a record has {RECORD_BYTES_MAX} bytes at most");
    1 + M::RECORD_BYTES.div_ceil(8)
}

/// Writes a record as words: its time, with the bit that says whether the packet takes a step, and its wire form.
pub(crate) fn write_bytes(time: u64, record: &[u8], words: &mut [u64]) {
    words[0] = time;
    let (whole, rest) = record.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for (word, bytes) in words[1..].iter_mut().zip(whole.iter().chain([&last])) {
        *word = u64::from_le_bytes(*bytes);
    }
}

/// The record in these words. `None` for a packet that takes no step.
fn record_of<N: NetworkFunction>(seq: Seq, words: &[u64], seed: u64) -> Option<Record<N::Meta>> {
    let time = Nanos(words[0] & !TAKES_STEP);
    if words[0] & TAKES_STEP == 0 {
        return None;
    }
    let mut bytes = [0; RECORD_BYTES_MAX];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words[1..]) {
        *bytes = word.to_le_bytes();
    }
    let meta = N::Meta::read(&bytes[..N::Meta::RECORD_BYTES]);
    debug_assert!(meta.is_some(), "what a record's own type wrote");
    let meta = meta?;
    Some(Record { seq, time, hash: hash_of::<N>(&meta.key(), seed), meta })
}
