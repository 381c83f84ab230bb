//! The beginnings of both sides of a session, for functions that need to see them again.

use alloc::vec::Vec;

use stream::{Kept, Pool};

use super::hearing::Beginning;
use super::{BEGINNING_MAX, Direction};

/// Keeps the beginnings of a session's sides.
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
        let copy = |kept: &Kept| kept.read(&mut [0; BEGINNING_MAX], pool).to_vec();
        let copies = Some([copy(&kept[0]), copy(&kept[1])]);
        Self { pool, kept, copies }
    }

    /// Keeps nothing more of this side.
    pub(super) const fn close(&mut self, side: Direction) {
        self.kept[side as usize].close();
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
