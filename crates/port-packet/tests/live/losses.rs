//! A ring that is full: what is received and what is lost add up to what the kernel had.

use millrace_port_packet::{Options, PacketPort};
use port::{Batch, Opened, Port, Queue, Received};
use testkit::row::{LONG, Row, eventually, number, numbered};

use crate::bench::{Serves, received, tap};

#[test]
fn packets_that_find_no_block_are_counted() {
    let Some(row) = Row::new("full", 1500) else { return };
    let wires = row.wires();
    row.middle.enter(move || {
        let options = Options { blocks: 2, block_len: 16 << 10, ..tap("a0") };
        let mut port = PacketPort::new(options).expect("the options are right");
        let monitor = port.monitor();
        let Opened::Queues(mut queues) = port.open(1).expect("the port can be opened") else { panic!("a queue") };
        let total = 500;
        let mut received = 0;
        let mut batch = Batch::default();
        for round in 1..=3 {
            // Nobody receives meanwhile.
            for number in 0..total {
                wires[0].send(&numbered(0, number, 200)).expect("the wire takes it");
            }
            eventually("the kernel has had all", || monitor.counts()[0].offered == round * total);
            let end = std::time::Instant::now() + LONG;
            let mut next = 0;
            // The blocks that were full, and the one that the kernel had no room to begin.
            while received + queues[0].lost().ring_full < round * total || next == 0 {
                assert!(std::time::Instant::now() < end, "{received} received, {:?} lost", queues[0].lost());
                match queues[0].receive(&mut batch).expect("the interface is up") {
                    Received::Packets => {}
                    _ => {
                        queues[0].wait(std::time::Duration::from_millis(5)).expect("a poll");
                        continue;
                    }
                }
                for (_, bytes) in batch.each(0..batch.len()) {
                    let (_, number) = number(bytes).expect("it is whole");
                    assert!(number >= next, "in order");
                    next = number + 1;
                }
                received += batch.len() as u64;
            }
            let counts = monitor.counts().remove(0);
            assert_eq!((counts.offered, counts.received), (round * total, received));
            assert_eq!(counts.ring_full + received, round * total);
            assert_eq!(counts.ring_full, queues[0].lost().ring_full);
            assert!(counts.ring_full > 100 && received > 50 * round, "{counts:?}");
        }
    });
}

#[test]
fn packets_that_nobody_has_read_are_lost_when_the_queues_end() {
    let Some(row) = Row::new("unread", 1500) else { return };
    let wires = row.wires();
    row.middle.enter(move || {
        let mut port = PacketPort::new(tap("a0")).expect("the options are right");
        let monitor = port.monitor();
        let Opened::Queues(mut queues) = port.open(2).expect("the port can be opened") else { panic!("queues") };
        (0..50).for_each(|number| wires[0].send(&numbered(0, number, 200)).expect("the wire takes it"));
        eventually("the kernel has had all", || monitor.counts()[0].offered == 50);
        let unclaimed = |queues: &[Box<dyn Queue>]| queues.iter().map(|queue| queue.lost().unclaimed).sum::<u64>();
        assert_eq!(unclaimed(&queues), 0, "they may still be read");
        queues.iter_mut().for_each(|queue| queue.finish().expect("it ends"));
        assert_eq!(unclaimed(&queues), 50);
        // What comes afterwards is not the port's.
        (0..50).for_each(|number| wires[0].send(&numbered(0, number, 200)).expect("the wire takes it"));
        assert_eq!(unclaimed(&queues), 50);
        drop(queues);
        let counts = monitor.counts().remove(0);
        assert_eq!((counts.offered, counts.received, counts.ring_full, counts.unread), (50, 0, 0, 50));
    });
}

#[test]
fn the_end_of_a_long_packet_is_cut_off() {
    let Some(row) = Row::new("snap", 1500) else { return };
    let options = Options { snap_len: 96, ..tap("a0") };
    let server = row.serve(options, 1, |_, packet, bytes| {
        let number = u64::from_be_bytes(*bytes[42..].first_chunk().expect("it is long enough"));
        let whole = numbered(0, number, packet.wire_len as usize);
        assert_eq!((bytes, packet.wire_len as u64), (&whole[..bytes.len()], 60 + number));
        assert_eq!(bytes.len(), whole.len().min(96));
        port::Fate::Drop(0)
    });
    let wires = row.wires();
    (0..100).for_each(|number| wires[0].send(&numbered(0, number, 60 + number as usize)).expect("the wire takes it"));
    eventually("all are received", || received(&server) == 100);
    assert_eq!(server.monitor.counts()[0].cut, 63);
    assert_eq!(server.stop()[0].received, 100);
}
