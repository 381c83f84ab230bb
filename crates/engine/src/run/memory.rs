//! The most memory that a run takes: [`MemoryMax`].

use std::sync::Arc;

use nf::{Flow, Function};

use super::instance::{Inspect, private_instance, sharded_instance, shared_instance, transacted_instance};
use crate::kind::EngineKind;
use crate::options::Options;

/// The most memory that the state of a run takes, in bytes, whatever its traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryMax {
    /// Flow tables with their indexes.
    pub flows: usize,
    /// Memory of the function besides its flows: for functions over streams, that of early segments and beginnings.
    pub streams: usize,
}

/// A table's regions end on a huge page that may be half empty: two tables of five regions.
const ROUNDING: usize = 10 << 20;

/// Computes the bound for a function under an engine, from tables of the very sizes that a run has. Their memory is reserved for a moment, and
/// not used.
pub fn memory_max<N: Function>(nf: &Arc<N>, kind: EngineKind, cores: usize, options: &Options) -> MemoryMax {
    let nf = Arc::clone(nf);
    let bytes = match kind {
        EngineKind::Transactional if options.sharing(&*nf).is_any() => {
            transacted_instance(Arc::clone(&nf), cores, options).memory_bytes()
        }
        EngineKind::Sequential
        | EngineKind::Rss
        | EngineKind::Transactional
        | EngineKind::Scr
        | EngineKind::Pipeline => private_instance(kind, Arc::clone(&nf), cores, options).memory_bytes(),
        EngineKind::RssPlusPlus | EngineKind::Hybrid => {
            sharded_instance(kind, Arc::clone(&nf), cores, options).memory_bytes()
        }
        EngineKind::Shared => shared_instance(Arc::clone(&nf), cores, options).memory_bytes(),
    };
    // Tables of buckets and stripes lie together in huge pages, of which a quarter may stay empty.
    let (states, rounding) = match kind {
        EngineKind::Shared | EngineKind::RssPlusPlus | EngineKind::Hybrid => (usize::MAX, bytes / 3 + ROUNDING),
        EngineKind::Sequential
        | EngineKind::Rss
        | EngineKind::Transactional
        | EngineKind::Scr
        | EngineKind::Pipeline => (cores, cores * ROUNDING),
    };
    let flows = if N::Flow::STORED { bytes + rounding.min(bytes) } else { 0 };
    MemoryMax { flows, streams: nf.shared_bytes_max(states) }
}
