//! The model of `sidejacking`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use packet::Nanos;

/// Stores the first client of each cookie, and the connections that sent another client's. It knows requests, not packets.
#[derive(Clone, Debug)]
pub struct SidejackingModel {
    /// Clients differ by address; by user agent; only by both.
    differs: (bool, bool, bool),
    block: bool,
    session_secs: u64,
    refresh_secs: u64,
    sessions: HashMap<(String, String, String), Session>,
    /// Connections that are dropped.
    blocked: HashSet<String>,
    requests: u64,
    foreign: u64,
}

#[derive(Clone, Debug)]
struct Session {
    address: IpAddr,
    agent: String,
    last: u64,
}

impl SidejackingModel {
    /// Creates a model with these parameters, as in the configuration file, with unlimited room and the cookies `sid` and `PHPSESSID*`.
    ///
    /// # Panics
    /// If `differs` is invalid.
    #[must_use]
    pub fn new(differs: &str, block: bool, session_secs: u64, refresh_secs: u64) -> Self {
        let differs = match differs {
            "address" => (true, false, false),
            "agent" => (false, true, false),
            "either" => (true, true, false),
            "both" => (false, false, true),
            other => panic!("nothing differs by `{other}`"),
        };
        let (sessions, blocked) = (HashMap::new(), HashSet::new());
        Self { differs, block, session_secs, refresh_secs, sessions, blocked, requests: 0, foreign: 0 }
    }

    /// Returns the numbers of requests with a session cookie, and of those by other clients.
    #[must_use]
    pub const fn counts(&self) -> [u64; 2] {
        [self.requests, self.foreign]
    }

    /// Returns true if the packets of this connection are dropped.
    #[must_use]
    pub fn is_blocked(&self, connection: &str) -> bool {
        self.blocked.contains(connection)
    }

    /// Ends a connection.
    pub fn end(&mut self, connection: &str) {
        self.blocked.remove(connection);
    }

    /// Takes a request of a client to a server (address and port).
    pub fn request(&mut self, now: Nanos, connection: &str, (client, server): (IpAddr, &str), text: &str) {
        if self.is_blocked(connection) {
            return;
        }
        let Some((name, agent)) = cookie(text, server) else { return };
        self.requests += 1;
        if self.is_foreign(now.0, name, client, agent) {
            self.foreign += 1;
            if self.block {
                self.blocked.insert(connection.into());
            }
        }
    }

    /// Returns true if this use of a session is by another client.
    fn is_foreign(&mut self, now: u64, name: (String, String, String), address: IpAddr, agent: String) -> bool {
        let secs = |secs: u64| secs * 1_000_000_000;
        let mine = Session { address, agent, last: now };
        let known = self.sessions.entry(name).or_insert_with(|| mine.clone());
        if known.last + secs(self.session_secs) <= now {
            *known = mine;
            return false;
        }
        let [address, agent] = [known.address != mine.address, known.agent != mine.agent];
        let (by_address, by_agent, by_both) = self.differs;
        let foreign = (by_address && address) || (by_agent && agent) || (by_both && address && agent);
        if !foreign && now - known.last >= secs(self.refresh_secs) {
            known.last = now;
        }
        foreign
    }
}

/// Returns host, cookie name and value, and user agent of a request.
fn cookie(text: &str, server: &str) -> Option<((String, String, String), String)> {
    let lines: Vec<&str> = text.split_once("\r\n\r\n")?.0.split("\r\n").collect();
    let [method, target, version] = lines[0].split(' ').collect::<Vec<_>>()[..] else { return None };
    let is_request = method.chars().all(|c| c.is_ascii_uppercase()) && version.starts_with("HTTP/1.");
    let fields: Vec<(String, &str)> = lines[1..]
        .iter()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim())))
        .collect();
    let field = |name: &str| fields.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
    let host = match field("host") {
        Some(host) if !host.is_empty() && target.starts_with('/') => host.trim_end_matches(":80").to_lowercase(),
        _ => server.into(),
    };
    let of_cookies = fields.iter().filter(|(name, _)| name == "cookie").flat_map(|(_, value)| value.split(';'));
    let mut pairs = of_cookies.filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name.trim(), value.trim()));
    let is_session = |name: &str| name.eq_ignore_ascii_case("sid") || name.to_lowercase().starts_with("phpsessid");
    let (name, value) = pairs.find(|(name, value)| is_session(name) && value.len() >= 8)?;
    is_request.then(|| ((host, name.into(), value.into()), field("user-agent").unwrap_or_default().into()))
}
