//! The memory that pools take together, as the kernel counts it.
#![cfg(target_os = "linux")]

use std::fs;

use millrace_stream::{BLOCK_BYTES, Budget, Kept, Limits, Policy, Pool, Segment, Side};

/// This process's anonymous memory, in bytes. `status` would have it, too, but not exactly.
fn anonymous() -> usize {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<usize>().unwrap() << 10
}

/// Fills a pool with early segments until the budget is spent, and gives all of them back.
fn fill_and_empty(pool: &Pool, budget: &Budget) {
    let limits = Limits { early_bytes: u32::MAX, early_blocks: u16::MAX };
    let payload = [7; BLOCK_BYTES];
    let mut side = Side::default();
    let syn = Segment { seq: 0, payload: &[], missing: 0, syn: true, fin: false };
    side.segment(&syn, pool, Policy::Linux, &limits, &mut |_| true);
    let mut seq = 100;
    while budget.used() < budget.bytes() {
        let segment = Segment { seq, payload: &payload, missing: 0, syn: false, fin: false };
        side.segment(&segment, pool, Policy::Linux, &limits, &mut |_| true);
        seq += BLOCK_BYTES as u32;
    }
    assert_eq!(pool.used() * BLOCK_BYTES, budget.bytes());
    side.end(pool, &mut |_| true);
    assert_eq!((pool.used(), budget.used()), (0, 0));
}

#[test]
fn pools_that_are_full_in_turn_take_no_more_than_the_budget() {
    let budget = Budget::new(32 << 20);
    let pools: Vec<Pool> = (0..8).map(|_| Pool::new(&budget)).collect();
    let before = anonymous();
    for pool in &pools {
        fill_and_empty(pool, &budget);
    }
    let most = budget.memory_max(pools.len());
    let taken = anonymous() - before;
    // The other test runs in this process, too.
    assert!(taken <= most + (256 << 10), "{taken} bytes, of {most}");
    // The bound is no wild guess either.
    assert!(budget.bytes() < taken && most < 2 * budget.bytes(), "{taken} bytes, of {most}");
}

#[test]
fn blocks_come_back_from_pools_that_go() {
    let budget = Budget::new(10 * BLOCK_BYTES);
    let pool = Pool::new(&budget);
    let mut kept = Kept::default();
    kept.add(&[1; 20 * BLOCK_BYTES], &pool);
    assert_eq!((budget.used(), kept.is_closed()), (10 * BLOCK_BYTES, true));
    drop(pool);
    assert_eq!(budget.used(), 0);
    let pool = Pool::new(&budget);
    let mut kept = Kept::default();
    kept.add(&[2; 3 * BLOCK_BYTES], &pool);
    assert_eq!((budget.used(), kept.len(), kept.is_closed()), (3 * BLOCK_BYTES, 3 * BLOCK_BYTES, false));
    assert!(kept.read(&mut [0; 4 * BLOCK_BYTES], &pool).iter().all(|byte| *byte == 2));
}
