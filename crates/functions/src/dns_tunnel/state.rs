//! The shared state: unused answers, and each client's count of orphans.

use core::net::Ipv6Addr;

use memory::{Allocator, Distributed, Map, Memory, Portion, Vector};
use nf::{Fingerprint, Step};
use packet::{Family, FlowKey, Host, Host6, HostPair, HostPair4, HostPair6, Nanos, Words};

use super::message::ADDRESSES_MAX;

/// The addresses of an answer: 32-bit names, zeros after the last, and a bit for each address of another family than the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peers<const N: usize = ADDRESSES_MAX> {
    pub names: [u32; N],
    /// One bit for each name: another family than the client's.
    pub crossed: u16,
}

/// Addresses kept of one name, both families together.
pub(super) const PEERS_MAX: usize = 2 * ADDRESSES_MAX;

impl<const N: usize> Default for Peers<N> {
    fn default() -> Self {
        Self { names: [0; N], crossed: 0 }
    }
}

impl<const N: usize> Peers<N> {
    /// Iterates over the names, and whether they are of another family.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        let known = self.names.iter().take_while(|name| **name != 0);
        known.enumerate().map(|(at, name)| (*name, self.crossed >> at & 1 == 1))
    }

    /// Adds a name, if there is room and it is new.
    pub(super) fn add(&mut self, name: u32, is_crossed: bool) {
        let count = self.each().count();
        if count < N && self.each().all(|known| known != (name, is_crossed)) {
            self.names[count] = name;
            self.crossed |= u16::from(is_crossed) << count;
        }
    }
}

/// The shared state of all clients.
pub struct Answers<M: Memory> {
    /// Index of the answer, by client and address, and by client and asked name.
    told: M::Map<HostPair6, u32>,
    /// Index of the answer, by an address of another family than the client's.
    crossed: M::Map<HostPair4, u32>,
    /// Allocator of `answers`: unused ones, and those used within the last ten seconds.
    pub(super) waiting: M::Allocator,
    pub(super) answers: M::Vector<Answered>,
    pub(super) by_name: M::Map<Host6, u32>,
    /// Allocator of `clients`.
    pub(super) known: M::Allocator,
    pub(super) clients: M::Vector<Client>,
    pub(super) totals: M::Distributed<Totals>,
}

impl<M: Memory> Answers<M> {
    /// Creates empty state with room for so many answers and clients.
    pub(super) fn new(memory: &M, answers: usize, clients: usize) -> Self {
        let nobody = Host6::from_words([0; 2]);
        Self {
            told: memory.map(answers * (ADDRESSES_MAX + 1)),
            crossed: memory.map(answers * ADDRESSES_MAX),
            waiting: memory.allocator(answers),
            answers: memory.vector(answers, Answered::new(nobody, 0, Nanos(0))),
            by_name: memory.map(clients),
            known: memory.allocator(clients),
            clients: memory.vector(clients, Client::new(nobody, Nanos(0))),
            totals: memory.distributed(Totals::default(), Nanos(0)),
        }
    }

    /// Returns the index of the answer with this key.
    #[inline]
    pub(super) fn find<'a>(&'a self, tx: &mut M::Tx<'a>, key: &AnswerKey) -> Step<Option<u32>, M> {
        match key {
            AnswerKey::Told(pair) => self.told.get(tx, pair),
            AnswerKey::Crossed(pair) => self.crossed.get(tx, pair),
        }
    }

    /// Adds a key of the answer at this index. Returns false if there is no room.
    pub(super) fn link<'a>(&'a self, tx: &mut M::Tx<'a>, key: AnswerKey, place: usize) -> Step<bool, M> {
        match key {
            AnswerKey::Told(pair) => self.told.insert(tx, pair, place as u32),
            AnswerKey::Crossed(pair) => self.crossed.insert(tx, pair, place as u32),
        }
    }

    /// Removes the key if it leads to this index.
    pub(super) fn unlink<'a>(&'a self, tx: &mut M::Tx<'a>, key: &AnswerKey, place: usize) -> Step<(), M> {
        if self.find(tx, key)? != Some(place as u32) {
            return Ok(());
        }
        match key {
            AnswerKey::Told(pair) => self.told.remove(tx, pair).map(drop),
            AnswerKey::Crossed(pair) => self.crossed.remove(tx, pair).map(drop),
        }
    }

    /// Prefetches the map entry that [`find`](Self::find) reads.
    #[inline]
    pub(super) fn prefetch(&self, key: &AnswerKey) {
        match key {
            AnswerKey::Told(pair) => self.told.prefetch(pair),
            AnswerKey::Crossed(pair) => self.crossed.prefetch(pair),
        }
    }

    /// Adds the state that later packets can observe, and the totals, to the fingerprint.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        // Sums, because the index of an answer or a client has no visible effect.
        let (mut count, mut sum) = (0_u64, 0_u64);
        let mut add = |words: &[u64], deadline: Nanos| {
            let mut digest = Fingerprint::default();
            words.iter().chain([&deadline.0]).for_each(|word| digest.add(*word));
            sum = sum.wrapping_add(digest.value());
            count += 1;
        };
        for place in 0..self.waiting.capacity() {
            if let Some(deadline) = self.waiting.deadline(tx, place)? {
                add(&self.answers.read(tx, place)?.to_words(), deadline);
            }
        }
        for place in 0..self.known.capacity() {
            if let Some(deadline) = self.known.deadline(tx, place)? {
                add(&self.clients.read(tx, place)?.to_words(), deadline);
            }
        }
        // `Nanos::NEVER` forces a merge.
        let totals = self.totals.read(tx, Nanos::NEVER)?.to_words();
        [count, sum].into_iter().chain(totals).for_each(|word| fingerprint.add(word));
        Ok(())
    }
}

/// A map key of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerKey {
    /// A client, and an address that it was told or a name that it asked for.
    Told(HostPair6),
    /// An address that a client of the other family was told. The client will use it from another, unknown address.
    Crossed(HostPair4),
}

/// The answers that a client got to one name. They wait for their use, or have been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// The client that got it.
    pub client: Host6,
    /// Hash of the name; 0 if none is known.
    pub name: u32,
    /// Time of the last answer, or of the use.
    pub at: Nanos,
    pub is_used: bool,
    pub peers: Peers<PEERS_MAX>,
}

/// A client that gets answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub name: Host6,
    /// Start of the window in which orphans are counted.
    pub window: Nanos,
    /// Time of the last answer.
    pub last: Nanos,
    pub orphans: u32,
    /// The most orphans in any window.
    pub peak: u32,
    pub answers: u32,
    /// Answers without an address.
    pub nowhere: u32,
    pub is_tunnel: bool,
    /// The client was suspected before a long silence reset it.
    pub was_tunnel: bool,
}

/// Totals over all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub answers: u64,
    pub used: u64,
    pub unreadable: u64,
    /// Answers without room.
    pub unjudged: u64,
}

packet::words! {
    Answered: [12], answer => {
        let [high, low] = answer.client.to_words();
        let names = &answer.peers.names;
        let pair = |at: usize| u64::from(names[2 * at]) << 32 | u64::from(names[2 * at + 1]);
        let bits = u64::from(answer.is_used) << 16 | u64::from(answer.peers.crossed);
        let [a, b, c, d, e, f, g, h] = core::array::from_fn(pair);
        [high, low, answer.at.0, u64::from(answer.name) << 32 | bits, a, b, c, d, e, f, g, h]
    }, words => {
        let peer = |at: usize| (words[4 + at / 2] >> (32 * (1 - at % 2))) as u32;
        Self {
            client: Host6::from_words([words[0], words[1]]),
            at: Nanos(words[2]),
            name: (words[3] >> 32) as u32,
            is_used: words[3] >> 16 & 1 == 1,
            peers: Peers { names: core::array::from_fn(peer), crossed: words[3] as u16 },
        }
    };
    Client: [6], client => {
        let [high, low] = client.name.to_words();
        let halves = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        // A peak is at most `ORPHANS_MAX`, so there are bits to spare.
        let marks = u32::from(client.was_tunnel) << 1 | u32::from(client.is_tunnel);
        let counts = halves(client.peak << 2 | marks, client.orphans);
        [high, low, client.window.0, client.last.0, counts, halves(client.answers, client.nowhere)]
    }, words => {
        let high = |word: u64| (word >> 32) as u32;
        Self {
            name: Host6::from_words([words[0], words[1]]),
            window: Nanos(words[2]),
            last: Nanos(words[3]),
            orphans: words[4] as u32,
            peak: high(words[4]) >> 2,
            answers: high(words[5]),
            nowhere: words[5] as u32,
            is_tunnel: high(words[4]) & 1 == 1,
            was_tunnel: high(words[4]) & 2 == 2,
        }
    };
    Totals: [4], totals => [totals.answers, totals.used, totals.unreadable, totals.unjudged],
        words => Self { answers: words[0], used: words[1], unreadable: words[2], unjudged: words[3] };
}

impl Portion for Totals {
    fn merge(&mut self, other: &Self) {
        self.answers += other.answers;
        self.used += other.used;
        self.unreadable += other.unreadable;
        self.unjudged += other.unjudged;
    }
}

impl Answered {
    pub(super) fn new(client: Host6, name: u32, at: Nanos) -> Self {
        Self { client, name, at, is_used: false, peers: Peers::default() }
    }

    /// Returns the map keys of the answer.
    pub(super) fn keys(&self) -> impl Iterator<Item = AnswerKey> + '_ {
        let asked = (self.name != 0).then(|| asked(self.client, self.name));
        asked.into_iter().chain(self.peers.each().map(|(peer, is_crossed)| told(self.client, peer, is_crossed)))
    }
}

impl Client {
    pub(super) const fn new(name: Host6, now: Nanos) -> Self {
        let (is_tunnel, was_tunnel) = (false, false);
        Self { name, window: now, last: now, orphans: 0, peak: 0, answers: 0, nowhere: 0, is_tunnel, was_tunnel }
    }

    /// Resets the client after a long silence. A suspected client keeps its peak and stays in the report.
    pub(super) const fn anew(&self, now: Nanos) -> Self {
        match self.is_named() {
            true => Self { peak: self.peak, was_tunnel: true, ..Self::new(self.name, now) },
            false => Self::new(self.name, now),
        }
    }

    /// Returns true if the client is or was suspected.
    pub(super) const fn is_named(&self) -> bool {
        self.is_tunnel || self.was_tunnel
    }

    /// Counts an answer.
    pub(super) fn answered(&mut self, now: Nanos, is_nowhere: bool) {
        self.last = now;
        self.answers = self.answers.saturating_add(1);
        self.nowhere = self.nowhere.saturating_add(is_nowhere.into());
    }

    /// Counts an answer as an orphan of the current window.
    pub(super) fn orphan(&mut self, now: Nanos, window: Nanos, threshold: u32) {
        if self.window + window <= now {
            (self.window, self.orphans) = (now, 0);
        }
        self.orphans = (self.orphans + 1).min(ORPHANS_MAX);
        self.peak = self.peak.max(self.orphans);
        self.is_tunnel |= self.orphans >= threshold;
    }

    /// Uncounts the orphan of an answer at time `at`, unless it belongs to an earlier window.
    pub(super) fn used(&mut self, at: Nanos) {
        if at >= self.window {
            self.orphans = self.orphans.saturating_sub(1);
        }
    }
}

/// Maximum count, above the highest threshold.
const ORPHANS_MAX: u32 = 1 << 24;

/// Returns a client's key for both families.
pub(super) fn name(client: Host) -> Host6 {
    match client.family() {
        Family::V4(client) => client.mapped(),
        Family::V6(client) => client,
    }
}

/// The key of an address that a client was told.
#[inline]
pub(super) fn told(client: Host6, peer: u32, is_crossed: bool) -> AnswerKey {
    if is_crossed { anybodys(!is_v4(client), peer) } else { AnswerKey::Told(pair(client, peer.into())) }
}

/// The key of an address that clients of the other family than `sender` were told.
#[inline]
pub(super) fn crossed(sender: Host6, peer: u32) -> AnswerKey {
    anybodys(is_v4(sender), peer)
}

/// The key of a name that a client asked for.
pub(super) fn asked(client: Host6, name: u32) -> AnswerKey {
    AnswerKey::Told(pair(client, 1 << 32 | u128::from(name)))
}

/// The key of an address that any host of its family may use.
#[inline]
fn anybodys(is_v4: bool, peer: u32) -> AnswerKey {
    AnswerKey::Crossed(HostPair4::from_words([u64::from(is_v4) << 32 | u64::from(peer)]))
}

/// Returns true if the name is that of an IPv4 host.
fn is_v4(client: Host6) -> bool {
    let [high, low] = client.to_words();
    high == 0 && low >> 32 == 0xffff
}

fn pair(client: Host6, other: u128) -> HostPair6 {
    let [high, low] = client.to_words();
    let client = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    match HostPair::v6(client, Ipv6Addr::from_bits(other)).family() {
        Family::V6(pair) => pair,
        Family::V4(_) => unreachable!("it is made of IPv6 addresses"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_come_back(
            [orphans, answers, nowhere] in any::<[u32; 3]>(),
            peak in 0..=ORPHANS_MAX,
            [high, low, window, last] in any::<[u64; 4]>(),
            names in any::<[u32; PEERS_MAX]>(),
            crossed in any::<u16>(),
            [is_tunnel, was_tunnel, is_used] in any::<[bool; 3]>(),
        ) {
            let (window, last) = (Nanos(window), Nanos(last));
            let name = Host6::from_words([high, low]);
            let answer = Answered { client: name, name: nowhere, at: window, is_used, peers: Peers { names, crossed } };
            prop_assert_eq!(Answered::from_words(answer.to_words()), answer);
            let client = Client { name, window, last, orphans, peak, answers, nowhere, is_tunnel, was_tunnel };
            prop_assert_eq!(Client::from_words(client.to_words()), client);
        }
    }
}
