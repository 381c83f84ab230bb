//! Runs over a queue in memory: the order of the output, and the state after a panic and after a stop.
#![cfg(not(loom))]

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use memory::{Memory, Vector};
use millrace_engine::{
    Block, Control, Cuts, EngineError, EngineKind, Log, Options, Outcome, OwnedRecord, Private, Record, Worker,
    hash_of, private_instance, run, sharded_instance,
};
use nf::{
    Context, Description, NetworkFunction, Opened, PacketSet, Plain, PortId, Reason, Sharing, Sizing, Step, Verdict,
};
use packet::{Headers, Host, LinkType, Nanos, Seq};
use port::{Batch, Fate, Packet, Port, PortError, Receive, Received, Stream, Transmit, TransmitCounts};

/// Forwards the first `limit` packets of a source. Panics in the step of a packet from 10.0.0.13, and in `meta` for one from 10.0.0.14.
struct Limit {
    limit: u32,
    flows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen(u32);

impl nf::Flow for Seen {}

impl NetworkFunction for Limit {
    type Meta = Host;
    type Flow = Seen;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "limit",
        summary: "lets some packets of each source through",
        state: "a count",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["over-limit"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: self.flows, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        let source = headers.source();
        assert!(source != Some(Host::from(IpAddr::from([10, 0, 0, 14]))), "fourteen is not looked at");
        source
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<Seen>, M> {
        cx.expire_after(Nanos::from_secs(1));
        Ok(Opened::Flow(Seen(0)))
    }

    fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, flow: &mut Seen, meta: &Host) -> Step<Verdict, M> {
        assert!(meta.address().to_string() != "10.0.0.13", "thirteen is not served");
        flow.0 += 1;
        Ok(if flow.0 > self.limit { Verdict::Drop(Reason::own(0)) } else { Verdict::FORWARD })
    }
}

/// A port in memory that receives bursts of seven packets and keeps what was sent.
struct Memo {
    source: Frames,
    sink: Sink,
}

struct Frames {
    frames: Vec<(Nanos, Vec<u8>)>,
    next: usize,
    stop_at: Option<(usize, Control)>,
}

#[derive(Default)]
struct Sink {
    sent: Vec<Seq>,
    finished: bool,
}

impl Memo {
    fn of(sources: &[u8]) -> Self {
        let frames = sources.iter().zip(0..).map(|(&source, time)| (Nanos(time * 1_000), frame(source))).collect();
        Self { source: Frames { frames, next: 0, stop_at: None }, sink: Sink::default() }
    }
}

impl Port for Memo {
    fn open(&mut self, _cores: usize) -> Result<port::Opened<'_>, PortError> {
        let (input, output) = (Box::new(&mut self.source), Box::new(&mut self.sink));
        Ok(port::Opened::Stream(Stream { input, output, order: port::Order::Sent }))
    }
}

impl Receive for &mut Frames {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        for (time, bytes) in self.frames.iter().skip(self.next).take(7) {
            let packet = Packet {
                seq: Seq(self.next as u64),
                time: *time,
                offset: 0,
                len: 0,
                wire_len: bytes.len() as u32,
                interface: 0,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            };
            batch.push(packet, bytes);
            self.next += 1;
        }
        if let Some((at, control)) = &self.stop_at
            && self.next >= *at
        {
            control.stop();
            // Long enough for idle cores to see the stop while these packets are still on their way.
            thread::sleep(Duration::from_millis(60));
        }
        Ok(if batch.is_empty() { Received::End } else { Received::Packets })
    }
}

impl Transmit for &mut Sink {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let sent = batch.packets().iter().filter(|packet| matches!(packet.fate, Fate::Transmit(_)));
        self.sent.extend(sent.map(|packet| packet.seq));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.finished = true;
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        Some(TransmitCounts { sent: self.sent.len() as u64, lost: 0 })
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

fn limit() -> Arc<Limit> {
    Arc::new(Limit { limit: 3, flows: 64 })
}

fn go(kind: EngineKind, cores: usize, port: &mut Memo, control: &Control) -> Outcome {
    run(limit(), kind, cores, &Options::default(), port, control).expect("the engine takes it")
}

#[test]
fn every_engine_forwards_the_same_packets_in_input_order() {
    let sources: Vec<u8> = (0..500_u32).map(|i| (i * i % 90 + 20) as u8).collect();
    let mut oracle = Memo::of(&sources);
    go(EngineKind::Sequential, 1, &mut oracle, &Control::default());
    assert!(oracle.sink.sent.is_sorted() && !oracle.sink.sent.is_empty());
    for kind in [EngineKind::Rss, EngineKind::Scr, EngineKind::Pipeline] {
        for cores in 1..=8 {
            let mut port = Memo::of(&sources);
            let outcome = go(kind, cores, &mut port, &Control::default());
            assert_eq!(port.sink.sent, oracle.sink.sent, "{kind} on {cores}");
            assert!(port.sink.finished);
            assert_eq!(outcome.counters.forwarded, oracle.sink.sent.len() as u64);
            assert!(outcome.counters.add_up());
        }
    }
}

/// No state depends on the core.
#[test]
fn packets_of_no_packet_set_go_around_the_cores() {
    let kinds =
        [EngineKind::Rss, EngineKind::RssPlusPlus, EngineKind::Hybrid, EngineKind::Transactional, EngineKind::Pipeline];
    for (kind, cores) in kinds.into_iter().flat_map(|kind| [(kind, 2), (kind, 3)]) {
        let mut port = Memo::of(&[20; 600]);
        for (_, frame) in &mut port.source.frames {
            frame[12..14].copy_from_slice(&[8, 6]);
        }
        let outcome = go(kind, cores, &mut port, &Control::default());
        let received: Vec<_> = outcome.by_core.iter().map(|core| core.received).collect();
        let stepping = kind.stepping(cores, Cuts::Parse);
        let even = [vec![0; cores - stepping], vec![600 / stepping as u64; stepping]].concat();
        assert_eq!(received, even, "{kind}");
    }
}

#[test]
fn a_panic_names_its_packet_and_keeps_what_was_forwarded() {
    let mut sources = vec![20; 3];
    sources.extend([21, 22, 13, 23, 24]);
    for (kind, cores) in [
        (EngineKind::Sequential, 1),
        (EngineKind::Rss, 2),
        (EngineKind::Scr, 3),
        (EngineKind::Shared, 2),
        (EngineKind::Pipeline, 1),
        (EngineKind::Pipeline, 2),
        (EngineKind::Pipeline, 4),
    ] {
        let mut port = Memo::of(&sources);
        let outcome = go(kind, cores, &mut port, &Control::default());
        let Some(EngineError::Panicked(failure)) = outcome.failure else { panic!("{kind} went on") };
        assert_eq!(failure.seq, Seq(5), "{kind}");
        assert_eq!(failure.message, "thirteen is not served");
        let packet = failure.packet.expect("the core held the packet");
        assert_eq!(packet.bytes, frame(13));
        assert!(port.sink.finished);
        assert!(!port.sink.sent.contains(&Seq(5)));
        if cores == 1 {
            assert_eq!(port.sink.sent, [0, 1, 2, 3, 4].map(Seq));
        }
    }
}

/// Packets that take no step wait until the steps around them are taken.
#[test]
fn a_panic_loses_nothing_that_came_ahead_of_it() {
    for cores in 2..=4 {
        let mut port = Memo::of(&[20, 20, 20, 20, 20, 20, 13]);
        for seq in [0, 2, 3, 4] {
            port.source.frames[seq].1[12..14].copy_from_slice(&[8, 6]);
        }
        let outcome = go(EngineKind::Scr, cores, &mut port, &Control::default());
        let Some(EngineError::Panicked(failure)) = outcome.failure else { panic!("it went on") };
        assert_eq!(failure.seq, Seq(6));
        // The packets that the same core had before.
        let held: Vec<_> = (0..6).filter(|seq| seq % cores == 6 % cores).map(|seq| Seq(seq as u64)).collect();
        assert!(held.iter().all(|seq| port.sink.sent.contains(seq)), "{cores} cores: {:?} of {held:?}", port.sink.sent);
    }
}

/// Packets of the same burst that were parsed and wait for their steps are decided all the same.
#[test]
fn a_panic_at_a_look_loses_nothing_that_came_ahead_of_it() {
    let sources: Vec<u8> = (20..52).chain([14]).collect();
    for kind in EngineKind::ALL {
        let cores = (1..=3).filter(|cores| kind.accepts(&Limit::DESCRIPTION, *cores).is_ok());
        // A frame with a VLAN tag is also parsed in order to be steered.
        for (cores, tagged) in cores.flat_map(|cores| [(cores, false), (cores, true)]) {
            let mut port = Memo::of(&sources);
            if tagged {
                let tag = |(_, frame): &mut (_, Vec<u8>)| drop(frame.splice(12..12, [0x81, 0, 0, 5]));
                port.source.frames.iter_mut().for_each(tag);
            }
            let outcome = go(kind, cores, &mut port, &Control::default());
            let Some(EngineError::Panicked(failure)) = outcome.failure else { panic!("{kind} went on") };
            assert_eq!(failure.seq, Seq(32), "{kind} on {cores} cores");
            assert!(port.sink.sent.iter().copied().eq((0..32).map(Seq)), "{kind} on {cores}: {:?}", port.sink.sent);
        }
    }
}

/// A function that counts packets in one number that all packet sets share. Panics on a packet from 10.0.0.13.
struct Counter;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Count(u64);

packet::words! { Count: [1], count => [count.0], words => Self(words[0]); }

impl NetworkFunction for Counter {
    type Meta = Host;
    type Flow = ();
    type Shared<M: Memory> = M::Vector<Count>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "counter",
        summary: "counts packets",
        state: "a number",
        sharing: Sharing::Shares("the number"),
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<Count> {
        memory.vector(1, Count(0))
    }

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), meta: &Host) -> Step<Verdict, M> {
        assert!(meta.address().to_string() != "10.0.0.13", "thirteen is not served");
        let Count(total) = cx.shared.read(&mut cx.tx, 0)?;
        cx.shared.write(&mut cx.tx, 0, Count(total + 1))?;
        Ok(Verdict::FORWARD)
    }
}

/// A burst is one transaction. The panic undoes all of it, and the steps before the panic are taken again.
#[test]
fn a_panic_loses_no_step_of_its_transaction_that_came_ahead_of_it() {
    let sources: Vec<u8> = (0..1_000).map(|seq| 20 + seq as u8 % 40).chain([13]).collect();
    for cores in 1..=3 {
        let (mut port, options) = (Memo::of(&sources), Options::default());
        let kind = EngineKind::Transactional;
        let outcome = run(Arc::new(Counter), kind, cores, &options, &mut port, &Control::default());
        let outcome = outcome.expect("the engine takes it");
        let Some(EngineError::Panicked(failure)) = outcome.failure else { panic!("it went on on {cores} cores") };
        assert_eq!((failure.seq, outcome.counters.forwarded), (Seq(1_000), 1_000), "on {cores} cores");
        assert!(port.sink.sent.iter().copied().eq((0..1_000).map(Seq)), "on {cores} cores");
    }
}

#[test]
fn a_stop_ends_with_everything_that_was_received() {
    let sources = vec![20; 700];
    let all = [
        (EngineKind::Sequential, 1),
        (EngineKind::Rss, 2),
        (EngineKind::RssPlusPlus, 2),
        (EngineKind::Scr, 3),
        (EngineKind::Pipeline, 2),
        (EngineKind::Pipeline, 4),
    ];
    for (kind, cores) in all {
        let control = Control::default();
        let mut port = Memo::of(&sources);
        port.source.stop_at = Some((70, control.clone()));
        let outcome = go(kind, cores, &mut port, &control);
        assert!(outcome.interrupted && outcome.failure.is_none());
        assert_eq!(outcome.counters.received, port.source.next as u64, "{kind}");
        assert!(port.source.next < 700 && port.sink.finished && outcome.counters.add_up());
    }
}

#[test]
fn a_full_table_makes_room_by_the_oldest_and_says_so() {
    let nf = Arc::new(Limit { limit: 3, flows: 4 });
    let mut port = Memo::of(&[1, 2, 3, 4, 5, 1]);
    let outcome = run(nf, EngineKind::Sequential, 1, &Options::default(), &mut port, &Control::default());
    let outcome = outcome.expect("sequential takes it");
    assert_eq!(outcome.counters.flows.evicted, 2);
    assert_eq!(outcome.flows_high_water, 4);
    assert!(outcome.counters.flows.was_full());
}

#[test]
fn sequential_on_two_cores_is_refused_in_a_sentence() {
    let mut port = Memo::of(&[]);
    let result = run(limit(), EngineKind::Sequential, 2, &Options::default(), &mut port, &Control::default());
    let Err(EngineError::Refused(reason)) = result else { panic!("it ran") };
    assert_eq!(reason, "sequential runs on one core, not on 2; all other engines use more");
}

/// One worker of two, over the records of its log and its own packets 0, 2, 4 and so on. It forwards one packet of a source.
fn replayed(records: &[(u64, u8)], own: &[Vec<u8>], bucket: u16) -> (Vec<Fate>, millrace_engine::Counters) {
    let nf = Arc::new(Limit { limit: 1, flows: 64 });
    let mut instance = private_instance(EngineKind::Scr, nf, 2, &Options::default());
    let worker: &mut Worker<Limit, Private<Limit>> = &mut instance.workers[0];
    let seed = millrace_engine::AnyWorker::seed(worker);
    let record = |&(seq, source): &(u64, u8)| {
        let meta = Host::v4([10, 0, 0, source].into());
        Record { seq: Seq(seq), time: Nanos(seq), hash: hash_of::<Limit>(&meta, seed), meta }
    };
    let end = Seq(2 * own.len() as u64);
    let block = Block { end, records: records.iter().map(record).collect(), ..Block::default() };
    let mut batch = Batch::default();
    for (seq, bytes) in (0..).step_by(2).zip(own) {
        let (time, link, fate) = (Nanos(seq), LinkType::Ethernet, Fate::Pending);
        let wire_len = bytes.len() as u32;
        batch
            .push(Packet { seq: Seq(seq), time, offset: 0, len: 0, wire_len, interface: 0, link, bucket, fate }, bytes);
    }
    worker.process_with(&mut batch, &mut Log::of_block(&block), block.end);
    let fates = batch.packets().iter().map(|packet| packet.fate).collect();
    (fates, worker.counters())
}

const THROUGH: Fate = Fate::Transmit(PortId::ACROSS.0);
const OVER: Fate = Fate::Drop(Reason::own(0).0);

#[test]
fn what_was_parsed_for_the_log_is_not_parsed_again() {
    let records = [(0, 1), (1, 2), (2, 2), (3, 3), (5, 4), (6, 1)];
    let mut arp = frame(9);
    arp[12..14].copy_from_slice(&[8, 6]);
    let own = [vec![0xff; 60], vec![0xff; 60], arp, frame(1)];
    for bucket in [0, Packet::SPRAYED] {
        let (fates, counters) = replayed(&records, &own, bucket);
        // Source 1's first; source 2's second, as packet 1 was another core's; a packet without a step; source 1's second.
        assert_eq!(fates, [THROUGH, OVER, THROUGH, OVER], "{bucket}");
        assert_eq!((counters.received, counters.forwarded, counters.replayed), (4, 2, 3), "{bucket}");
        assert_eq!(counters.dropped[usize::from(Reason::own(0).0)], 2);
        assert!(counters.add_up());
    }
}

/// Packets of one core alone take their steps between the replicated ones, in their own order.
#[test]
fn what_the_log_has_no_record_of_is_looked_at_itself() {
    // More than a burst of them, before records, between them and after. Packet 50 has a record.
    let own: Vec<_> = (0..100).map(|at| if at == 50 { vec![0xff; 60] } else { frame(100 + at % 40) }).collect();
    let records = [(21, 200), (100, 200), (101, 201), (139, 202)];
    let (fates, counters) = replayed(&records, &own, 3);
    for (at, fate) in fates.into_iter().enumerate() {
        // From 40 on sources repeat, and source 200's first packet was another core's.
        assert_eq!(fate, if at < 40 { THROUGH } else { OVER }, "own packet {at}");
    }
    assert_eq!((counters.received, counters.forwarded, counters.replayed), (100, 40, 3));
    assert!(counters.add_up());
}

/// The kinds of a core's own packets. Each is one in five.
#[derive(Clone, Copy)]
enum Own {
    /// Only this core's; the core gets its record.
    Owned(u8),
    /// Only this core's, without a record.
    Unseen(u8),
    /// Replicated.
    Elephant,
    /// Takes no step.
    NoStep,
}

/// A worker of `hybrid` that gets records for most of its own packets, replays others' records in between, and lacks the packets of some
/// records.
#[test]
fn what_a_core_is_handed_is_not_parsed_again() {
    let (nf, options) = (Arc::new(Limit { limit: 1, flows: 4096 }), Options::default());
    let mut arp = frame(9);
    arp[12..14].copy_from_slice(&[8, 6]);
    for elephants in [true, false] {
        let mut instance = sharded_instance(EngineKind::Hybrid, Arc::clone(&nf), 2, &options);
        let worker = &mut instance.workers[0];
        let seed = millrace_engine::AnyWorker::seed(worker);
        let meta_of = |source: u8| Host::v4([10, 0, 0, source].into());
        let hash = |source: u8| hash_of::<Limit>(&meta_of(source), seed);
        // Core 0 has the even buckets.
        let bucket = |source: u8| 2 * u16::from(source % 64);
        let record = |seq: u64| Record { seq: Seq(seq), time: Nanos(seq), hash: hash(1), meta: meta_of(1) };
        let owned_record = |seq: u64, source: u8| OwnedRecord {
            seq: Seq(seq),
            hash: hash(source),
            bucket: bucket(source),
            meta: meta_of(source),
        };
        let (mut batch, mut block, mut owned) = (Batch::default(), Block { ..Block::default() }, vec![]);
        let (mut seen, mut expected) = ([false; 256], Vec::new());
        for seq in 0..500_u64 {
            if seq % 2 == 1 {
                match seq % 10 {
                    // Another core's.
                    1 | 3 if elephants => {
                        block.records.push(record(seq));
                        seen[1] = true;
                    }
                    // This core's, and lost on the way: no step is taken, and the source comes again later.
                    5 => owned.push(owned_record(seq, 100 + ((seq * 7 / 10 + 20) % 90) as u8)),
                    _ => {}
                }
                continue;
            }
            let source = 100 + (seq * 7 / 10 % 90) as u8;
            let own = match seq / 2 % 5 {
                0 | 1 => Own::Owned(source),
                2 => Own::Unseen(20 + (seq % 60) as u8),
                3 if elephants => Own::Elephant,
                _ => Own::NoStep,
            };
            let (bucket, bytes, source) = match own {
                Own::Owned(source) => (bucket(source), vec![0xff; 60], Some(source)),
                Own::Unseen(source) => (bucket(source), frame(source), Some(source)),
                Own::Elephant => (Packet::SPRAYED, vec![0xff; 60], Some(1)),
                Own::NoStep => (0, arp.clone(), None),
            };
            match own {
                Own::Owned(source) => owned.push(owned_record(seq, source)),
                Own::Elephant => block.records.push(record(seq)),
                Own::Unseen(_) | Own::NoStep => {}
            }
            let was_seen = source.is_some_and(|source| std::mem::replace(&mut seen[usize::from(source)], true));
            expected.push(if was_seen { OVER } else { THROUGH });
            let (seq, time, link, fate) = (Seq(seq), Nanos(seq), LinkType::Ethernet, Fate::Pending);
            let wire_len = bytes.len() as u32;
            batch.push(Packet { seq, time, offset: 0, len: 0, wire_len, interface: 0, link, bucket, fate }, &bytes);
        }
        block.end = Seq(500);
        let mut log = Log::of_block(&block).with_owned(&owned, block.first);
        worker.process_with(&mut batch, &mut log, block.end);
        let fates: Vec<_> = batch.packets().iter().map(|packet| packet.fate).collect();
        assert_eq!(fates, expected, "with elephants: {elephants}");
        let counters = worker.counters();
        assert_eq!((counters.received, counters.replayed), (250, if elephants { 100 } else { 0 }));
        assert!(counters.add_up());
        assert!(fates.iter().filter(|fate| **fate == THROUGH).count() > 80 && fates.contains(&OVER));
    }
}
