//! Flow contexts, and the words that they lie in while a packet passes: the state, the registers, and the timeouts if the stage sets any.

use ::packet::Nanos;

use crate::machine::{Preset, REGISTER_WORDS, SetState, Stage};

/// Words of a context's timeouts: length and end of the idle one, end of the hard one, the states to fall back to. The last word says which
/// of those there are, and is 0 if no timeout is set.
const TIMEOUT_WORDS: usize = 6;
/// The most words of a context.
pub const CONTEXT_WORDS: usize = 1 + REGISTER_WORDS + TIMEOUT_WORDS;

/// In the last word of the timeouts: they are set, the idle one has a fallback, the hard one has.
const IS_SET: u64 = 1;
const IDLE_FALLS: u64 = 2;
const HARD_FALLS: u64 = 4;

/// A flow context: the state label, the registers, the timeouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The state label.
    pub state: u64,
    /// The registers.
    pub registers: [u64; REGISTER_WORDS],
    /// The timeouts.
    pub timeouts: Timeouts,
}

/// A context's timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The length of the idle timeout; 0 for none.
    pub idle: Nanos,
    /// When the idle timeout ends.
    pub idle_end: Nanos,
    /// When the hard timeout ends.
    pub hard_end: Nanos,
    /// The states to fall back to after the idle and the hard timeout; `None` removes the context.
    pub fallback: [Option<u64>; 2],
}

impl Timeouts {
    /// No timeouts.
    pub const NONE: Self = Self { idle: Nanos(0), idle_end: Nanos::NEVER, hard_end: Nanos::NEVER, fallback: [None; 2] };

    /// When the first of them ends.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.idle_end.min(self.hard_end)
    }

    /// The state after the first of them ends; `None` if the context is removed then.
    #[inline]
    #[must_use]
    pub fn fallback(&self) -> Option<u64> {
        self.fallback[usize::from(self.hard_end < self.idle_end)]
    }

    #[inline]
    fn of_words(&[idle, idle_end, hard_end, first, second, set]: &[u64; TIMEOUT_WORDS]) -> Self {
        if set == 0 {
            return Self::NONE;
        }
        let fallback = [(set & IDLE_FALLS != 0).then_some(first), (set & HARD_FALLS != 0).then_some(second)];
        Self { idle: Nanos(idle), idle_end: Nanos(idle_end), hard_end: Nanos(hard_end), fallback }
    }

    #[inline]
    fn to_words(self) -> [u64; TIMEOUT_WORDS] {
        if self == Self::NONE {
            return [0; TIMEOUT_WORDS];
        }
        let Self { idle, idle_end, hard_end, fallback: [first, second] } = self;
        let falls = |bit, state: Option<u64>| if state.is_some() { bit } else { 0 };
        let set = IS_SET | falls(IDLE_FALLS, first) | falls(HARD_FALLS, second);
        [idle.0, idle_end.0, hard_end.0, first.unwrap_or(0), second.unwrap_or(0), set]
    }

    /// The timeouts that a row sets at `now`.
    #[inline]
    fn set(SetState { idle, hard, .. }: &SetState, now: Nanos) -> Self {
        let end =
            |timeout: &Option<crate::machine::Timeout>| timeout.map_or(Nanos::NEVER, |timeout| now + timeout.span);
        Self {
            idle: idle.map_or(Nanos(0), |timeout| timeout.span),
            idle_end: end(idle),
            hard_end: end(hard),
            fallback: [idle, hard].map(|timeout| timeout.and_then(|timeout| timeout.fallback)),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::NONE
    }
}

impl Context {
    /// The context that a preset makes.
    #[must_use]
    pub const fn of_preset(preset: &Preset) -> Self {
        Self { state: preset.state, registers: preset.registers, timeouts: Timeouts::NONE }
    }

    /// True if it equals the context of an unknown flow.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.state == 0 && self.registers == [0; REGISTER_WORDS]
    }

    /// The context as a packet at `now` would find it; `None` if its time is over or it was never stored.
    #[must_use]
    pub fn at(mut self, now: Nanos) -> Option<Self> {
        if now >= self.timeouts.end() {
            self.state = self.timeouts.fallback()?;
            self.timeouts = Timeouts::NONE;
        }
        (!self.is_default() || self.timeouts != Timeouts::NONE).then_some(self)
    }

    /// Reads the [words](Stage::context_words) of a context of this stage.
    #[must_use]
    pub fn of_words(stage: &Stage, words: &[u64]) -> Self {
        let mut context = Self { state: words[0], ..Self::default() };
        context.registers[..stage.register_words].copy_from_slice(&words[1..][..stage.register_words]);
        if let Some(timeouts) = words[1 + stage.register_words..].first_chunk() {
            context.timeouts = Timeouts::of_words(timeouts);
        }
        context
    }

    /// Writes the [words](Stage::context_words) of a context of this stage.
    pub fn to_words(&self, stage: &Stage, words: &mut [u64]) {
        words[0] = self.state;
        words[1..][..stage.register_words].copy_from_slice(&self.registers[..stage.register_words]);
        if let Some(timeouts) = words[1 + stage.register_words..].first_chunk_mut() {
            *timeouts = self.timeouts.to_words();
        }
    }
}

impl Stage {
    /// Words of a context: the state, the registers, and the timeouts if a row sets any.
    #[must_use]
    pub const fn context_words(&self) -> usize {
        1 + self.register_words + if self.has_timeouts { TIMEOUT_WORDS } else { 0 }
    }

    /// Brings a context to the time `now`, at which a packet looks it up. A timeout that has ended sets the state to its fallback and keeps
    /// the registers; without a fallback it removes the context. The idle timeout starts again. Returns true if the context has changed.
    #[inline]
    pub(crate) fn pass(&self, words: &mut [u64], now: Nanos) -> bool {
        let Some(place) = words.get_mut(1 + self.register_words..).and_then(<[u64]>::first_chunk_mut) else {
            return false;
        };
        let timeouts = Timeouts::of_words(place);
        if now >= timeouts.end() {
            *place = [0; TIMEOUT_WORDS];
            match timeouts.fallback() {
                Some(state) => words[0] = state,
                None => words.fill(0),
            }
            return true;
        }
        if timeouts.idle.0 > 0 {
            place[1] = (now + timeouts.idle).0;
        }
        timeouts.idle.0 > 0
    }

    /// Sets a context's state and the timeouts of the row.
    #[inline]
    pub(crate) fn set_state(&self, words: &mut [u64], state: u64, set: &SetState, now: Nanos) {
        words[0] = state;
        if let Some(place) = words.get_mut(1 + self.register_words..).and_then(<[u64]>::first_chunk_mut) {
            *place = Timeouts::set(set, now).to_words();
        }
    }
}
