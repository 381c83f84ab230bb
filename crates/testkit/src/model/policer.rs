//! The model of `policer`.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq};

use super::{Fate, Model, Tuple};

/// What has a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketPer {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// Remembers every packet that passed, for ever; so it also checks that a bucket's being forgotten can't be noticed.
///
/// A packet passes if, for each earlier moment, what passed since then fits into a burst and what the rate gave since
/// then. This is the envelope that a token bucket stands for, told without tokens.
#[derive(Clone, Debug)]
pub struct PolicerModel {
    per: BucketPer,
    rate_bits: u128,
    burst: u128,
    forwarded: HashMap<Tuple, Vec<(u128, u128)>>,
}

impl PolicerModel {
    /// A model of this rate in bits per second and burst in bytes.
    #[must_use]
    pub fn new(per: BucketPer, rate_bits: u64, burst: u64) -> Self {
        Self { per, rate_bits: rate_bits.into(), burst: burst.into(), forwarded: HashMap::new() }
    }
}

impl Model for PolicerModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        let (src_port, dst_port) = headers.ports();
        let none = IpAddr::from([0; 4]);
        let owner = match self.per {
            BucketPer::FiveTuple => (src, src_port, dst, dst_port, headers.protocol),
            BucketPer::Source => (src, 0, none, 0, 0),
            BucketPer::Destination => (none, 0, dst, 0, 0),
        };
        let forwarded = self.forwarded.entry(owner).or_default();
        let (now, bytes) = (u128::from(now.0), u128::from(headers.wire_len));
        let mut since = bytes;
        let mut fits = since <= self.burst;
        for (time, len) in forwarded.iter().rev() {
            since += len;
            let given = (now - time) * self.rate_bits;
            fits &= since * 8_000_000_000 <= self.burst * 8_000_000_000 + given;
        }
        if fits {
            forwarded.push((now, bytes));
            Fate::FORWARD
        } else {
            Fate::Drop("rate")
        }
    }
}
