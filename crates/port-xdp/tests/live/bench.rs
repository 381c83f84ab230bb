//! Three namespaces in a row, a thread that forwards in the middle one, and numbered packets.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_port_xdp::{Balance, Monitor, Options, XdpPort};
use port::{Batch, Fate, Opened, Port, PortError, Queue, ReceiveLosses, Received, TransmitCounts};
use testkit::netns::{Namespace, Wire, missing};

/// How long anything may take. The machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Two hosts, and what is to stand between them.
pub(crate) struct Row {
    pub(crate) left: Namespace,
    pub(crate) middle: Arc<Namespace>,
    pub(crate) right: Namespace,
}

impl Row {
    /// Makes the namespaces and wires. `None`, with a line that says why, where that is not possible.
    pub(crate) fn new(label: &str, mtu: u32) -> Option<Self> {
        if let Some(missing) = missing(&["ip", "ethtool"]) {
            // Once for all tests.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| eprintln!("SKIPPED (needs root / ip / ethtool: no {missing}): AF_XDP on veth"));
            return None;
        }
        let make = |side: &str| {
            let namespace = Namespace::new(&format!("{label}-{side}")).expect("root may");
            namespace.enter(|| {
                // Its hosts send nothing of their own.
                let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
                let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            });
            namespace
        };
        let row = Self { left: make("l"), middle: Arc::new(make("m")), right: make("r") };
        row.lay(0, mtu);
        row.lay(1, mtu);
        Some(row)
    }

    /// Lays the wire to the left or to the right host.
    pub(crate) fn lay(&self, side: usize, mtu: u32) {
        let host = [&self.left, &self.right][side];
        let (near, far) = (format!("a{side}"), format!("h{side}"));
        self.middle.lay_wire(&near, host, &far, mtu).expect("the wire is laid");
    }

    /// Raw sockets at both hosts.
    pub(crate) fn wires(&self) -> [Wire; 2] {
        let open = |host: &Namespace, end: &str| host.enter(|| Wire::open(end)).expect("the end is there");
        [open(&self.left, "h0"), open(&self.right, "h1")]
    }

    /// Gives both hosts an address: 10.9.0.1 on the left and 10.9.0.2 on the right.
    pub(crate) fn address(&self) {
        self.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
        self.right.ip(&["addr", "add", "10.9.0.2/24", "dev", "h1"]).expect("the end is there");
    }

    pub(crate) fn forward(&self, options: Options, fate: fn(u64, u16) -> Fate) -> Forwarder {
        self.work(options, move |batch| {
            for packet in batch.packets_mut() {
                packet.fate = fate(packet.seq.0, packet.interface);
            }
        })
    }

    /// Runs a queue of a port in the middle, with `work` on every batch.
    pub(crate) fn work(&self, options: Options, work: impl FnMut(&mut Batch) + Send + 'static) -> Forwarder {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let (middle, stopped) = (Arc::clone(&self.middle), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            middle.enter(|| {
                let mut port = XdpPort::new(options).expect("the options are right");
                let monitor = port.monitor();
                let queues = match port.open(1).expect("the port can be opened") {
                    Opened::Queues(queues) => queues,
                    Opened::Stream(stream) => vec![Box::new(stream) as Box<dyn Queue>],
                };
                ready.send(monitor.clone()).expect("the test waits");
                serve(queues.into_iter().next().expect("one core"), &stopped, work, &monitor)
            })
        });
        let monitor = match is_ready.recv_timeout(LONG) {
            Ok(monitor) => monitor,
            Err(_) => panic!("the port doesn't open: {:?}", thread.join().map(|_| ())),
        };
        Forwarder { stop, thread: Some(thread), monitor }
    }
}

/// The options for both interfaces in the middle.
pub(crate) fn both() -> Options {
    Options { frames: 1024, ring_len: 512, ..Options::new(["a0", "a1"]) }
}

pub(crate) fn across(_: u64, interface: u16) -> Fate {
    Fate::Transmit(interface ^ 1)
}

/// A thread that serves a queue.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Outcome>>,
    pub(crate) monitor: Monitor,
}

/// What a queue has done.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) received: u64,
    /// Names of interfaces that were reported down.
    pub(crate) down: Vec<String>,
    pub(crate) lost: ReceiveLosses,
    pub(crate) sent: TransmitCounts,
    /// After all has been given back.
    pub(crate) balance: Balance,
}

impl Forwarder {
    pub(crate) fn stop(mut self) -> Outcome {
        // ORDERING: Relaxed. A late look does no harm; pairs with `serve`.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().expect("it doesn't panic")
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // ORDERING: Relaxed. As in `stop`.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    mut queue: Box<dyn Queue + '_>,
    stop: &AtomicBool,
    mut work: impl FnMut(&mut Batch),
    monitor: &Monitor,
) -> Outcome {
    let mut batch = Batch::default();
    let (mut received, mut down, mut last) = (0, Vec::new(), None);
    loop {
        // ORDERING: Relaxed. Pairs with `Forwarder::stop`. What has arrived before is still received.
        let stops = stop.load(Ordering::Relaxed);
        match queue.receive(&mut batch) {
            Ok(Received::Packets) => {
                for packet in batch.packets() {
                    assert!(last.is_none_or(|(seq, time)| seq < packet.seq && time <= packet.time), "in order");
                    last = Some((packet.seq, packet.time));
                }
                received += batch.len() as u64;
                work(&mut batch);
                queue.transmit(&mut batch).expect("transmit counts what is lost");
            }
            Ok(Received::Idle) | Err(PortError::Down(_)) if stops => break,
            Ok(Received::Idle) => {
                queue.flush().expect("as transmit");
                queue.wait(Duration::from_millis(20)).expect("a poll");
            }
            Err(PortError::Down(name)) => {
                if !down.contains(&name) {
                    down.push(name);
                }
                queue.wait(Duration::from_millis(5)).expect("a poll");
            }
            other => panic!("a live port has no end: {other:?}"),
        }
    }
    batch.clear();
    queue.finish().expect("as transmit");
    let (lost, sent) = (queue.lost(), queue.sent().expect("it counts"));
    drop(queue);
    Outcome { received, down, lost, sent, balance: monitor.balances()[0] }
}

/// A UDP packet of `len` bytes from one side to the other, with a number.
pub(crate) fn numbered(side: usize, number: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![0_u8; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 9, 2 - side as u8]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 1 + side as u8]);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&[10, 9, 0, 1 + side as u8]);
    frame[30..34].copy_from_slice(&[10, 9, 0, 2 - side as u8]);
    frame[34..38].copy_from_slice(&[0x30, side as u8, 0x40, (number % 64) as u8]);
    frame[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    // Every byte depends on the number, so that a mixture of two packets is found.
    for (at, byte) in frame[50..].iter_mut().enumerate() {
        *byte = number.wrapping_mul(31).wrapping_add(at as u64 * 7) as u8;
    }
    frame
}

/// The number of a packet that `numbered` made, if it is whole.
pub(crate) fn number(frame: &[u8]) -> Option<(usize, u64)> {
    let side = usize::from(*frame.get(35)?);
    let number = u64::from_be_bytes(*frame.get(42..50)?.first_chunk()?);
    (frame == numbered(side.min(1), number, frame.len())).then_some((side, number))
}

/// Sends numbered packets from every side, never more than `window` ahead of what arrives, until all have arrived where `sides` says: the
/// side that packets come from, and the number of copies that arrive at each side. Returns what arrived, by side, as number and count.
///
/// # Panics
/// Packets are missing after a long time.
pub(crate) fn exchange(
    wires: &[Wire; 2],
    from: &[usize],
    len: usize,
    total: u64,
    arrives: fn(side: usize, from: usize) -> u64,
) -> [BTreeMap<(usize, u64), u64>; 2] {
    const WINDOW: u64 = 64;
    let mut arrived = [BTreeMap::new(), BTreeMap::new()];
    let mut sent = [0, 0];
    let end = Instant::now() + LONG;
    let copies: u64 = from.iter().map(|from| (0..2).map(|side| arrives(side, *from)).sum::<u64>()).sum();
    let mut count = 0;
    loop {
        for side in from {
            // As many as have come on the average.
            let behind = count / copies.max(1);
            while sent[*side] < total && sent[*side] < behind + WINDOW {
                wires[*side].send(&numbered(*side, sent[*side], len)).expect("the wire takes it");
                sent[*side] += 1;
            }
        }
        for (side, wire) in wires.iter().enumerate() {
            while let Some(frame) = wire.take().expect("the wire is up") {
                let number = number(&frame).unwrap_or_else(|| panic!("a damaged packet: {:02x?}", &frame[..60]));
                // Others were sent before.
                if number.1 < total {
                    *arrived[side].entry(number).or_default() += 1;
                    count += 1;
                }
            }
        }
        if count >= total * copies && from.iter().all(|side| sent[*side] == total) {
            return arrived;
        }
        assert!(Instant::now() < end, "{count} of {} packets have arrived", total * copies);
        Wire::wait(&[&wires[0], &wires[1]], Instant::now() + Duration::from_millis(20)).expect("a poll");
    }
}

/// Asks again until it is true, for a long time at most.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_true() {
        assert!(Instant::now() < end, "{what}: not within {LONG:?}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// The processors that this process may use.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: zeroes are a valid set, and its length is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Keeps this thread on a processor.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: zeroes are a valid set, and its length is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
