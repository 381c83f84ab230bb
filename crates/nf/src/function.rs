//! The traits that an author implements: `NetworkFunction`, `Meta`, `Flow`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use memory::{Local, LocalTx, Memory, Transactional};
use packet::{Decided, FlowKey, Headers, Host, Nanos, Seq, Taken};

use crate::context::Context;
use crate::counts::PacketCounts;
use crate::description::{Description, IcmpErrors, PacketSet};
use crate::kept::Kept;
use crate::record::{HOST_BYTES, RecordReader, RecordWriter};
use crate::report::{Fingerprint, Report};
use crate::speed::Speed;
use crate::transform::Transform;
use crate::verdict::{Fates, Reason, Verdict};

/// The outcome of a handler: a value, or a conflict on shared state. Pass conflicts on with `?`.
pub type Step<T, M> = Result<T, <M as Memory>::Conflict>;

/// The metadata of a packet: all that it contributes to state, as plain data of fixed size. It is `f(p)` of state-compute replication, and
/// the content of a history record.
pub trait Meta: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The key of a packet set.
    type Key: FlowKey;

    /// True if [`source`](Self::source) returns the sender. Engines can then limit the flows of one source.
    const TELLS_SOURCE: bool = false;

    /// The length of the wire form in bytes. It is the same for all packets.
    const RECORD_BYTES: usize;

    /// The key of the packet's packet set.
    fn key(&self) -> Self::Key;

    /// The host that sent the packet.
    fn source(&self) -> Option<Host> {
        None
    }

    /// Writes the wire form. A sequencer sends it to cores that don't receive the packet. `record` is [`RECORD_BYTES`](Self::RECORD_BYTES)
    /// long; write every byte, best with a [`RecordWriter`](crate::RecordWriter).
    fn write(&self, record: &mut [u8]);

    /// Reads the wire form. Returns `None` for bytes that [`write`](Self::write) never makes.
    fn read(record: &[u8]) -> Option<Self>;
}

/// Metadata for functions that need only the packet's sender.
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
        let mut fields = RecordReader::new(record);
        let host = fields.host()?;
        fields.end().map(|()| host)
    }
}

/// The flow: the state of one packet set.
pub trait Flow: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// False if packet sets have no state. Engines then build no flow table.
    const STORED: bool = true;

    /// Number of 64-bit words that hold a flow in a snapshot; `None` if flows don't outlive a run. Write [`in_words!`](crate::in_words)
    /// for a flow that implements [`Words`](packet::Words).
    const WORDS: Option<usize> = None;

    /// Writes the flow's words into a place for [`WORDS`](Self::WORDS) of them.
    fn write_words(&self, _words: &mut [u64]) {}

    /// The flow of these words, of which there are [`WORDS`](Self::WORDS). `None` if they are no flow.
    fn read_words(_words: &[u64]) -> Option<Self> {
        None
    }
}

/// Lets snapshots keep a flow that implements [`Words`](packet::Words), inside its `impl Flow`.
#[macro_export]
macro_rules! in_words {
    () => {
        const WORDS: Option<usize> = Some(<Self as $crate::packet::Words>::COUNT);

        #[inline]
        fn write_words(&self, words: &mut [u64]) {
            words.copy_from_slice(<Self as $crate::packet::Words>::to_words(self).as_ref());
        }

        #[inline]
        fn read_words(words: &[u64]) -> Option<Self> {
            let mut array = <Self as $crate::packet::Words>::ZEROS;
            (array.as_ref().len() == words.len()).then(|| {
                array.as_mut().copy_from_slice(words);
                <Self as $crate::packet::Words>::from_words(array)
            })
        }
    };
}

/// No flow: all state is shared.
impl Flow for () {
    const STORED: bool = false;
    const WORDS: Option<usize> = Some(0);

    fn read_words(words: &[u64]) -> Option<Self> {
        words.is_empty().then_some(())
    }
}

/// The key type of a function's packet sets.
pub type KeyOf<N> = <<N as NetworkFunction>::Meta as Meta>::Key;

/// What [`open`](NetworkFunction::open) decides about the first packet of a packet set.
#[derive(Clone, Copy, Debug)]
pub enum Opened<F> {
    /// The function opens this flow. The packet then goes to [`packet`](NetworkFunction::packet) with it.
    Flow(F),
    /// The function opens no flow. The packet gets this verdict.
    Refused(Verdict),
}

/// How many flows the tables hold. `sequential` and `shared` have tables of this size, and so has each core of `rss`, `scr` and
/// `transactional`. `rss++` and `hybrid` divide it among the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// IPv4 flows. Also the flows of keys that hold no IP address (Ethernet addresses, for example).
    pub flows: usize,
    /// IPv6 flows.
    pub flows_v6: usize,
}

/// A network function: a sequential, deterministic program over packet sets.
///
/// The engine handles packets in this order:
///
/// 1. [`meta`](Self::meta) extracts the metadata of every well-formed packet. If it returns `None`, [`other`](Self::other) gives the
///    verdict, and nothing else is called.
/// 2. If the packet set has a flow past its deadline, [`expire`](Self::expire) ends that flow.
/// 3. For a packet set without a flow, [`open`](Self::open) opens one. If it refuses, its verdict is the packet's.
/// 4. If the table is full, [`expire`](Self::expire) ends the flow that is evicted: after `open`, so a pool of shared resources may look
///    empty to `open`. If no flow can be evicted, `expire` ends the new flow and [`orphan`](Self::orphan) gives the verdict.
/// 5. [`packet`](Self::packet) takes the step with the flow, for the first packet too. If it closes the flow, `expire` follows.
///
/// Every flow ends with one call of `expire`. A handler sets the flow's deadline by [`Context::expire_after`] and closes it by
/// [`Context::close`].
///
/// A handler must depend on its arguments only. The same state, metadata, time and sequence number must give the same verdict and the same
/// new state.
pub trait NetworkFunction:
    Sized
    + Send // no Rc: what changes from packet to packet goes into `type Flow`, or into `type Shared<M>` (M::Vector, M::Map, ...)
    + Sync // no Cell: what changes from packet to packet goes into `type Flow`, or into `type Shared<M>` (M::Vector, M::Map, ...)
    + 'static
{
    /// The metadata of a packet.
    type Meta: Meta;
    /// The state of one packet set.
    type Flow: Flow;
    /// The state that all packet sets share; `()` if there is none.
    type Shared<M: Memory>: Send + 'static;
    /// Optional shortcuts that make engines faster. [`Plain`](crate::Plain) has none.
    type Speed: Speed<Self>;

    /// The name, summary, configuration keys and drop reasons.
    const DESCRIPTION: Description;

    /// Builds new frames, for [`Verdict::Transform`] (encryption, for example). `None` if the function never returns that verdict.
    const TRANSFORM: Option<Transform<Self>> = None;

    /// True if the function counts packets by numbers of its own ([`Context::count`]), as a firewall counts by rule.
    const COUNTS: bool = false;

    /// True if steps read the packet's bytes.
    const READS_FRAMES: bool = Self::DESCRIPTION.sharing.reads_frames();

    /// The number of counters, if the function [counts](Self::COUNTS).
    fn counters(&self) -> usize {
        0
    }

    /// The description of the function with its configuration. It may differ from [`DESCRIPTION`](Self::DESCRIPTION) in
    /// [`sharing`](Description::sharing) alone, where the configuration decides what packet sets share.
    fn description(&self) -> Description {
        Self::DESCRIPTION
    }

    /// By how many bytes a frame grows at most, by [`TRANSFORM`](Self::TRANSFORM) or by a [reply](Verdict::Reply). Writers of captures raise
    /// the snap length by it.
    fn growth(&self) -> u32 {
        Self::TRANSFORM.map_or(0, |transform| transform.growth)
    }

    /// The header fields that [`Meta::key`] is made of. Cards, and cores that share a capture, choose the core of a TCP or UDP packet by
    /// these fields alone, so the key must not depend on other fields. If the key is not one of the packet's own fields, return
    /// [`Initiator`](PacketSet::Initiator) or [`Connection`](PacketSet::Connection): engines then call `key`.
    fn packet_set(&self) -> PacketSet;

    /// The packet set of an ICMP error, where packet sets are five-tuples. A [chain](crate::Chain) asks, for functions that answer alike can
    /// have their flows in one entry.
    fn icmp_errors(&self) -> IcmpErrors {
        IcmpErrors::Own
    }

    /// True if verdicts may give packets other addresses or ports. Functions behind this one in a [chain](crate::Chain) then see other
    /// five-tuples than it does. `true` is always correct.
    fn readdresses(&self) -> bool {
        true
    }

    /// A flow as text, for explanations of single packets.
    fn shown(&self, flow: &Self::Flow) -> String {
        format!("{flow:?}")
    }

    /// Notes for operators on the function with this configuration, told before it runs.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// True if engines drop later fragments, which carry no ports, ahead of the function.
    fn drops_fragments(&self) -> bool {
        self.packet_set().has_ports()
    }

    /// True if [`decided`](Self::decided) tells of flows whose coming packets can be taken ahead of the function. Packet sets are then
    /// symmetric five-tuples that share nothing.
    const DECIDES: bool = false;

    /// Decides the coming packets of a flow, if it can: a card, or an XDP program, may then take them. `None` if the
    /// function has to see them. It must hold as long as the function sees no packet of the flow, and whatever becomes of other flows.
    fn decided(&self, _flow: &Self::Flow) -> Option<Decided> {
        None
    }

    /// Brings a flow to the state that it would have if the function had seen the packets that were taken ahead of it since it was
    /// [decided](Self::decided). Its deadline is set by the engine.
    fn taken(&self, _flow: &mut Self::Flow, _taken: &Taken) {}

    /// True if the function needs whole IP datagrams: commands then gather fragments in front of it, unless the user says otherwise.
    fn wants_whole_datagrams(&self) -> bool {
        false
    }

    /// True if [`meta`](Self::meta) reads more of a frame than headers and the few bytes behind them: payload, or a checksum over it. Such
    /// a function needs the packets themselves, where a history has only the beginnings of packets.
    fn reads_payload(&self) -> bool {
        false
    }

    /// Number of flow entries that are looked up for a packet, at most.
    fn look_ups(&self) -> usize {
        usize::from(<Self::Flow as Flow>::STORED)
    }

    /// The number of flows that the tables hold.
    fn sizing(&self) -> Sizing;

    /// Creates the initial shared state in `memory`.
    fn shared<M: Memory>(&self, memory: &M) -> Self::Shared<M>;

    /// The most memory in bytes that this many shared states take together, beside what `memory` counts: pools, for example. It must not
    /// depend on traffic.
    fn shared_bytes_max(&self, _states: usize) -> usize {
        0
    }

    /// Adds to the fingerprint all shared state that can change the outcome of a later packet. Engines are compared by it.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn fingerprint<'a, M: Memory>(
        &self,
        _shared: &'a Self::Shared<M>,
        _tx: &mut M::Tx<'a>,
        _fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        Ok(())
    }

    /// Prepares this function to replace `old`, with another configuration, in a run that goes on. Flows stay as they are; what packet sets
    /// share is [adopted](Self::adopt). By default a function can't.
    ///
    /// # Errors
    /// Why it can't, as a sentence.
    fn succeed(self, _old: &Self) -> Result<Self, String>
    where
        Self: Sized,
    {
        Err(format!("{} can't get another configuration while it runs", Self::DESCRIPTION.name))
    }

    /// Fits the state that packet sets share under `old` to this function, which [succeeds](Self::succeed) it. No step runs meanwhile. By
    /// default the state stays as it is.
    fn adopt<M: Memory>(&self, _old: &Self, _shared: &mut Self::Shared<M>, _memory: &M) {}

    /// True if [`keep`](Self::keep) gives all that packet sets share, so that it outlives a run. A function whose packet sets share nothing
    /// needs none of this.
    const KEEPS: bool = false;

    /// Gives each structure that packet sets share to `kept`, which writes it to a snapshot or reads it from one, into state as
    /// [`shared`](Self::shared) makes it. What follows from other structures can be left out, and rebuilt when the snapshot is
    /// [read](Kept::reads).
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn keep<'a, M: Memory>(
        &self,
        _shared: &'a Self::Shared<M>,
        _tx: &mut M::Tx<'a>,
        _kept: &mut Kept<'_>,
    ) -> Step<(), M> {
        Ok(())
    }

    /// What this function has of those that it [succeeded](Self::succeed), beside its own configuration, as words for a snapshot. By
    /// default nothing.
    fn inherited(&self) -> Vec<u64> {
        Vec::new()
    }

    /// This function with what another of the same configuration has [inherited](Self::inherited). `None` if the words make no sense.
    fn inherit(&self, _words: &[u64]) -> Option<Self> {
        None
    }

    /// Extracts the metadata of a packet. Returns `None` if the function has nothing to do with the packet.
    ///
    /// `frame` is the captured part of the frame that `headers` was parsed from, link header first; `headers.payload(frame)` is the
    /// transport payload. The handlers don't see these bytes, and neither do replicas, so put what they need into the metadata: a class, a
    /// digest, a few bytes. Nothing is reassembled: a message over several segments comes in pieces.
    ///
    /// Keep it small and inlined: then only the headers that it reads are parsed.
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Self::Meta>;

    /// The verdict on a packet without metadata. It must depend on the headers alone.
    fn other(&self, _headers: &Headers) -> Verdict {
        Verdict::forward()
    }

    /// Opens a flow for the first packet of an unknown packet set, or refuses it.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Self::Meta) -> Step<Opened<Self::Flow>, M>;

    /// Takes the step of a packet: changes the flow and returns the verdict.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Self::Flow,
        meta: &Self::Meta,
    ) -> Step<Verdict, M>;

    /// Ends a packet set: its deadline has passed, the function closed it, or it was evicted. Give its shared resources back here.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn expire<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _flow: &Self::Flow) -> Step<(), M> {
        Ok(())
    }

    /// The flow as if it ended now. The engine calls it at the end of a run, for the [report](Self::report) and the counters: it takes nothing
    /// but a copy, and what [`Context::count`] counts here counts for flows past their deadline. Functions over streams look ahead at what
    /// would be told at the flow's end. It must change no shared state, and is called only for functions that
    /// [read frames](Self::READS_FRAMES).
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn conclude<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, flow: &Self::Flow) -> Step<Self::Flow, M> {
        Ok(*flow)
    }

    /// The verdict on a packet whose flow found no room: the table is full and no flow can be evicted, the new flow was dropped early, or
    /// its source has too many flows. The flow that `open` made goes to [`expire`](Self::expire) first.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn orphan<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _meta: &Self::Meta) -> Step<Verdict, M> {
        Ok(Verdict::Drop(Reason::TABLE_FULL))
    }

    /// The function's report at the end of a run, made from the flows, from shared state, or from both.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn report<M: Memory>(
        &self,
        _cx: &mut Context<'_, Self, M>,
        _flows: &FlowList<'_, Self>,
    ) -> Step<Option<Report>, M> {
        Ok(None)
    }

    /// Shows the function with a part of its work only, for measuring what each stage takes. `packets` is the number of packets that a
    /// measurement has at most. By default the work is one stage.
    fn stages<S: Stages>(&self, _packets: usize, _stages: &mut S) {}

    /// The numbers of the ports that the configuration names, so that a user can be told which of them a capture lacks.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// A warning for operators about a probable mistake, with what to do about it: nothing is configured, or nearly all packets are dropped
    /// for one reason. One or two sentences.
    fn remark(&self, _fates: &Fates<'_>) -> Option<String> {
        None
    }
}

/// A measurement of a function's stages. All runs get the same packets on one core.
pub trait Stages {
    /// Runs a function once without measuring it, so that later stages learn from it.
    fn rehearse<N: NetworkFunction>(&mut self, nf: N);

    /// Takes the function with its work up to the end of the stage of this name. Stages come in order, without the last: that is the
    /// function itself.
    fn stage<N: NetworkFunction>(&mut self, name: &'static str, nf: N);
}

/// A network function that every engine can run. Implemented for every function whose shared state is `Sync` in transactional memory.
pub trait Function: NetworkFunction<Shared<Transactional>: Sync> {} // `type Shared<M>` is made of M::Vector, M::Map, M::Allocator, M::Distributed
impl<N: NetworkFunction<Shared<Transactional>: Sync>> Function for N {}

/// The fingerprint of shared state that one core owns.
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

/// Flows with their keys, states and deadlines, in no particular order.
pub type Entries<'a, N> = Box<dyn Iterator<Item = (KeyOf<N>, <N as NetworkFunction>::Flow, Nanos)> + 'a>;

impl<'a, N: NetworkFunction> FlowList<'a, N> {
    /// The flows at `now`. `entries` iterates over the engine's tables. For engines.
    #[must_use]
    pub fn new(entries: &'a dyn Fn() -> Entries<'a, N>, now: Nanos) -> Self {
        Self { entries, now }
    }

    /// Iterates over the flows that are alive, in no particular order.
    pub fn alive(&self) -> impl Iterator<Item = (KeyOf<N>, N::Flow)> + use<'a, N> {
        let now = self.now;
        (self.entries)().filter_map(move |(key, flow, deadline)| (deadline > now).then_some((key, flow)))
    }

    /// Iterates over the flows past their deadline that [`expire`](NetworkFunction::expire) was not called for yet. Engines differ in which
    /// flows these are, so a report must be the same whether a flow is listed here or was expired.
    pub fn lapsed(&self) -> impl Iterator<Item = N::Flow> + use<'a, N> {
        let now = self.now;
        (self.entries)().filter_map(move |(_, flow, deadline)| (deadline <= now).then_some(flow))
    }
}

/// The flow as if it ended now, with shared state that one core owns. Its counts go to `counts`.
#[must_use]
pub fn local_conclusion<N: NetworkFunction>(
    nf: &N,
    shared: &N::Shared<Local>,
    flow: &N::Flow,
    now: Nanos,
    counts: Option<&PacketCounts>,
) -> N::Flow {
    let mut cx = Context::<N, Local>::new(shared, LocalTx::default(), now, Seq(0)).counting(counts);
    match nf.conclude(&mut cx, flow) {
        Ok(flow) => flow,
        Err(never) => match never {},
    }
}

/// The report on these flows, on shared state that one core owns, and on what all cores have counted.
#[must_use]
pub fn local_report<N: NetworkFunction>(
    nf: &N,
    flows: &FlowList<'_, N>,
    shared: &N::Shared<Local>,
    counts: &PacketCounts,
) -> Option<Report> {
    let mut cx = Context::<N, Local>::new(shared, LocalTx::default(), flows.now, Seq(0)).counting(Some(counts));
    match nf.report(&mut cx, flows) {
        Ok(report) => report,
        Err(never) => match never {},
    }
}
