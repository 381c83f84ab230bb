//! Open addressing over chunks of fourteen one-byte tags. The index of a tag is the slot of its entry, so a look-up needs one cache line of
//! the index.
//!
//! All tags of a chunk are compared at once, as in Abseil's Swiss tables (Kulukundis, CppCon '17). Each chunk counts the entries that
//! overflowed to later chunks, as in F14 (Bronson, Shi, 2019): the count tells a miss where to stop, and removal needs no tombstones, so
//! the table is never rebuilt. A filter of tags beside the count spares most misses the second chunk. Entries never move, so their places
//! serve as slots.

use crate::index::{Index, scale, tag_of, upper};
use crate::memory::{Filling, Region};
use crate::tags::Tags;
use locality::prefetch;

/// Places in a chunk.
const WIDTH: usize = 14;
const PLACES: u32 = (1 << WIDTH) - 1;
/// The byte with the number of entries that overflowed past this chunk. At its limit it stays there.
const STRAYS: usize = 14;
const STRAYS_MAX: u8 = u8::MAX;
/// The byte with a filter of those entries: a bit for each tag modulo 8.
const FILTER: usize = 15;
/// How many chunks an insertion tries: at a load of 99 % one in a million tries forty.
const PROBES_MAX: usize = 256;

/// The index.
pub struct Tagged {
    region: Region,
    chunks: usize,
}

impl Tagged {
    /// The chunk that a look-up begins with.
    #[inline(always)]
    const fn home(&self, hash: u64) -> usize {
        scale(upper(hash), self.chunks)
    }

    /// The distance between chunks of a probe: double hashing, since with linear probing runs of full chunks grow. The number of chunks is
    /// prime, so a probe visits all of them.
    #[inline(always)]
    const fn stride(&self, hash: u64) -> usize {
        1 + scale(hash as u32, self.chunks - 1)
    }

    /// The next chunk of the probe.
    #[inline(always)]
    const fn next(&self, chunk: usize, stride: usize) -> usize {
        let next = chunk + stride;
        if next < self.chunks { next } else { next - self.chunks }
    }

    /// How many chunks a probe visits at most.
    const fn probes(&self) -> usize {
        if self.chunks < PROBES_MAX { self.chunks } else { PROBES_MAX }
    }

    #[inline(always)]
    fn chunk(&self, at: usize) -> &Tags {
        debug_assert!(at < self.chunks);
        // SAFETY: chunk numbers come from `home` and `probe` alone, which are below `chunks`; the region holds that many,
        // and zeros are a chunk.
        unsafe { self.region.base().cast::<Tags>().add(at).as_ref() }
    }

    #[inline(always)]
    fn chunk_mut(&mut self, at: usize) -> &mut Tags {
        debug_assert!(at < self.chunks);
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { self.region.base().cast::<Tags>().add(at).as_mut() }
    }

    /// The first match after the first chunk. Few entries are there.
    #[inline(never)]
    fn find_on(&self, hash: u64, is_it: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let (mut at, stride, tag) = (self.home(hash), self.stride(hash), tag_of(hash));
        for _ in 1..self.probes() {
            at = self.next(at, stride);
            let chunk = self.chunk(at);
            let mut mask = chunk.matches(tag) & PLACES;
            while mask != 0 {
                let slot = slot(at, mask);
                if is_it(slot) {
                    return Some(slot);
                }
                mask &= mask - 1;
            }
            if !may_stray(chunk, tag) {
                break;
            }
        }
        None
    }
}

impl Index for Tagged {
    type Choice = ();

    fn load_percent((): ()) -> usize {
        80
    }

    fn new((): (), places: usize) -> Self {
        let chunks = next_prime(places.div_ceil(WIDTH).max(2));
        Self { region: Region::zeroed(chunks * size_of::<Tags>(), Filling::Whole), chunks }
    }

    #[inline(always)]
    fn assigns(&self) -> bool {
        true
    }

    fn places(&self) -> usize {
        self.chunks * WIDTH
    }

    fn bytes(&self) -> usize {
        self.region.bytes()
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch::address(self.region.base().as_ptr().wrapping_add(self.home(hash) * size_of::<Tags>()));
    }

    #[inline(always)]
    fn guess(&self, hash: u64, mut prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        let (home, tag) = (self.home(hash), tag_of(hash));
        let chunk = self.chunk(home);
        let mask = chunk.matches(tag) & PLACES;
        if mask == 0 {
            if !may_stray(chunk, tag) {
                return None;
            }
            return self.find_on(hash, &mut |slot| {
                prefetch_slot(slot);
                true
            });
        }
        let guess = slot(home, mask);
        prefetch_slot(guess);
        let mut others = mask & (mask - 1);
        // The bound is for the compiler, as in `cuckoo.rs`.
        for _ in 1..WIDTH {
            if others == 0 {
                break;
            }
            prefetch_slot(slot(home, others));
            others &= others - 1;
        }
        Some(guess)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (home, tag) = (self.home(hash), tag_of(hash));
        let chunk = self.chunk(home);
        let mut mask = chunk.matches(tag) & PLACES;
        while mask != 0 {
            let slot = slot(home, mask);
            if is_it(slot) {
                return Some(slot);
            }
            mask &= mask - 1;
        }
        if may_stray(chunk, tag) { self.find_on(hash, &mut is_it) } else { None }
    }

    #[inline]
    fn insert(&mut self, hash: u64, _: u32) -> Option<u32> {
        let (home, stride, tag) = (self.home(hash), self.stride(hash), tag_of(hash));
        let mut at = home;
        for _ in 0..self.probes() {
            let mask = self.chunk(at).matches(0) & PLACES;
            if mask != 0 {
                self.chunk_mut(at).0[mask.trailing_zeros() as usize] = tag;
                let mut chunk_at = home;
                while chunk_at != at {
                    let chunk = self.chunk_mut(chunk_at);
                    chunk.0[STRAYS] = chunk.0[STRAYS].saturating_add(1);
                    chunk.0[FILTER] |= 1 << (tag % 8);
                    chunk_at = self.next(chunk_at, stride);
                }
                return Some(slot(at, mask));
            }
            at = self.next(at, stride);
        }
        None
    }

    #[inline]
    fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let (home, stride, tag) = (self.home(hash), self.stride(hash), tag_of(hash));
        let (target, place) = (slot as usize / WIDTH, slot as usize % WIDTH);
        if target >= self.chunks || self.chunk(target).0[place] != tag {
            return false;
        }
        let mut at = home;
        let mut steps = 0;
        while at != target {
            at = self.next(at, stride);
            steps += 1;
            if steps == self.probes() {
                return false;
            }
        }
        self.chunk_mut(target).0[place] = 0;
        let mut chunk_at = home;
        while chunk_at != target {
            let chunk = self.chunk_mut(chunk_at);
            if chunk.0[STRAYS] < STRAYS_MAX {
                chunk.0[STRAYS] -= 1;
                if chunk.0[STRAYS] == 0 {
                    chunk.0[FILTER] = 0;
                }
            }
            chunk_at = self.next(chunk_at, stride);
        }
        true
    }

    fn neighbours(&self, hash: u64, mut see: impl FnMut(u32)) {
        let home = self.home(hash);
        let mut mask = !self.chunk(home).matches(0) & PLACES;
        while mask != 0 {
            see(slot(home, mask));
            mask &= mask - 1;
        }
    }
}

/// True if an entry with this tag may have overflowed past this chunk.
#[inline(always)]
const fn may_stray(chunk: &Tags, tag: u8) -> bool {
    chunk.0[FILTER] >> (tag % 8) & 1 != 0
}

/// The slot of the first place in `mask`.
#[inline(always)]
const fn slot(chunk: usize, mask: u32) -> u32 {
    (chunk * WIDTH) as u32 + mask.trailing_zeros()
}

/// The first prime that is not below `number`.
fn next_prime(number: usize) -> usize {
    let is_prime = |number: &usize| {
        (2..).take_while(|factor| factor * factor <= *number).all(|factor| !number.is_multiple_of(factor))
    };
    (number.max(2)..).find(is_prime).unwrap_or(number)
}
