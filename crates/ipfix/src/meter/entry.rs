//! A flow in the cache.

use packet::{Nanos, TcpFlags};

use super::MeterOptions;
use super::key::{CacheKey, PacketFields};
use crate::record::{Direction, EndReason, FlowRecord, Side};

/// A flow, with the packets since it was last reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Packets from the source, and to it.
    sides: [Side; 2],
    /// Time of the first packet since the last report, and of the last packet of the flow.
    first: Nanos,
    last: Nanos,
    /// Sequence number of the last SYN of each side.
    syn_seq: [u32; 2],
    vlan: u16,
    /// The number of the source among the key's endpoints.
    source: u8,
    direction: Direction,
    /// Bits of [`SYN_SENT`], [`FIN`] and [`RST`]. They outlast reports.
    seen: u8,
}

/// The sides that have sent a SYN, as bits.
const SYN_SENT: [u8; 2] = [1, 2];
/// The sides that have sent a FIN.
const FIN: [u8; 2] = [4, 8];
const RST: u8 = 16;

impl Entry {
    /// A flow that this packet opens. The packet is not counted yet.
    pub(super) fn new(fields: &PacketFields) -> Self {
        let direction = match fields.tcp {
            None => Direction::Initiator,
            Some((flags, _)) if opens(flags) => Direction::Initiator,
            Some((flags, _)) if flags.contains(TcpFlags::SYN) => Direction::ReverseInitiator,
            Some(_) => Direction::Arbitrary,
        };
        Self {
            sides: [Side::default(); 2],
            first: Nanos(0),
            last: Nanos(0),
            syn_seq: [0; 2],
            vlan: fields.vlan,
            source: fields.source,
            direction,
            seen: 0,
        }
    }

    /// True if there were no packets since the last report.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.sides[0].packets + self.sides[1].packets == 0
    }

    /// True if TCP has closed the connection.
    #[inline]
    pub(super) const fn is_closed(&self) -> bool {
        let fins = FIN[0] | FIN[1];
        self.seen & RST != 0 || self.seen & fins == fins
    }

    /// Counts a packet.
    #[inline]
    pub(super) fn add(&mut self, fields: &PacketFields, now: Nanos) {
        if self.is_empty() {
            self.first = now;
        }
        self.last = now;
        let number = usize::from(fields.source != self.source);
        let side = &mut self.sides[number];
        if side.packets == 0 {
            *side = Side {
                first: now,
                interface: fields.interface,
                icmp: fields.icmp,
                class: fields.class,
                ..Side::default()
            };
        }
        side.last = now;
        side.packets += 1;
        side.octets += u64::from(fields.octets);
        let Some((flags, seq)) = fields.tcp else { return };
        side.tcp_flags |= flags.0;
        if opens(flags) {
            self.syn_seq[number] = seq;
            self.seen |= SYN_SENT[number];
        }
        if flags.contains(TcpFlags::FIN) {
            self.seen |= FIN[number];
        }
        if flags.contains(TcpFlags::RST) {
            self.seen |= RST;
        }
    }

    /// Why the record ended before this packet of the flow, if it did.
    #[inline]
    pub(super) fn ended_before(&self, fields: &PacketFields, now: Nanos, options: &MeterOptions) -> Option<EndReason> {
        let is_another = match fields.tcp {
            Some((flags, seq)) if opens(flags) => self.is_closed() && !self.is_known_syn(seq),
            Some(_) | None => false,
        };
        if is_another {
            return Some(EndReason::EndOfFlow);
        }
        self.silence(now, options).or_else(|| self.is_long(now, options).then_some(EndReason::Active))
    }

    /// Why the flow has ended by silence, if it has.
    #[inline]
    pub(super) fn silence(&self, now: Nanos, options: &MeterOptions) -> Option<EndReason> {
        (now >= self.silent_at(options)).then(|| match self.is_closed() {
            true => EndReason::EndOfFlow,
            false => EndReason::Idle,
        })
    }

    #[inline]
    fn is_long(&self, now: Nanos, options: &MeterOptions) -> bool {
        !self.is_empty() && now >= self.first + options.active_timeout
    }

    /// When the entry is to be looked at, if no packet comes.
    #[inline]
    pub(super) fn deadline(&self, options: &MeterOptions) -> Nanos {
        let silent = self.silent_at(options);
        if self.is_empty() { silent } else { silent.min(self.first + options.active_timeout) }
    }

    #[inline]
    fn silent_at(&self, options: &MeterOptions) -> Nanos {
        let timeout =
            if self.is_closed() { options.closed_timeout.min(options.idle_timeout) } else { options.idle_timeout };
        self.last + timeout
    }

    /// True if a SYN with this sequence number is one that came before.
    fn is_known_syn(&self, seq: u32) -> bool {
        [0, 1].into_iter().any(|side: usize| self.seen & SYN_SENT[side] != 0 && self.syn_seq[side] == seq)
    }

    /// Forgets the packets, since they have been reported.
    pub(super) fn begin_part(&mut self) {
        self.sides = [Side::default(); 2];
    }

    /// The record of the packets. If all came from the destination, the two are exchanged.
    pub(super) fn record(&self, key: CacheKey, reason: EndReason) -> FlowRecord {
        let ends = key.endpoints();
        let (source, destination) = if self.source == 0 { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
        let [forward, reverse] = self.sides;
        let record = FlowRecord {
            source,
            destination,
            protocol: key.protocol(),
            vlan: self.vlan,
            direction: self.direction,
            reason,
            forward,
            reverse,
        };
        if forward.packets > 0 {
            return record;
        }
        FlowRecord {
            source: destination,
            destination: source,
            direction: self.direction.reversed(),
            forward: reverse,
            reverse: forward,
            ..record
        }
    }
}

/// True if a segment with these flags asks for a connection.
#[inline]
const fn opens(flags: TcpFlags) -> bool {
    flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK)
}
