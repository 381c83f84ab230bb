//! Detects HTTP sessions that another client uses with a stolen cookie: the sidejacking detector of Chimera (Borders, Springer, Burnside:
//! USENIX Security '12; NFork, table 6). Behaviour and choices: `docs/sidejacking.md`.

mod config;
mod session;

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use memory::{Allocator, Distributed, Map, Memory, Vector};
use nf::{Description, Fingerprint, Report, Sharing, Step, Verdict, counted, grouped};
use packet::{Endpoint, Family, FiveTuple, FlowKey, Host, Host6, Nanos, Words};

use self::config::Fields;
pub use self::config::{Config, Differs};
pub use self::session::Connection;
use self::session::{Session, Totals, User, of_request};
use crate::http::messages::{Body, Head, Kind, Lost, Messages};
use crate::http::{self, Digest, Request};
use crate::list::Catalogued;
use crate::streams::{self, Access, Direction, HELD_MAX, Hearing, Said, SharedStreamFunction, Streams, Tallies};
use crate::top::heaviest;

/// The `sidejacking` function.
#[derive(Clone, Debug)]
pub struct Sidejacking {
    config: Fields,
}

/// The known sessions.
pub struct Sessions<M: Memory> {
    by_name: M::Map<Digest, u32>,
    /// Allocator of `sessions`; ages them.
    places: M::Allocator,
    sessions: M::Vector<Session>,
    totals: M::Distributed<Totals>,
}

/// How many expired sessions each request reclaims. A request adds one at most.
const RECLAIMED_A_REQUEST: usize = 2;

/// The number of the drop reason.
const SIDEJACKED: u8 = 0;

impl Sidejacking {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(Config(config): Config) -> Self {
        Self { config }
    }

    /// Removes expired sessions.
    fn reclaim<M: Memory>(&self, now: Nanos, Access { shared, tx }: &mut Access<'_, '_, Self, M>) -> Step<(), M> {
        for _ in 0..RECLAIMED_A_REQUEST {
            let Some(place) = shared.places.expire(tx, now)? else { break };
            let session = shared.sessions.read(tx, place)?;
            shared.by_name.remove(tx, &session.name)?;
        }
        Ok(())
    }

    /// Records the use of a session. Returns true if the client is not its owner; `None` if there is no room for the session.
    fn judge<M: Memory>(
        &self,
        now: Nanos,
        Access { shared, tx }: &mut Access<'_, '_, Self, M>,
        name: Digest,
        server: Endpoint,
        user: User,
    ) -> Step<Option<bool>, M> {
        let deadline = now + self.config.session_timeout.nanos();
        let new = Session::new(name, (name_of(server), server.port), user, now);
        let place = match shared.by_name.get(tx, &name)? {
            Some(place) => place as usize,
            None => {
                let Some(place) = shared.places.allocate(tx, deadline)? else { return Ok(None) };
                if !shared.by_name.insert(tx, name, place as u32)? {
                    shared.places.free(tx, place)?;
                    return Ok(None);
                }
                shared.sessions.write(tx, place, new)?;
                return Ok(Some(false));
            }
        };
        let known = shared.sessions.read(tx, place)?;
        let is_over = !self.lasts(&known, now);
        let is_foreign = !is_over && known.is_foreign(user, self.config.differs);
        if is_foreign {
            // Only its owner's use extends a session.
            let foreign = known.foreign.saturating_add(1);
            shared.places.refresh(tx, place, self.named_until(now))?;
            shared.sessions.write(tx, place, Session { other: user, foreign, ..known })?;
        } else if is_over || now.since(known.last) >= Nanos::from_secs(self.config.refresh_interval.get()) {
            let is_named = !is_over && known.foreign > 0;
            let deadline = if is_named { self.named_until(now) } else { deadline };
            shared.places.refresh(tx, place, deadline)?;
            let session = if is_over { new } else { Session { last: now, ..known } };
            shared.sessions.write(tx, place, session)?;
        }
        Ok(Some(is_foreign))
    }

    /// Handles the head of a request that goes this way. Returns what is behind it.
    fn request<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        access: &mut Access<'_, '_, Self, M>,
        tuple: &FiveTuple,
        head: &[u8],
    ) -> Step<Option<Body>, M> {
        let read = |request: Request<'_>| (of_request(&self.config, &request, tuple.destination()), request.body());
        let Some((used, body)) = http::request(head, read) else { return Ok(None) };
        let Some((session, agent)) = used else { return Ok(Some(body)) };
        self.reclaim(cx.now(), access)?;
        let user = User { address: name_of(tuple.source()), agent };
        let judged = self.judge(cx.now(), access, session, tuple.destination(), user)?;
        access.shared.totals.update(access.tx, |totals| {
            totals.requests += 1;
            totals.foreign += u64::from(judged == Some(true));
            totals.unjudged += u64::from(judged.is_none());
        })?;
        if judged == Some(true) && self.config.block {
            cx.drop(SIDEJACKED);
            return Ok(Some(Body::Rest));
        }
        Ok(Some(body))
    }

    /// Reads what a side says next.
    fn data<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        access: &mut Access<'_, '_, Self, M>,
        connection: &mut Connection,
        (from, bytes): (Direction, &[u8]),
    ) -> Step<(), M> {
        let (tuple, other) = match from {
            Direction::Original => (connection.tuple, Direction::Reply),
            Direction::Reply => (connection.tuple.reversed(), Direction::Original),
        };
        let mut messages = connection.sides[from as usize];
        let (held, kind) = (cx.held(), if connection.is_known { Kind::Requests } else { Kind::Either });
        let count = messages.read(bytes, held, kind, HELD_MAX, |head| {
            let body = match head {
                Head::Request(head) => self.request(cx, access, &tuple, head)?,
                // The client is the other side.
                Head::Response(_) => {
                    connection.is_known = true;
                    cx.enough(from);
                    return Ok((Body::Rest, Kind::Requests));
                }
                Head::TooLong => {
                    access.shared.totals.update(access.tx, |totals| totals.unread += 1)?;
                    Some(Body::Rest)
                }
            };
            if body.is_some() && !connection.is_known {
                connection.is_known = true;
                cx.enough(other);
            }
            Ok((body.unwrap_or(Body::Length(0)), if connection.is_known { Kind::Requests } else { Kind::Either }))
        })?;
        connection.sides[from as usize] = messages;
        cx.hold(count);
        if messages.are_over() {
            cx.enough(from);
        }
        Ok(())
    }

    /// Deadline of a session that others use: it stays in the report until then.
    fn named_until(&self, now: Nanos) -> Nanos {
        now + self.config.remember.nanos().max(self.config.session_timeout.nanos())
    }

    /// Returns true if the session has not expired. Expired ones may exist for a while.
    fn lasts(&self, session: &Session, now: Nanos) -> bool {
        session.last + self.config.session_timeout.nanos() > now
    }
}

/// Returns an address as a key for both families.
fn name_of(endpoint: Endpoint) -> Host6 {
    match Host::from(endpoint.address).family() {
        Family::V4(host) => host.mapped(),
        Family::V6(host) => host,
    }
}

impl Catalogued for Streams<Sidejacking> {
    type Config = Config;

    const CRAMPED: &'static str = r#"
block = true
session_timeout = 2
sessions = 2
streams = { flows = 64, flows_v6 = 64 }
"#;
    const SMALL: &'static str = r#"
differs = "either"
block = true
shortest = 1
session_timeout = 5
sessions = 64
streams = { flows = 1000, flows_v6 = 1000 }
"#;

    fn from_config(config: Config) -> Self {
        let streams = config.0.streams;
        Self::new(Sidejacking::new(config), &streams)
    }
}

impl SharedStreamFunction for Sidejacking {
    type Flow = Connection;
    type Shared<M: Memory> = Sessions<M>;

    const HOLDS: usize = HELD_MAX;
    const HEARS_UDP: bool = false;

    const DESCRIPTION: Description = Description {
        name: "sidejacking",
        summary: "detects stolen HTTP sessions: a session cookie of one client in the requests of another (Chimera)",
        state: "the client's side, and where it is in its requests",
        sharing: Sharing::StreamsShare("the client that owns each HTTP session"),
        keys: &config::KEYS,
        drop_reasons: &["sidejacked"],
        recipes: config::RECIPES,
    };

    fn shared<M: Memory>(&self, memory: &M) -> Sessions<M> {
        let sessions = self.config.sessions.get() as usize;
        Sessions {
            by_name: memory.map(sessions),
            places: memory.allocator(sessions),
            sessions: memory.vector(sessions, Session::none()),
            totals: memory.distributed(Totals::default(), Nanos(0)),
        }
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Sessions<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        // A sum, because a session's index has no visible effect.
        let mut sum = 0_u64;
        for place in 0..shared.places.capacity() {
            if let Some(deadline) = shared.places.deadline(tx, place)? {
                let mut digest = Fingerprint::default();
                let words = shared.sessions.read(tx, place)?.to_words();
                words.into_iter().chain([deadline.0]).for_each(|word| digest.add(word));
                sum = sum.wrapping_add(digest.value());
            }
        }
        let totals = shared.totals.read(tx, Nanos::NEVER)?.to_words();
        totals.into_iter().chain([sum]).for_each(|word| fingerprint.add(word));
        Ok(())
    }

    fn open(&self, session: &streams::Session) -> Connection {
        Connection { tuple: session.tuple, sides: [Messages::default(); 2], is_known: false }
    }

    fn hear<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        access: &mut Access<'_, '_, Self, M>,
        connection: &mut Connection,
        said: Said<'_>,
    ) -> Step<(), M> {
        let is_incomplete = match said {
            Said::Data(from, bytes) => return self.data(cx, access, connection, (from, bytes)),
            Said::Gap(from, gap) => connection.sides[from as usize].gap(gap.len) == Lost::Head,
            Said::End(from) => connection.sides[from as usize].is_in_head(),
            Said::Deviation(..) | Said::Datagram(..) => false,
        };
        if is_incomplete {
            access.shared.totals.update(access.tx, |totals| totals.unread += 1)?;
        }
        Ok(())
    }

    /// Forwards packets without room for their connection: a full detector doesn't stop the traffic.
    fn orphan<M: Memory>(&self, _: &mut Access<'_, '_, Self, M>) -> Step<Verdict, M> {
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(
        &self,
        now: Nanos,
        Access { shared, tx }: &mut Access<'_, '_, Self, M>,
        _: &mut dyn Iterator<Item = (FiveTuple, Connection)>,
        _: &Tallies<'_>,
    ) -> Step<Option<Report>, M> {
        let Totals { requests, foreign, unjudged, unread } = shared.totals.read(tx, Nanos::NEVER)?;
        let mut sessions = Vec::new();
        for place in 0..shared.places.capacity() {
            if let Some(deadline) = shared.places.deadline(tx, place)? {
                let session = shared.sessions.read(tx, place)?;
                let is_told = self.lasts(&session, now) || (session.foreign > 0 && deadline > now);
                sessions.extend(is_told.then_some((session.name, session)));
            }
        }
        let address = |host: Host6| Host::from_v6(host).address().to_canonical();
        let row = |(_, session): (Digest, Session)| {
            let Session { server, port, owner, other, foreign, .. } = session;
            let agent = if owner.agent == other.agent { "the same" } else { "another" };
            let [owner, other] = [owner.address, other.address].map(|host| address(host).to_string());
            let server = Endpoint::new(address(server), port).to_string();
            vec![server.into(), owner.into(), other.into(), agent.into(), foreign.into()]
        };
        let top = heaviest(&mut sessions.into_iter(), self.config.top.get() as usize, |session| session.foreign.into());
        Ok(Some(Report {
            title: format!(
                "sessions used by other clients ({} with a session cookie, {} by other clients, {} without room; {} unread)",
                counted(requests, "request", "requests"),
                grouped(foreign),
                grouped(unjudged),
                counted(unread, "head", "heads")
            ),
            columns: vec!["server", "client", "other client", "user agent", "its requests"],
            rows: top.into_iter().map(row).collect(),
        }))
    }
}

#[cfg(test)]
mod tests;
