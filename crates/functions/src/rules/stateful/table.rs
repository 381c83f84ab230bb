//! Tables of keys with a deadline and words each: those of `hashlimit`, the lists of `recent`, and sets that rules change.

use alloc::string::String;
use alloc::vec::Vec;

use iptables::matches::{Recent, RecentAction, RecentSide};
use memory::{Allocator, Map, Memory, Vector};
use nf::{Kept, Step};
use packet::Nanos;

use super::{Answer, Named};
use crate::rules::view::View;

/// A table of keys with a deadline and words each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableShape {
    /// Its kind and name, by which it outlives a change of the rules.
    pub(super) name: (u8, String),
    pub(super) capacity: usize,
    /// Words of an entry.
    pub(super) words: usize,
    /// The entries at the start.
    pub(super) initial: Vec<Named>,
}

/// The word of an entry that was in a set at the start and that a rule has removed.
pub(super) const REMOVED: u64 = 1;

/// Words of an entry of `recent` before its stamps: time to live; the number of stamps and the next one's place.
pub(super) const RECENT_HEAD: usize = 2;

/// A table of keys.
pub(super) struct KeyTable<M: Memory> {
    pub(super) places: M::Map<Named, u64>,
    pub(super) keys: M::Vector<Named>,
    pub(super) words: M::Vector<u64>,
    pub(super) ages: M::Allocator,
    pub(super) initial: Vec<Named>,
    pub(super) width: usize,
}

impl<M: Memory> KeyTable<M> {
    pub(super) fn new(shape: &TableShape, memory: &M) -> Self {
        let TableShape { capacity, words, ref initial, .. } = *shape;
        Self {
            places: memory.map(capacity),
            keys: memory.vector(capacity, Named::default()),
            words: memory.vector(capacity * words, 0),
            ages: memory.allocator(capacity),
            initial: initial.clone(),
            width: words,
        }
    }

    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        for index in kept.pool::<M>(tx, &self.ages)? {
            let name = kept.element::<M, _>(tx, &self.keys, index)?;
            if let (Some(name), true) = (name, kept.reads()) {
                self.places.insert(tx, name, index as u64)?;
            }
            for word in index * self.width..(index + 1) * self.width {
                kept.element::<M, _>(tx, &self.words, word)?;
            }
        }
        Ok(())
    }

    /// The index of a key that has not expired.
    pub(super) fn find<'a>(&'a self, tx: &mut M::Tx<'a>, name: &Named, now: Nanos) -> Step<Option<usize>, M> {
        let Some(index) = self.places.get(tx, name)? else { return Ok(None) };
        let index = index as usize;
        match self.ages.deadline(tx, index)? {
            Some(deadline) if deadline > now => Ok(Some(index)),
            Some(_) => {
                self.remove(tx, index)?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// True if the set has the key: it was there at the start and no rule has removed it, or a rule has added it.
    pub(super) fn has<'a>(&'a self, tx: &mut M::Tx<'a>, name: &Named, now: Nanos) -> Step<bool, M> {
        match self.find(tx, name, now)? {
            Some(index) => Ok(self.words.read(tx, index)? != REMOVED),
            None => Ok(self.initial.binary_search(name).is_ok()),
        }
    }

    pub(super) fn insert<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        name: Named,
        deadline: Nanos,
        now: Nanos,
    ) -> Step<Option<usize>, M> {
        let mut index = self.ages.allocate(tx, deadline)?;
        if index.is_none()
            && let Some(old) = self.ages.expire(tx, now)?
        {
            self.forget(tx, old)?;
            index = self.ages.allocate(tx, deadline)?;
        }
        let Some(index) = index else { return Ok(None) };
        self.places.insert(tx, name, index as u64)?;
        self.keys.write(tx, index, name)?;
        Ok(Some(index))
    }

    /// Removes the key of an index that is free again already.
    pub(super) fn forget<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Step<(), M> {
        let name = self.keys.read(tx, index)?;
        self.places.remove(tx, &name).map(drop)
    }

    pub(super) fn remove<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Step<(), M> {
        self.forget(tx, index)?;
        self.ages.free(tx, index)
    }

    pub(super) fn recent<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        rule: &Recent,
        mask: u128,
        view: &View,
        now: Nanos,
    ) -> Step<Answer, M> {
        let side = if rule.side == RecentSide::Source { view.src } else { view.dst };
        let name = Named { src: side & mask, ..Named::default() };
        let (action, negated) = (rule.action.value, rule.action.negated);
        let mut entry = self.find(tx, &name, now)?;
        if rule.same_ttl
            && let Some(index) = entry
            && self.words.read(tx, index * self.width)? != u64::from(view.ttl)
        {
            entry = None;
        }
        let Some(index) = entry else {
            if action != RecentAction::Set {
                return Ok(Answer::Is(negated));
            }
            let index = self.recent_room(tx, name, now)?;
            self.recent_note(tx, index, view, now, true)?;
            return Ok(Answer::Is(!negated));
        };
        let is_match = match action {
            RecentAction::Set => true,
            RecentAction::Remove => {
                self.remove(tx, index)?;
                true
            }
            RecentAction::Check | RecentAction::Update => self.recent_hits(tx, rule, index, now)?,
        } != negated;
        if action == RecentAction::Set || action == RecentAction::Update && is_match {
            self.recent_note(tx, index, view, now, false)?;
        }
        Ok(Answer::Is(is_match))
    }

    pub(super) fn stamps(&self) -> usize {
        self.width - RECENT_HEAD
    }

    /// True if the entry has enough stamps that are young enough.
    pub(super) fn recent_hits<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        rule: &Recent,
        index: usize,
        now: Nanos,
    ) -> Step<bool, M> {
        let first = index * self.width;
        let count = (self.words.read(tx, first + 1)? >> 32) as usize;
        let wanted = rule.hit_count.unwrap_or(1).max(1);
        let since = rule.seconds.map(|seconds| now - Nanos::from_secs(seconds.into()));
        let mut hits = 0;
        for stamp in 0..count {
            let at = self.words.read(tx, first + RECENT_HEAD + stamp)?;
            if since.is_none_or(|since| at >= since.0) {
                hits += 1;
            }
            if hits >= wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a stamp to the entry.
    pub(super) fn recent_note<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        index: usize,
        view: &View,
        now: Nanos,
        is_new: bool,
    ) -> Step<(), M> {
        let first = index * self.width;
        let word = if is_new { 0 } else { self.words.read(tx, first + 1)? };
        let (count, next) = ((word >> 32) as usize, word as u32 as usize % self.stamps());
        self.words.write(tx, first, view.ttl.into())?;
        self.words.write(tx, first + RECENT_HEAD + next, now.0)?;
        let (count, next) = (count.max(next + 1), next + 1);
        self.words.write(tx, first + 1, (count as u64) << 32 | next as u64)
    }

    /// Makes an entry, in place of the one that was not noted for the longest time if the list is full.
    pub(super) fn recent_room<'a>(&'a self, tx: &mut M::Tx<'a>, name: Named, now: Nanos) -> Step<usize, M> {
        if let Some(index) = self.insert(tx, name, Nanos::NEVER, now)? {
            return Ok(index);
        }
        let mut oldest = (u64::MAX, Named::default(), 0);
        for index in 0..self.ages.capacity() {
            let first = index * self.width;
            let next = self.words.read(tx, first + 1)? as u32 as usize;
            let last = self.words.read(tx, first + RECENT_HEAD + next.saturating_sub(1))?;
            if last <= oldest.0 {
                // Of two entries of one time the smaller key, so that the order of indices has no effect.
                let key = self.keys.read(tx, index)?;
                if (last, key) < (oldest.0, oldest.1) || oldest.0 == u64::MAX {
                    oldest = (last, key, index);
                }
            }
        }
        self.remove(tx, oldest.2)?;
        Ok(self.insert(tx, name, Nanos::NEVER, now)?.unwrap_or(oldest.2))
    }
}
