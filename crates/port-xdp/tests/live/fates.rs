//! Packets by their fates, and frames when batches are kept, copied and shared.

use std::sync::{Arc, mpsc};

use millrace_port_xdp::Options;
use port::{Batch, Block, Fate};
use testkit::row::{Row, crossing, eventually, exchange, number, numbered};

use crate::bench::{Forwards, both};

#[test]
fn a_packet_for_both_arrives_once_at_each_side() {
    let Some(row) = Row::new("both", 1500) else { return };
    let forwarder = row.forward(both(), |_, interface| Fate::Both(interface ^ 1, interface));
    let arrived = exchange(&row.wires(), &[0, 1], 120, 2000, |_, _| 1);
    assert!(arrived.iter().all(|arrived| arrived.len() == 4000 && arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert_eq!((outcome.sent.sent, outcome.sent.lost), (8000, 0));
    assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
}

#[test]
fn dropped_packets_and_packets_for_no_interface_free_their_frames() {
    let Some(row) = Row::new("drop", 1500) else { return };
    let forwarder = row.forward(both(), |seq, interface| match seq % 4 {
        0 => Fate::Transmit(interface ^ 1),
        1 => Fate::Drop(3),
        2 => Fate::Transmit(7),
        _ => Fate::Pending,
    });
    let wires = row.wires();
    // More than there are frames, and never more under way than a ring holds.
    let total = 3000;
    let (monitor, mut arrived) = (forwarder.monitor.clone(), 0);
    for number in 0..total {
        wires[0].send(&numbered(0, number, 100)).expect("the wire takes it");
        if number % 20 == 19 {
            eventually("a quarter arrives", || {
                while wires[1].take().expect("the wire is up").is_some() {
                    arrived += 1;
                }
                arrived == (number + 1) / 4
            });
        }
    }
    eventually("no frame is in a transmit ring", || monitor.balances()[0].sending == 0);
    let outcome = forwarder.stop();
    assert_eq!((outcome.received, outcome.lost.ring_full), (total, 0));
    assert_eq!((outcome.sent.sent, outcome.sent.lost), (total / 4, total / 4));
    assert!(outcome.balance.adds_up() && outcome.balance.free == outcome.balance.frames, "{outcome:?}");
}

#[test]
fn rewritten_grown_and_shared_packets_arrive_whole() {
    let Some(row) = Row::new("copies", 1500) else { return };
    let mut block = Arc::new(Block::Filled(Vec::new()));
    let forwarder = row.work(both(), move |batch| {
        for index in 0..batch.len() {
            let (seq, mut frame) = (batch.packets()[index].seq.0, batch.bytes(index).to_vec());
            let (side, number) = number(&frame).expect("it came whole");
            match seq % 3 {
                // In place, to a shorter packet.
                0 => batch.replace(index, &numbered(side, number, 80)),
                // Too long for its place.
                1 => batch.replace(index, &numbered(side, number, 1400)),
                _ => frame.clear(),
            }
        }
        if batch.packets()[0].seq.0.is_multiple_of(2) {
            // As cores do that share a batch; what is written is then copied.
            batch.share(&mut block);
            let last = batch.len() - 1;
            let bytes = batch.bytes_mut(last).to_vec();
            assert!(!batch.is_in_place(last) && number(&bytes).is_some());
        }
        for packet in batch.packets_mut() {
            packet.fate = Fate::Transmit(packet.interface ^ 1);
        }
    });
    let arrived = exchange(&row.wires(), &[0, 1], 200, 3000, crossing);
    assert!(arrived.iter().all(|arrived| arrived.len() == 3000 && arrived.values().all(|count| *count == 1)));
    let outcome = forwarder.stop();
    assert_eq!((outcome.received, outcome.sent.sent, outcome.sent.lost), (6000, 6000, 0));
    // The shared block still has the last loan.
    assert!(outcome.balance.adds_up(), "{outcome:?}");
}

#[test]
fn a_port_whose_frames_are_all_kept_loses_by_the_kernels_count_and_goes_on_after() {
    let Some(row) = Row::new("kept", 1500) else { return };
    let options = Options { frames: 256, ring_len: 64, burst: 16, ..Options::new(["a0"]) };
    let (keep, kept) = mpsc::channel();
    let mut keep = Some(keep);
    let (stop_keeping, told) = mpsc::channel::<()>();
    let forwarder = row.work(options, move |batch| {
        if told.try_recv().is_ok() {
            keep = None;
        }
        match &keep {
            Some(keep) => keep.send(std::mem::take(batch)).expect("the test holds them"),
            None => batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(packet.interface)),
        }
    });
    let wires = row.wires();
    let mut total = 0;
    eventually("all frames are kept", || {
        wires[0].send(&numbered(0, total, 300)).expect("the wire takes it");
        total += 1;
        forwarder.monitor.balances()[0].lent == 256
    });
    // These find no frame.
    for _ in 0..1000 {
        wires[0].send(&numbered(0, total, 300)).expect("the wire takes it");
        total += 1;
    }
    eventually("the program has seen all", || forwarder.monitor.counts()[0].program.redirected == total);
    stop_keeping.send(()).expect("the worker runs");
    // The loans end on this thread.
    let held: u64 = kept.try_iter().map(|batch: Batch| batch.len() as u64).sum();
    eventually("the fill ring is full again", || forwarder.monitor.balances()[0].filled == 64);
    let arrived = exchange(&wires, &[0], 300, 500, |side, _| u64::from(side == 0));
    assert!(arrived[0].len() == 500 && arrived[0].values().all(|count| *count == 1));
    let outcome = forwarder.stop();
    assert_eq!((held, outcome.received), (256, 256 + 500));
    assert_eq!(outcome.received + outcome.lost.ring_full, total + 500, "what came was received or is counted");
    assert!(outcome.lost.ring_full >= 1000 && outcome.balance.adds_up(), "{outcome:?}");
}
