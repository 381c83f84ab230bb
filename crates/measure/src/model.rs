//! The throughput model of state-compute replication (seed 000, appendix A).

/// The model's parameters, in nanoseconds a packet on one core.
///
/// A core takes `t = d + c1` for its own packet and `c2` for each record of the history; `k` cores together carry
/// `k / (t + (k - 1) c2)` packets a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// All of a packet: `d + c1`.
    pub t: f64,
    /// Dispatch: receive, parse, transmit.
    pub d: f64,
    /// The step for the core's own packet.
    pub c1: f64,
    /// The step for one record of the history.
    pub c2: f64,
}

impl CostModel {
    /// Millions of packets a second that `cores` cores carry under state-compute replication, by the model.
    #[must_use]
    pub fn mpps(&self, cores: usize) -> f64 {
        let cores = cores as f64;
        cores / (self.t + (cores - 1.0) * self.c2) * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::CostModel;

    #[test]
    fn the_model_gives_the_seeds_figures() {
        // Table 4 of the seed, the DDoS mitigator: 114 ns alone, 15 ns for each record.
        let model = CostModel { t: 114.0, d: 104.0, c1: 10.0, c2: 15.0 };
        assert!((model.mpps(1) - 8.77).abs() < 0.01);
        assert!((model.mpps(14) - 45.31).abs() < 0.01);
    }
}
