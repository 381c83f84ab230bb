//! Runs on a port like a network interface: two sides, small rings, frames that must come back, time that passes without packets, and a
//! link that goes down and comes up. Also the run's handle: progress, questions and stop during a run.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use locality::loan::Pool;
use memory::{Memory, Vector};
use millrace_engine::{Control, EngineError, EngineKind, Options, Running, start};
use nf::{
    Context, Description, NetworkFunction, Opened, PacketSet, Plain, PortId, Reason, Sharing, Sizing, Step, Verdict,
};
use packet::{Headers, Host, LinkType, Nanos, Rewrite, Seq};
use port::{
    Batch, Fate, Packet, Port, PortError, Queue, Receive, ReceiveLosses, Received, Sides, Stream, Transmit,
    TransmitCounts,
};

/// Forwards the first three packets of each source, and forgets sources that are silent for a second. If `SHARES`, counts all packets in
/// shared state.
#[derive(Default)]
struct Three<const SHARES: bool> {
    /// Calls of `expire`.
    ended: AtomicU64,
    /// True if `expire` panics.
    stumbles: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Count(u32);

impl nf::Flow for Count {}

/// The count of all sources' packets.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Total(u64);

packet::words! { Total: [1], total => [total.0], words => Self(words[0]); }

impl<const SHARES: bool> NetworkFunction for Three<SHARES> {
    type Meta = Host;
    type Flow = Count;
    type Shared<M: Memory> = M::Vector<Total>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "three",
        summary: "lets three packets of each source through",
        state: "a count",
        sharing: if SHARES { Sharing::Shares("a count of all packets") } else { Sharing::Nothing },
        keys: &[],
        drop_reasons: &["over"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 1024, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<Total> {
        memory.vector(1, Total(0))
    }

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<Count>, M> {
        cx.expire_after(Nanos::from_secs(1));
        Ok(Opened::Flow(Count(0)))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, count: &mut Count, _: &Host) -> Step<Verdict, M> {
        cx.expire_after(Nanos::from_secs(1));
        if SHARES {
            let Total(total) = cx.shared.read(&mut cx.tx, 0)?;
            cx.shared.write(&mut cx.tx, 0, Total(total + 1))?;
        }
        count.0 += 1;
        let rewrite = Rewrite { decrement_ttl: true, ..Rewrite::NONE };
        Ok(if count.0 > 3 { Verdict::Drop(Reason::own(0)) } else { Verdict::Rewrite { port: PortId::ACROSS, rewrite } })
    }

    fn expire<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Count) -> Step<(), M> {
        self.ended.fetch_add(1, ANY);
        assert!(!self.stumbles, "nobody may go");
        Ok(())
    }
}

/// The receive frames of a ring, and its transmit slots.
const RING: u64 = 8;

/// The bytes of a frame in the port's memory.
const FRAME: usize = 64;

/// The state that the test and the port's queues share.
struct Wire {
    /// The packets that have arrived at each queue so far; they are numbered round robin.
    arrived: AtomicU64,
    /// The port's time, in nanoseconds.
    now: AtomicU64,
    is_down: AtomicBool,
    is_over: AtomicBool,
    /// The rings' frames.
    frames: Arc<Pool>,
    lost: AtomicU64,
    unsent: AtomicU64,
    sent: Mutex<Vec<Sent>>,
    /// True if the last queue gets nothing, and waits until the first has got more.
    last_sleeps: AtomicBool,
    /// True once it has begun to wait.
    is_asleep: AtomicBool,
    /// Packets that the first queue got.
    first_got: AtomicU64,
}

/// A packet that was sent.
struct Sent {
    interface: u16,
    source: u8,
    ttl: u8,
    /// True if it was in the port's own memory.
    in_place: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            arrived: AtomicU64::default(),
            now: AtomicU64::default(),
            is_down: AtomicBool::default(),
            is_over: AtomicBool::default(),
            frames: Pool::new(16, RING as usize * FRAME),
            lost: AtomicU64::default(),
            unsent: AtomicU64::default(),
            sent: Mutex::default(),
            last_sleeps: AtomicBool::default(),
            is_asleep: AtomicBool::default(),
            first_got: AtomicU64::default(),
        }
    }
}

/// The ordering of all counters here. The test reads them when nothing runs.
const ANY: Ordering = Ordering::SeqCst;

/// Two interfaces, with a queue for each core or one ring for all.
struct TwoSides {
    wire: Arc<Wire>,
    opens: Opens,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Opens {
    Queues,
    Stream,
}

/// A ring with packets of both interfaces in turn.
struct RingQueue {
    wire: Arc<Wire>,
    /// It gets the packets `core`, `core + cores` and so on.
    core: u64,
    cores: u64,
    next: u64,
    received: u64,
}

impl Port for TwoSides {
    fn open(&mut self, cores: usize) -> Result<port::Opened<'_>, PortError> {
        let queue = |core, cores| RingQueue { wire: Arc::clone(&self.wire), core, cores, next: 0, received: 0 };
        let cores = cores as u64;
        Ok(match self.opens {
            Opens::Queues => {
                port::Opened::Queues((0..cores).map(|core| Box::new(queue(core, cores)) as Box<dyn Queue>).collect())
            }
            Opens::Stream => port::Opened::Stream(Stream {
                input: Box::new(queue(0, 1)),
                output: Box::new(queue(0, 1)),
                order: port::Order::Sent,
            }),
        })
    }

    fn sides(&self) -> Sides {
        Sides::Pairs
    }
}

impl RingQueue {
    fn sleeps(&self) -> bool {
        self.core > 0 && self.core == self.cores - 1 && self.wire.last_sleeps.load(ANY)
    }
}

impl Receive for RingQueue {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        assert_eq!(batch.len(), 0, "every frame came back before more were asked for");
        let wire = &*self.wire;
        if wire.is_down.load(ANY) {
            return Err(PortError::Down("left".into()));
        }
        let is_over = wire.is_over.load(ANY);
        if self.sleeps() && !is_over {
            return Ok(Received::Idle);
        }
        let arrived = wire.arrived.load(ANY);
        // Packets that the ring has no room for are lost.
        if arrived - self.next > RING {
            wire.lost.fetch_add(arrived - self.next - RING, ANY);
            self.next = arrived - RING;
        }
        if self.next == arrived {
            return Ok(if is_over { Received::End } else { Received::Idle });
        }
        let mut frames = wire.frames.lend().expect("enough for all that can be on their way");
        let mut packets = Vec::new();
        for (place, own) in (self.next..arrived).enumerate() {
            let bytes = frame((own % 200) as u8);
            frames.part_mut(place * FRAME, bytes.len()).copy_from_slice(&bytes);
            packets.push(Packet {
                seq: Seq(self.received * self.cores + self.core),
                time: Nanos(wire.now.load(ANY)),
                offset: (place * FRAME) as u32,
                len: bytes.len() as u32,
                wire_len: bytes.len() as u32,
                interface: (own % 2) as u16,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            });
            self.received += 1;
        }
        if self.core == 0 {
            wire.first_got.fetch_add(packets.len() as u64, ANY);
        }
        batch.lend_buffers(frames).extend(packets);
        self.next = arrived;
        Ok(Received::Packets)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        thread::yield_now();
        assert!(at_most > Duration::ZERO);
        if self.sleeps() && at_most > Duration::from_millis(1) {
            let got = self.wire.first_got.load(ANY);
            self.wire.is_asleep.store(true, ANY);
            until("a packet of the first queue", || !self.sleeps() || self.wire.first_got.load(ANY) > got + 2 * RING);
        }
        Ok(())
    }

    fn now(&self) -> Option<Nanos> {
        Some(Nanos(self.wire.now.load(ANY)))
    }

    fn lost(&self) -> ReceiveLosses {
        // The losses of all queues together; the first queue reports them.
        let ring_full = if self.core == 0 { self.wire.lost.load(ANY) } else { 0 };
        ReceiveLosses { ring_full, ..ReceiveLosses::default() }
    }
}

impl Transmit for RingQueue {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let wire = &*self.wire;
        let mut room = RING / 2;
        for (index, packet) in batch.packets().iter().enumerate() {
            if let Fate::Transmit(interface) = packet.fate {
                assert!(interface < 2, "the engine names a port that there is, not {interface}");
                if room == 0 {
                    wire.unsent.fetch_add(1, ANY);
                } else {
                    room -= 1;
                    let (bytes, in_place) = (batch.bytes(index), batch.is_in_place(index));
                    let sent = Sent { interface, source: bytes[29], ttl: bytes[22], in_place };
                    wire.sent.lock().expect("nobody panics").push(sent);
                }
            }
        }
        batch.clear();
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        let all = TransmitCounts {
            sent: self.wire.sent.lock().expect("nobody panics").len() as u64,
            lost: self.wire.unsent.load(ANY),
        };
        Some(if self.core == 0 { all } else { TransmitCounts::default() })
    }
}

/// A UDP datagram from 10.0.0.`source`.
fn frame(source: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, source, 192, 0, 2, 1]);
    frame[34..42].copy_from_slice(&[0, 53, 0, 53, 0, 26, 0, 0]);
    frame
}

/// Waits until `is_so` returns true, long enough for any machine.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} never comes");
        thread::yield_now();
    }
}

/// Starts the function over a port with this wire, and passes the run to a test.
fn begin<const SHARES: bool>(
    nf: &Arc<Three<SHARES>>,
    (kind, cores, opens): (EngineKind, usize, Opens),
    wire: &Arc<Wire>,
    look: impl FnOnce(Running<'_, Three<SHARES>>),
) {
    let mut port = TwoSides { wire: Arc::clone(wire), opens };
    let control = Control::default();
    thread::scope(|scope| {
        // Ends the run also if the test fails, because the scope waits for the run.
        let _ends = Ends(control.clone());
        look(start(scope, Arc::clone(nf), kind, cores, Options::default(), &mut port, &control));
    });
}

struct Ends(Control);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Every engine, with the ports that it can take.
const RUNS: [(EngineKind, usize, Opens); 15] = [
    (EngineKind::Sequential, 1, Opens::Queues),
    (EngineKind::Rss, 3, Opens::Queues),
    (EngineKind::Shared, 2, Opens::Queues),
    (EngineKind::Transactional, 2, Opens::Queues),
    (EngineKind::Sequential, 1, Opens::Stream),
    (EngineKind::Rss, 1, Opens::Stream),
    (EngineKind::Rss, 2, Opens::Stream),
    (EngineKind::RssPlusPlus, 2, Opens::Stream),
    (EngineKind::Shared, 3, Opens::Stream),
    (EngineKind::Transactional, 2, Opens::Stream),
    (EngineKind::Scr, 2, Opens::Stream),
    (EngineKind::Hybrid, 2, Opens::Stream),
    (EngineKind::Pipeline, 1, Opens::Stream),
    (EngineKind::Pipeline, 2, Opens::Stream),
    (EngineKind::Pipeline, 4, Opens::Stream),
];

#[test]
fn frames_come_back_and_what_is_lost_has_a_name() {
    for way @ (kind, cores, opens) in RUNS {
        let wire = Arc::new(Wire::default());
        begin(&Arc::new(Three::<false>::default()), way, &wire, |running| {
            let rings = if opens == Opens::Queues { cores as u64 } else { 1 };
            let received = || running.cores().iter().map(|core| core.received).sum::<u64>();
            // As many packets as the ring holds, then more at once, then some while the link is down.
            let mut arrived = 0;
            for _ in 0..20 {
                arrived = wire.arrived.fetch_add(3, ANY) + 3;
                until("a packet", || received() + wire.lost.load(ANY) == arrived * rings);
            }
            for burst in [50, 5] {
                wire.is_down.store(true, ANY);
                arrived = wire.arrived.fetch_add(burst, ANY) + burst;
                wire.is_down.store(false, ANY);
                until("a packet", || received() + wire.lost.load(ANY) == arrived * rings);
            }
            // Also frames of packets that don't go out, while nothing comes.
            until("a frame", || wire.frames.lent() == 0);
            // Each core answers between two batches, even if no packets come.
            let counted = running.ask(|_, worker| worker.counters().received).expect("it runs");
            assert_eq!((counted.len(), counted.iter().sum::<u64>()), (cores, received()), "{kind}");
            running.stop();
            let outcome = running.wait().expect("the engine takes it");
            assert!(outcome.failure.is_none() && outcome.interrupted, "{kind}: {:?}", outcome.failure);
            let counters = &outcome.counters;
            assert!(counters.add_up());
            assert_eq!(counters.received + outcome.lost.ring_full, arrived * rings, "{kind}");
            assert!(outcome.lost.ring_full >= 42 * rings, "{kind}: {:?}", outcome.lost);
            let sent = outcome.sent.expect("the port counts");
            assert_eq!(counters.forwarded + counters.replied, sent.sent + sent.lost, "{kind}");
            assert!(sent.lost > 0, "{kind}: half of a ring has no room for a whole one");
            for Sent { interface, source, ttl, in_place } in wire.sent.lock().expect("nobody panics").iter() {
                assert_eq!(
                    *interface,
                    u16::from(1 - source % 2),
                    "{kind}: what comes from 10.0.0.{source} goes across"
                );
                assert_eq!(*ttl, 63, "{kind}: it was rewritten");
                // One way has whole pieces to itself.
                let has_one_way = kind == EngineKind::Pipeline && cores == 2;
                let is_shared = opens == Opens::Stream && cores > 1 && !has_one_way;
                assert_eq!(*in_place, !is_shared, "{kind}: who alone has the frames writes to them");
            }
        });
    }
}

#[test]
fn flows_end_by_the_ports_time_when_nothing_comes() {
    for way @ (kind, ..) in RUNS {
        ends_by_time(way, &Arc::new(Three::<false>::default()));
        if let EngineKind::Sequential | EngineKind::Shared | EngineKind::Transactional = kind {
            ends_by_time(way, &Arc::new(Three::<true>::default()));
        }
    }
}

fn ends_by_time<const SHARES: bool>(way: (EngineKind, usize, Opens), nf: &Arc<Three<SHARES>>) {
    let (kind, cores, opens) = way;
    let wire = Arc::new(Wire::default());
    begin(nf, way, &wire, |running| {
        wire.now.store(5_000_000_000, ANY);
        wire.arrived.store(6, ANY);
        let flows = if opens == Opens::Queues { 6 * cores as u64 } else { 6 };
        until("a packet", || running.cores().iter().map(|core| core.received).sum::<u64>() == flows);
        // Not before their time.
        wire.now.store(5_900_000_000, ANY);
        let asked = running.ask(|_, worker| worker.counters().flows).expect("it runs");
        assert!(asked.iter().all(|flows| flows.expired == 0), "{kind}: {asked:?}");
        assert_eq!(nf.ended.load(ANY), 0, "{kind}");
        wire.now.store(6_500_000_000, ANY);
        // The six sources of a shard are its own. All cores of a table see the same six, and each replica has all.
        let flows = if kind == EngineKind::Shared { 6 } else { flows };
        let ended = if kind == EngineKind::Scr { flows * cores as u64 } else { flows };
        until("their end", || nf.ended.load(ANY) >= ended);
        wire.is_over.store(true, ANY);
        let outcome = running.wait().expect("the engine takes it");
        let counted = outcome.counters.flows;
        assert_eq!(
            (outcome.flows_alive, counted.expired, outcome.interrupted),
            (0, flows, false),
            "{kind}: {counted:?}"
        );
        assert_eq!(outcome.last, Nanos(6_500_000_000), "{kind}");
    });
}

#[test]
fn a_panic_while_nothing_comes_ends_the_run_like_any_other() {
    for (kind, opens) in
        [(EngineKind::Rss, Opens::Queues), (EngineKind::Rss, Opens::Stream), (EngineKind::Pipeline, Opens::Stream)]
    {
        let wire = Arc::new(Wire::default());
        let nf = Arc::new(Three::<false> { stumbles: true, ..Three::default() });
        begin(&nf, (kind, 2, opens), &wire, |running| {
            wire.now.store(5_000_000_000, ANY);
            wire.arrived.store(6, ANY);
            let flows = if opens == Opens::Queues { 12 } else { 6 };
            until("a packet", || running.cores().iter().map(|core| core.received).sum::<u64>() == flows);
            wire.now.store(6_500_000_000, ANY);
            until("the panic", || nf.ended.load(ANY) > 0);
            // The others go on until the port ends: the queues of a card are independent.
            wire.is_over.store(true, ANY);
            let outcome = running.wait().expect("the engine takes it");
            let Some(EngineError::Panicked(failure)) = &outcome.failure else { panic!("{:?}", outcome.failure) };
            assert_eq!(failure.message, "nobody may go");
            assert!(outcome.counters.add_up());
        });
    }
}

#[test]
fn a_look_sees_the_whole_run_at_one_time() {
    for way @ (kind, cores, opens) in RUNS {
        let wire = Arc::new(Wire::default());
        begin(&Arc::new(Three::<false>::default()), way, &wire, |running| {
            wire.now.store(5_000_000_000, ANY);
            let rings = if opens == Opens::Queues { cores as u64 } else { 1 };
            for arrived in [4, 6] {
                wire.arrived.store(arrived, ANY);
                until("a packet", || running.cores().iter().map(|core| core.received).sum::<u64>() == arrived * rings);
                let seen = running.look(|state, _, now| (state.alive(now), now)).expect("it runs");
                // All cores of one table see the same sources.
                let flows = if kind == EngineKind::Shared { arrived } else { arrived * rings };
                assert_eq!(seen, (flows as usize, Nanos(5_000_000_000)), "{kind}");
            }
            wire.is_over.store(true, ANY);
            let outcome = running.wait().expect("the engine takes it");
            assert!(outcome.failure.is_none() && !outcome.interrupted && outcome.counters.add_up(), "{kind}");
            assert_eq!(outcome.counters.received, 6 * rings, "{kind}");
        });
    }
}

/// Cores that share a stream close it together, whoever sees the request first.
#[test]
fn many_looks_while_packets_flow() {
    for way @ (kind, cores, opens) in RUNS {
        let wire = Arc::new(Wire::default());
        begin(&Arc::new(Three::<false>::default()), way, &wire, |running| {
            let rings = if opens == Opens::Queues { cores as u64 } else { 1 };
            for number in 0..200 {
                // At times one packet, which one core takes while another has nothing to do.
                wire.arrived.fetch_add(u64::from(number % 2 == 0), ANY);
                running.look(|state, _, _| state.entries()).unwrap_or_else(|| panic!("{kind} ends at look {number}"));
                let counted = running.ask(|_, worker| worker.counters().received);
                assert_eq!(counted.map(|counted| counted.len()), Some(cores), "{kind}: all cores still answer");
            }
            wire.is_over.store(true, ANY);
            let outcome = running.wait().expect("the engine takes it");
            assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{kind}");
            let arrived = wire.arrived.load(ANY) * rings;
            assert_eq!(outcome.counters.received + outcome.lost.ring_full, arrived, "{kind}");
        });
    }
}

/// A core whose input is silent sleeps. Until it wakes up, the others go on.
#[test]
fn nobody_waits_for_a_core_that_sleeps() {
    let wire = Arc::new(Wire::default());
    wire.last_sleeps.store(true, ANY);
    begin(&Arc::new(Three::<false>::default()), (EngineKind::Rss, 2, Opens::Queues), &wire, |running| {
        wire.now.store(5_000_000_000, ANY);
        let arrives = || wire.arrived.fetch_add(1, ANY);
        until("sleep", || arrives() > 0 && wire.is_asleep.load(ANY));
        let seen = thread::scope(|scope| {
            let look = scope.spawn(|| running.look(|state, _, now| state.alive(now)));
            until("the look", || arrives() > 0 && look.is_finished());
            look.join().expect("nobody panics")
        });
        assert!(seen.expect("it runs") > 0);
        wire.is_over.store(true, ANY);
        wire.last_sleeps.store(false, ANY);
        let outcome = running.wait().expect("the engine takes it");
        assert!(outcome.failure.is_none() && outcome.counters.add_up());
    });
}

#[test]
fn who_asks_an_ended_run_hears_so() {
    let wire = Arc::new(Wire { is_over: AtomicBool::new(true), ..Wire::default() });
    let three = Arc::new(Three::<false>::default());
    begin(&three, (EngineKind::Rss, 2, Opens::Queues), &wire, |running| {
        until("the end", || running.has_ended());
        assert_eq!(running.ask(|core, _| core), None);
        assert_eq!(running.look(|state, _, _| state.entries()), None);
    });
    begin(&three, (EngineKind::Sequential, 2, Opens::Queues), &wire, |refused| {
        until("the end", || refused.has_ended());
        assert_eq!(refused.ask(|core, _| core), None);
        assert!(refused.wait().is_err());
    });
}

/// Only a card's hash or a lock lets a port steer packets itself.
#[test]
fn engines_that_steer_refuse_ports_that_do() {
    for kind in [EngineKind::Scr, EngineKind::RssPlusPlus, EngineKind::Hybrid, EngineKind::Pipeline] {
        begin(&Arc::new(Three::<false>::default()), (kind, 2, Opens::Queues), &Arc::default(), |running| {
            let Err(EngineError::Refused(reason)) = running.wait() else { panic!("{kind} takes it") };
            assert!(reason.contains("steers its packets itself"), "{reason}");
        });
    }
}
