//! The contract itself.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use memory::{Local, LocalTx, Memory, Transactional};
use packet::{FlowKey, Headers, Host, Nanos};

use crate::context::Context;
use crate::description::{Description, PacketSet, Recipe};
use crate::record::{HOST_BYTES, RecordReader, RecordWriter};
use crate::report::{Fingerprint, Report};
use crate::verdict::{Fates, Reason, Verdict};

/// The outcome of a handler: a value, or the conflict of the memory that its shared state lives in.
pub type Step<T, M> = Result<T, <M as Memory>::Conflict>;

/// All that a packet contributes to state: `f(p)` of state-compute replication. Plain data of fixed size, for this is
/// what a history carries.
pub trait Meta: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The type of the packet set's name.
    type Key: FlowKey;

    /// Whether [`source`](Self::source) tells who sent a packet, so that an engine can limit what one host opens.
    const TELLS_SOURCE: bool = false;

    /// How many bytes the wire form has: that of every packet has as many.
    const RECORD_BYTES: usize;

    /// The packet set that the packet belongs to.
    fn key(&self) -> Self::Key;

    /// The host that sent the packet.
    fn source(&self) -> Option<Host> {
        None
    }

    /// What of it adds up ([`NetworkFunction::add`]): a length in bytes, say.
    fn amount(&self) -> u32 {
        0
    }

    /// Writes the wire form, by which a sequencer hands it to a core that doesn't see the packet. `record` has
    /// [`RECORD_BYTES`](Self::RECORD_BYTES) bytes, each of which is written: see [`RecordWriter`](crate::RecordWriter).
    fn write(&self, record: &mut [u8]);

    /// Back from the wire form; `None` for bytes that [`write`](Self::write) makes of no packet.
    fn read(record: &[u8]) -> Option<Self>;
}

/// The contribution of a packet to a function that needs nothing but its sender.
impl Meta for Host {
    type Key = Self;
    const RECORD_BYTES: usize = HOST_BYTES;

    #[inline]
    fn key(&self) -> Self {
        *self
    }

    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(self).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        RecordReader::new(record).host()
    }
}

/// The state of one packet set.
pub trait Flow: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Whether there is anything to keep. Engines hold no flow table for a function whose packet sets have no state.
    const STORED: bool = true;
}

/// No state: all that the function knows is shared.
impl Flow for () {
    const STORED: bool = false;
}

/// What a function decides of a packet set's first packet.
#[derive(Clone, Copy, Debug)]
pub enum Opened<F> {
    /// The packet set is remembered by this state, which the packet is then given to.
    Flow(F),
    /// It isn't remembered, and this becomes of the packet.
    Refused(Verdict),
}

/// What a row of contributions to one flow comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How many there are.
    pub count: u32,
    /// Their [amounts](Meta::amount) together.
    pub amount: u64,
    /// When the last one came.
    pub last: Nanos,
}

/// How many flows the tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// IPv4 flows (or flows of keys that have one form only).
    pub flows: usize,
    /// IPv6 flows.
    pub flows_v6: usize,
}

/// A network function: a sequential, deterministic program over packet sets.
///
/// The engine calls, in packet order: [`meta`](Self::meta) for every well-formed packet; for a packet of a packet set
/// that it doesn't know (or whose deadline has passed) [`open`](Self::open), then [`packet`](Self::packet) with the
/// new state; for others `packet` alone; [`expire`](Self::expire) once for each packet set that ends.
///
/// Handlers must depend on nothing but their arguments: the same state, metadata, time and sequence number must always
/// give the same verdict and the same new state.
pub trait NetworkFunction:
    Sized
    + Send // no Rc: what changes from packet to packet goes into `type Flow`, or into `type Shared<M>` (M::Vector, M::Map, ...)
    + Sync // no Cell: what changes from packet to packet goes into `type Flow`, or into `type Shared<M>` (M::Vector, M::Map, ...)
    + 'static
{
    /// What a packet contributes to state.
    type Meta: Meta;
    /// The state of one packet set.
    type Flow: Flow;
    /// The state that all packet sets share; `()` where there is none.
    type Shared<M: Memory>: Send + 'static;

    /// The function's entry in the catalogue.
    const DESCRIPTION: Description;

    /// What its configuration can do about transactions that fail.
    const RECIPES: &'static [Recipe] = &[];

    /// The fields that name a packet set. Where cores share a capture, packets of TCP and UDP are steered by these fields alone, as a card
    /// steers them, so [`Meta::key`] has to be made of no others; what no field of the packet alone names is
    /// [`Initiator`](PacketSet::Initiator) or [`Connection`](PacketSet::Connection), for which the key is asked.
    fn packet_set(&self) -> PacketSet;

    /// How many packet sets are remembered.
    fn sizing(&self) -> Sizing;

    /// The shared state at the start.
    fn shared<M: Memory>(&self, memory: &M) -> Self::Shared<M>;

    /// Adds all of the shared state that a later packet could tell apart.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn fingerprint<'a, M: Memory>(
        &self,
        _shared: &'a Self::Shared<M>,
        _tx: &mut M::Tx<'a>,
        _fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        Ok(())
    }

    /// What the packet contributes to state; `None` when it is not this function's business. Where it is inlined, no more is
    /// read of an ordinary packet than it looks at.
    ///
    /// `payload` is what was captured of the transport's payload. Whatever is wanted of it has to be in the metadata, which
    /// replicas get in the packet's place: a digest, a class, a few bytes. Nothing here is reassembled; a message that is split
    /// over segments is seen in pieces.
    fn meta(&self, headers: &Headers, payload: &[u8]) -> Option<Self::Meta>;

    /// What becomes of a packet that is not this function's business. Depends on its headers alone.
    fn other(&self, _headers: &Headers) -> Verdict {
        Verdict::forward()
    }

    /// A packet will come in a moment: brings near what its step reads first of shared state. Engines call it for a whole burst
    /// before they step, so that the memory's latencies overlap. Belongs to no step: what is seen may change.
    fn prefetch<M: Memory>(&self, _shared: &Self::Shared<M>, _meta: &Self::Meta) {}

    /// What [`prefetch`](Self::prefetch) asked for is near by now: brings near what it leads to. Belongs to no step either.
    fn prefetch_entry<M: Memory>(&self, _shared: &Self::Shared<M>, _meta: &Self::Meta) {}

    /// A packet of an unknown packet set has come.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Self::Meta) -> Step<Opened<Self::Flow>, M>;

    /// A packet has come.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Self::Flow,
        meta: &Self::Meta,
    ) -> Step<Verdict, M>;

    /// By how many bytes [`transform`](Self::transform) makes a frame longer at most; `None` where no packet is made anew.
    const GROWTH: Option<u32> = None;

    /// Writes into `out`, which is empty, the frame that goes out in place of the one that `headers` was parsed from. Called for
    /// [`Verdict::Transform`] alone, by the core that has the packet, once the step has committed: what takes long and needs no
    /// state, as encryption does, is best done here. It must depend on nothing but its arguments.
    ///
    /// # Errors
    /// The reason for which the packet is dropped after all.
    fn transform(&self, _work: u64, _headers: &Headers, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
        out.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether it remembers some of the packet sets that it sees and not the others, as who [`refuses`](Self::refuses) does: then nothing
    /// foretells whether a packet's flow is known, and flows are looked for without a guess at that. A matter of speed alone.
    const SELECTIVE: bool = false;

    /// Whether [`open`](Self::open) refuses this packet, whatever else is the case, and does nothing besides: then a replica need
    /// not ask it. To say no is always right.
    fn refuses(&self, _meta: &Self::Meta) -> bool {
        false
    }

    /// Whether equal contributions that follow each other can be taken at once, by [`run`](Self::run).
    const FOLDS: bool = false;

    /// The same contribution `count` times, the first at `first` and the last now, without verdicts: what
    /// [`packet`](Self::packet) would have made of the flow, one by one. `false`, and nothing done, where they have to be taken
    /// one by one after all. A replica that has missed a run of a flow's packets catches up so.
    ///
    /// The law, which [`FOLDS`](Self::FOLDS) claims and a property test has to show: whatever the times in between, the flow's
    /// state and the effects of the last step are the same, no step moves the deadline earlier, and none closes the flow.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn run<M: Memory>(
        &self,
        _cx: &mut Context<'_, Self, M>,
        _flow: &mut Self::Flow,
        _meta: &Self::Meta,
        _count: u32,
        _first: Nanos,
    ) -> Step<bool, M> {
        Ok(false)
    }

    /// Whether steps on a flow add up, by [`add`](Self::add): then cores that share the flow's state can each take one by a single
    /// atomic operation, without a lock.
    const ADDS: bool = false;

    /// What [`packet`](Self::packet) would have made of the flow in as many steps, by contributions that come to this sum. `false`,
    /// and nothing done, where they have to be taken one by one.
    ///
    /// The law, which [`ADDS`](Self::ADDS) claims and a property test has to show: contributions of one packet set differ in their
    /// amounts alone, and where every beginning of a row of them is taken, whatever the times in between, the flow's state is the
    /// one that the row's steps would have left. And [`expire`](Self::expire) does nothing.
    fn add(&self, _flow: &mut Self::Flow, _sum: &Sum) -> bool {
        false
    }

    /// A packet set has ended: its deadline has passed, it was closed, or it had to make room.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn expire<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _flow: &Self::Flow) -> Step<(), M> {
        Ok(())
    }

    /// A packet of an unknown packet set has come, the table is full and no flow can go.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn orphan<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _meta: &Self::Meta) -> Step<Verdict, M> {
        Ok(Verdict::Drop(Reason::TABLE_FULL))
    }

    /// What the function has to tell at the end of a run, from the flows that are alive, in no particular order.
    fn report(&self, _flows: &mut dyn Iterator<Item = (<Self::Meta as Meta>::Key, Self::Flow)>) -> Option<Report> {
        None
    }

    /// What the function has to tell at the end of a run, at `now`, of what all packet sets share. Asked where
    /// [`report`](Self::report) tells nothing.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn report_shared<'a, M: Memory>(
        &self,
        _shared: &'a Self::Shared<M>,
        _tx: &mut M::Tx<'a>,
        _now: Nanos,
    ) -> Step<Option<Report>, M> {
        Ok(None)
    }

    /// Adds to what [`report`](Self::report) told of the flows that are alive what there was of flows past their deadline for which
    /// [`expire`](Self::expire) was not called yet: which these are is the engine's affair.
    fn report_lapsed(&self, _report: &mut Report, _flows: &mut dyn Iterator<Item = Self::Flow>) {}

    /// Adds to what [`report`](Self::report) told what packet sets share at `now`: what there was of flows that have ended, say.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn complete_report<'a, M: Memory>(
        &self,
        _report: &mut Report,
        _shared: &'a Self::Shared<M>,
        _tx: &mut M::Tx<'a>,
        _now: Nanos,
    ) -> Step<(), M> {
        Ok(())
    }

    /// What an operator should hear who most likely meant something else: that nothing is configured, that nearly all packets
    /// end for one reason, and what to do about it. A sentence or two.
    fn remark(&self, _fates: &Fates<'_>) -> Option<String> {
        None
    }
}

/// A network function that every engine can take: where its shared state lives in memory that cores share, all of them may look
/// at it. Nothing else has to be said or done for it.
pub trait Function: NetworkFunction<Shared<Transactional>: Sync> {} // `type Shared<M>` is made of M::Vector, M::Map, M::Allocator, M::Distributed
impl<N: NetworkFunction<Shared<Transactional>: Sync>> Function for N {}

/// The digest of shared state that one core owns.
#[must_use]
pub fn local_fingerprint<N: NetworkFunction>(nf: &N, shared: &N::Shared<Local>) -> Fingerprint {
    let mut fingerprint = Fingerprint::default();
    match nf.fingerprint(shared, &mut LocalTx::default(), &mut fingerprint) {
        Ok(()) => fingerprint,
        Err(never) => match never {},
    }
}

/// What a function has to tell of the entries of its tables at `now`, each with its key, state and deadline.
pub fn report_of_flows<N, I>(nf: &N, now: Nanos, entries: impl Fn() -> I) -> Option<Report>
where
    N: NetworkFunction,
    I: Iterator<Item = (<N::Meta as Meta>::Key, N::Flow, Nanos)>,
{
    let alive = |(key, flow, deadline)| (deadline > now).then_some((key, flow));
    let mut report = nf.report(&mut entries().filter_map(alive))?;
    let lapsed = |(_, flow, deadline)| (deadline <= now).then_some(flow);
    nf.report_lapsed(&mut report, &mut entries().filter_map(lapsed));
    Some(report)
}

/// What a function has to tell in the end: of flows and what they share, or else of that alone.
///
/// # Errors
/// The memory's conflict.
pub fn whole_report<'a, N: NetworkFunction, M: Memory>(
    nf: &N,
    of_flows: Option<&Report>,
    shared: &'a N::Shared<M>,
    tx: &mut M::Tx<'a>,
    now: Nanos,
) -> Step<Option<Report>, M> {
    let Some(of_flows) = of_flows else { return nf.report_shared(shared, tx, now) };
    let mut report = of_flows.clone();
    nf.complete_report(&mut report, shared, tx, now)?;
    Ok(Some(report))
}

/// [The same](whole_report) of shared state that one core owns.
#[must_use]
pub fn local_whole_report<N: NetworkFunction>(
    nf: &N,
    of_flows: Option<&Report>,
    shared: &N::Shared<Local>,
    now: Nanos,
) -> Option<Report> {
    match whole_report::<N, Local>(nf, of_flows, shared, &mut LocalTx::default(), now) {
        Ok(report) => report,
        Err(never) => match never {},
    }
}

/// What a function has to tell of shared state that one core owns.
#[must_use]
pub fn local_report<N: NetworkFunction>(nf: &N, shared: &N::Shared<Local>, now: Nanos) -> Option<Report> {
    local_whole_report(nf, None, shared, now)
}
