//! What the detector remembers: answers that wait for their use, and each client's count of those.

use core::net::Ipv6Addr;

use memory::{Allocator, Distributed, Memory, Portion, Vector};
use nf::{Fingerprint, Step};
use packet::{Family, FlowKey, Host, Host6, HostPair, HostPair6, Nanos, Words};

use super::message::ADDRESSES_MAX;

/// The addresses of an answer by their names, zeros behind them.
pub(super) type Peers = [u32; ADDRESSES_MAX];

/// What all clients share.
pub struct Answers<M: Memory> {
    /// Whom a client was told of, and by which answer.
    pub(super) told: M::Map<HostPair6, u32>,
    /// The places of answers that wait.
    pub(super) waiting: M::Allocator,
    pub(super) answers: M::Vector<Answered>,
    pub(super) by_name: M::Map<Host6, u32>,
    /// The places of clients.
    pub(super) known: M::Allocator,
    pub(super) clients: M::Vector<Client>,
    pub(super) totals: M::Distributed<Totals>,
}

impl<M: Memory> Answers<M> {
    /// Nothing yet, with room for so many.
    pub(super) fn new(memory: &M, answers: usize, clients: usize) -> Self {
        let nobody = Host6::from_words([0; 2]);
        Self {
            told: memory.map(answers * ADDRESSES_MAX),
            waiting: memory.allocator(answers),
            answers: memory.vector(answers, Answered { client: nobody, at: Nanos(0), peers: [0; ADDRESSES_MAX] }),
            by_name: memory.map(clients),
            known: memory.allocator(clients),
            clients: memory.vector(clients, Client::new(nobody, Nanos(0))),
            totals: memory.distributed(Totals::default(), Nanos(0)),
        }
    }

    /// Adds what a later packet could tell apart, and the totals.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        // Sums, for no packet can tell which place an answer or a client has.
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
        // At the end of time nothing that was read before is new enough.
        let totals = self.totals.read(tx, Nanos::NEVER)?.to_words();
        [count, sum].into_iter().chain(totals).for_each(|word| fingerprint.add(word));
        Ok(())
    }
}

/// An answer that waits for its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// Who got it.
    pub client: Host6,
    pub at: Nanos,
    pub peers: Peers,
}

/// Who is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub name: Host6,
    /// When the window began that orphans are counted in.
    pub window: Nanos,
    /// When an answer came last.
    pub last: Nanos,
    pub orphans: u32,
    /// The most orphans in any window.
    pub peak: u32,
    pub answers: u32,
    /// Those that held no address.
    pub nowhere: u32,
    pub is_tunnel: bool,
}

/// What there was in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub answers: u64,
    pub used: u64,
    pub unreadable: u64,
    /// For which there was no room.
    pub unjudged: u64,
}

packet::words! {
    Answered: [7], answer => {
        let [high, low] = answer.client.to_words();
        let pair = |at: usize| u64::from(answer.peers[at]) << 32 | u64::from(answer.peers[at + 1]);
        [high, low, answer.at.0, pair(0), pair(2), pair(4), pair(6)]
    }, words => {
        let peer = |at: usize| (words[3 + at / 2] >> (32 * (1 - at % 2))) as u32;
        let client = Host6::from_words([words[0], words[1]]);
        Self { client, at: Nanos(words[2]), peers: core::array::from_fn(peer) }
    };
    Client: [6], client => {
        let [high, low] = client.name.to_words();
        let halves = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        // A peak is at most `ORPHANS_MAX`, so there is a bit to spare.
        let counts = halves(client.peak << 1 | u32::from(client.is_tunnel), client.orphans);
        [high, low, client.window.0, client.last.0, counts, halves(client.answers, client.nowhere)]
    }, words => {
        let high = |word: u64| (word >> 32) as u32;
        Self {
            name: Host6::from_words([words[0], words[1]]),
            window: Nanos(words[2]),
            last: Nanos(words[3]),
            orphans: words[4] as u32,
            peak: high(words[4]) >> 1,
            answers: high(words[5]),
            nowhere: words[5] as u32,
            is_tunnel: high(words[4]) & 1 == 1,
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
    /// What the map knows it by.
    pub(super) fn pairs(&self) -> impl Iterator<Item = HostPair6> + '_ {
        self.peers.iter().filter(|peer| **peer != 0).map(|peer| pair(self.client, *peer))
    }
}

impl Client {
    pub(super) const fn new(name: Host6, now: Nanos) -> Self {
        Self { name, window: now, last: now, orphans: 0, peak: 0, answers: 0, nowhere: 0, is_tunnel: false }
    }

    /// An answer has come.
    pub(super) fn answered(&mut self, now: Nanos, is_nowhere: bool) {
        self.last = now;
        self.answers = self.answers.saturating_add(1);
        self.nowhere = self.nowhere.saturating_add(is_nowhere.into());
    }

    /// It counts as an orphan, as long as its window lasts and the client makes no use of it.
    pub(super) fn orphan(&mut self, now: Nanos, window: Nanos, threshold: u32) {
        if self.window + window <= now {
            (self.window, self.orphans) = (now, 0);
        }
        self.orphans = (self.orphans + 1).min(ORPHANS_MAX);
        self.peak = self.peak.max(self.orphans);
        self.is_tunnel |= self.orphans >= threshold;
    }

    /// An answer that came at `at` was no orphan after all. One of an earlier window isn't counted any more.
    pub(super) fn used(&mut self, at: Nanos) {
        if at >= self.window {
            self.orphans = self.orphans.saturating_sub(1);
        }
    }
}

/// Above the highest threshold.
const ORPHANS_MAX: u32 = 1 << 24;

/// A client's name, whatever its family.
pub(super) fn name(client: Host) -> Host6 {
    match client.family() {
        Family::V4(client) => client.mapped(),
        Family::V6(client) => client,
    }
}

/// What the map of answers knows a client and a peer by.
pub(super) fn pair(client: Host6, peer: u32) -> HostPair6 {
    let [high, low] = client.to_words();
    let client = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    match HostPair::v6(client, Ipv6Addr::from_bits(peer.into())).family() {
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
            peers in any::<[u32; 8]>(),
            is_tunnel in any::<bool>(),
        ) {
            let (window, last) = (Nanos(window), Nanos(last));
            let name = Host6::from_words([high, low]);
            let answer = Answered { client: name, at: window, peers };
            prop_assert_eq!(Answered::from_words(answer.to_words()), answer);
            let client = Client { name, window, last, orphans, peak, answers, nowhere, is_tunnel };
            prop_assert_eq!(Client::from_words(client.to_words()), client);
        }
    }
}
