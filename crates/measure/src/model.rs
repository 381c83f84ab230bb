//! The throughput model of state-compute replication (seed 000, appendix A), and what it predicts beside what was found.

use engine::EngineKind;

use crate::bench::{Basis, Row};

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
    /// The parameters, from what a packet was found to take without a step, with one, and with a step and `records` of a history.
    /// Of a few packets noise makes differences below nothing, which are taken for nothing.
    pub(crate) fn of(d: f64, t: f64, with_records: f64, records: f64) -> Self {
        let t = t.max(d);
        Self { t, d, c1: t - d, c2: ((with_records - t) / records).max(0.0) }
    }

    /// What replaying a record costs of what a packet costs, in percent: not nothing, and no more than would ever pay.
    pub(crate) fn replay_percent(&self) -> u32 {
        (100.0 * self.c2 / self.t).clamp(1.0, 100.0) as u32
    }

    /// Millions of packets a second that `cores` cores carry under state-compute replication, by the model.
    #[must_use]
    pub fn mpps(&self, cores: usize) -> f64 {
        let cores = cores as f64;
        cores / (self.t + (cores - 1.0) * self.c2) * 1e3
    }
}

/// What the model makes of an engine on some cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The engine.
    pub engine: EngineKind,
    /// The cores.
    pub cores: usize,
    /// Millions of packets a second, by the model: never measured.
    pub mpps: f64,
    /// What was found on as many cores.
    pub beside: Option<Beside>,
}

/// What was found where the model predicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Millions of packets a second, the median.
    pub mpps: f64,
    /// Whether the cores ran together or each share alone.
    pub basis: Basis,
    /// How much the prediction is above what was found, in hundredths of that.
    pub error_percent: f64,
}

impl Prediction {
    /// Predictions for 1 to `model_to` cores. On one core there is nothing to replicate, and any engine's row will do.
    pub(crate) fn all(model: &CostModel, rows: &[Row], model_to: usize) -> Vec<Self> {
        let of = |cores: usize| {
            let row = rows.iter().find(|row| row.engine == EngineKind::Scr && row.cores == cores);
            let row = row.or_else(|| rows.iter().find(|row| cores == 1 && row.engine == EngineKind::Sequential));
            Self::of(EngineKind::Scr, cores, model.mpps(cores), row)
        };
        (1..=model_to).map(of).collect()
    }

    /// A prediction beside what was found there, if anything was.
    pub(crate) fn of(engine: EngineKind, cores: usize, mpps: f64, row: Option<&Row>) -> Self {
        let beside = row.map(|row| {
            let found = row.mpps.median;
            Beside { mpps: found, basis: row.basis, error_percent: (mpps / found - 1.0) * 100.0 }
        });
        Self { engine, cores, mpps, beside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Rounds;
    use crate::spread::Spread;

    #[test]
    fn predictions_stand_beside_what_was_found() {
        let model = CostModel { t: 100.0, d: 80.0, c1: 20.0, c2: 10.0 };
        let row = |engine, cores, mpps, basis| {
            let spread = |value| Spread { min: value, median: value, max: value };
            let ns_per_packet_per_core = spread(1e3 * cores as f64 / mpps);
            Row {
                engine,
                cores,
                mpps: spread(mpps),
                ns_per_packet_per_core,
                basis,
                rounds: Rounds::default(),
                loss_free: None,
            }
        };
        let rows = [
            row(EngineKind::Sequential, 1, 8.0, Basis::Measured),
            row(EngineKind::Rss, 2, 99.0, Basis::Measured),
            row(EngineKind::Scr, 2, 20.0, Basis::Measured),
            row(EngineKind::Scr, 4, 40.0, Basis::Modelled),
        ];
        let all = Prediction::all(&model, &rows, 4);
        let beside = |cores: usize| all[cores - 1].beside;
        assert_eq!(beside(1).map(|beside| beside.error_percent.round()), Some(25.0));
        assert_eq!(beside(2).map(|beside| beside.error_percent.round()), Some(-9.0));
        assert_eq!(beside(3), None);
        assert_eq!(beside(4).map(|beside| beside.basis), Some(Basis::Modelled));
        assert_eq!(all.len(), 4);
        assert_eq!(Prediction::all(&model, &rows, 0), []);
    }

    #[test]
    fn the_model_gives_the_seeds_figures() {
        // Table 4 of the seed, the DDoS mitigator: 114 ns alone, 15 ns for each record.
        let model = CostModel { t: 114.0, d: 104.0, c1: 10.0, c2: 15.0 };
        assert!((model.mpps(1) - 8.77).abs() < 0.01);
        assert!((model.mpps(14) - 45.31).abs() < 0.01);
    }
}
