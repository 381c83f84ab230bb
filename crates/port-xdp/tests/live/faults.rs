//! Interfaces that go down, vanish and come back, and programs that are exchanged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use testkit::row::{LONG, Row, crossing, eventually, exchange, numbered};

use crate::bench::{Forwards, across, both};

#[test]
fn a_link_that_was_down_carries_packets_again() {
    let Some(row) = Row::new("down", 1500) else { return };
    let forwarder = row.forward(both(), across);
    let wires = row.wires();
    exchange(&wires, &[0, 1], 100, 300, crossing);
    row.middle.ip(&["link", "set", "a1", "down"]).expect("the end is there");
    // They are for an interface that is down: they wait in its ring, and more are lost.
    eventually("the ring is full", || {
        wires[0].send(&numbered(0, 1 << 40, 100)).expect("the wire takes it");
        let balance = forwarder.monitor.balances()[0];
        balance.sending + balance.lent_and_sending == 512
    });
    eventually("the port sees it", || forwarder.monitor.describe()[1].ends_with("now: it is down"));
    row.middle.ip(&["link", "set", "a1", "up"]).expect("the end is there");
    let mut late = 0;
    eventually("what waited in the ring goes out", || {
        while wires[1].take().expect("the wire is up").is_some() {
            late += 1;
        }
        forwarder.monitor.balances()[0].sending == 0
    });
    while wires[1].take().expect("the wire is up").is_some() {
        late += 1;
    }
    let arrived = exchange(&wires, &[0, 1], 100, 300, crossing);
    assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert_eq!(outcome.sent.sent + outcome.sent.lost, outcome.received);
    assert!(late >= 512, "{late} came late: {outcome:?}");
    assert!(outcome.down.contains(&"a1".to_owned()), "{outcome:?}");
    assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
}

#[test]
fn a_port_opens_while_an_interface_is_down() {
    let Some(row) = Row::new("late", 1500) else { return };
    row.middle.ip(&["link", "set", "a1", "down"]).expect("the end is there");
    let forwarder = row.forward(both(), across);
    eventually("the port sees it", || forwarder.monitor.describe()[1].ends_with("now: it is down"));
    row.middle.ip(&["link", "set", "a1", "up"]).expect("the end is there");
    let arrived = exchange(&row.wires(), &[0, 1], 100, 300, crossing);
    assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert_eq!(outcome.down, ["a1"]);
    assert!(outcome.balance.adds_up(), "{outcome:?}");
}

/// Packets that wait in the ring of an interface are not sent before the kernel takes them.
#[test]
fn packets_that_wait_for_an_interface_at_its_end_are_lost() {
    const WAITING: usize = 100;
    let Some(row) = Row::new("wait", 1500) else { return };
    for is_deleted in [false, true] {
        let forwarder = row.forward(both(), across);
        let wires = row.wires();
        exchange(&wires, &[0], 100, 300, crossing);
        row.middle.ip(&["link", "set", "a1", "down"]).expect("the end is there");
        (0..WAITING as u64).for_each(|number| wires[0].send(&numbered(0, number, 100)).expect("the wire takes it"));
        eventually("they wait", || {
            let balance = forwarder.monitor.balances()[0];
            balance.sending + balance.lent_and_sending == WAITING
        });
        if is_deleted {
            row.middle.ip(&["link", "del", "a1"]).expect("the end is there");
            eventually("the port sees it", || forwarder.monitor.describe()[1].contains("there is no interface"));
        }
        let outcome = forwarder.stop();
        assert_eq!((outcome.sent.sent, outcome.sent.lost), (300, WAITING as u64), "{outcome:?}");
        assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
        if !is_deleted {
            row.middle.ip(&["link", "set", "a1", "up"]).expect("the end is there");
        }
    }
}

#[test]
fn an_interface_deleted_and_made_again_is_taken_up() {
    let Some(row) = Row::new("again", 1500) else { return };
    let forwarder = row.forward(both(), across);
    exchange(&row.wires(), &[0, 1], 100, 500, crossing);
    for side in [1, 0] {
        let name = format!("a{side}");
        row.middle.ip(&["link", "del", &name]).expect("the end is there");
        eventually("the port sees it", || {
            forwarder.monitor.describe()[side].contains(&format!("now: there is no interface {name}"))
        });
        row.lay(side, 1500);
        eventually("the port takes it up", || !forwarder.monitor.describe()[side].contains("now:"));
        let arrived = exchange(&row.wires(), &[0, 1], 100, 500, crossing);
        assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    }
    // Both at once, as when the other end of both wires goes.
    row.middle.ip(&["link", "del", "a0"]).expect("the end is there");
    row.middle.ip(&["link", "del", "a1"]).expect("the end is there");
    (0..2).for_each(|side| row.lay(side, 1500));
    eventually("the port takes them up", || {
        let counts = forwarder.monitor.counts();
        let before: u64 = counts.iter().map(|count| count.program.redirected).sum();
        let wires = row.wires();
        (0..2).for_each(|side| wires[side].send(&numbered(side, 1 << 40, 100)).expect("the wire takes it"));
        let counts = forwarder.monitor.counts();
        counts.iter().map(|count| count.program.redirected).sum::<u64>() == before + 2
            && forwarder.monitor.describe().iter().all(|line| !line.contains("now:"))
    });
    let arrived = exchange(&row.wires(), &[0, 1], 100, 500, crossing);
    assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert!(outcome.down.contains(&"a0".to_owned()) && outcome.down.contains(&"a1".to_owned()), "{outcome:?}");
    assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
}

#[test]
fn an_interface_that_was_in_another_namespace_is_taken_up_when_it_is_back() {
    let Some(row) = Row::new("moved", 1500) else { return };
    let (arrived, has_arrived) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let forwarder = row.work(both(), move |batch| {
        for packet in batch.packets_mut() {
            packet.fate = across(0, packet.interface);
        }
        // The port does nothing meanwhile. Once the test has dropped its end, nobody waits.
        if arrived.send(()).is_ok() {
            let _ = may_go_on.recv();
        }
    });
    row.wires()[0].send(&numbered(0, 0, 100)).expect("the wire takes it");
    has_arrived.recv_timeout(LONG).expect("the packet arrives");
    let number = || {
        let line = row.middle.ip(&["-o", "link", "show", "dev", "a1"]).expect("the end is there");
        line.split(':').next().map(str::to_owned)
    };
    let before = number();
    row.middle.ip(&["link", "set", "a1", "netns", row.left.name()]).expect("the end is there");
    row.left.ip(&["link", "set", "a1", "netns", row.middle.name()]).expect("the end is there");
    row.middle.ip(&["link", "set", "a1", "up"]).expect("the end is there");
    // It has its number still, so that only its socket tells.
    assert_eq!(number(), before);
    drop((has_arrived, go_on));
    let wires = row.wires();
    eventually("the port takes it up", || {
        wires[1].send(&numbered(1, 1 << 40, 100)).expect("the wire takes it");
        wires[0].take().expect("the wire is up").is_some()
    });
    let arrived = exchange(&wires, &[0, 1], 100, 300, crossing);
    assert!(arrived.iter().all(|arrived| arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
}

#[test]
fn an_interface_made_again_with_too_many_queues_says_what_to_type() {
    let Some(row) = Row::new("queues", 1500) else { return };
    let forwarder = row.forward(both(), across);
    row.middle.ip(&["link", "del", "a1"]).expect("the end is there");
    let right = row.right.name();
    let pair = ["type", "veth", "peer", "name", "h1", "netns", right];
    let many = [&["link", "add", "a1", "numrxqueues", "2", "numtxqueues", "2"], &pair[..]].concat();
    row.middle.ip(&many).expect("a veth has queues");
    eventually("the port says why it doesn't take it", || {
        let line = forwarder.monitor.describe().remove(1);
        line.contains("now: a1 has 2 queues, but 1 socket is wanted") && line.contains("ethtool -L a1 rx 1 tx 1")
    });
    row.middle.run("ethtool", &["-L", "a1", "rx", "1", "tx", "1"]).expect("a veth has queues");
    eventually("the port takes it", || !forwarder.monitor.describe()[1].contains("now:"));
    let line = forwarder.monitor.describe().remove(1);
    assert!(line.contains("generic XDP (native was refused") && line.contains("the other end of this veth"), "{line}");
    assert!(forwarder.stop().balance.adds_up());
}

#[test]
fn programs_are_exchanged_under_load_without_a_loss() {
    let Some(row) = Row::new("exchange", 1500) else { return };
    let forwarder = row.forward(both(), across);
    let (done, monitor) = (Arc::new(AtomicBool::new(false)), forwarder.monitor.clone());
    let is_done = Arc::clone(&done);
    let exchanger = thread::spawn(move || {
        let mut times = 0;
        // ORDERING: Relaxed. A late look does no harm.
        while !is_done.load(Ordering::Relaxed) || times < 20 {
            monitor.exchange_programs().expect("the kernel takes the same program");
            times += 1;
        }
    });
    let arrived = exchange(&row.wires(), &[0, 1], 100, 5000, crossing);
    // ORDERING: Relaxed. As above.
    done.store(true, Ordering::Relaxed);
    exchanger.join().expect("it doesn't panic");
    assert!(arrived.iter().all(|arrived| arrived.len() == 5000 && arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert_eq!((outcome.received, outcome.lost.unclaimed), (10_000, 0));
    assert!(outcome.balance.adds_up(), "{outcome:?}");
}
