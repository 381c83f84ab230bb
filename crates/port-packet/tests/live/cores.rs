//! Both directions of a connection come to the same core, whichever interface they come by.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use port::Fate;
use testkit::netns::Wire;
use testkit::row::{Row, eventually, number, numbered};

use crate::bench::{Serves, both, received, tap};

/// A packet of connection `number`, in one of its directions.
fn of_connection(number: u16, is_reply: bool) -> Vec<u8> {
    let is_tcp = number.is_multiple_of(2);
    let is_v6 = number % 4 >= 2;
    let protocol = if is_tcp { 6 } else { 17 };
    let [high, low] = number.to_be_bytes();
    let (mut source, mut destination) = (vec![10, 1, high, low], vec![10, 2, 0, low]);
    let (mut from, mut to) = ([0x80 | high, low], [0, 80]);
    if is_v6 {
        source.extend([7; 12]);
        destination.extend([9; 12]);
    }
    if is_reply {
        (source, destination, from, to) = (destination, source, to, from);
    }
    let body = [&from[..], &to, &[0, 20, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]].concat();
    let mut frame = vec![2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1];
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
    }
    frame.extend([&source[..], &destination, &body].concat());
    frame.extend(number.to_be_bytes());
    frame.extend([0; 8]);
    frame
}

fn connection(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[frame.len() - 10], frame[frame.len() - 9]])
}

#[test]
fn both_directions_of_a_connection_come_to_the_same_core() {
    let Some(row) = Row::new("cores", 1500) else { return };
    let seen = Arc::new(Mutex::new(HashMap::<(u16, u16), usize>::new()));
    let noted = Arc::clone(&seen);
    let server = row.serve(both(), 2, move |core, packet, bytes| {
        let other = noted.lock().expect("nobody panics").insert((connection(bytes), packet.interface), core);
        assert!(other.is_none_or(|other| other == core), "a connection stays with its core");
        Fate::Drop(0)
    });
    let (wires, connections) = (row.wires(), 400);
    let mut total = 0;
    let mut send = |wires: &[Wire; 2]| {
        for number in 0..connections {
            // Requests come from the left, replies from the right in another order, so that taking turns would not do.
            wires[0].send(&of_connection(number, false)).expect("the wire takes it");
            wires[1].send(&of_connection(connections - 1 - number, true)).expect("the wire takes it");
        }
        wires[0].send(&of_connection(0, false)).expect("the wire takes it");
        total += 2 * u64::from(connections) + 1;
        eventually("all are received", || received(&server) == total);
        total
    };
    send(&wires);
    // When an interface comes up again, the kernel lets its sockets join anew.
    for end in ["a1", "a0"] {
        row.middle.ip(&["link", "set", end, "down"]).expect("the end is there");
        eventually("the port sees it", || server.monitor.describe().iter().any(|line| line.ends_with("it is down")));
        row.middle.ip(&["link", "set", end, "up"]).expect("the end is there");
        eventually("the port sees it", || !server.monitor.describe().iter().any(|line| line.contains("now:")));
        send(&wires);
    }
    // When it is made again, the port makes the sockets anew.
    row.middle.ip(&["link", "del", "a1"]).expect("the end is there");
    row.lay(1, 1500);
    eventually("the port takes it up", || {
        let made = row.middle.enter(|| std::fs::read_to_string("/proc/thread-self/net/packet")).expect("it is there");
        // Both sockets of both interfaces receive; those that transmit have no protocol.
        let running = made.lines().filter(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            columns[3] == "0003" && columns[5] == "1"
        });
        running.count() == 4 && !server.monitor.describe().iter().any(|line| line.contains("now:"))
    });
    let total = send(&row.wires());
    let outcomes = server.stop();
    let seen = seen.lock().expect("nobody panics");
    assert_eq!(seen.len(), 2 * usize::from(connections));
    for number in 0..connections {
        assert_eq!(seen[&(number, 0)], seen[&(number, 1)], "connection {number}");
    }
    assert!(outcomes.iter().all(|outcome| outcome.received > total / 4), "both cores have work: {outcomes:?}");
    assert!(outcomes.iter().all(|outcome| outcome.lost == port::ReceiveLosses::default()), "{outcomes:?}");
}

#[test]
fn no_packet_comes_to_two_cores_while_their_sockets_join() {
    let Some(row) = Row::new("joining", 1500) else { return };
    let [left, _] = row.wires();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (stop, sent) = (&stop, &sent);
    thread::scope(|scope| {
        scope.spawn(move || {
            // ORDERING: Relaxed. A late look does no harm.
            while !stop.load(Ordering::Relaxed) {
                // ORDERING: Relaxed. A count to wait for.
                let next = sent.fetch_add(1, Ordering::Relaxed);
                left.send(&numbered(0, next, 80)).expect("the wire takes it");
            }
        });
        let _end = End(stop);
        for _ in 0..10 {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            let noted = Arc::clone(&seen);
            let server = row.serve(tap("a0"), 8, move |_, _, bytes| {
                let (_, number) = number(bytes).expect("it is whole");
                assert!(noted.lock().expect("nobody panics").insert(number), "packet {number} came twice");
                Fate::Drop(0)
            });
            eventually("packets come", || received(&server) > 200);
            server.stop();
        }
    });
}

/// Ends the sender, also after a panic, as the scope waits for it.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed. As in the loop that reads it.
        self.0.store(true, Ordering::Relaxed);
    }
}
