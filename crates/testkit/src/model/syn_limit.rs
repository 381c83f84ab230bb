//! The model of `syn-limit`.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, Transport};

use super::{Fate, Model};

/// Stores the time of every forwarded SYN, and never forgets one. So it also checks that forgetting a source has no effect.
///
/// A SYN is forwarded if, for each earlier time, the SYNs forwarded since then fit into a burst plus those that the rate allows since then.
#[derive(Clone, Debug)]
pub struct SynLimitModel {
    rate: u128,
    burst: u128,
    allowed: Vec<IpAddr>,
    forwarded: HashMap<IpAddr, Vec<u128>>,
}

impl SynLimitModel {
    /// Creates a model with this rate in SYNs a second and this burst, which doesn't limit the sources of `allowed`.
    #[must_use]
    pub fn new(rate: u64, burst: u64, allowed: &[IpAddr]) -> Self {
        Self { rate: rate.into(), burst: burst.into(), allowed: allowed.to_vec(), forwarded: HashMap::new() }
    }
}

impl Model for SynLimitModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let (Some((source, _)), Transport::Tcp(tcp)) = (headers.addresses(), headers.transport) else {
            return Fate::FORWARD;
        };
        // SYN is bit 1, ACK bit 4.
        if tcp.flags.0 & 0b1_0010 != 0b10 || self.allowed.contains(&source) {
            return Fate::FORWARD;
        }
        let forwarded = self.forwarded.entry(source).or_default();
        let now = u128::from(now.0);
        let fits = |(nth, time): (usize, &u128)| {
            (nth as u128 + 2) * 1_000_000_000 <= self.burst * 1_000_000_000 + (now - time) * self.rate
        };
        if forwarded.iter().rev().enumerate().all(fits) {
            forwarded.push(now);
            Fate::FORWARD
        } else {
            Fate::Drop("syn-rate")
        }
    }
}
