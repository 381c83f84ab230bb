//! Stress test: real threads on a shared table. `cargo xtask check` runs it under ThreadSanitizer too.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;

use millrace_flow::index::CuckooPp;
use millrace_flow::shared::baselines::{Locked, Optimistic, Striped};
use millrace_flow::shared::{Adding, Entries, EpochMember, Fate, Insertion, SharedTable, StepPermit, Sum};
use millrace_flow::{Hint, Plan};
use packet::{Host, Host4, Key, Nanos};

const THREADS: u64 = 4;
const OPERATIONS: u64 = if cfg!(miri) { 100 } else { 30_000 };
/// Few enough keys that threads conflict all the time.
const KEYS: u64 = 48;
const NOW: Nanos = Nanos(100);

/// A count, and two words computed from it and the key: a torn read is detected.
type Value = [u64; 3];

fn value(key: u64, count: u64) -> Value {
    [count, count ^ key << 32, !count]
}

fn host(number: u64) -> Host4 {
    match Host::v4((number as u32).into()) {
        Host::V4(key) => key,
        Host::V6(_) => unreachable!("made of an IPv4 address"),
    }
}

/// A thread's operations on a key.
#[derive(Clone, Copy, Default)]
struct Tally {
    inserted: u64,
    removed: u64,
    /// Additions, minus those of removed values.
    count: i64,
    full: u64,
}

fn whole(key: u64, read: Value) -> u64 {
    assert_eq!(read, value(key, read[0]), "a value of two writers");
    read[0]
}

/// Runs a thread's operations on keys that all threads use.
fn work<T: SharedTable<Host4, Value>>(table: &T, thread: u64) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); KEYS as usize];
    let mut random = thread + 1;
    for _ in 0..OPERATIONS {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let number = (random >> 40) % KEYS;
        let (key, tally) = (host(number), &mut tallies[number as usize]);
        let hash = table.hash(&key);
        table.prefetch(hash);
        table.prefetch_entry(hash);
        match (random >> 33) % 8 {
            0 | 1 => match table.insert(key, hash, value(number, 0), Nanos::NEVER, NOW) {
                Insertion::Added => tally.inserted += 1,
                Insertion::Present => {}
                Insertion::Full => tally.full += 1,
            },
            2 => {
                if let Some(read) = table.remove(&key, hash, NOW) {
                    tally.removed += 1;
                    tally.count -= whole(number, read) as i64;
                }
            }
            3 | 4 => {
                let updated = table.update(&key, hash, NOW, |content, _| {
                    *content = value(number, whole(number, *content) + 1);
                });
                tally.count += i64::from(updated.is_some());
            }
            // A flow that expires at once.
            5 if random >> 60 == 0 => {
                let key = host(number + KEYS);
                let hash = table.hash(&key);
                table.insert(key, hash, value(number, 0), NOW, NOW);
                assert_eq!(table.get(&key, hash, NOW), None, "it was born dead");
                table.reclaim(hash, NOW);
            }
            _ => {
                if let Some(read) = table.get(&key, hash, NOW) {
                    whole(number, read);
                }
            }
        }
    }
    tallies
}

/// No update is lost, no key is present twice, and the rest is what was inserted minus what was removed.
fn stress<T: SharedTable<Host4, Value>>(table: T, always_has_room: bool) {
    let table = Arc::new(table);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let table = Arc::clone(&table);
            thread::spawn(move || work(&*table, thread))
        })
        .collect();
    let tallies: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect();
    for number in 0..KEYS {
        let of_key = || tallies.iter().map(|tallies| tallies[number as usize]);
        let left = of_key().map(|tally| tally.inserted).sum::<u64>() - of_key().map(|tally| tally.removed).sum::<u64>();
        let count = of_key().map(|tally| tally.count).sum::<i64>();
        let key = host(number);
        let read = table.get(&key, table.hash(&key), NOW).map(|read| whole(number, read));
        assert_eq!(read, (left == 1).then_some(count as u64), "key {number}: {left} left, count {count}");
        assert!(!always_has_room || of_key().all(|tally| tally.full == 0), "key {number} was refused");
    }
}

#[test]
fn locked() {
    stress(Locked::<_, _>::new(2 * KEYS as usize, 1), true);
}

#[test]
fn striped() {
    stress(Striped::<_, _>::cut(Plan { capacity: 2 * KEYS as usize, ..Plan::default() }, 4), true);
}

#[test]
fn entries() {
    stress(Entries::<_, _>::cut(Plan { capacity: 2 * KEYS as usize, ..Plan::default() }, 4, |_| (), ()), true);
}

#[test]
fn entries_full() {
    stress(Entries::<_, _>::cut(Plan { capacity: KEYS as usize / 2, ..Plan::default() }, 1, |_| (), ()), false);
}

#[test]
fn optimistic_with_room() {
    stress(Optimistic::<_, Value>::with_load(2 * KEYS as usize, 50, 1), true);
}

#[test]
fn optimistic_full() {
    // Fewer places than keys, in small buckets, so displacement happens all the time.
    stress(Optimistic::<_, Value, 2>::with_buckets(19, 1), false);
    stress(Optimistic::<_, Value, 4>::with_buckets(9, 1), false);
    stress(Optimistic::<_, Value, 1>::with_buckets(41, 1), false);
}

/// A value that steps add to.
type Sums = Entries<Host4, u64, CuckooPp, (), Adding>;

/// Returns what the thread has added to each key, minus what the flows that it removed had.
fn add(table: &Sums, mut member: EpochMember, thread: u64) -> Vec<i64> {
    let mut counts = vec![0; KEYS as usize];
    let mut random = thread + 1;
    for _ in 0..OPERATIONS {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Some keys come much more often than others.
        let number = (random >> 40) % KEYS * ((random >> 50) % 3) / 2;
        let (key, count) = (host(number), &mut counts[number as usize]);
        let hash = key.hash(1);
        table.prefetch(hash);
        let hint = if random >> 63 == 0 { table.prefetch_entry(hash) } else { Hint::NOWHERE };
        if !(random >> 33).is_multiple_of(8) {
            member.enter();
            let amount = random >> 58;
            let step = |entry: &mut millrace_flow::shared::GuardedEntry<Host4, u64, Sum>| {
                entry.add(amount, NOW.max(entry.now), Nanos(entry.now.0 + 1000)).then_some(())
            };
            if table.step(&member, &key, hash, hint, step).is_some() {
                *count += amount as i64;
                continue;
            }
        }
        member.leave();
        table.stripe(hash, |stripe| match stripe.find(&key, hash) {
            Some(slot) => stripe.decide(slot, |entry| {
                let value = entry.value + entry.sum.amount;
                (entry.value, entry.sum) = (value, Sum::default());
                if (random >> 36).is_multiple_of(4) {
                    *count -= value as i64;
                    return ((), Fate::Goes);
                }
                ((), if (random >> 36) % 4 == 1 { Fate::Changes } else { Fate::Stays })
            }),
            None => {
                let flow = (0, NOW + Nanos(1000), NOW);
                stripe.insert(key, hash, flow, false).expect("there is room");
            }
        });
    }
    counts
}

/// The rest of each key is what was added minus what was removed.
#[test]
fn adding() {
    let members = EpochMember::all(THREADS as usize);
    let plan = Plan { capacity: 2 * KEYS as usize, seed: 1, ..Plan::default() };
    let table = Arc::new(Sums::cut(plan, 2, |_| (), Arc::clone(members[0].epochs())));
    let threads: Vec<_> = (0..)
        .zip(members)
        .map(|(thread, member)| {
            let table = Arc::clone(&table);
            thread::spawn(move || add(&table, member, thread))
        })
        .collect();
    let counts: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect();
    let mut left = vec![0; KEYS as usize];
    table.each(|entry| {
        let number = (0..KEYS).find(|number| host(*number) == *entry.key()).expect("one of these");
        left[number as usize] = (entry.value + entry.sum.amount) as i64;
    });
    for number in 0..KEYS as usize {
        assert_eq!(left[number], counts.iter().map(|counts| counts[number]).sum::<i64>(), "key {number}");
    }
}
