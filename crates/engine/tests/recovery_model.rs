//! Loss recovery under a model checker, on the code that ships. Loom searches the schedules, and the reads that the memory model allows.
//! Whatever is lost and whichever core stalls, all cores apply the same records in the same order.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p millrace-engine --release --test recovery_model`
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Count, Ordering};

use loom::thread;
use millrace_engine::recovery::{Fault, Logs, Member, Patience, Shape, Words};
use packet::Seq;

/// A stream of packets and its losses.
#[derive(Clone, Copy, Debug)]
struct Case {
    cores: usize,
    slots: usize,
    /// The number of packets.
    packets: u64,
    /// How many packets the sequencer sends at a time; a heartbeat follows.
    burst: u64,
    lost: &'static [u64],
    /// A core that stalls for ever after it has processed the packets below this number.
    stall: Option<(usize, u64)>,
    patience: Patience,
    /// The limit of runs for a search that has not finished.
    runs_max: usize,
}

/// The records that a core applied: the word of each, or that no core received it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trail {
    applied: Vec<Option<u64>>,
    fenced: bool,
}

/// Two words that belong together, so a torn record is one that nobody wrote.
const fn record(seq: u64) -> [u64; 2] {
    [seq + 100, !(seq + 100)]
}

impl Case {
    const fn reaches(&self, packet: u64) -> bool {
        let mut index = 0;
        while index < self.lost.len() {
            if self.lost[index] == packet {
                return false;
            }
            index += 1;
        }
        packet < self.packets
    }

    /// The cores that get a packet with this record.
    fn receivers(&self, record: u64) -> impl Iterator<Item = usize> + '_ {
        let carriers = record..record + self.cores as u64;
        carriers.filter(|packet| self.reaches(*packet)).map(|packet| (packet % self.cores as u64) as usize)
    }

    /// One core's run. A core that stalls keeps its member, so the member never leaves.
    fn run(&self, core: usize, mut member: Member) -> (Trail, Option<Member>) {
        let mut applied = Vec::new();
        let mut apply = |seq: Seq, words: Option<&[u64]>| {
            assert_eq!(seq.0, applied.len() as u64, "out of order");
            applied.push(words.map(|words| {
                assert_eq!(words, record(seq.0), "not the words of record {seq}");
                words[0]
            }));
        };
        let mut start = 0;
        while start < self.packets {
            let end = self.packets.min(start + self.burst);
            let stalls = |at| self.stall.is_some_and(|(who, when)| who == core && when <= at);
            // Successive packets without a loss between them are taken together.
            let mut run: Option<(u64, usize)> = None;
            let mut records = Vec::new();
            for packet in (start..end).filter(|packet| *packet % self.cores as u64 == core as u64) {
                if stalls(packet) {
                    // A stall is no end of a burst, so the packets before it count as far as the member got.
                    if let Some((first, count)) = run {
                        let _ = member.receive_run(Seq(first), count, &records, &mut Words(&mut apply));
                    }
                    return (Trail { applied, fenced: false }, Some(member));
                }
                if self.reaches(packet) {
                    records.extend(((packet + 1).saturating_sub(self.cores as u64)..=packet).flat_map(record));
                    run = Some(run.map_or((packet, 1), |(first, count)| (first, count + 1)));
                }
                let goes_on = self.reaches(packet) && packet + (self.cores as u64) < end;
                if let Some((first, count)) = run.filter(|_| !goes_on) {
                    if member.receive_run(Seq(first), count, &records, &mut Words(&mut apply)).is_err() {
                        return (Trail { applied, fenced: true }, None);
                    }
                    run = None;
                    records.clear();
                }
            }
            if stalls(end) {
                return (Trail { applied, fenced: false }, Some(member));
            }
            if member.advance(Seq(end), &mut apply).is_err() {
                return (Trail { applied, fenced: true }, None);
            }
            start = end;
        }
        let (_, result) = member.finish(Seq(self.packets), &mut apply);
        (Trail { applied, fenced: result.is_err() }, None)
    }

    /// Compares the cores' results with each other and with the losses.
    fn judge(&self, trails: &[Trail]) {
        let dropped_out = |core: usize| trails[core].fenced || self.stall.is_some_and(|(who, _)| who == core);
        let whole = (0..self.cores).filter(|core| !dropped_out(*core));
        let longest = trails.iter().max_by_key(|trail| trail.applied.len()).expect("there are cores");
        for (core, trail) in trails.iter().enumerate() {
            let len = trail.applied.len();
            assert_eq!(trail.applied, longest.applied[..len], "core {core} disagrees: {trails:?}");
        }
        for core in whole {
            assert_eq!(trails[core].applied.len() as u64, self.packets, "core {core} didn't finish: {trails:?}");
        }
        for (record, applied) in longest.applied.iter().enumerate() {
            let mut receivers = self.receivers(record as u64).peekable();
            match applied {
                Some(_) => assert!(receivers.peek().is_some(), "record {record} came from nowhere: {trails:?}"),
                None => assert!(receivers.all(dropped_out), "record {record} was received: {trails:?}"),
            }
        }
        assert!(self.patience != Patience::Endless || trails.iter().all(|trail| !trail.fenced), "fenced: {trails:?}");
    }
}

/// How often threads may lose the processor while they could go on. Two find every fault below.
const PREEMPTIONS_MAX: usize = 2;

/// The checker's result.
#[derive(Default)]
struct Found {
    runs: Count,
    with_fenced: Count,
}

/// Runs the case in the ways that the checker finds.
///
/// # Panics
/// If the cores disagree.
fn check(case: Case) -> (usize, usize) {
    // When cores are fenced, some read entries while these are overwritten, and discard the result.
    Fault::watch(case.patience == Patience::Endless);
    let found = Arc::new(Found::default());
    let counts = Arc::clone(&found);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.max_branches = 20_000;
    model.max_permutations = Some(case.runs_max);
    model.check(move || {
        let shape = Shape { cores: case.cores, slots: case.slots, words: 2 };
        let mut members = Logs::members(shape, case.patience);
        let others: Vec<_> = members
            .drain(1..)
            .enumerate()
            .map(|(core, member)| thread::spawn(move || case.run(core + 1, member)))
            .collect();
        let first = members.pop().expect("there is a first core");
        let mut runs = vec![case.run(0, first)];
        runs.extend(others.into_iter().map(|other| other.join().expect("no core panics")));
        let (trails, _stalled): (Vec<Trail>, Vec<Option<Member>>) = runs.into_iter().unzip();
        case.judge(&trails);
        counts.runs.fetch_add(1, Ordering::Relaxed);
        counts.with_fenced.fetch_add(usize::from(trails.iter().any(|trail| trail.fenced)), Ordering::Relaxed);
    });
    (found.runs.load(Ordering::Relaxed), found.with_fenced.load(Ordering::Relaxed))
}

/// Two cores that take turns to overwrite their one slot and to read the other's.
const WRAPPING: Case = Case {
    cores: 2,
    slots: 1,
    packets: 6,
    burst: 2,
    lost: &[1, 4],
    stall: None,
    patience: Patience::Endless,
    runs_max: 10_000,
};

const IMPATIENT: Case = Case { patience: Patience::Looks(1), ..WRAPPING };

/// The second core is fenced while it reads what the first then overwrites.
const OVERTAKEN: Case = Case { packets: 3, burst: 3, lost: &[1], patience: Patience::Looks(0), ..IMPATIENT };

#[test]
fn two_cores_agree_whatever_is_lost() {
    for lost in [&[][..], &[0], &[1], &[2], &[0, 1], &[1, 2], &[1, 3], &[0, 2, 4], &[0, 1, 2, 3]] {
        for slots in [1, 2] {
            let (runs, _) = check(Case { slots, lost, packets: 5, runs_max: 3_000, ..WRAPPING });
            assert!(runs > 1, "{lost:?} in {slots} slots: {runs} runs");
        }
    }
    assert!(check(WRAPPING).0 > 100);
    // Bursts of two packets for each core, taken together: contiguous, and around the end of the log.
    for (slots, lost) in [(2, &[][..]), (2, &[3]), (1, &[]), (1, &[4]), (3, &[5])] {
        let (runs, _) = check(Case { slots, lost, packets: 8, burst: 4, runs_max: 3_000, ..WRAPPING });
        assert!(runs > 1, "bursts, {lost:?} in {slots} slots: {runs} runs");
    }
}

#[test]
fn three_cores_agree() {
    for (slots, lost) in [(1, &[1, 2][..]), (1, &[0, 4, 5]), (2, &[1, 2, 3]), (1, &[2, 5])] {
        let (runs, _) = check(Case { cores: 3, slots, packets: 6, burst: 3, lost, runs_max: 5_000, ..WRAPPING });
        assert!(runs > 100, "{lost:?} in {slots} slots: {runs} runs");
    }
}

#[test]
fn cores_agree_where_any_may_be_fenced() {
    let (runs, with_fenced) = check(IMPATIENT);
    assert!((1..runs).contains(&with_fenced), "{with_fenced} of {runs}");
    let (runs, with_fenced) = check(Case { lost: &[0, 3], ..IMPATIENT });
    assert!((1..runs).contains(&with_fenced), "{with_fenced} of {runs}");
    assert!(check(OVERTAKEN).1 > 0);
    let (runs, with_fenced) = check(Case { cores: 3, packets: 4, burst: 3, lost: &[1, 2], ..IMPATIENT });
    assert!((1..runs).contains(&with_fenced), "{with_fenced} of {runs}");
}

#[test]
fn a_stalled_core_holds_up_nobody_for_ever() {
    for stall in [(1, 0), (1, 1), (1, 2), (0, 2)] {
        check(Case { stall: Some(stall), ..IMPATIENT });
    }
    assert!(check(Case { cores: 3, packets: 5, burst: 3, lost: &[1], stall: Some((2, 0)), ..IMPATIENT }).0 > 100);
}

/// The check's message when the logs have this fault.
fn complaint(fault: Fault, case: Case) -> String {
    Fault::inject(Some(fault));
    let outcome = catch_unwind(AssertUnwindSafe(|| check(case)));
    Fault::inject(None);
    let Err(panic) = outcome else { panic!("{fault:?} goes unnoticed") };
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[test]
fn the_check_notices_what_is_broken() {
    // Torn or foreign words, unordered accesses, or cores that differ.
    let said = ["not the words of record", "Causality violation", "disagrees"];
    for (fault, case) in [
        (Fault::EarlyMark, WRAPPING),
        (Fault::StaleEntry, WRAPPING),
        (Fault::EarlyProgress, WRAPPING),
        (Fault::NoRoom, WRAPPING),
        (Fault::BlindMark, IMPATIENT),
        (Fault::Unchecked, OVERTAKEN),
        (Fault::EarlyWords, OVERTAKEN),
        (Fault::AppliesFirst, IMPATIENT),
    ] {
        let complaint = complaint(fault, Case { runs_max: 200_000, ..case });
        assert!(said.iter().any(|said| complaint.contains(said)), "{fault:?}: {complaint}");
    }
}
