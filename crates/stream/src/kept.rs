//! The beginning of a side, kept in a pool: [`Kept`].

use crate::policy::Span;
use crate::pool::{BLOCK_BYTES, NONE, Pool};

/// The first bytes of a side, for functions that need to see them again. Plain data, as [`Side`](crate::Side) is; the bytes are in a
/// [`Pool`] of their own. Two are equal if they have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    first: u32,
    last: u32,
    len: u16,
    /// Nothing more is kept: bytes are missing, or there was no room.
    is_closed: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0, is_closed: false }
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        (self.len, self.is_closed) == (other.len, other.is_closed)
    }
}

impl Eq for Kept {}

impl Kept {
    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if nothing more is kept.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Keeps nothing more.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Keeps bytes that follow, unless closed. Closes if the budget is spent.
    pub fn add(&mut self, mut bytes: &[u8], pool: &Pool) {
        if self.is_closed {
            return;
        }
        let blocks = &mut pool.lock();
        while !bytes.is_empty() {
            let room = if self.last == NONE { 0 } else { blocks.get(self.last).room() };
            if room > 0 {
                let part = bytes.len().min(room);
                blocks.get_mut(self.last).extend(&bytes[..part]);
                self.len += part as u16;
                bytes = &bytes[part..];
                continue;
            }
            let part = bytes.len().min(BLOCK_BYTES);
            let Some(block) = blocks.take(0, Span { begin: 0, end: 0 }, &bytes[..part]) else {
                self.is_closed = true;
                return;
            };
            match self.last {
                NONE => self.first = block,
                last => blocks.get_mut(last).next = block,
            }
            self.last = block;
            self.len += part as u16;
            bytes = &bytes[part..];
        }
    }

    /// Copies the bytes to the beginning of `to` and returns them.
    ///
    /// # Panics
    /// If `to` is shorter.
    pub fn read<'a>(&self, to: &'a mut [u8], pool: &Pool) -> &'a [u8] {
        let mut at = 0;
        if self.first != NONE {
            let blocks = pool.lock();
            let mut number = self.first;
            while number != NONE {
                let block = blocks.get(number);
                to[at..][..block.len()].copy_from_slice(block.bytes());
                (at, number) = (at + block.len(), block.next);
            }
        }
        &to[..at]
    }

    /// Lets the bytes go. Nothing more is kept.
    pub fn let_go(&mut self, pool: &Pool) {
        if self.first != NONE {
            let blocks = &mut pool.lock();
            while self.first != NONE {
                self.first = blocks.free(self.first);
            }
        }
        *self = Self { is_closed: true, ..Self::default() };
    }
}
