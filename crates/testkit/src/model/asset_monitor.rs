//! The model of `asset-monitor`, around whatever tells systems and services apart.

use std::collections::HashMap;
use std::net::IpAddr;

use packet::{Headers, Nanos, Seq, TcpFlags, Transport, protocol};

use super::{Fate, Model, Tuple};

/// What system a SYN or SYN-ACK looks like.
pub type TellSystem = fn(&Headers) -> &'static str;
/// What service a payload looks like, if that is known.
pub type TellService = fn(&Headers, &[u8]) -> Option<&'static str>;

/// Keeps all hosts and services for ever, with when they were heard of.
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

/// A host as it is known, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// The system's name.
    pub system: &'static str,
    /// 0 when nothing told of it, 1 for a SYN-ACK, 2 for a SYN.
    pub evidence: u8,
    /// Services found at it.
    pub services: u32,
    /// Noted first.
    pub first: u64,
    /// Noted last.
    pub last: u64,
}

/// A session as it is known, the lower end first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSession {
    /// Both ends.
    pub hosts: [Option<KnownHost>; 2],
    /// The end that offers a service.
    pub server: Option<usize>,
    /// Which.
    pub service: Option<&'static str>,
    opener: Option<usize>,
    heard: u64,
}

const SECOND: u64 = 1_000_000_000;

impl AssetMonitorModel {
    /// A model of these timeouts, in seconds: of notes, of hosts and services, of sessions.
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

    /// The session of this name: lower end, higher end, protocol.
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
