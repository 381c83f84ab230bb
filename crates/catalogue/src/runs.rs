//! Runs in progress, without their function's type: what operators ask of them.

use std::any::Any;
use std::net::IpAddr;

use engine::{Counters, EngineError, EngineKind, FlowCounters, Outcome, Running};
use nf::{Function, Report};
use packet::{FiveTuple, Host, HostPair, Nanos, Seq};

use crate::{Program, Snapshot, SnapshotError};

/// A run in progress, of any function.
pub trait Runs: Send + Sync {
    /// Waits for its end.
    ///
    /// # Errors
    /// When the engine can't run the function.
    fn wait(self: Box<Self>) -> Result<Outcome, EngineError>;

    /// True if it has ended.
    fn has_ended(&self) -> bool;

    /// The numbers of each core, each between two of its batches. No core waits. `None` if the run has ended.
    fn numbers(&self) -> Option<Numbers>;

    /// The function's report on the packets so far. All cores stop meanwhile. `None` if the run has ended.
    fn report(&self) -> Option<Option<Report>>;

    /// The flows for which `fits` returns true, with at most `rows_max` rows. All cores stop meanwhile. `None` if the run has ended.
    fn flows(&self, fits: Box<dyn Fn(&FlowEnds) -> bool + Send>, rows_max: usize) -> Option<FlowRows>;

    /// The flows, to begin another run with. `configuration` are the settings as [text](crate::config::Settings::canonical). All cores stop
    /// meanwhile. `None` if the run has ended.
    ///
    /// # Errors
    /// Flows of this function don't outlive a run.
    fn snapshot(&self, configuration: String) -> Option<Result<Snapshot, SnapshotError>>;

    /// Lets another configuration of the same function take over; see [`Running::reload`].
    ///
    /// # Errors
    /// Why it can't take over. Then the run goes on as before.
    fn reload(&self, program: Box<dyn Program>) -> Result<TakeOver, EngineError>;
}

/// Numbers of a run since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The counters of each core.
    pub cores: Vec<Counters>,
    /// Counts of flows of all cores, each flow once.
    pub flows: FlowCounters,
    /// Numbers of transactions that have committed, and of attempts that were aborted; `None` without transactions.
    pub transactions: Option<(u64, u64)>,
}

impl Numbers {
    /// Number of table entries: flows alive, and expired flows that were not reclaimed yet.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.flows.opened.saturating_sub(self.flows.ended())
    }
}

/// Result of a [reload](Runs::reload).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Packets from this number on get the new configuration.
    From(Seq),
    /// The run had ended before.
    Ended,
    /// The program is another function than the running one, or is in use elsewhere.
    OtherFunction,
}

/// Addresses, ports and protocol in the key of a flow, as far as the key has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowEnds {
    /// Source address, or the only one.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub destination: Option<IpAddr>,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
    /// Number of the protocol in IP.
    pub protocol: Option<u8>,
}

/// A flow as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// Its key as text.
    pub key: String,
    /// Its state as text, for developers of the function.
    pub state: String,
    /// Time until it expires, unless another packet comes.
    pub expires_in: Nanos,
}

/// Flows that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRows {
    /// Some of them, in no particular order.
    pub rows: Vec<FlowRow>,
    /// Number of all that fit.
    pub fit: u64,
    /// Number of all flows.
    pub all: u64,
}

impl FlowEnds {
    /// The ends in a key.
    #[must_use]
    pub fn of(key: &dyn Any) -> Self {
        if let Some(tuple) = key.downcast_ref::<FiveTuple>() {
            let (source, destination) = (tuple.source(), tuple.destination());
            Self {
                source: Some(source.address),
                destination: Some(destination.address),
                ports: Some((source.port, destination.port)),
                protocol: Some(tuple.protocol()),
            }
        } else if let Some(pair) = key.downcast_ref::<HostPair>() {
            Self { source: Some(pair.source()), destination: Some(pair.destination()), ..Self::default() }
        } else if let Some(host) = key.downcast_ref::<Host>() {
            Self { source: Some(host.address()), ..Self::default() }
        } else {
            Self::default()
        }
    }
}

impl<N: Function> Runs for Running<'_, N> {
    fn wait(self: Box<Self>) -> Result<Outcome, EngineError> {
        (*self).wait()
    }

    fn has_ended(&self) -> bool {
        Self::has_ended(self)
    }

    fn numbers(&self) -> Option<Numbers> {
        let told =
            self.ask(|_, worker| (worker.counters(), worker.common_flow_counters(), worker.commits_and_aborts()))?;
        let mut flows = FlowCounters::default();
        let common = told.iter().find_map(|(_, common, _)| *common);
        match (common, self.kind()) {
            (Some(common), _) => flows = common,
            // Each replica has all flows.
            (None, EngineKind::Scr) => {
                flows = told.iter().map(|(core, ..)| core.flows).max_by_key(|flows| flows.opened).unwrap_or_default();
            }
            (None, _) => told.iter().for_each(|(core, ..)| flows.add(&core.flows)),
        }
        let transactions = told.iter().filter_map(|(.., counts)| *counts).reduce(|a, b| (a.0 + b.0, a.1 + b.1));
        Some(Numbers { cores: told.into_iter().map(|(core, ..)| core).collect(), flows, transactions })
    }

    fn report(&self) -> Option<Option<Report>> {
        self.look(|state, nf, now| state.function_report(nf, now))
    }

    fn flows(&self, fits: Box<dyn Fn(&FlowEnds) -> bool + Send>, rows_max: usize) -> Option<FlowRows> {
        self.look(move |state, _, now| {
            let mut seen = FlowRows::default();
            for flow in state.each_flow(now) {
                seen.all += 1;
                if fits(&FlowEnds::of(&flow.key)) {
                    seen.fit += 1;
                    if seen.rows.len() < rows_max {
                        let (key, state) = (flow.key.to_string(), format!("{:?}", flow.flow));
                        seen.rows.push(FlowRow { key, state, expires_in: flow.deadline.since(now) });
                    }
                }
            }
            seen
        })
    }

    fn snapshot(&self, configuration: String) -> Option<Result<Snapshot, SnapshotError>> {
        self.look(|state, nf, now| Snapshot::of(state, nf, now, configuration))
    }

    fn reload(&self, program: Box<dyn Program>) -> Result<TakeOver, EngineError> {
        let Ok(nf) = program.typed().downcast::<Option<N>>() else { return Ok(TakeOver::OtherFunction) };
        let Some(nf) = *nf else { return Ok(TakeOver::OtherFunction) };
        Ok(Self::reload(self, nf)?.map_or(TakeOver::Ended, TakeOver::From))
    }
}
