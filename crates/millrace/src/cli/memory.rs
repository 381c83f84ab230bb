//! The most memory that sessions may take, told at the start.

use engine::MemoryMax;
use l7::defrag::{Limits, Policy};
use serde_json::{Value, json};

use crate::print::number::bytes;
use crate::print::output::remark;

/// The most memory that what a run keeps of its traffic takes, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    state: MemoryMax,
    fragments: usize,
    /// Rows of sessions that have not ended.
    rows: usize,
}

impl Bound {
    /// The bound for this state, with a store of fragments if there is a policy for them.
    pub(super) fn new(state: MemoryMax, fragments: Option<Policy>) -> Self {
        Self { state, fragments: fragments.map_or(0, |_| Limits::default().memory_max()), rows: 0 }
    }

    /// Adds rows of sessions.
    pub(super) const fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// Says it on standard error.
    pub(super) fn tell(&self) {
        let Self { state: MemoryMax { flows, streams }, fragments, rows } = *self;
        let parts = [
            ("flows", flows),
            ("early segments and beginnings", streams),
            ("fragments", fragments),
            ("rows of open sessions", rows),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, size)| *size > 0)
            .map(|(name, size)| format!("{name} {}", bytes(*size as u64)))
            .collect();
        let total = bytes(self.total());
        remark(&format!("memory: at most {total} ({}), besides the program and packet buffers\n", parts.join(", ")));
    }

    fn total(&self) -> u64 {
        let Self { state: MemoryMax { flows, streams }, fragments, rows } = *self;
        (flows + streams + fragments + rows) as u64
    }

    /// The bound as JSON.
    pub(crate) fn json(&self) -> Value {
        let Self { state: MemoryMax { flows, streams }, fragments, .. } = *self;
        json!({ "flows": flows, "streams": streams, "fragments": fragments, "total": self.total() })
    }
}
