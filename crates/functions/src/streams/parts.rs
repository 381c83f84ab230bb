//! A function over streams with a part of its work, for measuring what each stage takes ([`Stages`](nf::Stages)).
//!
//! Reassembly ends on a side when the function has heard enough of it. So a first run notes when that was, and the run that reassembles
//! without the function ends at the same places.
#![expect(
    clippy::disallowed_types,
    reason = "a measurement notes what a run on one core did; no engine shares these among cores"
)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use nf::{Description, Flow, Stages};

use super::{Direction, Hearing, Portion, Said, Session, StreamFunction, Streams};

/// Tracking alone, then with reassembly.
pub(super) fn stages<F: StreamFunction, S: Stages>(streams: &Streams<F>, packets: usize, stages: &mut S) {
    let script = Script::new(packets);
    let function = || streams.function.clone();
    stages.stage("track", streams.with(Deaf(function())));
    stages.rehearse(streams.with(Recorded::new(function(), &script)));
    stages.stage("reassemble", streams.with(Scripted::new(function(), &script)));
}

/// Tracks sessions and hears nothing of them.
#[derive(Clone, Debug)]
struct Deaf<F>(F);

impl<F: StreamFunction> StreamFunction for Deaf<F> {
    type Flow = F::Flow;

    const DESCRIPTION: Description = F::DESCRIPTION;
    const LISTENS: bool = false;
    const HEARS_UDP: bool = F::HEARS_UDP;

    fn drops(&self) -> bool {
        self.0.drops()
    }

    fn counters(&self) -> usize {
        self.0.counters()
    }

    fn open(&self, session: &Session) -> F::Flow {
        self.0.open(session)
    }

    fn hear(&self, _: &mut Hearing<'_>, _: &mut F::Flow, _: Said<'_>) {}
}

/// For each session, in the order in which they open, and each side: the number of calls after which the function had heard enough of it;
/// 0 if it never had.
#[derive(Debug)]
struct Script {
    ends: Vec<[AtomicU32; 2]>,
    /// The sessions of the first run.
    sessions: AtomicUsize,
}

/// The order of all atomics here: the runs follow each other on one core.
const ALONE: Ordering = Ordering::Relaxed;

impl Script {
    /// An empty script for the sessions of so many packets.
    fn new(packets: usize) -> Arc<Self> {
        Arc::new(Self { ends: (0..packets).map(|_| Default::default()).collect(), sessions: AtomicUsize::new(0) })
    }

    fn ends(&self, session: u32) -> Option<&[AtomicU32; 2]> {
        self.ends.get(session as usize)
    }
}

/// The state of a session, with its place in the script.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rehearsed<S> {
    own: S,
    session: u32,
    /// The number of calls so far.
    heard: u32,
}

impl<S: Flow> Flow for Rehearsed<S> {}

/// The function itself, which notes when it has heard enough.
#[derive(Clone, Debug)]
struct Recorded<F> {
    function: F,
    script: Arc<Script>,
}

impl<F> Recorded<F> {
    fn new(function: F, script: &Arc<Script>) -> Self {
        Self { function, script: Arc::clone(script) }
    }
}

impl<F: StreamFunction> StreamFunction for Recorded<F> {
    type Flow = Rehearsed<F::Flow>;

    const DESCRIPTION: Description = F::DESCRIPTION;
    const KEEPS: usize = F::KEEPS;
    const HOLDS: usize = F::HOLDS;
    const HEARS_UDP: bool = F::HEARS_UDP;

    fn drops(&self) -> bool {
        self.function.drops()
    }

    fn counters(&self) -> usize {
        self.function.counters()
    }

    fn open(&self, session: &Session) -> Self::Flow {
        let number = self.script.sessions.fetch_add(1, ALONE) as u32;
        Rehearsed { own: self.function.open(session), session: number, heard: 0 }
    }

    fn packet(&self, cx: &Hearing<'_>, flow: &mut Self::Flow, packet: &Portion) {
        self.function.packet(cx, &mut flow.own, packet);
    }

    fn hear_again(&self, cx: &mut Hearing<'_>, flow: &mut Self::Flow, from: Direction, offset: u64, bytes: &[u8]) {
        self.function.hear_again(cx, &mut flow.own, from, offset, bytes);
    }

    fn hear(&self, cx: &mut Hearing<'_>, flow: &mut Self::Flow, said: Said<'_>) {
        let before = cx.wishes.enough;
        self.function.hear(cx, &mut flow.own, said);
        flow.heard = flow.heard.saturating_add(1);
        let Some(ends) = self.script.ends(flow.session) else { return };
        for ((end, before), now) in ends.iter().zip(before).zip(cx.wishes.enough) {
            if now && !before {
                end.store(flow.heard, ALONE);
            }
        }
    }

    fn close(&self, cx: &mut Hearing<'_>, flow: &mut Self::Flow) {
        self.function.close(cx, &mut flow.own);
    }
}

/// Reassembles what the function would hear, and tells nobody.
#[derive(Clone, Debug)]
struct Scripted<F> {
    function: F,
    script: Arc<Script>,
    /// Sessions opened so far, in all runs.
    opened: Arc<AtomicUsize>,
}

impl<F> Scripted<F> {
    fn new(function: F, script: &Arc<Script>) -> Self {
        Self { function, script: Arc::clone(script), opened: Arc::default() }
    }
}

impl<F: StreamFunction> StreamFunction for Scripted<F> {
    type Flow = Rehearsed<F::Flow>;

    const DESCRIPTION: Description = F::DESCRIPTION;
    const KEEPS: usize = F::KEEPS;
    const HOLDS: usize = F::HOLDS;
    const HEARS_UDP: bool = F::HEARS_UDP;

    fn drops(&self) -> bool {
        self.function.drops()
    }

    fn counters(&self) -> usize {
        self.function.counters()
    }

    fn open(&self, session: &Session) -> Self::Flow {
        // Every run opens as many sessions as the first.
        let sessions = self.script.sessions.load(ALONE).max(1);
        let number = (self.opened.fetch_add(1, ALONE) % sessions) as u32;
        Rehearsed { own: self.function.open(session), session: number, heard: 0 }
    }

    fn hear(&self, cx: &mut Hearing<'_>, flow: &mut Self::Flow, _: Said<'_>) {
        flow.heard = flow.heard.saturating_add(1);
        let Some([original, reply]) = self.script.ends(flow.session) else { return };
        for (end, direction) in [(original, Direction::Original), (reply, Direction::Reply)] {
            if end.load(ALONE) == flow.heard {
                cx.enough(direction);
            }
        }
    }
}
