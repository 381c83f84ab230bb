//! The clock of a port: real time at the start, and from then on a clock that never steps.

use std::time::{SystemTime, UNIX_EPOCH};

use packet::Nanos;

/// Gives the time of packets. All cores of a port share one, so that their times can be compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Real time when the kernel's monotonic clock stood at 0.
    zero: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self { zero: real.saturating_sub(monotonic()) }
    }

    /// The time, never earlier than any before.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.of(monotonic())
    }

    /// The time at which the kernel's monotonic clock stood so.
    #[inline]
    pub(crate) const fn of(&self, monotonic: u64) -> Nanos {
        Nanos(self.zero + monotonic)
    }

    /// Reading of the kernel's monotonic clock at this time.
    #[inline]
    pub(crate) const fn monotonic_at(&self, time: Nanos) -> u64 {
        time.0.saturating_sub(self.zero)
    }
}

/// Nanoseconds of the kernel's monotonic clock, which XDP programs read, too.
#[inline]
pub(crate) fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
