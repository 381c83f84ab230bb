//! Contexts in plain maps, for one program on one core.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use crate::context::{CONTEXT_WORDS, Context};
use crate::key::ContextKey;
use crate::machine::{Machine, Stage};
use crate::step::Store;

/// Contexts and global registers in plain maps. It keeps every context, and which rows the last packet matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStore {
    /// The contexts of each stage.
    pub contexts: Vec<BTreeMap<ContextKey, Context>>,
    /// The global registers of all stages.
    pub globals: Vec<u64>,
    /// The number of packets that matched each row.
    pub matches: Vec<u64>,
    /// The rows that matched since the path was last cleared, in order.
    pub path: Vec<usize>,
    /// The words of the current context, and how many there are.
    current: [u64; CONTEXT_WORDS],
    words: usize,
}

impl MemoryStore {
    /// The presets and the first values of the global registers.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let contexts = machine.stages.iter().map(|stage| {
            let Some(keys) = &stage.keys else { return BTreeMap::new() };
            let presets = stage.presets.iter();
            presets.map(|preset| (keys.lookup.key_of(&preset.key), Context::of_preset(preset))).collect()
        });
        Self {
            contexts: contexts.collect(),
            globals: machine.globals.clone(),
            matches: vec![0; machine.rows],
            path: Vec::new(),
            current: [0; CONTEXT_WORDS],
            words: 0,
        }
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    fn load(&mut self, stage: &Stage, key: &ContextKey) -> Result<(), Infallible> {
        self.words = stage.context_words();
        let context = self.contexts[stage.number].get(key).copied().unwrap_or_default();
        context.to_words(stage, &mut self.current[..self.words]);
        Ok(())
    }

    fn leave(&mut self) {
        self.words = 0;
    }

    fn context(&mut self) -> &mut [u64] {
        &mut self.current[..self.words]
    }

    fn store(&mut self, stage: &Stage, key: &ContextKey) -> Result<(), Infallible> {
        let context = Context::of_words(stage, self.context());
        self.contexts[stage.number].insert(*key, context);
        Ok(())
    }

    fn global(&mut self, number: usize) -> Result<u64, Infallible> {
        Ok(self.globals[number])
    }

    fn set_global(&mut self, number: usize, value: u64) -> Result<(), Infallible> {
        self.globals[number] = value;
        Ok(())
    }

    fn matched(&mut self, row: usize) -> Result<(), Infallible> {
        self.matches[row] += 1;
        self.path.push(row);
        Ok(())
    }
}
