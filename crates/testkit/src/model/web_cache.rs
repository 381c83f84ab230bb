//! The model of `web-cache`.

use std::collections::{HashMap, VecDeque};

use packet::Nanos;

/// Stores the requests of every connection, and each response that may be stored, and never forgets one. It knows messages, not packets.
#[derive(Clone, Debug)]
pub struct WebCacheModel {
    longest_secs: u64,
    /// Time at which each response becomes stale, and its length.
    responses: HashMap<(String, String), (u64, u64)>,
    connections: HashMap<String, Connection>,
    hits: u64,
    misses: u64,
    bytes_saved: u64,
}

#[derive(Clone, Debug, Default)]
struct Connection {
    waiting: VecDeque<Ask>,
    is_lost: bool,
    /// Nobody knows where the next request begins, or the next response.
    is_over: [bool; 2],
}

#[derive(Clone, Debug)]
struct Ask {
    method: String,
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
    /// Each line after the first is a field.
    is_legible: bool,
}

impl WebCacheModel {
    /// Creates a model in which responses stay fresh for at most so long, with unlimited room.
    #[must_use]
    pub fn new(longest_secs: u64) -> Self {
        let (responses, connections) = (HashMap::new(), HashMap::new());
        Self { longest_secs, responses, connections, hits: 0, misses: 0, bytes_saved: 0 }
    }

    /// Returns hits, misses and bytes saved.
    #[must_use]
    pub const fn counts(&self) -> [u64; 3] {
        [self.hits, self.misses, self.bytes_saved]
    }

    /// Ends a connection.
    pub fn end(&mut self, connection: &str) {
        self.connections.remove(connection);
    }

    /// Takes a request. Returns true if a store could answer it.
    pub fn request(&mut self, now: Nanos, connection: &str, text: &str) -> bool {
        let connection = self.connections.entry(connection.into()).or_default();
        if connection.is_over[0] {
            return false;
        }
        let Some(ask) = Message::read(text).as_ref().and_then(Message::ask) else { return false };
        connection.is_lost |= connection.waiting.len() == 4 || ask.what == CacheAction::Invalid;
        connection.is_over[0] = ask.what == CacheAction::Invalid;
        if connection.waiting.len() < 4 {
            connection.waiting.push_back(ask.clone());
        }
        self.look_up(now.0, &ask)
    }

    /// Takes a response.
    pub fn response(&mut self, now: Nanos, connection: &str, text: &str) {
        let connection = self.connections.entry(connection.into()).or_default();
        let Some(says) = Message::read(text).filter(|_| !connection.is_over[1]) else { return };
        if ["100", "103"].contains(&&*says.first[1]) {
            return;
        }
        let ask = connection.waiting.pop_front().filter(|_| !connection.is_lost);
        connection.is_over[1] = !says.is_followed(ask.as_ref().map_or("GET", |ask| &ask.method));
        if let Some(ask) = ask {
            self.keep(now.0, ask, &says);
        }
    }

    fn look_up(&mut self, now: u64, ask: &Ask) -> bool {
        let known =
            self.responses.get(&ask.resource).filter(|(stale, _)| ask.what == CacheAction::LookUp && *stale > now);
        self.hits += u64::from(known.is_some());
        self.misses += u64::from(known.is_none() && matches!(ask.what, CacheAction::LookUp | CacheAction::Reload));
        self.bytes_saved += known.map_or(0, |(_, length)| *length);
        known.is_some()
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
    fn read(text: &str) -> Option<Self> {
        let (head, _) = text.split_once("\r\n\r\n")?;
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
        Some(Self { first, fields, is_legible })
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
            "GET" if host.is_empty() || has("no-store") || self.field("range").is_some() => CacheAction::Bypass,
            "GET" if self.field("authorization").is_some() => CacheAction::Authorized,
            "GET" if has("no-cache") || first_age == Some(0) => CacheAction::Reload,
            "GET" if says.is_empty() && self.field("pragma") == Some("no-cache") => CacheAction::Reload,
            "GET" => CacheAction::LookUp,
            _ if host.is_empty() => CacheAction::Bypass,
            _ => CacheAction::Unsafe,
        };
        Some(Ask { method: method.clone(), resource: (host, path.clone()), what })
    }

    /// Returns true if the next response can be found behind this one, which answers a request of this method.
    fn is_followed(&self, method: &str) -> bool {
        let has_no_body = method == "HEAD" || ["204", "304"].contains(&&*self.first[1]);
        let has_length = self.field("content-length").is_some() || self.field("transfer-encoding").is_some();
        self.first[1] != "101" && (has_no_body || (self.is_framed() && has_length))
    }

    /// Returns whether a response to an authorized request may be stored, and the lifetime in seconds.
    fn lifetime(&self) -> (bool, Option<u64>) {
        let says = self.directives();
        let of = |name: &str| says.iter().find(|(other, _)| other == name).map(|(_, secs)| secs.unwrap_or(0));
        let is_public = ["public", "s-maxage", "must-revalidate"].iter().any(|name| of(name).is_some());
        let forbids = ["no-store", "private", "no-cache"].iter().any(|name| of(name).is_some());
        let status = &*self.first[1];
        if forbids || !self.is_framed() || ["101", "206", "304"].contains(&status) || self.field("vary").is_some() {
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
