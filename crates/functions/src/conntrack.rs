//! Connection tracking: tracks every connection through its states and drops packets that belong to no valid connection.
//!
//! It decides as the Linux tracker does (`nf_conntrack`), see [`tracking`](crate::tracking). Behaviour and choices: `docs/conntrack.md`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use alloc::{format, vec};

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, FlowList, IcmpErrors, NetworkFunction, Opened, PacketSet, Plain, Reason, Report,
    Sharing, Sizing, Step, Verdict, counted, grouped,
};
use packet::{Decided, FiveTuple, Headers, Nanos, Taken};
use serde::Deserialize;

use crate::config::{Count, FlowCount};
use crate::list::Catalogued;
use crate::top::heaviest;
use crate::tracking::rules::{Retransmissions, TIMEOUT_KEYS, join_keys};
use crate::tracking::{Cause, Connection, Observation, Outcome, Rules, Timeouts, Unobserved};

/// The `conntrack` function.
#[derive(Clone, Debug)]
pub struct Conntrack {
    rules: Rules,
    invalid: Invalid,
    sizing: Sizing,
    list: usize,
}

/// The configuration of [`Conntrack`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What to do with invalid packets.
    pub invalid: Invalid,
    /// A segment with only ACK may pick up a TCP connection midstream.
    pub loose: bool,
    /// Forward TCP segments outside the windows, except resets before the window.
    pub liberal: bool,
    /// Forward TCP resets before the window, too.
    pub ignore_invalid_rst: bool,
    /// Number of repetitions of one TCP segment from which `timeouts.tcp_retransmitted` applies.
    pub max_retransmissions: Retransmissions,
    /// IPv4 connections.
    pub flows: FlowCount,
    /// IPv6 connections.
    pub flows_v6: FlowCount,
    /// Number of connections that the report lists one by one; 0 counts them by state instead.
    pub list: Listed,
    /// Idle timeouts.
    pub timeouts: Timeouts,
}

/// What to do with invalid packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Invalid {
    /// Drop them, with the cause as the reason.
    Drop,
    /// Forward them; they change nothing.
    Forward,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            invalid: Invalid::Drop,
            loose: true,
            liberal: false,
            ignore_invalid_rst: false,
            max_retransmissions: Retransmissions::new(3),
            flows: FlowCount::new(1_048_576),
            flows_v6: FlowCount::new(65_536),
            list: Listed::new(0),
            timeouts: Timeouts::default(),
        }
    }
}

const KEYS: [ConfigKey; 23] = join_keys(
    &[
        ConfigKey {
            name: "invalid",
            default: "\"drop\"",
            help: "invalid packets: \"drop\", or \"forward\" for a pure tracker",
        },
        ConfigKey {
            name: "loose",
            default: "true",
            help: "a segment with only ACK may pick up a TCP connection midstream",
        },
        ConfigKey {
            name: "liberal",
            default: "false",
            help: "forward TCP segments outside the windows, except resets before the window",
        },
        ConfigKey { name: "ignore_invalid_rst", default: "false", help: "forward TCP resets before the window, too" },
        ConfigKey {
            name: "max_retransmissions",
            default: "3",
            help: "number of repetitions of one TCP segment from which timeouts.tcp_retransmitted applies, 1 to 255",
        },
        ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 connections, 1 to 268435456" },
        ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 connections, 1 to 268435456" },
        ConfigKey {
            name: "list",
            default: "0",
            help: "number of connections that the report lists one by one, instead of counts by state; 0 to 1000000",
        },
    ],
    &TIMEOUT_KEYS,
);

impl Conntrack {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut rules = Rules::strict(&config.timeouts, config.max_retransmissions);
        rules.tcp.loose = config.loose;
        rules.tcp.liberal = config.liberal;
        rules.tcp.ignore_invalid_rst = config.ignore_invalid_rst;
        let sizing = Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize };
        Self { rules, invalid: config.invalid, sizing, list: config.list.get() as usize }
    }

    /// Decides on a packet off the fast path. The caller builds the verdict and updates the context: passed through a call, both would
    /// live in memory for all packets.
    #[inline(never)]
    fn judge(&self, now: Nanos, flow: &mut Connection, meta: &Observation) -> Result<Outcome, Cause> {
        if let Some(idle) = flow.flow_on(meta, &self.rules) {
            return Ok(Outcome::Valid(idle));
        }
        match flow.step(meta, &self.rules, now) {
            Outcome::Reopens => flow.reopen(meta, &self.rules, now),
            outcome => Ok(outcome),
        }
    }

    #[inline(always)]
    const fn invalid(&self, cause: Cause) -> Verdict {
        match self.invalid {
            Invalid::Drop => Verdict::Drop(Reason::own(cause as u8)),
            Invalid::Forward => Verdict::forward(),
        }
    }
}

impl Catalogued for Conntrack {
    type Config = Config;

    const CRAMPED: &'static str = "";

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for Conntrack {
    type Meta = Observation;
    type Flow = Connection;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "conntrack",
        summary: "tracks TCP, UDP and ICMP connections through their states and drops invalid packets",
        state: "the TCP state and the windows of both directions; which sides have sent",
        sharing: Sharing::Nothing,
        keys: &KEYS,
        drop_reasons: &Cause::NAMES,
        recipes: &[],
    };
    /// Connections go on.
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
            Unobserved::NotIp | Unobserved::Unreadable | Unobserved::Untracked => Verdict::FORWARD,
            Unobserved::Fragment => Verdict::Drop(Reason::FRAGMENT),
            Unobserved::Invalid(cause) => self.invalid(cause),
        }
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Observation) -> Step<Opened<Connection>, M> {
        Ok(match Connection::open(meta, &self.rules, cx.now()) {
            Ok(connection) => Opened::Flow(connection),
            Err(cause) => Opened::Refused(self.invalid(cause)),
        })
    }

    #[inline(always)]
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
        Ok(match judged.and_then(|outcome| outcome.carry_out(flow, cx)) {
            Ok(()) => Verdict::forward(),
            Err(cause) => self.invalid(cause),
        })
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        Ok(Some(connection_report(&mut flows.alive(), self.list)))
    }
}

/// The range of `list`.
pub(crate) type Listed = Count<0, 1_000_000>;

/// Builds the report: the first `list` connections, or the number of connections by protocol and state if `list` is 0.
pub(crate) fn connection_report(flows: &mut dyn Iterator<Item = (FiveTuple, Connection)>, list: usize) -> Report {
    if list == 0 {
        return count_by_state(flows);
    }
    let mut all = 0_u64;
    let mut flows = flows.inspect(|_| all += 1);
    let first = heaviest(&mut flows, list, |_| 1);
    let row = |(tuple, connection): &(FiveTuple, Connection)| {
        let (protocol, state) = connection.names();
        let tuple = if connection.opener_first() { *tuple } else { tuple.reversed() };
        let assured = if connection.assured() { "yes" } else { "no" };
        let [source, destination] = [tuple.source(), tuple.destination()].map(|end| end.to_string());
        vec![protocol.into(), state.into(), source.into(), destination.into(), assured.into()]
    };
    let rows: Vec<_> = first.iter().map(row).collect();
    let title = match all > rows.len() as u64 {
        true => format!(
            "{} of {}; `--set list=` shows more",
            grouped(rows.len() as u64),
            counted(all, "connection", "connections")
        ),
        false => counted(all, "connection", "connections"),
    };
    Report { title, columns: vec!["protocol", "state", "opened by", "to", "assured"], rows }
}

/// Counts connections by protocol and state.
fn count_by_state(flows: &mut dyn Iterator<Item = (FiveTuple, Connection)>) -> Report {
    let mut counts: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (_, connection) in flows {
        let (all, assured) = counts.entry(connection.names()).or_default();
        *all += 1;
        *assured += u64::from(connection.assured());
    }
    let total: u64 = counts.values().map(|(all, _)| all).sum();
    Report {
        title: match total {
            0 => "connections by protocol and state".into(),
            _ => format!("{} by protocol and state", counted(total, "connection", "connections")),
        },
        columns: vec!["protocol", "state", "connections", "assured"],
        rows: (counts.iter())
            .map(|((protocol, state), (all, assured))| {
                vec![(*protocol).into(), (*state).into(), (*all).into(), (*assured).into()]
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
