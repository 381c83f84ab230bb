//! Replicas behind a link that loses packets: with loss recovery, every packet that arrives gets the verdict, and every replica
//! the state, that `sequential` comes to over the packets whose record reached anyone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use engine::recovery::{Patience, Tally};
use engine::{CoreBatch, Counters, EngineKind, Histories, Link, LinkEnd, Log, Options, TraceHistory, private_instance};
use functions::{conntrack, ddos, heavy_hitter, nat, policer, port_knock};
use nf::{Function, Reason};
use packet::{Nanos, Seq};
use port::{Batch, Fate, Trace};
use synth::{Params, Profile};
use testkit::Synth;

/// Packets that are dispatched at a time: several for each core, and often not as many for each.
const BURST: usize = 13;
const PACKETS: usize = 1_200;

/// What became of packets, by number: their fate and their bytes.
type Fates = BTreeMap<u64, (Fate, Vec<u8>)>;

fn note(fates: &mut Fates, batch: &Batch) {
    for (index, packet) in batch.packets().iter().enumerate() {
        fates.insert(packet.seq.0, (packet.fate, batch.bytes(index).to_vec()));
    }
}

/// Whether the packet's record reaches any core.
fn reaches_anyone(link: Link, seq: u64, cores: usize, packets: usize) -> bool {
    (seq..seq + cores as u64).any(|carrier| carrier < packets as u64 && !link.loses(Seq(carrier)))
}

/// The trace in batches, numbered.
fn batches(trace: &Trace) -> Vec<Batch> {
    let mut batches = Vec::new();
    for index in 0..trace.len() {
        if index % BURST == 0 {
            batches.push(Batch::default());
        }
        let (packet, bytes) = (trace.packets()[index], trace.bytes(index));
        let packet = port::Packet { seq: Seq(index as u64), ..packet };
        batches.last_mut().expect("one was begun").push(packet, bytes);
    }
    batches
}

/// The flows that are alive, in an order of their own.
fn flows<N: Function>(place: &engine::Private<N>, now: Nanos) -> Vec<String> {
    let mut flows: Vec<String> =
        place.flows(now).map(|state| format!("{:?} {:?} {:?}", state.key, state.flow, state.deadline)).collect();
    flows.sort_unstable();
    flows
}

fn check<N: Function>(nf: N, trace: &Trace, cores: usize, link: Link) -> Tally {
    let (nf, name) = (Arc::new(nf), N::DESCRIPTION.name);
    let options = Options { flows_max: Some(trace.len()), pin: false, ..Options::default() };
    let batches = batches(trace);
    let now = batches.last().and_then(|batch| batch.packets().last()).expect("there are packets").time;

    let mut oracle = private_instance(EngineKind::Sequential, Arc::clone(&nf), 1, &options);
    let mut expected = Fates::new();
    for batch in &batches {
        let mut received = Batch::default();
        for (index, packet) in batch.packets().iter().enumerate() {
            if reaches_anyone(link, packet.seq.0, cores, trace.len()) {
                received.push(*packet, batch.bytes(index));
            }
        }
        oracle.workers[0].process(&mut received);
        note(&mut expected, &received);
    }

    let mut instance = private_instance(EngineKind::Scr, nf, cores, &options);
    let mut of_cores: Vec<Vec<CoreBatch<N::Meta>>> = (0..cores).map(|_| Vec::new()).collect();
    for batch in &batches {
        let mut shares: Vec<CoreBatch<N::Meta>> = (0..cores).map(|_| CoreBatch::default()).collect();
        instance.dispatcher.split(batch, &mut shares);
        of_cores.iter_mut().zip(shares).for_each(|(of_core, share)| of_core.push(share));
    }
    let ends = LinkEnd::ends(link, cores, 2 * BURST, Histories::InMemory);
    let (mut got, mut total) = (Fates::new(), Tally::default());
    thread::scope(|scope| {
        let cores: Vec<_> = instance
            .workers
            .iter_mut()
            .zip(ends)
            .zip(of_cores)
            .map(|((worker, mut end), share)| {
                scope.spawn(move || {
                    let mut fates = Fates::new();
                    for mut share in share {
                        let block = share.block.take().expect("a replica gets the records");
                        end.process(worker, &mut share.batch, &block).expect("nobody is fenced");
                        note(&mut fates, &share.batch);
                    }
                    let (tally, result) = end.finish(worker, Seq(PACKETS as u64));
                    result.expect("nobody is fenced");
                    (fates, tally)
                })
            })
            .collect();
        for core in cores {
            let (fates, tally) = core.join().expect("no core panics");
            got.extend(fates);
            total.add(&tally);
        }
    });

    let arrive = |seq: u64| !link.loses(Seq(seq));
    assert_eq!(got.len(), (0..trace.len() as u64).filter(|seq| arrive(*seq)).count(), "{name} on {cores} cores");
    for (seq, came) in &got {
        assert!(Some(came) == expected.get(seq), "{name} on {cores} cores, packet {seq}: {came:?}");
    }
    let state = flows(oracle.workers[0].place(), now);
    let mut counters = Counters::default();
    for (core, worker) in instance.workers.iter().enumerate() {
        assert!(flows(worker.place(), now) == state, "{name}: core {core} of {cores} has another state");
        counters.add(&worker.counters());
    }
    assert!(counters.add_up(), "{name}: {counters:?}");
    assert_eq!(counters.received, trace.len() as u64);
    assert_eq!(counters.dropped[usize::from(Reason::LINK_LOSS.0)], total.lost, "{name} on {cores} cores");
    total
}

/// Passes over a trace that is replayed.
const PASSES: u64 = 3;
const SPAN: Nanos = Nanos(7_000_000_000);

/// The same of a replay whose packets bring their history along.
fn check_replayed<N: Function>(nf: N, trace: &Trace, cores: usize, link: Link) -> Tally {
    let (nf, name) = (Arc::new(nf), N::DESCRIPTION.name);
    let trace = trace.prefix(trace.len() - trace.len() % cores);
    let total = trace.len() * PASSES as usize;
    let options = Options { flows_max: Some(total), pin: false, ..Options::default() };
    let at = |seq: usize| {
        let (pass, index) = ((seq / trace.len()) as u64, seq % trace.len());
        let packet = trace.packets()[index];
        let packet = port::Packet { seq: Seq(seq as u64), time: packet.time + Nanos(SPAN.0 * pass), ..packet };
        (packet, trace.bytes(index))
    };

    let mut oracle = private_instance(EngineKind::Sequential, Arc::clone(&nf), 1, &options);
    let mut received = Batch::default();
    for seq in (0..total).filter(|seq| reaches_anyone(link, *seq as u64, cores, total)) {
        let (packet, bytes) = at(seq);
        received.push(packet, bytes);
    }
    let now = received.packets().last().expect("something arrives").time;
    oracle.workers[0].process(&mut received);
    let mut expected = Fates::new();
    note(&mut expected, &received);

    let mut instance = private_instance(EngineKind::Scr, nf, cores, &options);
    let mut history = TraceHistory::default();
    for batch in &batches(&trace) {
        instance.dispatcher.assign(batch, &mut Vec::new(), &mut Vec::new(), &mut history);
    }
    let ends = LinkEnd::ends(link, cores, 3 * BURST, Histories::InMemory);
    let (mut got, mut tally) = (Fates::new(), Tally::default());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (core, (worker, mut end)) in instance.workers.iter_mut().zip(ends).enumerate() {
            let (history, at, packets) = (&history, &at, trace.len());
            threads.push(scope.spawn(move || {
                let (mut fates, mut batch) = (Fates::new(), Batch::default());
                let mut log = Log::of_loop(history, packets, SPAN, worker.next());
                let own: Vec<usize> = (core..total).step_by(cores).collect();
                for share in own.chunks(BURST) {
                    batch.clear();
                    for (packet, bytes) in share.iter().map(|seq| at(*seq)) {
                        batch.push(packet, bytes);
                    }
                    end.process_replayed(worker, &mut batch, &mut log).expect("nobody is fenced");
                    note(&mut fates, &batch);
                }
                let (tally, result) = end.finish_replayed(worker, &mut log, Seq(total as u64));
                result.expect("nobody is fenced");
                (fates, tally)
            }));
        }
        for core in threads {
            let (fates, at_core) = core.join().expect("no core panics");
            got.extend(fates);
            tally.add(&at_core);
        }
    });

    assert_eq!(got.len(), (0..total as u64).filter(|seq| !link.loses(Seq(*seq))).count(), "{name} on {cores} cores");
    for (seq, came) in &got {
        assert!(Some(came) == expected.get(seq), "{name} on {cores} cores, packet {seq} of a replay: {came:?}");
    }
    let state = flows(oracle.workers[0].place(), now);
    for (core, worker) in instance.workers.iter().enumerate() {
        assert!(flows(worker.place(), now) == state, "{name}: core {core} of {cores} has another state");
    }
    tally
}

#[test]
fn replicas_of_a_replay_agree_with_sequential_over_what_anyone_received() {
    let mut total = Tally::default();
    let params = Params { packets: PACKETS as u64 - 3, seed: 8, ipv6_percent: 20, ..Params::default() };
    let trace = Synth::new(Profile::UniversityDc, &params).expect("the parameters are in range").trace();
    for cores in 2..=5 {
        for loss_ppm in [0, 100, 10_000, 100_000, 400_000] {
            let link = Link { loss_ppm, seed: 3 + cores as u64, patience: Patience::Endless, ..Link::default() };
            let ddos = ddos::Ddos::new(&toml::from_str("threshold = 40").unwrap());
            total.add(&check_replayed(ddos, &trace, cores, link));
            total.add(&check_replayed(conntrack::Conntrack::new(conntrack::Config::default()), &trace, cores, link));
            let rate = toml::from_str("rate = \"1Mbit\"\nburst = 9000").unwrap();
            total.add(&check_replayed(policer::Policer::new(&rate), &trace, cores, link));
        }
    }
    assert!(total.lost > 1000 && total.recovered_total() > 1000 && total.nowhere > 0, "{total:?}");
    assert!(total.waits_for_room > 0, "nobody ever came to the end of its log: {total:?}");
}

/// Without recovery a core makes do with what its own packets bring: at no loss that is everything.
#[test]
fn a_replay_without_recovery_loses_the_records_with_the_packets() {
    let params = Params { packets: 600, seed: 2, ..Params::default() };
    let trace = Synth::new(Profile::Uniform, &params).expect("the parameters are in range").trace();
    let options = Options { flows_max: Some(600), pin: false, ..Options::default() };
    for (loss_ppm, everything) in [(0, true), (200_000, false)] {
        let link = Link { loss_ppm, recovery: false, seed: 1, ..Link::default() };
        let nf = Arc::new(ddos::Ddos::new(&ddos::Config::default()));
        let mut instance = private_instance(EngineKind::Scr, nf, 2, &options);
        let mut history = TraceHistory::default();
        for batch in &batches(&trace) {
            instance.dispatcher.assign(batch, &mut Vec::new(), &mut Vec::new(), &mut history);
        }
        for (core, (worker, mut end)) in
            instance.workers.iter_mut().zip(LinkEnd::ends(link, 2, 64, Histories::InMemory)).enumerate()
        {
            let mut log = Log::of_loop(&history, 600, SPAN, Seq(0));
            let mut arrived = Vec::new();
            for start in (core..600).step_by(2 * BURST) {
                let mut batch = Batch::default();
                for seq in (start..(start + 2 * BURST).min(600)).step_by(2) {
                    batch.push(port::Packet { seq: Seq(seq as u64), ..trace.packets()[seq] }, trace.bytes(seq));
                }
                end.process_replayed(worker, &mut batch, &mut log).expect("nobody waits");
                arrived.extend(batch.packets().iter().map(|packet| packet.seq.0));
            }
            let counters = worker.counters();
            assert_eq!(arrived.len() as u64 + counters.dropped[usize::from(Reason::LINK_LOSS.0)], 300);
            // Each packet that came brought the one ahead of it along.
            let brought = arrived.iter().filter(|seq| **seq > 0).count() as u64;
            assert_eq!(counters.replayed, brought);
            // The first packet of all brings nothing.
            assert_eq!(counters.replayed + u64::from(core == 0) == 300, everything);
        }
    }
}

#[test]
fn replicas_agree_with_sequential_over_what_anyone_received() {
    let mut total = Tally::default();
    for (index, profile) in Profile::ALL.into_iter().enumerate() {
        let params = Params { packets: PACKETS as _, seed: 5, ipv6_percent: 20, ..Params::default() };
        let trace = Synth::new(profile, &params).expect("the parameters are in range").trace();
        assert_eq!(trace.len(), PACKETS);
        for cores in 2..=8 {
            for loss_ppm in [0, 100, 10_000, 100_000] {
                let link = Link {
                    loss_ppm,
                    seed: (index * 10 + cores) as u64,
                    patience: Patience::Endless,
                    ..Link::default()
                };
                total.add(&check(ddos::Ddos::new(&toml::from_str("threshold = 40").unwrap()), &trace, cores, link));
                total.add(&check(conntrack::Conntrack::new(conntrack::Config::default()), &trace, cores, link));
                if loss_ppm == 100_000 {
                    let pools = toml::from_str("mappings = 512\nsessions = 512\nports = \"1024-3071\"").unwrap();
                    total.add(&check(nat::Nat::new(pools), &trace, cores, link));
                    let heavy = heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default());
                    total.add(&check(heavy, &trace, cores, link));
                    let knock = port_knock::PortKnock::new(&port_knock::Config::default());
                    total.add(&check(knock, &trace, cores, link));
                    let rate = toml::from_str("rate = \"1Mbit\"\nburst = 9000").unwrap();
                    total.add(&check(policer::Policer::new(&rate), &trace, cores, link));
                }
            }
        }
    }
    assert!(total.lost > 1000 && total.recovered_total() > 1000 && total.nowhere > 0, "{total:?}");
}

#[test]
fn loss_without_recovery_is_refused() {
    let link = Link { loss_ppm: 100, recovery: false, ..Link::default() };
    let refusal = link.accepts(EngineKind::Scr, 2).expect_err("replicas would differ");
    assert!(refusal.contains("100 packets of a million") && refusal.contains("turn recovery on"), "{refusal}");
    assert_eq!(Link { loss_ppm: 0, ..link }.accepts(EngineKind::Scr, 2), Ok(()));
}

#[test]
fn the_packets_of_a_fenced_core_are_dropped_by_name() {
    let params = Params { packets: PACKETS as _, seed: 7, ..Params::default() };
    let trace = Synth::new(Profile::Backbone, &params).expect("the parameters are in range").trace();
    let nf = Arc::new(conntrack::Conntrack::new(conntrack::Config::default()));
    let options = Options { flows_max: Some(trace.len()), pin: false, ..Options::default() };
    let mut instance = private_instance(EngineKind::Scr, nf, 2, &options);
    let link = Link { loss_ppm: 10_000, seed: 7, patience: Patience::Looks(5), ..Link::default() };
    let mut ends = LinkEnd::ends(link, 2, 2 * BURST, Histories::InMemory);
    let mut of_cores = [Vec::new(), Vec::new()];
    for batch in batches(&trace) {
        let mut shares = [CoreBatch::default(), CoreBatch::default()];
        instance.dispatcher.split(&batch, &mut shares);
        of_cores.iter_mut().zip(shares).for_each(|(of_core, share)| of_core.push(share));
    }
    // Core 0 does all its work while core 1 does nothing, so that it takes core 1 for stalled.
    let mut fenced = 0;
    for (core, of_core) in of_cores.into_iter().enumerate() {
        for mut share in of_core {
            let block = share.block.take().expect("a replica gets the records");
            fenced += usize::from(ends[core].process(&mut instance.workers[core], &mut share.batch, &block).is_err());
            assert!(core == 0 || share.batch.is_empty(), "what a fenced core didn't publish goes nowhere");
        }
        assert_eq!(fenced > 0, core == 1);
        let counters = instance.workers[core].counters();
        assert!(counters.add_up(), "core {core}: {counters:?}");
        assert_eq!(counters.received, (trace.len() / 2) as u64);
        let lost = counters.dropped[usize::from(Reason::LINK_LOSS.0)];
        let dropped = counters.dropped[usize::from(Reason::FENCED.0)];
        assert_eq!(dropped, if core == 1 { counters.received - lost } else { 0 });
    }
    assert_eq!(ends[0].tally().fenced, 1);
}
