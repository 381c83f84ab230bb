//! Explains why there is no key.

use std::fmt;
use std::ops::Range;

use crate::constraint::{Constraint, Reason, chain};
use crate::field::PacketType;
use crate::plan::Member;
use crate::sets::Vary;
use crate::solve::Demand;

/// Why there is no key that spreads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The port whose packets would not be spread.
    pub port: String,
    /// Their type.
    pub kind: PacketType,
    /// The consequence for these packets.
    pub consequence: String,
    /// Key bits that must be zero, with the reason.
    pub forced: Vec<Forced>,
}

/// A range of key bits that must be zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// Whose key.
    pub port: String,
    /// Which bits.
    pub bits: Range<usize>,
    /// The reason, step by step: each step but the last says what the bits equal; the last says that this is zero.
    pub steps: Vec<String>,
}

impl Proof {
    /// The card hashes no such packets.
    pub(crate) fn unhashed(port: &str, kind: PacketType) -> Self {
        let consequence = format!("{kind} packets at {port} all go to one queue: the card does not hash them");
        Self { port: port.to_owned(), kind, consequence, forced: Vec::new() }
    }

    /// Too many bits of the index rest on key bits that are zero.
    #[allow(clippy::too_many_arguments, reason = "all of a problem that has been taken apart")]
    pub(crate) fn forced(
        names: &[String],
        members: &[Member],
        demand: &Demand,
        constraints: &[Constraint],
        forced: &[bool],
        key_bits: usize,
        index_bits: usize,
        vary: Vary,
    ) -> Self {
        let member = &members[demand.member];
        let dead: Vec<usize> = (0..index_bits).filter(|row| demand.bits.iter().all(|bit| forced[bit + row])).collect();
        let mut bits: Vec<usize> =
            dead.iter().flat_map(|row| demand.bits.iter().map(move |bit| (bit + row) % key_bits)).collect();
        bits.sort_unstable();
        bits.dedup();
        let mut stretches: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        for bit in bits {
            let reasons = chain(constraints, member.port, bit).unwrap_or_default();
            match stretches.last_mut() {
                Some((range, last)) if range.end == bit && *last == reasons => range.end += 1,
                _ => stretches.push((bit..bit + 1, reasons)),
            }
        }
        let explained = stretches.into_iter().map(|(bits, reasons)| Forced {
            port: names[member.port].clone(),
            bits,
            steps: reasons.iter().map(|index| words(names, &constraints[*index].reason)).collect(),
        });
        let hashed: Vec<String> = member
            .named
            .iter()
            .filter(|field| member.offset(**field).is_some())
            .map(|field| format!("the last {} bits of {field}", vary.bits(*field, member.kind.family())))
            .collect();
        let (port, kind) = (&names[member.port], member.kind);
        let consequence = if hashed.is_empty() {
            format!("no field that names the set of {kind} packets at {port} is hashed")
        } else if dead.len() == index_bits {
            format!("the queue of {kind} packets at {port} does not depend on {}", hashed.join(" and "))
        } else {
            let left = index_bits - dead.len();
            format!(
                "of the {index_bits} bits that choose the queue of {kind} packets at {port}, {left} depend on {}: \
                 {} of {} entries would be used",
                hashed.join(" and "),
                1_u64 << left,
                1_u64 << index_bits
            )
        };
        Self { port: port.clone(), kind, consequence, forced: explained.collect() }
    }

    /// Every key was tried.
    pub(crate) fn tried(port: &str, member: &Member, keys: usize, best: usize, required: usize) -> Self {
        let kind = member.kind;
        let consequence = format!(
            "{keys} keys keep the sets of {kind} packets at {port} together; with the best of them {best} bits of the \
             index vary, but {required} should"
        );
        Self { port: port.to_owned(), kind, consequence, forced: Vec::new() }
    }

    /// Some keys were tried.
    pub(crate) fn not_found(port: &str, member: &Member, draws: usize) -> Self {
        let kind = member.kind;
        let consequence = format!("none of {draws} random keys spreads {kind} packets at {port} fully");
        Self { port: port.to_owned(), kind, consequence, forced: Vec::new() }
    }
}

/// A constraint in words.
pub(crate) fn words(names: &[String], reason: &Reason) -> String {
    match reason {
        Reason::Unnamed { port, kind, field } => {
            format!("{} hashes {field} of {kind} packets, which must be cancelled", names[*port])
        }
        Reason::Unmatched { here: (port, kind, field), there: (other, lacking, missing) } => format!(
            "{field} of {kind} packets at {} must be cancelled, because {missing} of {lacking} packets at {} is not hashed",
            names[*port], names[*other]
        ),
        Reason::Matched { here: (port, kind, field), there: (other, as_kind, as_field) } => format!(
            "{field} of {kind} packets at {} must count the same as {as_field} of {as_kind} packets at {}",
            names[*port], names[*other]
        ),
        Reason::OneKey => "all ports of the card have the same key".to_owned(),
    }
}

impl fmt::Display for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, bits, steps } = self;
        match bits.len() {
            1 => write!(f, "bit {} of {port}'s key is zero", bits.start)?,
            _ => write!(f, "bits {}-{} of {port}'s key are zero", bits.start, bits.end - 1)?,
        }
        for (index, step) in steps.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            f.write_str(step)?;
        }
        Ok(())
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.consequence)?;
        for forced in &self.forced {
            write!(f, "\n  {forced}")?;
        }
        Ok(())
    }
}
