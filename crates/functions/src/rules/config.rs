//! The configuration, and what is made of it.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use iptables::{Error, Family, OTHER_FAMILY, Options, Position, RuleSet, Sets, parse};
use nf::ConfigKey;
use serde::Deserialize;

use super::compile::{Refusal, family_name, in_order};
use super::machine::{Check, Machine};
use super::router::{Paths, Router};
use super::sets::SetContents;
use super::stateful::{Shapes, Stateful, changing};
use super::test::Environment;
use crate::config::FlowCount;
use crate::tracking::rules::{Retransmissions, TIMEOUT_KEYS, join_keys};
use crate::tracking::{Rules as Tracking, Timeouts};

/// The configuration of [`Rules`](super::Rules).
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Config {
    given: Given,
    compiled: Arc<Compiled>,
}

/// Two configurations are equal if the same is given.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.given == other.given
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::try_from(Given::default()).expect("no rules can't be wrong")
    }
}

/// The configuration as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Given {
    rules: String,
    rules_v6: String,
    sets: String,
    router: Router,
    skip_unsupported: bool,
    checksums: bool,
    connections: Least,
    loose: bool,
    liberal: bool,
    max_retransmissions: Retransmissions,
    flows: FlowCount,
    flows_v6: FlowCount,
    timeouts: Timeouts,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            rules: String::new(),
            rules_v6: String::new(),
            sets: String::new(),
            router: Router::default(),
            skip_unsupported: false,
            checksums: true,
            connections: Least::AsNeeded,
            loose: true,
            liberal: false,
            max_retransmissions: Retransmissions::new(3),
            flows: FlowCount::new(1_048_576),
            flows_v6: FlowCount::new(65_536),
            timeouts: Timeouts::default(),
        }
    }
}

pub(super) const KEYS: [ConfigKey; 27] = join_keys(
    &[
        key(
            "rules",
            "\"\"",
            "rules of IPv4 as iptables-save prints them, or as command lines; --rules FILE reads a file",
        ),
        key("rules_v6", "\"\"", "rules of IPv6, as ip6tables-save prints them; --rules-v6 FILE reads a file"),
        key("sets", "\"\"", "the sets that rules name, as ipset save prints them; --sets FILE reads a file"),
        key("router", "{}", "interfaces, routes and neighbours (docs/iptables.md); --router FILE reads a file"),
        key("skip_unsupported", "false", "leave out rules that iptables takes and Millrace can't read"),
        key("checksums", "true", "packets with wrong checksums are invalid to the tracker"),
        key(
            "connections",
            "\"as needed\"",
            "what the rules need of the tracker, or at least \"tracked\" or \"rewritten\", so that later rules can take over",
        ),
        key("loose", "true", "a segment with only ACK may pick up a TCP connection midstream"),
        key("liberal", "false", "TCP segments outside the windows are valid, except resets before the window"),
        key(
            "max_retransmissions",
            "3",
            "number of repetitions of one TCP segment from which timeouts.tcp_retransmitted applies, 1 to 255",
        ),
        key("flows", "1048576", "maximum number of IPv4 connections, 1 to 268435456"),
        key("flows_v6", "65536", "maximum number of IPv6 connections, 1 to 268435456"),
    ],
    &TIMEOUT_KEYS,
);

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

/// The least that is kept of connections, whatever the rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Least {
    /// Nothing more than the rules need.
    #[serde(rename = "as needed")]
    AsNeeded,
    /// Connections are tracked.
    #[serde(rename = "tracked")]
    Tracked,
    /// Connections are tracked, and their addresses can be rewritten.
    #[serde(rename = "rewritten")]
    Rewritten,
}

/// The rule sets in the form that runs.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// One more with each rule set that has succeeded another in a run.
    pub(super) generation: u16,
    /// By family: IPv4, IPv6.
    pub(super) machines: [Machine; 2],
    pub(super) sets: [Option<RuleSet>; 2],
    pub(super) shapes: [Shapes; 2],
    pub(super) environment: Environment,
    pub(super) tracking: Tracking,
    pub(super) place: Place,
    pub(super) hindrances: Vec<Hindrance>,
    /// The lines that were left out, each with the reason.
    pub(super) skipped: Vec<String>,
    pub(super) tracks: bool,
    /// The configuration asks for checksums to be checked.
    wants_checksums: bool,
    /// Checksums are checked.
    pub(super) checksums: bool,
    pub(super) limits_connections: bool,
    pub(super) flows: usize,
    pub(super) flows_v6: usize,
}

/// The place of the connections; with it, what packet sets share, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is tracked.
    Nowhere(Option<&'static str>),
    /// Connections are flows of the engine.
    Flow(Option<&'static str>),
    /// Connections are in tables that packet sets share.
    Table(&'static str),
}

/// A rule because of which packet sets share state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hindrance {
    /// The family of the rule.
    pub family: Family,
    /// The place of the rule in the text.
    pub at: Position,
    /// The state that is shared.
    pub what: &'static str,
    /// The rule.
    pub rule: String,
}

impl Config {
    /// The configuration for a rule set alone, on a router that has the interfaces which the rules name.
    ///
    /// # Errors
    /// What can't be read or run, a line each.
    pub fn of_rules(text: &str, rules: &RuleSet, sets: &str, skips: bool) -> Result<Self, String> {
        let (mut v4, mut v6) = (String::new(), String::new());
        *if rules.family == Family::V6 { &mut v6 } else { &mut v4 } = text.into();
        let router = Router::of_names(rules);
        let given =
            Given { rules: v4, rules_v6: v6, sets: sets.into(), router, skip_unsupported: skips, ..Given::default() };
        Self::try_from(given)
    }

    pub(super) const fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }
}

impl TryFrom<Given> for Config {
    type Error = String;

    /// Names what can't be read or run, a line each.
    fn try_from(given: Given) -> Result<Self, String> {
        let compiled = Compiled::of(&given)?;
        Ok(Self { given, compiled: Arc::new(compiled) })
    }
}

/// The most errors that are named.
const ERRORS_MAX: usize = 20;

impl Compiled {
    fn of(given: &Given) -> Result<Self, String> {
        let paths = Paths::new(&given.router)?;
        let sets = Sets::parse(&given.sets, "sets").map_err(|errors| errors.to_string())?;
        let names_sets = !given.sets.trim().is_empty();
        let mut skipped = Vec::new();
        let mut read = |text: &str, family: Family, name: &str| {
            if text.trim().is_empty() {
                return Ok(None);
            }
            let for_other_family = match family {
                Family::V4 => "give rules of IPv6 with --rules-v6 (the key `rules_v6`)",
                Family::V6 => "give rules of IPv4 with --rules (the key `rules`)",
            };
            let options = Options {
                name,
                family: Some(family),
                skip_unsupported: given.skip_unsupported,
                sets: names_sets.then_some(&sets),
                errors_max: ERRORS_MAX,
                for_other_family,
            };
            let parsed = parse(text, &options).map_err(|errors| errors.to_string())?;
            // One text with the commands of both families is read for each of them.
            let is_read = |error: &&Error| given.rules == given.rules_v6 && error.feature == OTHER_FAMILY;
            skipped.extend(parsed.skipped.iter().filter(|error| !is_read(error)).map(ToString::to_string));
            Ok::<_, String>(Some(parsed.rules))
        };
        let mut rules = [read(&given.rules, Family::V4, "rules")?, read(&given.rules_v6, Family::V6, "rules_v6")?];
        let changed: BTreeSet<&str> = rules.iter().flatten().flat_map(changing).collect();
        let contents = SetContents::new(&sets, &paths, &changed)?;
        let environment = Environment { paths, sets: contents };
        let mut machines = Vec::new();
        let mut shapes = Vec::new();
        for (rules, family) in rules.iter_mut().zip([Family::V4, Family::V6]) {
            let mut empty = RuleSet { family, tables: Vec::new() };
            let rules = rules.as_mut().unwrap_or(&mut empty);
            let mut compiled = Machine::compile(rules, &environment, &sets);
            if let Err(refused) = &compiled
                && given.skip_unsupported
            {
                skipped.extend(told(refused, family).lines().map(String::from));
                leave_out(rules, refused);
                compiled = Machine::compile(rules, &environment, &sets);
            }
            let (machine, shape) = compiled.map_err(|refused| told(&refused, family))?;
            machines.push(machine);
            shapes.push(shape);
        }
        let (Ok(machines), Ok(shapes)) = (<[Machine; 2]>::try_from(machines), <[Shapes; 2]>::try_from(shapes)) else {
            unreachable!("two families were compiled");
        };
        let mut tracking = Tracking::strict(&given.timeouts, given.max_retransmissions);
        (tracking.tcp.loose, tracking.tcp.liberal) = (given.loose, given.liberal);
        let hindrances = hindrances(&machines, &rules);
        let tracks = given.connections > Least::AsNeeded || machines.iter().any(|machine| machine.tracks);
        let limits_connections = shapes.iter().any(|shape| !shape.groups.is_empty());
        let shared = hindrances.first().map(|first| first.what);
        let place = match shared {
            _ if machines.iter().any(|machine| machine.translates) => {
                Place::Table("connections with rewritten addresses")
            }
            _ if limits_connections => Place::Table("the number of connections of a group"),
            _ if given.connections == Least::Rewritten => Place::Table("connections that may be rewritten"),
            shared if tracks => Place::Flow(shared),
            shared => Place::Nowhere(shared),
        };
        let wants_checksums = given.checksums;
        let checksums = wants_checksums && (tracks || machines.iter().any(Machine::rejects));
        Ok(Self {
            generation: 0,
            machines,
            sets: rules,
            shapes,
            environment,
            tracking,
            place,
            hindrances,
            skipped,
            tracks,
            wants_checksums,
            checksums,
            limits_connections,
            flows: given.flows.get() as usize,
            flows_v6: given.flows_v6.get() as usize,
        })
    }
}

impl Compiled {
    /// The rule sets in place of `old` in a run that goes on, with the connections where they are.
    pub(super) fn succeed(&self, old: &Self) -> Result<Self, String> {
        let mut new = self.clone();
        // 0 is that of rules that succeed none.
        new.generation = old.generation.checked_add(1).unwrap_or(1);
        new.place = match (old.place, self.place) {
            (Place::Table(what), Place::Flow(_) | Place::Nowhere(_)) => Place::Table(what),
            (Place::Flow(_), Place::Nowhere(shared)) => Place::Flow(shared),
            (Place::Table(_), Place::Table(_))
            | (Place::Flow(_), Place::Flow(_))
            | (Place::Nowhere(_), Place::Nowhere(_)) => self.place,
            (Place::Nowhere(_), Place::Flow(_)) => {
                return Err(
                    "the new rules track connections, and the running ones don't: begin with connections = \"tracked\""
                        .into(),
                );
            }
            (Place::Flow(_) | Place::Nowhere(_), Place::Table(what)) => {
                return Err(format!(
                    "the new rules need {what}, and the running ones don't: begin with connections = \"rewritten\""
                ));
            }
        };
        if (new.flows, new.flows_v6) != (old.flows, old.flows_v6) {
            return Err(
                "the tables of connections keep their sizes while packets flow: flows and flows_v6 can't change".into(),
            );
        }
        new.tracks |= old.tracks;
        new.checksums |= new.wants_checksums && new.tracks;
        for (new, old) in new.machines.iter_mut().zip(&old.machines) {
            // Connections that were rewritten still are.
            new.tracks |= old.tracks;
            new.has_nat |= old.has_nat;
            new.translates |= old.translates;
        }
        Ok(new)
    }
}

impl Compiled {
    /// What these rules have of those before them, as words.
    pub(super) fn inherited(&self) -> Vec<u64> {
        if self.generation == 0 {
            return Vec::new();
        }
        let place: u64 = match self.place {
            Place::Nowhere(_) => 0,
            Place::Flow(_) => 1,
            Place::Table(_) => 2,
        };
        let machine = |machine: &Machine| {
            u64::from(machine.tracks) | u64::from(machine.has_nat) << 1 | u64::from(machine.translates) << 2
        };
        let [v4, v6] = [0, 1].map(|family| machine(&self.machines[family]));
        [self.generation.into(), place, u64::from(self.tracks) | u64::from(self.checksums) << 1, v4, v6].into()
    }

    /// These rules with what others of the same text have inherited.
    pub(super) fn inherit(&self, words: &[u64]) -> Option<Self> {
        let &[generation, place, bits, v4, v6] = words else { return None };
        let mut new = self.clone();
        new.generation = u16::try_from(generation).ok()?;
        new.place = match (place, self.place) {
            (0, Place::Nowhere(_)) | (1, Place::Flow(_)) | (2, Place::Table(_)) => self.place,
            (1, Place::Nowhere(shared)) => Place::Flow(shared),
            (2, Place::Nowhere(_) | Place::Flow(_)) => Place::Table("connections that may be rewritten"),
            _ => return None,
        };
        (new.tracks, new.checksums) = (bits & 1 != 0, bits & 2 != 0);
        for (machine, bits) in new.machines.iter_mut().zip([v4, v6]) {
            (machine.tracks, machine.has_nat, machine.translates) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        }
        Some(new)
    }
}

/// Takes refused rules out of a rule set.
fn leave_out(rules: &mut RuleSet, refused: &[Refusal]) {
    let lines: BTreeSet<u32> = refused.iter().map(|refusal| refusal.at.line).collect();
    for chain in rules.tables.iter_mut().flat_map(|table| &mut table.chains) {
        chain.rules.retain(|rule| !lines.contains(&rule.at.line));
    }
}

/// Errors as text, a line each.
fn told(refused: &[Refusal], family: Family) -> String {
    let name = if family == Family::V4 { "rules" } else { "rules_v6" };
    let mut lines: Vec<String> = refused.iter().take(ERRORS_MAX).map(|refusal| format!("{name}:{refusal}")).collect();
    let more = refused.len() - lines.len();
    if more > 0 {
        lines.push(format!("and {more} more of {}", family_name(family)));
    }
    lines.join("\n")
}

/// The rules because of which packet sets share state.
fn hindrances(machines: &[Machine; 2], sets: &[Option<RuleSet>; 2]) -> Vec<Hindrance> {
    let mut all = Vec::new();
    for (machine, rules) in machines.iter().zip(sets) {
        let Some(rules) = rules else { continue };
        for (number, (_, _, rule)) in in_order(rules).enumerate() {
            let compiled = &machine.rules[number];
            let (first, end) = compiled.checks;
            let stateful = machine.checks[first as usize..end as usize].iter().filter_map(|check| match check {
                Check::Stateful(number) => machine.stateful[*number as usize].shares(),
                _ => None,
            });
            let action = machine.shares(compiled.target);
            all.extend(stateful.chain(action).map(|what| Hindrance {
                family: rules.family,
                at: rule.at,
                what,
                rule: rule.to_string().trim_start().to_string(),
            }));
        }
    }
    all
}

impl Stateful {
    /// The state that packet sets share because of it.
    const fn shares(&self) -> Option<&'static str> {
        Some(match self {
            Self::Limit { .. } => "the bucket of `limit`",
            Self::HashLimit { .. } => "the buckets of `hashlimit`",
            Self::Recent { .. } => "a list of `recent`",
            Self::Nth { .. } => "the counter of `statistic --mode nth`",
            Self::Quota { .. } => "the bytes left of `quota`",
            Self::ConnLimit { .. } => "the number of connections of a group",
            Self::Member { .. } | Self::Change { .. } => "a set that rules change",
            Self::Random { .. } => return None,
        })
    }
}
