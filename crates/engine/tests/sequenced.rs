//! Replicas behind a port that sequences: against a count by hand, with packets that are lost on the way and packets whose headers are longer
//! than what the history has of them.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use memory::Memory;
use millrace_engine::{Control, EngineError, EngineKind, Options, Outcome, run};
use nf::{Context, Description, NetworkFunction, Opened, PacketSet, Plain, Reason, Sharing, Sizing, Step, Verdict};
use packet::{Headers, Host, LinkType, Malformed, Nanos, Seq};
use port::{
    Batch, Fate, HEAD_BYTES, History, Mark, Opened as Open, Packet, Past, Port, PortError, Receive, Received,
    Sequenced, Transmit,
};

/// Forwards the first three packets of each source.
struct Three {
    reads_payload: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Count(u32);

impl nf::Flow for Count {}

impl NetworkFunction for Three {
    type Meta = Host;
    type Flow = Count;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "three",
        summary: "lets three packets of each source through",
        state: "a count",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["over"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn reads_payload(&self) -> bool {
        self.reads_payload
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 64, flows_v6: 64 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<Count>, M> {
        Ok(Opened::Flow(Count(0)))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, count: &mut Count, _: &Host) -> Step<Verdict, M> {
        cx.expire_after(Nanos::from_secs(1));
        count.0 += 1;
        Ok(if count.0 > 3 { Verdict::Drop(Reason::own(0)) } else { Verdict::FORWARD })
    }
}

/// A kind of packet that arrives at the sequencer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Short,
    /// Ends behind what the history has, and its headers don't.
    Long,
    /// Its headers end behind what the history has.
    Deep,
    /// No IP.
    Other,
}

/// An IPv6 packet from a host.
fn frame(what: What, host: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if what == What::Other {
        frame.extend([0x88, 0xb5]);
        frame.resize(300, 0);
        return frame;
    }
    let options = if what == What::Deep { 248_u16 } else { 0 };
    let payload = if what == What::Long { 400 } else { 8 };
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((options + 8 + payload).to_be_bytes());
    frame.extend([if options > 0 { 0 } else { 17 }, 64]);
    frame.extend([0xfd; 15]);
    frame.push(host);
    frame.extend([0xfd; 16]);
    if options > 0 {
        // Hop-by-hop options: UDP comes next, 30 times 8 bytes more, one option that fills them.
        frame.extend([17, (options / 8 - 1) as u8, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + usize::from(options) - 8, 0);
    }
    frame.extend([0, 7, 0, 9]);
    frame.extend((8 + payload).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + usize::from(payload), 1);
    frame
}

/// A packet, and whether it is lost between the sequencer and its core.
type Arrival = (What, u8, bool);

struct Trace {
    arrivals: Vec<(Vec<u8>, bool)>,
    /// Fates of packets by number.
    fates: Mutex<BTreeMap<u64, Fate>>,
}

struct SequencedTrace(Arc<Trace>);

/// A core's queue, and the number before which its packets are known.
struct Own(Arc<Trace>, usize, usize, Arc<AtomicU64>);

struct HistoryView(Arc<Trace>, u64, Arc<AtomicU64>);

fn packet(number: u64, len: usize, wire_len: usize) -> Packet {
    Packet {
        seq: Seq(number),
        time: Nanos(number),
        offset: 0,
        len: len as u32,
        wire_len: wire_len as u32,
        interface: 0,
        link: LinkType::Ethernet,
        bucket: 0,
        fate: Fate::Pending,
    }
}

impl Port for SequencedTrace {
    fn open(&mut self, cores: usize) -> Result<Open<'_>, PortError> {
        let core = |core| {
            let known = Arc::new(AtomicU64::new(0));
            let queue = Own(Arc::clone(&self.0), core, cores, Arc::clone(&known));
            Sequenced { queue: Box::new(queue), history: Box::new(HistoryView(Arc::clone(&self.0), 0, known)) }
        };
        Ok(Open::Sequenced((0..cores).map(core).collect()))
    }
}

impl Receive for Own {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let Self(trace, next, cores, known) = self;
        if *next >= trace.arrivals.len() {
            return Ok(Received::End);
        }
        for _ in 0..5 {
            let Some((frame, is_lost)) = trace.arrivals.get(*next) else { break };
            if !is_lost {
                batch.push(packet(*next as u64, frame.len(), frame.len()), frame);
            }
            *next += *cores;
        }
        // ORDERING: Relaxed. The history is read by the same thread.
        known.store((*next).min(trace.arrivals.len()) as u64, Ordering::Relaxed);
        Ok(Received::Packets)
    }
}

impl Transmit for Own {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let fates = batch.packets().iter().map(|packet| (packet.seq.0, packet.fate));
        self.0.fates.lock().expect("no core panics").extend(fates);
        Ok(())
    }
}

impl History for HistoryView {
    fn has_more(&self) -> bool {
        // ORDERING: Relaxed. As in `Own`.
        self.1 < self.2.load(Ordering::Relaxed)
    }

    fn read(&mut self, take: &mut dyn FnMut(&Packet, &[u8])) -> Past {
        while self.has_more() {
            let (frame, _) = &self.0.arrivals[self.1 as usize];
            let head = &frame[..frame.len().min(HEAD_BYTES)];
            take(&packet(self.1, head.len(), frame.len()), head);
            self.1 += 1;
        }
        Past { end: Seq(self.1), mark: None }
    }

    fn mark(&mut self, _: Mark) {}
}

fn run_over(
    arrivals: &[Arrival],
    kind: EngineKind,
    cores: usize,
    nf: Three,
) -> (Arc<Trace>, Result<Outcome, EngineError>) {
    let arrivals = arrivals.iter().map(|(what, host, is_lost)| (frame(*what, *host), *is_lost)).collect();
    let trace = Arc::new(Trace { arrivals, fates: Mutex::default() });
    let mut port = SequencedTrace(Arc::clone(&trace));
    let outcome = run(Arc::new(nf), kind, cores, &Options::default(), &mut port, &Control::default());
    (trace, outcome)
}

#[test]
fn every_packet_counts_that_has_been_numbered() {
    let mut state = 1_u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for round in 0..60 {
        let cores = 2 + round % 4;
        let mut arrival = |_| {
            let what = [What::Short, What::Long, What::Deep, What::Other][below(8).saturating_sub(4) as usize];
            (what, below(12) as u8, below(5) == 0)
        };
        let arrivals: Vec<Arrival> = (0..50 + round as u64 * 3).map(&mut arrival).collect();
        let (trace, outcome) = run_over(&arrivals, EngineKind::Scr, cores, Three { reads_payload: false });
        let outcome = outcome.expect("scr runs behind a sequencer");
        assert!(outcome.failure.is_none(), "{:?}", outcome.failure);

        let (mut counts, mut expected, mut deep) = (BTreeMap::<u8, u32>::new(), BTreeMap::new(), 0);
        for (number, (what, host, is_lost)) in (0_u64..).zip(arrivals) {
            let fate = match what {
                What::Short | What::Long => {
                    let count = counts.entry(host).or_default();
                    *count += 1;
                    if *count > 3 { Fate::Drop(Reason::own(0).0) } else { Fate::Transmit(0) }
                }
                What::Other => Fate::Transmit(0),
                What::Deep => {
                    deep += u64::from(!is_lost);
                    continue;
                }
            };
            if !is_lost {
                expected.insert(number, fate);
            }
        }
        assert_eq!(*trace.fates.lock().expect("no core panics"), expected, "{cores} cores");
        let counters = &outcome.counters;
        assert_eq!(counters.received, expected.len() as u64 + deep);
        assert_eq!(counters.dropped[usize::from(Reason::malformed(Malformed::IpTruncated).0)], deep);
        assert!(counters.add_up());
        assert_eq!(outcome.flows_alive, counts.len(), "replicas have flows of packets that nobody got, too");
    }
}

#[test]
fn what_cannot_go_behind_a_sequencer_is_refused() {
    let arrivals = [(What::Short, 1, false)];
    for (kind, reads_payload, reason) in [
        (EngineKind::Rss, false, "only scr runs behind a sequencer"),
        (EngineKind::Scr, true, "three reads more of packets than their headers"),
    ] {
        let (_, outcome) = run_over(&arrivals, kind, 2, Three { reads_payload });
        match outcome {
            Err(EngineError::Refused(text)) => assert!(text.contains(reason), "{text}"),
            other => panic!("it is refused: {other:?}"),
        }
    }
}
