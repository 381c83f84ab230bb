//! Shared structures that are written to a snapshot and read from one: they go on as if nothing had happened.

use memory::transactional::Transactional;
use memory::{Allocator, Distributed, Local, LocalTx, Memory, Portion, Vector};
use millrace_nf::Kept;
use packet::Nanos;

const MILLISECOND: u64 = 1 << 20;

/// A sequence of numbers that look drawn.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Some steps on a pool, each with its outcome.
fn use_pool(pool: &<Local as Memory>::Allocator, draws: &mut Draws, now: &mut u64, steps: usize) -> Vec<Option<usize>> {
    let tx = &mut LocalTx::default();
    let mut outcomes = Vec::new();
    for _ in 0..steps {
        *now += draws.below(MILLISECOND);
        let deadline = Nanos(*now + MILLISECOND * (2 + draws.below(5_000)));
        let index = draws.below(pool.capacity() as u64) as usize;
        let Ok(outcome) = match draws.below(5) {
            0 | 1 => pool.allocate(tx, deadline),
            2 => pool.allocate_exact(tx, index, deadline).map(|is_free| is_free.then_some(index)),
            3 => pool.free(tx, index).and_then(|()| pool.deadline(tx, index)).map(|left| left.map(|_| index)),
            _ => pool.expire(tx, Nanos(*now)),
        };
        outcomes.push(outcome);
    }
    outcomes
}

#[test]
fn a_pool_goes_on_in_its_order() {
    for seed in 0..200 {
        let (mut draws, mut now) = (Draws(seed), 1_700_000_000_000_000_000);
        let pool = Local::default().allocator(1 + seed as usize % 40);
        use_pool(&pool, &mut draws, &mut now, seed as usize * 3);
        // Nothing is due: what a pool does of its own accord does not depend on when it was asked last.
        while let Ok(Some(_)) = pool.expire(&mut LocalTx::default(), Nanos(now)) {}
        let mut words = Vec::new();
        let Ok(used) = Kept::writing(&mut words, Nanos(now)).pool::<Local>(&mut LocalTx::default(), &pool);
        let other = Local::default().allocator(pool.capacity());
        let mut kept = Kept::reading(&words, Nanos(now));
        let Ok(read) = kept.pool::<Local>(&mut LocalTx::default(), &other);
        assert!(kept.is_whole() && read == used, "seed {seed}");
        let order = |pool: &<Local as Memory>::Allocator| pool.order(&mut LocalTx::default());
        assert_eq!(order(&pool).map(|order| order.free), order(&other).map(|order| order.free), "seed {seed}");
        let (mut draws, mut same, mut then) = (Draws(seed + 1_000), Draws(seed + 1_000), now);
        let (one, two) = (use_pool(&pool, &mut draws, &mut now, 300), use_pool(&other, &mut same, &mut then, 300));
        assert_eq!(one, two, "seed {seed}");
    }
}

#[test]
fn a_pool_of_one_core_can_be_read_by_several_and_back() {
    let pool = Local::default().allocator(50);
    use_pool(&pool, &mut Draws(7), &mut 1_700_000_000_000_000_000, 200);
    let now = Nanos(1_700_000_100_000_000_000);
    let mut words = Vec::new();
    let Ok(used) = Kept::writing(&mut words, now).pool::<Local>(&mut LocalTx::default(), &pool);
    let memory = Transactional::new(3, 1);
    let shared = memory.allocator(50);
    let mut handles = memory.core_handles();
    let mut log = handles[1].log(&memory);
    let mut tx = log.begin();
    let mut kept = Kept::reading(&words, now);
    assert_eq!(kept.pool::<Transactional>(&mut tx, &shared).expect("no other core runs"), used);
    assert!(kept.is_whole());
    let mut again = Vec::new();
    let mut in_all =
        Kept::writing(&mut again, now).pool::<Transactional>(&mut tx, &shared).expect("no other core runs");
    tx.commit().expect("no other core runs");
    let mut used = used;
    used.sort_unstable();
    in_all.sort_unstable();
    assert_eq!(used, in_all);
    let back = Local::default().allocator(50);
    let mut kept = Kept::reading(&again, now);
    let Ok(mut read) = kept.pool::<Local>(&mut LocalTx::default(), &back);
    read.sort_unstable();
    assert!(kept.is_whole() && read == used);
}

/// A sum of portions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sum(u64);

packet::words! { Sum: [1], sum => [sum.0], words => Self(words[0]); }

impl Portion for Sum {
    fn merge(&mut self, other: &Self) {
        self.0 += other.0;
    }
}

#[test]
fn what_is_written_is_read_and_what_is_cut_off_is_noticed() {
    let memory = Local::default();
    let tx = &mut LocalTx::default();
    let (vector, sum) = (memory.vector(5, [0_u64; 3]), memory.distributed(Sum(0), Nanos(0)));
    for index in 0..5 {
        let Ok(()) = vector.write(tx, index, [index as u64, 7, u64::MAX]);
    }
    let Ok(()) = sum.update(tx, |sum| sum.0 += 40);
    let mut words = Vec::new();
    let mut kept = Kept::writing(&mut words, Nanos(0));
    let Ok(()) = kept.vector::<Local, _>(tx, &vector);
    let Ok(()) = kept.distributed::<Local, _>(tx, &sum);
    assert_eq!(kept.number(9), Some(9));
    for len in 0..=words.len() + 1 {
        let (other, other_sum) = (memory.vector(5, [0_u64; 3]), memory.distributed(Sum(0), Nanos(0)));
        let some = [&words[..len.min(words.len())], &[3][..len.saturating_sub(words.len())]].concat();
        let mut kept = Kept::reading(&some, Nanos(0));
        let tx = &mut LocalTx::default();
        let Ok(()) = kept.vector::<Local, _>(tx, &other);
        let Ok(()) = kept.distributed::<Local, _>(tx, &other_sum);
        let number = kept.number(0);
        assert_eq!(kept.is_whole(), len == words.len(), "{len} words");
        if kept.is_whole() {
            let Ok(total) = other_sum.read(tx, Nanos(0));
            assert!(total == Sum(40) && number == Some(9));
            assert!((0..5).all(|index| other.read(tx, index) == Ok([index as u64, 7, u64::MAX])));
        }
    }
}

#[test]
fn indices_that_there_are_not_are_noticed() {
    // A count, then indices in use with their deadlines; another count, then free ones.
    for words in [&[1, 9, 5, 0][..], &[2, 3, 5, 3, 5, 0], &[0, 1, 9], &[0, 1, u64::MAX], &[u64::MAX, 0], &[0]] {
        let pool = Local::default().allocator(8);
        let mut kept = Kept::reading(words, Nanos(0));
        let Ok(_) = kept.pool::<Local>(&mut LocalTx::default(), &pool);
        assert!(!kept.is_whole(), "{words:?}");
    }
}
