//! A simulated card, for captures: the entries and insertions of a real one, in packet time.

use std::collections::HashMap;

use packet::{Action, Decided, FiveTuple, Nanos, Taken};

use super::{Card, CardRefusal, Plain, Returned};
use crate::batch::Packet;

/// The limits of a simulated card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardLimits {
    /// The most connections that it holds.
    pub entries: usize,
    /// The most connections that it takes in a second of packet time, with a burst of a hundredth of a second. `None`: no limit.
    pub insertions: Option<u64>,
    /// A fault to test with: about one packet in so many has some connection come back. 0: none.
    pub evict_one_in: u32,
}

/// A card in memory. It sees the packets of one core, in their order, and takes those of its connections at once.
#[derive(Debug)]
pub struct SimulatedCard {
    limits: CardLimits,
    places: HashMap<FiveTuple, usize>,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// No deadline is earlier.
    earliest: Nanos,
    /// When the insertions so far are paid for.
    paid_until: Nanos,
    /// The entry at which the search for a victim goes on.
    clock_hand: usize,
    /// Connections to be taken back, by a fault.
    faulted: Vec<FiveTuple>,
    random: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: FiveTuple,
    decided: Decided,
    taken: Taken,
    /// The last packet, or when it was put in.
    active: Nanos,
}

/// A connection without a packet for so long makes room for another one.
const COLD: Nanos = Nanos::from_secs(1);
/// Number of entries that the search for a victim looks at.
const VICTIMS: usize = 16;
/// A burst of insertions, as time.
const BURST: Nanos = Nanos::from_millis(10);

impl SimulatedCard {
    /// An empty card. `seed` chooses where faults are.
    #[must_use]
    pub fn new(limits: CardLimits, seed: u64) -> Self {
        let CardLimits { entries, .. } = limits;
        Self {
            limits,
            places: HashMap::with_capacity(2 * entries),
            entries: vec![None; entries],
            free: (0..entries).rev().collect(),
            earliest: Nanos::NEVER,
            paid_until: Nanos(0),
            clock_hand: 0,
            faulted: Vec::new(),
            random: seed | 1,
        }
    }

    /// Has a random connection come back, now and then.
    fn fault(&mut self) {
        if self.limits.evict_one_in == 0 || self.entries.is_empty() {
            return;
        }
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if self.random.is_multiple_of(u64::from(self.limits.evict_one_in)) {
            let at = (self.random >> 32) as usize % self.entries.len();
            self.faulted.extend(self.entries[at].map(|entry| entry.flow));
        }
    }
}

impl Entry {
    /// Takes a packet if the decision covers it.
    fn take(&mut self, plain: &Plain, time: Nanos, bytes: u64) -> Option<Action> {
        let Self { decided, taken, active, .. } = self;
        let total = taken.bytes[0] + taken.bytes[1];
        if time >= taken.deadline || total.saturating_add(bytes) > decided.bytes_max {
            return None;
        }
        let is_owed = match (&mut taken.tcp, &plain.segment) {
            (None, None) => false,
            (Some(windows), Some(segment)) => {
                if !windows.take(segment) {
                    return None;
                }
                windows.are_unacknowledged()
            }
            (Some(_), None) | (None, Some(_)) => return None,
        };
        let side = usize::from(!plain.from_first);
        taken.packets[side] += 1;
        taken.bytes[side] += bytes;
        taken.last = time;
        taken.deadline = time + decided.idle[usize::from(is_owed)];
        *active = time;
        Some(decided.actions[side])
    }
}

impl Card for SimulatedCard {
    fn offer(&mut self, packet: &Packet, bytes: &[u8]) -> Option<Action> {
        if self.places.is_empty() {
            return None;
        }
        self.fault();
        let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).ok()?;
        let plain = Plain::of(&headers)?;
        let entry = self.entries[*self.places.get(&plain.flow)?].as_mut()?;
        let action = entry.take(&plain, packet.time, u64::from(packet.wire_len))?;
        self.earliest = self.earliest.min(entry.taken.deadline);
        Some(action)
    }

    fn contains(&self, flow: &FiveTuple) -> bool {
        self.places.contains_key(flow)
    }

    fn insert(&mut self, flow: FiveTuple, decided: &Decided, deadline: Nanos, now: Nanos) -> Result<(), CardRefusal> {
        let at = *self.free.last().ok_or(CardRefusal::Full)?;
        if let Some(insertions) = self.limits.insertions {
            if self.paid_until > now + BURST {
                return Err(CardRefusal::Rate);
            }
            self.paid_until = self.paid_until.max(now) + Nanos(1_000_000_000 / insertions.max(1));
        }
        self.free.pop();
        self.earliest = self.earliest.min(deadline);
        self.places.insert(flow, at);
        let taken = Taken::nothing(deadline, decided.tcp);
        self.entries[at] = Some(Entry { flow, decided: *decided, taken, active: now });
        Ok(())
    }

    fn remove(&mut self, flow: &FiveTuple) -> Option<Returned> {
        let at = self.places.remove(flow)?;
        self.free.push(at);
        let Entry { decided, taken, .. } = self.entries[at].take()?;
        Some(Returned { taken, ahead: [(0, 0); 2], actions: decided.actions })
    }

    fn victim(&mut self, now: Nanos) -> Option<FiveTuple> {
        let mut coldest: Option<Entry> = None;
        for _ in 0..VICTIMS.min(self.entries.len()) {
            self.clock_hand = (self.clock_hand + 1) % self.entries.len();
            let Some(entry) = self.entries[self.clock_hand] else { continue };
            if coldest.is_none_or(|other| entry.active < other.active) {
                coldest = Some(entry);
            }
        }
        coldest.filter(|entry| now.since(entry.active) >= COLD).map(|entry| entry.flow)
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<FiveTuple>) {
        ended.append(&mut self.faulted);
        if now < self.earliest {
            return;
        }
        let entries = self.entries.iter().flatten();
        ended.extend(entries.clone().filter(|entry| entry.taken.deadline <= now).map(|entry| entry.flow));
        let deadlines = entries.map(|entry| entry.taken.deadline).filter(|deadline| *deadline > now);
        self.earliest = deadlines.min().unwrap_or(Nanos::NEVER);
    }

    fn all(&self, flows: &mut Vec<FiveTuple>) {
        flows.extend(self.entries.iter().flatten().map(|entry| entry.flow));
    }
}
