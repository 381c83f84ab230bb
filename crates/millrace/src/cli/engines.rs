//! Engines, cores and seeds, as commands take them.

use std::ops::RangeInclusive;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::EngineKind;

use super::failure::Failed;
use super::files;
use crate::catalogue::Entry;
use crate::print::number;

/// An engine, or whichever suits the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Auto,
    One(EngineKind),
}

/// Reads an engine's name or `auto`.
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

/// Reads an engine's name or `all`.
pub(super) fn choice() -> impl TypedValueParser<Value = Choice> {
    let names = EngineKind::ALL.map(EngineKind::name);
    PossibleValuesParser::new([&["all"], names.as_slice()].concat())
        .map(|name| EngineKind::from_name(&name).map_or(Choice::All, Choice::One))
}

/// The engines chosen, each once, in the usual order.
pub(super) fn chosen(choices: &[Choice]) -> Vec<EngineKind> {
    let wanted = |kind: &EngineKind| choices.contains(&Choice::All) || choices.contains(&Choice::One(*kind));
    EngineKind::ALL.into_iter().filter(wanted).collect()
}

/// Reads a number of cores, or `all`.
pub(super) fn cores(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(machine_cores()),
        _ => match text.parse() {
            Ok(cores @ 1..=CORES_MAX) => Ok(cores),
            _ => Err(format!("write a number from 1 to {CORES_MAX}, or all")),
        },
    }
}

/// Reads a range of numbers of cores, `all` for one to as many as there are.
pub(super) fn core_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let range = if text == "all" { 1..=machine_cores() } else { number::parse_range(text)? };
    if *range.end() > CORES_MAX { Err(format!("at most {CORES_MAX} cores")) } else { Ok(range) }
}

/// More than any machine that a capture is replayed on, few enough to start that many threads.
const CORES_MAX: usize = 256;

/// The processors that this process may use.
pub(super) fn machine_cores() -> usize {
    engine::cpus().len().max(1)
}

/// What the first processor calls itself.
pub(crate) fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':')).map_or("an unknown processor", |(_, name)| name.trim());
    model.to_owned()
}

/// The command line that measures the same again, as a shell takes it.
pub(crate) fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| files::for_shell(&word.to_string_lossy()));
    ["millrace".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// The engine of a run that names none: on one core `sequential`; on several the first of `rss`, `scr` and `shared` that
/// takes the function.
pub(super) fn fitting(entry: &Entry, cores: usize) -> Result<EngineKind, Failed> {
    if cores == 1 {
        return Ok(EngineKind::Sequential);
    }
    let by_speed = [EngineKind::Rss, EngineKind::Scr, EngineKind::Shared];
    let taking = by_speed.into_iter().find(|kind| kind.accepts(entry.description(), cores).is_ok());
    taking.ok_or_else(|| Failed::usage(format_args!("no engine runs {} on {cores} cores", entry.description().name)))
}
