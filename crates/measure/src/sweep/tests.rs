use engine::{Log, Options, PrivateFleet, private_fleet};
use packet::Seq;
use port::Batch;

use memory::LocalTx;

use super::*;
use crate::bench::tests::{plan, trace};
use crate::steered::Steered;
use crate::work::Calibration;

/// The calibration of a machine whose multiplications take a nanosecond.
fn nanosecond(multiplications: u32) -> f64 {
    f64::from(multiplications)
}

#[test]
fn every_record_is_worked_for() {
    let trace = trace(300, 20);
    let compute = Arc::new(Compute { work: Calibration::by(nanosecond).work(5.0) });
    let mut fleet: PrivateFleet<_> = private_fleet(EngineKind::Scr, compute, 3, &Options::default());
    let Steered { cores, script, .. } = Steered::pass(&mut fleet.dispatcher, &trace);
    let mut own = [(); 3].map(|()| Batch::default());
    for ((packet, bytes), core) in trace.iter().zip(cores) {
        own[usize::from(core)].push(*packet, bytes);
    }
    let once = Calibration::by(nanosecond).work(1.0);
    let expected = (0..5 * 300).fold(1, |value, _| once.run(value));
    for (worker, batch) in fleet.workers.iter_mut().zip(&mut own) {
        worker.process_with(batch, &mut Log::of_loop(&script, trace.len(), trace.duration(), Seq(0)), Seq(300));
        let shared = worker.place().shared();
        assert_eq!(shared.read(&mut LocalTx::default(), 0), Ok(expected));
        assert_eq!((worker.counters().forwarded, worker.counters().replayed), (100, 200));
    }
}

#[test]
fn a_sweep_has_a_bench_for_each_time() {
    let calibration = Calibration::by(nanosecond);
    let computes = [0.0, 20.0].map(|ns| calibration.work(ns));
    let mut last = (0, 0);
    let plan = BenchPlan { model_to: 4, ..plan() };
    let points = sweep(&trace(200, 20), &plan, &computes, &mut |done, total| {
        assert!(done >= last.0 && done <= total, "{done} behind {last:?}");
        last = (done, total);
    });
    let points = points.expect("memory is there");
    assert_eq!(last.0, last.1);
    assert_eq!(points.iter().map(|point| point.compute.asked_ns).collect::<Vec<_>>(), [0.0, 20.0]);
    for point in &points {
        assert_eq!(point.bench.predictions.len(), 4);
        assert!(point.bench.rows.iter().all(|row| row.engine == EngineKind::Scr && row.mpps.median > 0.0));
    }
}
