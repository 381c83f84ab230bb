//! What is made of matches and targets with state when rules are compiled: [`Builder`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use iptables::matches::{HashLimit, HashLimitRate, Recent, SetTest, StatisticMode};
use iptables::targets::{SetAction, SetTarget};
use iptables::{EntryPart, Match, RuleSet, Set, SetKind, Sets, Target};
use packet::Nanos;

use super::table::{RECENT_HEAD, TableShape};
use super::{Cost, KeyedLimit, Named, Shapes, Stateful};
use crate::rules::tuple::bits;

/// Collects the matches with state while rules are compiled.
pub(in crate::rules) struct Builder {
    pub(in crate::rules) stateful: Vec<Stateful>,
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

/// The number of entries of a list of `recent`, as the kernel's module has by default.
const RECENT_ENTRIES: usize = 100;

/// The most stamps of an entry.
const RECENT_STAMPS_MAX: u32 = 256;

/// Keys of `hashlimit`, if the rule doesn't say how many.
const HASH_LIMIT_KEYS: usize = 65_536;

/// The names of the sets that rules change.
pub(in crate::rules) fn changing(rules: &RuleSet) -> impl Iterator<Item = &str> {
    let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    all.filter_map(|rule| match rule.target.as_deref()? {
        Target::Do(iptables::Action::SetTarget(set)) => Some(set.set.as_str()),
        _ => None,
    })
}

impl Builder {
    pub(in crate::rules) fn new(rules: &RuleSet, sets: &Sets) -> Self {
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
    pub(in crate::rules) fn changes(&self, set: &str) -> bool {
        self.changing.contains(set)
    }

    /// The memory that all matches and targets with state need.
    pub(in crate::rules) fn shapes(&self) -> Shapes {
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
    pub(in crate::rules) fn add(&mut self, test: &Match) -> Result<u32, String> {
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
    pub(in crate::rules) fn add_target(&mut self, target: &SetTarget) -> Result<u32, String> {
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
