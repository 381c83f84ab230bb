//! Batches that another thread keeps while the ring goes on.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_port_packet::{Options, PacketPort};
use port::{Batch, Opened, Port, Received};
use testkit::row::{LONG, Row, eventually, number, numbered};

use crate::bench::tap;

/// The numbers of the packets in a batch that another thread has kept.
fn numbers(batch: &Batch) -> Vec<u64> {
    batch.each(0..batch.len()).map(|(_, bytes)| number(bytes).expect("nobody has written over it").1).collect()
}

#[test]
fn batches_of_another_thread_stay_as_they_are_while_the_ring_goes_on() {
    let Some(row) = Row::new("loans", 1500) else { return };
    let wires = row.wires();
    row.middle.enter(move || {
        let options = Options { blocks: 16, block_len: 16 << 10, burst: 7, ..tap("a0") };
        let mut port = PacketPort::new(options).expect("the options are right");
        let monitor = port.monitor();
        let Opened::Queues(mut queues) = port.open(1).expect("the port can be opened") else { panic!("a queue") };
        // The other thread keeps the last batches, of as many blocks at most, and looks at each when it lets it go.
        let (to_keeper, batches) = mpsc::sync_channel::<Batch>(4);
        let keeper = thread::spawn(move || {
            let (mut kept, mut seen) = (std::collections::VecDeque::new(), HashSet::new());
            let mut let_go = |batch: Batch| {
                for number in numbers(&batch) {
                    assert!(seen.insert(number), "a packet came twice");
                }
            };
            for batch in batches {
                kept.push_back(batch);
                if kept.len() > 6 {
                    let_go(kept.pop_front().expect("there are some"));
                }
            }
            kept.drain(..).for_each(&mut let_go);
            seen.len() as u64
        });
        let (total, mut sent, mut received) = (5000, 0, 0);
        let end = Instant::now() + LONG;
        while received < total {
            assert!(Instant::now() < end, "{received} received, {:?} lost", queues[0].lost());
            while sent < total && sent < received + 64 {
                wires[0].send(&numbered(0, sent, 150)).expect("the wire takes it");
                sent += 1;
            }
            let mut batch = Batch::default();
            match queues[0].receive(&mut batch).expect("the interface is up") {
                Received::Packets => {
                    received += batch.len() as u64;
                    assert!(batch.len() <= 7);
                    to_keeper.send(batch).expect("the keeper lives");
                }
                _ => queues[0].wait(Duration::from_millis(5)).expect("a poll"),
            }
        }
        drop(to_keeper);
        assert_eq!(keeper.join().expect("it doesn't panic"), received);
        let counts = monitor.counts().remove(0);
        // The kernel always has a free block: it goes round the ring while batches of earlier blocks are kept.
        assert_eq!((counts.offered, counts.received, counts.ring_full), (total, total, 0));
    });
}

#[test]
fn a_ring_whose_blocks_are_all_kept_loses_packets_until_one_is_back() {
    let Some(row) = Row::new("kept", 1500) else { return };
    let wires = row.wires();
    row.middle.enter(move || {
        let options = Options { blocks: 2, block_len: 16 << 10, ..tap("a0") };
        let mut port = PacketPort::new(options).expect("the options are right");
        let monitor = port.monitor();
        let Opened::Queues(mut queues) = port.open(1).expect("the port can be opened") else { panic!("a queue") };
        let mut kept: Vec<Batch> = Vec::new();
        let mut sent = 0;
        let mut send = |count: u64| {
            (sent..sent + count).for_each(|number| wires[0].send(&numbered(0, number, 100)).expect("it takes it"));
            sent += count;
        };
        // One packet in each block.
        for _ in 0..2 {
            send(1);
            let mut batch = Batch::default();
            eventually("it comes", || {
                queues[0].wait(Duration::from_millis(5)).expect("a poll");
                queues[0].receive(&mut batch).expect("the interface is up") == Received::Packets
            });
            kept.push(batch);
        }
        send(10);
        eventually("they are lost", || queues[0].lost().ring_full == 10);
        // The reader doesn't take a kept block for a new one, nor spin.
        let mut batch = Batch::default();
        assert_eq!(queues[0].receive(&mut batch).expect("the interface is up"), Received::Idle);
        assert_eq!(kept.iter().map(numbers).collect::<Vec<_>>(), [[0], [1]]);
        // Another thread lets one of them go.
        let last = kept.pop().expect("there are two");
        thread::spawn(move || drop(kept)).join().expect("it doesn't panic");
        send(1);
        eventually("packets come again", || {
            queues[0].wait(Duration::from_millis(5)).expect("a poll");
            queues[0].receive(&mut batch).expect("the interface is up") == Received::Packets
        });
        assert_eq!(numbers(&batch), [12]);
        assert_eq!(monitor.counts()[0].offered, 13);
        drop(queues);
        drop(batch);
        // The last batch outlives the queue and its socket's use.
        (0..10).for_each(|number| wires[0].send(&numbered(0, number, 100)).expect("the wire takes it"));
        assert_eq!(numbers(&last), [1]);
        drop(last);
    });
}
