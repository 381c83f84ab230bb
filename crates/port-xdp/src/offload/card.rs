//! A core's part of the table of connections as a card: [`XdpCard`].
//!
//! A connection that is put in waits at first. Its packets still go to the core, which takes them for the card. The program counts them, and
//! stamps them by their numbers. Once the core has decided and sent all that have passed, the entry opens. So the program overtakes no
//! packet. A UDP stream without such a moment is opened after a while all the same, and some of its packets may then go out in another order,
//! once. A TCP connection without one stays with the core, as its hosts would take that for loss.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use packet::{Action, Decided, FiveTuple, Nanos, Taken};
use port::{Ahead, Card, CardRefusal, Packet, Plain, Returned};

use super::{Connections, Entry, Progress, State, Terms, Tuple, tuple_of};
use crate::clock::{Clock, monotonic};
use crate::core::Core;
use crate::outlets::{Outlets, lock};

/// A core's part of the table.
pub(crate) struct XdpCard {
    connections: Arc<Connections>,
    progress: Arc<Progress>,
    core: Arc<Core>,
    outlets: Arc<Mutex<Outlets>>,
    clock: Clock,
    /// Number of the first entry.
    first: u32,
    places: HashMap<FiveTuple, usize>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Places of connections that wait.
    waiting: Vec<usize>,
    /// Receives until a packet has been sent: with more than one, the packets of some may be under way.
    behind: u64,
    /// Time of the last look at deadlines.
    looked: Nanos,
    /// The entry at which the search for a victim goes on.
    clock_hand: usize,
}

/// A core's own record of a connection in the table.
struct Slot {
    flow: FiveTuple,
    key: Tuple,
    actions: [Action; 2],
    is_tcp: bool,
    /// Packets of each side that the core has taken, and their bytes.
    at_core: Ahead,
    /// Packets that the program has taken and that were counted.
    counted: Ahead,
    /// Time at which it was put in.
    inserted: u64,
    /// The receive with which the core took a packet last.
    offered: u64,
    /// Number of this use of the entry.
    id: u32,
    /// Packets that had passed the waiting entry by `seen`, when that number was a new one.
    passed: u32,
    seen: u64,
    /// The stamps of the last packets that came to the core, of both sides, in the form of `passed`.
    came: u32,
}

/// Interval at which deadlines are looked at. The program itself looks at the deadline of each packet's connection.
const LOOK: Nanos = Nanos::from_millis(100);
/// A connection without a packet for so long makes room for another one.
const COLD: u64 = 1_000_000_000;
/// Number of entries that the search for a victim looks at.
const VICTIMS: usize = 16;
/// Time from a packet's pass through the program until it lies in the receive ring: the rest of a driver's burst.
const GRACE: u64 = 50_000;
/// Receives whose packets may be under way, for each core of several on one stream.
const PIECES: u64 = 3;
/// Time for which a UDP stream waits for a moment without packets on their way.
const PATIENCE: u64 = 20_000_000;

impl XdpCard {
    /// A card with so many entries of the table, from `first` on. One of so many cores that share a receiving half, these frames and outlets is behind
    /// it.
    pub(crate) fn new(
        connections: Arc<Connections>,
        progress: Arc<Progress>,
        (core, outlets): (Arc<Core>, Arc<Mutex<Outlets>>),
        clock: Clock,
        (first, len): (u32, u32),
        cores: usize,
    ) -> Self {
        let len = len as usize;
        Self {
            connections,
            progress,
            core,
            outlets,
            clock,
            first,
            places: HashMap::with_capacity(2 * len),
            slots: (0..len).map(|_| None).collect(),
            free: (0..len).rev().collect(),
            waiting: Vec::with_capacity(len),
            behind: if cores == 1 { 0 } else { PIECES * cores as u64 },
            looked: Nanos(0),
            clock_hand: 0,
        }
    }

    fn entry(&self, at: usize) -> &Entry {
        self.connections.entry(self.first + at as u32)
    }

    /// Opens waiting entries whose packets have all been decided and sent. `is_idle`: that is so for all that have come to the core.
    fn open_waiting(&mut self, is_idle: bool) {
        if self.waiting.is_empty() {
            return;
        }
        let now = monotonic();
        let drained = self.clock.monotonic_at(self.progress.drained());
        let receives = self.progress.receives();
        let has_sent = !lock(&self.outlets).is_pending();
        let Self { connections, slots, waiting, first, behind, .. } = self;
        waiting.retain(|at| {
            let Some(slot) = &mut slots[*at] else { return false };
            let entry = connections.entry(*first + *at as u32);
            let State::Waiting { passed } = entry.state() else { return false };
            if passed != slot.passed {
                (slot.passed, slot.seen) = (passed, now);
            }
            // Those that passed before the entry was there have no stamps.
            let had_all = slot.came == passed && drained > slot.inserted + GRACE;
            let is_quiet = drained > slot.seen + GRACE;
            let are_sent = has_sent && (is_idle || receives.wrapping_sub(slot.offered) > *behind);
            let is_overdue = !slot.is_tcp && now.saturating_sub(slot.inserted) > PATIENCE;
            !(((had_all || is_quiet) && are_sent || is_overdue) && entry.open(passed))
        });
    }

    /// Tells the port how many packets the program has sent.
    fn note_sent(outlets: &Mutex<Outlets>, actions: [Action; 2], ahead: Ahead) {
        let sent = |(action, (packets, _)): (Action, (u64, u64))| if action == Action::Across { packets } else { 0 };
        let sent = actions.into_iter().zip(ahead).map(sent).sum();
        if sent > 0 {
            lock(outlets).count_ahead(sent);
        }
    }
}

impl Slot {
    /// Notes the number by which the program has stamped a packet, if it has.
    fn note_stamp(&mut self, core: &Core, bytes: &[u8], from_first: bool) {
        let Some(address) = core.umem.address_of(bytes) else { return };
        // SAFETY: the packet lies in a frame that is lent to the batch that its bytes are borrowed from, so that nobody writes to it.
        let Some(stamp) = (unsafe { core.umem.stamped_number(address) }) else { return };
        // Without a stamp there is an old one, or something else.
        if (stamp >> 16) as u32 != self.id || stamp >> 48 != 0 {
            return;
        }
        let number = stamp as u32 & 0xffff;
        self.came = if from_first { self.came & 0xffff_0000 | number } else { self.came & 0xffff | number << 16 };
    }

    /// Packets that the program has taken since they were counted last.
    fn uncounted(&mut self, entry: &Entry) -> Ahead {
        let mut ahead = [(0, 0); 2];
        for (side, new) in ahead.iter_mut().enumerate() {
            let (packets, bytes) = entry.taken(side);
            *new = (packets - self.counted[side].0, bytes - self.counted[side].1);
            self.counted[side] = (packets, bytes);
        }
        ahead
    }

    /// Takes a packet on the core, which has the entry alone.
    fn take(&mut self, entry: &Entry, plain: &Plain, now: u64, bytes: u64) -> Option<Action> {
        let now = now.max(entry.last());
        let total = entry.taken(0).1 + entry.taken(1).1;
        if now >= entry.deadline() || total.saturating_add(bytes) > entry.bytes_max() {
            return None;
        }
        let is_owed = match (entry.windows(), &plain.segment) {
            (None, None) => false,
            (Some(mut windows), Some(segment)) => {
                if !windows.take(segment) {
                    return None;
                }
                entry.set_windows(&windows);
                windows.are_unacknowledged()
            }
            (Some(_), None) | (None, Some(_)) => return None,
        };
        let side = usize::from(!plain.from_first);
        self.at_core[side].0 += 1;
        self.at_core[side].1 += bytes;
        entry.touch(now, now + entry.idle(is_owed), bytes);
        Some(self.actions[side])
    }
}

impl Card for XdpCard {
    fn offer(&mut self, packet: &Packet, bytes: &[u8]) -> Option<Action> {
        if self.places.is_empty() {
            return None;
        }
        let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).ok()?;
        let plain = Plain::of(&headers)?;
        let at = *self.places.get(&plain.flow)?;
        let entry = self.connections.entry(self.first + at as u32);
        let slot = self.slots[at].as_mut()?;
        let now = self.clock.monotonic_at(packet.time);
        slot.offered = self.progress.receives();
        match entry.state() {
            // The program only counts.
            State::Waiting { .. } => {
                slot.note_stamp(&self.core, bytes, plain.from_first);
                slot.take(entry, &plain, now, u64::from(packet.wire_len))
            }
            State::Open => {
                if !entry.lock() {
                    return None;
                }
                let action = slot.take(entry, &plain, now, u64::from(packet.wire_len));
                entry.unlock(action.is_some());
                action
            }
            State::Closed => None,
        }
    }

    fn contains(&self, flow: &FiveTuple) -> bool {
        self.places.contains_key(flow)
    }

    fn insert(&mut self, flow: FiveTuple, decided: &Decided, deadline: Nanos, _now: Nanos) -> Result<(), CardRefusal> {
        if !self.progress.is_usable() {
            return Err(CardRefusal::Down);
        }
        let at = *self.free.last().ok_or(CardRefusal::Full)?;
        let (key, id) = (tuple_of(&flow), self.connections.next_id());
        let terms = Terms {
            key,
            id,
            deadline: self.clock.monotonic_at(deadline),
            idle: decided.idle.map(|idle| idle.0),
            bytes_max: decided.bytes_max,
            forwards: decided.actions.map(|action| action == Action::Across),
            tcp: decided.tcp,
        };
        let entry = self.entry(at);
        entry.begin(&terms);
        // Refused only where the kernel has no memory.
        if self.connections.name(&key, self.first + at as u32).is_err() {
            entry.close();
            return Err(CardRefusal::Full);
        }
        let now = monotonic();
        self.free.pop();
        self.places.insert(flow, at);
        self.waiting.push(at);
        self.slots[at] = Some(Slot {
            flow,
            key,
            actions: decided.actions,
            is_tcp: decided.tcp.is_some(),
            at_core: [(0, 0); 2],
            counted: [(0, 0); 2],
            inserted: now,
            offered: self.progress.receives(),
            id,
            passed: 0,
            seen: now,
            came: 0,
        });
        Ok(())
    }

    fn idle(&mut self) {
        self.open_waiting(true);
    }

    fn count(&mut self, count: &mut dyn FnMut([Action; 2], Ahead)) {
        let Self { connections, outlets, places, slots, first, .. } = self;
        for at in places.values() {
            let Some(slot) = &mut slots[*at] else { continue };
            let ahead = slot.uncounted(connections.entry(*first + *at as u32));
            if ahead != [(0, 0); 2] {
                Self::note_sent(outlets, slot.actions, ahead);
                count(slot.actions, ahead);
            }
        }
    }

    fn remove(&mut self, flow: &FiveTuple) -> Option<Returned> {
        let at = self.places.remove(flow)?;
        let mut slot = self.slots[at].take()?;
        self.waiting.retain(|waiting| *waiting != at);
        let entry = self.entry(at);
        entry.close();
        // It is there; a name that stayed would lead to a closed entry, or to another connection's, which programs notice.
        let _ = self.connections.unname(&slot.key);
        let ahead = slot.uncounted(entry);
        let [one, other] = [0, 1].map(|side| {
            let ((packets, bytes), (at_core, bytes_at_core)) = (entry.taken(side), slot.at_core[side]);
            (packets + at_core, bytes + bytes_at_core)
        });
        let last = if one.0 + other.0 > 0 { self.clock.of(entry.last()) } else { Nanos(0) };
        let taken = Taken {
            packets: [one.0, other.0],
            bytes: [one.1, other.1],
            last,
            deadline: self.clock.of(entry.deadline()),
            tcp: entry.windows(),
        };
        self.free.push(at);
        Self::note_sent(&self.outlets, slot.actions, ahead);
        Some(Returned { taken, ahead, actions: slot.actions })
    }

    fn victim(&mut self, now: Nanos) -> Option<FiveTuple> {
        let now = self.clock.monotonic_at(now);
        let mut coldest: Option<(u64, FiveTuple)> = None;
        for _ in 0..VICTIMS.min(self.slots.len()) {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let Some(slot) = &self.slots[self.clock_hand] else { continue };
            let active = self.entry(self.clock_hand).last().max(slot.inserted);
            if coldest.is_none_or(|(other, _)| active < other) {
                coldest = Some((active, slot.flow));
            }
        }
        coldest.filter(|(active, _)| now.saturating_sub(*active) >= COLD).map(|(_, flow)| flow)
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<FiveTuple>) {
        if self.places.is_empty() {
            return;
        }
        self.open_waiting(false);
        if !self.progress.is_usable() {
            return self.all(ended);
        }
        if now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let now = self.clock.monotonic_at(now);
        ended.extend(self.places.iter().filter(|(_, at)| self.entry(**at).deadline() <= now).map(|(flow, _)| *flow));
    }

    fn all(&self, flows: &mut Vec<FiveTuple>) {
        flows.extend(self.places.keys());
    }
}
