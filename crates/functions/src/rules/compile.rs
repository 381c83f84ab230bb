//! From a rule set to the form that runs.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use iptables::matches::{Conntrack, States};
use iptables::targets::NatPorts;
use iptables::{Condition, Family, Hook, Match, Network, Policy, Position, RuleSet, Sets, Table, TableKind};

use super::classify::Classifier;
use super::machine::{Action, Base, Chain, Check, DEPTH_MAX, HOOKS, High, Machine, Part, Rule, TABLES, Target, Way};
use super::nat::Range;
use super::stateful::{Builder, Shapes};
use super::test::{Environment, NotHere, Test};
use super::tuple::bits;

/// Why a rule set can't run here, with the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The place of the rule.
    pub at: Position,
    /// The part that is refused, and the reason.
    pub what: String,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{}: {}", self.at.line, self.at.column, self.what)
    }
}

/// The rules in the order of [`Machine::rules`].
pub(super) fn in_order(rules: &RuleSet) -> impl Iterator<Item = (&Table, &iptables::Chain, &iptables::Rule)> {
    rules.tables.iter().flat_map(|table| {
        table.chains.iter().flat_map(move |chain| chain.rules.iter().map(move |rule| (table, chain, rule)))
    })
}

/// The chains of hooks in the order of their policies' counters.
pub(super) fn bases(rules: &RuleSet) -> impl Iterator<Item = (TableKind, Hook, Policy)> {
    rules.tables.iter().flat_map(|table| {
        table.chains.iter().filter_map(move |chain| chain.base.map(|(hook, policy)| (table.kind, hook, policy)))
    })
}

impl Machine {
    /// Compiles a rule set.
    ///
    /// # Errors
    /// What can't run here, by line.
    pub(super) fn compile(
        rules: &RuleSet,
        environment: &Environment,
        sets: &Sets,
    ) -> Result<(Self, Shapes), Vec<Refusal>> {
        let mut compiler = Compiler {
            machine: Self {
                family: rules.family,
                policies: bases(rules).count(),
                bases: [[None; HOOKS]; TABLES],
                chains: Vec::new(),
                rules: Vec::with_capacity(rules.rule_count()),
                highs: Vec::new(),
                ways: Default::default(),
                checks: Vec::new(),
                match_of_check: Vec::new(),
                steady: Vec::new(),
                actions: Vec::new(),
                bytes: Default::default(),
                stateful: Vec::new(),
                tracks: false,
                has_nat: false,
                draws: false,
                translates: false,
                accounts: false,
            },
            environment,
            builder: Builder::new(rules, sets),
            refused: Vec::new(),
        };
        compiler.run(rules);
        match compiler.refused.is_empty() {
            true => {
                let shapes = compiler.builder.shapes();
                Ok((compiler.machine, shapes))
            }
            false => Err(compiler.refused),
        }
    }
}

struct Compiler<'a> {
    machine: Machine,
    environment: &'a Environment,
    builder: Builder,
    refused: Vec<Refusal>,
}

impl Compiler<'_> {
    fn run(&mut self, rules: &RuleSet) {
        for table in &rules.tables {
            // Chains are numbered through all tables.
            let first = self.machine.chains.len();
            let numbers: BTreeMap<&str, u32> =
                table.chains.iter().enumerate().map(|(nth, chain)| (&*chain.name, (first + nth) as u32)).collect();
            for chain in &table.chains {
                let start = self.machine.rules.len() as u32;
                for rule in &chain.rules {
                    let rule = self.rule(rule, &numbers);
                    self.machine.rules.push(rule);
                }
                let end = self.machine.rules.len() as u32;
                self.machine.chains.push(Chain { first: start, end, classifier: None });
            }
            self.depths(table, first, &numbers);
        }
        let policies = self.machine.rules.len();
        for (nth, (table, hook, policy)) in bases(rules).enumerate() {
            let name = hook.name();
            let first: usize =
                rules.tables.iter().take_while(|one| one.kind != table).map(|one| one.chains.len()).sum();
            let own = rules.table(table).and_then(|table| table.chains.iter().position(|chain| chain.name == name));
            let chain = (first + own.unwrap_or_default()) as u32;
            let base = Base { chain, policy, counter: (policies + nth) as u32 };
            self.machine.bases[table as usize][hook as usize] = Some(base);
        }
        self.machine.stateful = core::mem::take(&mut self.builder.stateful);
        for part in Part::ALL {
            let ways = part.tables().iter().filter_map(|(table, hook)| {
                self.machine.base(*table, *hook).map(|base| Way { table: *table, hook: *hook, base })
            });
            self.machine.ways[part as usize] = ways.collect();
        }
        self.machine.has_nat = self.machine.tracks && rules.table(TableKind::Nat).is_some();
        self.machine.draws = self.machine.translates || !self.machine.stateful.is_empty();
        let machine = &self.machine;
        let classifiers: Vec<_> =
            (machine.chains.iter()).map(|chain| Classifier::of(machine, chain).map(Box::new)).collect();
        for (chain, classifier) in self.machine.chains.iter_mut().zip(classifiers) {
            chain.classifier = classifier;
        }
    }

    /// Refuses chains that are nested too deep. There are no loops: the reader of rule sets refuses them.
    fn depths(&mut self, table: &Table, first: usize, numbers: &BTreeMap<&str, u32>) {
        // The depth of each chain, once all that it leads to are known; found with a stack, for chains may be many.
        let mut depths: Vec<Option<usize>> = alloc::vec![None; table.chains.len()];
        // The deepest chain that each chain leads to.
        let mut deepest_of: Vec<Option<usize>> = alloc::vec![None; table.chains.len()];
        for root in 0..table.chains.len() {
            let mut open = alloc::vec![root];
            while let Some(&chain) = open.last() {
                let targets = table.chains[chain].rules.iter().filter_map(|rule| rule.target.as_deref()?.chain());
                let targets: Vec<usize> = targets.map(|name| numbers[name] as usize - first).collect();
                let unknown: Vec<usize> = targets.iter().copied().filter(|target| depths[*target].is_none()).collect();
                if unknown.is_empty() {
                    deepest_of[chain] = targets.iter().copied().max_by_key(|target| depths[*target]);
                    let deepest = deepest_of[chain].and_then(|target| depths[target]);
                    depths[chain] = Some(deepest.map_or(0, |depth| depth + 1));
                    open.pop();
                } else {
                    open.extend(unknown);
                }
            }
        }
        for (nth, (chain, depth)) in table.chains.iter().zip(depths).enumerate() {
            if chain.base.is_some() && depth.is_some_and(|depth| depth >= DEPTH_MAX) {
                // The first chain on the longest way that is too deep.
                let way = core::iter::successors(Some(nth), |chain| deepest_of[*chain]);
                let Some(deep) = way.take(DEPTH_MAX + 1).last().map(|deep| &table.chains[deep]) else { continue };
                let what = format!(
                    "{} would be the chain number {} on the way from {}, one inside the other: the limit is {DEPTH_MAX}",
                    deep.name,
                    DEPTH_MAX + 1,
                    chain.name
                );
                self.refused.push(Refusal { at: deep.at, what });
            }
        }
    }

    fn rule(&mut self, rule: &iptables::Rule, chains: &BTreeMap<&str, u32>) -> Rule {
        let mut flags = 0;
        let mut network = |given: Option<&Condition<Network>>, bit: u8| match given {
            Some(Condition { negated, value }) => {
                flags |= if *negated { bit } else { 0 };
                (bits(value.address), bits(value.mask))
            }
            None => (0, 0),
        };
        let (src, src_mask) = network(rule.source.as_deref(), Rule::NOT_SRC);
        let (dst, dst_mask) = network(rule.destination.as_deref(), Rule::NOT_DST);
        for given in [&rule.input, &rule.output].into_iter().flatten() {
            // Without a router nothing is known of interfaces; the loopback's packets never come by.
            let name = given.value.value.as_str();
            if self.environment.paths.is_empty() && name != "lo" && name != "+" {
                let what = format!("the interface `{name}` isn't known: give the router's interfaces with --router");
                self.refused.push(Refusal { at: given.at, what });
            }
        }
        let interfaces = |given: Option<&Condition<iptables::Interface>>| match given {
            Some(Condition { negated, value }) => self.environment.paths.mask_of(value, *negated),
            None => u64::MAX,
        };
        let (input, output) = (interfaces(rule.input.as_deref()), interfaces(rule.output.as_deref()));
        let protocol = match rule.protocol.as_deref() {
            Some(Condition { negated, value }) if *value != 0 => {
                flags |= if *negated { Rule::NOT_PROTOCOL } else { 0 };
                *value
            }
            // `all`; the reader refuses `! -p all`.
            Some(_) | None => {
                flags |= Rule::ANY_PROTOCOL;
                0
            }
        };
        flags |= match rule.fragment.as_deref() {
            Some(true) => Rule::NOT_FRAGMENT,
            Some(false) => Rule::FRAGMENT,
            None => 0,
        };
        let first = self.machine.checks.len() as u32;
        let mut checks = Vec::new();
        for (nth, test) in rule.matches.iter().enumerate() {
            match self.checks(&test.value) {
                Ok(all) => checks.extend(all.into_iter().map(|check| (nth as u16, check))),
                Err(what) => self.refused.push(Refusal { at: test.at, what }),
            }
        }
        // What changes no state may be asked in any order: first what comes out the same for all packets of a direction.
        let plain = checks.iter().position(|(_, check)| matches!(check, Check::Stateful(_))).unwrap_or(checks.len());
        checks[..plain].sort_by_key(|(_, check)| !check.is_steady());
        for (nth, check) in checks {
            self.machine.match_of_check.push(nth);
            self.machine.steady.push(check.is_steady());
            self.machine.checks.push(check);
        }
        let checks = (first, self.machine.checks.len() as u32);
        let target = match &rule.target {
            None => Target::Next,
            Some(target) => match &target.value {
                iptables::Target::Accept => Target::Accept,
                iptables::Target::Drop => Target::Drop,
                iptables::Target::Return => Target::Return,
                iptables::Target::Jump(chain) => Target::Jump(chains[chain.as_str()]),
                iptables::Target::Goto(chain) => Target::Goto(chains[chain.as_str()]),
                iptables::Target::Do(action) => match self.action(action) {
                    Ok(Action::Nothing) => Target::Next,
                    Ok(action) => {
                        self.machine.actions.push(action);
                        Target::Do(self.machine.actions.len() as u32 - 1)
                    }
                    Err(what) => {
                        self.refused.push(Refusal { at: target.at, what });
                        Target::Next
                    }
                },
            },
        };
        let high = |bits: u128| (bits >> 64) as u64;
        let highs = High { src: [high(src), high(src_mask)], dst: [high(dst), high(dst_mask)] };
        let mut high = 0;
        if highs.src[1] | highs.dst[1] != 0 {
            flags |= Rule::HIGH;
            high = self.machine.highs.len() as u32;
            self.machine.highs.push(highs);
        }
        let (src, dst) = ([src as u64, src_mask as u64], [dst as u64, dst_mask as u64]);
        Rule { src, dst, input, output, checks, target, high, protocol, flags }
    }

    /// The checks of a match.
    fn checks(&mut self, test: &Match) -> Result<Vec<Check>, String> {
        let check = match test {
            Match::Conntrack(conntrack) => {
                self.machine.tracks = true;
                self.conntrack(conntrack)?
            }
            Match::ConnMark(mark) => {
                self.machine.tracks = true;
                Check::ConnMark(mark.mark.value, mark.mark.negated)
            }
            Match::ConnBytes(count) => {
                (self.machine.tracks, self.machine.accounts) = (true, true);
                Check::ConnBytes(Box::new(count.clone()))
            }
            Match::Helper(_) => {
                return Err("helper: no helper follows connections here, so it would never match".into());
            }
            Match::SetTest(set) if self.builder.changes(&set.set.value.0) => Check::Stateful(self.builder.add(test)?),
            other => {
                let Machine { family, bytes, .. } = &mut self.machine;
                match Test::of(other, *family, self.environment, bytes) {
                    Ok(tests) => return Ok(tests.into_iter().map(Check::Plain).collect()),
                    Err(NotHere::Refused(what)) => return Err(what),
                    Err(NotHere::State) => {
                        self.machine.tracks |= matches!(test, Match::ConnLimit(_));
                        Check::Stateful(self.builder.add(test)?)
                    }
                }
            }
        };
        Ok(vec![check])
    }

    fn conntrack(&self, conntrack: &Conntrack) -> Result<Check, String> {
        if conntrack.expires_s.is_some() {
            return Err("conntrack --ctexpire: rules don't see when a connection expires".into());
        }
        let bare = Conntrack { is_state: conntrack.is_state, states: conntrack.states, ..Conntrack::default() };
        Ok(match conntrack.states {
            Some(states) if *conntrack == bare => {
                let passes = |bit: u8| states.holds(states.value.intersects(state_of(bit)));
                // A packet has one of the first five states; a connection that is rewritten has two more.
                let mut set = 0;
                for bit in 0..5 {
                    set |= u8::from(passes(bit)) << bit;
                }
                let has_virtual = states.value.intersects(States::SNAT.union(States::DNAT));
                if has_virtual { Check::Conntrack(Box::new(conntrack.clone())) } else { Check::State(set) }
            }
            _ => Check::Conntrack(Box::new(conntrack.clone())),
        })
    }

    fn action(&mut self, action: &iptables::Action) -> Result<Action, String> {
        use iptables::Action as A;
        let translates = matches!(action, A::Dnat(_) | A::Snat(_) | A::Masquerade(_) | A::Redirect(_) | A::NetMap(_));
        // The kernel tracks packets from the first rule on that needs it.
        self.machine.translates |= translates;
        self.machine.tracks |= translates;
        let has_router = !self.environment.paths.is_empty();
        Ok(match action {
            A::Reject(reject) => Action::Reject(reject.with),
            A::Log(_) | A::NfLog(_) | A::Trace(_) | A::Checksum(_) | A::Classify(_) => Action::Nothing,
            A::Tee(_) => return Err("TEE: a packet leaves at most once here".into()),
            A::TcpOptStrip(_) => return Err("TCPOPTSTRIP: options are not rewritten here".into()),
            A::EcnChange(_) => return Err("ECN: the bits of TCP are not rewritten here".into()),
            A::Dnat(dnat) => {
                Action::Dnat(Range::new(&dnat.to.addresses, dnat.to.ports.as_ref(), dnat.random, dnat.persistent))
            }
            A::Snat(snat) => {
                let random = snat.random || snat.random_fully;
                Action::Snat(Range::new(&snat.to.addresses, snat.to.ports.as_ref(), random, snat.persistent))
            }
            A::Masquerade(_) | A::Redirect(_) if !has_router => {
                return Err(format!("{} needs the router's addresses: give them with --router", action.name()));
            }
            A::Masquerade(masquerade) => {
                let random = masquerade.random || masquerade.random_fully;
                Action::Masquerade(Range::new(&None, masquerade.ports.as_ref(), random, false))
            }
            A::Redirect(redirect) => {
                Action::Redirect(Range::new(&None, redirect.ports.as_ref(), redirect.random, false))
            }
            A::NetMap(map) => Action::NetMap(bits(map.to.address), bits(map.to.mask)),
            A::MarkPacket(mark) => Action::Mark(mark.change),
            A::ConnMarkTarget(mark) => {
                self.machine.tracks = true;
                Action::ConnMark(mark.action)
            }
            A::Ct(ct) => {
                self.machine.tracks |= !ct.not_tracked;
                let unsupported = [
                    ("--helper", ct.helper.is_some()),
                    ("--timeout", ct.timeout.is_some()),
                    ("--zone", ct.zone.is_some()),
                ];
                if let Some((option, _)) = unsupported.iter().find(|(_, given)| *given) {
                    let why = match *option {
                        "--helper" => "no helper follows connections here",
                        "--timeout" => "timeouts are those of the function's configuration",
                        _ => "there is one zone",
                    };
                    return Err(format!("CT {option}: {why}"));
                }
                if ct.not_tracked { Action::NotTracked } else { Action::Nothing }
            }
            A::SetTarget(set) => Action::Set(self.builder.add_target(set)?),
            A::TcpMssChange(change) => Action::Mss(*change),
            A::TtlChange(change) => Action::Ttl(change.0),
            A::HlChange(change) => Action::Ttl(change.0),
            A::DscpChange(change) => Action::Tos { mask: 0xfc, value: change.value << 2 },
            A::TosChange(change) => Action::Tos { mask: change.change.mask, value: change.change.value },
        })
    }
}

/// The state of this bit.
const fn state_of(bit: u8) -> States {
    match bit {
        0 => States::INVALID,
        1 => States::NEW,
        2 => States::RELATED,
        3 => States::ESTABLISHED,
        _ => States::UNTRACKED,
    }
}

impl Range {
    fn new(
        addresses: &Option<iptables::Interval<core::net::IpAddr>>,
        ports: Option<&NatPorts>,
        random: bool,
        persistent: bool,
    ) -> Self {
        Self {
            addresses: addresses.map(|range| (bits(range.first), bits(range.last))),
            ports: ports.map(|ports| (ports.first.min(ports.last), ports.first.max(ports.last))),
            base: ports.and_then(|ports| ports.base),
            random,
            persistent,
        }
    }
}

/// The family's name of a machine, for errors.
pub(super) const fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
