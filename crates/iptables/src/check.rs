//! What the kernel checks when a rule set is loaded: loops, and where matches and targets may be.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::error::{Fault, Located};
use crate::matches::{LimitInterface, Match, TcpFlagsTest};
use crate::names::protocols;
use crate::ruleset::{Hook, Rule, RuleSet, Table, TableKind, Target};
use crate::sets::Sets;
use crate::targets::{Action, RejectWith, TcpMssChange};
use crate::value::{Condition, Family};

/// All errors, with their lines.
pub(crate) fn load(rules: &RuleSet, sets: Option<&Sets>) -> Vec<(u32, Fault)> {
    let mut faults = Vec::new();
    for table in &rules.tables {
        let hooks = match reached(table) {
            Ok(hooks) => hooks,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        for (chain, hooks) in table.chains.iter().zip(hooks) {
            let walked = walked(&chain.rules);
            for (nth, rule) in chain.rules.iter().enumerate() {
                let place = Place {
                    family: rules.family,
                    table: table.kind,
                    hooks: if nth < walked { hooks } else { 0 },
                    rule,
                    sets,
                };
                faults.extend(place.check().err().map(|fault| (rule.at.line, fault)));
            }
        }
    }
    faults
}

/// The number of rules of a chain that the kernel looks at: up to the first that ends the chain for each packet.
fn walked(rules: &[Rule]) -> usize {
    let ends = |rule: &Rule| {
        let is_final = matches!(rule.target.as_deref(), Some(Target::Accept | Target::Drop | Target::Return));
        let tests = rule.source.is_some()
            || rule.destination.is_some()
            || rule.input.is_some()
            || rule.output.is_some()
            || rule.protocol.is_some()
            || rule.fragment.is_some()
            || !rule.matches.is_empty();
        is_final && !tests
    };
    rules.iter().position(ends).map_or(rules.len(), |nth| nth + 1)
}

/// The hooks that each chain is reached from, as bits; or the rule that closes a loop.
fn reached(table: &Table) -> Result<Vec<u8>, (u32, Fault)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Never,
        Open,
        Done,
    }
    let numbers: BTreeMap<&str, usize> =
        table.chains.iter().enumerate().map(|(nth, chain)| (chain.name.as_str(), nth)).collect();
    let jumps = |nth: usize| {
        let rules = &table.chains[nth].rules;
        let walked = rules[..walked(rules)].iter();
        walked.filter_map(|rule| {
            let target = rule.target.as_ref()?;
            Some((*numbers.get(target.chain()?)?, target))
        })
    };
    let targets: Vec<Vec<(usize, &Located<Target>)>> =
        (0..table.chains.len()).map(|nth| jumps(nth).collect()).collect();
    let mut visits = vec![Visit::Never; table.chains.len()];
    let mut finished = Vec::new();
    // Depth first, without recursion: chains on the path with the number of their next jump.
    for (base, _) in table.chains.iter().enumerate().filter(|(_, chain)| chain.base.is_some()) {
        let mut path = vec![(base, 0)];
        visits[base] = Visit::Open;
        while let Some((chain, next)) = path.pop() {
            let Some((to, target)) = targets[chain].get(next) else {
                visits[chain] = Visit::Done;
                finished.push(chain);
                continue;
            };
            path.push((chain, next + 1));
            match visits[*to] {
                Visit::Done => {}
                Visit::Never => {
                    visits[*to] = Visit::Open;
                    path.push((*to, 0));
                }
                Visit::Open => {
                    let what = match *to == chain {
                        true => format!("the chain `{}` leads to itself", target.name()),
                        false => format!("the chain `{}` leads back to itself by this rule", target.name()),
                    };
                    return Err((target.at.line, Fault::load(target.at.column, target.name(), what)));
                }
            }
        }
    }
    let mut hooks: Vec<u8> = table.chains.iter().map(|chain| chain.base.map_or(0, |(hook, _)| hook.bit())).collect();
    // A chain is finished after all chains that it leads to.
    for chain in finished.into_iter().rev() {
        for (to, _) in &targets[chain] {
            hooks[*to] |= hooks[chain];
        }
    }
    Ok(hooks)
}

/// A rule, and where it is.
struct Place<'a> {
    family: Family,
    table: TableKind,
    /// Hooks that reach it; none if the kernel never gets there.
    hooks: u8,
    rule: &'a Rule,
    sets: Option<&'a Sets>,
}

impl Place<'_> {
    fn check(&self) -> Result<(), Fault> {
        for test in &self.rule.matches {
            self.check_match(test)?;
        }
        match &self.rule.target {
            Some(target) => match &target.value {
                Target::Do(action) => self.check_action(target, action),
                Target::Accept | Target::Drop | Target::Return | Target::Jump(_) | Target::Goto(_) => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Refuses other protocols than these.
    fn protocol(&self, at: u32, name: &str, wanted: &[u8]) -> Result<(), Fault> {
        match self.rule.protocol.as_ref().map(|protocol| protocol.value) {
            Some(Condition { negated: false, value }) if wanted.contains(&value) => Ok(()),
            _ => {
                let protocol = wanted.first().and_then(|wanted| protocols::name(*wanted)).unwrap_or("");
                let what = format!("{name} needs `-p {protocol}`");
                Err(Fault::load(at, name, what).instead(format!("write `-p {protocol}` before it")))
            }
        }
    }

    /// Refuses other tables than these.
    fn table(&self, at: u32, name: &str, wanted: &[TableKind]) -> Result<(), Fault> {
        match wanted.contains(&self.table) {
            true => Ok(()),
            false => {
                let names: Vec<&str> = wanted.iter().map(|table| table.name()).collect();
                let names = names.join(" or ");
                let what = format!("{name} can't be in the table {}", self.table.name());
                Err(Fault::load(at, name, what).instead(format!("use the table {names}")))
            }
        }
    }

    /// Refuses a rule that other hooks than these reach.
    fn hooks(&self, at: u32, name: &str, wanted: &[Hook]) -> Result<(), Fault> {
        let allowed = wanted.iter().fold(0, |bits, hook| bits | hook.bit());
        let wrong = self.table.hooks().iter().find(|hook| self.hooks & !allowed & hook.bit() != 0);
        match wrong {
            None => Ok(()),
            Some(hook) => {
                let names: Vec<&str> = wanted.iter().map(|hook| hook.name()).collect();
                let what = format!("{name} can't be where packets of {} come by", hook.name());
                Err(Fault::load(at, name, what).instead(format!("use a chain of {}", names.join(", "))))
            }
        }
    }

    fn check_match(&self, test: &Located<Match>) -> Result<(), Fault> {
        use Hook::{Forward, Input, Output, Postrouting, Prerouting};
        let (at, name) = (test.at.column, test.written_name());
        match &test.value {
            Match::Tcp(_) | Match::TcpMss(_) => self.protocol(at, name, &[protocols::TCP]),
            Match::Udp(_) => self.protocol(at, name, &[protocols::UDP]),
            Match::Sctp(_) => self.protocol(at, name, &[protocols::SCTP]),
            Match::Dccp(_) => self.protocol(at, name, &[protocols::DCCP]),
            Match::Icmp(_) => self.protocol(at, name, &[protocols::ICMP]),
            Match::Icmp6(_) => self.protocol(at, name, &[protocols::ICMP_V6]),
            Match::Esp(_) => self.protocol(at, name, &[protocols::ESP]),
            Match::IpComp(_) => self.protocol(at, name, &[protocols::IPCOMP]),
            Match::Mh(_) => self.protocol(at, name, &[protocols::MH]),
            Match::Ah(_) if self.family == Family::V4 => self.protocol(at, name, &[protocols::AH]),
            Match::Ecn(ecn) if ecn.ece.is_some() || ecn.cwr.is_some() => self.protocol(at, name, &[protocols::TCP]),
            Match::MacSource(_) => self.hooks(at, name, &[Prerouting, Input, Forward]),
            Match::Eui64(_) => self.hooks(at, name, &[Prerouting, Input, Forward]),
            Match::RpFilter(_) => {
                self.table(at, name, &[TableKind::Raw, TableKind::Mangle])?;
                self.hooks(at, name, &[Prerouting])
            }
            Match::Physdev(physdev) => {
                let is_bridged = physdev.is_bridged == Some(false);
                match (physdev.output.is_some() || physdev.is_out.is_some()) && !is_bridged {
                    true => self.hooks(at, "--physdev-out", &[Prerouting, Input, Forward, Postrouting]),
                    false => Ok(()),
                }
            }
            Match::AddrType(types) => {
                match types.limit {
                    Some(LimitInterface::In) => self.hooks(at, "--limit-iface-in", &[Prerouting, Input, Forward])?,
                    Some(LimitInterface::Out) => {
                        self.hooks(at, "--limit-iface-out", &[Forward, Output, Postrouting])?
                    }
                    None => {}
                }
                let missing = ["BROADCAST", "BLACKHOLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"];
                let given = [types.source, types.destination].into_iter().flatten();
                let has = |kind: &&&str| given.clone().any(|types| types.value.contains(kind));
                match missing.iter().find(has).filter(|_| self.family == Family::V6) {
                    Some(kind) => Err(Fault::load(at, kind, format!("IPv6 has no addresses of the kind {kind}"))),
                    None => Ok(()),
                }
            }
            Match::SetTest(set) => self.set(at, &set.set.value.0),
            Match::Multiport(_)
            | Match::Ah(_)
            | Match::Ttl(_)
            | Match::Hl(_)
            | Match::Length(_)
            | Match::Dscp(_)
            | Match::Tos(_)
            | Match::Ecn(_)
            | Match::U32(_)
            | Match::IpRange(_)
            | Match::PktType(_)
            | Match::Frag(_)
            | Match::Hbh(_)
            | Match::Dst(_)
            | Match::Rt(_)
            | Match::Ipv6Header(_)
            | Match::Conntrack(_)
            | Match::ConnMark(_)
            | Match::ConnBytes(_)
            | Match::ConnLimit(_)
            | Match::Helper(_)
            | Match::Limit(_)
            | Match::HashLimit(_)
            | Match::Recent(_)
            | Match::Statistic(_)
            | Match::Quota(_)
            | Match::Time(_)
            | Match::StringMatch(_)
            | Match::Comment(_)
            | Match::MarkTest(_) => Ok(()),
        }
    }

    fn check_action(&self, target: &Located<Target>, action: &Action) -> Result<(), Fault> {
        use Hook::{Forward, Input, Output, Postrouting, Prerouting};
        let (at, name) = (target.at.column, action.written_name());
        match action {
            Action::Reject(reject) => {
                self.table(at, name, &[TableKind::Filter])?;
                match reject.with {
                    RejectWith::TcpReset => self.protocol(at, "tcp-reset", &[protocols::TCP]),
                    RejectWith::Icmp(_) | RejectWith::Icmp6(_) => Ok(()),
                }
            }
            Action::Dnat(_) | Action::Redirect(_) => {
                self.table(at, name, &[TableKind::Nat])?;
                self.hooks(at, name, &[Prerouting, Output])
            }
            Action::Snat(_) => {
                self.table(at, name, &[TableKind::Nat])?;
                self.hooks(at, name, &[Postrouting, Input])
            }
            Action::Masquerade(_) => {
                self.table(at, name, &[TableKind::Nat])?;
                self.hooks(at, name, &[Postrouting])
            }
            Action::NetMap(_) => self.table(at, name, &[TableKind::Nat]),
            Action::Ct(_) | Action::Trace(_) => self.table(at, name, &[TableKind::Raw]),
            Action::TtlChange(_)
            | Action::HlChange(_)
            | Action::DscpChange(_)
            | Action::TosChange(_)
            | Action::Checksum(_) => self.table(at, name, &[TableKind::Mangle]),
            Action::EcnChange(_) | Action::TcpOptStrip(_) => {
                self.table(at, name, &[TableKind::Mangle])?;
                self.protocol(at, name, &[protocols::TCP])
            }
            Action::Classify(_) => self.hooks(at, name, &[Forward, Output, Postrouting]),
            Action::TcpMssChange(change) => {
                self.protocol(at, name, &[protocols::TCP])?;
                if *change == TcpMssChange::ClampToPathMtu {
                    self.hooks(at, "--clamp-mss-to-pmtu", &[Forward, Output, Postrouting])?;
                }
                match self.rule.matches.iter().any(|test| tests_syn(test)) {
                    true => Ok(()),
                    false => {
                        let what = "TCPMSS needs a match for SYN packets".to_owned();
                        Err(Fault::load(at, name, what).instead("write `--tcp-flags SYN,RST SYN` before it"))
                    }
                }
            }
            Action::SetTarget(set) => self.set(at, &set.set),
            Action::Log(_) | Action::NfLog(_) | Action::Tee(_) | Action::MarkPacket(_) | Action::ConnMarkTarget(_) => {
                Ok(())
            }
        }
    }

    fn set(&self, at: u32, name: &str) -> Result<(), Fault> {
        match self.sets {
            Some(sets) if sets.get(name).is_none() => {
                let what = format!("there is no set `{name}`");
                Err(Fault::load(at, name, what).instead("create it in the file of sets"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn tests_syn(test: &Match) -> bool {
    const SYN: u8 = 2;
    let Match::Tcp(tcp) = test else { return false };
    matches!(tcp.flags, Some(Condition { negated: false, value: TcpFlagsTest { set, .. } }) if set & SYN != 0)
}
