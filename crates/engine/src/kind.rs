//! The engines by name, what each promises, and which functions each can take.

use core::fmt;

use nf::{Description, Sharing};

/// A parallel strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// One core: the oracle that all others are held against.
    Sequential,
    /// All cores share one table under locks; packets are sprayed.
    Shared,
    /// Packet sets are sharded by a Toeplitz hash and an indirection table.
    Rss,
    /// The same, and buckets change cores when the load is uneven (CoNEXT '19).
    RssPlusPlus,
    /// As `rss`, and what packet sets share lives in transactional memory (NFork).
    Transactional,
    /// State-compute replication: packets are sprayed, each core replays what it did not see (NSDI '25).
    Scr,
    /// Packet sets too heavy for a core are sprayed and replicated, all others are sharded as `rss++` does it: ours.
    Hybrid,
}

/// What an engine promises about its outcome, in relation to `sequential`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Every verdict and the final state are the same.
    Identical,
    /// Every verdict and every packet set's state are the same, as long as no table is full.
    IdenticalPerPacketSet,
    /// Verdicts and state are those of a sequential run over the packets in some other order, which a run can record.
    Serializable,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [Self; 7] =
        [Self::Sequential, Self::Shared, Self::Rss, Self::RssPlusPlus, Self::Transactional, Self::Scr, Self::Hybrid];

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
        }
    }

    /// The engine of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What the engine promises of a function whose packet sets share this.
    #[must_use]
    pub const fn guarantee(self, sharing: Sharing) -> Guarantee {
        match (self, sharing) {
            (Self::Sequential | Self::Scr, _) => Guarantee::Identical,
            // Where nothing is shared there is nothing that transactions have to order.
            (Self::Rss | Self::RssPlusPlus | Self::Hybrid, _) | (Self::Transactional, Sharing::Nothing) => {
                Guarantee::IdenticalPerPacketSet
            }
            (Self::Shared, _) | (Self::Transactional, Sharing::Shares(_)) => Guarantee::Serializable,
        }
    }

    /// Whether state changes cores while the engine runs.
    #[must_use]
    pub const fn moves_state(self) -> bool {
        matches!(self, Self::RssPlusPlus | Self::Hybrid)
    }

    /// Whether it can take packets from a port that hands them to cores itself, as a card with several queues does.
    #[must_use]
    pub const fn takes_queues(self) -> bool {
        matches!(self, Self::Sequential | Self::Shared | Self::Rss | Self::Transactional)
    }

    /// How many tables of the function's whole size it builds on so many cores. The shards of `rss` may each come to hold nearly
    /// all flows; those of a bucket may not.
    #[must_use]
    pub const fn tables(self, cores: usize) -> usize {
        match self {
            Self::Rss | Self::Transactional | Self::Scr => cores,
            Self::Sequential | Self::Shared => 1,
            // A bucket's table leaves room for the spread, which is as much again where tables are small.
            Self::RssPlusPlus | Self::Hybrid => 2,
        }
    }

    /// Whether the engine can run this function on `cores` cores.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn accepts(self, function: &Description, cores: usize) -> Result<(), String> {
        if cores == 0 {
            return Err("a run needs at least one core".into());
        }
        match (self, function.sharing) {
            (Self::Sequential, _) if cores > 1 => {
                Err(format!("sequential runs on one core, not on {cores}; all other engines use more"))
            }
            (Self::Rss | Self::RssPlusPlus | Self::Hybrid, Sharing::Shares(what)) if cores > 1 => Err(format!(
                "{self} can't run {} on {cores} cores: its packet sets share {what}, and no hash sends all of them to one \
                 core; use transactional, scr or shared",
                function.name
            )),
            (_, Sharing::Nothing | Sharing::Shares(_)) => Ok(()),
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
