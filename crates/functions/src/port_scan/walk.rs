//! The random walk of one host: a sequential hypothesis test (Wald) on the success of its first contacts.

use nf::Flow;
use packet::Nanos;

use super::doors::{Doors, Limits};

/// The parameters of the walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Factor of the ratio for a success, and for a failure.
    pub(super) success: f64,
    pub(super) failure: f64,
    /// The host is harmless at or below `harmless`, and scans at or above `scans`.
    pub(super) harmless: f64,
    pub(super) scans: f64,
    pub(super) limits: Limits,
}

/// The state of a host that has opened connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspect {
    /// Likelihood ratio: scanner to harmless host.
    ratio: f64,
    pub(super) standing: Standing,
    pub(super) attempts: Attempts,
    /// The most failed ports of one host before the last idle timeout.
    most_ports: u16,
    /// Time of the last packet that the host sent.
    heard: Nanos,
    /// The hosts that it tried, oldest first; the first `tried` are valid.
    peers: [Peer; PEERS],
    tried: u8,
    /// Time at which the next open attempt fails or the next probe ends.
    due: Nanos,
    doors: Doors,
}

/// Number of first contacts with a known outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) failed: u32,
    pub(super) succeeded: u32,
}

/// The result of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Undecided.
    Open,
    /// The host scans.
    Scanner,
    /// The host scanned before a silence of the idle timeout. It stays in the report.
    Former,
}

/// A host that was contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    name: u64,
    /// Time of the attempt while its outcome is open; then [`SETTLED`].
    since: Nanos,
}

const SETTLED: Nanos = Nanos::NEVER;

/// Number of contacted hosts that are remembered.
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
    /// Records a packet of the host. After a silence of `idle` its state is reset, but a scanner stays in the report.
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

    /// Fails attempts that have been open for too long.
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

    /// Returns the state after the end of the run: open attempts have failed.
    pub(super) fn settled(mut self, walk: &Walk) -> Self {
        self.miss(walk, Nanos::NEVER);
        self
    }

    /// Returns true if the host would be in the report without further packets.
    pub(super) fn is_named(&self, walk: &Walk) -> bool {
        self.standing != Standing::Open || (self.has_open() && self.settled(walk).standing != Standing::Open)
    }

    fn has_open(&self) -> bool {
        self.doors.has_open() || self.peers[..usize::from(self.tried)].iter().any(|peer| peer.since != SETTLED)
    }

    /// The most ports of one host that failed within the time limit.
    pub(super) fn most_ports(&self) -> u16 {
        self.most_ports.max(self.doors.most())
    }

    /// Records an attempt at a peer's port. It counts once, until the peer or the port is forgotten.
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
        // If all are open, this attempt isn't judged: forgetting an open one would hide fast scanners.
    }

    /// Records a bare ACK to a peer's port.
    #[inline]
    pub(super) fn probe(&mut self, walk: &Walk, name: u64, port: u16, now: Nanos) {
        self.due = self.due.min(now + walk.limits.answer_timeout);
        self.doors.knock(name, port, false, now);
    }

    /// Records a peer's answer, if there was an attempt.
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
        // A finished walk restarts: a harmless host may be compromised later.
        if self.ratio <= walk.harmless || self.ratio >= walk.scans {
            self.ratio = 1.0;
        }
    }
}
