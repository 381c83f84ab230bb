//! The table of open sessions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use functions::identify::{DatagramState, Side, Signatures, look};
use packet::{Endpoint, FiveTuple, Headers, Nanos, TcpFlags, Transport, protocol};
use port::Packet;

/// A session: both directions between two endpoints.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) protocol: u8,
    /// Sender of the first packet, and the other end.
    pub(super) source: Endpoint,
    pub(super) destination: Endpoint,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
    /// Packets from the source, and to it.
    pub(super) packets: [u64; 2],
    /// Bytes on the wire from the source, and to it.
    pub(super) bytes: [u64; 2],
    /// All TCP flags seen from the source, and to it.
    pub(super) flags: [TcpFlags; 2],
    pub(super) application: Option<Box<str>>,
    /// What earlier datagrams tell of it.
    datagrams: DatagramState,
    /// Sequence number of the last SYN of each side.
    asked: [Option<u32>; 2],
    /// Packets with payload that were classified so far.
    words: u8,
}

/// What sessions are sorted by: first packet, both ends, protocol.
pub(super) type Order = (Nanos, Endpoint, Endpoint, u8);

/// Maximum number of packets with payload that are classified for a session.
const WORDS_MAX: u8 = 8;

impl Session {
    pub(super) fn new(tuple: &FiveTuple, now: Nanos) -> Self {
        Self {
            protocol: tuple.protocol(),
            source: tuple.source(),
            destination: tuple.destination(),
            first: now,
            last: now,
            packets: [0; 2],
            bytes: [0; 2],
            flags: [TcpFlags::default(); 2],
            application: None,
            datagrams: DatagramState::default(),
            asked: [None; 2],
            words: 0,
        }
    }

    pub(super) const fn order(&self) -> Order {
        (self.first, self.source, self.destination, self.protocol)
    }

    fn is_over(&self) -> bool {
        let has = |flag| self.flags.map(|flags| flags.contains(flag));
        has(TcpFlags::RST).contains(&true) || has(TcpFlags::FIN) == [true; 2]
    }

    /// State of the session: of TCP by the flags seen, of others whether there was an answer.
    pub(super) fn state(&self) -> &'static str {
        let [asks, grants] = self.flags;
        if self.protocol != protocol::TCP {
            return if self.packets[1] > 0 { "answered" } else { "unanswered" };
        }
        let [syn, fin, rst] = [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST];
        let is_granted = grants.contains(syn) && asks.contains(TcpFlags::ACK);
        if asks.contains(rst) || grants.contains(rst) {
            if asks.contains(syn) && !grants.contains(syn) && grants.contains(rst) { "refused" } else { "reset" }
        } else if asks.contains(fin) && grants.contains(fin) {
            "closed"
        } else if asks.contains(fin) || grants.contains(fin) {
            "closing"
        } else if asks.contains(syn) && self.packets[1] == 0 && !asks.contains(TcpFlags::ACK) {
            "unanswered"
        } else if asks.contains(syn) && is_granted {
            "established"
        } else if asks.contains(syn) || grants.contains(syn) {
            "opening"
        } else {
            "midstream"
        }
    }
}

/// The sessions that are open.
pub(super) struct Sessions {
    signatures: Arc<Signatures>,
    idle: Nanos,
    open: HashMap<FiveTuple, Session>,
    /// Next time at which idle sessions are removed.
    sweep: Nanos,
}

impl Sessions {
    pub(super) fn new(idle: Nanos) -> Self {
        Self { signatures: Signatures::shared(), idle, open: HashMap::new(), sweep: Nanos(0) }
    }

    /// Counts a packet, and moves sessions that ended before it to `ended`. Returns false if it is not IP, or malformed: it belongs to no
    /// session.
    pub(super) fn take(&mut self, packet: &Packet, bytes: &[u8], ended: &mut Vec<Session>) -> bool {
        let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        let headers = headers.ok().filter(|headers| headers.addresses().is_some());
        headers.is_some_and(|headers| self.count(packet, &headers, bytes, ended))
    }

    fn count(&mut self, packet: &Packet, headers: &Headers, bytes: &[u8], ended: &mut Vec<Session>) -> bool {
        let now = packet.time;
        if self.sweep <= now {
            self.sweep = now + self.idle;
            let idle = self.idle;
            // In the order of their first packets, so that the same capture gives the same rows.
            let mut silent: Vec<Session> =
                self.open.extract_if(|_, session| session.last + idle <= now).map(|(_, session)| session).collect();
            silent.sort_by_key(Session::order);
            ended.append(&mut silent);
        }
        let Some(tuple) = tuple_of(headers) else { return false };
        let (key, _) = tuple.symmetric();
        let tcp = match headers.transport {
            Transport::Tcp(tcp) => Some(tcp),
            Transport::None | Transport::Udp { .. } | Transport::Icmp(_) | Transport::Sctp { .. } => None,
        };
        let opens = tcp.filter(|tcp| tcp.flags.contains(TcpFlags::SYN) && !tcp.flags.contains(TcpFlags::ACK));
        let session = match self.open.entry(key) {
            Entry::Vacant(place) => place.insert(Session::new(&tuple, now)),
            Entry::Occupied(place) => {
                let known = place.into_mut();
                let is_another = opens.is_some_and(|tcp| known.is_over() && !known.asked.contains(&Some(tcp.seq)));
                if known.last + self.idle <= now || is_another {
                    ended.push(std::mem::replace(known, Session::new(&tuple, now)));
                }
                known
            }
        };
        let side = usize::from((tuple.source(), tuple.destination()) != (session.source, session.destination));
        session.last = now;
        session.packets[side] += 1;
        session.bytes[side] += u64::from(packet.wire_len);
        if let Some(tcp) = tcp {
            session.flags[side] = session.flags[side].with(tcp.flags);
        }
        if let Some(tcp) = opens {
            session.asked[side] = Some(tcp.seq);
        }
        let payload = headers.payload(bytes);
        if session.application.is_none() && session.words < WORDS_MAX && !payload.is_empty() {
            session.words += 1;
            let side = if side == 0 { Side::Initiator } else { Side::Responder };
            let found = look(&self.signatures, &mut session.datagrams, headers, payload, side);
            session.application = found.map(|protocol| self.signatures.name(protocol).into());
        }
        true
    }

    /// Moves all open sessions to `ended`.
    pub(super) fn finish(self, ended: &mut Vec<Session>) {
        let mut open: Vec<Session> = self.open.into_values().collect();
        open.sort_by_key(Session::order);
        ended.append(&mut open);
    }
}

/// Key of a packet's session; ports are 0 if the protocol has none.
fn tuple_of(headers: &Headers) -> Option<FiveTuple> {
    headers.five_tuple().or_else(|| {
        let (source, destination) = headers.addresses()?;
        FiveTuple::between(Endpoint::new(source, 0), Endpoint::new(destination, 0), headers.protocol)
    })
}
