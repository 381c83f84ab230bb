//! Comparison with a full table under the `sequential` engine: the oldest unanswered connection is evicted; if there is none, a new
//! connection has no room.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{EngineKind, Inspect, Options, private_instance};
use functions::conntrack::Conntrack;
use millrace_testkit::Rng;
use millrace_testkit::model::{ConntrackModel, Fate, Model, Tracked};
use nf::NetworkFunction;
use packet::{Fragment, Seq};
use port::{Batch, Fate as Outgoing, Packet};

use super::traffic::{Frame, crowd};
use super::{TIMEOUTS, tell};

/// Returns the number of evicted connections, and of those without room.
fn run(frames: &[Frame], config: &str) -> (u64, u64) {
    let function = Conntrack::new(toml::from_str(config).expect("the test's own configuration"));
    let options = Options { pin: false, ..Options::default() };
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(function), 1, &options);
    let mut model = ConntrackModel::new(config);
    let (mut dropped, mut batch) = (BTreeMap::new(), Batch::default());
    for (frame, number) in frames.iter().zip(0..) {
        let (time, headers) = frame.parsed();
        let len = frame.bytes.len() as u32;
        let descriptor = Packet {
            seq: Seq(number),
            time,
            offset: 0,
            len,
            wire_len: len,
            interface: frame.interface,
            link: headers.link,
            bucket: 0,
            fate: Outgoing::Pending,
        };
        batch.push(descriptor, &frame.bytes);
        instance.workers[0].process(&mut batch);
        let fate = match headers.fragment {
            Fragment::Later => Fate::Drop("fragment"),
            Fragment::Whole | Fragment::First => model.packet(Seq(number), time, &headers, &[]),
        };
        if let Fate::Drop(reason) = fate {
            *dropped.entry(reason).or_default() += 1;
        }
        let goes_out = matches!(batch.packets()[0].fate, Outgoing::Transmit(_));
        assert_eq!(goes_out, matches!(fate, Fate::Forward(_)), "packet {number}: {fate:?}, {headers:?}");
        batch.clear();

        let mut got: Vec<_> = instance.flows(time).iter().map(|at| tell(at.key, &at.flow, at.deadline)).collect();
        got.sort_unstable_by_key(|tracked| tracked.name);
        let of_table = |tracked: &Tracked| Tracked { keeps_place: tracked.assured, ..*tracked };
        let expected: Vec<_> = model.connections(time).iter().map(of_table).collect();
        assert_eq!(got, expected, "behind packet {number}: {headers:?}");
    }
    let counters = instance.counters();
    let drops = counters.drops().map(|(reason, count)| (reason.name(Conntrack::DESCRIPTION.drop_reasons), count));
    assert_eq!(drops.filter(|(_, count)| *count > 0).collect::<BTreeMap<_, u64>>(), dropped);
    (instance.flow_counters().evicted, instance.flow_counters().orphaned)
}

#[test]
fn the_oldest_that_was_never_answered_makes_room() {
    let timeouts: Vec<String> = TIMEOUTS.iter().map(|key| format!("{key} = 1000")).collect();
    let mut full = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let frames = crowd(&mut rng, 1_000);
        let flows = 4 + rng.below(30);
        let config = format!("flows = {flows}\nflows_v6 = {flows}\n[timeouts]\n{}", timeouts.join("\n"));
        let (evicted, orphaned) = run(&frames, &config);
        full = (full.0 + evicted, full.1 + orphaned);
    }
    assert!(full.0 > 1_000 && full.1 > 100, "{full:?}");
}
