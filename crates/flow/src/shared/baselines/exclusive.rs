//! The operations of a shared table on a [`Table`] to which it has exclusive access.

use packet::{Key, Nanos};

use crate::index::CuckooPp;
use crate::shared::Insertion;
use crate::{Index, Slot, Table};

/// How many units of ageing an insertion may do if there is no room.
const RECLAIMS: usize = 8;

/// A table in which expired flows count as absent.
pub(super) struct ExclusiveTable<K, V, I = CuckooPp>(pub(super) Table<K, V, I>);

impl<K: Key, V: Copy + Send + 'static, I: Index> ExclusiveTable<K, V, I> {
    #[inline]
    pub(super) fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.find(key, hash, now).map(|slot| *self.0.value(slot))
    }

    #[inline]
    pub(super) fn update<T>(
        &mut self,
        key: &K,
        hash: u64,
        now: Nanos,
        change: impl FnOnce(&mut V, &mut Nanos) -> T,
    ) -> Option<T> {
        let slot = self.find(key, hash, now)?;
        // Copies, so that a panic in `change` leaves the flow as it was.
        let (mut value, mut deadline) = (*self.0.value(slot), self.0.deadline(slot));
        let result = change(&mut value, &mut deadline);
        *self.0.value_mut(slot) = value;
        self.0.touch(slot, deadline);
        Some(result)
    }

    #[inline]
    pub(super) fn insert(&mut self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion {
        if let Some(slot) = self.0.find(&key, hash) {
            if self.0.deadline(slot) > now {
                return Insertion::Present;
            }
            self.0.remove(slot);
        }
        if self.0.insert(key, hash, value, deadline, now).is_some() {
            return Insertion::Added;
        }
        let has_room = self.make_room(hash, now) && self.0.insert(key, hash, value, deadline, now).is_some();
        if has_room { Insertion::Added } else { Insertion::Full }
    }

    #[inline]
    pub(super) fn remove(&mut self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        let slot = self.0.find(key, hash)?;
        let is_alive = self.0.deadline(slot) > now;
        let value = self.0.remove(slot);
        is_alive.then_some(value)
    }

    /// Does one unit of ageing.
    #[inline]
    pub(super) fn reclaim(&mut self, now: Nanos) -> usize {
        usize::from(self.0.reclaim(now).map(|slot| self.0.remove(slot)).is_some())
    }

    /// The key's flow, if it is alive.
    #[inline]
    fn find(&self, key: &K, hash: u64, now: Nanos) -> Option<Slot> {
        self.0.find(key, hash).filter(|slot| self.0.deadline(*slot) > now)
    }

    /// Removes an expired flow if a bounded search finds one.
    #[cold]
    fn make_room(&mut self, hash: u64, now: Nanos) -> bool {
        let neighbour = self.0.expired_near(hash, now);
        let dead = neighbour.or_else(|| (0..RECLAIMS).find_map(|_| self.0.reclaim(now)));
        dead.map(|slot| self.0.remove(slot)).is_some()
    }
}
