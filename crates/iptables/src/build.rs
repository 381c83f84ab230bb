//! Tables while their text is read: commands change them, as iptables changes those of the kernel.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Fault, Located, Position};
use crate::line::{Command, Line};
use crate::ruleset::{Chain, Policy, Rule, Table, TableKind, Target};
use crate::value::Counters;

/// A table that commands change.
#[derive(Debug)]
pub(crate) struct TableBuild {
    pub(crate) kind: TableKind,
    pub(crate) at: Position,
    chains: BTreeMap<String, ChainBuild>,
}

#[derive(Debug, Default)]
struct ChainBuild {
    at: Position,
    is_base: bool,
    policy: Policy,
    counters: Counters,
    /// `None` stands for a rule that is skipped, so that the numbers of the others are right.
    rules: Vec<Option<Box<Rule>>>,
    /// Rules that lead here.
    references: usize,
}

impl TableBuild {
    pub(crate) fn new(kind: TableKind, at: Position) -> Self {
        let base = |hook: &crate::ruleset::Hook| {
            (hook.name().to_owned(), ChainBuild { at, is_base: true, ..ChainBuild::default() })
        };
        Self { kind, at, chains: kind.hooks().iter().map(base).collect() }
    }

    /// Empties it, as iptables-restore does where a table begins. Policies are kept.
    pub(crate) fn clear(&mut self) {
        self.chains.retain(|_, chain| chain.is_base);
        for chain in self.chains.values_mut() {
            chain.rules.clear();
            chain.references = 0;
        }
    }

    /// A user's chain may be the target of a jump.
    pub(crate) fn has_user_chain(&self, name: &str) -> bool {
        self.chains.get(name).is_some_and(|chain| !chain.is_base)
    }

    /// A line `:CHAIN POLICY [packets:bytes]`.
    pub(crate) fn declare(
        &mut self,
        name: &str,
        column: u32,
        at: Position,
        policy: Option<(Policy, u32)>,
        counters: Counters,
    ) -> Result<(), Fault> {
        match self.chains.get_mut(name) {
            Some(chain) if chain.is_base => {
                chain.at = at;
                if let Some((policy, _)) = policy {
                    (chain.policy, chain.counters) = (policy, counters);
                }
                Ok(())
            }
            Some(chain) => {
                let what = format!("the chain `{name}` is there already, since line {}", chain.at.line);
                Err(Fault::syntax(column, name, what))
            }
            None => match policy {
                Some((policy, column)) => {
                    let what = format!("`{name}` is no chain of a hook, so it can't have a policy");
                    Err(Fault::syntax(column, policy.name(), what).instead("write `-`"))
                }
                None => {
                    self.chains.insert(name.to_owned(), ChainBuild { at, ..ChainBuild::default() });
                    Ok(())
                }
            },
        }
    }

    /// Leaves room for a rule that is skipped.
    pub(crate) fn skip(&mut self, chain: &str, number: Option<usize>) {
        if let Some(chain) = self.chains.get_mut(chain) {
            let at = number.map_or(chain.rules.len(), |number| (number - 1).min(chain.rules.len()));
            chain.rules.insert(at, None);
        }
    }

    /// Does what a line says.
    pub(crate) fn apply(&mut self, line: Line, position: Position) -> Result<(), Fault> {
        let Line { command, column, rules, .. } = line;
        let error = |name: &str, what: String| Err(Fault::syntax(column, name, what));
        match command {
            Command::Append { chain } => {
                self.chain(&chain, column)?;
                for rule in rules {
                    self.refer(&rule, true);
                    self.chain(&chain, column)?.rules.push(Some(Box::new(rule)));
                }
            }
            Command::Insert { chain, number } => {
                let count = self.chain(&chain, column)?.rules.len();
                if number > count + 1 {
                    let what = format!("`{chain}` has {count} rules, so none can be inserted as number {number}");
                    return error(&chain, what);
                }
                // Each goes to the same place, so the last one comes first.
                for rule in rules {
                    self.refer(&rule, true);
                    self.chain(&chain, column)?.rules.insert(number - 1, Some(Box::new(rule)));
                }
            }
            Command::Replace { chain, number } => {
                let [rule] = <[Rule; 1]>::try_from(rules).map_err(|_| {
                    let what = "a rule can't be replaced by several: it has a list of addresses".to_owned();
                    Fault::syntax(column, &chain, what)
                })?;
                self.rule(&chain, number, column)?;
                self.refer(&rule, true);
                let old = self.chain(&chain, column)?.rules[number - 1].replace(Box::new(rule));
                if let Some(old) = old {
                    self.refer(&old, false);
                }
            }
            Command::Delete { chain } => {
                for rule in rules {
                    let list = &mut self.chain(&chain, column)?.rules;
                    let Some(at) = list.iter().position(|old| old.as_deref() == Some(&rule)) else {
                        return error(&chain, format!("`{chain}` has no such rule"));
                    };
                    if let Some(old) = list.remove(at) {
                        self.refer(&old, false);
                    }
                }
            }
            Command::DeleteNumber { chain, number } => {
                self.rule(&chain, number, column)?;
                if let Some(old) = self.chain(&chain, column)?.rules.remove(number - 1) {
                    self.refer(&old, false);
                }
            }
            Command::New { chain } => {
                if let Some(old) = self.chains.get(&chain) {
                    let what = match old.is_base {
                        true => format!("the chain `{chain}` is there always"),
                        false => format!("the chain `{chain}` is there already, since line {}", old.at.line),
                    };
                    return error(&chain, what);
                }
                self.chains.insert(chain, ChainBuild { at: position, ..ChainBuild::default() });
            }
            Command::DeleteChain { chain: Some(chain) } => {
                let old = self.chain(&chain, column)?;
                let wrong = match old {
                    ChainBuild { is_base: true, .. } => Some("it belongs to a hook"),
                    ChainBuild { rules, .. } if !rules.is_empty() => Some("it has rules"),
                    ChainBuild { references: 1.., .. } => Some("rules lead to it"),
                    ChainBuild { .. } => None,
                };
                if let Some(reason) = wrong {
                    return error(&chain, format!("the chain `{chain}` can't be deleted: {reason}"));
                }
                self.chains.remove(&chain);
            }
            Command::DeleteChain { chain: None } => {
                let kept = |chain: &ChainBuild| chain.is_base || chain.references > 0 || !chain.rules.is_empty();
                if let Some((name, _)) = self.chains.iter().find(|(_, chain)| !chain.is_base && kept(chain)) {
                    let what = format!("the chain `{name}` can't be deleted: it has rules, or rules lead to it");
                    return error(name, what);
                }
                self.chains.retain(|_, chain| kept(chain));
            }
            Command::Flush { chain } => {
                let names = self.named(chain, column)?;
                for name in names {
                    let rules = core::mem::take(&mut self.chain(&name, column)?.rules);
                    for rule in rules.into_iter().flatten() {
                        self.refer(&rule, false);
                    }
                }
            }
            Command::Zero { chain } => {
                let names = self.named(chain, column)?;
                for name in names {
                    let chain = self.chain(&name, column)?;
                    chain.counters = Counters::default();
                    chain.rules.iter_mut().flatten().for_each(|rule| rule.counters = Counters::default());
                }
            }
            Command::Rename { from, to } => {
                if self.chain(&from, column)?.is_base {
                    return error(&from, format!("the chain `{from}` belongs to a hook, so it keeps its name"));
                }
                if self.chains.contains_key(&to) {
                    return error(&to, format!("the chain `{to}` is there already"));
                }
                self.rename(&from, to);
            }
            Command::Policy { chain, policy } => {
                let old = self.chain(&chain, column)?;
                if !old.is_base {
                    let what = format!("`{chain}` is no chain of a hook, so it can't have a policy");
                    return error(&chain, what);
                }
                old.policy = policy;
            }
            Command::Look => {}
        }
        Ok(())
    }

    fn chain(&mut self, name: &str, column: u32) -> Result<&mut ChainBuild, Fault> {
        let table = self.kind.name();
        self.chains.get_mut(name).ok_or_else(|| {
            let what = format!("there is no chain `{name}` in the table {table}");
            Fault::syntax(column, name, what).instead("declare it before")
        })
    }

    /// Refuses the number of a rule that a chain doesn't have.
    fn rule(&mut self, name: &str, number: usize, column: u32) -> Result<(), Fault> {
        match self.chain(name, column)?.rules.len() {
            count if number <= count => Ok(()),
            count => {
                let what = format!("`{name}` has {count} rules, so there is no number {number}");
                Err(Fault::syntax(column, name, what))
            }
        }
    }

    /// The chain of this name, or all.
    fn named(&mut self, name: Option<String>, column: u32) -> Result<Vec<String>, Fault> {
        match name {
            Some(name) => self.chain(&name, column).map(|_| alloc::vec![name.clone()]),
            None => Ok(self.chains.keys().cloned().collect()),
        }
    }

    /// Counts a rule that leads to a chain, or counts it no longer.
    fn refer(&mut self, rule: &Rule, comes: bool) {
        let target = rule.target.as_deref().and_then(Target::chain);
        if let Some(chain) = target.and_then(|name| self.chains.get_mut(name)) {
            match comes {
                true => chain.references += 1,
                false => chain.references = chain.references.saturating_sub(1),
            }
        }
    }

    fn rename(&mut self, from: &str, to: String) {
        let rules = self.chains.values_mut().flat_map(|chain| chain.rules.iter_mut().flatten());
        for rule in rules {
            if let Some(Located { value: Target::Jump(chain) | Target::Goto(chain), .. }) = &mut rule.target
                && chain == from
            {
                chain.clone_from(&to);
            }
        }
        if let Some(chain) = self.chains.remove(from) {
            self.chains.insert(to, chain);
        }
    }

    pub(crate) fn finish(mut self) -> Table {
        let chain = |name: String, build: ChainBuild, hook| Chain {
            name,
            base: Option::map(hook, |hook| (hook, build.policy)),
            counters: build.counters,
            at: build.at,
            rules: build.rules.into_iter().flatten().map(|rule| *rule).collect(),
        };
        let hooks = self.kind.hooks().iter();
        let mut chains: Vec<Chain> = hooks
            .filter_map(|hook| {
                self.chains.remove(hook.name()).map(|build| chain(hook.name().to_owned(), build, Some(*hook)))
            })
            .collect();
        chains.extend(self.chains.into_iter().map(|(name, build)| chain(name, build, None)));
        Table { kind: self.kind, at: self.at, chains }
    }
}
