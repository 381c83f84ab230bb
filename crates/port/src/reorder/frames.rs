//! Memory for the packets that are held: a bounded pool of pieces of the same length, so that no room is lost between packets.

use std::iter;

use packet::{Nanos, Seq};

use super::lists::NONE;
use crate::batch::Packet;

/// Length of a piece in bytes.
pub(super) const PIECE: usize = 256;

/// A held packet: its descriptor, and its bytes in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldPacket {
    /// Its descriptor as it came; once it is released, its time is that of the release.
    pub(super) packet: Packet,
    /// Its time stamp in the capture.
    pub(super) stamp: Nanos,
    /// The first piece.
    pieces: u32,
    /// The held packet behind it, in the same connection or among those that are free.
    next: u32,
}

/// Some held packets, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldPackets {
    first: u32,
    last: u32,
}

impl HeldPackets {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(super) const fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// The pool.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Box<[u8]>,
    /// The piece behind each piece.
    next: Box<[u32]>,
    free_piece: u32,
    free_pieces: usize,
    packets: Vec<HeldPacket>,
    packets_max: usize,
    free_packet: u32,
    held: usize,
}

impl Frames {
    /// Room for so many packets, of so many bytes in all.
    pub(super) fn new(packets_max: usize, bytes_max: usize) -> Self {
        let pieces = bytes_max.div_ceil(PIECE);
        let next = (1..=pieces).map(|next| if next == pieces { NONE } else { next as u32 }).collect();
        Self {
            bytes: vec![0; pieces * PIECE].into_boxed_slice(),
            next,
            free_piece: if pieces == 0 { NONE } else { 0 },
            free_pieces: pieces,
            packets: Vec::with_capacity(packets_max),
            packets_max,
            free_packet: NONE,
            held: 0,
        }
    }

    /// Packets in the pool.
    pub(super) const fn len(&self) -> usize {
        self.held
    }

    /// True if a packet of this length can be held at once.
    pub(super) const fn has_room(&self, len: usize) -> bool {
        self.held < self.packets_max && len.div_ceil(PIECE) <= self.free_pieces
    }

    /// True if a packet of this length can be held where nothing else is.
    pub(super) const fn is_fit(&self, len: usize) -> bool {
        len.div_ceil(PIECE) <= self.next.len()
    }

    /// Holds a packet behind those of `list`. There is [room](Self::has_room).
    pub(super) fn push(&mut self, list: &mut HeldPackets, packet: &Packet, stamp: Nanos, bytes: &[u8]) {
        debug_assert!(self.has_room(bytes.len()), "the caller has made room");
        let mut pieces = NONE;
        // From the end, so that the chain is in order.
        for part in bytes.chunks(PIECE).rev() {
            let piece = self.free_piece;
            let start = piece as usize * PIECE;
            self.bytes[start..start + part.len()].copy_from_slice(part);
            self.free_piece = std::mem::replace(&mut self.next[piece as usize], pieces);
            self.free_pieces -= 1;
            pieces = piece;
        }
        let packet = Packet { len: bytes.len() as u32, ..*packet };
        let held = HeldPacket { packet, stamp, pieces, next: NONE };
        let number = match self.free_packet {
            NONE => {
                self.packets.push(held);
                self.packets.len() as u32 - 1
            }
            free => {
                self.free_packet = std::mem::replace(&mut self.packets[free as usize], held).next;
                free
            }
        };
        self.held += 1;
        self.append(list, HeldPackets { first: number, last: number });
    }

    /// Moves all packets of `more` behind those of `list`.
    pub(super) fn append(&mut self, list: &mut HeldPackets, more: HeldPackets) {
        if more.is_empty() {
            return;
        }
        match list.is_empty() {
            true => *list = more,
            false => {
                self.packets[list.last as usize].next = more.first;
                list.last = more.last;
            }
        }
    }

    /// Calls `change` for each packet of a list.
    pub(super) fn each(&mut self, list: HeldPackets, mut change: impl FnMut(&mut HeldPacket)) {
        let mut at = list.first;
        while at != NONE {
            let held = &mut self.packets[at as usize];
            change(held);
            at = held.next;
        }
    }

    /// The numbers of a list's packets.
    pub(super) fn numbers(&self, list: HeldPackets) -> impl Iterator<Item = Seq> {
        let held = |number: u32| self.packets.get(number as usize);
        iter::successors(held(list.first), move |before| held(before.next)).map(|held| held.packet.seq)
    }

    /// Hands the first packet of a list and its bytes, in pieces, to `take`, and frees it. Returns false if the list is empty.
    pub(super) fn pop(&mut self, list: &mut HeldPackets, take: impl FnOnce(&HeldPacket, Pieces<'_>)) -> bool {
        let number = list.first;
        if number == NONE {
            return false;
        }
        let held = self.packets[number as usize];
        take(&held, Pieces { frames: self, piece: held.pieces, left: held.packet.len as usize });
        list.first = held.next;
        if list.first == NONE {
            list.last = NONE;
        }
        let mut piece = held.pieces;
        while piece != NONE {
            let behind = std::mem::replace(&mut self.next[piece as usize], self.free_piece);
            self.free_piece = piece;
            self.free_pieces += 1;
            piece = behind;
        }
        self.packets[number as usize].next = self.free_packet;
        self.free_packet = number;
        self.held -= 1;
        true
    }
}

/// The bytes of a held packet, piece by piece.
pub(super) struct Pieces<'a> {
    frames: &'a Frames,
    piece: u32,
    left: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.piece == NONE {
            return None;
        }
        let start = self.piece as usize * PIECE;
        let len = self.left.min(PIECE);
        self.left -= len;
        self.piece = self.frames.next[self.piece as usize];
        Some(&self.frames.bytes[start..start + len])
    }
}
