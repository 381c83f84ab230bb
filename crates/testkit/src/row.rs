//! Two hosts with a port between them: three network namespaces in a row, threads that serve the port in the middle one, and numbered
//! packets.
//!
//! ```text
//! left [h0] --- [a0] middle [a1] --- [h1] right
//! ```
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use port::{Batch, Opened, Port, PortError, Queue, ReceiveLosses, Received, TransmitCounts};

use crate::netns::{Namespace, Wire, missing};

/// Time limit of anything in these tests. The machine may be busy.
pub const LONG: Duration = Duration::from_secs(20);

/// Two hosts, and what is to stand between them.
#[derive(Debug)]
pub struct Row {
    /// The host at `h0`.
    pub left: Arc<Namespace>,
    /// The namespace of `a0` and `a1`.
    pub middle: Arc<Namespace>,
    /// The host at `h1`.
    pub right: Arc<Namespace>,
}

impl Row {
    /// Makes the namespaces and wires. `None`, with a line that says why, where that is not possible.
    ///
    /// # Panics
    /// The kernel refuses what root may do.
    #[must_use]
    pub fn new(label: &str, mtu: u32) -> Option<Self> {
        if let Some(missing) = missing(&["ip", "ethtool"]) {
            // Once for all tests.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| eprintln!("SKIPPED (needs root / ip / ethtool: no {missing}): live interfaces on veth"));
            return None;
        }
        let make = |side: &str| {
            let namespace = Namespace::new(&format!("{label}-{side}")).expect("root may");
            namespace.enter(|| {
                // Its hosts send nothing of their own.
                let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
                let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            });
            Arc::new(namespace)
        };
        let row = Self { left: make("l"), middle: make("m"), right: make("r") };
        row.lay(0, mtu);
        row.lay(1, mtu);
        Some(row)
    }

    /// Lays the wire to the left (0) or to the right host (1).
    ///
    /// # Panics
    /// There is one.
    pub fn lay(&self, side: usize, mtu: u32) {
        let host = [&self.left, &self.right][side];
        let (near, far) = (format!("a{side}"), format!("h{side}"));
        self.middle.lay_wire(&near, host, &far, mtu).expect("the wire is laid");
    }

    /// Raw sockets at both hosts.
    ///
    /// # Panics
    /// An end is missing.
    #[must_use]
    pub fn wires(&self) -> [Wire; 2] {
        let open = |host: &Namespace, end: &str| host.enter(|| Wire::open(end)).expect("the end is there");
        [open(&self.left, "h0"), open(&self.right, "h1")]
    }

    /// Gives both hosts an address: 10.9.0.1 on the left and 10.9.0.2 on the right.
    ///
    /// # Panics
    /// They have them.
    pub fn address(&self) {
        self.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
        self.right.ip(&["addr", "add", "10.9.0.2/24", "dev", "h1"]).expect("the end is there");
    }
}

/// A core's part of a test: it sets the fates of a batch.
pub type Judge = Box<dyn FnMut(&mut Batch) + Send>;

/// Threads that serve the queues of a port. They are stopped on drop.
#[derive(Debug)]
pub struct Server<M> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Outcome>>>,
    /// The port's monitor.
    pub monitor: M,
}

/// The outcome of a queue.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Packets received.
    pub received: u64,
    /// Names of interfaces that were reported down.
    pub down: Vec<String>,
    /// Packets lost before the queue.
    pub lost: ReceiveLosses,
    /// Packets sent, if the queue counts them.
    pub sent: Option<TransmitCounts>,
}

/// Opens a port in a namespace, and serves it with a thread for each judge. Told to stop, a queue goes on until nothing has arrived for
/// `linger`.
///
/// # Panics
/// The port doesn't open.
pub fn serve<P: Port, M: Send + 'static>(
    namespace: &Arc<Namespace>,
    linger: Duration,
    judges: Vec<Judge>,
    make: impl FnOnce() -> (P, M) + Send + 'static,
) -> Server<M> {
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let (namespace, stopped) = (Arc::clone(namespace), Arc::clone(&stop));
    let thread = thread::spawn(move || {
        namespace.enter(|| {
            let (mut port, monitor) = make();
            let queues = match port.open(judges.len()).expect("the port can be opened") {
                Opened::Queues(queues) => queues,
                Opened::Stream(stream) => vec![Box::new(stream) as Box<dyn Queue>],
                Opened::Sequenced(_) => unreachable!("a sequencer was not asked for"),
            };
            ready.send(monitor).expect("the test waits");
            let (stopped, step) = (&*stopped, queues.len() as u64);
            thread::scope(|scope| {
                let cores = queues.into_iter().zip(judges).enumerate();
                let serve = |(core, (queue, judge))| {
                    scope.spawn(move || run(queue, (core as u64, step), stopped, linger, judge))
                };
                let threads: Vec<_> = cores.map(serve).collect();
                threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect()
            })
        })
    });
    let monitor = match is_ready.recv_timeout(LONG) {
        Ok(monitor) => monitor,
        Err(_) => panic!("the port doesn't open: {:?}", thread.join().map(|_| ())),
    };
    Server { stop, thread: Some(thread), monitor }
}

impl<M> Server<M> {
    /// Lets the queues take what has arrived, and ends them. Returns what each core has done.
    ///
    /// # Panics
    /// A core has panicked.
    pub fn stop(mut self) -> Vec<Outcome> {
        // ORDERING: Relaxed. A late look does no harm; pairs with `run`.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().expect("it doesn't panic")
    }
}

impl<M> Drop for Server<M> {
    fn drop(&mut self) {
        // ORDERING: Relaxed. As in `stop`.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut queue: Box<dyn Queue + '_>,
    (first, step): (u64, u64),
    stop: &AtomicBool,
    linger: Duration,
    mut judge: Judge,
) -> Outcome {
    let (mut batch, mut outcome) = (Batch::default(), Outcome::default());
    let (mut next, mut time) = (first, None);
    let mut ended: Option<Instant> = None;
    loop {
        // ORDERING: Relaxed. Pairs with `Server::stop`. What has arrived before is still received.
        let stops = stop.load(Ordering::Relaxed);
        match queue.receive(&mut batch) {
            Ok(Received::Packets) => {
                outcome.received += batch.len() as u64;
                for packet in batch.packets() {
                    assert_eq!(packet.seq.0, next, "numbers have no gaps");
                    assert!(time.is_none_or(|time| time <= packet.time), "times never fall");
                    (next, time) = (next + step, Some(packet.time));
                }
                judge(&mut batch);
                queue.transmit(&mut batch).expect("transmit counts what is lost");
                continue;
            }
            Ok(Received::Idle) => {}
            Err(PortError::Down(name)) => {
                if !outcome.down.contains(&name) {
                    outcome.down.push(name);
                }
            }
            other => panic!("a live port has no end: {other:?}"),
        }
        if stops && ended.get_or_insert_with(Instant::now).elapsed() >= linger {
            break;
        }
        queue.flush().expect("as transmit");
        queue.wait(Duration::from_millis(20)).expect("a poll");
    }
    batch.clear();
    queue.finish().expect("as transmit");
    (outcome.lost, outcome.sent) = (queue.lost(), queue.sent());
    outcome
}

/// A UDP packet of `len` bytes from one side to the other, with a number.
///
/// # Panics
/// It has less than 50 bytes.
#[must_use]
pub fn numbered(side: usize, number: u64, len: usize) -> Vec<u8> {
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

/// The side and number of a packet that [`numbered`] made, if it is whole.
#[must_use]
pub fn number(frame: &[u8]) -> Option<(usize, u64)> {
    let side = usize::from(*frame.get(35)?);
    let number = u64::from_be_bytes(*frame.get(42..50)?.first_chunk()?);
    (frame == numbered(side.min(1), number, frame.len())).then_some((side, number))
}

/// The copies that arrive at `side` of a packet `from` a side, where packets go across.
#[must_use]
pub fn crossing(side: usize, from: usize) -> u64 {
    u64::from(side != from)
}

/// Sends numbered packets from every side, never more than `window` ahead of what arrives, until all have arrived where `sides` says: the
/// side that packets come from, and the number of copies that arrive at each side. Returns what arrived, by side, as number and count.
///
/// # Panics
/// Packets are missing after a long time.
pub fn exchange(
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

/// Asks again until it is true, for a [long](LONG) time at most.
///
/// # Panics
/// It is not true by then.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_true() {
        assert!(Instant::now() < end, "{what}: not within {LONG:?}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Binds a socket, and tries again while the address is in use, for a [long](LONG) time at most: a process that another test is just
/// forking may still have the socket that had the address before.
///
/// # Panics
/// The address can't be had.
pub fn bound<T>(mut bind: impl FnMut() -> io::Result<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::park_timeout(Duration::from_millis(5));
            }
            socket => return socket.expect("the address is there"),
        }
    }
}
