//! How an engine is built and run.

use nf::{NetworkFunction, Sizing};

use crate::history::link::Link;
use crate::placement::tables::Tables;
use crate::steer::steering::BUCKETS;

/// How many packets pass between two looks at the load.
pub const EPOCH: u64 = 16_384;

/// What replaying a record costs of what a packet costs, where nobody has measured it: between the paper's 14 % (table 4, with
/// its dispatch) and what our functions take from memory.
pub(crate) const REPLAY_PERCENT: u32 = 25;

/// How an engine instance is built.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The secret that table hashes are keyed by. Runs with the same seed are the same.
    pub seed: u64,
    /// Whether each worker is pinned to a processor, where there are as many.
    pub pin: bool,
    /// An upper bound on the tables' sizes, whatever the function asks for. For traces that are known to be small.
    pub flows_max: Option<usize>,
    /// How flow tables are kept.
    pub tables: Tables,
    /// Entries of the indirection table, for the engines that have one.
    pub buckets: usize,
    /// How many packets pass between two looks at the load, for the engines that follow it.
    pub epoch: u64,
    /// How many packets a second a core carries, for the engines that follow the load: as many cores are in use then as the
    /// packets need by their own times. Otherwise all are.
    pub core_pps: Option<u64>,
    /// What replaying a record costs of what a packet costs, in percent: from which point on `hybrid` replicates.
    pub replay_percent: u32,
    /// A link between sequencer and cores that may lose packets, for replicas that recover what was lost.
    pub link: Option<Link>,
    /// Whether it is kept whose transactions were in whose way.
    pub profile: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0x6d69_6c6c_7261_6365,
            pin: false,
            flows_max: None,
            tables: Tables::default(),
            buckets: BUCKETS,
            epoch: EPOCH,
            core_pps: None,
            replay_percent: REPLAY_PERCENT,
            link: None,
            profile: false,
        }
    }
}

impl Options {
    pub(crate) fn sizing<N: NetworkFunction>(&self, nf: &N) -> Sizing {
        let Sizing { flows, flows_v6 } = nf.sizing();
        let max = self.flows_max.unwrap_or(usize::MAX);
        Sizing { flows: flows.min(max), flows_v6: flows_v6.min(max) }
    }
}
