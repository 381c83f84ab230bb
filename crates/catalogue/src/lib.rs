//! The catalogue of network functions by name: reads their configuration and runs them under any engine, without their types. The shipped
//! functions are those of [`functions::each`].
//!
//! ```
//! use millrace_catalogue::Catalogue;
//!
//! let catalogue = Catalogue::standard();
//! for entry in catalogue.entries() {
//!     assert_eq!(catalogue.get(entry.description().name).unwrap().description().name, entry.description().name);
//! }
//! ```

#![forbid(unsafe_code)]

pub mod cases;
pub mod chain;
pub mod config;
mod contract;
mod explained;
mod runs;
mod snapshot;

use std::any::Any;
use std::sync::Arc;
use std::thread::Scope;

use case::Fared;
use engine::carrier::{Outer, Shape};
use engine::{Control, EngineError, EngineKind, MemoryMax, Offload, Options, Outcome, SequencedTotal, Tables};
use functions::{Catalogued, Visitor};
use lab::conformance::{self, Plan, Verified};
use lab::path::{Path, PathPlan};
use lab::{Advice, Bench, BenchError, BenchPlan, LossPlan, LossRow, Profile, ProfilePlan, Question, Repeated};
use memory::Weighed;
use nf::{Description, Fates, Flow, Function, KeyOf, PacketSet, Reason, Recipe, Report, Sizing};
use packet::Nanos;
use port::{Batch, Port, Queue, Received, Trace};
use serde::de::DeserializeOwned;

use crate::config::{ConfigError, Settings};
use crate::explained::OneCore;
pub use crate::explained::{Decided, Explained, Stepper};
pub use crate::runs::{FlowEnds, FlowRow, FlowRows, Numbers, Runs, TakeOver};
pub use crate::snapshot::{Restart, Snapshot, SnapshotError};

/// The functions that commands know by name.
pub struct Catalogue {
    entries: Vec<CatalogueEntry>,
    /// Names of the functions that were added to the shipped ones.
    added: Vec<&'static str>,
    /// Chains of the shipped functions: no function of their own.
    chain: Option<CatalogueEntry>,
}

impl Catalogue {
    /// An empty catalogue.
    #[must_use]
    pub const fn empty() -> Self {
        Self { entries: Vec::new(), added: Vec::new(), chain: None }
    }

    /// The functions that ship with Millrace.
    #[must_use]
    pub fn standard() -> Self {
        let mut all = All(Vec::new());
        functions::each(&mut all);
        Self { entries: all.0, added: Vec::new(), chain: Some(CatalogueEntry::chain()) }
    }

    /// Adds a function; it replaces one with the same name. `millrace::cli::main` refuses to start if it has a
    /// [flaw](CatalogueEntry::flaw).
    #[must_use]
    pub fn with(mut self, entry: CatalogueEntry) -> Self {
        self.entries.retain(|old| old.description().name != entry.description().name);
        self.added.push(entry.description().name);
        self.entries.push(entry);
        self
    }

    /// The functions, in the order in which they were added.
    #[must_use]
    pub fn entries(&self) -> &[CatalogueEntry] {
        &self.entries
    }

    /// The functions that an author has added.
    pub fn added(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.entries.iter().filter(|entry| self.added.contains(&entry.description().name))
    }

    /// The function of this name, or `chain`, which runs several of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&CatalogueEntry> {
        self.entries.iter().chain(&self.chain).find(|entry| entry.description().name == name)
    }
}

/// Every function of the list, by name.
struct All(Vec<CatalogueEntry>);

impl Visitor for All {
    fn visit<N: Catalogued>(&mut self) {
        self.0.push(CatalogueEntry::of(N::from_config));
    }
}

/// A function of the catalogue, not configured yet.
pub struct CatalogueEntry {
    description: Description,
    load: Box<Load>,
    examine: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

/// Builds a function from its settings.
type Load = dyn Fn(&Settings) -> Result<Box<dyn Program>, ConfigError> + Send + Sync;

/// Called for each packet with its outcome, and the reason if it was dropped.
pub type Visit<'a> = dyn FnMut(&Fared<'_>, Option<Reason>) + 'a;

impl CatalogueEntry {
    /// A function that is built from its configuration.
    #[must_use]
    pub fn of<N, C>(build: impl Fn(C) -> N + Send + Sync + 'static) -> Self
    where
        N: Function,
        C: DeserializeOwned + 'static,
    {
        Self::checked(move |config| Ok(build(config)))
    }

    /// A function that is built from its configuration and may refuse it, for example because two values contradict each other. The error
    /// is that of `build`.
    #[must_use]
    pub fn checked<N, C>(build: impl Fn(C) -> Result<N, String> + Send + Sync + 'static) -> Self
    where
        N: Function,
        C: DeserializeOwned + 'static,
    {
        let build = Arc::new(build);
        let by_default = Arc::clone(&build);
        let load = move |settings: &Settings| {
            let config = settings.read::<C>(&N::DESCRIPTION)?;
            let nf = build(config).map_err(|message| settings.error(message))?;
            Ok(Box::new(Loaded(Arc::new(nf))) as Box<dyn Program>)
        };
        let examine = move || {
            // A function that can't be without a configuration is looked at no further.
            let nf = || by_default(Settings::default().read::<C>(&N::DESCRIPTION).ok()?).ok();
            contract::keys::<C>(&N::DESCRIPTION).or_else(|| contract::packet_set(&nf()?))
        };
        Self { description: N::DESCRIPTION, load: Box::new(load), examine: Box::new(examine) }
    }

    /// Chains of the shipped functions.
    fn chain() -> Self {
        Self { description: chain::DESCRIPTION, load: Box::new(chain::load), examine: Box::new(|| None) }
    }

    /// A function without configuration.
    #[must_use]
    pub fn plain<N: Function>(build: impl Fn() -> N + Send + Sync + 'static) -> Self {
        Self::of(move |Nothing {}: Nothing| build())
    }

    /// The function's description.
    #[must_use]
    pub const fn description(&self) -> &Description {
        &self.description
    }

    /// A flaw of the function itself, as far as it shows without a user's packets: keys of its configuration that differ from its
    /// description, or a packet set that differs from its description.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        (self.examine)()
    }

    /// Builds the function.
    ///
    /// # Errors
    /// What is wrong with the settings, and where.
    pub fn load(&self, settings: &Settings) -> Result<Box<dyn Program>, ConfigError> {
        (self.load)(settings)
    }
}

/// The configuration of a function that has none.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A configured function without its type: the operations that commands need, compiled once for each function.
pub trait Program: Send + Sync {
    /// Its description, with this configuration.
    fn description(&self) -> Description;

    /// Fields that name a packet set, with this configuration.
    fn packet_set(&self) -> PacketSet;

    /// Number of packet sets that it keeps state for, with this configuration.
    fn sizing(&self) -> Sizing;

    /// Memory that shared state would need, without allocating it.
    fn weigh(&self, cores: usize) -> Weighed;

    /// The most memory that its state takes under an engine; see [`engine::memory_max`].
    fn memory_max(&self, kind: EngineKind, cores: usize, options: &Options) -> MemoryMax;

    /// The bytes of a flow's key and state.
    fn flow_bytes(&self) -> usize;

    /// Maximum number of bytes by which a packet grows.
    fn growth(&self) -> u32;

    /// True if it keeps flows in flow tables.
    fn keeps_flows(&self) -> bool;

    /// Notes for operators, told before it runs; see [`nf::NetworkFunction::notes`].
    fn notes(&self) -> Vec<String>;

    /// Number of flow entries that it looks up for a packet, at most.
    fn look_ups(&self) -> usize;

    /// True if it reads payloads; see [`nf::NetworkFunction::reads_payload`].
    fn reads_payload(&self) -> bool;

    /// True if it needs whole IP datagrams; see [`nf::NetworkFunction::wants_whole_datagrams`].
    fn wants_whole_datagrams(&self) -> bool;

    /// Checks that a run with these options can go behind a sequencer.
    ///
    /// # Errors
    /// Why it can't, as a sentence.
    fn takes_sequencer(&self, kind: EngineKind, options: &Options) -> Result<(), String>;

    /// Checks that a card can take connections ahead of the function, under this engine and with these tables.
    ///
    /// # Errors
    /// Why it can't, as a sentence.
    fn takes_offload(&self, kind: EngineKind, tables: &Tables) -> Result<(), String>;

    /// The ports that the configuration names; see [`nf::NetworkFunction::ports`].
    fn ports(&self) -> Vec<u16>;

    /// A note for the operator if the configuration is probably a mistake; see [`nf::NetworkFunction::remark`].
    fn remark(&self, fates: &Fates<'_>) -> Option<String>;

    /// Checks whether it supports these options of flow tables.
    ///
    /// # Errors
    /// The reason, in a sentence.
    fn accepts(&self, tables: &Tables) -> Result<(), String>;

    /// The function with its type, to take over a [run](Runs::reload).
    fn typed(self: Box<Self>) -> Box<dyn Any>;

    /// Starts it; see [`engine::start`].
    fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        kind: EngineKind,
        cores: usize,
        options: Options,
        port: &'scope mut (dyn Port + Send),
        control: &Control,
    ) -> Box<dyn Runs + 'scope>;

    /// Starts it with the state of an earlier run, or leaves its own behind; see [`engine::start_from`].
    ///
    /// # Errors
    /// The snapshot is of another function or of other software, its successor can't take over, or flows of this function don't outlive a
    /// run.
    #[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
    fn start_from<'scope>(
        &self,
        restart: Restart<'_>,
        scope: &'scope Scope<'scope, '_>,
        kind: EngineKind,
        cores: usize,
        options: Options,
        port: &'scope mut (dyn Port + Send),
        control: &Control,
    ) -> Result<Box<dyn Runs + 'scope>, SnapshotError>;

    /// Layout of the history that a sequencer adds to each packet for this number of cores.
    fn shape(&self, cores: usize) -> Shape;

    /// Sequences packets for it; see [`engine::sequence`].
    fn sequence(&self, cores: usize, outer: Outer, queue: &mut dyn Queue, control: &Control) -> SequencedTotal;

    /// Runs it over sequenced packets; see [`engine::run_sequenced`].
    ///
    /// # Errors
    /// When it can't be run so.
    fn run_sequenced(
        &self,
        cores: usize,
        options: &Options,
        port: &mut dyn Port,
        control: &Control,
    ) -> Result<Outcome, EngineError>;

    /// Runs it on one core, packet by packet, calls `visit` with each outcome, and returns its report.
    ///
    /// # Errors
    /// Errors of the port.
    fn explain(&self, queue: &mut dyn Queue, visit: &mut Visit<'_>) -> Result<Option<Report>, EngineError>;

    /// The function with empty state, to take packets one by one.
    fn stepper(&self) -> Box<dyn Stepper>;

    /// Compares every engine with `sequential`; see [`conformance::verify`].
    fn verify(&self, trace: &Trace, plan: &Plan, progress: &mut dyn FnMut(u64, u64)) -> Verified;

    /// Recommends an engine for this traffic; see [`lab::advise`].
    ///
    /// # Errors
    /// The trace can't be replayed.
    fn advise(
        &self,
        trace: &Arc<Trace>,
        question: &Question,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Advice, BenchError>;

    /// Explains why its transactions fail; see [`lab::profile`].
    ///
    /// # Errors
    /// It can't be profiled.
    fn profile(
        &self,
        trace: &Arc<Trace>,
        plan: &ProfilePlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Profile, BenchError>;

    /// Runs it as a profile does, round after round; see [`lab::repeat`].
    ///
    /// # Errors
    /// When it can't be run so.
    fn repeat(
        &self,
        trace: &Arc<Trace>,
        plan: &ProfilePlan,
        more: &mut dyn FnMut(&Repeated) -> bool,
    ) -> Result<Repeated, BenchError>;

    /// Location of its code, for flame graphs.
    fn code(&self) -> Code;

    /// The recipes: configuration keys that reduce conflicts.
    fn recipes(&self) -> &'static [Recipe];

    /// Measures what each stage of a packet's path takes; see [`lab::path`].
    ///
    /// # Errors
    /// The traffic can't be read.
    fn path(&self, plan: &PathPlan<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<Path, BenchError>;

    /// Measures it under each engine; see [`lab::bench`].
    ///
    /// # Errors
    /// When the trace can't be replayed.
    fn bench(
        &self,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Bench, BenchError>;

    /// Measures its replicas behind a link that loses packets; see [`lab::lossy`].
    ///
    /// # Errors
    /// This machine can't measure it.
    fn bench_loss(
        &self,
        trace: &Arc<Trace>,
        plan: &LossPlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<LossRow>, BenchError>;
}

/// Location of a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its crate.
    pub home: &'static str,
    /// Address of code that was compiled for it.
    pub address: usize,
}

/// A function whose type is known.
struct Loaded<N>(Arc<N>);

impl<N: Function> Program for Loaded<N> {
    fn description(&self) -> Description {
        self.0.description()
    }

    fn packet_set(&self) -> PacketSet {
        self.0.packet_set()
    }

    fn sizing(&self) -> Sizing {
        self.0.sizing()
    }

    fn weigh(&self, cores: usize) -> Weighed {
        let memory = Weighed::new(cores);
        drop(self.0.shared(&memory));
        memory
    }

    fn memory_max(&self, kind: EngineKind, cores: usize, options: &Options) -> MemoryMax {
        engine::memory_max(&self.0, kind, cores, options)
    }

    fn flow_bytes(&self) -> usize {
        size_of::<(KeyOf<N>, N::Flow)>()
    }

    fn growth(&self) -> u32 {
        self.0.growth()
    }

    fn keeps_flows(&self) -> bool {
        N::Flow::STORED
    }

    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn look_ups(&self) -> usize {
        self.0.look_ups()
    }

    fn reads_payload(&self) -> bool {
        self.0.reads_payload()
    }

    fn wants_whole_datagrams(&self) -> bool {
        self.0.wants_whole_datagrams()
    }

    fn takes_sequencer(&self, kind: EngineKind, options: &Options) -> Result<(), String> {
        engine::takes_sequencer(kind, &*self.0, options)
    }

    fn takes_offload(&self, kind: EngineKind, tables: &Tables) -> Result<(), String> {
        Offload::accepts(kind, &*self.0, tables)
    }

    fn ports(&self) -> Vec<u16> {
        self.0.ports()
    }

    fn remark(&self, fates: &Fates<'_>) -> Option<String> {
        self.0.remark(fates)
    }

    fn accepts(&self, tables: &Tables) -> Result<(), String> {
        tables.accepts(&*self.0)
    }

    fn typed(self: Box<Self>) -> Box<dyn Any> {
        Box::new(Arc::into_inner(self.0))
    }

    fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        kind: EngineKind,
        cores: usize,
        options: Options,
        port: &'scope mut (dyn Port + Send),
        control: &Control,
    ) -> Box<dyn Runs + 'scope> {
        Box::new(engine::start(scope, Arc::clone(&self.0), kind, cores, options, port, control))
    }

    fn start_from<'scope>(
        &self,
        restart: Restart<'_>,
        scope: &'scope Scope<'scope, '_>,
        kind: EngineKind,
        cores: usize,
        options: Options,
        port: &'scope mut (dyn Port + Send),
        control: &Control,
    ) -> Result<Box<dyn Runs + 'scope>, SnapshotError> {
        let from = restart.from;
        let (nf, beginning) = restart.of(&self.0)?;
        match engine::start_from(scope, nf, kind, cores, options, port, control, beginning) {
            Ok(running) => Ok(Box::new(running)),
            Err(error) => Err(from.map_or(SnapshotError::Damaged, |snapshot| snapshot.refusal(error.to_string()))),
        }
    }

    fn shape(&self, cores: usize) -> Shape {
        Shape::of::<N>(cores)
    }

    fn sequence(&self, cores: usize, outer: Outer, queue: &mut dyn Queue, control: &Control) -> SequencedTotal {
        engine::sequence(Arc::clone(&self.0), cores, outer, queue, control)
    }

    fn run_sequenced(
        &self,
        cores: usize,
        options: &Options,
        port: &mut dyn Port,
        control: &Control,
    ) -> Result<Outcome, EngineError> {
        engine::run_sequenced(Arc::clone(&self.0), cores, options, port, control)
    }

    fn explain(&self, queue: &mut dyn Queue, visit: &mut Visit<'_>) -> Result<Option<Report>, EngineError> {
        let mut instance =
            engine::private_instance(EngineKind::Sequential, Arc::clone(&self.0), 1, &Options::default());
        let (mut batch, mut one) = (Batch::default(), Batch::default());
        let mut before = instance.workers[0].counters();
        let mut now = Nanos(0);
        while queue.receive(&mut batch)? != Received::End {
            for (index, packet) in batch.packets().iter().enumerate() {
                one.clear();
                one.push(*packet, batch.bytes(index));
                instance.workers[0].process(&mut one);
                let after = instance.workers[0].counters();
                let reason = after.drops().find(|(reason, count)| before.dropped[usize::from(reason.0)] < *count);
                let reason = reason.map(|(reason, _)| reason);
                let (packet, bytes) = one.packet(0);
                let fared = Fared {
                    packet,
                    before: batch.bytes(index),
                    after: bytes,
                    replied: after.replied > before.replied,
                    dropped: reason.map(|reason| reason.name(self.0.description().drop_reasons)),
                };
                visit(&fared, reason);
                (before, now) = (after, now.max(packet.time));
            }
        }
        Ok(instance.report(now))
    }

    fn stepper(&self) -> Box<dyn Stepper> {
        Box::new(OneCore::new(&self.0))
    }

    fn verify(&self, trace: &Trace, plan: &Plan, progress: &mut dyn FnMut(u64, u64)) -> Verified {
        conformance::verify(&self.0, trace, plan, progress)
    }

    fn advise(
        &self,
        trace: &Arc<Trace>,
        question: &Question,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Advice, BenchError> {
        lab::advise(&self.0, trace, question, progress)
    }

    fn profile(
        &self,
        trace: &Arc<Trace>,
        plan: &ProfilePlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Profile, BenchError> {
        lab::profile(&self.0, trace, plan, progress)
    }

    fn repeat(
        &self,
        trace: &Arc<Trace>,
        plan: &ProfilePlan,
        more: &mut dyn FnMut(&Repeated) -> bool,
    ) -> Result<Repeated, BenchError> {
        lab::repeat(&self.0, trace, plan, more)
    }

    fn code(&self) -> Code {
        let home = std::any::type_name::<N>().split("::").next().unwrap_or_default();
        let home = home.strip_prefix("millrace_").unwrap_or(home);
        Code { home, address: lab::repeat::<N> as *const () as usize }
    }

    fn recipes(&self) -> &'static [Recipe] {
        N::DESCRIPTION.recipes
    }

    fn path(&self, plan: &PathPlan<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<Path, BenchError> {
        Path::measure(&self.0, plan, progress)
    }

    fn bench(
        &self,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Bench, BenchError> {
        lab::bench(&self.0, trace, plan, progress)
    }

    fn bench_loss(
        &self,
        trace: &Arc<Trace>,
        plan: &LossPlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<LossRow>, BenchError> {
        lab::lossy(&self.0, trace, plan, progress)
    }
}
