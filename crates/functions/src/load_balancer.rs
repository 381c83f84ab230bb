//! Spreads connections to a service over its backends by Maglev's consistent hashing (NSDI '16), avoiding backends that don't answer.
//! Connections are tracked as `conntrack` tracks them, see [`tracking`](crate::tracking), but no packet is dropped for a connection's
//! state. Behaviour and choices: `docs/load-balancer.md`.

mod config;
mod connection;
mod health;
mod keys;
mod maglev;
mod steps;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use memory::{Distributed, Memory};
use nf::{
    Cell, Context, Description, Fates, Fingerprint, FlowList, Kept, NetworkFunction, Opened, PacketSet, Report,
    Sharing, Sizing, Speed, Step, Verdict,
};
use packet::{Endpoint, Family, FiveTuple, FiveTuple4, FiveTuple6, FlowKey, Headers, Key, Rewrite, Words};

pub use self::config::Config;
use self::connection::{Attempt, Name, PacketKind};
pub use self::connection::{Connection, Passing};
use self::health::Watched;
pub use self::health::{Backends, Health, Totals};
use self::maglev::Table;
use crate::list::Catalogued;
use crate::tracking::Rules;

/// The `load-balancer` function.
#[derive(Clone, Debug)]
pub struct LoadBalancer {
    config: Config,
    rules: Rules,
    services: Box<[Service]>,
    /// All backends, by number. A backend keeps its number as long as a run goes on, whichever configurations have succeeded each other, for
    /// connections have it. Those that are no longer in the configuration are there too.
    backends: Box<[Backend]>,
    has_removed: bool,
    /// Services and backends, sorted by endpoint and protocol.
    places: Box<[(Place, Role)]>,
}

/// An endpoint and its protocol.
type Place = (Endpoint, u8);

/// The number of the service or backend at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Service(u16),
    Backend(u16),
}

#[derive(Clone, Debug)]
struct Service {
    address: Endpoint,
    table: Table,
    /// The numbers of its backends, in the order of the table's.
    backends: Box<[u16]>,
}

#[derive(Clone, Debug)]
struct Backend {
    endpoint: Endpoint,
    /// Where its service is, or was. A backend of another service is another backend.
    of: Place,
    /// The number of its service; `None` if it is not in the configuration any more.
    service: Option<u16>,
}

/// How often a new connection draws a backend from the table before it tries one after the other.
const DRAWS: u64 = 8;
/// The most numbers of backends.
const NUMBERS_MAX: usize = 1 << u16::BITS;

impl LoadBalancer {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::numbered(config, &[])
    }

    /// The same, where backends of these services have numbers already.
    fn numbered(config: Config, known: &[(Place, Endpoint)]) -> Self {
        let unused = |&(of, endpoint): &(Place, Endpoint)| Backend { endpoint, of, service: None };
        let mut backends: Vec<Backend> = known.iter().map(unused).collect();
        let mut numbers: BTreeMap<(Place, Endpoint), u16> = known.iter().copied().zip(0..).collect();
        let (mut services, mut places) = (Vec::new(), Vec::new());
        for (service, number) in config.fields.services.iter().zip(0..) {
            let (address, protocol) = (service.address.0, service.protocol.number());
            let (names, of): (Vec<Endpoint>, _) = (service.endpoints().collect(), (address, protocol));
            let table = Table::new(&names, config.fields.table_size.0 as usize);
            places.push((of, Role::Service(number)));
            let number_of = |endpoint: Endpoint| {
                let at = *numbers.entry((of, endpoint)).or_insert_with(|| {
                    backends.push(Backend { endpoint, of, service: None });
                    (backends.len() - 1) as u16
                });
                backends[usize::from(at)].service = Some(number);
                places.push(((endpoint, protocol), Role::Backend(at)));
                at
            };
            services.push(Service { address, table, backends: names.into_iter().map(number_of).collect() });
        }
        places.sort_unstable_by_key(|(place, _)| *place);
        let (rules, places) = (config.rules(), places.into_boxed_slice());
        let has_removed = backends.iter().any(|backend| backend.service.is_none());
        Self { config, rules, services: services.into(), backends: backends.into(), has_removed, places }
    }

    /// The backends that have numbers, in their order.
    fn known(&self) -> Vec<(Place, Endpoint)> {
        self.backends.iter().map(|backend| (backend.of, backend.endpoint)).collect()
    }

    /// Returns true if a backend is not in the configuration any more.
    #[inline(always)]
    fn is_removed(&self, backend: u16) -> bool {
        self.has_removed && self.backends.get(usize::from(backend)).is_some_and(|backend| backend.service.is_none())
    }

    /// Chooses the backend of a new connection: the table's, or if that is down one by another draw. So connections of healthy backends
    /// stay, and those of the failed one are spread over all others. Only a SYN (`asks`) may retry a backend that is down.
    fn choose<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        service: &Service,
        tuple: &FiveTuple,
        asks: bool,
    ) -> Step<u16, M> {
        let seed = self.config.fields.seed.get();
        let (table, backends) = (&service.table, &service.backends);
        let draw = |nth| table.look_up(hash(tuple, seed.wrapping_add(nth)));
        let first = draw(0);
        if !self.is_judged(tuple) {
            return Ok(backends[first]);
        }
        let others = (1..backends.len()).map(|further| (first + further) % backends.len());
        for place in (0..DRAWS).map(draw).chain(others) {
            if self.takes(cx, backends[place].into(), asks)? {
                return Ok(backends[place]);
            }
        }
        Ok(backends[first])
    }

    fn find(&self, place: Place) -> Option<Role> {
        self.places.binary_search_by_key(&place, |(place, _)| *place).ok().map(|at| self.places[at].1)
    }

    #[inline(always)]
    fn to_backend(&self, backend: u16) -> Verdict {
        let Some(backend) = self.backends.get(usize::from(backend)) else { return Verdict::FORWARD };
        Verdict::rewritten(Rewrite { dst: Some(backend.endpoint), ..Rewrite::NONE })
    }

    /// Rewrites an answer's source to the service's address. A backend's endpoint belongs to one service, so no state is needed.
    #[inline(always)]
    fn to_client(&self, service: u16) -> Verdict {
        let Some(service) = self.services.get(usize::from(service)) else { return Verdict::FORWARD };
        Verdict::rewritten(Rewrite { src: Some(service.address), ..Rewrite::NONE })
    }
}

/// A service and its backend as words.
fn named(service: Endpoint, backend: Endpoint, protocol: u8) -> [u64; 6] {
    let Some(both) = FiveTuple::between(service, backend, protocol) else { unreachable!("both are of one family") };
    match both.family() {
        Family::V4(key) => {
            let [a, b] = key.to_words();
            [4, a, b, 0, 0, 0]
        }
        Family::V6(key) => {
            let [a, b, c, d, e] = key.to_words();
            [6, a, b, c, d, e]
        }
    }
}

/// The service and the backend of these words.
fn of_name([family, words @ ..]: [u64; 6]) -> Option<(Place, Endpoint)> {
    let both = match family {
        4 => FiveTuple::from_v4(FiveTuple4::from_words([words[0], words[1]])),
        6 => FiveTuple::from_v6(FiveTuple6::from_words(words)),
        _ => return None,
    };
    Some(((both.source(), both.protocol()), both.destination()))
}

fn hash(tuple: &FiveTuple, seed: u64) -> u64 {
    match tuple.family() {
        Family::V4(key) => key.hash(seed),
        Family::V6(key) => key.hash(seed),
    }
}

impl Catalogued for LoadBalancer {
    type Config = Config;

    const CRAMPED: &'static str = r#"
answer_timeout = 1
down_after = 1
[[services]]
address = "192.0.2.1:80"
backends = ["10.0.0.1:40000", "10.0.0.2:80"]
"#;
    const SMALL: &'static str = r#"
services = [
    { address = "[2001:db8::b]:443", backends = ["[2001:db8::c]:443"] },
    { address = "10.0.0.2:80", backends = ["10.0.0.1:80", "192.168.1.1:80"] },
]
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for LoadBalancer {
    type Meta = Passing;
    type Flow = Connection;
    type Shared<M: Memory> = Backends<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "load-balancer",
        summary: "spreads connections to a service over its backends by consistent hashing (Maglev), avoiding backends that are down",
        state: "the backend of the connection, and the connection as conntrack tracks it",
        sharing: Sharing::Shares("the health of the backends"),
        keys: keys::KEYS,
        drop_reasons: &[],
        recipes: keys::RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Connection
    }

    fn sizing(&self) -> Sizing {
        let fields = &self.config.fields;
        Sizing { flows: fields.flows.get() as usize, flows_v6: fields.flows_v6.get() as usize }
    }

    fn shared<M: Memory>(&self, memory: &M) -> Backends<M> {
        Backends((0..self.backends.len()).map(|_| Watched::new(memory, self.attempts())).collect())
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Backends<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    fn succeed(self, old: &Self) -> Result<Self, String> {
        let new = Self::numbered(self.config, &old.known());
        match new.backends.len() {
            0..=NUMBERS_MAX => Ok(new),
            many => Err(format!(
                "since it began the run has had {many} backends, of which it can tell {NUMBERS_MAX} apart: begin anew"
            )),
        }
    }

    fn adopt<M: Memory>(&self, old: &Self, shared: &mut Backends<M>, memory: &M) {
        let attempts = self.attempts();
        for (number, backend) in self.backends.iter().enumerate() {
            match (shared.0.get_mut(number), old.backends.get(number)) {
                (Some(known), Some(before)) => {
                    let comes_back = before.service.is_none() && backend.service.is_some();
                    if comes_back || old.attempts() != attempts {
                        known.judge_anew(memory, attempts);
                    }
                }
                _ => shared.0.push(Watched::new(memory, attempts)),
            }
        }
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(&self, shared: &'a Backends<M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        shared.0.iter().try_for_each(|backend| backend.keep(tx, kept))
    }

    /// All backends that have numbers, if there are others than the configuration's: service, backend, and the protocol.
    fn inherited(&self) -> Vec<u64> {
        let own = Self::new(self.config.clone());
        let known = self.known();
        let words = |((service, protocol), backend): &(Place, Endpoint)| named(*service, *backend, *protocol);
        if own.known() == known { Vec::new() } else { known.iter().flat_map(words).collect() }
    }

    fn inherit(&self, words: &[u64]) -> Option<Self> {
        let (all, odd) = words.as_chunks();
        let known: Option<Vec<(Place, Endpoint)>> = all.iter().copied().map(of_name).collect();
        let new = Self::numbered(self.config.clone(), &known.filter(|_| odd.is_empty())?);
        (new.backends.len() <= NUMBERS_MAX).then_some(new)
    }

    #[inline]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Passing> {
        let tuple = headers.five_tuple()?;
        let (source, destination, protocol) = (tuple.source(), tuple.destination(), tuple.protocol());
        let role = self.find((destination, protocol));
        if let Some(Role::Service(service)) = role {
            return Passing::new(headers, tuple, service, PacketKind::Request);
        }
        let (client, backend, kind) = match (self.find((source, protocol)), role) {
            (Some(Role::Backend(backend)), _) => (destination, backend, PacketKind::Answer { backend }),
            (_, Some(Role::Backend(backend))) => (source, backend, PacketKind::Direct { backend }),
            (Some(Role::Service(_)) | None, Some(Role::Service(_)) | None) => return None,
        };
        let service = self.backends[usize::from(backend)].service?;
        let address = self.services[usize::from(service)].address;
        Passing::new(headers, FiveTuple::between(client, address, protocol)?, service, kind)
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Passing) -> Step<Opened<Connection>, M> {
        // A record from the network may name a service or backend that doesn't exist.
        let (backend, name, otherwise) = match (meta.kind, self.services.get(usize::from(meta.service))) {
            (PacketKind::Request, Some(service)) => {
                let backend = self.choose(cx, service, &meta.seen.key, meta.asks().is_some())?;
                (backend, Name::Service, self.to_backend(backend))
            }
            (PacketKind::Direct { backend }, _) if usize::from(backend) < self.backends.len() => {
                (backend, Name::Direct, Verdict::FORWARD)
            }
            (PacketKind::Answer { .. }, _) => return Ok(Opened::Refused(self.to_client(meta.service))),
            (PacketKind::Request | PacketKind::Direct { .. }, _) => return Ok(Opened::Refused(Verdict::FORWARD)),
        };
        Ok(match self.begin(cx, meta, backend, name) {
            Some(connection) => Opened::Flow(connection),
            None => Opened::Refused(otherwise),
        })
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let is_of_it = match meta.kind {
            PacketKind::Request => (flow.name == Name::Service) & !self.is_removed(flow.backend),
            PacketKind::Answer { backend } => backend == flow.backend,
            PacketKind::Direct { backend } => (backend == flow.backend) & (flow.name == Name::Direct),
        };
        let is_plain = is_of_it & (flow.attempt == Attempt::None) & (flow.direct == 0);
        if !(is_plain && flow.tracked.flow(&meta.seen, &self.rules, cx)) {
            return self.judge(cx, flow, meta);
        }
        Ok(self.of_connection(flow, flow.name, meta))
    }

    /// An evicted connection has not failed.
    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Connection) -> Step<(), M> {
        if self.has_waited(flow, cx.now()) {
            self.failed(cx, flow)?;
        }
        self.ended(cx, flow)
    }

    /// Without room for its connection a packet goes where the look-up table says, as in Maglev.
    fn orphan<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Passing) -> Step<Verdict, M> {
        Ok(match (meta.kind, self.services.get(usize::from(meta.service))) {
            (PacketKind::Request, Some(service)) => {
                // Don't retry a backend: its answer would not be noticed.
                self.to_backend(self.choose(cx, service, &meta.seen.key, false)?)
            }
            (PacketKind::Answer { .. }, Some(_)) => self.to_client(meta.service),
            (PacketKind::Direct { .. }, _) | (_, None) => Verdict::FORWARD,
        })
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let rows = self.backends.iter().map(|Backend { endpoint, of: (address, _), service }| {
            let removed = if service.is_none() { " (removed)" } else { "" };
            let none = || Cell::Count(0);
            vec![address.to_string().into(), format!("{endpoint}{removed}").into(), none(), none(), none(), none()]
        });
        let mut report = Report {
            title: String::from("connections by backend: alive, and all that there were"),
            columns: vec!["service", "backend", "connections", "in all", "packets to it", "packets from it"],
            rows: rows.collect(),
        };
        flows.alive().for_each(|(_, connection)| count(&mut report, &connection, true));
        flows.lapsed().for_each(|connection| count(&mut report, &connection, false));
        for (backend, Watched { ended, .. }) in cx.shared.0.iter().enumerate() {
            let now = cx.now();
            let ended = ended.read(&mut cx.tx, now)?;
            add(&mut report, backend, 0, &ended);
        }
        Ok(Some(report))
    }

    fn remark(&self, _: &Fates<'_>) -> Option<String> {
        self.services.is_empty().then(|| {
            String::from(
                "there are no `services`, so every packet passes unchanged; write \
                 services = [{ address = \"192.0.2.1:80\", backends = [\"10.0.0.1:80\", \"10.0.0.2:80\"] }]",
            )
        })
    }
}

impl Speed<Self> for LoadBalancer {
    fn refuses(_: &Self, meta: &Passing) -> bool {
        matches!(meta.kind, PacketKind::Answer { .. })
    }
}

/// Adds a connection through the service to its backend's row.
fn count(report: &mut Report, connection: &Connection, is_alive: bool) {
    if connection.name == Name::Service {
        let mut totals = Totals::default();
        totals.add(connection);
        add(report, connection.backend.into(), u64::from(is_alive), &totals);
    }
}

fn add(report: &mut Report, backend: usize, alive: u64, totals: &Totals) {
    let Some(row) = report.rows.get_mut(backend) else { return };
    let more = [alive, totals.connections, totals.packets[0], totals.packets[1]];
    for (cell, more) in row.iter_mut().skip(2).zip(more) {
        *cell = Cell::Count(cell.number().unwrap_or(0) + more);
    }
}

#[cfg(test)]
mod tests;
