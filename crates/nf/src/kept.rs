//! What packet sets share, on its way into a snapshot or out of one: [`Kept`].

use alloc::vec::Vec;

use memory::{Allocator, Distributed, Memory, PoolOrder, Portion, Value, Vector};
use packet::{Nanos, Words};

use crate::function::Step;

/// A snapshot of what packet sets share. It is written or it is read, and a function's [`keep`](crate::NetworkFunction::keep) does the same
/// for both: it gives each of its structures, in the same order.
#[derive(Debug)]
pub struct Kept<'w> {
    way: Way<'w>,
    now: Nanos,
}

#[derive(Debug)]
enum Way<'w> {
    Into(&'w mut Vec<u64>),
    /// The words that were not read yet.
    From {
        left: &'w [u64],
        is_damaged: bool,
    },
}

impl<'w> Kept<'w> {
    /// Writes a snapshot at `now`: appends words. For engines.
    pub const fn writing(words: &'w mut Vec<u64>, now: Nanos) -> Self {
        Self { way: Way::Into(words), now }
    }

    /// Reads a snapshot of `now` from words. For engines.
    #[must_use]
    pub const fn reading(words: &'w [u64], now: Nanos) -> Self {
        Self { way: Way::From { left: words, is_damaged: false }, now }
    }

    /// True if the snapshot is read: then structures are as [`shared`](crate::NetworkFunction::shared) makes them, and what follows from
    /// others has to be rebuilt.
    #[must_use]
    pub const fn reads(&self) -> bool {
        matches!(self.way, Way::From { .. })
    }

    /// True if the words made sense, and none is left. For engines.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        match &self.way {
            Way::Into(_) => true,
            Way::From { left, is_damaged } => left.is_empty() && !*is_damaged,
        }
    }

    /// Says that what was read makes no sense. The run then doesn't begin.
    pub const fn damage(&mut self) {
        if let Way::From { is_damaged, .. } = &mut self.way {
            *is_damaged = true;
        }
    }

    /// Writes a value and returns it, or returns the one that was written; `None` if there is none.
    pub fn value<T: Words>(&mut self, value: T) -> Option<T> {
        match &mut self.way {
            Way::Into(words) => {
                words.extend_from_slice(value.to_words().as_ref());
                Some(value)
            }
            Way::From { left, is_damaged } => match left.split_at_checked(T::COUNT) {
                Some((words, rest)) if !*is_damaged => {
                    *left = rest;
                    let mut array = T::ZEROS;
                    array.as_mut().copy_from_slice(words);
                    Some(T::from_words(array))
                }
                Some(_) | None => {
                    *is_damaged = true;
                    None
                }
            },
        }
    }

    /// The same for a number.
    pub fn number(&mut self, number: u64) -> Option<u64> {
        self.value([number]).map(|[number]| number)
    }

    /// Keeps a pool: which indices are in use until when, and in which order the others are allocated. Returns the indices in use, whose
    /// elements are to be [kept](Self::element) then.
    ///
    /// # Errors
    /// The memory's conflict.
    pub fn pool<'a, M: Memory>(&mut self, tx: &mut M::Tx<'a>, pool: &'a M::Allocator) -> Step<Vec<usize>, M> {
        let PoolOrder { mut in_use, free } = if self.reads() { PoolOrder::default() } else { pool.order(tx)? };
        // At first indices lie in the order of their numbers. Those behind were in use, and lie in the order in which they became free.
        let ascending = free.windows(2).position(|pair| pair[0] > pair[1]).map_or(free.len(), |last| last + 1);
        let mut behind = free[ascending..].to_vec();
        self.list(
            &mut in_use,
            |&(index, deadline)| [index as u64, deadline.0],
            |[index, deadline]| (index as usize, Nanos(deadline)),
        );
        self.list(&mut behind, |&index| [index as u64], |[index]| index as usize);
        if self.reads() {
            pool.begin_at(tx, self.now)?;
            for &(index, deadline) in &in_use {
                if index >= pool.capacity() || !pool.allocate_exact(tx, index, deadline)? {
                    self.damage();
                    return Ok(Vec::new());
                }
            }
            for index in behind {
                if index >= pool.capacity() || !pool.allocate_exact(tx, index, Nanos::NEVER)? {
                    self.damage();
                    return Ok(Vec::new());
                }
                pool.free(tx, index)?;
            }
        }
        Ok(in_use.into_iter().map(|(index, _)| index).collect())
    }

    /// Keeps an element of a vector. Returns it; `None` if the snapshot has none.
    ///
    /// # Errors
    /// The memory's conflict.
    ///
    /// # Panics
    /// If the vector has no such element.
    pub fn element<'a, M: Memory, T: Value>(
        &mut self,
        tx: &mut M::Tx<'a>,
        vector: &'a M::Vector<T>,
        index: usize,
    ) -> Step<Option<T>, M> {
        let element = vector.read(tx, index)?;
        let kept = self.value(element);
        if let (Some(element), true) = (kept, self.reads()) {
            vector.write(tx, index, element)?;
        }
        Ok(kept)
    }

    /// Keeps all elements of a vector.
    ///
    /// # Errors
    /// The memory's conflict.
    pub fn vector<'a, M: Memory, T: Value>(&mut self, tx: &mut M::Tx<'a>, vector: &'a M::Vector<T>) -> Step<(), M> {
        (0..vector.len()).try_for_each(|index| self.element::<M, T>(tx, vector, index).map(drop))
    }

    /// Keeps a distributed object.
    ///
    /// # Errors
    /// The memory's conflict.
    pub fn distributed<'a, M: Memory, T: Portion>(
        &mut self,
        tx: &mut M::Tx<'a>,
        object: &'a M::Distributed<T>,
    ) -> Step<(), M> {
        let whole = object.read(tx, Nanos::NEVER)?;
        match self.value(whole) {
            Some(whole) if self.reads() => object.update(tx, |portion| portion.merge(&whole)),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes a list, or reads one.
    fn list<T, const N: usize>(
        &mut self,
        list: &mut Vec<T>,
        to_words: impl Fn(&T) -> [u64; N],
        from_words: impl Fn([u64; N]) -> T,
    ) {
        let Some(count) = self.number(list.len() as u64) else { return };
        match &mut self.way {
            Way::Into(words) => words.extend(list.iter().flat_map(to_words)),
            Way::From { left, is_damaged } => {
                let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(N));
                match len.and_then(|len| left.split_at_checked(len)) {
                    Some((words, rest)) => {
                        *left = rest;
                        list.extend(words.as_chunks().0.iter().map(|words| from_words(*words)));
                    }
                    None => *is_damaged = true,
                }
            }
        }
    }
}
