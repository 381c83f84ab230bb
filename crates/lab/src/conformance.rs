//! The conformance runner: runs one function over one trace under every engine, number of cores and seed, and compares each run with
//! `sequential` as far as the engine's guarantee says.
//!
//! A seeded scheduler steps the cores, one burst at a time in random order, so that every failure can be repeated from its seed. Real
//! threads can run in addition. A serializable engine is compared with its own witness: replaying the packets in commit order must give
//! every verdict and the state again.

mod sequenced;

use std::collections::VecDeque;
use std::mem::take;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use engine::{
    AnyWorker, Commit, Control, CoreBatch, Cuts, Dispatcher, EngineInstance, EngineKind, FlowState, Guarantee, Inspect,
    Mail, Options, Part, Placement, PrivateInstance, ShardedInstance, Shared, SharedInstance, Tables,
    TransactedInstance, drive, private_instance, resolve, sharded_instance, shared_instance, takes_sequencer,
    transacted_instance,
};
use flow::index::IndexKind;
use flow::{Ageing, Eviction};
use nf::{Count, Fingerprint, Function, KeyOf, Meta, NetworkFunction, PacketCounts, Reason, local_fingerprint};
use packet::{Nanos, Seq};
use port::{Batch, Fate, Opened, Order, Port, PortError, Receive, Received, Sides, Stream, Trace, Transmit};

use synth::Rng;

use self::sequenced::{SequencedTrace, has_all_headers};

/// What to verify.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engines.
    pub engines: Vec<EngineKind>,
    /// How many cores each runs on. `sequential` runs on one.
    pub cores: RangeInclusive<usize>,
    /// The seeds of the schedules.
    pub seeds: Range<u64>,
    /// Also run real threads, once for each engine and number of cores.
    pub threads: bool,
    /// Options of the engines. Tables are at most as large as the trace can fill.
    pub options: Options,
}

/// A difference between an engine and the sequential run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The engine.
    pub engine: EngineKind,
    /// How many cores it ran on.
    pub cores: usize,
    /// Seed that reproduces the difference; `None` if it occurred with real threads.
    pub seed: Option<u64>,
    /// Number of packets, from the start of the trace, that show the difference.
    pub prefix: usize,
    /// The packet with the different verdict; `None` if the final state differs.
    pub seq: Option<Seq>,
    /// Result of `sequential`, or of the witness.
    pub expected: String,
    /// Result of the engine.
    pub got: String,
}

/// Result of [`verify`].
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Number of runs compared with the sequential run.
    pub runs: u64,
    /// Number of packets in all these runs.
    pub packets: u64,
    /// Engines that don't support the function, with the number of cores and the reason.
    pub refused: Vec<(EngineKind, usize, String)>,
    /// Number of times that state moved between cores: buckets, and packet sets that began or ceased to be replicated.
    pub moves: u64,
    /// True if a table was ever full. Verdicts of engines that decide per shard are then not compared.
    pub was_full: bool,
    /// The first difference found.
    pub mismatch: Option<Mismatch>,
}

/// Verifies a function over a trace. Calls `progress` with the number of runs done and the total.
pub fn verify<N: Function>(nf: &Arc<N>, trace: &Trace, plan: &Plan, progress: &mut dyn FnMut(u64, u64)) -> Verified {
    // Short epochs, so that state moves between cores even in short traces.
    let epoch = plan.options.epoch.min(trace.len() as u64 / 16).max(16);
    let options = Options { flows_max: Some(trace.len().max(16)), pin: false, epoch, ..plan.options };
    let mut bench = Bench { nf, trace, options };
    let mut verified = Verified::default();
    let opened = bench.oracle(trace.len()).opened;
    // Large fresh tables would cost most of the time. Other orders may open a few more flows than the oracle.
    bench.options.flows_max = Some(trace.len().min(2 * opened as usize).max(16));
    // Use the same table sizes as the engines, because the time when expired flows are removed may depend on them.
    let oracle = bench.oracle(trace.len());
    let cases = bench.cases(plan, &mut verified);
    let total = cases.len() as u64;
    for (done, case) in cases.into_iter().enumerate() {
        progress(done as u64, total);
        let result = bench.run(case, &oracle, trace.len());
        verified.runs += 1;
        verified.packets += trace.len() as u64;
        verified.was_full |= oracle.was_full;
        match result {
            Ok(Agreement { full, moves }) => {
                verified.was_full |= full;
                verified.moves += moves;
            }
            Err(difference) => {
                verified.mismatch = Some(bench.minimise(case, difference));
                break;
            }
        }
    }
    progress(total, total);
    verified
}

/// One run to compare with the oracle.
#[derive(Clone, Copy)]
struct Case {
    engine: EngineKind,
    cores: usize,
    /// The schedule's seed; `None` for real threads.
    seed: Option<u64>,
    /// The cuts of `pipeline`.
    cuts: Cuts,
    /// True if the port sequences, not the engine.
    sequenced: bool,
}

/// The first difference of a run.
struct Difference {
    seq: Option<Seq>,
    expected: String,
    got: String,
}

/// A run that is as its engine promises.
struct Agreement {
    /// True if a table was full.
    full: bool,
    /// How often state changed cores.
    moves: u64,
}

/// Outcome of one packet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Observation {
    fate: Fate,
    /// Digest of the outgoing bytes; 0 if they equal the incoming bytes.
    bytes: u64,
}

/// Flows by key, with their state and deadline.
type FlowSnapshot<N> = Vec<(KeyOf<N>, <N as NetworkFunction>::Flow, Nanos)>;

/// Result of a run, in a form that can be compared.
struct Observed<N: Function> {
    packets: Vec<Option<Observation>>,
    flows: FlowSnapshot<N>,
    shared: u64,
    was_full: bool,
    /// Flows that were opened.
    opened: u64,
    /// What the function counted.
    counts: Vec<Count>,
}

struct Bench<'a, N> {
    nf: &'a Arc<N>,
    trace: &'a Trace,
    options: Options,
}

impl<N: Function> Bench<'_, N> {
    /// All runs of the plan that the engines support; the others are noted as refused.
    fn cases(&self, plan: &Plan, verified: &mut Verified) -> Vec<Case> {
        let mut cases = Vec::new();
        for &engine in &plan.engines {
            for cores in plan.cores.clone() {
                if engine == EngineKind::Sequential && cores > 1 {
                    continue;
                }
                if let Err(reason) =
                    engine.accepts(&self.nf.description(), cores).and_then(|()| plan.options.tables.accepts(&**self.nf))
                {
                    verified.refused.push((engine, cores, reason));
                    continue;
                }
                let is_cut = engine == EngineKind::Pipeline;
                let fits = |cuts: &Cuts| *cuts == Cuts::Parse || is_cut && cores > 1 && cuts.accepts(cores).is_ok();
                let all: Vec<Cuts> = Cuts::ALL.into_iter().filter(fits).collect();
                let cuts = |seed: u64| all[seed as usize % all.len()];
                let case = |seed, cuts| Case { engine, cores, seed, cuts, sequenced: false };
                cases.extend(plan.seeds.clone().map(|seed| case(Some(seed), cuts(seed))));
                if plan.threads {
                    cases.extend(all.iter().map(|cuts| case(None, *cuts)));
                }
                let behind = cores > 1 && takes_sequencer(engine, &**self.nf, &self.options).is_ok();
                if plan.threads && behind && has_all_headers(self.trace) {
                    cases.push(Case { sequenced: true, ..case(None, Cuts::default()) });
                }
            }
        }
        cases
    }

    /// Runs `sequential`, with the default index if the outcome doesn't depend on the index, so that other indexes are compared with it.
    /// A full table's outcome depends on the index where ageing scans the slots, where the index itself decides which flow is evicted, or
    /// where expired flows are not found.
    fn oracle(&self, len: usize) -> Observed<N> {
        let tables = &self.options.tables;
        let alike = match (tables.ageing, tables.eviction) {
            (Ageing::Wheel | Ageing::None, Eviction::OldestUnprotected | Eviction::None) => true,
            (Ageing::Scan | Ageing::Lazy, _) | (_, Eviction::LeastRecent | Eviction::Random) => false,
        };
        let own = tables.ageing == Ageing::None
            || tables.index == IndexKind::Tagged && tables.eviction == Eviction::OldestUnprotected;
        let by = |options: &Options| {
            self.observe_alone(private_instance(EngineKind::Sequential, Arc::clone(self.nf), 1, options), len)
        };
        if alike {
            let tables = Tables { index: IndexKind::default(), ..*tables };
            let oracle = by(&Options { tables, ..self.options });
            if !(own && oracle.was_full) {
                return oracle;
            }
        }
        by(&self.options)
    }

    fn observe_alone(&self, mut instance: PrivateInstance<N>, len: usize) -> Observed<N> {
        let mut packets = vec![None; len];
        let mut batch = Batch::default();
        fill(&mut batch, self.trace, 0..len);
        instance.workers[0].process(&mut batch);
        observe(&mut batch, self.trace, &mut packets);
        let now = last_time(self.trace, len);
        let counters = Inspect::flow_counters(&instance);
        let place = instance.workers[0].place();
        Observed {
            packets,
            flows: sorted(place.flows(now)),
            shared: local_fingerprint(&**self.nf, place.shared()).value(),
            was_full: counters.was_full(),
            opened: counters.opened,
            counts: instance.packet_counts_at(self.nf, now).totals(),
        }
    }

    /// Runs a case over the first `len` packets and compares.
    fn run(&self, case: Case, oracle: &Observed<N>, len: usize) -> Result<Agreement, Difference> {
        let Case { engine, cores, .. } = case;
        let (nf, options) = (Arc::clone(self.nf), &Options { cuts: case.cuts, ..self.options });
        if engine.moves_state() {
            return self.run_sharded(sharded_instance(engine, nf, cores, options), case, oracle, len);
        }
        if engine == EngineKind::Transactional && self.nf.description().sharing.is_any() {
            return self.run_transacted(case, oracle, len);
        }
        match engine.guarantee(self.nf.description().sharing) {
            Guarantee::Identical | Guarantee::IdenticalPerPacketSet => {
                self.run_private(private_instance(engine, nf, cores, options), case, oracle, len)
            }
            Guarantee::Serializable => self.run_shared(shared_instance(nf, cores, options), case, oracle, len),
        }
    }

    /// Runs with the order of transactions recorded, then again in that order, one at a time. Both must give the same result; on one core
    /// also the sequential result.
    fn run_transacted(&self, case: Case, oracle: &Observed<N>, len: usize) -> Result<Agreement, Difference> {
        let instance = || transacted_instance(Arc::clone(self.nf), case.cores, &self.options);
        let (mut together, mut again) = (instance(), instance());
        together.record();
        let packets = self.observe_run(&mut together, case, len)?;
        again.repeat(&together);
        let repeated = self.repeat(&mut again, len);
        compare_packets(&repeated, &packets)?;
        let now = last_time(self.trace, len);
        for (core, (one, other)) in again.workers.iter().zip(&together.workers).enumerate() {
            let [one, other] = [one, other].map(|worker| sorted(worker.place().flows(now)));
            compare_flows::<N>(&one, &other, &format!("the shard of core {core}"))?;
        }
        let [one, other] = [&mut again, &mut together].map(|instance| instance.fingerprint().value());
        compare_shared(one, other)?;
        compare_counts(&again.packet_counts().totals(), &together.packet_counts())?;
        if case.cores == 1 {
            compare_packets(&oracle.packets, &packets)?;
            compare_flows::<N>(&oracle.flows, &sorted(together.flows(now).into_iter()), "the only shard")?;
            compare_shared(oracle.shared, other)?;
        }
        Ok(Agreement { full: Inspect::flow_counters(&together).was_full(), moves: 0 })
    }

    /// Runs all cores at the same time, one thread each, in the recorded order of transactions.
    fn repeat(&self, instance: &mut TransactedInstance<N>, len: usize) -> Vec<Option<Observation>> {
        let (mut packets, mut all) = (vec![None; len], Batch::default());
        fill(&mut all, self.trace, 0..len);
        let mut shares: Vec<_> = instance.workers.iter().map(|_| CoreBatch::default()).collect();
        instance.dispatcher.split(&all, &mut shares);
        std::thread::scope(|scope| {
            for (worker, share) in instance.workers.iter_mut().zip(&mut shares) {
                scope.spawn(|| worker.process(&mut share.batch));
            }
        });
        shares.iter_mut().for_each(|share| observe(&mut share.batch, self.trace, &mut packets));
        packets
    }

    fn run_private(
        &self,
        mut instance: PrivateInstance<N>,
        case: Case,
        oracle: &Observed<N>,
        len: usize,
    ) -> Result<Agreement, Difference> {
        let packets = self.observe_run(&mut instance, case, len)?;
        let full = oracle.was_full || Inspect::flow_counters(&instance).was_full();
        let agreement = Agreement { full, moves: 0 };
        if full && case.engine.guarantee(self.nf.description().sharing) == Guarantee::IdenticalPerPacketSet {
            return Ok(agreement);
        }
        compare_packets(&oracle.packets, &packets)?;
        self.compare_states(&instance, oracle, len)?;
        Ok(agreement)
    }

    fn run_sharded(
        &self,
        mut instance: ShardedInstance<N>,
        case: Case,
        oracle: &Observed<N>,
        len: usize,
    ) -> Result<Agreement, Difference> {
        let packets = self.observe_run(&mut instance, case, len)?;
        let full = oracle.was_full || Inspect::flow_counters(&instance).was_full();
        let agreement = Agreement { full, moves: instance.dispatcher.moved() };
        if full {
            return Ok(agreement);
        }
        compare_packets(&oracle.packets, &packets)?;
        let now = last_time(self.trace, len);
        compare_flows::<N>(
            &oracle.flows,
            &sorted(instance.flows(now).into_iter()),
            "all shards and the first replica",
        )?;
        for (core, worker) in instance.workers.iter().enumerate() {
            let replica = worker.place().replica().into_iter().flat_map(|replica| replica.flows(now));
            let first = instance.workers[0].place().replica().into_iter().flat_map(|replica| replica.flows(now));
            compare_flows::<N>(&sorted(first), &sorted(replica), &format!("replica {core}"))?;
        }
        compare_counts(&oracle.counts, &instance.packet_counts_at(self.nf, now))?;
        Ok(agreement)
    }

    fn compare_states(
        &self,
        instance: &PrivateInstance<N>,
        oracle: &Observed<N>,
        len: usize,
    ) -> Result<(), Difference> {
        let now = last_time(self.trace, len);
        let replicas = match instance.kind {
            EngineKind::Scr => instance.workers.len(),
            _ => 0,
        };
        for core in 0..replicas {
            let place = instance.workers[core].place();
            compare_flows::<N>(&oracle.flows, &sorted(place.flows(now)), &format!("replica {core}"))?;
            compare_shared(oracle.shared, local_fingerprint(&**self.nf, place.shared()).value())?;
        }
        if replicas == 0 {
            compare_flows::<N>(&oracle.flows, &sorted(instance.flows(now).into_iter()), "all shards")?;
        }
        compare_counts(&oracle.counts, &instance.packet_counts_at(self.nf, now))
    }

    fn run_shared(
        &self,
        mut instance: SharedInstance<N>,
        case: Case,
        oracle: &Observed<N>,
        len: usize,
    ) -> Result<Agreement, Difference> {
        instance.workers[0].place().record();
        let packets = self.observe_run(&mut instance, case, len)?;
        let full = oracle.was_full || Inspect::flow_counters(&instance).was_full();
        if !full {
            self.check_witness(&instance, oracle, &packets, len)?;
        }
        Ok(Agreement { full, moves: 0 })
    }

    /// Replays the steps on each part of the state in the order of its witness. The result must be the same.
    fn check_witness(
        &self,
        instance: &SharedInstance<N>,
        oracle: &Observed<N>,
        packets: &[Option<Observation>],
        len: usize,
    ) -> Result<(), Difference> {
        // Packets without a step have the oracle's verdict; the replay overwrites the others.
        let mut expected = oracle.packets.clone();
        let now = last_time(self.trace, len);
        let mut counts = PacketCounts::new(self.nf.counters());
        let places = instance.workers.iter().map(engine::Worker::place);
        for Part { commits, flows, shared } in Shared::parts(places, &**self.nf, now) {
            // The same size as in the run: the size of a table sets the levels of its timing wheel, so it affects when flows expire, and
            // expired flows may change shared state.
            let mut replay = private_instance(EngineKind::Sequential, Arc::clone(self.nf), 1, &self.options);
            let mut batch = Batch::default();
            for &Commit { seq, now } in &commits {
                let (packet, bytes) = at(self.trace, seq.0 as usize);
                batch.push(port::Packet { time: now, seq, ..*packet }, bytes);
            }
            replay.workers[0].process(&mut batch);
            observe(&mut batch, self.trace, &mut expected);
            counts.add(&replay.packet_counts_at(self.nf, now));
            let replayed = replay.workers[0].place();
            compare_flows::<N>(&sorted(replayed.flows(now)), &sorted(flows.into_iter()), "a part against its witness")?;
            let expected = local_fingerprint(&**self.nf, replayed.shared()).value();
            shared.into_iter().try_for_each(|shared| compare_shared(expected, shared))?;
        }
        compare_counts(&counts.totals(), &instance.packet_counts_at(self.nf, now))?;
        compare_packets(&expected, packets)
    }

    /// Runs the engine over the first `len` packets by the case's schedule, and notes the outcome of each.
    fn observe_run<P: Placement<N>>(
        &self,
        instance: &mut EngineInstance<N, P>,
        case: Case,
        len: usize,
    ) -> Result<Vec<Option<Observation>>, Difference>
    where
        EngineInstance<N, P>: Inspect<N>,
    {
        let packets = match case.seed {
            Some(seed) => {
                let mut workers: Vec<_> =
                    instance.workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
                schedule(&mut workers, &mut instance.dispatcher, self.trace, len, seed)
            }
            None if case.sequenced => {
                let mut port = SequencedTrace::new(self.trace, len);
                self.drive(instance, &mut port)?;
                port.observed()
            }
            None => {
                let mut port = TracePort::new(self.trace, len);
                self.drive(instance, &mut port)?;
                port.observed()?
            }
        };
        let counters = instance.counters();
        if !counters.add_up() || counters.received != len as u64 {
            let expected = format!("{len} packets received, forwarded, replied and dropped");
            return Err(Difference { seq: None, expected, got: format!("{counters:?}") });
        }
        let now = last_time(self.trace, len);
        let (flows, alive) = (instance.flow_counters_at(now), instance.flows(now).len() as u64);
        if flows.opened != flows.ended() + alive {
            let expected = format!("{} flows ended or alive, as many as were opened", flows.opened);
            return Err(Difference { seq: None, expected, got: format!("{alive} alive of {flows:?}") });
        }
        Ok(packets)
    }

    /// Runs real threads over a port.
    fn drive<P: Placement<N>>(&self, instance: &mut EngineInstance<N, P>, port: &mut dyn Port) -> Result<(), Difference>
    where
        EngineInstance<N, P>: Inspect<N>,
    {
        let cores = instance.workers.len();
        let outcome = drive(instance, &self.options, port, &Control::default(), &Mail::new(cores));
        match outcome.map_or_else(Some, |outcome| outcome.failure) {
            None => Ok(()),
            Some(failure) => {
                Err(Difference { seq: None, expected: "a run to the end".into(), got: failure.to_string() })
            }
        }
    }

    /// Bisects to the shortest prefix of the trace that shows a difference. Runs with real threads are not bisected, because they may not
    /// repeat.
    fn minimise(&self, case: Case, first: Difference) -> Mismatch {
        let mut difference = first;
        let mut prefix = self.trace.len();
        if case.seed.is_some() {
            let (mut low, mut high) = (0, prefix);
            while low + 1 < high {
                let middle = low + (high - low) / 2;
                match self.run(case, &self.oracle(middle), middle) {
                    Ok(_) => low = middle,
                    Err(shorter) => (high, difference) = (middle, shorter),
                }
            }
            prefix = high;
        }
        let Difference { seq, expected, got } = difference;
        Mismatch { engine: case.engine, cores: case.cores, seed: case.seed, prefix, seq, expected, got }
    }
}

/// Steps the cores one burst at a time, in an order drawn from `seed`, with bursts of drawn lengths.
fn schedule<N: Function>(
    workers: &mut [&mut dyn AnyWorker<N>],
    dispatcher: &mut Dispatcher<N>,
    trace: &Trace,
    len: usize,
    seed: u64,
) -> Vec<Option<Observation>> {
    let mut random = Rng::new(seed);
    let mut packets = vec![None; len];
    let mut batch = Batch::default();
    let mut next = 0;
    let cores = workers.len();
    let mut waiting: Vec<Waiting<N::Meta>> = (0..cores).map(|_| Waiting::default()).collect();
    loop {
        // Draw a core. If it has nothing to do and packets are left, hand out more to all cores.
        let core = random.below(cores as u64) as usize;
        if !waiting[core].shares.is_empty() {
            waiting[core].step(workers[core], trace, &mut packets);
        } else if next < len {
            let burst = (1 + random.below(64) as usize).min(len - next);
            fill(&mut batch, trace, next..next + burst);
            next += burst;
            let mut shares: Vec<_> = (0..cores).map(|_| CoreBatch::default()).collect();
            dispatcher.split(&batch, &mut shares);
            for (waiting, share) in waiting.iter_mut().zip(shares) {
                waiting.shares.push_back(share);
            }
        } else if waiting.iter().all(|waiting| waiting.shares.is_empty()) {
            return packets;
        }
    }
}

/// Work that is left for a core.
struct Waiting<M> {
    shares: VecDeque<CoreBatch<M>>,
    /// True once the state that must leave the core before the first share has left.
    released: bool,
}

impl<M> Default for Waiting<M> {
    fn default() -> Self {
        Self { shares: VecDeque::new(), released: false }
    }
}

impl<M: Meta> Waiting<M> {
    /// Processes the first share, as far as nothing is missing that another core has still to let go of.
    fn step<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        trace: &Trace,
        packets: &mut [Option<Observation>],
    ) {
        let block = self.shares[0].block.clone();
        if let Some(block) = &block {
            let moves = block.moves();
            if !self.released {
                worker.release(&moves);
                self.released = true;
            }
            if !worker.is_ready(&moves) {
                return;
            }
            worker.acquire(&moves);
        }
        self.released = false;
        let mut share = self.shares.pop_front().unwrap_or_default();
        let mut batch = take(&mut share.batch);
        share.process(worker, &mut batch);
        observe(&mut batch, trace, packets);
    }
}

/// A port with one stream over a trace. It keeps the packets sent.
struct TracePort<'a> {
    source: Source<'a>,
    sink: Sink<'a>,
}

/// Delivers the trace in bursts of drawn lengths.
struct Source<'a> {
    trace: &'a Trace,
    len: usize,
    next: usize,
    random: Rng,
}

struct Sink<'a> {
    trace: &'a Trace,
    packets: Vec<Option<Observation>>,
    sent: Option<Seq>,
    out_of_order: Option<(Seq, Seq)>,
}

impl<'a> TracePort<'a> {
    fn new(trace: &'a Trace, len: usize) -> Self {
        Self {
            source: Source { trace, len, next: 0, random: Rng::new(len as u64) },
            sink: Sink { trace, packets: vec![None; len], sent: None, out_of_order: None },
        }
    }

    /// The fate of each packet, with the drop reason.
    fn observed(self) -> Result<Vec<Option<Observation>>, Difference> {
        if let Some((earlier, later)) = self.sink.out_of_order {
            let expected = format!("packet {earlier} before packet {later}");
            return Err(Difference { seq: Some(later), expected, got: "the other way around".into() });
        }
        Ok(self.sink.packets)
    }
}

impl Port for TracePort<'_> {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        let (input, output) = (Box::new(&mut self.source), Box::new(&mut self.sink));
        Ok(Opened::Stream(Stream { input, output, order: Order::All }))
    }

    fn sides(&self) -> Sides {
        SIDES
    }
}

/// Each interface counts as having another side, so that forwarding across and back differ.
const SIDES: Sides = Sides::Pairs;

impl Receive for &mut Source<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let burst = (1 + self.random.below(200) as usize).min(self.len - self.next);
        fill(batch, self.trace, self.next..self.next + burst);
        self.next += burst;
        Ok(if burst == 0 { Received::End } else { Received::Packets })
    }
}

impl Transmit for &mut Sink<'_> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        for packet in batch.packets().iter().filter(|packet| !matches!(packet.fate, Fate::Drop(_))) {
            if let Some(sent) = self.sent
                && sent > packet.seq
            {
                self.out_of_order.get_or_insert((packet.seq, sent));
            }
            self.sent = Some(packet.seq);
        }
        observe(batch, self.trace, &mut self.packets);
        Ok(())
    }
}

fn fill(batch: &mut Batch, trace: &Trace, range: Range<usize>) {
    fill_from(batch, trace, range);
}

fn fill_from(batch: &mut Batch, trace: &Trace, indices: impl Iterator<Item = usize>) {
    batch.clear();
    for index in indices {
        let (packet, bytes) = at(trace, index);
        batch.push(port::Packet { seq: Seq(index as u64), fate: Fate::Pending, ..*packet }, bytes);
    }
}

fn observe(batch: &mut Batch, trace: &Trace, packets: &mut [Option<Observation>]) {
    resolve(SIDES, batch);
    for (index, packet) in batch.packets().iter().enumerate() {
        let sent = packet.fate.is_sent();
        // Most packets go out unchanged, and a comparison is much cheaper than a digest.
        let changed = sent && batch.bytes(index) != trace.bytes(packet.seq.0 as usize);
        let bytes = if changed { digest(batch.bytes(index)).max(1) } else { 0 };
        packets[packet.seq.0 as usize] = Some(Observation { fate: packet.fate, bytes });
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add(bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).for_each(|word| fingerprint.add(u64::from_le_bytes(*word)));
    fingerprint.value()
}

fn at(trace: &Trace, index: usize) -> (&port::Packet, &[u8]) {
    (&trace.packets()[index], trace.bytes(index))
}

fn last_time(trace: &Trace, len: usize) -> Nanos {
    len.checked_sub(1).map_or(Nanos(0), |last| trace.packets()[last].time)
}

fn sorted<N: Function>(flows: impl Iterator<Item = FlowState<N>>) -> FlowSnapshot<N> {
    let mut flows: FlowSnapshot<N> = flows.map(|state| (state.key, state.flow, state.deadline)).collect();
    sort::<N>(&mut flows);
    flows
}

/// Sorts flows by key. A separate function, so that the sort is compiled once for each function.
fn sort<N: Function>(flows: &mut FlowSnapshot<N>) {
    flows.sort_unstable_by_key(|(key, ..)| *key);
}

fn compare_packets(expected: &[Option<Observation>], got: &[Option<Observation>]) -> Result<(), Difference> {
    let Some(index) = (0..expected.len()).find(|&index| expected[index] != got[index]) else { return Ok(()) };
    let say = |packet: Option<Observation>| match packet {
        None => "never decided".into(),
        Some(Observation { fate: Fate::Drop(reason), .. }) => match reason.checked_sub(Reason::OWN) {
            Some(own) => format!("drop for the function's reason {own}"),
            None => format!("drop as {}", Reason(reason).name(&[])),
        },
        Some(Observation { fate, bytes }) => format!("{fate:?} with bytes {bytes:016x}"),
    };
    Err(Difference { seq: Some(Seq(index as u64)), expected: say(expected[index]), got: say(got[index]) })
}

fn compare_flows<N: Function>(
    expected: &FlowSnapshot<N>,
    got: &FlowSnapshot<N>,
    which: &str,
) -> Result<(), Difference> {
    if expected == got {
        return Ok(());
    }
    let say = |flow: Option<&(KeyOf<N>, N::Flow, Nanos)>| match flow {
        None => format!("no such flow in {which}"),
        Some((key, flow, deadline)) => format!("{key} is {flow:?} until {deadline} in {which}"),
    };
    let first = expected.iter().zip(got).position(|(expected, got)| expected != got);
    let index = first.unwrap_or_else(|| expected.len().min(got.len()));
    Err(Difference { seq: None, expected: say(expected.get(index)), got: say(got.get(index)) })
}

fn compare_counts(expected: &[Count], got: &PacketCounts) -> Result<(), Difference> {
    let got = got.totals();
    let Some(number) = expected.iter().zip(&got).position(|(expected, got)| expected != got) else { return Ok(()) };
    let say = |counts: &[Count]| {
        let Count { packets, bytes } = counts[number];
        format!("counter {number} with {packets} packets and {bytes} bytes")
    };
    Err(Difference { seq: None, expected: say(expected), got: say(&got) })
}

fn compare_shared(expected: u64, got: u64) -> Result<(), Difference> {
    if expected == got {
        return Ok(());
    }
    let say = |digest| format!("shared state with digest {digest:016x}");
    Err(Difference { seq: None, expected: say(expected), got: say(got) })
}
