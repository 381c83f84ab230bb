use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::Memory;
use crate::wheel::{TICK_BITS, WORK, tick_after};

const TICK: u64 = 1 << TICK_BITS;

#[derive(Clone, Copy, Debug)]
enum Op {
    Allocate(u64),
    AllocateExact(usize, u64),
    Refresh(usize, u64),
    Free(usize),
    Expire,
    Advance(u64),
}

/// Durations of 0, below a tick, and up to weeks.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        1..3 * TICK,
        (0u64..200).prop_map(|ticks| ticks * TICK),
        0..300_000_000_000u64,
        0..3_000_000_000_000_000u64,
        Just(u64::MAX),
    ]
}

fn ops(capacity: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => span().prop_map(Op::Allocate),
        1 => (0..capacity, span()).prop_map(|(index, span)| Op::AllocateExact(index, span)),
        3 => (0..capacity, span()).prop_map(|(index, span)| Op::Refresh(index, span)),
        1 => (0..capacity).prop_map(Op::Free),
        4 => Just(Op::Expire),
        2 => prop_oneof![0..3 * TICK, 0..400_000_000_000u64, 0..4_000_000_000_000_000u64].prop_map(Op::Advance),
    ];
    proptest::collection::vec(op, 0..300)
}

/// A naive pool: deadlines in an array, and the free indices in the order of their release.
struct Model {
    deadlines: Vec<Option<u64>>,
    free: Vec<usize>,
}

impl Model {
    fn take(&mut self, index: usize, deadline: u64) {
        self.free.retain(|&other| other != index);
        self.deadlines[index] = Some(deadline);
    }

    fn free(&mut self, index: usize) {
        if self.deadlines[index].take().is_some() {
            self.free.push(index);
        }
    }
}

proptest! {
    #[test]
    fn is_a_pool_with_deadlines(ops in ops(12)) {
        let pool = Local::default().allocator(12);
        let mut tx = LocalTx::default();
        let mut model = Model { deadlines: vec![None; 12], free: (0..12).collect() };
        let mut now = 1_000_000_000_000u64;
        for op in ops {
            match op {
                Op::Allocate(span) => {
                    let deadline = now.saturating_add(span);
                    let expected = model.free.first().copied();
                    prop_assert_eq!(pool.allocate(&mut tx, Nanos(deadline)), Ok(expected));
                    if let Some(index) = expected {
                        model.take(index, deadline);
                    }
                }
                Op::AllocateExact(index, span) => {
                    let deadline = now.saturating_add(span);
                    let free = model.deadlines[index].is_none();
                    prop_assert_eq!(pool.allocate_exact(&mut tx, index, Nanos(deadline)), Ok(free));
                    if free {
                        model.take(index, deadline);
                    }
                }
                Op::Refresh(index, span) => {
                    let deadline = now.saturating_add(span);
                    pool.refresh(&mut tx, index, Nanos(deadline)).unwrap();
                    if let Some(known) = &mut model.deadlines[index] {
                        *known = deadline;
                    }
                }
                Op::Free(index) => {
                    pool.free(&mut tx, index).unwrap();
                    model.free(index);
                }
                Op::Expire => {
                    if let Some(index) = pool.expire(&mut tx, Nanos(now)).unwrap() {
                        prop_assert!(model.deadlines[index].is_some_and(|deadline| deadline <= now));
                        model.free(index);
                    }
                }
                Op::Advance(span) => now += span,
            }
            for (index, deadline) in model.deadlines.iter().enumerate() {
                prop_assert_eq!(pool.deadline(&mut tx, index), Ok(deadline.map(Nanos)));
            }
        }
    }

    #[test]
    fn drains_in_order_of_ticks_whatever_was_put_off(
        first in proptest::collection::vec(span(), 1..60),
        second in proptest::collection::vec((0usize..60, 0..3_000_000_000_000_000u64), 0..60),
        at in span(),
    ) {
        let pool = Local::default().allocator(first.len());
        let mut tx = LocalTx::default();
        let mut deadlines = first.clone();
        for &deadline in &first {
            pool.allocate(&mut tx, Nanos(deadline)).unwrap();
        }
        for (index, deadline) in second {
            if index < deadlines.len() {
                pool.refresh(&mut tx, index, Nanos(deadline)).unwrap();
                deadlines[index] = deadline;
            }
        }
        let mut expired = Vec::new();
        let mut idle = 0;
        // Each index needs at most one move for each level, twice that if it was put off.
        while idle < 60 * 2 * LEVELS / WORK {
            match pool.expire(&mut tx, Nanos(at)).unwrap() {
                Some(index) => expired.push(index),
                None => idle += 1,
            }
        }
        let due: BTreeSet<usize> =
            (0..deadlines.len()).filter(|&index| tick_after(deadlines[index]) <= at >> TICK_BITS).collect();
        prop_assert_eq!(expired.iter().copied().collect::<BTreeSet<_>>(), due);
        let ticks: Vec<u64> = expired.iter().map(|&index| tick_after(deadlines[index])).collect();
        prop_assert!(ticks.is_sorted(), "{ticks:?}");
    }
}

#[test]
fn expires_in_the_tick_after_the_deadline_and_no_sooner() {
    let pool = Local::default().allocator(1);
    let mut tx = LocalTx::default();
    let deadline = 300_000_000_000;
    pool.allocate(&mut tx, Nanos(deadline)).unwrap();
    let mut now = 0;
    let freed_at = loop {
        if pool.expire(&mut tx, Nanos(now)).unwrap().is_some() {
            break now;
        }
        now += 100_000;
    };
    assert!(freed_at >= deadline && freed_at < deadline + TICK + 100_000, "freed at {freed_at}");
}

#[test]
fn a_mass_expiry_costs_each_call_the_same() {
    let pool = Local::default().allocator(10_000);
    let mut tx = LocalTx::default();
    for index in 0..10_000u64 {
        pool.allocate(&mut tx, Nanos(5_000_000_000 + index)).unwrap();
    }
    let mut calls = 0;
    let mut freed = 0;
    while freed < 10_000 {
        freed += usize::from(pool.expire(&mut tx, Nanos::from_secs(3600)).unwrap().is_some());
        calls += 1;
    }
    // One call frees one index; on the way down the levels it moves `WORK` indices a call.
    assert!(calls <= 10_000 + 10_000 * LEVELS / WORK, "{calls} calls");
}

#[test]
fn a_pool_of_none_gives_none() {
    let pool = Local::default().allocator(0);
    let mut tx = LocalTx::default();
    assert_eq!(pool.allocate(&mut tx, Nanos(5)), Ok(None));
    assert_eq!(pool.expire(&mut tx, Nanos::from_secs(9)), Ok(None));
}
