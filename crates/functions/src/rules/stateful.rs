//! Matches and targets with state that packet sets share: rates, lists of addresses, counters, sets that rules change.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use iptables::matches::{
    HashLimit, HashLimitKey, HashLimitRate, Recent, RecentAction, RecentSide, SetTest, StatisticMode,
};
use iptables::targets::{SetAction, SetTarget};
use iptables::{EntryPart, Match, RuleSet, Set, SetKind, Sets, Target};
use memory::{Allocator, Map, Memory, Vector};
use nf::{Fingerprint, Step};
use packet::{Key, Nanos, Words};

use super::tuple::{Tuple, bits};
use super::view::View;

/// A match or a target with state.
#[derive(Clone, Debug)]
pub(super) enum Stateful {
    /// A bucket for all packets: nanoseconds from one packet to the next, and how far it may be behind.
    Limit {
        cell: usize,
        period: u64,
        depth: u64,
    },
    HashLimit {
        table: usize,
        limit: KeyedLimit,
    },
    Recent {
        list: usize,
        rule: Recent,
        mask: u128,
    },
    /// Of `every` packets the one with the number `packet`.
    Nth {
        cell: usize,
        every: u64,
        packet: u64,
        negated: bool,
    },
    /// A share of the packets, in parts of 2^31.
    Random {
        parts: u32,
        salt: u64,
        negated: bool,
    },
    /// So many bytes.
    Quota {
        cell: usize,
        bytes: u64,
        negated: bool,
    },
    ConnLimit {
        number: u32,
        above: u32,
        negated: bool,
    },
    /// A look-up in a set that rules change.
    Member {
        table: usize,
        sides: Vec<bool>,
        negated: bool,
    },
    /// A change of a set.
    Change {
        table: usize,
        sides: Vec<bool>,
        adds: bool,
        refreshes: bool,
        timeout: Option<Nanos>,
    },
}

/// The limit of each key of `hashlimit`.
#[derive(Clone, Debug)]
pub(super) struct KeyedLimit {
    key: HashLimitKey,
    masks: [u128; 2],
    cost: Cost,
    depth: u64,
    expire: Nanos,
    /// Matches what exceeds the rate.
    above: bool,
}

/// The nanoseconds of the rate that a packet takes.
#[derive(Clone, Copy, Debug)]
enum Cost {
    Packet(u64),
    /// Bytes a second.
    Bytes(u64),
}

/// A table of keys with a deadline and words each.
#[derive(Clone, Debug, PartialEq)]
struct TableShape {
    /// Its kind and name, by which it outlives a change of the rules.
    name: (u8, String),
    capacity: usize,
    /// Words of an entry.
    words: usize,
    /// The entries at the start.
    initial: Vec<Named>,
}

/// Addresses and ports, with zeros for what doesn't count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    src: u128,
    dst: u128,
    /// Ports and protocol.
    rest: u64,
}

packet::words! {
    Named: [5], named => {
        let Self { src, dst, rest } = named;
        [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, rest]
    }, words => {
        let [a, b, c, d, rest] = words;
        let address = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        Self { src: address(a, b), dst: address(c, d), rest }
    };
}

impl Key for Named {
    fn hash(&self, seed: u64) -> u64 {
        packet::hash_words(self.to_words(), seed)
    }
}

/// Collects the matches with state while rules are compiled.
pub(super) struct Builder {
    pub(super) stateful: Vec<Stateful>,
    shapes: Shapes,
    /// The tables of `hashlimit`, `recent` and changing sets, by kind and name.
    tables: BTreeMap<(u8, String), usize>,
    /// The largest hit count of each list of `recent`.
    hits: BTreeMap<String, u32>,
    changing: BTreeSet<String>,
    sets: Vec<Set>,
    /// Bits of an address.
    width: u8,
}

/// What memory the matches with state need.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    cells: usize,
    tables: Vec<TableShape>,
    /// The groups of each rule of `connlimit`: the mask, and whether the destination counts.
    pub(super) groups: Vec<(u128, bool)>,
}

/// The number of entries of a list of `recent`, as the kernel's module has by default.
const RECENT_ENTRIES: usize = 100;
/// The most stamps of an entry.
const RECENT_STAMPS_MAX: u32 = 256;
/// Keys of `hashlimit`, if the rule doesn't say how many.
const HASH_LIMIT_KEYS: usize = 65_536;

/// The names of the sets that rules change.
pub(super) fn changing(rules: &RuleSet) -> impl Iterator<Item = &str> {
    let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    all.filter_map(|rule| match rule.target.as_deref()? {
        Target::Do(iptables::Action::SetTarget(set)) => Some(set.set.as_str()),
        _ => None,
    })
}

impl Builder {
    pub(super) fn new(rules: &RuleSet, sets: &Sets) -> Self {
        let all = || rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        let mut hits: BTreeMap<String, u32> = BTreeMap::new();
        for test in all().flat_map(|rule| &rule.matches) {
            if let Match::Recent(recent) = &test.value {
                let most = hits.entry(recent.name.clone()).or_default();
                *most = (*most).max(recent.hit_count.unwrap_or(32));
            }
        }
        let changing: BTreeSet<String> = changing(rules).map(String::from).collect();
        let sets = sets.sets.iter().filter(|set| changing.contains(&set.name)).cloned().collect();
        Self {
            stateful: Vec::new(),
            shapes: Shapes::default(),
            tables: BTreeMap::new(),
            hits,
            changing,
            sets,
            width: rules.family.bits(),
        }
    }

    /// True if a rule changes the set of this name.
    pub(super) fn changes(&self, set: &str) -> bool {
        self.changing.contains(set)
    }

    /// What memory all of it needs.
    pub(super) fn shapes(&self) -> Shapes {
        self.shapes.clone()
    }

    fn push(&mut self, stateful: Stateful) -> u32 {
        self.stateful.push(stateful);
        self.stateful.len() as u32 - 1
    }

    fn cell(&mut self) -> usize {
        self.shapes.cells += 1;
        self.shapes.cells - 1
    }

    fn table(&mut self, kind: u8, name: &str, capacity: usize, words: usize, initial: Vec<Named>) -> usize {
        let next = self.shapes.tables.len();
        let name = (kind, String::from(name));
        let number = *self.tables.entry(name.clone()).or_insert(next);
        if number == next {
            self.shapes.tables.push(TableShape { name, capacity, words, initial });
        }
        number
    }

    /// Adds a match; returns its number.
    ///
    /// # Errors
    /// Why it can't run here.
    pub(super) fn add(&mut self, test: &Match) -> Result<u32, String> {
        let stateful = match test {
            Match::Limit(limit) => {
                let period = limit.rate.period.saturating_mul(1_000_000_000 / 10_000);
                Stateful::Limit { cell: self.cell(), period, depth: period.saturating_mul(limit.burst.into()) }
            }
            Match::HashLimit(limit) => self.hash_limit(limit)?,
            Match::Recent(recent) => self.recent(recent)?,
            Match::Statistic(statistic) => match statistic.mode.value {
                StatisticMode::Random { parts } => {
                    let salt = (self.stateful.len() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    Stateful::Random { parts, salt, negated: statistic.mode.negated }
                }
                StatisticMode::Nth { every, packet } => Stateful::Nth {
                    cell: self.cell(),
                    every: u64::from(every.max(1)),
                    packet: packet.into(),
                    negated: statistic.mode.negated,
                },
            },
            Match::Quota(quota) => {
                Stateful::Quota { cell: self.cell(), bytes: quota.bytes.value, negated: quota.bytes.negated }
            }
            Match::ConnLimit(limit) => {
                let number = self.shapes.groups.len() as u32;
                if number == u64::BITS {
                    return Err(format!("more than {} rules with `connlimit`", u64::BITS));
                }
                self.shapes.groups.push((leading(limit.mask_bits, self.width), limit.by_destination));
                Stateful::ConnLimit { number, above: limit.above.value, negated: limit.above.negated }
            }
            Match::SetTest(set) => self.member(set)?,
            other => return Err(format!("`{}` has no state", other.name())),
        };
        Ok(self.push(stateful))
    }

    fn hash_limit(&mut self, limit: &HashLimit) -> Result<Stateful, String> {
        if limit.rate_match {
            return Err("`hashlimit --hashlimit-rate-match`: nobody has needed it yet".into());
        }
        let (cost, depth) = match limit.rate.value {
            HashLimitRate::Packets { rate, burst } => {
                let period = rate.period.saturating_mul(1_000);
                (Cost::Packet(period), period.saturating_mul(burst))
            }
            HashLimitRate::Bytes { rate, burst: Some(burst) } => {
                let depth = u128::from(burst) * 1_000_000_000 / u128::from(rate.max(1));
                (Cost::Bytes(rate.max(1)), u64::try_from(depth).unwrap_or(u64::MAX))
            }
            HashLimitRate::Bytes { burst: None, .. } => {
                return Err("`hashlimit` by bytes needs `--hashlimit-burst` here".into());
            }
        };
        let capacity = if limit.max == 0 { HASH_LIMIT_KEYS } else { limit.max as usize };
        let table = self.table(0, &limit.name, capacity, 1, Vec::new());
        let mask = |bits: Option<u8>| bits.map_or(u128::MAX, |bits| leading(bits, self.width));
        let limit = KeyedLimit {
            key: limit.key,
            masks: [mask(limit.source_bits), mask(limit.destination_bits)],
            cost,
            depth,
            expire: Nanos::from_millis(limit.expire_ms.into()),
            above: limit.rate.negated,
        };
        Ok(Stateful::HashLimit { table, limit })
    }

    fn recent(&mut self, recent: &Recent) -> Result<Stateful, String> {
        let hits = self.hits.get(&recent.name).copied().unwrap_or(32);
        if hits > RECENT_STAMPS_MAX {
            return Err(format!("`recent --hitcount`: at most {RECENT_STAMPS_MAX} here"));
        }
        let stamps = hits.next_power_of_two() as usize;
        let list = self.table(1, &recent.name, RECENT_ENTRIES, RECENT_HEAD + stamps, Vec::new());
        Ok(Stateful::Recent { list, rule: recent.clone(), mask: bits(recent.mask) })
    }

    fn member(&mut self, set: &SetTest) -> Result<Stateful, String> {
        let (name, sides) = &set.set.value;
        let table = self.set(name)?;
        Ok(Stateful::Member { table, sides: sides.0.clone(), negated: set.set.negated })
    }

    /// Adds a target; returns its number.
    ///
    /// # Errors
    /// Why it can't run here.
    pub(super) fn add_target(&mut self, target: &SetTarget) -> Result<u32, String> {
        let table = self.set(&target.set)?;
        let default = self.sets.iter().find(|set| set.name == target.set).and_then(|set| set.timeout_s);
        let timeout = target.timeout_s.or(default).filter(|seconds| *seconds > 0);
        let stateful = Stateful::Change {
            table,
            sides: target.sides.0.clone(),
            adds: target.action == SetAction::Add,
            refreshes: target.exist,
            timeout: timeout.map(|seconds| Nanos::from_secs(seconds.into())),
        };
        Ok(self.push(stateful))
    }

    /// The table of a set that rules change.
    fn set(&mut self, name: &str) -> Result<usize, String> {
        let set = self.sets.iter().find(|set| set.name == name).cloned();
        let set = set.ok_or_else(|| format!("the set `{name}` isn't given: give the sets with --sets"))?;
        if !matches!(set.kind, SetKind::HashIp | SetKind::HashIpPort | SetKind::HashIpPortIp) {
            let kind = set.kind.name();
            return Err(format!(
                "`{name}` is a set of the type {kind}, which rules can't change here: hash:ip, hash:ip,port or hash:ip,port,ip can"
            ));
        }
        if set.netmask.is_some() || set.force_add {
            return Err(format!("`{name}` has `netmask` or `forceadd`, so rules can't change it here"));
        }
        let mut initial = initial(&set)?;
        initial.sort_unstable();
        Ok(self.table(2, name, set.entries_max as usize, 1, initial))
    }
}

/// The entries of a set at the start, one address each.
fn initial(set: &Set) -> Result<Vec<Named>, String> {
    const MOST: u128 = 1 << 20;
    let mut all = Vec::new();
    for entry in &set.entries {
        let EntryPart::Addresses(addresses) = &entry.first else { continue };
        let (first, last) = (bits(addresses.first), bits(addresses.last));
        let (mut dst, mut rest) = (0, 0);
        for part in &entry.rest {
            match part {
                EntryPart::Ports(protocol, ports) if ports.first == ports.last => {
                    rest = u64::from(ports.first) << 8 | u64::from(*protocol);
                }
                EntryPart::Addresses(one) if one.first == one.last => dst = bits(one.first),
                _ => return Err(format!("`{}` has ranges, so rules can't change it here", set.name)),
            }
        }
        if last - first >= MOST {
            return Err(format!(
                "`{}` has ranges of more than {MOST} addresses, so rules can't change it here",
                set.name
            ));
        }
        all.extend((first..=last).map(|src| Named { src, dst, rest }));
    }
    Ok(all)
}

/// The mask of so many leading bits of an address of `width` bits, in the low bits.
const fn leading(bits: u8, width: u8) -> u128 {
    let all = if width >= 128 { u128::MAX } else { (1 << width) - 1 };
    let low = width.saturating_sub(bits);
    if low >= 128 { 0 } else { all >> low << low }
}

/// The word of an entry that was in a set at the start and that a rule has removed.
const REMOVED: u64 = 1;
/// Words of an entry of `recent` before its stamps: time to live; the number of stamps and the next one's place.
const RECENT_HEAD: usize = 2;

/// The state of all matches and targets with state.
pub(super) struct RuleState<M: Memory> {
    cells: M::Vector<u64>,
    tables: Vec<KeyTable<M>>,
    /// Live connections of `connlimit`, by rule and group.
    pub(super) groups: M::Map<Named, u64>,
    group_shapes: Vec<(u128, bool)>,
    /// The number of the rule set: one more with each that has succeeded another.
    pub(super) generation: u16,
}

/// A table of keys.
struct KeyTable<M: Memory> {
    places: M::Map<Named, u64>,
    keys: M::Vector<Named>,
    words: M::Vector<u64>,
    ages: M::Allocator,
    initial: Vec<Named>,
    width: usize,
}

impl<M: Memory> RuleState<M> {
    pub(super) fn new(shapes: &Shapes, connections: usize, generation: u16, memory: &M) -> Self {
        Self {
            cells: memory.vector(shapes.cells, 0),
            tables: shapes.tables.iter().map(|shape| KeyTable::new(shape, memory)).collect(),
            groups: memory.map(connections * shapes.groups.len()),
            group_shapes: shapes.groups.clone(),
            generation,
        }
    }

    /// Fits the state to a rule set that succeeds another. Tables of `hashlimit`, lists of `recent` and sets that rules change stay if
    /// both have them; all else begins anew.
    pub(super) fn adopt(&mut self, new: &Shapes, old: &Shapes, connections: usize, generation: u16, memory: &M) {
        let mut tables: Vec<Option<KeyTable<M>>> = mem::take(&mut self.tables).into_iter().map(Some).collect();
        let kept = new.tables.iter().map(|shape| {
            let number = old.tables.iter().position(|other| other == shape);
            let table = number.and_then(|number| tables.get_mut(number)?.take());
            table.unwrap_or_else(|| KeyTable::new(shape, memory))
        });
        let tables = kept.collect();
        *self = Self {
            tables,
            ..Self::new(&Shapes { tables: Vec::new(), ..new.clone() }, connections, generation, memory)
        };
    }

    /// The address of a connection's group in a rule of `connlimit`. A destination is that to which the connection was rewritten.
    pub(super) fn group_address(&self, rule: u32, [original, reply]: &[Tuple; 2]) -> u128 {
        let (mask, by_destination) = self.group_shapes[rule as usize];
        mask & if by_destination { reply.src } else { original.src }
    }

    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for cell in 0..self.cells.len() {
            fingerprint.add(self.cells.read(tx, cell)?);
        }
        for table in &self.tables {
            let mut sum = 0_u64;
            for index in 0..table.ages.capacity() {
                if table.ages.is_allocated(tx, index)? {
                    let mut digest = Fingerprint::default();
                    table.keys.read(tx, index)?.to_words().into_iter().for_each(|word| digest.add(word));
                    for word in 0..table.width {
                        digest.add(table.words.read(tx, index * table.width + word)?);
                    }
                    // A sum, because an entry's index has no visible effect.
                    sum = sum.wrapping_add(digest.value());
                }
            }
            fingerprint.add(sum);
        }
        Ok(())
    }
}

/// The outcome of a match with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Is(bool),
    /// A table is full: the kernel drops the packet at once.
    Full,
}

/// What a match with state may need to know besides the packet.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Nanos,
    /// A number of the packet's own, the same in every engine.
    pub(super) random: u64,
}

impl Stateful {
    /// Asks the match, which may change state. `connlimit` is not asked here.
    pub(super) fn ask<'a, M: Memory>(
        &self,
        state: &'a RuleState<M>,
        tx: &mut M::Tx<'a>,
        view: &View,
        moment: Moment,
    ) -> Step<Answer, M> {
        let now = moment.now;
        Ok(Answer::Is(match self {
            Self::Limit { cell, period, depth } => {
                let full_at = state.cells.read(tx, *cell)?;
                match spend(full_at, *period, *depth, now) {
                    Some(full_at) => {
                        state.cells.write(tx, *cell, full_at)?;
                        true
                    }
                    None => false,
                }
            }
            Self::Nth { cell, every, packet, negated } => {
                let count = state.cells.read(tx, *cell)?;
                state.cells.write(tx, *cell, (count + 1) % every)?;
                (count == *packet) != *negated
            }
            Self::Random { parts, salt, negated } => {
                let drawn = (moment.random ^ salt).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
                (drawn < u64::from(*parts)) != *negated
            }
            Self::Quota { cell, bytes, negated } => {
                let used = state.cells.read(tx, *cell)?;
                let left = bytes - used;
                let (used, is_left) = match left >= u64::from(view.len) {
                    true => (used + u64::from(view.len), true),
                    false => (*bytes, false),
                };
                state.cells.write(tx, *cell, used)?;
                is_left != *negated
            }
            Self::HashLimit { table, limit } => return limit.ask(&state.tables[*table], tx, view, now),
            Self::Recent { list, rule, mask } => return state.tables[*list].recent(tx, rule, *mask, view, now),
            Self::Member { table, sides, negated } => {
                state.tables[*table].has(tx, &Named::of_sides(sides, view), now)? != *negated
            }
            Self::Change { .. } | Self::ConnLimit { .. } => false,
        }))
    }

    /// Carries out the change of a set.
    pub(super) fn change<'a, M: Memory>(
        &self,
        state: &'a RuleState<M>,
        tx: &mut M::Tx<'a>,
        view: &View,
        now: Nanos,
    ) -> Step<(), M> {
        let Self::Change { table, sides, adds, refreshes, timeout } = self else { return Ok(()) };
        let table = &state.tables[*table];
        let name = Named::of_sides(sides, view);
        let deadline = timeout.map_or(Nanos::NEVER, |timeout| now + timeout);
        let (found, was_initial) = (table.find(tx, &name, now)?, table.initial.binary_search(&name).is_ok());
        match (found, adds) {
            (Some(index), true) => {
                let was_removed = table.words.read(tx, index)? == REMOVED;
                if was_removed || *refreshes {
                    table.words.write(tx, index, 0)?;
                    table.ages.refresh(tx, index, deadline)?;
                }
            }
            (None, true) if was_initial => {}
            // A set that is full stays as it is.
            (None, true) => {
                if let Some(index) = table.insert(tx, name, deadline, now)? {
                    table.words.write(tx, index, 0)?;
                }
            }
            (Some(index), false) if was_initial => {
                table.words.write(tx, index, REMOVED)?;
                table.ages.refresh(tx, index, Nanos::NEVER)?;
            }
            (Some(index), false) => table.remove(tx, index)?,
            (None, false) if was_initial => {
                if let Some(index) = table.insert(tx, name, Nanos::NEVER, now)? {
                    table.words.write(tx, index, REMOVED)?;
                }
            }
            (None, false) => {}
        }
        Ok(())
    }
}

/// Takes `cost` from a bucket that is full at `full_at` and is `depth` deep; returns when it is full again.
fn spend(full_at: u64, cost: u64, depth: u64, now: Nanos) -> Option<u64> {
    let next = full_at.max(now.0).saturating_add(cost);
    (next - now.0 <= depth).then_some(next)
}

impl KeyedLimit {
    fn ask<'a, M: Memory>(
        &self,
        table: &'a KeyTable<M>,
        tx: &mut M::Tx<'a>,
        view: &View,
        now: Nanos,
    ) -> Step<Answer, M> {
        let HashLimitKey { source, source_port, destination, destination_port } = self.key;
        let port = |counts: bool, port: u16| if counts { u64::from(port) } else { 0 };
        let protocol = if source_port || destination_port { u64::from(view.protocol) } else { 0 };
        let name = Named {
            src: if source { view.src & self.masks[0] } else { 0 },
            dst: if destination { view.dst & self.masks[1] } else { 0 },
            rest: port(source_port, view.src_port) << 32 | port(destination_port, view.dst_port) << 16 | protocol,
        };
        let deadline = now + self.expire;
        let index = match table.find(tx, &name, now)? {
            Some(index) => {
                table.ages.refresh(tx, index, deadline)?;
                index
            }
            None => match table.insert(tx, name, deadline, now)? {
                Some(index) => {
                    table.words.write(tx, index, 0)?;
                    index
                }
                None => return Ok(Answer::Full),
            },
        };
        let cost = match self.cost {
            Cost::Packet(period) => period,
            Cost::Bytes(rate) => (u64::from(view.len) * 1_000_000_000) / rate,
        };
        let full_at = table.words.read(tx, index)?;
        let is_within = match spend(full_at, cost, self.depth, now) {
            Some(full_at) => {
                table.words.write(tx, index, full_at)?;
                true
            }
            None => false,
        };
        Ok(Answer::Is(is_within != self.above))
    }
}

impl Named {
    fn of_sides(sides: &[bool], view: &View) -> Self {
        let address = |source: bool| if source { view.src } else { view.dst };
        let port = |source: bool| if source { view.src_port } else { view.dst_port };
        let mut named = Self { src: address(sides.first().copied().unwrap_or(true)), ..Self::default() };
        if let Some(source) = sides.get(1) {
            named.rest = u64::from(port(*source)) << 8 | u64::from(view.protocol);
        }
        if let Some(source) = sides.get(2) {
            named.dst = address(*source);
        }
        named
    }

    /// The group of a rule of `connlimit`.
    pub(super) const fn group(rule: u32, address: u128) -> Self {
        Self { src: address, dst: 0, rest: rule as u64 }
    }
}

impl<M: Memory> KeyTable<M> {
    fn new(shape: &TableShape, memory: &M) -> Self {
        let TableShape { capacity, words, ref initial, .. } = *shape;
        Self {
            places: memory.map(capacity),
            keys: memory.vector(capacity, Named::default()),
            words: memory.vector(capacity * words, 0),
            ages: memory.allocator(capacity),
            initial: initial.clone(),
            width: words,
        }
    }

    /// The index of a key that has not expired.
    fn find<'a>(&'a self, tx: &mut M::Tx<'a>, name: &Named, now: Nanos) -> Step<Option<usize>, M> {
        let Some(index) = self.places.get(tx, name)? else { return Ok(None) };
        let index = index as usize;
        match self.ages.deadline(tx, index)? {
            Some(deadline) if deadline > now => Ok(Some(index)),
            Some(_) => {
                self.remove(tx, index)?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// True if the set has the key: it was there at the start and no rule has removed it, or a rule has added it.
    fn has<'a>(&'a self, tx: &mut M::Tx<'a>, name: &Named, now: Nanos) -> Step<bool, M> {
        match self.find(tx, name, now)? {
            Some(index) => Ok(self.words.read(tx, index)? != REMOVED),
            None => Ok(self.initial.binary_search(name).is_ok()),
        }
    }

    fn insert<'a>(&'a self, tx: &mut M::Tx<'a>, name: Named, deadline: Nanos, now: Nanos) -> Step<Option<usize>, M> {
        let mut index = self.ages.allocate(tx, deadline)?;
        if index.is_none()
            && let Some(old) = self.ages.expire(tx, now)?
        {
            self.forget(tx, old)?;
            index = self.ages.allocate(tx, deadline)?;
        }
        let Some(index) = index else { return Ok(None) };
        self.places.insert(tx, name, index as u64)?;
        self.keys.write(tx, index, name)?;
        Ok(Some(index))
    }

    /// Removes the key of an index that is free again already.
    fn forget<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Step<(), M> {
        let name = self.keys.read(tx, index)?;
        self.places.remove(tx, &name).map(drop)
    }

    fn remove<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Step<(), M> {
        self.forget(tx, index)?;
        self.ages.free(tx, index)
    }

    fn recent<'a>(&'a self, tx: &mut M::Tx<'a>, rule: &Recent, mask: u128, view: &View, now: Nanos) -> Step<Answer, M> {
        let side = if rule.side == RecentSide::Source { view.src } else { view.dst };
        let name = Named { src: side & mask, ..Named::default() };
        let (action, negated) = (rule.action.value, rule.action.negated);
        let mut entry = self.find(tx, &name, now)?;
        if rule.same_ttl
            && let Some(index) = entry
            && self.words.read(tx, index * self.width)? != u64::from(view.ttl)
        {
            entry = None;
        }
        let Some(index) = entry else {
            if action != RecentAction::Set {
                return Ok(Answer::Is(negated));
            }
            let index = self.recent_room(tx, name, now)?;
            self.recent_note(tx, index, view, now, true)?;
            return Ok(Answer::Is(!negated));
        };
        let is_match = match action {
            RecentAction::Set => true,
            RecentAction::Remove => {
                self.remove(tx, index)?;
                true
            }
            RecentAction::Check | RecentAction::Update => self.recent_hits(tx, rule, index, now)?,
        } != negated;
        if action == RecentAction::Set || action == RecentAction::Update && is_match {
            self.recent_note(tx, index, view, now, false)?;
        }
        Ok(Answer::Is(is_match))
    }

    fn stamps(&self) -> usize {
        self.width - RECENT_HEAD
    }

    /// True if the entry has enough stamps that are young enough.
    fn recent_hits<'a>(&'a self, tx: &mut M::Tx<'a>, rule: &Recent, index: usize, now: Nanos) -> Step<bool, M> {
        let first = index * self.width;
        let count = (self.words.read(tx, first + 1)? >> 32) as usize;
        let wanted = rule.hit_count.unwrap_or(1).max(1);
        let since = rule.seconds.map(|seconds| now - Nanos::from_secs(seconds.into()));
        let mut hits = 0;
        for stamp in 0..count {
            let at = self.words.read(tx, first + RECENT_HEAD + stamp)?;
            if since.is_none_or(|since| at >= since.0) {
                hits += 1;
            }
            if hits >= wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a stamp to the entry.
    fn recent_note<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        index: usize,
        view: &View,
        now: Nanos,
        is_new: bool,
    ) -> Step<(), M> {
        let first = index * self.width;
        let word = if is_new { 0 } else { self.words.read(tx, first + 1)? };
        let (count, next) = ((word >> 32) as usize, word as u32 as usize % self.stamps());
        self.words.write(tx, first, view.ttl.into())?;
        self.words.write(tx, first + RECENT_HEAD + next, now.0)?;
        let (count, next) = (count.max(next + 1), next + 1);
        self.words.write(tx, first + 1, (count as u64) << 32 | next as u64)
    }

    /// Makes an entry, in place of the one that was not noted for the longest time if the list is full.
    fn recent_room<'a>(&'a self, tx: &mut M::Tx<'a>, name: Named, now: Nanos) -> Step<usize, M> {
        if let Some(index) = self.insert(tx, name, Nanos::NEVER, now)? {
            return Ok(index);
        }
        let mut oldest = (u64::MAX, Named::default(), 0);
        for index in 0..self.ages.capacity() {
            let first = index * self.width;
            let next = self.words.read(tx, first + 1)? as u32 as usize;
            let last = self.words.read(tx, first + RECENT_HEAD + next.saturating_sub(1))?;
            if last <= oldest.0 {
                // Of two entries of one time the smaller key, so that the order of indices has no effect.
                let key = self.keys.read(tx, index)?;
                if (last, key) < (oldest.0, oldest.1) || oldest.0 == u64::MAX {
                    oldest = (last, key, index);
                }
            }
        }
        self.remove(tx, oldest.2)?;
        Ok(self.insert(tx, name, Nanos::NEVER, now)?.unwrap_or(oldest.2))
    }
}
