//! Finds clients that get DNS answers and never use them: the DNS tunnel detector of Chimera (Borders, Springer, Burnside:
//! USENIX Security '12; NFork, table 6). Behaviour and choices: `docs/dns-tunnel.md`.
//!
//! All state about clients is shared, because answers are aged across clients. The packet set still keeps a client's packets in order. Only
//! connections to port 53 have flows: their streams are heard as those of any function over streams ([`Streams`]), by [`Detector`].

mod config;
mod detector;
mod key;
mod message;
mod messages;
mod orphans;
mod sight;
mod state;

use core::net::IpAddr;

use memory::{Map, Memory};
use nf::{
    Context, Description, Fingerprint, FlowList, NetworkFunction, Opened, PacketSet, Reason, Report, Sharing, Sizing,
    Speed, Step, Verdict,
};
use packet::{Headers, Transport};

pub use self::config::{Block, Config};
pub use self::detector::{Detector, Lookups};
pub use self::key::ByClient;
use self::orphans::At;
pub use self::sight::Sight;
use self::sight::{Event, server_of};
pub use self::state::Answers;
use self::state::{crossed, name, told};
use crate::list::Catalogued;
use crate::streams::{Common, Conversation, Portion, Streams};

/// The `dns-tunnel` function.
#[derive(Clone, Debug)]
pub struct DnsTunnel {
    /// What is told over TCP, and the detector itself.
    streams: Streams<Detector>,
}

const DNS: u16 = 53;

const TUNNEL: Reason = Reason::own(0);

const DESCRIPTION: Description = Description {
    name: "dns-tunnel",
    summary: "finds clients that get DNS answers and never use them, as the ends of DNS tunnels do (Chimera)",
    state: "for a connection to port 53, where the server is in its messages",
    sharing: Sharing::StreamsShare("the unused answers, and each client's count of them"),
    keys: &config::KEYS,
    drop_reasons: &["tunnel"],
    recipes: config::RECIPES,
};

impl DnsTunnel {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let streams = config.streams;
        Self { streams: Streams::new(Detector { config }, &streams) }
    }

    const fn detector(&self) -> &Detector {
        self.streams.function()
    }

    /// True if this client is judged.
    fn judges(&self, client: IpAddr) -> bool {
        !self.detector().config.ignore.iter().any(|prefix| prefix.contains(client))
    }

    /// Takes note of a packet, once its stream was heard if it is of one. Returns the verdict on it.
    fn note<M: Memory>(&self, cx: &mut Context<'_, Self, M>, sight: &Sight) -> Step<Verdict, M> {
        let (detector, client) = (self.detector(), name(sight.client));
        let at = &mut At { shared: cx.shared.shared(), now: cx.now(), tx: &mut cx.tx };
        detector.reclaim(at)?;
        detector.note(at, client, &sight.event)?;
        let is_blocked = detector.is_blocked(at, client, sight.is_dns())?;
        Ok(if is_blocked { Verdict::Drop(TUNNEL) } else { Verdict::forward() })
    }
}

impl Catalogued for DnsTunnel {
    type Config = Config;

    const CRAMPED: &'static str = r#"
threshold = 2
window = 2
idle_timeout = 2
block = "all"
answers = 3
clients = 2
streams = { flows = 64, flows_v6 = 64 }
"#;
    const SMALL: &'static str = r#"
threshold = 3
window = 5
idle_timeout = 9
block = "all"
answers = 64
clients = 32
streams = { flows = 1000, flows_v6 = 1000 }
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for DnsTunnel {
    type Meta = Sight;
    type Flow = Conversation<Lookups>;
    type Shared<M: Memory> = Common<Answers<M>>;
    type Speed = Self;

    const DESCRIPTION: Description = DESCRIPTION;
    const COUNTS: bool = true;

    fn counters(&self) -> usize {
        self.streams.counters()
    }

    /// An answer and its use must keep their order, so all packets of a client have to meet.
    fn packet_set(&self) -> PacketSet {
        PacketSet::Initiator
    }

    fn wants_whole_datagrams(&self) -> bool {
        true
    }

    fn sizing(&self) -> Sizing {
        self.streams.sizing()
    }

    fn shared<M: Memory>(&self, memory: &M) -> Common<Answers<M>> {
        self.streams.shared(memory)
    }

    fn shared_bytes_max(&self, states: usize) -> usize {
        self.streams.shared_bytes_max(states)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        common: &'a Common<Answers<M>>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        common.shared().fingerprint(tx, fingerprint)
    }

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Sight> {
        let (source, destination) = headers.addresses()?;
        let is_query = match headers.transport {
            Transport::Udp { src_port: DNS, dst_port } => {
                let read = message::read(headers.payload(frame));
                if let Some(event) = Detector::told(destination, read) {
                    return self.judges(destination).then(|| Sight { client: destination.into(), event });
                }
                dst_port == DNS
            }
            Transport::Udp { dst_port, .. } => dst_port == DNS,
            Transport::Tcp(tcp) => {
                if (tcp.src_port == DNS || tcp.dst_port == DNS)
                    && let Some(sight) = Portion::of(headers, frame).and_then(Sight::of_segment)
                {
                    return self.judges(sight.client.address()).then_some(sight);
                }
                tcp.dst_port == DNS
            }
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => false,
        };
        let peer = Detector::peer(destination);
        (peer != 0 && self.judges(source))
            .then(|| Sight { client: source.into(), event: Event::Sends { peer, is_query } })
    }

    /// Refuses all but segments of connections: all other packets take their step here.
    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, sight: &Sight) -> Step<Opened<Self::Flow>, M> {
        let begun = match &sight.event {
            Event::Segment(portion) => self.streams.begin(cx, portion),
            Event::Sends { .. } | Event::Told { .. } | Event::Nowhere { .. } | Event::Unreadable => None,
        };
        Ok(match begun {
            Some(conversation) => Opened::Flow(conversation),
            None => Opened::Refused(self.note(cx, sight)?),
        })
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Self::Flow,
        sight: &Sight,
    ) -> Step<Verdict, M> {
        if let Event::Segment(portion) = &sight.event {
            // The detector drops no connections, so this verdict says nothing.
            self.streams.step(cx, cx.shared, flow, portion)?;
        }
        self.note(cx, sight)
    }

    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Self::Flow) -> Step<(), M> {
        self.streams.end(cx, cx.shared, flow)
    }

    /// A packet whose connection found no room isn't heard.
    fn orphan<M: Memory>(&self, cx: &mut Context<'_, Self, M>, sight: &Sight) -> Step<Verdict, M> {
        self.note(cx, sight)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let at = &mut At { shared: cx.shared.shared(), now: cx.now(), tx: &mut cx.tx };
        self.detector().clients(at).map(Some)
    }
}

impl Speed<Self> for DnsTunnel {
    const SELECTIVE: bool = true;

    #[inline]
    fn refuses(_: &Self, sight: &Sight) -> bool {
        !matches!(sight.event, Event::Segment(_))
    }

    #[inline]
    fn prefetch_entry<M: Memory>(_: &Self, common: &Common<Answers<M>>, sight: &Sight) {
        let (shared, client) = (common.shared(), name(sight.client));
        let uses = |peer: u32| {
            shared.prefetch(&told(client, peer, false));
            shared.prefetch(&crossed(client, peer));
        };
        match &sight.event {
            Event::Sends { peer, .. } => uses(*peer),
            Event::Told { .. } | Event::Nowhere { .. } => shared.by_name.prefetch(&client),
            Event::Unreadable => {}
            Event::Segment(portion) => match server_of(portion) {
                Some(server) => uses(Detector::peer(server)),
                None => shared.by_name.prefetch(&client),
            },
        }
    }
}

#[cfg(test)]
mod tests;
