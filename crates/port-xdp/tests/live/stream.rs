//! One hardware queue as a stream: its halves on two threads at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use millrace_port_xdp::{Options, Spread, XdpPort};
use port::{Batch, Fate, Opened, Order, Port, PortError, ReceiveLosses, Received};
use testkit::row::{LONG, Row, crossing, eventually, exchange, numbered};

use crate::bench::{both, make_again};

#[test]
fn the_halves_of_a_stream_work_on_two_threads() {
    stream("stream", |row| {
        let arrived = exchange(&row.wires(), &[0, 1], 200, 10_000, crossing);
        assert!(arrived.iter().all(|arrived| arrived.len() == 10_000 && arrived.values().all(|count| *count == 1)));
        Some(20_000)
    });
}

#[test]
fn an_interface_is_made_again_while_both_halves_work() {
    stream("remade", |row| {
        for _ in 0..3 {
            make_again(row);
            let wires = row.wires();
            eventually("packets pass again", || {
                wires[0].send(&numbered(0, 9999, 100)).expect("the wire takes it");
                wires[1].take().expect("the wire is up").is_some()
            });
        }
        None
    });
}

/// Works a stream while `traffic` runs, which returns how many packets must have been received and sent, if that is known.
fn stream(label: &str, traffic: impl FnOnce(&Row) -> Option<u64>) {
    let Some(row) = Row::new(label, 1500) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let (middle, stopped) = (Arc::clone(&row.middle), Arc::clone(&stop));
    let worker = thread::spawn(move || {
        middle.enter(|| {
            let options = Options { spread: Spread::Stream, frames: 512, ring_len: 128, burst: 16, ..both() };
            let mut port = XdpPort::new(options).expect("the options are right");
            let monitor = port.monitor();
            let Opened::Stream(stream) = port.open(2).expect("the port can be opened") else {
                panic!("a single queue is a stream")
            };
            assert_eq!(stream.order, Order::Sent);
            let (mut input, mut output) = (stream.input, stream.output);
            ready.send(()).expect("the test waits");
            let (to_output, batches) = mpsc::sync_channel::<Batch>(8);
            let received = thread::scope(|scope| {
                let sender = scope.spawn(move || {
                    for mut batch in batches {
                        for packet in batch.packets_mut() {
                            packet.fate = Fate::Transmit(packet.interface ^ 1);
                        }
                        output.transmit(&mut batch).expect("transmit counts what is lost");
                        output.flush().expect("as transmit");
                    }
                    output.finish().expect("as transmit");
                    output.sent().expect("it counts")
                });
                let mut next = 0;
                // ORDERING: Relaxed. A late look does no harm.
                while !stopped.load(Ordering::Relaxed) {
                    let mut batch = Batch::default();
                    match input.receive(&mut batch) {
                        Ok(Received::Packets) => {
                            for packet in batch.packets() {
                                assert_eq!(packet.seq.0, next, "numbers have no gaps");
                                next += 1;
                            }
                            to_output.send(batch).expect("the other half runs");
                        }
                        Ok(Received::Idle) | Err(PortError::Down(_)) => {
                            input.wait(Duration::from_millis(20)).expect("a poll");
                        }
                        other => panic!("a live port has no end: {other:?}"),
                    }
                }
                drop(to_output);
                let sent = sender.join().expect("it doesn't panic");
                assert_eq!(sent.sent + sent.lost, next);
                let lost = input.lost();
                drop(input);
                (next, sent.lost, lost)
            });
            (received, monitor.balances()[0])
        })
    });
    is_ready.recv_timeout(LONG).expect("the port opens");
    let expected = traffic(&row);
    // ORDERING: Relaxed. As above.
    stop.store(true, Ordering::Relaxed);
    let (received, balance) = worker.join().expect("it doesn't panic");
    if let Some(expected) = expected {
        assert_eq!(received, (expected, 0, ReceiveLosses::default()));
    }
    assert!(balance.adds_up() && balance.free == balance.frames, "{balance:?}");
}
