//! Each shared table against a hash map, on one thread; and the guarantees of each.
#![cfg(not(loom))]

use std::collections::HashMap;

use millrace_flow::index::Tagged;
use millrace_flow::shared::baselines::{Locked, Optimistic, Striped};
use millrace_flow::shared::{Entries, Insertion, SharedTable};
use millrace_flow::{Ageing, Plan};
use packet::{Key, Nanos, Words};
use proptest::prelude::*;

/// A key with a bad hash: it keeps this number of bits only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number<const HASH_BITS: u32>(u32);

impl<const HASH_BITS: u32> Key for Number<HASH_BITS> {
    fn hash(&self, seed: u64) -> u64 {
        let product = u128::from(u64::from(self.0) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let hash = (product >> 64) as u64 ^ product as u64;
        if HASH_BITS < 64 { hash % (1 << HASH_BITS) } else { hash }
    }
}

impl<const HASH_BITS: u32> Words for Number<HASH_BITS> {
    type Array = [u64; 1];
    const ZEROS: [u64; 1] = [0];

    fn to_words(&self) -> [u64; 1] {
        [self.0.into()]
    }

    fn from_words(words: [u64; 1]) -> Self {
        Self(words[0] as u32)
    }
}

/// Two words, so that entries are not aligned to cache lines.
type Value = [u64; 2];

#[derive(Clone, Copy, Debug)]
enum Step {
    Get {
        key: u32,
    },
    Insert {
        key: u32,
        value: u64,
        after: u64,
    },
    /// It moves the deadline too, perhaps into the past.
    Update {
        key: u32,
        add: u64,
        after: u64,
    },
    Remove {
        key: u32,
    },
    Advance {
        by: u64,
    },
    Reclaim {
        near: u64,
    },
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..30, 2 => 0u64..1 << 34, 1 => Just(u64::MAX)]
}

fn step(keys: u32) -> impl Strategy<Value = Step> {
    let key = 0..keys;
    prop_oneof![
        4 => key.clone().prop_map(|key| Step::Get { key }),
        8 => (key.clone(), any::<u64>(), span()).prop_map(|(key, value, after)| Step::Insert { key, value, after }),
        4 => (key.clone(), any::<u64>(), span()).prop_map(|(key, add, after)| Step::Update { key, add, after }),
        3 => key.prop_map(|key| Step::Remove { key }),
        2 => (0u64..20).prop_map(|by| Step::Advance { by }),
        1 => (0u64..1 << 34).prop_map(|by| Step::Advance { by }),
        2 => any::<u64>().prop_map(|near| Step::Reclaim { near }),
    ]
}

struct Model<const BITS: u32, T> {
    table: T,
    /// Includes expired flows that no operation has met.
    flows: HashMap<u32, (Value, Nanos)>,
    now: Nanos,
    /// From this number of flows on an insertion may fail.
    full_from: usize,
    /// True if the table has ageing.
    ages: bool,
}

impl<const BITS: u32, T: SharedTable<Number<BITS>, Value>> Model<BITS, T> {
    fn new(table: T, full_from: usize) -> Self {
        Self { table, flows: HashMap::new(), now: Nanos(1_000_000), full_from, ages: true }
    }

    fn alive(&self, key: u32) -> Option<(Value, Nanos)> {
        self.flows.get(&key).copied().filter(|(_, deadline)| *deadline > self.now)
    }

    fn step(&mut self, step: Step) {
        let hash = |key| self.table.hash(&Number(key));
        let now = self.now;
        match step {
            Step::Get { key } => {
                self.table.prefetch(hash(key));
                self.table.prefetch_entry(hash(key));
                let value = self.table.get(&Number(key), hash(key), now);
                assert_eq!(value, self.alive(key).map(|(value, _)| value));
            }
            Step::Insert { key, value, after } => {
                let (value, deadline) = ([value, !value], now + Nanos(after));
                let insertion = self.table.insert(Number(key), hash(key), value, deadline, now);
                match (insertion, self.alive(key)) {
                    (Insertion::Added, None) => {
                        self.flows.insert(key, (value, deadline));
                    }
                    (Insertion::Present, Some(_)) => {}
                    (Insertion::Full, None) => {
                        let flows = self.flows.len();
                        assert!(flows >= self.full_from, "no room beside {flows} flows");
                        // An expired flow of this key may be gone.
                        self.flows.remove(&key);
                    }
                    (insertion, flow) => panic!("{insertion:?} where there was {flow:?}"),
                }
            }
            Step::Update { key, add, after } => {
                let updated = self.table.update(&Number(key), hash(key), now, |value, deadline| {
                    *value = [value[0].wrapping_add(add), value[1].wrapping_sub(add)];
                    let before = *deadline;
                    *deadline = Nanos(now.0.saturating_sub(3)) + Nanos(after);
                    before
                });
                assert_eq!(updated, self.alive(key).map(|(_, deadline)| deadline));
                if updated.is_some() {
                    let flow = self.flows.get_mut(&key).expect("it lives");
                    flow.0 = [flow.0[0].wrapping_add(add), flow.0[1].wrapping_sub(add)];
                    flow.1 = Nanos(now.0.saturating_sub(3)) + Nanos(after);
                }
            }
            Step::Remove { key } => {
                let removed = self.table.remove(&Number(key), hash(key), now);
                assert_eq!(removed, self.alive(key).map(|(value, _)| value));
                self.flows.remove(&key);
            }
            Step::Advance { by } => self.now = now + Nanos(by),
            Step::Reclaim { near } => {
                let len = self.table.len();
                let reclaimed = self.table.reclaim(near, now);
                assert_eq!(self.table.len() + reclaimed, len);
            }
        }
        let (len, alive) = (self.table.len(), self.flows.values().filter(|(_, deadline)| *deadline > self.now).count());
        assert!(alive <= len && len <= self.flows.len(), "{alive} of {} flows live, {len} are in", self.flows.len());
        assert!(len <= self.table.capacity());
        assert_eq!(self.table.is_empty(), len == 0);
    }

    fn run(mut self, keys: u32, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
        for key in 0..keys {
            self.step(Step::Get { key });
        }
        // All flows expire, and ageing removes them in a bounded number of steps.
        self.now = Nanos(u64::MAX);
        for round in 0..8 * (self.table.capacity() as u64 + 4096) {
            self.table.reclaim(round.wrapping_mul(0x9e37_79b9_7f4a_7c15), Nanos(u64::MAX - 1));
        }
        let immortal = self.flows.values().filter(|(_, deadline)| *deadline == Nanos::NEVER).count();
        assert!(!self.ages || self.table.len() <= immortal);
    }
}

/// Every table, of several shapes.
fn run_all<const BITS: u32>(capacity: usize, keys: u32, steps: &[Step]) {
    let never = usize::MAX;
    // Colliding hashes fill one part of an index and one stripe while the rest is free.
    let full_from = |flows: usize| if BITS < 64 { 0 } else { flows };
    let plan = |ageing| Plan { capacity, ageing, seed: 0x5eed, ..Plan::default() };
    Model::<BITS, _>::new(Locked::<_, _>::planned(plan(Ageing::Wheel)), full_from(capacity)).run(keys, steps);
    Model::<BITS, _>::new(Locked::<_, _, Tagged>::planned(plan(Ageing::Scan)), full_from(capacity)).run(keys, steps);
    Model::<BITS, _>::new(Striped::<_, _>::planned(plan(Ageing::Wheel)), full_from(capacity)).run(keys, steps);
    let lazy = Striped::<_, _>::cut(plan(Ageing::Lazy), 4);
    Model::<BITS, _> { ages: false, ..Model::new(lazy, full_from(capacity / 4)) }.run(keys, steps);
    let entries = |plan, stripes| Entries::<_, _>::cut(plan, stripes, |_| (), ());
    Model::<BITS, _>::new(entries(plan(Ageing::Wheel), 1), full_from(capacity)).run(keys, steps);
    Model::<BITS, _>::new(entries(plan(Ageing::Scan), 1), full_from(capacity)).run(keys, steps);
    let lazy = entries(plan(Ageing::Lazy), 4);
    Model::<BITS, _> { ages: false, ..Model::new(lazy, full_from(capacity / 4)) }.run(keys, steps);
    // A table for three times as many flows always has room; one for exactly as many may not; one of a single bucket has room while a place
    // is free.
    let table = Optimistic::<_, Value>::with_load(keys as usize * 3 + 24, 100, 0x5eed);
    Model::<BITS, _>::new(table, full_from(never)).run(keys, steps);
    Model::<BITS, _>::new(Optimistic::<_, Value>::new(capacity, 0x5eed), 0).run(keys, steps);
    Model::<BITS, _>::new(Optimistic::<_, Value, 2>::new(capacity, 0x5eed), 0).run(keys, steps);
    Model::<BITS, _>::new(Optimistic::<_, Value, 8>::with_buckets(1, 0x5eed), 8).run(keys, steps);
    Model::<BITS, _>::new(Optimistic::<_, Value, 1>::with_buckets(1, 0x5eed), 1).run(keys, steps);
}

const CASES: u32 = if cfg!(miri) { 1 } else { 60 };
const STEPS: usize = if cfg!(miri) { 60 } else { 500 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_agrees_with_a_map(capacity in 1usize..120, steps in proptest::collection::vec(step(150), 0..STEPS)) {
        run_all::<64>(capacity, 150, &steps);
    }

    #[test]
    fn each_agrees_with_a_map_when_tiny(capacity in 1usize..6, steps in proptest::collection::vec(step(8), 0..STEPS / 4)) {
        run_all::<64>(capacity, 8, &steps);
    }

    #[test]
    fn each_agrees_with_a_map_under_colliding_hashes(steps in proptest::collection::vec(step(60), 0..STEPS)) {
        run_all::<1>(50, 60, &steps);
        run_all::<34>(50, 60, &steps);
    }
}

/// The load at which the first insertion fails.
fn load_at_refusal<const WIDTH: usize>(places: usize, seed: u64) -> f64 {
    let table = Optimistic::<Number<64>, u64, WIDTH>::with_load(places, 100, seed);
    let mut count = 0;
    while add(&table, count) == Insertion::Added {
        count += 1;
    }
    assert_eq!(table.len(), count as usize);
    for number in 0..count {
        let key = Number(number);
        assert_eq!(table.get(&key, table.hash(&key), Nanos(0)), Some(number.into()), "lost on the way");
    }
    f64::from(count) / table.capacity() as f64
}

fn add<T: SharedTable<Number<64>, u64>>(table: &T, number: u32) -> Insertion {
    table.insert(Number(number), table.hash(&Number(number)), number.into(), Nanos(5), Nanos(0))
}

#[test]
fn displacement_fills_the_optimistic_table() {
    let places = if cfg!(miri) { 300 } else { 100_000 };
    for seed in 0..if cfg!(miri) { 1 } else { 5 } {
        let load = load_at_refusal::<8>(places, seed);
        assert!(load > if cfg!(miri) { 0.7 } else { 0.95 }, "full at {load}");
        let load = load_at_refusal::<4>(places, seed);
        assert!(load > if cfg!(miri) { 0.7 } else { 0.9 }, "full at {load}");
    }
}

#[test]
fn each_takes_its_capacity() {
    fn fill<T: SharedTable<Number<64>, u64>>(capacity: u32) {
        for seed in 0..10 {
            let table = T::new(capacity as usize, seed);
            assert!(table.capacity() >= capacity as usize);
            let added = (0..capacity).filter(|number| add(&table, *number) == Insertion::Added).count();
            assert_eq!((added, table.len()), (capacity as usize, capacity as usize), "seed {seed}");
        }
    }
    for capacity in if cfg!(miri) { &[100][..] } else { &[1000, 10_000, 60_000] } {
        fill::<Locked<_, _>>(*capacity);
        fill::<Striped<_, _>>(*capacity);
        fill::<Optimistic<_, _>>(*capacity);
        fill::<Entries<_, _>>(*capacity);
    }
}

#[test]
fn a_table_full_of_the_dead_takes_the_living() {
    fn refill<T: SharedTable<Number<64>, u64>>(table: &T) {
        let mut count = 0;
        while add(table, count) == Insertion::Added {
            count += 1;
        }
        // After as many insertions again, each has replaced an expired flow.
        for number in count..count * 2 {
            let key = Number(number);
            let insertion = table.insert(key, table.hash(&key), 7, Nanos(1 << 40), Nanos(1 << 30));
            assert_eq!(insertion, Insertion::Added, "number {number} of {}", count * 2);
        }
        assert_eq!(table.len(), count as usize);
    }
    let capacity = if cfg!(miri) { 64 } else { 5000 };
    refill(&Locked::<_, _>::new(capacity, 1));
    // Other stripes are full now than before.
    refill(&Striped::<_, _>::cut(Plan { capacity, ..Plan::default() }, 1));
    refill(&Entries::<_, _>::cut(Plan { capacity, ..Plan::default() }, 1, |_| (), ()));
    refill(&Optimistic::<_, _, 8>::with_buckets(1, 1));
}

#[test]
fn a_panic_leaves_the_flow_as_it_was() {
    fn try_it<T: SharedTable<Number<64>, u64>>() {
        let table = T::new(10, 1);
        add(&table, 3);
        let hash = table.hash(&Number(3));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            table.update(&Number(3), hash, Nanos(0), |value, _| {
                *value = 9;
                panic!("expected");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(table.update(&Number(3), hash, Nanos(0), |value, _| *value), Some(3));
    }
    try_it::<Locked<_, _>>();
    try_it::<Striped<_, _>>();
    try_it::<Optimistic<_, _>>();
    try_it::<Entries<_, _>>();
}

#[test]
fn memory_is_bounded() {
    let flows = 1 << if cfg!(miri) { 9 } else { 18 };
    let per_flow = |bytes: usize| bytes / flows;
    // Entries of 40 bytes: key 16, deadline 8, value 16.
    let optimistic = Optimistic::<packet::FiveTuple4, [u64; 2]>::new(flows, 1);
    assert!(per_flow(optimistic.memory_bytes()) <= 54, "{}", per_flow(optimistic.memory_bytes()));
    if !cfg!(miri) {
        assert!(per_flow(Locked::<packet::FiveTuple4, [u64; 2]>::new(flows, 1).memory_bytes()) <= 84);
        let entries = Entries::<packet::FiveTuple4, [u64; 2]>::new(flows, 1);
        // A cache line for the entry, three signposts, and the stripes' tables with their wheels.
        assert!(per_flow(entries.memory_bytes()) <= 320, "{}", per_flow(entries.memory_bytes()));
        let striped = Striped::<packet::FiveTuple4, [u64; 2]>::new(flows, 1);
        // A stripe is a small table, and a small wheel has room for each flow on a list of its own.
        assert!(per_flow(striped.memory_bytes()) <= 200, "{}", per_flow(striped.memory_bytes()));
    }
}
