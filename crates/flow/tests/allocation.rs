//! A table allocates at its construction and never later.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;

use millrace_flow::Table;
use packet::{Host, Host4, Nanos};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn host(number: u32) -> Host4 {
    match Host::v4(Ipv4Addr::from_bits(number)) {
        Host::V4(key) => key,
        Host::V6(_) => unreachable!("made of an IPv4 address"),
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let flows = if cfg!(miri) { 50 } else { 5000 };
    let mut table = Table::<Host4, u64>::new(flows as usize, 1);
    let before = ALLOCATIONS.get();
    for number in 0..flows * 4 {
        let now = Nanos(u64::from(number) * 1_000_000);
        let key = host(number);
        let hash = table.hash(&key);
        table.prefetch(hash);
        let hint = table.prefetch_entry(hash);
        assert!(table.entry_at_hint(&key, hint, now).is_none() && table.find(&key, hash).is_none());
        while let Some(slot) = table.reclaim(now) {
            table.remove(slot);
        }
        if table.is_full() {
            let oldest = table.oldest_unprotected().expect("one in three is protected");
            table.remove(oldest);
        }
        let timeout = Nanos::from_millis(u64::from(number % 97) * u64::from(flows) / 40);
        let slot = table.insert(key, hash, 0, now + timeout, now).expect("there is room");
        if number % 3 == 0 {
            table.protect(slot);
        }
        table.touch(slot, now + Nanos::from_millis(u64::from(number % 89) * u64::from(flows) / 40));
        *table.value_mut(slot) += 1;
    }
    assert!(table.iter().all(|(_, value, _)| *value == 1));
    assert_eq!(ALLOCATIONS.get(), before);
}
