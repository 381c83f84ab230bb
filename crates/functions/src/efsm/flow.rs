//! The contexts of one flow, packed into words: for each stage the state, the registers and, if the stage sets any, the timeouts.

use core::convert::Infallible;
use core::ops::Range;

use alloc::vec::Vec;

use efsm::machine::Stage;
use efsm::{Context, ContextKey, Machine, Store};
use nf::{Flow, PacketCounts};
use packet::Nanos;

/// Words of a flow.
const FLOW_WORDS: usize = 16;

/// The contexts of a flow; all zeros if none is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowContexts([u64; FLOW_WORDS]);

impl Flow for FlowContexts {
    nf::in_words!();
}

packet::words! {
    FlowContexts: [16], contexts => contexts.0, words => Self(words);
}

/// The words of each stage's context in a flow; none for a stage without contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    spans: Vec<Range<usize>>,
    /// Words of all contexts.
    words: usize,
    pub(super) has_timeouts: bool,
}

impl Layout {
    /// The words of a stage's context.
    pub(super) fn span(&self, stage: usize) -> Range<usize> {
        self.spans[stage].clone()
    }

    /// The layout of a program's contexts; `None` if they don't fit in a flow.
    pub(super) fn of(machine: &Machine) -> Option<Self> {
        let mut words = 0;
        let spans = machine.stages.iter().map(|stage| {
            let start = words;
            words += stage.keys.as_ref().map_or(0, |_| stage.context_words());
            start..words
        });
        let spans = spans.collect();
        let has_timeouts = machine.stages.iter().any(|stage| stage.has_timeouts);
        (words <= FLOW_WORDS).then_some(Self { spans, words, has_timeouts })
    }
}

/// Counts the rows that a packet matches.
#[derive(Clone, Copy)]
pub(super) struct Counting<'a> {
    /// `None` for a replayed packet, and for a trial run.
    pub counts: Option<&'a PacketCounts>,
    /// Bytes of the packet.
    pub bytes: u32,
}

impl Counting<'_> {
    #[inline]
    pub(super) fn count(self, row: usize) {
        if let Some(counts) = self.counts {
            counts.count(row, self.bytes);
        }
    }
}

/// The contexts of one flow as a store. Its stages have one key.
pub(super) struct FlowStore<'a> {
    words: &'a mut [u64; FLOW_WORDS],
    layout: &'a Layout,
    machine: &'a Machine,
    counts: Counting<'a>,
    /// The words of the current context.
    current: Range<usize>,
}

impl FlowContexts {
    #[inline]
    pub(super) const fn store<'a>(
        &'a mut self,
        layout: &'a Layout,
        machine: &'a Machine,
        counts: Counting<'a>,
    ) -> FlowStore<'a> {
        FlowStore { words: &mut self.0, layout, machine, counts, current: 0..0 }
    }

    /// The contexts with their stages. All have this key.
    pub(super) fn contexts(
        &self,
        key: ContextKey,
        layout: &Layout,
        machine: &Machine,
    ) -> Vec<(usize, ContextKey, Context)> {
        let stages = machine.stages.iter().zip(&layout.spans).filter(|(stage, _)| stage.keys.is_some());
        stages.map(|(stage, span)| (stage.number, key, Context::of_words(stage, &self.0[span.clone()]))).collect()
    }

    /// The time from which on the flow is as good as none; [`Nanos::NEVER`] if there is no such time, `None` if it is already.
    #[inline]
    pub(super) fn deadline(&self, layout: &Layout, machine: &Machine) -> Option<Nanos> {
        if !layout.has_timeouts {
            // Word by word, for they have just been written so. The first is not 0 as a rule.
            let is_stored = self.0[..layout.words].iter().any(|word| *word != 0);
            return is_stored.then_some(Nanos::NEVER);
        }
        let mut last = None;
        for (stage, span) in machine.stages.iter().zip(&layout.spans) {
            if self.0[span.clone()].iter().all(|word| *word == 0) {
                continue;
            }
            let Context { timeouts, .. } = Context::of_words(stage, &self.0[span.clone()]);
            let end = if timeouts.fallback().is_some() { Nanos::NEVER } else { timeouts.end() };
            last = last.max(Some(end));
        }
        last
    }
}

impl Store for FlowStore<'_> {
    type Error = Infallible;

    const KEYED: bool = false;

    #[inline]
    fn load(&mut self, stage: &Stage, _: &ContextKey) -> Result<(), Infallible> {
        self.current = self.layout.spans.get(stage.number).cloned().unwrap_or_default();
        Ok(())
    }

    #[inline]
    fn leave(&mut self) {
        self.current = 0..0;
    }

    #[inline]
    fn context(&mut self) -> &mut [u64] {
        &mut self.words[self.current.clone()]
    }

    /// Does nothing: the context lies in the flow already.
    #[inline]
    fn store(&mut self, _: &Stage, _: &ContextKey) -> Result<(), Infallible> {
        Ok(())
    }

    /// No row sets one.
    fn global(&mut self, number: usize) -> Result<u64, Infallible> {
        Ok(self.machine.globals[number])
    }

    fn set_global(&mut self, _: usize, _: u64) -> Result<(), Infallible> {
        unreachable!("no row sets a global register")
    }

    #[inline]
    fn matched(&mut self, row: usize) -> Result<(), Infallible> {
        self.counts.count(row);
        Ok(())
    }
}
