//! Rule sets from public repositories, beside the checkout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iptables::{Action, Family, Match, RuleSet, Target};

use super::case::Rules;
use super::layout::Layout;
use super::layout::{masked, networks, usable};
use super::ours_rules::OursRules;
use super::play::parsed;
use super::runner::RuleRunner;
use super::time::{slowed, uncertain};

/// A rule set of the folder.
pub(crate) struct Real {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    pub(crate) parsed: RuleSet,
}

/// The rule sets to compare, and how many are left out for which reason.
#[derive(Default)]
pub(crate) struct Reals {
    pub(crate) sets: Vec<Real>,
    pub(crate) left_out: BTreeMap<String, usize>,
}

/// The folder, if it is there.
pub(crate) fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/rulesets");
    beside.is_dir().then_some(beside)
}

/// Reads `count` rule sets of the folder, evenly spread over those that can be compared.
pub(crate) fn read(folder: &Path, count: usize) -> Reals {
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.tsv")).expect("the folder has a list");
    let mut all = Reals::default();
    for row in manifest.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>()) {
        let (name, family, loads) = (row[0], row[1], row[6]);
        let family = if family == "6" { Family::V6 } else { Family::V4 };
        let text = std::fs::read_to_string(folder.join(name)).expect("the list names files of the folder");
        let not_loaded = || Err("the real tool does not load it".to_owned());
        match if loads == "1" { real(name, family, &text) } else { not_loaded() } {
            Ok(real) => all.sets.push(real),
            Err(why) => *all.left_out.entry(why).or_default() += 1,
        }
    }
    let len = all.sets.len();
    let mut nth = 0;
    all.sets.retain(|_| {
        nth += 1;
        (nth * count) / len != ((nth - 1) * count) / len
    });
    all
}

fn real(name: &str, family: Family, text: &str) -> Result<Real, String> {
    let mut rules = Rules { family, text: slowed(text), sets: String::new() };
    let set = parsed(&rules).map_err(|_| "it has features that Millrace does not read".to_owned())?;
    if let Some(feature) = uncertain(&set) {
        return Err(feature.to_owned());
    }
    rules.sets = sets(&set, family);
    OursRules::new(&Layout::of(&rules, &set)).load(&rules).map_err(|refusal| {
        let what = refusal.lines().find_map(|line| line.splitn(3, ':').nth(2)).unwrap_or(&refusal).trim();
        format!("we refuse it: {what}")
    })?;
    Ok(Real { name: name.to_owned(), rules, parsed: set })
}

/// Sets for the names that the rules use, with every fifth address that the rules name.
fn sets(set: &RuleSet, family: Family) -> String {
    let rules = || set.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    let tested = rules().flat_map(|rule| &rule.matches).filter_map(|test| match &**test {
        Match::SetTest(test) => Some(test.set.value.0.clone()),
        _ => None,
    });
    let changed = rules().filter_map(|rule| match rule.target.as_deref() {
        Some(Target::Do(Action::SetTarget(target))) => Some(target.set.clone()),
        _ => None,
    });
    let mut names: Vec<String> = tested.chain(changed).collect();
    names.sort();
    names.dedup();
    let word = if family == Family::V4 { "inet" } else { "inet6" };
    let mut nets: Vec<_> =
        networks(&set.to_string(), family).into_iter().filter(|(address, _)| usable(*address)).collect();
    nets.sort();
    nets.dedup();
    let mut text = String::new();
    for (nth, name) in names.iter().enumerate() {
        text += &format!("create {name} hash:net family {word}\n");
        for (address, len) in nets.iter().skip(nth % 5).step_by(5).filter(|(_, len)| *len > 0) {
            text += &format!("add {name} {}/{len}\n", masked(*address, *len).0);
        }
    }
    text
}
