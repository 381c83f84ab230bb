//! Checks functions against case files: the outcome of each packet, and that every engine agrees.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;

use case::{Case, Cases, Difference};
use engine::{EngineKind, Options};
use lab::conformance::{Mismatch, Plan};
use nf::Reason;
use port::{MemoryQueue, Trace};

use crate::config::Settings;
use crate::{CatalogueEntry, Program};

/// Result of a case.
#[derive(Debug)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// Number of packets.
    pub packets: usize,
    /// Packets with another outcome than expected.
    pub differences: Vec<CaseDifference>,
    /// Engines that were compared with the sequential run.
    pub engines: Vec<EngineKind>,
    /// Number of runs.
    pub runs: u64,
    /// An engine that differs from the sequential run, if any.
    pub mismatch: Option<Mismatch>,
}

/// A packet with another outcome than expected.
#[derive(Debug)]
pub struct CaseDifference {
    /// Line in the file.
    pub line: usize,
    /// Number of the packet within its line, from 1, and the line's number of packets.
    pub nth: (usize, usize),
    /// Expected and actual outcome.
    pub difference: Difference,
}

impl CaseResult {
    /// True if everything is as expected.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.differences.is_empty() && self.mismatch.is_none()
    }
}

/// Runs a function from fresh state over the packets of a case and compares the outcomes, then compares every engine of the plan that
/// supports the function. `file` is the file name for errors.
///
/// # Errors
/// The case is invalid: its configuration, or drop reasons that the function doesn't have.
pub fn check_case(entry: &CatalogueEntry, file: &str, case: &Case, plan: &Plan) -> Result<CaseResult, String> {
    check_case_all(entry, file, case, slice::from_ref(plan))
}

/// Checks a case under several plans, for other numbers of cores.
///
/// # Errors
/// As [`check_case`].
pub fn check_case_all(entry: &CatalogueEntry, file: &str, case: &Case, plans: &[Plan]) -> Result<CaseResult, String> {
    let settings = Settings::from_table(&format!("{file}, case \"{}\"", case.name), &case.config);
    let program = entry.load(&settings).map_err(|error| error.to_string())?;
    let own = program.description().drop_reasons;
    let known: HashSet<&str> = (0..Reason::COUNT as u8).map(|number| Reason(number).name(own)).collect();
    if let Some((line, reason)) = case.reasons().find(|(_, reason)| !known.contains(reason) || *reason == UNNAMED) {
        let name = entry.description().name;
        let own = if own.is_empty() {
            "It declares no reasons".to_owned()
        } else {
            format!("It declares {}", own.join(", "))
        };
        let mut all: Vec<&str> = (0..Reason::OWN).map(|number| Reason(number).name(&[])).collect();
        all.retain(|reason| *reason != UNNAMED);
        return Err(format!(
            "{file}:{line}: {name} has no drop reason `{reason}`. {own}; all functions also have {}",
            all.join(", ")
        ));
    }
    let trace = Arc::new(case.trace());
    let mut differences = Vec::new();
    let mut steps = case.steps.iter();
    let report = program.explain(&mut MemoryQueue::new(Arc::clone(&trace), 64), &mut |fared, _| {
        let Some(step) = steps.next() else { unreachable!("there are as many packets as steps") };
        if let Err(difference) = step.holds(fared) {
            differences.push(CaseDifference { line: step.line, nth: step.nth, difference });
        }
    });
    let report = report.map_err(|error| format!("{file}, case \"{}\": {error}", case.name))?;
    if let Err((line, difference)) = case.holds(report.as_ref()) {
        differences.push(CaseDifference { line, nth: (1, 1), difference });
    }
    let (mut engines, mut runs, mut mismatch) = (Vec::new(), 0, None);
    for plan in plans {
        let (taken, more, found) = check_engines(&*program, &trace, plan);
        engines.extend(taken.into_iter().filter(|engine| !engines.contains(engine)).collect::<Vec<_>>());
        runs += more;
        mismatch = mismatch.or(found);
    }
    Ok(CaseResult { name: case.name.clone(), packets: case.steps.len(), differences, engines, runs, mismatch })
}

/// Checks a function against a case file, with all engines on up to three cores. For tests in an author's own crate.
///
/// # Errors
/// All differences, one line each.
pub fn check(entry: &CatalogueEntry, text: &str) -> Result<(), String> {
    let name = entry.description().name;
    let cases = Cases::read(text).map_err(|error| error.of("the case file"))?;
    if cases.function != name {
        return Err(format!("the case file is for `{}`, not for `{name}`", cases.function));
    }
    let engines = EngineKind::ALL.to_vec();
    let plan = Plan { engines, cores: 1..=3, seeds: 0..3, threads: true, options: Options::default() };
    let mut wrong = Vec::new();
    for case in &cases.cases {
        let result = check_case(entry, "the case file", case, &plan)?;
        for CaseDifference { line, difference: Difference { expected, got }, .. } in &result.differences {
            wrong.push(format!("{}, line {line}: expected {expected}, got {got}", result.name));
        }
        if let Some(mismatch) = &result.mismatch {
            wrong.push(format!("{}: {mismatch:?}", result.name));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// What a number is called that is no reason.
const UNNAMED: &str = "unnamed";

/// Compares every engine with the sequential run. Returns the engines that support the function, the number of runs, and the first
/// difference.
fn check_engines(program: &dyn Program, trace: &Trace, plan: &Plan) -> (Vec<EngineKind>, u64, Option<Mismatch>) {
    let (mut taken, mut runs) = (Vec::new(), 0);
    for &engine in &plan.engines {
        let plan = Plan { engines: vec![engine], ..plan.clone() };
        let verified = program.verify(trace, &plan, &mut |_, _| {});
        runs += verified.runs;
        if verified.runs > 0 {
            taken.push(engine);
        }
        if verified.mismatch.is_some() {
            return (taken, runs, verified.mismatch);
        }
    }
    (taken, runs, None)
}
