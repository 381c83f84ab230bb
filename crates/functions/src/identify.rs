//! Identifies the application of each session by what its sides say, never by a port, and drops sessions of unwanted ones.
//!
//! The crate `identify` has the signatures and decoders. Behaviour and choices: `docs/identify.md`.

mod config;
mod rows;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

pub use identify::NameKind;
use identify::{Answer, DatagramState, Identified, LIMIT, Names, Prefixes, Protocol, Side, Signatures, Switch};
use nf::{Description, Flow, Report, Sharing};
use packet::FiveTuple;

pub use self::config::Config;
pub use self::rows::{Row, Rows, Silent};
use crate::list::Catalogued;
use crate::streams::{Beginning, Direction, Hearing, Said, Session, StreamFunction, Streams, Tallies};

/// The `identify` function, with where it tells sessions one by one.
#[derive(Clone, Debug)]
pub struct Identify<R: Rows = Silent> {
    signatures: Arc<Signatures>,
    /// By protocol: its sessions are dropped. The last one is for sessions that no signature fits.
    drops: Arc<[bool]>,
    rows: R,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the session speaks, and what is spoken inside it: in a tunnel, or after STARTTLS.
    outer: Option<Identified>,
    inner: Option<Identified>,
    /// Where the inner protocol begins on each side.
    base: [u16; 2],
    /// The state of identification by datagrams.
    datagrams: DatagramState,
    /// Segments and datagrams with payload until the answer.
    payloads: u16,
    /// There is an answer.
    is_settled: bool,
    /// The number of the session's row.
    row: u32,
}

impl Flow for Identity {}

impl Identity {
    /// The protocol that the session counts for.
    fn protocol(&self) -> Option<Protocol> {
        self.outer.map(|identified| identified.protocol)
    }
}

impl Identify {
    /// The function, which tells no single sessions.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::telling(config, Silent)
    }
}

impl<R: Rows> Identify<R> {
    /// The function, which tells sessions to `rows`.
    #[must_use]
    pub fn telling(config: &Config, rows: R) -> Self {
        let signatures = config.signatures();
        let named = |about: &identify::About| config.drops().iter().any(|name| **name == about.name);
        let mut drops: Vec<bool> = signatures.protocols().map(|(_, about)| named(about)).collect();
        drops.push(config.drops().iter().any(|name| name == UNKNOWN));
        Self { signatures, drops: drops.into(), rows }
    }

    /// The signatures.
    #[must_use]
    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    /// The number of the counter for sessions of a protocol; the last two are for sessions that no signature fits and without payload.
    fn counter(&self, identity: &Identity) -> usize {
        let known = self.drops.len() - 1;
        match identity.protocol() {
            Some(Protocol(number)) => usize::from(number).min(known),
            None if identity.payloads > 0 => known,
            None => known + 1,
        }
    }

    /// The name of a counter.
    fn name(&self, counter: usize) -> &str {
        match counter.checked_sub(self.drops.len() - 1) {
            None => self.signatures.name(Protocol(counter as u16)),
            Some(0) => UNKNOWN,
            Some(_) => "(no payload)",
        }
    }

    /// Looks at the beginnings of a stream again, until there is an answer.
    fn ask(&self, cx: &mut Hearing<'_>, flow: &mut Identity) {
        let [initiator, responder] = *cx.beginnings();
        let from = |beginning: Beginning<'_>, base: u16| beginning.bytes.len().min(usize::from(base));
        while !flow.is_settled {
            let [at, back] = [from(initiator, flow.base[0]), from(responder, flow.base[1])];
            let prefixes = Prefixes {
                initiator: &initiator.bytes[at..],
                responder: &responder.bytes[back..],
                initiator_ended: initiator.is_complete,
                responder_ended: responder.is_complete,
            };
            let is_over = initiator.is_complete && responder.is_complete;
            match self.signatures.stream(&prefixes) {
                Answer::More if !is_over => return,
                Answer::More | Answer::Unknown => return self.settle(cx, flow, &Names::default()),
                Answer::Is(identified) => {
                    let mut names = Names::default();
                    let is_named = self.signatures.stream_names(identified.protocol, &prefixes, &mut names);
                    let switch = match flow.outer {
                        // One protocol inside another; what is inside that one is not looked for.
                        Some(_) => Switch::Never,
                        None => self.signatures.switch(identified.protocol, &prefixes),
                    };
                    match switch {
                        Switch::At { initiator, responder } => {
                            flow.outer = Some(identified);
                            flow.base = [initiator as u16, responder as u16];
                            continue;
                        }
                        Switch::More if !is_over => return,
                        Switch::Never if !is_named && !is_over => return,
                        Switch::More | Switch::Never => {}
                    }
                    let which = if flow.outer.is_some() { &mut flow.inner } else { &mut flow.outer };
                    *which = Some(identified);
                    self.settle(cx, flow, &names);
                }
            }
        }
    }

    /// Keeps the answer, tells the session's row, and drops the session if it is unwanted.
    fn settle(&self, cx: &mut Hearing<'_>, flow: &mut Identity, names: &Names) {
        flow.is_settled = true;
        self.rows.tell(&Row {
            number: flow.row,
            application: flow.outer.map(|identified| self.signatures.name(identified.protocol)),
            inside: flow.inner.map(|identified| self.signatures.name(identified.protocol)),
            told: flow.inner.or(flow.outer),
            payloads: flow.payloads,
            names,
        });
        cx.enough_of_both();
        let unwanted = |identified: Option<Identified>| {
            identified.is_some_and(|one| self.drops.get(usize::from(one.protocol.0)).copied().unwrap_or_default())
        };
        let is_unknown = flow.outer.is_none() && self.drops.last().copied().unwrap_or_default();
        if unwanted(flow.outer) || unwanted(flow.inner) || is_unknown {
            cx.drop(0);
        }
    }
}

/// The name of sessions that no signature fits.
pub const UNKNOWN: &str = "unknown";

impl<R: Rows> StreamFunction for Identify<R> {
    type Flow = Identity;

    const KEEPS: usize = LIMIT;

    const DESCRIPTION: Description = Description {
        name: "identify",
        summary: "identifies the application of each session by what its sides say, never by a port, and drops unwanted ones",
        state: "the application and what is inside it, or what is needed to tell it, with the beginnings of both sides until then",
        sharing: Sharing::Streams,
        keys: &config::KEYS,
        drop_reasons: &["unwanted-application"],
        recipes: &[],
    };

    fn counters(&self) -> usize {
        self.drops.len() + 1
    }

    fn drops(&self) -> bool {
        self.drops.contains(&true)
    }

    fn open(&self, session: &Session) -> Identity {
        Identity {
            outer: None,
            inner: None,
            base: [0; 2],
            datagrams: DatagramState::default(),
            payloads: 0,
            is_settled: false,
            row: self.rows.begin(session),
        }
    }

    fn hear(&self, cx: &mut Hearing<'_>, flow: &mut Identity, said: Said<'_>) {
        match said {
            Said::Data(..) => {
                flow.payloads = flow.payloads.saturating_add(1);
                self.ask(cx, flow);
            }
            Said::Gap(..) | Said::End(_) => self.ask(cx, flow),
            Said::Datagram(_, []) | Said::Deviation(..) => {}
            Said::Datagram(direction, payload) => {
                flow.payloads = flow.payloads.saturating_add(1);
                let side = match direction {
                    Direction::Original => Side::Initiator,
                    Direction::Reply => Side::Responder,
                };
                let mut names = Names::default();
                match self.signatures.datagram(&mut flow.datagrams, side, payload) {
                    Answer::More => {}
                    Answer::Unknown => self.settle(cx, flow, &names),
                    Answer::Is(identified) => {
                        self.signatures.datagram_names(identified.protocol, payload, &mut names);
                        flow.outer = Some(identified);
                        self.settle(cx, flow, &names);
                    }
                }
            }
        }
    }

    fn close(&self, cx: &mut Hearing<'_>, flow: &mut Identity) {
        if !flow.is_settled {
            if let Answer::Is(identified) = self.signatures.datagrams_end(&flow.datagrams) {
                flow.outer = Some(identified);
                self.settle(cx, flow, &Names::default());
            }
            self.ask(cx, flow);
        }
        cx.count(self.counter(flow), 0);
        self.rows.end(flow.row);
    }

    fn report(
        &self,
        sessions: &mut dyn Iterator<Item = (FiveTuple, Identity)>,
        tallies: &Tallies<'_>,
    ) -> Option<Report> {
        let counters = StreamFunction::counters(self);
        let mut sums: Vec<u64> = (0..counters).map(|counter| tallies.own(counter).packets).collect();
        sessions.for_each(|(_, identity)| sums[self.counter(&identity)] += 1);
        let named: BTreeMap<&str, u64> = sums
            .iter()
            .enumerate()
            .filter(|(_, sum)| **sum > 0)
            .map(|(counter, sum)| (self.name(counter), *sum))
            .collect();
        Some(Report {
            title: String::from("sessions by application"),
            columns: vec!["application", "sessions"],
            rows: named.into_iter().map(|(name, sum)| vec![name.into(), sum.into()]).collect(),
        })
    }
}

impl Catalogued for Streams<Identify> {
    type Config = Config;

    const CRAMPED: &'static str = "streams = { flows = 64, flows_v6 = 64 }";
    const SMALL: &'static str = "drop = [\"dns\"]\nstreams = { flows = 1000, flows_v6 = 1000 }";

    fn from_config(config: Config) -> Self {
        Self::new(Identify::new(&config), config.streams())
    }
}
