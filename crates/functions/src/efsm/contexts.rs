//! Contexts and global registers that packet sets share.

use alloc::vec::Vec;
use core::mem;

use efsm::machine::Stage;
use efsm::{CONTEXT_WORDS, Context, ContextKey, LongKey, Machine, Store, Timeouts};
use memory::{Allocator, Map, Memory, Vector};
use nf::{Fingerprint, Kept, Step};
use packet::{Nanos, Words};

use super::flow::Counting;

/// The most expired contexts of each stage that a packet removes. A packet adds one at most.
const RECLAIMED_A_PACKET: usize = 2;

/// The contexts of all stages, and the global registers.
pub struct Contexts<M: Memory> {
    stages: Vec<Option<StageContexts<M>>>,
    /// By how much each register differs from its first value.
    globals: M::Vector<u64>,
}

/// The contexts of one stage.
struct StageContexts<M: Memory> {
    /// The index of each key's context.
    places: M::Map<LongKey, u64>,
    keys: M::Vector<Named>,
    contexts: M::Vector<Stored>,
    /// Ages the contexts.
    ages: M::Allocator,
}

/// The key of a context, in the long form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Named(LongKey);

/// A context as it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stored(Context);

packet::words! {
    Named: [7], named => named.0.to_words(), words => Self(LongKey::from_words(words));
    Stored: [15], stored => {
        let Context { state, registers, timeouts } = stored.0;
        let Timeouts { idle, idle_end, hard_end, fallback } = timeouts;
        let has = u64::from(fallback[0].is_some()) | u64::from(fallback[1].is_some()) << 1;
        let [first, second] = fallback.map(Option::unwrap_or_default);
        let mut words = [state, idle.0, idle_end.0, hard_end.0, first, second, has, 0, 0, 0, 0, 0, 0, 0, 0];
        words[7..].copy_from_slice(&registers);
        words
    }, words => {
        let [state, idle, idle_end, hard_end, first, second, has, registers @ ..] = words;
        let fallback = [(has & 1 != 0).then_some(first), (has & 2 != 0).then_some(second)];
        let timeouts = Timeouts { idle: Nanos(idle), idle_end: Nanos(idle_end), hard_end: Nanos(hard_end), fallback };
        Self(Context { state, registers, timeouts })
    };
}

/// The state before the first packet: global registers and presets.
#[derive(Clone, Debug)]
pub(super) struct First {
    globals: Vec<u64>,
    /// The preset contexts of each stage, by key.
    presets: Vec<Vec<(ContextKey, Context)>>,
}

impl First {
    pub(super) fn of(machine: &Machine) -> Self {
        let presets = machine.stages.iter().map(|stage| {
            let mut presets: Vec<_> = match &stage.keys {
                Some(keys) => {
                    stage.presets.iter().map(|one| (keys.lookup.key_of(&one.key), Context::of_preset(one))).collect()
                }
                None => Vec::new(),
            };
            // Of two presets with one key, the later counts.
            presets.reverse();
            presets.sort_by_key(|(key, _)| *key);
            presets.dedup_by_key(|(key, _)| *key);
            presets
        });
        Self { globals: machine.globals.clone(), presets: presets.collect() }
    }

    fn preset(&self, stage: usize, key: &ContextKey) -> Option<&Context> {
        let presets = &self.presets[stage];
        let at = presets.binary_search_by_key(key, |(key, _)| *key).ok()?;
        Some(&presets[at].1)
    }
}

impl<M: Memory> StageContexts<M> {
    /// Room for the contexts of a stage; `None` for a stage without contexts.
    fn of(stage: &Stage, memory: &M) -> Option<Self> {
        stage.keys.is_some().then(|| Self {
            places: memory.map(stage.contexts),
            keys: memory.vector(stage.contexts, Named(ContextKey::NONE.long())),
            contexts: memory.vector(stage.contexts, Stored(Context::default())),
            ages: memory.allocator(stage.contexts),
        })
    }
}

impl<M: Memory> Contexts<M> {
    /// No contexts yet; without `holds`, no room for any either.
    pub(super) fn new(machine: &Machine, memory: &M, holds: bool) -> Self {
        if !holds {
            return Self { stages: Vec::new(), globals: memory.vector(0, 0) };
        }
        let stages = machine.stages.iter().map(|stage| StageContexts::of(stage, memory)).collect();
        Self { stages, globals: memory.vector(machine.globals.len(), 0) }
    }

    /// Fits shared contexts to a program that succeeds another. Stages with contexts keep them by name; global registers stay.
    pub(super) fn adopt(&mut self, new: &Machine, old: &Machine, memory: &M) {
        if self.stages.is_empty() {
            return;
        }
        let mut before = mem::take(&mut self.stages);
        let stages = new.stages.iter().map(|stage| {
            let number = old.stages.iter().position(|other| other.name == stage.name);
            let kept = number.and_then(|number| before[number].take());
            kept.filter(|_| stage.keys.is_some()).or_else(|| StageContexts::of(stage, memory))
        });
        self.stages = stages.collect();
    }

    /// Keeps global registers, and each stage's contexts with their keys and pool.
    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        kept.vector::<M, _>(tx, &self.globals)?;
        for stage in self.stages.iter().flatten() {
            for index in kept.pool::<M>(tx, &stage.ages)? {
                let Some(Named(key)) = kept.element::<M, _>(tx, &stage.keys, index)? else { return Ok(()) };
                kept.element::<M, _>(tx, &stage.contexts, index)?;
                if kept.reads() {
                    stage.places.insert(tx, key, index as u64)?;
                }
            }
        }
        Ok(())
    }

    /// All contexts with stage and key: those that are stored, and the presets that no packet has changed.
    pub(super) fn all<'a>(&'a self, tx: &mut M::Tx<'a>, first: &First) -> Step<Vec<(usize, ContextKey, Context)>, M> {
        let mut found = Vec::new();
        for (number, stage) in self.stages.iter().enumerate() {
            let Some(stage) = stage else { continue };
            for (key, preset) in &first.presets[number] {
                if stage.places.get(tx, &key.long())?.is_none() {
                    found.push((number, *key, *preset));
                }
            }
            for index in 0..stage.ages.capacity() {
                if stage.ages.is_allocated(tx, index)? {
                    let (Named(key), Stored(context)) = (stage.keys.read(tx, index)?, stage.contexts.read(tx, index)?);
                    found.extend(ContextKey::of_long(key).map(|key| (number, key, context)));
                }
            }
        }
        Ok(found)
    }

    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for global in 0..self.globals.len() {
            fingerprint.add(self.globals.read(tx, global)?);
        }
        for stage in self.stages.iter().flatten() {
            let mut sum = 0_u64;
            for index in 0..stage.ages.capacity() {
                if stage.ages.is_allocated(tx, index)? {
                    let mut digest = Fingerprint::default();
                    stage.keys.read(tx, index)?.to_words().into_iter().for_each(|word| digest.add(word));
                    stage.contexts.read(tx, index)?.to_words().into_iter().for_each(|word| digest.add(word));
                    // A sum, because a context's index has no visible effect.
                    sum = sum.wrapping_add(digest.value());
                }
            }
            fingerprint.add(sum);
        }
        Ok(())
    }
}

/// The shared contexts as a store, for one packet.
pub(super) struct SharedContexts<'s, 'a, M: Memory> {
    shared: &'a Contexts<M>,
    first: &'s First,
    tx: &'s mut M::Tx<'a>,
    now: Nanos,
    counts: Counting<'a>,
    /// The words of the current context, and how many there are.
    current: [u64; CONTEXT_WORDS],
    words: usize,
    /// True if a context found no room.
    pub(super) is_full: bool,
}

impl<'s, 'a, M: Memory> SharedContexts<'s, 'a, M> {
    pub(super) const fn new(
        shared: &'a Contexts<M>,
        first: &'s First,
        tx: &'s mut M::Tx<'a>,
        now: Nanos,
        counts: Counting<'a>,
    ) -> Self {
        Self { shared, first, tx, now, counts, current: [0; CONTEXT_WORDS], words: 0, is_full: false }
    }

    /// Removes expired contexts.
    pub(super) fn reclaim(&mut self) -> Step<(), M> {
        for stage in self.shared.stages.iter().flatten() {
            for _ in 0..RECLAIMED_A_PACKET {
                let Some(index) = stage.ages.expire(self.tx, self.now)? else { break };
                let Named(key) = stage.keys.read(self.tx, index)?;
                stage.places.remove(self.tx, &key)?;
            }
        }
        Ok(())
    }

    /// The stage's contexts. Every stage with a key has some.
    fn stage(&self, stage: usize) -> &'a StageContexts<M> {
        self.shared.stages[stage].as_ref().expect("a stage with a key has contexts")
    }
}

impl<M: Memory> Store for SharedContexts<'_, '_, M> {
    type Error = M::Conflict;

    fn load(&mut self, stage: &Stage, key: &ContextKey) -> Result<(), M::Conflict> {
        let preset = self.first.preset(stage.number, key);
        let stored = self.stage(stage.number);
        let context = match stored.places.get(self.tx, &key.long())? {
            Some(index) => stored.contexts.read(self.tx, index as usize)?.0,
            None => preset.copied().unwrap_or_default(),
        };
        self.words = stage.context_words();
        context.to_words(stage, &mut self.current[..self.words]);
        Ok(())
    }

    fn leave(&mut self) {
        self.words = 0;
    }

    fn context(&mut self) -> &mut [u64] {
        &mut self.current[..self.words]
    }

    fn store(&mut self, stage: &Stage, key: &ContextKey) -> Result<(), M::Conflict> {
        let context = Context::of_words(stage, &self.current[..self.words]);
        // What replaces a preset stays, or the preset would come back.
        let is_preset = self.first.preset(stage.number, key).is_some();
        let stage = self.stage(stage.number);
        let stays = context.timeouts.fallback().is_some();
        let is_default = !is_preset && context.is_default() && context.timeouts == Timeouts::NONE;
        let deadline = if stays || is_preset { Nanos::NEVER } else { context.timeouts.end() };
        let index = match stage.places.get(self.tx, &key.long())? {
            Some(index) if is_default => {
                stage.places.remove(self.tx, &key.long())?;
                return stage.ages.free(self.tx, index as usize);
            }
            Some(index) => {
                stage.ages.refresh(self.tx, index as usize, deadline)?;
                index as usize
            }
            None if is_default => return Ok(()),
            None => {
                let Some(index) = stage.ages.allocate(self.tx, deadline)? else {
                    self.is_full = true;
                    return Ok(());
                };
                // The map has as much room as there are indices.
                stage.places.insert(self.tx, key.long(), index as u64)?;
                stage.keys.write(self.tx, index, Named(key.long()))?;
                index
            }
        };
        stage.contexts.write(self.tx, index, Stored(context))
    }

    fn global(&mut self, number: usize) -> Result<u64, M::Conflict> {
        Ok(self.first.globals[number].wrapping_add(self.shared.globals.read(self.tx, number)?))
    }

    fn set_global(&mut self, number: usize, value: u64) -> Result<(), M::Conflict> {
        self.shared.globals.write(self.tx, number, value.wrapping_sub(self.first.globals[number]))
    }

    fn matched(&mut self, row: usize) -> Result<(), M::Conflict> {
        self.counts.count(row);
        Ok(())
    }
}
