//! The table against a naive one: a hash map for the flows, a list for the order of arrival, a scan for the deadlines.

use std::collections::HashMap;

use flow::{Slot, TICK, Table};
use packet::{Key, Nanos};
use proptest::prelude::*;

/// A key whose hash is as bad as a test wants: the number of bits that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number<const HASH_BITS: u32>(u32);

impl<const HASH_BITS: u32> Key for Number<HASH_BITS> {
    fn hash(&self, seed: u64) -> u64 {
        let product = u128::from(u64::from(self.0) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let hash = (product >> 64) as u64 ^ product as u64;
        if HASH_BITS < 64 { hash % (1 << HASH_BITS) } else { hash }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Insert if absent.
    Insert {
        key: u32,
        value: u64,
        after: u64,
    },
    Remove {
        key: u32,
    },
    Touch {
        key: u32,
        after: u64,
    },
    /// A deadline that may lie in the past.
    Backdate {
        key: u32,
        before: u64,
    },
    Assure {
        key: u32,
    },
    Evict,
    Advance {
        by: u64,
    },
    /// So many units of ageing.
    Reclaim {
        units: u16,
    },
    /// Ageing until nothing is due.
    Drain,
}

/// Spans from nothing to forever, as many of each magnitude.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        1 => Just(u64::MAX),
        8 => (0u32..64, any::<u64>()).prop_map(|(bits, random)| random >> bits),
        // Whole ticks and their neighbours.
        4 => (0u64..2000, 0u64..3).prop_map(|(ticks, off)| (ticks * TICK.0 + off).saturating_sub(1)),
    ]
}

fn step(keys: u32) -> impl Strategy<Value = Step> {
    let key = 0..keys;
    // Few jumps of years: deadlines and steps of seconds are what exercises the order.
    let short = 0u64..20_000_000_000;
    prop_oneof![
        8 => (key.clone(), any::<u64>(), span()).prop_map(|(key, value, after)| Step::Insert { key, value, after }),
        8 => (key.clone(), any::<u64>(), short.clone()).prop_map(|(key, value, after)| Step::Insert { key, value, after }),
        3 => key.clone().prop_map(|key| Step::Remove { key }),
        4 => (key.clone(), span()).prop_map(|(key, after)| Step::Touch { key, after }),
        4 => (key.clone(), short.clone()).prop_map(|(key, after)| Step::Touch { key, after }),
        1 => (key.clone(), span()).prop_map(|(key, before)| Step::Backdate { key, before }),
        2 => key.prop_map(|key| Step::Assure { key }),
        1 => Just(Step::Evict),
        1 => span().prop_map(|by| Step::Advance { by: by >> 4 }),
        4 => short.prop_map(|by| Step::Advance { by: by >> 2 }),
        4 => (1u16..40).prop_map(|units| Step::Reclaim { units }),
        1 => Just(Step::Drain),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    slot: Slot,
    value: u64,
    deadline: Nanos,
    assured: bool,
    /// It was armed with a deadline that had already passed, so it comes whenever it is found.
    backdated: bool,
}

struct Model<const BITS: u32> {
    table: Table<Number<BITS>, u64>,
    flows: HashMap<u32, Flow>,
    /// Unassured flows in order of arrival.
    arrivals: Vec<u32>,
    now: Nanos,
    high_water: usize,
}

impl<const BITS: u32> Model<BITS> {
    fn new(capacity: usize, start: u64) -> Self {
        let table = Table::new(capacity, 0x5eed);
        Self { table, flows: HashMap::new(), arrivals: Vec::new(), now: Nanos(start), high_water: 0 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert { key, value, after } => self.insert(key, value, self.now + Nanos(after)),
            Step::Remove { key } => {
                if self.flows.contains_key(&key) {
                    self.remove(key);
                }
            }
            Step::Touch { key, after } => self.touch(key, self.now + Nanos(after)),
            Step::Backdate { key, before } => self.touch(key, self.now - Nanos(before)),
            Step::Assure { key } => {
                if let Some(flow) = self.flows.get_mut(&key) {
                    self.table.assure(flow.slot);
                    flow.assured = true;
                    self.arrivals.retain(|other| *other != key);
                }
            }
            Step::Evict => {
                let victim = self.table.oldest_unassured();
                assert_eq!(victim.map(|slot| self.table.key(slot).0), self.arrivals.first().copied());
                if let Some(slot) = victim {
                    self.remove(self.table.key(slot).0);
                }
            }
            Step::Advance { by } => self.now = self.now + Nanos(by),
            Step::Reclaim { units } => {
                for _ in 0..units {
                    self.reclaim();
                }
            }
            Step::Drain => self.drain(),
        }
        self.check();
    }

    fn insert(&mut self, key: u32, value: u64, deadline: Nanos) {
        let hash = self.table.hash(&Number(key));
        if self.flows.contains_key(&key) {
            return;
        }
        let full = self.table.is_full();
        let Some(slot) = self.table.insert(Number(key), hash, value, deadline, self.now) else {
            assert!(full || BITS < 64, "no room in a table that isn't full");
            return;
        };
        assert!(!full);
        let deadline = representable(deadline);
        let backdated = deadline <= self.now;
        self.flows.insert(key, Flow { slot, value, deadline, assured: false, backdated });
        self.arrivals.push(key);
        self.high_water = self.high_water.max(self.flows.len());
    }

    fn remove(&mut self, key: u32) {
        let flow = self.flows.remove(&key).expect("the key is in the model");
        self.arrivals.retain(|other| *other != key);
        assert_eq!(self.table.remove(flow.slot), flow.value);
    }

    fn touch(&mut self, key: u32, deadline: Nanos) {
        if let Some(flow) = self.flows.get_mut(&key) {
            self.table.touch(flow.slot, deadline);
            flow.deadline = representable(deadline);
            flow.backdated |= deadline <= self.now;
        }
    }

    fn reclaim(&mut self) -> Option<Flow> {
        let slot = self.table.reclaim(self.now)?;
        let key = self.table.key(slot).0;
        let flow = self.flows[&key];
        assert_eq!(flow.slot, slot);
        assert!(flow.deadline <= self.now, "reclaimed before its deadline");
        self.remove(key);
        Some(flow)
    }

    /// Ages until nothing is due: in order of the deadlines to the tick, and nobody later than a tick.
    fn drain(&mut self) {
        let mut last = 0;
        let mut idle = 0;
        // Each flow may come down six levels, and each unit of work looks at four lists or flows.
        let idle_max = 4 * self.flows.len() + 16;
        while idle < idle_max {
            match self.reclaim() {
                Some(flow) if flow.backdated => {}
                Some(flow) => {
                    let tick = flow.deadline.0.div_ceil(TICK.0);
                    assert!(tick >= last, "out of order");
                    last = tick;
                }
                None => idle += 1,
            }
        }
        for flow in self.flows.values() {
            assert!(flow.deadline + TICK > self.now, "more than a tick late: {flow:?} at {}", self.now);
        }
    }

    fn check(&self) {
        assert_eq!(self.table.len(), self.flows.len());
        assert_eq!(self.table.is_empty(), self.flows.is_empty());
        assert_eq!(self.table.is_full(), self.flows.len() == self.table.capacity());
        assert_eq!(self.table.high_water(), self.high_water);
    }

    /// What takes longer than a step.
    fn check_all(&self, keys: u32) {
        for key in 0..keys {
            let hash = self.table.hash(&Number(key));
            self.table.prefetch(hash);
            self.table.prefetch_entry(hash);
            let slot = self.table.find(&Number(key), hash);
            let flow = self.flows.get(&key);
            assert_eq!(slot, flow.map(|flow| flow.slot));
            if let (Some(slot), Some(flow)) = (slot, flow) {
                assert_eq!(*self.table.value(slot), flow.value);
                assert_eq!(self.table.deadline(slot), flow.deadline);
                assert_eq!(self.table.is_assured(slot), flow.assured);
            }
        }
        let mut listed: Vec<_> = self.table.iter().map(|(key, value, deadline)| (key.0, *value, deadline)).collect();
        let mut expected: Vec<_> = self.flows.iter().map(|(key, flow)| (*key, flow.value, flow.deadline)).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }
}

/// Deadlines beyond 2^63 nanoseconds are never.
fn representable(deadline: Nanos) -> Nanos {
    if deadline.0 >= (1 << 63) - 2 { Nanos::NEVER } else { deadline }
}

fn run<const BITS: u32>(capacity: usize, start: u64, keys: u32, steps: &[Step]) {
    let mut model = Model::<BITS>::new(capacity, start);
    for step in steps {
        model.step(*step);
    }
    model.check_all(keys);
    model.now = Nanos(u64::MAX - 1);
    model.drain();
    assert!(model.flows.values().all(|flow| flow.deadline == Nanos::NEVER));
    model.check_all(keys);
}

const CASES: u32 = if cfg!(miri) { 3 } else { 400 };
const STEPS: usize = if cfg!(miri) { 60 } else { 600 };

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1_700_000_000_000_000_000), 0u64..1 << 62]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_naive_table(
        capacity in 0usize..200,
        start in start(),
        steps in proptest::collection::vec(step(150), 0..STEPS),
    ) {
        run::<64>(capacity, start, 150, &steps);
    }

    #[test]
    fn agrees_with_a_naive_table_when_tiny(
        capacity in 0usize..4,
        start in start(),
        steps in proptest::collection::vec(step(6), 0..STEPS / 4),
    ) {
        run::<64>(capacity, start, 6, &steps);
    }

    #[test]
    fn agrees_with_a_naive_table_under_colliding_hashes(
        start in start(),
        steps in proptest::collection::vec(step(150), 0..STEPS),
    ) {
        run::<2>(120, start, 150, &steps);
        run::<40>(120, start, 150, &steps);
    }
}
