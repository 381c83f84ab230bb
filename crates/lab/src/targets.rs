//! The targets of `bench suite`, as multiples of the time of the bare loop (decision 0023).

use synth::FlowTransport;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The function's name.
    pub function: &'static str,
    /// Flows of the traffic.
    pub flows: u64,
    /// Transport of the traffic.
    pub transport: FlowTransport,
    /// Target: multiple of the bare loop's time for a packet.
    pub times: f64,
}

/// Functions that track connections get whole TCP connections, the others UDP datagrams.
pub const TARGETS: [Target; 11] = [
    target("ddos", 10_000, FlowTransport::Udp, 2.4),
    target("heavy-hitter", 10_000, FlowTransport::Udp, 2.4),
    target("policer", 10_000, FlowTransport::Udp, 2.4),
    target("port-knock", 10_000, FlowTransport::Tcp, 2.4),
    target("ddos", 1_000_000, FlowTransport::Udp, 3.0),
    target("heavy-hitter", 1_000_000, FlowTransport::Udp, 3.0),
    target("policer", 1_000_000, FlowTransport::Udp, 3.0),
    target("port-knock", 1_000_000, FlowTransport::Tcp, 3.1),
    target("conntrack", 10_000, FlowTransport::Tcp, 4.2),
    target("conntrack", 1_000_000, FlowTransport::Udp, 5.0),
    target("nat", 10_000, FlowTransport::Udp, 5.6),
];

/// Target: multiple of the rate of one core that two cores reach, sharded, on uniform traffic.
pub const SCALING: f64 = 1.85;

/// Target: multiple of the bare loop's time on a single flow, for a packet of a software sequencer with a shared log.
pub const SEQUENCED: f64 = 8.5;

const fn target(function: &'static str, flows: u64, transport: FlowTransport, times: f64) -> Target {
    Target { function, flows, transport, times }
}

/// A time, the time of the bare loop in the same rounds, and the target.
#[derive(Clone, Copy, Debug)]
pub struct Against {
    /// Nanoseconds a packet.
    pub ns: f64,
    /// Nanoseconds a packet of the bare loop.
    pub bare_ns: f64,
    /// Largest multiple of the bare loop's time that meets the target.
    pub target: f64,
}

impl Against {
    /// Converts a rate in millions of packets a second to the time of a packet.
    #[must_use]
    pub fn of_rate(mpps: f64, bare_ns: f64, target: f64) -> Self {
        Self { ns: 1e3 / mpps, bare_ns, target }
    }

    /// The time as a multiple of the bare loop's.
    #[must_use]
    pub fn times(self) -> f64 {
        self.ns / self.bare_ns
    }

    /// Whether the target is met.
    #[must_use]
    pub fn is_met(self) -> bool {
        self.times() <= self.target
    }

    /// `met` or `missed`.
    #[must_use]
    pub fn word(self) -> &'static str {
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
