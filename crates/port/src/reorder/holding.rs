//! The packets that are held, by connection, and when they leave: [`Holding`]. It knows no port.
//!
//! A connection is *active* from a packet until the delay has passed since its last packet, or since its last release. All timers run for
//! the same delay, so that lists in which they were set are in order of time: `holding` has the active connections that hold packets, by
//! when these must leave; `resting` has the others, by when they are forgotten.

use std::hash::{BuildHasher, RandomState};

use packet::{Family, FiveTuple, FlowKey, Key, Nanos, Seq};

use super::ReorderLimits;
use super::counts::{Release, ReorderCounts, Unheld};
use super::frames::{Frames, HeldPacket, HeldPackets, Pieces};
use super::judge::{Judged, hosts, judge};
use super::lists::{Links, List, NONE};
use crate::batch::Packet;

/// Result for a packet that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is held.
    Held,
    /// It leaves at once, behind the packets that are released.
    Unheld,
    /// It is to be held, but there is no room: take it again once some released packets were [taken](Holding::pop), or, if there are none,
    /// the [oldest](Holding::release_oldest) were released.
    NoRoom,
}

/// An active connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// Its symmetric five-tuple.
    key: FiveTuple,
    hash: u64,
    /// The next connection in the same bucket of the index.
    next: u32,
    /// The bucket of its two hosts, while packets are held.
    bucket: u32,
    /// Its packets, and how many.
    packets: HeldPackets,
    held: u32,
    /// When its packets leave if some are held, else when it is forgotten.
    timer: Nanos,
}

/// Active connections and held packets.
#[derive(Debug)]
pub(super) struct Holding {
    delay: Nanos,
    limits: ReorderLimits,
    /// Secret: nobody can choose addresses that lie in one bucket. It changes no outcome.
    seed: u64,
    frames: Frames,
    connections: Vec<Connection>,
    free: u32,
    /// The first connection of each bucket, by the hash of the connection.
    index: Box<[u32]>,
    /// The connections that hold packets, by the hash of their two hosts.
    by_hosts: Box<[List]>,
    /// Links of `holding` and `resting`.
    timers: Vec<Links>,
    /// Links of `by_hosts`.
    neighbours: Vec<Links>,
    holding: List,
    resting: List,
    /// Packets that have been released, in order; their times are those of the release.
    released: HeldPackets,
    counts: ReorderCounts,
    /// The connection of the last packet that came, and of the last one that left; `None` for packets that have none.
    last_came: Option<u64>,
    last_left: Option<u64>,
}

impl Holding {
    pub(super) fn new(delay: Nanos, limits: ReorderLimits) -> Self {
        let limits = limits.within_bounds();
        let buckets = limits.connections.next_power_of_two();
        Self {
            delay,
            limits,
            seed: RandomState::new().hash_one(0),
            frames: Frames::new(limits.packets, limits.bytes),
            connections: Vec::with_capacity(limits.connections),
            free: NONE,
            index: vec![NONE; buckets].into_boxed_slice(),
            by_hosts: vec![List::EMPTY; buckets].into_boxed_slice(),
            timers: Vec::with_capacity(limits.connections),
            neighbours: Vec::with_capacity(limits.connections),
            holding: List::EMPTY,
            resting: List::EMPTY,
            released: HeldPackets::EMPTY,
            counts: ReorderCounts::default(),
            last_came: None,
            last_left: None,
        }
    }

    /// The counts, with what is held now as `left`.
    pub(super) fn counts(&self) -> ReorderCounts {
        ReorderCounts { left: self.frames.len() as u64, ..self.counts }
    }

    /// When the next packets must leave, if any are held.
    #[inline]
    pub(super) fn due(&self) -> Option<Nanos> {
        self.holding.first().map(|first| self.connections[first as usize].timer)
    }

    /// A number below which no packet is held or released and not taken yet; `None` if there is no such packet at all.
    pub(super) fn lowest(&self) -> Option<Seq> {
        // Lists are in the order of the first packets, those that were released are not.
        let holding =
            self.holding.first().and_then(|first| self.frames.numbers(self.connections[first as usize].packets).next());
        self.frames.numbers(self.released).chain(holding).min()
    }

    /// True if released packets wait to be taken.
    #[inline]
    pub(super) const fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Takes the next released packet. Returns false if there is none.
    pub(super) fn pop(&mut self, take: impl FnOnce(&HeldPacket, Pieces<'_>)) -> bool {
        self.frames.pop(&mut self.released, take)
    }

    /// Puts an unheld packet behind the released ones, in their memory. Returns false if there is no room.
    pub(super) fn push_released(&mut self, packet: &Packet, stamp: Nanos, bytes: &[u8]) -> bool {
        let has_room = self.frames.has_room(bytes.len());
        if has_room {
            self.frames.push(&mut self.released, packet, stamp, bytes);
        }
        has_room
    }

    /// Releases what is due by `now`, and forgets connections without packets.
    pub(super) fn advance(&mut self, now: Nanos) {
        while let Some(due) = self.due().filter(|due| *due <= now) {
            let first = self.holding.first().expect("something is due");
            self.release(first, Release::Delay, due);
        }
        while let Some(first) = self.resting.first()
            && self.connections[first as usize].timer <= now
        {
            self.forget(first);
        }
    }

    /// Releases everything: no more packets come. `now` is the last time.
    pub(super) fn end(&mut self, now: Nanos) {
        while let Some(first) = self.holding.first() {
            self.release(first, Release::End, now);
        }
    }

    /// Takes a packet that comes now; [everything due](Self::advance) has left.
    pub(super) fn take(&mut self, packet: &Packet, stamp: Nanos, bytes: &[u8]) -> Taken {
        let now = packet.time;
        let why = match judge(packet, bytes) {
            Judged::Holdable(key) => {
                let hash = hash(&key, self.seed);
                match self.find(&key, hash) {
                    None => {
                        self.came(Some(hash));
                        self.open(key, hash, now);
                        self.left(Some(hash));
                        Unheld::First
                    }
                    Some(found) if self.connections[found as usize].held == 0 && self.last_left == Some(hash) => {
                        self.came(Some(hash));
                        self.pass(found, hash, now);
                        Unheld::Follows
                    }
                    Some(_) if self.frames.is_fit(bytes.len()) && !self.frames.has_room(bytes.len()) => {
                        return Taken::NoRoom;
                    }
                    Some(found) if self.frames.is_fit(bytes.len()) => {
                        self.came(Some(hash));
                        self.hold(found, packet, stamp, bytes);
                        return Taken::Held;
                    }
                    Some(found) => {
                        self.came(Some(hash));
                        self.pass(found, hash, now);
                        Unheld::TooLong
                    }
                }
            }
            Judged::InConnection(key, why) => {
                let hash = hash(&key, self.seed);
                self.came(Some(hash));
                let found = self.find(&key, hash).unwrap_or_else(|| self.open(key, hash, now));
                self.pass(found, hash, now);
                why
            }
            Judged::BetweenHosts(pair, why) => {
                self.came(None);
                self.release_between(&pair, now);
                self.left(None);
                why
            }
            Judged::Alone(why) => {
                self.came(None);
                self.left(None);
                why
            }
        };
        self.counts.unheld[why as usize] += 1;
        Taken::Unheld
    }

    /// Holds a packet of an active connection.
    fn hold(&mut self, number: u32, packet: &Packet, stamp: Nanos, bytes: &[u8]) {
        let connection = &mut self.connections[number as usize];
        self.frames.push(&mut connection.packets, packet, stamp, bytes);
        connection.held += 1;
        if connection.held == 1 {
            connection.timer = after(packet.time, self.delay);
            let bucket = bucket(&hosts(&connection.key), self.seed, self.by_hosts.len());
            connection.bucket = bucket as u32;
            self.resting.remove(&mut self.timers, number);
            self.holding.push(&mut self.timers, number);
            self.by_hosts[bucket].push(&mut self.neighbours, number);
        }
        if self.connections[number as usize].held as usize >= self.limits.burst {
            self.release(number, Release::FullBurst, packet.time);
        }
    }

    /// Lets a packet of an active connection leave now, behind the connection's held packets.
    fn pass(&mut self, number: u32, hash: u64, now: Nanos) {
        match self.connections[number as usize].held {
            0 => self.rest(number, now),
            _ => self.release(number, Release::Order, now),
        }
        self.left(Some(hash));
    }

    /// Restarts the timer of a connection that holds nothing.
    fn rest(&mut self, number: u32, now: Nanos) {
        self.resting.remove(&mut self.timers, number);
        self.connections[number as usize].timer = after(now, self.delay);
        self.resting.push(&mut self.timers, number);
    }

    /// Releases the packets of the connection that has held some for the longest time.
    pub(super) fn release_oldest(&mut self, now: Nanos) {
        if let Some(oldest) = self.holding.first() {
            self.release(oldest, Release::Limit, now);
        }
    }

    /// Releases all packets between two hosts.
    fn release_between(&mut self, pair: &FiveTuple, now: Nanos) {
        let bucket = bucket(pair, self.seed, self.by_hosts.len());
        let mut at = self.by_hosts[bucket].first();
        while let Some(number) = at {
            at = List::behind(&self.neighbours, number);
            if hosts(&self.connections[number as usize].key) == *pair {
                self.release(number, Release::Order, now);
            }
        }
    }

    /// Releases the packets of a connection, which rests from then on.
    fn release(&mut self, number: u32, cause: Release, now: Nanos) {
        let connection = &mut self.connections[number as usize];
        let (packets, held) = (std::mem::replace(&mut connection.packets, HeldPackets::EMPTY), connection.held);
        let (hash, bucket) = (connection.hash, connection.bucket as usize);
        connection.held = 0;
        connection.timer = after(now, self.delay);
        let counts = &mut self.counts;
        self.frames.each(packets, |held| {
            let ns = now.since(held.packet.time).0;
            counts.held_ns += ns;
            counts.held_ns_max = counts.held_ns_max.max(ns);
            held.packet.time = now;
            // It leaves later by the capture's clock, too.
            held.stamp = Nanos(held.stamp.0.wrapping_add(ns));
        });
        counts.released[cause as usize] += u64::from(held);
        counts.bursts += 1;
        counts.burst_max = counts.burst_max.max(u64::from(held));
        self.frames.append(&mut self.released, packets);
        self.left(Some(hash));
        self.holding.remove(&mut self.timers, number);
        self.resting.push(&mut self.timers, number);
        self.by_hosts[bucket].remove(&mut self.neighbours, number);
    }

    /// Makes a connection active. The one that has rested longest is forgotten if there are too many; if none rests, the one that has held
    /// packets for the longest time is.
    fn open(&mut self, key: FiveTuple, hash: u64, now: Nanos) -> u32 {
        if self.free == NONE && self.connections.len() == self.limits.connections {
            if self.resting.first().is_none() {
                self.release_oldest(now);
            }
            let first = self.resting.first().expect("there is room for a connection at least");
            self.forget(first);
        }
        let at = hash as usize & (self.index.len() - 1);
        let next = self.index[at];
        let packets = HeldPackets::EMPTY;
        let connection = Connection { key, hash, next, bucket: 0, packets, held: 0, timer: after(now, self.delay) };
        let number = match self.free {
            NONE => {
                self.connections.push(connection);
                self.timers.push(Links::NONE);
                self.neighbours.push(Links::NONE);
                self.connections.len() as u32 - 1
            }
            free => {
                self.free = std::mem::replace(&mut self.connections[free as usize], connection).next;
                free
            }
        };
        self.index[at] = number;
        self.resting.push(&mut self.timers, number);
        number
    }

    /// Forgets a connection that rests.
    fn forget(&mut self, number: u32) {
        self.resting.remove(&mut self.timers, number);
        let Connection { hash, next, .. } = self.connections[number as usize];
        let at = hash as usize & (self.index.len() - 1);
        match self.index[at] == number {
            true => self.index[at] = next,
            false => {
                let mut before = self.index[at];
                while self.connections[before as usize].next != number {
                    before = self.connections[before as usize].next;
                }
                self.connections[before as usize].next = next;
            }
        }
        self.connections[number as usize].next = self.free;
        self.free = number;
    }

    fn find(&self, key: &FiveTuple, hash: u64) -> Option<u32> {
        let mut at = self.index[hash as usize & (self.index.len() - 1)];
        while at != NONE {
            let connection = &self.connections[at as usize];
            if connection.hash == hash && connection.key == *key {
                return Some(at);
            }
            at = connection.next;
        }
        None
    }

    /// Counts a packet, and the runs of packets as they come.
    fn came(&mut self, connection: Option<u64>) {
        self.counts.received += 1;
        self.counts.runs_before += u64::from(connection.is_none() || self.last_came != connection);
        self.last_came = connection;
    }

    /// Counts the runs of packets as they leave.
    fn left(&mut self, connection: Option<u64>) {
        self.counts.runs_after += u64::from(connection.is_none() || self.last_left != connection);
        self.last_left = connection;
    }
}

fn hash(key: &FiveTuple, seed: u64) -> u64 {
    match key.family() {
        Family::V4(key) => key.hash(seed),
        Family::V6(key) => key.hash(seed),
    }
}

/// The bucket of two hosts.
fn bucket(hosts: &FiveTuple, seed: u64, buckets: usize) -> usize {
    hash(hosts, seed) as usize & (buckets - 1)
}

/// A time that is later by `delay`.
const fn after(time: Nanos, delay: Nanos) -> Nanos {
    Nanos(time.0.saturating_add(delay.0))
}
