use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::{FiveTuple, LinkType};
use proptest::prelude::*;

use super::judge::{Judged, hosts, judge};
use super::*;
use crate::batch::Fate;
use crate::memory::{MemoryPort, MemoryQueue, Trace};

const UDP: u8 = 17;
const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A packet between two of a few hosts.
#[derive(Clone, Copy, Debug)]
struct Sketch {
    time: u64,
    from: u8,
    to: u8,
    ports: (u16, u16),
    kind: Kind,
    payload: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp {
        tos: u8,
    },
    Tcp {
        flags: u8,
    },
    /// Not the first fragment.
    Fragment,
    /// An echo request.
    Echo,
    /// An ICMP error about a UDP packet of these ports in the other direction.
    Error,
    Arp,
}

fn ipv4(from: u8, to: u8, protocol: u8, tos: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = 20 + payload.len() as u16;
    let mut bytes = vec![0x45, tos];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 7]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    bytes.extend_from_slice(payload);
    bytes
}

fn udp((from, to): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    [from, to, len, 0].iter().flat_map(|word| word.to_be_bytes()).chain(payload.iter().copied()).collect()
}

impl Sketch {
    /// The frame; its number is in the Ethernet addresses.
    fn frame(&self, number: u64) -> Vec<u8> {
        let Self { from, to, ports, kind, payload, .. } = *self;
        let data = vec![number as u8; payload];
        let mut frame = vec![0; 4];
        frame.extend(number.to_be_bytes());
        let ip = match kind {
            Kind::Udp { tos } => ipv4(from, to, UDP, tos, 0, &udp(ports, &data)),
            Kind::Tcp { flags } => {
                let mut tcp = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
                tcp.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
                tcp.extend(data);
                ipv4(from, to, TCP, 0, 0, &tcp)
            }
            Kind::Fragment => ipv4(from, to, UDP, 0, 5, &[0; 16]),
            Kind::Echo => ipv4(from, to, 1, 0, 0, &[8, 0, 0, 0, 0, 9, 0, 1]),
            Kind::Error => {
                let quoted = ipv4(to, from, UDP, 0, 0, &udp((ports.1, ports.0), &[]));
                ipv4(from, to, 1, 0, 0, &[&[3, 3, 0, 0, 0, 0, 0, 0], quoted.as_slice()].concat())
            }
            Kind::Arp => vec![0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        };
        frame.extend(if matches!(kind, Kind::Arp) { [8, 6] } else { [8, 0] });
        frame.extend(ip);
        frame
    }

    fn udp(time: u64, flow: u16) -> Self {
        Self { time, from: 1, to: 2, ports: (flow, 9), kind: Kind::Udp { tos: 0 }, payload: 10 }
    }

    const fn with(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

fn descriptor(seq: u64, time: u64, wire_len: usize) -> Packet {
    Packet {
        seq: Seq(seq),
        time: Nanos(time),
        offset: 0,
        len: 0,
        wire_len: wire_len as u32,
        interface: 0,
        link: LinkType::Ethernet,
        bucket: 3,
        fate: Fate::Pending,
    }
}

fn trace(sketches: &[Sketch]) -> Arc<Trace> {
    let mut trace = Trace::new();
    for (number, sketch) in sketches.iter().enumerate() {
        let frame = sketch.frame(number as u64);
        trace.push(descriptor(number as u64, sketch.time, frame.len()), &frame);
    }
    Arc::new(trace)
}

/// A packet that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    /// Its number in the trace, as its bytes tell.
    number: u64,
    time: u64,
}

/// All that comes out of a queue; checks numbers, times and bytes.
fn drain(queue: &mut impl Receive, trace: &Trace, step: u64) -> Vec<Left> {
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    let mut next: Option<u64> = None;
    loop {
        match queue.receive(&mut batch).expect("memory is there") {
            Received::Packets => assert!(!batch.is_empty()),
            Received::Idle => continue,
            Received::End => break,
        }
        for (packet, bytes) in batch.each(0..batch.len()) {
            let number = u64::from_be_bytes(bytes[4..12].try_into().expect("eight bytes"));
            assert_eq!(bytes, trace.bytes(number as usize));
            let original = &trace.packets()[number as usize];
            assert_eq!((packet.wire_len, packet.bucket, packet.fate), (original.wire_len, 3, Fate::Pending));
            assert!(next.is_none_or(|next| next == packet.seq.0), "no gaps");
            next = Some(packet.seq.0 + step);
            all.push(Left { number, time: packet.time.0 });
        }
    }
    assert!(all.windows(2).all(|pair| pair[0].time <= pair[1].time), "times never fall");
    all
}

fn run(sketches: &[Sketch], delay: u64, limits: ReorderLimits, burst: usize) -> (Vec<Left>, ReorderCounts) {
    let trace = trace(sketches);
    let mut queue = ReorderedQueue::new(MemoryQueue::new(Arc::clone(&trace), burst), Nanos(delay), limits);
    let left = drain(&mut queue, &trace, 1);
    (left, queue.counts())
}

/// The same with an ARP packet behind each packet, so that none follows another of its connection directly. They are left out of what comes
/// out.
fn run_apart(sketches: &[Sketch], delay: u64, limits: ReorderLimits, burst: usize) -> (Vec<Left>, ReorderCounts) {
    let apart: Vec<_> = sketches.iter().flat_map(|sketch| [*sketch, sketch.with(Kind::Arp)]).collect();
    let (left, counts) = run(&apart, delay, limits, burst);
    let left = left.into_iter().filter(|left| left.number % 2 == 0);
    (left.map(|left| Left { number: left.number / 2, ..left }).collect(), counts)
}

fn times(left: &[Left]) -> Vec<u64> {
    left.iter().map(|left| left.time).collect()
}

fn numbers(left: &[Left]) -> Vec<u64> {
    left.iter().map(|left| left.number).collect()
}

#[test]
fn later_packets_of_a_connection_leave_together() {
    // Two flows in turn, every 10 ns.
    let sketches: Vec<_> = (0..8).map(|number| Sketch::udp(number * 10, 1 + number as u16 % 2)).collect();
    let (left, counts) = run(&sketches, 35, ReorderLimits::default(), 3);
    // The first of both at once, with 3 and 5 that follow directly; 2 and 4 by time 20 + 35, with 6 right behind them.
    let expected = [(0, 0), (1, 10), (3, 30), (5, 50), (2, 55), (4, 55), (6, 60), (7, 70)];
    assert_eq!(left, expected.map(|(number, time)| Left { number, time }));
    assert_eq!(counts.unheld().collect::<Vec<_>>(), [(Unheld::First, 2), (Unheld::Follows, 3)]);
    assert_eq!(counts.released().collect::<Vec<_>>(), [(Release::Delay, 2), (Release::End, 1)]);
    assert_eq!((counts.received, counts.held(), counts.bursts, counts.burst_max, counts.left), (8, 3, 2, 2, 0));
    assert_eq!((counts.held_ns, counts.held_ns_max), (35 + 15, 35));
    assert_eq!((counts.runs_before, counts.runs_after), (8, 4));
}

#[test]
fn a_quiet_connection_is_new_again() {
    // The third comes when the delay has passed since the second left.
    let at = [0, 10, 81, 100];
    let (left, counts) = run_apart(&at.map(|time| Sketch::udp(time, 1)), 35, ReorderLimits::default(), 32);
    assert_eq!(times(&left), [0, 45, 81, 100]);
    assert_eq!(counts.unheld().collect::<Vec<_>>(), [(Unheld::First, 2), (Unheld::NoConnection, 4)]);
    let sketches = [0, 10, 79].map(|time| Sketch::udp(time, 1));
    let (left, counts) = run_apart(&sketches, 35, ReorderLimits::default(), 32);
    assert_eq!(times(&left), [0, 45, 79]);
    assert_eq!(counts.released().collect::<Vec<_>>(), [(Release::Delay, 1)], "the last follows what was released");
}

#[test]
fn what_is_together_is_not_held() {
    let sketches = [0, 10, 20].map(|time| Sketch::udp(time, 1));
    let (left, counts) = run(&sketches, 35, ReorderLimits::default(), 32);
    assert_eq!(times(&left), [0, 10, 20]);
    assert_eq!(counts.unheld().collect::<Vec<_>>(), [(Unheld::First, 1), (Unheld::Follows, 2)]);
}

#[test]
fn a_full_burst_leaves_at_once() {
    let sketches: Vec<_> = (0..5).map(|time| Sketch::udp(time, 1)).collect();
    let limits = ReorderLimits { burst: 2, ..ReorderLimits::default() };
    let (left, counts) = run_apart(&sketches, 1_000, limits, 1);
    assert_eq!(times(&left), [0, 2, 2, 4, 4]);
    assert_eq!(counts.released().collect::<Vec<_>>(), [(Release::FullBurst, 4)]);
}

#[test]
fn what_is_not_held_overtakes_nothing_of_its_connection() {
    let data = |time| Sketch { ports: (5, 6), ..Sketch::udp(time, 5) };
    let (syn, ack) = (Kind::Tcp { flags: SYN }, Kind::Tcp { flags: ACK });
    let back = |sketch: Sketch| Sketch { from: 2, to: 1, ports: (6, 5), ..sketch };
    for (kind, payload, reason) in [
        (Kind::Udp { tos: 46 << 2 }, 10, Unheld::Priority),
        (Kind::Error, 0, Unheld::Icmp),
        (Kind::Fragment, 0, Unheld::Fragment),
    ] {
        for turn in [false, true] {
            let last = Sketch { payload, ..data(30).with(kind) };
            let last = if turn { back(last) } else { last };
            let (left, counts) = run_apart(&[data(0), data(10), last], 100, ReorderLimits::default(), 32);
            assert_eq!((numbers(&left), times(&left)), (vec![0, 1, 2], vec![0, 30, 30]), "{kind:?}");
            assert!(counts.unheld().any(|one| one == (reason, 1)), "{kind:?}");
            assert_eq!(counts.released().collect::<Vec<_>>(), [(Release::Order, 1)]);
        }
    }
    for (kind, reason) in [(syn, Unheld::TcpControl), (ack, Unheld::Acknowledgement)] {
        let data = |time| data(time).with(Kind::Tcp { flags: ACK });
        let last = back(Sketch { payload: 0, ..data(30).with(kind) });
        let (left, counts) = run_apart(&[data(0), data(10), last, data(40)], 100, ReorderLimits::default(), 32);
        assert_eq!((numbers(&left), left[1].time), (vec![0, 1, 2, 3], 30));
        assert!(counts.unheld().any(|one| one == (reason, 1)), "{counts:?}");
    }
    // Of other connections they do.
    for kind in [Kind::Echo, Kind::Arp] {
        let (left, _) = run_apart(&[data(0), data(10), data(30).with(kind)], 100, ReorderLimits::default(), 32);
        assert_eq!(numbers(&left), [0, 2, 1], "{kind:?}");
    }
    let other = Sketch { from: 3, ..data(30).with(Kind::Fragment) };
    let (left, _) = run_apart(&[data(0), data(10), other], 100, ReorderLimits::default(), 32);
    assert_eq!(numbers(&left), [0, 2, 1]);
}

#[test]
fn the_oldest_leave_if_there_is_no_room() {
    let sketch = |number: u64| Sketch::udp(number, (number % 4) as u16);
    let sketches: Vec<_> = (0..12).map(sketch).collect();
    let limits = ReorderLimits { packets: 3, ..ReorderLimits::default() };
    let (left, counts) = run(&sketches, 1_000, limits, 5);
    // 4, 5 and 6 are held, and 7 follows 3. For 8 leaves 4, which 8 then follows; for 10 leave 5 and 9.
    assert_eq!(numbers(&left), [0, 1, 2, 3, 7, 4, 8, 5, 9, 6, 10, 11]);
    assert_eq!(counts.released().collect::<Vec<_>>(), [(Release::Limit, 3), (Release::End, 3)]);
    let limits = ReorderLimits { bytes: 2 * PIECE, ..ReorderLimits::default() };
    let (_, counts) = run(&sketches, 1_000, limits, 5);
    assert_eq!(counts.released().collect::<Vec<_>>(), [(Release::Limit, 6), (Release::End, 2)]);
    // With room for two connections, each is new again and again.
    let limits = ReorderLimits { connections: 2, ..ReorderLimits::default() };
    let (left, counts) = run(&sketches, 1_000, limits, 5);
    assert_eq!(numbers(&left), (0..12).collect::<Vec<_>>());
    assert_eq!(counts.unheld().collect::<Vec<_>>(), [(Unheld::First, 12)]);
    // A packet that never has room.
    let long = Sketch { payload: 2 * PIECE, ..sketch(2) };
    let limits = ReorderLimits { bytes: PIECE, ..ReorderLimits::default() };
    let long = Sketch { time: 5, ports: (0, 9), ..long };
    let (left, counts) = run_apart(&[sketch(0), sketch(0), long], 1_000, limits, 5);
    assert_eq!((numbers(&left), left[1].time), (vec![0, 1, 2], 5));
    assert!(counts.unheld().any(|(why, count)| why == Unheld::TooLong && count == 1));
}

/// A queue whose packets come by a clock that the test sets.
struct Clocked {
    packets: VecDeque<(Packet, Vec<u8>)>,
    now: Arc<AtomicU64>,
    waited: Arc<AtomicU64>,
}

impl Receive for Clocked {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let now = Nanos(self.now.load(Ordering::Relaxed));
        while let Some((packet, bytes)) = self.packets.pop_front_if(|(packet, _)| packet.time <= now) {
            batch.push(packet, &bytes);
        }
        Ok(if batch.is_empty() { Received::Idle } else { Received::Packets })
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        self.waited.store(at_most.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn now(&self) -> Option<Nanos> {
        Some(Nanos(self.now.load(Ordering::Relaxed)))
    }

    fn lost(&self) -> ReceiveLosses {
        ReceiveLosses { ring_full: 7, ..ReceiveLosses::default() }
    }
}

#[test]
fn a_clock_releases_packets_while_none_come() {
    let (now, waited) = (Arc::new(AtomicU64::new(20)), Arc::new(AtomicU64::new(0)));
    let frames = [0, 5, 10, 20].map(|time| {
        let sketch = Sketch::udp(time, 1);
        (time, if time == 5 { sketch.with(Kind::Arp) } else { sketch }.frame(time))
    });
    let packets = frames.into_iter().enumerate();
    let packets = packets.map(|(seq, (time, frame))| (descriptor(seq as u64, time, frame.len()), frame)).collect();
    let clocked = Clocked { packets, now: Arc::clone(&now), waited: Arc::clone(&waited) };
    let mut queue = ReorderedQueue::new(clocked, Nanos(100), ReorderLimits::default());
    let (mut batch, long) = (Batch::default(), Duration::from_secs(1));
    assert_eq!(queue.lost().ring_full, 7);
    assert_eq!(queue.receive(&mut batch).unwrap(), Received::Packets);
    assert_eq!((batch.len(), queue.counts().left), (2, 2));
    assert_eq!(queue.receive(&mut batch).unwrap(), Received::Idle);
    queue.wait(long).unwrap();
    assert_eq!(waited.load(Ordering::Relaxed), 90, "from 20 to 110");
    queue.wait(Duration::from_nanos(5)).unwrap();
    assert_eq!(waited.load(Ordering::Relaxed), 5);
    // The clock has gone on since the last call, but held packets come with an earlier time.
    now.store(150, Ordering::Relaxed);
    assert_eq!(queue.now(), Some(Nanos(110)));
    queue.wait(long).unwrap();
    assert_eq!(waited.load(Ordering::Relaxed), 5, "there is nothing to wait for");
    assert_eq!(queue.receive(&mut batch).unwrap(), Received::Packets);
    let left: Vec<_> = batch.packets().iter().map(|packet| (packet.seq.0, packet.time.0)).collect();
    assert_eq!((left, queue.now()), (vec![(2, 110), (3, 110)], Some(Nanos(150))));
    queue.wait(long).unwrap();
    assert_eq!(waited.load(Ordering::Relaxed), long.as_nanos() as u64);
}

/// A queue that fails behind its packets.
struct Broken(MemoryQueue);

impl Receive for Broken {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        match self.0.receive(batch)? {
            Received::End => Err(PortError::Unfit("broken".into())),
            received => Ok(received),
        }
    }
}

#[test]
fn packets_before_a_failure_leave_before_it() {
    let trace = trace(&[Sketch::udp(0, 1), Sketch::udp(0, 1).with(Kind::Arp), Sketch::udp(1, 1)]);
    let broken = Broken(MemoryQueue::new(trace, 32));
    let mut queue = ReorderedQueue::new(broken, Nanos(100), ReorderLimits::default());
    let mut batch = Batch::default();
    for len in [2, 1] {
        assert_eq!(queue.receive(&mut batch).unwrap(), Received::Packets);
        assert_eq!(batch.len(), len);
    }
    assert_eq!(queue.receive(&mut batch).unwrap_err().to_string(), "broken");
    assert_eq!(queue.receive(&mut batch).unwrap(), Received::End);
}

#[test]
fn a_long_release_comes_in_several_batches() {
    let mut sketches: Vec<_> = (0..2_000).map(|number| Sketch::udp(number / 1_000, (number % 1_000) as u16)).collect();
    sketches.push(Sketch::udp(500, 7));
    sketches.push(Sketch::udp(501, 8).with(Kind::Arp));
    let trace = trace(&sketches);
    for burst in [1, 32, 5_000] {
        let inner = MemoryQueue::new(Arc::clone(&trace), burst);
        let mut queue = ReorderedQueue::new(inner, Nanos(100), ReorderLimits::default());
        let (mut batch, mut count) = (Batch::default(), 0);
        while queue.receive(&mut batch).unwrap() == Received::Packets {
            assert!(batch.len() <= burst + RELEASED_MAX, "{} of {burst}", batch.len());
            count += batch.len();
        }
        assert_eq!(count, sketches.len());
    }
    let runs: Vec<_> =
        [1, 32, 5_000].iter().map(|burst| run(&sketches, 100, ReorderLimits::default(), *burst)).collect();
    assert!(runs.iter().all(|run| *run == runs[0]));
}

#[test]
fn a_delay_of_zero_leaves_the_port_as_it_is() {
    let sketches: Vec<_> = (0..100).map(|number| Sketch::udp(number / 10, number as u16 % 3)).collect();
    let trace = trace(&sketches);
    let mut port = Reordered::new(MemoryPort::new(Arc::clone(&trace), 32), Nanos(0), ReorderLimits::default());
    let totals = port.totals();
    let Opened::Queues(mut queues) = port.open(1).unwrap() else { panic!("a queue for each core") };
    let left = drain(&mut queues[0], &trace, 1);
    assert_eq!(numbers(&left), (0..100).collect::<Vec<_>>());
    assert!(left.iter().zip(&sketches).all(|(left, sketch)| left.time == sketch.time));
    assert_eq!(totals.get(), ReorderCounts::default());
}

#[test]
fn queues_reorder_and_number_apart() {
    let sketches: Vec<_> = (0..100).map(|number| Sketch::udp(number, number as u16 % 8)).collect();
    let trace = trace(&sketches);
    let cores = sketches.iter().map(|sketch| sketch.ports.0 % 2).collect();
    let inner = MemoryPort::new(Arc::clone(&trace), 32).steered(cores);
    let mut port = Reordered::new(inner, Nanos(50), ReorderLimits::default());
    let totals = port.totals();
    let Opened::Queues(mut queues) = port.open(2).unwrap() else { panic!("a queue for each core") };
    let all: Vec<_> = queues.iter_mut().map(|queue| drain(queue, &trace, 2)).collect();
    assert!(all.iter().enumerate().all(|(core, left)| left.iter().all(|left| left.number % 2 == core as u64)));
    drop(queues);
    assert_eq!((totals.get().received, totals.get().left), (100, 0));
}

/// The same, told naively: for each packet, when it leaves and behind which it waits.
fn model(sketches: &[Sketch], delay: u64, limits: ReorderLimits) -> Vec<Left> {
    #[derive(Default)]
    struct Flow {
        timer: u64,
        held: Vec<u64>,
    }
    /// Flows in the order in which their timers were set.
    #[derive(Default)]
    struct Model {
        flows: Vec<(FiveTuple, Flow)>,
        out: Vec<Left>,
        /// The connection of the last packet that left.
        last: Option<FiveTuple>,
    }
    impl Model {
        fn release(&mut self, at: usize, time: u64, delay: u64) {
            let (key, flow) = self.flows.remove(at);
            self.out.extend(flow.held.iter().map(|number| Left { number: *number, time }));
            self.last = if flow.held.is_empty() { self.last } else { Some(key) };
            self.flows.push((key, Flow { timer: time + delay, held: Vec::new() }));
        }

        fn oldest(&self) -> Option<usize> {
            self.flows.iter().position(|(_, flow)| !flow.held.is_empty())
        }

        fn pass(&mut self, key: FiveTuple, time: u64, delay: u64, connections: usize) {
            if let Some(at) = self.flows.iter().position(|(one, _)| *one == key) {
                return self.release(at, time, delay);
            }
            if self.flows.len() == connections {
                if self.flows.iter().all(|(_, flow)| !flow.held.is_empty()) {
                    self.release(0, time, delay);
                }
                let resting = self.flows.iter().position(|(_, flow)| flow.held.is_empty());
                self.flows.remove(resting.unwrap());
            }
            self.flows.push((key, Flow { timer: time + delay, held: Vec::new() }));
        }
    }
    let mut model = Model::default();
    for (number, sketch) in sketches.iter().enumerate() {
        let (number, time) = (number as u64, sketch.time);
        while let Some(at) = model.oldest().filter(|at| model.flows[*at].1.timer <= time) {
            model.release(at, model.flows[at].1.timer, delay);
        }
        model.flows.retain(|(_, flow)| flow.timer > time);
        let frame = sketch.frame(number);
        match judge(&descriptor(number, time, frame.len()), &frame) {
            Judged::Holdable(key) => {
                if model.flows.iter().any(|(one, _)| *one == key) {
                    let follows = |model: &Model| {
                        let holds = model.flows.iter().any(|(one, flow)| *one == key && !flow.held.is_empty());
                        !holds && model.last == Some(key)
                    };
                    let held = |model: &Model| model.flows.iter().map(|(_, flow)| flow.held.len()).sum::<usize>();
                    while !follows(&model) && held(&model) == limits.packets {
                        let oldest = model.oldest().unwrap();
                        model.release(oldest, time, delay);
                    }
                    if follows(&model) {
                        model.pass(key, time, delay, limits.connections);
                        model.out.push(Left { number, time });
                        continue;
                    }
                    let at = model.flows.iter().position(|(one, _)| *one == key).unwrap();
                    let (key, mut flow) = model.flows.remove(at);
                    flow.held.push(number);
                    let (is_first, is_full) = (flow.held.len() == 1, flow.held.len() >= limits.burst);
                    let at = if is_first { model.flows.len() } else { at };
                    flow.timer = if is_first { time + delay } else { flow.timer };
                    model.flows.insert(at, (key, flow));
                    if is_full {
                        model.release(at, time, delay);
                    }
                    continue;
                }
                model.pass(key, time, delay, limits.connections);
                model.last = Some(key);
            }
            Judged::InConnection(key, _) => {
                model.pass(key, time, delay, limits.connections);
                model.last = Some(key);
            }
            Judged::BetweenHosts(pair, _) => {
                let between = |(key, flow): &(FiveTuple, Flow)| !flow.held.is_empty() && hosts(key) == pair;
                while let Some(at) = model.flows.iter().position(between) {
                    model.release(at, time, delay);
                }
                model.last = None;
            }
            Judged::Alone(_) => model.last = None,
        }
        model.out.push(Left { number, time });
    }
    let last = sketches.last().map_or(0, |sketch| sketch.time);
    while let Some(at) = model.oldest() {
        model.release(at, last, delay);
    }
    model.out
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Udp { tos: 0 }),
        4 => Just(Kind::Tcp { flags: ACK }),
        1 => Just(Kind::Tcp { flags: SYN }),
        1 => Just(Kind::Udp { tos: 184 }),
        1 => Just(Kind::Fragment),
        1 => Just(Kind::Echo),
        1 => Just(Kind::Error),
        1 => Just(Kind::Arp),
    ]
}

prop_compose! {
    fn sketches()(
        parts in prop::collection::vec((0u64..30, 1u8..4, 1u8..4, 1u16..4, 1u16..3, kinds(), prop_oneof![Just(0usize), 1usize..700]), 0..200)
    ) -> Vec<Sketch> {
        let mut time = 0;
        let sketch = |(gap, from, to, source, destination, kind, payload)| {
            time += gap;
            Sketch { time, from, to, ports: (source, destination), kind, payload }
        };
        parts.into_iter().map(sketch).collect()
    }
}

/// The group within which a packet keeps its order: its connection, if it has one.
fn connection(sketch: &Sketch) -> Option<FiveTuple> {
    let frame = sketch.frame(0);
    let headers = packet::parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).ok()?;
    Some(headers.five_tuple()?.symmetric().0)
}

proptest! {
    #[test]
    fn it_is_what_the_model_says(
        sketches in sketches(), delay in 1u64..300, packets in 1usize..40, connections in 1usize..12, burst in 1usize..8,
        came in 1usize..40,
    ) {
        let limits = ReorderLimits { packets, connections, burst, ..ReorderLimits::default() };
        let (left, counts) = run(&sketches, delay, limits, came);
        prop_assert_eq!(&left, &model(&sketches, delay, limits));
        // Every packet once, and in time.
        let once: HashSet<u64> = left.iter().map(|left| left.number).collect();
        prop_assert_eq!((once.len(), left.len()), (sketches.len(), sketches.len()));
        for Left { number, time } in &left {
            let came = sketches[*number as usize].time;
            prop_assert!((came..=came + delay).contains(time));
        }
        // In order within each connection, and fragments and errors within their hosts.
        let mut last = HashMap::new();
        for number in numbers(&left) {
            if let Some(connection) = connection(&sketches[number as usize]) {
                prop_assert!(last.insert(connection, number).is_none_or(|before| before < number));
            }
        }
        for (place, number) in numbers(&left).into_iter().enumerate() {
            let sketch = &sketches[number as usize];
            if matches!(sketch.kind, Kind::Fragment | Kind::Error) {
                let is_between = |other: &Sketch| [(sketch.from, sketch.to), (sketch.to, sketch.from)].contains(&(other.from, other.to));
                let behind = left[place + 1..].iter().filter(|left| left.number < number);
                let mut overtaken = behind.map(|left| &sketches[left.number as usize]).filter(|other| !matches!(other.kind, Kind::Arp));
                prop_assert!(!overtaken.any(is_between));
            }
        }
        prop_assert_eq!(counts.received, sketches.len() as u64);
        prop_assert_eq!(counts.held() + counts.unheld.iter().sum::<u64>(), counts.received);
        prop_assert_eq!(counts.left, 0);
        prop_assert!(counts.burst_max <= burst as u64 && counts.held_ns_max <= delay);
        prop_assert!(counts.runs_before <= counts.received && counts.runs_after <= counts.received);
        // The same, whatever the bursts.
        prop_assert_eq!(run(&sketches, delay, limits, 7), (left, counts));
    }

    #[test]
    fn memory_is_bounded(sketches in sketches(), bytes in 1usize..3_000, came in 1usize..40) {
        let limits = ReorderLimits { bytes, ..ReorderLimits::default() };
        let (left, counts) = run(&sketches, 400, limits, came);
        let once: HashSet<u64> = left.iter().map(|left| left.number).collect();
        prop_assert_eq!((once.len(), left.len()), (sketches.len(), sketches.len()));
        prop_assert_eq!(run(&sketches, 400, limits, 3), (left, counts));
    }
}
