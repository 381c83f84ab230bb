//! Contexts in plain maps, for one program on one core.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use crate::key::ContextKey;
use crate::machine::Machine;
use crate::step::{Context, Store};

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
        }
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    fn load(&mut self, stage: usize, key: &ContextKey, context: &mut Context) -> Result<(), Infallible> {
        *context = self.contexts[stage].get(key).copied().unwrap_or_default();
        Ok(())
    }

    fn store(&mut self, stage: usize, key: &ContextKey, context: &Context) -> Result<(), Infallible> {
        self.contexts[stage].insert(*key, *context);
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
