use engine::{Log, Options, PrivateInstance, Record, cpus, private_instance};
use packet::{Host, Seq};
use port::Batch;

use memory::LocalTx;

use super::*;
use crate::bench::Basis;
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
    let mut instance: PrivateInstance<_> = private_instance(EngineKind::Scr, compute, 3, &Options::default());
    let Steered { cores, history, .. } = Steered::pass(&mut instance.dispatcher, &trace);
    let mut own = [(); 3].map(|()| Batch::default());
    for ((packet, bytes), core) in trace.iter().zip(cores) {
        own[usize::from(core)].push(*packet, bytes);
    }
    let once = Calibration::by(nanosecond).work(1.0);
    let expected = (0..5 * 300).fold(1, |value, _| once.run(value));
    for (worker, batch) in instance.workers.iter_mut().zip(&mut own) {
        worker.process_with(batch, &mut Log::of_loop(&history, trace.len(), trace.duration(), Seq(0)), Seq(300));
        let shared = worker.place().shared();
        assert_eq!(shared.read(&mut LocalTx::default(), 0), Ok(expected));
        assert_eq!((worker.counters().forwarded, worker.counters().replayed), (100, 200));
    }
}

/// A line from elsewhere takes a millisecond as told, beside which nothing else of a row or of the model does.
#[test]
fn records_take_longer_on_cores_beyond_the_machine() {
    const LINE_NS: f64 = 1e6;
    let machine = cpus().len();
    let (cores, most) = (vec![1, machine + 1], machine + 1);
    let plan = BenchPlan { cores, model_to: most, far_line_ns: Some(LINE_NS), ..plan() };
    let compute = [Calibration::by(nanosecond).work(0.0)];
    let points = sweep(&trace(200, 20), &plan, &compute, &mut |_, _| {}).expect("memory is there");
    let Bench { model, rows, predictions, .. } = &points[0].bench;
    let record = size_of::<Record<Host>>() as f64 / 64.0 * LINE_NS;
    assert!(model.r.here_ns < record / 100.0 && (model.r.beyond_ns - record).abs() < 1.0, "{model:?}");
    let others = machine as f64;
    for row in rows {
        let expected = if row.basis == Basis::Modelled { others * record } else { 0.0 };
        let found = row.ns_per_packet_per_core.min;
        assert!(found > expected && found - expected < record / 100.0, "{expected} ns expected: {row:?}");
        let (together, all) = (row.mpps.max * row.cores as f64, 1e3 * (row.cores as f64).powi(2) / found);
        assert!(
            (together / all - 1.0).abs() < 0.01 || row.basis == Basis::Measured,
            "{together} beside {all}: {row:?}"
        );
    }
    let predicted = predictions.last().map(|last| last.mpps / (1e3 * (others + 1.0) / (others * record)));
    assert!(predicted.is_some_and(|times| (0.99..1.0).contains(&times)), "{predicted:?}");
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
