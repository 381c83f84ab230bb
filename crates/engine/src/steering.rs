//! Steering: which core gets a packet.

use packet::FlowKey;
use packet::toeplitz::{SYMMETRIC_KEY, Toeplitz};

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
}

/// Buckets of the indirection table, as most cards have them.
const BUCKETS: usize = 128;

impl Steering {
    /// Receive-side scaling over `cores` cores, buckets dealt out evenly.
    #[must_use]
    pub fn rss(cores: usize) -> Self {
        let table = (0..BUCKETS).map(|bucket| (bucket % cores) as u16).collect();
        Self::Hash(Box::new(Rss { toeplitz: Toeplitz::new(&SYMMETRIC_KEY), table }))
    }

    /// The core for packet number `seq`, of this packet set. Packets that belong to none go to core 0, as cards do it.
    #[inline]
    pub fn core<K: FlowKey>(&self, seq: u64, key: Option<&K>) -> usize {
        match self {
            Self::One => 0,
            Self::RoundRobin { cores } => (seq % *cores as u64) as usize,
            Self::Hash(rss) => key.map_or(0, |key| rss.core(key)),
        }
    }
}

impl Rss {
    fn core<K: FlowKey>(&self, key: &K) -> usize {
        let mut input = [0; 36];
        let len = key.rss_input(&mut input);
        let hash = self.toeplitz.hash(&input[..len]);
        usize::from(self.table[hash as usize % self.table.len()])
    }
}
