//! The model of `web-cache`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use nf::{PortId, Verdict};
use packet::{Headers, Nanos, Seq, TcpFlags, Transport};

use super::{Fate, Model};

/// Stores the requests of every connection, and each response that may be stored, and never forgets one.
#[derive(Clone, Debug)]
pub struct WebCacheModel {
    store_port: u16,
    longest_secs: u64,
    idle_secs: u64,
    /// Time at which each response becomes stale, and its length.
    responses: HashMap<(String, String), (u64, u64)>,
    connections: HashMap<[(IpAddr, u16); 2], Connection>,
    hits: u64,
    misses: u64,
    bytes_saved: u64,
}

#[derive(Clone, Debug)]
struct Connection {
    end: u64,
    /// The sides that have sent a FIN.
    ended: HashSet<(IpAddr, u16)>,
    client: Option<(IpAddr, u16)>,
    waiting: VecDeque<Ask>,
    is_lost: bool,
    asked: Option<u32>,
    answered: Option<u32>,
}

#[derive(Clone, Debug)]
struct Ask {
    resource: (String, String),
    what: CacheAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheAction {
    LookUp,
    Reload,
    Authorized,
    Unsafe,
    Bypass,
    Invalid,
}

/// A message: the words of its first line, and its fields.
struct Message {
    first: Vec<String>,
    fields: Vec<(String, String)>,
    is_whole: bool,
    /// Each line after the first is a field.
    is_legible: bool,
}

impl Connection {
    fn new(end: u64) -> Self {
        let ended = HashSet::new();
        Self { end, ended, client: None, waiting: VecDeque::new(), is_lost: false, asked: None, answered: None }
    }
}

impl WebCacheModel {
    /// Creates a model with these parameters, as in the configuration file, with unlimited room.
    #[must_use]
    pub fn new(store_port: u16, longest_secs: u64, idle_secs: u64) -> Self {
        let (responses, connections) = (HashMap::new(), HashMap::new());
        Self { store_port, longest_secs, idle_secs, responses, connections, hits: 0, misses: 0, bytes_saved: 0 }
    }

    /// Returns hits, misses and bytes saved.
    #[must_use]
    pub const fn counts(&self) -> [u64; 3] {
        [self.hits, self.misses, self.bytes_saved]
    }

    /// Returns the verdict for a packet, including the egress port.
    ///
    /// # Panics
    /// Never: the connection was inserted before.
    pub fn verdict(&mut self, now: Nanos, headers: &Headers, payload: &[u8]) -> Verdict {
        let Transport::Tcp(tcp) = headers.transport else { return Verdict::FORWARD };
        let Some((src, dst)) = headers.addresses() else { return Verdict::FORWARD };
        let (from, to) = ((src, tcp.src_port), (dst, tcp.dst_port));
        let mut ends = [from, to];
        ends.sort_unstable();
        if self.connections.get(&ends).is_some_and(|connection| connection.end <= now.0) {
            self.connections.remove(&ends);
        }
        let [reset, syn, fin] = [TcpFlags::RST, TcpFlags::SYN, TcpFlags::FIN].map(|flag| tcp.flags.contains(flag));
        let message = if reset || syn { None } else { Message::read(payload) };
        let asks = message.as_ref().and_then(Message::ask);
        let says = message.filter(|message| asks.is_none() && message.is_final_response());
        let idle = now.0 + self.idle_secs * 1_000_000_000;
        if asks.is_some() {
            self.connections.entry(ends).or_insert(Connection::new(idle));
        }
        if reset {
            self.connections.remove(&ends);
            return Verdict::FORWARD;
        }
        let Some(connection) = self.connections.get_mut(&ends) else { return Verdict::FORWARD };
        let is_message = asks.is_some() || says.is_some();
        if fin && !is_message && !syn {
            connection.ended.insert(from);
        }
        let is_over = connection.ended.len() == 2 && !is_message && !syn;
        connection.end = if is_over { now.0 + 10_000_000_000 } else { idle };
        if syn {
            *connection = Connection::new(idle);
        }
        let is_later = |last: Option<u32>| last.is_none_or(|last| (1..1 << 31).contains(&tcp.seq.wrapping_sub(last)));
        if let Some(ask) = asks {
            if *connection.client.get_or_insert(from) != from {
                return Verdict::FORWARD;
            }
            let is_new = is_later(connection.asked);
            if is_new {
                connection.asked = Some(tcp.seq);
                connection.is_lost |= connection.waiting.len() == 4 || ask.what == CacheAction::Invalid;
                if connection.waiting.len() < 4 {
                    connection.waiting.push_back(ask.clone());
                }
            }
            return self.look_up(now.0, &ask, is_new);
        }
        if let Some(says) = says
            && connection.client == Some(to)
            && is_later(connection.answered)
        {
            connection.answered = Some(tcp.seq);
            let ask = connection.waiting.pop_front();
            if let Some(ask) = ask.filter(|_| !connection.is_lost) {
                self.keep(now.0, ask, &says);
            }
        }
        Verdict::FORWARD
    }

    fn look_up(&mut self, now: u64, ask: &Ask, is_new: bool) -> Verdict {
        let known =
            self.responses.get(&ask.resource).filter(|(stale, _)| ask.what == CacheAction::LookUp && *stale > now);
        if is_new {
            self.hits += u64::from(known.is_some());
            self.misses += u64::from(known.is_none() && matches!(ask.what, CacheAction::LookUp | CacheAction::Reload));
            self.bytes_saved += known.map_or(0, |(_, length)| *length);
        }
        known.map_or(Verdict::FORWARD, |_| Verdict::Forward(PortId(self.store_port)))
    }

    fn keep(&mut self, now: u64, ask: Ask, says: &Message) {
        let (is_public, lifetime) = says.lifetime();
        match ask.what {
            CacheAction::Unsafe if ("200".."400").contains(&says.first[1].as_str()) => {
                self.responses.remove(&ask.resource);
            }
            CacheAction::LookUp | CacheAction::Reload => {}
            CacheAction::Authorized if is_public => {}
            CacheAction::Authorized | CacheAction::Unsafe | CacheAction::Bypass | CacheAction::Invalid => return,
        }
        if let Some(secs) = lifetime.filter(|secs| *secs > 0 && ask.what != CacheAction::Unsafe) {
            let length = says.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            self.responses.insert(ask.resource, (now + secs.min(self.longest_secs) * 1_000_000_000, length));
        }
    }
}

impl Message {
    fn read(payload: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(payload);
        let end = text.find("\r\n\r\n");
        let head = &text[..end.or_else(|| text.rfind("\r\n"))?];
        let mut lines = head.split("\r\n");
        let first: Vec<String> = lines.next()?.split(' ').map(String::from).collect();
        let field = |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().into()));
        let lines: Vec<&str> = lines.collect();
        let is_field = |line: &&str| {
            line.split_once(':')
                .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()))
        };
        let is_legible = lines.iter().all(is_field);
        let fields = if is_legible { lines.into_iter().filter_map(field).collect() } else { Vec::new() };
        Some(Self { first, fields, is_whole: end.is_some(), is_legible })
    }

    fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns true if the message has exactly one possible length.
    fn is_framed(&self) -> bool {
        let lengths = self.all("content-length");
        let is_coded = !self.all("transfer-encoding").is_empty();
        let is_one = lengths.iter().all(|length| *length == lengths[0] && length.parse::<u64>().is_ok());
        self.is_legible
            && is_one
            && !lengths.iter().any(|length| length.starts_with('+'))
            && (lengths.is_empty() || !is_coded)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The directives of all `Cache-Control` fields.
    fn directives(&self) -> Vec<(String, Option<u64>)> {
        let lists = self.fields.iter().filter(|(name, _)| name == "cache-control");
        let members = lists.flat_map(|(_, list)| list.split(',')).map(str::trim).filter(|member| !member.is_empty());
        members
            .map(|member| match member.split_once('=') {
                Some((name, value)) => (name.to_lowercase(), Some(value.trim_matches('"').parse().unwrap_or(0))),
                None => (member.to_lowercase(), None),
            })
            .collect()
    }

    fn ask(&self) -> Option<Ask> {
        let [method, path, version] = &self.first[..] else { return None };
        if !version.starts_with("HTTP/1.") || method.starts_with("HTTP/") {
            return None;
        }
        let host = self.field("host").unwrap_or_default().trim_end_matches(":80").to_lowercase();
        let says = self.directives();
        let has = |name: &str| says.iter().any(|(other, _)| other == name);
        let first_age = says.iter().find(|(name, _)| name == "max-age").map(|(_, secs)| secs.unwrap_or(0));
        let what = match method.as_str() {
            _ if !self.is_framed() || self.all("host").len() > 1 || host.contains([' ', '/', '@']) => {
                CacheAction::Invalid
            }
            "HEAD" | "OPTIONS" => CacheAction::Bypass,
            "GET" if !self.is_whole || host.is_empty() || has("no-store") || self.field("range").is_some() => {
                CacheAction::Bypass
            }
            "GET" if self.field("authorization").is_some() => CacheAction::Authorized,
            "GET" if has("no-cache") || first_age == Some(0) => CacheAction::Reload,
            "GET" if says.is_empty() && self.field("pragma") == Some("no-cache") => CacheAction::Reload,
            "GET" => CacheAction::LookUp,
            _ if host.is_empty() => CacheAction::Bypass,
            _ => CacheAction::Unsafe,
        };
        Some(Ask { resource: (host, path.clone()), what })
    }

    fn is_final_response(&self) -> bool {
        self.first[0].starts_with("HTTP/1.") && self.first.len() > 1 && !["100", "103"].contains(&&*self.first[1])
    }

    /// Returns whether a response to an authorized request may be stored, and the lifetime in seconds.
    fn lifetime(&self) -> (bool, Option<u64>) {
        let says = self.directives();
        let of = |name: &str| says.iter().find(|(other, _)| other == name).map(|(_, secs)| secs.unwrap_or(0));
        let is_public = ["public", "s-maxage", "must-revalidate"].iter().any(|name| of(name).is_some());
        let forbids = ["no-store", "private", "no-cache"].iter().any(|name| of(name).is_some());
        let status = &*self.first[1];
        if forbids
            || !self.is_whole
            || !self.is_framed()
            || ["101", "206", "304"].contains(&status)
            || self.field("vary").is_some()
        {
            return (is_public, None);
        }
        let lifetime = of("s-maxage").or_else(|| of("max-age")).or_else(|| {
            let expires = self.field("expires")?;
            let Some(expires) = second_of_day(expires) else { return Some(0) };
            Some(expires.saturating_sub(second_of_day(self.field("date")?)?))
        });
        let age = self.field("age").and_then(|age| age.parse().ok()).unwrap_or(0);
        (is_public, lifetime.map(|secs| secs.saturating_sub(age)))
    }
}

/// Returns the second of the day of a date. All dates are of one day.
fn second_of_day(date: &str) -> Option<u64> {
    let time = date.strip_prefix("Sun, 06 Nov 1994 ")?.strip_suffix(" GMT")?;
    time.split(':').try_fold(0, |sum, part| part.parse::<u64>().ok().map(|part| sum * 60 + part))
}

impl Model for WebCacheModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate {
        Fate::of(self.verdict(now, headers, payload), &[])
    }
}
