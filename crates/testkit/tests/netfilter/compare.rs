//! Compares two routers' outcomes of a scenario.

use std::collections::HashMap;

use crate::craft::{self, End};
use crate::player::Outcome;
use crate::script::{Ours, Scenario, Step};

/// What to check of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The kernel's verdicts, and every difference that is named.
    All,
    /// Only that there are no differences except the named ones.
    Differences,
}

/// Returns a line for each deviation from the script. `used` collects the named differences that were found.
pub(crate) fn compare(
    scenario: &Scenario,
    told: Told,
    kernel: &[Outcome],
    ours: &[Outcome],
    used: &mut Vec<String>,
) -> Vec<String> {
    let mut ports = Ports::default();
    let mut wrong = Vec::new();
    for ((step, kernel), ours) in scenario.steps.iter().zip(kernel).zip(ours) {
        let mut complain = |what: String| wrong.push(complaint(scenario, step, &what));
        if let Some(what) = check_kernel(step, kernel).filter(|_| told == Told::All) {
            complain(what);
            continue;
        }
        if let Some(what) = &ours.complaint {
            complain(format!("ours: {what}"));
        }
        let difference = ports.difference(kernel, ours);
        match (&step.expected.ours, difference) {
            (None, None) => {}
            (None, Some(what)) => complain(what),
            (Some((_, name)), None) if told == Told::All => {
                complain(format!("{name} is told as a difference, and there is none"));
            }
            (Some(_), None) => {}
            (Some((expected, name)), Some(what)) => {
                let found = match (kernel.came_out.is_empty(), ours.came_out.is_empty()) {
                    (true, false) => Ours::Pass,
                    (false, true) => Ours::Drop,
                    _ => Ours::Differs,
                };
                if found == *expected {
                    used.push(name.clone());
                } else {
                    complain(format!("not the difference that {name} tells: {what}"));
                }
            }
        }
    }
    wrong
}

/// Formats a played scenario.
pub(crate) fn transcript(scenario: &Scenario, outcomes: &[Outcome]) -> String {
    let mut lines = vec![format!("## {}", scenario.name)];
    for (step, outcome) in scenario.steps.iter().zip(outcomes) {
        lines.push(format!("{}\n    in  {}", step.line.1, told(&outcome.sent)));
        lines.extend(outcome.came_out.iter().map(|(side, packet)| format!("    out {} {side:?}", told(packet))));
    }
    lines.join("\n")
}

fn check_kernel(step: &Step, kernel: &Outcome) -> Option<String> {
    if let Some(what) = &kernel.complaint {
        return Some(format!("kernel: {what}"));
    }
    match (kernel.came_out.len(), step.expected.kernel, step.fragment) {
        (0, false, _) | (1, true, _) => None,
        // The kernel waits for all fragments and forwards them together.
        (2, true, Some(_)) => None,
        (count, ..) => Some(format!("the kernel lets {count} packets out")),
    }
}

fn complaint(scenario: &Scenario, step: &Step, what: &str) -> String {
    let (number, line) = &step.line;
    format!("{}, line {number}: {line}\n        {what}", scenario.name)
}

/// The outside endpoints that the kernel chose, by ours.
#[derive(Default)]
struct Ports {
    kernel_by_ours: HashMap<(u8, End), End>,
    ours_by_kernel: HashMap<(u8, End), End>,
}

impl Ports {
    fn difference(&mut self, kernel: &Outcome, ours: &Outcome) -> Option<String> {
        if kernel.came_out.len() != ours.came_out.len() {
            return Some(format!("the kernel lets {} out, we {}", kernel.came_out.len(), ours.came_out.len()));
        }
        for ((side, theirs), (our_side, mine)) in kernel.came_out.iter().zip(&ours.came_out) {
            if side != our_side {
                return Some(format!("the kernel sends it {side:?}, we {our_side:?}"));
            }
            let renamed = match self.rename(&ours.sent, theirs, mine) {
                Ok(renamed) => renamed,
                Err(what) => return Some(what),
            };
            if renamed != *theirs {
                let at = renamed.iter().zip(theirs).position(|(mine, theirs)| mine != theirs);
                let (theirs, mine) = (told(theirs), told(mine));
                return Some(format!("the kernel sends {theirs}, we {mine}; first other byte {at:?}"));
            }
        }
        None
    }

    /// Returns our packet with the kernel's outside ports. If a client keeps its port, no other choice is allowed.
    fn rename(&mut self, sent: &[u8], theirs: &[u8], mine: &[u8]) -> Result<Vec<u8>, String> {
        let (before, kernel, ours) = (craft::view(sent), craft::view(theirs), craft::view(mine));
        let translated = ours.src.0 != before.src.0 && ours.quoted.is_none() && !ours.later_fragment;
        if translated && (kernel.src.1 == before.src.1) != (ours.src.1 == before.src.1) {
            return Err(format!("the kernel gives port {}, we {}", kernel.src.1, ours.src.1));
        }
        if translated {
            let protocol = ours.protocol;
            let by_ours = *self.kernel_by_ours.entry((protocol, ours.src)).or_insert(kernel.src);
            let by_kernel = *self.ours_by_kernel.entry((protocol, kernel.src)).or_insert(ours.src);
            if (by_ours, by_kernel) != (kernel.src, ours.src) {
                return Err(format!("the kernel maps to {:?}, we to {:?}, and before not so", kernel.src, ours.src));
            }
        }
        let mut renamed = mine.to_vec();
        for ((_, ours), kernel) in &self.kernel_by_ours {
            if ours != kernel {
                craft::substitute(&mut renamed, *ours, *kernel);
            }
        }
        Ok(renamed)
    }
}

fn told(packet: &[u8]) -> String {
    let seen = craft::view(packet);
    let quoted = seen.quoted.map(|at| format!(" about [{}]", told(&packet[at..]))).unwrap_or_default();
    let ((src, src_port), (dst, dst_port)) = (seen.src, seen.dst);
    format!("{src}:{src_port} > {dst}:{dst_port} protocol {}, {} bytes{quoted}", seen.protocol, packet.len())
}
