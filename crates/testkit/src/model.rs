//! Naive models of the network functions: plain `HashMap` programs written from the functions' pages, independently of the functions.
//! They use no engine and no contract, and never forget anything. If a full table matters, the model includes it.

mod anti_ddos;
mod asset_monitor;
mod bridge;
mod conntrack;
mod ddos;
mod dns_tunnel;
mod firewall;
mod heavy_hitter;
mod load_balancer;
mod policer;
mod port_knock;
mod port_scan;
mod sidejacking;
mod syn_limit;
mod tracking;
mod web_cache;

use std::fmt;
use std::net::IpAddr;

use nf::{NetworkFunction, Reply, Verdict};
use packet::{Fragment, Headers, Nanos, Rewrite, Seq};

use crate::Driver;
use crate::Frames;

pub use anti_ddos::AntiDdosModel;
pub use asset_monitor::{AssetMonitorModel, KnownHost, KnownSession, TellService, TellSystem};
pub use bridge::BridgeModel;
pub use conntrack::ConntrackModel;
pub use ddos::DdosModel;
pub use dns_tunnel::DnsTunnelModel;
pub use firewall::FirewallModel;
pub use heavy_hitter::HeavyHitterModel;
pub use load_balancer::LoadBalancerModel;
pub use policer::{BucketPer, PolicerModel};
pub use port_knock::PortKnockModel;
pub use port_scan::PortScanModel;
pub use sidejacking::SidejackingModel;
pub use syn_limit::SynLimitModel;
pub use tracking::Tracked;
pub use web_cache::WebCacheModel;

/// A function's behaviour, packet by packet.
pub trait Model {
    /// Returns the fate of packet number `seq`. Malformed packets are not given to a model, nor are later fragments if the function's packet
    /// sets have ports.
    fn packet(&mut self, seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate;
}

/// Source address and port, destination address and port, protocol.
pub type Tuple = (IpAddr, u16, IpAddr, u16, u8);

/// The fate of a packet, with drop reasons by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is forwarded with this rewrite.
    Forward(Rewrite),
    /// It is transformed by this work and forwarded.
    Transform(u64),
    /// It is dropped for this reason.
    Drop(&'static str),
    /// It is dropped and answered.
    Reply(Reply),
}

impl Fate {
    /// It is forwarded unchanged.
    pub const FORWARD: Self = Self::Forward(Rewrite::NONE);

    /// Converts a function's verdict, given the names of its own drop reasons.
    #[must_use]
    pub fn of(verdict: Verdict, own_reasons: &[&'static str]) -> Self {
        match verdict {
            Verdict::Forward(_) => Self::Forward(Rewrite::NONE),
            Verdict::Rewrite { port: _, rewrite } => Self::Forward(rewrite),
            Verdict::Copy { src, dst, macs, .. } => Self::Forward(Rewrite { src, dst, macs, ..Rewrite::NONE }),
            Verdict::Transform { port: _, work } => Self::Transform(work),
            Verdict::Drop(reason) => Self::Drop(reason.name(own_reasons)),
            Verdict::Reply(reply) => Self::Reply(reply),
        }
    }
}

/// A packet for which a function and its model differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The packet's number.
    pub seq: Seq,
    /// Its time.
    pub now: Nanos,
    /// Its headers.
    pub headers: Headers,
    /// The function's decision.
    pub got: Fate,
    /// The model's decision.
    pub expected: Fate,
}

impl std::error::Error for Disagreement {}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, now, headers, got, expected } = self;
        write!(f, "packet {seq} at {now}: got {got:?}, the model says {expected:?}; {headers:?}")
    }
}

/// Runs the frames through a fresh function and its model.
///
/// # Errors
/// The first packet for which they differ.
///
/// # Panics
/// If a frame is malformed.
pub fn compare<N: NetworkFunction>(
    driver: &mut Driver<N>,
    model: &mut impl Model,
    frames: &Frames,
) -> Result<(), Box<Disagreement>> {
    for ((now, bytes), number) in frames.iter().zip(0..) {
        let headers =
            packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("models take well-formed packets");
        compare_packet(driver, model, Seq(number), now, &headers, bytes)?;
    }
    Ok(())
}

/// Gives the next packet, number `seq`, to a function and to its model. Returns the fate.
///
/// # Errors
/// If they differ.
pub fn compare_packet<N: NetworkFunction>(
    driver: &mut Driver<N>,
    model: &mut impl Model,
    seq: Seq,
    time: Nanos,
    headers: &Headers,
    bytes: &[u8],
) -> Result<Fate, Box<Disagreement>> {
    let got = Fate::of(driver.packet(time, Ok(headers), bytes), N::DESCRIPTION.drop_reasons);
    let now = driver.now();
    let expected = if driver.function().drops_fragments() && headers.fragment == Fragment::Later {
        Fate::Drop("fragment")
    } else {
        model.packet(seq, now, headers, headers.payload(bytes))
    };
    if got == expected { Ok(got) } else { Err(Box::new(Disagreement { seq, now, headers: *headers, got, expected })) }
}
