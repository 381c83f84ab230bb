//! A program in its fast form: numbers instead of names.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use ::packet::Nanos;

use crate::packet::{Field, Layers};
use crate::syntax::{Comparison, Operator, TimeoutKind};

/// The most words that a context's registers take. A register that holds an address takes two.
pub const REGISTER_WORDS: usize = 8;
/// The most stages of a program.
pub const STAGES_MAX: usize = 64;
/// `out across`: the opposite one of two ports.
pub const ACROSS: u16 = u16::MAX;
/// `out back`: the port that the packet came from.
pub const BACK: u16 = u16::MAX - 1;
/// The most metadata fields of a program.
pub const META_MAX: usize = 16;

/// A compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The stages, in the order in which packets pass them.
    pub stages: Vec<Stage>,
    /// Names of ports.
    pub ports: Vec<(String, u16)>,
    /// Names and widths in bits of the metadata.
    pub meta: Vec<(String, u32)>,
    /// Names and bytes of the templates.
    pub templates: Vec<(String, Vec<u8>)>,
    /// First values of the global registers of all stages.
    pub globals: Vec<u64>,
    /// The number of rows of all stages.
    pub rows: usize,
    /// True if a row sets a header field.
    pub rewrites: bool,
}

impl Machine {
    /// The numbers of the ports that rows send packets and copies to, in order.
    #[must_use]
    pub fn out_ports(&self) -> Vec<u16> {
        let outs = self.stages.iter().flat_map(|stage| &stage.rows).flat_map(|row| match row.next {
            Next::Out(port) | Next::Make(port, _) => [port, port],
            Next::Copy(port, copy) => [port, copy],
            Next::Goto(_) | Next::Drop | Next::Miss | Next::Keyless => [ACROSS; 2],
        });
        let mut ports: Vec<u16> = outs.filter(|port| ![ACROSS, BACK].contains(port)).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The name.
    pub name: String,
    /// The stage's number, from 0.
    pub number: usize,
    /// The look-up key and the update key; `None` for a stage without contexts.
    pub keys: Option<Keys>,
    /// The most contexts that the stage stores.
    pub contexts: usize,
    /// Words that the registers of a context take.
    pub register_words: usize,
    /// The registers that rows set, by number.
    pub registers: Vec<Register>,
    /// Names of states.
    pub states: Vec<(String, u64)>,
    /// The rows, highest priority first.
    pub rows: Vec<Row>,
    /// For each state that some row names: the state, and the rows to try.
    pub by_state: Vec<(u64, Vec<u16>)>,
    /// The rows to try in all other states.
    pub otherwise: Vec<u16>,
    /// The number of the stage's first row among those of all stages.
    pub first_row: usize,
    /// Contexts that exist from the start.
    pub presets: Vec<Preset>,
    /// True if a row sets a timeout.
    pub has_timeouts: bool,
}

impl Stage {
    /// The rows to try in this state, by priority.
    #[inline]
    #[must_use]
    pub fn candidates(&self, state: u64) -> &[u16] {
        self.by_state.iter().find(|(known, _)| *known == state).map_or(&self.otherwise, |(_, rows)| rows)
    }

    /// The registers of a context for people, without those that are 0.
    #[must_use]
    pub fn show_registers(&self, registers: &[u64; REGISTER_WORDS]) -> String {
        let show = |&Register { number, word, is_wide }: &Register| {
            let word = usize::from(word);
            match (registers.get(word).copied().unwrap_or(0), registers.get(word + 1)) {
                (high, Some(low)) if is_wide && high | low != 0 => {
                    let value = u128::from(high) << 64 | u128::from(*low);
                    Some(format!("r{number}={}", Ipv6Addr::from_bits(value).to_canonical()))
                }
                (value, _) if !is_wide && value != 0 => Some(format!("r{number}={value}")),
                _ => None,
            }
        };
        let shown: Vec<String> = self.registers.iter().filter_map(show).collect();
        shown.join(" ")
    }

    /// The name of a state; `None` if it has none.
    #[must_use]
    pub fn state_name(&self, state: u64) -> Option<&str> {
        self.states.iter().find(|(_, known)| *known == state).map(|(name, _)| name.as_str())
    }
}

/// A register of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The number: 3 for `r3`.
    pub number: u32,
    /// Its first word.
    pub word: u8,
    /// True if it has two words, because it holds an address.
    pub is_wide: bool,
}

/// The keys of a stage with contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The key that a packet's context is looked up with.
    pub lookup: Extractor,
    /// The key of the context that is updated; `None` if it is the same.
    pub update: Option<Extractor>,
}

/// The fields that make up a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extractor {
    /// True if both directions have the same key.
    pub biflow: bool,
    /// The fields, in the order of the program.
    pub fields: Vec<KeyField>,
    /// For each field the one whose place in the key it takes: of an update key, the look-up key's field at the same position. So the
    /// update key `ip.dst` of one packet equals the look-up key `ip.src` of another.
    pub places: Vec<KeyField>,
    /// The layers that a packet needs to have this key.
    pub layers: Layers,
    /// True if the key is made of both addresses and both ports, each in its own place, and perhaps the protocol.
    pub is_tuple: bool,
}

impl Extractor {
    /// Decides which of the faster ways to the key can be taken.
    pub(crate) fn settle(mut self) -> Self {
        let has = |field| self.fields.contains(&KeyField::Header(field));
        let ends = [Field::IpSrc, Field::IpDst, Field::L4Src, Field::L4Dst];
        let others = self.fields.len() - usize::from(has(Field::IpProto));
        self.is_tuple = self.places == self.fields && others == ends.len() && ends.into_iter().all(has);
        self
    }
}

/// A field of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyField {
    /// A header field.
    Header(Field),
    /// Metadata, by number.
    Meta(u8),
}

/// A context that exists from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The values of the key's fields.
    pub key: Vec<u128>,
    /// The state.
    pub state: u64,
    /// The registers.
    pub registers: [u64; REGISTER_WORDS],
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line of the program.
    pub line: u32,
    /// The state in which the row matches; `None` for all.
    pub state: Option<u64>,
    /// The conditions. All must hold.
    pub conditions: Vec<Condition>,
    /// The state to set, with its timeouts.
    pub set_state: Option<SetState>,
    /// The assignments. Their operands are the values before the packet.
    pub assignments: Vec<Assignment>,
    /// The packet's next stop.
    pub next: Next,
    /// True if the row changes a context.
    pub updates: bool,
}

/// A condition: `left & mask op right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The left operand.
    pub left: Operand,
    /// The bits of both sides that count.
    pub mask: u128,
    /// The comparison.
    pub comparison: Comparison,
    /// The right operand.
    pub right: Operand,
    /// The layers that a packet needs: without them the condition doesn't hold.
    pub layers: Layers,
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant.
    Constant(u128),
    /// A header field.
    Header(Field),
    /// Metadata, by number.
    Meta(u8),
    /// A register of one word, by its word.
    Register(u8),
    /// A register of two words, by its first word.
    Wide(u8),
    /// A global register, by its number among those of all stages.
    Global(u16),
    /// The state label.
    State,
}

/// The state that a row sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetState {
    /// The state.
    pub state: Value,
    /// The idle timeout.
    pub idle: Option<Timeout>,
    /// The hard timeout.
    pub hard: Option<Timeout>,
}

/// A timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// The length.
    pub span: Nanos,
    /// The state to fall back to; `None` removes the context.
    pub fallback: Option<u64>,
}

impl SetState {
    pub(crate) fn timeout(&mut self, kind: TimeoutKind) -> &mut Option<Timeout> {
        match kind {
            TimeoutKind::Idle => &mut self.idle,
            TimeoutKind::Hard => &mut self.hard,
        }
    }
}

/// An assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The target of the value.
    pub target: Target,
    /// The value.
    pub value: Value,
}

/// The target of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A header field.
    Header(Field),
    /// Metadata, by number; the value is cut to its width.
    Meta(u8),
    /// A register of one word.
    Register(u8),
    /// A register of two words, by its first word.
    Wide(u8),
    /// A global register.
    Global(u16),
}

/// The right side of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// An operand.
    Operand(Operand),
    /// Two operands and an operator.
    Binary(Operand, Operator, Operand),
    /// A function.
    Call(Function, [Operand; 4]),
}

/// A function of the arithmetic and logic unit. All divide with rounding down, and all are in whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
    /// `avg(mean, n, x)`: the mean of `n + 1` values, of which the first `n` have the mean `mean`.
    Average,
    /// `var(variance, mean, n, x)`: the variance of `n + 1` values, of which the first `n` have this variance and mean.
    Variance,
    /// `ewma(mean, x, shift)`: the mean moved by `1 / 2^shift` of the way to `x`.
    Ewma,
}

impl Function {
    /// All functions with their names and numbers of arguments.
    pub const ALL: [(Self, &'static str, usize); 5] = [
        (Self::Min, "min", 2),
        (Self::Max, "max", 2),
        (Self::Average, "avg", 3),
        (Self::Variance, "var", 4),
        (Self::Ewma, "ewma", 3),
    ];
}

/// The next stop of a packet after a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To a later stage.
    Goto(u16),
    /// Out of a port.
    Out(u16),
    /// Out of the first port, and a copy out of the second.
    Copy(u16, u16),
    /// A packet from a template, by number, goes out of the port instead.
    Make(u16, u16),
    /// Nowhere.
    Drop,
    /// Nowhere: no row matches. No row says this.
    Miss,
    /// Nowhere: it lacks a field of the stage's key. No row says this.
    Keyless,
}
