//! Detects HTTP sessions that another client uses with a stolen cookie: the sidejacking detector of Chimera (Borders, Springer, Burnside:
//! USENIX Security '12; NFork, table 6). Behaviour and choices: `docs/sidejacking.md`.

mod config;
mod segment;
mod session;

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use memory::{Allocator, Distributed, Map, Memory, Vector};
use nf::{
    Context, Description, Fingerprint, FlowList, NetworkFunction, Opened, PacketSet, Reason, Report, Sharing, Sizing,
    Speed, Step, Verdict, counted, grouped,
};
use packet::{Endpoint, Family, FlowKey, Headers, Host, Host6, Nanos, TcpFlags, Transport, Words};

use self::config::Fields;
pub use self::config::{Config, Differs};
use self::segment::Event;
pub use self::segment::Segment;
pub use self::session::Connection;
use self::session::{Session, Totals, User, of_request};
use crate::http::{self, Digest};
use crate::list::Catalogued;
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
/// How long a connection is remembered after the FINs of both sides.
const FIN_TIMEOUT: Nanos = Nanos::from_secs(10);

const SIDEJACKED: Reason = Reason::own(0);

impl Sidejacking {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(Config(config): Config) -> Self {
        Self { config }
    }

    /// Removes expired sessions.
    fn reclaim<M: Memory>(&self, cx: &mut Context<'_, Self, M>) -> Step<(), M> {
        let (shared, now) = (cx.shared, cx.now());
        for _ in 0..RECLAIMED_A_REQUEST {
            let Some(place) = shared.places.expire(&mut cx.tx, now)? else { break };
            let session = shared.sessions.read(&mut cx.tx, place)?;
            shared.by_name.remove(&mut cx.tx, &session.name)?;
        }
        Ok(())
    }

    /// Records the use of a session. Returns true if the client is not its owner; `None` if there is no room for the session.
    fn judge<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        name: Digest,
        server: Endpoint,
        user: User,
    ) -> Step<Option<bool>, M> {
        let (shared, now) = (cx.shared, cx.now());
        let deadline = now + self.config.session_timeout.nanos();
        let new = Session::new(name, (name_of(server), server.port), user, now);
        let place = match shared.by_name.get(&mut cx.tx, &name)? {
            Some(place) => place as usize,
            None => {
                let Some(place) = shared.places.allocate(&mut cx.tx, deadline)? else { return Ok(None) };
                if !shared.by_name.insert(&mut cx.tx, name, place as u32)? {
                    shared.places.free(&mut cx.tx, place)?;
                    return Ok(None);
                }
                shared.sessions.write(&mut cx.tx, place, new)?;
                return Ok(Some(false));
            }
        };
        let known = shared.sessions.read(&mut cx.tx, place)?;
        let is_over = !self.lasts(&known, now);
        let is_foreign = !is_over && known.is_foreign(user, self.config.differs);
        if is_foreign {
            // Only its owner's use extends a session.
            let foreign = known.foreign.saturating_add(1);
            shared.places.refresh(&mut cx.tx, place, self.named_until(now))?;
            shared.sessions.write(&mut cx.tx, place, Session { other: user, foreign, ..known })?;
        } else if is_over || now.since(known.last) >= Nanos::from_secs(self.config.refresh_interval.get()) {
            let is_named = !is_over && known.foreign > 0;
            let deadline = if is_named { self.named_until(now) } else { deadline };
            shared.places.refresh(&mut cx.tx, place, deadline)?;
            let session = if is_over { new } else { Session { last: now, ..known } };
            shared.sessions.write(&mut cx.tx, place, session)?;
        }
        Ok(Some(is_foreign))
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

impl Catalogued for Sidejacking {
    type Config = Config;

    const CRAMPED: &'static str = r#"
block = true
session_timeout = 2
sessions = 2
"#;
    const SMALL: &'static str = r#"
differs = "either"
block = true
shortest = 1
session_timeout = 5
sessions = 64
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for Sidejacking {
    type Meta = Segment;
    type Flow = Connection;
    type Shared<M: Memory> = Sessions<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "sidejacking",
        summary: "detects stolen HTTP sessions: a session cookie of one client in the requests of another (Chimera)",
        state: "whether another client's cookie was sent over the connection",
        sharing: Sharing::Shares("the client that owns each HTTP session"),
        keys: config::KEYS,
        drop_reasons: &["sidejacked"],
        recipes: config::RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: self.config.flows.get() as usize, flows_v6: self.config.flows_v6.get() as usize }
    }

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

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Segment> {
        let Transport::Tcp(tcp) = headers.transport else { return None };
        let tuple = headers.five_tuple()?;
        let has = |flag| tcp.flags.contains(flag);
        let event = if has(TcpFlags::RST) {
            Event::Reset
        } else if has(TcpFlags::SYN) {
            Event::Syn
        } else if let Some(Some((session, agent))) =
            http::request(headers.payload(frame), |request| of_request(&self.config, &request, tuple.destination()))
        {
            Event::Request { session, agent }
        } else if has(TcpFlags::FIN) {
            Event::Fin
        } else {
            Event::Data
        };
        Some(Segment { tuple, event })
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, segment: &Segment) -> Step<Opened<Connection>, M> {
        Ok(if Self::refuses(self, segment) {
            Opened::Refused(Verdict::forward())
        } else {
            Opened::Flow(Connection::default())
        })
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        connection: &mut Connection,
        segment: &Segment,
    ) -> Step<Verdict, M> {
        cx.expire_after(self.config.idle_timeout.nanos());
        match segment.event {
            Event::Data => {}
            // A new connection on the same ports.
            Event::Syn => *connection = Connection::default(),
            Event::Fin => connection.ended[usize::from(segment.tuple.symmetric().1)] = true,
            Event::Reset => cx.close(),
            Event::Request { session, agent } => {
                self.reclaim(cx)?;
                let user = User { address: name_of(segment.tuple.source()), agent };
                let judged = self.judge(cx, session, segment.tuple.destination(), user)?;
                connection.is_foreign |= judged == Some(true);
                cx.shared.totals.update(&mut cx.tx, |totals| {
                    totals.requests += 1;
                    totals.foreign += u64::from(judged == Some(true));
                    totals.unjudged += u64::from(judged.is_none());
                })?;
            }
        }
        if connection.ended == [true; 2] && matches!(segment.event, Event::Data | Event::Fin) {
            cx.expire_after(FIN_TIMEOUT);
        }
        if !connection.is_foreign {
            return Ok(Verdict::forward());
        }
        // Many other connections must not evict this one.
        cx.assure();
        Ok(if self.config.block { Verdict::Drop(SIDEJACKED) } else { Verdict::forward() })
    }

    /// Forwards packets without room for their connection: a full detector doesn't stop the traffic.
    fn orphan<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &Segment) -> Step<Verdict, M> {
        cx.shared.totals.update(&mut cx.tx, |totals| totals.unjudged += 1)?;
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, now, tx) = (cx.shared, cx.now(), &mut cx.tx);
        let Totals { requests, foreign, unjudged } = shared.totals.read(tx, Nanos::NEVER)?;
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
                "sessions used by other clients ({} with a session cookie, {} by other clients, {} without room)",
                counted(requests, "request", "requests"),
                grouped(foreign),
                grouped(unjudged)
            ),
            columns: vec!["server", "client", "other client", "user agent", "its requests"],
            rows: top.into_iter().map(row).collect(),
        }))
    }
}

impl Speed<Self> for Sidejacking {
    const SELECTIVE: bool = true;

    /// A connection is remembered from its first cookie on.
    #[inline]
    fn refuses(_: &Self, segment: &Segment) -> bool {
        !matches!(segment.event, Event::Request { .. })
    }
}

#[cfg(test)]
mod tests;
