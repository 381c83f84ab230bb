//! Three namespaces in a row, threads that serve a port in the middle one, and numbered packets.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_port_packet::{Monitor, Options, PacketPort};
use port::{Batch, Fate, Opened, Packet, Port, PortError, Queue, ReceiveLosses, Received, TransmitCounts};
use testkit::netns::{Namespace, Wire, missing};

/// How long anything may take. The machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Two hosts, and what is to stand between them.
pub(crate) struct Row {
    pub(crate) left: Arc<Namespace>,
    pub(crate) middle: Arc<Namespace>,
    pub(crate) right: Arc<Namespace>,
}

impl Row {
    /// Makes the namespaces and wires. `None`, with a line that says why, where that is not possible.
    pub(crate) fn new(label: &str) -> Option<Self> {
        if let Some(missing) = missing(&["ip", "ethtool"]) {
            // Once for all tests.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| eprintln!("SKIPPED (needs root / ip / ethtool: no {missing}): AF_PACKET on veth"));
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
        row.lay(0);
        row.lay(1);
        Some(row)
    }

    /// Lays the wire to the left or to the right host.
    pub(crate) fn lay(&self, side: usize) {
        let host = [&self.left, &self.right][side];
        self.middle.lay_wire(&format!("a{side}"), host, &format!("h{side}"), 1500).expect("the wire is laid");
    }

    /// Raw sockets at both hosts.
    pub(crate) fn wires(&self) -> [Wire; 2] {
        let open = |host: &Namespace, end: &str| host.enter(|| Wire::open(end)).expect("the end is there");
        [open(&self.left, "h0"), open(&self.right, "h1")]
    }

    /// Serves a port in the middle with a thread for each core.
    pub(crate) fn serve(&self, options: Options, cores: usize, fate: impl Judge) -> Server {
        serve(&self.middle, options, cores, fate)
    }
}

/// What becomes of a packet: by the core that has it, its descriptor and its bytes.
pub(crate) trait Judge: Fn(usize, &Packet, &[u8]) -> Fate + Send + Sync + 'static {}

impl<F: Fn(usize, &Packet, &[u8]) -> Fate + Send + Sync + 'static> Judge for F {}

/// Small rings for both interfaces in the middle.
pub(crate) fn both() -> Options {
    Options { blocks: 32, block_len: 32 << 10, ..Options::forward(["a0", "a1"]) }
}

/// A small ring for a tap.
pub(crate) fn tap(name: &str) -> Options {
    Options { blocks: 32, block_len: 32 << 10, ..Options::observe([name]) }
}

pub(crate) fn across(_: usize, packet: &Packet, _: &[u8]) -> Fate {
    Fate::Transmit(packet.interface ^ 1)
}

/// Threads that serve the queues of a port.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Outcome>>>,
    pub(crate) monitor: Monitor,
}

/// What a queue has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) received: u64,
    /// Names of interfaces that were reported down.
    pub(crate) down: Vec<String>,
    pub(crate) lost: ReceiveLosses,
    pub(crate) sent: Option<TransmitCounts>,
}

/// Serves a port in a namespace with a thread for each core.
pub(crate) fn serve(namespace: &Arc<Namespace>, options: Options, cores: usize, fate: impl Judge) -> Server {
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let (namespace, stopped) = (Arc::clone(namespace), Arc::clone(&stop));
    let thread = thread::spawn(move || {
        namespace.enter(|| {
            let mut port = PacketPort::new(options).expect("the options are right");
            let monitor = port.monitor();
            let queues = match port.open(cores).expect("the port can be opened") {
                Opened::Queues(queues) => queues,
                Opened::Stream(stream) => vec![Box::new(stream) as Box<dyn Queue>],
            };
            ready.send(monitor).expect("the test waits");
            let (stopped, fate, step) = (&*stopped, &fate, queues.len() as u64);
            thread::scope(|scope| {
                let serve = |(core, queue)| scope.spawn(move || run(queue, core, step, stopped, fate));
                let threads: Vec<_> =
                    queues.into_iter().enumerate().map(|(core, queue)| serve((core, queue))).collect();
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

impl Server {
    /// Lets the queues take what has arrived, and ends them. Returns what each core has done.
    pub(crate) fn stop(mut self) -> Vec<Outcome> {
        // ORDERING: Relaxed. A late look does no harm; pairs with `run`.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().expect("it doesn't panic")
    }

    /// Packets that the port has handed on, of all interfaces.
    pub(crate) fn received(&self) -> u64 {
        self.monitor.counts().iter().map(|counts| counts.received).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // ORDERING: Relaxed. As in `stop`.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut queue: Box<dyn Queue + '_>, core: usize, step: u64, stop: &AtomicBool, fate: &impl Judge) -> Outcome {
    let (mut batch, mut outcome) = (Batch::default(), Outcome::default());
    let mut last: Option<Packet> = None;
    let mut ended: Option<Instant> = None;
    loop {
        match queue.receive(&mut batch) {
            Ok(Received::Packets) => {
                outcome.received += batch.len() as u64;
                for (packet, bytes) in batch.frames(0..batch.len()) {
                    assert_eq!(
                        packet.seq.0,
                        last.map_or(core as u64, |last| last.seq.0 + step),
                        "numbers have no gaps"
                    );
                    assert!(last.is_none_or(|last| last.time <= packet.time), "times never fall");
                    last = Some(*packet);
                    packet.fate = fate(core, packet, bytes);
                }
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
        // ORDERING: Relaxed. Pairs with `Server::stop`.
        if stop.load(Ordering::Relaxed) {
            // What has arrived lies in a block that the kernel hands over within milliseconds.
            if ended.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(100) {
                break;
            }
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

/// The side and number of a packet that `numbered` made, if it is whole.
pub(crate) fn number(frame: &[u8]) -> Option<(usize, u64)> {
    let side = usize::from(*frame.get(35)?);
    let number = u64::from_be_bytes(*frame.get(42..50)?.first_chunk()?);
    (frame == numbered(side.min(1), number, frame.len())).then_some((side, number))
}

/// Sends numbered packets from these sides, never more than a window ahead of what arrives at the other one, until all have arrived. Returns
/// how often each came, by side where it arrived.
///
/// # Panics
/// Packets are missing after a long time.
pub(crate) fn exchange(wires: &[Wire; 2], from: &[usize], len: usize, total: u64) -> [BTreeMap<u64, u64>; 2] {
    const WINDOW: u64 = 64;
    let mut arrived = [BTreeMap::new(), BTreeMap::new()];
    let (mut sent, mut count) = ([0; 2], [0; 2]);
    let end = Instant::now() + LONG;
    loop {
        for side in from {
            while sent[*side] < total && sent[*side] < count[side ^ 1] + WINDOW {
                wires[*side].send(&numbered(*side, sent[*side], len)).expect("the wire takes it");
                sent[*side] += 1;
            }
        }
        for (side, wire) in wires.iter().enumerate() {
            while let Some(frame) = wire.take().expect("the wire is up") {
                let (from, number) =
                    number(&frame).unwrap_or_else(|| panic!("a damaged packet: {:02x?}", &frame[..60]));
                assert_eq!(from, side ^ 1, "it comes from the other side");
                *arrived[side].entry(number).or_default() += 1;
                count[side] += 1;
            }
        }
        if from.iter().all(|side| count[side ^ 1] >= total) {
            return arrived;
        }
        assert!(Instant::now() < end, "{count:?} of {total} packets have arrived");
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
