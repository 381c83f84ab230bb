//! Passive health of the backends, from the packets that pass.

use alloc::vec::Vec;

use memory::{Distributed, Memory, Portion, Vector};
use nf::{Context, Fingerprint, Kept, Step};
use packet::{FiveTuple, Nanos, protocol};

use super::LoadBalancer;
use super::connection::{Attempt, Connection, Name};

/// The shared state: health and totals of all backends, by number.
pub struct Backends<M: Memory>(pub(super) Vec<Watched<M>>);

/// What is known of a backend. Each has memory of its own, which goes on when others are added.
pub(super) struct Watched<M: Memory> {
    /// One element.
    health: M::Vector<Health>,
    /// The unanswered attempts in a row, except the last one that counts: an attempt that the client repeats counts once.
    row: M::Vector<u64>,
    /// Totals of the backend's ended connections.
    pub(super) ended: M::Distributed<Totals>,
}

/// Number of connections and their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub(super) connections: u64,
    /// Packets to the backend, and from it.
    pub(super) packets: [u64; 2],
}

impl Portion for Totals {
    fn merge(&mut self, other: &Self) {
        self.connections += other.connections;
        self.packets[0] += other.packets[0];
        self.packets[1] += other.packets[1];
    }
}

impl Totals {
    /// Adds a connection.
    pub(super) fn add(&mut self, connection: &Connection) {
        let packets = connection.packets.map(u64::from);
        self.merge(&Self { connections: 1, packets });
    }
}

/// The health of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Unanswered connections in a row.
    pub(super) failures: u32,
    /// If the backend is down: when it is tried again.
    pub(super) until: Nanos,
}

packet::words! {
    Health: [2], health => [u64::from(health.failures), health.until.0],
        words => Self { failures: words[0] as u32, until: Nanos(words[1]) };
    Totals: [3], totals => [totals.connections, totals.packets[0], totals.packets[1]],
        words => Self { connections: words[0], packets: [words[1], words[2]] };
}

impl<M: Memory> Watched<M> {
    /// What is known of a backend at first. `attempts` is the length of its row.
    pub(super) fn new(memory: &M, attempts: usize) -> Self {
        Self {
            health: memory.vector(1, Health::default()),
            row: memory.vector(attempts, 0),
            ended: memory.distributed(Totals::default(), Nanos(0)),
        }
    }

    /// Forgets the health.
    pub(super) fn judge_anew(&mut self, memory: &M, attempts: usize) {
        let Self { health, row, .. } = Self::new(memory, attempts);
        (self.health, self.row) = (health, row);
    }

    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        kept.vector::<M, _>(tx, &self.health)?;
        kept.vector::<M, _>(tx, &self.row)?;
        kept.distributed::<M, _>(tx, &self.ended)
    }

    fn health<'a>(&'a self, tx: &mut M::Tx<'a>) -> Step<Health, M> {
        self.health.read(tx, 0)
    }

    fn set_health<'a>(&'a self, tx: &mut M::Tx<'a>, health: Health) -> Step<(), M> {
        self.health.write(tx, 0, health)
    }
}

impl<M: Memory> Backends<M> {
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        for backend in &self.0 {
            let Health { failures, until } = backend.health(tx)?;
            fingerprint.add(failures.into());
            fingerprint.add(until.0);
            for attempt in (0..backend.row.len()).take(failures as usize) {
                fingerprint.add(backend.row.read(tx, attempt)?);
            }
            let Totals { connections, packets: [to, from] } = backend.ended.read(tx, Nanos::NEVER)?;
            [connections, to, from].into_iter().for_each(|total| fingerprint.add(total));
        }
        Ok(())
    }
}

impl LoadBalancer {
    /// Returns true if answers of the connection count for the backend's health.
    pub(super) const fn is_judged(&self, tuple: &FiveTuple) -> bool {
        tuple.protocol() == protocol::TCP && self.down_after() > 0
    }

    const fn down_after(&self) -> u64 {
        self.config.fields.down_after.get()
    }

    /// The length of a backend's row.
    pub(super) const fn attempts(&self) -> usize {
        self.down_after().saturating_sub(1) as usize
    }

    /// Returns true if a backend is not down.
    pub(super) fn is_up<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: usize) -> Step<bool, M> {
        let health = cx.shared.0[backend].health(&mut cx.tx)?;
        Ok(u64::from(health.failures) < self.down_after())
    }

    /// Returns true if a backend takes a connection. A backend that is down takes one SYN each `retry_after`.
    pub(super) fn takes<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: usize, asks: bool) -> Step<bool, M> {
        let (watched, now) = (&cx.shared.0[backend], cx.now());
        let health = watched.health(&mut cx.tx)?;
        if u64::from(health.failures) < self.down_after() {
            return Ok(true);
        }
        if now < health.until || !asks {
            return Ok(false);
        }
        let until = now + self.config.fields.retry_after.nanos();
        watched.set_health(&mut cx.tx, Health { until, ..health })?;
        Ok(true)
    }

    /// Records that a backend has answered. Usually nothing changes, and nothing is written.
    pub(super) fn answered<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: u16) -> Step<(), M> {
        let watched = &cx.shared.0[usize::from(backend)];
        if watched.health(&mut cx.tx)? != Health::default() {
            watched.set_health(&mut cx.tx, Health::default())?;
        }
        Ok(())
    }

    /// Adds a connection through the service to the totals when it ends or is replaced. One without a packet had no room and doesn't count.
    pub(super) fn ended<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Connection) -> Step<(), M> {
        match cx.shared.0.get(usize::from(flow.backend)) {
            Some(Watched { ended, .. }) if flow.name == Name::Service && flow.packets != [0; 2] => {
                ended.update(&mut cx.tx, |totals| totals.add(flow))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts the connection's attempt as failed if it was not answered in time.
    pub(super) fn miss<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &mut Connection) -> Step<(), M> {
        if self.has_waited(flow, cx.now()) {
            self.failed(cx, flow)?;
            flow.attempt = Attempt::Missed;
        }
        Ok(())
    }

    pub(super) fn has_waited(&self, flow: &Connection, now: Nanos) -> bool {
        flow.attempt == Attempt::Waiting && flow.since + self.config.fields.answer_timeout.nanos() <= now
    }

    /// Records a failed attempt. It counts once, however often the client repeats it. The last backend of a service that is up stays up:
    /// the others have failed as well, and connections must go somewhere.
    pub(super) fn failed<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Connection) -> Step<(), M> {
        let backend = usize::from(flow.backend);
        let watched = &cx.shared.0[backend];
        let most = self.down_after() as u32;
        let health = watched.health(&mut cx.tx)?;
        let until = cx.now() + self.config.fields.retry_after.nanos();
        if health.failures >= most {
            return watched.set_health(&mut cx.tx, Health { until, ..health });
        }
        let attempt = u64::from(flow.client) << 32 | u64::from(flow.asked[Name::Service as usize]);
        for place in 0..health.failures as usize {
            if watched.row.read(&mut cx.tx, place)? == attempt {
                return Ok(());
            }
        }
        let failures = health.failures + 1;
        if failures == most {
            if self.is_another_up(cx, backend)? {
                watched.set_health(&mut cx.tx, Health { failures, until })?;
            }
            return Ok(());
        }
        watched.row.write(&mut cx.tx, health.failures as usize, attempt)?;
        watched.set_health(&mut cx.tx, Health { failures, until: Nanos(0) })
    }

    fn is_another_up<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: usize) -> Step<bool, M> {
        let service = self.backends[backend].service.and_then(|service| self.services.get(usize::from(service)));
        for other in service.into_iter().flat_map(|service| &service.backends) {
            let other = usize::from(*other);
            if other != backend && self.is_up(cx, other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
