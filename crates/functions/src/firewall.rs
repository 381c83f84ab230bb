//! A stateful firewall: inside hosts may open connections; outside hosts may only answer, and open listed services.
//!
//! Connections are tracked as `conntrack` tracks them, see [`tracking`](crate::tracking). Behaviour and choices: `docs/firewall.md`.

mod config;

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use memory::Memory;
use nf::{
    Context, Description, FlowList, IcmpErrors, NetworkFunction, Opened, PacketSet, Plain, Reason, Reply, Report,
    Sharing, Sizing, Step, Verdict,
};
use packet::{Decided, Headers, Nanos, Taken};

use self::config::KEYS;
use crate::config::Prefix;
use crate::conntrack::connection_report;
use crate::list::Catalogued;
use crate::tracking::{Cause, Connection, Direction, Event, Observation, Outcome, Rules, Unobserved, tcp};

pub use self::config::{Config, NonIp, Service};

/// The `firewall` function.
#[derive(Clone, Debug)]
pub struct Firewall {
    rules: Rules,
    inside: Vec<Prefix>,
    inside_interfaces: Vec<u16>,
    allow: Vec<Service>,
    reject: bool,
    icmp_errors: bool,
    non_ip: NonIp,
    unreadable: NonIp,
    list: usize,
    sizing: Sizing,
}

/// The drop reasons: the tracker's causes, then the firewall's own.
const DROP_REASONS: [&str; Cause::NAMES.len() + 3] = {
    let mut names = [""; Cause::NAMES.len() + 3];
    let mut index = 0;
    while index < Cause::NAMES.len() {
        names[index] = Cause::NAMES[index];
        index += 1;
    }
    names[index] = "not-allowed";
    names[index + 1] = "icmp-error";
    names[index + 2] = "non-ip";
    names
};

const NOT_ALLOWED: Reason = Reason::own(Cause::NAMES.len() as u8);
const ICMP_ERROR: Reason = Reason::own(Cause::NAMES.len() as u8 + 1);
const NON_IP: Reason = Reason::own(Cause::NAMES.len() as u8 + 2);

impl Firewall {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut rules = Rules::strict(&config.timeouts, config.max_retransmissions);
        rules.tcp.loose = config.loose;
        Self {
            rules,
            inside: config.inside,
            inside_interfaces: config.inside_interfaces,
            allow: config.allow,
            reject: config.reject,
            icmp_errors: config.icmp_errors,
            non_ip: config.non_ip,
            unreadable: config.unreadable,
            list: config.list.get() as usize,
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
        }
    }

    /// Decides on a packet off the fast path. The caller builds the verdict and updates the context: passed through a call, both would
    /// live in memory for all packets.
    #[inline(never)]
    fn judge(&self, now: Nanos, flow: &mut Connection, meta: &Observation) -> Result<Outcome, Refusal> {
        if let Some(idle) = flow.flow_on(meta, &self.rules) {
            return Ok(Outcome::Valid(idle));
        }
        // A query from the answering side is a new query: it only shares the identifier.
        let asks = matches!(meta.event, Event::Query(_)) && flow.direction(meta) == Direction::Reply;
        if asks && !self.may_open(meta) {
            return Err(self.refusal(meta, NOT_ALLOWED));
        }
        match flow.step(meta, &self.rules, now) {
            Outcome::Reopens if !self.may_open(meta) => Err(self.refusal(meta, NOT_ALLOWED)),
            Outcome::Reopens => flow.reopen(meta, &self.rules, now).map_err(invalid),
            Outcome::Related if !self.icmp_errors => Err(Refusal::Drop(ICMP_ERROR)),
            outcome => Ok(outcome),
        }
    }

    /// Returns true if the packet may open a connection.
    fn may_open(&self, meta: &Observation) -> bool {
        let tuple = meta.tuple();
        let from_inside = if self.inside_interfaces.is_empty() {
            self.is_inside(tuple.source().address)
        } else {
            self.inside_interfaces.contains(&meta.interface)
        };
        from_inside
            || (self.is_inside(tuple.destination().address)
                && self.allow.iter().any(|service| service.takes(&meta.event, &tuple)))
    }

    fn is_inside(&self, address: IpAddr) -> bool {
        self.inside.iter().any(|prefix| prefix.contains(address))
    }

    /// Returns how a packet that may not open a connection is refused. A reset is never answered by a reset.
    fn refusal(&self, meta: &Observation, reason: Reason) -> Refusal {
        match meta.event {
            Event::Tcp(segment) if self.reject && segment.event() != tcp::Event::Rst => Refusal::Reset,
            Event::Tcp(_) | Event::Udp | Event::Query(_) | Event::Reply(_) | Event::Error | Event::Other => {
                Refusal::Drop(reason)
            }
        }
    }
}

/// How a packet is refused.
enum Refusal {
    Drop(Reason),
    Reset,
}

impl Refusal {
    #[inline(always)]
    const fn verdict(&self) -> Verdict {
        match self {
            Self::Drop(reason) => Verdict::Drop(*reason),
            Self::Reset => Verdict::Reply(Reply::TcpReset),
        }
    }
}

const fn invalid(cause: Cause) -> Refusal {
    Refusal::Drop(reason_of(cause))
}

const fn reason_of(cause: Cause) -> Reason {
    Reason::own(cause as u8)
}

impl Catalogued for Firewall {
    type Config = Config;

    const CRAMPED: &'static str = r#"
reject = true
[[allow]]
proto = "tcp"
port = 22
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for Firewall {
    type Meta = Observation;
    type Flow = Connection;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "firewall",
        summary: "lets inside hosts open connections and outside hosts answer them; outside may also open listed services",
        state: "the connection, as conntrack tracks it",
        sharing: Sharing::Nothing,
        keys: &KEYS,
        drop_reasons: &DROP_REASONS,
        recipes: &[],
    };
    /// Connections go on, also those that the new rules would not let anybody open.
    fn succeed(self, _old: &Self) -> Result<Self, String> {
        Ok(self)
    }

    const DECIDES: bool = true;

    fn decided(&self, flow: &Connection) -> Option<Decided> {
        flow.decided(&self.rules)
    }

    fn taken(&self, flow: &mut Connection, taken: &Taken) {
        flow.taken(taken, &self.rules);
    }

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn icmp_errors(&self) -> IcmpErrors {
        IcmpErrors::Quoted
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Observation> {
        Observation::of(headers)
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        match Unobserved::of(headers) {
            Unobserved::NotIp => match self.non_ip {
                NonIp::Forward => Verdict::FORWARD,
                NonIp::Drop => Verdict::Drop(NON_IP),
            },
            Unobserved::Unreadable => match self.unreadable {
                NonIp::Forward => Verdict::FORWARD,
                NonIp::Drop => Verdict::Drop(Reason::UNREADABLE),
            },
            Unobserved::Untracked => Verdict::FORWARD,
            Unobserved::Fragment => Verdict::Drop(Reason::FRAGMENT),
            Unobserved::Invalid(cause) => Verdict::Drop(reason_of(cause)),
        }
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Observation) -> Step<Opened<Connection>, M> {
        Ok(match Connection::open(meta, &self.rules, cx.now()) {
            Err(cause) => Opened::Refused(self.refusal(meta, reason_of(cause)).verdict()),
            Ok(_) if !self.may_open(meta) => Opened::Refused(self.refusal(meta, NOT_ALLOWED).verdict()),
            Ok(connection) => Opened::Flow(connection),
        })
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Observation,
    ) -> Step<Verdict, M> {
        if flow.flow(meta, &self.rules, cx) {
            return Ok(Verdict::forward());
        }
        let judged = self.judge(cx.now(), flow, meta);
        Ok(match judged.and_then(|outcome| outcome.carry_out(flow, cx).map_err(invalid)) {
            Ok(()) => Verdict::forward(),
            Err(refusal) => refusal.verdict(),
        })
    }

    fn ports(&self) -> Vec<u16> {
        self.inside_interfaces.clone()
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        Ok(Some(connection_report(&mut flows.alive(), self.list)))
    }
}

#[cfg(test)]
mod tests;
