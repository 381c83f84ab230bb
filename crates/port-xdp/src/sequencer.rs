//! The sequencer: the memory by which the XDP programs of all interfaces number packets, and the history that they write for all cores.
//!
//! `bpf/xsk.c` has the same structures. A program takes a packet's number by an atomic addition, writes its record, and publishes it by the
//! number that stands in it. A core reads records in order, each once, and says how far it has read; programs don't write where the slowest
//! core has not read. The core's packets carry their numbers ahead of their bytes, so that it knows which of them got lost on the way.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use interface::Area;
use locality::prefetch;
use port::HEAD_BYTES;

use crate::bpf::Map;
use crate::clock::monotonic;

/// The record of a packet, or of a mark, which cores read: `struct record`.
#[derive(Debug)]
#[repr(C)]
struct Record {
    /// The number and 1, once the rest is written.
    published: AtomicU64,
    time: u64,
    first: u64,
    wire_len: u32,
    interface: u16,
    head_len: u16,
    head: [u8; HEAD_BYTES],
}

/// `struct order`.
#[derive(Debug)]
#[repr(C)]
struct Order {
    next: AtomicU64,
    _pad: [u64; 7],
    floor: AtomicU64,
    _pad_too: [u64; 7],
}

/// The number of link traffic that goes across: `UNNUMBERED`.
pub(crate) const UNNUMBERED: u64 = u64::MAX;

/// Values of `head_len` that are marks.
const STOP: u16 = u16::MAX;
const QUIET: u16 = u16::MAX - 1;

/// Records that programs leave free: for those on other processors that look at the same moment, and for a stop.
const SPARE: u32 = 1024;

/// The memory of a sequencer, common to all interfaces and cores.
#[derive(Debug)]
pub(crate) struct Sequencer {
    order_map: Map,
    history_map: Map,
    order: NonNull<Order>,
    history: NonNull<Record>,
    records: u32,
    /// For each core the number before which it has read all records.
    positions: Box<[Position]>,
    /// True from when a stop is put until all cores have come to it.
    stops: AtomicBool,
    /// Cores that have come to the stop.
    stopped: AtomicUsize,
    /// Keep the memory mapped.
    _areas: [Area; 2],
}

/// A number that one core writes. Aligned so that no two lie in one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Position(AtomicU64);

// SAFETY: the pointers lead into mappings that it holds, and that belong to the process. `Order` has atomics alone. A record is written by
// who has taken its number, and read by cores between its publication and the last one's `Reader::read_to`.
unsafe impl Send for Sequencer {}
// SAFETY: as above.
unsafe impl Sync for Sequencer {}

/// A record as it stands in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// By the kernel's monotonic clock.
    pub(crate) time: u64,
    pub(crate) what: What<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Packet {
        wire_len: u32,
        interface: u16,
        head: &'a [u8],
    },
    /// One of the marks, as many as there are cores, of which this is the first.
    Mark {
        first: u64,
        stops: bool,
    },
}

impl Sequencer {
    /// A sequencer for so many cores, with memory for `records` records: a power of two.
    pub(crate) fn new(cores: usize, records: u32) -> io::Result<Self> {
        assert!(records.is_power_of_two() && records > 2 * SPARE, "the options are checked");
        let (order_map, order) = Map::shared("order", size_of::<Order>(), 1)?;
        let (history_map, history) = Map::shared("history", size_of::<Record>(), records)?;
        Ok(Self {
            order: order.at(0, 1),
            history: history.at(0, records as usize),
            order_map,
            history_map,
            records,
            positions: (0..cores).map(|_| Position(AtomicU64::new(0))).collect(),
            stops: AtomicBool::new(false),
            stopped: AtomicUsize::new(0),
            _areas: [order, history],
        })
    }

    /// `struct place` of the program of an interface.
    pub(crate) fn place(&self, cores: u32, interface: u32) -> [u8; 16] {
        let mut place = [0; 16];
        for (bytes, value) in place.as_chunks_mut::<4>().0.iter_mut().zip([cores, interface, self.records, SPARE]) {
            *bytes = value.to_ne_bytes();
        }
        place
    }

    /// The maps of the programs, by the names that these have for them.
    pub(crate) fn maps(&self) -> [(&'static str, RawFd); 2] {
        [("order", self.order_map.as_raw_fd()), ("history", self.history_map.as_raw_fd())]
    }

    fn order(&self) -> &Order {
        // SAFETY: it lies in the mapping, and both sides access it by atomics.
        unsafe { self.order.as_ref() }
    }

    fn record(&self, number: u64) -> NonNull<Record> {
        // SAFETY: the number is taken modulo the records, and all lie in the mapping.
        unsafe { self.history.add((number & u64::from(self.records - 1)) as usize) }
    }

    /// The record's number and 1, once it is there.
    fn published(&self, number: u64) -> &AtomicU64 {
        // SAFETY: it lies in the mapping, and both sides access it by atomics.
        unsafe { &(*self.record(number).as_ptr()).published }
    }

    fn is_published(&self, number: u64) -> bool {
        // ORDERING: Acquire pairs with the program's exchange and with the Release in `put`: the record is written.
        self.published(number).load(Ordering::Acquire) == number + 1
    }

    /// Puts a mark for each core. False if there is no room.
    fn put(&self, head_len: u16, spare: u32) -> bool {
        let cores = self.positions.len() as u64;
        // ORDERING: Relaxed. A guess of the room, as in the programs; the spare records make up for it. `floor` pairs with `read_to`.
        let (next, floor) = (self.order().next.load(Ordering::Relaxed), self.order().floor.load(Ordering::Acquire));
        if next - floor + cores + u64::from(spare) > u64::from(self.records) {
            return false;
        }
        let time = monotonic();
        // ORDERING: Relaxed. The number alone; records are published one by one.
        let first = self.order().next.fetch_add(cores, Ordering::Relaxed);
        for number in first..first + cores {
            let record = self.record(number).as_ptr();
            // SAFETY: the number is this thread's, and all cores have read what stood here: there was room.
            unsafe {
                (*record).time = time;
                (*record).first = first;
                (*record).wire_len = 0;
                (*record).interface = 0;
                (*record).head_len = head_len;
            }
            // ORDERING: Release pairs with Acquire in `is_published`.
            self.published(number).store(number + 1, Ordering::Release);
        }
        true
    }
}

/// A core's way through the history.
pub(crate) struct Reader {
    sequencer: Arc<Sequencer>,
    core: usize,
    /// The next record to read.
    next: u64,
    /// The core's next packet: every so-manieth number is its own.
    own: u64,
    /// The number before which the core's packets are known, and the history may be read.
    through: u64,
    /// How many numbers before `next` are those of marks.
    marks: u64,
}

impl Reader {
    pub(crate) fn new(sequencer: Arc<Sequencer>, core: usize) -> Self {
        let own = core as u64;
        Self { sequencer, core, next: 0, own, through: own, marks: 0 }
    }

    fn cores(&self) -> u64 {
        self.sequencer.positions.len() as u64
    }

    /// The number of the core's next packet.
    pub(crate) const fn own(&self) -> u64 {
        self.own
    }

    /// The place of a packet among all packets, without marks. No unread mark may come before it.
    pub(crate) const fn place_of(&self, number: u64) -> u64 {
        number - self.marks
    }

    /// The core's next packet or unread mark, if it has been numbered.
    pub(crate) fn own_entry(&mut self) -> Option<Entry<'_>> {
        // Marks alone are read before it is their turn: the core's own may be a later one than the first.
        while self.own < self.next {
            self.pass_own();
        }
        self.entry(self.own)
    }

    /// The core has its packet, or will never get it.
    pub(crate) fn pass_own(&mut self) {
        self.own += self.cores();
        self.through = self.own;
    }

    /// The core's next number is a mark, of which this is the first: the history is to be read up to it.
    pub(crate) const fn read_to_mark(&mut self, first: u64) {
        self.through = first + 1;
    }

    /// True if there is a record to read.
    pub(crate) fn has_more(&self) -> bool {
        self.next < self.through && self.sequencer.is_published(self.next)
    }

    /// The number of the next record.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The next record; `None` if the history may not be read further, or if it isn't there yet. Waits for one that comes before a packet
    /// which the core has: its number has been taken, so that it is being written.
    pub(crate) fn entry_to_read(&self) -> Option<Entry<'_>> {
        if self.next >= self.through {
            return None;
        }
        loop {
            let entry = self.entry(self.next);
            if entry.is_some() || self.next + self.cores() > self.own {
                return entry;
            }
            std::hint::spin_loop();
        }
    }

    fn entry(&self, number: u64) -> Option<Entry<'_>> {
        debug_assert!(number >= self.next, "what is behind may be overwritten");
        if !self.sequencer.is_published(number) {
            return None;
        }
        // SAFETY: the record is published, and stays as it is until this core has read it (`read_to`), which needs `&mut self`. Only
        // `published` is ever written meanwhile, and not by this value: it is no part of the reference.
        let (time, first, wire_len, interface, head_len, head) = unsafe {
            let record = self.sequencer.record(number).as_ptr();
            let head: &[u8; HEAD_BYTES] = &(*record).head;
            ((*record).time, (*record).first, (*record).wire_len, (*record).interface, (*record).head_len, head)
        };
        let what = match head_len {
            STOP | QUIET => What::Mark { first, stops: head_len == STOP },
            _ => What::Packet { wire_len, interface, head: &head[..HEAD_BYTES.min(head_len.into())] },
        };
        Some(Entry { time, what })
    }

    /// Prefetches the record that comes so many records later.
    pub(crate) fn prefetch(&self, ahead: u64) {
        let record = self.sequencer.record(self.next + ahead).as_ptr().cast::<u8>();
        prefetch::address(record);
        prefetch::address(record.wrapping_add(64));
    }

    /// The next record has been read.
    pub(crate) const fn step(&mut self) {
        self.next += 1;
    }

    /// The next record is the first of a mark, which has been read.
    pub(crate) fn step_over_mark(&mut self) {
        self.next += self.cores();
        self.marks += self.cores();
    }

    /// Tells the programs how far the core has read.
    pub(crate) fn tell(&mut self) {
        let Sequencer { positions, .. } = &*self.sequencer;
        // ORDERING: Release pairs with Acquire below: another core that counts this one's reading as done may tell the programs.
        positions[self.core].0.store(self.next, Ordering::Release);
        let slowest = positions.iter().map(|Position(position)| position.load(Ordering::Acquire)).min();
        // ORDERING: Release: records are read before they may be overwritten. Programs read it ahead of a write that depends on it.
        self.sequencer.order().floor.fetch_max(slowest.unwrap_or_default(), Ordering::Release);
    }

    /// Puts a mark at which all cores stop, unless one is there. Room is kept for it.
    pub(crate) fn stop(&self) {
        // ORDERING: Relaxed. Only whether it was the first one counts.
        if !self.sequencer.stops.swap(true, Ordering::Relaxed) {
            let is_put = self.sequencer.put(STOP, 0);
            debug_assert!(is_put, "programs leave room for it");
        }
    }

    /// The core has come to the stop. Once all have, another can be put.
    pub(crate) fn has_stopped(&self) {
        // ORDERING: AcqRel, so that the last core's stores below come after all others have come here. Pairs with itself.
        if self.sequencer.stopped.fetch_add(1, Ordering::AcqRel) + 1 == self.sequencer.positions.len() {
            // ORDERING: Relaxed and Release: who sees that no stop is there counts anew. Pairs with the swap in `stop`, after which the
            // cores come here by the mark's publication.
            self.sequencer.stopped.store(0, Ordering::Relaxed);
            self.sequencer.stops.store(false, Ordering::Release);
        }
    }

    /// Puts a mark that no packet has come for a while, if there is room.
    pub(crate) fn quiet(&self) {
        self.sequencer.put(QUIET, SPARE);
    }
}

#[cfg(test)]
mod tests;
