//! The connections of the models of `conntrack` and `firewall`, written from `conntrack`'s page and, where that is silent, from the Linux
//! tracker.

pub(super) mod tcp;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use packet::{Embedded, Headers, Icmp, Nanos, Network, Transport, protocol};
use serde::Deserialize;

use super::Tuple;

/// Both endpoints, the smaller one first, and the protocol.
type Name = ((IpAddr, u16), (IpAddr, u16), u8);

const SECOND: u64 = 1_000_000_000;

/// A UDP connection older than this may be a stream.
const STREAM_AGE: u64 = 2 * SECOND;

/// The tracker's keys of the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    pub(super) loose: bool,
    pub(super) liberal: bool,
    pub(super) ignore_invalid_rst: bool,
    pub(super) max_retransmissions: u64,
    pub(super) flows: usize,
    pub(super) flows_v6: usize,
    pub(super) timeouts: Timeouts,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            loose: true,
            liberal: false,
            ignore_invalid_rst: false,
            max_retransmissions: 3,
            flows: 1_048_576,
            flows_v6: 65_536,
            timeouts: Timeouts::default(),
        }
    }
}

/// The timeouts in seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Timeouts {
    pub(super) tcp_syn_sent: u64,
    pub(super) tcp_syn_recv: u64,
    pub(super) tcp_established: u64,
    pub(super) tcp_fin_wait: u64,
    pub(super) tcp_close_wait: u64,
    pub(super) tcp_last_ack: u64,
    pub(super) tcp_time_wait: u64,
    pub(super) tcp_close: u64,
    pub(super) tcp_syn_sent2: u64,
    pub(super) tcp_retransmitted: u64,
    pub(super) tcp_unacknowledged: u64,
    pub(super) udp: u64,
    pub(super) udp_stream: u64,
    pub(super) icmp: u64,
    pub(super) other: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_syn_sent: 120,
            tcp_syn_recv: 60,
            tcp_established: 432_000,
            tcp_fin_wait: 120,
            tcp_close_wait: 60,
            tcp_last_ack: 30,
            tcp_time_wait: 120,
            tcp_close: 10,
            tcp_syn_sent2: 120,
            tcp_retransmitted: 300,
            tcp_unacknowledged: 300,
            udp: 30,
            udp_stream: 120,
            icmp: 30,
            other: 600,
        }
    }
}

/// A connection that a model tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Its endpoints, the smaller one first.
    pub name: Tuple,
    /// Its state, if it is TCP.
    pub state: Option<&'static str>,
    /// When it expires without further packets.
    pub deadline: Nanos,
    /// It is assured.
    pub assured: bool,
    /// It is or was assured, or the connection that it reopened was: then it is not evicted from a full table.
    pub keeps_place: bool,
}

/// The connections.
#[derive(Clone, Debug)]
pub(super) struct Tracking {
    settings: Settings,
    connections: HashMap<Name, TrackedConnection>,
    /// The tables of IPv4 and of IPv6.
    places: [Places; 2],
}

/// The slots of a table, which decide the next eviction (CLOCK): slots are used in order, the last freed one first, and a clock hand goes
/// round.
#[derive(Clone, Debug, Default)]
struct Places {
    count: usize,
    used: usize,
    freed: Vec<usize>,
    hand: usize,
}

/// A connection and its slot.
#[derive(Clone, Debug)]
struct TrackedConnection {
    opener: (IpAddr, u16),
    talk: Talk,
    deadline: u64,
    place: usize,
    /// It is protected from eviction.
    keeps_place: bool,
}

#[derive(Clone, Debug)]
enum Talk {
    Tcp(tcp::Connection),
    Udp {
        since: u64,
        answered: bool,
    },
    /// The types of query that each side has sent.
    Icmp {
        asked: [HashSet<u8>; 2],
    },
    Other,
}

/// The tracker's decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// No IP layer.
    NonIp,
    /// There may be an IP layer that the parser can't find.
    Unreadable,
    /// Neighbour discovery or multicast listening.
    Exempt,
    /// It belongs to a connection.
    Passes,
    /// It is an ICMP error about a connection.
    Related,
    /// It may not open a connection. Nothing has changed.
    Refused,
    /// No room for the connection that it opens.
    Full,
    /// It is invalid for this cause, in a known connection or without one.
    Invalid { cause: &'static str, known: bool },
}

impl Tracking {
    pub(super) fn new(settings: Settings) -> Self {
        let places = [settings.flows, settings.flows_v6].map(|count| Places { count, ..Places::default() });
        Self { settings, connections: HashMap::new(), places }
    }

    /// Handles a packet; `may_open` says if it may open a connection.
    pub(super) fn packet(&mut self, now: Nanos, headers: &Headers, may_open: bool) -> Judgement {
        let Some((src, dst)) = headers.addresses() else {
            return if headers.network == Network::Unreadable { Judgement::Unreadable } else { Judgement::NonIp };
        };
        if let Transport::Icmp(icmp) = headers.transport {
            let v6 = matches!(headers.network, Network::V6(_));
            match (v6, icmp.kind) {
                (true, 130..=136 | 143) => return Judgement::Exempt,
                (true, 0..=127) | (false, 3 | 4 | 5 | 11 | 12) => return self.error(now.0, dst, icmp.embedded),
                (true, 128 | 129 | 139 | 140) | (false, 0 | 8 | 13..=18) => {}
                _ => return Judgement::Invalid { cause: "unknown-icmp", known: false },
            }
        }
        let (src_port, dst_port) = headers.ports();
        let (source, destination) = ((src, src_port), (dst, dst_port));
        let name = name(source, destination, headers.protocol);
        self.forget_if_dead(&name, now.0);
        let Some(entry) = self.connections.get(&name) else {
            return match Talk::open(headers, &self.settings, now.0) {
                Err(cause) => Judgement::Invalid { cause, known: false },
                Ok(_) if !may_open => Judgement::Refused,
                Ok(talk) => self.open(name, source, talk, headers, now.0),
            };
        };
        let way = usize::from(entry.opener != source);
        match self.give(&name, way, headers, now.0, may_open) {
            PacketOutcome::Passes => Judgement::Passes,
            PacketOutcome::Ends => {
                self.forget(&name);
                Judgement::Passes
            }
            PacketOutcome::Invalid(cause) => Judgement::Invalid { cause, known: true },
            PacketOutcome::Opens if !may_open => Judgement::Refused,
            PacketOutcome::Opens => {
                let talk = Talk::open(headers, &self.settings, now.0).expect("a SYN opens");
                let entry = self.connections.get_mut(&name).expect("it was there a moment ago");
                (entry.opener, entry.talk) = (source, talk);
                self.give(&name, 0, headers, now.0, may_open);
                Judgement::Passes
            }
        }
    }

    /// Returns the live connections, sorted by key.
    pub(super) fn connections(&self, now: Nanos) -> Vec<Tracked> {
        let alive = self.connections.iter().filter(|(_, entry)| entry.deadline > now.0);
        let tell = |((one, other, protocol), entry): (&Name, &TrackedConnection)| {
            let (state, assured) = match &entry.talk {
                Talk::Tcp(connection) => (Some(connection.state.name()), connection.assured),
                Talk::Udp { .. } | Talk::Icmp { .. } | Talk::Other => (None, entry.keeps_place),
            };
            let name = (one.0, one.1, other.0, other.1, *protocol);
            Tracked { name, state, deadline: Nanos(entry.deadline), assured, keeps_place: entry.keeps_place }
        };
        let mut told: Vec<Tracked> = alive.map(tell).collect();
        told.sort_unstable_by_key(|tracked| tracked.name);
        told
    }

    /// Handles an ICMP error for the host `to`.
    fn error(&mut self, now: u64, to: IpAddr, embedded: Option<Embedded>) -> Judgement {
        let known = embedded.is_some_and(|embedded| {
            let (source, destination) = embedded.endpoints();
            let source = (source.address, source.port);
            let name = name(source, (destination.address, destination.port), embedded.tuple.protocol());
            self.forget_if_dead(&name, now);
            source.0 == to && self.connections.contains_key(&name)
        });
        if known { Judgement::Related } else { Judgement::Invalid { cause: "unrelated-error", known: false } }
    }

    fn forget_if_dead(&mut self, name: &Name, now: u64) {
        if self.connections.get(name).is_some_and(|entry| entry.deadline <= now) {
            self.forget(name);
        }
    }

    fn forget(&mut self, name: &Name) {
        let next = self.next(name.0.0.is_ipv4());
        let entry = self.connections.remove(name).expect("it is there");
        self.places_of(name).freed.push(entry.place);
        if !entry.keeps_place {
            self.pass_on(name, entry.place, next, 1);
        }
    }

    /// Returns the next connection to evict, and its slot.
    fn next(&self, is_v4: bool) -> Option<(Name, usize)> {
        let hand = self.places[usize::from(!is_v4)].hand;
        let movable = self.connections.iter().filter(|(name, entry)| name.0.0.is_ipv4() == is_v4 && !entry.keeps_place);
        let next = movable.min_by_key(|(_, entry)| (entry.place < hand, entry.place));
        next.map(|(name, entry)| (*name, entry.place))
    }

    /// Moves the clock hand after a connection became protected, or `gone` connections were removed: if the hand was there, or if the table
    /// was full and the connection was next.
    fn pass_on(&mut self, name: &Name, place: usize, next: Option<(Name, usize)>, gone: usize) {
        let is_v4 = name.0.0.is_ipv4();
        let remaining = self.connections.keys().filter(|name| name.0.0.is_ipv4() == is_v4).count();
        let places = self.places_of(name);
        let was_next = remaining + gone == places.count && next.is_some_and(|(_, at)| at == place);
        if place == places.hand || was_next {
            places.hand = (place + 1) % places.count;
        }
    }

    /// Gives a packet to a known connection.
    fn give(&mut self, name: &Name, way: usize, headers: &Headers, now: u64, may_open: bool) -> PacketOutcome {
        let next = self.next(name.0.0.is_ipv4());
        let entry = self.connections.get_mut(name).expect("it is there");
        let was_protected = entry.keeps_place;
        let outcome = entry.packet(way, headers, &self.settings, now, may_open);
        let (place, keeps) = (entry.place, entry.keeps_place);
        if keeps && !was_protected {
            self.pass_on(name, place, next, 0);
        }
        outcome
    }

    fn places_of(&mut self, name: &Name) -> &mut Places {
        &mut self.places[usize::from(name.0.0.is_ipv6())]
    }

    fn open(&mut self, name: Name, opener: (IpAddr, u16), talk: Talk, headers: &Headers, now: u64) -> Judgement {
        let is_v4 = opener.0.is_ipv4();
        let capacity = if is_v4 { self.settings.flows } else { self.settings.flows_v6 };
        if self.connections.len() >= capacity {
            let dead = self.connections.iter().filter(|(_, entry)| entry.deadline <= now).map(|(name, _)| *name);
            dead.collect::<Vec<_>>().iter().for_each(|name| self.forget(name));
            let family = || self.connections.iter().filter(|((one, _, _), _)| one.0.is_ipv4() == is_v4);
            if family().count() >= capacity {
                let hand = self.places[usize::from(!is_v4)].hand;
                let movable = family().filter(|(_, entry)| !entry.keeps_place);
                let next = movable.min_by_key(|(_, entry)| (entry.place < hand, entry.place));
                let Some((next, place)) = next.map(|(name, entry)| (*name, entry.place)) else {
                    return Judgement::Full;
                };
                self.places_of(&next).hand = place;
                self.forget(&next);
            }
        }
        let places = self.places_of(&name);
        let place = places.freed.pop().unwrap_or(places.used);
        places.used = places.used.max(place + 1);
        self.connections.insert(name, TrackedConnection { opener, talk, deadline: 0, place, keeps_place: false });
        self.give(&name, 0, headers, now, true);
        Judgement::Passes
    }
}

impl Talk {
    /// Returns the connection that this first packet opens, before it handles the packet.
    fn open(headers: &Headers, settings: &Settings, now: u64) -> Result<Self, &'static str> {
        match headers.transport {
            Transport::Tcp(tcp) => tcp::Connection::open(headers, &tcp, settings).map(Self::Tcp),
            Transport::Udp { .. } => Ok(Self::Udp { since: now, answered: false }),
            Transport::Icmp(icmp) => match queried(headers, icmp) {
                Some(_) => Err("unasked-reply"),
                None => Ok(Self::Icmp { asked: [HashSet::new(), HashSet::new()] }),
            },
            Transport::Sctp { .. } | Transport::None => Ok(Self::Other),
        }
    }
}

/// The outcome of a packet of a connection.
enum PacketOutcome {
    Passes,
    Ends,
    /// It reopens the connection if its sender may; nothing has changed yet.
    Opens,
    Invalid(&'static str),
}

impl TrackedConnection {
    fn packet(
        &mut self,
        way: usize,
        headers: &Headers,
        settings: &Settings,
        now: u64,
        may_open: bool,
    ) -> PacketOutcome {
        let timeouts = &settings.timeouts;
        let idle = match (&mut self.talk, headers.transport) {
            (Talk::Tcp(connection), Transport::Tcp(tcp)) => {
                let outcome = connection.packet(way, headers, &tcp, settings);
                self.keeps_place |= connection.assured;
                match outcome {
                    tcp::Outcome::Passes(Some(idle)) => idle,
                    tcp::Outcome::Passes(None) => return PacketOutcome::Passes,
                    tcp::Outcome::Ends => return PacketOutcome::Ends,
                    tcp::Outcome::Reopens => return PacketOutcome::Opens,
                    tcp::Outcome::Invalid(cause, idle) => {
                        self.deadline = idle.map_or(self.deadline, |idle| after(now, idle));
                        return PacketOutcome::Invalid(cause);
                    }
                }
            }
            (Talk::Udp { since, answered }, Transport::Udp { .. }) => {
                // The first answer doesn't make a stream.
                let is_stream = *answered && now - *since > STREAM_AGE;
                *answered |= way == 1;
                self.keeps_place |= is_stream;
                if is_stream { timeouts.udp_stream } else { timeouts.udp }
            }
            (Talk::Icmp { asked }, Transport::Icmp(icmp)) => {
                match queried(headers, icmp) {
                    Some(query) if asked[1 - way].contains(&query) => {}
                    Some(_) => return PacketOutcome::Invalid("unasked-reply"),
                    None if way == 1 && !may_open => return PacketOutcome::Opens,
                    None => {
                        asked[way].insert(icmp.kind);
                    }
                }
                timeouts.icmp
            }
            (Talk::Other, _) => {
                self.keeps_place |= way == 1;
                timeouts.other
            }
            (talk, transport) => unreachable!("{talk:?} and {transport:?} differ in protocol"),
        };
        self.deadline = after(now, idle);
        PacketOutcome::Passes
    }
}

/// Adds seconds, saturating: captures may claim any time.
fn after(now: u64, secs: u64) -> u64 {
    now.saturating_add(secs * SECOND)
}

fn name(source: (IpAddr, u16), destination: (IpAddr, u16), protocol: u8) -> Name {
    (source.min(destination), source.max(destination), protocol)
}

/// Returns the type of query that a reply answers; `None` for a query.
fn queried(headers: &Headers, icmp: Icmp) -> Option<u8> {
    match (headers.protocol, icmp.kind) {
        (protocol::ICMP, 0) => Some(8),
        (protocol::ICMP, reply @ (14 | 16 | 18)) => Some(reply - 1),
        (protocol::ICMPV6, reply @ (129 | 140)) => Some(reply - 1),
        _ => None,
    }
}
