//! Steering: which core gets a packet.

use packet::FlowKey;
use packet::toeplitz::{SYMMETRIC_KEY, Toeplitz};
use port::Packet;

/// Which core gets a packet.
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

/// The hash and the indirection table of receive-side scaling.
pub struct Rss {
    toeplitz: Toeplitz,
    /// The core of each bucket.
    table: Vec<u16>,
    /// The cores that packets go to: the first so many.
    in_use: usize,
}

/// Entries of the indirection table, as most cards have them.
pub const BUCKETS: usize = 128;

impl Steering {
    /// Receive-side scaling over `cores` cores, `buckets` buckets dealt out evenly.
    #[must_use]
    pub fn rss(cores: usize, buckets: usize) -> Self {
        let table = (0..buckets).map(|bucket| (bucket % cores) as u16).collect();
        Self::Hash(Box::new(Rss { toeplitz: Toeplitz::new(&SYMMETRIC_KEY), table, in_use: cores }))
    }

    /// The core for packet number `seq` of this packet set, and the bucket that decided it. Packets that belong to no packet set touch
    /// no state and go around the cores in turn, as a card spreads by their addresses those that the function has no eye for.
    #[inline]
    pub fn steer<K: FlowKey>(&self, seq: u64, key: Option<&K>) -> (usize, u16) {
        match self {
            Self::One => (0, 0),
            Self::RoundRobin { cores } => ((seq % *cores as u64) as usize, Packet::SPRAYED),
            Self::Hash(rss) => key.map_or(((seq % rss.in_use as u64) as usize, 0), |key| {
                let bucket = rss.bucket(key);
                (usize::from(rss.table[usize::from(bucket)]), bucket)
            }),
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
    /// The bucket of a packet set.
    #[inline]
    #[must_use]
    pub fn bucket<K: FlowKey>(&self, key: &K) -> u16 {
        let mut input = [0; 36];
        let len = key.rss_input(&mut input);
        let hash = self.toeplitz.hash(&input[..len]);
        (hash as usize % self.table.len()) as u16
    }

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
