//! Steering: which core gets a packet.

use std::sync::Arc;

use packet::FlowKey;
use packet::toeplitz::SymmetricToeplitz;
use port::Packet;

/// Which core gets a packet.
#[derive(Clone)]
pub enum Steering {
    /// All packets go to core 0.
    One,
    /// Packets go around the cores in turn.
    RoundRobin {
        /// How many cores there are.
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
    /// The cores that packets go to: the first so many.
    in_use: usize,
}

/// Entries of the indirection table, as most cards have them.
pub const BUCKETS: usize = 128;

/// What a packet set's entry of the indirection table is chosen by.
#[derive(Clone)]
pub struct Buckets {
    toeplitz: Arc<SymmetricToeplitz>,
    count: usize,
}

impl Buckets {
    /// The bucket of a packet set.
    #[inline]
    #[must_use]
    pub fn bucket<K: FlowKey>(&self, key: &K) -> u16 {
        let hash = self.toeplitz.hash(key.rss_folded()) as usize;
        // Tables are mostly as large as a card's, and a division takes as long as the rest.
        let bucket = if self.count.is_power_of_two() { hash & (self.count - 1) } else { hash % self.count };
        bucket as u16
    }
}

impl Steering {
    /// Receive-side scaling over `cores` cores, `buckets` buckets dealt out evenly.
    #[must_use]
    pub fn rss(cores: usize, buckets: usize) -> Self {
        let table = (0..buckets).map(|bucket| (bucket % cores) as u16).collect();
        let buckets = Buckets { toeplitz: Arc::new(SymmetricToeplitz::new()), count: buckets };
        Self::Hash(Box::new(Rss { buckets, table, in_use: cores }))
    }

    /// The core for packet number `seq` of this bucket, and the bucket that it is told to go by. Packets that belong to no packet set
    /// touch no state and go around the cores in turn, as a card spreads by their addresses those that the function has no eye for.
    #[inline]
    pub fn steer(&self, seq: u64, bucket: Option<u16>) -> (usize, u16) {
        match self {
            Self::One => (0, 0),
            Self::RoundRobin { cores } => ((seq % *cores as u64) as usize, Packet::SPRAYED),
            Self::Hash(rss) => match bucket {
                Some(bucket) => (usize::from(rss.table[usize::from(bucket)]), bucket),
                None => ((seq % rss.in_use as u64) as usize, 0),
            },
        }
    }

    /// What packet sets' buckets are chosen by, if there are any.
    #[must_use]
    pub fn buckets(&self) -> Option<Buckets> {
        match self {
            Self::Hash(rss) => Some(rss.buckets.clone()),
            Self::One | Self::RoundRobin { .. } => None,
        }
    }

    /// The indirection table, if there is one.
    #[must_use]
    pub fn rss_table(&mut self) -> Option<&mut Rss> {
        match self {
            Self::Hash(rss) => Some(rss),
            Self::One | Self::RoundRobin { .. } => None,
        }
    }
}

impl Rss {
    /// The core of each bucket.
    #[must_use]
    pub fn table(&self) -> &[u16] {
        &self.table
    }

    /// Uses the first so many cores from now on.
    pub(crate) const fn use_cores(&mut self, in_use: usize) {
        self.in_use = in_use;
    }

    /// Gives a bucket to another core.
    pub(crate) fn assign(&mut self, bucket: u16, core: u16) {
        self.table[usize::from(bucket)] = core;
    }
}
