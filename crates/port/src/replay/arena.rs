//! A queue's share of a trace: packet bytes in whole chunks, back to back, and a short descriptor for each packet.

use std::fs;
use std::sync::Arc;

use locality::pages::{self, HUGE_PAGE};
use locality::prefetch;
use memmap2::{Advice, MmapMut};
use packet::{LinkType, Nanos};

use super::BURST;
use super::renumber::Site;
use crate::batch::Block;
use crate::memory::Trace;

/// Packets begin at multiples of a cache line, as with a network card.
pub(super) const CHUNK_BYTES: usize = 64;

/// Descriptor of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) time: Nanos,
    /// Index in the trace.
    pub(super) index: u32,
    pub(super) len: u32,
    pub(super) wire_len: u32,
    /// Index in the table of interfaces and link types.
    source: u16,
    /// Entry of the indirection table that steered it.
    pub(super) bucket: u16,
}

impl Slot {
    /// Distance from its bytes to those of the next packet.
    #[inline]
    pub(super) const fn stride(&self) -> usize {
        (self.len as usize + (CHUNK_BYTES - 1)) & !(CHUNK_BYTES - 1)
    }
}

/// The packed share.
#[derive(Debug)]
pub(super) struct Arena {
    memory: Arc<Block>,
    slots: Vec<Slot>,
    /// Start of each packet, in chunks, and the end of the last.
    starts: Vec<u32>,
    /// Positions of each packet's addresses; empty if they never change.
    sites: Vec<Site>,
    sources: Vec<(u16, LinkType)>,
    longest: usize,
}

impl Arena {
    /// Packs these packets of the trace and touches every page.
    ///
    /// # Panics
    /// The system has too little memory, the share is larger than 256 GiB, or there are more than 65,536 combinations of interface and
    /// link type.
    pub(super) fn load(trace: &Trace, share: &[u32], buckets: &[u16], with_sites: bool) -> Self {
        let stride = |index: &u32| (trace.packets()[*index as usize].len as usize).next_multiple_of(CHUNK_BYTES);
        let bytes = share.iter().map(stride).sum::<usize>().next_multiple_of(HUGE_PAGE).max(HUGE_PAGE);
        let mut memory = MmapMut::map_anon(bytes).expect("memory for the trace");
        // Without huge pages the kernel uses small ones; `huge_pages` reports that.
        let _ = memory.advise(Advice::HugePage);
        let mut slots = pages::with_capacity(share.len());
        let mut starts = pages::with_capacity(share.len() + 1);
        let mut sites = Vec::with_capacity(if with_sites { share.len() } else { 0 });
        let (mut sources, mut at) = (Vec::new(), 0);
        for &index in share {
            let (packet, bytes) = (&trace.packets()[index as usize], trace.bytes(index as usize));
            memory[at..at + bytes.len()].copy_from_slice(bytes);
            if with_sites {
                sites.push(Site::find(packet, bytes));
            }
            let (time, len, wire_len) = (packet.time, packet.len, packet.wire_len);
            let source = source(&mut sources, (packet.interface, packet.link));
            let bucket = buckets.get(index as usize).copied().unwrap_or(packet.bucket);
            let slot = Slot { time, index, len, wire_len, source, bucket };
            starts.push(chunk(at));
            at += slot.stride();
            slots.push(slot);
        }
        starts.push(chunk(at));
        let longest = slots.iter().map(Slot::stride).max().unwrap_or(0);
        let memory = Arc::new(Block::Mapped(memory.make_read_only().expect("memory can be made read-only")));
        Self { memory, slots, starts, sites, sources, longest }
    }

    #[inline]
    pub(super) const fn memory(&self) -> &Arc<Block> {
        &self.memory
    }

    /// What it holds.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.bytes().unwrap_or_default()
    }

    /// Start of packet `at` of the share; for the number after the last packet, its end.
    #[inline]
    pub(super) fn start(&self, at: usize) -> usize {
        self.starts[at] as usize * CHUNK_BYTES
    }

    /// Prefetches the headers of the burst after the next one. The headers of the next burst, which begins with packet `next`, are
    /// already on their way.
    #[inline]
    pub(super) fn prefetch(&self, next: usize) {
        let behind = self.slots.len().min(next + BURST);
        let end = self.slots.len().min(behind + BURST);
        for start in &self.starts[behind..end] {
            prefetch::address(self.bytes().as_ptr().wrapping_add(*start as usize * CHUNK_BYTES));
        }
        // Prefetch the descriptors, too, because hardware prefetch stops at the end of a page.
        prefetch::all(&self.slots[behind..end]);
        prefetch::all(&self.starts[end..self.slots.len().min(end + BURST)]);
    }

    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    #[inline]
    pub(super) fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The interface and link type of a packet.
    #[inline]
    pub(super) fn source(&self, slot: &Slot) -> (u16, LinkType) {
        self.sources[usize::from(slot.source)]
    }

    /// Interface and link type of all packets, if they are the same.
    #[inline]
    pub(super) fn sole_source(&self) -> Option<(u16, LinkType)> {
        match *self.sources.as_slice() {
            [sole] => Some(sole),
            _ => None,
        }
    }

    /// Largest distance from one packet to the next, in bytes.
    pub(super) const fn longest(&self) -> usize {
        self.longest
    }
}

fn chunk(at: usize) -> u32 {
    u32::try_from(at / CHUNK_BYTES).expect("a trace has far less than 256 GiB")
}

/// Index of a source in the table; adds a new one. Packets of one source usually follow each other.
fn source(sources: &mut Vec<(u16, LinkType)>, source: (u16, LinkType)) -> u16 {
    let known = sources.iter().rposition(|known| *known == source);
    let index = known.unwrap_or_else(|| {
        sources.push(source);
        sources.len() - 1
    });
    u16::try_from(index).expect("interfaces are numbered in 16 bits and have one link type each")
}

/// How much memory is on huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Total bytes.
    pub bytes: usize,
    /// Bytes of them on huge pages.
    pub huge_bytes: usize,
}

/// Asks the kernel of each arena's pages.
pub(super) fn huge_pages(arenas: &[Arc<Arena>]) -> HugePages {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut pages = HugePages::default();
    for arena in arenas {
        let (first, len) = (arena.bytes().as_ptr() as usize, arena.bytes().len());
        pages.bytes += len;
        pages.huge_bytes += huge_bytes(&maps, first, first + len).min(len);
    }
    pages
}

/// What `smaps` says of the mappings that have a part between two addresses.
fn huge_bytes(maps: &str, first: usize, end: usize) -> usize {
    let (mut within, mut huge) = (false, 0);
    for line in maps.lines() {
        if let Some((low, high)) = range(line) {
            within = low < end && first < high;
        } else if let (true, Some(size)) = (within, line.strip_prefix("AnonHugePages:")) {
            let kibibytes = size.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
            huge += kibibytes << 10;
        }
    }
    huge
}

/// The addresses in a mapping's head line.
fn range(line: &str) -> Option<(usize, usize)> {
    let (low, high) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_is_read() {
        let maps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nAnonHugePages:      2048 kB\n\
            7f0000400000-7f0000500000 rw-p 00000000 00:00 0 \nAnonHugePages:      1024 kB\n";
        assert_eq!(huge_bytes(maps, 0x7f00_0000_0000, 0x7f00_0000_1000), 2048 << 10);
        assert_eq!(huge_bytes(maps, 0x7f00_003f_f000, 0x7f00_0040_1000), 3072 << 10);
        assert_eq!(huge_bytes(maps, 0x7f00_0050_0000, 0x7f00_0060_0000), 0);
    }
}
