//! The maximum loss-free forwarding rate, by bisection over trials (RFC 2544, section 26.1).
//!
//! Software loses a few packets at any rate, so a threshold says how many still count as none, as in the evaluation of
//! state-compute replication (4 %). And a trial can fail by what the machine did meanwhile: a rate counts as too high
//! when it failed several times in a row (binary search with loss verification, ETSI GS NFV-TST 009, section 12.3.3).

use std::time::Duration;

use port::{DESCRIPTORS, Load, Offered};

use crate::spread::Spread;

/// How to look for a loss-free rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossFreePlan {
    /// The share of lost packets from which on a trial failed. With 0, one lost packet is one too many.
    pub threshold: f64,
    /// The search ends when it knows the rate this closely, in millions of packets a second.
    pub resolution_mpps: f64,
    /// How long packets arrive in each trial before they count.
    pub warm_up: Duration,
    /// How long packets arrive that count.
    pub trial: Duration,
    /// How often a rate has to fail, in a row, to be too high.
    pub attempts: usize,
    /// How many descriptors each core's receive ring has.
    pub descriptors: usize,
}

impl Default for LossFreePlan {
    fn default() -> Self {
        Self {
            threshold: 0.04,
            resolution_mpps: 0.4,
            warm_up: Duration::from_millis(10),
            trial: Duration::from_millis(50),
            attempts: 3,
            descriptors: DESCRIPTORS,
        }
    }
}

impl LossFreePlan {
    /// Whether so much loss counts as none.
    #[must_use]
    pub fn passes(&self, offered: &Offered) -> bool {
        offered.lost == 0 || offered.loss() < self.threshold
    }

    /// The load of a trial at so many millions of packets a second.
    pub(crate) fn load(&self, mpps: f64) -> Load {
        Load { rate_pps: mpps * 1e6, warm_up: self.warm_up, duration: self.trial, descriptors: self.descriptors }
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest rate at which a trial passed, in millions of packets a second; 0 where none did.
    pub mpps: f64,
    /// The share of packets that was lost in that trial.
    pub loss: f64,
    /// How many trials it took.
    pub trials: usize,
}

impl Found {
    /// Millions of packets a second that came through in the trial that passed.
    #[must_use]
    pub fn received_mpps(&self) -> f64 {
        self.mpps * (1.0 - self.loss)
    }
}

/// How often the upper end may turn out to be too low, each time half as high again.
const RAISES: usize = 8;

/// Looks for the highest rate that passes, between none and `high_mpps` or, where that passes, above. `trial` offers a
/// rate, in millions of packets a second, and tells what became of the packets.
///
/// # Errors
/// The trial's.
pub fn search<E>(
    plan: &LossFreePlan,
    high_mpps: f64,
    mut trial: impl FnMut(f64) -> Result<Offered, E>,
) -> Result<Found, E> {
    let mut found = Found { mpps: 0.0, loss: 0.0, trials: 0 };
    // Whether a rate passes; then it is the highest so far.
    let mut passes = |mpps: f64, found: &mut Found| {
        for _ in 0..plan.attempts.max(1) {
            let offered = trial(mpps)?;
            found.trials += 1;
            if plan.passes(&offered) {
                (found.mpps, found.loss) = (mpps, offered.loss());
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut high = high_mpps.max(plan.resolution_mpps);
    for _ in 0..RAISES {
        if !passes(high, &mut found)? {
            break;
        }
        high *= 1.5;
    }
    while high - found.mpps > plan.resolution_mpps {
        let middle = f64::midpoint(found.mpps, high);
        if !passes(middle, &mut found)? {
            high = middle;
        }
    }
    Ok(found)
}

/// The loss-free rate of a case: several searches, in turn with those of the other cases.
#[derive(Clone, Debug, PartialEq)]
pub struct LossFree {
    /// The rates that were offered and passed, in millions of packets a second.
    pub mpps: Spread,
    /// Millions of packets a second that came through at those rates.
    pub received_mpps: Spread,
    /// The shares that were lost at those rates.
    pub loss: Spread,
    /// Trials in all.
    pub trials: usize,
}

impl LossFree {
    /// Several searches as one; `None` of none.
    #[must_use]
    pub fn of(found: &[Found]) -> Option<Self> {
        let spread = |figure: fn(&Found) -> f64| Spread::of(&found.iter().map(figure).collect::<Vec<_>>());
        Some(Self {
            mpps: spread(|found| found.mpps)?,
            received_mpps: spread(Found::received_mpps)?,
            loss: spread(|found| found.loss)?,
            trials: found.iter().map(|found| found.trials).sum(),
        })
    }
}

#[cfg(test)]
mod tests;
