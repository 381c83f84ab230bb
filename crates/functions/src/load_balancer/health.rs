//! Which backends answer, told by what passes: nobody is asked.

use memory::{Memory, Vector};
use nf::{Context, Step};
use packet::{FiveTuple, Nanos, protocol};

use super::LoadBalancer;

/// What is known of a backend by whether it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Connections in a row that were not answered.
    pub(super) failures: u32,
    /// Where these are too many: when it is tried again.
    pub(super) until: Nanos,
}

packet::words! {
    Health: [2], health => [u64::from(health.failures), health.until.0],
        words => Self { failures: words[0] as u32, until: Nanos(words[1]) };
}

impl LoadBalancer {
    /// Whether it can be seen that a connection is answered.
    pub(super) const fn is_judged(&self, tuple: &FiveTuple) -> bool {
        tuple.protocol() == protocol::TCP && self.config.fields.down_after.get() > 0
    }

    /// Whether a backend takes a new connection. One that is down takes one now and then, to show that it is back.
    pub(super) fn takes<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: usize) -> Step<bool, M> {
        let (healths, now) = (cx.shared, cx.now());
        let health = healths.read(&mut cx.tx, backend)?;
        if u64::from(health.failures) < self.config.fields.down_after.get() {
            return Ok(true);
        }
        if now < health.until {
            return Ok(false);
        }
        let until = now + self.config.fields.retry_after.nanos();
        healths.write(&mut cx.tx, backend, Health { until, ..health })?;
        Ok(true)
    }

    /// A backend has answered. Mostly that is nothing new, and nothing is written.
    pub(super) fn answered<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: u16) -> Step<(), M> {
        let backend = usize::from(backend);
        if cx.shared.read(&mut cx.tx, backend)? != Health::default() {
            cx.shared.write(&mut cx.tx, backend, Health::default())?;
        }
        Ok(())
    }

    /// A backend has not answered.
    pub(super) fn failed<M: Memory>(&self, cx: &mut Context<'_, Self, M>, backend: u16) -> Step<(), M> {
        let (backend, healths) = (usize::from(backend), cx.shared);
        let most = self.config.fields.down_after.get() as u32;
        let failures = (healths.read(&mut cx.tx, backend)?.failures + 1).min(most);
        let until = if failures < most { Nanos(0) } else { cx.now() + self.config.fields.retry_after.nanos() };
        healths.write(&mut cx.tx, backend, Health { failures, until })
    }
}
