//! The model of `sidejacking`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport};

use super::{Fate, Model};

/// A connection: its deadline, whether another client's cookie was sent over it, the sides that have sent a FIN.
#[derive(Clone, Debug, Default)]
struct Connection {
    end: u64,
    foreign: bool,
    ended: HashSet<(IpAddr, u16)>,
}

/// Stores the first client of each cookie, and the connections that sent another client's.
#[derive(Clone, Debug)]
pub struct SidejackingModel {
    /// Clients differ by address; by user agent; only by both.
    differs: (bool, bool, bool),
    block: bool,
    session_secs: u64,
    refresh_secs: u64,
    idle_secs: u64,
    sessions: HashMap<(String, String, String), Session>,
    /// Connections by their endpoints.
    connections: HashMap<[(IpAddr, u16); 2], Connection>,
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
    pub fn new(differs: &str, block: bool, session_secs: u64, refresh_secs: u64, idle_secs: u64) -> Self {
        let differs = match differs {
            "address" => (true, false, false),
            "agent" => (false, true, false),
            "either" => (true, true, false),
            "both" => (false, false, true),
            other => panic!("nothing differs by `{other}`"),
        };
        let (sessions, connections) = (HashMap::new(), HashMap::new());
        Self { differs, block, session_secs, refresh_secs, idle_secs, sessions, connections }
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

impl Model for SidejackingModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate {
        let Transport::Tcp(tcp) = headers.transport else { return Fate::FORWARD };
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        let mut ends = [(src, tcp.src_port), (dst, tcp.dst_port)];
        ends.sort_unstable();
        if self.connections.get(&ends).is_some_and(|connection| connection.end <= now.0) {
            self.connections.remove(&ends);
        }
        let [reset, syn, fin] = [TcpFlags::RST, TcpFlags::SYN, TcpFlags::FIN].map(|flag| tcp.flags.contains(flag));
        let asks = if reset || syn { None } else { cookie(payload, &format!("{dst} {}", tcp.dst_port)) };
        let idle = now.0 + self.idle_secs * 1_000_000_000;
        let asked = asks.map(|(name, agent)| self.is_foreign(now.0, name, src, agent));
        if let Some(foreign) = asked {
            self.connections.entry(ends).or_default().foreign |= foreign;
        }
        let Some(connection) = self.connections.get_mut(&ends) else { return Fate::FORWARD };
        if syn && !reset {
            *connection = Connection::default();
        }
        if fin && asked.is_none() && !reset && !syn {
            connection.ended.insert((src, tcp.src_port));
        }
        let is_over = connection.ended.len() == 2 && asked.is_none() && !syn;
        connection.end = if is_over { now.0 + 10_000_000_000 } else { idle };
        let fate = if connection.foreign && self.block { Fate::Drop("sidejacked") } else { Fate::FORWARD };
        if reset {
            self.connections.remove(&ends);
        }
        fate
    }
}

/// Returns host, cookie name and value, and user agent of a request.
fn cookie(payload: &[u8], server: &str) -> Option<((String, String, String), String)> {
    let text = String::from_utf8_lossy(payload);
    // A line without an end is incomplete.
    let lines: Vec<&str> = text[..text.rfind("\r\n")?].split("\r\n").collect();
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
