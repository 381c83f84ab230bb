//! A distributed object: each core changes its own portion, and a read merges all.

use core::marker::PhantomData;

use packet::Nanos;

use super::cause::Operation;
use super::log::{Access, Tx};
use super::object::Objects;
use super::{Conflict, Transactional};
use crate::{Distributed, Portion};

/// A distributed object in transactional memory. Each core keeps the last merge of the other cores' portions and uses it within the
/// staleness. Its own portion is always up to date.
pub struct TxDistributed<T> {
    portions: Objects,
    /// For each core the time of its last merge of the others, and the result.
    merged: Objects,
    staleness: Nanos,
    of: PhantomData<T>,
}

/// Where the merged words begin. Before them are the time, and a flag that is 1 if there is one.
const MERGED: usize = 2;

impl<T: Portion> TxDistributed<T> {
    pub(super) fn new(empty: &T, cores: usize, staleness: Nanos) -> Self {
        let portions = Objects::new(cores, T::COUNT);
        (0..cores).for_each(|core| portions.init(core, 0, empty));
        Self { portions, merged: Objects::new(cores, MERGED + T::COUNT), staleness, of: PhantomData }
    }

    /// An object's memory in bytes.
    pub(crate) const fn bytes(cores: usize) -> u64 {
        Objects::bytes(cores, T::COUNT) + Objects::bytes(cores, MERGED + T::COUNT)
    }

    /// The merged portions of all other cores; `None` if there are none.
    fn others<'a>(&'a self, tx: &mut Tx<'a>, own: usize, access: Access) -> Result<Option<T>, Conflict> {
        let mut whole: Option<T> = None;
        for core in (0..self.portions.len()).filter(|core| *core != own) {
            let portion = self.portions.load(tx, core, access)?;
            match &mut whole {
                Some(whole) => whole.merge(&portion),
                None => whole = Some(portion),
            }
        }
        Ok(whole)
    }
}

impl<T: Portion> Distributed<T, Transactional> for TxDistributed<T> {
    fn update<'a>(&'a self, tx: &mut Tx<'a>, change: impl FnOnce(&mut T)) -> Result<(), Conflict> {
        let core = tx.core();
        tx.lock(self.portions.lock(core), Access::new(Operation::Update, 0))?;
        let mut portion = T::from_words(self.portions.peek::<T>(core, 0));
        change(&mut portion);
        self.portions.set(tx, core, 0, &portion);
        Ok(())
    }

    fn read<'a>(&'a self, tx: &mut Tx<'a>, now: Nanos) -> Result<T, Conflict> {
        let access = Access::new(Operation::Merge, 0);
        let core = tx.core();
        let mut whole: T = self.portions.load(tx, core, access)?;
        if self.staleness == Nanos(0) {
            if let Some(others) = self.others(tx, core, access)? {
                whole.merge(&others);
            }
            return Ok(whole);
        }
        // Only the core itself reads and writes its last merge.
        let lock = self.merged.lock(core);
        let (time, known, last) = tx.load(lock, access, move |_| {
            let [time, known] = [0, 1].map(|at| Tx::get(self.merged.word(core, at)));
            (time, known, self.merged.peek::<T>(core, MERGED))
        })?;
        if known == 1 && now.0.checked_sub(time).is_some_and(|age| age < self.staleness.0) {
            whole.merge(&T::from_words(last));
        } else if let Some(others) = self.others(tx, core, access)? {
            tx.lock(lock, access)?;
            tx.set(self.merged.word(core, 0), now.0);
            tx.set(self.merged.word(core, 1), 1);
            self.merged.set(tx, core, MERGED, &others);
            whole.merge(&others);
        }
        Ok(whole)
    }
}
