//! The engines: their names, their guarantees, and which functions they can run.

use core::fmt;

use nf::{Description, Sharing};

use crate::options::Cuts;

/// An engine: a parallel strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// One core. The oracle that all other engines are compared with.
    Sequential,
    /// All cores share one table under locks. Packets are sprayed.
    Shared,
    /// A Toeplitz hash and an indirection table give each packet set to one core.
    Rss,
    /// As `rss`, but buckets move to other cores when the load is uneven (CoNEXT '19).
    RssPlusPlus,
    /// As `rss`, with the function's shared state in transactional memory (NFork).
    Transactional,
    /// State-compute replication: packets are sprayed, and each core replays the packets that it didn't get (NSDI '25).
    Scr,
    /// Packet sets that are too heavy for one core are sprayed and replicated; the rest are sharded as under `rss++`.
    Hybrid,
    /// Two stages: the first core reads and steers, and each other core steps a shard of the flows (ICS '09).
    Pipeline,
}

/// How an engine's outcome relates to that of `sequential`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Every verdict and the final state are the same.
    Identical,
    /// Every verdict and every flow are the same, as long as no table is full.
    IdenticalPerPacketSet,
    /// Verdicts and state are those of a sequential run over the packets in another order, which a run can record.
    Serializable,
}

impl EngineKind {
    /// All engines.
    pub const ALL: [Self; 8] = [
        Self::Sequential,
        Self::Shared,
        Self::Rss,
        Self::RssPlusPlus,
        Self::Transactional,
        Self::Scr,
        Self::Hybrid,
        Self::Pipeline,
    ];

    /// The engine's name in commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Shared => "shared",
            Self::Rss => "rss",
            Self::RssPlusPlus => "rss++",
            Self::Transactional => "transactional",
            Self::Scr => "scr",
            Self::Hybrid => "hybrid",
            Self::Pipeline => "pipeline",
        }
    }

    /// The engine with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The guarantee for a function with this sharing.
    #[must_use]
    pub const fn guarantee(self, sharing: Sharing) -> Guarantee {
        match (self, sharing) {
            (Self::Sequential | Self::Scr, _) => Guarantee::Identical,
            // If packet sets share nothing, transactions have nothing to order.
            (Self::Rss | Self::RssPlusPlus | Self::Hybrid | Self::Pipeline, _)
            | (Self::Transactional, Sharing::Nothing | Sharing::Streams) => Guarantee::IdenticalPerPacketSet,
            (Self::Shared, _) | (Self::Transactional, Sharing::Shares(_) | Sharing::StreamsShare(_)) => {
                Guarantee::Serializable
            }
        }
    }

    /// True if state moves between cores during a run.
    #[must_use]
    pub const fn moves_state(self) -> bool {
        matches!(self, Self::RssPlusPlus | Self::Hybrid)
    }

    /// The number of cores of `cores` that step packets. Under `pipeline` on several cores, those of the last stage.
    #[must_use]
    pub const fn stepping(self, cores: usize, cuts: Cuts) -> usize {
        match self {
            Self::Pipeline if cores > 1 => cores - cuts.ahead(),
            Self::Pipeline
            | Self::Sequential
            | Self::Shared
            | Self::Rss
            | Self::RssPlusPlus
            | Self::Transactional
            | Self::Scr
            | Self::Hybrid => cores,
        }
    }

    /// True if the engine works on a port that steers packets itself, as a card with several queues does.
    #[must_use]
    pub const fn takes_queues(self) -> bool {
        matches!(self, Self::Sequential | Self::Shared | Self::Rss | Self::Transactional)
    }

    /// The most tables of the function's full size that the engine builds for `cores` cores. A shard of `rss` may have to hold nearly all
    /// flows; a bucket's shard need not.
    #[must_use]
    pub const fn tables(self, cores: usize) -> usize {
        match self {
            Self::Rss | Self::Transactional | Self::Scr | Self::Pipeline => self.stepping(cores, Cuts::Parse),
            Self::Sequential | Self::Shared => 1,
            // The tables of buckets leave room for an uneven hash. For small tables that doubles the memory.
            Self::RssPlusPlus | Self::Hybrid => 2,
        }
    }

    /// Checks that the engine can run the function on `cores` cores.
    ///
    /// # Errors
    /// The reason why not, as a sentence.
    pub fn accepts(self, function: &Description, cores: usize) -> Result<(), String> {
        if cores == 0 {
            return Err("a run needs at least one core".into());
        }
        let sharing = function.sharing;
        match self {
            Self::Sequential if cores > 1 => {
                Err(format!("sequential runs on one core, not on {cores}; all other engines use more"))
            }
            Self::Scr | Self::Hybrid if sharing.reads_frames() => Err(format!(
                "{self} can't run {}: its replicas would need the packets' bytes, and a history has only their metadata; use {}",
                function.name,
                if sharing.is_any() {
                    "transactional, shared or sequential"
                } else {
                    "rss, rss++, pipeline, shared or sequential"
                }
            )),
            Self::Rss | Self::RssPlusPlus | Self::Hybrid | Self::Pipeline if cores > 1 => match sharing.what() {
                Some(what) => Err(format!(
                    "{self} can't run {} on {cores} cores: its packet sets share {what}, and no hash sends all of them to one \
                     core; use {}",
                    function.name,
                    if sharing.reads_frames() { "transactional or shared" } else { "transactional, scr or shared" }
                )),
                None => Ok(()),
            },
            Self::Sequential
            | Self::Shared
            | Self::Rss
            | Self::RssPlusPlus
            | Self::Transactional
            | Self::Scr
            | Self::Hybrid
            | Self::Pipeline => Ok(()),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identical => "identical, packet by packet",
            Self::IdenticalPerPacketSet => "identical per packet set, while no table is full",
            Self::Serializable => "serializable",
        })
    }
}
