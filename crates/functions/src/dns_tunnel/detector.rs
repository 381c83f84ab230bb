//! What the detector makes of a packet's step and of a server's stream.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use memory::{Allocator, Distributed, Memory, Vector};
use nf::{Description, Fingerprint, Flow, Report, Step, grouped};
use packet::{Family, FlowKey, Host, Host6, Key, Nanos, Words};

use super::key::ByClient;
use super::message::{self, Answer};
use super::messages::{Found, Messages};
use super::orphans::At;
use super::sight::{Event, server_of};
use super::state::{Answers, Client, Peers, Totals, crossed, name, told};
use super::{Config, DESCRIPTION, DNS};
use crate::streams::{Access, Direction, HELD_MAX, Hearing, Said, Session, SharedStreamFunction};
use crate::top::heaviest;

/// The detector: a function over the streams between clients and port 53, which gets what other packets tell as well.
#[derive(Clone, Debug)]
pub struct Detector {
    pub(super) config: Config,
}

/// The state of a connection between a client and port 53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookups {
    client: Host,
    /// The server's direction.
    server: Direction,
    messages: Messages,
}

impl Flow for Lookups {}

impl Detector {
    /// Returns the 32-bit name of an address; 0 if a use of it can't be seen. The name of an IPv4 address is the address; of IPv6 addresses
    /// it is a hash.
    #[inline]
    pub(super) fn peer(address: IpAddr) -> u32 {
        if address.is_unspecified() || address.is_loopback() {
            return 0;
        }
        match Host::from(address).family() {
            Family::V4(host) => host.to_words()[0] as u32,
            // Without a secret key: the same on every core.
            Family::V6(host) => ((host.hash(0) >> 32) as u32).max(1),
        }
    }

    /// Returns what a message from a server tells its client.
    pub(super) fn told(client: IpAddr, read: Result<Option<Answer>, message::Unreadable>) -> Option<Event> {
        match read {
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

    /// Takes note of what a client sends or is told. What a segment tells is heard in its stream.
    pub(super) fn note<M: Memory>(&self, at: &mut At<'_, '_, M>, client: Host6, event: &Event) -> Step<(), M> {
        match event {
            Event::Sends { peer, .. } => self.sends(at, client, *peer),
            Event::Told { name: asked, peers } => self.answered(at, client, *asked, Some(peers)),
            Event::Nowhere { name: asked } => self.answered(at, client, *asked, None),
            Event::Unreadable => at.shared.totals.update(at.tx, |totals| totals.unreadable += 1),
            Event::Segment(portion) => match server_of(portion) {
                Some(server) => self.sends(at, client, Self::peer(server)),
                None => Ok(()),
            },
        }
    }

    /// The client sends a packet to the peer with this name.
    fn sends<M: Memory>(&self, at: &mut At<'_, '_, M>, client: Host6, peer: u32) -> Step<(), M> {
        // An answer to the client itself, or to a client of the other address family, which may be the same host.
        for key in [told(client, peer, false), crossed(client, peer)] {
            if self.used(at, &key)? {
                at.shared.totals.update(at.tx, |totals| totals.used += 1)?;
            }
        }
        Ok(())
    }

    /// Makes the report.
    pub(super) fn clients<M: Memory>(&self, at: &mut At<'_, '_, M>) -> Step<Report, M> {
        let (shared, now) = (at.shared, at.now);
        let Totals { answers, used, unreadable, unjudged } = shared.totals.read(at.tx, Nanos::NEVER)?;
        let mut clients = Vec::new();
        for place in 0..shared.known.capacity() {
            if shared.known.is_allocated(at.tx, place)? {
                let client = shared.clients.read(at.tx, place)?;
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
        Ok(Report {
            title: format!(
                "clients by unused DNS answers ({} answers, {} used; {} messages unreadable, {} answers without room)",
                grouped(answers),
                grouped(used),
                grouped(unreadable),
                grouped(unjudged)
            ),
            columns: vec!["client", "most in a window", "answers", "without address", "tunnel"],
            rows: top.into_iter().map(row).collect(),
        })
    }
}

impl SharedStreamFunction for Detector {
    type Flow = Lookups;
    type Shared<M: Memory> = Answers<M>;

    const DESCRIPTION: Description = DESCRIPTION;
    const HOLDS: usize = HELD_MAX;
    const HEARS_UDP: bool = false;

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

    fn open(&self, session: &Session) -> Lookups {
        let source = session.tuple.source();
        let server = if source.port == DNS { Direction::Original } else { Direction::Reply };
        // Sessions are only those with a client.
        let client = ByClient::connection(session.tuple).map_or(source.address, |key| key.host().address());
        Lookups { client: client.into(), server, messages: Messages::new(session.midstream) }
    }

    fn hear<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        Access { shared, tx }: &mut Access<'_, '_, Self, M>,
        lookups: &mut Lookups,
        said: Said<'_>,
    ) -> Step<(), M> {
        let at = &mut At { shared, tx, now: cx.now() };
        let is_lost = match said {
            _ if said.direction() != lookups.server => {
                cx.enough(said.direction());
                false
            }
            Said::Data(_, bytes) => {
                let client = lookups.client;
                let held = lookups.messages.read(bytes, |found| {
                    let read = match found {
                        Found::Whole(message) => message::read(message),
                        Found::Beginning(message) => message::read_beginning(message),
                    };
                    self.reclaim(at)?;
                    match Self::told(client.address(), read) {
                        Some(event) => self.note(at, name(client), &event),
                        None => Ok(()),
                    }
                })?;
                cx.hold(held);
                false
            }
            Said::Gap(_, gap) => lookups.messages.gap(&gap),
            Said::End(_) => lookups.messages.is_inside(),
            Said::Deviation(..) | Said::Datagram(..) => false,
        };
        if is_lost {
            at.shared.totals.update(at.tx, |totals| totals.unreadable += 1)?;
        }
        Ok(())
    }
}
