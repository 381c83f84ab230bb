//! The state of connections and HTTP sessions, and the session cookies of requests.

use memory::Portion;
use nf::{Fingerprint, Flow};
use packet::{Endpoint, FiveTuple, Host6, Nanos, Words};

use super::config::{Differs, Fields};
use crate::http::messages::Messages;
use crate::http::{Digest, Request};

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its five-tuple, from the opener.
    pub(super) tuple: FiveTuple,
    /// The messages of both sides, by direction. Only those of the client are looked for once it is known.
    pub(super) sides: [Messages; 2],
    /// A message was found: the other side isn't heard any more.
    pub(super) is_known: bool,
}

impl Flow for Connection {}

/// A client of a session: its address and a hash of its user agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub address: Host6,
    pub agent: u32,
}

/// A session, identified by its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub name: Digest,
    /// The server of its first use.
    pub server: Host6,
    pub port: u16,
    /// The client that used it first.
    pub owner: User,
    /// When the owner's use was last noted.
    pub last: Nanos,
    /// The other client that used it last, and the number of requests by others.
    pub other: User,
    pub foreign: u32,
}

/// Totals over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Requests with a session cookie.
    pub requests: u64,
    pub foreign: u64,
    /// Requests without room.
    pub unjudged: u64,
    /// Requests with a head that is too long, or a part of it missing.
    pub unread: u64,
}

packet::words! {
    Session: [10], session => {
        let [[a, b], [c, d], [e, f]] =
            [session.server, session.owner.address, session.other.address].map(|host| host.to_words());
        let agents = u64::from(session.owner.agent) << 32 | u64::from(session.other.agent);
        let rest = u64::from(session.foreign) << 16 | u64::from(session.port);
        [session.name.0, a, b, c, d, e, f, agents, rest, session.last.0]
    }, words => {
        let host = |at: usize| Host6::from_words([words[at], words[at + 1]]);
        Self {
            name: Digest(words[0]),
            server: host(1),
            port: words[8] as u16,
            owner: User { address: host(3), agent: (words[7] >> 32) as u32 },
            last: Nanos(words[9]),
            other: User { address: host(5), agent: words[7] as u32 },
            foreign: (words[8] >> 16) as u32,
        }
    };
    Totals: [4], totals => [totals.requests, totals.foreign, totals.unjudged, totals.unread],
        words => Self { requests: words[0], foreign: words[1], unjudged: words[2], unread: words[3] };
}

impl Portion for Totals {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.foreign += other.foreign;
        self.unjudged += other.unjudged;
        self.unread += other.unread;
    }
}

impl Session {
    /// An empty session.
    pub(super) fn none() -> Self {
        let nobody = User { address: Host6::from_words([0; 2]), agent: 0 };
        let (name, server) = (Digest(0), nobody.address);
        Self { name, server, port: 0, owner: nobody, last: Nanos(0), other: nobody, foreign: 0 }
    }

    /// A session that begins with this use.
    pub(super) fn new(name: Digest, (server, port): (Host6, u16), owner: User, now: Nanos) -> Self {
        Self { name, server, port, owner, last: now, ..Self::none() }
    }

    /// Returns true if the user is not the owner.
    pub(super) fn is_foreign(&self, user: User, differs: Differs) -> bool {
        let [address, agent] = [self.owner.address != user.address, self.owner.agent != user.agent];
        match differs {
            Differs::Address => address,
            Differs::Agent => agent,
            Differs::Either => address || agent,
            Differs::Both => address && agent,
        }
    }
}

/// Returns the session of a request's cookie and the hash of its user agent; `None` without a session cookie.
pub(super) fn of_request(config: &Fields, request: &Request<'_>, server: Endpoint) -> Option<(Digest, u32)> {
    let cookies = request.fields.all("cookie").flat_map(|list| list.split(|byte| *byte == b';'));
    let pairs = cookies.filter_map(|cookie| {
        let at = cookie.iter().position(|byte| *byte == b'=')?;
        Some((cookie[..at].trim_ascii(), cookie[at + 1..].trim_ascii()))
    });
    let is_session = |(name, value): &(&[u8], &[u8])| {
        value.len() >= config.shortest.get() as usize && config.cookies.iter().any(|known| is_named(name, known))
    };
    let (name, value) = pairs.into_iter().find(is_session)?;
    let mut agent = Fingerprint::default();
    request.fields.first("user-agent").unwrap_or_default().iter().for_each(|byte| agent.add(u64::from(*byte)));
    let digest = match request.resource() {
        Some((host, _)) => Digest::of(host, &[name, value]),
        // Without a host, the destination counts.
        None => {
            let port = server.port.to_be_bytes();
            match server.address {
                core::net::IpAddr::V4(address) => Digest::of("", &[&address.octets(), &port, name, value]),
                core::net::IpAddr::V6(address) => Digest::of("", &[&address.octets(), &port, name, value]),
            }
        }
    };
    Some((digest, (agent.value() >> 32) as u32))
}

fn is_named(name: &[u8], known: &str) -> bool {
    match known.strip_suffix('*') {
        Some(beginning) => {
            name.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
        }
        None => name.eq_ignore_ascii_case(known.as_bytes()),
    }
}
