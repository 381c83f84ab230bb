//! Runs a program of the extended-finite-state-machine stage. Language, meaning and choices: `crates/functions/docs/efsm.md`.
//!
//! Where all stages with contexts have one key, the contexts of a flow are that flow's state, and packet sets share nothing. Otherwise all
//! contexts and global registers are state that packet sets share.

mod contexts;
mod flow;
mod meta;
mod place;
mod succession;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use efsm::{ContextKey, Machine, Outcome, Packet, Store};
use memory::Memory;
use nf::{
    ConfigKey, Context, Count, Description, Fates, Fingerprint, FlowList, Kept, NetworkFunction, Opened, PacketSet,
    PortId, Reason, Report, Sharing, Sizing, Speed, Step, Transform, Verdict,
};
use packet::{Headers, Nanos, Rewrite};
use serde::Deserialize;

use crate::config::FlowCount;
use crate::list::Catalogued;

use self::contexts::{Contexts, First, SharedContexts};
use self::flow::{Counting, FlowContexts, Layout};
use self::meta::EfsmMeta;
use self::place::{Place, SharedFor};

/// The `efsm` function.
#[derive(Clone, Debug)]
pub struct Efsm {
    machine: Arc<Machine>,
    first: Arc<First>,
    place: Place,
    listing: Listing,
    flows: usize,
    flows_v6: usize,
}

/// The configuration of [`Efsm`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The program's text.
    pub program: Program,
    /// The kind of rows in the report at the end of a run.
    pub report: Listing,
    /// Maximum number of flows without an IPv6 address, if the contexts are the flows' own.
    pub flows: FlowCount,
    /// Maximum number of flows with an IPv6 address.
    pub flows_v6: FlowCount,
}

impl Default for Config {
    fn default() -> Self {
        let (program, report) = (Program::default(), Listing::default());
        Self { program, report, flows: FlowCount::new(1_048_576), flows_v6: FlowCount::new(65_536) }
    }
}

/// The kind of rows in the report at the end of a run: rows of the program, or contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listing {
    /// The rows, with how many packets matched each.
    #[default]
    Rows,
    /// The contexts at the end.
    Contexts,
}

/// A program that was compiled.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Program(Arc<Machine>);

/// The program that runs if none is given.
const FORWARD: &str = "stage forward\n  on * : out across\n";

impl Default for Program {
    fn default() -> Self {
        Self(Arc::new(Machine::compile(FORWARD).expect("it is a program")))
    }
}

impl TryFrom<String> for Program {
    type Error = String;

    /// Names the first errors, a line each. No text is no error.
    fn try_from(text: String) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Machine::compile(&text).map(|machine| Self(Arc::new(machine))).map_err(|errors| {
            let shown: Vec<String> = errors.iter().take(10).map(ToString::to_string).collect();
            let more = errors.len() - shown.len();
            let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
            shown.join("\n") + &more
        })
    }
}

const DROPPED: Reason = Reason::own(0);
const MISSED: Reason = Reason::own(1);
const KEYLESS: Reason = Reason::own(2);

impl Efsm {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let Program(machine) = &config.program;
        Self {
            place: Place::of(machine),
            first: Arc::new(First::of(machine)),
            machine: Arc::clone(machine),
            listing: config.report,
            flows: config.flows.get() as usize,
            flows_v6: config.flows_v6.get() as usize,
        }
    }

    /// The function that runs this program, with tables of the default size.
    #[must_use]
    pub fn of(machine: Machine) -> Self {
        Self::new(&Config { program: Program(Arc::new(machine)), ..Config::default() })
    }

    /// The program.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Makes a packet from a template.
    fn make(&self, number: u64, headers: &Headers, frame: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
        let (_, template) = &self.machine.templates[number as usize];
        out.resize(usize::from(headers.network_offset) + template.len(), 0);
        packet::from_template(frame, headers, template, out).map(|_| ()).ok_or(Reason::UNANSWERABLE)
    }

    /// The contexts as a packet would find them now, by stage and key.
    fn contexts<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Report, M> {
        let now = cx.now();
        let mut found = match &self.place {
            Place::Nowhere => Vec::new(),
            Place::Flow(_, _, layout) => {
                flows.alive().flat_map(|(key, flow)| flow.contexts(key, layout, &self.machine)).collect()
            }
            Place::Shared(_) => cx.shared.all(&mut cx.tx, &self.first)?,
        };
        found.sort_by_key(|(stage, key, _)| (*stage, *key));
        let mut rows = Vec::new();
        for (number, key, context) in found {
            let stage = &self.machine.stages[number];
            let (Some(keys), Some(context)) = (&stage.keys, context.at(now)) else { continue };
            let state = stage.state_name(context.state).map_or_else(|| context.state.to_string(), ToString::to_string);
            let ends = match context.timeouts.end() {
                Nanos::NEVER => "never".into(),
                end => end.to_string(),
            };
            let (key, registers) =
                (keys.lookup.show(&key, &self.machine.meta), stage.show_registers(&context.registers));
            let cells = [stage.name.clone(), key, state, registers, ends];
            rows.push(cells.into_iter().map(nf::Cell::from).collect());
        }
        let columns = vec!["stage", "key", "state", "registers", "until"];
        Ok(Report { title: "contexts".into(), columns, rows })
    }

    /// Runs the packet through the stages.
    #[inline(always)]
    fn run<S: Store>(&self, packet: &Packet, now: Nanos, store: &mut S) -> Result<Verdict, S::Error> {
        if !self.machine.rewrites {
            return self.machine.read(packet, now, store).map(|outcome| verdict(outcome, Rewrite::NONE));
        }
        let mut changed = *packet;
        let outcome = self.machine.run(&mut changed, now, store)?;
        Ok(verdict(outcome, changed.rewrite(packet)))
    }
}

#[inline(always)]
fn verdict(outcome: Outcome, rewrite: Rewrite) -> Verdict {
    match outcome {
        Outcome::Out(port) if rewrite == Rewrite::NONE => Verdict::Forward(PortId(port)),
        Outcome::Out(port) => Verdict::Rewrite { port: PortId(port), rewrite },
        Outcome::Copied(port, copy) => {
            let Rewrite { src, dst, macs, .. } = rewrite;
            Verdict::Copy { port: PortId(port), copy: PortId(copy), src, dst, macs }
        }
        Outcome::Made(port, template) => Verdict::Transform { port: PortId(port), work: template.into() },
        Outcome::Dropped => Verdict::Drop(DROPPED),
        Outcome::Missed(_) => Verdict::Drop(MISSED),
        Outcome::Keyless(_) => Verdict::Drop(KEYLESS),
    }
}

impl Catalogued for Efsm {
    type Config = Config;

    const CRAMPED: &'static str = r#"
flows = 3
flows_v6 = 2
program = """
stage count
  key biflow ip.src ip.dst l4.src l4.dst
  states new=0 known=1 shut=2
  on new   tcp.flags=0x02/0x12 : state known idle 2s; r0 = 1; out across
  on new                       : out across
  on known tcp.flags=0x04/0x04 : state shut hard 3s -> new; copy back; out across
  on known r0>=4               : drop
  on known                     : state known idle 2s; r0 = r0 + 1; out across
  on shut                      : drop
"""
"#;

    /// Contexts of several keys, global registers, a cross-flow update, timeouts, a template.
    const SMALL: &'static str = r#"
program = """
meta turn = bits 0..7
template gone = 45000000 00000000 40110000 00000000 00000000 0000 0000 0000 0000 676f6e65
stage balance
  key ip.src
  contexts 128
  global next = 0, seen = 0
  on 0 ip.proto=17 : state 1 idle 2s -> 2; turn = next; next = next + 1; seen = seen + 1; goto answers
  on 0             : turn = 0; seen = seen + 1; goto answers
  on 1             : turn = 1; seen = seen + 1; goto answers
  on 2             : state 0; seen = seen + 1; goto answers
stage answers
  lookup ip.src ip.proto l4.src
  update ip.dst ip.proto l4.dst
  contexts 256
  on 0 turn=0/1 : state 1 idle 5s hard 20s; r0 = ewma(r0, len, 2); r1 = ip.src; goto size
  on 0          : state 1 hard 20s; goto size
  on 1 len>r0   : r2 = r2 + 1; goto size
  on 1          : goto size
stage size
  on * len<=64   : out across
  on * ip.ttl<2  : drop
  on * ip.ttl=2  : make gone; out back
  on *           : l4.src = 4000; out across
"""
"#;

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for Efsm {
    type Meta = EfsmMeta;
    type Flow = FlowContexts;
    type Shared<M: Memory> = Contexts<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "efsm",
        summary: "runs a program of stages with tables, contexts and registers (the Open Packet Processor)",
        state: "the contexts of its stages: state labels, registers and timeouts",
        sharing: Sharing::Shares("contexts of several keys, or global registers, as the program says"),
        keys: &[
            ConfigKey {
                name: "program",
                default: "\"\"",
                help: "the program's text, which --program FILE reads from a file; without one everything is forwarded",
            },
            ConfigKey {
                name: "report",
                default: "\"rows\"",
                help: "the table at the end: the rows with their counters (rows), or the contexts that there are then (contexts)",
            },
            ConfigKey {
                name: "flows",
                default: "1048576",
                help: "maximum number of flows without an IPv6 address, if contexts are the flows' own",
            },
            ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of flows with an IPv6 address" },
        ],
        drop_reasons: &["row", "no-row", "no-key"],
        recipes: &[],
    };

    const COUNTS: bool = true;

    const TRANSFORM: Option<Transform<Self>> =
        Some(Transform { growth: packet::TEMPLATE_MAX as u32, frame: Self::make });

    fn growth(&self) -> u32 {
        self.machine.templates.iter().map(|(_, bytes)| bytes.len() as u32).max().unwrap_or(0)
    }

    fn counters(&self) -> usize {
        self.machine.rows
    }

    fn description(&self) -> Description {
        let sharing = match self.place {
            Place::Shared(why) => Sharing::Shares(why.what()),
            Place::Flow(..) | Place::Nowhere => Sharing::Nothing,
        };
        Description { sharing, ..Self::DESCRIPTION }
    }

    fn packet_set(&self) -> PacketSet {
        match self.place {
            Place::Flow(set, ..) => set,
            Place::Nowhere | Place::Shared(_) => PacketSet::SourceDestination,
        }
    }

    fn sizing(&self) -> Sizing {
        match self.place {
            Place::Flow(..) => Sizing { flows: self.flows, flows_v6: self.flows_v6 },
            Place::Nowhere | Place::Shared(_) => Sizing { flows: 1, flows_v6: 1 },
        }
    }

    fn shared<M: Memory>(&self, memory: &M) -> Contexts<M> {
        Contexts::new(&self.machine, memory, matches!(self.place, Place::Shared(_)))
    }

    fn succeed(self, old: &Self) -> Result<Self, String> {
        self.after(old)
    }

    fn adopt<M: Memory>(&self, old: &Self, shared: &mut Contexts<M>, memory: &M) {
        shared.adopt(&self.machine, &old.machine, memory);
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a Contexts<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(&self, shared: &'a Contexts<M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        shared.keep(tx, kept)
    }

    /// Why packet sets share contexts, if the program by itself would not, or for another reason.
    fn inherited(&self) -> Vec<u64> {
        match self.place {
            Place::Shared(why) if self.place != Place::of(&self.machine) => {
                SharedFor::ALL.iter().position(|other| *other == why).map(|at| at as u64).into_iter().collect()
            }
            Place::Shared(_) | Place::Flow(..) | Place::Nowhere => Vec::new(),
        }
    }

    fn inherit(&self, words: &[u64]) -> Option<Self> {
        let &[number] = words else { return None };
        let why = *SharedFor::ALL.get(usize::try_from(number).ok()?)?;
        Some(Self { place: Place::Shared(why), ..self.clone() })
    }

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<EfsmMeta> {
        let packet = Packet::read(headers);
        let key = match &self.place {
            Place::Flow(_, stage, _) => {
                let keys = self.machine.stages[*stage].keys.as_ref();
                keys.and_then(|keys| keys.lookup.key(&packet, &[]))
            }
            Place::Nowhere | Place::Shared(_) => Some(ContextKey::of_hosts(&packet)),
        };
        Some(EfsmMeta { packet, key: key.unwrap_or(ContextKey::NONE) })
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &EfsmMeta) -> Step<Opened<FlowContexts>, M> {
        let (now, counts) = (cx.now(), Counting { counts: cx.counts(), bytes: meta.packet.len });
        let (packet, mut flow) = (&meta.packet, FlowContexts::default());
        let verdict = match &self.place {
            Place::Shared(_) => {
                let mut store = SharedContexts::<M>::new(cx.shared, &self.first, &mut cx.tx, now, counts);
                store.reclaim()?;
                let verdict = self.run(packet, now, &mut store)?;
                if store.is_full { Verdict::Drop(Reason::TABLE_FULL) } else { verdict }
            }
            Place::Flow(_, _, layout) => {
                let trial = Counting { counts: None, ..counts };
                let Ok(_) = self.run(packet, now, &mut flow.store(layout, &self.machine, trial));
                if flow != FlowContexts::default() {
                    // The packet's step follows, with this flow.
                    return Ok(Opened::Flow(FlowContexts::default()));
                }
                let Ok(verdict) = self.run(packet, now, &mut flow.store(layout, &self.machine, counts));
                verdict
            }
            Place::Nowhere => {
                let layout = Layout::default();
                let Ok(verdict) = self.run(packet, now, &mut flow.store(&layout, &self.machine, counts));
                verdict
            }
        };
        Ok(Opened::Refused(verdict))
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut FlowContexts,
        meta: &EfsmMeta,
    ) -> Step<Verdict, M> {
        let Place::Flow(_, _, layout) = &self.place else { unreachable!("only flows that hold contexts are opened") };
        let (now, counts) = (cx.now(), Counting { counts: cx.counts(), bytes: meta.packet.len });
        let Ok(verdict) = self.run(&meta.packet, now, &mut flow.store(layout, &self.machine, counts));
        match flow.deadline(layout, &self.machine) {
            Some(deadline) => cx.expire_after(deadline.since(now)),
            None => cx.close(),
        }
        Ok(verdict)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        if self.listing == Listing::Contexts {
            return self.contexts(cx, flows).map(Some);
        }
        let counts = cx.counts().map(nf::PacketCounts::totals).unwrap_or_default();
        let mut rows = Vec::new();
        for stage in &self.machine.stages {
            for (at, row) in stage.rows.iter().enumerate() {
                let Count { packets, bytes } = counts.get(stage.first_row + at).copied().unwrap_or_default();
                let line = u64::from(row.line);
                rows.push(vec![nf::Cell::Number(line), stage.name.as_str().into(), packets.into(), bytes.into()]);
            }
        }
        let columns = vec!["line", "stage", "packets", "bytes"];
        Ok(Some(Report { title: "rows".into(), columns, rows }))
    }

    fn ports(&self) -> Vec<u16> {
        self.machine.out_ports()
    }

    fn remark(&self, _: &Fates<'_>) -> Option<String> {
        (*self.machine == *Program::default().0).then(|| {
            "efsm runs without a program, so it forwards everything: give one with --program FILE, as in crates/functions/docs/efsm.md".into()
        })
    }
}

impl Speed<Self> for Efsm {
    /// Without contexts no packet opens a flow.
    fn refuses(nf: &Self, _: &EfsmMeta) -> bool {
        nf.place == Place::Nowhere
    }
}
