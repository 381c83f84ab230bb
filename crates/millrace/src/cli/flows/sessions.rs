//! Sessions, while packets come by.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use functions::app_classifier::{Application, Classifier, Payload, Signatures};
use packet::{Endpoint, FiveTuple, Headers, Nanos, TcpFlags, Transport, protocol};
use port::Packet;

/// Both directions of what two ends say to each other.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) protocol: u8,
    /// Who was heard first, and the other.
    pub(super) source: Endpoint,
    pub(super) destination: Endpoint,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
    /// From the source, and to it.
    pub(super) packets: [u64; 2],
    /// Bytes of frames, as they were on the wire.
    pub(super) bytes: [u64; 2],
    /// All TCP flags that were seen.
    pub(super) flags: [TcpFlags; 2],
    pub(super) application: Option<&'static str>,
    /// The number of the last SYN of each.
    asked: [Option<u32>; 2],
    /// Segments behind whose words nothing is looked for any more.
    words: u8,
}

/// How many packets with a payload are asked what they speak.
const WORDS_MAX: u8 = 8;

impl Session {
    fn new(tuple: &FiveTuple, now: Nanos) -> Self {
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
            asked: [None; 2],
            words: 0,
        }
    }

    fn is_over(&self) -> bool {
        let has = |flag| self.flags.map(|flags| flags.contains(flag));
        has(TcpFlags::RST).contains(&true) || has(TcpFlags::FIN) == [true; 2]
    }

    /// What a TCP session has come to by its flags; of others whether both ends were heard.
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
    idle: Nanos,
    open: HashMap<FiveTuple, Session>,
    /// When those that are silent are looked for again.
    sweep: Nanos,
}

impl Sessions {
    pub(super) fn new(idle: Nanos) -> Self {
        Self { idle, open: HashMap::new(), sweep: Nanos(0) }
    }

    /// Adds an IP packet; sessions that end before it go to `ended`.
    pub(super) fn take(&mut self, packet: &Packet, headers: &Headers, bytes: &[u8], ended: &mut Vec<Session>) {
        let now = packet.time;
        if self.sweep <= now {
            self.sweep = now + self.idle;
            let idle = self.idle;
            // In the order of their first packets, so that the same capture gives the same rows.
            let mut silent: Vec<Session> =
                self.open.extract_if(|_, session| session.last + idle <= now).map(|(_, session)| session).collect();
            silent.sort_by_key(|session| (session.first, session.source, session.destination));
            ended.append(&mut silent);
        }
        let Some(tuple) = tuple_of(headers) else { return };
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
        if session.application.is_none()
            && session.words < WORDS_MAX
            && let Some(payload) = Payload::of(headers, headers.payload(bytes))
        {
            session.words += 1;
            let found = Signatures.classify(&payload);
            let label = found.and_then(|Application(number)| Signatures::APPLICATIONS.get(usize::from(number)));
            session.application = label.map(|label| label.name);
        }
    }

    /// Ends all that are open.
    pub(super) fn finish(self, ended: &mut Vec<Session>) {
        let mut open: Vec<Session> = self.open.into_values().collect();
        open.sort_by_key(|session| (session.first, session.source, session.destination));
        ended.append(&mut open);
    }
}

/// The ends of a packet: with ports or an identifier where there are such.
fn tuple_of(headers: &Headers) -> Option<FiveTuple> {
    headers.five_tuple().or_else(|| {
        let (source, destination) = headers.addresses()?;
        FiveTuple::between(Endpoint::new(source, 0), Endpoint::new(destination, 0), headers.protocol)
    })
}
