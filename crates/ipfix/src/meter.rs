//! The metering process: counts packets into flows.

mod entry;
pub(crate) mod key;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use flow::{Eviction, Slot, Table};
use packet::{Headers, Malformed, Nanos, parse_odd, parse_ordinary, parse_segment};
use port::Packet;

use crate::record::{EndReason, FlowRecord};
use entry::Entry;
use key::{CacheKey, PacketFields};

/// The metering process (RFC 7011, section 2): counts packets into flows in a bounded cache, in arrival order and in packet time.
///
/// A flow is the packets between two endpoints of one protocol, in both directions. Its source is the sender of the first packet. A flow
/// ends after the idle timeout; after a TCP connection has closed, either when a SYN opens another one or after a short time; or because
/// the cache is full, when the flow of a neighbourhood of a few dozen that would end first goes. A flow that lasts longer than the active
/// timeout is reported in parts.
///
/// ICMP questions and their answers are one flow for each identifier. Other ICMP messages are one flow for each type and code. Later
/// fragments have no ports, so those of all datagrams between two addresses are one flow for each protocol. Of tunnels the outer packet
/// counts.
///
/// Each call does a bounded amount of work, and allocates nothing. Ended flows are passed to the closure that each call takes: four at
/// most for a packet.
pub struct Meter {
    table: Table<CacheKey, Entry>,
    options: MeterOptions,
    counts: MeterCounts,
    /// Time of the latest packet.
    now: Nanos,
}

/// Options of a [`Meter`].
#[derive(Clone, Copy, Debug)]
pub struct MeterOptions {
    /// The most flows in the cache. The default is 262,144, in 48 MB ([`Meter::memory_bytes`] has the exact number).
    pub flows: usize,
    /// A flow ends if no packet comes for so long. The default is 60 seconds.
    pub idle_timeout: Nanos,
    /// A flow is reported each time it has lasted so long. The default is 1800 seconds.
    pub active_timeout: Nanos,
    /// A TCP connection that has closed, by FIN in both directions or by RST, ends if no packet comes for so long. The default is 5 seconds.
    pub closed_timeout: Nanos,
    /// The hash seed. It must be secret if an attacker can choose the addresses. The default is random.
    pub seed: u64,
}

impl Default for MeterOptions {
    fn default() -> Self {
        Self {
            flows: 262_144,
            idle_timeout: Nanos::from_secs(60),
            active_timeout: Nanos::from_secs(1800),
            closed_timeout: Nanos::from_secs(5),
            seed: RandomState::new().hash_one("a seed"),
        }
    }
}

/// Counts of a [`Meter`]. `packets = not_ip + malformed + recorded_packets` once all flows have ended, and always
/// `flows = ended + cached`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterCounts {
    /// Packets observed.
    pub packets: u64,
    /// Packets that are not IP.
    pub not_ip: u64,
    /// Packets whose headers are malformed.
    pub malformed: u64,
    /// Packets in records that have ended.
    pub recorded_packets: u64,
    /// Records begun: flows, and the further parts of flows that lasted longer than the active timeout.
    pub flows: u64,
    /// Records ended, in the order of [`EndReason::ALL`].
    pub ended_by_reason: [u64; EndReason::ALL.len()],
    /// Records in the cache.
    pub cached: u64,
}

impl MeterCounts {
    /// Records ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended_by_reason.iter().sum()
    }

    /// Adds another meter's.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.not_ip += other.not_ip;
        self.malformed += other.malformed;
        self.recorded_packets += other.recorded_packets;
        self.flows += other.flows;
        self.cached += other.cached;
        for (ended, more) in self.ended_by_reason.iter_mut().zip(other.ended_by_reason) {
            *ended += more;
        }
    }

    /// Packets that belong to no flow.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.not_ip + self.malformed
    }
}

/// Units of ageing for each packet. One would keep up with one new flow a packet, if flows ended once.
const UNITS_A_PACKET: usize = 2;
/// Units of ageing in a call of [`Meter::poll`].
const UNITS_A_POLL: usize = 256;

impl Meter {
    /// A meter with an empty cache. All its memory is reserved now.
    ///
    /// # Panics
    /// If the memory can't be reserved.
    #[must_use]
    pub fn new(options: MeterOptions) -> Self {
        Self { table: Table::new(options.flows, options.seed), options, counts: MeterCounts::default(), now: Nanos(0) }
    }

    /// Counts a packet of a port. Returns false if it belongs to no flow: it is not IP, or malformed.
    #[inline]
    pub fn packet(&mut self, packet: &Packet, bytes: &[u8], ended: impl FnMut(&FlowRecord)) -> bool {
        let Packet { link, wire_len, interface, .. } = *packet;
        let fields = match parse_ordinary(link, bytes, wire_len, interface, PacketFields::of)
            .or_else(|| parse_segment(link, bytes, wire_len, interface, PacketFields::of))
        {
            Some(fields) => Ok(fields),
            None => parse_odd(link, bytes, wire_len, interface).map(|headers| PacketFields::of(&headers)),
        };
        self.observe_fields(packet.time, fields, ended)
    }

    /// Counts a packet by its headers. Returns false if it belongs to no flow.
    pub fn observe(
        &mut self,
        time: Nanos,
        headers: Result<&Headers, Malformed>,
        ended: impl FnMut(&FlowRecord),
    ) -> bool {
        self.observe_fields(time, headers.map(PacketFields::of), ended)
    }

    #[inline]
    fn observe_fields(
        &mut self,
        time: Nanos,
        fields: Result<Option<PacketFields>, Malformed>,
        mut ended: impl FnMut(&FlowRecord),
    ) -> bool {
        self.counts.packets += 1;
        self.now = self.now.max(time);
        for _ in 0..UNITS_A_PACKET {
            self.age(self.now, &mut ended);
        }
        match fields {
            Ok(Some(fields)) => self.count(&fields, &mut ended),
            Ok(None) => self.counts.not_ip += 1,
            Err(_) => self.counts.malformed += 1,
        }
        matches!(fields, Ok(Some(_)))
    }

    /// Ends flows that are due at `now`, a bounded number of them. Returns true if more are due. Call it when no packets come.
    pub fn poll(&mut self, now: Nanos, mut ended: impl FnMut(&FlowRecord)) -> bool {
        self.now = self.now.max(now);
        for _ in 0..UNITS_A_POLL {
            if !self.table.is_due(self.now) {
                break;
            }
            self.age(self.now, &mut ended);
        }
        self.table.is_due(self.now)
    }

    /// Ends all flows. This takes as long as there are flows.
    pub fn end_all(&mut self, mut ended: impl FnMut(&FlowRecord)) {
        while let Some(slot) = self.table.oldest_unprotected() {
            let entry = self.table.value(slot);
            let reason = if entry.is_closed() { EndReason::EndOfFlow } else { EndReason::Forced };
            self.remove(slot, reason, &mut ended);
        }
    }

    /// The counts so far.
    #[must_use]
    pub const fn counts(&self) -> MeterCounts {
        self.counts
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> &MeterOptions {
        &self.options
    }

    /// The memory of the cache in bytes. It never changes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Does one unit of ageing.
    #[inline]
    fn age(&mut self, now: Nanos, ended: &mut impl FnMut(&FlowRecord)) {
        let Some(slot) = self.table.reclaim(now) else { return };
        let entry = self.table.value(slot);
        if let Some(reason) = entry.silence(now, &self.options) {
            self.remove(slot, reason, ended);
        } else {
            // The flow goes on. Its entry stays, since that knows the direction.
            self.report(slot, EndReason::Active, ended);
            let entry = self.table.value_mut(slot);
            entry.begin_part();
            let deadline = entry.deadline(&self.options);
            self.table.touch(slot, deadline);
        }
    }

    #[inline]
    fn count(&mut self, fields: &PacketFields, ended: &mut impl FnMut(&FlowRecord)) {
        let hash = self.table.hash(&fields.key);
        let Some(slot) = self.table.find(&fields.key, hash) else {
            return self.open(fields, hash, ended);
        };
        let entry = self.table.value(slot);
        if let Some(reason) = entry.ended_before(fields, self.now, &self.options) {
            self.report(slot, reason, ended);
            let entry = self.table.value_mut(slot);
            match reason {
                EndReason::Active => entry.begin_part(),
                EndReason::Idle | EndReason::EndOfFlow | EndReason::Forced | EndReason::LackOfResources => {
                    *entry = Entry::new(fields);
                }
            }
        }
        let entry = self.table.value_mut(slot);
        if entry.is_empty() {
            self.counts.flows += 1;
            self.counts.cached += 1;
        }
        entry.add(fields, self.now);
        let deadline = entry.deadline(&self.options);
        self.table.touch(slot, deadline);
    }

    /// Puts a new flow into the cache.
    #[inline(never)]
    fn open(&mut self, fields: &PacketFields, hash: u64, ended: &mut impl FnMut(&FlowRecord)) {
        if self.table.is_full() {
            self.make_room(hash, ended);
        }
        let mut entry = Entry::new(fields);
        entry.add(fields, self.now);
        self.counts.flows += 1;
        self.counts.cached += 1;
        let deadline = entry.deadline(&self.options);
        if self.table.insert(fields.key, hash, entry, deadline, self.now).is_none() {
            // No room, though another flow went. The packet is a flow of its own.
            self.hand_over(&entry, fields.key, EndReason::LackOfResources, ended);
        }
    }

    /// Ends a flow of the full cache: one that is due, or else the one of the new flow's neighbourhood that is due first.
    fn make_room(&mut self, hash: u64, ended: &mut impl FnMut(&FlowRecord)) {
        let victim = self
            .table
            .overdue(self.now)
            .or_else(|| self.table.victim(Eviction::LeastRecent, hash))
            .or_else(|| self.table.oldest_unprotected());
        let Some(slot) = victim else { return };
        let reason = self.table.value(slot).silence(self.now, &self.options).unwrap_or(EndReason::LackOfResources);
        self.remove(slot, reason, ended);
    }

    fn remove(&mut self, slot: Slot, reason: EndReason, ended: &mut impl FnMut(&FlowRecord)) {
        self.report(slot, reason, ended);
        self.table.remove(slot);
    }

    /// Hands over the record of the entry, if there were packets since the last one.
    fn report(&mut self, slot: Slot, reason: EndReason, ended: &mut impl FnMut(&FlowRecord)) {
        let (entry, key) = (*self.table.value(slot), *self.table.key(slot));
        if !entry.is_empty() {
            self.hand_over(&entry, key, reason, ended);
        }
    }

    fn hand_over(&mut self, entry: &Entry, key: CacheKey, reason: EndReason, ended: &mut impl FnMut(&FlowRecord)) {
        let record = entry.record(key, reason);
        self.counts.cached -= 1;
        self.counts.ended_by_reason[reason as usize - 1] += 1;
        self.counts.recorded_packets += record.packets();
        ended(&record);
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("options", &self.options).field("counts", &self.counts).finish_non_exhaustive()
    }
}
