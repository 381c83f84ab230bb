//! Identifies the application of each session, and drops sessions of unwanted applications (NFork, table 6, uses nDPI for this). A
//! [`Classifier`] does the identification; one is built in. Behaviour and choices: `docs/app-classifier.md`.

mod classifier;
mod config;
mod signatures;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;

use memory::Memory;
use nf::{
    Context, Description, ENDS_BYTES, Flow, FlowList, IPV6, Meta, NetworkFunction, Opened, PacketSet, Plain, Reason,
    RecordReader, RecordWriter, Report, Sharing, Sizing, Step, Verdict, family_of,
};
use packet::{FiveTuple, Headers, Host, Nanos, TcpFlags, Transport, protocol};

use crate::list::Catalogued;

pub use self::classifier::{Application, Classifier, Label, Payload};
pub use self::config::Config;
pub use self::signatures::{Protocol, Signatures};

/// The `app-classifier` function, with its classifier.
#[derive(Clone, Debug)]
pub struct AppClassifier<C: Classifier = Signatures> {
    classifier: C,
    drops: ClassSet,
    give_up: u8,
    idle: Nanos,
    sizing: Sizing,
}

/// The metadata of a packet: its session, its length, and what its payload looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    tuple: FiveTuple,
    bytes: u32,
    look: Look,
}

/// What a packet looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// No payload.
    Empty,
    /// A SYN-ACK: the session's state belongs to an earlier connection.
    Begins,
    /// No known application.
    Strange,
    /// A packet of this application.
    Of(Application),
}

impl Meta for Seen {
    type Key = FiveTuple;

    /// Address family and look in one byte; the tuple; the length; the application.
    const RECORD_BYTES: usize = 1 + ENDS_BYTES + 4 + 1;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.tuple.symmetric().0
    }

    fn source(&self) -> Option<Host> {
        Some(Host::from(self.tuple.source().address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let (look, application) = match self.look {
            Look::Empty => (0, 0),
            Look::Begins => (1, 0),
            Look::Strange => (2, 0),
            Look::Of(Application(number)) => (3, number),
        };
        let bits = family_of(self.tuple.source().address) | look << LOOK_SHIFT;
        RecordWriter::new(record).u8(bits).ends(&self.tuple).u32(self.bytes).u8(application).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let bits = fields.u8()?;
        let (tuple, bytes) = (fields.ends(bits & IPV6 != 0)?, fields.u32()?);
        let look = match (bits >> LOOK_SHIFT, fields.u8()?) {
            (0, 0) => Look::Empty,
            (1, 0) => Look::Begins,
            (2, 0) => Look::Strange,
            (3, number) if number < u8::MAX => Look::Of(Application(number)),
            _ => return None,
        };
        fields.end()?;
        let is_begun = look == Look::Begins;
        let is_carrier = tuple.protocol() == protocol::TCP || (tuple.protocol() == protocol::UDP && !is_begun);
        is_carrier.then_some(Self { tuple, bytes, look })
    }
}

/// Bit position of the look in a record's first byte.
const LOOK_SHIFT: u32 = 1;

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    packets: u64,
    bytes: u64,
    /// Number of its application in the classifier's list, counted from 1; 0 while it is unknown.
    class: u8,
    /// What its last packets with payload looked like, counted from 1, and the number of those packets.
    candidate: u8,
    evidence: u8,
    /// Packets with payload that were examined while it was unknown.
    tried: u8,
}

impl Flow for Session {}

impl Session {
    /// Examines a packet with payload while the session is unknown.
    fn learn<C: Classifier>(&mut self, found: Option<Application>) {
        self.tried += 1;
        let candidate = found.map_or(0, |Application(number)| number + 1);
        self.evidence = if candidate == self.candidate { self.evidence.saturating_add(1) } else { 1 };
        self.candidate = candidate;
        let needed = found.and_then(|Application(number)| C::APPLICATIONS.get(usize::from(number)));
        if needed.is_some_and(|label| self.evidence >= label.evidence) {
            self.class = candidate;
        }
    }
}

/// The name of sessions without a known application.
const UNKNOWN: &str = "unknown";

/// A set of classes: applications counted from 1, and 0 for unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassSet([u64; 4]);

impl ClassSet {
    const fn with(mut self, class: u8) -> Self {
        self.0[(class >> 6) as usize] |= 1 << (class & 63);
        self
    }

    #[inline]
    const fn has(&self, class: u8) -> bool {
        self.0[(class >> 6) as usize] >> (class & 63) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

const UNWANTED: Reason = Reason::own(0);

impl<C: Classifier> AppClassifier<C> {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config<C>) -> Self {
        const { assert!(C::APPLICATIONS.len() < u8::MAX as usize, "there are 254 applications at most") };
        Self {
            classifier: C::default(),
            drops: config.drops(),
            give_up: config.give_up(),
            idle: config.idle(),
            sizing: config.sizing(),
        }
    }

    fn name(class: u8) -> &'static str {
        let label = usize::from(class).checked_sub(1).and_then(|at| C::APPLICATIONS.get(at));
        label.map_or(UNKNOWN, |label| label.name)
    }

    /// Returns the name of a session's application, if it is known.
    #[must_use]
    pub fn application(&self, session: &Session) -> Option<&'static str> {
        (session.class > 0).then(|| Self::name(session.class))
    }
}

impl Catalogued for AppClassifier {
    type Config = Config;

    const CRAMPED: &'static str = r#"
drop = ["dns", "unknown"]
give_up = 2
idle_timeout = 2
"#;
    const SMALL: &'static str = r#"
drop = ["dns", "tls", "unknown"]
give_up = 4
idle_timeout = 5
"#;

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl<C: Classifier> NetworkFunction for AppClassifier<C> {
    type Meta = Seen;
    type Flow = Session;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "app-classifier",
        summary: "identifies the application of each session by its packets' payload, and drops sessions of unwanted applications",
        state: "the session's application, what its last packets looked like, its packets and bytes",
        sharing: Sharing::Nothing,
        keys: config::KEYS,
        drop_reasons: &["unwanted-application"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Seen> {
        let begins = match headers.transport {
            Transport::Tcp(tcp) => tcp.flags.contains(TcpFlags::SYN.with(TcpFlags::ACK)),
            Transport::Udp { .. } => false,
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => return None,
        };
        let look = match Payload::of(headers, headers.payload(frame)) {
            _ if begins => Look::Begins,
            None => Look::Empty,
            Some(payload) => match self.classifier.classify(&payload) {
                Some(application) if usize::from(application.0) < C::APPLICATIONS.len() => Look::Of(application),
                Some(_) | None => Look::Strange,
            },
        };
        headers.five_tuple().map(|tuple| Seen { tuple, bytes: headers.wire_len, look })
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Seen) -> Step<Opened<Session>, M> {
        Ok(Opened::Flow(Session::default()))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, session: &mut Session, seen: &Seen) -> Step<Verdict, M> {
        cx.expire_after(self.idle);
        let is_open = session.class == 0 && session.tried < self.give_up;
        match seen.look {
            Look::Begins if session.tried > 0 => *session = Session::default(),
            Look::Strange if is_open => session.learn::<C>(None),
            Look::Of(application) if is_open => session.learn::<C>(Some(application)),
            Look::Empty | Look::Begins | Look::Strange | Look::Of(_) => {}
        }
        session.packets += 1;
        session.bytes += u64::from(seen.bytes);
        let is_settled = session.class > 0 || session.tried >= self.give_up;
        if session.class > 0 {
            // Made-up sessions must not evict identified ones.
            cx.assure();
        }
        Ok(if is_settled && self.drops.has(session.class) { Verdict::Drop(UNWANTED) } else { Verdict::forward() })
    }

    /// Without room, packets are forwarded only if `drop` is empty: a full table must not be a way around.
    fn orphan<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Seen) -> Step<Verdict, M> {
        Ok(if self.drops.is_empty() { Verdict::forward() } else { Verdict::Drop(Reason::TABLE_FULL) })
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let mut sums: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        for (_, session) in flows.alive() {
            let (sessions, packets, bytes) = sums.entry(Self::name(session.class)).or_default();
            *sessions += 1;
            *packets += session.packets;
            *bytes += session.bytes;
        }
        let row = |(name, (sessions, packets, bytes)): (&&str, &(u64, u64, u64))| {
            vec![(*name).into(), (*sessions).into(), (*packets).into(), (*bytes).into()]
        };
        Ok(Some(Report {
            title: String::from("sessions by application"),
            columns: vec!["application", "sessions", "packets", "bytes"],
            rows: sums.iter().map(row).collect(),
        }))
    }
}

#[cfg(test)]
mod tests;
