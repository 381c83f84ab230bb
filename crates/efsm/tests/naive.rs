//! Random programs over random packets, against an interpreter that walks the syntax tree and knows nothing of keys in words, layouts,
//! masks or row indexes.
#![allow(missing_docs)]

use std::collections::HashMap;

use millrace_efsm::syntax::{Action, Comparison, Expression, Item, Operator, Row, TimeoutKind, Word};
use millrace_efsm::{Layers, Machine, MemoryStore, Outcome, Packet, parse, print};
use packet::Nanos;
use proptest::prelude::*;

/// A packet as named values; a name that is missing is a field that the packet lacks.
type Fields = HashMap<&'static str, u128>;

/// A context, with the ends of its timeouts and what they fall back to.
#[derive(Clone, Default)]
struct NaiveContext {
    state: u128,
    registers: HashMap<String, u128>,
    idle: Option<(u64, u64, Option<u128>)>,
    hard: Option<(u64, Option<u128>)>,
}

impl NaiveContext {
    fn at(mut self, now: u64) -> Self {
        let idle_end = self.idle.map_or(u64::MAX, |(_, end, _)| end);
        let hard_end = self.hard.map_or(u64::MAX, |(end, _)| end);
        if now >= idle_end || now >= hard_end {
            let fallback =
                if hard_end < idle_end { self.hard.and_then(|(_, to)| to) } else { self.idle.and_then(|(.., to)| to) };
            return match fallback {
                Some(state) => Self { state, idle: None, hard: None, ..self },
                None => Self::default(),
            };
        }
        self.idle = self.idle.map(|(span, _, to)| (span, now + span, to));
        self
    }
}

#[derive(Default)]
struct NaiveStage {
    name: String,
    biflow: bool,
    lookup: Vec<String>,
    update: Vec<String>,
    states: HashMap<String, u128>,
    rows: Vec<Row>,
    contexts: HashMap<Vec<u128>, NaiveContext>,
}

struct Naive {
    stages: Vec<NaiveStage>,
    globals: HashMap<String, u128>,
    meta: HashMap<String, u32>,
}

impl Naive {
    fn new(text: &str) -> Self {
        let mut naive = Self { stages: Vec::new(), globals: HashMap::new(), meta: HashMap::new() };
        let names = |words: &[Word]| words.iter().map(|word| word.text.clone()).collect::<Vec<_>>();
        for line in parse(text).expect("the program parses") {
            match line.item {
                Some(Item::Stage(name)) => naive.stages.push(NaiveStage { name: name.text, ..NaiveStage::default() }),
                Some(Item::Meta(name, first, last)) => {
                    let bit = |word: &Word| word.text.parse::<u32>().expect("a bit");
                    naive.meta.insert(name.text.clone(), bit(&last) - bit(&first) + 1);
                }
                Some(Item::Globals(list)) => {
                    naive.globals.extend(
                        list.iter().map(|(name, value)| (name.text.clone(), value.text.parse().expect("a number"))),
                    );
                }
                Some(item) => {
                    let Some(stage) = naive.stages.last_mut() else { continue };
                    match item {
                        Item::Key(key) => {
                            (stage.biflow, stage.lookup, stage.update) =
                                (key.biflow, names(&key.fields), names(&key.fields))
                        }
                        Item::Lookup(key) => stage.lookup = names(&key.fields),
                        Item::Update(key) => stage.update = names(&key.fields),
                        Item::States(states) => {
                            stage.states.extend(
                                states
                                    .iter()
                                    .map(|(name, value)| (name.text.clone(), value.text.parse().expect("a number"))),
                            );
                        }
                        Item::Row(row) => stage.rows.push(row),
                        _ => {}
                    }
                }
                None => {}
            }
        }
        naive
    }

    /// What becomes of the packet: the port and the changed fields, or why it is dropped.
    fn run(&mut self, mut fields: Fields, now: u64) -> (String, Fields) {
        let mut meta: HashMap<String, u128> = self.meta.keys().map(|name| (name.clone(), 0)).collect();
        let mut at = 0;
        loop {
            let stage = &self.stages[at];
            let value_of = |name: &str| fields.get(name).or_else(|| meta.get(name)).copied();
            let key = |names: &[String]| -> Option<Vec<u128>> {
                let values: Vec<u128> = names.iter().map(|name| value_of(name)).collect::<Option<_>>()?;
                if !stage.biflow {
                    return Some(values);
                }
                // Source address and port, then destination address and port.
                let (one, other) = ([values[0], values[2]], [values[1], values[3]]);
                Some(if one <= other { [one, other].concat() } else { [other, one].concat() })
            };
            let (mut lookup, mut update) = (Vec::new(), Vec::new());
            if !stage.lookup.is_empty() {
                let (Some(one), Some(other)) = (key(&stage.lookup), key(&stage.update)) else {
                    return ("keyless".into(), fields);
                };
                (lookup, update) = (one, other);
            }
            let has_contexts = !stage.lookup.is_empty();
            let known = stage.contexts.contains_key(&lookup);
            let context = stage.contexts.get(&lookup).cloned().unwrap_or_default().at(now);
            let get = |word: &str| -> Option<u128> {
                let of_register = || {
                    let is_register = word.starts_with('r') && word[1..].parse::<u32>().is_ok();
                    is_register.then(|| context.registers.get(word).copied().unwrap_or(0))
                };
                word.parse::<u128>()
                    .ok()
                    .or_else(|| value_of(word))
                    .or_else(|| self.globals.get(word).copied())
                    .or_else(of_register)
                    .or_else(|| (word == "state").then_some(context.state))
            };
            let state_of = |word: &str| stage.states.get(word).copied().or_else(|| word.parse().ok()).expect("a state");
            let holds = |row: &&Row| {
                let in_state = row.state.text == "*" || state_of(&row.state.text) == context.state;
                in_state
                    && row.conditions.iter().all(|condition| {
                        let (Some(left), Some(right)) = (get(&condition.left.text), get(&condition.right.text)) else {
                            return false;
                        };
                        let mask = condition.mask.as_ref().map_or(u128::MAX, |mask| mask.text.parse().expect("a mask"));
                        let (left, right) = (left & mask, right & mask);
                        match condition.comparison {
                            Comparison::Equal => left == right,
                            Comparison::NotEqual => left != right,
                            Comparison::Less => left < right,
                            Comparison::LessOrEqual => left <= right,
                            Comparison::Greater => left > right,
                            Comparison::GreaterOrEqual => left >= right,
                        }
                    })
            };
            let Some(row) = stage.rows.iter().find(holds).cloned() else {
                if known {
                    self.stages[at].contexts.insert(lookup, context);
                }
                return ("missed".into(), fields);
            };
            let value = |expression: &Expression| -> u128 {
                let of = |word: &Word| get(&word.text).unwrap_or(0);
                match expression {
                    Expression::Operand(word) => of(word),
                    Expression::Binary(left, operator, right) => {
                        let (left, right) = (of(left), of(right));
                        match operator {
                            Operator::Add => left + right,
                            Operator::Subtract => left.wrapping_sub(right),
                            Operator::Multiply => left.wrapping_mul(right),
                            Operator::Divide => left.checked_div(right).unwrap_or(u128::MAX),
                            Operator::Modulo => {
                                if right == 0 {
                                    left
                                } else {
                                    left % right
                                }
                            }
                            Operator::ShiftLeft => {
                                if right < 128 {
                                    left << right
                                } else {
                                    0
                                }
                            }
                            Operator::ShiftRight => {
                                if right < 128 {
                                    left >> right
                                } else {
                                    0
                                }
                            }
                            Operator::And => left & right,
                            Operator::Or => left | right,
                            Operator::Xor => left ^ right,
                        }
                    }
                    Expression::Call(function, words) => {
                        let a: Vec<u128> = words.iter().map(of).collect();
                        match function.text.as_str() {
                            "min" => a[0].min(a[1]),
                            "max" => a[0].max(a[1]),
                            "avg" => a[0].saturating_mul(a[1]).saturating_add(a[2]) / (a[1] + 1),
                            "ewma" => {
                                let by = a[2].min(127) as u32;
                                if a[1] >= a[0] { a[0] + ((a[1] - a[0]) >> by) } else { a[0] - ((a[0] - a[1]) >> by) }
                            }
                            other => panic!("the test makes no {other}"),
                        }
                    }
                }
            };
            let (mut new_fields, mut new_meta, mut new_globals) = (fields.clone(), meta.clone(), self.globals.clone());
            let mut target = if update == lookup {
                context.clone()
            } else {
                stage.contexts.get(&update).cloned().unwrap_or_default().at(now)
            };
            let (mut updates, mut next) = (false, None);
            for action in &row.actions {
                match action {
                    Action::State(set) => {
                        updates = true;
                        target.state = match &set.state {
                            Expression::Operand(word) if !set.computed => state_of(&word.text),
                            expression => value(expression) & u128::from(u64::MAX),
                        };
                        (target.idle, target.hard) = (None, None);
                        for timeout in &set.timeouts {
                            let span = timeout.span.text.trim_end_matches('s').parse::<u64>().expect("seconds")
                                * 1_000_000_000;
                            let to = timeout.fallback.as_ref().map(|state| state_of(&state.text));
                            match timeout.kind {
                                TimeoutKind::Idle => target.idle = Some((span, now + span, to)),
                                TimeoutKind::Hard => target.hard = Some((now + span, to)),
                            }
                        }
                    }
                    Action::Assign(name, expression) => {
                        let (name, value) = (name.text.as_str(), value(expression));
                        if let Some(bits) = self.meta.get(name) {
                            new_meta.insert(name.into(), value & ((1 << bits) - 1));
                        } else if self.globals.contains_key(name) {
                            new_globals.insert(name.into(), value & u128::from(u64::MAX));
                        } else if let Some((known, _)) = fields.get_key_value(name) {
                            new_fields.insert(known, value & 0xffff);
                        } else if !name.contains('.') {
                            updates = true;
                            target.registers.insert(name.into(), value & u128::from(u64::MAX));
                        }
                    }
                    Action::Goto(stage) => {
                        next = Some(Ok(self.stages.iter().position(|one| one.name == stage.text).expect("a stage")))
                    }
                    Action::Out(port) => next = Some(Err(format!("out {}", port.text))),
                    Action::Copy(_) | Action::Make(_) => unreachable!("no row does that"),
                    Action::Drop(_) => next = Some(Err("dropped".into())),
                }
            }
            let contexts = &mut self.stages[at].contexts;
            if known && (update != lookup || !updates) {
                contexts.insert(lookup, context);
            }
            if has_contexts && updates {
                contexts.insert(update, target);
            }
            (fields, meta, self.globals) = (new_fields, new_meta, new_globals);
            match next.expect("a row says where the packet goes") {
                Ok(next) => at = next,
                Err(outcome) => return (outcome, fields),
            }
        }
    }
}

const CONDITIONS: [&str; 14] = [
    "in=1",
    "in!=1",
    "l4.src=3",
    "l4.src=2/2",
    "l4.dst<2",
    "l4.dst>=l4.src",
    "mark=1",
    "mark=2/2",
    "r0<3",
    "r1>r0",
    "total<5",
    "len>r0",
    "tcp.flags=2/2",
    "state>1",
];
const ACTIONS: [&str; 17] = [
    "r0 = r0 + 1",
    "r1 = r0",
    "r0 = r1",
    "r1 = len - r0",
    "r1 = ewma(r1, len, 1)",
    "r0 = avg(r0, r1, len)",
    "mark = r0 + 1",
    "mark = total",
    "total = total + 1",
    "total = r0 ^ r1",
    "l4.src = l4.dst",
    "l4.dst = r0 << 2",
    "state 1",
    "state 2 idle 2s -> 1",
    "state 1 hard 3s",
    "state 3 idle 3s hard 5s -> 2",
    "state = r0 % 4",
];
const KEYS: [&str; 6] = [
    "",
    "  key l4.src\n",
    "  key l4.dst mark\n",
    "  key biflow ip.proto l4.src ip.proto l4.dst\n",
    "  lookup l4.src\n  update l4.dst\n",
    "  lookup in l4.src\n  update in mark\n",
];

prop_compose! {
    fn row()(
        state in 0..5_usize,
        conditions in prop::collection::vec(0..CONDITIONS.len(), 0..3),
        actions in prop::collection::vec(0..ACTIONS.len(), 0..4),
        next in 0..6_usize,
    ) -> (usize, Vec<usize>, Vec<usize>, usize) {
        (state, conditions, actions, next)
    }
}

type Stages = Vec<(usize, Vec<(usize, Vec<usize>, Vec<usize>, usize)>)>;

/// The text of a program. What would be refused is left out: a target that is set twice, registers of a stage without a key.
fn text(stages: &Stages) -> String {
    let mut text = String::from("meta mark = bits 0..3\n");
    for (at, (key, rows)) in stages.iter().enumerate() {
        let key = if *key == 3 { 1 } else { *key };
        text += &format!("stage s{at}\n{}  global total{at} = {at}\n", KEYS[key]);
        let has_contexts = key != 0;
        // Every register that a condition may read is set by some row.
        if has_contexts {
            text += "  on 77 : r0 = 0; r1 = 0; drop\n";
        }
        for (state, conditions, actions, next) in rows {
            let state = if *state == 4 { "*".to_owned() } else { state.to_string() };
            text += &format!("  on {state}");
            for condition in conditions {
                let condition = CONDITIONS[*condition];
                if has_contexts || !condition.contains('r') || condition.starts_with("l4") && !condition.contains("r0")
                {
                    text += &format!(" {}", condition.replace("total", &format!("total{at}")));
                }
            }
            text += " : ";
            let mut targets = Vec::new();
            for action in actions {
                let action = ACTIONS[*action];
                let target = action.split(' ').next().unwrap_or_default();
                let of_context = action.contains("r0") || action.contains("r1") || target == "state";
                if !targets.contains(&target) && (has_contexts || !of_context) {
                    targets.push(target);
                    text += &format!("{}; ", action.replace("total", &format!("total{at}")));
                }
            }
            let to = at + 1 + next % 3;
            text += &if to < stages.len() {
                format!("goto s{to}\n")
            } else if *next == 5 {
                "drop\n".into()
            } else {
                format!("out {}\n", next % 3)
            };
        }
        // So that every stage is reached.
        text += &if at + 1 < stages.len() {
            format!("  on * : goto s{}\n", at + 1)
        } else {
            "  on * in!=2 : out 7\n".into()
        };
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_their_text_says(
        stages in prop::collection::vec((0..KEYS.len(), prop::collection::vec(row(), 0..5)), 1..4),
        packets in prop::collection::vec((0..3_u16, 0..4_u16, 0..4_u16, 0..4_u32, 0..4_u8, 0..4_u64), 1..60),
    ) {
        let text = text(&stages);
        let machine = Machine::compile(&text).map_err(|errors| TestCaseError::fail(format!("{}\n{text}", errors[0])))?;
        prop_assert_eq!(&Machine::compile(&print(&parse(&text).unwrap())).unwrap().stages.len(), &machine.stages.len());
        let (mut store, mut naive, mut now) = (MemoryStore::new(&machine), Naive::new(&text), 0);
        for (at, (port, src, dst, len, kind, wait)) in packets.into_iter().enumerate() {
            now += wait * 700_000_000;
            let mut fields = Fields::from([("in", port.into()), ("len", len.into())]);
            let mut layers = Layers::NONE;
            // Some packets have no ports, some no TCP header.
            if kind > 0 {
                layers = layers.with(Layers::IP).with(Layers::PORTS);
                fields.extend([("l4.src", u128::from(src)), ("l4.dst", u128::from(dst))]);
            }
            if kind > 1 {
                layers = layers.with(Layers::TCP);
                fields.insert("tcp.flags", kind.into());
            }
            let mut packet = Packet { port, len, src_port: src, dst_port: dst, flags: kind, layers, ..Packet::default() };
            let Ok(outcome) = machine.run(&mut packet, Nanos(now), &mut store);
            let (expected, after) = naive.run(fields, now);
            let got = match outcome {
                Outcome::Out(port) => format!("out {port}"),
                Outcome::Copied(..) | Outcome::Made(..) => unreachable!("no row does that"),
                Outcome::Dropped => "dropped".into(),
                Outcome::Missed(_) => "missed".into(),
                Outcome::Keyless(_) => "keyless".into(),
            };
            prop_assert_eq!(got, expected, "packet {} of\n{}", at, text);
            if kind > 0 {
                prop_assert_eq!((u128::from(packet.src_port), u128::from(packet.dst_port)), (after["l4.src"], after["l4.dst"]), "{}", text);
            }
        }
    }
}

/// The faster way to a five-tuple's key gives the key that the fields give.
#[test]
fn a_tuples_key_is_that_of_its_fields() {
    let key = |fields: &str, packet: &Packet| {
        let text = format!("stage s\n  key biflow {fields}\n  on * : drop\n");
        let machine = Machine::compile(&text).expect("a program");
        machine.stages[0].keys.as_ref().expect("it has a key").lookup.key(packet, &[])
    };
    let v4 = |last: u8| std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().to_bits();
    for (src, dst) in [(v4(1), v4(2)), (v4(2), v4(1)), (1 << 100, 7), (7, 1 << 100), (v4(1), 9)] {
        for (src_port, dst_port) in [(1, 2), (2, 1), (5, 5)] {
            let layers = Layers::IP.with(Layers::PORTS);
            let packet = Packet { src, dst, src_port, dst_port, proto: 6, layers, ..Packet::default() };
            let fast = key("ip.src ip.dst l4.src l4.dst ip.proto", &packet);
            // A sixth field that is 0 takes the slower way.
            assert_eq!(fast, key("ip.src ip.dst l4.src l4.dst ip.proto in", &packet), "{packet:?}");
            assert_ne!(fast, key("ip.src ip.dst l4.src l4.dst", &packet));
        }
    }
}
