//! Finds HTTP requests that a shared cache could answer (RFC 9111), with the index of such a cache and without bodies (the web cache of
//! NFork, table 6). Behaviour and choices: `docs/web-cache.md`.

mod config;
mod connection;
mod date;
mod index;
mod message;

use alloc::string::String;
use alloc::vec;

use memory::{Distributed, Memory};
use nf::{Description, Fingerprint, PortId, Report, Sharing, Step};
use packet::{FiveTuple, Nanos};

use crate::http::Answered;
use crate::http::messages::{Body, Head, Lost};
use crate::list::Catalogued;
use crate::streams::{Access, Direction, HELD_MAX, Hearing, Said, Session, SharedStreamFunction, Streams, Tallies};

pub use self::config::Config;
pub use self::connection::Connection;
pub use self::index::Index;
use self::index::{Known, Totals};
use self::message::{Ask, CacheAction, Keep, Reply, Uncacheable};

/// The `web-cache` function.
#[derive(Clone, Debug)]
pub struct WebCache {
    store_port: PortId,
    responses: usize,
    longest_secs: u32,
}

impl WebCache {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            store_port: PortId(config.store_port.get() as u16),
            responses: config.responses.get() as usize,
            longest_secs: config.longest.secs(),
        }
    }

    /// Handles the head of a request: looks it up, counts it, and sends its packet to the store on a hit.
    fn ask<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        Access { shared: index, tx }: &mut Access<'_, '_, Self, M>,
        ask: &Ask,
    ) -> Step<(), M> {
        index.reclaim(tx, cx.now())?;
        let found = match ask.what {
            CacheAction::LookUp => index.find(tx, ask.name, cx.now())?,
            CacheAction::Reload | CacheAction::Authorized | CacheAction::Unsafe | CacheAction::Bypass(_) => None,
        };
        if found.is_some() {
            cx.forward_by(self.store_port);
        }
        index.totals.update(tx, |totals| match (ask.what, &found) {
            (CacheAction::LookUp, Some(known)) => {
                totals.hits += 1;
                totals.bytes_saved = totals.bytes_saved.wrapping_add(known.length);
            }
            (CacheAction::LookUp | CacheAction::Reload, _) => totals.misses += 1,
            (CacheAction::Authorized, _) => count(totals, Uncacheable::Authorization),
            (CacheAction::Unsafe, _) => count(totals, Uncacheable::Method),
            (CacheAction::Bypass(why), _) => count(totals, why),
        })
    }

    /// Handles a response to this request: indexes it, or counts why not.
    fn reply<M: Memory>(
        &self,
        now: Nanos,
        Access { shared: index, tx }: &mut Access<'_, '_, Self, M>,
        ask: Option<Ask>,
        reply: &Reply,
    ) -> Step<(), M> {
        let Some(Ask { name, what, .. }) = ask else {
            return index.totals.update(tx, |totals| count(totals, Uncacheable::Unmatched));
        };
        match (what, reply.keep) {
            // These have been counted with their requests.
            (CacheAction::Bypass(_), _) => Ok(()),
            (CacheAction::Unsafe, _) if reply.succeeds => index.invalidate(tx, name),
            (CacheAction::Unsafe, _) => Ok(()),
            (CacheAction::Authorized, _) if !reply.is_public => Ok(()),
            (CacheAction::Authorized, Keep::Not(_)) => Ok(()),
            (CacheAction::LookUp | CacheAction::Reload | CacheAction::Authorized, Keep::For(secs)) => {
                let lifetime = Nanos::from_secs(u64::from(secs.min(self.longest_secs)));
                index.keep(tx, Known { name, stale_at: now + lifetime, length: reply.length })
            }
            (CacheAction::LookUp | CacheAction::Reload, Keep::Not(why)) => {
                index.totals.update(tx, |totals| count(totals, why))
            }
        }
    }

    /// Handles a head. Returns what is behind it.
    fn head<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        access: &mut Access<'_, '_, Self, M>,
        connection: &mut Connection,
        (from, head): (Direction, Head<'_>),
    ) -> Step<Body, M> {
        match head {
            Head::Request(head) => {
                let Some((ask, body)) = message::ask(head) else { return Ok(Body::Length(0)) };
                connection.note(from, true);
                self.ask(cx, access, &ask)?;
                connection.asks(ask);
                connection.is_lost |= ask.what == CacheAction::Bypass(Uncacheable::Invalid);
                Ok(body)
            }
            Head::Response(head) => {
                let ask = connection.oldest();
                let answered = ask.map_or(Answered::Usually, |ask| ask.answered);
                let Some((reply, body)) = message::reply(head, answered) else { return Ok(Body::Length(0)) };
                connection.note(from, false);
                if let Some(reply) = reply {
                    self.reply(cx.now(), access, ask, &reply)?;
                    connection.answered();
                }
                Ok(body)
            }
            Head::TooLong => {
                connection.is_lost = true;
                access.shared.totals.update(access.tx, |totals| count(totals, Uncacheable::Long))?;
                Ok(Body::Rest)
            }
        }
    }

    /// Reads what a side says next.
    fn data<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        access: &mut Access<'_, '_, Self, M>,
        connection: &mut Connection,
        (from, bytes): (Direction, &[u8]),
    ) -> Step<(), M> {
        let mut messages = connection.sides[from as usize];
        let (held, kind) = (cx.held(), connection.kind(from));
        let found = |head: Head<'_>| {
            let body = self.head(cx, access, connection, (from, head))?;
            Ok((body, connection.kind(from)))
        };
        let count = messages.read(bytes, held, kind, HELD_MAX, found)?;
        connection.sides[from as usize] = messages;
        cx.hold(count);
        if messages.are_over() {
            cx.enough(from);
        }
        Ok(())
    }
}

fn count(totals: &mut Totals, why: Uncacheable) {
    totals.uncacheable[why as usize] += 1;
}

impl Catalogued for Streams<WebCache> {
    type Config = Config;

    const CRAMPED: &'static str = r#"
store_port = 1
responses = 2
streams = { flows = 64, flows_v6 = 64 }
"#;
    const SMALL: &'static str = r#"
store_port = 1
responses = 16
streams = { flows = 1000, flows_v6 = 1000 }
"#;

    fn from_config(config: Config) -> Self {
        Self::new(WebCache::new(&config), &config.streams)
    }
}

impl SharedStreamFunction for WebCache {
    type Flow = Connection;
    type Shared<M: Memory> = Index<M>;

    const HOLDS: usize = HELD_MAX;
    const HEARS_UDP: bool = false;

    const DESCRIPTION: Description = Description {
        name: "web-cache",
        summary: "finds HTTP requests that a cache could answer (RFC 9111), counts them, and sends them to a store's port",
        state: "the messages of both sides, and the requests that wait for their responses",
        sharing: Sharing::StreamsShare("the index of responses"),
        keys: &config::KEYS,
        drop_reasons: &[],
        recipes: config::RECIPES,
    };

    fn shared<M: Memory>(&self, memory: &M) -> Index<M> {
        Index::new(memory, self.responses)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Index<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    fn open(&self, _: &Session) -> Connection {
        Connection::default()
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
            Said::Gap(from, gap) => {
                let lost = connection.sides[from as usize].gap(gap.len);
                connection.is_lost |= lost != Lost::Body;
                lost == Lost::Head
            }
            Said::End(from) => connection.sides[from as usize].is_in_head(),
            Said::Deviation(..) | Said::Datagram(..) => false,
        };
        if is_incomplete {
            access.shared.totals.update(access.tx, |totals| count(totals, Uncacheable::Incomplete))?;
        }
        Ok(())
    }

    fn report<M: Memory>(
        &self,
        _: Nanos,
        Access { shared, tx }: &mut Access<'_, '_, Self, M>,
        _: &mut dyn Iterator<Item = (FiveTuple, Connection)>,
        _: &Tallies<'_>,
    ) -> Step<Option<Report>, M> {
        let totals = shared.totals.read(tx, Nanos::NEVER)?;
        let row = |(what, count): (&str, u64)| vec![what.into(), count.into()];
        Ok(Some(Report {
            title: String::from("requests that a cache could answer, and exchanges that can't be cached, by reason"),
            columns: vec!["what", "count"],
            rows: totals.rows().into_iter().map(row).collect(),
        }))
    }
}

#[cfg(test)]
mod tests;
