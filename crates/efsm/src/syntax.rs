//! The syntax tree of a program: one item for each line, in the order of the file.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Place;

/// A name or number as it is written, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The text.
    pub text: String,
    /// Its place in the text.
    pub place: Place,
}

/// A line of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The item; `None` for an empty line or a comment alone.
    pub item: Option<Item>,
    /// The comment, without the `#`.
    pub comment: Option<String>,
    /// The line's number, from 1.
    pub number: u32,
}

/// The item of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `ports internet=0 lan=1`: names of ports.
    Ports(Vec<(Word, Word)>),
    /// `meta mark = bits 0..3`: a metadata field, first and last bit.
    Meta(Word, Word, Word),
    /// `template pong = 45000054 ...`: a packet in hexadecimal.
    Template(Word, Vec<Word>),
    /// `stage track`: a stage begins.
    Stage(Word),
    /// `key biflow ip.src ip.dst`: the fields of the key, for look-up and update.
    Key(Extractor),
    /// `lookup ip.src`: the fields of the look-up key.
    Lookup(Extractor),
    /// `update ip.dst`: the fields of the update key.
    Update(Extractor),
    /// `global g0 = 0, g1 = 1`: global registers and their first values.
    Globals(Vec<(Word, Word)>),
    /// `states new=0 open=1`: names of state labels.
    States(Vec<(Word, Word)>),
    /// `contexts 4096`: the most contexts that the stage stores.
    Contexts(Word),
    /// `preset 1..20 : state = 2000 + key`: contexts that exist from the start.
    Preset(Preset),
    /// `on new in=lan : state open; goto next`: a row of the table.
    Row(Row),
}

/// The fields that a key is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extractor {
    /// True if both directions of a flow have the same key.
    pub biflow: bool,
    /// Names of fields.
    pub fields: Vec<Word>,
}

/// Contexts that exist from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The values of the key's fields; of a key with one field also a range.
    pub values: Vec<(Word, Option<Word>)>,
    /// The actions that set the state and the registers.
    pub actions: Vec<Action>,
}

/// A row of a stage's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The state label, by name or number, or `*`.
    pub state: Word,
    /// The conditions. All must hold.
    pub conditions: Vec<Condition>,
    /// The actions.
    pub actions: Vec<Action>,
}

/// A condition: `left op right/mask`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The left operand.
    pub left: Word,
    /// The comparison.
    pub comparison: Comparison,
    /// The right operand.
    pub right: Word,
    /// The mask, or the length of a prefix.
    pub mask: Option<Word>,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// All comparisons with their signs.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Equal, "="),
        (Self::NotEqual, "!="),
        (Self::Less, "<"),
        (Self::LessOrEqual, "<="),
        (Self::Greater, ">"),
        (Self::GreaterOrEqual, ">="),
    ];
}

/// An action of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `state open idle 20s -> shut`: the context's next state, with its timeouts.
    State(SetState),
    /// `r0 = r0 + 1`: a register, a global register, metadata or a header field gets a value.
    Assign(Word, Expression),
    /// `goto next`: the packet goes on to a later stage.
    Goto(Word),
    /// `out lan`: the packet leaves by a port.
    Out(Word),
    /// `copy monitor`: a copy of the packet leaves by another port.
    Copy(Word),
    /// `make pong`: a packet from a template takes the packet's place.
    Make(Word),
    /// `drop`: the packet is dropped.
    Drop(Place),
}

/// The next state of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetState {
    /// The state label, by name or number, or an expression after `=`.
    pub state: Expression,
    /// The timeouts.
    pub timeouts: Vec<Timeout>,
    /// True if it is written `state = expression`.
    pub computed: bool,
}

/// A timeout of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// The kind: idle or hard.
    pub kind: TimeoutKind,
    /// The length, with its unit.
    pub span: Word,
    /// The state that it falls back to; without one the context is removed.
    pub fallback: Option<Word>,
}

/// When a timeout begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// With the last packet that looked the context up.
    Idle,
    /// When the state is set.
    Hard,
}

/// The right side of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// One operand.
    Operand(Word),
    /// Two operands and an operator.
    Binary(Word, Operator, Word),
    /// A function and its arguments.
    Call(Word, Vec<Word>),
}

/// An operator of the arithmetic and logic unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`, modulo 2^64.
    Add,
    /// `-`, modulo 2^64.
    Subtract,
    /// `*`, modulo 2^64.
    Multiply,
    /// `/`, rounded down; by zero all ones.
    Divide,
    /// `%`; by zero the left operand.
    Modulo,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
}

impl Operator {
    /// All operators with their signs.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Add, "+"),
        (Self::Subtract, "-"),
        (Self::Multiply, "*"),
        (Self::Divide, "/"),
        (Self::Modulo, "%"),
        (Self::ShiftLeft, "<<"),
        (Self::ShiftRight, ">>"),
        (Self::And, "&"),
        (Self::Or, "|"),
        (Self::Xor, "^"),
    ];
}
