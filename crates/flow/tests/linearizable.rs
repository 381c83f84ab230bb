//! Checks that the shared tables are linearizable. The model checker loom enumerates histories over schedules and allowed reads. For each
//! history there must be an order of the operations, each within its call and return, in which a sequential map gives the same answers
//! (Wing and Gong, "Testing and verifying concurrent objects", 1993).
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p millrace-flow --release --test linearizable`
#![cfg(loom)]

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use millrace_flow::shared::baselines::{Locked, Optimistic, Striped};
use millrace_flow::shared::{Entries, Fault, Insertion, SharedTable};
use millrace_flow::{Ageing, Plan};
use packet::{Key, Nanos, Words};

/// A key with a chosen hash: its first bucket of three, its tag, and a number that distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Chosen {
    bucket: u8,
    tag: u8,
    number: u8,
}

impl Key for Chosen {
    fn hash(&self, _: u64) -> u64 {
        // The middle of the bucket's third of 2^32; middle bits for the stripe.
        let upper = ((2 * u64::from(self.bucket) + 1) << 32) / 6;
        upper << 32 | u64::from(self.bucket) << 16 | u64::from(self.tag)
    }
}

impl Words for Chosen {
    type Array = [u64; 1];
    const ZEROS: [u64; 1] = [0];

    fn to_words(&self) -> [u64; 1] {
        [u64::from_be_bytes([0, 0, 0, 0, 0, self.bucket, self.tag, self.number])]
    }

    fn from_words(words: [u64; 1]) -> Self {
        let [.., bucket, tag, number] = words[0].to_be_bytes();
        Self { bucket, tag, number }
    }
}

/// Two words that belong together, so that a torn value is one that no core wrote.
type Value = [u64; 2];

const fn value(number: u64) -> Value {
    [number, !number]
}

const fn key(bucket: u8, tag: u8, number: u8) -> Chosen {
    Chosen { bucket, tag, number }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(Chosen),
    /// With a deadline.
    Insert(Chosen, u64, u64),
    /// Adds to the value.
    Update(Chosen, u64),
    Remove(Chosen),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(Option<Value>),
    Insertion(Insertion),
}

use Operation::{Get, Insert, Remove, Update};

/// No deadline.
const LONG: u64 = u64::MAX;
/// The present time.
const NOW: Nanos = Nanos(100);

/// An operation, its answer, and the times of call and return.
#[derive(Clone, Copy, Debug)]
struct Event {
    operation: Operation,
    answer: Answer,
    called: usize,
    returned: usize,
}

fn perform<T: SharedTable<Chosen, Value>>(table: &T, operation: Operation) -> Answer {
    match operation {
        Get(key) => Answer::Value(table.get(&key, table.hash(&key), NOW)),
        Insert(key, number, deadline) => {
            Answer::Insertion(table.insert(key, table.hash(&key), value(number), Nanos(deadline), NOW))
        }
        Update(key, add) => Answer::Value(table.update(&key, table.hash(&key), NOW, |content, _| {
            let before = *content;
            *content = value(before[0] + add);
            before
        })),
        Remove(key) => Answer::Value(table.remove(&key, table.hash(&key), NOW)),
    }
}

/// The sequential map. A flow that is expired at insertion is not in it.
type Map = BTreeMap<Chosen, Value>;

/// True if the map may give this answer; it then applies the operation. With `full_from` flows or more there may be no room.
fn answers(map: &mut Map, operation: Operation, answer: Answer, full_from: usize) -> bool {
    let expected = match operation {
        Get(key) => Answer::Value(map.get(&key).copied()),
        Insert(_, _, _) if answer == Answer::Insertion(Insertion::Full) => return map.len() >= full_from,
        Insert(key, _, _) if map.contains_key(&key) => Answer::Insertion(Insertion::Present),
        Insert(key, number, deadline) => {
            if deadline > NOW.0 {
                map.insert(key, value(number));
            }
            Answer::Insertion(Insertion::Added)
        }
        Update(key, add) => Answer::Value(map.get_mut(&key).map(|content| {
            let before = *content;
            *content = value(before[0] + add);
            before
        })),
        Remove(key) => Answer::Value(map.remove(&key)),
    };
    answer == expected
}

/// True if an order of the events explains every answer. An event may come first unless another one returned before its call.
fn is_explained(map: &Map, events: &[Event], full_from: usize) -> bool {
    let Some(first_return) = events.iter().map(|event| event.returned).min() else { return true };
    (0..events.len()).filter(|at| events[*at].called <= first_return).any(|at| {
        let mut map = map.clone();
        let Event { operation, answer, .. } = events[at];
        let rest: Vec<Event> = [&events[..at], &events[at + 1..]].concat();
        answers(&mut map, operation, answer, full_from) && is_explained(&map, &rest, full_from)
    })
}

/// The operations of each thread, and of the table before.
struct Case {
    before: &'static [Operation],
    threads: &'static [&'static [Operation]],
    full_from: usize,
}

/// How many preemptions there may be. Two find every fault below.
const PREEMPTIONS_MAX: usize = 2;
/// The limit of a search. Most cases of three threads reach it, so that all take a minute.
const PERMUTATIONS_MAX: usize = 20_000;

/// Runs the case in all executions that the checker finds; returns how many.
///
/// # Panics
/// If a history has no explanation.
fn check<T: SharedTable<Chosen, Value>>(case: &'static Case, make: fn() -> T) -> usize {
    let histories = std::sync::Arc::new(Count::new(0));
    let seen = std::sync::Arc::clone(&histories);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.max_branches = 20_000;
    model.max_permutations = Some(PERMUTATIONS_MAX);
    model.check(move || {
        let (table, clock) = (Arc::new(make()), Arc::new(AtomicUsize::new(0)));
        let mut map = Map::new();
        for operation in case.before {
            let answer = perform(&*table, *operation);
            assert!(answers(&mut map, *operation, answer, usize::MAX), "{operation:?} at first: {answer:?}");
        }
        let work = |operations: &'static [Operation]| {
            let (table, clock) = (Arc::clone(&table), Arc::clone(&clock));
            move || {
                // The clock orders an operation behind those that returned before its call.
                let tick = || 2 * clock.fetch_add(1, Ordering::AcqRel);
                let mut called = tick();
                let perform = |operation: &Operation| {
                    let (operation, answer) = (*operation, perform(&*table, *operation));
                    let returned = tick();
                    // One clock access for both, since each multiplies the executions.
                    Event { operation, answer, called: mem::replace(&mut called, returned + 1), returned }
                };
                operations.iter().map(perform).collect::<Vec<_>>()
            }
        };
        let (own, others) = case.threads.split_first().expect("a case has threads");
        let others: Vec<_> = others.iter().map(|operations| thread::spawn(work(operations))).collect();
        let mut events = work(own)();
        events.extend(others.into_iter().flat_map(|other| other.join().expect("no thread panics")));
        // The final contents must be explained too, so they are read at the end.
        let end = 1000;
        for key in keys(case) {
            let operation = Get(key);
            events.push(Event { operation, answer: perform(&*table, operation), called: end, returned: end });
        }
        assert!(is_explained(&map, &events, case.full_from), "no order explains {events:#?} from {map:?}");
        seen.fetch_add(1, CountOrdering::Relaxed);
    });
    histories.load(CountOrdering::Relaxed)
}

/// The keys of the cases.
fn keys(case: &Case) -> BTreeSet<Chosen> {
    let operations = case.before.iter().chain(case.threads.iter().copied().flatten());
    operations
        .map(|operation| match *operation {
            Get(key) | Insert(key, _, _) | Update(key, _) | Remove(key) => key,
        })
        .collect()
}

// With three buckets, tag 1 pairs the first with the second, tag 2 the second with the third, tag 3 the first with the
// third; each leaves the odd one to itself.
const A: Chosen = key(0, 1, 1);
const B: Chosen = key(0, 1, 2);
const C: Chosen = key(1, 1, 3);
const D: Chosen = key(1, 1, 4);
const E: Chosen = key(1, 2, 5);
const F: Chosen = key(2, 1, 6);

/// Buckets of one place, so that two keys fill a bucket.
fn optimistic() -> Optimistic<Chosen, Value, 1> {
    Optimistic::with_buckets(3, 0)
}

fn locked() -> Locked<Chosen, Value> {
    Locked::planned(Plan { capacity: 3, ageing: Ageing::Lazy, ..Plan::default() })
}

fn striped() -> Striped<Chosen, Value> {
    Striped::cut(Plan { capacity: 3, ageing: Ageing::Lazy, ..Plan::default() }, 2)
}

fn entries() -> Entries<Chosen, Value> {
    Entries::cut(Plan { capacity: 3, ageing: Ageing::Lazy, ..Plan::default() }, 1, |_| (), ())
}

static SAME_KEY: Case = Case {
    before: &[],
    threads: &[&[Get(A), Get(A)], &[Insert(A, 1, LONG), Remove(A)], &[Insert(A, 2, LONG), Update(A, 10)]],
    full_from: usize::MAX,
};

static UPDATES: Case = Case {
    before: &[Insert(A, 1, LONG)],
    threads: &[&[Get(A), Get(A)], &[Update(A, 10)], &[Update(A, 100)]],
    full_from: usize::MAX,
};

/// B finds its first bucket full, goes to its second, and is looked up there.
static STRAYING: Case = Case {
    before: &[Insert(A, 1, LONG)],
    threads: &[&[Get(B), Get(B)], &[Insert(B, 2, LONG)], &[Remove(A), Insert(A, 3, LONG)]],
    full_from: 2,
};

/// B displaces E to its second bucket, while others read and change E.
static DISPLACEMENT: Case = Case {
    before: &[Insert(A, 1, LONG), Insert(E, 2, LONG)],
    threads: &[&[Get(E), Get(B)], &[Insert(B, 3, LONG)], &[Update(E, 10)]],
    full_from: 3,
};

/// E displaces B from its second bucket to its first.
static HOMECOMING: Case = Case {
    before: &[Insert(A, 1, LONG), Insert(B, 2, LONG), Insert(F, 3, LONG), Remove(A)],
    threads: &[&[Get(B), Get(E)], &[Insert(E, 4, LONG)], &[Remove(B)]],
    full_from: 3,
};

/// The same with one reader, which must not miss B on its way.
static ON_THE_WAY: Case = Case {
    before: &[Insert(A, 1, LONG), Insert(B, 2, LONG), Insert(F, 3, LONG), Remove(A)],
    threads: &[&[Get(B)], &[Insert(E, 4, LONG)]],
    full_from: 3,
};

/// Both buckets are full and wanted by both threads: no deadlock.
static CROSSING: Case = Case {
    before: &[Insert(A, 1, LONG), Insert(C, 2, LONG)],
    threads: &[&[Remove(C), Get(B)], &[Insert(B, 3, LONG)], &[Insert(D, 4, LONG)]],
    full_from: 2,
};

/// Two places hold expired flows, and new flows need them.
static EXPIRY: Case = Case {
    before: &[Insert(A, 1, 50), Insert(C, 2, 50)],
    threads: &[&[Get(A), Get(B)], &[Insert(A, 3, LONG)], &[Insert(B, 4, LONG)]],
    full_from: 2,
};

#[test]
fn the_optimistic_table_is_linearizable_on_one_key() {
    assert!(check(&SAME_KEY, optimistic) > 1000);
    assert!(check(&UPDATES, optimistic) > 1000);
}

#[test]
fn the_optimistic_table_is_linearizable_on_colliding_keys() {
    assert!(check(&STRAYING, optimistic) > 1000);
    assert!(check(&CROSSING, optimistic) > 1000);
}

#[test]
fn the_optimistic_table_is_linearizable_while_entries_move() {
    assert!(check(&DISPLACEMENT, optimistic) > 1000);
    assert!(check(&HOMECOMING, optimistic) > 1000);
    assert!(check(&ON_THE_WAY, optimistic) > 100);
}

#[test]
fn the_optimistic_table_is_linearizable_while_flows_die() {
    assert!(check(&EXPIRY, optimistic) > 1000);
}

#[test]
fn the_tables_under_locks_are_linearizable() {
    for case in [&SAME_KEY, &STRAYING, &EXPIRY] {
        assert!(check(case, locked) > 100);
        assert!(check(case, striped) > 100);
    }
}

/// A slot gets another flow while others follow a signpost to it.
static SUCCESSION: Case = Case {
    before: &[Insert(A, 1, LONG)],
    threads: &[&[Update(A, 10)], &[Remove(A), Insert(B, 2, LONG)], &[Get(B)]],
    full_from: 3,
};

/// The same without other readers.
static HANDOVER: Case = Case {
    before: &[Insert(A, 1, LONG)],
    threads: &[&[Update(A, 10), Get(A)], &[Remove(A), Insert(B, 2, LONG), Get(B)]],
    full_from: 3,
};

#[test]
fn the_table_of_locked_entries_is_linearizable() {
    for case in [&UPDATES, &SUCCESSION, &HANDOVER, &EXPIRY] {
        assert!(check(case, entries) > 100);
    }
}

/// The message of the check if the tables have this fault.
fn complaint<T: SharedTable<Chosen, Value>>(fault: Fault, case: &'static Case, make: fn() -> T) -> String {
    Fault::inject(Some(fault));
    let outcome = catch_unwind(AssertUnwindSafe(|| check(case, make)));
    Fault::inject(None);
    let panic = outcome.expect_err("the fault goes unnoticed");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn the_check_notices_what_is_broken() {
    let faults = [
        (Fault::EarlyWords, &UPDATES),
        (Fault::EarlyVersion, &UPDATES),
        (Fault::LateWords, &UPDATES),
        (Fault::Unchecked, &UPDATES),
        (Fault::HalfChecked, &ON_THE_WAY),
    ];
    for (fault, case) in faults {
        let complaint = complaint(fault, case, optimistic);
        assert!(complaint.contains("no order explains"), "{fault:?}: {complaint}");
    }
    let untrue = complaint(Fault::Trusting, &HANDOVER, entries);
    assert!(untrue.contains("no order explains"), "{untrue}");
    let unlocked = complaint(Fault::EarlyUnlock, &UPDATES, entries);
    assert!(unlocked.contains("Causality violation"), "{unlocked}");
    let complaint = complaint(Fault::EarlyUnlock, &SAME_KEY, striped);
    assert!(complaint.contains("Causality violation"), "{complaint}");
}
