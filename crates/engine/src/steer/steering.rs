//! Steering: which core gets a packet.

use std::sync::Arc;

use packet::toeplitz::SymmetricToeplitz;
use packet::{FlowKey, RssFields};
use port::Packet;

/// How the core of a packet is chosen.
#[derive(Clone)]
pub enum Steering {
    /// All packets go to this core.
    One(usize),
    /// Round robin.
    RoundRobin {
        /// The number of cores.
        cores: usize,
    },
    /// Receive-side scaling: a Toeplitz hash of the packet set picks an entry of the indirection table.
    Hash(Box<Rss>),
}

/// The indirection table of receive-side scaling.
#[derive(Clone)]
pub struct Rss {
    buckets: Buckets,
    /// The core of each bucket.
    table: Vec<u16>,
    /// The first core that steps packets: not 0 in a pipeline.
    first: usize,
    /// The number of cores in use, from the first on.
    in_use: usize,
}

/// The default number of entries of the indirection table, as in most cards.
pub const BUCKETS: usize = 128;

/// Stands for the bucket of a packet without a packet set.
pub(crate) const NO_SET: u16 = u16::MAX;

/// Chooses a packet set's entry of the indirection table.
#[derive(Clone)]
pub struct Buckets {
    toeplitz: Arc<SymmetricToeplitz>,
    count: u32,
    /// `count - 1` if the count is a power of two, as it usually is: a mask is faster than a division.
    mask: Option<u32>,
}

impl Buckets {
    /// The bucket of a packet set.
    #[inline]
    #[must_use]
    pub fn bucket<K: FlowKey>(&self, key: &K) -> u16 {
        self.of_fields(key.rss_fields())
    }

    /// The bucket of a packet set with these RSS fields.
    #[inline(always)]
    pub(crate) fn of_fields(&self, fields: RssFields) -> u16 {
        let hash = self.toeplitz.hash(fields.folded());
        let bucket = match self.mask {
            Some(mask) => hash & mask,
            None => hash % self.count,
        };
        bucket as u16
    }
}

impl Steering {
    /// Receive-side scaling over `cores` cores, with `buckets` buckets dealt out evenly.
    #[must_use]
    pub fn rss(cores: usize, buckets: usize) -> Self {
        Self::hash(0, cores, buckets)
    }

    /// A table over the ways of a pipeline of `cores` cores, of which the first `ahead` get nothing. One way gets all without a look.
    #[must_use]
    pub fn ways(ahead: usize, cores: usize, buckets: usize) -> Self {
        if cores == ahead + 1 { Self::One(ahead) } else { Self::hash(ahead, cores - ahead, buckets) }
    }

    fn hash(first: usize, cores: usize, buckets: usize) -> Self {
        let table = (0..buckets).map(|bucket| (first + bucket % cores) as u16).collect();
        let count = buckets as u32;
        let mask = count.is_power_of_two().then(|| count - 1);
        let buckets = Buckets { toeplitz: Arc::new(SymmetricToeplitz::new()), count, mask };
        Self::Hash(Box::new(Rss { buckets, table, first, in_use: cores }))
    }

    /// The core and the bucket of packet number `seq`. Packets without a packet set touch no state and are sprayed round robin; a card
    /// would spread them by their addresses.
    #[inline]
    pub fn steer(&self, seq: u64, bucket: Option<u16>) -> (usize, u16) {
        match self {
            Self::One(core) => (*core, 0),
            Self::RoundRobin { cores } => ((seq % *cores as u64) as usize, Packet::SPRAYED),
            Self::Hash(rss) => rss.steer(seq, bucket.unwrap_or(NO_SET)),
        }
    }

    /// Chooses buckets, if there are any.
    #[must_use]
    pub fn buckets(&self) -> Option<Buckets> {
        match self {
            Self::Hash(rss) => Some(rss.buckets.clone()),
            Self::One(_) | Self::RoundRobin { .. } => None,
        }
    }

    /// The indirection table, if there is one.
    #[must_use]
    pub fn rss_table(&mut self) -> Option<&mut Rss> {
        match self {
            Self::Hash(rss) => Some(rss),
            Self::One(_) | Self::RoundRobin { .. } => None,
        }
    }
}

impl Rss {
    /// The core and the bucket of packet number `seq`, given its bucket or [`NO_SET`].
    #[inline(always)]
    pub(crate) fn steer(&self, seq: u64, bucket: u16) -> (usize, u16) {
        match bucket {
            NO_SET => (self.first + (seq % self.in_use as u64) as usize, 0),
            bucket => (usize::from(self.table[usize::from(bucket)]), bucket),
        }
    }

    /// Chooses the buckets.
    pub(crate) const fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// The core of each bucket.
    #[must_use]
    pub fn table(&self) -> &[u16] {
        &self.table
    }

    /// Uses `in_use` cores from now on.
    pub(crate) const fn use_cores(&mut self, in_use: usize) {
        self.in_use = in_use;
    }

    /// Gives a bucket to another core.
    pub(crate) fn assign(&mut self, bucket: u16, core: u16) {
        self.table[usize::from(bucket)] = core;
    }
}
