//! Model-checks (loom) the queue, on the code that ships: items arrive whole, in order, and none is lost, whatever the threads do.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p millrace-fifo --release --test fifo_model`
#![cfg(loom)]

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::thread;
use millrace_fifo::{Consumer, Fault, Fifo, Producer};

/// An item of which two fill a line.
type Item = [u64; 3];

const fn item(number: u64) -> Item {
    [number, !number, number << 7]
}

/// What the producer does with the items from `*next` on.
type Produce = fn(&mut Producer<Item>, next: &mut u64);

/// Pushes an item, and waits while the queue is full.
fn push(producer: &mut Producer<Item>, next: &mut u64) {
    while let Err(back) = producer.push(item(*next)) {
        assert_eq!(back, item(*next));
        thread::yield_now();
    }
    *next += 1;
}

/// More items than both lines hold, so that each line is used again.
fn wrap_around(producer: &mut Producer<Item>, next: &mut u64) {
    (0..6).for_each(|_| push(producer, next));
}

/// A full line, partial lines by flush and by timer, and a partial line that the drop hands over.
fn partial_lines(producer: &mut Producer<Item>, next: &mut u64) {
    push(producer, next);
    producer.flush();
    push(producer, next);
    producer.tick(10);
    push(producer, next);
}

/// One slice that doesn't fit at once.
fn slices(producer: &mut Producer<Item>, next: &mut u64) {
    let items: [Item; 5] = std::array::from_fn(|at| item(at as u64));
    while (*next as usize) < items.len() {
        let pushed = producer.push_slice(&items[*next as usize..]);
        *next += pushed as u64;
        if pushed == 0 {
            thread::yield_now();
        }
    }
}

/// Nothing but an item that the drop hands over.
fn dropped(producer: &mut Producer<Item>, next: &mut u64) {
    push(producer, next);
}

/// Takes one item, or a line; returns how many.
type Consume = fn(&mut Consumer<Item>, next: u64) -> u64;

fn pop(consumer: &mut Consumer<Item>, next: u64) -> u64 {
    consumer.pop().map_or(0, |taken| {
        assert_eq!(taken, item(next));
        1
    })
}

fn chunk(consumer: &mut Consumer<Item>, next: u64) -> u64 {
    consumer.chunk().map_or(0, |chunk| {
        chunk.iter().zip(next..).for_each(|(taken, number)| assert_eq!(*taken, item(number)));
        chunk.len() as u64
    })
}

/// Takes both lines if both are there: then neither is missing.
fn lines(consumer: &mut Consumer<Item>, next: u64) -> u64 {
    if !consumer.has_lines(2) {
        return chunk(consumer, next);
    }
    let first = chunk(consumer, next);
    let second = chunk(consumer, next + first);
    assert!(first > 0 && second > 0);
    first + second
}

/// Checks a queue of two lines in all schedules.
fn check(produce: Produce, consume: Consume) {
    loom::model(move || {
        let (producer, consumer) = Fifo::with_timeout(4, 10);
        assert_eq!((consumer.capacity(), Fifo::<Item>::LINE_ITEMS), (4, 2));
        // When the checker has found a fault, neither end may touch the queue again while the stack unwinds.
        let (mut producer, mut consumer) = (ManuallyDrop::new(producer), ManuallyDrop::new(consumer));
        let producing = thread::spawn(move || {
            let mut next = 0;
            produce(&mut producer, &mut next);
            drop(ManuallyDrop::into_inner(producer));
            next
        });
        let mut taken = 0;
        while !consumer.is_finished() {
            match consume(&mut consumer, taken) {
                0 => thread::yield_now(),
                count => taken += count,
            }
        }
        assert_eq!(taken, producing.join().unwrap());
        drop(ManuallyDrop::into_inner(consumer));
    });
}

fn finds(fault: Fault, produce: Produce, consume: Consume) -> bool {
    Fault::inject(Some(fault));
    let found = catch_unwind(AssertUnwindSafe(|| check(produce, consume))).is_err();
    Fault::inject(None);
    found
}

#[test]
fn items_arrive_whole_and_in_order() {
    for produce in [wrap_around, partial_lines, slices, dropped] {
        for consume in [pop, chunk, lines] {
            check(produce, consume);
        }
    }
}

/// The consumer leaves while the producer pushes. The producer notices at the latest when the consumer's thread has ended.
#[test]
fn a_consumer_may_leave() {
    loom::model(|| {
        let (mut producer, mut consumer) = Fifo::with_timeout(4, 10);
        let consuming = thread::spawn(move || {
            let taken = consumer.pop();
            assert!(taken.is_none_or(|taken| taken == item(0)));
        });
        let pushed = (0..5).take_while(|number| producer.push(item(*number)).is_ok()).count();
        assert!(pushed >= 4);
        consuming.join().unwrap();
        assert!(producer.is_abandoned());
    });
}

#[test]
fn injected_faults_are_found() {
    assert!(finds(Fault::UnorderedFill, wrap_around, pop));
    assert!(finds(Fault::UnorderedRelease, wrap_around, chunk));
    assert!(finds(Fault::EarlyGone, dropped, pop));
    assert!(finds(Fault::UnorderedGone, dropped, pop));
    assert!(finds(Fault::LineFirst, dropped, pop));
}
