//! Model-checks (loom) transactions, on the code that ships: committed transactions are serializable, and no step sees inconsistent state,
//! not even one that aborts.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p millrace-memory --release --test serializable_model`
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::thread;
use millrace_memory::transactional::{ABORTS_MAX, CoreHandle, Fault, Tx, TxVector};
use millrace_memory::{Memory, Transactional, Vector};

/// How many preemptions a schedule may have.
const PREEMPTIONS_MAX: usize = 3;

/// A step over two cells.
type Body = for<'a> fn(&'a TxVector<u64>, &mut Tx<'a>) -> Result<u64, millrace_memory::transactional::Conflict>;

/// The steps of two cores, and the results that a serial order allows.
struct Case {
    steps: [&'static [Step]; 2],
    /// The answers of the steps, the first core's before the second's, and the final contents of the cells.
    serial: &'static [(&'static [u64], [u64; 2])],
}

#[derive(Clone, Copy)]
enum Step {
    /// Repeated until it commits.
    Committed(Body),
    /// Dropped after it has written.
    Dropped(Body),
}

fn both<'a>(cells: &'a TxVector<u64>, tx: &mut Tx<'a>) -> Result<u64, millrace_memory::transactional::Conflict> {
    let (one, other) = (cells.read(tx, 0)?, cells.read(tx, 1)?);
    assert_eq!(one, other, "a mix");
    Ok(one)
}

fn raise_both<'a>(cells: &'a TxVector<u64>, tx: &mut Tx<'a>) -> Result<u64, millrace_memory::transactional::Conflict> {
    let next = cells.read(tx, 0)? + 1;
    cells.write(tx, 0, next)?;
    cells.write(tx, 1, next)?;
    Ok(0)
}

fn raise_first<'a>(cells: &'a TxVector<u64>, tx: &mut Tx<'a>) -> Result<u64, millrace_memory::transactional::Conflict> {
    let next = cells.read(tx, 0)? + 1;
    cells.write(tx, 0, next)?;
    Ok(next)
}

fn first_from_second<'a>(
    cells: &'a TxVector<u64>,
    tx: &mut Tx<'a>,
) -> Result<u64, millrace_memory::transactional::Conflict> {
    let other = cells.read(tx, 1)?;
    cells.write(tx, 0, other + 1)?;
    Ok(0)
}

fn second_from_first<'a>(
    cells: &'a TxVector<u64>,
    tx: &mut Tx<'a>,
) -> Result<u64, millrace_memory::transactional::Conflict> {
    let other = cells.read(tx, 0)?;
    cells.write(tx, 1, other + 1)?;
    Ok(0)
}

/// One core writes both cells while the other reads both.
const TORN: Case = Case {
    steps: [&[Step::Committed(raise_both)], &[Step::Committed(both)]],
    serial: &[(&[0, 0], [1, 1]), (&[0, 1], [1, 1])],
};

/// Each core writes the cell that the other reads (write skew).
const SKEW: Case = Case {
    steps: [&[Step::Committed(first_from_second)], &[Step::Committed(second_from_first)]],
    serial: &[(&[0, 0], [1, 2]), (&[0, 0], [2, 1])],
};

/// Both cores increment one cell: no increment is lost. With so few retries, irrevocable transactions are needed.
const RAISES: Case = Case {
    steps: [&[Step::Committed(raise_first)], &[Step::Committed(raise_first)]],
    serial: &[(&[1, 2], [2, 0]), (&[2, 1], [2, 0])],
};

/// One core writes and aborts while the other reads.
const UNDONE: Case =
    Case { steps: [&[Step::Dropped(raise_both)], &[Step::Committed(both)]], serial: &[(&[0], [0, 0])] };

fn run(case: &'static Case) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || {
        let memory = Transactional::new(2, 0);
        let cells = Arc::new(memory.vector(2, 0u64));
        let cores = memory.core_handles().into_iter().zip(case.steps).map(|(handle, steps)| {
            let (memory, cells) = (memory.clone(), Arc::clone(&cells));
            thread::spawn(move || core(handle, &memory, &cells, steps))
        });
        let cores: Vec<_> = cores.collect();
        let answers: Vec<u64> = cores.into_iter().flat_map(|core| core.join().expect("no core panics")).collect();
        let mut handles = memory.core_handles();
        let mut log = handles[0].log(&memory);
        let mut tx = log.begin();
        let end = [0, 1].map(|at| cells.read(&mut tx, at).expect("nobody is inside"));
        assert!(case.serial.contains(&(&answers, end)), "no serial order gives {answers:?} and {end:?}");
    });
}

fn core(mut handle: CoreHandle, memory: &Transactional, cells: &TxVector<u64>, steps: &[Step]) -> Vec<u64> {
    let mut answers = Vec::new();
    for step in steps {
        match step {
            Step::Committed(body) => {
                for aborts in 0.. {
                    assert!(aborts <= ABORTS_MAX, "an irrevocable transaction failed");
                    let mut log = handle.log(memory);
                    let mut tx = log.attempt(aborts);
                    if let Ok(answer) = body(cells, &mut tx)
                        && tx.commit().is_ok()
                    {
                        answers.push(answer);
                        break;
                    }
                }
            }
            Step::Dropped(body) => {
                let mut log = handle.log(memory);
                let mut tx = log.begin();
                let _answer = body(cells, &mut tx);
            }
        }
    }
    answers
}

#[test]
fn what_is_written_together_is_seen_together() {
    run(&TORN);
}

#[test]
fn who_reads_what_another_writes_comes_before_it_or_behind() {
    run(&SKEW);
}

#[test]
fn no_rise_is_lost() {
    run(&RAISES);
}

#[test]
fn what_was_undone_never_was() {
    run(&UNDONE);
}

#[test]
fn the_check_notices_what_is_broken() {
    let faults = [
        (Fault::EarlyWords, &TORN),
        (Fault::Unchecked, &TORN),
        (Fault::Unextended, &TORN),
        (Fault::Unvalidated, &SKEW),
        (Fault::SameVersion, &UNDONE),
        (Fault::UnlockedIrrevocable, &RAISES),
    ];
    for (fault, case) in faults {
        Fault::inject(Some(fault));
        let noticed = catch_unwind(AssertUnwindSafe(|| run(case))).is_err();
        Fault::inject(None);
        assert!(noticed, "{fault:?} went unnoticed");
    }
}
