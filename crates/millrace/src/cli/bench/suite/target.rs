//! Targets as multiples of the time of the bare loop.

/// A time, the time of the bare loop in the same rounds, and the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Against {
    /// Nanoseconds a packet.
    pub(super) ns: f64,
    /// Nanoseconds a packet of the bare loop.
    pub(super) bare_ns: f64,
    /// Largest multiple of the bare loop's time that meets the target.
    pub(super) target: f64,
}

impl Against {
    /// Converts a rate in millions of packets a second to the time of a packet.
    pub(super) fn of_rate(mpps: f64, bare_ns: f64, target: f64) -> Self {
        Self { ns: 1e3 / mpps, bare_ns, target }
    }

    /// The time as a multiple of the bare loop's.
    pub(super) fn times(self) -> f64 {
        self.ns / self.bare_ns
    }

    pub(super) fn is_met(self) -> bool {
        self.times() <= self.target
    }

    /// `met` or `missed`.
    pub(super) fn word(self) -> &'static str {
        if self.is_met() { "met" } else { "missed" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_multiple_of_the_bare_loop() {
        for (ns, bare_ns, times, word) in
            [(24.0, 12.0, 2.0, "met"), (28.8, 12.0, 2.4, "met"), (30.0, 12.0, 2.5, "missed"), (30.0, 15.0, 2.0, "met")]
        {
            let against = Against { ns, bare_ns, target: 2.4 };
            assert!((against.times() - times).abs() < 1e-9, "{against:?}");
            assert_eq!(against.word(), word, "{against:?}");
        }
    }

    #[test]
    fn a_processor_of_half_the_speed_changes_no_verdict() {
        for ns in [20.0, 28.0, 40.0] {
            let fast = Against { ns, bare_ns: 12.0, target: 2.4 };
            let slow = Against { ns: 2.0 * ns, bare_ns: 24.0, target: 2.4 };
            assert_eq!(fast.is_met(), slow.is_met(), "{fast:?}");
        }
    }

    #[test]
    fn a_rate_is_held_by_the_time_of_its_packets() {
        let against = Against::of_rate(40.0, 5.0, 5.0);
        assert!((against.ns - 25.0).abs() < 1e-9 && (against.times() - 5.0).abs() < 1e-9 && against.is_met());
        assert!(!Against::of_rate(39.0, 5.0, 5.0).is_met());
        assert!(!Against::of_rate(0.0, 5.0, 5.0).is_met(), "nothing passed");
    }
}
