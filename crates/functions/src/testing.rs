//! What tests of functions share.

use alloc::boxed::Box;
use alloc::vec::Vec;

use memory::{Local, LocalTx};
use nf::{FlowList, KeyOf, NetworkFunction, PacketCounts, PortId, Report, local_report};
use packet::Nanos;

use crate::streams::{Access, Hearing, Said, SharedStreamFunction, Tallies};

/// The report from flows that are alive, with no other shared state than at the start.
pub(crate) fn report_of<N: NetworkFunction>(
    function: &N,
    alive: impl IntoIterator<Item = (KeyOf<N>, N::Flow)>,
) -> Option<Report> {
    let all: Vec<_> = alive.into_iter().map(|(key, flow)| (key, flow, Nanos::NEVER)).collect();
    report_at(function, &all, &function.shared(&Local::default()), Nanos(0))
}

/// The report from these flows, each with its deadline, and shared state.
pub(crate) fn report_at<N: NetworkFunction>(
    function: &N,
    flows: &[(KeyOf<N>, N::Flow, Nanos)],
    shared: &N::Shared<Local>,
    now: Nanos,
) -> Option<Report> {
    let entries = || -> nf::Entries<'_, N> { Box::new(flows.iter().copied()) };
    local_report(function, &FlowList::new(&entries, now), shared, &PacketCounts::new(function.counters()))
}

/// What a function over streams asks for in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) port: Option<PortId>,
    pub(crate) drops: bool,
    /// Bytes that it holds.
    pub(crate) holds: usize,
}

/// Calls a function over streams.
pub(crate) fn tell<F: SharedStreamFunction>(
    function: &F,
    shared: &F::Shared<Local>,
    now: Nanos,
    flow: &mut F::Flow,
    said: Said<'_>,
) -> Asked {
    let mut cx = Hearing::in_test(now);
    let Ok(()) = function.hear(&mut cx, &mut Access { shared, tx: &mut LocalTx::default() }, flow, said);
    cx.asked()
}

/// The report of a function over streams, from shared state alone.
pub(crate) fn report_shared<F: SharedStreamFunction>(
    function: &F,
    shared: &F::Shared<Local>,
    now: Nanos,
) -> Option<Report> {
    let counts = PacketCounts::default();
    let mut access = Access { shared, tx: &mut LocalTx::default() };
    let Ok(report) = function.report(now, &mut access, &mut core::iter::empty(), &Tallies::new(&counts));
    report
}
