//! Threads that are busy on lines that are known, sampled.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millrace_sampler::{Frame, Sampler, Stack, has_lines};

/// Enough that each of two threads has some, however few processors there are.
const SAMPLES: u64 = 60;
/// Spins after which a timer that is never due has failed.
const SPINS_MAX: u64 = 20_000_000;

/// The lines of [`inlined`]'s loop.
const INLINED: std::ops::RangeInclusive<u32> = line!() + 4..=line!() + 7;

#[inline(always)]
fn inlined(mut word: u64) -> u64 {
    for _ in 0..1000 {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ 1;
        word = black_box(word);
    }
    word
}

#[inline(never)]
fn first(done: &AtomicBool) -> u64 {
    spin(1, done, inlined)
}

#[inline(never)]
fn second(done: &AtomicBool) -> u64 {
    spin(2, done, inlined)
}

#[inline(always)]
fn spin(mut word: u64, done: &AtomicBool, work: impl Fn(u64) -> u64) -> u64 {
    let mut spins = 0;
    // ORDERING: Relaxed. A flag that carries no data.
    while !done.load(Ordering::Relaxed) && spins < SPINS_MAX {
        word = work(word);
        spins += 1;
    }
    word
}

/// Whether the frame is of this function; some line tables have its path and some have not.
fn is(frame: &Frame, function: &str) -> bool {
    frame.function.rsplit("::").next() == Some(function)
}

fn has(stack: &Stack, function: &str) -> bool {
    stack.frames.iter().any(|frame| is(frame, function))
}

#[test]
fn every_busy_thread_is_told_by_line() {
    assert!(has_lines(inlined as fn(u64) -> u64 as usize) && !has_lines(8), "this package is built with line tables");
    let sampler = Sampler::start().unwrap();
    assert!(Sampler::start().is_err(), "one at a time");
    let (done, start) = (AtomicBool::new(false), Barrier::new(3));
    thread::scope(|scope| {
        let workers = [first as fn(&AtomicBool) -> u64, second].map(|work| {
            let (done, start) = (&done, &start);
            scope.spawn(move || {
                start.wait();
                black_box(work(done))
            })
        });
        start.wait();
        while sampler.taken() < SAMPLES && !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::park_timeout(std::time::Duration::from_millis(5));
        }
        done.store(true, Ordering::Relaxed);
    });
    let samples = sampler.stop();
    let total: u64 = samples.stacks.iter().map(|(_, count)| count).sum();
    assert!(total >= SAMPLES, "{samples:?}");
    assert_eq!((samples.by_cpu.values().sum::<u64>(), samples.lost), (total, 0));
    assert!(!samples.cpu_time.is_zero());
    let count = |of: &dyn Fn(&Stack) -> bool| {
        samples.stacks.iter().filter(|(stack, _)| of(stack)).map(|(_, count)| count).sum::<u64>()
    };
    for function in ["first", "second"] {
        assert!(count(&|stack| has(stack, function)) > 0, "{function}: {samples:?}");
    }
    for (stack, _) in samples.stacks.iter().filter(|(stack, _)| has(stack, "first") || has(stack, "second")) {
        assert!(stack.whole, "a thread's start is found: {stack:?}");
        let at = stack.frames.iter().position(|frame| is(frame, "inlined"));
        let Some(frame) = at.map(|at| &stack.frames[at]) else { continue };
        assert!(frame.line.is_some_and(|line| INLINED.contains(&line)), "{frame:?}");
        assert!(frame.file.as_ref().is_some_and(|file| file.ends_with("tests/lines.rs")), "{frame:?}");
    }
    assert!(count(&|stack| has(stack, "inlined")) * 2 > total, "the loop is where time goes: {samples:?}");
}
