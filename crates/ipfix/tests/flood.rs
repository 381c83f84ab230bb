//! A flood of flows of one packet each: nothing is allocated, the memory doesn't grow, and each packet ends a bounded number of records.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use millrace_ipfix::{EndReason, FlowRecord, Meter, MeterOptions};
use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet};
use synth::Build;

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

const PACKETS: u32 = 1_000_000;
const FLOWS: usize = 262_144;

/// Sends a packet of each flow; returns the counts of records by reason.
fn flood(options: MeterOptions, step: Nanos) -> [u64; 5] {
    let mut meter = Meter::new(options);
    let memory = meter.memory_bytes();
    let mut frame = Build::udp("10.0.0.1:1", "10.0.0.2:2").bytes();
    let before = ALLOCATIONS.get();
    let (mut ended, mut packets, mut by_reason) = (0, 0, [0; 5]);
    for number in 0..PACKETS {
        // The source address, spread as an attacker would.
        frame[26..30].copy_from_slice(&number.wrapping_mul(0x9e37_79b1).to_be_bytes());
        let len = frame.len() as u32;
        let packet = Packet {
            seq: Seq(number.into()),
            time: Nanos(step.0 * u64::from(number)),
            offset: 0,
            len,
            wire_len: len,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        let mut now_ended = 0;
        let mut take = |record: &FlowRecord| {
            now_ended += 1;
            packets += record.packets();
            by_reason[record.reason as usize - 1] += 1;
        };
        assert!(meter.packet(&packet, &frame, &mut take));
        assert!(now_ended <= 4, "packet {number} ended {now_ended} records");
        ended += now_ended;
    }
    let counts = meter.counts();
    assert_eq!(ALLOCATIONS.get(), before, "a packet allocates nothing");
    assert_eq!(meter.memory_bytes(), memory);
    assert_eq!(counts.flows, u64::from(PACKETS));
    assert_eq!(counts.flows, ended + counts.cached);
    assert!(counts.cached <= options.flows as u64);
    meter.end_all(|record| packets += record.packets());
    assert_eq!(packets, u64::from(PACKETS));
    by_reason
}

#[test]
fn a_flood_that_fills_the_cache_evicts_one_flow_a_packet() {
    let options = MeterOptions { flows: FLOWS, seed: 7, ..MeterOptions::default() };
    let by_reason = flood(options, Nanos(100));
    assert_eq!(by_reason[EndReason::LackOfResources as usize - 1], u64::from(PACKETS) - FLOWS as u64);
}

/// A second's flows time out at once. They end two a packet, so the cache holds little more than the flows of an idle timeout.
#[test]
fn a_flood_that_times_out_ends_by_silence() {
    let second = Nanos::from_secs(1);
    let options = MeterOptions { flows: FLOWS, seed: 7, idle_timeout: second, ..MeterOptions::default() };
    let by_reason = flood(options, Nanos(10_000));
    assert_eq!(by_reason[EndReason::LackOfResources as usize - 1], 0);
    assert!(by_reason[EndReason::Idle as usize - 1] >= u64::from(PACKETS) - 110_000, "{by_reason:?}");
}
