//! Loss recovery over real threads and a seeded lossy link, compared with a model that knows what every core received.
#![cfg(not(loom))]

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use millrace_engine::recovery::{Logs, Member, Patience, Refusal, Shape, Tally, Words};
use packet::Seq;

/// How packets are lost on the way to their core.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Independently, this many in ten thousand.
    Random(u64),
    /// As many, but eight in a row.
    Bursts(u64),
    /// As many, but all packets of one core in a stretch, up to all of its packets.
    Core(usize, u64),
    /// As many, but all packets with some record, so no core receives it.
    Record(u64),
}

/// The paper's rates and one more: 0.01, 0.1, 1 and 10 %, in ten thousandths.
const RATES: [u64; 4] = [1, 10, 100, 1000];

const fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Loss {
    /// True if the packet is lost, of `packets` that are sprayed over `cores`.
    fn takes(self, seed: u64, packet: u64, cores: usize, packets: u64) -> bool {
        let draw = |unit: u64| mix(seed << 32 ^ unit) % 10_000;
        match self {
            Self::Random(rate) => draw(packet) < rate,
            Self::Bursts(rate) => draw(packet / 8) < rate,
            Self::Core(core, rate) => {
                let start = mix(seed) % (packets / 2);
                let stretch = (packets * rate / 10_000 * cores as u64).max(cores as u64);
                packet % cores as u64 == core as u64 && (start..start + stretch).contains(&packet)
            }
            Self::Record(rate) => {
                let around = packet / (2 * cores as u64);
                packet % (2 * cores as u64) < cores as u64 && draw(around) < rate
            }
        }
    }
}

/// A stream and its losses.
#[derive(Clone, Copy, Debug)]
struct Case {
    cores: usize,
    slots: usize,
    packets: u64,
    burst: u64,
    loss: Loss,
    seed: u64,
    /// True if the logs hold no words, only what was received.
    bare: bool,
}

/// The words of a record, which contain its number.
fn record(seq: u64) -> [u64; 2] {
    [seq, mix(seq)]
}

/// The records that a core applied, and its counters.
struct Trail {
    applied: Vec<bool>,
    tally: Tally,
}

impl Case {
    fn reaches(&self, packet: u64) -> bool {
        packet < self.packets && !self.loss.takes(self.seed, packet, self.cores, self.packets)
    }

    /// True if any core received the record.
    fn received(&self, record: u64) -> bool {
        (record..record + self.cores as u64).any(|packet| self.reaches(packet))
    }

    fn shape(&self) -> Shape {
        Shape { cores: self.cores, slots: self.slots, words: if self.bare { 0 } else { 2 } }
    }

    /// The record's words in a log.
    fn words(&self, seq: u64) -> Vec<u64> {
        record(seq)[..self.shape().words].to_vec()
    }

    /// One core's run over `bursts`, the numbers after each burst.
    fn serve(&self, core: usize, mut member: Member, bursts: &Receiver<u64>, done: impl Fn()) -> Trail {
        let mut applied = Vec::with_capacity(self.packets as usize);
        let mut apply = |seq: Seq, words: Option<&[u64]>| {
            assert_eq!(seq.0, applied.len() as u64, "out of order");
            if let Some(words) = words {
                assert_eq!(words, self.words(seq.0), "not the words of record {seq}");
            }
            applied.push(words.is_some());
        };
        let mut records = Vec::new();
        for start in bursts {
            let end = self.packets.min(start + self.burst);
            let mut own = (start..end).filter(|packet| packet % self.cores as u64 == core as u64).peekable();
            while let Some(first) = own.next() {
                if !self.reaches(first) {
                    continue;
                }
                records.clear();
                let oldest = (first + 1).saturating_sub(self.cores as u64);
                records.extend((oldest..=first).flat_map(|record| self.words(record)));
                if self.seed.is_multiple_of(2) {
                    member.receive(Seq(first), &records, &mut apply).expect("packets come in order, nobody is fenced");
                    continue;
                }
                // With the packets after it, as long as none is missing.
                let mut count = 1;
                while let Some(packet) = own.next_if(|packet| self.reaches(*packet)) {
                    records.extend((packet + 1 - self.cores as u64..=packet).flat_map(|record| self.words(record)));
                    count += 1;
                }
                member
                    .receive_run(Seq(first), count, &records, &mut Words(&mut apply))
                    .expect("packets come in order, nobody is fenced");
            }
            member.advance(Seq(end), &mut apply).expect("nobody is fenced");
            done();
        }
        let (tally, result) = member.finish(Seq(self.packets), &mut apply);
        result.expect("nobody is fenced");
        Trail { applied, tally }
    }

    /// Runs all cores. With a window the sequencer waits for the slowest core.
    fn run(&self, window: Option<u64>) -> Vec<Trail> {
        let members = Logs::members(self.shape(), Patience::Endless);
        let (done, dones) = sync_channel(1024);
        thread::scope(|scope| {
            let (inputs, cores): (Vec<_>, Vec<_>) = members
                .into_iter()
                .enumerate()
                .map(|(core, member)| {
                    let (input, bursts) = sync_channel(4);
                    let done = done.clone();
                    let done = move || window.map_or((), |_| done.send(core).expect("the sequencer listens"));
                    (input, scope.spawn(move || self.serve(core, member, &bursts, done)))
                })
                .unzip();
            let mut through = vec![0; self.cores];
            for start in (0..self.packets).step_by(self.burst as usize) {
                while window.is_some_and(|window| through.iter().any(|through| start + self.burst > through + window)) {
                    let core: usize = dones.recv().expect("a core says when it is done");
                    through[core] += self.burst;
                }
                inputs.iter().for_each(|input| input.send(start).expect("a core takes all bursts"));
            }
            drop(inputs);
            cores.into_iter().map(|core| core.join().expect("no core panics")).collect()
        })
    }

    /// Runs all cores and compares each with the model.
    fn check(&self, window: Option<u64>) -> Tally {
        let mut total = Tally::default();
        let expected: Vec<bool> = (0..self.packets).map(|record| self.received(record)).collect();
        for (core, trail) in self.run(window).into_iter().enumerate() {
            let differs = trail.applied.iter().zip(&expected).position(|(mine, model)| mine != model);
            assert_eq!(differs, None, "core {core} of {self:?}");
            assert_eq!(trail.applied.len(), expected.len(), "core {core} of {self:?}");
            let own = (core as u64..self.packets).step_by(self.cores);
            assert_eq!(trail.tally.lost, own.filter(|packet| !self.reaches(*packet)).count() as u64, "{self:?}");
            assert_eq!(trail.tally.recovered[core], 0, "a core has nothing to learn from itself");
            assert_eq!(trail.tally.nowhere, expected.iter().filter(|received| !**received).count() as u64);
            total.add(&trail.tally);
        }
        total
    }
}

#[test]
fn all_cores_apply_what_any_received() {
    let packets = if cfg!(miri) { 200 } else { 8_000 };
    let (mut recovered, mut nowhere) = (0, 0);
    for (index, rate) in RATES.into_iter().enumerate() {
        let losses = [Loss::Random(rate), Loss::Bursts(rate), Loss::Core(index % 2, rate), Loss::Record(rate)];
        for (loss, cores) in losses.into_iter().flat_map(|loss| (2..=8).map(move |cores| (loss, cores))) {
            let seed = (cores * 1000 + index) as u64;
            for bare in [false, true] {
                let case = Case { cores, slots: 1 + cores % 5, packets, burst: 5 + seed % 60, loss, seed, bare };
                let total = case.check(None);
                recovered += total.recovered_total();
                nowhere += total.nowhere;
            }
        }
    }
    assert!(cfg!(miri) || (recovered > 1000 && nowhere > 100), "{recovered} recovered, {nowhere} nowhere");
}

#[test]
fn a_stream_may_lose_nothing_or_everything() {
    for (cores, rate) in [(2, 0), (7, 0), (2, 10_000), (7, 10_000)] {
        let case =
            Case { cores, slots: 3, packets: 500, burst: 32, loss: Loss::Random(rate), seed: 1, bare: cores == 2 };
        let total = case.check(None);
        assert_eq!((total.lost, total.nowhere), if rate == 0 { (0, 0) } else { (500, 500) });
    }
}

#[test]
fn one_core_alone_needs_nobody() {
    let case = Case { cores: 1, slots: 1, packets: 1000, burst: 32, loss: Loss::Random(1000), seed: 3, bare: false };
    let total = case.check(None);
    assert_eq!(total.lost, total.nowhere);
    assert_eq!(total.waits + total.waits_for_room, 0);
}

#[test]
fn within_the_window_nobody_waits_for_room() {
    for cores in 2..=6 {
        let (burst, window) = (13, 40);
        let slots = Shape::for_window(cores, window, 2).slots;
        for rate in [0, 100, 3000] {
            let case = Case { cores, slots, packets: 5000, burst, loss: Loss::Random(rate), seed: rate, bare: false };
            assert_eq!(case.check(Some(window as u64)).waits_for_room, 0, "{case:?}");
        }
    }
}

/// Members whose cores all run on this thread.
fn members(cores: usize, slots: usize, patience: Patience) -> Vec<Member> {
    Logs::members(Shape { cores, slots, words: 1 }, patience)
}

fn nothing(_: Seq, _: Option<&[u64]>) {}

#[test]
fn late_and_stray_packets_are_refused_and_not_applied() {
    let mut members = members(2, 4, Patience::Endless);
    let mut applied = Vec::new();
    let first = &mut members[0];
    assert_eq!(first.receive(Seq(1), &[1, 1], nothing), Err(Refusal::Astray));
    assert_eq!(first.receive(Seq(2), &[1, 2], nothing), Ok(()));
    assert_eq!(first.receive(Seq(2), &[1, 2], nothing), Err(Refusal::Late), "it was received before");
    assert_eq!(first.receive(Seq(0), &[0], nothing), Err(Refusal::Late), "it is taken for lost");
    assert_eq!(first.tally().lost, 1);
    members[1].receive(Seq(1), &[10, 1], nothing).expect("it is in order");
    members[1].advance(Seq(3), nothing).expect("nobody is fenced");
    let apply = |seq: Seq, words: Option<&[u64]>| applied.push((seq.0, words.map(|words| words[0])));
    members[0].advance(Seq(3), apply).expect("nobody is fenced");
    // Record 0 was recovered, as the other core received it; records 1 and 2 were received.
    assert_eq!(applied, [(0, Some(10)), (1, Some(1)), (2, Some(2))]);
    assert_eq!(members[0].tally().recovered, [0, 1]);
}

#[test]
fn a_heartbeat_waits_for_no_packet_that_may_still_be_sent() {
    let mut members = members(3, 2, Patience::Endless);
    let mut applied = Vec::new();
    let mut apply = |seq: Seq, _: Option<&[u64]>| applied.push(seq.0);
    // Packet 0 is lost; 1 and 2 would carry its record and were not sent yet. This call must return.
    members[0].advance(Seq(1), &mut apply).expect("nobody is fenced");
    assert_eq!(members[0].next(), Seq(0));
    members[2].receive(Seq(2), &[0, 1, 2], nothing).expect("it is in order");
    members[2].advance(Seq(3), nothing).expect("nobody is fenced");
    members[1].advance(Seq(3), nothing).expect("nobody is fenced");
    members[0].advance(Seq(3), &mut apply).expect("nobody is fenced");
    assert_eq!(applied, [0]);
}

#[test]
fn a_core_that_stalls_is_fenced_and_told_so() {
    let mut members = members(2, 2, Patience::Looks(10));
    members[1].receive(Seq(1), &[0, 1], nothing).expect("it is in order");
    // Core 1 published nothing, so its packets don't count.
    let mut applied = Vec::new();
    let apply = |seq: Seq, words: Option<&[u64]>| applied.push((seq.0, words.is_some()));
    members[0].advance(Seq(3), apply).expect("nobody fences this one");
    assert_eq!(applied, [(0, false), (1, false)]);
    assert_eq!((members[0].tally().fenced, members[0].tally().nowhere), (1, 2));
    assert!(members[1].advance(Seq(3), |_, _| panic!("a fenced core applies nothing")).is_err());
    let late = members[1].receive(Seq(7), &[6, 7], nothing);
    assert!(matches!(late, Ok(()) | Err(Refusal::Fenced(_))));
    // Core 0 goes on alone.
    members[0].receive(Seq(4), &[3, 4], nothing).expect("it is in order");
    members[0].advance(Seq(5), nothing).expect("nobody fences this one");
    assert_eq!(members[0].next(), Seq(5));
}

#[test]
fn who_has_left_holds_up_nobody() {
    let mut members = members(3, 1, Patience::Endless);
    drop(members.pop());
    members[1].receive(Seq(1), &[0, 1], nothing).expect("it is in order");
    let gone = members.pop().expect("there are two left");
    let (_, result) = gone.finish(Seq(2), nothing);
    result.expect("nobody is fenced");
    for packet in (0..300).step_by(3) {
        let records: Vec<u64> = (if packet == 0 { 0 } else { packet - 2 }..=packet).collect();
        members[0].receive(Seq(packet), &records, nothing).expect("it is in order");
    }
    members[0].advance(Seq(300), nothing).expect("nobody is fenced");
    assert_eq!(members[0].next(), Seq(298));
    assert_eq!(members[0].tally().waits_for_room, 0);
}
