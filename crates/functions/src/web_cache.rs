//! Finds HTTP requests that a shared cache could answer (RFC 9111), with the index of such a cache and without bodies (the web cache of
//! NFork, table 6). Behaviour and choices: `docs/web-cache.md`.

mod config;
mod connection;
mod date;
mod index;
mod message;
mod segment;

use alloc::string::String;
use alloc::vec;

use memory::{Distributed, Memory};
use nf::{
    Context, Description, Fingerprint, FlowList, NetworkFunction, Opened, PacketSet, PortId, Report, Sharing, Sizing,
    Speed, Step, Verdict,
};
use packet::{Headers, Nanos, TcpFlags, Transport};

use crate::list::Catalogued;

pub use self::config::Config;
pub use self::connection::Connection;
pub use self::index::Index;
use self::index::{Known, Totals};
use self::message::{Ask, CacheAction, Keep, Reply, Uncacheable};
use self::segment::Event;
pub use self::segment::Segment;

/// The `web-cache` function.
#[derive(Clone, Debug)]
pub struct WebCache {
    config: Config,
}

/// How long a connection is remembered after the FINs of both sides.
const FIN_TIMEOUT: Nanos = Nanos::from_secs(10);

impl WebCache {
    /// Creates the function from its configuration.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    /// Shortens the deadline of a connection that both sides have ended.
    fn linger<M: Memory>(&self, cx: &mut Context<'_, Self, M>, connection: &Connection) {
        if connection.ended == [true; 2] {
            cx.expire_after(FIN_TIMEOUT);
        }
    }

    /// Handles a request: counts it if it is new, and sends it to the store on a hit.
    fn ask<M: Memory>(&self, cx: &mut Context<'_, Self, M>, ask: &Ask, is_new: bool) -> Step<Verdict, M> {
        let (index, now) = (cx.shared, cx.now());
        let found = match ask.what {
            CacheAction::LookUp => index.find(&mut cx.tx, ask.name, now)?,
            CacheAction::Reload | CacheAction::Authorized | CacheAction::Unsafe | CacheAction::Bypass(_) => None,
        };
        if is_new {
            index.totals.update(&mut cx.tx, |totals| match (ask.what, &found) {
                (CacheAction::LookUp, Some(known)) => {
                    totals.hits += 1;
                    totals.bytes_saved = totals.bytes_saved.wrapping_add(known.length);
                }
                (CacheAction::LookUp | CacheAction::Reload, _) => totals.misses += 1,
                (CacheAction::Authorized, _) => count(totals, Uncacheable::Authorization),
                (CacheAction::Unsafe, _) => count(totals, Uncacheable::Method),
                (CacheAction::Bypass(why), _) => count(totals, why),
            })?;
        }
        Ok(match found {
            Some(_) => Verdict::Forward(PortId(self.config.store_port.get() as u16)),
            None => Verdict::forward(),
        })
    }

    /// Handles a response to this request: indexes it, or counts why not.
    fn reply<M: Memory>(&self, cx: &mut Context<'_, Self, M>, ask: Option<Ask>, reply: &Reply) -> Step<(), M> {
        let (index, now) = (cx.shared, cx.now());
        let Some(Ask { name, what }) = ask else {
            return index.totals.update(&mut cx.tx, |totals| count(totals, Uncacheable::Unmatched));
        };
        match (what, reply.keep) {
            // These have been counted with their requests.
            (CacheAction::Bypass(_), _) => Ok(()),
            (CacheAction::Unsafe, _) if reply.succeeds => index.invalidate(&mut cx.tx, name),
            (CacheAction::Unsafe, _) => Ok(()),
            (CacheAction::Authorized, _) if !reply.is_public => Ok(()),
            (CacheAction::Authorized, Keep::Not(_)) => Ok(()),
            (CacheAction::LookUp | CacheAction::Reload | CacheAction::Authorized, Keep::For(secs)) => {
                let lifetime = Nanos::from_secs(u64::from(secs.min(self.config.longest.secs())));
                index.keep(&mut cx.tx, Known { name, stale_at: now + lifetime, length: reply.length })
            }
            (CacheAction::LookUp | CacheAction::Reload, Keep::Not(why)) => {
                index.totals.update(&mut cx.tx, |totals| count(totals, why))
            }
        }
    }
}

fn count(totals: &mut Totals, why: Uncacheable) {
    totals.uncacheable[why as usize] += 1;
}

impl Catalogued for WebCache {
    type Config = Config;

    const CRAMPED: &'static str = r#"
store_port = 1
responses = 2
idle_timeout = 2
"#;
    const SMALL: &'static str = r#"
store_port = 1
responses = 16
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for WebCache {
    type Meta = Segment;
    type Flow = Connection;
    type Shared<M: Memory> = Index<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "web-cache",
        summary: "finds HTTP requests that a cache could answer (RFC 9111), counts them, and sends them to a store's port",
        state: "the requests that wait for their responses",
        sharing: Sharing::Shares("the index of responses"),
        keys: config::KEYS,
        drop_reasons: &[],
        recipes: config::RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: self.config.flows.get() as usize, flows_v6: self.config.flows_v6.get() as usize }
    }

    fn shared<M: Memory>(&self, memory: &M) -> Index<M> {
        Index::new(memory, self.config.responses.get() as usize)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Index<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Segment> {
        let Transport::Tcp(tcp) = headers.transport else { return None };
        let (tuple, payload) = (headers.five_tuple()?, headers.payload(frame));
        let has = |flag| tcp.flags.contains(flag);
        let event = if has(TcpFlags::RST) {
            Event::Reset
        } else if has(TcpFlags::SYN) {
            Event::Syn
        } else if let Some(ask) = message::ask(payload) {
            Event::Ask(ask, tcp.seq)
        } else if let Some(reply) = message::reply(payload) {
            Event::Reply(reply, tcp.seq)
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
        let is_first = segment.tuple.symmetric().1;
        match &segment.event {
            Event::Data => self.linger(cx, connection),
            // A new connection on the same ports.
            Event::Syn => *connection = Connection::default(),
            Event::Fin => {
                connection.ended[usize::from(is_first)] = true;
                self.linger(cx, connection);
            }
            Event::Reset => cx.close(),
            Event::Ask(ask, seq) => {
                if connection.is_client(is_first) {
                    let now = cx.now();
                    cx.shared.reclaim(&mut cx.tx, now)?;
                    let is_new = connection.asks(*ask, *seq);
                    return self.ask(cx, ask, is_new);
                }
            }
            Event::Reply(reply, seq) => {
                if connection.is_server(is_first)
                    && let Some(ask) = connection.answers(*seq)
                {
                    self.reply(cx, ask, reply)?;
                    // A connection that was answered is not part of a flood.
                    cx.assure();
                }
            }
        }
        Ok(Verdict::forward())
    }

    /// Forwards packets without room for their connection.
    fn orphan<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Segment) -> Step<Verdict, M> {
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (shared, tx) = (cx.shared, &mut cx.tx);
        let totals = shared.totals.read(tx, Nanos::NEVER)?;
        let row = |(what, count): (&str, u64)| vec![what.into(), count.into()];
        Ok(Some(Report {
            title: String::from("requests that a cache could answer, and exchanges that can't be cached, by reason"),
            columns: vec!["what", "count"],
            rows: totals.rows().into_iter().map(row).collect(),
        }))
    }
}

impl Speed<Self> for WebCache {
    const SELECTIVE: bool = true;

    /// A connection is remembered from its first request on.
    #[inline]
    fn refuses(_: &Self, segment: &Segment) -> bool {
        !matches!(segment.event, Event::Ask(..))
    }
}

#[cfg(test)]
mod tests;
