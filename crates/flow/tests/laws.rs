//! The table's guarantees, one a test.

use std::net::Ipv4Addr;

use millrace_flow::index::{AnyIndex, IndexKind};
use millrace_flow::{Ageing, Hint, Plan, Slot, TICK, Table};
use packet::{FiveTuple, FiveTuple4, Host, Host4, Nanos};

/// As many flows as Miri can handle in reasonable time.
const fn scaled(flows: u32) -> u32 {
    if cfg!(miri) { flows / 10_000 + 20 } else { flows }
}

fn host(number: u32) -> Host4 {
    match Host::v4(Ipv4Addr::from_bits(number)) {
        Host::V4(key) => key,
        Host::V6(_) => unreachable!("made of an IPv4 address"),
    }
}

fn five_tuple(number: u32) -> FiveTuple4 {
    let (src, dst) = (Ipv4Addr::from_bits(0x0a00_0000 | number >> 16), Ipv4Addr::new(192, 0, 2, 1));
    match FiveTuple::v4(src, dst, number as u16, 80, 6) {
        FiveTuple::V4(key) => key,
        FiveTuple::V6(_) => unreachable!("made of IPv4 addresses"),
    }
}

fn insert(table: &mut Table<Host4, u32>, number: u32, deadline: Nanos, now: Nanos) -> Slot {
    let key = host(number);
    table.insert(key, table.hash(&key), number, deadline, now).expect("there is room")
}

fn find(table: &Table<Host4, u32>, number: u32) -> Option<Slot> {
    table.find(&host(number), table.hash(&host(number)))
}

/// Calls [`Table::reclaim`] until it has found nothing a few times in a row. Returns the values in order, and the number of calls.
fn drain(table: &mut Table<Host4, u32>, now: Nanos) -> (Vec<u32>, usize) {
    let (mut values, mut calls, mut idle) = (Vec::new(), 0, 0);
    while idle < 4 * table.len() + 64 {
        calls += 1;
        match table.reclaim(now) {
            Some(slot) => {
                values.push(table.remove(slot));
                idle = 0;
            }
            None => idle += 1,
        }
    }
    (values, calls - idle)
}

#[test]
fn a_table_holds_exactly_its_capacity() {
    for capacity in [0, 1, 2, 3, 12, 13, 100, 1000, scaled(100_000)].map(|most| most.min(scaled(100_000))) {
        for seed in 0..if cfg!(miri) { 1 } else { 10 } {
            let mut table = Table::<FiveTuple4, u32>::new(capacity as usize, seed);
            for number in 0..capacity {
                let key = five_tuple(number);
                assert!(!table.is_full());
                let slot = table.insert(key, table.hash(&key), number, Nanos::NEVER, Nanos(0));
                assert!(slot.is_some(), "flow {number} of {capacity} under seed {seed}");
            }
            assert!(table.is_full());
            assert_eq!((table.len(), table.high_water()), (capacity as usize, capacity as usize));
            let key = five_tuple(capacity);
            assert_eq!(table.insert(key, table.hash(&key), 0, Nanos(1), Nanos(0)), None);
            for number in 0..capacity {
                let key = five_tuple(number);
                let slot = table.find(&key, table.hash(&key)).expect("it was inserted");
                assert_eq!((*table.key(slot), *table.value(slot)), (key, number));
            }
        }
    }
}

#[test]
fn a_table_without_room_does_nothing() {
    let mut table = Table::<Host4, u32>::new(0, 1);
    let hash = table.hash(&host(1));
    table.prefetch(hash);
    let hint = table.prefetch_entry(hash);
    assert_eq!(table.find(&host(1), hash), None);
    assert!(table.entry_at_hint(&host(1), hint, Nanos(0)).is_none());
    assert_eq!(table.reclaim(Nanos::NEVER), None);
    assert_eq!(table.oldest_unprotected(), None);
    assert_eq!(table.iter().count(), 0);
    assert!(table.is_full() && table.is_empty());
}

#[test]
fn churn_at_capacity_never_lacks_room() {
    let capacity = scaled(20_000);
    let mut table = Table::new(capacity as usize, 3);
    for number in 0..capacity * if cfg!(miri) { 3 } else { 25 } {
        if table.is_full() {
            let slot = table.oldest_unprotected().expect("none is protected");
            assert_eq!(table.remove(slot), number - capacity);
        }
        insert(&mut table, number, Nanos(u64::from(number) + 1), Nanos(0));
    }
    assert_eq!(table.high_water(), capacity as usize);
}

/// The order within a tick is unspecified but deterministic: it depends on the earlier operations only, and not on the seed.
#[test]
fn flows_of_a_tick_come_in_an_order_that_repeats() {
    let start = 1_700_000_000_000_000_000;
    let deadline = Nanos(start + 90_000_000_000);
    let flows = if cfg!(miri) { 50 } else { 900 };
    let orders = [1, 2].map(|seed| {
        let mut table = Table::<Host4, u32>::new(1000, seed);
        // Armed at decreasing distances, so that flows from several levels meet on one list.
        for number in 0..flows {
            let now = Nanos(start + number * (89_100_000_000 / flows));
            assert_eq!(table.reclaim(now), None);
            assert_eq!(table.reclaim(now), None);
            insert(&mut table, number as u32, deadline + Nanos(number % 7), now);
        }
        drain(&mut table, deadline + TICK + TICK).0
    });
    assert_eq!(orders[0], orders[1]);
    let mut sorted = orders[0].clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..flows as u32).collect::<Vec<_>>());
}

#[test]
fn nobody_comes_early_or_more_than_a_tick_late() {
    let mut table = Table::<Host4, u32>::new(1, 1);
    for deadline in [1, TICK.0 - 1, TICK.0, TICK.0 + 1, 1023 * TICK.0, 1024 * TICK.0, (TICK.0 << 20) + 5, 1 << 55] {
        insert(&mut table, 1, Nanos(deadline), Nanos(0));
        assert_eq!(drain(&mut table, Nanos(deadline - 1)).0, [], "{deadline}");
        assert_eq!(drain(&mut table, Nanos(deadline) + TICK).0, [1], "{deadline}");
        table = Table::new(1, 1);
    }
}

#[test]
fn a_mass_expiry_is_spread_over_calls() {
    let flows = scaled(100_000);
    for timeout in [Nanos::from_millis(3), Nanos::from_secs(60), Nanos::from_secs(5 * 86_400)] {
        let mut table = Table::new(flows as usize, 1);
        for number in 0..flows {
            insert(&mut table, number, Nanos(5) + timeout, Nanos(5));
        }
        let (values, calls) = drain(&mut table, Nanos::from_secs(1 << 30));
        assert_eq!(values, (0..flows).collect::<Vec<_>>());
        // One flow a call at most, and four steps a call down the levels.
        assert!(calls >= flows as usize && calls <= flows as usize * 5 / 2 + 10, "{calls} calls for {flows} flows");
    }
}

#[test]
fn a_jump_of_years_costs_a_few_calls() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    insert(&mut table, 1, Nanos(1_000), Nanos(0));
    insert(&mut table, 2, Nanos::from_secs(10 * 365 * 86_400), Nanos(0));
    insert(&mut table, 3, Nanos::from_secs(250 * 365 * 86_400), Nanos(0));
    insert(&mut table, 4, Nanos::NEVER, Nanos(0));
    let (values, calls) = drain(&mut table, Nanos::NEVER);
    assert_eq!(values, [1, 2, 3]);
    assert!(calls < 20, "{calls} calls");
    assert_eq!(table.len(), 1);
}

#[test]
fn a_touched_flow_lives_on_and_a_shortened_one_does_not() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    let slots: Vec<_> = (0..3).map(|number| insert(&mut table, number, Nanos::from_secs(60), Nanos(0))).collect();
    // Refreshed every second for ten minutes, like a busy flow.
    for second in 0..600 {
        let now = Nanos::from_secs(second);
        table.touch(slots[0], now + Nanos::from_secs(60));
        table.touch(slots[1], now + Nanos::from_secs(60));
        assert!(drain(&mut table, now).0.iter().all(|number| *number == 2));
    }
    table.touch(slots[1], Nanos::from_secs(601));
    assert_eq!(drain(&mut table, Nanos::from_secs(602)).0, [1]);
    table.touch(slots[0], Nanos::NEVER);
    assert_eq!(drain(&mut table, Nanos::from_secs(1 << 32)).0, []);
    assert_eq!(table.deadline(slots[0]), Nanos::NEVER);
    table.touch(slots[0], Nanos(0));
    assert_eq!(drain(&mut table, Nanos::from_secs(1 << 32)).0, [0]);
}

#[test]
fn an_expired_flow_is_found_until_it_is_removed() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    let slot = insert(&mut table, 1, Nanos(10), Nanos(0));
    assert_eq!(find(&table, 1), Some(slot));
    let due = Nanos(10) + TICK;
    while table.reclaim(due).is_none() {}
    assert_eq!(table.reclaim(due), Some(slot), "it is named until it is removed");
    assert_eq!(find(&table, 1), Some(slot));
    table.remove(slot);
    assert_eq!(find(&table, 1), None);
}

/// A flood doesn't reduce the index's ability to take new flows: evictions are spread over it.
#[test]
fn a_flood_finds_room_in_every_index() {
    let capacity = scaled(20_000);
    for kind in IndexKind::ALL {
        let plan = Plan { index: kind, capacity: capacity as usize, ageing: Ageing::None, seed: 5, ..Plan::default() };
        let mut table = Table::<Host4, u32, AnyIndex>::planned(plan);
        for number in 0..capacity * if cfg!(miri) { 3 } else { 12 } {
            if table.is_full() {
                let slot = table.oldest_unprotected().expect("not all are protected");
                table.remove(slot);
            }
            let hash = table.hash(&host(number));
            let slot = table.insert(host(number), hash, number, Nanos::NEVER, Nanos(0));
            let slot = slot.unwrap_or_else(|| panic!("{} refuses flow {number} at {}", kind.name(), table.len()));
            // Some flows stay.
            if number % 97 == 0 && number < capacity {
                table.protect(slot);
            }
        }
        assert_eq!(table.high_water(), capacity as usize);
    }
}

#[test]
fn the_dead_make_room_though_the_wheel_is_not_there_yet() {
    let mut table = Table::<Host4, u32>::new(4, 1);
    let start = Nanos(TICK.0 * 1000 + 5);
    let slots: Vec<_> =
        (0..3).map(|number| insert(&mut table, number, start + Nanos(10 + u64::from(number)), start)).collect();
    assert_eq!(table.overdue(start + Nanos(9)), None);
    let now = start + Nanos(11);
    assert_eq!((table.reclaim(now), table.overdue(now)), (None, Some(slots[0])));
    table.remove(slots[0]);
    assert_eq!(table.overdue(now), Some(slots[1]));
    table.remove(slots[1]);
    assert_eq!(table.overdue(now), None);
}

#[test]
fn the_oldest_that_nobody_answered_makes_room() {
    let mut table = Table::<Host4, u32>::new(4, 1);
    let slots: Vec<_> = (0..4).map(|number| insert(&mut table, number, Nanos::NEVER, Nanos(0))).collect();
    table.protect(slots[0]);
    table.protect(slots[2]);
    table.protect(slots[2]);
    assert_eq!(table.oldest_unprotected(), Some(slots[1]));
    table.remove(slots[1]);
    assert_eq!(table.oldest_unprotected(), Some(slots[3]));
    table.protect(slots[3]);
    assert_eq!(table.oldest_unprotected(), None);
    assert!(table.is_protected(slots[0]));
    // A reused place begins fresh.
    let slot = insert(&mut table, 9, Nanos::NEVER, Nanos(0));
    assert_eq!((slot, table.is_protected(slot)), (slots[1], false));
}

#[test]
fn a_hint_may_be_out_of_date() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    let hash = table.hash(&host(1));
    let nothing = table.prefetch_entry(hash);
    assert!(table.is_absent(nothing) && table.is_absent(table.prefetch_entry_as::<true, true>(hash)));
    assert!(!table.is_absent(Hint::default()), "it says nothing");
    let slot = insert(&mut table, 1, Nanos(9), Nanos(0));
    assert!(!table.is_absent(nothing), "someone has come");
    assert_eq!(near(&mut table, nothing, 0), None);
    assert_eq!(near(&mut table, Hint::default(), 0), None);
    let hint = table.prefetch_entry(hash);
    assert_eq!(near(&mut table, hint, 8), Some(slot));
    // Expiry is logical here too.
    assert_eq!(near(&mut table, hint, 9), None);
    table.remove(slot);
    assert_eq!(near(&mut table, hint, 0), None);
    insert(&mut table, 2, Nanos::NEVER, Nanos(0));
    let moved = insert(&mut table, 1, Nanos::NEVER, Nanos(0));
    assert_eq!(near(&mut table, hint, 0), None);
    let hint = table.prefetch_entry(hash);
    assert_eq!(near(&mut table, hint, u64::MAX >> 2), Some(moved));
}

/// The slot of host 1 by the hint.
fn near(table: &mut Table<Host4, u32>, hint: Hint, now: u64) -> Option<Slot> {
    table.entry_at_hint(&host(1), hint, Nanos(now)).map(|entry| entry.slot())
}

/// Beyond the wheel's horizon a deadline moves by one store in both directions, and is still met to the tick.
#[test]
fn a_deadline_behind_the_horizon_moves_at_the_entry() {
    const HORIZON: Nanos = Nanos::from_secs(30);
    for age in [Nanos(0), Nanos(1), Nanos(TICK.0 - 1), TICK, HORIZON, Nanos::from_secs(86_400)] {
        let mut table = Table::<Host4, u32>::new(10, 1);
        let start = Nanos::from_secs(1_000_000);
        let slot = insert(&mut table, 1, start + Nanos::from_secs(5 * 86_400), start);
        let now = start + age;
        assert_eq!(drain(&mut table, now).0, []);
        assert!(!table.entry(slot, now).move_deadline(now + HORIZON - Nanos(1)));
        assert!(table.entry(slot, now).move_deadline(now + HORIZON));
        assert_eq!(drain(&mut table, now + HORIZON - Nanos(1)).0, []);
        assert_eq!(drain(&mut table, now + HORIZON + TICK).0, [1], "{age:?}");
    }
}

/// A flow without a deadline is checked like one with a far deadline, and never expires.
#[test]
fn a_first_deadline_is_met() {
    for (at, idle, is_store) in [(0, 30, true), (0, 29, false), (1_000_000, 30, true), (1_000_000, 29, false)] {
        let mut table = Table::<Host4, u32>::new(10, 1);
        let slot = insert(&mut table, 1, Nanos::NEVER, Nanos(0));
        let now = Nanos::from_secs(at);
        assert_eq!(drain(&mut table, now).0, []);
        assert_eq!(table.entry(slot, now).move_deadline(now + Nanos::from_secs(idle)), is_store);
        table.touch(slot, now + Nanos::from_secs(idle));
        assert_eq!(drain(&mut table, now + Nanos::from_secs(idle) - Nanos(1)).0, []);
        assert_eq!(drain(&mut table, now + Nanos::from_secs(idle) + TICK).0, [1]);
    }
}

/// Whether a table fits the cache depends on the flows, not on the capacity.
#[test]
fn a_large_table_is_near_while_it_has_few_flows() {
    let mut table = Table::<Host4, u32>::new(100_000, 1);
    let near: Vec<bool> = (0..10_000)
        .map(|number| {
            insert(&mut table, number, Nanos::NEVER, Nanos(0));
            table.fits_l2()
        })
        .collect();
    assert!(
        (1000..4000).contains(&near.partition_point(|fits_l2| *fits_l2)) && near.is_sorted_by(|one, next| one >= next)
    );
    for number in 0..10_000 {
        let slot = find(&table, number).expect("it is in");
        table.remove(slot);
    }
    assert!(table.fits_l2());
    assert!(Table::<Host4, u32>::new(1000, 1).fits_l2());
}

/// If the horizon lies behind the end of time, only later deadlines are one store.
#[test]
fn at_the_end_of_time_deadlines_move_one_way() {
    const END: Nanos = Nanos(u64::MAX - 1);
    for (now, deadline) in [(END - Nanos(100), END - Nanos(50)), (END - Nanos::from_secs(20), END - Nanos(1))] {
        let mut table = Table::<Host4, u32>::new(10, 1);
        let slot = insert(&mut table, 1, deadline, now);
        assert!(!table.entry(slot, now).move_deadline(deadline - Nanos(1)));
        assert!(table.entry(slot, now).move_deadline(Nanos::NEVER));
        assert!(!table.entry(slot, now).move_deadline(deadline));
        table.touch(slot, deadline);
        assert_eq!(table.deadline(slot), deadline);
    }
}

#[test]
fn an_entry_is_what_its_slot_names() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    let slot = insert(&mut table, 1, Nanos(9), Nanos(0));
    let mut entry = table.entry(slot, Nanos(0));
    *entry.value_mut() = 7;
    assert!(entry.move_deadline(Nanos(20)) && !entry.move_deadline(Nanos(19)) && !entry.is_protected());
    assert_eq!((*table.value(slot), table.deadline(slot)), (7, Nanos(20)));
    table.protect(slot);
    assert!(table.entry(slot, Nanos(0)).is_protected());
    assert!(table.entry(slot, Nanos(0)).move_deadline(Nanos::NEVER));
    assert_eq!((table.deadline(slot), table.is_protected(slot)), (Nanos::NEVER, true));
}

#[test]
#[should_panic(expected = "no flow at the slot")]
fn a_slot_is_removed_once() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    let slot = insert(&mut table, 1, Nanos::NEVER, Nanos(0));
    table.remove(slot);
    table.remove(slot);
}

#[test]
#[should_panic(expected = "no flow at the slot")]
fn a_removed_flow_is_not_touched() {
    let mut table = Table::<Host4, u32>::new(10, 1);
    let slot = insert(&mut table, 1, Nanos::NEVER, Nanos(0));
    table.remove(slot);
    table.protect(slot);
    table.touch(slot, Nanos(1));
}

#[test]
fn memory_is_bounded() {
    let flows = scaled(1_000_000) as usize;
    let per_flow = |bytes: usize| bytes.saturating_sub(1 << 16) / flows;
    assert!(per_flow(Table::<FiveTuple4, [u64; 2]>::new(flows, 1).memory_bytes()) <= 78);
    assert!(per_flow(Table::<FiveTuple4, [u64; 3]>::new(flows, 1).memory_bytes()) <= 78);
    assert!(per_flow(Table::<Host4, u64>::new(flows, 1).memory_bytes()) <= 58);
    assert!(per_flow(Table::<Host4, [u64; 2]>::new(flows, 1).memory_bytes()) <= 58);
}
