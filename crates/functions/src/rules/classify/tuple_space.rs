//! Tuple space search (Srinivasan, Suri and Varghese, SIGCOMM '99): rules whose prefixes are equally long lie in one hash table. As in
//! TupleMerge (Daly et al., ToN '19), rules of several lengths share a table by the leading bits that all of them have, unless too many
//! become alike.
//!
//! The rules that few others are like have bit vectors.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use iptables::Family;
use packet::hash_words;

use super::super::machine::{Machine, Rule};
use super::super::view::View;
use super::bit_vectors::{self, BitVectors};
use super::fields::{prefix, prefix_length, tests};

/// The tables of a chain.
#[derive(Clone, Debug)]
pub(in crate::rules) struct TupleSpace {
    family: Family,
    /// The hash tables in the order of their first rules, at most [`TABLES_MAX`].
    tables: Vec<Table>,
    /// The entries of all hash tables.
    entries: Vec<Entry>,
    /// The rules that are in no hash table, in their order.
    rest: Vec<Rest>,
}

/// A hash table.
#[derive(Clone, Debug)]
struct Table {
    mask: Key,
    /// The numbers of the first and the last rule in it.
    first: u32,
    last: u32,
    /// The first entry of each bucket, and the end. A bucket's entries are in the order of rules.
    starts: Box<[u32]>,
}

/// A rule in a hash table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rule: u32,
    /// The half of the hash that doesn't choose the bucket.
    tag: u32,
}

/// Some rules that are in no table.
#[derive(Clone, Debug)]
struct Rest {
    rules: Box<[u32]>,
    vectors: BitVectors,
}

/// The key of a hash table: addresses, protocol and destination port. IPv4 has the addresses in the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key([u64; 5]);

/// The precision of a hash table's key: which lengths of prefixes it tells apart, and whether it has protocol and port.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The step of prefix lengths in bits, for IPv4 and IPv6: lengths are rounded down to a multiple.
    step_bits: [u32; 2],
    /// True if protocol and destination port belong to the key.
    has_service: bool,
}

/// The precisions that are tried in turn, from the coarsest to the finest.
const LEVELS: [Level; 5] = [
    Level { step_bits: [8, 32], has_service: false },
    Level { step_bits: [8, 32], has_service: true },
    Level { step_bits: [4, 16], has_service: true },
    Level { step_bits: [2, 8], has_service: true },
    Level { step_bits: [1, 1], has_service: true },
];

/// The sizes of the parts of a [`TupleSpace`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The fewest rules of a table.
    pub(super) table_min: usize,
    /// The most rules of a table that are alike.
    pub(super) alike_max: usize,
    /// The most rules that share bit vectors.
    pub(super) rest_max: usize,
}

const SIZES: Sizes = Sizes { table_min: 32, alike_max: 8, rest_max: BitVectors::RULES_MAX };

/// The most hash tables of a chain.
const TABLES_MAX: usize = 20;

/// The seed of the hash. It is fixed: rules are no secret, and a long bucket holds only rules that are alike.
const SEED: u64 = 0;

impl TupleSpace {
    pub(super) fn new(machine: &Machine, rules: &[Rule]) -> Self {
        Self::with(machine, rules, SIZES)
    }

    pub(super) fn with(machine: &Machine, rules: &[Rule], sizes: Sizes) -> Self {
        let family = machine.family;
        let shapes: Vec<Shape> = rules.iter().map(|rule| Shape::of(machine, rule)).collect();
        let mut left: Vec<u32> = (0..rules.len() as u32).collect();
        let mut tables: Vec<(Key, Vec<(u64, u32)>)> = Vec::new();
        for level in LEVELS {
            let mut groups: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
            for rule in left.drain(..) {
                groups.entry(shapes[rule as usize].mask(family, level)).or_default().push(rule);
            }
            for (mask, group) in groups {
                if mask == Key([0; 5]) || group.len() < sizes.table_min {
                    left.extend(group);
                    continue;
                }
                let hash = |rule: u32| (shapes[rule as usize].key.masked(&mask).hash(family), rule);
                let mut hashes: Vec<(u64, u32)> = group.into_iter().map(hash).collect();
                hashes.sort_unstable();
                let (few, many): (Vec<_>, Vec<_>) = hashes
                    .chunk_by(|(one, _), (other, _)| one == other)
                    .partition(|alike| alike.len() <= sizes.alike_max);
                left.extend(many.into_iter().flatten().map(|(_, rule)| rule));
                tables.push((mask, few.concat()));
            }
        }
        tables.sort_by_key(|(_, rules)| core::cmp::Reverse(rules.len()));
        let large = tables.iter().take_while(|(_, rules)| rules.len() >= sizes.table_min).count();
        let small = tables.split_off(large.min(TABLES_MAX));
        left.extend(small.into_iter().flat_map(|(_, rules)| rules).map(|(_, rule)| rule));
        left.sort_unstable();
        // Bit vectors grow with the square of their rules.
        let chunk = if left.len() <= 6 * sizes.rest_max { sizes.rest_max } else { sizes.rest_max.div_ceil(4) };
        let mut entries = Vec::with_capacity(rules.len() - left.len());
        let mut tables: Vec<Table> =
            tables.into_iter().map(|(mask, rules)| Table::new(mask, &rules, &mut entries)).collect();
        tables.sort_by_key(|table| table.first);
        let rest = left.chunks(chunk).map(|chunk| Rest {
            rules: chunk.into(),
            vectors: BitVectors::new(machine, chunk.iter().map(|rule| &rules[*rule as usize])),
        });
        let rest = rest.collect();
        Self { family, tables, entries, rest }
    }

    /// The rules that the packet may match, from this one on, in their order.
    #[inline]
    pub(in crate::rules) fn candidates<'a>(&'a self, view: &View, from: u32) -> Candidates<'a> {
        let service = u64::from(view.protocol) << 16 | u64::from(view.dst_port);
        let key = Key::new(self.family, view.src, view.dst, service);
        let cursors = [Cursor::default(); TABLES_MAX];
        Candidates { space: self, view: *view, key, from, cursors, open: 0, tables: 0, rest: None, rests: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(|table| size_of::<Table>() + size_of_val(&*table.starts));
        let rest = self.rest.iter().map(|rest| size_of_val(&*rest.rules) + rest.vectors.bytes());
        tables.chain(rest).sum::<usize>() + size_of_val(&*self.entries)
    }

    /// The numbers of hash tables, of rules outside of them, and of bit vectors for those.
    pub(super) fn parts(&self) -> [usize; 3] {
        [self.tables.len(), self.rest.iter().map(|rest| rest.rules.len()).sum(), self.rest.len()]
    }
}

impl Table {
    /// The table of these rules, with their hashes. Adds their entries.
    fn new(mask: Key, rules: &[(u64, u32)], entries: &mut Vec<Entry>) -> Self {
        let buckets = rules.len().next_power_of_two() as u64;
        let mut sorted: Vec<(u64, u32, u32)> =
            rules.iter().map(|(hash, rule)| (hash & (buckets - 1), *rule, (hash >> 32) as u32)).collect();
        sorted.sort_unstable();
        let mut starts = vec![0; buckets as usize + 1];
        let base = entries.len() as u32;
        for (bucket, rule, tag) in &sorted {
            starts[*bucket as usize + 1] += 1;
            entries.push(Entry { rule: *rule, tag: *tag });
        }
        starts[0] = base;
        for bucket in 0..buckets as usize {
            starts[bucket + 1] += starts[bucket];
        }
        let numbers = sorted.iter().map(|(_, rule, _)| *rule);
        let (first, last) = (numbers.clone().min().unwrap_or(0), numbers.max().unwrap_or(0));
        Self { mask, first, last, starts: starts.into() }
    }
}

/// Iterates over candidates: the merged buckets of all tables, and the candidates of the rest.
pub(in crate::rules) struct Candidates<'a> {
    space: &'a TupleSpace,
    view: View,
    key: Key,
    from: u32,
    /// The buckets that have more rules.
    cursors: [Cursor; TABLES_MAX],
    open: usize,
    /// The number of tables that were looked into. They are in the order of their first rules, so later ones can wait.
    tables: usize,
    /// The next rule of the rest, and those after it.
    rest: Option<(u32, &'a [u32], bit_vectors::Candidates<'a>)>,
    rests: usize,
}

/// A place in a bucket.
#[derive(Clone, Copy, Default)]
struct Cursor {
    rule: u32,
    entry: u32,
    end: u32,
    tag: u32,
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let (mut least, mut nth) = self.least();
        while let Some(table) = self.space.tables.get(self.tables)
            && table.first <= least
        {
            self.tables += 1;
            if let Some(rule) = self.open_table(table)
                && rule < least
            {
                (least, nth) = (rule, self.open - 1);
            }
        }
        if self.rest.is_none() {
            self.open_rest(least);
        }
        if let Some((rule, rules, candidates)) = &mut self.rest
            && *rule <= least
        {
            let found = *rule;
            match candidates.next() {
                Some(next) => *rule = rules[next as usize],
                None => self.rest = None,
            }
            return Some(found);
        }
        if least == u32::MAX {
            return None;
        }
        self.advance(nth);
        Some(least)
    }
}

impl<'a> Candidates<'a> {
    /// The least rule of the open buckets, and its cursor.
    #[inline]
    fn least(&self) -> (u32, usize) {
        let cursors = self.cursors[..self.open].iter().enumerate();
        cursors.map(|(nth, cursor)| (cursor.rule, nth)).min().unwrap_or((u32::MAX, 0))
    }

    /// Looks into a table. Returns its first rule that the packet may match.
    #[inline]
    fn open_table(&mut self, table: &Table) -> Option<u32> {
        if table.last < self.from {
            return None;
        }
        let hash = self.key.masked(&table.mask).hash(self.space.family);
        let bucket = hash as usize & (table.starts.len() - 2);
        let (start, end) = (table.starts[bucket], table.starts[bucket + 1]);
        let cursor = Cursor { rule: 0, entry: start, end, tag: (hash >> 32) as u32 };
        let cursor = self.space.seek(cursor, self.from)?;
        self.cursors[self.open] = cursor;
        self.open += 1;
        Some(cursor.rule)
    }

    /// Looks at the rest up to this rule.
    #[inline]
    fn open_rest(&mut self, end: u32) {
        while let Some(Rest { rules, vectors }) = self.space.rest.get(self.rests)
            && rules[0] <= end
        {
            self.rests += 1;
            let from = if rules[0] < self.from { rules.partition_point(|rule| *rule < self.from) } else { 0 };
            let mut candidates = vectors.candidates(&self.view, from as u32);
            if let Some(first) = candidates.next() {
                self.rest = Some((rules[first as usize], rules, candidates));
                return;
            }
        }
    }

    #[inline]
    fn advance(&mut self, nth: usize) {
        let mut cursor = self.cursors[nth];
        cursor.entry += 1;
        match self.space.seek(cursor, 0) {
            Some(next) => self.cursors[nth] = next,
            None => {
                self.open -= 1;
                self.cursors[nth] = self.cursors[self.open];
            }
        }
    }
}

impl TupleSpace {
    /// The cursor at the next entry that has its tag and at least this rule.
    #[inline]
    fn seek(&self, mut cursor: Cursor, from: u32) -> Option<Cursor> {
        let entries = &self.entries[cursor.entry as usize..cursor.end as usize];
        let nth = entries.iter().position(|entry| entry.tag == cursor.tag && entry.rule >= from)?;
        cursor.rule = entries[nth].rule;
        cursor.entry += nth as u32;
        Some(cursor)
    }
}

/// The parts of a rule that a key can hold.
struct Shape {
    key: Key,
    src_bits: u32,
    dst_bits: u32,
    /// True if the rule has one protocol and one destination port.
    has_service: bool,
}

impl Shape {
    fn of(machine: &Machine, rule: &Rule) -> Self {
        let has = |bit: u8| rule.flags & bit != 0;
        let bits = |mask, negated| if has(negated) { 0 } else { prefix_length(machine.family, mask).unwrap_or(0) };
        let ports = tests(machine, rule).filter_map(|test| match test.ports() {
            [_, Some((&[(first, last)], false))] if first == last => Some(first),
            _ => None,
        });
        let port = ports.into_iter().next().filter(|_| !has(Rule::ANY_PROTOCOL) && !has(Rule::NOT_PROTOCOL));
        let service = u64::from(rule.protocol) << 16 | u64::from(port.unwrap_or(0));
        let ([src, src_mask], [dst, dst_mask]) = rule.addresses(&machine.highs);
        Self {
            key: Key::new(machine.family, src, dst, service),
            src_bits: bits(src_mask, Rule::NOT_SRC),
            dst_bits: bits(dst_mask, Rule::NOT_DST),
            has_service: port.is_some(),
        }
    }

    fn mask(&self, family: Family, level: Level) -> Key {
        let step = level.step_bits[usize::from(family == Family::V6)];
        let mask = |bits: u32| prefix(family, bits / step * step);
        let service = if level.has_service && self.has_service { 0xff_ffff } else { 0 };
        Key::new(family, mask(self.src_bits), mask(self.dst_bits), service)
    }
}

impl Key {
    #[inline]
    const fn new(family: Family, src: u128, dst: u128, service: u64) -> Self {
        match family {
            Family::V4 => Self([(src as u64) << 32 | dst as u64, 0, 0, 0, service]),
            Family::V6 => Self([(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, service]),
        }
    }

    #[inline]
    fn masked(&self, mask: &Self) -> Self {
        Self(core::array::from_fn(|nth| self.0[nth] & mask.0[nth]))
    }

    #[inline]
    fn hash(&self, family: Family) -> u64 {
        match family {
            Family::V4 => hash_words([self.0[0], self.0[4]], SEED),
            Family::V6 => hash_words(self.0, SEED),
        }
    }
}
