//! The model of `asset-monitor`, with any functions that identify systems and services.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport, protocol};

use super::{Fate, Model, Tuple};

/// Identifies the system of a SYN or SYN-ACK.
pub type TellSystem = fn(&Headers) -> &'static str;
/// Identifies the service of a payload, if possible.
pub type TellService = fn(&Headers, &[u8]) -> Option<&'static str>;

/// Stores all hosts and services with their times, and forgets none.
#[derive(Clone, Debug)]
pub struct AssetMonitorModel {
    tell_system: TellSystem,
    tell_service: TellService,
    refresh_secs: u64,
    asset_secs: u64,
    idle_secs: u64,
    hosts: HashMap<IpAddr, KnownHost>,
    services: HashMap<(IpAddr, u16, u8), u64>,
    sessions: HashMap<Tuple, KnownSession>,
}

/// A known host, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// The system's name.
    pub system: &'static str,
    /// Evidence for the system: 0 none, 1 a SYN-ACK, 2 a SYN.
    pub evidence: u8,
    /// Number of services found.
    pub services: u32,
    /// Time of the first note.
    pub first: u64,
    /// Time of the last note.
    pub last: u64,
}

/// A known session, lower endpoint first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSession {
    /// Both hosts.
    pub hosts: [Option<KnownHost>; 2],
    /// The side that offers a service.
    pub server: Option<usize>,
    /// The name of the service.
    pub service: Option<&'static str>,
    opener: Option<usize>,
    heard: u64,
}

const SECOND: u64 = 1_000_000_000;

impl AssetMonitorModel {
    /// Creates a model with these timeouts in seconds: of notes, of hosts and services, of sessions.
    #[must_use]
    pub fn new(
        tell_system: TellSystem,
        tell_service: TellService,
        refresh_secs: u64,
        asset_secs: u64,
        idle_secs: u64,
    ) -> Self {
        let (hosts, services, sessions) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { tell_system, tell_service, refresh_secs, asset_secs, idle_secs, hosts, services, sessions }
    }

    /// Returns the session with this key: lower endpoint, higher endpoint, protocol.
    #[must_use]
    pub fn session(&self, name: &Tuple) -> Option<&KnownSession> {
        self.sessions.get(name)
    }

    fn note_host(&mut self, now: u64, address: IpAddr, system: &'static str, evidence: u8) -> KnownHost {
        let fresh = KnownHost { system, evidence, services: 0, first: now, last: now };
        let host = self.hosts.entry(address).or_insert(fresh);
        if host.last + self.asset_secs * SECOND <= now {
            *host = fresh;
        }
        host.last = now;
        if evidence > 0 && evidence >= host.evidence {
            (host.system, host.evidence) = (system, evidence);
        }
        *host
    }
}

impl Model for AssetMonitorModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate {
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        let is_udp = headers.protocol == protocol::UDP;
        let (ports, now) = (headers.ports(), now.0);
        let evidence = match headers.transport {
            Transport::Tcp(tcp) => {
                let [syn, ack, rst] =
                    [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::RST].map(|flag| tcp.flags.contains(flag));
                if syn && !rst { 2 - u8::from(ack) } else { 0 }
            }
            Transport::Udp { .. } => 0,
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => return Fate::FORWARD,
        };
        let (from, to) = ((src, ports.0), (dst, ports.1));
        let (low, high) = (from.min(to), from.max(to));
        let side = usize::from(from != low);
        let name = (low.0, low.1, high.0, high.1, headers.protocol);
        let mut session = self.sessions.remove(&name).unwrap_or_default();
        if session.heard + self.idle_secs * SECOND <= now {
            session = KnownSession::default();
        }
        session.heard = now;
        let speaks = evidence == 0 && !payload.is_empty();
        let answers = is_udp && speaks && session.opener.is_some_and(|opener| opener != side);
        let found = session.server.is_none() && (evidence == 1 || answers);
        if is_udp && session.server.is_none() {
            session.opener.get_or_insert(side);
        }
        if found {
            session.server = Some(side);
        }
        let system = if evidence > 0 { (self.tell_system)(headers) } else { "unknown" };
        let evidence = if system == "unknown" { 0 } else { evidence };
        let is_due = session.hosts[side]
            .is_none_or(|host: KnownHost| host.last + self.refresh_secs * SECOND <= now || host.evidence < evidence);
        if is_due || found {
            session.hosts[side] = Some(self.note_host(now, src, system, evidence));
        }
        if session.server == Some(side) {
            let told = if speaks && session.service.is_none() { (self.tell_service)(headers, payload) } else { None };
            session.service = session.service.or(told);
            if found || is_due || told.is_some() {
                let before = self.services.insert((src, ports.0, headers.protocol), now);
                if before.is_none_or(|before| before + self.asset_secs * SECOND <= now) {
                    let host = self.hosts.get_mut(&src).expect("who offers a service was noted");
                    host.services += 1;
                    session.hosts[side] = Some(*host);
                }
            }
        }
        self.sessions.insert(name, session);
        Fate::FORWARD
    }
}
