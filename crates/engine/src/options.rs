//! Engine options.

use nf::{NetworkFunction, Sharing, Sizing};

use crate::history::link::Link;
use crate::offload::Offload;
use crate::placement::tables::Tables;
use crate::steer::steering::BUCKETS;

/// The default epoch, in packets: how often `rss++` and `hybrid` check the load.
pub const EPOCH: u64 = 16_384;

/// The default cost of replaying a record, in percent of a packet's cost, if it was not measured. It lies between the 14 % of the paper
/// (table 4, with its dispatch) and what our functions need when their state is in memory.
pub(crate) const REPLAY_PERCENT: u32 = 25;

/// How an engine instance is built.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The hash seed of all tables. Runs with the same seed have the same outcome.
    pub seed: u64,
    /// True to pin each worker to a processor, if there are enough.
    pub pin: bool,
    /// An upper bound on the table sizes, for traces that are known to be small.
    pub flows_max: Option<usize>,
    /// The options of the flow tables.
    pub tables: Tables,
    /// The number of entries of the indirection table, for engines that have one.
    pub buckets: usize,
    /// The epoch in packets: how often engines that adapt to the load check it.
    pub epoch: u64,
    /// The packets a second that a core can process. Engines that adapt to the load then use only as many cores as the packets need, by the
    /// packets' own times. `None` uses all cores.
    pub core_pps: Option<u64>,
    /// The cost of replaying a record, in percent of a packet's cost. `hybrid` decides by it which packet sets it replicates.
    pub replay_percent: u32,
    /// A link between sequencer and cores that may lose packets, for replicas that recover them.
    pub link: Option<Link>,
    /// True to record which transactions conflict.
    pub profile: bool,
    /// Where `pipeline` cuts a packet's path into stages.
    pub cuts: Cuts,
    /// Choice of the connections that a card takes ahead of the function; `None` without a card.
    pub offload: Option<Offload>,
    /// True if another configuration may [take over](crate::Running::reload) under which packet sets share state: `shared` and
    /// `transactional` then begin as if they did.
    pub may_share: bool,
}

/// Where `pipeline` cuts a packet's path into stages. The path is: read, gather fragments, steer, parse, step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cuts {
    /// Before parsing: two stages. The first core reads, gathers fragments and steers.
    #[default]
    Parse,
    /// Before fragments are gathered: two stages. The first core only reads. There is one way, since fragments don't show where the
    /// datagram goes.
    Defragment,
    /// At both places: three stages. The first core only reads, the second gathers fragments and steers.
    Both,
}

impl Cuts {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Parse, Self::Defragment, Self::Both];

    /// The number of stages.
    #[must_use]
    pub const fn stages(self) -> usize {
        match self {
            Self::Parse | Self::Defragment => 2,
            Self::Both => 3,
        }
    }

    /// The number of cores ahead of the ways, which step no packets.
    #[must_use]
    pub const fn ahead(self) -> usize {
        self.stages() - 1
    }

    /// Checks that the stages fit `cores` cores. One core is no pipeline and fits all.
    ///
    /// # Errors
    /// The reason why not, as a sentence.
    pub fn accepts(self, cores: usize) -> Result<(), String> {
        let stages = self.stages();
        match self {
            _ if cores == 1 => Ok(()),
            Self::Defragment if cores > 2 => Err(format!(
                "a pipeline that is cut before defragmentation has one way, and so two cores, not {cores}: only whole datagrams show \
                 their way; cut before parsing, or take three stages"
            )),
            _ if cores < stages => Err(format!(
                "a pipeline of {stages} stages needs {stages} cores or more, a core for each; this run has {cores}"
            )),
            _ => Ok(()),
        }
    }
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
            cuts: Cuts::default(),
            offload: None,
            may_share: false,
        }
    }
}

impl Options {
    /// The state that packet sets share, or may come to share.
    pub(crate) fn sharing<N: NetworkFunction>(&self, nf: &N) -> Sharing {
        match nf.description().sharing {
            Sharing::Nothing if self.may_share => Sharing::Shares("what a later configuration shares"),
            sharing => sharing,
        }
    }

    pub(crate) fn sizing<N: NetworkFunction>(&self, nf: &N) -> Sizing {
        let Sizing { flows, flows_v6 } = nf.sizing();
        let max = self.flows_max.unwrap_or(usize::MAX);
        Sizing { flows: flows.min(max), flows_v6: flows_v6.min(max) }
    }
}
