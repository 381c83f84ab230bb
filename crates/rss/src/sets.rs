//! Packet sets of ports: which packets share state.

use std::fmt;
use std::ops::Range;

use crate::field::{Family, Field, Fields, PacketType};
use crate::{file, line};

/// Ports that may be named.
pub(crate) const PORTS_MAX: usize = 16;

/// The packet sets of a function's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSets {
    /// The ports.
    pub ports: Vec<PortSets>,
    /// Bits in which hosts differ.
    pub vary: Vary,
}

/// Number of low bits in which the addresses of your hosts differ. A key that spreads only by the common bits would send all packets to
/// one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vary {
    /// For IPv4 addresses; 24 by default: hosts of one /8.
    pub ipv4: usize,
    /// For IPv6 addresses; 96 by default: hosts of one /32.
    pub ipv6: usize,
}

impl Vary {
    /// Every bit: hosts all over the Internet.
    pub const ALL: Self = Self { ipv4: 32, ipv6: 128 };

    /// How many of a field's last bits differ.
    #[must_use]
    pub fn bits(self, field: Field, family: Family) -> usize {
        match (field, family) {
            (Field::Src | Field::Dst, Family::V4) => self.ipv4,
            (Field::Src | Field::Dst, Family::V6) => self.ipv6,
            (Field::Src | Field::Dst, Family::Link) => 0,
            // The vendor's half may be the same throughout.
            (Field::SrcMac | Field::DstMac, _) => 24,
            (Field::SrcPort | Field::DstPort | Field::Tag, _) => field.bits(family),
        }
    }
}

impl Default for Vary {
    fn default() -> Self {
        Self { ipv4: 24, ipv6: 96 }
    }
}

/// The packet sets of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSets {
    /// The port's name; in commands, its interface.
    pub name: String,
    /// Ports with the same name here share state.
    pub state: String,
    /// True if packets in the other direction on the same port are in the same set.
    pub symmetric: bool,
    /// Fields that name the packet set, for each packet type that matters.
    pub types: Vec<TypeSets>,
}

/// Fields that name the packet set of one packet type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSets {
    /// The type.
    pub kind: PacketType,
    /// The fields; their order pairs them with those of other ports.
    pub fields: Vec<Field>,
    /// True if packets of other types are never in the same set: with ports, each protocol has its own sets.
    pub alone: bool,
}

impl TypeSets {
    /// The fields as a set.
    #[must_use]
    pub fn set(&self) -> Fields {
        self.fields.iter().copied().collect()
    }
}

/// The types that count unless others are named: all that have an IP header.
pub(crate) fn usual_types() -> Vec<PacketType> {
    PacketType::ALL.into_iter().filter(|kind| kind.family() != Family::Link).collect()
}

impl PacketSets {
    /// Reads packet sets in TOML.
    ///
    /// ```toml
    /// types = ["tcp4", "udp4", "tcp6", "udp6"]  # which packets count; all with an IP header if left out
    ///
    /// [vary]                     # how many of an address's last bits differ between your hosts
    /// ipv4 = 24
    /// ipv6 = 96
    ///
    /// [port.lan]
    /// fields = ["src"]           # what names the packet set, of src, dst, sport, dport, smac, dmac; or "five-tuple", "hosts"
    /// symmetric = false          # whether what goes the other way on this port is of the same set
    /// state = "clients"          # ports of one state share it, their fields pair up; all do if left out
    /// udp4 = ["src", "sport"]    # other fields for one type of packets
    /// ```
    ///
    /// # Errors
    /// What is wrong, in which line, and what would have been right.
    pub fn parse(text: &str) -> Result<Self, SetsError> {
        file::parse(text)
    }

    /// Parses `lan: src, wan: dst`: ports, each with the fields that name its sets. Ports separated by a comma share state, and their
    /// fields are paired in order. Ports separated by a semicolon share none. `symmetric` after the fields puts both directions on that
    /// port into one set. `types` are the packet types that matter, if given.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn from_line(text: &str, types: Option<&[PacketType]>) -> Result<Self, SetsError> {
        line::parse(text, types)
    }

    /// The sets of these packet types only; `None` if a port would have none.
    #[must_use]
    pub fn only(&self, types: &[PacketType]) -> Option<Self> {
        let mut sets = self.clone();
        for port in &mut sets.ports {
            port.types.retain(|of_type| types.contains(&of_type.kind));
        }
        sets.ports.iter().all(|port| !port.types.is_empty()).then_some(sets)
    }
}

impl PortSets {
    /// The sets of a port that names them by `fields` for all of `types`, but by `own` for some.
    pub(crate) fn new(
        name: String,
        state: String,
        symmetric: bool,
        fields: &[Field],
        types: &[PacketType],
        own: &[(PacketType, Vec<Field>)],
    ) -> Self {
        let with_ports = fields.iter().any(|field| Fields::PORTS.contains(*field));
        let sets = types.iter().filter_map(|kind| {
            let named = own.iter().find(|(other, _)| other == kind).map(|(_, fields)| fields);
            let all = named.map_or(fields, Vec::as_slice);
            let fields: Vec<Field> = all.iter().copied().filter(|field| kind.fields().contains(*field)).collect();
            (!fields.is_empty()).then(|| TypeSets { kind: *kind, fields, alone: with_ports || named.is_some() })
        });
        Self { name, state, symmetric, types: sets.collect() }
    }

    /// What a port's own list of fields must satisfy.
    pub(crate) fn check_fields(fields: &[Field], symmetric: bool) -> Result<(), String> {
        for (index, field) in fields.iter().enumerate() {
            if fields[..index].contains(field) {
                return Err(format!("{field} is given twice"));
            }
            if symmetric && !fields.contains(&field.opposite()) {
                return Err(format!("a symmetric set with {field} also needs {}", field.opposite()));
            }
        }
        Ok(())
    }
}

/// Why the sets of two ports that share state don't pair up: the later port, and the reason.
pub(crate) fn unpaired(ports: &[PortSets]) -> Option<(usize, String)> {
    for (later, port) in ports.iter().enumerate() {
        let Some(earlier) = ports[..later].iter().find(|earlier| earlier.state == port.state) else { continue };
        for sets in &port.types {
            let Some(other) = earlier.types.iter().find(|other| other.kind == sets.kind) else { continue };
            let (a, b) = (&earlier.name, &port.name);
            if other.fields.len() != sets.fields.len() {
                let reason = format!(
                    "{b} shares state with {a}, so both need the same number of fields: {a} has {} of {}, {b} has {}",
                    other.fields.len(),
                    sets.kind,
                    sets.fields.len()
                );
                return Some((later, reason));
            }
            let family = sets.kind.family();
            let differs = |(x, y): &(&Field, &Field)| x.bits(family) != y.bits(family);
            if let Some((x, y)) = other.fields.iter().zip(&sets.fields).find(differs) {
                let reason = format!(
                    "{b} shares state with {a}, so their fields must match in order, but {a}'s {x} doesn't match \
                     {b}'s {y}: pair addresses with addresses and ports with ports"
                );
                return Some((later, reason));
            }
        }
    }
    None
}

/// The fields that can be named, for messages.
pub(crate) fn field_names() -> String {
    Field::NAMED.map(Field::name).join(", ")
}

/// The types that can be named, for messages.
pub(crate) fn type_names() -> String {
    PacketType::ALL.map(PacketType::name).join(", ")
}

/// The name that was most likely meant.
pub(crate) fn meant<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = names.into_iter().map(|name| (strsim::jaro_winkler(given, name), name));
    let best = near.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// What is wrong with packet sets, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetsError {
    message: String,
    line: usize,
    column: usize,
    text: String,
    width: usize,
}

impl SetsError {
    /// An error at `span` of `source`.
    pub(crate) fn at(source: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let floor = |at: usize| (0..=at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
        let (start, end) = (floor(span.start), floor(span.end));
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let text = source[line_start..].lines().next().unwrap_or_default().to_owned();
        let end = end.clamp(start, (line_start + text.len()).max(start));
        Self {
            message: message.into(),
            line: source[..start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            width: source[start..end].chars().count().max(1),
            text,
        }
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The error with the name of what was read in front.
    #[must_use]
    pub fn of(&self, name: &str) -> String {
        let Self { message, line, column, text, width } = self;
        let gutter = line.to_string().len();
        let (blank, indent) = ("", column - 1);
        format!(
            "{name}:{line}:{column}: {message}\n{blank:gutter$} |\n{line} | {text}\n{blank:gutter$} | {blank:indent$}{blank:^<width$}"
        )
    }
}

impl fmt::Display for SetsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of("packet sets"))
    }
}

impl std::error::Error for SetsError {}
