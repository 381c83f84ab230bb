//! Counts sessions, packets and bytes by application, and drops sessions of unwanted applications (NFork, table 6, uses nDPI for this).
//!
//! The applications are those of [`identify`](crate::identify). Behaviour and choices: `docs/app-classifier.md`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nf::{Count, Description, Flow, Report, Sharing};
use packet::FiveTuple;

pub use crate::identify::Config;
use crate::identify::{self, Identify, Identity};
use crate::list::Catalogued;
use crate::streams::{Hearing, Portion, Said, StreamFunction, Streams, Tallies};

/// The `app-classifier` function.
#[derive(Clone, Debug)]
pub struct AppClassifier {
    identify: Identify,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    identity: Identity,
    packets: u64,
    bytes: u64,
    /// Its packets and bytes were counted; those that follow are counted one by one.
    is_closed: bool,
}

impl Flow for Session {}

impl AppClassifier {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { identify: Identify::new(config) }
    }

    /// Returns the name of a session's application, if it is known.
    #[must_use]
    pub fn application(&self, session: &Session) -> Option<&str> {
        session.identity.protocol().map(|protocol| self.identify.signatures().name(protocol))
    }

    /// The number of the counter for packets of a session. The counters for sessions come before those for packets.
    fn traffic(&self, session: &Session) -> usize {
        self.identify.counters() + self.identify.counter(&session.identity)
    }
}

impl StreamFunction for AppClassifier {
    type Flow = Session;

    const KEEPS: usize = <Identify as StreamFunction>::KEEPS;

    const DESCRIPTION: Description = Description {
        name: "app-classifier",
        summary: "counts sessions, packets and bytes by application, told by what the sides say, and drops sessions of unwanted applications",
        state: "what identify needs to tell the application; packets and bytes",
        sharing: Sharing::Streams,
        keys: &identify::KEYS,
        drop_reasons: &["unwanted-application"],
        recipes: &[],
    };

    fn drops(&self) -> bool {
        self.identify.drops()
    }

    fn counters(&self) -> usize {
        2 * self.identify.counters()
    }

    fn open(&self, session: &crate::streams::Session) -> Session {
        Session { identity: self.identify.open(session), packets: 0, bytes: 0, is_closed: false }
    }

    fn packet(&self, cx: &Hearing<'_>, session: &mut Session, packet: &Portion) {
        if session.is_closed {
            return cx.count(self.traffic(session), packet.wire_len());
        }
        session.packets += 1;
        session.bytes += u64::from(packet.wire_len());
    }

    fn hear(&self, cx: &mut Hearing<'_>, session: &mut Session, said: Said<'_>) {
        self.identify.hear(cx, &mut session.identity, said);
    }

    fn close(&self, cx: &mut Hearing<'_>, session: &mut Session) {
        self.identify.close(cx, &mut session.identity);
        cx.count_all(self.traffic(session), Count { packets: session.packets, bytes: session.bytes });
        session.is_closed = true;
    }

    fn report(
        &self,
        sessions: &mut dyn Iterator<Item = (FiveTuple, Session)>,
        tallies: &Tallies<'_>,
    ) -> Option<Report> {
        let classes = self.identify.counters();
        let mut sums: Vec<(u64, Count)> =
            (0..classes).map(|class| (tallies.own(class).packets, tallies.own(classes + class))).collect();
        for (_, session) in sessions {
            let (sessions, traffic) = &mut sums[self.identify.counter(&session.identity)];
            *sessions += 1;
            traffic.packets += session.packets;
            traffic.bytes += session.bytes;
        }
        let named: BTreeMap<&str, &(u64, Count)> = sums
            .iter()
            .enumerate()
            .filter(|(_, (sessions, _))| *sessions > 0)
            .map(|(class, sums)| (self.identify.name(class), sums))
            .collect();
        let row = |(name, (sessions, traffic)): (&str, &(u64, Count))| {
            vec![name.into(), (*sessions).into(), traffic.packets.into(), traffic.bytes.into()]
        };
        Some(Report {
            title: String::from("sessions by application"),
            columns: vec!["application", "sessions", "packets", "bytes"],
            rows: named.into_iter().map(row).collect(),
        })
    }
}

impl Catalogued for Streams<AppClassifier> {
    type Config = Config;

    const CRAMPED: &'static str = "drop = [\"dns\", \"unknown\"]\nstreams = { flows = 64, flows_v6 = 64 }";
    const SMALL: &'static str = "drop = [\"dns\", \"tls\", \"unknown\"]\nstreams = { flows = 1000, flows_v6 = 1000 }";

    fn from_config(config: Config) -> Self {
        Self::new(AppClassifier::new(&config), config.streams())
    }
}
