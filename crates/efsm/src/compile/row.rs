//! Compiles rows and presets.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Error, Place};
use crate::machine::{
    ACROSS, Assignment, BACK, Condition, Function, Next, Operand, Preset, REGISTER_WORDS, Row, SetState, Target,
    Timeout, Value,
};
use crate::packet::{Field, Layers};
use crate::step::ASSIGNMENTS_MAX;
use crate::syntax::{self, Action, Comparison, Expression, Operator, Word};

use super::names::{self, Names, Registers};

/// The names that are valid in a stage.
pub(super) struct Scope<'a> {
    pub names: &'a Names,
    pub globals: &'a [(String, u16)],
    pub registers: &'a Registers,
    pub states: &'a [(String, u64)],
    /// The stage's number.
    pub at: usize,
}

impl Scope<'_> {
    /// Compiles a row. Returns all its errors.
    pub(super) fn row(&self, row: &syntax::Row, line: u32, has_contexts: bool) -> Result<Row, Vec<Error>> {
        let mut errors = Vec::new();
        let mut note = |error: Error| errors.push(error);
        let mut compiled = Row {
            line,
            state: None,
            conditions: Vec::new(),
            set_state: None,
            assignments: Vec::new(),
            next: Next::Drop,
            updates: false,
        };
        if row.state.text != "*" {
            match self.state(&row.state) {
                Ok(state) => compiled.state = Some(state),
                Err(error) => note(error),
            }
        }
        for condition in &row.conditions {
            match self.condition(condition) {
                Ok(condition) => compiled.conditions.push(condition),
                Err(error) => note(error),
            }
        }
        let (mut next, mut copy, mut made) = (None, None, None);
        for action in &row.actions {
            let result = match action {
                Action::State(set) => self.set_state(set, row).and_then(|set| match compiled.set_state.replace(set) {
                    Some(_) => Err(Error::new(row.state.place, "the row sets the state twice")),
                    None => Ok(()),
                }),
                Action::Assign(name, value) => self.assignment(name, value).and_then(|assignment| {
                    if compiled.assignments.iter().any(|known: &Assignment| known.target == assignment.target) {
                        return Err(Error::new(name.place, format!("the row sets `{}` twice", name.text)));
                    }
                    compiled.assignments.push(assignment);
                    Ok(())
                }),
                Action::Goto(stage) => self.goto(stage).and_then(|to| once(&mut next, to, stage.place)),
                Action::Out(port) => self.output(port).and_then(|to| once(&mut next, to, port.place)),
                Action::Drop(place) => once(&mut next, Next::Drop, *place),
                Action::Copy(port) => self.output(port).and_then(|to| match (copy.replace((to, port.place)), to) {
                    (None, Next::Out(_)) => Ok(()),
                    _ => Err(Error::new(port.place, "one copy a row")),
                }),
                Action::Make(name) => self.template(name).and_then(|number| match made.replace((number, name.place)) {
                    None => Ok(()),
                    Some(_) => Err(Error::new(name.place, "one template a row")),
                }),
            };
            result.unwrap_or_else(&mut note);
        }
        match next {
            Some(next) => {
                compiled.next = extended(next, copy, made).unwrap_or_else(|error| {
                    note(error);
                    next
                })
            }
            None if row.actions.iter().any(leaves) => {} // What is wrong with it was noted.
            None => note(Error::new(
                row.state.place,
                "the row doesn't say where the packet goes: add `goto STAGE`, `out PORT` or `drop`",
            )),
        }
        let of_context = |assignment: &Assignment| matches!(assignment.target, Target::Register(_) | Target::Wide(_));
        compiled.updates = compiled.set_state.is_some() || compiled.assignments.iter().any(of_context);
        if compiled.updates && !has_contexts {
            note(Error::new(
                row.state.place,
                "the stage has no key, so it has no contexts to update: add `key FIELD ...`",
            ));
        }
        if compiled.assignments.len() > ASSIGNMENTS_MAX {
            note(Error::new(row.state.place, format!("a row has at most {ASSIGNMENTS_MAX} assignments")));
        }
        if errors.is_empty() { Ok(compiled) } else { Err(errors) }
    }

    /// The context that a preset makes under a key with these values.
    pub(super) fn preset(&self, preset: &syntax::Preset, key: Vec<u128>) -> Result<Preset, Error> {
        let mut new = Preset { state: 0, registers: [0; REGISTER_WORDS], key };
        let operand = |word: &Word| match word.text.as_str() {
            "key" if new.key.len() == 1 => Ok(Operand::Constant(new.key[0])),
            "key" => Err(Error::new(word.place, "`key` stands for the value of a key of one field")),
            _ => match self.operand(word)? {
                constant @ Operand::Constant(_) => Ok(constant),
                _ => Err(Error::new(word.place, "a preset is made of constants and `key`")),
            },
        };
        let (mut state, mut registers) = (None, Vec::new());
        for action in &preset.actions {
            match action {
                Action::State(set) if set.timeouts.is_empty() => state = Some(self.constant_of(&set.state, &operand)?),
                Action::State(set) => {
                    return Err(Error::new(set.timeouts[0].span.place, "a preset has no timeouts"));
                }
                Action::Assign(name, value) => match self.target(name)? {
                    target @ (Target::Register(_) | Target::Wide(_)) => {
                        registers.push((target, self.constant_of(value, &operand)?));
                    }
                    _ => return Err(Error::new(name.place, "a preset sets the state and registers")),
                },
                Action::Goto(word) | Action::Out(word) => {
                    return Err(Error::new(word.place, "a preset sets the state and registers"));
                }
                Action::Copy(word) | Action::Make(word) => {
                    return Err(Error::new(word.place, "a preset sets the state and registers"));
                }
                Action::Drop(place) => return Err(Error::new(*place, "a preset sets the state and registers")),
            }
        }
        new.state = state.unwrap_or(0) as u64;
        for (target, value) in registers {
            match target {
                Target::Wide(word) => {
                    let word = usize::from(word);
                    (new.registers[word], new.registers[word + 1]) = ((value >> 64) as u64, value as u64);
                }
                Target::Register(word) => new.registers[usize::from(word)] = value as u64,
                Target::Header(_) | Target::Meta(_) | Target::Global(_) => {}
            }
        }
        Ok(new)
    }

    /// The value of an expression over constants.
    fn constant_of(
        &self,
        value: &Expression,
        operand: &impl Fn(&Word) -> Result<Operand, Error>,
    ) -> Result<u128, Error> {
        // A state's name is a constant, too.
        let operand = |word: &Word| match self.states.iter().find(|(name, _)| *name == word.text) {
            Some((_, state)) => Ok(Operand::Constant((*state).into())),
            None => operand(word),
        };
        let value = self.value_with(value, &operand)?;
        Ok(crate::step::constant(value).unwrap_or(0))
    }

    /// A constant of at most `bits` bits.
    pub(super) fn constant(&self, word: &Word, bits: u32) -> Result<u128, Error> {
        if let Some((_, port)) = self.names.ports.iter().find(|(name, _)| *name == word.text) {
            return Ok((*port).into());
        }
        match names::literal(&word.text) {
            Some((value, _)) if bits >= 128 || value >> bits == 0 => Ok(value),
            Some(_) => Err(Error::new(word.place, format!("{} doesn't fit in {bits} bits", word.text))),
            None => Err(Error::new(word.place, format!("`{}` is neither a number nor an address", word.text))),
        }
    }

    fn state(&self, word: &Word) -> Result<u64, Error> {
        match self.states.iter().find(|(name, _)| *name == word.text) {
            Some((_, state)) => Ok(*state),
            None => names::number(word, "a state", u64::MAX).map_err(|_| {
                let known: Vec<_> = self.states.iter().map(|(name, _)| name.as_str()).collect();
                let known = if known.is_empty() {
                    "declare it by `states`".into()
                } else {
                    format!("states are {}", known.join(", "))
                };
                Error::new(word.place, format!("no state `{}`: {known}, or write a number", word.text))
            }),
        }
    }

    fn condition(&self, condition: &syntax::Condition) -> Result<Condition, Error> {
        let syntax::Condition { left, comparison, right, mask } = condition;
        let left_operand = self.operand(left)?;
        let bits = self.bits(left_operand);
        let right_operand = match self.names.ports.iter().find(|(name, _)| *name == right.text) {
            Some((_, port)) if left_operand == Operand::Header(Field::In) => Operand::Constant((*port).into()),
            _ if left_operand == Operand::State => Operand::Constant(self.state(right)?.into()),
            _ => self.operand(right)?,
        };
        if let Operand::Constant(value) = right_operand
            && bits < 128
            && value >> bits != 0
        {
            return Err(Error::new(
                right.place,
                format!("{} doesn't fit in the {bits} bits of `{}`", right.text, left.text),
            ));
        }
        if left_operand == Operand::Header(Field::In) && matches!(right_operand, Operand::Constant(_)) {
            self.port(right)?;
        }
        let mask_bits = match mask {
            None => u128::MAX,
            Some(mask) => {
                if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
                    return Err(Error::new(mask.place, "a mask goes with = and != alone"));
                }
                self.mask(mask, bits, &right.text)?
            }
        };
        if let Operand::Constant(value) = right_operand
            && value & !mask_bits != 0
        {
            let message =
                format!("{} has bits outside of the mask {}", right.text, mask.as_ref().map_or("", |mask| &mask.text));
            return Err(Error::new(right.place, message));
        }
        let layers = [left_operand, right_operand].into_iter().fold(Layers::NONE, |layers, operand| match operand {
            Operand::Header(field) => layers.with(field.layers()),
            _ => layers,
        });
        Ok(Condition { left: left_operand, mask: mask_bits, comparison: *comparison, right: right_operand, layers })
    }

    /// A mask: of an address the length of the prefix or an address, else the bits as a number.
    fn mask(&self, mask: &Word, bits: u32, right: &str) -> Result<u128, Error> {
        let Some((value, offset)) = names::literal(&mask.text) else {
            return Err(Error::new(mask.place, format!("`{}` is not a mask", mask.text)));
        };
        if bits < 128 {
            return Ok(value);
        }
        let is_address = mask.text.contains(['.', ':']);
        if is_address {
            return Ok(if offset == 96 { value | u128::MAX << 32 } else { value });
        }
        let (_, offset) = names::literal(right).unwrap_or((0, 0));
        let len = value.saturating_add(offset.into());
        if len > 128 {
            return Err(Error::new(mask.place, format!("a prefix of {right} has at most {} bits", 128 - offset)));
        }
        Ok(u128::MAX.checked_shl(128 - len as u32).unwrap_or(0))
    }

    /// The width of an operand.
    fn bits(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Constant(_) | Operand::Wide(_) => 128,
            Operand::Header(field) => field.bits(),
            Operand::Meta(number) => self.names.meta[usize::from(number)].1,
            Operand::Register(_) | Operand::Global(_) | Operand::State => 64,
        }
    }

    fn operand(&self, word: &Word) -> Result<Operand, Error> {
        let text = word.text.as_str();
        if let Some((value, _)) = names::literal(text) {
            let is_address = text.contains(['.', ':']);
            if !is_address && value >> 64 != 0 {
                return Err(Error::new(word.place, format!("{text} doesn't fit in 64 bits")));
            }
            return Ok(Operand::Constant(value));
        }
        if let Some((_, number)) = self.globals.iter().find(|(name, _)| name == text) {
            return Ok(Operand::Global(*number));
        }
        let meta = text.strip_prefix("meta.").unwrap_or(text);
        if let Some(number) = self.names.meta(meta) {
            return Ok(Operand::Meta(number));
        }
        if let Some(field) = Field::of_name(text) {
            return Ok(Operand::Header(field));
        }
        if text == "state" {
            return Ok(Operand::State);
        }
        match names::register(text) {
            Some(register) => Ok(match self.registers.place(register) {
                Some((word, true)) => Operand::Wide(word),
                Some((word, false)) => Operand::Register(word),
                None => return Err(Error::new(word.place, format!("no row of the stage sets `{text}`"))),
            }),
            None => Err(names::unknown(word, self.names, self.globals)),
        }
    }

    fn target(&self, word: &Word) -> Result<Target, Error> {
        Ok(match self.operand(word)? {
            Operand::Meta(number) => Target::Meta(number),
            Operand::Register(at) => Target::Register(at),
            Operand::Wide(at) => Target::Wide(at),
            Operand::Global(number) => Target::Global(number),
            Operand::Header(field) if field.is_writable() => Target::Header(field),
            Operand::Header(field) => {
                let writable: Vec<_> =
                    Field::ALL.iter().filter(|(field, ..)| field.is_writable()).map(|(_, name, ..)| *name).collect();
                let message = format!("`{}` can't be changed; what can be is {}", field.name(), writable.join(", "));
                return Err(Error::new(word.place, message));
            }
            Operand::State => return Err(Error::new(word.place, "write `state NAME`, or `state = VALUE`")),
            Operand::Constant(_) => return Err(Error::new(word.place, format!("`{}` can't be changed", word.text))),
        })
    }

    fn assignment(&self, name: &Word, value: &Expression) -> Result<Assignment, Error> {
        let target = self.target(name)?;
        let bits = match target {
            Target::Header(field) => field.bits(),
            Target::Meta(number) => self.names.meta[usize::from(number)].1,
            Target::Register(_) | Target::Wide(_) | Target::Global(_) => 128,
        };
        let new = self.value_with(value, &|word| self.operand(word))?;
        if let (Expression::Operand(word), Value::Operand(Operand::Constant(constant))) = (value, &new)
            && bits < 128
            && constant >> bits != 0
        {
            let message = format!("{} doesn't fit in the {bits} bits of `{}`", word.text, name.text);
            return Err(Error::new(word.place, message));
        }
        Ok(Assignment { target, value: new })
    }

    fn value_with(
        &self,
        value: &Expression,
        operand: &impl Fn(&Word) -> Result<Operand, Error>,
    ) -> Result<Value, Error> {
        Ok(match value {
            Expression::Operand(word) => Value::Operand(operand(word)?),
            Expression::Binary(left, operator, right) => self.binary(operand(left)?, *operator, operand(right)?),
            Expression::Call(name, words) => {
                let Some((function, _, count)) = Function::ALL.iter().find(|(_, known, _)| *known == name.text) else {
                    let known: Vec<_> = Function::ALL.iter().map(|(_, name, _)| *name).collect();
                    return Err(Error::new(
                        name.place,
                        format!("no function `{}`: functions are {}", name.text, known.join(", ")),
                    ));
                };
                if words.len() != *count {
                    let message = format!("`{}` takes {count} arguments, not {}", name.text, words.len());
                    return Err(Error::new(name.place, message));
                }
                let mut arguments = [Operand::Constant(0); 4];
                for (argument, word) in arguments.iter_mut().zip(words) {
                    *argument = operand(word)?;
                }
                Value::Call(*function, arguments)
            }
        })
    }

    /// A calculation with constants alone is done now.
    fn binary(&self, left: Operand, operator: Operator, right: Operand) -> Value {
        let value = Value::Binary(left, operator, right);
        crate::step::constant(value).map_or(value, |constant| Value::Operand(Operand::Constant(constant)))
    }

    fn set_state(&self, set: &syntax::SetState, row: &syntax::Row) -> Result<SetState, Error> {
        let state = match &set.state {
            Expression::Operand(word) if !set.computed => Value::Operand(Operand::Constant(self.state(word)?.into())),
            expression => self.value_with(expression, &|word| self.operand(word))?,
        };
        let mut compiled = SetState { state, idle: None, hard: None };
        for timeout in &set.timeouts {
            let fallback = timeout.fallback.as_ref().map(|state| self.state(state)).transpose()?;
            let new = Timeout { span: names::span(&timeout.span)?, fallback };
            if compiled.timeout(timeout.kind).replace(new).is_some() {
                return Err(Error::new(row.state.place, "a state has one idle and one hard timeout"));
            }
        }
        Ok(compiled)
    }

    /// Stages come in the order of the program, so a packet never passes one twice.
    fn goto(&self, word: &Word) -> Result<Next, Error> {
        match self.names.stages.iter().position(|stage| *stage == word.text) {
            Some(stage) if stage > self.at => Ok(Next::Goto(stage as u16)),
            Some(_) => Err(Error::new(
                word.place,
                format!("stage `{}` is not below this one; packets go down only", word.text),
            )),
            None => Err(Error::new(
                word.place,
                format!("no stage `{}`: stages are {}", word.text, self.names.stages.join(", ")),
            )),
        }
    }

    /// The number of a template.
    fn template(&self, word: &Word) -> Result<u16, Error> {
        let templates = &self.names.templates;
        templates.iter().position(|(name, _)| *name == word.text).map(|at| at as u16).ok_or_else(|| {
            let known: Vec<_> = templates.iter().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() { "none is declared by `template`".into() } else { known.join(", ") };
            Error::new(word.place, format!("no template `{}`: {known}", word.text))
        })
    }

    fn output(&self, word: &Word) -> Result<Next, Error> {
        match word.text.as_str() {
            "across" => Ok(Next::Out(ACROSS)),
            "back" => Ok(Next::Out(BACK)),
            _ => self.port(word).map(Next::Out),
        }
    }

    fn port(&self, word: &Word) -> Result<u16, Error> {
        match self.names.ports.iter().find(|(name, _)| *name == word.text) {
            Some((_, port)) => Ok(*port),
            None if names::plain_number(&word.text).is_some() => {
                names::number(word, "a port", u64::from(BACK) - 1).map(|port| port as u16)
            }
            None => {
                let known: Vec<_> = self.names.ports.iter().map(|(name, _)| name.as_str()).collect();
                let known = if known.is_empty() { "none is declared by `ports`".into() } else { known.join(", ") };
                Err(Error::new(word.place, format!("no port `{}`: {known}; or write a number", word.text)))
            }
        }
    }
}

/// The next stop with a copy, or of a packet from a template. Only a packet that leaves can have either.
fn extended(next: Next, copy: Option<(Next, Place)>, made: Option<(u16, Place)>) -> Result<Next, Error> {
    match (next, copy, made) {
        (next, None, None) => Ok(next),
        (Next::Out(port), Some((Next::Out(copy), _)), None) => Ok(Next::Copy(port, copy)),
        (Next::Out(port), None, Some((template, _))) => Ok(Next::Make(port, template)),
        (_, Some((_, place)), Some(_)) => Err(Error::new(place, "a packet from a template can't be copied")),
        (_, Some((_, place)), None) => Err(Error::new(
            place,
            "`copy` goes with `out` in one row; to send the packet to this port alone, write `out`",
        )),
        (_, None, Some((_, place))) => {
            Err(Error::new(place, "`make` goes with `out` in one row, as in `make pong; out back`"))
        }
    }
}

fn once(next: &mut Option<Next>, to: Next, place: Place) -> Result<(), Error> {
    match next.replace(to) {
        None => Ok(()),
        Some(_) => Err(Error::new(place, "the packet goes to one place: one of `goto`, `out` and `drop` in a row")),
    }
}

/// True for an action that says where the packet goes.
const fn leaves(action: &Action) -> bool {
    matches!(action, Action::Goto(_) | Action::Out(_) | Action::Drop(_))
}
