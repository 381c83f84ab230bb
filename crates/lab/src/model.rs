//! The throughput model of state-compute replication (seed 000, appendix A), and its predictions next to measured rates.

use engine::EngineKind;

use crate::bench::{Basis, Row};
use crate::remote::Remote;

/// Parameters of the model, in nanoseconds per packet on one core.
///
/// A core needs `t = d + c1` for its own packet and `c2` for each record of the history. So `k` cores process `k / (t + (k - 1) c2)`
/// packets per nanosecond. We add two parameters. `s` is the part of `t` that a replica saves, because the sequencer has already parsed
/// its packet. `r` is the extra time for a record that another core used last: each packet comes with `k` records (one is its own), and
/// each was used by another core in `k - 1` of `k` cases. So two or more cores process `k / (t - s + (k - 1) (c2 + r))` packets per
/// nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Total cost of a packet: `d + c1`.
    pub t: f64,
    /// Dispatch: receive, parse, transmit.
    pub d: f64,
    /// Step for the core's own packet.
    pub c1: f64,
    /// Step for one record of the history.
    pub c2: f64,
    /// Part of `t` that a replica saves, because its packet's record comes with the records of other packets.
    pub s: f64,
    /// Extra to `c2` if cores that run together read one log.
    pub r: Remote,
}

impl CostModel {
    /// Computes the parameters from the measured time of a packet without a step (`d`), with one (`t`), and with a step and the records
    /// of one and of `records` other replicas, with each share run alone. Negative differences, caused by noise, become 0.
    pub(crate) fn of(d: f64, t: f64, with_one: f64, with_records: f64, records: f64, r: Remote) -> Self {
        let t = t.max(d);
        let c2 = ((with_records - with_one) / (records - 1.0)).max(0.0);
        let s = t + c2 - with_one;
        if s < 0.0 {
            return Self { t, d, c1: t - d, c2: ((with_records - t) / records).max(0.0), s: 0.0, r };
        }
        Self { t, d, c1: t - d, c2, s: s.min(t), r }
    }

    /// Cost of one history record on this number of cores, in nanoseconds.
    #[must_use]
    pub fn record_ns(&self, cores: usize) -> f64 {
        self.c2 + self.r.ns(cores)
    }

    /// Cost of replaying a record, in percent of the cost of a core's own packet.
    pub(crate) fn replay_percent(&self, cores: usize) -> u32 {
        replay_percent(self.t - self.s, self.record_ns(cores))
    }

    /// Predicted rate of state-compute replication on `cores` cores, in millions of packets a second.
    #[must_use]
    pub fn mpps(&self, cores: usize) -> f64 {
        let spared = if cores > 1 { self.s } else { 0.0 };
        let record = self.record_ns(cores);
        let cores = cores as f64;
        cores / (self.t - spared + (cores - 1.0) * record) * 1e3
    }
}

/// Cost of a record in percent of the cost of a packet with a record: at least 1, and 100 if it costs as much or more.
pub(crate) fn replay_percent(packet: f64, record: f64) -> u32 {
    if packet > record { (100.0 * record / packet).max(1.0) as u32 } else { 100 }
}

/// Predicted rate of one engine on some cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The engine.
    pub engine: EngineKind,
    /// The cores.
    pub cores: usize,
    /// Predicted rate in millions of packets a second; never measured.
    pub mpps: f64,
    /// The rate measured, or modelled from shares, on as many cores.
    pub beside: Option<Beside>,
}

/// The rate that a prediction is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Median rate, in millions of packets a second.
    pub mpps: f64,
    /// True if the cores ran together, or each share alone.
    pub basis: Basis,
    /// Error of the prediction in percent; positive if it is above this rate.
    pub error_percent: f64,
}

impl Prediction {
    /// Predictions for 1 to `model_to` cores. On one core nothing is replicated, so any engine's row is used for comparison.
    pub(crate) fn all(model: &CostModel, rows: &[Row], model_to: usize) -> Vec<Self> {
        let of = |cores: usize| {
            let row = rows.iter().find(|row| row.engine == EngineKind::Scr && row.cores == cores);
            let row = row.or_else(|| rows.iter().find(|row| cores == 1 && row.engine == EngineKind::Sequential));
            Self::of(EngineKind::Scr, cores, model.mpps(cores), row)
        };
        (1..=model_to).map(of).collect()
    }

    /// Compares a prediction with the row of the same number of cores, if there is one.
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
        let model = CostModel { t: 100.0, d: 80.0, c1: 20.0, c2: 10.0, s: 0.0, r: Remote::default() };
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
                delays: None,
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
        let model = CostModel { t: 114.0, d: 104.0, c1: 10.0, c2: 15.0, s: 0.0, r: Remote::default() };
        assert!((model.mpps(1) - 8.77).abs() < 0.01);
        assert!((model.mpps(14) - 45.31).abs() < 0.01);
    }

    /// Rates on a machine with sixteen cores, taken before the model had `r`: docs/results/scr.md, "Sixteen real cores". One figure for
    /// a line has to do for records of 0.75 and of 1.5 lines, from two cores to sixteen.
    #[test]
    fn what_records_from_other_cores_cost_gives_the_figures_of_sixteen_cores() {
        const LINE_NS: f64 = 12.5;
        let of = |t, c2, s, lines| {
            let r = Remote { here_ns: LINE_NS * lines, beyond_ns: LINE_NS * lines, here: 16 };
            CostModel { t, d: 0.0, c1: t, c2, s, r }
        };
        let conntrack = of(145.0, 13.0, 0.0, 1.5);
        let from_memory = of(31.0, 13.0, 5.0, 1.5);
        let ddos = of(39.0, 4.8, 4.0, 0.75);
        let all = [
            (conntrack, vec![(2, 11.1), (4, 18.0), (7, 21.8), (16, 27.4)]),
            (from_memory, vec![(8, 35.8), (16, 34.3)]),
            (ddos, vec![(2, 45.2), (4, 59.0), (8, 59.9), (12, 59.3), (16, 61.4)]),
        ];
        for (model, found) in all {
            for (cores, mpps) in found {
                let error = model.mpps(cores) / mpps - 1.0;
                assert!(error.abs() < 0.15, "{cores} cores: {:.1} for {mpps} Mpps", model.mpps(cores));
                let without = CostModel { r: Remote::default(), ..model }.mpps(cores);
                assert!(cores < 7 || without / mpps > 1.25, "{cores} cores: {without:.1} without");
            }
        }
    }

    #[test]
    fn what_replicas_are_spared_is_told_from_what_records_cost() {
        let r = Remote::default();
        // 8 ns dispatch, 17 alone; 23 with one record, and 10 for each of six more.
        let model = CostModel::of(8.0, 17.0, 23.0, 83.0, 7.0, r);
        assert_eq!(model, CostModel { t: 17.0, d: 8.0, c1: 9.0, c2: 10.0, s: 4.0, r });
        assert!((model.mpps(1) - 1e3 / 17.0).abs() < 1e-9);
        assert!((model.mpps(2) - 2e3 / 23.0).abs() < 1e-9 && (model.mpps(8) - 8e3 / 83.0).abs() < 1e-9);
        assert_eq!(model.replay_percent(8), 76, "10 of 13");
        // One that is spared nothing.
        let model = CostModel::of(8.0, 17.0, 30.0, 87.0, 7.0, r);
        assert_eq!((model.c2, model.s), (10.0, 0.0));
        // Noise.
        let model = CostModel::of(8.0, 7.0, 6.0, 5.0, 7.0, r);
        assert_eq!((model.t, model.c1, model.c2, model.s), (8.0, 0.0, 0.0, 2.0));
        assert_eq!(
            [(0.0, 0.0), (-1.0, 2.0), (5.0, 5.0), (5.0, 0.0)].map(|(own, one)| replay_percent(own, one)),
            [100, 100, 100, 1]
        );
    }
}
