//! Arguments for engines, cores and seeds.

use std::fmt;
use std::ops::RangeInclusive;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::EngineKind;

use super::failure::Failed;
use super::word;
use crate::print::number;
use nf::Description;

/// An engine, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Auto,
    One(EngineKind),
}

/// Parses an engine's name or `auto`.
pub(super) fn wanted() -> impl TypedValueParser<Value = Wanted> {
    let names = EngineKind::ALL.map(EngineKind::name);
    PossibleValuesParser::new([&["auto"], names.as_slice()].concat())
        .map(|name| EngineKind::from_name(&name).map_or(Wanted::Auto, Wanted::One))
}

/// One engine of a list, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    All,
    One(EngineKind),
}

/// Parses an engine's name or `all`.
pub(super) fn choice() -> impl TypedValueParser<Value = Choice> {
    let names = EngineKind::ALL.map(EngineKind::name);
    PossibleValuesParser::new([&["all"], names.as_slice()].concat())
        .map(|name| EngineKind::from_name(&name).map_or(Choice::All, Choice::One))
}

/// The chosen engines without duplicates, in the usual order.
pub(super) fn chosen(choices: &[Choice]) -> Vec<EngineKind> {
    let wanted = |kind: &EngineKind| choices.contains(&Choice::All) || choices.contains(&Choice::One(*kind));
    EngineKind::ALL.into_iter().filter(wanted).collect()
}

/// Parses a number of cores, or `all`.
pub(super) fn cores(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(machine_cores()),
        _ => match text.parse() {
            Ok(cores @ 1..=CORES_MAX) => Ok(cores),
            _ if core_list(text).is_ok() => {
                Err("only one number of cores is allowed here; lists (2,5 or 1-4) are for bench, verify and test"
                    .to_owned())
            }
            _ => Err(format!("write a number from 1 to {CORES_MAX}, or all")),
        },
    }
}

/// Numbers of cores, sorted and without duplicates; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cores(Vec<usize>);

impl Cores {
    pub(super) fn most(&self) -> usize {
        self.0[self.0.len() - 1]
    }

    pub(super) fn to_vec(&self) -> Vec<usize> {
        self.0.clone()
    }

    /// The numbers below `end`.
    pub(super) fn below(&self, end: usize) -> Self {
        Self(self.0.iter().copied().filter(|cores| *cores < end).collect())
    }

    /// The numbers as ranges without gaps.
    pub(super) fn ranges(&self) -> Vec<RangeInclusive<usize>> {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        for cores in &self.0 {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == *cores => *last = *last.start()..=*cores,
                Some(_) | None => ranges.push(*cores..=*cores),
            }
        }
        ranges
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// Parses numbers of cores and ranges, separated by commas; `all` means from 1 to the number of cores of this machine.
pub(super) fn core_list(text: &str) -> Result<Cores, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let range = if part == "all" { 1..=machine_cores() } else { number::parse_range(part)? };
        if *range.end() > CORES_MAX {
            return Err(format!("at most {CORES_MAX} cores"));
        }
        all.extend(range);
    }
    all.sort_unstable();
    all.dedup();
    Ok(Cores(all))
}

/// Maximum number of cores: more than any machine has, few enough to start that many threads.
const CORES_MAX: usize = 256;

/// Number of processors that this process may use.
pub(super) fn machine_cores() -> usize {
    engine::cpus().len().max(1)
}

/// Name of the first processor.
pub(crate) fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':')).map_or("an unknown processor", |(_, name)| name.trim());
    model.to_owned()
}

/// This command line, quoted for a shell.
pub(crate) fn command() -> String {
    let words = std::env::args_os().skip(1).map(|given| word(&given.to_string_lossy()));
    ["millrace".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// The default engine: `sequential` on one core; on several cores the first of `rss`, `scr` and `shared` that supports the function.
pub(super) fn fitting(description: &Description, cores: usize) -> Result<EngineKind, Failed> {
    if cores == 1 {
        return Ok(EngineKind::Sequential);
    }
    let by_speed = [EngineKind::Rss, EngineKind::Scr, EngineKind::Shared];
    let taking = by_speed.into_iter().find(|kind| kind.accepts(description, cores).is_ok());
    taking.ok_or_else(|| Failed::usage(format_args!("no engine can run {} on {cores} cores", description.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_cores_are_read() {
        for (text, numbers, again) in [
            ("4", [4].as_slice(), "4"),
            ("1-3", &[1, 2, 3], "1-3"),
            ("2,5", &[2, 5], "2,5"),
            ("8,1-2,2", &[1, 2, 8], "1-2,8"),
            ("1,2,3", &[1, 2, 3], "1-3"),
        ] {
            let cores = core_list(text).unwrap();
            assert_eq!((cores.to_vec().as_slice(), cores.to_string().as_str()), (numbers, again), "{text}");
            let ranges: Vec<usize> = cores.ranges().into_iter().flatten().collect();
            assert_eq!(ranges, numbers, "{text}");
        }
        assert_eq!(core_list("all").unwrap().most(), machine_cores());
        for text in ["", "0", "2,", ",2", "3-1", "2,x", "257", "1 2"] {
            assert!(core_list(text).is_err(), "{text}");
        }
        for text in ["2,5", "1-4"] {
            assert!(cores(text).unwrap_err().contains("only one number of cores is allowed here"), "{text}");
        }
        assert!(cores("0").unwrap_err().contains("from 1 to"));
    }
}
