//! The clock of a port: real time at the start, and from then on a clock that never steps.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use packet::Nanos;

/// Gives the time of packets. All cores of a port share one, so that their times can be compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    real: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self { start: Instant::now(), real }
    }

    /// The time, never earlier than any before.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.real + self.start.elapsed().as_nanos() as u64)
    }
}
