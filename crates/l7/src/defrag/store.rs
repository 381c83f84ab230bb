//! The store of fragments: [`Defragmenter`].
//!
//! Bytes lie in blocks of a fixed size. All blocks of a datagram are one chain, in the order in which its fragments came. The bytes that
//! count are its *segments*: parts of fragments that don't overlap, sorted by offset. Datagrams of a family are in the order in which they
//! began, which is the order in which they time out.

use std::collections::HashMap;

use packet::{Checksum, Nanos};
use port::Packet;

use super::piece::{FragmentHeader, Key, Piece, Source, V6_LEN, may_be_fragment};
use super::{Counts, Discard, Limits, Policy};

/// Gathers fragments. Memory is reserved at the start; see the [module](super) for what is gathered.
#[derive(Debug)]
pub struct Defragmenter {
    policy: Policy,
    limits: Limits,
    counts: Counts,
    slots: HashMap<Key, u32>,
    /// Datagrams by source.
    sources: HashMap<Source, u32>,
    datagrams: Vec<Datagram>,
    free_datagram: u32,
    /// The datagrams of each family, oldest first: IPv4, IPv6.
    ages: [Ends; 2],
    segments: Vec<Segment>,
    free_segment: u32,
    segments_left: usize,
    blocks: Vec<[u8; BLOCK]>,
    /// For each block the next one of its chain.
    chain: Vec<u32>,
    free_block: u32,
    blocks_left: usize,
    /// The last datagram that became whole.
    frame: Vec<u8>,
    words: Vec<u16>,
}

/// What became of a packet.
#[derive(Debug)]
pub enum Taken<'a> {
    /// It is no fragment.
    Whole,
    /// It was stored, or dropped for this reason. In most cases the reason holds for the other fragments of its datagram, too.
    Held(Option<Discard>),
    /// It was the last that its datagram needed: the whole frame, and what [`cut`](super::cut) needs to know to make fragments of it.
    Gathered(&'a [u8], &'a [u16]),
}

const BLOCK: usize = 512;

/// No element of a list.
const NONE: u32 = u32::MAX;

/// The longest datagram. Link header included: the longest frame starts with this capacity.
const DATAGRAM_MAX: usize = 65_535;
const FRAME_MAX: usize = DATAGRAM_MAX + 256;

/// Both ends of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// An incomplete datagram, or an unused slot.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    key: Key,
    deadline: Nanos,
    /// Its neighbours by age. An unused slot has the next unused one in `next`.
    previous: u32,
    next: u32,
    segments: Ends,
    segment_count: u32,
    blocks: Ends,
    block_count: u32,
    /// Fragments whose bytes are stored.
    fragments: u32,
    /// Bytes in segments.
    filled: u32,
    /// Its length, once the last fragment has come; until then the end of what has come.
    len: u32,
    has_last: bool,
    /// The header of the fragment at offset 0, link header first.
    header: Option<Header>,
    /// Which of the four values of congestion notification its fragments have.
    ecn: u8,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    block: u32,
    len: u32,
    network_offset: u32,
    v6: Option<FragmentHeader>,
}

/// Stored bytes from `offset` to `end`, or an unused one.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u32,
    end: u32,
    /// The first block of its fragment, and how many of the fragment's bytes come before the segment.
    block: u32,
    skip: u32,
    /// True if it was added right behind the segment before it, as the last one: fragments that came in order are one run.
    is_joined: bool,
    next: u32,
}

/// The most memory that a store takes, in bytes.
pub(super) fn memory_max(limits: &Limits) -> usize {
    let blocks = limits.bytes.min(1 << 30).div_ceil(BLOCK);
    let datagrams = limits.datagrams.min(limits.fragments);
    // A hash table has up to four places for each entry that there is room for, and a byte for each place.
    let table = |entry: usize| 4 * 2 * datagrams * (entry + 1);
    blocks * (BLOCK + size_of::<u32>())
        + limits.fragments * size_of::<Segment>()
        + datagrams * size_of::<Datagram>()
        + table(size_of::<(Key, u32)>())
        + table(size_of::<(Source, u32)>())
        + FRAME_MAX
        + words_max(limits) * size_of::<u16>()
}

/// The most words about a datagram.
const fn words_max(limits: &Limits) -> usize {
    2 * limits.datagram_fragments + 8
}

impl Defragmenter {
    /// A store with all of its memory.
    #[must_use]
    pub fn new(policy: Policy, limits: Limits) -> Self {
        let blocks = limits.bytes.min(1 << 30).div_ceil(BLOCK);
        let limits = Limits { datagrams: limits.datagrams.min(limits.fragments), ..limits };
        let next = |index: usize, count: usize| if index + 1 < count { index as u32 + 1 } else { NONE };
        let first = |count: usize| if count > 0 { 0 } else { NONE };
        let segment = |index: usize| Segment {
            offset: 0,
            end: 0,
            block: NONE,
            skip: 0,
            is_joined: false,
            next: next(index, limits.fragments),
        };
        // Twice as much room as needed: then a table never grows, however often entries come and go.
        let room = 2 * limits.datagrams;
        Self {
            policy,
            counts: Counts::default(),
            slots: HashMap::with_capacity(room),
            sources: HashMap::with_capacity(room),
            datagrams: Vec::with_capacity(limits.datagrams),
            free_datagram: NONE,
            ages: [Ends::EMPTY; 2],
            segments: (0..limits.fragments).map(segment).collect(),
            free_segment: first(limits.fragments),
            segments_left: limits.fragments,
            blocks: vec![[0; BLOCK]; blocks],
            chain: (0..blocks).map(|index| next(index, blocks)).collect(),
            free_block: first(blocks),
            blocks_left: blocks,
            frame: Vec::with_capacity(FRAME_MAX),
            words: Vec::with_capacity(words_max(&limits)),
            limits,
        }
    }

    /// Counts so far. Fragments that are stored are in `fragments` alone.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Incomplete datagrams.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of stored fragments, whole blocks counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.blocks.len() - self.blocks_left) * BLOCK
    }

    /// When the incomplete datagram with this key is given up; `None` if there is none.
    pub(super) fn deadline(&self, key: &Key) -> Option<Nanos> {
        self.slots.get(key).map(|slot| self.datagrams[*slot as usize].deadline)
    }

    /// Takes a packet. Times must not fall from packet to packet.
    pub fn take(&mut self, packet: &Packet, bytes: &[u8]) -> Taken<'_> {
        if !may_be_fragment(packet.link, bytes) {
            return Taken::Whole;
        }
        match Piece::read(packet, bytes) {
            Some(piece) => self.take_piece(&piece, packet.time, bytes),
            None => Taken::Whole,
        }
    }

    /// Drops all incomplete datagrams: the input has ended.
    pub fn end(&mut self) {
        for family in 0..self.ages.len() {
            while self.ages[family].first != NONE {
                self.discard(self.ages[family].first, Discard::Incomplete);
            }
        }
    }

    fn take_piece(&mut self, piece: &Piece, now: Nanos, bytes: &[u8]) -> Taken<'_> {
        self.counts.fragments += 1;
        self.expire(now);
        let result = match self.slots.get(&piece.key) {
            Some(slot) => Ok(*slot),
            None => self.begin(piece, now, bytes),
        };
        let (slot, result) = match result {
            Ok(slot) => (slot, self.add(slot, piece, bytes)),
            Err(reason) => (NONE, Err(reason)),
        };
        match result {
            Ok(false) => Taken::Held(None),
            Ok(true) => match self.rebuild(slot) {
                Ok(()) => Taken::Gathered(&self.frame, &self.words),
                Err(reason) => {
                    self.discard(slot, reason);
                    Taken::Held(Some(reason))
                }
            },
            Err(reason) => {
                self.counts.dropped[reason as usize] += 1;
                let goes_on =
                    matches!(reason, Discard::Duplicate | Discard::NoRoom | Discard::Cut | Discard::SourceLimit);
                // A datagram without fragments has no right to stay either.
                if slot != NONE && (!goes_on || self.datagrams[slot as usize].fragments == 0) {
                    self.discard(slot, reason);
                }
                Taken::Held(Some(reason))
            }
        }
    }

    /// Ends the datagrams that are too old.
    fn expire(&mut self, now: Nanos) {
        for family in 0..self.ages.len() {
            while let Some(oldest) = self.datagrams.get(self.ages[family].first as usize)
                && oldest.deadline <= now
            {
                self.discard(self.ages[family].first, Discard::Timeout);
            }
        }
    }

    /// Begins a datagram for its first fragment.
    fn begin(&mut self, piece: &Piece, now: Nanos, bytes: &[u8]) -> Result<u32, Discard> {
        if bytes.len() < piece.payload.end {
            return Err(Discard::Cut);
        }
        if self.slots.len() >= self.limits.datagrams {
            return Err(Discard::NoRoom);
        }
        let Key { source, .. } = piece.key;
        if self.sources.get(&source).is_some_and(|count| *count as usize >= self.limits.source_datagrams) {
            return Err(Discard::SourceLimit);
        }
        *self.sources.entry(source).or_default() += 1;
        let timeout = if source.is_v6 { self.limits.timeout_v6 } else { self.limits.timeout_v4 };
        let family = usize::from(source.is_v6);
        let datagram = Datagram {
            key: piece.key,
            deadline: Nanos(now.0.saturating_add(timeout.0)),
            previous: self.ages[family].last,
            next: NONE,
            segments: Ends::EMPTY,
            segment_count: 0,
            blocks: Ends::EMPTY,
            block_count: 0,
            fragments: 0,
            filled: 0,
            len: 0,
            has_last: false,
            header: None,
            ecn: 0,
        };
        let slot = match self.free_datagram {
            NONE => {
                self.datagrams.push(datagram);
                self.datagrams.len() as u32 - 1
            }
            slot => {
                self.free_datagram = self.datagrams[slot as usize].next;
                self.datagrams[slot as usize] = datagram;
                slot
            }
        };
        match self.ages[family].last {
            NONE => self.ages[family].first = slot,
            last => self.datagrams[last as usize].next = slot,
        }
        self.ages[family].last = slot;
        self.slots.insert(piece.key, slot);
        Ok(slot)
    }

    /// Adds a fragment to its datagram. Returns true if the datagram is whole now.
    fn add(&mut self, slot: u32, piece: &Piece, bytes: &[u8]) -> Result<bool, Discard> {
        let payload = bytes.get(piece.payload.clone()).ok_or(Discard::Cut)?;
        let datagram = &mut self.datagrams[slot as usize];
        if payload.is_empty() {
            return Err(Discard::Empty);
        }
        if piece.more && !piece.end.is_multiple_of(8) {
            return Err(Discard::Unaligned);
        }
        if piece.end as usize > DATAGRAM_MAX {
            return Err(Discard::TooLong);
        }
        let is_end_wrong = match (piece.more, datagram.has_last) {
            (false, true) => piece.end != datagram.len,
            (false, false) => piece.end < datagram.len,
            (true, has_last) => has_last && piece.end > datagram.len,
        };
        if is_end_wrong {
            return Err(Discard::End);
        }
        // Where the datagram ends is known from a duplicate, too: as in the kernel.
        datagram.has_last |= !piece.more;
        let new = (piece.offset, piece.end);
        let tail = self.segments.get(datagram.segments.last as usize);
        let mut overlapped = 0;
        if tail.is_some_and(|tail| tail.end > new.0) {
            let takes_none = self.policy == Policy::Linux || piece.key.source.is_v6;
            if takes_none {
                self.refuse_overlap(slot, new)?
            } else {
                self.refuse_useless(slot, new)?
            }
            overlapped = self.overlapped(slot, new);
        }
        // What it needs at most: a segment in front of and behind each of those that it overlaps.
        let is_first = piece.offset == 0 && self.datagrams[slot as usize].header.is_none();
        let header_len =
            if is_first { piece.v6.map_or(piece.payload.start, |v6| piece.network_offset + v6.at) } else { 0 };
        let blocks = payload.len().div_ceil(BLOCK) + header_len.div_ceil(BLOCK);
        if self.segments_left < overlapped + 2 || self.blocks_left < blocks {
            return Err(Discard::NoRoom);
        }
        if self.datagrams[slot as usize].segment_count as usize >= self.limits.datagram_fragments {
            return Err(Discard::TooMany);
        }
        if is_first {
            let block = self.store(slot, &bytes[..header_len]);
            let (len, network_offset) = (header_len as u32, piece.network_offset as u32);
            self.datagrams[slot as usize].header = Some(Header { block, len, network_offset, v6: piece.v6 });
        }
        let block = self.store(slot, payload);
        self.insert(slot, new, block);
        let datagram = &mut self.datagrams[slot as usize];
        datagram.fragments += 1;
        datagram.ecn |= 1 << piece.ecn;
        datagram.len = datagram.len.max(piece.end);
        Ok(datagram.has_last && datagram.filled == datagram.len)
    }

    /// Where no policy applies: refuses what overlaps, and ignores what one run of fragments already has.
    fn refuse_overlap(&self, slot: u32, (offset, end): (u32, u32)) -> Result<(), Discard> {
        let mut run: Option<(u32, u32)> = None;
        let check = |run: Option<(u32, u32)>| match run {
            Some((first, last)) if first < end && offset < last => {
                Err(if first <= offset && end <= last { Discard::Duplicate } else { Discard::Overlap })
            }
            Some(_) | None => Ok(()),
        };
        for segment in self.segments_of(slot) {
            run = match run {
                Some((first, _)) if segment.is_joined => Some((first, segment.end)),
                run => {
                    check(run)?;
                    if segment.offset >= end {
                        return Ok(());
                    }
                    Some((segment.offset, segment.end))
                }
            };
        }
        check(run)
    }

    /// Where a policy applies: ignores a fragment of which it keeps nothing.
    fn refuse_useless(&self, slot: u32, new: (u32, u32)) -> Result<(), Discard> {
        let mut at = new.0;
        for segment in self.segments_of(slot).skip_while(|segment| segment.end <= new.0) {
            let old = (segment.offset, segment.end);
            if at >= new.1 || old.0 > at || !self.policy.keeps(old, new) {
                break;
            }
            at = old.1;
        }
        if at >= new.1 { Err(Discard::Duplicate) } else { Ok(()) }
    }

    /// How many segments a fragment overlaps.
    fn overlapped(&self, slot: u32, new: (u32, u32)) -> usize {
        let behind = |segment: &&Segment| segment.end <= new.0;
        self.segments_of(slot).skip_while(behind).take_while(|segment| segment.offset < new.1).count()
    }

    /// A datagram's segments, by offset.
    fn segments_of(&self, slot: u32) -> impl Iterator<Item = &Segment> {
        let mut next = self.datagrams[slot as usize].segments.first;
        std::iter::from_fn(move || {
            let segment = self.segments.get(next as usize)?;
            next = segment.next;
            Some(segment)
        })
    }

    /// Copies bytes to blocks of a datagram. Returns the first of them.
    fn store(&mut self, slot: u32, bytes: &[u8]) -> u32 {
        let datagram = &mut self.datagrams[slot as usize];
        let first = self.free_block;
        for part in bytes.chunks(BLOCK) {
            let block = self.free_block;
            self.free_block = self.chain[block as usize];
            self.blocks_left -= 1;
            self.blocks[block as usize][..part.len()].copy_from_slice(part);
            self.chain[block as usize] = NONE;
            match datagram.blocks.last {
                NONE => datagram.blocks.first = block,
                last => self.chain[last as usize] = block,
            }
            datagram.blocks.last = block;
            datagram.block_count += 1;
        }
        first
    }

    /// Inserts a fragment's bytes among the segments, as the policy says.
    fn insert(&mut self, slot: u32, new: (u32, u32), block: u32) {
        let last = self.datagrams[slot as usize].segments.last;
        if let Some(tail) = self.segments.get(last as usize)
            && tail.end <= new.0
        {
            let is_joined = tail.end == new.0;
            self.add_segment(slot, last, Segment { offset: new.0, end: new.1, block, skip: 0, is_joined, next: NONE });
            return;
        }
        let part =
            |offset: u32, end: u32| Segment { offset, end, block, skip: offset - new.0, is_joined: false, next: NONE };
        // The segment behind which the next part goes, and the first byte that has no place yet.
        let (mut before, mut at) = (NONE, new.0);
        let mut current = self.datagrams[slot as usize].segments.first;
        while current != NONE && at < new.1 {
            let old @ Segment { offset, end, next, .. } = self.segments[current as usize];
            if end <= at {
                (before, current) = (current, next);
                continue;
            }
            if offset > at {
                let gap_end = offset.min(new.1);
                before = self.add_part(slot, before, block, part(at, gap_end));
                at = gap_end;
                continue;
            }
            if self.policy.keeps((offset, end), new) {
                (before, current, at) = (current, next, end.min(new.1));
                continue;
            }
            // The new bytes take the place of the old ones up to here.
            let until = end.min(new.1);
            if offset < at {
                self.shrink(slot, current, (offset, at));
                before = current;
            } else {
                self.remove(slot, before, current);
            }
            before = self.add_part(slot, before, block, part(at, until));
            if until < end {
                let rest = Segment { offset: until, skip: old.skip + until - offset, is_joined: false, ..old };
                self.add_segment(slot, before, rest);
            }
            (current, at) = (self.segments[before as usize].next, until);
        }
        if at < new.1 {
            self.add_part(slot, before, block, part(at, new.1));
        }
    }

    /// Adds a part of a new fragment behind `before`, or lengthens that one, if it is the part in front. Returns which it is.
    fn add_part(&mut self, slot: u32, before: u32, block: u32, part: Segment) -> u32 {
        match self.segments.get_mut(before as usize) {
            Some(front) if front.block == block && front.end == part.offset => {
                self.datagrams[slot as usize].filled += part.end - front.end;
                front.end = part.end;
                before
            }
            Some(_) | None => self.add_segment(slot, before, part),
        }
    }

    fn add_segment(&mut self, slot: u32, before: u32, segment: Segment) -> u32 {
        let index = self.free_segment;
        self.free_segment = self.segments[index as usize].next;
        self.segments_left -= 1;
        let datagram = &mut self.datagrams[slot as usize];
        let next = match self.segments.get_mut(before as usize) {
            Some(front) => std::mem::replace(&mut front.next, index),
            None => std::mem::replace(&mut datagram.segments.first, index),
        };
        if next == NONE {
            datagram.segments.last = index;
        }
        datagram.filled += segment.end - segment.offset;
        datagram.segment_count += 1;
        self.segments[index as usize] = Segment { next, ..segment };
        index
    }

    fn shrink(&mut self, slot: u32, index: u32, (offset, end): (u32, u32)) {
        let segment = &mut self.segments[index as usize];
        self.datagrams[slot as usize].filled -= segment.end - segment.offset - (end - offset);
        (segment.offset, segment.end) = (offset, end);
    }

    fn remove(&mut self, slot: u32, before: u32, index: u32) {
        let Segment { offset, end, next, .. } = self.segments[index as usize];
        let datagram = &mut self.datagrams[slot as usize];
        datagram.filled -= end - offset;
        datagram.segment_count -= 1;
        match self.segments.get_mut(before as usize) {
            Some(front) => front.next = next,
            None => datagram.segments.first = next,
        }
        if next == NONE {
            datagram.segments.last = before;
        }
        self.segments[index as usize].next = self.free_segment;
        self.free_segment = index;
        self.segments_left += 1;
    }

    /// Ends a datagram and drops its fragments.
    fn discard(&mut self, slot: u32, reason: Discard) {
        self.counts.dropped[reason as usize] += u64::from(self.datagrams[slot as usize].fragments);
        self.free(slot);
    }

    /// Frees a datagram's memory.
    fn free(&mut self, slot: u32) {
        let Datagram { key, previous, next, segments, segment_count, blocks, block_count, .. } =
            self.datagrams[slot as usize];
        if segments.first != NONE {
            self.segments[segments.last as usize].next = self.free_segment;
            self.free_segment = segments.first;
            self.segments_left += segment_count as usize;
        }
        if blocks.first != NONE {
            self.chain[blocks.last as usize] = self.free_block;
            self.free_block = blocks.first;
            self.blocks_left += block_count as usize;
        }
        let ages = &mut self.ages[usize::from(key.source.is_v6)];
        match previous {
            NONE => ages.first = next,
            previous => self.datagrams[previous as usize].next = next,
        }
        match next {
            NONE => ages.last = previous,
            next => self.datagrams[next as usize].previous = previous,
        }
        self.datagrams[slot as usize].next = self.free_datagram;
        self.free_datagram = slot;
        self.slots.remove(&key);
        if let Some(count) = self.sources.get_mut(&key.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&key.source);
            }
        }
    }

    /// Builds the frame of a whole datagram and the words about it, and frees its memory.
    fn rebuild(&mut self, slot: u32) -> Result<(), Discard> {
        let datagram = self.datagrams[slot as usize];
        let Some(header) = datagram.header else { unreachable!("a whole datagram has a first fragment") };
        let ecn = congestion(datagram.ecn)?;
        self.frame.clear();
        self.copy(header.block, 0, header.len);
        let mut next = datagram.segments.first;
        self.words.clear();
        self.words.extend([0; 6]);
        while let Some(segment) = self.segments.get(next as usize).copied() {
            self.copy(segment.block, segment.skip, segment.end - segment.offset);
            if segment.offset > 0 {
                self.words.push((segment.offset / 8) as u16);
            }
            next = segment.next;
        }
        let at = header.network_offset as usize;
        let uncounted = if header.v6.is_some() { V6_LEN } else { 0 };
        let len = u16::try_from(self.frame.len() - at - uncounted).map_err(|_| Discard::TooLong)?;
        let ip = &mut self.frame[at..];
        let words = match header.v6 {
            Some(v6) => mend_v6(ip, len, v6, ecn),
            None => mend_v4(ip, len, ecn),
        };
        self.words[..6].copy_from_slice(&words);
        self.counts.gathered += u64::from(datagram.fragments);
        self.counts.datagrams += 1;
        self.free(slot);
        Ok(())
    }

    /// Appends bytes of a chain of blocks to the frame.
    fn copy(&mut self, mut block: u32, skip: u32, mut len: u32) {
        let mut start = skip as usize;
        while start >= BLOCK {
            (block, start) = (self.chain[block as usize], start - BLOCK);
        }
        while len > 0 {
            let part = (BLOCK - start).min(len as usize);
            self.frame.extend_from_slice(&self.blocks[block as usize][start..start + part]);
            (block, start, len) = (self.chain[block as usize], 0, len - part as u32);
        }
    }
}

/// True if a datagram is marked as congested, by the values that its fragments have: bit 0 for "not capable", bits 1 and 2 for "capable", bit 3 for
/// "congestion experienced".
const fn congestion(values: u8) -> Result<bool, Discard> {
    match (values & 0b1110 != 0, values & 1 != 0, values & 0b1000 != 0) {
        (true, true, _) => Err(Discard::Ecn),
        (true, false, true) => Ok(true),
        (_, _, _) => Ok(false),
    }
}

/// Makes an IPv4 header that of the whole datagram. Returns the [words](super::cut) about it.
fn mend_v4(ip: &mut [u8], len: u16, ecn: bool) -> [u16; 6] {
    let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let (id, field) = (word(4), word(6));
    let header_len = usize::from(ip[0] & 0xf) * 4;
    ip[1] |= if ecn { 3 } else { 0 };
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    ip[6..8].fill(0);
    ip[10..12].fill(0);
    let mut sum = Checksum::default();
    sum.add(&ip[..header_len]);
    ip[10..12].copy_from_slice(&sum.value().to_be_bytes());
    [4, len, id, field & 0xc000, 0, 0]
}

/// Makes an IPv6 header, from which the fragment header is gone, that of the whole datagram. Returns the [words](super::cut) about it.
fn mend_v6(ip: &mut [u8], len: u16, v6: FragmentHeader, ecn: bool) -> [u16; 6] {
    ip[1] |= if ecn { 0x30 } else { 0 };
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    ip[v6.named_at] = v6.next;
    [6, len, (v6.id >> 16) as u16, v6.id as u16, v6.at as u16, v6.named_at as u16]
}
