//! Small tables, few packets: what is told has to be there and to add up; how fast it was is nobody's matter here.

use super::*;

fn plan() -> TablesPlan {
    TablesPlan {
        tables: TableKind::ALL.to_vec(),
        loads: vec![50, 90],
        ops: Op::ALL.to_vec(),
        ageings: Ageing::ALL.to_vec(),
        cores: vec![1, 2, 300],
        rounds: 2,
        round_packets: 4_096,
        lifetime: Nanos::from_secs(20),
        seed: 1,
    }
}

fn run(plan: &TablesPlan, stop: bool) -> (TablesBench, u64, u64) {
    let traffic = Traffic::made_up(3_000, Skew::Zipf(1.0), 1);
    let (mut last, mut total) = (0, 0);
    let mut progress = |done, all| {
        assert!(done == last + 1 && done <= all);
        (last, total) = (done, all);
    };
    let bench = bench_tables(&traffic, plan, &mut progress, &AtomicBool::new(stop));
    (bench, last, total)
}

#[test]
fn every_case_has_its_row() {
    let (bench, done, total) = run(&plan(), false);
    assert_eq!(done, total, "progress ends where it said it would");
    assert!(!bench.interrupted);
    let ours = TableKind::ALL.iter().filter(|kind| kind.is_ours()).count();
    assert_eq!(bench.resident.len(), 2 * 4 * TableKind::ALL.len());
    assert_eq!(bench.expiring.len(), 2 * ours * 4);
    assert_eq!(bench.clumps.len(), ours * 4 + 1);
    // Private tables on all numbers of cores, the three shared ones where there are as many.
    let real = [1, 2].into_iter().filter(|cores| *cores <= engine::cpus().len()).count();
    assert_eq!(bench.scaling.len(), ours * 3 * 2 + 3 * real * 2);
    for row in &bench.resident {
        let expected = if row.op == Op::Miss { 0.0 } else { row.inserted as f64 / row.offered as f64 };
        // Those that found no room are among the last.
        let within = if row.op == Op::Insert { 0.1 } else { 0.02 };
        assert!((row.hits - expected).abs() < within, "{row:?}");
        assert!(row.bytes_per_entry > 48.0 && row.ns.median > 0.0, "{row:?}");
        assert!(row.bursts.is_some() && row.singles.is_some());
    }
    for row in &bench.expiring {
        // The oldest makes room in the table, yet hopscotch may find no way to it.
        assert!(row.refused_percent < 2.0, "{row:?}");
        match row.ageing {
            Ageing::Wheel => assert_eq!(row.early_percent, 0.0, "{row:?}"),
            // Who is dead is found by and by, and meanwhile about the oldest goes, who may be alive.
            Ageing::Scan | Ageing::Lazy => assert!(row.early_percent <= row.evicted_percent.min(40.0), "{row:?}"),
            // Whoever comes takes the place of who goes, so the oldest goes exactly; where the index says who lies where, anyone.
            Ageing::None => {
                assert!(row.evicted_percent > 90.0, "{row:?}");
                assert!(row.early_percent < 2.0 || row.table == TableKind::Of(IndexKind::Tagged), "{row:?}");
            }
        }
    }
    for row in &bench.clumps {
        assert_eq!(row.flows, 3_000);
        if row.ageing == Some(Ageing::Wheel) {
            assert!(
                row.clean_after.is_some_and(|packets| packets >= 1_500),
                "two at most go with each packet: {row:?}"
            );
        }
    }
    for row in &bench.scaling {
        let measured = row.cores <= engine::cpus().len();
        assert_eq!(row.basis == crate::Basis::Measured, measured);
    }
}

#[test]
fn a_stop_leaves_whole_parts_alone() {
    let (bench, done, _) = run(&plan(), true);
    assert!(bench.interrupted && done == 1);
    assert!(bench.resident.is_empty() && bench.expiring.is_empty() && bench.scaling.is_empty());
}

#[test]
fn parts_that_are_not_asked_for_are_not_there() {
    let (bench, ..) = run(&TablesPlan { ops: vec![Op::Expire], cores: Vec::new(), ..plan() }, false);
    assert!(bench.resident.is_empty() && bench.clumps.is_empty() && bench.scaling.is_empty());
    assert!(!bench.expiring.is_empty());
}

#[test]
fn the_estimate_of_memory_is_no_less_than_the_tables() {
    let plan = plan();
    let (bench, ..) = run(&TablesPlan { ops: vec![Op::Lookup], cores: Vec::new(), ..plan.clone() }, false);
    for load in [50.0, 90.0] {
        let of = |row: &&Resident| row.load_percent == load || row.table == TableKind::Std;
        let bytes: f64 = bench.resident.iter().filter(of).map(|row| row.bytes_per_entry * 3_000.0).sum();
        // Tables have some room beside their flows that doesn't grow with them: wheels above all.
        assert!(plan.bytes(3_000) as f64 + 300_000.0 > bytes);
    }
}
