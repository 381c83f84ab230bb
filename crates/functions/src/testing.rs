//! What tests of functions share.

use alloc::boxed::Box;
use alloc::vec::Vec;

use memory::Local;
use nf::{FlowList, KeyOf, NetworkFunction, PacketCounts, Report, local_report};
use packet::Nanos;

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
