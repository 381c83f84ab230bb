//! Stress test: real threads at both ends, and checksums. `cargo xtask check` runs it under ThreadSanitizer too.
#![cfg(not(loom))]

use std::thread;

use millrace_fifo::{Consumer, Fifo, Producer};

const ITEMS: u64 = if cfg!(miri) { 600 } else { 100_000 };

/// A fast generator that is good enough to vary the operations (xorshift64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// An item with its number in every word, changed so that a torn or stale item is detected.
fn item<const WORDS: usize>(number: u64) -> [u64; WORDS] {
    std::array::from_fn(|word| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word as u32))
}

/// Pushes all items: one at a time, in slices, with flushes and ticks between.
fn produce<const WORDS: usize>(mut producer: Producer<[u64; WORDS]>) {
    let (mut rng, mut number, mut now) = (Rng(7), 0, 0);
    while number < ITEMS {
        match rng.below(8) {
            0 => producer.flush(),
            1 => {
                now += rng.below(100);
                producer.tick(now);
            }
            2..5 => {
                let count = rng.below(40).min(ITEMS - number);
                let items: Vec<_> = (number..number + count).map(item).collect();
                let pushed = producer.push_slice(&items);
                number += pushed as u64;
                if pushed < items.len() {
                    thread::yield_now();
                }
            }
            _ => match producer.push(item(number)) {
                Ok(()) => number += 1,
                Err(back) => {
                    assert_eq!(back, item(number));
                    thread::yield_now();
                }
            },
        }
    }
}

/// Takes all items, one at a time or a line at a time. Returns how many there were.
fn consume<const WORDS: usize>(mut consumer: Consumer<[u64; WORDS]>) -> u64 {
    let (mut rng, mut number) = (Rng(11), 0);
    while !consumer.is_finished() {
        let before = number;
        if rng.below(2) == 0 {
            if let Some(chunk) = consumer.chunk() {
                for taken in &*chunk {
                    assert_eq!(*taken, item(number));
                    number += 1;
                }
            }
        } else if let Some(taken) = consumer.pop() {
            assert_eq!(taken, item(number));
            number += 1;
        }
        if number == before {
            thread::yield_now();
        }
    }
    number
}

fn stress<const WORDS: usize>(capacity: usize) {
    let (producer, consumer) = Fifo::with_timeout(capacity, 50);
    let consuming = thread::spawn(move || consume::<WORDS>(consumer));
    produce::<WORDS>(producer);
    assert_eq!(consuming.join().expect("the consumer doesn't panic"), ITEMS, "{WORDS} words, {capacity} items");
}

#[test]
fn all_items_arrive_whole_and_in_order() {
    for capacity in [0, 1_024] {
        stress::<1>(capacity);
        stress::<2>(capacity);
        stress::<20>(capacity);
    }
}

#[test]
fn a_producer_stops_once_its_consumer_is_gone() {
    let (mut producer, mut consumer) = Fifo::with_capacity(16);
    let producing = thread::spawn(move || {
        let mut number = 0_u64;
        while !producer.is_abandoned() {
            match producer.push(number) {
                Ok(()) => number += 1,
                Err(_) => thread::yield_now(),
            }
        }
        number
    });
    let mut taken = 0;
    while taken < 100 {
        match consumer.pop() {
            Some(number) => {
                assert_eq!(number, taken);
                taken += 1;
            }
            None => thread::yield_now(),
        }
    }
    drop(consumer);
    assert!(producing.join().expect("the producer doesn't panic") >= taken);
}
