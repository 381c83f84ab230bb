//! Runs a packet through a program's stages.

use ::packet::Nanos;

use crate::key::ContextKey;
use crate::machine::{
    Assignment, Condition, Function, META_MAX, Machine, Next, Operand, Preset, REGISTER_WORDS, Row, SetState, Stage,
    Target, Timeout, Value,
};
use crate::packet::Packet;
use crate::syntax::{Comparison, Operator};

/// The values of a packet's metadata.
pub type Metadata = [u64; META_MAX];

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

    /// Brings the context to the time `now`, at which a packet looks it up. A timeout that has ended sets the state to its fallback and keeps
    /// the registers; without a fallback it removes the context. The idle timeout starts again. Returns true if the context has changed.
    #[inline]
    pub fn pass(&mut self, now: Nanos) -> bool {
        let Timeouts { idle, idle_end, hard_end, fallback } = self.timeouts;
        if now >= idle_end.min(hard_end) {
            self.timeouts = Timeouts::NONE;
            match fallback[usize::from(hard_end < idle_end)] {
                Some(state) => self.state = state,
                None => *self = Self::default(),
            }
            return true;
        }
        if idle.0 > 0 {
            self.timeouts.idle_end = now + idle;
        }
        idle.0 > 0
    }
}

/// Stores contexts and global registers.
pub trait Store {
    /// Why an access failed.
    type Error;

    /// False if the store knows which context is meant without its key. Then keys are not made; [`ContextKey::NONE`] stands for all.
    const KEYED: bool = true;

    /// Reads the context of this key, as it was stored, into `context`; the default if there is none.
    ///
    /// # Errors
    /// The store's error.
    fn load(&mut self, stage: usize, key: &ContextKey, context: &mut Context) -> Result<(), Self::Error>;

    /// Stores a context.
    ///
    /// # Errors
    /// The store's error.
    fn store(&mut self, stage: usize, key: &ContextKey, context: &Context) -> Result<(), Self::Error>;

    /// A global register.
    ///
    /// # Errors
    /// The store's error.
    fn global(&mut self, number: usize) -> Result<u64, Self::Error>;

    /// Sets a global register.
    ///
    /// # Errors
    /// The store's error.
    fn set_global(&mut self, number: usize, value: u64) -> Result<(), Self::Error>;

    /// A packet has matched row number `row` of all stages.
    ///
    /// # Errors
    /// The store's error.
    fn matched(&mut self, row: usize) -> Result<(), Self::Error>;
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves by this port.
    Out(u16),
    /// A row drops it.
    Dropped,
    /// No row of this stage matches, so it is dropped.
    Missed(u16),
    /// It lacks a field of this stage's key, so it is dropped.
    Keyless(u16),
}

/// The most assignments of a row.
pub(crate) const ASSIGNMENTS_MAX: usize = 16;

/// A packet on its way through the stages.
struct Passage<'p, S> {
    machine: &'p Machine,
    packet: &'p mut Packet,
    metadata: Metadata,
    /// The context that the packet found in the current stage.
    context: Context,
    store: &'p mut S,
    now: Nanos,
}

impl Machine {
    /// Runs a packet at `now` through the stages and changes its fields.
    ///
    /// # Errors
    /// The store's error. What was stored before stays.
    #[inline]
    pub fn run<S: Store>(&self, packet: &mut Packet, now: Nanos, store: &mut S) -> Result<Outcome, S::Error> {
        let (metadata, context) = ([0; META_MAX], Context::default());
        let mut passage = Passage { machine: self, packet, metadata, context, store, now };
        let mut at = 0;
        while let Some(stage) = self.stages.get(at) {
            match passage.stage(at, stage)? {
                Next::Goto(next) => at = usize::from(next),
                Next::Out(port) => return Ok(Outcome::Out(port)),
                Next::Drop => return Ok(Outcome::Dropped),
                Next::Miss => return Ok(Outcome::Missed(at as u16)),
                Next::Keyless => return Ok(Outcome::Keyless(at as u16)),
            }
        }
        Ok(Outcome::Dropped)
    }
}

impl<S: Store> Passage<'_, S> {
    /// Takes the packet through one stage.
    #[inline]
    fn stage(&mut self, at: usize, stage: &Stage) -> Result<Next, S::Error> {
        let Some(extractors) = &stage.keys else {
            self.context = Context::default();
            let Some((index, row)) = self.find(stage)? else { return Ok(Next::Miss) };
            self.store.matched(stage.first_row + index)?;
            return self.apply(row, None).map(|()| row.next);
        };
        // Both keys are taken when the packet enters the stage.
        let lookup = match S::KEYED {
            true => extractors.lookup.key(self.packet, &self.metadata),
            false => self.packet.layers.contains(extractors.lookup.layers).then_some(ContextKey::NONE),
        };
        let update = match &extractors.update {
            Some(update) => update.key(self.packet, &self.metadata),
            None => lookup,
        };
        let (Some(lookup), Some(update)) = (lookup, update) else { return Ok(Next::Keyless) };
        self.store.load(at, &lookup, &mut self.context)?;
        // A context whose timeouts have changed must be stored, even if no row changes it.
        let is_changed = stage.has_timeouts && self.context.pass(self.now);
        let Some((index, row)) = self.find(stage)? else {
            if is_changed {
                self.store.store(at, &lookup, &self.context)?;
            }
            return Ok(Next::Miss);
        };
        self.store.matched(stage.first_row + index)?;
        let is_own = extractors.update.is_none() || update == lookup;
        if is_changed && !(is_own && row.updates) {
            self.store.store(at, &lookup, &self.context)?;
        }
        if is_own || !row.updates {
            self.apply(row, None)?;
            if row.updates {
                self.store.store(at, &lookup, &self.context)?;
            }
        } else {
            let mut other = Context::default();
            self.store.load(at, &update, &mut other)?;
            other.pass(self.now);
            self.apply(row, Some(&mut other))?;
            self.store.store(at, &update, &other)?;
        }
        Ok(row.next)
    }

    /// The first row that matches.
    #[inline]
    fn find<'r>(&mut self, stage: &'r Stage) -> Result<Option<(usize, &'r Row)>, S::Error> {
        'rows: for index in stage.candidates(self.context.state) {
            let row = &stage.rows[usize::from(*index)];
            for condition in &row.conditions {
                if !self.holds(condition)? {
                    continue 'rows;
                }
            }
            return Ok(Some((usize::from(*index), row)));
        }
        Ok(None)
    }

    #[inline(always)]
    fn holds(&mut self, condition: &Condition) -> Result<bool, S::Error> {
        if !self.packet.layers.contains(condition.layers) {
            return Ok(false);
        }
        let left = self.operand(condition.left)? & condition.mask;
        let right = self.operand(condition.right)? & condition.mask;
        Ok(match condition.comparison {
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
        })
    }

    /// Carries out a row: calculates every value, then sets them. `other` is the context to change, if it is not the packet's own.
    #[inline]
    fn apply(&mut self, row: &Row, other: Option<&mut Context>) -> Result<(), S::Error> {
        match row.assignments.len() {
            0..=2 => self.apply_few::<2>(row, other),
            _ => self.apply_few::<ASSIGNMENTS_MAX>(row, other),
        }
    }

    #[inline]
    fn apply_few<const MOST: usize>(&mut self, row: &Row, other: Option<&mut Context>) -> Result<(), S::Error> {
        let mut values = [0; MOST];
        for (value, assignment) in values.iter_mut().zip(&row.assignments) {
            *value = self.value(assignment.value)?;
        }
        let state = match row.set_state {
            Some(set) => Some((set, self.value(set.state)? as u64)),
            None => None,
        };
        let Self { machine, packet, metadata, context, store, now } = self;
        let context = other.unwrap_or(context);
        for (value, Assignment { target, .. }) in values.into_iter().zip(&row.assignments) {
            match *target {
                Target::Header(field) => field.set(packet, value),
                Target::Meta(number) => {
                    let (_, bits) = machine.meta[usize::from(number)];
                    metadata[usize::from(number)] = value as u64 & u64::MAX >> (64 - bits);
                }
                Target::Register(word) => context.registers[usize::from(word)] = value as u64,
                Target::Wide(word) => {
                    let word = usize::from(word);
                    (context.registers[word], context.registers[word + 1]) = ((value >> 64) as u64, value as u64);
                }
                Target::Global(number) => store.set_global(usize::from(number), value as u64)?,
            }
        }
        if let Some((SetState { idle, hard, .. }, state)) = state {
            let end = |timeout: Option<Timeout>| timeout.map_or(Nanos::NEVER, |timeout| *now + timeout.span);
            context.state = state;
            context.timeouts = match (idle, hard) {
                (None, None) => Timeouts::NONE,
                _ => Timeouts {
                    idle: idle.map_or(Nanos(0), |timeout| timeout.span),
                    idle_end: end(idle),
                    hard_end: end(hard),
                    fallback: [idle, hard].map(|timeout| timeout.and_then(|timeout| timeout.fallback)),
                },
            };
        }
        Ok(())
    }

    #[inline(always)]
    fn operand(&mut self, operand: Operand) -> Result<u128, S::Error> {
        let registers = &self.context.registers;
        Ok(match operand {
            Operand::Constant(value) => value,
            Operand::Header(field) => field.at(self.packet, self.now),
            Operand::Meta(number) => self.metadata[usize::from(number)].into(),
            Operand::Register(word) => registers[usize::from(word)].into(),
            Operand::Wide(word) => {
                let word = usize::from(word);
                u128::from(registers[word]) << 64 | u128::from(registers[word + 1])
            }
            Operand::Global(number) => self.store.global(usize::from(number))?.into(),
            Operand::State => self.context.state.into(),
        })
    }

    #[inline]
    fn value(&mut self, value: Value) -> Result<u128, S::Error> {
        Ok(match value {
            Value::Operand(operand) => self.operand(operand)?,
            Value::Binary(left, operator, right) => calculate(self.operand(left)?, operator, self.operand(right)?),
            Value::Call(function, operands) => {
                let mut arguments = [0; 4];
                for (argument, operand) in arguments.iter_mut().zip(operands) {
                    *argument = self.operand(operand)?;
                }
                call(function, arguments)
            }
        })
    }
}

/// The result is cut to the width of what it is assigned to, so sums, differences and products are modulo 2^64 in a register.
fn calculate(left: u128, operator: Operator, right: u128) -> u128 {
    match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide => left.checked_div(right).unwrap_or(u128::MAX),
        Operator::Modulo => left.checked_rem(right).unwrap_or(left),
        Operator::ShiftLeft => u32::try_from(right).ok().and_then(|by| left.checked_shl(by)).unwrap_or(0),
        Operator::ShiftRight => u32::try_from(right).ok().and_then(|by| left.checked_shr(by)).unwrap_or(0),
        Operator::And => left & right,
        Operator::Or => left | right,
        Operator::Xor => left ^ right,
    }
}

fn call(function: Function, [a, b, c, d]: [u128; 4]) -> u128 {
    match function {
        Function::Min => a.min(b),
        Function::Max => a.max(b),
        Function::Average => mean(a, b, c),
        Function::Variance => {
            // Of n + 1 values: (n var + n / (n + 1) (x - mean)^2) / (n + 1), after Welford (Technometrics, 1962).
            let deviation = d.abs_diff(b);
            let square = deviation.saturating_mul(deviation);
            let count = c.saturating_add(1);
            a.saturating_mul(c).saturating_add(square.saturating_mul(c) / count) / count
        }
        Function::Ewma => {
            let by = u32::try_from(c).unwrap_or(127).min(127);
            if b >= a { a + ((b - a) >> by) } else { a - ((a - b) >> by) }
        }
    }
}

fn mean(mean: u128, count: u128, value: u128) -> u128 {
    mean.saturating_mul(count).saturating_add(value) / count.saturating_add(1)
}

/// The value of an expression over constants; `None` if it has other operands.
pub(crate) fn constant(value: Value) -> Option<u128> {
    let of = |operand| match operand {
        Operand::Constant(value) => Some(value),
        _ => None,
    };
    match value {
        Value::Operand(operand) => of(operand),
        Value::Binary(left, operator, right) => Some(calculate(of(left)?, operator, of(right)?)),
        Value::Call(function, [a, b, c, d]) => Some(call(function, [of(a)?, of(b)?, of(c)?, of(d)?])),
    }
}
