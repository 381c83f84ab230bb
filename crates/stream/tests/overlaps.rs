//! Overlapping segments, by the cases of the literature and against a naive model.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use millrace_stream::{Budget, Event, Limits, Policy, Pool, Segment, Side};
use proptest::prelude::*;

/// What a stream told: its bytes, a dot for each byte of a gap, and whether copies differed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    text: Vec<u8>,
    deviations: usize,
    ended: bool,
    /// Where bytes came again, and whether as before.
    again: Vec<(u64, bool)>,
}

impl Heard {
    fn hear(&mut self, event: Event<'_>) -> bool {
        assert!(!self.ended || matches!(event, Event::Again(_)), "{event:?} behind the end");
        match event {
            Event::Data(bytes) => self.text.extend_from_slice(bytes),
            Event::Gap(gap) => self.text.extend(std::iter::repeat_n(b'.', gap.len as usize)),
            Event::Deviation(_) => self.deviations += 1,
            Event::Again(again) => {
                // Never bytes that were not told. They are equal unless copies differ.
                let told = &self.text[again.offset as usize..][..again.bytes.len()];
                self.again.push((again.offset, again.bytes == told));
            }
            Event::End => self.ended = true,
        }
        true
    }
}

fn segment(seq: u32, payload: &[u8]) -> Segment<'_> {
    Segment { seq, payload, missing: 0, syn: false, fin: false }
}

/// Bytes before the next are told with their offset, also behind the end; those before the first byte that was heard have none.
#[test]
fn bytes_that_come_again_are_told_at_their_place() {
    let pool = Pool::new(&Budget::new(1 << 20));
    let (mut side, mut heard) = (Side::default(), Heard::default());
    let steps: &[(u32, &[u8], bool)] = &[
        (100, b"attack", false),
        (98, b"xxatt", false),
        (102, b"tACKed", false),
        (0, b"far away", false),
        (108, b"", true),
        (106, b"edible", false),
        (u32::MAX - 3, b"far away", false),
    ];
    for (seq, payload, fin) in steps {
        let segment = Segment { fin: *fin, ..segment(*seq, payload) };
        side.segment(&segment, &pool, Policy::Linux, &Limits::default(), &mut |event| heard.hear(event));
    }
    assert_eq!((heard.text.as_slice(), heard.ended), (&b"attacked"[..], true));
    assert_eq!(heard.again, [(0, true), (2, false), (6, true)]);
}

/// The step tables of overlap cases: after each step, the stream is what the target's would be, gaps marked by dots.
#[test]
fn targets_take_what_the_literature_says() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/l7/overlap_tcp.tsv");
    let Ok(table) = fs::read_to_string(table) else {
        println!("SKIPPED (the table of overlap cases is not here)");
        return;
    };
    let mut cases = BTreeMap::<(&str, &str), Vec<(u32, &str, &str)>>::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [policy, case, _, at, payload, after, _] = fields[..] else { panic!("{line}") };
        // The rows of this case are unsure.
        if case != "OverlapLASTAfter" {
            cases.entry((policy, case)).or_default().push((at.parse().unwrap(), payload, after));
        }
    }
    assert_eq!(cases.len(), 23);
    for ((policy, case), steps) in cases {
        let policy = match policy {
            "BSD" => Policy::Bsd,
            "VISTA" => Policy::First,
            "LINUX" => Policy::Linux,
            "OLD_LINUX" => Policy::OldLinux,
            "SOLARIS" => Policy::Solaris,
            "LAST" => Policy::Last,
            other => panic!("{other}"),
        };
        for count in 1..=steps.len() {
            let pool = Pool::new(&Budget::new(1 << 20));
            let mut side = Side::default();
            let mut heard = Heard::default();
            // One byte ahead of all holds everything back until the end.
            let syn = Segment { syn: true, ..segment(999, b"") };
            side.segment(&syn, &pool, policy, &Limits::default(), &mut |event| heard.hear(event));
            for (at, payload, _) in &steps[..count] {
                let segment = segment(1000 + at, payload.as_bytes());
                side.segment(&segment, &pool, policy, &Limits::default(), &mut |event| heard.hear(event));
            }
            side.end(&pool, &mut |event| heard.hear(event));
            let told = String::from_utf8(heard.text).unwrap();
            assert_eq!(told.strip_prefix('.'), Some(steps[count - 1].2), "{policy:?}, {case}, step {count}");
            assert_eq!(pool.used(), 0);
        }
    }
}

/// A naive stream: each byte with the segment that it came in.
#[derive(Default)]
struct Naive {
    bytes: BTreeMap<u32, (u8, (u32, u32))>,
}

impl Naive {
    fn take(&mut self, at: u32, payload: &[u8], policy: Policy) {
        let new = (at, at + payload.len() as u32);
        for (at, byte) in (at..).zip(payload) {
            let wins = match self.bytes.get(&at) {
                None => true,
                Some((_, old)) => match policy {
                    Policy::Linux => new.0 < old.0 || new.0 == old.0 && new.1 > old.1,
                    Policy::OldLinux => new.0 < old.0 || new.0 == old.0 && new.1 >= old.1,
                    Policy::Bsd => new.0 < old.0,
                    Policy::First => false,
                    Policy::Last => true,
                    Policy::Solaris => new.1 > old.1 || new.1 == old.1 && new.0 <= old.0,
                },
            };
            if wins {
                self.bytes.insert(at, (*byte, new));
            }
        }
    }

    fn text(&self, from: u32) -> Vec<u8> {
        let Some(end) = self.bytes.keys().next_back() else { return Vec::new() };
        (from..=*end).map(|at| self.bytes.get(&at).map_or(b'.', |(byte, _)| *byte)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Segments of any bytes at any places behind a gap: the stream is the naive one, whatever the first number.
    #[test]
    fn overlaps_are_as_in_a_naive_model(
        segments in prop::collection::vec((1u32..40, prop::collection::vec(97u8..123, 1..12)), 1..14),
        base in prop_oneof![Just(1000u32), Just(u32::MAX - 20), any::<u32>()],
        policy in 0usize..6,
    ) {
        let policy = Policy::ALL[policy];
        let pool = Pool::new(&Budget::new(1 << 20));
        let (mut side, mut heard, mut naive) = (Side::default(), Heard::default(), Naive::default());
        let limits = Limits::default();
        let syn = Segment { syn: true, ..segment(base.wrapping_sub(1), b"") };
        side.segment(&syn, &pool, policy, &limits, &mut |event| heard.hear(event));
        for (at, payload) in &segments {
            naive.take(*at, payload, policy);
            let segment = segment(base.wrapping_add(*at), payload);
            let (is_direct, used) = (side.is_direct(&segment), pool.used());
            side.segment(&segment, &pool, policy, &limits, &mut |event| heard.hear(event));
            prop_assert!(!is_direct || (pool.used() == used && !side.waits()), "a direct segment uses no pool");
            prop_assert_eq!(side.waits(), pool.used() > 0);
        }
        side.end(&pool, &mut |event| heard.hear(event));
        prop_assert_eq!(String::from_utf8(heard.text), String::from_utf8(naive.text(0)));
        prop_assert_eq!(pool.used(), 0);
    }

    /// Any cutting of the same bytes into segments, in any order, with repetitions: the same stream, and no deviation.
    #[test]
    fn any_cutting_is_the_same_stream(
        bytes in prop::collection::vec(any::<u8>(), 1..6000),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 1usize..4000), 0..24),
        order in any::<u64>(),
        base in any::<u32>(),
        policy in 0usize..6,
    ) {
        let policy = Policy::ALL[policy];
        let pool = Pool::new(&Budget::new(1 << 20));
        let (mut side, mut heard) = (Side::default(), Heard::default());
        // All bytes once, in pieces of 700, and other pieces besides; shuffled.
        let mut pieces: Vec<_> = (0..bytes.len()).step_by(700).map(|at| (at, (at + 700).min(bytes.len()))).collect();
        pieces.extend(cuts.iter().map(|(at, len)| {
            let at = at.index(bytes.len());
            (at, (at + len).min(bytes.len()))
        }));
        let mut state = order | 1;
        for at in (1..pieces.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pieces.swap(at, (state >> 33) as usize % (at + 1));
        }
        let limits = Limits::default();
        let syn = Segment { syn: true, ..segment(base.wrapping_sub(1), b"") };
        side.segment(&syn, &pool, policy, &limits, &mut |event| heard.hear(event));
        for (from, to) in &pieces {
            let fin = *to == bytes.len();
            let segment = Segment { fin, ..segment(base.wrapping_add(*from as u32), &bytes[*from..*to]) };
            side.segment(&segment, &pool, policy, &limits, &mut |event| heard.hear(event));
        }
        prop_assert_eq!(&heard.text, &bytes);
        prop_assert!(heard.ended && heard.deviations == 0);
        prop_assert!(heard.again.iter().all(|(_, is_equal)| *is_equal));
        prop_assert_eq!(pool.used(), 0);
    }

    /// Whatever comes, within whatever limits: memory stays within them and nothing is told twice or lost.
    #[test]
    fn limits_hold(
        segments in prop::collection::vec((0u32..60_000, 0usize..4000, any::<bool>(), 0u32..50), 1..60),
        early_bytes in 1u32..20_000,
        early_blocks in 1u16..12,
        budget in 0usize..12,
        deaf_after in prop::option::of(0usize..40),
        policy in 0usize..6,
    ) {
        let policy = Policy::ALL[policy];
        let budget = Budget::new(budget * 1600);
        let pool = Pool::new(&budget);
        let limits = Limits { early_bytes, early_blocks };
        let mut side = Side::default();
        let (mut told, mut heard, mut ended) = (0u64, 0usize, false);
        let mut hear = |event: Event<'_>| {
            heard += 1;
            assert!((!ended || matches!(event, Event::Again(_))) && deaf_after.is_none_or(|most| heard <= most + 1));
            match event {
                Event::Data(bytes) => told += bytes.len() as u64,
                Event::Gap(gap) => told += u64::from(gap.len),
                Event::Deviation(_) | Event::Again(_) => {}
                Event::End => ended = true,
            }
            deaf_after.is_none_or(|most| heard <= most)
        };
        let payload = [7u8; 4000];
        for (at, len, fin, missing) in &segments {
            let segment = Segment { fin: *fin && *at > 50_000, missing: *missing, ..segment(*at, &payload[..*len]) };
            side.segment(&segment, &pool, policy, &limits, &mut hear);
            prop_assert!(side.early_bytes() <= early_bytes);
            prop_assert!(pool.used() <= usize::from(early_blocks) && budget.used() <= budget.bytes());
            if at % 7 == 0 {
                side.acknowledged(*at, &pool, &mut hear);
            }
        }
        side.end(&pool, &mut hear);
        prop_assert_eq!(told, side.offset());
        prop_assert_eq!(pool.used(), 0);
    }
}

/// A segment that was captured in part, where the rest came early: it is told where it lies.
#[test]
fn early_bytes_count_where_a_segment_was_cut() {
    let pool = Pool::new(&Budget::new(1 << 20));
    let (mut side, mut heard, limits) = (Side::default(), Heard::default(), Limits::default());
    let segments = [
        Segment { syn: true, ..segment(999, b"") },
        segment(1008, b"early"),
        Segment { missing: 10, ..segment(1000, b"cut") },
        segment(1013, b"!"),
    ];
    for one in segments {
        side.segment(&one, &pool, Policy::Linux, &limits, &mut |event| heard.hear(event));
    }
    assert_eq!(String::from_utf8(heard.text).unwrap(), "cut.....early!");
}
