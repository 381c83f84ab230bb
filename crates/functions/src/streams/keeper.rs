//! The beginnings of both sides of a session, or bytes that the function holds: what it needs to see again.

use alloc::vec::Vec;

use stream::{Kept, Pool};

use super::hearing::Beginning;
use super::{BEGINNING_MAX, Direction, HELD_MAX};

/// Keeps the beginnings of a session's sides, or bytes that the function holds.
pub(super) struct Keeper<'a> {
    pool: &'a Pool,
    kept: &'a mut [Kept; 2],
    /// Copies, where the pool must stay as it is.
    copies: Option<[Vec<u8>; 2]>,
}

impl<'a> Keeper<'a> {
    pub(super) const fn new(pool: &'a Pool, kept: &'a mut [Kept; 2]) -> Self {
        Self { pool, kept, copies: None }
    }

    /// Keeps what follows beside the pool.
    pub(super) fn looking_ahead(pool: &'a Pool, kept: &'a mut [Kept; 2]) -> Self {
        let copy = |kept: &Kept| kept.read(&mut [0; HELD_MAX], pool).to_vec();
        let copies = Some([copy(&kept[0]), copy(&kept[1])]);
        Self { pool, kept, copies }
    }

    /// Keeps nothing more of this side.
    pub(super) const fn close(&mut self, side: Direction) {
        self.kept[side as usize].close();
    }

    /// The number of bytes that are held of a side.
    pub(super) fn held(&self, side: Direction) -> usize {
        self.copies.as_ref().map_or(self.kept[side as usize].len(), |copies| copies[side as usize].len())
    }

    /// Copies the bytes that are held of a side to the beginning of `to`.
    pub(super) fn read(&self, side: Direction, to: &mut [u8]) {
        match &self.copies {
            Some(copies) => to[..copies[side as usize].len()].copy_from_slice(&copies[side as usize]),
            None => {
                self.kept[side as usize].read(to, self.pool);
            }
        }
    }

    /// Holds further bytes of a side. Returns false if there is no memory; then none are held.
    pub(super) fn hold(&mut self, side: Direction, bytes: &[u8]) -> bool {
        if let Some(copies) = &mut self.copies {
            copies[side as usize].extend_from_slice(bytes);
            return true;
        }
        self.kept[side as usize].add(bytes, self.pool);
        let is_held = !self.kept[side as usize].is_closed();
        if !is_held {
            self.forget(side);
        }
        is_held
    }

    /// Lets held bytes of a side go. More can be held.
    pub(super) fn forget(&mut self, side: Direction) {
        if let Some(copies) = &mut self.copies {
            return copies[side as usize].clear();
        }
        self.kept[side as usize].let_go(self.pool);
        self.kept[side as usize] = Kept::default();
    }

    /// Calls `told` with the beginnings, of at most `most` bytes, once `bytes` follow on a side. Keeps these bytes if it returns true.
    pub(super) fn follow(
        &mut self,
        side: Direction,
        bytes: &[u8],
        most: usize,
        told: impl FnOnce([Beginning<'_>; 2]) -> bool,
    ) {
        let (side, other) = (side as usize, 1 - side as usize);
        let kept = &mut self.kept[side];
        let room = if kept.is_closed() { 0 } else { most - kept.len() };
        let part = &bytes[..bytes.len().min(room)];
        if let Some(copies) = &mut self.copies {
            copies[side].extend_from_slice(part);
            self.beginnings(most, told);
        } else if self.kept[side].is_empty() && self.kept[other].is_empty() {
            // Mostly the first bytes decide. They are seen where they lie.
            let is_complete = |kept: &Kept, len: usize| kept.is_closed() || len >= most;
            let mut beginnings = [Beginning::default(); 2];
            let complete = is_complete(&self.kept[side], part.len());
            beginnings[side] = Beginning { bytes: part, is_complete: complete };
            beginnings[other].is_complete = self.kept[other].is_closed();
            if told(beginnings) {
                self.kept[side].add(part, self.pool);
            }
        } else {
            self.kept[side].add(part, self.pool);
            self.beginnings(most, told);
        }
    }

    /// Calls `told` with the beginnings.
    pub(super) fn beginnings<T>(&self, most: usize, told: impl FnOnce([Beginning<'_>; 2]) -> T) -> T {
        let mut buffers = [[0; BEGINNING_MAX]; 2];
        let [one, two] = &mut buffers;
        let bytes = match &self.copies {
            Some([one, two]) => [one.as_slice(), two.as_slice()],
            None => [self.kept[0].read(one, self.pool), self.kept[1].read(two, self.pool)],
        };
        let of = |side: usize| {
            let is_complete = self.kept[side].is_closed() || bytes[side].len() >= most;
            Beginning { bytes: bytes[side], is_complete }
        };
        told([of(0), of(1)])
    }
}
