//! The four functions of state-compute replication's table 1 under the engines: `sequential` against the naive engine,
//! and all of them against `sequential`, over synthesised traces.

use std::sync::Arc;

use engine::{EngineKind, Options, private_instance};
use functions::{ddos, heavy_hitter, policer, port_knock};
use lab::conformance::{Plan, verify};
use nf::{Function, Verdict};
use port::{Batch, Fate, Trace};
use serde::de::DeserializeOwned;
use synth::{FlowTransport, Params, Profile};
use testkit::{Driver, Synth};

fn config<C: DeserializeOwned>(text: &str) -> C {
    toml::from_str(text).expect("the test's own configuration")
}

/// A trace of each profile, and two with few hosts, so that thresholds are reached.
fn traces() -> Vec<(String, Trace)> {
    let base = Params { packets: 4_000, rate_pps: 1_000, ipv6_percent: 20, ..Params::default() };
    let mut variants: Vec<_> = Profile::ALL.map(|profile| (profile, base.clone())).to_vec();
    let few = Params { hosts: Some(3), flows: Some(50), transport: Some(FlowTransport::Tcp), skew: Some(1.2), ..base };
    variants.push((Profile::Uniform, few.clone()));
    variants.push((Profile::UniversityDc, Params { burst: 8.0, ..few }));
    let trace = |(profile, params): (Profile, Params)| {
        (format!("{profile} {params:?}"), Synth::new(profile, &params).expect("it is possible").trace())
    };
    variants.into_iter().map(trace).collect()
}

/// Holds the sequential engine against the naive one, packet by packet and flow by flow.
fn against_the_naive<N: Function + Clone>(function: &N, name: &str, trace: &Trace) {
    let mut naive = Driver::new(function.clone());
    let verdicts = naive.run_trace(trace);
    let options = Options { flows_max: Some(trace.len()), pin: false, ..Options::default() };
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(function.clone()), 1, &options);
    let mut batch = Batch::default();
    for (packet, bytes) in trace.iter() {
        batch.push(*packet, bytes);
    }
    instance.workers[0].process(&mut batch);
    for (packet, verdict) in batch.packets().iter().zip(verdicts) {
        let goes_out = matches!(packet.fate, Fate::Transmit(_));
        assert_eq!(goes_out, !matches!(verdict, Verdict::Drop(_)), "{name}: packet {}: {verdict:?}", packet.seq);
    }
    let mut flows: Vec<_> =
        instance.workers[0].place().flows(naive.now()).map(|at| (at.key, at.flow, at.deadline)).collect();
    flows.sort_unstable_by_key(|(key, ..)| *key);
    let expected: Vec<_> = naive.flows().into_iter().map(|(key, flow, deadline, _)| (key, flow, deadline)).collect();
    assert_eq!(flows, expected, "{name}");
}

fn check<N: Function + Clone>(function: &N) {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..2,
        threads: false,
        options: Options::default(),
    };
    for (name, trace) in traces() {
        against_the_naive(function, &name, &trace);
        let verified = verify(&Arc::new(function.clone()), &trace, &plan, &mut |_, _| {});
        assert_eq!(verified.mismatch, None, "{name}");
        assert_eq!(verified.refused, [], "{name}");
    }
}

#[test]
fn ddos() {
    check(&ddos::Ddos::new(&config("threshold = 20\nidle_timeout = 1")));
}

#[test]
fn heavy_hitter() {
    check(&heavy_hitter::HeavyHitter::new(&config("idle_timeout = 1")));
}

#[test]
fn policer() {
    check(&policer::Policer::new(&config("rate = \"8kbit\"\nburst = 2000\nidle_timeout = 1")));
    check(&policer::Policer::new(&config("per = \"source\"\nrate = \"64kbit\"\nburst = 3000\nidle_timeout = 1")));
}

#[test]
fn port_knock() {
    check(&port_knock::PortKnock::new(&config("ports = [443, 80]\nknock_timeout = 1\nidle_timeout = 1")));
}
