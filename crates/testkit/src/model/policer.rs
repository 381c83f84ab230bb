//! The model of `policer`.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq};

use super::{Fate, Model, Tuple};

/// What has its own bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketPer {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// Stores every forwarded packet, and never forgets one. So it also checks that forgetting a bucket has no effect.
///
/// A packet is forwarded if, for each earlier time, the bytes forwarded since then fit into a burst plus the bytes that the rate allows
/// since then. This is the envelope of a token bucket, without tokens.
#[derive(Clone, Debug)]
pub struct PolicerModel {
    per: BucketPer,
    rate_bits: u128,
    burst: u128,
    forwarded: HashMap<Tuple, Vec<(u128, u128)>>,
}

impl PolicerModel {
    /// Creates a model with this rate in bits per second and burst in bytes.
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
