use std::collections::VecDeque;

use packet::{LinkType, Nanos, Seq};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Renumber;
use crate::batch::{Fate, Packet};
use crate::memory::Trace;
use crate::queue::Queue;
use crate::replay::{Loops, Replay};

/// Packets whose bytes tell their number, of lengths that differ.
fn trace(packets: u64) -> Arc<Trace> {
    let mut trace = Trace::new();
    for number in 0..packets {
        let len = 20 + (number as usize * 37) % 200;
        let mut frame = vec![number as u8; len];
        frame[..8].copy_from_slice(&number.to_le_bytes());
        let (seq, time, link) = (Seq(number), Nanos(1_000 + 100 * number), LinkType::Ethernet);
        let len = len as u32;
        trace.push(
            Packet { seq, time, offset: 0, len, wire_len: len, interface: 0, link, bucket: 0, fate: Fate::Pending },
            &frame,
        );
    }
    Arc::new(trace)
}

fn load(rate_pps: f64, warm_up: Duration, duration: Duration, descriptors: usize) -> Load {
    Load { rate_pps, warm_up, duration, descriptors }
}

/// The queue of one core, as the type that a test can hand times to.
fn queue(replay: &mut Replay, cores: usize, core: usize, load: Load, first: u64) -> OfferedQueue {
    replay.prepare(cores);
    let wire = Arc::new(Wire { load, start: OnceLock::new(), first, end: first + load.packets().1 });
    let queue = replay.queue(core, 0, Loops::UntilStopped);
    OfferedQueue::new(queue, wire, Arc::default())
}

/// A wire, a ring and a core, packet by packet.
struct Naive {
    /// The queue's packets that haven't arrived yet: when each does, in nanoseconds, and its number.
    coming: VecDeque<(f64, u64)>,
    waiting: VecDeque<u64>,
    lost: u64,
    descriptors: usize,
}

impl Naive {
    fn arrive(&mut self, now: f64, counted_from: u64) {
        while let Some((_, number)) = self.coming.front().copied().filter(|(time, _)| *time <= now) {
            self.coming.pop_front();
            if self.waiting.len() < self.descriptors {
                self.waiting.push_back(number);
            } else {
                self.lost += u64::from(number >= counted_from);
            }
        }
    }
}

proptest! {
    /// At one packet a nanosecond, so that packet `n` is there from nanosecond `n + 1` on.
    #[test]
    fn a_queue_does_as_a_wire_does(
        packets in 1..3_000u64,
        steered in vec(0..3u16, 60),
        core in 0..3usize,
        first in 0..200u64,
        descriptors in 1..50usize,
        warm_up in 0..100u64,
        duration in 0..4_000u64,
        pauses in vec(prop_oneof![8 => 0..120u64, 1 => 1_000..1_500u64], 1..40),
    ) {
        let cores: Vec<u16> = (0..packets as usize).map(|index| steered[index % 60]).collect();
        let mut replay = Replay::new(trace(packets)).steered(cores.clone());
        let load = load(1e9, Duration::from_nanos(warm_up), Duration::from_nanos(duration), descriptors);
        // Seconds as a binary fraction may come out a packet short.
        let (counted_from, end) = (first + load.packets().0, first + load.packets().1);
        prop_assert!(end.abs_diff(first + warm_up + duration) <= 1);
        let mut queue = queue(&mut replay, 3, core, load, first);
        let own = |number: &u64| usize::from(cores[(number % packets) as usize]) == core;
        let coming = (first..end).filter(own).map(|number| ((number - first + 1) as f64, number)).collect();
        let mut naive = Naive { coming, waiting: VecDeque::new(), lost: 0, descriptors };
        let offered = naive.coming.iter().filter(|(_, number)| *number >= counted_from).count() as u64;
        let (mut batch, mut now, mut received) = (Batch::default(), 0, 0);
        // How many waited, once for each nanosecond.
        let (mut depths, mut last, mut queue_was_over) = (Vec::new(), 0, queue.is_over);
        for step in 0..10_000 {
            now += if queue.is_over { 1 } else { pauses[step % pauses.len()].max(1) };
            let went = queue.deliver(Duration::from_nanos(now), &mut batch);
            // A load's product may come out a hair below the whole number.
            let seen = queue.seen - first;
            prop_assert!(queue.is_over || seen.abs_diff(now) <= 1);
            naive.arrive(if queue.is_over { f64::MAX } else { seen as f64 }, counted_from);
            if !queue_was_over {
                if queue.ring.counts() {
                    depths.extend((last..now).map(|_| naive.waiting.len()));
                }
                last = now;
            }
            queue_was_over = queue.is_over;
            match went {
                Received::End => break,
                Received::Idle => prop_assert!(naive.waiting.is_empty() && batch.is_empty()),
                Received::Packets => prop_assert!((1..=BURST).contains(&batch.len())),
            }
            for (index, packet) in batch.packets().iter().enumerate() {
                let number = naive.waiting.pop_front();
                prop_assert_eq!(Some(packet.seq.0), number);
                received += u64::from(packet.seq.0 >= counted_from);
                prop_assert_eq!(&batch.bytes(index)[..8], &(packet.seq.0 % packets).to_le_bytes());
                let loops = packet.seq.0 / packets;
                let time = 1_000 + 100 * (packet.seq.0 % packets) + replay.span().0 * loops;
                prop_assert_eq!(packet.time, Nanos(time));
            }
        }
        prop_assert!(queue.is_over && naive.waiting.is_empty() && naive.coming.is_empty());
        prop_assert_eq!(queue.count.read(), Offered { offered, received, lost: naive.lost });
        depths.sort_unstable();
        let share = |of: usize, part: usize| depths.get((depths.len() * part).div_ceil(of).max(1) - 1).copied().unwrap_or(0);
        let Depth { mean, median, p99, max } = queue.count.depth();
        prop_assert_eq!((median, p99, max), (share(2, 1), share(100, 99), share(1, 1)));
        let sum: usize = depths.iter().sum();
        prop_assert!((mean - sum as f64 / depths.len().max(1) as f64).abs() < 1e-9);
    }
}

/// Takes what comes until the end; the packets' numbers.
fn drain(queue: &mut dyn Queue) -> Vec<u64> {
    let mut batch = Batch::default();
    let mut all = Vec::new();
    loop {
        match queue.receive(&mut batch).expect("memory is there") {
            Received::Packets => all.extend(batch.packets().iter().map(|packet| packet.seq.0)),
            Received::Idle => {}
            Received::End => return all,
        }
    }
}

#[test]
fn what_was_offered_was_received_or_lost() {
    let mut replay = Replay::new(trace(1000)).continued();
    let mut first = 0;
    // At a billion a second nothing could keep up, at ten thousand everything does unless it is held up.
    for (rate, total) in [(1e9, 500_000), (1e4, 5)] {
        let all = load(rate, Duration::ZERO, Duration::from_micros(500), DESCRIPTORS);
        let mut queues = replay.offer(2, all);
        let got: Vec<Vec<u64>> = queues.iter_mut().map(|queue| drain(&mut **queue)).collect();
        for (core, (numbers, count)) in got.iter().zip(replay.offered()).enumerate() {
            assert!(numbers.is_sorted() && numbers.iter().all(|number| number % 2 == core as u64));
            assert!(numbers.first().is_none_or(|number| *number >= first));
            assert_eq!(count.received, numbers.len() as u64);
            assert_eq!(count.offered, count.received + count.lost);
        }
        let sum = replay.offered().into_iter().fold(Offered::default(), Offered::and);
        assert_eq!(sum.offered, total);
        if rate > 1e6 {
            assert!(sum.lost > 0 && sum.loss() > 0.01, "{sum:?}");
        }
        first += total;
    }
    // Whole loops go on behind the last load, with the next whole one.
    let whole = drain(&mut *replay.queues(2)[0]);
    assert_eq!((whole.first(), whole.len()), (Some(&501_000), 500));
}

#[test]
fn a_stop_ends_a_load_and_an_empty_trace_has_none() {
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let for_ever = load(1e6, Duration::ZERO, Duration::from_secs(1 << 20), 16);
    let mut replay = Replay::new(trace(10)).stopped_by(stop);
    assert!(drain(&mut *replay.offer(1, for_ever)[0]).is_empty());
    assert!(drain(&mut *Replay::new(Arc::default()).offer(1, for_ever)[0]).is_empty());
}

#[test]
fn addresses_change_under_a_load_too() {
    let mut replay = Replay::new(trace(50)).renumbered(Renumber::default());
    let rate = load(1e9, Duration::ZERO, Duration::from_nanos(500), 1000);
    let mut queue = queue(&mut replay, 1, 0, rate, 0);
    let mut batch = Batch::default();
    let mut count = 0;
    while queue.deliver(Duration::from_secs(1), &mut batch) == Received::Packets {
        count += batch.len() as u64;
    }
    assert_eq!((count, queue.count.read().lost), (load_packets(rate), 0));
}

fn load_packets(load: Load) -> u64 {
    load.packets().1
}
