//! The conformance runner finds what it is there to find: a function that shares state and doesn't say so.

use std::sync::Arc;

use engine::{EngineKind, Options};
use lab::conformance::{Plan, Verified, verify};
use memory::{Memory, Vector};
use nf::{Context, Description, NetworkFunction, Opened, PacketSet, Plain, Reason, Sharing, Sizing, Step, Verdict};
use packet::{Headers, Host};
use port::Trace;
use synth::{Params, Profile};
use testkit::Synth;

/// Lets three packets through in all, whoever sends them, and claims that sources share nothing.
struct Liar;

impl NetworkFunction for Liar {
    type Meta = Host;
    type Flow = ();
    type Shared<M: Memory> = M::Vector<u64>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "liar",
        summary: "counts all packets together",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["enough"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<u64> {
        memory.vector(1, 0)
    }

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), _: &Host) -> Step<Verdict, M> {
        let seen = cx.shared.read(&mut cx.tx, 0)?;
        cx.shared.write(&mut cx.tx, 0, seen + 1)?;
        Ok(if seen < 3 { Verdict::FORWARD } else { Verdict::Drop(Reason::own(0)) })
    }
}

fn check(engine: EngineKind, trace: &Trace) -> Verified {
    let plan = Plan { engines: vec![engine], cores: 2..=2, seeds: 0..3, threads: false, options: Options::default() };
    verify(&Arc::new(Liar), trace, &plan, &mut |_, _| ())
}

#[test]
fn hidden_sharing_is_found_and_cut_to_the_shortest_prefix() {
    let params = Params { packets: 500, flows: Some(50), ..Params::default() };
    let trace = Synth::new(Profile::Uniform, &params).expect("the parameters are in range").trace();
    let mismatch = check(EngineKind::Rss, &trace).mismatch.expect("shards count by themselves");
    assert_eq!((mismatch.engine, mismatch.cores, mismatch.seed), (EngineKind::Rss, 2, Some(0)));
    let seq = mismatch.seq.expect("a verdict differs");
    assert_eq!(mismatch.prefix as u64, seq.0 + 1, "the shortest prefix ends with the packet");
    assert_eq!(check(EngineKind::Rss, &trace.prefix(mismatch.prefix - 1)).mismatch, None);
    assert!(check(EngineKind::Rss, &trace.prefix(mismatch.prefix)).mismatch.is_some());
    // Replicas all count everything, so there is nothing to find.
    assert_eq!(check(EngineKind::Scr, &trace).mismatch, None);
}
