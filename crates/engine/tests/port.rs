//! A run on a port as an interface is one: two sides, small rings, frames that must come back, time that goes on without packets, and
//! a link that goes down and comes up. And the run's handle: looked at, asked and stopped while it goes.
#![cfg(not(loom))]

mod source;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use engine::{EngineKind, Options, start};
use memory::Memory;
use nf::{Context, Description, NetworkFunction, Opened, PacketSet, Reason, Sharing, Sizing, Step, Verdict};
use packet::{Headers, LinkType, Nanos, Seq};
use port::{
    Batch, Fate, Packet, Port, PortError, Queue, Receive, ReceiveLosses, Received, Sides, Transmit, TransmitCounts,
};

use source::Source;

/// Forwards each source's first packets, three of them, and forgets sources that are silent for a second.
struct Three;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Count(u32);

impl nf::Flow for Count {}

impl NetworkFunction for Three {
    type Meta = Source;
    type Flow = Count;
    type Shared<M: Memory> = ();

    const DESCRIPTION: Description = Description {
        name: "three",
        summary: "lets three packets of each source through",
        state: "a count",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["over"],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 1024, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _payload: &[u8]) -> Option<Source> {
        headers.source().map(Source)
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &Source) -> Step<Opened<Count>, M> {
        cx.expire_after(Nanos::from_secs(1));
        Ok(Opened::Flow(Count(0)))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, count: &mut Count, _: &Source) -> Step<Verdict, M> {
        cx.expire_after(Nanos::from_secs(1));
        count.0 += 1;
        Ok(if count.0 > 3 { Verdict::Drop(Reason::own(0)) } else { Verdict::FORWARD })
    }
}

/// Frames of a ring's receive side, and places of a ring's transmit side.
const RING: u64 = 8;

/// What the test and the port's queues share.
#[derive(Default)]
struct Wire {
    /// How many packets have arrived at each queue so far; they are numbered in turn.
    arrived: AtomicU64,
    /// The port's time, in nanoseconds.
    now: AtomicU64,
    is_down: AtomicBool,
    is_over: AtomicBool,
    /// Frames that are with the engine.
    lent: AtomicU64,
    lost: AtomicU64,
    unsent: AtomicU64,
    /// What went out: number, interface.
    sent: Mutex<Vec<(u64, u16)>>,
}

/// The ordering of all counts here is the test's own: it looks once all is still.
const ANY: Ordering = Ordering::SeqCst;

struct TwoSides(Arc<Wire>);

/// Packets `core`, `core + cores` and so on, each from the interface that its number says.
struct RingQueue {
    wire: Arc<Wire>,
    core: u64,
    cores: u64,
    next: u64,
}

impl Port for TwoSides {
    fn open(&mut self, cores: usize) -> Result<port::Opened<'_>, PortError> {
        let queue = |core| {
            let wire = Arc::clone(&self.0);
            Box::new(RingQueue { wire, core, cores: cores as u64, next: 0 }) as Box<dyn Queue>
        };
        Ok(port::Opened::Queues((0..cores as u64).map(queue).collect()))
    }

    fn sides(&self) -> Sides {
        Sides::Pairs
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
        let arrived = wire.arrived.load(ANY);
        // What the ring has no room for is lost.
        if arrived - self.next > RING {
            wire.lost.fetch_add(arrived - self.next - RING, ANY);
            self.next = arrived - RING;
        }
        for own in self.next..arrived {
            let seq = own * self.cores + self.core;
            let bytes = frame((own % 200) as u8);
            let packet = Packet {
                seq: Seq(seq),
                time: Nanos(wire.now.load(ANY)),
                offset: 0,
                len: 0,
                wire_len: bytes.len() as u32,
                interface: (seq % 2) as u16,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            };
            batch.push(packet, &bytes);
        }
        self.next = arrived;
        wire.lent.fetch_add(batch.len() as u64, ANY);
        Ok(if !batch.is_empty() {
            Received::Packets
        } else if is_over {
            Received::End
        } else {
            Received::Idle
        })
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        thread::yield_now();
        assert!(at_most > Duration::ZERO);
        Ok(())
    }

    fn now(&self) -> Option<Nanos> {
        Some(Nanos(self.wire.now.load(ANY)))
    }

    fn lost(&self) -> ReceiveLosses {
        // Of all queues together, told by the first.
        let ring_full = if self.core == 0 { self.wire.lost.load(ANY) } else { 0 };
        ReceiveLosses { ring_full, unclaimed: 0 }
    }
}

impl Transmit for RingQueue {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let wire = &*self.wire;
        let mut room = RING / 2;
        for packet in batch.packets() {
            wire.lent.fetch_sub(1, ANY);
            if let Fate::Transmit(port) = packet.fate {
                assert!(port < 2, "the engine names a port that there is, not {port}");
                if room == 0 {
                    wire.unsent.fetch_add(1, ANY);
                } else {
                    room -= 1;
                    wire.sent.lock().expect("nobody panics").push((packet.seq.0, port));
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

/// Looks until it is so. Long enough for any machine; what takes so long never comes.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} never comes");
        thread::yield_now();
    }
}

#[test]
fn frames_come_back_and_what_is_lost_has_a_name() {
    for (kind, cores) in [(EngineKind::Sequential, 1), (EngineKind::Rss, 3), (EngineKind::Shared, 2)] {
        let wire = Arc::new(Wire::default());
        let running = start(Arc::new(Three), kind, cores, Options::default(), TwoSides(Arc::clone(&wire)));
        let received = || running.cores().iter().map(|core| core.received).sum::<u64>();
        // Within the ring's room, then over it in one go, then while the link is down.
        let mut arrived = 0;
        for _ in 0..20 {
            arrived = wire.arrived.fetch_add(3, ANY) + 3;
            until("a packet", || received() + wire.lost.load(ANY) == arrived * cores as u64);
        }
        for burst in [50, 5] {
            wire.is_down.store(true, ANY);
            arrived = wire.arrived.fetch_add(burst, ANY) + burst;
            wire.is_down.store(false, ANY);
            until("a packet", || received() + wire.lost.load(ANY) == arrived * cores as u64);
        }
        until("a frame", || wire.lent.load(ANY) == 0);
        // Between two batches each core says what it has, though nothing comes.
        let counted = running.ask(|_, worker| worker.counters().received).expect("it runs");
        assert_eq!((counted.len(), counted.iter().sum::<u64>()), (cores, received()), "{kind}");
        running.stop();
        let outcome = running.wait().expect("the engine takes it");
        assert!(outcome.failure.is_none() && outcome.interrupted, "{kind}: {:?}", outcome.failure);
        let counters = &outcome.counters;
        assert!(counters.add_up());
        assert_eq!(counters.received + outcome.lost.ring_full, arrived * cores as u64, "{kind}");
        assert!(outcome.lost.ring_full >= 42 * cores as u64, "{kind}: {:?}", outcome.lost);
        let sent = outcome.sent.expect("the port counts");
        assert_eq!(counters.forwarded + counters.replied, sent.sent + sent.lost, "{kind}");
        assert!(sent.lost > 0, "{kind}: half of a ring has no room for a whole one");
        for (seq, port) in wire.sent.lock().expect("nobody panics").iter() {
            assert_eq!(u64::from(*port), 1 - seq % 2, "{kind}: packet {seq} goes out across");
        }
    }
}

#[test]
fn flows_end_by_the_ports_time_when_nothing_comes() {
    let wire = Arc::new(Wire::default());
    let running = start(Arc::new(Three), EngineKind::Rss, 2, Options::default(), TwoSides(Arc::clone(&wire)));
    wire.now.store(5_000_000_000, ANY);
    wire.arrived.store(6, ANY);
    until("a packet", || running.cores().iter().map(|core| core.received).sum::<u64>() == 12);
    let flows = || {
        let of_cores = running.ask(|_, worker| worker.counters().flows).expect("it runs");
        of_cores.iter().fold((0, 0), |(opened, expired), core| (opened + core.opened, expired + core.expired))
    };
    assert_eq!(flows(), (12, 0));
    wire.now.store(6_500_000_000, ANY);
    until("their end", || flows() == (12, 12));
    wire.is_over.store(true, ANY);
    let outcome = running.wait().expect("the engine takes it");
    assert_eq!((outcome.flows_alive, outcome.counters.flows.expired, outcome.interrupted), (0, 12, false));
    assert_eq!(outcome.last, Nanos(6_500_000_000));
}

#[test]
fn who_asks_an_ended_run_hears_so() {
    let wire = Arc::new(Wire { is_over: AtomicBool::new(true), ..Wire::default() });
    let running = start(Arc::new(Three), EngineKind::Rss, 2, Options::default(), TwoSides(Arc::clone(&wire)));
    until("the end", || running.has_ended());
    assert_eq!(running.ask(|core, _| core), None);
    let refused = start(Arc::new(Three), EngineKind::Sequential, 2, Options::default(), TwoSides(wire));
    until("the end", || refused.has_ended());
    assert_eq!(refused.ask(|core, _| core), None);
    assert!(refused.wait().is_err());
}

/// Only a card's hash or a lock lets a port hand out packets itself.
#[test]
fn engines_that_steer_refuse_ports_that_do() {
    for kind in [EngineKind::Scr, EngineKind::RssPlusPlus, EngineKind::Hybrid] {
        let running = start(Arc::new(Three), kind, 2, Options::default(), TwoSides(Arc::default()));
        let Err(engine::EngineError::Refused(reason)) = running.wait() else { panic!("{kind} takes it") };
        assert!(reason.contains("hands out packets itself"), "{reason}");
    }
}
