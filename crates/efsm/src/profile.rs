//! The sizes of the paper's prototype on a NetFPGA SUME (its table 1), and what of a program exceeds them. Sizes are free otherwise.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::machine::{Function, Machine, Operand, Stage, Target, Value};

/// Registers of a context, of 32 bits.
const REGISTERS: usize = 4;
/// Conditions of a stage.
const CONDITIONS: usize = 8;
/// Bits of metadata between stages.
const META_BITS: u32 = 32;
/// Global registers of a stage, of 32 bits.
const GLOBALS: usize = 8;
/// Arithmetic and logic units of a stage: assignments of a row to registers and global registers.
const ALUS: usize = 5;
/// Rows of a stage's table.
const ROWS: usize = 32;

/// Lists what of the program would not fit in the prototype, a sentence each.
#[must_use]
pub fn netfpga(machine: &Machine) -> Vec<String> {
    let mut misfits = Vec::new();
    let meta: u32 = machine.meta.iter().map(|(_, bits)| bits).sum();
    exceeds(&mut misfits, "the program", meta as usize, META_BITS as usize, "bits of metadata");
    for stage in &machine.stages {
        let name = format!("stage {}", stage.name);
        exceeds(&mut misfits, &name, stage.rows.len(), ROWS, "rows");
        exceeds(&mut misfits, &name, registers(stage), REGISTERS, "registers of 32 bits (an IPv4 address is one)");
        exceeds(&mut misfits, &name, conditions(stage), CONDITIONS, "different conditions besides ternary matches");
        exceeds(&mut misfits, &name, globals(stage), GLOBALS, "global registers");
        for row in &stage.rows {
            let of_unit = |target: Target| !matches!(target, Target::Header(_));
            let units = row.assignments.iter().filter(|one| of_unit(one.target)).count();
            exceeds(&mut misfits, &format!("line {}", row.line), units, ALUS, "updates in a row");
        }
    }
    misfits
}

fn exceeds(misfits: &mut Vec<String>, what: &str, has: usize, most: usize, of: &str) {
    if has > most {
        misfits.push(format!("{what} has {has} {of}, the prototype {most}"));
    }
}

/// Registers in the sense of the paper: an address counts once.
fn registers(stage: &Stage) -> usize {
    let mut used: Vec<_> = stage
        .rows
        .iter()
        .flat_map(|row| &row.assignments)
        .filter_map(|one| match one.target {
            Target::Register(word) | Target::Wide(word) => Some(word),
            Target::Header(_) | Target::Meta(_) | Target::Global(_) => None,
        })
        .collect();
    used.sort_unstable();
    used.dedup();
    used.len()
}

/// Conditions that a ternary match can't decide: with a register or global register, or other than equality.
fn conditions(stage: &Stage) -> usize {
    let mut used: Vec<_> = Vec::new();
    for condition in stage.rows.iter().flat_map(|row| &row.conditions) {
        let is_fixed =
            |operand| matches!(operand, Operand::Constant(_) | Operand::Header(_) | Operand::Meta(_) | Operand::State);
        let is_ternary = condition.comparison == crate::syntax::Comparison::Equal
            && is_fixed(condition.left)
            && matches!(condition.right, Operand::Constant(_));
        if !is_ternary && !used.contains(condition) {
            used.push(*condition);
        }
    }
    used.len()
}

/// The global registers that the stage's rows read or set.
fn globals(stage: &Stage) -> usize {
    let mut used = Vec::new();
    let mut note = |operand: Operand| {
        if let Operand::Global(number) = operand {
            used.push(number);
        }
    };
    for row in &stage.rows {
        for condition in &row.conditions {
            note(condition.left);
            note(condition.right);
        }
        for assignment in &row.assignments {
            if let Target::Global(number) = assignment.target {
                note(Operand::Global(number));
            }
            match assignment.value {
                Value::Operand(operand) => note(operand),
                Value::Binary(left, _, right) => [left, right].into_iter().for_each(&mut note),
                Value::Call(function, operands) => {
                    let count =
                        Function::ALL.iter().find(|(known, ..)| *known == function).map_or(0, |(.., count)| *count);
                    operands[..count].iter().copied().for_each(&mut note);
                }
            }
        }
    }
    used.sort_unstable();
    used.dedup();
    used.len()
}
