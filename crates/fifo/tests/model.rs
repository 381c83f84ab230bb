//! Property test: the queue does what a naive model of lines does, for items of several sizes, partial lines, flushes and timers.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::fmt::Debug;

use millrace_fifo::{Consumer, Fifo, Producer};
use proptest::prelude::*;

/// An operation on the queue.
#[derive(Clone, Debug)]
enum Op {
    Push,
    PushSlice(usize),
    Flush,
    /// A step of time; back, too.
    Tick(i64),
    Pop(usize),
    Chunk,
    /// A chunk that is never dropped: its items stay.
    LeakedChunk,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Push),
        3 => (0_usize..40).prop_map(Op::PushSlice),
        1 => Just(Op::Flush),
        2 => (-5_i64..60).prop_map(Op::Tick),
        3 => (1_usize..20).prop_map(Op::Pop),
        2 => Just(Op::Chunk),
        1 => Just(Op::LeakedChunk),
    ]
}

/// The naive queue: lines as lists.
struct Model<T> {
    /// Lines that were handed over; the first may be popped in part.
    lines: VecDeque<VecDeque<T>>,
    lines_max: usize,
    line_items: usize,
    partial: VecDeque<T>,
    /// Each tick since the one before the partial line's first item.
    ticks: Vec<u64>,
    timeout: u64,
}

impl<T: Copy> Model<T> {
    fn push(&mut self, item: T) -> bool {
        if self.partial.is_empty() {
            if self.lines.len() == self.lines_max {
                return false;
            }
            let now = *self.ticks.last().expect("there is always one");
            self.ticks = vec![now];
        }
        self.partial.push_back(item);
        if self.partial.len() == self.line_items {
            self.flush();
        }
        true
    }

    fn flush(&mut self) {
        if !self.partial.is_empty() {
            self.lines.push_back(std::mem::take(&mut self.partial));
        }
    }

    fn tick(&mut self, now: u64) {
        self.ticks.push(now);
        let first = *self.ticks.iter().min().expect("not empty");
        if now - first >= self.timeout {
            self.flush();
        }
    }

    fn pop(&mut self) -> Option<T> {
        let line = self.lines.front_mut()?;
        let item = line.pop_front();
        if line.is_empty() {
            self.lines.pop_front();
        }
        item
    }
}

/// Runs the operations on both and compares all that can be seen.
fn equal<T>(capacity: usize, timeout: u64, ops: &[Op], item: impl Fn(u64) -> T) -> Result<(), TestCaseError>
where
    T: Copy + Send + PartialEq + Debug,
{
    let (mut producer, mut consumer): (Producer<T>, Consumer<T>) = Fifo::with_timeout(capacity, timeout);
    let line_items = Fifo::<T>::LINE_ITEMS;
    prop_assert!(producer.capacity() >= capacity && producer.capacity() == consumer.capacity());
    let mut model = Model {
        lines: VecDeque::new(),
        lines_max: producer.capacity() / line_items,
        line_items,
        partial: VecDeque::new(),
        ticks: vec![0],
        timeout,
    };
    let (mut next, mut now) = (0, 0_u64);
    for op in ops {
        match *op {
            Op::Push => {
                let fits = model.push(item(next));
                prop_assert_eq!(producer.push(item(next)), if fits { Ok(()) } else { Err(item(next)) });
                next += u64::from(fits);
            }
            Op::PushSlice(len) => {
                let items: Vec<T> = (next..).take(len).map(&item).collect();
                let fit = items.iter().take_while(|item| model.push(**item)).count();
                prop_assert_eq!(producer.push_slice(&items), fit);
                next += fit as u64;
            }
            Op::Flush => {
                model.flush();
                producer.flush();
            }
            Op::Tick(step) => {
                now = now.saturating_add_signed(step);
                model.tick(now);
                producer.tick(now);
            }
            Op::Pop(count) => {
                for _ in 0..count {
                    prop_assert_eq!(consumer.pop(), model.pop());
                }
            }
            Op::Chunk => {
                let chunk = consumer.chunk();
                let expected = model.lines.pop_front();
                prop_assert_eq!(chunk.is_some(), expected.is_some());
                if let (Some(chunk), Some(mut expected)) = (chunk, expected) {
                    prop_assert_eq!(&*chunk, &*expected.make_contiguous());
                }
            }
            Op::LeakedChunk => std::mem::forget(consumer.chunk()),
        }
        prop_assert_eq!(consumer.is_empty(), model.lines.is_empty());
        for lines in 0..model.lines_max + 2 {
            prop_assert_eq!(consumer.has_lines(lines), model.lines.len() >= lines);
        }
        prop_assert!(!consumer.is_finished() && !producer.is_abandoned());
    }
    drop(producer);
    model.flush();
    while let Some(expected) = model.pop() {
        prop_assert!(!consumer.is_finished());
        prop_assert_eq!(consumer.pop(), Some(expected));
    }
    prop_assert!(consumer.is_finished() && consumer.pop().is_none() && consumer.chunk().is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_equals_a_list_of_lists(
        capacity in 0_usize..120,
        timeout in prop_oneof![Just(0), Just(u64::MAX), 1_u64..100],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        equal(capacity, timeout, &ops, |number| number)?;
        equal(capacity, timeout, &ops, |number| number as u8)?;
        equal(capacity, timeout, &ops, |number| [number as u8; 3])?;
        equal(capacity, timeout, &ops, |number| (number, number as u16))?;
        equal(capacity, timeout, &ops, |number| [number; 7])?;
        equal(capacity, timeout, &ops, |number| [number; 20])?;
        equal(capacity, timeout, &ops, u128::from)?;
        equal(capacity, timeout, &ops, |_| ())?;
    }
}

#[test]
fn a_partial_line_leaves_within_its_timer_and_not_before() {
    let (mut producer, mut consumer) = Fifo::with_timeout(64, 1_000);
    producer.tick(5_000);
    assert_eq!(producer.push(1_u64), Ok(()));
    producer.tick(5_600);
    assert_eq!(producer.push(2), Ok(()));
    producer.tick(5_999);
    assert!(consumer.is_empty(), "999 ns old");
    producer.tick(6_000);
    assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some(1), Some(2), None));
    // The next line has an age of its own.
    assert_eq!(producer.push(3), Ok(()));
    producer.tick(6_999);
    assert_eq!(consumer.pop(), None);
    producer.tick(7_000);
    assert_eq!(consumer.pop(), Some(3));
}

#[test]
fn each_end_learns_that_the_other_is_gone() {
    let (mut producer, consumer) = Fifo::with_capacity(8);
    assert!(!producer.is_abandoned());
    drop(consumer);
    assert!(producer.is_abandoned());
    assert_eq!(producer.push(1_u8), Ok(()), "what is pushed is lost, and the caller was told");

    let (producer, consumer) = Fifo::<u8>::with_capacity(8);
    assert!(!consumer.is_finished());
    drop(producer);
    assert!(consumer.is_finished());
}
