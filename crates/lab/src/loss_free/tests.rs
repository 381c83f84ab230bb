use std::convert::Infallible;

use super::*;

const PACKETS: u64 = 1_000_000;

fn plan(threshold: f64, resolution_mpps: f64, attempts: usize) -> LossFreePlan {
    LossFreePlan { threshold, resolution_mpps, attempts, ..LossFreePlan::default() }
}

/// What becomes of packets that are offered at a rate to what carries `capacity`.
fn through(mpps: f64, capacity: f64) -> Offered {
    let received = ((PACKETS as f64 * (capacity / mpps).min(1.0)) as u64).min(PACKETS);
    Offered { offered: PACKETS, received, lost: PACKETS - received }
}

fn found(plan: &LossFreePlan, high: f64, mut device: impl FnMut(f64) -> Offered) -> Found {
    search(plan, high, |mpps| Ok::<_, Infallible>(device(mpps))).unwrap_or_else(|never| match never {})
}

/// Numbers from 0 to 1, the same each time.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn a_known_capacity_is_found_to_the_resolution() {
    for capacity in [0.7, 3.3, 14.88, 40.0, 148.8] {
        for resolution in [0.4, 0.1, 0.01] {
            for threshold in [0.0, 0.001, 0.04, 0.2] {
                let plan = plan(threshold, resolution, 1);
                // The rate at which the share lost comes to the threshold.
                let limit = capacity / (1.0 - threshold);
                for high in [capacity * 1.3, capacity * 0.5, capacity, 1000.0] {
                    let found = found(&plan, high, |mpps| through(mpps, capacity));
                    let off = limit - found.mpps;
                    assert!((-1e-3..=resolution + 1e-3).contains(&off), "{capacity} {plan:?} {high}: {found:?}");
                    assert!(found.loss <= threshold, "{found:?}");
                    assert!(found.received_mpps() <= capacity * 1.0001, "{found:?}");
                }
            }
        }
    }
}

#[test]
fn no_more_trials_than_a_bisection_takes() {
    let mut asked = Vec::new();
    let found = found(&plan(0.04, 0.4, 1), 32.0, |mpps| {
        asked.push(mpps);
        through(mpps, 11.0)
    });
    // 32 fails; then 32, 16, 8, 4, 2, 1, 0.5 and 0.25 are left between pass and fail.
    assert_eq!(asked.len(), 8);
    assert_eq!((found.trials, asked[..4].to_vec()), (8, vec![32.0, 16.0, 8.0, 12.0]));
}

#[test]
fn nothing_passes_and_everything_passes() {
    let dead = found(&plan(0.04, 0.4, 2), 50.0, |mpps| through(mpps, 0.0));
    assert_eq!((dead.mpps, dead.loss), (0.0, 0.0));
    let endless = found(&plan(0.0, 0.4, 1), 10.0, |mpps| through(mpps, f64::INFINITY));
    assert!(endless.mpps > 10.0 * 1.5_f64.powi(7) - 0.01 && endless.loss == 0.0, "{endless:?}");
    assert!(found(&plan(0.0, 0.4, 1), 0.0, |mpps| through(mpps, 3.0)).trials > 1);
}

#[test]
fn one_packet_is_too_many_without_a_threshold() {
    let lost = |lost| Offered { offered: PACKETS, received: PACKETS - lost, lost };
    assert!(plan(0.0, 0.4, 1).passes(&lost(0)) && !plan(0.0, 0.4, 1).passes(&lost(1)));
    let four = plan(0.04, 0.4, 1);
    assert!(four.passes(&lost(39_999)) && !four.passes(&lost(40_000)), "less than 4 %, as in the paper");
    assert!(four.passes(&Offered::default()));
}

/// One trial of five is held up by something else and loses a tenth. Three in a row are rare, so what is found is close.
#[test]
fn a_rate_fails_for_good_only_when_it_fails_again() {
    const CAPACITY: f64 = 20.0;
    let device = |mut random: Box<dyn FnMut() -> f64>| {
        move |mpps: f64| through(mpps, if random() < 0.2 { mpps.min(CAPACITY) * 0.9 } else { CAPACITY })
    };
    let near = |attempts| {
        let close = |seed: &u64| {
            let found = found(&plan(0.04, 0.4, attempts), 25.0, device(Box::new(noise(*seed))));
            (found.mpps - CAPACITY / 0.96).abs() <= 0.4 + 1e-3
        };
        (1..=200).filter(close).count()
    };
    let (naive, verified) = (near(1), near(3));
    assert!(verified >= 180, "{verified} of 200");
    assert!(naive < 130, "{naive} of 200: the noise does tell them apart");
}

/// The capacity wavers from trial to trial, and the bounds of what is found are those of the wavering.
#[test]
fn a_noisy_capacity_gives_a_rate_within_the_noise() {
    for seed in 1..=100 {
        let mut random = noise(seed);
        let found = found(&plan(0.0, 0.1, 1), 30.0, |mpps| through(mpps, 18.0 + 4.0 * random()));
        assert!((17.9..=22.0).contains(&found.mpps), "{found:?}");
    }
}

/// Once overloaded, the device carries 10 only, until it is offered less than 8: as caches and queues do that have to
/// recover. What is found was passed, and a rate just above it was refused.
#[test]
fn a_hysteresis_is_not_walked_past() {
    for high in [15.0, 20.0, 33.0, 64.0, 100.0] {
        let mut is_slow = false;
        let (mut passed, mut failed) = (Vec::new(), Vec::new());
        let plan = plan(0.0, 0.1, 2);
        let found = found(&plan, high, |mpps| {
            is_slow = if is_slow { mpps >= 8.0 } else { mpps > 16.0 };
            let offered = through(mpps, if is_slow { 10.0 } else { 16.0 });
            if plan.passes(&offered) {
                passed.push(mpps)
            } else {
                failed.push(mpps)
            }
            offered
        });
        assert!(passed.contains(&found.mpps), "{found:?}");
        assert!(failed.iter().any(|rate| *rate > found.mpps && rate - found.mpps <= 0.1), "{found:?}: {failed:?}");
        // Between the capacities both outcomes are true ones; never below the lower, never above the higher.
        assert!((9.9..=16.0).contains(&found.mpps), "{high}: {found:?}");
    }
}

#[test]
fn searches_come_to_a_spread() {
    let of = |mpps: f64, loss: f64| Found { mpps, loss, trials: 7 };
    let sum = LossFree::of(&[of(10.0, 0.0), of(12.0, 0.03), of(11.0, 0.01)]).expect("there are three");
    assert_eq!((sum.mpps.min, sum.mpps.median, sum.mpps.max, sum.trials), (10.0, 11.0, 12.0, 21));
    assert!((sum.received_mpps.max - 11.64).abs() < 1e-9 && sum.loss.max == 0.03);
    assert_eq!(LossFree::of(&[]), None);
}
