//! The table, with every index and every ageing, against a naive model: a hash map for the flows, a list for the order of arrival, a scan
//! for the deadlines.

use std::collections::HashMap;

use millrace_flow::index::{AnyIndex, IndexKind};
use millrace_flow::{Ageing, Eviction, Hint, Plan, SCANNED, Slot, TICK, Table};
use packet::{Key, Nanos};
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
    /// The victim for this key under another policy.
    Victim {
        key: u32,
    },
    /// The expired flow in the neighbourhood of this key.
    Collide {
        key: u32,
    },
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

/// The wheel's horizon in ticks.
const HORIZON: u64 = 30_000_000_000 / TICK.0;

/// Durations from 0 to forever, equally many of each magnitude.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        1 => Just(u64::MAX),
        8 => (0u32..64, any::<u64>()).prop_map(|(bits, random)| random >> bits),
        // Whole ticks and their neighbours.
        4 => (prop_oneof![0u64..2000, HORIZON - 100..HORIZON + 100], 0u64..3)
            .prop_map(|(ticks, off)| (ticks * TICK.0 + off).saturating_sub(1)),
    ]
}

fn step(keys: u32) -> impl Strategy<Value = Step> {
    let key = 0..keys;
    // Few jumps of years, since deadlines and steps of seconds test the order best.
    let short = 0u64..20_000_000_000;
    prop_oneof![
        8 => (key.clone(), any::<u64>(), span()).prop_map(|(key, value, after)| Step::Insert { key, value, after }),
        8 => (key.clone(), any::<u64>(), short.clone()).prop_map(|(key, value, after)| Step::Insert { key, value, after }),
        3 => key.clone().prop_map(|key| Step::Remove { key }),
        4 => (key.clone(), span()).prop_map(|(key, after)| Step::Touch { key, after }),
        4 => (key.clone(), short.clone()).prop_map(|(key, after)| Step::Touch { key, after }),
        1 => (key.clone(), span()).prop_map(|(key, before)| Step::Backdate { key, before }),
        2 => key.clone().prop_map(|key| Step::Assure { key }),
        1 => key.clone().prop_map(|key| Step::Victim { key }),
        2 => key.prop_map(|key| Step::Collide { key }),
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
    protected: bool,
    /// It was armed with a deadline in the past, so it comes at any time.
    backdated: bool,
}

struct Model<const BITS: u32> {
    table: Table<Number<BITS>, u64, AnyIndex>,
    kind: IndexKind,
    ageing: Ageing,
    flows: HashMap<u32, Flow>,
    /// The clock hand.
    clock_hand: usize,
    now: Nanos,
    high_water: usize,
    /// Hints of different ages, by key.
    hints: HashMap<u32, Hint>,
    steps: u32,
}

impl<const BITS: u32> Model<BITS> {
    fn new((kind, ageing): (IndexKind, Ageing), capacity: usize, start: u64) -> Self {
        let table = Table::planned(Plan { index: kind, capacity, ageing, seed: 0x5eed, ..Plan::default() });
        Self {
            table,
            kind,
            ageing,
            flows: HashMap::new(),
            clock_hand: 0,
            now: Nanos(start),
            high_water: 0,
            hints: HashMap::new(),
            steps: 0,
        }
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
                if let Some(flow) = self.flows.get(&key) {
                    let slot = flow.slot;
                    self.pass_on(key);
                    self.table.protect(slot);
                    self.flows.entry(key).and_modify(|flow| flow.protected = true);
                }
            }
            Step::Evict => {
                if let Some(slot) = self.oldest_unprotected() {
                    self.remove(self.table.key(slot).0);
                }
            }
            Step::Victim { key } => self.victims(key),
            Step::Collide { key } => self.collide(key),
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
        self.flows.insert(key, Flow { slot, value, deadline, protected: false, backdated });
        self.high_water = self.high_water.max(self.flows.len());
    }

    /// The first unprotected flow from the clock hand on, wrapping around. The order under an index that assigns slots is not checked.
    fn oldest_unprotected(&self) -> Option<Slot> {
        let unprotected = self.flows.values().filter(|flow| !flow.protected).map(|flow| flow.slot);
        let oldest = self.table.oldest_unprotected();
        if self.kind == IndexKind::Tagged {
            let found = unprotected.clone().find(|slot| Some(*slot) == oldest);
            assert_eq!((found.is_none(), oldest), (unprotected.count() == 0, found));
        } else {
            assert_eq!(oldest, unprotected.min_by_key(|slot| (slot.index() < self.clock_hand, slot.index())));
        }
        oldest
    }

    /// The flow is protected or gone: the hand moves on if it stands there, or if the table is full and this flow was next.
    fn pass_on(&mut self, key: u32) {
        let Flow { slot, protected, .. } = self.flows[&key];
        let is_next = self.table.is_full() && self.oldest_unprotected() == Some(slot);
        if !protected && (slot.index() == self.clock_hand || is_next) {
            self.clock_hand = (slot.index() + 1) % self.table.slots();
        }
    }

    /// A victim is a flow in the table, and under the policy by deadline it isn't later than all its neighbours.
    fn victims(&self, key: u32) {
        let hash = self.table.hash(&Number(key));
        assert_eq!(self.table.victim(Eviction::None, hash), None);
        let oldest = self.oldest_unprotected();
        assert_eq!(self.table.victim(Eviction::OldestUnprotected, hash), oldest);
        if let Some(slot) = self.table.overdue(self.now) {
            assert!(self.ageing == Ageing::Wheel && self.flows[&self.table.key(slot).0].deadline <= self.now);
        }
        for eviction in [Eviction::LeastRecent, Eviction::Random] {
            if let Some(slot) = self.table.victim(eviction, hash) {
                assert_eq!(self.flows[&self.table.key(slot).0].slot, slot);
            }
        }
        // With a single list of neighbours the first is certain.
        if self.flows.contains_key(&key) && self.flows.len() == 1 {
            let only = self.flows[&key].slot;
            assert_eq!(self.table.victim(Eviction::LeastRecent, hash), Some(only));
        }
    }

    /// Lazy ageing removes expired flows only.
    fn collide(&mut self, key: u32) {
        let hash = self.table.hash(&Number(key));
        while let Some(slot) = self.table.expired_near(hash, self.now) {
            let key = self.table.key(slot).0;
            assert!(self.flows[&key].deadline <= self.now);
            self.remove(key);
        }
        if let Some(flow) = self.flows.get(&key) {
            assert!(flow.deadline > self.now || self.kind != IndexKind::Chaining, "its chain was searched");
        }
    }

    fn remove(&mut self, key: u32) {
        self.pass_on(key);
        let flow = self.flows.remove(&key).expect("the key is in the model");
        assert_eq!(self.table.remove(flow.slot), flow.value);
    }

    fn touch(&mut self, key: u32, deadline: Nanos) {
        if let Some(flow) = self.flows.get_mut(&key) {
            // As engines do: a deadline that is one store is set at the entry.
            if key.is_multiple_of(2) || !self.table.entry(flow.slot, self.now).move_deadline(deadline) {
                self.table.touch(flow.slot, deadline);
            }
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

    /// Ages until nothing is due: flows come in the order of their deadlines to the tick, and none later than a tick.
    fn drain(&mut self) {
        match self.ageing {
            Ageing::Wheel => self.drain_wheel(),
            // Twice round, as the cursor starts anywhere.
            Ageing::Scan => {
                let mut calls = 0;
                while calls < 2 * (SLOTS_MAX / SCANNED) {
                    calls = if self.reclaim().is_some() { 0 } else { calls + 1 };
                }
                assert!(self.flows.values().all(|flow| flow.deadline > self.now), "the clock hand has been everywhere");
            }
            Ageing::Lazy | Ageing::None => assert!(self.reclaim().is_none()),
        }
    }

    fn drain_wheel(&mut self) {
        let mut last = 0;
        let mut idle = 0;
        // Each flow may come down six levels, and each unit of work checks four lists or flows.
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

    /// A hint that a flow is absent holds until the next insertion.
    fn check_hints(&mut self, keys: u32) {
        for (key, hint) in &self.hints {
            assert!(!self.table.is_absent(*hint) || !self.flows.contains_key(key));
        }
        self.steps += 1;
        let key = self.steps.wrapping_mul(31) % keys;
        let hash = self.table.hash(&Number(key));
        let table = &self.table;
        let hint = match key % 4 {
            0 => table.prefetch_entry(hash),
            1 => table.prefetch_entry_as::<true, false>(hash),
            2 => table.prefetch_entry_as::<false, true>(hash),
            _ => table.prefetch_entry_as::<true, true>(hash),
        };
        assert!(!self.table.is_absent(hint) || !self.flows.contains_key(&key));
        assert!(BITS < 64 || !self.flows.is_empty() || self.table.is_absent(hint), "nobody is in");
        self.hints.insert(key, hint);
    }

    /// Checks that are too slow for each step.
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
                assert_eq!(self.table.is_protected(slot), flow.protected);
            }
        }
        let mut listed: Vec<_> = self.table.iter().map(|(key, value, deadline)| (key.0, *value, deadline)).collect();
        let mut expected: Vec<_> = self.flows.iter().map(|(key, flow)| (*key, flow.value, flow.deadline)).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }
}

/// A deadline of 0 becomes 1 ns.
fn representable(deadline: Nanos) -> Nanos {
    deadline.max(Nanos(1))
}

/// More slots than any table here has.
const SLOTS_MAX: usize = 1000;

fn run<const BITS: u32>(design: (IndexKind, Ageing), capacity: usize, start: u64, keys: u32, steps: &[Step]) {
    let mut model = Model::<BITS>::new(design, capacity, start);
    for step in steps {
        model.step(*step);
        model.check_hints(keys);
    }
    model.check_all(keys);
    model.now = Nanos(u64::MAX - 1);
    model.drain();
    let ages = matches!(model.ageing, Ageing::Wheel | Ageing::Scan);
    assert!(!ages || model.flows.values().all(|flow| flow.deadline == Nanos::NEVER));
    model.check_all(keys);
}

const CASES: u32 = if cfg!(miri) { 3 } else { 1000 };
const STEPS: usize = if cfg!(miri) { 60 } else { 600 };

fn design() -> impl Strategy<Value = (IndexKind, Ageing)> {
    // The wheel is the most complex, so it gets the most cases.
    let ageing = prop_oneof![3 => Just(Ageing::Wheel), 2 => Just(Ageing::Scan), 1 => Just(Ageing::Lazy), 1 => Just(Ageing::None)];
    (proptest::sample::select(&IndexKind::ALL), ageing)
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1_700_000_000_000_000_000), 0u64..1 << 62]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_naive_table(
        capacity in 0usize..200,
        design in design(),
        start in start(),
        steps in proptest::collection::vec(step(150), 0..STEPS),
    ) {
        run::<64>(design, capacity, start, 150, &steps);
    }

    #[test]
    fn agrees_with_a_naive_table_when_tiny(
        capacity in 0usize..4,
        design in design(),
        start in start(),
        steps in proptest::collection::vec(step(6), 0..STEPS / 4),
    ) {
        run::<64>(design, capacity, start, 6, &steps);
    }

    #[test]
    fn agrees_with_a_naive_table_under_colliding_hashes(
        design in design(),
        start in start(),
        steps in proptest::collection::vec(step(150), 0..STEPS),
    ) {
        run::<2>(design, 120, start, 150, &steps);
        run::<40>(design, 120, start, 150, &steps);
    }
}
