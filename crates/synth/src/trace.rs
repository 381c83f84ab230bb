//! Generates traces as a stream: flows with published size distributions, whole TCP conversations from SYN to FIN, both directions,
//! correct checksums. The same profile, parameters and seed give the same trace.
//!
//! | profile | stands in for | flow sizes |
//! |---|---|---|
//! | `university-dc` | the university data centre of state-compute replication, figure 5a | AGH university's Internet link |
//! | `backbone` | its CAIDA backbone trace, figure 5b | bounded Pareto fitted to two facts that CAIDA published |
//! | `hyperscaler` | its synthetic trace, figure 5c | the web search workload of DCTCP, the same source as the paper's |
//! | `uniform` | - | all flows alike: for benches |
//! | `syn-flood` | - | one SYN after another, each from its own source |
//! | `single-flow` | the paper's figure 1 | one TCP connection |
//!
//! The first two are approximations, because the captures are not public. Sources and numbers are in `trace/lengths.rs`. In the first
//! three, no flow has more than a fifth of the packets; use `single-flow` for that. Payload bytes are zeros. Flow sizes use
//! floating-point logarithms and powers, so the trace may differ on platforms with another mathematics library.

mod conversation;
mod lengths;
mod order;
mod wire;

use std::fmt;
use std::str::FromStr;

use packet::{LinkType, Nanos};
use port::Trace;

use crate::frames::Frames;
use crate::rng::Rng;
use conversation::{Conversation, Pattern};
use lengths::Lengths;
use order::Order;
use wire::Wire;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Many short flows, and a few long ones that carry most packets.
    UniversityDc,
    /// Heaviest tail: half of the packets are in flows of more than 8192 packets.
    Backbone,
    /// TCP only, from a few kilobytes to tens of megabytes.
    Hyperscaler,
    /// All flows have the same size.
    Uniform,
    /// SYN segments to a few servers, each from another source.
    SynFlood,
    /// One TCP connection.
    SingleFlow,
}

/// Parameters of a trace. The defaults leave everything possible to the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Seed of the random choices.
    pub seed: u64,
    /// Exact number of packets.
    pub packets: u64,
    /// Exact number of conversations; by default as many as the profile's flow sizes make of the packets. Ignored by `single-flow`.
    pub flows: Option<u64>,
    /// Replaces the profile's flow sizes by Zipf's law: the n-th largest has a size in proportion to 1 / n^skew.
    pub skew: Option<f64>,
    /// Mean number of packets of a flow that follow each other back to back; at least 1.
    pub burst: f64,
    /// Mean packets per second, in packet time.
    pub rate_pps: u64,
    /// Mean time between packets of a flow, for profiles with flows that come and go; shorter for flows that would not end in time.
    pub gap: Nanos,
    /// Frame lengths.
    pub frame_len: Option<FrameLen>,
    /// Share of IPv6 flows, in percent.
    pub ipv6_percent: u8,
    /// One transport for all flows; by default the profile decides.
    pub transport: Option<FlowTransport>,
    /// Number of client addresses; by default one for every eight flows, in `uniform` and `syn-flood` one for each flow.
    pub hosts: Option<u64>,
    /// In `uniform`: true if flows send in turn, false for random order.
    pub turns: bool,
}

/// Frame lengths, without the frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameLen {
    /// This many bytes, 64 to 1514; longer if the headers need more.
    Fixed(u16),
    /// Full segments, acknowledgements without payload, and requests.
    Realistic,
}

/// One transport for all flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowTransport {
    /// Whole TCP conversations, of at least six packets.
    Tcp,
    /// UDP; in `uniform` from the client only, otherwise in both directions alternately.
    Udp,
}

/// Why a trace can't be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SynthError {
    /// The flows don't fit the packets.
    #[error("{flows} flows need at least {need} packets, but only {packets} are given")]
    Packets {
        /// Flows asked for.
        flows: u64,
        /// Packets that they need.
        need: u64,
        /// Packets asked for.
        packets: u64,
    },
    /// A parameter is out of range.
    #[error("{name} must be {range}")]
    Range {
        /// The parameter.
        name: &'static str,
        /// What it can be.
        range: &'static str,
    },
}

/// A trace that is being generated.
pub struct Synth {
    rng: Rng,
    order: Order,
    wire: Wire,
    packets: u64,
    flows: u64,
}

/// The first packet's time at the earliest: 2023-11-14 22:13:20 UTC.
const EPOCH: Nanos = Nanos::from_secs(1_700_000_000);

/// No flow gets more than 1/SHARE_MAX of the packets; otherwise one elephant could fill a short trace.
const SHARE_MAX: u64 = 5;

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 6] =
        [Self::UniversityDc, Self::Backbone, Self::Hyperscaler, Self::Uniform, Self::SynFlood, Self::SingleFlow];

    /// The name that commands know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UniversityDc => "university-dc",
            Self::Backbone => "backbone",
            Self::Hyperscaler => "hyperscaler",
            Self::Uniform => "uniform",
            Self::SynFlood => "syn-flood",
            Self::SingleFlow => "single-flow",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::UniversityDc => {
                "flow sizes of a university's Internet link: many small UDP and TCP flows, few elephants"
            }
            Self::Backbone => "heaviest tail: half of the packets are in flows of more than 8192 packets",
            Self::Hyperscaler => "TCP only, flow sizes of the DCTCP web search workload",
            Self::Uniform => "all flows have the same size; UDP from clients only, or TCP on request",
            Self::SynFlood => "SYN segments, each from another source",
            Self::SingleFlow => "one TCP connection",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|profile| profile.name() == name);
        found.ok_or_else(|| format!("there is no profile `{name}`; choose one of {}", names()))
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            seed: 1,
            packets: 1_000_000,
            flows: None,
            skew: None,
            burst: 1.0,
            rate_pps: 1_000_000,
            gap: Nanos::from_millis(5),
            frame_len: None,
            ipv6_percent: 0,
            transport: None,
            hosts: None,
            turns: false,
        }
    }
}

impl Params {
    /// True if each parameter makes sense by itself.
    fn check(&self) -> Result<(), SynthError> {
        let range = |good: bool, name, range| if good { Ok(()) } else { Err(SynthError::Range { name, range }) };
        range((1..=u64::from(u32::MAX)).contains(&self.packets), "packets", "from 1 to 4294967295")?;
        range(self.flows.is_none_or(|flows| (1..=1 << 28).contains(&flows)), "flows", "from 1 to 268435456")?;
        range(self.skew.is_none_or(|skew| (0.0..=10.0).contains(&skew)), "skew", "from 0 to 10")?;
        range((1.0..=1e6).contains(&self.burst), "burst", "from 1 to a million")?;
        range((1..=1_000_000_000).contains(&self.rate_pps), "rate", "from 1 to 1000000000 packets per second")?;
        let fits = |len| matches!(len, FrameLen::Realistic | FrameLen::Fixed(64..=1514));
        range(self.frame_len.is_none_or(fits), "frame length", "from 64 to 1514 bytes")?;
        range(self.ipv6_percent <= 100, "IPv6 share", "from 0 to 100 percent")?;
        range(self.hosts.is_none_or(|hosts| (1..=1 << 24).contains(&hosts)), "hosts", "from 1 to 16777216")
    }
}

impl Synth {
    /// Starts a trace.
    ///
    /// It needs about 60 bytes of memory for each flow of `uniform`; for other profiles 20 for each flow and 60 more while the flow is
    /// alive. Packets need none.
    ///
    /// # Errors
    /// A parameter is invalid, alone or together with others.
    pub fn new(profile: Profile, params: &Params) -> Result<Self, SynthError> {
        params.check()?;
        let mut rng = Rng::new(params.seed);
        let lengths = Lengths::new(profile, params).draw(params, &mut rng)?;
        let flows = lengths.len() as u64;
        let hosts = params.hosts.unwrap_or(match profile {
            Profile::Uniform | Profile::SynFlood => flows,
            Profile::UniversityDc | Profile::Backbone | Profile::Hyperscaler | Profile::SingleFlow => flows.div_ceil(8),
        });
        let hosts = hosts.clamp(1, 1 << 24);
        if flows.div_ceil(hosts) > u64::from(u16::MAX) - 1_024 {
            return Err(SynthError::Range { name: "hosts", range: "at least a 64000th of the flows" });
        }
        let frame_len = params.frame_len.unwrap_or(match profile {
            Profile::Uniform | Profile::SynFlood => FrameLen::Fixed(64),
            Profile::UniversityDc | Profile::Backbone | Profile::Hyperscaler | Profile::SingleFlow => {
                FrameLen::Realistic
            }
        });
        let order = match profile {
            Profile::Uniform if params.skew.is_some() => Order::spread(lengths, params, &mut rng),
            Profile::Uniform if !params.turns => Order::random(lengths, params),
            Profile::Uniform | Profile::SynFlood | Profile::SingleFlow => Order::turns(lengths, params),
            Profile::UniversityDc | Profile::Backbone | Profile::Hyperscaler => Order::timed(lengths, params, &mut rng),
        };
        let pattern = Pattern::new(profile, params.transport);
        Ok(Self { rng, order, wire: Wire::new(params, pattern, hosts, frame_len), packets: params.packets, flows })
    }

    /// How the frames begin.
    #[must_use]
    pub const fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    /// Number of packets.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of conversations.
    #[must_use]
    pub const fn flows(&self) -> u64 {
        self.flows
    }

    /// The next frame and its time; `None` after the last.
    pub fn next_frame(&mut self) -> Option<(Nanos, &[u8])> {
        let wire = &mut self.wire;
        let mut open = |flow, total, rng: &mut Rng| wire.open(flow, total, rng);
        let (time, mut conversation): (Nanos, Conversation) = self.order.next(&mut self.rng, &mut open)?;
        let segment = conversation.next(&mut self.rng, self.wire.frame_len());
        let frame = self.wire.write(&conversation, &segment);
        self.order.put_back(conversation, &mut self.rng);
        Some((EPOCH + time, frame))
    }

    /// The whole trace in memory.
    ///
    /// # Panics
    /// It is larger than 4 GiB.
    #[must_use]
    pub fn trace(mut self) -> Trace {
        let mut trace = Trace::new();
        while let Some((time, frame)) = self.next_frame() {
            trace.push(Frames::descriptor(LinkType::Ethernet, trace.len(), time, frame), frame);
        }
        trace
    }
}
