//! The laws of [`Speed::fold`] and [`Speed::add`]: folding equal contributions gives the same result as single steps,
//! for any times in between.

use functions::{anti_ddos, ddos, heavy_hitter, port_knock};
use memory::{Local, LocalTx};
use millrace_testkit::Synth;
use nf::{Context, Effects, Function, Meta, Opened, Speed, Sum, local_fingerprint};
use packet::{Nanos, Seq};
use port::Packet;
use proptest::collection::vec;
use proptest::prelude::*;
use synth::{FlowTransport, Params, Profile};

/// Returns different contributions of a few hosts for a function.
fn contributions<N: Function>(nf: &N) -> Vec<N::Meta> {
    let params = Params { packets: 60, flows: Some(6), transport: Some(FlowTransport::Tcp), ..Params::default() };
    let trace = Synth::new(Profile::Hyperscaler, &params).expect("it is possible").trace();
    let meta = |(packet, bytes): (&Packet, &[u8])| {
        let headers = packet::parse(packet.link, bytes, packet.wire_len, 0).expect("it is whole");
        nf.meta(&headers, bytes)
    };
    trace.iter().filter_map(meta).collect()
}

/// Takes a step and returns its effects.
fn step<N: Function>(nf: &N, shared: &N::Shared<Local>, flow: &mut N::Flow, meta: &N::Meta, now: Nanos) -> Effects {
    let mut cx = Context::<N, Local>::new(shared, LocalTx::default(), now, Seq(0));
    let Ok(_) = nf.packet(&mut cx, flow, meta);
    cx.effects()
}

/// Takes a flow through `runs`: numbers of steps with their gaps in nanoseconds. Returns the number of runs that were folded.
fn hold<N: Function>(nf: &N, which: usize, runs: &[(usize, Vec<u64>)]) -> usize {
    assert!(N::Speed::FOLDS);
    let metas = contributions(nf);
    let mut now = Nanos(1_000_000_000);
    let shared = nf.shared(&Local::default());
    let mut cx = Context::<N, Local>::new(&shared, LocalTx::default(), now, Seq(0));
    let mut flow = None;
    for meta in metas.iter().cycle().skip(which).take(metas.len()) {
        let Ok(opened) = nf.open(&mut cx, meta);
        if let Opened::Flow(state) = opened {
            flow = Some(state);
            break;
        }
    }
    let (Some(mut flow), mut folded) = (flow, 0) else { return 0 };
    for (meta, gaps) in runs {
        let meta = &metas[meta % metas.len()];
        let (before, first) = (flow, now);
        let mut latest = Effects::default();
        let mut assured = false;
        for gap in gaps {
            now = now + Nanos(*gap);
            let effects = step(nf, &shared, &mut flow, meta, now);
            if effects.close {
                return folded;
            }
            assert!(
                effects.deadline.unwrap_or_default() >= latest.deadline.unwrap_or_default(),
                "a deadline goes back"
            );
            (latest, assured) = (effects, assured | effects.assured);
        }
        let mut at_once = before;
        let mut cx = Context::<N, Local>::new(&shared, LocalTx::default(), now, Seq(0));
        let stepped = local_fingerprint(nf, &shared);
        let Ok(done) = N::Speed::fold(nf, &mut cx, &mut at_once, meta, gaps.len() as u32, first);
        // No function that folds changes shared state, so both can run one after the other.
        assert_eq!(local_fingerprint(nf, &shared), stepped);
        if done {
            folded += 1;
            assert_eq!(at_once, flow, "{meta:?} with gaps of {gaps:?} from {before:?}");
            assert_eq!(cx.effects(), Effects { assured, ..latest });
        } else {
            assert_eq!(at_once, before, "nothing done is nothing done");
        }
    }
    folded
}

fn runs() -> impl Strategy<Value = Vec<(usize, Vec<u64>)>> {
    vec((0..100_usize, vec(0..400_000_000_u64, 2..9)), 1..8)
}

proptest! {
    #[test]
    fn runs_are_what_their_steps_are(which in 0..50_usize, runs in runs()) {
        let config: ddos::Config = toml::from_str("threshold = 7").expect("it is one");
        hold(&ddos::Ddos::new(&config), which, &runs);
        hold(&heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), which, &runs);
        let config: port_knock::Config = toml::from_str("ports = [443]").expect("it is one");
        hold(&port_knock::PortKnock::new(&config), which, &runs);
        hold(&anti_ddos::AntiDdos::new(&anti_ddos::Config::default()), which, &runs);
    }
}

/// Gives a flow contributions with these gaps in nanoseconds. Each prefix that can be added must give the same result as its steps. Returns
/// the number of prefixes that could be added.
fn hold_sums<N: Function>(nf: &N, which: usize, gaps: &[u64]) -> usize {
    assert!(N::Speed::ADDS);
    let metas = contributions(nf);
    let key = metas[which % metas.len()].key();
    let of_key: Vec<_> = metas.into_iter().filter(|meta| meta.key() == key).collect();
    let mut now = Nanos(1_000_000_000);
    let shared = nf.shared(&Local::default());
    let mut cx = Context::<N, Local>::new(&shared, LocalTx::default(), now, Seq(0));
    let Ok(Opened::Flow(mut flow)) = nf.open(&mut cx, &of_key[0]) else { return 0 };
    // A new flow has always taken a step.
    step(nf, &shared, &mut flow, &of_key[0], now);
    let (start, mut sum) = (flow, Sum { count: 0, amount: 0, last: now });
    for (gap, meta) in gaps.iter().zip(of_key.iter().cycle()) {
        now = now + Nanos(*gap);
        step(nf, &shared, &mut flow, meta, now);
        sum = Sum { count: sum.count + 1, amount: sum.amount + u64::from(N::Speed::amount(meta)), last: now };
        let mut added = start;
        if !N::Speed::add(nf, &mut added, &sum) {
            assert_eq!(added, start, "nothing done is nothing done");
            return sum.count as usize - 1;
        }
        assert_eq!(added, flow, "{sum:?} with gaps of {gaps:?} from {start:?}");
    }
    gaps.len()
}

proptest! {
    #[test]
    fn sums_are_what_their_steps_are(which in 0..50_usize, gaps in vec(0..100_000_000_u64, 1..40)) {
        let config: ddos::Config = toml::from_str("threshold = 7").expect("it is one");
        hold_sums(&ddos::Ddos::new(&config), which, &gaps);
        let forever: ddos::Config = toml::from_str("threshold = 7\nwindow = 0").expect("it is one");
        prop_assert_eq!(hold_sums(&ddos::Ddos::new(&forever), which, &gaps), gaps.len());
        let heavy = heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default());
        prop_assert_eq!(hold_sums(&heavy, which, &gaps), gaps.len());
    }
}

/// A window of a second folds packets within it, and none of the next.
#[test]
fn sums_end_with_their_window() {
    let config: ddos::Config = toml::from_str("threshold = 7").expect("it is one");
    assert_eq!(hold_sums(&ddos::Ddos::new(&config), 0, &[100_000_000; 20]), 9);
}

/// The law is not vacuous: runs are folded.
#[test]
fn runs_are_folded() {
    let runs: Vec<_> = (0..20).map(|meta| (meta, vec![1_000; 4])).collect();
    let config: ddos::Config = toml::from_str("threshold = 7").expect("it is one");
    assert_eq!(hold(&ddos::Ddos::new(&config), 0, &runs), 20);
    assert_eq!(hold(&heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), 0, &runs), 20);
    // The first run has the flow's first two packets, which are not folded.
    assert_eq!(hold(&anti_ddos::AntiDdos::new(&anti_ddos::Config::default()), 0, &runs), 19);
}
