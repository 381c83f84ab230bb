//! The contexts of one flow, packed into words: for each stage the state, the registers and, if the stage sets any, the timeouts.

use core::convert::Infallible;

use alloc::vec::Vec;

use efsm::machine::REGISTER_WORDS;
use efsm::{Context, ContextKey, Machine, Store, Timeouts};
use nf::{Flow, PacketCounts};
use packet::Nanos;

/// Words of a flow.
const FLOW_WORDS: usize = 16;
/// Words of a context's timeouts: length and end of the idle one, end of the hard one, the states to fall back to. The last word says which
/// of those there are, and is 0 if no timeout is set.
const TIMEOUT_WORDS: usize = 6;

/// The contexts of a flow; all zeros if none is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowContexts([u64; FLOW_WORDS]);

impl Flow for FlowContexts {}

/// The position of each stage's context in a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    spans: Vec<Option<Span>>,
    has_timeouts: bool,
}

/// The position of one stage's context in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    registers: usize,
    has_timeouts: bool,
}

impl Layout {
    /// The layout of a program's contexts; `None` if they don't fit in a flow.
    pub(super) fn of(machine: &Machine) -> Option<Self> {
        let mut start = 0;
        let mut spans = Vec::new();
        for stage in &machine.stages {
            let Some(_) = stage.keys else {
                spans.push(None);
                continue;
            };
            let span = Span { start, registers: stage.register_words, has_timeouts: stage.has_timeouts };
            start += 1 + span.registers + if span.has_timeouts { TIMEOUT_WORDS } else { 0 };
            spans.push(Some(span));
        }
        let has_timeouts = spans.iter().flatten().any(|span| span.has_timeouts);
        (start <= FLOW_WORDS).then_some(Self { spans, has_timeouts })
    }

    #[inline]
    fn span(&self, stage: usize) -> Option<Span> {
        self.spans.get(stage).copied().flatten()
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
}

impl FlowContexts {
    #[inline]
    pub(super) const fn store<'a>(
        &'a mut self,
        layout: &'a Layout,
        machine: &'a Machine,
        counts: Counting<'a>,
    ) -> FlowStore<'a> {
        FlowStore { words: &mut self.0, layout, machine, counts }
    }

    /// The time from which on the flow is as good as none; [`Nanos::NEVER`] if there is no such time, `None` if it is already.
    #[inline]
    pub(super) fn deadline(&self, layout: &Layout) -> Option<Nanos> {
        if !layout.has_timeouts {
            let is_stored = self.0.iter().fold(0, |all, word| all | word) != 0;
            return is_stored.then_some(Nanos::NEVER);
        }
        let mut last = None;
        let mut context = Context::default();
        for span in layout.spans.iter().flatten() {
            read(&self.0, *span, &mut context);
            if context.is_default() && context.timeouts == Timeouts::NONE {
                continue;
            }
            let Timeouts { idle_end, hard_end, fallback, .. } = context.timeouts;
            let stays = fallback[usize::from(hard_end < idle_end)].is_some();
            let end = if stays { Nanos::NEVER } else { context.timeouts.end() };
            last = last.max(Some(end));
        }
        last
    }
}

/// Reads a context. Registers that the stage doesn't have stay as they are: 0.
#[inline]
fn read(words: &[u64; FLOW_WORDS], span: Span, context: &mut Context) {
    let Span { start, registers, has_timeouts } = span;
    context.state = words[start];
    for (register, word) in context.registers[..registers].iter_mut().zip(&words[start + 1..]) {
        *register = *word;
    }
    context.timeouts = Timeouts::NONE;
    if has_timeouts {
        let timeouts = &words[start + 1 + registers..][..TIMEOUT_WORDS];
        if let &[idle, idle_end, hard_end, first, second, set] = timeouts
            && set != 0
        {
            let has = |bit: u64, state| (set & bit != 0).then_some(state);
            let fallback = [has(2, first), has(4, second)];
            context.timeouts =
                Timeouts { idle: Nanos(idle), idle_end: Nanos(idle_end), hard_end: Nanos(hard_end), fallback };
        }
    }
}

#[inline]
fn write(words: &mut [u64; FLOW_WORDS], span: Span, context: &Context) {
    let Span { start, registers, has_timeouts } = span;
    words[start] = context.state;
    for (word, register) in words[start + 1..].iter_mut().zip(&context.registers[..registers]) {
        *word = *register;
    }
    if has_timeouts {
        let Timeouts { idle, idle_end, hard_end, fallback } = context.timeouts;
        let words = &mut words[start + 1 + registers..][..TIMEOUT_WORDS];
        words.copy_from_slice(&if context.timeouts == Timeouts::NONE {
            [0; TIMEOUT_WORDS]
        } else {
            let [first, second] = fallback.map(Option::unwrap_or_default);
            let has = 1 | u64::from(fallback[0].is_some()) << 1 | u64::from(fallback[1].is_some()) << 2;
            [idle.0, idle_end.0, hard_end.0, first, second, has]
        });
    }
}

impl Store for FlowStore<'_> {
    type Error = Infallible;

    const KEYED: bool = false;

    #[inline]
    fn load(&mut self, stage: usize, _: &ContextKey, context: &mut Context) -> Result<(), Infallible> {
        // Another stage may have more registers.
        context.registers = [0; REGISTER_WORDS];
        if let Some(span) = self.layout.span(stage) {
            read(self.words, span, context);
        }
        Ok(())
    }

    #[inline]
    fn store(&mut self, stage: usize, _: &ContextKey, context: &Context) -> Result<(), Infallible> {
        if let Some(span) = self.layout.span(stage) {
            write(self.words, span, context);
        }
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
