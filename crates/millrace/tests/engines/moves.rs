//! State that changes cores: traffic whose heavy flows come and go, so that buckets move and packet sets are replicated and
//! given back, under `rss++` and `hybrid`.

use std::sync::Arc;

use engine::{Boundary, CoreBatch, EngineKind, Inspect, Options, Tables, TraceHistory, What, sharded_instance};
use functions::{conntrack, ddos, heavy_hitter, policer, port_knock};
use lab::conformance::{Plan, verify};
use lab::{ReplayPlan, replay_queues};
use nf::Function;
use packet::{Nanos, Seq};
use port::{Batch, Loops, Packet, Replay, Trace};
use synth::{Params, Profile};
use testkit::Synth;

use super::offered_load::{FLOOD, alone, sorted};

/// A second of a flow by itself, then a few flows of very different weight, then many alike, and again with others.
fn restless() -> Trace {
    let mut trace = Trace::new();
    let mut start = Nanos(0);
    for round in 0..4 {
        for (profile, skew, flows) in [
            (Profile::SingleFlow, None, None),
            (Profile::Uniform, Some(1.6), Some(12)),
            (Profile::Uniform, None, Some(300)),
        ] {
            let params = Params { packets: 700, seed: round, skew, flows, rate_pps: 1_000, ..Params::default() };
            let part = Synth::new(profile, &params).expect("it is possible").trace();
            let first = part.packets()[0].time;
            for (packet, bytes) in part.iter() {
                let time = Nanos(start.0 + packet.time.0 - first.0);
                trace.push(Packet { seq: Seq(trace.len() as u64), time, ..*packet }, bytes);
            }
            start = Nanos(trace.packets()[trace.len() - 1].time.0 + 1_000_000);
        }
    }
    trace
}

fn check<N: Function>(nf: N, trace: &Trace) {
    check_kept(nf, trace, Tables::default());
}

fn check_kept<N: Function>(nf: N, trace: &Trace, tables: Tables) {
    let plan = Plan {
        engines: vec![EngineKind::RssPlusPlus, EngineKind::Hybrid],
        cores: 2..=8,
        seeds: 0..3,
        threads: true,
        options: Options { epoch: 128, tables, ..Options::default() },
    };
    let verified = verify(&Arc::new(nf), trace, &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None, "{}", N::DESCRIPTION.name);
    assert!(verified.refused.is_empty() && !verified.was_full);
    assert!(verified.moves > 3 * verified.runs, "{} moves in {} runs", verified.moves, verified.runs);
}

#[test]
fn state_follows_its_packets() {
    let trace = restless();
    check(ddos::Ddos::new(&ddos::Config::default()), &trace);
    check(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), &trace);
    check(policer::Policer::new(&policer::Config::default()), &trace);
    check(port_knock::PortKnock::new(&port_knock::Config::default()), &trace);
    check(conntrack::Conntrack::new(conntrack::Config::default()), &trace);
}

/// The replicas of elephants are alike down to the slots, at each point of the trace: so they age alike, and a flow past its deadline
/// is in all of them or in none when it is given back. Several elephants come at one boundary here, from different cores.
#[test]
fn replicas_of_elephants_are_alike_down_to_their_slots() {
    const CORES: usize = 5;
    let trace = restless();
    let nf = Arc::new(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()));
    let options = Options { epoch: 128, pin: false, ..Options::default() };
    let mut instance = sharded_instance(EngineKind::Hybrid, nf, CORES, &options);
    let mut shares: Vec<CoreBatch<_>> = (0..CORES).map(|_| CoreBatch::default()).collect();
    let (mut batch, mut from_several, mut most) = (Batch::default(), 0, 0);
    for start in (0..trace.len()).step_by(64) {
        batch.clear();
        for index in start..(start + 64).min(trace.len()) {
            batch.push(trace.packets()[index], trace.bytes(index));
        }
        instance.dispatcher.split(&batch, &mut shares);
        let block = shares[0].block.clone().expect("hybrid's cores are told what moves");
        let moves = block.moves();
        instance.workers.iter_mut().for_each(|worker| worker.release(&moves));
        for (worker, share) in instance.workers.iter_mut().zip(&mut shares) {
            worker.acquire(&moves);
            let mut batch = std::mem::take(&mut share.batch);
            share.process(worker, &mut batch);
            share.batch = batch;
        }
        let mut owners: Vec<u16> = moves.list.iter().filter_map(|one| owner(&one.what)).collect();
        owners.dedup();
        from_several += usize::from(owners.len() > 1);
        let replica = |core: usize| {
            let replica = instance.workers[core].place().replica().expect("every core has one");
            replica.flows(Nanos(0)).map(|state| (state.key, state.flow, state.deadline)).collect::<Vec<_>>()
        };
        most = most.max(replica(0).len());
        (1..CORES).for_each(|core| assert_eq!(replica(core), replica(0), "core {core} ahead of packet {}", block.end));
    }
    assert!(most > 1 && from_several > 1, "{most} elephants at most, {from_several} boundaries with several owners");
}

/// A trace that is replayed over and over without a dispatcher, by what one would have handed out: moves, records, and what each core is
/// spared to parse. Flows outlive several passes, and nobody tells passes apart but by their time.
fn check_replayed<N: Function>(nf: N, trace: &Arc<Trace>) {
    const PASSES: u64 = 3;
    let nf = Arc::new(nf);
    let options = Options { epoch: 128, pin: false, ..Options::default() };
    let everything = alone(&nf, trace, PASSES * trace.len() as u64, &options);
    for (kind, cores) in [(EngineKind::Hybrid, 2), (EngineKind::Hybrid, 3), (EngineKind::RssPlusPlus, 3)] {
        let mut instance = sharded_instance(kind, Arc::clone(&nf), cores, &options);
        let mut batch = Batch::default();
        let mut pass = || {
            let (mut steered, mut buckets, mut history) = (Vec::new(), Vec::new(), TraceHistory::default());
            for start in (0..trace.len()).step_by(64) {
                batch.clear();
                for index in start..(start + 64).min(trace.len()) {
                    batch.push(trace.packets()[index], trace.bytes(index));
                }
                instance.dispatcher.assign(&batch, &mut steered, &mut buckets, &mut history);
            }
            (steered, buckets, history, instance.dispatcher.snapshot())
        };
        let (.., start) = pass();
        let (steered, buckets, mut history, _) = pass();
        let (seq, time) = (Seq(trace.len() as u64), trace.packets()[trace.len() - 1].time);
        let moves = instance.dispatcher.back_to(&start);
        history.boundaries.push(Boundary { seq, time, moves });
        instance.dispatcher.restore(&start);
        instance.deal_shards();
        let owned: usize = history.owned.iter().map(Vec::len).sum();
        match kind {
            EngineKind::Hybrid => assert_eq!(history.records.len() + owned, trace.len(), "all take a step"),
            _ => assert_eq!(history.records.len() + owned, 0, "rss++ has what a card has"),
        }
        let replay = Replay::new(Arc::clone(trace)).steered(steered).bucketed(buckets).continued();
        let mut replay = replay.looped(Loops::Times(PASSES));
        let name = format!("{} under {kind} on {cores}", N::DESCRIPTION.name);
        let queues = replay.queues(cores);
        let plan = |end| ReplayPlan { history: &history, packets: trace.len(), span: replay.span(), end, first: 0 };
        replay_queues(&mut instance.workers, queues, Some(&plan(replay.end()))).expect("memory is there");
        let now = trace.packets()[0].time + Nanos(replay.span().0 * PASSES);
        let expected = everything.workers[0].place().flows(now);
        assert!(sorted(instance.flows(now).into_iter()) == sorted(expected), "{name}: flows differ");
        let (counters, expected) = (instance.counters(), everything.workers[0].counters());
        assert_eq!((counters.received, counters.forwarded), (expected.received, expected.forwarded), "{name}");
        assert!(counters.add_up() && counters.dropped == expected.dropped, "{name}: {counters:?}");
        // Lost packets are in the dispatcher's history alone.
        let queues = replay.offer(cores, FLOOD);
        let plan =
            ReplayPlan { history: &history, packets: trace.len(), span: replay.span(), end: replay.end(), first: 0 };
        replay_queues(&mut instance.workers, queues, Some(&plan)).expect("memory is there");
        let received: u64 = replay.offered().iter().map(|offered| offered.received).sum();
        let lost: u64 = replay.offered().iter().map(|offered| offered.lost).sum();
        let after = instance.counters();
        assert!(lost > 0 && after.add_up(), "{name}: {lost} lost, {after:?}");
        assert_eq!(after.received, counters.received + received, "{name}");
    }
}

#[test]
fn what_was_taken_down_of_a_dispatcher_does_for_a_replay() {
    let trace = Arc::new(restless());
    check_replayed(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), &trace);
    check_replayed(conntrack::Conntrack::new(conntrack::Config::default()), &trace);
    check_replayed(ddos::Ddos::new(&ddos::Config::default()), &trace);
}

/// Whose the packet set was that becomes an elephant.
fn owner<M>(what: &What<M>) -> Option<u16> {
    match what {
        What::Promote(one) => Some(one.owner),
        What::Bucket { .. } | What::Demote(_) => None,
    }
}

/// Limits that nobody comes up to change nothing; each flow that moves is counted where it comes to and no more where it was.
#[test]
fn sources_are_counted_where_their_flows_are() {
    let trace = restless();
    let tables = Tables { per_source: Some(5_000), ..Tables::default() };
    check_kept(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), &trace, tables);
    check_kept(conntrack::Conntrack::new(conntrack::Config::default()), &trace, tables);
}

/// So many packets of three hundred flows at so many a second, one stretch behind the other.
fn at_rates(rates: &[(u64, u64)]) -> Trace {
    let (mut trace, mut start) = (Trace::new(), Nanos(0));
    for (packets, rate_pps) in rates {
        let flows = Some((*packets).min(300));
        let params = Params { packets: *packets, flows, rate_pps: *rate_pps, ..Params::default() };
        let part = Synth::new(Profile::Uniform, &params).expect("it is possible").trace();
        let first = part.packets()[0].time;
        for (packet, bytes) in part.iter() {
            let time = Nanos(start.0 + packet.time.0 - first.0);
            trace.push(Packet { seq: Seq(trace.len() as u64), time, ..*packet }, bytes);
        }
        start = Nanos(trace.packets()[trace.len() - 1].time.0 + 1_000_000_000 / rate_pps);
    }
    trace
}

/// By the packets' own times, where a core carries a thousand a second: one more above 85 % of that for each, one fewer where the
/// others would be below 70 %.
#[test]
fn as_many_cores_are_in_use_as_the_packets_need() {
    let nf = Arc::new(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()));
    let options = Options { epoch: 128, core_pps: Some(1_000), pin: false, ..Options::default() };
    for kind in [EngineKind::RssPlusPlus, EngineKind::Hybrid] {
        for (rates, expected) in [
            (&[(3_000, 100)][..], [1, 8, 1]),
            (&[(3_000, 100), (3_000, 4_000)], [1, 8, 5]),
            (&[(3_000, 100), (3_000, 100_000)], [1, 8, 8]),
            (&[(3_000, 4_000), (3_000, 1_500)], [3, 8, 3]),
            (&[(3_000, 4_000), (3_000, 1_300)], [2, 8, 2]),
            (&[(3_000, 4_000), (60, 1)], [6, 8, 6]),
        ] {
            let trace = at_rates(rates);
            let mut instance = sharded_instance(kind, Arc::clone(&nf), 8, &options);
            let mut shares: Vec<CoreBatch<_>> = (0..8).map(|_| CoreBatch::default()).collect();
            let mut batch = Batch::default();
            for start in (0..trace.len()).step_by(64) {
                batch.clear();
                for index in start..(start + 64).min(trace.len()) {
                    batch.push(trace.packets()[index], trace.bytes(index));
                }
                instance.dispatcher.split(&batch, &mut shares);
            }
            let in_use = instance.dispatcher.cores_in_use().expect("it follows the load");
            assert_eq!(in_use, expected, "{kind} at {rates:?}");
            let beyond = instance.dispatcher.table().iter().filter(|core| usize::from(**core) >= in_use[2]).count();
            assert_eq!(beyond, 0, "{kind}: nothing is left to cores that are not in use");
            let busy = shares.iter().filter(|share| !share.batch.is_empty()).count();
            assert!(busy <= in_use[2], "{kind} at {rates:?}: {busy} cores had packets");
        }
    }
}

/// Cores that come and go take nothing with them.
#[test]
fn the_outcome_stays_whoever_is_in_use() {
    let trace = at_rates(&[(600, 100), (900, 4_000), (600, 300), (900, 50_000), (600, 200)]);
    let plan = Plan {
        engines: vec![EngineKind::RssPlusPlus, EngineKind::Hybrid],
        cores: 2..=8,
        seeds: 0..3,
        threads: true,
        options: Options { epoch: 128, core_pps: Some(700), buckets: 256, ..Options::default() },
    };
    let tracker = Arc::new(conntrack::Conntrack::new(conntrack::Config::default()));
    let verified = verify(&tracker, &trace, &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None);
    assert!(verified.moves > 100 * verified.runs, "{} moves in {} runs", verified.moves, verified.runs);
    let counter = Arc::new(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()));
    assert_eq!(verify(&counter, &trace, &plan, &mut |_, _| ()).mismatch, None);
}

/// The first test shows something only if all kinds of move occur.
#[test]
fn everything_that_can_move_does() {
    let trace = restless();
    let nf = Arc::new(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()));
    let options = Options { epoch: 128, pin: false, ..Options::default() };
    for (kind, cores) in [(EngineKind::Hybrid, 2), (EngineKind::Hybrid, 5), (EngineKind::RssPlusPlus, 3)] {
        let mut instance = sharded_instance(kind, Arc::clone(&nf), cores, &options);
        let mut shares: Vec<CoreBatch<_>> = (0..cores).map(|_| CoreBatch::default()).collect();
        let (mut batch, mut buckets, mut promoted, mut demoted) = (Batch::default(), 0, 0, 0);
        for start in (0..trace.len()).step_by(64) {
            batch.clear();
            for index in start..(start + 64).min(trace.len()) {
                batch.push(trace.packets()[index], trace.bytes(index));
            }
            instance.dispatcher.split(&batch, &mut shares);
            for one in shares[0].block.iter().flat_map(|block| block.moves().list) {
                match one.what {
                    What::Bucket { .. } => buckets += 1,
                    What::Promote(_) => promoted += 1,
                    What::Demote(_) => demoted += 1,
                }
            }
        }
        assert!(buckets > 20, "{kind}: {buckets} buckets");
        if kind == EngineKind::Hybrid {
            assert!(promoted >= 4 && demoted >= 3, "{promoted} promoted, {demoted} demoted");
            assert_eq!(promoted - demoted, instance.dispatcher.elephants());
        }
    }
}
