use std::time::Duration;

use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet};

use super::*;
use crate::work::Calibration;

/// UDP packets of `sources` sources in turn.
pub(crate) fn trace(packets: u64, sources: u64) -> Arc<Trace> {
    let mut trace = Trace::new();
    for number in 0..packets {
        let mut frame = [0u8; 60];
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1 + (number % sources) as u8, 192, 168, 0, 1]);
        frame[38..40].copy_from_slice(&[0, 26]);
        let (seq, time, link) = (Seq(number), Nanos(1_000 * number), LinkType::Ethernet);
        let fate = Fate::Pending;
        trace.push(Packet { seq, time, offset: 0, len: 60, wire_len: 60, interface: 0, link, bucket: 0, fate }, &frame);
    }
    Arc::new(trace)
}

/// A bench of one small round.
pub(crate) fn plan() -> BenchPlan {
    BenchPlan {
        engines: EngineKind::ALL.to_vec(),
        cores: vec![1],
        rounds: 1,
        packets: 1,
        options: Options { flows_max: Some(64), ..Options::default() },
        undisturbed: false,
        with_bare: false,
        dispatch: Work::NONE,
        loss_free: None,
        delay: None,
        model_to: 0,
        far_line_ns: None,
    }
}

fn measured(plan: &BenchPlan) -> Bench {
    bench(&Arc::new(ForwardAll), &trace(400, 20), plan, &mut |_, _| {}).expect("memory is there")
}

#[test]
fn cores_beyond_the_machine_are_thinned_out() {
    let of = |asked: usize, machine, model_to| {
        beyond(&BenchPlan { cores: (1..=asked).collect(), model_to, ..plan() }, machine)
    };
    assert_eq!(of(2, 2, 16), [3, 4, 6, 8, 12, 16]);
    assert_eq!(of(6, 2, 14), [8, 12, 14]);
    assert_eq!(of(1, 8, 16), [12, 16], "what the machine has can be measured, and is not modelled");
    assert_eq!(of(2, 2, 2), []);
    assert_eq!(of(2, 2, 0), []);
}

#[test]
fn modelled_rows_are_labelled_and_shared_is_left_out_once() {
    let machine = cpus().len();
    let bench = measured(&BenchPlan { model_to: machine + 5, ..plan() });
    let of = |engine| bench.rows.iter().filter(move |row| row.engine == engine);
    for engine in [EngineKind::Rss, EngineKind::Scr] {
        assert!(of(engine).count() > 1);
        assert!(of(engine).is_sorted_by_key(|row| row.cores));
        assert!(of(engine).all(|row| (row.basis == Basis::Modelled) == (row.cores > machine)));
    }
    assert_eq!(of(EngineKind::Sequential).count(), 1);
    assert!(of(EngineKind::Shared).all(|row| row.cores == 1));
    let refused: Vec<_> = bench.refused.iter().filter(|(engine, ..)| *engine == EngineKind::Shared).collect();
    assert!(refused.len() == 1 && refused[0].2.contains("can't be modelled"), "{refused:?}");
    assert_eq!(bench.predictions.len(), machine + 5);
    let beside = |prediction: &Prediction| prediction.beside.is_some();
    assert!(beside(&bench.predictions[0]) && beside(&bench.predictions[machine + 4]));
}

/// By figures of its own making: twice what two cores carry one by one is an error, a tenth more may be.
#[test]
fn more_than_single_cores_carry_is_not_credible() {
    let mut bench = measured(&BenchPlan { model_to: 2, ..plan() });
    bench.model.t = 100.0;
    let mut row = bench.rows[0].clone();
    let spread = |mpps| Spread { min: mpps, median: mpps, max: mpps };
    (row.engine, row.cores, row.mpps) = (EngineKind::Rss, 1, spread(8.0));
    bench.rows = vec![row.clone()];
    row.cores = 2;
    for (mpps, expected) in [(16.0, None), (22.9, None), (23.1, Some(1.155)), (40.0, Some(2.0))] {
        row.mpps = spread(mpps);
        let found = bench.implausible(&row).map(|times| (times * 1e3).round() / 1e3);
        assert_eq!(found, expected, "one core carries 10 by the model: {mpps}");
    }
    // The best row of one core counts where it is above the model.
    bench.rows[0].mpps = spread(20.0);
    assert_eq!(bench.implausible(&row), None);
    row.cores = 1;
    assert_eq!(bench.implausible(&row), None);
}

#[test]
fn loss_free_rates_are_searched_for_where_load_can_be_offered() {
    let machine = cpus().len();
    let fast = LossFreePlan {
        resolution_mpps: 1e3,
        warm_up: Duration::from_micros(10),
        trial: Duration::from_micros(200),
        ..LossFreePlan::default()
    };
    let plan = BenchPlan {
        engines: vec![EngineKind::Sequential, EngineKind::Scr],
        cores: vec![1, machine + 1],
        loss_free: Some(fast),
        delay: None,
        ..plan()
    };
    let (mut last, nf) = ((0, 0), Arc::new(ForwardAll));
    let bench = bench(&nf, &trace(400, 20), &plan, &mut |done, total| last = (done, total)).expect("memory is there");
    assert_eq!(last.0, last.1);
    for row in &bench.rows {
        match (&row.loss_free, row.basis) {
            // At such a resolution it is known that more than a thousand million a second don't pass.
            (Some(Ok(found)), Basis::Measured) => assert!(found.trials >= 1 && found.mpps.max < 1e3, "{row:?}"),
            (Some(Err(reason)), Basis::Modelled) => assert!(reason.contains("no loss-free rate"), "{reason}"),
            _ => panic!("{row:?}"),
        }
    }
    assert!(bench.rows.iter().any(|row| row.basis == Basis::Modelled));
}

/// No claim about time: all of the work is in the model's dispatch, and none of it in the history's records.
#[test]
fn dispatch_is_added_to_every_figure() {
    let work = Calibration::here().work(20_000.0);
    let bench = measured(&BenchPlan { dispatch: work, engines: vec![EngineKind::Sequential], ..plan() });
    assert_eq!(bench.dispatch, work);
    let plain = measured(&BenchPlan { engines: vec![EngineKind::Sequential], ..plan() });
    assert!(bench.model.d > plain.model.d + 1_000.0, "{:?} {:?}", bench.model, plain.model);
    assert!(bench.model.t > 1_000.0);
}
