//! Replicas that lose packets in their rings: the sequencer saw those, so they are in the shared log, and every replica
//! ends with the state of one core that lost nothing.

use std::sync::Arc;
use std::time::Duration;

use engine::{EngineInstance, EngineKind, FlowState, Options, PrivateInstance, TraceHistory, private_instance};
use functions::{conntrack, ddos, heavy_hitter, policer, port_knock};
use lab::{ReplayPlan, replay_queues};
use nf::Function;
use packet::{Nanos, Seq};
use port::{Batch, Load, Loops, Offered, Replay, Trace};
use synth::{Params, Profile};
use testkit::Synth;

/// More than any core carries: nearly everything is lost.
pub(crate) const FLOOD: Load =
    Load { rate_pps: 1e9, warm_up: Duration::ZERO, duration: Duration::from_micros(60), descriptors: 64 };
/// So few that the cores mostly keep up.
const TRICKLE: Load =
    Load { rate_pps: 5e5, warm_up: Duration::ZERO, duration: Duration::from_millis(2), descriptors: 64 };

pub(crate) fn sorted<N: Function>(flows: impl Iterator<Item = FlowState<N>>) -> Vec<String> {
    let mut flows: Vec<_> = flows.map(|state| (state.key, state.flow, state.deadline)).collect();
    flows.sort_unstable_by_key(|(key, ..)| *key);
    flows.into_iter().map(|flow| format!("{flow:?}")).collect()
}

/// The state of one core that was given the first `packets` packets of the looped trace.
pub(crate) fn alone<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    packets: u64,
    options: &Options,
) -> PrivateInstance<N> {
    let mut instance: PrivateInstance<N> = private_instance(EngineKind::Sequential, Arc::clone(nf), 1, options);
    let mut queue = Replay::new(Arc::clone(trace)).looped(Loops::UntilStopped).queues(1).remove(0);
    let (mut batch, mut part) = (Batch::default(), Batch::default());
    loop {
        queue.receive(&mut batch).expect("memory is there");
        part.clear();
        for (index, packet) in batch.packets().iter().enumerate().filter(|(_, packet)| packet.seq.0 < packets) {
            part.push(*packet, batch.bytes(index));
        }
        instance.workers[0].process(&mut part);
        if part.len() < batch.len() {
            return instance;
        }
    }
}

fn check<N: Function>(nf: N, trace: &Arc<Trace>) {
    let nf = Arc::new(nf);
    let options = Options { flows_max: Some(trace.len()), pin: false, ..Options::default() };
    for cores in 2..=3 {
        let name = N::DESCRIPTION.name;
        let mut instance: PrivateInstance<N> = private_instance(EngineKind::Scr, Arc::clone(&nf), cores, &options);
        let (mut steered, mut buckets, mut history) = (Vec::new(), Vec::new(), TraceHistory::default());
        let mut one = Batch::default();
        for (packet, bytes) in trace.iter() {
            one.clear();
            one.push(*packet, bytes);
            instance.dispatcher.assign(&one, &mut steered, &mut buckets, &mut history);
        }
        let mut replay = Replay::new(Arc::clone(trace)).steered(steered).continued();
        let span = replay.span();
        let (mut packets, mut received) = (0, 0);
        for load in [FLOOD, TRICKLE, FLOOD] {
            let queues = replay.offer(cores, load);
            let plan = ReplayPlan { history: &history, packets: trace.len(), span, end: replay.end(), first: 0 };
            replay_queues(&mut instance.workers, queues, Some(&plan)).expect("memory is there");
            let offered = replay.offered().into_iter().fold(Offered::default(), Offered::and);
            assert!(load != FLOOD || offered.lost > 0, "{name} on {cores}: {offered:?}");
            packets += offered.offered;
            received += offered.received;
        }
        let EngineInstance { workers, .. } = &mut instance;
        let counted: u64 = workers.iter().map(|worker| worker.counters().received).sum();
        assert_eq!(counted, received, "{name} on {cores}");
        let expected = alone(&nf, trace, packets, &options);
        let now = Nanos(trace.packets()[0].time.0 + span.0 * (packets / trace.len() as u64));
        for worker in workers {
            assert_eq!(worker.next(), Seq(packets), "every core comes to the end");
            // Each record but its own packets' was replayed, those of packets that it lost among them.
            let counters = worker.counters();
            assert!(history.records.len() < trace.len() || counters.received + counters.replayed == packets);
            assert!(
                sorted(worker.place().flows(now)) == sorted(expected.workers[0].place().flows(now)),
                "{name} on {cores}: a replica differs"
            );
        }
    }
}

#[test]
fn replicas_stay_whole_when_packets_are_lost_on_the_way() {
    for profile in [Profile::Hyperscaler, Profile::SingleFlow] {
        let params = Params { packets: 3_000, rate_pps: 1_000, ..Params::default() };
        let trace = Arc::new(Synth::new(profile, &params).expect("it is possible").trace());
        check(ddos::Ddos::new(&ddos::Config::default()), &trace);
        check(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), &trace);
        check(policer::Policer::new(&policer::Config::default()), &trace);
        check(port_knock::PortKnock::new(&port_knock::Config::default()), &trace);
        check(conntrack::Conntrack::new(conntrack::Config::default()), &trace);
    }
}

/// The same comparison finds a replica that was not told of what it lost.
#[test]
fn a_replica_without_the_log_is_not_whole() {
    let params = Params { packets: 3_000, rate_pps: 1_000, ..Params::default() };
    let trace = Arc::new(Synth::new(Profile::SingleFlow, &params).expect("it is possible").trace());
    let options = Options { flows_max: Some(trace.len()), pin: false, ..Options::default() };
    let nf = Arc::new(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()));
    let mut instance: PrivateInstance<_> = private_instance(EngineKind::Scr, Arc::clone(&nf), 2, &options);
    let mut replay = Replay::new(Arc::clone(&trace));
    let queues = replay.offer(2, FLOOD);
    replay_queues(&mut instance.workers, queues, None).expect("memory is there");
    let offered = replay.offered().into_iter().fold(Offered::default(), Offered::and);
    let expected = alone(&nf, &trace, offered.offered, &options);
    let now = trace.packets()[0].time;
    assert_ne!(
        sorted(instance.workers[0].place().flows(now)),
        sorted(expected.workers[0].place().flows(now)),
        "{offered:?}"
    );
}
