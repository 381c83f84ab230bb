//! A port with a queue for each of two cores.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use millrace_port_xdp::XdpPort;
use port::{Batch, Fate, Opened, Port, Received};
use testkit::netns::Wire;
use testkit::row::{self, LONG, Row, number, numbered};

use crate::bench::{both, pin, processors};

fn give_two_queues(row: &Row) {
    for (namespace, end) in [(&*row.middle, "a0"), (&*row.middle, "a1"), (&row.left, "h0"), (&row.right, "h1")] {
        namespace.run("ethtool", &["-L", end, "rx", "2", "tx", "2"]).expect("a veth has queues");
    }
}

#[test]
fn packets_of_two_queues_come_once_with_numbers_of_their_own() {
    let Some(row) = Row::new("two", 1500) else { return };
    give_two_queues(&row);
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let (middle, stopped) = (Arc::clone(&row.middle), Arc::clone(&stop));
    let worker = thread::spawn(move || {
        middle.enter(|| {
            let mut port = XdpPort::new(both()).expect("the options are right");
            let monitor = port.monitor();
            let Opened::Queues(queues) = port.open(2).expect("the port can be opened") else { panic!("two queues") };
            ready.send(()).expect("the test waits");
            let numbers = Mutex::new(HashSet::new());
            let counts: Vec<u64> = thread::scope(|scope| {
                let (stopped, numbers) = (&*stopped, &numbers);
                let serve = move |(own, mut queue): (u64, Box<dyn port::Queue + '_>)| {
                    let (mut batch, mut received) = (Batch::default(), 0);
                    loop {
                        // ORDERING: Relaxed. What has arrived before is still received.
                        let stops = stopped.load(Ordering::Relaxed);
                        match queue.receive(&mut batch).expect("both interfaces are up") {
                            Received::Packets => {}
                            Received::Idle if stops => break,
                            Received::Idle => {
                                queue.wait(Duration::from_millis(20)).expect("a poll");
                                continue;
                            }
                            Received::End => panic!("a live port has no end"),
                        }
                        received += batch.len() as u64;
                        for packet in batch.packets_mut() {
                            assert_eq!(packet.seq.0 % 2, own, "each queue has numbers of its own");
                            assert!(numbers.lock().expect("nobody panics").insert(packet.seq), "a number comes once");
                            packet.fate = Fate::Transmit(packet.interface ^ 1);
                        }
                        queue.transmit(&mut batch).expect("transmit counts what is lost");
                    }
                    batch.clear();
                    queue.finish().expect("as transmit");
                    assert_eq!(queue.sent().expect("it counts").sent, received);
                    assert_eq!(queue.lost(), port::ReceiveLosses::default());
                    received
                };
                let threads: Vec<_> = (0..).zip(queues).map(|queue| scope.spawn(move || serve(queue))).collect();
                threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect()
            });
            (counts, monitor.balances())
        })
    });
    is_ready.recv_timeout(LONG).expect("the port opens");
    let wires = row.wires();
    let (total, mut arrived) = (3000, HashSet::new());
    let end = Instant::now() + LONG;
    // The queue that a packet is sent by depends on its flow, and may depend on the processor.
    let cpus = processors();
    for first in (0..total).step_by(50) {
        pin(cpus[first as usize / 50 % cpus.len()]);
        (first..first + 50).for_each(|number| wires[0].send(&numbered(0, number, 90)).expect("the wire takes it"));
        while (arrived.len() as u64) < first + 50 {
            while let Some(frame) = wires[1].take().expect("the wire is up") {
                assert!(arrived.insert(number(&frame).expect("it is whole")), "a packet arrived twice");
            }
            assert!(Instant::now() < end, "{} of {} have arrived", arrived.len(), first + 50);
            Wire::wait(&[&wires[1]], Instant::now() + Duration::from_millis(20)).expect("a poll");
        }
    }
    // ORDERING: Relaxed. As above.
    stop.store(true, Ordering::Relaxed);
    let (counts, balances) = worker.join().expect("it doesn't panic");
    assert_eq!(counts.iter().sum::<u64>(), total);
    assert!(cpus.len() < 2 || counts.iter().all(|count| *count > 0), "both queues have packets: {counts:?}");
    assert!(balances.iter().all(|balance| balance.adds_up() && balance.free == balance.frames), "{balances:?}");
}

/// The number of the next packet that arrives.
fn next(wire: &Wire) -> u64 {
    let end = Instant::now() + LONG;
    loop {
        if let Some(frame) = wire.take().expect("the wire is up") {
            return number(&frame).expect("it is whole").1;
        }
        assert!(Instant::now() < end, "nothing arrives");
        Wire::wait(&[wire], Instant::now() + Duration::from_millis(20)).expect("a poll");
    }
}

#[test]
fn a_queue_that_stands_still_holds_up_no_other() {
    let Some(row) = Row::new("still", 1500) else { return };
    give_two_queues(&row);
    let across = |batch: &mut Batch| {
        batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(packet.interface ^ 1));
    };
    let (stands, is_standing) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut before = true;
    let stall = move |batch: &mut Batch| {
        if std::mem::replace(&mut before, false) {
            stands.send(number(batch.bytes(0)).expect("it is whole").1).expect("the test waits");
            let _ = released.recv_timeout(LONG);
        }
        across(batch);
    };
    let server = row::serve(&row.middle, Duration::ZERO, vec![Box::new(across), Box::new(stall)], || {
        let port = XdpPort::new(both()).expect("the options are right");
        let monitor = port.monitor();
        (port, monitor)
    });
    let wires = row.wires();
    let send = |number| wires[0].send(&numbered(0, number, 90)).expect("the wire takes it");
    // Numbers that differ by 64 are of one flow, and a flow has one queue.
    (0..64).for_each(send);
    let standing = is_standing.recv_timeout(LONG).expect("some come to the second queue");
    let going = next(&wires[1]);
    // More than the ring has room for.
    (1..2000).for_each(|round| send(standing + 64 * round));
    for round in 1..500 {
        send(going + 64 * round);
        // Of other flows of its queue, packets of the first round may still be on their way.
        while next(&wires[1]) != going + 64 * round {}
    }
    release.send(()).expect("the queue waits");
    // What lay in its ring comes out, and then what is sent now.
    let last = standing + 64 * 2000;
    send(last);
    while next(&wires[1]) != last {
        send(last);
    }
    let monitor = server.monitor.clone();
    let outcomes = server.stop();
    let handed_on = monitor.counts()[0].program.redirected;
    let received = outcomes.iter().map(|outcome| outcome.received).sum::<u64>();
    let [none, lost] = [0, 1].map(|core: usize| outcomes[core].lost.ring_full);
    assert_eq!(handed_on, received + none + lost, "{outcomes:?}");
    assert!(none == 0 && lost > 1000, "only the ring of the queue that stood was full: {outcomes:?}");
    assert!(monitor.balances().iter().all(|balance| balance.adds_up() && balance.free == balance.frames));
}
