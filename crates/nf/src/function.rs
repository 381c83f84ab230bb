//! The contract itself.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use memory::{Local, LocalTx, Memory, Transactional};
use packet::{FlowKey, Headers, Host, Nanos, Seq};

use crate::context::Context;
use crate::description::{Description, PacketSet};
use crate::record::{HOST_BYTES, RecordReader, RecordWriter};
use crate::report::{Fingerprint, Report};
use crate::speed::Speed;
use crate::transform::Transform;
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

/// The type of a function's packet set names.
pub type KeyOf<N> = <<N as NetworkFunction>::Meta as Meta>::Key;

/// What a function decides of a packet set's first packet.
#[derive(Clone, Copy, Debug)]
pub enum Opened<F> {
    /// The packet set is remembered by this state, which the packet is then given to.
    Flow(F),
    /// It isn't remembered, and this becomes of the packet.
    Refused(Verdict),
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
    /// Shortcuts that make engines faster: [`Plain`](crate::Plain) for none.
    type Speed: Speed<Self>;

    /// The function's entry in the catalogue.
    const DESCRIPTION: Description;

    /// How the function makes frames anew, as encryption does ([`Verdict::Transform`]); `None` where it never does.
    const TRANSFORM: Option<Transform<Self>> = None;

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

    /// What the function found, for the end of a run: from the flows, from shared state, or from both.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
    fn report<M: Memory>(
        &self,
        _cx: &mut Context<'_, Self, M>,
        _flows: &FlowList<'_, Self>,
    ) -> Step<Option<Report>, M> {
        Ok(None)
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

/// The flows that a [report](NetworkFunction::report) is made from.
pub struct FlowList<'a, N: NetworkFunction> {
    entries: &'a dyn Fn() -> Entries<'a, N>,
    now: Nanos,
}

/// FlowList with their keys, states and deadlines, in no particular order.
pub type Entries<'a, N> = Box<dyn Iterator<Item = (KeyOf<N>, <N as NetworkFunction>::Flow, Nanos)> + 'a>;

impl<'a, N: NetworkFunction> FlowList<'a, N> {
    /// The flows that there are at `now`. For engines, which say by `entries` what lies in their tables.
    #[must_use]
    pub fn new(entries: &'a dyn Fn() -> Entries<'a, N>, now: Nanos) -> Self {
        Self { entries, now }
    }

    /// The flows that are alive, in no particular order.
    pub fn alive(&self) -> impl Iterator<Item = (KeyOf<N>, N::Flow)> + use<'a, N> {
        let now = self.now;
        (self.entries)().filter_map(move |(key, flow, deadline)| (deadline > now).then_some((key, flow)))
    }

    /// The flows whose deadline has passed and that [`expire`](NetworkFunction::expire) was not called for yet. Which these are differs
    /// between engines, so a report must come out the same whether a flow is among them or has been told of.
    pub fn lapsed(&self) -> impl Iterator<Item = N::Flow> + use<'a, N> {
        let now = self.now;
        (self.entries)().filter_map(move |(_, flow, deadline)| (deadline <= now).then_some(flow))
    }
}

/// What a function has to tell of these flows and of shared state that one core owns.
#[must_use]
pub fn local_report<N: NetworkFunction>(nf: &N, flows: &FlowList<'_, N>, shared: &N::Shared<Local>) -> Option<Report> {
    match nf.report(&mut Context::<N, Local>::new(shared, LocalTx::default(), flows.now, Seq(0)), flows) {
        Ok(report) => report,
        Err(never) => match never {},
    }
}
