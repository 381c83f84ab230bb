//! One hardware queue of each interface, whose packets the XDP program numbers and hands to cores in turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millrace_port_xdp::{Balance, InterfaceCounts, Mode, Monitor, Options, Spread, XdpPort};
use packet::Nanos;
use port::{
    Batch, Fate, HEAD_BYTES, Mark, Opened, Past, Port, PortError, ReceiveLosses, Received, Sequenced, TransmitCounts,
};
use testkit::row::{LONG, Row, crossing, eventually, exchange, numbered};

use crate::bench::{both, make_again};

/// What a core has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Its own packets by number: interface, and first bytes.
    own: BTreeMap<u64, (u16, Vec<u8>)>,
    /// Of the history: number, time, interface, length on the wire, first bytes.
    history: Vec<(u64, Nanos, u16, u32, Vec<u8>)>,
    /// Marks that no packet came for a while, by the number after the last packet.
    quiet: Vec<u64>,
    /// Where it stopped.
    end: u64,
    lost: ReceiveLosses,
    sent: TransmitCounts,
}

/// Cores behind a sequencer that send every packet across.
struct Cores {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Seen>>,
    monitor: Monitor,
}

fn start(row: &Row, options: Options, cores: usize) -> Cores {
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let (middle, stopped) = (Arc::clone(&row.middle), Arc::clone(&stop));
    let thread = thread::spawn(move || {
        middle.enter(|| {
            let mut port =
                XdpPort::new(Options { spread: Spread::Sequencer, ..options }).expect("the options are right");
            let monitor = port.monitor();
            let Opened::Sequenced(queues) = port.open(cores).expect("the port opens") else {
                panic!("a sequencer was asked for")
            };
            ready.send(monitor).expect("the test waits");
            thread::scope(|scope| {
                let stop = &*stopped;
                let start = |(core, own)| scope.spawn(move || follow(core, own, stop));
                let threads: Vec<_> = queues.into_iter().enumerate().map(start).collect();
                threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect()
            })
        })
    });
    let monitor = is_ready.recv_timeout(LONG).expect("the port opens");
    Cores { stop, thread, monitor }
}

fn follow(core: usize, Sequenced { mut queue, mut history }: Sequenced<'_>, stop: &AtomicBool) -> Seen {
    let (mut batch, mut seen, mut next, mut has_asked) = (Batch::default(), Seen::default(), 0, false);
    loop {
        // ORDERING: Relaxed. A late look does no harm.
        if stop.load(Ordering::Relaxed) && !has_asked {
            history.mark(Mark::Stop);
            has_asked = true;
        }
        let come = match queue.receive(&mut batch) {
            Ok(come) => come,
            Err(PortError::Down(_)) => Received::Idle,
            Err(error) => panic!("{error}"),
        };
        if come == Received::Idle && !history.has_more() {
            if core == 0 {
                history.mark(Mark::Quiet(queue.now().expect("it has a clock")));
            }
            queue.flush().expect("what is lost is counted");
            queue.wait(Duration::from_millis(10)).expect("a poll");
        }
        let Past { end, mark } = history.read(&mut |packet, head| {
            seen.history.push((packet.seq.0, packet.time, packet.interface, packet.wire_len, head.to_vec()));
        });
        assert!(next <= end.0, "it goes on");
        next = end.0;
        if come == Received::Packets {
            for index in 0..batch.len() {
                let (packet, bytes) = batch.packet(index);
                assert!(packet.seq < end, "the history comes as far as the packets");
                let head = bytes[..bytes.len().min(HEAD_BYTES)].to_vec();
                let before = seen.own.insert(packet.seq.0, (packet.interface, head));
                assert!(before.is_none(), "a packet came twice");
            }
            for packet in batch.packets_mut() {
                packet.fate = Fate::Transmit(packet.interface ^ 1);
            }
            queue.transmit(&mut batch).expect("what is lost is counted");
        }
        match mark {
            Some(Mark::Quiet(_)) => seen.quiet.push(end.0),
            Some(Mark::Stop) => break,
            None => {}
        }
    }
    batch.clear();
    queue.finish().expect("what is lost is counted");
    (seen.end, seen.lost, seen.sent) = (next, queue.lost(), queue.sent().expect("it counts"));
    seen
}

impl Cores {
    fn stop(self) -> (Vec<Seen>, Vec<InterfaceCounts>, Balance) {
        // ORDERING: Relaxed. As in `follow`.
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("it doesn't panic");
        (seen, self.monitor.counts(), self.monitor.balances()[0])
    }
}

/// All cores have the same history, and each has its own packets of it, but for those that were lost. Returns these.
fn agree(seen: &[Seen]) -> u64 {
    let cores = seen.len() as u64;
    let mut missing = 0;
    let first = &seen[0];
    assert!(
        first.history.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1),
        "numbers rise, and times don't fall"
    );
    for (core, one) in (0..).zip(seen) {
        assert_eq!((&one.history, &one.quiet, one.end), (&first.history, &first.quiet, first.end), "core {core}");
        let told = first.history.iter().filter(|(number, ..)| number % cores == core);
        let mut own = one.own.clone();
        for (number, _, interface, _, head) in told {
            match own.remove(number) {
                Some(packet) => assert_eq!(packet, (*interface, head.clone())),
                None => missing += 1,
            }
        }
        assert!(own.is_empty(), "core {core} has packets of which nobody was told: {own:?}");
    }
    missing
}

/// Packets of this length in both directions, over so many cores.
fn all_arrive(label: &str, options: Options, cores: usize, len: usize, total: u64) {
    let Some(row) = Row::new(label, 9000) else { return };
    let running = start(&row, options, cores);
    let arrived = exchange(&row.wires(), &[0, 1], len, total, crossing);
    for (side, arrived) in arrived.iter().enumerate() {
        assert!(arrived.keys().map(|(from, number)| (*from, *number)).eq((0..total).map(|number| (1 - side, number))));
        assert!(arrived.values().all(|count| *count == 1), "a packet arrived twice");
    }
    assert!(running.monitor.describe()[0].contains(&format!("1 queue, sequenced for {cores} cores")));
    let (seen, counts, balance) = running.stop();
    assert_eq!(agree(&seen), 0, "none is lost");
    assert_eq!(seen[0].history.len() as u64, 2 * total);
    assert!(seen[0].history.iter().all(|(_, _, _, wire_len, _)| *wire_len as usize == len));
    for one in &seen {
        assert_eq!((one.sent.sent, one.sent.lost), (one.own.len() as u64, 0));
        assert_eq!(one.lost, ReceiveLosses::default());
    }
    assert_eq!(counts.iter().map(|count| count.program.redirected).collect::<Vec<_>>(), [total; 2], "{counts:?}");
    assert!(balance.adds_up() && balance.free == balance.frames, "{balance:?}");
}

#[test]
fn every_packet_goes_to_one_core_and_every_core_is_told_of_it() {
    for cores in [2, 3, 7] {
        all_arrive(&format!("seq{cores}"), both(), cores, 60, 3000);
    }
    all_arrive("seqkilo", both(), 2, 1000, 2000);
    all_arrive("seqjumbo", both(), 2, 8900, 1000);
    all_arrive("seqgen", Options { mode: Mode::Generic, ..both() }, 2, 200, 1000);
    // A ring has room for all that is on the way, or packets are lost where a core stands still.
    all_arrive("seqtiny", Options { frames: 256, ring_len: 128, burst: 7, need_wakeup: false, ..both() }, 2, 300, 2000);
}

#[test]
fn an_interface_comes_back_for_all_cores() {
    let Some(row) = Row::new("seqback", 1500) else { return };
    let running = start(&row, Options { frames: 256, ring_len: 128, burst: 16, ..both() }, 2);
    for _ in 0..3 {
        make_again(&row);
        let wires = row.wires();
        for from in [0, 1] {
            eventually("packets pass again, of both cores", || {
                // Both cores are open again once two packets in a row have come.
                (0..2).all(|number| {
                    wires[from].send(&numbered(from, 9990 + number, 100)).expect("the wire takes it");
                    thread::sleep(Duration::from_millis(5));
                    wires[1 - from].take().expect("the wire is up").is_some()
                })
            });
        }
    }
    let (seen, counts, balance) = running.stop();
    // What was lost in sockets that were closed, and on the way to them.
    let lost: u64 = counts.iter().map(|count| count.ring_full + count.program.unclaimed).sum();
    let missing = agree(&seen);
    assert!(missing <= lost, "{missing} of {lost}: {counts:?}");
    assert!(balance.adds_up() && balance.free == balance.frames, "{balance:?}");
}

#[test]
fn a_core_that_stands_still_costs_packets_and_no_agreement() {
    let Some(row) = Row::new("seqslow", 1500) else { return };
    // Its history has 8,192 records, of which 1,024 stay free.
    let options = Options { frames: 256, ring_len: 128, burst: 16, ..both() };
    let middle = Arc::clone(&row.middle);
    let sent = 12_000;
    let (seen, counts) = middle.enter(|| {
        let mut port = XdpPort::new(Options { spread: Spread::Sequencer, ..options }).expect("the options are right");
        let monitor = port.monitor();
        let Opened::Sequenced(mut queues) = port.open(2).expect("the port opens") else { panic!("it was asked for") };
        let stop = AtomicBool::new(true);
        let second = queues.pop().expect("two cores");
        let first = queues.pop().expect("two cores");
        let wires = row.wires();
        let numbers = 0..sent;
        // No core runs yet.
        numbers.for_each(|number| drop(wires[0].send(&numbered(0, number, 100))));
        eventually("all have come", || {
            let counts = &monitor.counts()[0].program;
            counts.redirected + counts.history_full == sent
        });
        let seen = thread::scope(|scope| {
            let stop = &stop;
            let threads = [(0, first), (1, second)].map(|(core, own)| scope.spawn(move || follow(core, own, stop)));
            threads.map(|thread| thread.join().expect("it doesn't panic"))
        });
        (seen, monitor.counts())
    });
    let program = &counts[0].program;
    assert_eq!((program.redirected, program.history_full), (8192 - 1024, sent - (8192 - 1024)));
    let missing = agree(&seen);
    let received: usize = seen.iter().map(|one| one.own.len()).sum();
    assert_eq!((received as u64 + missing, missing), (program.redirected, counts[0].ring_full), "{counts:?}");
    assert_eq!(seen.iter().map(|one| one.lost.unsequenced).sum::<u64>(), program.history_full);
}
