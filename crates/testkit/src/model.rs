//! Naive models of the network functions: plain `HashMap` programs after the functions' documents, written apart from
//! the functions. They know no engine and no contract, and keep what they know for ever; where a table may be full, that is
//! part of the model.

mod anti_ddos;
mod app_classifier;
mod asset_monitor;
mod bridge;
mod conntrack;
mod ddos;
mod dns_tunnel;
mod firewall;
mod flow_buffer;
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
pub use app_classifier::{AppClassifierModel, Told};
pub use asset_monitor::{AssetMonitorModel, KnownHost, KnownSession, TellService, TellSystem};
pub use bridge::BridgeModel;
pub use conntrack::ConntrackModel;
pub use ddos::DdosModel;
pub use dns_tunnel::DnsTunnelModel;
pub use firewall::FirewallModel;
pub use flow_buffer::FlowBufferModel;
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
    /// What becomes of packet number `seq`. Malformed packets don't come here, nor do later fragments where the
    /// function's packet sets are named by ports.
    fn packet(&mut self, seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate;
}

/// Source address and port, destination address and port, protocol.
pub type Tuple = (IpAddr, u16, IpAddr, u16, u8);

/// What becomes of a packet, drop reasons by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes out, changed like this.
    Forward(Rewrite),
    /// Another goes out in its place, which this makes of it.
    Transform(u64),
    /// It ends here.
    Drop(&'static str),
    /// It ends here, and this goes back.
    Reply(Reply),
}

impl Fate {
    /// It goes out unchanged.
    pub const FORWARD: Self = Self::Forward(Rewrite::NONE);

    /// A function's verdict, its own drop reasons given.
    #[must_use]
    pub fn of(verdict: Verdict, own_reasons: &[&'static str]) -> Self {
        match verdict {
            Verdict::Forward(_) => Self::Forward(Rewrite::NONE),
            Verdict::Rewrite { port: _, rewrite } => Self::Forward(rewrite),
            Verdict::Transform { port: _, work } => Self::Transform(work),
            Verdict::Drop(reason) => Self::Drop(reason.name(own_reasons)),
            Verdict::Reply(reply) => Self::Reply(reply),
        }
    }
}

/// Where a function and its model part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The packet's number.
    pub seq: Seq,
    /// Its time.
    pub now: Nanos,
    /// What it says.
    pub headers: Headers,
    /// What the function decided.
    pub got: Fate,
    /// What the model did.
    pub expected: Fate,
}

impl std::error::Error for Disagreement {}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, now, headers, got, expected } = self;
        write!(f, "packet {seq} at {now}: got {got:?}, the model says {expected:?}; {headers:?}")
    }
}

/// Gives the frames to a function that has seen nothing yet and to its model.
///
/// # Errors
/// The first packet of which they think differently.
///
/// # Panics
/// When a frame is malformed: models know of none.
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

/// Gives the next packet, number `seq`, to a function and to its model; what both made of it.
///
/// # Errors
/// They think differently.
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
    let expected = if driver.function().packet_set().has_ports() && headers.fragment == Fragment::Later {
        Fate::Drop("fragment")
    } else {
        model.packet(seq, now, headers, headers.payload(bytes))
    };
    if got == expected { Ok(got) } else { Err(Box::new(Disagreement { seq, now, headers: *headers, got, expected })) }
}
