//! The wrapper of ports: what goes in, what an engine sees, and what leaves.

mod common;

use std::sync::Arc;

use common::{Part, packet};
use millrace_l7::defrag::{Counts, Defragmented, DefragmentedQueue, Discard, Limits, Policy};
use packet::{Nanos, Seq};
use port::{
    Batch, Block, Fate, MemoryPort, MemoryQueue, Opened, Outbox, Port, Queue, Receive, Received, Sent, Stream, Trace,
    Transmit,
};

fn part(id: u16, units: std::ops::Range<u16>, more: bool, is_v6: bool) -> Part {
    let payload = (units.start * 8..units.end * 8).map(|at| (at + id) as u8).collect();
    Part { is_v6, id, offset: units.start, more, payload }
}

/// A datagram without a fragment field.
fn whole(id: u16) -> Part {
    part(id, 0..1, false, false)
}

fn trace(parts: &[Part]) -> Trace {
    let mut trace = Trace::new();
    for (number, part) in (0..).zip(parts) {
        let frame = part.frame();
        trace.push(packet(number, Nanos(number * 10), &frame), &frame);
    }
    trace
}

/// Whole packets, two datagrams whose fragments are mixed and come in the wrong order, and a fragment that stays alone.
fn mixed() -> Vec<Part> {
    vec![
        whole(1),
        part(7, 3..5, true, false),
        part(8, 0..2, true, true),
        whole(2),
        part(7, 0..3, true, false),
        part(9, 0..3, true, false),
        part(8, 2..3, false, true),
        whole(3),
        part(7, 5..6, false, false),
        whole(4),
    ]
}

/// Runs a queue: `decide` sets the fate of each packet, from its number and length. Returns what an engine saw.
fn run(queue: &mut dyn Queue, mut decide: impl FnMut(&mut Batch, usize)) -> Vec<(u64, u64, usize)> {
    let (mut batch, mut seen) = (Batch::default(), Vec::new());
    while queue.receive(&mut batch).expect("memory is there") == Received::Packets {
        for index in 0..batch.len() {
            let packet = batch.packets()[index];
            seen.push((packet.seq.0, packet.time.0, packet.len as usize));
            decide(&mut batch, index);
        }
        queue.transmit(&mut batch).expect("memory is there");
    }
    seen
}

fn forward(batch: &mut Batch, index: usize) {
    batch.packets_mut()[index].fate = Fate::Transmit(0);
}

fn numbers(sent: &[Sent]) -> Vec<u64> {
    sent.iter().map(|sent| sent.seq.0).collect()
}

const COUNTS: Counts = {
    let mut dropped = [0; Discard::ALL.len()];
    dropped[Discard::Incomplete as usize] = 1;
    Counts { fragments: 6, gathered: 5, datagrams: 2, dropped }
};

#[test]
fn datagrams_come_in_and_fragments_leave() {
    let parts = mixed();
    for burst in [1, 2, 3, 4, 32] {
        let memory = MemoryQueue::new(Arc::new(trace(&parts)), burst);
        let outbox = memory.outbox();
        let mut queue = DefragmentedQueue::new(memory, Policy::Linux, Limits::default());
        let seen = run(&mut queue, forward);
        // Number, time, length.
        let expected = [(0, 0, 42), (1, 30, 42), (2, 60, 86), (3, 70, 42), (4, 80, 82), (5, 90, 42)];
        assert_eq!(seen, expected, "{burst}");
        let sent = outbox.take();
        assert_eq!(numbers(&sent), [0, 3, 6, 6, 7, 8, 8, 8, 9], "{burst}");
        let order = [0, 3, 2, 6, 7, 4, 1, 8, 9].map(|at: usize| parts[at].frame());
        let bytes: Vec<Vec<u8>> = sent.iter().map(|sent| sent.bytes.clone()).collect();
        assert_eq!(bytes, order, "{burst}");
        assert_eq!(queue.counts(), COUNTS);
    }
}

#[test]
fn what_is_rewritten_dropped_or_answered() {
    let parts = mixed();
    let memory = MemoryQueue::new(Arc::new(trace(&parts)), 32);
    let outbox = memory.outbox();
    let mut queue = DefragmentedQueue::new(memory, Policy::Linux, Limits::default());
    run(&mut queue, |batch, index| {
        let packet = batch.packets()[index];
        match packet.seq.0 {
            // The IPv6 datagram is dropped.
            2 => batch.packets_mut()[index].fate = Fate::Drop(40),
            // The IPv4 datagram has another TTL and source.
            4 => {
                let rewrite = packet::Rewrite { ttl: Some(9), tos: Some(4), ..packet::Rewrite::NONE };
                rewrite.apply_to_frame(packet.link, batch.bytes_mut(index), packet.wire_len, 0);
                batch.packets_mut()[index].fate = Fate::Transmit(3);
            }
            _ => forward(batch, index),
        }
    });
    let sent = outbox.take();
    assert_eq!(numbers(&sent), [0, 3, 7, 8, 8, 8, 9]);
    let fragments: Vec<&Sent> = sent.iter().filter(|sent| sent.seq == Seq(8)).collect();
    for (sent, part) in fragments.iter().zip([4, 1, 8]) {
        let mut expected = parts[part].frame();
        let mut header = expected[14..34].to_vec();
        (header[1], header[8], header[10], header[11]) = (4, 9, 0, 0);
        let mut sum = packet::Checksum::default();
        sum.add(&header);
        header[10..12].copy_from_slice(&sum.value().to_be_bytes());
        expected[14..34].copy_from_slice(&header);
        assert_eq!((&sent.bytes, sent.port, sent.wire_len as usize), (&expected, 3, expected.len()));
    }

    // An answer leaves as it is.
    let memory = MemoryQueue::new(Arc::new(trace(&parts)), 32);
    let outbox = memory.outbox();
    let mut queue = DefragmentedQueue::new(memory, Policy::Linux, Limits::default());
    let answer = whole(0).frame();
    run(&mut queue, |batch, index| {
        batch.replace(index, &answer);
        forward(batch, index);
    });
    let sent = outbox.take();
    assert_eq!(numbers(&sent), [0, 3, 6, 7, 8, 9]);
    assert!(sent.iter().all(|sent| sent.bytes == answer));
}

/// Steps the halves of a stream as cores do that share it: packets go through batches beside the one that was read.
fn over_stream(stream: &mut Stream<'_>, in_shares: bool) {
    let (mut batch, mut block) = (Batch::default(), Arc::new(Block::Filled(Vec::new())));
    while stream.input.receive(&mut batch).expect("memory is there") == Received::Packets {
        batch.share(&mut block);
        let mut shares = [Batch::default(), Batch::default()];
        shares.iter_mut().for_each(|share| share.clear_beside(&batch, 0));
        for index in 0..batch.len() {
            let share = &mut shares[index % 2];
            share.push_of(&batch, index, 0);
            let at = share.len() - 1;
            share.bytes_mut(at)[0] = 7;
            share.packets_mut()[at].fate = Fate::Transmit(0);
        }
        if in_shares {
            shares.iter_mut().for_each(|share| stream.output.transmit(share).expect("memory is there"));
        } else {
            for index in 0..batch.len() {
                batch.put_back(index, &shares[index % 2], index / 2);
            }
            stream.output.transmit(&mut batch).expect("memory is there");
        }
        shares.iter_mut().for_each(Batch::clear);
        batch.unshare(&mut block);
    }
}

#[test]
fn streams_that_cores_share() {
    let parts = mixed();
    for in_shares in [false, true] {
        let memory = MemoryQueue::new(Arc::new(trace(&parts)), 4);
        let outbox = memory.outbox();
        let mut port = Defragmented::new(memory, Policy::Linux, Limits::default());
        let totals = port.totals();
        let Ok(Opened::Stream(mut stream)) = port.open(2) else { panic!("it is a stream") };
        over_stream(&mut stream, in_shares);
        drop(stream);
        assert_eq!(totals.get(), COUNTS);
        let mut sent = outbox.take();
        sent.sort_by_key(|sent| sent.seq);
        assert_eq!(numbers(&sent), [0, 3, 6, 6, 7, 8, 8, 8, 9]);
        for (sent, part) in sent.iter().zip([0, 3, 2, 6, 7, 4, 1, 8, 9]) {
            let mut expected = parts[part].frame();
            expected[0] = 7;
            assert_eq!(sent.bytes, expected);
        }
    }
}

#[test]
fn own_queues_gather_by_themselves() {
    let parts = mixed();
    // Packets of the two datagrams come by a queue each; the rest by the first.
    let steered = vec![0, 1, 0, 0, 1, 0, 0, 0, 1, 0];
    let memory = MemoryPort::new(Arc::new(trace(&parts)), 32).steered(steered);
    let outbox: Outbox = memory.outbox();
    let mut port = Defragmented::new(memory, Policy::Linux, Limits::default());
    let totals = port.totals();
    let Ok(Opened::Queues(mut queues)) = port.open(2) else { panic!("these are queues") };
    let seen: Vec<u64> = queues.iter_mut().flat_map(|queue| run(queue, forward)).map(|(seq, ..)| seq).collect();
    drop(queues);
    assert_eq!(seen, [0, 3, 6, 7, 9, 8]);
    assert_eq!(numbers(&outbox.take()), [0, 3, 6, 6, 7, 9, 8, 8, 8]);
    assert_eq!(totals.get(), COUNTS);
}

/// A run that stops early counts what is stored, too.
#[test]
fn a_stopped_run_adds_up() {
    let memory = MemoryQueue::new(Arc::new(trace(&mixed())), 3);
    let mut port = Defragmented::new(memory, Policy::Linux, Limits::default());
    let totals = port.totals();
    let Ok(Opened::Stream(mut stream)) = port.open(1) else { panic!("it is a stream") };
    stream.receive(&mut Batch::default()).expect("memory is there");
    assert_eq!((totals.get().fragments, totals.get().dropped_total()), (2, 0));
    drop(stream);
    assert_eq!((totals.get().fragments, totals.get().dropped_for(Discard::Incomplete)), (2, 2));
}

#[test]
fn another_core_may_gather() {
    let parts = mixed();
    for burst in [1, 3, 32] {
        let memory = MemoryQueue::new(Arc::new(trace(&parts)), burst);
        let outbox = memory.outbox();
        let mut port = Defragmented::new(memory, Policy::Linux, Limits::default());
        let totals = port.totals();
        {
            let Opened::Stream(Stream { mut input, mut output, .. }) = port.open(2).expect("memory is there") else {
                panic!("it is a stream")
            };
            let mut work = input.take_work().expect("gathering is work");
            assert!(input.take_work().is_none(), "it is given away once");
            let (mut batch, mut raw, mut seen) = (Batch::default(), 0, Vec::new());
            while input.receive(&mut batch).expect("memory is there") == Received::Packets {
                raw += batch.len();
                work(&mut batch);
                for index in 0..batch.len() {
                    let packet = batch.packets()[index];
                    seen.push((packet.seq.0, packet.len));
                    forward(&mut batch, index);
                }
                output.transmit(&mut batch).expect("memory is there");
            }
            assert_eq!(raw, parts.len(), "fragments come as they are");
            assert_eq!(seen, [(0, 42), (1, 42), (2, 86), (3, 42), (4, 82), (5, 42)], "{burst}");
        }
        assert_eq!(numbers(&outbox.take()), [0, 3, 6, 6, 7, 8, 8, 8, 9], "{burst}");
        assert_eq!(totals.get(), COUNTS, "{burst}");
    }
}
