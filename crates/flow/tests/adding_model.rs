//! Model-checks (loom) entries whose steps only add: no step is lost, counted twice, or added to a removed or another flow, and no entry is
//! read while it is written, under every schedule and every read that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p millrace-flow --release --test adding_model`
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use loom::thread;
use millrace_flow::shared::{Adding, Entries, EpochMember, Fate, Fault, GuardedEntry, StepPermit, Sum};
use millrace_flow::{Ageing, Hint, Plan};
use packet::{Key, Nanos};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(u64);

impl Key for Name {
    fn hash(&self, _: u64) -> u64 {
        self.0
    }
}

const A: Name = Name(1);
const B: Name = Name(2);
const C: Name = Name(3);

/// The timeout: how far ahead a step moves the deadline.
const AHEAD: u64 = 50;

type Table = Entries<Name, u64, millrace_flow::index::CuckooPp, (), Adding>;

/// A table with one flow, A, which began at 0, and its cores. It has one place more than slots.
fn table(cores: usize) -> (Arc<Table>, Vec<EpochMember>) {
    let members = EpochMember::all(cores);
    let plan = Plan { capacity: 1, ageing: Ageing::Lazy, ..Plan::default() };
    let table = Table::cut(plan, 1, |_| (), Arc::clone(members[0].epochs()));
    add(&table, A, 0);
    (Arc::new(table), members)
}

fn add(table: &Table, key: Name, value: u64) {
    let flow = (value, Nanos(AHEAD), Nanos(0));
    let added = table.stripe(key.0, |stripe| stripe.insert(key, key.0, flow, false));
    assert!(added.is_some(), "there is room");
}

/// Everything ever added to the entry.
fn total(entry: &GuardedEntry<Name, u64, Sum>) -> u64 {
    entry.value + entry.sum.amount
}

/// A step on a flow that is alive; returns the total before it.
fn step(table: &Table, member: &mut EpochMember, key: Name, hint: Hint, now: u64) -> Option<u64> {
    member.enter();
    let step = table.step(member, &key, key.0, hint, |entry| {
        let now = Nanos(now).max(entry.now);
        let before = total(entry);
        (entry.deadline() > now && entry.add(1, now, now + Nanos(AHEAD))).then_some(before)
    });
    member.leave();
    step
}

/// The same with the stripe's lock, if the flow is present.
fn step_on_stripe(table: &Table, key: Name) -> Option<u64> {
    table.stripe(key.0, |stripe| {
        let slot = stripe.find(&key, key.0)?;
        Some(stripe.decide(slot, |entry| {
            let before = total(entry);
            (entry.value, entry.sum) = (before + 1, Sum::default());
            (before, Fate::Changes)
        }))
    })
}

/// Removes the flow; returns everything that was added to it.
fn end(table: &Table, key: Name) -> u64 {
    table.stripe(key.0, |stripe| {
        let slot = stripe.find(&key, key.0).expect("it is there");
        stripe.decide(slot, |entry| (total(entry), Fate::Goes))
    })
}

fn check(case: fn()) -> usize {
    let histories = Arc::new(Count::new(0));
    let seen = Arc::clone(&histories);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 20_000;
    model.max_permutations = Some(40_000);
    model.check(move || {
        case();
        seen.fetch_add(1, CountOrdering::Relaxed);
    });
    histories.load(CountOrdering::Relaxed)
}

/// Two cores step while the entry is rewritten: each step sees another sum, and the final sum has all of them.
fn counting() {
    let (table, members) = table(3);
    let cores: Vec<_> = members
        .into_iter()
        .skip(1)
        .map(|mut member| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let stepped = step(&table, &mut member, A, Hint::NOWHERE, 10);
                stepped.or_else(|| step_on_stripe(&table, A)).expect("nobody ends the flow")
            })
        })
        .collect();
    let mut before = vec![step_on_stripe(&table, A).expect("nobody ends the flow")];
    before.extend(cores.into_iter().map(|core| core.join().expect("no thread panics")));
    before.sort_unstable();
    assert_eq!(before, [0, 1, 2], "each step comes at a place of its own");
    assert_eq!(end(&table, A), 3, "every step is in the sum");
}

/// A core follows an old hint while the flow is removed and others take its place.
fn succession() {
    let (table, mut members) = table(2);
    let (mut late, own) = (members.pop().expect("there are two"), members);
    let hint = table.prefetch_entry(A.0);
    let core = {
        let table = Arc::clone(&table);
        thread::spawn(move || step(&table, &mut late, A, hint, 10))
    };
    let of_a = end(&table, A);
    add(&table, B, 100);
    assert_eq!(end(&table, B), 100, "nobody stepped on B");
    // The only free place is A's.
    add(&table, C, 200);
    let stepped = core.join().expect("no thread panics");
    assert_eq!(of_a, u64::from(stepped.is_some()), "the step came ahead of the end, or not at all");
    assert_eq!(end(&table, C), 200, "nobody stepped on C");
    drop(own);
}

/// A core steps on a flow that another core finds expired.
fn expiry() {
    let (table, mut members) = table(2);
    let mut early = members.pop().expect("there are two");
    let core = {
        let table = Arc::clone(&table);
        thread::spawn(move || step(&table, &mut early, A, Hint::NOWHERE, 40))
    };
    let buried = table.stripe(A.0, |stripe| {
        let slot = stripe.find(&A, A.0).expect("it is there");
        stripe.remove_expired(slot, Nanos(60))
    });
    let stepped = core.join().expect("no thread panics");
    assert!(stepped.is_none() || buried.is_none(), "a step moved the deadline, and the flow ended by the old one");
    if let Some(entry) = buried {
        assert_eq!(total(&entry), 0);
    } else {
        assert_eq!(end(&table, A), u64::from(stepped.is_some()));
    }
}

#[test]
fn steps_are_neither_lost_nor_counted_twice() {
    assert!(check(counting) > 1000);
}

#[test]
fn a_place_changes_hands_when_nobody_looks() {
    assert!(check(succession) > 100);
}

#[test]
fn a_flow_ends_ahead_of_a_step_or_behind_it() {
    assert!(check(expiry) > 10);
}

#[test]
fn the_check_notices_what_is_broken() {
    let faults = [
        (Fault::Unclosed, counting as fn(), "step"),
        (Fault::EarlyReuse, succession, "Causality violation"),
        (Fault::LateEntry, succession, "Causality violation"),
    ];
    for (fault, case, says) in faults {
        Fault::inject(Some(fault));
        let outcome = catch_unwind(AssertUnwindSafe(|| check(case)));
        Fault::inject(None);
        let panic = outcome.expect_err("the fault goes unnoticed");
        let literal = panic.downcast_ref::<&str>().map(ToString::to_string);
        let complaint = panic.downcast_ref::<String>().cloned().or(literal).unwrap_or_default();
        assert!(complaint.contains(says), "{fault:?}: {complaint}");
    }
}
