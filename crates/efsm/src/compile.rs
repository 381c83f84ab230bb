//! Compiles a program's syntax tree: names become numbers, and everything is checked that can be checked before a packet comes.

mod names;
mod row;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::error::{Error, Place};
use crate::key::OTHER_BITS;
use crate::machine::{
    Extractor, KeyField, Keys, META_MAX, Machine, Preset, REGISTER_WORDS, Row, STAGES_MAX, Stage, Target,
};
use crate::packet::{Field, Layers};
use crate::parse::parse;
use crate::syntax::{self, Item, Line, Word};

use self::names::{Names, Registers};

/// Contexts of a stage that doesn't say how many it stores.
const CONTEXTS: usize = 65_536;
const CONTEXTS_MAX: u64 = 1 << 28;
const ROWS_MAX: usize = u16::MAX as usize;
/// The most contexts that all presets of a program make.
const PRESETS_MAX: u64 = 1 << 20;

impl Machine {
    /// Compiles a program's text.
    ///
    /// # Errors
    /// Everything that is wrong with the text, in order of lines.
    pub fn compile(text: &str) -> Result<Self, Vec<Error>> {
        Self::of_lines(&parse(text)?)
    }

    /// Compiles parsed lines.
    ///
    /// # Errors
    /// Everything that is wrong with the program, in order of lines.
    pub fn of_lines(lines: &[Line]) -> Result<Self, Vec<Error>> {
        let mut compiler = Compiler::default();
        let machine = compiler.machine(lines);
        if compiler.errors.is_empty() {
            return Ok(machine);
        }
        compiler.errors.sort_by_key(|error| error.place);
        Err(compiler.errors)
    }
}

/// Collects errors while the rest is compiled.
#[derive(Default)]
struct Compiler {
    errors: Vec<Error>,
    presets: u64,
}

/// The lines of one stage.
struct StageLines<'a> {
    name: &'a Word,
    lines: &'a [Line],
}

impl Compiler {
    fn error(&mut self, place: Place, message: impl Into<String>) {
        self.errors.push(Error::new(place, message));
    }

    /// The value, or an error that is noted.
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn machine(&mut self, lines: &[Line]) -> Machine {
        let mut stages = Vec::new();
        let mut start = None;
        for (at, line) in lines.iter().enumerate() {
            if let Some(Item::Stage(name)) = &line.item {
                stages.extend(start.map(|(name, from): (_, usize)| StageLines { name, lines: &lines[from..at] }));
                start = Some((name, at + 1));
            }
        }
        let head = &lines[..start.map_or(lines.len(), |_| first_stage(lines))];
        stages.extend(start.map(|(name, from)| StageLines { name, lines: &lines[from..] }));
        let mut names = Names { ports: Vec::new(), meta: Vec::new(), templates: Vec::new(), stages: Vec::new() };
        self.head(head, &mut names);
        for stage in &stages {
            if names.stages.contains(&stage.name.text) {
                self.error(stage.name.place, format!("there are two stages `{}`", stage.name.text));
            }
            names.stages.push(stage.name.text.clone());
        }
        if stages.is_empty() {
            self.error(Place { line: 1, column: 1 }, "there is no stage: write `stage NAME` and its rows below");
        } else if stages.len() > STAGES_MAX {
            self.error(stages[STAGES_MAX].name.place, format!("more than {STAGES_MAX} stages"));
        }
        let (mut globals, mut rows) = (Vec::new(), 0);
        let mut compiled = Vec::new();
        for (at, stage) in stages.iter().enumerate() {
            let stage = self.stage(at, stage, &names, &mut globals, rows);
            rows += stage.rows.len();
            compiled.push(stage);
        }
        self.warn_of_unreachable(&stages, &compiled);
        let assignments = compiled.iter().flat_map(|stage| &stage.rows).flat_map(|row| &row.assignments);
        let rewrites = assignments.map(|one| one.target).any(|target| matches!(target, Target::Header(_)));
        Machine {
            stages: compiled,
            ports: names.ports,
            meta: names.meta,
            templates: names.templates,
            globals,
            rows,
            rewrites,
        }
    }

    /// The lines before the first stage.
    fn head(&mut self, lines: &[Line], names: &mut Names) {
        for line in lines {
            match &line.item {
                None => {}
                Some(Item::Ports(ports)) => {
                    for (name, number) in ports {
                        let number = self.note(names::number(number, "a port", u64::from(u16::MAX) - 2));
                        if matches!(name.text.as_str(), "across" | "back") {
                            self.error(
                                name.place,
                                format!("`{}` has a meaning of its own; choose another name", name.text),
                            );
                        }
                        self.add_name(&mut names.ports, name, number.unwrap_or(0) as u16, "port");
                    }
                }
                Some(Item::Meta(name, first, last)) => self.meta(name, first, last, names),
                Some(Item::Template(name, words)) => {
                    let bytes = self.note(names::template(name, words)).unwrap_or_default();
                    self.add_name(&mut names.templates, name, bytes, "template");
                }
                Some(item) => {
                    let (keyword, place) = keyword(item, line);
                    self.error(place, format!("`{keyword}` belongs to a stage: write `stage NAME` above it"));
                }
            }
        }
    }

    fn meta(&mut self, name: &Word, first: &Word, last: &Word, names: &mut Names) {
        let from = self.note(names::number(first, "a bit", 4095)).unwrap_or(0);
        let to = self.note(names::number(last, "a bit", 4095)).unwrap_or(from);
        if to < from || to - from >= 64 {
            self.error(first.place, format!("metadata has 1 to 64 bits, not {} to {}", first.text, last.text));
            return;
        }
        if names.meta.len() == META_MAX {
            self.error(name.place, format!("more than {META_MAX} metadata fields"));
            return;
        }
        if Field::of_name(&name.text).is_some() || names::is_reserved(&name.text) {
            self.error(name.place, format!("`{}` has a meaning of its own; choose another name", name.text));
        }
        self.add_name(&mut names.meta, name, (to - from + 1) as u32, "metadata field");
    }

    fn add_name<T>(&mut self, list: &mut Vec<(String, T)>, name: &Word, value: T, what: &str) {
        if list.iter().any(|(known, _)| *known == name.text) {
            self.error(name.place, format!("there are two {what}s `{}`", name.text));
        }
        list.push((name.text.clone(), value));
    }

    fn stage(
        &mut self,
        at: usize,
        lines: &StageLines<'_>,
        names: &Names,
        globals: &mut Vec<u64>,
        first_row: usize,
    ) -> Stage {
        let mut stage = Stage {
            name: lines.name.text.clone(),
            number: at,
            keys: self.keys(lines, names),
            contexts: CONTEXTS,
            register_words: 0,
            registers: Vec::new(),
            states: Vec::new(),
            rows: Vec::new(),
            by_state: Vec::new(),
            otherwise: Vec::new(),
            first_row,
            presets: Vec::new(),
            has_timeouts: false,
        };
        let mut own_globals = Vec::new();
        for line in lines.lines {
            match &line.item {
                Some(Item::Globals(list)) => {
                    for (name, value) in list {
                        let value = self.note(names::number(value, "a value", u64::MAX)).unwrap_or(0);
                        let number = globals.len() as u16;
                        if Field::of_name(&name.text).is_some() || names::is_reserved(&name.text) {
                            self.error(
                                name.place,
                                format!("`{}` has a meaning of its own; choose another name", name.text),
                            );
                        }
                        self.add_name(&mut own_globals, name, number, "global register");
                        globals.push(value);
                    }
                }
                Some(Item::States(list)) => {
                    for (name, value) in list {
                        let value = self.note(names::number(value, "a state", u64::MAX)).unwrap_or(0);
                        self.add_name(&mut stage.states, name, value, "state");
                    }
                }
                Some(Item::Contexts(most)) => {
                    let number = self.note(names::number(most, "a number of contexts", CONTEXTS_MAX)).unwrap_or(1);
                    if number == 0 {
                        self.error(most.place, "a stage stores at least one context");
                    }
                    stage.contexts = number.max(1) as usize;
                }
                Some(Item::Ports(_) | Item::Meta(..) | Item::Template(..)) => {
                    self.error(Place { line: line.number, column: 1 }, "this line belongs above the first stage");
                }
                _ => {}
            }
        }
        if globals.len() > usize::from(u16::MAX) {
            self.error(lines.name.place, "more than 65,535 global registers");
        }
        let registers = self.registers(lines, names, &own_globals);
        stage.register_words = registers.words();
        stage.registers = registers.list();
        if stage.register_words > REGISTER_WORDS {
            let message = format!(
                "the registers take {} words of 64 bits, and a context has {REGISTER_WORDS}; a register that holds an address takes two",
                stage.register_words
            );
            self.error(lines.name.place, message);
            // So that nothing behind reaches for words that aren't there.
            stage.register_words = REGISTER_WORDS;
        }
        let scope = row::Scope { names, globals: &own_globals, registers: &registers, states: &stage.states, at };
        let has_contexts = stage.keys.is_some();
        for line in lines.lines {
            match &line.item {
                Some(Item::Row(row)) => match scope.row(row, line.number, has_contexts) {
                    Ok(row) => stage.rows.push(row),
                    Err(errors) => self.errors.extend(errors),
                },
                Some(Item::Preset(preset)) => {
                    let presets = self.preset(preset, line, &scope, stage.keys.as_ref());
                    stage.presets.extend(presets);
                }
                _ => {}
            }
        }
        if stage.rows.is_empty() && self.errors.is_empty() {
            self.error(lines.name.place, format!("stage `{}` has no rows, so it would drop all packets", stage.name));
        }
        if stage.rows.len() > ROWS_MAX {
            self.error(lines.name.place, format!("a stage has at most {ROWS_MAX} rows"));
            stage.rows.truncate(ROWS_MAX);
        }
        if stage.presets.len() > stage.contexts {
            let message = format!("{} preset contexts, and the stage stores {}", stage.presets.len(), stage.contexts);
            self.error(lines.name.place, message);
        }
        let timed = |row: &Row| row.set_state.is_some_and(|set| set.idle.is_some() || set.hard.is_some());
        stage.has_timeouts = stage.rows.iter().any(timed);
        (stage.by_state, stage.otherwise) = by_state(&stage.rows);
        stage
    }

    fn keys(&mut self, lines: &StageLines<'_>, names: &Names) -> Option<Keys> {
        let [mut key, mut lookup, mut update] = [const { None::<(&syntax::Extractor, u32)> }; 3];
        for line in lines.lines {
            let (place, extractor) = match &line.item {
                Some(Item::Key(extractor)) => (&mut key, extractor),
                Some(Item::Lookup(extractor)) => (&mut lookup, extractor),
                Some(Item::Update(extractor)) => (&mut update, extractor),
                _ => continue,
            };
            if place.replace((extractor, line.number)).is_some() {
                self.error(extractor.fields[0].place, "the stage has this key already");
            }
        }
        let (lookup, update) = match (key, lookup, update) {
            (Some((key, _)), None, None) => (key, None),
            (None, Some((lookup, _)), Some((update, _))) => (lookup, Some(update)),
            (None, None, None) => return None,
            (Some(_), ..) => {
                let place = lookup.or(update).map(|(extractor, _)| extractor.fields[0].place).unwrap_or_default();
                self.error(place, "`key` is for look-up and update; write either `key`, or `lookup` and `update`");
                return None;
            }
            (None, Some((only, _)), None) | (None, None, Some((only, _))) => {
                self.error(
                    only.fields[0].place,
                    "`lookup` and `update` come together; if both are the same, write `key`",
                );
                return None;
            }
        };
        let (lookup, update) =
            (self.extractor(lookup, names), update.map(|update| (update, self.extractor(update, names))));
        let update = update.map(|(words, update)| self.aligned(words, update, &lookup, names));
        let update = update.filter(|update| *update != lookup);
        Some(Keys { lookup, update })
    }

    fn extractor(&mut self, extractor: &syntax::Extractor, names: &Names) -> Extractor {
        let mut fields = Vec::new();
        for word in &extractor.fields {
            let name = word.text.strip_prefix("meta.").unwrap_or(&word.text);
            let field = match (Field::of_name(&word.text), names.meta(name)) {
                (Some(field), _) => KeyField::Header(field),
                (None, Some(number)) => KeyField::Meta(number),
                (None, None) => {
                    self.error(word.place, format!("no field `{}`: {}", word.text, names::fields()));
                    continue;
                }
            };
            if matches!(field, KeyField::Header(field) if field.is_time()) {
                self.error(word.place, "a time can't be part of a key: every packet would have a context of its own");
            }
            if fields.contains(&field) {
                self.error(word.place, format!("`{}` is in this key already", word.text));
            }
            fields.push(field);
        }
        let layers = fields.iter().fold(Layers::NONE, |layers, field| match field {
            KeyField::Header(field) => layers.with(field.layers()),
            KeyField::Meta(_) => layers,
        });
        let new =
            Extractor { biflow: extractor.biflow, places: fields.clone(), fields, layers, is_tuple: false }.settle();
        let place = extractor.fields[0].place;
        if new.other_bits() > OTHER_BITS {
            let message = format!(
                "besides ip.src, ip.dst, l4.src, l4.dst, in and ip.proto, the fields of a key have at most {OTHER_BITS} bits; these have {}",
                new.other_bits()
            );
            self.error(place, message);
        }
        if new.biflow {
            let lonely = new.fields.iter().find_map(|field| match field {
                KeyField::Header(field) if !new.fields.contains(&KeyField::Header(field.reversed())) => Some(*field),
                _ => None,
            });
            if let Some(field) = lonely {
                let message = format!("`biflow` with {} needs {} too", field.name(), field.reversed().name());
                self.error(place, message);
            } else if new
                .fields
                .iter()
                .all(|field| !matches!(field, KeyField::Header(field) if field.reversed() != *field))
            {
                self.error(
                    place,
                    "`biflow` needs the fields of both ends, as in `key biflow ip.src ip.dst l4.src l4.dst`",
                );
            }
        }
        new
    }

    /// The update key, with each field in the place of the look-up key's field at the same position.
    fn aligned(
        &mut self,
        words: &syntax::Extractor,
        mut update: Extractor,
        lookup: &Extractor,
        names: &Names,
    ) -> Extractor {
        let bits = |field: &KeyField| match field {
            KeyField::Header(field) => field.bits(),
            KeyField::Meta(number) => names.meta[usize::from(*number)].1,
        };
        if update.fields.len() != lookup.fields.len() {
            let message = format!(
                "the update key has {} fields and the look-up key {}; they find the same contexts, field by field",
                update.fields.len(),
                lookup.fields.len()
            );
            self.error(words.fields[0].place, message);
            return update;
        }
        for ((word, field), place) in words.fields.iter().zip(&update.fields).zip(&lookup.fields) {
            if bits(field) > bits(place) {
                let message =
                    format!("`{}` has {} bits, its place in the look-up key {}", word.text, bits(field), bits(place));
                self.error(word.place, message);
            }
        }
        update.places = lookup.fields.clone();
        update.settle()
    }

    /// Collects the registers that the stage uses, and which of them hold addresses.
    fn registers(&mut self, lines: &StageLines<'_>, names: &Names, globals: &[(String, u16)]) -> Registers {
        let mut registers = Registers::default();
        for line in lines.lines {
            let actions = match &line.item {
                Some(Item::Row(row)) => &row.actions,
                Some(Item::Preset(preset)) => &preset.actions,
                _ => continue,
            };
            for action in actions {
                if let syntax::Action::Assign(name, value) = action
                    && let Some(number) = names::register(&name.text)
                    && globals.iter().all(|(global, _)| *global != name.text)
                    && names.meta(&name.text).is_none()
                {
                    registers.assigned(number, value);
                }
            }
        }
        registers.settle();
        registers
    }

    fn preset(
        &mut self,
        preset: &syntax::Preset,
        line: &Line,
        scope: &row::Scope<'_>,
        keys: Option<&Keys>,
    ) -> Vec<Preset> {
        let place = preset.values.first().map_or(Place { line: line.number, column: 1 }, |(value, _)| value.place);
        let Some(keys) = keys else {
            self.error(place, "a stage without a key has no contexts");
            return Vec::new();
        };
        // Presets are stored under the key that packets look up with.
        let key = &keys.lookup;
        if preset.values.len() != key.fields.len() {
            self.error(
                place,
                format!("the key has {} fields, here are {} values", key.fields.len(), preset.values.len()),
            );
            return Vec::new();
        }
        let mut ranges = Vec::new();
        for ((from, to), field) in preset.values.iter().zip(&key.fields) {
            let bits = match field {
                KeyField::Header(field) => field.bits(),
                KeyField::Meta(number) => scope.names.meta[usize::from(*number)].1,
            };
            let Some(first) = self.note(scope.constant(from, bits)) else { return Vec::new() };
            let Some(last) = to.as_ref().map_or(Some(first), |to| self.note(scope.constant(to, bits))) else {
                return Vec::new();
            };
            if to.is_some() && key.fields.len() > 1 {
                self.error(from.place, "a range is for keys of one field");
                return Vec::new();
            }
            if last < first || last - first >= u128::from(PRESETS_MAX) {
                self.error(
                    from.place,
                    format!("{}..{} is not a range of at most {PRESETS_MAX} values", from.text, last),
                );
                return Vec::new();
            }
            ranges.push((first, last));
        }
        let count = ranges.first().map_or(1, |(first, last)| if ranges.len() == 1 { last - first + 1 } else { 1 });
        self.presets = self.presets.saturating_add(count as u64);
        if self.presets > PRESETS_MAX {
            self.error(place, format!("more than {PRESETS_MAX} preset contexts"));
            return Vec::new();
        }
        let mut presets = Vec::new();
        for offset in 0..count {
            let values: Vec<u128> = ranges.iter().map(|(first, _)| first + offset).collect();
            match scope.preset(preset, values) {
                Ok(preset) => presets.push(preset),
                Err(error) => {
                    self.errors.push(error);
                    break;
                }
            }
        }
        presets
    }

    fn warn_of_unreachable(&mut self, lines: &[StageLines<'_>], stages: &[Stage]) {
        if !self.errors.is_empty() {
            return;
        }
        let mut reached = vec![false; stages.len()];
        reached[0] = true;
        for at in 0..stages.len() {
            for row in &stages[at].rows {
                if let crate::machine::Next::Goto(next) = row.next
                    && reached[at]
                {
                    reached[usize::from(next)] = true;
                }
            }
        }
        if let Some(at) = reached.iter().position(|reached| !reached) {
            let message =
                format!("no packet comes to stage `{}`: no row of an earlier stage has `goto {0}`", stages[at].name);
            self.error(lines[at].name.place, message);
        }
    }
}

fn first_stage(lines: &[Line]) -> usize {
    lines.iter().position(|line| matches!(line.item, Some(Item::Stage(_)))).unwrap_or(lines.len())
}

fn keyword(item: &Item, line: &Line) -> (String, Place) {
    let keyword = match item {
        Item::Ports(_) => "ports",
        Item::Meta(..) => "meta",
        Item::Template(..) => "template",
        Item::Stage(_) => "stage",
        Item::Key(_) => "key",
        Item::Lookup(_) => "lookup",
        Item::Update(_) => "update",
        Item::Globals(_) => "global",
        Item::States(_) => "states",
        Item::Contexts(_) => "contexts",
        Item::Preset(_) => "preset",
        Item::Row(_) => "on",
    };
    (keyword.to_string(), Place { line: line.number, column: 1 })
}

/// For each state that a row names, the rows that can match in it; and the rows for all other states.
fn by_state(rows: &[Row]) -> (Vec<(u64, Vec<u16>)>, Vec<u16>) {
    let mut states: Vec<u64> = rows.iter().filter_map(|row| row.state).collect();
    states.sort_unstable();
    states.dedup();
    let of = |state: Option<u64>| -> Vec<u16> {
        let fits = |row: &Row| row.state.is_none() || row.state == state;
        rows.iter().enumerate().filter(|(_, row)| fits(row)).map(|(at, _)| at as u16).collect()
    };
    (states.iter().map(|state| (*state, of(Some(*state)))).collect(), of(None))
}
