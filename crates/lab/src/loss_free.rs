//! The maximum loss-free forwarding rate, found by bisection over trials (RFC 2544, section 26.1).
//!
//! Software loses a few packets at any rate. A threshold says which loss still counts as none (4 % in the evaluation of state-compute
//! replication). A trial can also fail because of other programs, so a rate is too high only if it fails several times in a row (binary
//! search with loss verification, ETSI GS NFV-TST 009, section 12.3.3).

use std::time::Duration;

use port::{DESCRIPTORS, Load, Offered};

use crate::spread::Spread;

/// How to search for a loss-free rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossFreePlan {
    /// Share of lost packets from which on a trial fails. With 0, any loss fails.
    pub threshold: f64,
    /// Precision of the search, in millions of packets a second.
    pub resolution_mpps: f64,
    /// Duration of a trial before packets count.
    pub warm_up: Duration,
    /// Duration of the part that counts.
    pub trial: Duration,
    /// Number of failures in a row after which a rate is too high.
    pub attempts: usize,
    /// Descriptors of each core's receive ring.
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
    /// True if a trial with this loss passes.
    #[must_use]
    pub fn passes(&self, offered: &Offered) -> bool {
        offered.lost == 0 || offered.loss() < self.threshold
    }

    /// The load of a trial at this rate, in millions of packets a second.
    pub(crate) fn load(&self, mpps: f64) -> Load {
        Load { rate_pps: mpps * 1e6, warm_up: self.warm_up, duration: self.trial, descriptors: self.descriptors }
    }
}

/// Result of one search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Highest rate with a passed trial, in millions of packets a second; 0 if no trial passed.
    pub mpps: f64,
    /// Share of packets lost in that trial.
    pub loss: f64,
    /// Number of trials.
    pub trials: usize,
}

impl Found {
    /// Packets received in the passed trial, in millions a second.
    #[must_use]
    pub fn received_mpps(&self) -> f64 {
        self.mpps * (1.0 - self.loss)
    }
}

/// How often the upper end may be raised, each time by half.
const RAISES: usize = 8;

/// Searches for the highest rate that passes, from 0 to `high_mpps`, or above it if that passes. `trial` offers a rate, in millions of
/// packets a second, and returns what happened to the packets.
///
/// # Errors
/// Errors of `trial`.
pub fn search<E>(
    plan: &LossFreePlan,
    high_mpps: f64,
    mut trial: impl FnMut(f64) -> Result<Offered, E>,
) -> Result<Found, E> {
    let mut found = Found { mpps: 0.0, loss: 0.0, trials: 0 };
    // True if a rate passes; then it is the highest so far.
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

/// The loss-free rate of a case, from several searches that alternate with those of other cases.
#[derive(Clone, Debug, PartialEq)]
pub struct LossFree {
    /// Rates that passed, in millions of packets a second.
    pub mpps: Spread,
    /// Packets received at these rates, in millions a second.
    pub received_mpps: Spread,
    /// Loss at these rates, as a share.
    pub loss: Spread,
    /// Total number of trials.
    pub trials: usize,
}

impl LossFree {
    /// Combines several searches; `None` if there are none.
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
