//! Bit vectors (Lakshman and Stiliadis, SIGCOMM '98), with a summary of each (Baboescu and Varghese, SIGCOMM '01): each header field has a
//! row of bits for each range of its values, a bit for each rule that allows the range. The rules that the rows of all fields allow are
//! candidates.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use iptables::Family;

use super::super::machine::{Machine, Rule};
use super::super::view::View;
use super::fields::Field;

/// The bit vectors of some rules.
#[derive(Clone, Debug)]
pub(in crate::rules) struct BitVectors {
    /// At least one.
    axes: Vec<Axis>,
    /// The rows of all axes. The first word of a row has a bit for each other one that isn't zero.
    rows: Vec<u64>,
    /// Words of a row: the summary, then the bits of 64 rules each.
    stride: usize,
}

/// A header field with its rows.
#[derive(Clone, Debug)]
struct Axis {
    field: Field,
    index: Index,
    /// Its first word among the rows.
    start: usize,
}

/// Finds the row of a value.
#[derive(Clone, Debug)]
enum Index {
    /// The row of each value.
    Direct(Box<[u8; 256]>),
    /// The first value of each row but the first.
    Narrow(Box<[u32]>),
    Wide(Box<[u128]>),
}

impl BitVectors {
    /// The most rules: one summary has a bit for each of their words.
    pub(super) const RULES_MAX: usize = 64 * 64;

    /// The bit vectors of these rules, at most [`Self::RULES_MAX`].
    pub(super) fn new<'a>(machine: &Machine, rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let rules: Vec<&Rule> = rules.into_iter().collect();
        assert!(rules.len() <= Self::RULES_MAX, "{} rules are too many for bit vectors", rules.len());
        let stride = 1 + rules.len().div_ceil(64);
        let mut vectors = Self { axes: Vec::new(), rows: Vec::new(), stride };
        for field in Field::ALL {
            let (bounds, mut rows) = rows(field, machine, &rules, stride);
            if !bounds.is_empty() || (field == Field::ALL[Field::ALL.len() - 1] && vectors.axes.is_empty()) {
                let (start, index) = (vectors.rows.len(), Index::new(field, machine.family, bounds));
                vectors.axes.push(Axis { field, index, start });
                vectors.rows.append(&mut rows);
            }
        }
        vectors
    }

    /// True if some packets have fewer candidates than others.
    pub(super) fn tells_apart(&self) -> bool {
        self.rows.len() > self.stride
    }

    /// The rules that the packet may match, from this one on, in their order.
    #[inline]
    pub(in crate::rules) fn candidates<'a>(&'a self, view: &View, from: u32) -> Candidates<'a> {
        let narrow = [
            view.dst as u32,
            view.src as u32,
            view.dst_port.into(),
            view.src_port.into(),
            view.protocol.into(),
            view.input.into(),
            view.output.into(),
        ];
        let mut starts = [0; Field::ALL.len()];
        let mut words = u64::MAX;
        for (start, axis) in starts.iter_mut().zip(&self.axes) {
            let value = narrow[axis.field as usize];
            let nth = match &axis.index {
                Index::Direct(rows) => rows[usize::from(value as u8)].into(),
                Index::Narrow(bounds) => bounds.partition_point(|bound| *bound <= value),
                Index::Wide(bounds) => {
                    let value = if axis.field == Field::Dst { view.dst } else { view.src };
                    bounds.partition_point(|bound| *bound <= value)
                }
            };
            *start = axis.start + nth * self.stride;
            words &= self.rows[*start];
        }
        let word = from / 64;
        words &= u64::MAX.checked_shl(word).unwrap_or(0);
        let mut candidates = Candidates { rows: &self.rows, starts, axes: self.axes.len(), words, base: 0, bits: 0 };
        if words & 1_u64.checked_shl(word).unwrap_or(0) != 0 {
            candidates.load();
            candidates.bits &= u64::MAX << (from % 64);
        }
        candidates
    }

    pub(super) fn bytes(&self) -> usize {
        let index = |index: &Index| match index {
            Index::Direct(rows) => size_of_val(&**rows),
            Index::Narrow(bounds) => size_of_val(&**bounds),
            Index::Wide(bounds) => size_of_val(&**bounds),
        };
        let axes = self.axes.iter().map(|axis| size_of::<Axis>() + index(&axis.index));
        axes.sum::<usize>() + size_of_val(&*self.rows)
    }
}

/// Iterates over candidates.
pub(in crate::rules) struct Candidates<'a> {
    rows: &'a [u64],
    /// The first word of the row of each axis.
    starts: [usize; Field::ALL.len()],
    axes: usize,
    /// The words of 64 rules that may have bits and were not loaded, a bit each.
    words: u64,
    /// The first rule of the loaded word.
    base: u32,
    /// The bits of the loaded word that were not returned yet.
    bits: u64,
}

impl Candidates<'_> {
    /// Loads the next word.
    #[inline]
    fn load(&mut self) {
        let word = self.words.trailing_zeros();
        self.words &= self.words - 1;
        self.base = word * 64;
        self.bits =
            self.starts[..self.axes].iter().fold(u64::MAX, |all, start| all & self.rows[start + 1 + word as usize]);
    }
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.bits == 0 {
            if self.words == 0 {
                return None;
            }
            self.load();
        }
        let nth = self.base + self.bits.trailing_zeros();
        self.bits &= self.bits - 1;
        Some(nth)
    }
}

/// The values of a field where a row begins, but for the first row, and the rows.
fn rows(field: Field, machine: &Machine, rules: &[&Rule], stride: usize) -> (Vec<u128>, Vec<u64>) {
    let mut changes: Vec<(u128, usize)> = Vec::new();
    for (nth, rule) in rules.iter().enumerate() {
        changes.extend(field.changes(machine, rule).into_iter().map(|value| (value, nth)));
    }
    changes.sort_unstable();
    let (mut bounds, mut rows, mut row) = (Vec::new(), Vec::new(), vec![0; stride]);
    for changes in changes.chunk_by(|(one, _), (other, _)| one == other) {
        let (value, _) = changes[0];
        if value != 0 {
            rows.extend_from_slice(&row);
            bounds.push(value);
        }
        for (_, nth) in changes {
            row[1 + nth / 64] ^= 1 << (nth % 64);
        }
    }
    rows.extend_from_slice(&row);
    for row in rows.chunks_exact_mut(stride) {
        let words = row[1..].iter().enumerate();
        row[0] = words.fold(0, |words, (nth, word)| words | u64::from(*word != 0) << nth);
    }
    (bounds, rows)
}

impl Index {
    fn new(field: Field, family: Family, bounds: Vec<u128>) -> Self {
        match field {
            Field::Src | Field::Dst if family == Family::V6 => Self::Wide(bounds.into()),
            Field::Src | Field::Dst | Field::SrcPort | Field::DstPort => {
                Self::Narrow(bounds.into_iter().map(|bound| bound as u32).collect())
            }
            Field::Protocol | Field::Input | Field::Output => {
                let row = |value| bounds.partition_point(|bound| *bound <= value as u128) as u8;
                Self::Direct(Box::new(core::array::from_fn(row)))
            }
        }
    }
}
