//! Runs a packet through a program's stages.

use ::packet::Nanos;

use crate::key::ContextKey;
use crate::machine::{
    Assignment, Condition, Extractor, Function, META_MAX, Machine, Next, Operand, Row, Stage, Target, Value,
};
use crate::packet::Packet;
use crate::syntax::{Comparison, Operator};

/// The fields of a packet on its way: those that came, or a copy of them that rows change.
enum Fields<'p> {
    Fixed(&'p Packet),
    Changing(&'p mut Packet),
}

impl Fields<'_> {
    #[inline(always)]
    const fn get(&self) -> &Packet {
        match self {
            Self::Fixed(packet) => packet,
            Self::Changing(packet) => packet,
        }
    }
}

/// Stores contexts and global registers.
pub trait Store {
    /// Why an access failed.
    type Error;

    /// False if the store knows which context is meant without its key. Then keys are not made; [`ContextKey::NONE`] stands for all.
    const KEYED: bool = true;

    /// Makes the context of this key the current one, as it was stored; zeros if there is none.
    ///
    /// # Errors
    /// The store's error.
    fn load(&mut self, stage: &Stage, key: &ContextKey) -> Result<(), Self::Error>;

    /// There is no current context, as the stage has none.
    fn leave(&mut self);

    /// The [words](Stage::context_words) of the current context; none if there is no current one.
    fn context(&mut self) -> &mut [u64];

    /// Stores the current context under this key, with which it was loaded.
    ///
    /// # Errors
    /// The store's error.
    fn store(&mut self, stage: &Stage, key: &ContextKey) -> Result<(), Self::Error>;

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
    /// It leaves by the first port, and a copy of it by the second.
    Copied(u16, u16),
    /// A packet from this template leaves by this port instead: port, number of the template.
    Made(u16, u16),
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
    packet: Fields<'p>,
    /// Empty if the program has no metadata.
    metadata: &'p mut [u64],
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
        self.pass(Fields::Changing(packet), now, store)
    }

    /// Runs a packet at `now` through the stages of a program that [rewrites](Self::rewrites) nothing.
    ///
    /// # Errors
    /// The store's error. What was stored before stays.
    #[inline]
    pub fn read<S: Store>(&self, packet: &Packet, now: Nanos, store: &mut S) -> Result<Outcome, S::Error> {
        debug_assert!(!self.rewrites, "its rows set no header field");
        self.pass(Fields::Fixed(packet), now, store)
    }

    #[inline]
    fn pass<S: Store>(&self, packet: Fields<'_>, now: Nanos, store: &mut S) -> Result<Outcome, S::Error> {
        let mut values;
        let metadata: &mut [u64] = if self.meta.is_empty() {
            &mut []
        } else {
            values = [0; META_MAX];
            &mut values
        };
        let mut passage = Passage { machine: self, packet, metadata, store, now };
        let mut at = 0;
        while let Some(stage) = self.stages.get(at) {
            match passage.stage(stage)? {
                Next::Goto(next) => at = usize::from(next),
                Next::Out(port) => return Ok(Outcome::Out(port)),
                Next::Copy(port, copy) => return Ok(Outcome::Copied(port, copy)),
                Next::Make(port, template) => return Ok(Outcome::Made(port, template)),
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
    #[inline(always)]
    fn stage(&mut self, stage: &Stage) -> Result<Next, S::Error> {
        // Both keys are taken when the packet enters the stage.
        let (lookup, update) = match &stage.keys {
            None => (None, None),
            Some(keys) => {
                let Some(lookup) = self.key(&keys.lookup) else { return Ok(Next::Keyless) };
                let Some(update) = keys.update.as_ref().map_or(Some(lookup), |update| self.key(update)) else {
                    return Ok(Next::Keyless);
                };
                (Some(lookup), Some(update))
            }
        };
        // A context whose timeouts have changed must be stored, even if no row changes it.
        let mut is_changed = false;
        match &lookup {
            Some(lookup) => {
                self.store.load(stage, lookup)?;
                is_changed = stage.has_timeouts && stage.pass(self.store.context(), self.now);
            }
            None => self.store.leave(),
        }
        let found = self.find(stage)?;
        if let Some((index, _)) = found {
            self.store.matched(stage.first_row + index)?;
        }
        let updates = found.is_some_and(|(_, row)| row.updates);
        let is_own = update == lookup;
        if let Some(lookup) = &lookup
            && is_changed
            && !(is_own && updates)
        {
            self.store.store(stage, lookup)?;
        }
        let Some((_, row)) = found else { return Ok(Next::Miss) };
        self.apply(stage, row, update.as_ref().filter(|_| !is_own && updates))?;
        if let Some(update) = &update
            && updates
        {
            self.store.store(stage, update)?;
        }
        Ok(row.next)
    }

    /// The packet's key; `None` if it lacks a field of the key.
    #[inline(always)]
    fn key(&self, extractor: &Extractor) -> Option<ContextKey> {
        match S::KEYED {
            true => extractor.key(self.packet.get(), self.metadata),
            false => self.packet.get().layers.contains(extractor.layers).then_some(ContextKey::NONE),
        }
    }

    /// The first row that matches.
    #[inline(always)]
    fn find<'r>(&mut self, stage: &'r Stage) -> Result<Option<(usize, &'r Row)>, S::Error> {
        let state = self.word(0);
        'rows: for index in stage.candidates(state) {
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

    /// A word of the current context: 0 is the state, then come the registers. 0 without a context.
    #[inline(always)]
    fn word(&mut self, at: usize) -> u64 {
        self.store.context().get(at).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn holds(&mut self, condition: &Condition) -> Result<bool, S::Error> {
        if !self.packet.get().layers.contains(condition.layers) {
            return Ok(false);
        }
        let left = self.operand(&condition.left)? & condition.mask;
        let right = self.operand(&condition.right)? & condition.mask;
        Ok(match condition.comparison {
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
        })
    }

    /// Carries out a row: calculates every value, then sets them. `other` is the key of the context to change, if it is not the packet's own.
    #[inline(always)]
    fn apply(&mut self, stage: &Stage, row: &Row, other: Option<&ContextKey>) -> Result<(), S::Error> {
        match row.assignments.len() {
            0..=2 => self.apply_few::<2>(stage, row, other),
            _ => self.apply_few::<ASSIGNMENTS_MAX>(stage, row, other),
        }
    }

    #[inline]
    fn apply_few<const MOST: usize>(
        &mut self,
        stage: &Stage,
        row: &Row,
        other: Option<&ContextKey>,
    ) -> Result<(), S::Error> {
        let mut values = [0; MOST];
        for (value, assignment) in values.iter_mut().zip(&row.assignments) {
            *value = self.value(&assignment.value)?;
        }
        let state = match &row.set_state {
            Some(set) => self.value(&set.state)? as u64,
            None => 0,
        };
        let Self { machine, packet, metadata, store, now } = self;
        if let Some(other) = other {
            store.load(stage, other)?;
            stage.pass(store.context(), *now);
        }
        for (value, Assignment { target, .. }) in values.into_iter().zip(&row.assignments) {
            match *target {
                Target::Header(field) => match packet {
                    Fields::Changing(packet) => field.set(packet, value),
                    Fields::Fixed(_) => debug_assert!(false, "the program rewrites nothing"),
                },
                Target::Meta(number) => {
                    let (_, bits) = machine.meta[usize::from(number)];
                    metadata[usize::from(number)] = value as u64 & u64::MAX >> (64 - bits);
                }
                Target::Register(word) => store.context()[1 + usize::from(word)] = value as u64,
                Target::Wide(word) => {
                    let words = &mut store.context()[1 + usize::from(word)..];
                    (words[0], words[1]) = ((value >> 64) as u64, value as u64);
                }
                Target::Global(number) => store.set_global(usize::from(number), value as u64)?,
            }
        }
        if let Some(set) = &row.set_state {
            stage.set_state(store.context(), state, set, *now);
        }
        Ok(())
    }

    #[inline(always)]
    fn operand(&mut self, operand: &Operand) -> Result<u128, S::Error> {
        Ok(match *operand {
            Operand::Constant(value) => value,
            Operand::Header(field) => field.at(self.packet.get(), self.now),
            Operand::Meta(number) => self.metadata[usize::from(number)].into(),
            Operand::Register(word) => self.word(1 + usize::from(word)).into(),
            Operand::Wide(word) => {
                let word = 1 + usize::from(word);
                u128::from(self.word(word)) << 64 | u128::from(self.word(word + 1))
            }
            Operand::Global(number) => self.store.global(usize::from(number))?.into(),
            Operand::State => self.word(0).into(),
        })
    }

    #[inline(always)]
    fn value(&mut self, value: &Value) -> Result<u128, S::Error> {
        Ok(match value {
            Value::Operand(operand) => self.operand(operand)?,
            Value::Binary(left, operator, right) => calculate(self.operand(left)?, *operator, self.operand(right)?),
            Value::Call(function, operands) => {
                let mut arguments = [0; 4];
                for (argument, operand) in arguments.iter_mut().zip(operands) {
                    *argument = self.operand(operand)?;
                }
                call(*function, arguments)
            }
        })
    }
}

/// The result is cut to the width of what it is assigned to, so sums, differences and products are modulo 2^64 in a register.
#[inline]
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
