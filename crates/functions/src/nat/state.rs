//! The translator's state: mappings, sessions, and the maps that find them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use memory::{Allocator, Map, Memory, Vector};
use nf::{Fingerprint, Kept, RecordReader, RecordWriter, Step};
use packet::{Endpoint, Family, FiveTuple, FiveTuple4, FlowKey, Nanos, protocol};

use super::Translation;
use super::config::{Config, Filtering};
use super::ports::Ports;
use super::tcp::Phase;

/// How many expired sessions each packet clears. A packet opens two sessions at most (hairpin), so expired ones don't pile up.
const RECLAIMED_A_PACKET: usize = 2;

/// An IPv4 address and a port, or for ICMP queries an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint4 {
    pub(super) address: u32,
    pub(super) port: u16,
}

impl Endpoint4 {
    /// The wildcard endpoint in keys.
    pub(super) const ANY: Self = Self { address: 0, port: 0 };

    /// Bytes of the wire form.
    pub(super) const RECORD_BYTES: usize = 6;

    pub(super) const fn new(address: Ipv4Addr, port: u16) -> Self {
        Self { address: address.to_bits(), port }
    }

    #[inline]
    pub(super) fn write(self, fields: RecordWriter<'_>) -> RecordWriter<'_> {
        fields.u32(self.address).u16(self.port)
    }

    #[inline]
    pub(super) fn read(fields: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self { address: fields.u32()?, port: fields.u16()? })
    }
}

impl From<Endpoint4> for Endpoint {
    #[inline(always)]
    fn from(endpoint: Endpoint4) -> Self {
        Self::new(Ipv4Addr::from_bits(endpoint.address).into(), endpoint.port)
    }
}

/// The protocols that are translated. Each has its own ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    /// ICMP queries; the identifier is the port.
    Icmp,
}

impl Protocol {
    pub(super) const COUNT: usize = 3;

    /// Decodes two bits of a packed session or mapping.
    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Tcp,
            1 => Self::Udp,
            _ => Self::Icmp,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Icmp => protocol::ICMP,
        }
    }
}

/// The external endpoint of an inside endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    internal: Endpoint4,
    external: Endpoint4,
    protocol: Protocol,
    /// Number of sessions that use the mapping. It is removed with the last one.
    sessions: u32,
}

/// The traffic of an inside endpoint with a remote endpoint. For UDP and ICMP the remote endpoint is reduced to the part that filtering
/// uses. Half a cache line: a packet reads and writes one session and one map slot.
#[derive(Clone, Copy, Debug)]
struct Session {
    deadline: Nanos,
    addresses: [u32; 3],
    mapping: u32,
    ports: [u16; 3],
    protocol: Protocol,
    phase: Phase,
}

const _: () = assert!(size_of::<Session>() == 32);

packet::words! {
    Mapping: [3], mapping => [
        pack(mapping.internal),
        pack(mapping.external),
        u64::from(mapping.sessions) << 2 | mapping.protocol as u64,
    ], words => Self {
        internal: unpack(words[0]),
        external: unpack(words[1]),
        protocol: Protocol::from_bits(words[2]),
        sessions: (words[2] >> 2) as u32,
    };
    Session: [4], entry => {
        let [a, b, c] = entry.addresses.map(u64::from);
        let [p, q, r] = entry.ports.map(u64::from);
        let rest = r << 16 | u64::from(entry.phase.bits()) << 2 | entry.protocol as u64;
        [entry.deadline.0, a << 32 | b, c << 32 | u64::from(entry.mapping), p << 48 | q << 32 | rest]
    }, words => {
        let [deadline, ab, cm, rest] = words;
        Self {
            deadline: Nanos(deadline),
            addresses: [(ab >> 32) as u32, ab as u32, (cm >> 32) as u32],
            mapping: cm as u32,
            ports: [(rest >> 48) as u16, (rest >> 32) as u16, (rest >> 16) as u16],
            protocol: Protocol::from_bits(rest),
            phase: Phase::from_bits((rest >> 2) as u8),
        }
    };
}

impl Session {
    #[inline(always)]
    fn endpoint(&self, which: usize) -> Endpoint4 {
        Endpoint4 { address: self.addresses[which], port: self.ports[which] }
    }

    #[inline(always)]
    fn internal(&self) -> Endpoint4 {
        self.endpoint(0)
    }

    #[inline(always)]
    fn external(&self) -> Endpoint4 {
        self.endpoint(1)
    }

    fn remote(&self) -> Endpoint4 {
        self.endpoint(2)
    }

    fn inside_key(&self) -> FiveTuple4 {
        key(self.internal(), self.remote(), self.protocol)
    }

    fn outside_key(&self) -> FiveTuple4 {
        key(self.remote(), self.external(), self.protocol)
    }
}

/// A session that a look-up found. It may have expired.
#[derive(Clone, Copy)]
pub(super) struct Found {
    index: usize,
    entry: Session,
    pub(super) alive: bool,
}

impl Found {
    #[inline(always)]
    pub(super) fn internal(&self) -> Endpoint4 {
        self.entry.internal()
    }

    #[inline(always)]
    pub(super) fn external(&self) -> Endpoint4 {
        self.entry.external()
    }

    #[inline(always)]
    pub(super) fn protocol(&self) -> Protocol {
        self.entry.protocol
    }

    #[inline(always)]
    pub(super) fn phase(&self) -> Phase {
        self.entry.phase
    }
}

/// Builds the map key of packets from one endpoint to another.
#[inline(always)]
pub(super) fn key(source: Endpoint4, destination: Endpoint4, protocol: Protocol) -> FiveTuple4 {
    let [src, dst] = [source.address, destination.address].map(Ipv4Addr::from_bits);
    match FiveTuple::v4(src, dst, source.port, destination.port, protocol.number()).family() {
        Family::V4(key) => key,
        Family::V6(_) => unreachable!("made from IPv4 addresses"),
    }
}

/// Builds the map key of a mapping's external endpoint.
pub(super) fn external_key(external: Endpoint4, protocol: Protocol) -> FiveTuple4 {
    key(Endpoint4::ANY, external, protocol)
}

/// Two endpoints, source first, and their protocol.
pub(super) type Between = (Endpoint4, Endpoint4, Protocol);

/// What ran out when a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Ports,
    Mappings,
    Sessions,
}

/// The translator's state: all of it is shared.
pub struct State<M: Memory> {
    ports: Ports<M>,
    mappings: M::Vector<Mapping>,
    mapping_pool: M::Allocator,
    by_internal: M::Map<FiveTuple4, u32>,
    by_external: M::Map<FiveTuple4, u32>,
    sessions: M::Vector<Session>,
    session_pool: M::Allocator,
    by_inside: M::Map<FiveTuple4, u32>,
    by_outside: M::Map<FiveTuple4, u32>,
    /// Number of TCP sessions of a mapping with a remote address, if filtering is address-dependent.
    peers: Option<M::Map<FiveTuple4, u32>>,
}

impl<M: Memory> State<M> {
    pub(super) fn new(config: &Config, is_successor: bool, memory: &M) -> Self {
        let settings = config.settings();
        let (mappings, sessions) = (config.mappings(), config.sessions());
        let nobody = Endpoint4::ANY;
        let mapping = Mapping { internal: nobody, external: nobody, protocol: Protocol::Udp, sessions: 0 };
        let session = Session {
            deadline: Nanos(0),
            addresses: [0; 3],
            mapping: 0,
            ports: [0; 3],
            protocol: Protocol::Udp,
            phase: Phase::NONE,
        };
        Self {
            ports: Ports::new(config, is_successor, memory),
            mappings: memory.vector(mappings, mapping),
            mapping_pool: memory.allocator(mappings),
            by_internal: memory.map(mappings),
            by_external: memory.map(mappings),
            sessions: memory.vector(sessions, session),
            session_pool: memory.allocator(sessions),
            by_inside: memory.map(sessions),
            by_outside: memory.map(sessions),
            peers: (settings.filtering == Filtering::AddressDependent).then(|| memory.map(sessions)),
        }
    }

    /// Goes on with another configuration: mappings and sessions stay.
    pub(super) fn adopt(&mut self, config: &Config, memory: &M) {
        self.ports.adopt(config, memory);
    }

    /// Keeps mappings, sessions and pools. The maps follow from them.
    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        self.ports.keep(tx, kept)?;
        for number in kept.pool::<M>(tx, &self.mapping_pool)? {
            let Some(mapping) = kept.element::<M, _>(tx, &self.mappings, number)? else { return Ok(()) };
            let Mapping { internal, external, protocol, .. } = mapping;
            if kept.reads() {
                self.by_internal.insert(tx, key(internal, Endpoint4::ANY, protocol), number as u32)?;
                self.by_external.insert(tx, external_key(external, protocol), number as u32)?;
            }
        }
        for index in kept.pool::<M>(tx, &self.session_pool)? {
            let Some(session) = kept.element::<M, _>(tx, &self.sessions, index)? else { return Ok(()) };
            if kept.reads() {
                if session.mapping as usize >= self.mappings.len() {
                    kept.damage();
                    return Ok(());
                }
                self.by_inside.insert(tx, session.inside_key(), index as u32)?;
                self.by_outside.insert(tx, session.outside_key(), index as u32)?;
                self.count_peer(tx, &session)?;
            }
        }
        Ok(())
    }

    /// Counts a session of a remote address, if filtering is address-dependent.
    fn count_peer<'a>(&'a self, tx: &mut M::Tx<'a>, session: &Session) -> Step<(), M> {
        if let (Some(peers), Protocol::Tcp) = (&self.peers, session.protocol) {
            let peer = peer(session.remote(), session.external());
            let known = peers.get(tx, &peer)?.unwrap_or(0);
            peers.insert(tx, peer, known + 1)?;
        }
        Ok(())
    }

    /// Clears at most [`RECLAIMED_A_PACKET`] expired sessions.
    #[inline(always)]
    pub(super) fn reclaim<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<(), M> {
        for _ in 0..RECLAIMED_A_PACKET {
            match self.session_pool.expire(tx, now)? {
                Some(index) => self.end(tx, index, now)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Prefetches the map slot that [`Self::outbound`] or [`Self::inbound`] reads first.
    #[inline(always)]
    pub(super) fn prefetch(&self, (translation, (source, destination, protocol)): (Translation, Between)) {
        self.sessions_of(translation).prefetch(&key(source, destination, protocol));
    }

    /// Prefetches the session that the map slot points to.
    #[inline(always)]
    pub(super) fn prefetch_session(&self, (translation, (source, destination, protocol)): (Translation, Between)) {
        if let Some(index) = self.sessions_of(translation).hint(&key(source, destination, protocol)) {
            self.sessions.prefetch(index as usize);
        }
    }

    /// Returns the map that finds the session of a packet with this translation.
    #[inline(always)]
    const fn sessions_of(&self, translation: Translation) -> &M::Map<FiveTuple4, u32> {
        match translation {
            Translation::Inward => &self.by_outside,
            Translation::Outward | Translation::Hairpin | Translation::Within => &self.by_inside,
        }
    }

    /// Finds the session of a packet from an inside endpoint.
    #[inline(always)]
    pub(super) fn outbound<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        (internal, remote, protocol): Between,
    ) -> Step<Option<Found>, M> {
        let index = self.by_inside.get(tx, &key(internal, remote, protocol))?;
        self.found(tx, now, index)
    }

    /// Finds the session of a packet to an external endpoint.
    #[inline(always)]
    pub(super) fn inbound<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        (remote, external, protocol): Between,
    ) -> Step<Option<Found>, M> {
        let index = self.by_outside.get(tx, &key(remote, external, protocol))?;
        self.found(tx, now, index)
    }

    #[inline(always)]
    fn found<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos, index: Option<u32>) -> Step<Option<Found>, M> {
        let Some(index) = index else { return Ok(None) };
        let index = index as usize;
        let entry = self.sessions.read(tx, index)?;
        Ok(Some(Found { index, entry, alive: entry.deadline > now }))
    }

    /// Stores a session's phase and deadline. The pool is updated only if the deadline moved earlier; [`Self::end`] corrects a later one
    /// when the pool expires the session.
    #[inline(always)]
    pub(super) fn renew<'a>(&'a self, tx: &mut M::Tx<'a>, found: Found, phase: Phase, deadline: Nanos) -> Step<(), M> {
        if deadline < found.entry.deadline {
            self.session_pool.refresh(tx, found.index, deadline)?;
        }
        self.sessions.write(tx, found.index, Session { phase, deadline, ..found.entry })
    }

    /// Returns the inside endpoint of a dynamic mapping with this external endpoint.
    pub(super) fn mapping_to<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        protocol: Protocol,
        external: Endpoint4,
    ) -> Step<Option<Endpoint4>, M> {
        let Some(index) = self.by_external.get(tx, &external_key(external, protocol))? else { return Ok(None) };
        Ok(Some(self.mappings.read(tx, index as usize)?.internal))
    }

    /// Returns true if a mapping has a TCP session with a remote address.
    pub(super) fn knows<'a>(&'a self, tx: &mut M::Tx<'a>, remote: Endpoint4, external: Endpoint4) -> Step<bool, M> {
        match &self.peers {
            Some(peers) => Ok(peers.get(tx, &peer(remote, external))?.is_some()),
            None => Ok(false),
        }
    }

    /// Opens a session, with a new mapping if the inside endpoint has none, and returns its external endpoint.
    pub(super) fn open<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        deadline: Nanos,
        (internal, remote, protocol): Between,
        phase: Phase,
    ) -> Step<Result<Endpoint4, Full>, M> {
        let Some(index) = self.session_pool.allocate(tx, deadline)? else { return Ok(Err(Full::Sessions)) };
        let (number, mut mapping) = match self.by_internal.get(tx, &key(internal, Endpoint4::ANY, protocol))? {
            Some(number) => (number, self.mappings.read(tx, number as usize)?),
            None => match self.map(tx, protocol, internal)? {
                Ok(made) => made,
                Err(full) => {
                    self.session_pool.free(tx, index)?;
                    return Ok(Err(full));
                }
            },
        };
        mapping.sessions += 1;
        self.mappings.write(tx, number as usize, mapping)?;
        let external = mapping.external;
        let addresses = [internal.address, external.address, remote.address];
        let ports = [internal.port, external.port, remote.port];
        let entry = Session { deadline, addresses, mapping: number, ports, protocol, phase };
        self.sessions.write(tx, index, entry)?;
        let fits = self.by_inside.insert(tx, entry.inside_key(), index as u32)?
            && self.by_outside.insert(tx, entry.outside_key(), index as u32)?;
        debug_assert!(fits, "the maps hold as many sessions as the pool");
        self.count_peer(tx, &entry)?;
        Ok(Ok(external))
    }

    fn map<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        protocol: Protocol,
        internal: Endpoint4,
    ) -> Step<Result<(u32, Mapping), Full>, M> {
        let Some(number) = self.mapping_pool.allocate(tx, Nanos::NEVER)? else { return Ok(Err(Full::Mappings)) };
        let Some(external) = self.ports.take(tx, &self.by_external, protocol, internal)? else {
            self.mapping_pool.free(tx, number)?;
            return Ok(Err(Full::Ports));
        };
        let number = number as u32;
        let fits = self.by_internal.insert(tx, key(internal, Endpoint4::ANY, protocol), number)?
            && self.by_external.insert(tx, external_key(external, protocol), number)?;
        debug_assert!(fits, "the maps hold as many mappings as the pool");
        Ok(Ok((number, Mapping { internal, external, protocol, sessions: 0 })))
    }

    /// Removes a session that the pool has just expired, and its mapping if it was the last one. If the session's deadline was extended,
    /// allocates it again instead.
    #[cold]
    fn end<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize, now: Nanos) -> Step<(), M> {
        let session = self.sessions.read(tx, index)?;
        if session.deadline > now {
            let is_free = self.session_pool.allocate_exact(tx, index, session.deadline)?;
            debug_assert!(is_free, "it was freed just now");
            return Ok(());
        }
        self.by_inside.remove(tx, &session.inside_key())?;
        self.by_outside.remove(tx, &session.outside_key())?;
        if let (Some(peers), Protocol::Tcp) = (&self.peers, session.protocol) {
            let peer = peer(session.remote(), session.external());
            match peers.get(tx, &peer)? {
                Some(known) if known > 1 => drop(peers.insert(tx, peer, known - 1)?),
                Some(_) | None => drop(peers.remove(tx, &peer)?),
            }
        }
        let number = session.mapping as usize;
        let mut mapping = self.mappings.read(tx, number)?;
        mapping.sessions -= 1;
        if mapping.sessions > 0 {
            return self.mappings.write(tx, number, mapping);
        }
        let Mapping { internal, external, protocol, .. } = mapping;
        self.by_internal.remove(tx, &key(internal, Endpoint4::ANY, protocol))?;
        self.by_external.remove(tx, &external_key(external, protocol))?;
        self.ports.free(tx, protocol, external)?;
        self.mapping_pool.free(tx, number)
    }
}

fn peer(remote: Endpoint4, external: Endpoint4) -> FiveTuple4 {
    key(Endpoint4 { port: 0, ..remote }, external, Protocol::Tcp)
}

/// Number of mappings and sessions of an external address and protocol.
pub(super) struct Use {
    pub(super) address: Ipv4Addr,
    pub(super) protocol: &'static str,
    pub(super) mappings: u64,
    pub(super) sessions: u64,
}

/// A mapping in the report.
pub(super) struct Listed {
    pub(super) internal: Endpoint4,
    pub(super) external: Endpoint4,
    pub(super) protocol: &'static str,
    pub(super) sessions: u64,
    /// The time until it expires without further packets.
    pub(super) expires_in: Nanos,
}

impl<M: Memory> State<M> {
    /// Counts mappings and sessions in use at `now`, sorted by external address and protocol. Expired sessions don't count, even if they
    /// are not cleared yet, and neither do mappings that only expired sessions use.
    pub(super) fn in_use<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<Vec<Use>, M> {
        let mut sessions: BTreeMap<(u32, u8), (BTreeSet<u32>, u64)> = BTreeMap::new();
        for index in 0..self.session_pool.capacity() {
            if self.session_pool.is_allocated(tx, index)? {
                let session = self.sessions.read(tx, index)?;
                if session.deadline > now {
                    let of = sessions.entry((session.external().address, session.protocol as u8)).or_default();
                    of.0.insert(session.mapping);
                    of.1 += 1;
                }
            }
        }
        let use_of = |((address, protocol), (mappings, sessions)): ((u32, u8), (BTreeSet<u32>, u64))| Use {
            address: Ipv4Addr::from_bits(address),
            protocol: Protocol::from_bits(protocol.into()).name(),
            mappings: mappings.len() as u64,
            sessions,
        };
        Ok(sessions.into_iter().map(use_of).collect())
    }

    /// Returns the first `most` mappings in use at `now`, sorted by external endpoint, and the number of all mappings in use.
    pub(super) fn listed<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos, most: usize) -> Step<(Vec<Listed>, usize), M> {
        let mut sessions: BTreeMap<u32, (u64, Nanos)> = BTreeMap::new();
        for index in 0..self.session_pool.capacity() {
            if self.session_pool.is_allocated(tx, index)? {
                let session = self.sessions.read(tx, index)?;
                if session.deadline > now {
                    let (count, last) = sessions.entry(session.mapping).or_default();
                    (*count, *last) = (*count + 1, (*last).max(session.deadline));
                }
            }
        }
        let mut listed = Vec::new();
        for (number, (sessions, until)) in sessions {
            let Mapping { internal, external, protocol, .. } = self.mappings.read(tx, number as usize)?;
            listed.push(Listed { internal, external, protocol: protocol.name(), sessions, expires_in: until - now });
        }
        let all = listed.len();
        listed.sort_by_key(|one| (one.external.address, one.external.port, one.protocol));
        listed.truncate(most);
        Ok((listed, all))
    }

    /// Adds all mappings and sessions with their deadlines to the fingerprint. The order of the free ports is left out: it follows from
    /// the order in which the same packets took and freed them.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for number in 0..self.mapping_pool.capacity() {
            if self.mapping_pool.is_allocated(tx, number)? {
                let mapping = self.mappings.read(tx, number)?;
                let word = u64::from(mapping.sessions) << 8 | mapping.protocol as u64;
                let words = [number as u64, pack(mapping.internal), pack(mapping.external), word];
                words.into_iter().for_each(|word| fingerprint.add(word));
            }
        }
        for index in 0..self.session_pool.capacity() {
            if self.session_pool.is_allocated(tx, index)? {
                let session = self.sessions.read(tx, index)?;
                let word = u64::from(session.mapping) << 8 | u64::from(session.phase.bits());
                let words = [index as u64, pack(session.remote()), word, session.deadline.0];
                words.into_iter().for_each(|word| fingerprint.add(word));
            }
        }
        Ok(())
    }
}

fn pack(endpoint: Endpoint4) -> u64 {
    u64::from(endpoint.address) << 16 | u64::from(endpoint.port)
}

fn unpack(word: u64) -> Endpoint4 {
    Endpoint4 { address: (word >> 16) as u32, port: word as u16 }
}
