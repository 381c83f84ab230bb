//! The cost of a look-up and of a flow's whole life: the table in bursts of 32, the table packet by packet, and the maps of the standard
//! library and of hashbrown with the same work for each packet.
//!
//! `cargo bench -p millrace-flow --bench table`. All contestants of a row are interleaved over several rounds. A cell is the median in
//! nanoseconds a packet, then the fastest round.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use hashbrown::HashTable;
use millrace_flow::index::{CuckooPp, Index, Tagged};
use millrace_flow::{Hint, Slot, Table};
use packet::{FiveTuple, FiveTuple4, Host, Host4, Key, Nanos};

const BURST: usize = 32;
const QUERIES: usize = 1 << 21;
const ROUNDS: usize = 7;

fn main() {
    // Cargo passes `--bench`; a word selects the rows that contain it.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!(
        "{:44} {:>15} {:>16} {:>15} {:>15}",
        "ns a packet: median (fastest)", "tagged, bursts", "cuckoo++, bursts", "hashbrown", "std"
    );
    for flows in [10_000, 1_000_000] {
        lookups::<Host4, u64>(&only, "host, 8 bytes", flows, host);
        lookups::<Host4, [u64; 2]>(&only, "host, 16 bytes", flows, host);
        lookups::<FiveTuple4, [u64; 2]>(&only, "five-tuple, 16 bytes", flows, five_tuple);
        lookups::<FiveTuple4, [u64; 3]>(&only, "five-tuple, 24 bytes", flows, five_tuple);
    }
    for flows in [10_000, 1_000_000] {
        churn::<Host4, [u64; 2]>(&only, "host, 16 bytes", flows, host);
        churn::<FiveTuple4, [u64; 3]>(&only, "five-tuple, 24 bytes", flows, five_tuple);
    }
    hashing(&only, "host", host);
    hashing(&only, "five-tuple", five_tuple);
    startup(&only);
}

/// The cost of hashing a key: ours, hashbrown's default (foldhash) and the standard map's (SipHash 1-3).
fn hashing<K: Key + Hash>(only: &str, name: &str, key: fn(u64) -> K) {
    let title = format!("hash: {name}");
    if !title.contains(only) {
        return;
    }
    let keys: Vec<K> = (0..1 << 12).map(key).collect();
    let (brown, std) = (foldhash(), RandomState::new());
    let seed = std.hash_one(1);
    let all =
        |hash: &dyn Fn(&[K]) -> u64| (0..QUERIES >> 12).map(|_| hash(black_box(&keys))).fold(0, u64::wrapping_add);
    println!("{:44} {:>15} {:>16} {:>15}", "", "ours", "foldhash", "SipHash");
    race(
        &title,
        QUERIES,
        &mut [
            &mut || all(&|keys| keys.iter().map(|key| Key::hash(key, seed)).fold(0, u64::wrapping_add)),
            &mut || all(&|keys| keys.iter().map(|key| brown.hash_one(key)).fold(0, u64::wrapping_add)),
            &mut || all(&|keys| keys.iter().map(|key| std.hash_one(key)).fold(0, u64::wrapping_add)),
        ],
    );
}

fn host(number: u64) -> Host4 {
    match Host::v4(Ipv4Addr::from_bits((number as u32).wrapping_mul(0x9e37_79b1))) {
        Host::V4(key) => key,
        Host::V6(_) => unreachable!("made of an IPv4 address"),
    }
}

fn five_tuple(number: u64) -> FiveTuple4 {
    let (src, dst) = (Ipv4Addr::from_bits(0x0a00_0000 | number as u32 >> 6), Ipv4Addr::new(192, 0, 2, number as u8));
    match FiveTuple::v4(src, dst, 1024 + (number % 50_000) as u16, 443, 6) {
        FiveTuple::V4(key) => key,
        FiveTuple::V6(_) => unreachable!("made of IPv4 addresses"),
    }
}

/// Values that count packets, as a function's state does.
trait Count: Copy + Default + Send + 'static {
    fn count(&mut self) -> u64;
}

impl Count for u64 {
    fn count(&mut self) -> u64 {
        *self += 1;
        *self
    }
}

impl<const N: usize> Count for [u64; N]
where
    Self: Default,
{
    fn count(&mut self) -> u64 {
        self[0] += 1;
        self[1] += 64;
        self[0]
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as u64
    }
}

fn lookups<K: Key + Hash, V: Count>(only: &str, name: &str, flows: usize, key: fn(u64) -> K) {
    let mut random = Random(7);
    // Enough distinct keys that the table doesn't stay in the cache by repetition, and no more: they pass through the cache too.
    let count = if flows > 100_000 { QUERIES } else { 1 << 16 };
    let present: Vec<K> = (0..count).map(|_| key(random.below(flows))).collect();
    let absent: Vec<K> = (0..count).map(|_| key(flows as u64 + random.below(flows))).collect();
    for (kind, queries) in [("hit", &present), ("miss", &absent)] {
        let title = format!("{kind}: {name}, {flows} flows");
        if !title.contains(only) {
            continue;
        }
        let mut table = table::<K, V, Tagged>(flows, key);
        let mut cuckoo = self::table::<K, V, CuckooPp>(flows, key);
        let hasher = foldhash();
        let mut brown = HashTable::<(K, V, Nanos)>::with_capacity(flows);
        let mut map = HashMap::<K, (V, Nanos)>::with_capacity(flows);
        for number in 0..flows as u64 {
            let key = key(number);
            brown.insert_unique(hasher.hash_one(key), (key, V::default(), Nanos(0)), |entry| hasher.hash_one(entry.0));
            map.insert(key, (V::default(), Nanos(0)));
        }
        let (mut now, mut later) = (0, 0);
        let repeat = QUERIES / count;
        race(
            &title,
            QUERIES,
            &mut [
                &mut || (0..repeat).map(|_| bursts(&mut table, queries, &mut now)).fold(0, u64::wrapping_add),
                &mut || (0..repeat).map(|_| bursts(&mut cuckoo, queries, &mut later)).fold(0, u64::wrapping_add),
                &mut || {
                    let visit = |key: &K| match brown.find_mut(hasher.hash_one(key), |entry| entry.0 == *key) {
                        Some(entry) => {
                            entry.2 = entry.2 + Nanos(1);
                            entry.1.count()
                        }
                        None => 0,
                    };
                    (0..repeat).flat_map(|_| queries).map(visit).fold(0, u64::wrapping_add)
                },
                &mut || {
                    let visit = |key: &K| match map.get_mut(key) {
                        Some(entry) => {
                            entry.1 = entry.1 + Nanos(1);
                            entry.0.count()
                        }
                        None => 0,
                    };
                    (0..repeat).flat_map(|_| queries).map(visit).fold(0, u64::wrapping_add)
                },
            ],
        );
    }
}

fn foldhash() -> impl BuildHasher {
    hashbrown::DefaultHashBuilder::default()
}

fn table<K: Key, V: Count, I: Index>(flows: usize, key: fn(u64) -> K) -> Table<K, V, I> {
    let mut table = Table::new(flows, RandomState::new().hash_one(1));
    for number in 0..flows as u64 {
        let key = key(number);
        table.insert(key, table.hash(&key), V::default(), Nanos::from_secs(60), Nanos(0)).expect("there is room");
    }
    table
}

/// As in a table after a while: flows that came together don't lie together.
fn shuffled<K: Key, V: Count, I: Index>(flows: usize, key: fn(u64) -> K, pace: u64) -> Table<K, V, I> {
    let mut table = table::<K, V, I>(flows, key);
    let mut random = Random(11);
    let mut numbers: Vec<u64> = (0..flows as u64).collect();
    for at in (1..flows).rev() {
        numbers.swap(at, random.below(at + 1) as usize);
    }
    for number in numbers {
        let key = key(number);
        let slot = table.find(&key, table.hash(&key)).expect("it was inserted");
        table.remove(slot);
    }
    for number in 0..flows as u64 {
        let key = key(number);
        let now = Nanos(number * pace);
        table.insert(key, table.hash(&key), V::default(), now + Nanos::from_secs(60), now).expect("there is room");
    }
    table
}

#[inline(never)]
fn bursts<K: Key, V: Count, I: Index>(table: &mut Table<K, V, I>, queries: &[K], now: &mut u64) -> u64 {
    let mut sum = 0u64;
    let mut hashes = [0; BURST];
    let mut hints = [Hint::default(); BURST];
    for burst in queries.chunks_exact(BURST) {
        *now += 1;
        for (hash, key) in hashes.iter_mut().zip(burst) {
            *hash = table.hash(key);
            table.prefetch(*hash);
        }
        for (hint, hash) in hints.iter_mut().zip(&hashes) {
            *hint = table.prefetch_entry(*hash);
        }
        let now = Nanos(*now);
        for ((hash, hint), key) in hashes.iter().zip(&hints).zip(burst) {
            let near = table.entry_at_hint(key, *hint, now).map(|entry| entry.slot());
            sum = sum.wrapping_add(visit(table, near.or_else(|| table.find(key, *hash)), now));
        }
    }
    sum
}

/// The work of an engine and a small function on a packet's flow.
#[inline(always)]
fn visit<K: Key, V: Count, I: Index>(table: &mut Table<K, V, I>, found: Option<Slot>, now: Nanos) -> u64 {
    let Some(slot) = found else { return 0 };
    if table.deadline(slot) <= now {
        return 0;
    }
    let count = table.value_mut(slot).count();
    table.touch(slot, now + Nanos::from_secs(60));
    count
}

/// A full table in which each packet opens a flow: in one case an old flow expires, in the other the oldest is evicted.
fn churn<K: Key, V: Count>(only: &str, name: &str, flows: usize, key: fn(u64) -> K) {
    let title = format!("churn: {name}, {flows} flows");
    if !title.contains(only) {
        return;
    }
    // Every flow lives for 60 seconds, so as many expire as come.
    let pace = 60_000_000_000 / flows as u64 + 1;
    let mut tagged = shuffled::<K, V, Tagged>(flows, key, pace);
    let mut cuckoo = shuffled::<K, V, CuckooPp>(flows, key, pace);
    let mut tagged_full = shuffled::<K, V, Tagged>(flows, key, pace);
    let mut cuckoo_full = shuffled::<K, V, CuckooPp>(flows, key, pace);
    let mut at = [flows as u64; 4];
    let [a, b, c, d] = &mut at;
    println!("{:44} {:>15} {:>16} {:>15} {:>15}", "", "tagged, expiry", "cuckoo++", "tagged, eviction", "cuckoo++");
    race(
        &title,
        QUERIES / 2,
        &mut [
            &mut || expire(&mut tagged, a, pace, key),
            &mut || expire(&mut cuckoo, b, pace, key),
            &mut || evict(&mut tagged_full, c, key),
            &mut || evict(&mut cuckoo_full, d, key),
        ],
    );
}

#[inline(never)]
fn expire<K: Key, V: Count, I: Index>(table: &mut Table<K, V, I>, at: &mut u64, pace: u64, key: fn(u64) -> K) -> u64 {
    let mut done = 0;
    for _ in 0..QUERIES / 2 / BURST {
        let burst: [K; BURST] = std::array::from_fn(|index| key(*at + index as u64));
        let hashes = burst.map(|key| table.hash(&key));
        hashes.iter().for_each(|hash| table.prefetch(*hash));
        for (key, hash) in burst.iter().zip(hashes) {
            let now = Nanos(*at * pace);
            while let Some(slot) = table.reclaim(now) {
                table.remove(slot);
                done += 1;
                if !table.is_full() {
                    break;
                }
            }
            let _ = black_box(table.find(key, hash));
            table.insert(*key, hash, V::default(), now + Nanos::from_secs(60), now);
            *at += 1;
        }
    }
    done
}

#[inline(never)]
fn evict<K: Key, V: Count, I: Index>(table: &mut Table<K, V, I>, at: &mut u64, key: fn(u64) -> K) -> u64 {
    let mut done = 0;
    for _ in 0..QUERIES / 2 / BURST {
        let burst: [K; BURST] = std::array::from_fn(|index| key(*at + index as u64));
        let hashes = burst.map(|key| table.hash(&key));
        hashes.iter().for_each(|hash| table.prefetch(*hash));
        for (key, hash) in burst.iter().zip(hashes) {
            let _ = black_box(table.find(key, hash));
            if let Some(slot) = table.oldest_unprotected().filter(|_| table.is_full()) {
                table.remove(slot);
                done += 1;
            }
            table.insert(*key, hash, V::default(), Nanos::from_secs(1 << 20), Nanos(*at));
            *at += 1;
        }
    }
    done
}

fn startup(only: &str) {
    if !"startup".contains(only) {
        return;
    }
    for flows in [10_000, 1_000_000] {
        let started = Instant::now();
        let five = Table::<FiveTuple4, [u64; 3]>::new(flows, 1);
        let elapsed = started.elapsed();
        let host = Table::<Host4, [u64; 2]>::new(flows, 1);
        println!(
            "startup: {flows} flows: {:.1} ms; bytes a flow: five-tuple and 24 {:.1}, host and 16 {:.1}",
            elapsed.as_secs_f64() * 1e3,
            five.memory_bytes() as f64 / flows as f64,
            host.memory_bytes() as f64 / flows as f64,
        );
    }
}

/// Runs the contestants interleaved and prints a row.
fn race(title: &str, packets: usize, contestants: &mut [&mut dyn FnMut() -> u64]) {
    let mut times = vec![Vec::new(); contestants.len()];
    for _ in 0..ROUNDS {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            let started = Instant::now();
            black_box(contestant());
            times.push(started.elapsed().as_secs_f64() * 1e9 / packets as f64);
        }
    }
    print!("{title:44}");
    for times in &mut times {
        times.sort_by(f64::total_cmp);
        print!(" {:7.1} ({:5.1})", times[ROUNDS / 2], times[0]);
    }
    println!();
}
