//! The walk of one host: a sequential hypothesis test (Wald) on whether its first contacts succeed.

use nf::Flow;
use packet::Nanos;

use super::doors::{Doors, Limits};

/// By what a step goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// What a success multiplies the ratio by, and a failure.
    pub(super) success: f64,
    pub(super) failure: f64,
    /// At or below this the host is harmless, at or above that it scans.
    pub(super) harmless: f64,
    pub(super) scans: f64,
    pub(super) limits: Limits,
}

/// What is remembered of a host that has asked for connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspect {
    /// How many times likelier what was seen is of a scanner than of another host.
    ratio: f64,
    pub(super) standing: Standing,
    pub(super) attempts: Attempts,
    /// Most failed ports of one host, of before the last idle timeout.
    most_ports: u16,
    /// When the host was heard last: what it sent itself.
    heard: Nanos,
    /// The first `tried` of these: whom it tried first is in front.
    peers: [Peer; PEERS],
    tried: u8,
    /// Time at which the next open attempt fails or the next probe ends.
    due: Nanos,
    doors: Doors,
}

/// First contacts whose outcome is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) failed: u32,
    pub(super) succeeded: u32,
}

/// What the walk has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing yet.
    Open,
    /// The host scans.
    Scanner,
    /// It did, and has been silent for so long since that it begins anew. It is still named.
    Former,
}

/// A host that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    name: u64,
    /// When, as long as the outcome isn't known; [`SETTLED`] afterwards.
    since: Nanos,
}

const SETTLED: Nanos = Nanos::NEVER;

/// How many of those that a host tried are remembered.
pub(super) const PEERS: usize = 16;

impl Flow for Suspect {}

impl Default for Suspect {
    fn default() -> Self {
        Self {
            ratio: 1.0,
            standing: Standing::Open,
            attempts: Attempts::default(),
            most_ports: 0,
            heard: Nanos::NEVER,
            peers: [Peer { name: 0, since: SETTLED }; PEERS],
            tried: 0,
            due: Nanos::NEVER,
            doors: Doors::default(),
        }
    }
}

impl Suspect {
    /// The host is heard of. Behind a silence of `idle` it begins anew, but for its name where it scanned.
    #[inline]
    pub(super) fn hear(&mut self, now: Nanos, idle: Nanos) {
        if self.heard != Nanos::NEVER && self.heard + idle <= now {
            let Self { standing, attempts, most_ports, .. } = *self;
            let most_ports = most_ports.max(self.doors.most());
            let new = match standing {
                Standing::Open => Self::default(),
                Standing::Scanner | Standing::Former => {
                    Self { standing: Standing::Former, attempts, most_ports, ..Self::default() }
                }
            };
            *self = new;
        }
        self.heard = now;
    }

    /// Attempts that have been open for too long have failed.
    #[inline]
    pub(super) fn miss(&mut self, walk: &Walk, now: Nanos) {
        if now < self.due {
            return;
        }
        let mut due = Nanos::NEVER;
        for at in 0..usize::from(self.tried) {
            let since = self.peers[at].since;
            if since == SETTLED {
                continue;
            }
            if since + walk.limits.answer_timeout <= now {
                self.peers[at].since = SETTLED;
                self.step(walk, false);
            } else {
                due = due.min(since + walk.limits.answer_timeout);
            }
        }
        if self.doors.miss(&walk.limits, now) {
            self.standing = Standing::Scanner;
        }
        self.due = due.min(self.doors.due(&walk.limits));
    }

    /// The suspect as it is once nothing more comes: whatever is open has failed.
    pub(super) fn settled(mut self, walk: &Walk) -> Self {
        self.miss(walk, Nanos::NEVER);
        self
    }

    /// Tells whether the host is named at the end, should nothing more come.
    pub(super) fn is_named(&self, walk: &Walk) -> bool {
        self.standing != Standing::Open || (self.has_open() && self.settled(walk).standing != Standing::Open)
    }

    fn has_open(&self) -> bool {
        self.doors.has_open() || self.peers[..usize::from(self.tried)].iter().any(|peer| peer.since != SETTLED)
    }

    /// Most ports of one host that failed within the time in which they count.
    pub(super) fn most_ports(&self) -> u16 {
        self.most_ports.max(self.doors.most())
    }

    /// Notes an attempt at a peer's port. It counts once, until the peer or the port is forgotten.
    pub(super) fn attempt(&mut self, walk: &Walk, name: u64, port: u16, now: Nanos) {
        self.due = self.due.min(now + walk.limits.answer_timeout);
        self.doors.knock(name, port, true, now);
        let tried = usize::from(self.tried);
        if self.peers[..tried].iter().any(|peer| peer.name == name) {
            return;
        }
        let new = Peer { name, since: now };
        if tried < PEERS {
            self.peers[tried] = new;
            self.tried += 1;
        } else if let Some(oldest) = self.peers.iter().position(|peer| peer.since == SETTLED) {
            self.peers.copy_within(oldest + 1.., oldest);
            self.peers[PEERS - 1] = new;
        }
        // Where the outcome of all is open, this one isn't judged: forgetting an open one would hide whoever is fast enough.
    }

    /// Notes a bare ACK to a peer's port.
    #[inline]
    pub(super) fn probe(&mut self, walk: &Walk, name: u64, port: u16, now: Nanos) {
        self.due = self.due.min(now + walk.limits.answer_timeout);
        self.doors.knock(name, port, false, now);
    }

    /// A peer has answered, if it was asked.
    pub(super) fn answer(&mut self, walk: &Walk, name: u64, port: u16, granted: bool, now: Nanos) {
        if self.doors.answer(&walk.limits, name, port, granted, now) {
            self.standing = Standing::Scanner;
        }
        let tried = usize::from(self.tried);
        if let Some(peer) = self.peers[..tried].iter_mut().find(|peer| peer.name == name && peer.since != SETTLED) {
            peer.since = SETTLED;
            self.step(walk, granted);
        }
    }

    fn step(&mut self, walk: &Walk, success: bool) {
        let count = if success { &mut self.attempts.succeeded } else { &mut self.attempts.failed };
        *count = count.saturating_add(1);
        self.ratio *= if success { walk.success } else { walk.failure };
        if self.ratio >= walk.scans {
            self.standing = Standing::Scanner;
        }
        // A walk that has come to its end begins anew: a harmless host may yet be taken over.
        if self.ratio <= walk.harmless || self.ratio >= walk.scans {
            self.ratio = 1.0;
        }
    }
}
