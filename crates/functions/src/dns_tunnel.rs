//! Finds clients that get DNS answers and never use them: the DNS tunnel detector of Chimera (Borders, Springer, Burnside:
//! USENIX Security '12; NFork, table 6). Behaviour and choices: `docs/dns-tunnel.md`.
//!
//! All state is shared, because answers are aged across clients. The packet set still keeps a client's packets in order.

mod config;
mod message;
mod orphans;
mod state;

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use memory::{Allocator, Distributed, Map, Memory, Vector};
use nf::{
    Context, Description, Fingerprint, FlowList, HOST_BYTES, Meta, NetworkFunction, Opened, PacketSet, Reason,
    RecordReader, RecordWriter, Report, Sharing, Sizing, Speed, Step, Verdict, grouped,
};
use packet::{Family, FlowKey, Headers, Host, Host6, Key, Nanos, Transport, Words};

pub use self::config::{Block, Config};
use self::message::{ADDRESSES_MAX, Answer};
pub use self::state::Answers;
use self::state::{Client, Peers, Totals, crossed, name, told};
use crate::list::Catalogued;
use crate::top::heaviest;

/// The `dns-tunnel` function.
#[derive(Clone, Debug)]
pub struct DnsTunnel {
    config: Config,
}

/// The metadata of a packet: the client, and what it sends or is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    client: Host,
    event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The client sends a packet to the peer with this name.
    Sends { peer: u32, is_query: bool },
    /// The client gets these addresses for a name.
    Told { name: u32, peers: Peers },
    /// The client gets an answer without an address.
    Nowhere { name: u32 },
    /// The client gets an unreadable message.
    Unreadable,
}

impl Meta for Sight {
    type Key = Host;

    const RECORD_BYTES: usize = 1 + HOST_BYTES + 4 + 1 + 4 * ADDRESSES_MAX;

    #[inline]
    fn key(&self) -> Host {
        self.client
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let (kind, name, peers) = match self.event {
            Event::Sends { peer, is_query } => {
                (1 + u8::from(is_query), 0, Peers { names: [peer, 0, 0, 0, 0, 0, 0, 0], crossed: 0 })
            }
            Event::Told { name, peers } => (3, name, peers),
            Event::Nowhere { name } => (4, name, Peers::default()),
            Event::Unreadable => (5, 0, Peers::default()),
        };
        let fields = RecordWriter::new(record).u8(kind).host(&self.client).u32(name).u8(peers.crossed as u8);
        peers.names.into_iter().fold(fields, RecordWriter::u32).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let (kind, client) = (fields.u8()?, fields.host()?);
        let (name, crossed) = (fields.u32()?, fields.u8()?);
        let mut peers = Peers { names: [0; ADDRESSES_MAX], crossed: crossed.into() };
        for peer in &mut peers.names {
            *peer = fields.u32()?;
        }
        fields.end()?;
        let count = peers.each().count();
        if peers.names[count..].iter().any(|peer| *peer != 0) || u32::from(crossed) >> count != 0 {
            return None;
        }
        let event = match (kind, count) {
            (1 | 2, 1) if name == 0 && crossed == 0 => Event::Sends { peer: peers.names[0], is_query: kind == 2 },
            (3, 1..) => Event::Told { name, peers },
            (4, 0) => Event::Nowhere { name },
            (5, 0) if name == 0 => Event::Unreadable,
            _ => return None,
        };
        Some(Self { client, event })
    }
}

const DNS: u16 = 53;

const TUNNEL: Reason = Reason::own(0);

impl DnsTunnel {
    /// Creates the function from its configuration.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    /// Returns the 32-bit name of an address; 0 if a use of it can't be seen. The name of an IPv4 address is the address; of IPv6 addresses
    /// it is a hash.
    #[inline]
    fn peer(address: IpAddr) -> u32 {
        if address.is_unspecified() || address.is_loopback() {
            return 0;
        }
        match Host::from(address).family() {
            Family::V4(host) => host.to_words()[0] as u32,
            // Without a secret key: the same on every core.
            Family::V6(host) => ((host.hash(0) >> 32) as u32).max(1),
        }
    }

    /// Reads a message from a server to its client.
    fn told(client: IpAddr, message: &[u8]) -> Option<Event> {
        match message::read(message) {
            Ok(Some(Answer::Addresses { name, addresses, count })) => {
                let mut peers = Peers::default();
                for address in &addresses[..count] {
                    let peer = Self::peer(*address);
                    if peer != 0 {
                        peers.add(peer, address.is_ipv4() != client.is_ipv4());
                    }
                }
                peers.each().next().map(|_| Event::Told { name, peers })
            }
            Ok(Some(Answer::Nowhere { name })) => Some(Event::Nowhere { name }),
            Ok(None) => None,
            Err(message::Unreadable) => Some(Event::Unreadable),
        }
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
"#;
    const SMALL: &'static str = r#"
threshold = 3
window = 5
idle_timeout = 9
block = "all"
answers = 64
clients = 32
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for DnsTunnel {
    type Meta = Sight;
    type Flow = ();
    type Shared<M: Memory> = Answers<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "dns-tunnel",
        summary: "finds clients that get DNS answers and never use them, as the ends of DNS tunnels do (Chimera)",
        state: "none of its own",
        sharing: Sharing::Shares("the unused answers, and each client's count of them"),
        keys: config::KEYS,
        drop_reasons: &["tunnel"],
        recipes: config::RECIPES,
    };

    /// The function has no flow state, but an answer and its use must keep their order.
    fn packet_set(&self) -> PacketSet {
        PacketSet::Initiator
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> Answers<M> {
        Answers::new(memory, self.config.answers.get() as usize, self.config.clients.get() as usize)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Answers<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Sight> {
        let (source, destination) = headers.addresses()?;
        let is_judged = |client: IpAddr| !self.config.ignore.iter().any(|prefix| prefix.contains(client));
        if let Transport::Udp { src_port: DNS, .. } = headers.transport
            && let Some(event) = Self::told(destination, headers.payload(frame))
        {
            return is_judged(destination).then(|| Sight { client: destination.into(), event });
        }
        let is_query = match headers.transport {
            Transport::Udp { dst_port, .. } => dst_port == DNS,
            Transport::Tcp(tcp) => tcp.dst_port == DNS,
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => false,
        };
        let peer = Self::peer(destination);
        (peer != 0 && is_judged(source))
            .then(|| Sight { client: source.into(), event: Event::Sends { peer, is_query } })
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Sight) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), sight: &Sight) -> Step<Verdict, M> {
        self.reclaim(cx)?;
        let name = name(sight.client);
        match &sight.event {
            Event::Sends { peer, .. } => {
                // An answer to the client itself, or to a client of the other address family, which may be the same host.
                let uses = [told(name, *peer, false), crossed(name, *peer)];
                for key in uses {
                    if self.used(cx, &key)? {
                        cx.shared.totals.update(&mut cx.tx, |totals| totals.used += 1)?;
                    }
                }
            }
            Event::Told { name: asked, peers } => self.answered(cx, name, *asked, Some(peers))?,
            Event::Nowhere { name: asked } => self.answered(cx, name, *asked, None)?,
            Event::Unreadable => cx.shared.totals.update(&mut cx.tx, |totals| totals.unreadable += 1)?,
        }
        Ok(if self.is_blocked(cx, name, &sight.event)? { Verdict::Drop(TUNNEL) } else { Verdict::forward() })
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, now, tx) = (cx.shared, cx.now(), &mut cx.tx);
        let Totals { answers, used, unreadable, unjudged } = shared.totals.read(tx, Nanos::NEVER)?;
        let mut clients = Vec::new();
        for place in 0..shared.known.capacity() {
            if shared.known.is_allocated(tx, place)? {
                let client = shared.clients.read(tx, place)?;
                let is_told = match client.is_named() {
                    true => client.last + self.config.remembered() > now,
                    false => self.knows(&client, now),
                };
                clients.extend(is_told.then_some((client.name, client)));
            }
        }
        let row = |(name, client): (Host6, Client)| {
            let host = Host::from_v6(name).address().to_canonical();
            let is_tunnel = if client.is_named() { "yes" } else { "no" };
            let Client { peak, answers, nowhere, .. } = client;
            vec![host.to_string().into(), peak.into(), answers.into(), nowhere.into(), is_tunnel.into()]
        };
        let top = heaviest(&mut clients.into_iter(), self.config.top.get() as usize, |client| client.peak.into());
        Ok(Some(Report {
            title: format!(
                "clients by unused DNS answers ({} answers, {} used; {} messages unreadable, {} answers without room)",
                grouped(answers),
                grouped(used),
                grouped(unreadable),
                grouped(unjudged)
            ),
            columns: vec!["client", "most in a window", "answers", "without address", "tunnel"],
            rows: top.into_iter().map(row).collect(),
        }))
    }
}

impl Speed<Self> for DnsTunnel {
    #[inline]
    fn prefetch_entry<M: Memory>(_: &Self, shared: &Answers<M>, sight: &Sight) {
        let name = name(sight.client);
        match sight.event {
            Event::Sends { peer, .. } => {
                shared.prefetch(&told(name, peer, false));
                shared.prefetch(&crossed(name, peer));
            }
            Event::Told { .. } | Event::Nowhere { .. } => shared.by_name.prefetch(&name),
            Event::Unreadable => {}
        }
    }
}

#[cfg(test)]
mod tests;
