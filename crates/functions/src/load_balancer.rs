//! Spreads connections to a service over its backends by Maglev's consistent hashing (NSDI '16), past those that don't
//! answer. Behaviour and choices: `docs/load-balancer.md`.

mod config;
mod connection;
mod health;
mod keys;
mod maglev;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use memory::{Memory, Vector};
use nf::{
    Context, Description, Fates, Fingerprint, NetworkFunction, Opened, PacketSet, Recipe, Report, Sharing, Sizing,
    Step, Verdict,
};
use packet::{Endpoint, Family, FiveTuple, FlowKey, Headers, Key, Rewrite};

pub use self::config::Config;
use self::connection::Phase;
pub use self::connection::{Connection, Passing};
use self::connection::{Signal, Way};
pub use self::health::Health;
use self::maglev::Table;

/// The balancer.
#[derive(Clone, Debug)]
pub struct LoadBalancer {
    config: Config,
    services: Box<[Service]>,
    /// The backends of all services, those of one side by side.
    backends: Box<[Backend]>,
    /// Services by address and protocol, in order.
    by_address: Box<[(Name, u16)]>,
    /// Backends by address and protocol, in order.
    by_backend: Box<[(Name, u16)]>,
}

/// An endpoint and the protocol that it speaks.
type Name = (Endpoint, u8);

#[derive(Clone, Debug)]
struct Service {
    address: Endpoint,
    table: Table,
    /// Its first backend.
    first: usize,
    count: usize,
}

#[derive(Clone, Debug)]
struct Backend {
    endpoint: Endpoint,
    service: u16,
}

/// How often a new connection whose backend is down draws another, before it asks one after the other.
const DRAWS: u64 = 8;

impl LoadBalancer {
    /// A balancer of this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let (mut services, mut backends) = (Vec::new(), Vec::new());
        let (mut by_address, mut by_backend) = (Vec::new(), Vec::new());
        for (service, number) in config.fields.services.iter().zip(0..) {
            let names: Vec<Endpoint> = service.backends.iter().map(|address| address.0).collect();
            let table = Table::new(&names, config.fields.table_size.0 as usize);
            services.push(Service { address: service.address.0, table, first: backends.len(), count: names.len() });
            by_address.push(((service.address.0, service.protocol.number()), number));
            for endpoint in names {
                by_backend.push(((endpoint, service.protocol.number()), backends.len() as u16));
                backends.push(Backend { endpoint, service: number });
            }
        }
        by_address.sort_unstable();
        by_backend.sort_unstable();
        let [by_address, by_backend] = [by_address, by_backend].map(Vec::into_boxed_slice);
        Self { config, services: services.into(), backends: backends.into(), by_address, by_backend }
    }

    /// The backend for a new connection: the table's, or where that is down the one that another draw gives. So those that are up
    /// keep what is theirs, and share what was that one's.
    fn choose<M: Memory>(&self, cx: &mut Context<'_, Self, M>, service: &Service, tuple: &FiveTuple) -> Step<u16, M> {
        let seed = self.config.fields.seed.get();
        let draw = |nth| service.first + service.table.look_up(hash(tuple, seed.wrapping_add(nth)));
        let first = draw(0);
        if !self.is_judged(tuple) {
            return Ok(first as u16);
        }
        let others =
            (1..service.count).map(|further| service.first + (first - service.first + further) % service.count);
        for backend in (0..DRAWS).map(draw).chain(others) {
            if self.takes(cx, backend)? {
                return Ok(backend as u16);
            }
        }
        // Where all are down, none is worse than another.
        Ok(first as u16)
    }

    fn to_backend(&self, backend: u16) -> Verdict {
        let dst = self.backends.get(usize::from(backend)).map(|backend| backend.endpoint);
        Verdict::rewritten(Rewrite { dst, ..Rewrite::NONE })
    }
}

fn hash(tuple: &FiveTuple, seed: u64) -> u64 {
    match tuple.family() {
        Family::V4(key) => key.hash(seed),
        Family::V6(key) => key.hash(seed),
    }
}

fn find(names: &[(Name, u16)], name: Name) -> Option<u16> {
    names.binary_search_by_key(&name, |(name, _)| *name).ok().map(|at| names[at].1)
}

impl NetworkFunction for LoadBalancer {
    type Meta = Passing;
    type Flow = Connection;
    type Shared<M: Memory> = M::Vector<Health>;

    const DESCRIPTION: Description = Description {
        name: "load-balancer",
        summary: "spreads connections to a service over its backends by consistent hashing (Maglev), past those that are down",
        state: "the backend of the connection, and how far that is",
        sharing: Sharing::Shares("what is known of the backends' health"),
        keys: keys::KEYS,
        drop_reasons: &[],
    };

    const RECIPES: &'static [Recipe] = keys::RECIPES;

    fn packet_set(&self) -> PacketSet {
        PacketSet::Connection
    }

    fn sizing(&self) -> Sizing {
        let fields = &self.config.fields;
        Sizing { flows: fields.flows.get() as usize, flows_v6: fields.flows_v6.get() as usize }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<Health> {
        memory.vector(self.backends.len(), Health::default())
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a M::Vector<Health>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        for backend in 0..shared.len() {
            let Health { failures, until } = shared.read(tx, backend)?;
            fingerprint.add(failures.into());
            fingerprint.add(until.0);
        }
        Ok(())
    }

    #[inline]
    fn meta(&self, headers: &Headers, _payload: &[u8]) -> Option<Passing> {
        let signal = Signal::of(headers)?;
        let tuple = headers.five_tuple()?;
        if let Some(service) = find(&self.by_address, (tuple.destination(), tuple.protocol())) {
            return Some(Passing { tuple, service, way: Way::Request, signal });
        }
        let backend = find(&self.by_backend, (tuple.source(), tuple.protocol()))?;
        let service = self.backends[usize::from(backend)].service;
        let address = self.services[usize::from(service)].address;
        let tuple = FiveTuple::between(tuple.destination(), address, tuple.protocol())?;
        Some(Passing { tuple, service, way: Way::Answer { backend }, signal })
    }

    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Passing) -> Step<Opened<Connection>, M> {
        // A record that came over a wire may name what there is not.
        let Some(service) = self.services.get(usize::from(meta.service)).filter(|_| meta.way == Way::Request) else {
            // Of no connection that came this way: someone talks to the backend directly.
            return Ok(Opened::Refused(Verdict::forward()));
        };
        let backend = self.choose(cx, service, &meta.tuple)?;
        let waits = meta.signal == Signal::Syn && self.is_judged(&meta.tuple);
        let phase = if waits { Phase::Waiting } else { Phase::Open };
        // Repetitions don't put this off.
        cx.expire_after(self.config.fields.answer_timeout.nanos());
        Ok(Opened::Flow(Connection { backend, phase, since: cx.now() }))
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let Some(service) = self.services.get(usize::from(meta.service)) else { return Ok(Verdict::forward()) };
        let from_backend = match meta.way {
            // Its port may be the one that the client talks to another backend from, directly.
            Way::Answer { backend } if backend != flow.backend => return Ok(Verdict::forward()),
            Way::Answer { .. } => true,
            Way::Request => false,
        };
        if flow.phase == Phase::Closing && !from_backend && meta.signal == Signal::Syn {
            flow.backend = self.choose(cx, service, &meta.tuple)?;
            flow.since = cx.now();
            flow.phase = if self.is_judged(&meta.tuple) { Phase::Waiting } else { Phase::Open };
            cx.expire_after(self.config.fields.answer_timeout.nanos());
        }
        let before = flow.phase;
        flow.phase = before.after(meta.signal, from_backend);
        if before == Phase::Waiting && matches!(flow.phase, Phase::Answered | Phase::Open) {
            self.answered(cx, flow.backend)?;
        }
        let fields = &self.config.fields;
        match flow.phase {
            Phase::Waiting => {}
            Phase::Refused => cx.close(),
            Phase::Answered | Phase::Closing => cx.expire_after(fields.transitory_timeout.nanos()),
            Phase::Open => cx.expire_after(fields.idle_timeout.nanos()),
        }
        // Whoever has had an answer and has spoken again is real.
        if flow.phase == Phase::Open && (from_backend || before != Phase::Open) {
            cx.assure();
        }
        Ok(match from_backend {
            true => Verdict::rewritten(Rewrite { src: Some(service.address), ..Rewrite::NONE }),
            false => self.to_backend(flow.backend),
        })
    }

    fn refuses(&self, meta: &Passing) -> bool {
        meta.way != Way::Request
    }

    /// A connection that had to make room has not failed.
    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Connection) -> Step<(), M> {
        let deadline = flow.since + self.config.fields.answer_timeout.nanos();
        match flow.phase {
            Phase::Refused => self.failed(cx, flow.backend),
            Phase::Waiting if deadline <= cx.now() => self.failed(cx, flow.backend),
            Phase::Waiting | Phase::Answered | Phase::Open | Phase::Closing => Ok(()),
        }
    }

    /// Without room for its connection a packet goes where the table says, as Maglev does it.
    fn orphan<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Passing) -> Step<Verdict, M> {
        let Some(service) = self.services.get(usize::from(meta.service)) else { return Ok(Verdict::forward()) };
        Ok(self.to_backend(self.choose(cx, service, &meta.tuple)?))
    }

    fn report(&self, flows: &mut dyn Iterator<Item = (FiveTuple, Connection)>) -> Option<Report> {
        let mut alive = vec![0_u64; self.backends.len()];
        for (_, Connection { backend, .. }) in flows {
            alive[usize::from(backend)] += 1;
        }
        let row = |(Backend { endpoint, service }, flows): (&Backend, &u64)| {
            let address = self.services[usize::from(*service)].address;
            vec![address.to_string().into(), endpoint.to_string().into(), (*flows).into()]
        };
        Some(Report {
            title: String::from("connections alive, by backend"),
            columns: vec!["service", "backend", "connections"],
            rows: self.backends.iter().zip(&alive).map(row).collect(),
        })
    }

    fn remark(&self, _: &Fates<'_>) -> Option<String> {
        self.services.is_empty().then(|| {
            String::from(
                "nobody is balanced, as there are no `services`, and every packet passes unchanged; write \
                 services = [{ address = \"192.0.2.1:80\", backends = [\"10.0.0.1:80\", \"10.0.0.2:80\"] }]",
            )
        })
    }
}

#[cfg(test)]
mod tests;
