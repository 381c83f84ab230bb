//! Flows of one function of a chain, under keys of its own: [`Apart`].

use memory::{Allocator, Map, Memory, Vector};
use packet::{Family, FlowKey, Key, Nanos, Words, hash_words};

use crate::context::{Context, Effects};
use crate::function::{Flow, NetworkFunction, Opened, Step};
use crate::kept::Kept;
use crate::report::Fingerprint;
use crate::verdict::Verdict;

/// Flows of one function whose keys differ from those of the chain's entries, in shared state.
///
/// It does what a flow table of an engine does, but that a full one refuses new flows: none is evicted. A chain's entry remembers where a flow
/// was found, so that the next packet finds it without a look-up.
pub(super) struct Apart<M: Memory, const W: usize> {
    index: M::Map<AnyKey, u32>,
    /// For each flow its key, its deadline, and its words.
    records: M::Vector<[u64; W]>,
    /// The deadlines here may be earlier than those of the records, which move with each packet.
    pool: M::Allocator,
}

/// A key of any function: 1 for IPv4 or 2 for IPv6, and the words of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AnyKey([u64; KEY_WORDS]);

packet::words! {
    AnyKey: [6], key => key.0, words => Self(words);
}

impl Key for AnyKey {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words(self.0, seed)
    }
}

/// Words of [`AnyKey`].
const KEY_WORDS: usize = 6;
/// Where a record has its deadline.
const DEADLINE: usize = KEY_WORDS;
/// Where a record has its flow.
pub(super) const FLOW: usize = KEY_WORDS + 1;

impl AnyKey {
    /// Words of the longest key.
    pub(super) const WORDS: usize = KEY_WORDS - 1;

    #[inline]
    fn of(key: &impl FlowKey) -> Self {
        let mut all = [0; KEY_WORDS];
        let (family, place) = all.split_at_mut(1);
        match key.family() {
            Family::V4(key) => {
                family[0] = 1;
                put(place, key.to_words().as_ref());
            }
            Family::V6(key) => {
                family[0] = 2;
                put(place, key.to_words().as_ref());
            }
        }
        Self(all)
    }
}

#[inline]
fn put(place: &mut [u64], words: &[u64]) {
    place[..words.len()].copy_from_slice(words);
}

/// How many deadlines of the pool are looked at with each packet.
const RECLAIMED_A_PACKET: usize = 2;

/// Where a flow was found: its place in the records and one, or 0.
pub(super) type Found = u64;

impl<M: Memory, const W: usize> Apart<M, W> {
    /// No flows, and room for `flows`.
    pub(super) fn new(memory: &M, flows: usize) -> Self {
        Self { index: memory.map(flows), records: memory.vector(flows, [0; W]), pool: memory.allocator(flows) }
    }

    /// Prefetches what a look-up of the key reads first.
    pub(super) fn prefetch(&self, key: &impl FlowKey) {
        self.index.prefetch(&AnyKey::of(key));
    }

    /// Prefetches the flow of the key.
    pub(super) fn prefetch_flow(&self, key: &impl FlowKey) {
        if let Some(at) = self.index.hint(&AnyKey::of(key)) {
            self.records.prefetch(at as usize);
        }
    }

    /// Prefetches the flow that was found there.
    #[inline]
    pub(super) fn prefetch_found(&self, found: Found) {
        if let Some(at) = found.checked_sub(1) {
            self.records.prefetch(at as usize);
        }
    }

    /// Ends some flows whose deadline has passed.
    pub(super) fn reclaim<'a, N: NetworkFunction>(&'a self, nf: &N, cx: &mut Context<'a, N, M>) -> Step<(), M> {
        for _ in 0..RECLAIMED_A_PACKET {
            let now = cx.now();
            let Some(at) = self.pool.expire(&mut cx.tx, now)? else { break };
            let record = self.records.read(&mut cx.tx, at)?;
            let deadline = Nanos(record[DEADLINE]);
            if deadline > now {
                self.pool.allocate_exact(&mut cx.tx, at, deadline)?;
            } else {
                self.end(nf, cx, at, &record)?;
            }
        }
        Ok(())
    }

    /// Takes the step of a packet. `found` says where the last packet's flow was, and is told where this one's is.
    #[inline]
    pub(super) fn step<'a, N: NetworkFunction>(
        &'a self,
        nf: &N,
        cx: &mut Context<'a, N, M>,
        key: &impl FlowKey,
        meta: &N::Meta,
        found: &mut Found,
        decided: impl FnOnce(&Verdict),
    ) -> Step<(), M> {
        let key = AnyKey::of(key);
        let known = self.known(cx, &key, *found)?;
        if let Some((at, record)) = &known
            && Nanos(record[DEADLINE]) > cx.now()
            && let Some(mut flow) = flow_of::<N, W>(record)
        {
            match nf.packet(cx, &mut flow, meta) {
                Ok(ref verdict) => decided(verdict),
                Err(conflict) => return Err(conflict),
            }
            *found = *at as u64 + 1;
            return self.put_back(nf, cx, (*at, record), &flow, found);
        }
        *found = 0;
        if let Some((at, record)) = &known {
            self.pool.free(&mut cx.tx, *at)?;
            self.end(nf, cx, *at, record)?;
        }
        let verdict = self.open(nf, cx, key, meta, found)?;
        decided(&verdict);
        Ok(())
    }

    /// Stores a flow after its step.
    #[inline(always)]
    fn put_back<'a, N: NetworkFunction>(
        &'a self,
        nf: &N,
        cx: &mut Context<'a, N, M>,
        (at, record): (usize, &[u64; W]),
        flow: &N::Flow,
        found: &mut Found,
    ) -> Step<(), M> {
        let Effects { deadline, close, .. } = cx.next();
        let (mut record, before) = (*record, record[DEADLINE]);
        flow.write_words(&mut record[FLOW..FLOW + words_of::<N>()]);
        if close {
            *found = 0;
            self.pool.free(&mut cx.tx, at)?;
            return self.end(nf, cx, at, &record);
        }
        record[DEADLINE] = deadline.map_or(before, |deadline| deadline.0);
        self.records.write(&mut cx.tx, at, record)?;
        // A later deadline is seen when the earlier one has passed.
        if record[DEADLINE] < before {
            self.pool.refresh(&mut cx.tx, at, Nanos(record[DEADLINE]))?;
        }
        Ok(())
    }

    /// Takes the step of a packet without a flow.
    #[inline(never)]
    fn open<'a, N: NetworkFunction>(
        &'a self,
        nf: &N,
        cx: &mut Context<'a, N, M>,
        key: AnyKey,
        meta: &N::Meta,
        found: &mut Found,
    ) -> Step<Verdict, M> {
        let mut flow = match nf.open(cx, meta)? {
            Opened::Refused(verdict) => return Ok(verdict),
            Opened::Flow(flow) => flow,
        };
        let before = cx.next().deadline;
        let Some(at) = self.pool.allocate(&mut cx.tx, Nanos::NEVER)? else {
            nf.expire(cx, &flow)?;
            cx.next();
            return nf.orphan(cx, meta);
        };
        let verdict = nf.packet(cx, &mut flow, meta)?;
        let Effects { deadline, close, .. } = cx.next();
        let deadline = deadline.or(before).unwrap_or(Nanos::NEVER);
        let mut record = [0; W];
        record[..KEY_WORDS].copy_from_slice(&key.0);
        record[DEADLINE] = deadline.0;
        flow.write_words(&mut record[FLOW..FLOW + words_of::<N>()]);
        if close || !self.index.insert(&mut cx.tx, key, at as u32)? {
            self.pool.free(&mut cx.tx, at)?;
            self.end(nf, cx, at, &record)?;
            return Ok(verdict);
        }
        self.records.write(&mut cx.tx, at, record)?;
        self.pool.refresh(&mut cx.tx, at, deadline)?;
        *found = at as u64 + 1;
        Ok(verdict)
    }

    /// The place of the key's flow and its record, if there is one.
    #[inline]
    fn known<'a, N: NetworkFunction>(
        &'a self,
        cx: &mut Context<'a, N, M>,
        key: &AnyKey,
        found: Found,
    ) -> Step<Option<(usize, [u64; W])>, M> {
        if let Some(at) = found.checked_sub(1).map(|at| at as usize)
            && at < self.records.len()
        {
            let record = self.records.read(&mut cx.tx, at)?;
            // Without a call, as a comparison of so many words would be.
            if record.iter().zip(&key.0).all(|(word, wanted)| word == wanted) {
                return Ok(Some((at, record)));
            }
        }
        let Some(at) = self.index.get(&mut cx.tx, key)? else { return Ok(None) };
        Ok(Some((at as usize, self.records.read(&mut cx.tx, at as usize)?)))
    }

    /// Ends a flow that has no place in the pool any more.
    #[inline(never)]
    fn end<'a, N: NetworkFunction>(
        &'a self,
        nf: &N,
        cx: &mut Context<'a, N, M>,
        at: usize,
        record: &[u64; W],
    ) -> Step<(), M> {
        if let Some(flow) = flow_of::<N, W>(record) {
            nf.expire(cx, &flow)?;
            cx.next();
        }
        let mut key = [0; KEY_WORDS];
        key.copy_from_slice(&record[..KEY_WORDS]);
        self.index.remove(&mut cx.tx, &AnyKey(key))?;
        // No key begins with 0, so nobody finds it here any more.
        self.records.write(&mut cx.tx, at, [0; W])
    }

    /// Adds all flows to a fingerprint, whatever their order.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        let mut sum = 0_u64;
        for at in 0..self.records.len() {
            let record = self.records.read(tx, at)?;
            if record[0] != 0 {
                let mut one = Fingerprint::default();
                record.into_iter().for_each(|word| one.add(word));
                sum = sum.wrapping_add(one.value());
            }
        }
        fingerprint.add(sum);
        Ok(())
    }

    /// Keeps all flows.
    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        for at in kept.pool::<M>(tx, &self.pool)? {
            let Some(record) = kept.element::<M, _>(tx, &self.records, at)? else { return Ok(()) };
            let Some(key) = record.first_chunk().filter(|key| key[0] != 0) else {
                kept.damage();
                return Ok(());
            };
            if kept.reads() && !self.index.insert(tx, AnyKey(*key), at as u32)? {
                kept.damage();
                return Ok(());
            }
        }
        Ok(())
    }

    /// The number of flows at `now`.
    pub(super) fn alive<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<u64, M> {
        let mut alive = 0;
        for at in 0..self.records.len() {
            let record = self.records.read(tx, at)?;
            alive += u64::from(record[0] != 0 && Nanos(record[DEADLINE]) > now);
        }
        Ok(alive)
    }
}

/// The flow of a record.
#[inline]
fn flow_of<N: NetworkFunction, const W: usize>(record: &[u64; W]) -> Option<N::Flow> {
    N::Flow::read_words(&record[FLOW..FLOW + words_of::<N>()])
}

/// Words of a function's flow.
pub(super) const fn words_of<N: NetworkFunction>() -> usize {
    match N::Flow::WORDS {
        Some(words) => words,
        None => 0,
    }
}
