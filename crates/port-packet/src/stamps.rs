//! The time of a queue: the kernel's stamps, which follow the machine's clock, made to never fall.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use packet::Nanos;

/// Turns stamps of the kernel into times.
#[derive(Debug)]
pub(crate) struct Stamps {
    /// The last time that was told, by a packet or by `now`.
    last: Cell<u64>,
    /// What is added to stamps, because the clock was set back.
    shift: Cell<u64>,
    /// How long a packet may wait in a block.
    held: u64,
}

/// Larger steps back are the clock's. Smaller ones are packets of two interfaces or two processors in another order.
const CLOCK_STEP: u64 = 1_000_000_000;

impl Stamps {
    /// Stamps of packets that wait at most `held` in a block.
    pub(crate) const fn new(held: Duration) -> Self {
        Self { last: Cell::new(0), shift: Cell::new(0), held: held.as_nanos() as u64 }
    }

    /// The time of a packet.
    #[inline]
    pub(crate) fn time(&self, stamp: u64) -> Nanos {
        let (mut time, last) = (stamp.saturating_add(self.shift.get()), self.last.get());
        if time < last {
            if last - time > CLOCK_STEP + self.held {
                self.shift.set(last - stamp);
            }
            time = last;
        }
        self.last.set(time);
        Nanos(time)
    }

    /// The time when nothing has arrived. Packets that wait in a block are older than the clock, so that the time stays behind it.
    pub(crate) fn now(&self) -> Nanos {
        self.time(real().saturating_sub(self.held))
    }

    /// Stamps that are older than this have been handed over, on whichever interface.
    pub(crate) fn complete(&self) -> u64 {
        real().saturating_sub(self.held)
    }
}

/// The machine's clock, which stamps packets.
fn real() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn times_never_fall_and_go_on_after_a_step_back() {
        let stamps = Stamps::new(Duration::from_millis(4));
        assert_eq!(stamps.time(100 * SECOND), Nanos(100 * SECOND));
        // Packets in another order.
        assert_eq!(stamps.time(100 * SECOND - 2_000_000), Nanos(100 * SECOND));
        assert_eq!(stamps.time(100 * SECOND + 5), Nanos(100 * SECOND + 5));
        // The clock is set back by a minute.
        assert_eq!(stamps.time(40 * SECOND), Nanos(100 * SECOND + 5));
        assert_eq!(stamps.time(41 * SECOND), Nanos(101 * SECOND + 5));
        assert_eq!(stamps.time(u64::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn packets_are_not_older_than_what_now_has_told() {
        let stamps = Stamps::new(Duration::from_millis(4));
        let now = stamps.now();
        assert!(stamps.time(now.0 - 1) == now && stamps.time(now.0 + 1) == Nanos(now.0 + 1));
        assert!(stamps.complete() >= now.0);
    }
}
