//! The store of fragments against a naive model, published outcomes, and floods.
#![allow(clippy::print_stderr)]

mod common;

use std::collections::HashMap;
use std::path::Path;

use common::{Part, packet, v4};
use millrace_l7::defrag::{Counts, Defragmenter, Discard, Followed, Limits, Policy, Taken, cut, follow, gather};
use packet::{LinkType, Nanos, Seq};
use port::Trace;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What became of a fragment.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Held(Option<Discard>),
    Whole(Vec<u8>),
}

/// Keeps all fragments of a datagram and looks at all their bytes, one by one.
#[derive(Clone, Debug, Default)]
struct Naive {
    parts: Vec<Part>,
    /// Who has a byte: the number of a part.
    owners: Vec<Option<usize>>,
    /// Ranges of bytes that came in order.
    runs: Vec<(usize, usize)>,
    end: Option<usize>,
}

impl Naive {
    fn add(&mut self, policy: Policy, part: &Part) -> Outcome {
        let (start, len) = (usize::from(part.offset) * 8, part.payload.len());
        let end = start + len;
        let high = self.owners.len();
        if len == 0 {
            return Outcome::Held(Some(Discard::Empty));
        }
        if part.more && len % 8 != 0 {
            return Outcome::Held(Some(Discard::Unaligned));
        }
        if end > 65_535 {
            return Outcome::Held(Some(Discard::TooLong));
        }
        if self.end.is_some_and(|known| end > known || !part.more && end != known) || !part.more && end < high {
            return Outcome::Held(Some(Discard::End));
        }
        if !part.more {
            self.end = Some(end);
        }
        if policy == Policy::Linux || part.is_v6 {
            if self.runs.iter().any(|run| run.0 <= start && end <= run.1) {
                return Outcome::Held(Some(Discard::Duplicate));
            }
            if self.runs.iter().any(|run| run.0 < end && start < run.1) {
                return Outcome::Held(Some(Discard::Overlap));
            }
            match self.runs.iter_mut().find(|run| run.1 == high && start == high && high > 0) {
                Some(run) => run.1 = end,
                None => self.runs.push((start, end)),
            }
        }
        let number = self.parts.len();
        let old = self.owners.clone();
        self.owners.resize(high.max(end), None);
        let mut takes = false;
        for byte in start..end {
            let owner = old.get(byte).copied().flatten();
            let is_kept = owner.is_some() && {
                let has = |at: usize| old.get(at).copied().flatten() == owner;
                let first = (0..=byte).rev().take_while(|at| has(*at)).last().expect("the byte itself");
                let last = (byte..).take_while(|at| has(*at)).last().expect("the byte itself") + 1;
                keeps(policy, (first, last), (start, end))
            };
            if !is_kept {
                self.owners[byte] = Some(number);
                takes = true;
            }
        }
        if !takes {
            self.owners = old;
            return Outcome::Held(Some(Discard::Duplicate));
        }
        self.parts.push(part.clone());
        let byte = |(at, owner): (usize, &Option<usize>)| {
            owner.map(|owner| self.parts[owner].payload[at - usize::from(self.parts[owner].offset) * 8])
        };
        let bytes: Option<Vec<u8>> = self.owners.iter().enumerate().map(byte).collect();
        match bytes.filter(|bytes| self.end == Some(bytes.len())) {
            Some(bytes) => Outcome::Whole(bytes),
            None => Outcome::Held(None),
        }
    }
}

/// In the words of Novak, "Target-Based Fragmentation Reassembly" (2005).
fn keeps(policy: Policy, old: (usize, usize), new: (usize, usize)) -> bool {
    match policy {
        Policy::Linux | Policy::First => true,
        Policy::Last => false,
        Policy::Bsd => old.0 <= new.0,
        Policy::BsdRight => new.0 < old.0,
        Policy::Windows => new.0 >= old.0 || new.1 <= old.1,
        Policy::Solaris => new.0 >= old.0 || new.1 < old.1,
    }
}

/// A gathered frame and its words.
type Gathered = (Vec<u8>, Vec<u16>);

/// Takes a fragment. Returns the payload of a datagram that it completes, without headers, and the frame and its words.
fn take(store: &mut Defragmenter, number: u64, part: &Part) -> (Outcome, Option<Gathered>) {
    let frame = part.frame();
    match store.take(&packet(number, Nanos(number), &frame), &frame) {
        Taken::Whole => panic!("it is a fragment"),
        Taken::Held(reason) => (Outcome::Held(reason), None),
        Taken::Gathered(frame, words) => {
            let header = 14 + if part.is_v6 { 48 } else { 20 };
            (Outcome::Whole(frame[header..].to_vec()), Some((frame.to_vec(), words.to_vec())))
        }
    }
}

fn sum(counts: &Counts) -> u64 {
    counts.gathered + counts.dropped_total()
}

/// A datagram in parts, in any order, perhaps with copies and with other bytes in places.
fn parts(is_v6: bool, id: u16) -> impl Strategy<Value = Vec<Part>> {
    let cuts = vec(1..24_u16, 1..6);
    let extra = vec((0..24_u16, 1..24_usize, any::<bool>(), any::<u8>()), 0..4);
    let copies = vec(any::<Index>(), 0..3);
    (cuts, 1..9_usize, extra, copies, any::<u8>()).prop_flat_map(move |(mut cuts, tail, extra, copies, fill)| {
        cuts.sort_unstable();
        cuts.dedup();
        let end = usize::from(*cuts.last().expect("there is one")) * 8 + tail;
        let bytes: Vec<u8> = (0..end).map(|at| fill.wrapping_add(at as u8)).collect();
        let ends: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) * 8).chain([end]).collect();
        let mut start = 0;
        let mut all = Vec::new();
        for part_end in ends {
            let payload = bytes[start..part_end].to_vec();
            all.push(Part { is_v6, id, offset: (start / 8) as u16, more: part_end < end, payload });
            start = part_end;
        }
        for copy in copies {
            all.push(copy.get(&all).clone());
        }
        for (offset, len, is_aligned, fill) in extra {
            let len = if is_aligned { len.next_multiple_of(8) } else { len };
            // At offset 0 and without more it would be a whole packet.
            let more = offset == 0 || usize::from(offset) * 8 + len < end;
            all.push(Part { is_v6, id, offset, more, payload: vec![fill; len] });
        }
        Just(all).prop_shuffle()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn does_as_the_naive_model(
        policy in select(Policy::ALL.to_vec()),
        is_v6 in any::<bool>(),
        (one, other) in (parts(false, 7), parts(false, 8)),
        turns in vec(any::<bool>(), 24),
    ) {
        let mut store = Defragmenter::new(policy, Limits::default());
        let mut naive: HashMap<u16, Naive> = HashMap::new();
        let (mut one, mut other, mut number) = (one.into_iter(), other.into_iter(), 0);
        for turn in turns {
            let Some(mut part) = (if turn { one.next() } else { other.next() }) else { continue };
            part.is_v6 = is_v6;
            number += 1;
            let expected = naive.entry(part.id).or_default().add(policy, &part);
            let (outcome, gathered) = take(&mut store, number, &part);
            prop_assert_eq!(&outcome, &expected, "{:?}", part);
            let is_over = match expected {
                Outcome::Whole(_) => true,
                Outcome::Held(reason) => !matches!(reason, None | Some(Discard::Duplicate)),
            };
            if is_over {
                naive.remove(&part.id);
            }
            if let Some((frame, words)) = gathered {
                check_cut(&frame, &words);
            }
        }
        prop_assert_eq!(store.datagrams(), naive.values().filter(|naive| !naive.parts.is_empty()).count());
        store.end();
        prop_assert_eq!(sum(store.counts()), number);
        prop_assert_eq!((store.counts().fragments, store.datagrams(), store.bytes()), (number, 0, 0));
    }

    /// What became of each fragment adds up to the counts, whatever the order, with timeouts and full stores.
    #[test]
    fn each_fragment_is_followed(
        policy in select(Policy::ALL.to_vec()),
        is_v6 in any::<bool>(),
        (one, other, again) in (parts(false, 7), parts(false, 8), parts(false, 7)),
        turns in vec((any::<bool>(), 0..9_000_u64), 36),
        (fragments, datagrams) in (4..40_usize, 1..3_usize),
    ) {
        let limits = Limits { fragments, datagrams, ..Limits::default() };
        let (mut one, mut other) = (one.into_iter().chain(again), other.into_iter());
        let (mut trace, mut at) = (Trace::new(), 0);
        for (turn, wait_ms) in turns {
            let Some(mut part) = (if turn { one.next() } else { other.next() }) else { continue };
            part.is_v6 = is_v6;
            at += wait_ms;
            let frame = part.frame();
            trace.push(packet(trace.len() as u64, Nanos::from_millis(at), &frame), &frame);
        }
        let (gathered, counts) = gather(&trace, policy, limits);
        let mut followed = Counts { fragments: trace.len() as u64, datagrams: counts.datagrams, ..Counts::default() };
        for number in 0..trace.len() as u64 {
            match follow(&trace, policy, limits, Seq(number)) {
                Some(Followed::Gathered(seq)) => {
                    prop_assert!(gathered.packets().iter().any(|packet| packet.seq == seq));
                    followed.gathered += 1;
                }
                Some(Followed::Dropped(reason)) => followed.dropped[reason as usize] += 1,
                None => prop_assert!(false, "packet {} is a fragment", number),
            }
        }
        prop_assert_eq!(followed, counts);
    }

    /// What was cut without overlaps leaves in the same fragments, by offset.
    #[test]
    fn leaves_as_it_came(is_v6 in any::<bool>(), parts in parts(false, 7), order in any::<u64>()) {
        let mut parts = parts;
        parts.sort_by_key(|part| part.offset);
        parts.dedup_by_key(|part| part.offset);
        let mut at = 0;
        parts.retain(|part| {
            let fits = usize::from(part.offset) * 8 == at && part.more == part.payload.len().is_multiple_of(8);
            at += if fits { part.payload.len() } else { 0 };
            fits
        });
        prop_assume!(parts.last().is_some_and(|last| !last.more));
        parts.iter_mut().for_each(|part| part.is_v6 = is_v6);
        let mut arrivals = parts.clone();
        arrivals.rotate_left((order % parts.len() as u64) as usize);
        let mut store = Defragmenter::new(Policy::Linux, Limits::default());
        let gathered = arrivals.iter().enumerate().filter_map(|(at, part)| take(&mut store, at as u64, part).1).last();
        let Some((frame, words)) = gathered else { return Ok(()) };
        let mut sent = Vec::new();
        prop_assert!(cut(LinkType::Ethernet, &frame, &words, &mut Vec::new(), |frame| sent.push(frame.to_vec())));
        prop_assert_eq!(sent, parts.iter().map(Part::frame).collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_do(frames in vec(vec(any::<u8>(), 0..80), 1..20), is_v4 in any::<bool>()) {
        let mut store = Defragmenter::new(Policy::Bsd, Limits { bytes: 4096, ..Limits::default() });
        for mut frame in frames {
            if let Some(head) = frame.get_mut(12..15) {
                head.copy_from_slice(if is_v4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            }
            let taken = store.take(&packet(0, Nanos(0), &frame), &frame);
            if let Taken::Gathered(frame, words) = taken {
                let (frame, words) = (frame.to_vec(), words.to_vec());
                cut(LinkType::Ethernet, &frame, &words, &mut Vec::new(), |_| {});
            }
        }
        store.end();
        prop_assert_eq!(store.counts().fragments, sum(store.counts()));
    }
}

/// Cut and gathered again, a datagram is the same.
fn check_cut(frame: &[u8], words: &[u16]) {
    let mut store = Defragmenter::new(Policy::Linux, Limits::default());
    let (mut again, mut sent) = (None, 0);
    let is_cut = cut(LinkType::Ethernet, frame, words, &mut Vec::new(), |frame| {
        sent += 1;
        assert!(again.is_none(), "not before the last");
        if let Taken::Gathered(frame, words) = store.take(&packet(0, Nanos(0), frame), frame) {
            again = Some((frame.to_vec(), words.to_vec()));
        }
    });
    assert!(is_cut);
    if sent > 1 {
        assert_eq!(again, Some((frame.to_vec(), words.to_vec())));
    }
    let mut other = frame.to_vec();
    other.push(0);
    assert!(!cut(LinkType::Ethernet, &other, words, &mut Vec::new(), |_| panic!("another length")));
}

fn part(id: u16, units: std::ops::Range<u16>, more: bool, fill: u8) -> Part {
    let payload = vec![fill; usize::from(units.end - units.start) * 8];
    Part { is_v6: false, id, offset: units.start, more, payload }
}

/// The fragments of Novak's paper, A to I and then J to Q, each of its letter.
fn novak() -> Vec<Part> {
    const UNITS: [(u16, u16); 17] = [
        (0, 3),
        (4, 6),
        (6, 9),
        (10, 11),
        (13, 15),
        (15, 18),
        (18, 20),
        (20, 22),
        (22, 23), //
        (1, 5),
        (6, 9),
        (9, 12),
        (12, 15),
        (16, 17),
        (19, 20),
        (20, 21),
        (22, 24),
    ];
    let of = |(at, (start, end)): (usize, &(u16, u16))| part(9, *start..*end, *end < 24, b'A' + at as u8);
    UNITS.iter().enumerate().map(of).collect()
}

#[test]
fn published_outcomes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/l7/overlap_ip.tsv");
    let Ok(table) = std::fs::read_to_string(path) else {
        eprintln!("SKIPPED (no ../shared/l7/overlap_ip.tsv)");
        return;
    };
    let mut rows = 0;
    for line in table.lines().skip(1) {
        let [name, policy, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let policy = Policy::of_name(&policy.to_lowercase()).expect("a policy");
        let is_v6 = name.contains("Ipv6");
        let parts: Vec<Part> = novak().into_iter().map(|part| Part { is_v6, ..part }).collect();
        let mut store = Defragmenter::new(policy, Limits::default());
        let outcomes: Vec<Outcome> = (0..).zip(&parts).map(|(at, part)| take(&mut store, at, part).0).collect();
        rows += 1;
        // IPv6 datagrams with overlaps are dropped (RFC 5722), as are those of Linux today; the table is older.
        if is_v6 || policy == Policy::Linux {
            assert!(outcomes.contains(&Outcome::Held(Some(Discard::Overlap))), "{name}");
            continue;
        }
        let Some(Outcome::Whole(bytes)) = outcomes.last() else { panic!("{name}: {outcomes:?}") };
        let letters: String = bytes.chunks(8).map(|unit| char::from(unit[0])).collect();
        assert!(bytes.chunks(8).all(|unit| unit.iter().all(|byte| *byte == unit[0])), "{name}");
        assert_eq!(letters, expected, "{name}");
    }
    assert!(rows >= 12, "{rows} rows");
}

#[test]
fn each_reason() {
    let reason = |limits: Limits, parts: &[Part]| {
        let mut store = Defragmenter::new(Policy::Linux, limits);
        let last = (0..).zip(parts).map(|(at, part)| take(&mut store, at, part).0).last();
        let Some(Outcome::Held(Some(reason))) = last else { panic!("{last:?}") };
        assert!(store.counts().dropped_for(reason) > 0);
        reason
    };
    let usual = Limits::default();
    let first = part(1, 0..2, true, 1);
    let odd = |more: bool, len: usize| Part { payload: vec![0; len], ..part(1, 2..2, more, 0) };
    assert_eq!(reason(usual, &[first.clone(), part(1, 1..3, true, 1)]), Discard::Overlap);
    assert_eq!(reason(usual, &[first.clone(), part(1, 1..2, true, 9)]), Discard::Duplicate);
    assert_eq!(reason(usual, &[first.clone(), odd(true, 9)]), Discard::Unaligned);
    assert_eq!(reason(usual, &[first.clone(), odd(true, 0)]), Discard::Empty);
    assert_eq!(reason(usual, &[first.clone(), Part { offset: 8191, ..odd(false, 12) }]), Discard::TooLong);
    assert_eq!(reason(usual, &[part(1, 5..6, false, 1), part(1, 3..4, false, 1)]), Discard::End);
    assert_eq!(reason(usual, &[part(1, 5..6, true, 1), part(1, 3..4, false, 1)]), Discard::End);
    assert_eq!(reason(usual, &[part(1, 3..4, false, 1), part(1, 5..6, true, 1)]), Discard::End);
    let few = Limits { datagram_fragments: 1, ..usual };
    assert_eq!(reason(few, &[first.clone(), part(1, 2..3, true, 1)]), Discard::TooMany);
    for small in [Limits { datagrams: 1, ..usual }, Limits { bytes: 1024, ..usual }, Limits { fragments: 2, ..usual }] {
        assert_eq!(reason(small, &[first.clone(), part(2, 0..2, true, 1)]), Discard::NoRoom);
    }
    let one = Limits { source_datagrams: 1, ..usual };
    assert_eq!(reason(one, &[first.clone(), part(2, 0..2, true, 1)]), Discard::SourceLimit);
    for none in [Limits { datagrams: 0, ..usual }, Limits { bytes: 0, ..usual }, Limits { fragments: 0, ..usual }] {
        assert_eq!(reason(none, std::slice::from_ref(&first)), Discard::NoRoom);
    }

    let mut store = Defragmenter::new(Policy::Linux, usual);
    let frame = first.frame();
    let cut_off = &frame[..frame.len() - 1];
    let whole = packet(0, Nanos(0), &frame);
    assert!(matches!(store.take(&whole, cut_off), Taken::Held(Some(Discard::Cut))));
    let mut marked = part(1, 2..3, false, 1).frame();
    marked[15] |= 3;
    assert!(matches!(store.take(&whole, &frame), Taken::Held(None)));
    assert!(matches!(store.take(&whole, &marked), Taken::Held(Some(Discard::Ecn))));
    assert!(matches!(store.take(&whole, &frame), Taken::Held(None)));
    let late = packet(1, usual.timeout_v4, &marked);
    assert!(matches!(store.take(&late, &marked), Taken::Held(None)));
    store.end();
    let drops: Vec<_> = store.counts().drops().collect();
    let expected = [(Discard::Ecn, 2), (Discard::Cut, 1), (Discard::Timeout, 1), (Discard::Incomplete, 1)];
    assert_eq!(drops, expected);
}

#[test]
fn congestion_is_kept() {
    let [mut first, mut last] = [part(1, 0..2, true, 1).frame(), part(1, 2..3, false, 1).frame()];
    (first[15], last[15]) = (2, 3);
    let mut store = Defragmenter::new(Policy::Linux, Limits::default());
    let _ = store.take(&packet(0, Nanos(0), &first), &first);
    let Taken::Gathered(frame, _) = store.take(&packet(1, Nanos(1), &last), &last) else { panic!("it is whole") };
    assert_eq!(frame[15], 3);
}

/// Options that only the first fragment has become no-operations in the others; the flag "don't fragment" stays.
#[test]
fn options_and_flags() {
    let with_options = |part: &Part, flags: u8| {
        let mut frame = part.frame();
        frame.splice(34..34, [7, 3, 4, 130, 3, 5, 1, 0]);
        frame[14] = 0x47;
        frame[17] += 8;
        frame[20] |= flags;
        frame
    };
    let [first, last] = [part(1, 0..2, true, 1), part(1, 2..3, false, 1)].map(|part| with_options(&part, 0x40));
    let mut store = Defragmenter::new(Policy::Linux, Limits::default());
    let _ = store.take(&packet(0, Nanos(0), &first), &first);
    let Taken::Gathered(frame, words) = store.take(&packet(1, Nanos(1), &last), &last) else { panic!("it is whole") };
    assert_eq!((&frame[20..22], frame.len()), (&[0, 0][..], 14 + 28 + 24));
    let (frame, words) = (frame.to_vec(), words.to_vec());
    let mut sent = Vec::new();
    assert!(cut(LinkType::Ethernet, &frame, &words, &mut Vec::new(), |frame| sent.push(frame.to_vec())));
    assert_eq!((sent[0][20], sent[1][20], sent[1][21]), (0x60, 0x40, 2));
    assert_eq!(sent[0][34..42], [7, 3, 4, 130, 3, 5, 1, 0]);
    assert_eq!(sent[1][34..42], [1, 1, 1, 130, 3, 5, 1, 0]);
}

/// First fragments of many datagrams fill the store, and no more. Others come through when the flood has timed out.
#[test]
fn floods_are_bounded() {
    let limits = Limits::default();
    let mut store = Defragmenter::new(Policy::Linux, limits);
    let flood = |store: &mut Defragmenter, number: u64, payload: usize| {
        let part = Part { payload: vec![1; payload], ..part(number as u16, 0..0, true, 0) };
        let mut frame = [2_u8; 14].to_vec();
        frame[12..14].copy_from_slice(&[8, 0]);
        v4(&mut frame, &part, [10, 1, (number >> 8) as u8, (number >> 16) as u8]);
        let time = Nanos::from_micros(number);
        assert!(matches!(store.take(&packet(number, time, &frame), &frame), Taken::Held(_)));
    };
    for number in 0..200_000 {
        flood(&mut store, number, if number % 2 == 0 { 1400 } else { 8 });
        assert!(store.bytes() <= limits.bytes && store.datagrams() <= limits.datagrams);
    }
    assert!(store.counts().dropped_for(Discard::NoRoom) > 190_000);
    // One host alone can't do that.
    let late = Nanos::from_secs(100);
    let ids = 0..5_000;
    let mut gathered = 0;
    for id in ids {
        let frame = part(id, 0..2, true, 1).frame();
        let _ = store.take(&packet(0, late, &frame), &frame);
    }
    assert_eq!((store.datagrams(), store.counts().dropped_for(Discard::SourceLimit)), (1_024, 5_000 - 1_024));
    for more in [true, false] {
        let mut frame = [2_u8; 14].to_vec();
        frame[12..14].copy_from_slice(&[8, 0]);
        let units = if more { 0..2 } else { 2..3 };
        v4(&mut frame, &part(1, units, more, 1), [10, 9, 9, 9]);
        gathered += usize::from(matches!(store.take(&packet(0, late, &frame), &frame), Taken::Gathered(..)));
    }
    assert_eq!(gathered, 1);
    store.end();
    assert_eq!((store.datagrams(), store.bytes()), (0, 0));
    assert_eq!(store.counts().fragments, sum(store.counts()));
}

#[test]
fn whole_packets_pass() {
    let whole = part(1, 0..2, false, 1).frame();
    let mut atomic = Part { is_v6: true, ..part(1, 0..2, false, 1) }.frame();
    let mut store = Defragmenter::new(Policy::Linux, Limits::default());
    assert!(matches!(store.take(&packet(0, Nanos(0), &whole), &whole), Taken::Whole));
    assert!(matches!(store.take(&packet(0, Nanos(0), &atomic), &atomic), Taken::Whole));
    atomic.truncate(50);
    assert!(matches!(store.take(&packet(0, Nanos(0), &atomic), &atomic), Taken::Whole));
    assert!(matches!(store.take(&packet(0, Nanos(0), &[]), &[]), Taken::Whole));
    assert_eq!(*store.counts(), Counts::default());
}
