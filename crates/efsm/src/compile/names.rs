//! Names and numbers of a program, and which registers hold addresses.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use ::packet::{Mac, Nanos};

use crate::error::Error;
use crate::machine::Register;
use crate::packet::{Field, number as mac_number};
use crate::syntax::{Expression, Word};

/// Names that hold for all stages.
pub(super) struct Names {
    pub ports: Vec<(String, u16)>,
    pub meta: Vec<(String, u32)>,
    pub templates: Vec<(String, Vec<u8>)>,
    pub stages: Vec<String>,
}

impl Names {
    /// The number of a metadata field.
    pub(super) fn meta(&self, name: &str) -> Option<u8> {
        self.meta.iter().position(|(known, _)| known == name).map(|at| at as u8)
    }
}

/// True if the name has a meaning of its own in expressions.
pub(super) fn is_reserved(name: &str) -> bool {
    matches!(name, "state" | "key" | "drop" | "goto" | "out" | "copy" | "make") || register(name).is_some()
}

/// The fields, for error messages.
pub(super) fn fields() -> String {
    let names: Vec<_> = Field::ALL.iter().map(|(_, name, ..)| *name).collect();
    format!("fields are {} and metadata", names.join(", "))
}

/// The number of a register: `r3` is 3.
pub(super) fn register(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('r')?;
    let is_number = !digits.is_empty() && digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// A number up to `most`.
pub(super) fn number(word: &Word, what: &str, most: u64) -> Result<u64, Error> {
    match plain_number(&word.text) {
        Some(number) if number <= u128::from(most) => Ok(number as u64),
        Some(_) => Err(Error::new(word.place, format!("{} is too large for {what}: at most {most}", word.text))),
        None => Err(Error::new(word.place, format!("`{}` is not a number", word.text))),
    }
}

pub(super) fn plain_number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// A literal: a number, an IPv4, IPv6 or Ethernet address. Returns the value, and the bits in front of a prefix.
pub(super) fn literal(text: &str) -> Option<(u128, u32)> {
    if let Some(number) = plain_number(text) {
        return Some((number, 0));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some((address.to_ipv6_mapped().to_bits(), 96));
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some((address.to_bits(), 0));
    }
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some((mac_number(Mac(octets)).into(), 0))
}

/// The bytes of a template: words of hexadecimal digits, two digits a byte.
pub(super) fn template(name: &Word, words: &[Word]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for word in words {
        let digits = word.text.as_bytes();
        if digits.len() % 2 != 0 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(Error::new(
                word.place,
                format!("`{}` is not bytes in hexadecimal, two digits each", word.text),
            ));
        }
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
        bytes.extend(digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])));
    }
    ::packet::check_template(&bytes).map_err(|reason| Error::new(name.place, reason))?;
    Ok(bytes)
}

/// A span of time with its unit.
pub(super) fn span(word: &Word) -> Result<Nanos, Error> {
    let digits = word.text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.text.split_at(digits);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => 0,
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(nanos) if nanos > 0 => Ok(Nanos(nanos)),
        Some(_) if unit > 0 => Err(Error::new(
            word.place,
            format!("`{}` is no time at all: write at least `1ns`, or leave the timeout out", word.text),
        )),
        _ => Err(Error::new(
            word.place,
            format!("`{}` is not a span of time: write a number and ns, us, ms, s, m, h or d, as in `20s`", word.text),
        )),
    }
}

/// The registers of a stage, and where they lie in a context.
#[derive(Default)]
pub(super) struct Registers {
    used: BTreeSet<u32>,
    wide: BTreeSet<u32>,
    /// Assignments from one register to another: target, source.
    copies: Vec<(u32, u32)>,
    places: BTreeMap<u32, (u8, bool)>,
}

impl Registers {
    /// Notes an assignment to a register. A register that is ever assigned an address holds 128 bits.
    pub(super) fn assigned(&mut self, register: u32, value: &Expression) {
        self.used.insert(register);
        let words: &[&Word] = match value {
            Expression::Operand(word) => &[word],
            Expression::Binary(left, _, right) => &[left, right],
            Expression::Call(_, arguments) => {
                for word in arguments {
                    self.source(register, word);
                }
                return;
            }
        };
        for word in words {
            self.source(register, word);
        }
    }

    fn source(&mut self, target: u32, word: &Word) {
        if let Some(source) = register(&word.text) {
            self.copies.push((target, source));
        }
        let is_wide = match (Field::of_name(&word.text), literal(&word.text)) {
            (Some(field), _) => field.bits() > 64,
            (None, Some((value, _))) => value > u64::MAX.into(),
            (None, None) => false,
        };
        if is_wide {
            self.wide.insert(target);
        }
    }

    /// Decides where each register lies.
    pub(super) fn settle(&mut self) {
        loop {
            let more: Vec<u32> = self
                .copies
                .iter()
                .filter(|(target, source)| self.wide.contains(source) && !self.wide.contains(target))
                .map(|(target, _)| *target)
                .collect();
            if more.is_empty() {
                break;
            }
            self.wide.extend(more);
        }
        let mut next: usize = 0;
        for register in &self.used {
            let is_wide = self.wide.contains(register);
            // Registers beyond the words of a context are an error, reported for the stage.
            self.places.insert(*register, (next.min(255) as u8, is_wide));
            next += if is_wide { 2 } else { 1 };
        }
    }

    /// The registers with their words.
    pub(super) fn list(&self) -> Vec<Register> {
        let places = self.places.iter();
        places.map(|(number, (word, is_wide))| Register { number: *number, word: *word, is_wide: *is_wide }).collect()
    }

    /// The words that all registers take.
    pub(super) fn words(&self) -> usize {
        self.used.len() + self.used.intersection(&self.wide).count()
    }

    /// A register's first word, and true if it has two. `None` if no row sets it: then it is always 0.
    pub(super) fn place(&self, register: u32) -> Option<(u8, bool)> {
        self.places.get(&register).copied()
    }
}

/// An error for a name that stands for nothing here.
pub(super) fn unknown(word: &Word, names: &Names, globals: &[(String, u16)]) -> Error {
    let mut known: Vec<String> = names.meta.iter().map(|(name, _)| name.clone()).collect();
    known.extend(globals.iter().map(|(name, _)| name.clone()));
    let known = if known.is_empty() { "none is declared".to_string() } else { known.join(", ") };
    Error::new(
        word.place,
        format!(
            "`{}` is neither a number nor an address, a register (r0, r1, ...), `state`, metadata or global register ({known}), nor a field: {}",
            word.text,
            fields()
        ),
    )
}
