//! Compares the function that runs rule sets of iptables with the kernel: for the same packets, the same packets out and the same counters.
//!
//! ```text
//! cargo test -p millrace-testkit --test netfilter rules:: -- --nocapture
//! ```
//!
//! A sample by default: the cases of `rules/facts.txt`, a few rule sets of `../shared/rulesets`, and random ones. `MILLRACE_DEEP=1` takes 200
//! of the folder, and thousands of random ones. A case that fails is made as small as it gets, and printed.
//!
//! Time is real in the kernel, so rates are rewritten to some packets an hour (`time.rs`). Ports that the kernel chooses at random are compared
//! up to a renaming (`compare.rs`).

mod case;
mod compare;
mod facts;
mod kernel_rules;
mod layout;
mod ours_rules;
mod play;
mod random;
mod real;
mod runner;
mod shrink;
mod time;
mod traffic;

use std::net::IpAddr;
use std::time::Instant;

use case::{Rules, Step};
use iptables::{Family, RuleSet};
use kernel_rules::{KernelRules, Tool};
use layout::Layout;
use millrace_testkit::Rng;
use play::{Match, Tally, parsed, report};
use runner::RuleRunner;
use traffic::Traffic;

use crate::craft;

/// The seed of all packets and random rule sets.
const SEED: u64 = 0x1ab5;

/// Most differences that one test reports.
const REPORTS_MAX: usize = 5;

/// The kernel and the side that is compared with it.
struct Sides {
    layout: Layout,
    kernel: KernelRules,
    ours: Box<dyn RuleRunner>,
    tally: Tally,
    /// Rule sets that differed once, and not again.
    by_chance: usize,
}

impl Sides {
    /// Creates both.
    fn new(label: &str, layout: Layout, family: Family, tool: Tool) -> Self {
        let kernel = KernelRules::new(label, &layout, family, tool);
        let kernel = kernel.unwrap_or_else(|error| panic!("the namespaces can't be set up: {error}"));
        let ours = Box::new(ours_rules::OursRules::new(&layout));
        Self { kernel, ours, layout, tally: Tally::default(), by_chance: 0 }
    }

    fn sides(&mut self) -> Match<'_> {
        Match { layout: &self.layout, kernel: &mut self.kernel, ours: &mut *self.ours, tally: &mut self.tally }
    }

    /// Compares a rule set by `count` packets of a seed. Returns a report of the smallest failing case. A difference that the same packets
    /// don't show again is by chance, as the kernel chooses some ports at random.
    fn compare(&mut self, name: &str, rules: &Rules, set: &RuleSet, seed: u64, count: usize) -> Result<(), String> {
        let layout = self.layout.clone();
        self.sides().load(rules).map_err(|what| format!("{name}: {what}"))?;
        let mut traffic = Traffic::new(seed, rules, set, &layout);
        let (steps, Some(difference)) = self.sides().generate(set, &mut traffic, count) else { return Ok(()) };
        match shrink::shrink(&mut self.sides(), rules, &steps) {
            Some((rules, steps, difference)) => Err(report(name, &rules, &layout, &steps, &difference)),
            None => {
                eprintln!(
                    "{}  The same packets again make no difference.",
                    report(name, rules, &layout, &steps, &difference)
                );
                self.by_chance += 1;
                Ok(())
            }
        }
    }
}

/// The kernel's tool, or a note that the test is skipped.
fn tool() -> Option<Tool> {
    if let Some(missing) = millrace_testkit::netns::missing(&["ip", "nft", "ethtool", "ipset"]) {
        eprintln!("SKIPPED (needs root / ip / nft / ethtool / ipset / iptables: no {missing})");
        return None;
    }
    let tool = KernelRules::tool();
    if tool.is_none() {
        eprintln!("SKIPPED (needs iptables: no iptables-legacy-restore or iptables-nft-restore)");
    }
    tool
}

fn is_deep() -> bool {
    std::env::var_os("MILLRACE_DEEP").is_some()
}

#[test]
fn facts_hold() {
    let Some(tool) = tool() else { return };
    let facts = facts::read(include_str!("rules/facts.txt"));
    let layout = facts::layout();
    let mut sides = Sides::new("facts", layout.clone(), Family::V4, tool);
    let mut wrong = Vec::new();
    for fact in &facts {
        let name = &fact.name;
        if let Err(what) = sides.sides().load(&fact.rules) {
            wrong.push(format!("{name}: {what}"));
            continue;
        }
        let set = parsed(&fact.rules).unwrap_or_else(|what| panic!("{name}: {what}"));
        let (outcomes, difference) = sides.sides().outcomes(&set, &fact.steps);
        for ((line, expected), outcome) in fact.expected.iter().zip(&outcomes) {
            if let Some(what) = expected.complaint(outcome) {
                wrong.push(format!("{name}: {line}\n    the kernel: {what}"));
            }
        }
        let counters = sides.kernel.counters();
        let complaints = fact.counts.iter().filter_map(|count| count.complaint(&counters));
        wrong.extend(complaints.map(|what| format!("{name}: {what}")));
        wrong.extend(difference.map(|difference| report(name, &fact.rules, &layout, &fact.steps, &difference)));
        wrong.extend(sides.ours.engines_agree().err().map(|what| format!("{name}: {what}")));
    }
    let steps: usize = facts.iter().map(|fact| fact.steps.len()).sum();
    eprintln!("rules: {} cases by hand, {steps} packets", facts.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Fragments in any order, with copies, overlaps and other ends: the same datagrams come out, in the same fragments.
#[test]
fn fragments_are_gathered_as_in_the_kernel() {
    let Some(tool) = tool() else { return };
    let layout = facts::layout();
    let mut sides = Sides::new("fragments", layout, Family::V4, tool);
    let text = "*filter\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n".to_owned();
    let rules = Rules { family: Family::V4, text, sets: String::new() };
    sides.sides().load(&rules).expect("it loads");
    let set = parsed(&rules).expect("it is well-formed");
    let mut rng = Rng::new(SEED);
    // So few that what stays incomplete finds room on both sides.
    let datagrams = if is_deep() { 3_000 } else { 1_000 };
    let steps: Vec<_> = (0..datagrams).flat_map(|id| fragments(id as u16, &mut rng)).enumerate().collect();
    let (outcomes, difference) = sides.sides().outcomes(&set, &steps);
    if let Some(difference) = difference {
        let at = difference.step.unwrap_or(0);
        let before = &steps[at.saturating_sub(12)..=at];
        panic!("{}", report("fragments", &rules, &sides.layout, before, &difference));
    }
    let gathered = outcomes.iter().filter(|outcome| !outcome.left.is_empty()).count();
    eprintln!("rules: {} fragments, {gathered} of {datagrams} datagrams came out", steps.len());
    assert!((datagrams / 5..datagrams * 9 / 10).contains(&gathered), "{gathered} datagrams came out");
}

/// A datagram in fragments.
fn fragments(id: u16, rng: &mut Rng) -> Vec<Step> {
    let (src, dst) = ((IpAddr::from([10, 0, 0, 2 + (id % 100) as u8]), 1000), (IpAddr::from([8, 0, 0, 5]), 53));
    // UDP has a length, which another end would make wrong.
    let (len, has_ends) = (40 + rng.below(200) as usize, rng.chance(0.1));
    let mut packet = if has_ends { craft::ip(src.0, dst.0, 99, &vec![7; len]) } else { craft::udp(src, dst, len) };
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    let payload = packet.len() - 20;
    let units = payload / 8;
    let mut cuts: Vec<usize> = (0..1 + rng.below(4)).map(|_| 8 * (1 + rng.below(units as u64 - 1) as usize)).collect();
    cuts.extend([0, payload]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut all: Vec<_> = cuts.windows(2).map(|ends| craft::fragment(&packet, ends[0], ends[1] - ends[0])).collect();
    for _ in 0..rng.below(3) {
        all.push(all[rng.below(all.len() as u64) as usize].clone());
    }
    if rng.chance(0.4) {
        let start = 8 * rng.below(units as u64) as usize;
        let len = 8 * (1 + rng.below(6) as usize);
        if start > 0 || len < payload {
            all.push(craft::fragment(&packet, start, len));
        }
    }
    if has_ends {
        let end = 8 * (2 + rng.below(units as u64 - 2) as usize);
        all.push(craft::fragment(&packet[..20 + end], 8, end));
    }
    for at in (1..all.len()).rev().filter(|_| !id.is_multiple_of(3)) {
        all.swap(at, rng.below(at as u64 + 1) as usize);
    }
    // Interface e2 of the layout is the sender's.
    all.into_iter().map(|packet| Step::Send { from: 2, packet }).collect()
}

#[test]
fn real_rule_sets_do_as_in_the_kernel() {
    let Some(tool) = tool() else { return };
    let Some(folder) = real::folder() else {
        eprintln!("SKIPPED (no ../shared/rulesets)");
        return;
    };
    let (sets, count) = if is_deep() { (200, 500) } else { (12, 300) };
    let reals = real::read(&folder, sets);
    let (mut wrong, mut tally, mut by_chance, start) = (Vec::new(), Tally::default(), 0, Instant::now());
    for (nth, real) in reals.sets.iter().enumerate() {
        let layout = Layout::of(&real.rules, &real.parsed);
        let mut sides = Sides::new("real", layout, real.rules.family, tool);
        sides.tally = tally;
        wrong.extend(sides.compare(&real.name, &real.rules, &real.parsed, SEED + nth as u64, count).err());
        wrong.extend(sides.ours.engines_agree().err().map(|what| format!("{}: {what}", real.name)));
        (tally, by_chance) = (sides.tally, by_chance + sides.by_chance);
        if wrong.len() >= REPORTS_MAX {
            break;
        }
    }
    eprintln!("rules: {} real rule sets, {tally}, {:.1?}", reals.sets.len(), start.elapsed());
    for (why, count) in &reals.left_out {
        eprintln!("rules: {count} real rule sets left out: {why}");
    }
    check_chance(by_chance, reals.sets.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn random_rule_sets_do_as_in_the_kernel() {
    let Some(tool) = tool() else { return };
    let layout = Layout::plain(&random::INTERFACES.map(str::to_owned), Family::V4);
    let mut sides = Sides::new("random", layout, Family::V4, tool);
    let (sets, count) = match (is_deep(), tool) {
        (true, _) => (10_000, 80),
        (false, Tool::Legacy) => (600, 60),
        // It takes ten times as long to load rules.
        (false, Tool::Nft) => (60, 60),
    };
    let (mut wrong, start) = (Vec::new(), Instant::now());
    for seed in (0..sets).map(|nth| SEED + nth) {
        let rules = random::rules(seed);
        let name = format!("random rule set {seed}");
        let set = parsed(&rules).unwrap_or_else(|what| panic!("{name}: {what}\n{}", rules.text));
        wrong.extend(sides.compare(&name, &rules, &set, seed, count).err());
        if wrong.len() >= REPORTS_MAX {
            break;
        }
    }
    eprintln!("rules: {sets} random rule sets, {}, {:.1?}", sides.tally, start.elapsed());
    check_chance(sides.by_chance, sets as usize);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Checks that few of the rule sets differed once and not again: so few hide no difference that is always there.
fn check_chance(by_chance: usize, sets: usize) {
    assert!(by_chance <= 1 + sets / 200, "{by_chance} of {sets} rule sets differed once, and not again");
}

/// Two routers of the kernel must not differ. A rule that is another on one of them must be found, and nothing else of the rule set remain.
#[test]
fn only_a_planted_difference_is_found() {
    let Some(tool) = tool() else { return };
    let layout = Layout::plain(&random::INTERFACES.map(str::to_owned), Family::V4);
    let new = |label| KernelRules::new(label, &layout, Family::V4, tool).expect("the namespaces can be set up");
    let (mut kernel, rule) = (new("planted"), "-A FORWARD -p udp -m udp --dport 81 -j DROP");
    let mut other = Changed { inner: new("planted-2"), from: rule, to: rule };
    let others: String = (1..20).map(|nth| format!("-A FORWARD -s 198.51.100.{nth} -j ACCEPT\n")).collect();
    let nat = "*nat\n-A POSTROUTING -o eth0 -j MASQUERADE\nCOMMIT\n";
    let text = format!("*filter\n{others}{rule}\n-A FORWARD -p udp -j ACCEPT\nCOMMIT\n{nat}");
    let rules = Rules { family: Family::V4, text, sets: String::new() };
    let set = parsed(&rules).expect("it is well-formed");
    let mut generate = |other: &mut Changed| {
        let mut tally = Tally::default();
        let mut sides = Match { layout: &layout, kernel: &mut kernel, ours: other, tally: &mut tally };
        sides.load(&rules).expect("it loads");
        let (steps, difference) = sides.generate(&set, &mut Traffic::new(SEED, &rules, &set, &layout), 500);
        let by_packet = difference.as_ref().is_some_and(|difference| difference.step.is_some());
        difference.map(|_| (by_packet, shrink::shrink(&mut sides, &rules, &steps)))
    };
    assert!(generate(&mut other).is_none(), "two routers of the kernel differ");
    other.to = "-A FORWARD -p udp -m udp --dport 81 -j ACCEPT";
    let Some((true, Some((small, steps, _)))) = generate(&mut other) else { panic!("no packet shows the other rule") };
    assert_eq!((small.text, steps.len()), (format!("*filter\n{rule}\nCOMMIT\n*nat\nCOMMIT\n"), 1));
}

/// A runner with some words of its rule sets changed.
struct Changed {
    inner: KernelRules,
    from: &'static str,
    to: &'static str,
}

impl RuleRunner for Changed {
    fn load(&mut self, rules: &Rules) -> Result<(), String> {
        self.inner.load(&Rules { text: rules.text.replace(self.from, self.to), ..rules.clone() })
    }

    fn inject(&mut self, from: usize, packet: &[u8]) -> runner::Outcome {
        self.inner.inject(from, packet)
    }

    fn counters(&mut self) -> RuleSet {
        self.inner.counters()
    }
}
