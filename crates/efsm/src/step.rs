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

    /// The context as a packet finds it at `now`. A timeout that has ended sets the state to its fallback and keeps the registers, or
    /// without one removes the context. A packet that looks a context up starts its idle timeout anew.
    #[inline]
    #[must_use]
    pub fn at(mut self, now: Nanos) -> Self {
        let Timeouts { idle, idle_end, hard_end, fallback } = self.timeouts;
        if now >= idle_end.min(hard_end) {
            self.timeouts = Timeouts::NONE;
            match fallback[usize::from(hard_end < idle_end)] {
                Some(state) => self.state = state,
                None => return Self::default(),
            }
        } else if idle.0 > 0 {
            self.timeouts.idle_end = now + idle;
        }
        self
    }
}

/// Where contexts and global registers are stored.
pub trait Store {
    /// Why an access failed.
    type Error;

    /// The context of this key, as it was stored; the default if there is none.
    ///
    /// # Errors
    /// The store's error.
    fn load(&mut self, stage: usize, key: &ContextKey) -> Result<Context, Self::Error>;

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

/// What becomes of a packet.
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

/// What the operands of a stage are: the values before the packet.
struct Before<'a> {
    packet: &'a Packet,
    metadata: &'a Metadata,
    context: &'a Context,
    machine: &'a Machine,
}

impl Machine {
    /// Runs a packet at `now` through the stages and changes its fields.
    ///
    /// # Errors
    /// The store's error. What was stored before stays.
    #[inline]
    pub fn run<S: Store>(&self, packet: &mut Packet, now: Nanos, store: &mut S) -> Result<Outcome, S::Error> {
        let mut metadata = [0; META_MAX];
        let mut at = 0;
        while let Some(stage) = self.stages.get(at) {
            match self.stage(at, stage, packet, &mut metadata, now, store)? {
                Ok(next) => at = usize::from(next),
                Err(outcome) => return Ok(outcome),
            }
        }
        Ok(Outcome::Dropped)
    }

    /// Takes a packet through one stage. Returns the next stage, or what becomes of the packet.
    #[inline]
    fn stage<S: Store>(
        &self,
        at: usize,
        stage: &Stage,
        packet: &mut Packet,
        metadata: &mut Metadata,
        now: Nanos,
        store: &mut S,
    ) -> Result<Result<u16, Outcome>, S::Error> {
        let mut context = Context::default();
        let mut keys = None;
        if let Some(extractors) = &stage.keys {
            // Both keys are taken when the packet enters the stage.
            let lookup = extractors.lookup.key(packet, metadata);
            let update = extractors.update.as_ref().map(|update| update.key(packet, metadata));
            let (Some(lookup), Some(update)) = (lookup, update.unwrap_or(lookup)) else {
                return Ok(Err(Outcome::Keyless(at as u16)));
            };
            let stored = store.load(at, &lookup)?;
            context = stored.at(now);
            // A context whose timeouts have changed must be stored, even if no row changes it.
            keys = Some((lookup, update, context != stored));
        }
        let before = Before { packet, metadata, context: &context, machine: self };
        let mut found = None;
        for candidate in stage.candidates(context.state) {
            let row = &stage.rows[usize::from(*candidate)];
            if before.all_hold(&row.conditions, store)? {
                found = Some((usize::from(*candidate), row));
                break;
            }
        }
        let Some((index, row)) = found else {
            if let Some((lookup, _, true)) = keys {
                store.store(at, &lookup, &context)?;
            }
            return Ok(Err(Outcome::Missed(at as u16)));
        };
        store.matched(stage.first_row + index)?;
        let after = before.apply(row, store, now, |store| match keys {
            Some((lookup, update, _)) if update != lookup => store.load(at, &update).map(|stored| stored.at(now)),
            _ => Ok(context),
        })?;
        if let Some((lookup, update, is_changed)) = keys {
            if is_changed && (update != lookup || !row.updates) {
                store.store(at, &lookup, &context)?;
            }
            if row.updates {
                store.store(at, &update, &after.context)?;
            }
        }
        (*packet, *metadata) = (after.packet, after.metadata);
        Ok(match row.next {
            Next::Goto(stage) => Ok(stage),
            Next::Out(port) => Err(Outcome::Out(port)),
            Next::Drop => Err(Outcome::Dropped),
        })
    }
}

/// The values after a row.
struct After {
    packet: Packet,
    metadata: Metadata,
    context: Context,
}

impl Before<'_> {
    #[inline]
    fn all_hold<S: Store>(&self, conditions: &[Condition], store: &mut S) -> Result<bool, S::Error> {
        for condition in conditions {
            if !self.packet.layers.contains(condition.layers) {
                return Ok(false);
            }
            let left = self.operand(condition.left, store)? & condition.mask;
            let right = self.operand(condition.right, store)? & condition.mask;
            let holds = match condition.comparison {
                Comparison::Equal => left == right,
                Comparison::NotEqual => left != right,
                Comparison::Less => left < right,
                Comparison::LessOrEqual => left <= right,
                Comparison::Greater => left > right,
                Comparison::GreaterOrEqual => left >= right,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Carries out a row's assignments. `target` gives the context that the row updates.
    #[inline]
    fn apply<S: Store>(
        &self,
        row: &Row,
        store: &mut S,
        now: Nanos,
        target: impl FnOnce(&mut S) -> Result<Context, S::Error>,
    ) -> Result<After, S::Error> {
        let context = if row.updates { target(store)? } else { *self.context };
        let mut after = After { packet: *self.packet, metadata: *self.metadata, context };
        if let Some(SetState { state, idle, hard }) = row.set_state {
            after.context.state = self.value(state, store)? as u64;
            let end = |timeout: Option<Timeout>| timeout.map_or(Nanos::NEVER, |timeout| now + timeout.span);
            after.context.timeouts = Timeouts {
                idle: idle.map_or(Nanos(0), |timeout| timeout.span),
                idle_end: end(idle),
                hard_end: end(hard),
                fallback: [idle, hard].map(|timeout| timeout.and_then(|timeout| timeout.fallback)),
            };
        }
        // Global registers are set last: every operand is a value before the packet.
        for Assignment { target, value } in &row.assignments {
            let value = match target {
                Target::Global(_) => continue,
                _ => self.value(*value, store)?,
            };
            match *target {
                Target::Header(field) => field.set(&mut after.packet, value),
                Target::Meta(number) => {
                    let (_, bits) = self.machine.meta[usize::from(number)];
                    after.metadata[usize::from(number)] = value as u64 & u64::MAX >> (64 - bits);
                }
                Target::Register(word) => after.context.registers[usize::from(word)] = value as u64,
                Target::Wide(word) => {
                    let word = usize::from(word);
                    (after.context.registers[word], after.context.registers[word + 1]) =
                        ((value >> 64) as u64, value as u64);
                }
                Target::Global(_) => {}
            }
        }
        self.apply_globals(row, store)?;
        Ok(after)
    }

    #[inline]
    fn apply_globals<S: Store>(&self, row: &Row, store: &mut S) -> Result<(), S::Error> {
        let mut values = [(0, 0); GLOBALS_SET_MAX];
        let mut count = 0;
        for Assignment { target, value } in &row.assignments {
            if let Target::Global(number) = target {
                values[count] = (usize::from(*number), self.value(*value, store)? as u64);
                count += 1;
            }
        }
        for (number, value) in &values[..count] {
            store.set_global(*number, *value)?;
        }
        Ok(())
    }

    #[inline]
    fn operand<S: Store>(&self, operand: Operand, store: &mut S) -> Result<u128, S::Error> {
        let registers = &self.context.registers;
        Ok(match operand {
            Operand::Constant(value) => value,
            Operand::Header(field) => field.get(self.packet),
            Operand::Meta(number) => self.metadata[usize::from(number)].into(),
            Operand::Register(word) => registers[usize::from(word)].into(),
            Operand::Wide(word) => {
                let word = usize::from(word);
                u128::from(registers[word]) << 64 | u128::from(registers[word + 1])
            }
            Operand::Global(number) => store.global(usize::from(number))?.into(),
            Operand::State => self.context.state.into(),
        })
    }

    #[inline]
    fn value<S: Store>(&self, value: Value, store: &mut S) -> Result<u128, S::Error> {
        Ok(match value {
            Value::Operand(operand) => self.operand(operand, store)?,
            Value::Binary(left, operator, right) => {
                calculate(self.operand(left, store)?, operator, self.operand(right, store)?)
            }
            Value::Call(function, operands) => {
                let mut arguments = [0; 4];
                for (argument, operand) in arguments.iter_mut().zip(operands) {
                    *argument = self.operand(operand, store)?;
                }
                call(function, arguments)
            }
        })
    }
}

/// The most global registers that a row sets.
pub(crate) const GLOBALS_SET_MAX: usize = 8;

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
