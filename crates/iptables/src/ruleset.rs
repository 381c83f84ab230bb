//! A rule set: tables, chains and rules, and how iptables-save prints them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::{Located, Position};
use crate::matches::Match;
use crate::names::protocols;
use crate::targets::Action;
use crate::value::{Condition, Counters, Family, Interface, Network};
use crate::words::bare;

/// A rule set of one family. It prints as `iptables-save` does, without counters.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// IPv4 or IPv6.
    pub family: Family,
    /// The tables, in the order in which the text first names them. Other tables are empty and accept.
    pub tables: Vec<Table>,
}

/// Two rule sets are equal if they have equal tables, in whatever order.
impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        self.family == other.family
            && self.tables.len() == other.tables.len()
            && self.tables.iter().all(|table| other.table(table.kind) == Some(table))
    }
}

impl Eq for RuleSet {}

/// The name of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// Before tracking.
    Raw,
    /// Changes of packets.
    Mangle,
    /// Rewriting of addresses.
    Nat,
    /// Filtering.
    Filter,
    /// Labels of a security module.
    Security,
}

/// The point at which the kernel calls a chain of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// For each packet that comes in.
    Prerouting,
    /// For packets to the router itself.
    Input,
    /// For packets that the router forwards.
    Forward,
    /// For packets from the router itself.
    Output,
    /// For each packet that leaves.
    Postrouting,
}

impl TableKind {
    /// All tables.
    pub const ALL: [Self; 5] = [Self::Raw, Self::Mangle, Self::Nat, Self::Filter, Self::Security];

    /// The table's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
            Self::Security => "security",
        }
    }

    /// The table of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its hooks, in the order of a packet's way.
    #[must_use]
    pub const fn hooks(self) -> &'static [Hook] {
        use Hook::{Forward, Input, Output, Postrouting, Prerouting};
        match self {
            Self::Raw => &[Prerouting, Output],
            Self::Mangle => &[Prerouting, Input, Forward, Output, Postrouting],
            Self::Nat => &[Prerouting, Input, Output, Postrouting],
            Self::Filter | Self::Security => &[Input, Forward, Output],
        }
    }
}

impl Hook {
    /// The name of its chains.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
            Self::Postrouting => "POSTROUTING",
        }
    }

    /// Its bit in a set of hooks.
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's kind.
    pub kind: TableKind,
    /// The place where the text first names it.
    pub at: Position,
    /// Its chains: those of the hooks in the order of a packet's way, then the user's by name.
    pub chains: Vec<Chain>,
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.chains == other.chains
    }
}

impl Eq for Table {}

/// The fate of a packet at the end of a hook's chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The packet goes on.
    #[default]
    Accept,
    /// The packet is dropped.
    Drop,
}

impl Policy {
    /// The policy's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
        }
    }
}

/// A chain.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// The hook and the policy of a chain that the kernel calls. `None` for a user's chain, whose end returns.
    pub base: Option<(Hook, Policy)>,
    /// The counters of the policy.
    pub counters: Counters,
    /// The place where the text declares it.
    pub at: Position,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Two chains are equal if they do the same: counters and places don't count.
impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.base == other.base && self.rules == other.rules
    }
}

impl Eq for Chain {}

/// A rule. All its conditions must hold.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The place where it begins.
    pub at: Position,
    /// Its counters.
    pub counters: Counters,
    /// `-s`.
    pub source: Option<Located<Condition<Network>>>,
    /// `-d`.
    pub destination: Option<Located<Condition<Network>>>,
    /// `-i`.
    pub input: Option<Located<Condition<Interface>>>,
    /// `-o`.
    pub output: Option<Located<Condition<Interface>>>,
    /// `-p`.
    pub protocol: Option<Located<Condition<u8>>>,
    /// `-f`: false for fragments other than the first, true (with `!`) for first fragments and whole packets.
    pub fragment: Option<Located<bool>>,
    /// `-m`, in the order of the rule. They are tested in this order, which counts for those with state.
    pub matches: Vec<Located<Match>>,
    /// `-j` or `-g`. Without, the rule only counts.
    pub target: Option<Located<Target>>,
}

/// Two rules are equal if they do the same: counters and places don't count.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
            && self.destination == other.destination
            && self.input == other.input
            && self.output == other.output
            && self.protocol == other.protocol
            && self.fragment == other.fragment
            && self.matches == other.matches
            && self.target == other.target
    }
}

impl Eq for Rule {}

/// The target of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The packet goes on to the next table.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet goes back to the rule behind the jump; in a hook's chain, to the policy.
    Return,
    /// The packet goes through another chain, and then on here.
    Jump(String),
    /// The packet goes through another chain, and then to where this chain returns to.
    Goto(String),
    /// Something is done with the packet.
    Do(Action),
}

impl Target {
    /// The name of the target, or of the chain.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
            Self::Return => "RETURN",
            Self::Jump(chain) | Self::Goto(chain) => chain,
            Self::Do(action) => action.name(),
        }
    }

    /// The chain that it leads to.
    #[must_use]
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return | Self::Do(_) => None,
        }
    }
}

impl RuleSet {
    /// The table, if the text names it.
    #[must_use]
    pub fn table(&self, kind: TableKind) -> Option<&Table> {
        self.tables.iter().find(|table| table.kind == kind)
    }

    /// The number of rules.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.tables.iter().flat_map(|table| &table.chains).map(|chain| chain.rules.len()).sum()
    }

    /// An upper bound of the rules that are tested for one packet: as if none ended its way, and every jump were taken. A rule counts as often
    /// as its chain is jumped to. `u64::MAX` stands for that many or more.
    #[must_use]
    pub fn tested_max(&self) -> u64 {
        let mut by_hook = [0_u64; 5];
        for table in &self.tables {
            let chains: BTreeMap<&str, usize> = table.chains.iter().map(|chain| &*chain.name).zip(0..).collect();
            let costs = table.costs(&chains);
            for (chain, cost) in table.chains.iter().zip(costs) {
                if let Some(hook) =
                    table.kind.hooks().iter().find(|hook| chain.base.is_some() && hook.name() == chain.name)
                {
                    by_hook[*hook as usize] = by_hook[*hook as usize].saturating_add(cost);
                }
            }
        }
        let of = |hook: Hook| by_hook[hook as usize];
        // An answer of the router passes the chains of its own packets, besides.
        let parts =
            [of(Hook::Prerouting), of(Hook::Input).max(of(Hook::Forward)), of(Hook::Output), of(Hook::Postrouting)];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Names of all matches and targets in it, sorted: `conntrack`, `DNAT`.
    #[must_use]
    pub fn features(&self) -> BTreeSet<&str> {
        let rules = self.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        let mut features = BTreeSet::new();
        for rule in rules {
            features.extend(rule.matches.iter().map(|test| test.written_name()));
            if let Some(Target::Do(action)) = rule.target.as_deref() {
                features.insert(action.written_name());
            }
        }
        features
    }

    /// Prints it with counters, as `iptables-save -c`.
    #[must_use]
    pub fn with_counters(&self) -> impl fmt::Display {
        fmt::from_fn(move |f| self.write(f, true))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, counts: bool) -> fmt::Result {
        // The kernel lists the table that was loaded last first.
        self.tables.iter().rev().try_for_each(|table| table.write(f, counts))
    }
}

impl fmt::Display for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

impl Table {
    /// The rules that are tested for a packet which passes a chain and all chains that it jumps to, by chain. Chains of a loop, which the reader
    /// refuses, have 0.
    fn costs(&self, chains: &BTreeMap<&str, usize>) -> Vec<u64> {
        let targets = |chain: usize| {
            let rules = self.chains[chain].rules.iter();
            rules.filter_map(|rule| chains.get(rule.target.as_deref()?.chain()?).copied())
        };
        let mut costs: Vec<Option<u64>> = alloc::vec![None; self.chains.len()];
        let mut is_open = alloc::vec![false; self.chains.len()];
        for root in 0..self.chains.len() {
            // A stack of chains, for they may be many.
            let mut open = alloc::vec![root];
            while let Some(&chain) = open.last() {
                let unknown = targets(chain).filter(|target| costs[*target].is_none());
                let unknown: Vec<usize> = unknown.filter(|target| !is_open[*target] && *target != chain).collect();
                if unknown.is_empty() || is_open[chain] {
                    let own = self.chains[chain].rules.len() as u64;
                    let cost = targets(chain).fold(own, |sum, target| sum.saturating_add(costs[target].unwrap_or(0)));
                    costs[chain].get_or_insert(cost);
                    open.pop();
                } else {
                    is_open[chain] = true;
                    open.extend(unknown);
                }
            }
        }
        costs.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// The chain of this name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        let hooks = self.kind.hooks().len();
        let (base, user) = self.chains.split_at(hooks.min(self.chains.len()));
        let found = user.binary_search_by(|chain| chain.name.as_str().cmp(name)).ok().map(|nth| &user[nth]);
        found.or_else(|| base.iter().find(|chain| chain.name == name))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, counts: bool) -> fmt::Result {
        writeln!(f, "*{}", self.kind.name())?;
        for chain in &self.chains {
            let policy = chain.base.map_or("-", |(_, policy)| policy.name());
            write!(f, ":{} {policy}", chain.name)?;
            if counts {
                write!(f, " [{}:{}]", chain.counters.packets, chain.counters.bytes)?;
            }
            f.write_str("\n")?;
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                if counts {
                    write!(f, "[{}:{}] ", rule.counters.packets, rule.counters.bytes)?;
                }
                writeln!(f, "-A {}{rule}", bare(&chain.name))?;
            }
        }
        f.write_str("COMMIT\n")
    }
}

/// The rule as iptables-save prints it behind the chain's name: each word after a space.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { " !" } else { "" };
        for (letter, network) in [('s', &self.source), ('d', &self.destination)] {
            if let Some(network) = network {
                write!(f, "{} -{letter} {}", not(network.negated), network.value.value)?;
            }
        }
        for (letter, interface) in [('i', &self.input), ('o', &self.output)] {
            if let Some(interface) = interface {
                write!(f, "{} -{letter} {}", not(interface.negated), interface.value.value)?;
            }
        }
        if let Some(protocol) = &self.protocol {
            let (not, number) = (not(protocol.negated), protocol.value.value);
            match protocols::name(number) {
                Some(name) => write!(f, "{not} -p {name}")?,
                None => write!(f, "{not} -p {number}")?,
            }
        }
        if let Some(fragment) = &self.fragment {
            write!(f, "{} -f", not(fragment.value))?;
        }
        for test in &self.matches {
            write!(f, " -m {}{}", test.written_name(), test.value)?;
        }
        match self.target.as_deref() {
            Some(Target::Goto(chain)) => write!(f, " -g {}", bare(chain)),
            Some(Target::Do(action)) => write!(f, " -j {}{action}", action.written_name()),
            Some(target) => write!(f, " -j {}", bare(target.name())),
            None => Ok(()),
        }
    }
}

impl Action {
    /// The name that iptables-save prints: as [`Self::name`], but `NOTRACK` for `-j NOTRACK`.
    #[must_use]
    pub const fn written_name(&self) -> &'static str {
        match self {
            Self::Ct(track) if track.is_notrack => "NOTRACK",
            other => other.name(),
        }
    }
}

impl Match {
    /// The name that iptables-save prints: as [`Self::name`], but `state` for `-m state`.
    #[must_use]
    pub const fn written_name(&self) -> &'static str {
        match self {
            Self::Conntrack(conntrack) if conntrack.is_state => "state",
            other => other.name(),
        }
    }
}
