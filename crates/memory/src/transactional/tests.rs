//! Transactions of several cores, run by one thread: against local memory on one core, against naive models on more. Locked memory is
//! compared with both. `tests/transactions.rs` uses real threads, `tests/serializable_model.rs` the model checker.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use packet::{Family, FlowKey, Host, Host4, Key, Nanos};
use proptest::prelude::*;

use super::*;
use crate::locked::Locked;
use crate::{Allocator, Distributed, Local, LocalTx, Map, Vector};

const KEYS: u64 = 12;
const ROOM: usize = 6;

/// A key with few hash values, so that buckets hold several pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crowded(u64);

impl Key for Crowded {
    fn hash(&self, _: u64) -> u64 {
        (self.0 % 3).wrapping_mul(0x5fff_ffff_ffff_ffff)
    }
}

/// More words than fit on a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wide([u64; 9]);

packet::words! {
    Crowded: [1], key => [key.0], words => Self(words[0]);
    Wide: [9], wide => wide.0, words => Self(words);
}

impl Portion for u64 {
    fn merge(&mut self, other: &Self) {
        *self = self.wrapping_add(*other);
    }
}

/// One structure of each kind.
struct World<M: Memory> {
    vector: M::Vector<Wide>,
    map: M::Map<Crowded, [u64; 2]>,
    pool: M::Allocator,
    total: M::Distributed<u64>,
}

fn world<M: Memory>(memory: &M) -> World<M> {
    World {
        vector: memory.vector(3, Wide([0; 9])),
        map: memory.map(ROOM),
        pool: memory.allocator(ROOM),
        total: memory.distributed(0, Nanos(0)),
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Read(usize),
    Write(usize, u64),
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    Allocate(u64),
    AllocateExact(usize, u64),
    Deadline(usize),
    Refresh(usize, u64),
    Free(usize),
    Expire(u64),
    Update(u64),
    Merge,
}

fn op() -> impl Strategy<Value = Op> {
    // Times of several ticks of the wheel, and far ones.
    let time = || prop_oneof![0..40_000_000u64, 0..1u64 << 50];
    prop_oneof![
        (0..3usize).prop_map(Op::Read),
        (0..3usize, any::<u64>()).prop_map(|(at, value)| Op::Write(at, value)),
        (0..KEYS).prop_map(Op::Get),
        (0..KEYS, any::<u64>()).prop_map(|(key, value)| Op::Insert(key, value)),
        (0..KEYS).prop_map(Op::Remove),
        time().prop_map(Op::Allocate),
        (0..ROOM, time()).prop_map(|(index, time)| Op::AllocateExact(index, time)),
        (0..ROOM).prop_map(Op::Deadline),
        (0..ROOM, time()).prop_map(|(index, time)| Op::Refresh(index, time)),
        (0..ROOM).prop_map(Op::Free),
        time().prop_map(Op::Expire),
        any::<u64>().prop_map(Op::Update),
        Just(Op::Merge),
    ]
}

fn carry_out<'a, M: Memory>(world: &'a World<M>, tx: &mut M::Tx<'a>, op: Op) -> Result<Vec<u64>, M::Conflict> {
    let number = |index: Option<usize>| Vec::from_iter(index.map(|index| index as u64));
    Ok(match op {
        Op::Read(at) => world.vector.read(tx, at)?.0.to_vec(),
        Op::Write(at, value) => {
            world.vector.write(tx, at, Wide([value; 9]))?;
            Vec::new()
        }
        Op::Get(key) => world.map.get(tx, &Crowded(key))?.map_or(Vec::new(), |value| value.to_vec()),
        Op::Insert(key, value) => Vec::from([u64::from(world.map.insert(tx, Crowded(key), [value, key])?)]),
        Op::Remove(key) => world.map.remove(tx, &Crowded(key))?.map_or(Vec::new(), |value| value.to_vec()),
        Op::Allocate(deadline) => number(world.pool.allocate(tx, Nanos(deadline))?),
        Op::AllocateExact(index, deadline) => {
            Vec::from([u64::from(world.pool.allocate_exact(tx, index, Nanos(deadline))?)])
        }
        Op::Deadline(index) => world.pool.deadline(tx, index)?.map_or(Vec::new(), |deadline| Vec::from([deadline.0])),
        Op::Refresh(index, deadline) => {
            world.pool.refresh(tx, index, Nanos(deadline))?;
            Vec::new()
        }
        Op::Free(index) => {
            world.pool.free(tx, index)?;
            Vec::new()
        }
        Op::Expire(now) => number(world.pool.expire(tx, Nanos(now))?),
        Op::Update(by) => {
            world.total.update(tx, |total| *total = total.wrapping_add(by))?;
            Vec::new()
        }
        Op::Merge => Vec::from([world.total.read(tx, Nanos(0))?]),
    })
}

/// Properties of every memory, whichever free index it hands out.
#[derive(Clone, Default)]
struct Model {
    vector: [u64; 3],
    map: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
    total: u64,
}

impl Model {
    fn check(&mut self, op: Op, answer: &[u64]) -> Result<(), TestCaseError> {
        match op {
            Op::Read(at) => prop_assert_eq!(answer, [self.vector[at]; 9]),
            Op::Write(at, value) => self.vector[at] = value,
            Op::Get(key) => {
                prop_assert_eq!(answer, self.map.get(&key).map_or(Vec::new(), |value| Vec::from([*value, key])))
            }
            Op::Insert(key, value) => {
                let fits = self.map.contains_key(&key) || self.map.len() < ROOM;
                prop_assert_eq!(answer, [u64::from(fits)]);
                if fits {
                    self.map.insert(key, value);
                }
            }
            Op::Remove(key) => {
                prop_assert_eq!(answer, self.map.remove(&key).map_or(Vec::new(), |value| Vec::from([value, key])))
            }
            Op::Allocate(deadline) => match answer {
                [] => prop_assert_eq!(self.used.len(), ROOM),
                [index, ..] => prop_assert_eq!(self.used.insert(*index, deadline), None, "it was free"),
            },
            Op::AllocateExact(index, deadline) => {
                let free = !self.used.contains_key(&(index as u64));
                prop_assert_eq!(answer, [u64::from(free)]);
                if free {
                    self.used.insert(index as u64, deadline);
                }
            }
            Op::Deadline(index) => {
                let deadline = self.used.get(&(index as u64)).copied();
                prop_assert_eq!(answer, Vec::from_iter(deadline));
            }
            Op::Refresh(index, deadline) => {
                self.used.entry(index as u64).and_modify(|known| *known = deadline);
            }
            Op::Free(index) => drop(self.used.remove(&(index as u64))),
            Op::Expire(now) => {
                if let [index, ..] = answer {
                    let deadline = self.used.remove(index);
                    prop_assert!(deadline.is_some_and(|deadline| deadline <= now));
                }
            }
            Op::Update(by) => self.total = self.total.wrapping_add(by),
            Op::Merge => prop_assert_eq!(answer, [self.total]),
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn on_one_core_it_is_the_local_memory(ops in proptest::collection::vec(op(), 0..200)) {
        let (local, memory) = (Local::keyed(7), Transactional::new(1, 7));
        let (one, other) = (world(&local), world(&memory));
        let [handle] = &mut memory.core_handles()[..] else { panic!("one core") };
        for op in ops {
            let Ok(expected) = carry_out(&one, &mut LocalTx::default(), op);
            let mut log = handle.log(&memory);
            let mut tx = log.begin();
            let answer = carry_out(&other, &mut tx, op).expect("nobody else is there");
            prop_assert!(tx.commit().is_ok());
            prop_assert_eq!(answer, expected, "{:?}", op);
        }
    }

    #[test]
    fn under_a_lock_it_is_the_local_memory(ops in proptest::collection::vec(op(), 0..200)) {
        let (local, memory) = (Local::keyed(7), Locked::keyed(7));
        let (one, other) = (world(&local), world(&memory));
        let mut model = Model::default();
        for op in ops {
            let Ok(expected) = carry_out(&one, &mut LocalTx::default(), op);
            let Ok(answer) = carry_out(&other, &mut memory.begin(), op);
            model.check(op, &answer)?;
            prop_assert_eq!(answer, expected, "{:?}", op);
        }
    }

    #[test]
    fn transactions_in_turn_are_as_the_models_and_what_is_aborted_never_was(
        steps in proptest::collection::vec((0..3usize, proptest::collection::vec(op(), 1..8), prop::bool::weighted(0.3)), 0..80),
    ) {
        let memory = Transactional::new(3, 7);
        let world = world(&memory);
        let mut handles = memory.core_handles();
        let mut model = Model::default();
        let mut last = CommitPosition::default();
        for (core, ops, aborted) in steps {
            let before = model.clone();
            let mut log = handles[core].log(&memory);
            let mut tx = log.begin();
            for op in ops {
                let answer = carry_out(&world, &mut tx, op).expect("nobody else is inside");
                model.check(op, &answer)?;
            }
            if aborted {
                prop_assert_eq!(tx.abort(), None);
                model = before;
            } else {
                let place = tx.commit().expect("nobody else is inside");
                prop_assert!(place >= last || place.reads_only, "{place:?} after {last:?}");
                last = last.max(place);
            }
        }
    }
}

#[test]
fn who_read_what_another_changed_fails_and_says_where() {
    let memory = Transactional::new(2, 0);
    let vector = memory.vector(2, Wide([0; 9]));
    let mut handles = memory.core_handles();
    handles.iter_mut().for_each(|handle| handle.record(true));
    let [one, two] = &mut handles[..] else { panic!("two cores") };
    let mut log = one.log(&memory);
    let mut tx = log.begin();
    assert_eq!(vector.read(&mut tx, 0).expect("nobody wrote"), Wide([0; 9]));
    {
        let mut log = two.log(&memory);
        let mut tx = log.begin();
        vector.write(&mut tx, 0, Wide([5; 9])).expect("nobody holds it");
        tx.commit().expect("it comes first");
    }
    vector.write(&mut tx, 1, Wide([1; 9])).expect("nobody holds it");
    let collision = tx.commit().expect_err("what was read is out of date").expect("it says what it was");
    assert_eq!(collision.cause(), Cause::SameElement);
    let sites = [collision.mine, collision.other].map(|site| site.expect("both were recorded"));
    assert_eq!(sites.map(|site| site.operation), [Operation::VectorRead, Operation::VectorWrite]);
    assert!(sites.iter().all(|site| site.location.file().ends_with("tests.rs")), "{sites:?}");
    let mut log = two.log(&memory);
    assert_eq!(vector.read(&mut log.begin(), 1).expect("nobody is inside"), Wide([0; 9]), "it never was");
}

#[test]
fn what_was_written_together_is_seen_together() {
    let memory = Transactional::new(2, 0);
    let pair = memory.vector(2, 0u64);
    let mut handles = memory.core_handles();
    let [one, two] = &mut handles[..] else { panic!("two cores") };
    let mut log = one.log(&memory);
    let mut tx = log.begin();
    assert_eq!(pair.read(&mut tx, 0).expect("nobody wrote"), 0);
    {
        let mut log = two.log(&memory);
        let mut tx = log.begin();
        pair.write(&mut tx, 0, 1).expect("nobody holds it");
        pair.write(&mut tx, 1, 1).expect("nobody holds it");
        tx.commit().expect("it comes first");
    }
    // The value would be 1 after a read of 0: no step sees that, not even one that aborts.
    assert!(pair.read(&mut tx, 1).is_err());
    drop(tx);
    let mut log = one.log(&memory);
    let mut tx = log.begin();
    assert_eq!([0, 1].map(|at| pair.read(&mut tx, at).expect("nobody is inside")), [1, 1]);
}

#[test]
fn what_another_holds_is_not_waited_for_in_vain() {
    let memory = Transactional::new(2, 0);
    let cell = memory.vector(1, 0u64);
    let mut handles = memory.core_handles();
    let [one, two] = &mut handles[..] else { panic!("two cores") };
    let mut log = one.log(&memory);
    let mut holder = log.begin();
    cell.write(&mut holder, 0, 7).expect("nobody holds it");
    for write in [false, true] {
        let mut log = two.log(&memory);
        let mut tx = log.begin();
        let failed = if write { cell.write(&mut tx, 0, 8).is_err() } else { cell.read(&mut tx, 0).is_err() };
        assert!(failed);
    }
    drop(holder);
    let mut log = two.log(&memory);
    let mut tx = log.begin();
    assert_eq!(cell.read(&mut tx, 0).expect("nobody is inside"), 0, "what was dropped never was");
}

#[test]
fn a_stale_read_is_as_old_as_allowed_and_no_older() {
    let memory = Transactional::new(2, 0);
    let total = memory.distributed(0u64, Nanos(100));
    let mut handles = memory.core_handles();
    let [one, two] = &mut handles[..] else { panic!("two cores") };
    let read = |handle: &mut CoreHandle, now| {
        let mut log = handle.log(&memory);
        let mut tx = log.begin();
        let whole = total.read(&mut tx, Nanos(now)).expect("nobody is inside");
        tx.commit().expect("nobody is inside");
        whole
    };
    assert_eq!(read(one, 1000), 0);
    let mut log = two.log(&memory);
    let mut tx = log.begin();
    total.update(&mut tx, |total| *total += 3).expect("nobody is inside");
    tx.commit().expect("nobody is inside");
    assert_eq!([1000, 1099].map(|now| read(one, now)), [0, 0]);
    let mut log = one.log(&memory);
    let mut tx = log.begin();
    total.update(&mut tx, |total| *total += 40).expect("nobody is inside");
    assert_eq!(total.read(&mut tx, Nanos(1099)).expect("nobody is inside"), 40, "a core misses nothing of its own");
    tx.commit().expect("nobody is inside");
    assert_eq!([1099, 1100].map(|now| read(one, now)), [40, 43]);
}

#[test]
fn pools_are_used_up_to_the_last_index_and_room_to_the_last_pair() {
    let memory = Transactional::new(3, 1);
    let (pool, map) = (memory.allocator(7), memory.map::<Host4, u64>(7));
    let mut handles = memory.core_handles();
    let mut log = handles[1].log(&memory);
    let mut tx = log.begin();
    let all: BTreeSet<_> = (0..7).map(|_| pool.allocate(&mut tx, Nanos(1)).expect("alone").expect("free")).collect();
    assert_eq!((all.len(), pool.allocate(&mut tx, Nanos(1)).expect("alone")), (7, None));
    let host = |n: u8| match Host::v4([192, 0, 2, n].into()).family() {
        Family::V4(host) => host,
        Family::V6(_) => unreachable!("an IPv4 address"),
    };
    assert!((0..7).all(|n| map.insert(&mut tx, host(n), u64::from(n)).expect("alone")));
    assert!(!map.insert(&mut tx, host(7), 7).expect("alone"), "it is full");
    assert!(map.insert(&mut tx, host(3), 33).expect("alone"), "it is known");
    tx.commit().expect("alone");
    assert_eq!(map.hint(&host(3)), Some(33));
    assert_eq!(map.hint(&host(9)), None);
}

#[test]
fn what_no_transaction_can_undo_happens_once() {
    let memory = Transactional::new(2, 0);
    let cell = memory.vector(1, 0u64);
    let mut handles = memory.core_handles();
    // Asked for at first, the same transaction goes on.
    let mut log = handles[0].log(&memory);
    let mut tx = log.attempt(0);
    Transactional::irrevocable(&mut tx).expect("nothing was accessed");
    Transactional::irrevocable(&mut tx).expect("it is irrevocable");
    cell.write(&mut tx, 0, 1).expect("it can't fail");
    assert!(tx.is_irrevocable());
    tx.commit().expect("it can't fail");
    // After an access, the next attempt is irrevocable, and no later step.
    let attempts = |handle: &mut CoreHandle, asks: bool| {
        for aborts in 0.. {
            let mut log = handle.log(&memory);
            let mut tx = log.attempt(aborts);
            let value = cell.read(&mut tx, 0).expect("nobody is inside");
            if !asks || Transactional::irrevocable(&mut tx).is_ok() {
                cell.write(&mut tx, 0, value + 1).expect("nobody is inside");
                let is_irrevocable = tx.is_irrevocable();
                tx.commit().expect("nobody is inside");
                return (aborts, is_irrevocable);
            }
            assert_eq!(tx.abort(), None, "nobody is to blame");
        }
        unreachable!("an irrevocable transaction can't fail")
    };
    assert_eq!(attempts(&mut handles[0], true), (1, true));
    assert_eq!(attempts(&mut handles[0], false), (0, false));
    assert_eq!(attempts(&mut handles[1], true), (1, true));
    let mut log = handles[1].log(&memory);
    assert_eq!(cell.read(&mut log.begin(), 0).expect("nobody is inside"), 4);
}
