//! Connections whose packets the XDP program takes ahead of the cores: the table that user space and the program share ([`Connections`]),
//! and a core's part of it as a [card](card::XdpCard).
//!
//! `bpf/xsk.c` has the same structures. The program finds a packet's entry by its five-tuple. An entry's word has its state: a program that
//! finds it open locks it by a compare-and-exchange, checks and counts the packet, and unlocks it. Whoever clears the open bit closes the
//! entry, also while another holds the lock: no later packet is taken. User space closes an entry before it reads it for good, and waits
//! until nobody holds the lock.

pub(crate) mod card;
mod progress;
mod redirects;

use std::hint;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use interface::Area;
use packet::{FiveTuple, LastSegment, TcpSide, TcpWindows};

use crate::bpf::Map;

pub(crate) use progress::Progress;
pub(crate) use redirects::takes_redirects;

/// The table of connections, common to the programs of all interfaces and to all cores.
#[derive(Debug)]
pub(crate) struct Connections {
    by_tuple: Map,
    entries_map: Map,
    entries: NonNull<Entry>,
    len: u32,
    /// Number of the next use of an entry.
    next: AtomicU32,
    /// Keeps the memory mapped.
    _area: Area,
}

// SAFETY: the pointer leads into the mapping that it holds, and that belongs to the process. All of an entry are atomics.
unsafe impl Send for Connections {}
// SAFETY: as above.
unsafe impl Sync for Connections {}

/// The key of the table: `struct tuple`.
pub(crate) type Tuple = [u64; 5];

/// A connection: `struct entry`. Sides are the first endpoint of the symmetric five-tuple, then the other. Times are the kernel's monotonic
/// clock's. All but the word, and but counts that are only looked at, is read and written by who holds the lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry {
    word: AtomicU64,
    deadline: AtomicU64,
    last: AtomicU64,
    idle: [AtomicU64; 2],
    bytes_max: AtomicU64,
    packets: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    key: [AtomicU64; 5],
    forwards: [AtomicU32; 2],
    is_tcp: AtomicU32,
    id: AtomicU32,
    sides: [Side; 2],
    last_segment: Segment,
}

/// `struct side`.
#[derive(Debug)]
#[repr(C)]
struct Side {
    end: AtomicU32,
    max_end: AtomicU32,
    max_win: AtomicU32,
    max_ack: AtomicU32,
    scale: AtomicU32,
    unacknowledged: AtomicU32,
}

/// `struct segment`.
#[derive(Debug)]
#[repr(C)]
struct Segment {
    seq: AtomicU32,
    end: AtomicU32,
    ack: AtomicU32,
    /// The window, then whether the first endpoint sent it, as two numbers of 16 bits.
    window_and_sender: AtomicU32,
}

/// State bits of an entry's word.
const OPEN: u64 = 1;
const LOCKED: u64 = 2;
const WAITING: u64 = 4;
/// Lowest bit of the counters of packets that passed while the entry was waiting.
const PASSED_SHIFT: u32 = 32;

/// State of an entry, as it was a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The program takes its packets.
    Open,
    /// The program counts its packets and hands them to the socket: so many of the first side in the lower 16 bits, and of the second in the
    /// upper ones.
    Waiting { passed: u32 },
    /// The program hands its packets to the socket.
    Closed,
}

/// The decision about a connection, as the program reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) key: Tuple,
    /// Number of this use of the entry, in the stamps of packets that pass while it is waiting.
    pub(crate) id: u32,
    pub(crate) deadline: u64,
    pub(crate) idle: [u64; 2],
    pub(crate) bytes_max: u64,
    pub(crate) forwards: [bool; 2],
    pub(crate) tcp: Option<TcpWindows>,
}

impl Connections {
    /// A table with room for so many connections.
    pub(crate) fn new(len: u32) -> io::Result<Self> {
        let by_tuple = Map::table("connections", size_of::<Tuple>(), len)?;
        let (entries_map, area) = Map::shared("entries", size_of::<Entry>(), len)?;
        Ok(Self { by_tuple, entries_map, entries: area.at(0, len as usize), len, next: AtomicU32::new(1), _area: area })
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// The maps of the programs, by the names that these have for them.
    pub(crate) fn maps(&self) -> [(&'static str, RawFd); 2] {
        [("connections", self.by_tuple.as_raw_fd()), ("entries", self.entries_map.as_raw_fd())]
    }

    /// A number for the next use of an entry.
    pub(crate) fn next_id(&self) -> u32 {
        // ORDERING: Relaxed. The number alone.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn entry(&self, number: u32) -> &Entry {
        assert!(number < self.len, "a card has a part of the table");
        // SAFETY: it lies in the mapping, which is as long as the table. It has atomics alone, for which all bits are valid, and so both
        // sides may access it at any time.
        unsafe { self.entries.add(number as usize).as_ref() }
    }

    /// Has programs find the entry by its key.
    pub(crate) fn name(&self, key: &Tuple, number: u32) -> io::Result<()> {
        self.by_tuple.insert(&bytes(key), number)
    }

    /// Has programs find nothing by this key.
    pub(crate) fn unname(&self, key: &Tuple) -> io::Result<()> {
        self.by_tuple.remove(&bytes(key))
    }
}

fn bytes(key: &Tuple) -> [u8; size_of::<Tuple>()] {
    let mut bytes = [0; size_of::<Tuple>()];
    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(key) {
        *to = word.to_ne_bytes();
    }
    bytes
}

/// The key of a symmetric five-tuple: `struct tuple`.
pub(crate) fn tuple_of(flow: &FiveTuple) -> Tuple {
    let (first, second) = (flow.source(), flow.destination());
    let bits = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(address) => [0, u64::from(address.to_bits())],
        std::net::IpAddr::V6(address) => [(address.to_bits() >> 64) as u64, address.to_bits() as u64],
    };
    let version = if first.address.is_ipv4() { 4 } else { 6 };
    let ports = u64::from(first.port) << 48 | u64::from(second.port) << 32;
    let ([a, b], [c, d]) = (bits(first.address), bits(second.address));
    [a, b, c, d, ports | u64::from(flow.protocol()) << 24 | version << 16]
}

/// Looks at a lock before the processor is given to others.
const SPINS: u32 = 1000;

impl Entry {
    pub(crate) fn state(&self) -> State {
        // ORDERING: Relaxed. A look; whoever acts on it changes the word by an atomic operation.
        match self.word.load(Ordering::Relaxed) {
            word if word & WAITING != 0 => State::Waiting { passed: (word >> PASSED_SHIFT) as u32 },
            word if word & OPEN != 0 => State::Open,
            _ => State::Closed,
        }
    }

    /// Fills in a closed entry that no program finds, and has it wait.
    pub(crate) fn begin(&self, terms: &Terms) {
        // ORDERING: Relaxed, here and in the other methods that read and write entries. Who holds the lock, or a closed or waiting entry,
        // has it alone; the operations on the word order these accesses.
        let set = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        set(&self.deadline, terms.deadline);
        set(&self.last, 0);
        for side in 0..2 {
            set(&self.idle[side], terms.idle[side]);
            set(&self.packets[side], 0);
            set(&self.bytes[side], 0);
            self.forwards[side].store(u32::from(terms.forwards[side]), Ordering::Relaxed);
        }
        set(&self.bytes_max, terms.bytes_max);
        self.key.iter().zip(terms.key).for_each(|(word, value)| set(word, value));
        self.is_tcp.store(u32::from(terms.tcp.is_some()), Ordering::Relaxed);
        self.id.store(terms.id, Ordering::Relaxed);
        if let Some(windows) = &terms.tcp {
            self.set_windows(windows);
        }
        // ORDERING: Release pairs with the program's compare-and-exchange, which is a full barrier: it finds the entry as it was filled in.
        self.word.store(WAITING, Ordering::Release);
    }

    /// Opens a waiting entry, if exactly so many packets have passed.
    pub(crate) fn open(&self, passed: u32) -> bool {
        let waiting = WAITING | u64::from(passed) << PASSED_SHIFT;
        // ORDERING: Release pairs with the program's lock: it finds what was written while the entry was waiting.
        self.word.compare_exchange(waiting, OPEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Locks an open entry. False if it is closed.
    pub(crate) fn lock(&self) -> bool {
        let mut spins = 0;
        loop {
            // ORDERING: Relaxed. The exchange below finds out.
            let word = self.word.load(Ordering::Relaxed);
            if word & OPEN == 0 {
                return false;
            }
            // ORDERING: Acquire pairs with the program's release of the lock, a full barrier.
            let exchange = || self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if word & LOCKED == 0 && exchange().is_ok() {
                return true;
            }
            pause(&mut spins);
        }
    }

    /// Unlocks an entry, and closes it if it is not to stay open.
    pub(crate) fn unlock(&self, stays_open: bool) {
        let gone = if stays_open { LOCKED } else { LOCKED | OPEN };
        // ORDERING: Release pairs with the program's lock.
        self.word.fetch_and(!gone, Ordering::Release);
    }

    /// Closes an entry, and waits until no program is at it.
    pub(crate) fn close(&self) {
        // ORDERING: Acquire, here and below, pairs with the program's release of the lock: all that it has written is seen.
        let mut word = self.word.fetch_and(!(OPEN | WAITING), Ordering::Acquire);
        let mut spins = 0;
        while word & LOCKED != 0 {
            pause(&mut spins);
            word = self.word.load(Ordering::Acquire);
        }
    }

    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// The time of the last packet; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Packets of a side that the program has taken, and their bytes.
    pub(crate) fn taken(&self, side: usize) -> (u64, u64) {
        (self.packets[side].load(Ordering::Relaxed), self.bytes[side].load(Ordering::Relaxed))
    }

    /// The time of a packet has come, and the connection now ends at `deadline`.
    pub(crate) fn touch(&self, last: u64, deadline: u64, bytes: u64) {
        self.last.store(last, Ordering::Relaxed);
        self.deadline.store(deadline, Ordering::Relaxed);
        let left = self.bytes_max().saturating_sub(bytes);
        if self.bytes_max() != u64::MAX {
            self.bytes_max.store(left, Ordering::Relaxed);
        }
    }

    /// The most bytes that the program may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// The idle timeout, if some data is unacknowledged or if none is.
    pub(crate) fn idle(&self, is_owed: bool) -> u64 {
        self.idle[usize::from(is_owed)].load(Ordering::Relaxed)
    }

    /// The windows of a TCP connection.
    pub(crate) fn windows(&self) -> Option<TcpWindows> {
        let get = |word: &AtomicU32| word.load(Ordering::Relaxed);
        if get(&self.is_tcp) == 0 {
            return None;
        }
        let side = |side: &Side| TcpSide {
            end: get(&side.end),
            max_end: get(&side.max_end),
            max_win: get(&side.max_win),
            max_ack: get(&side.max_ack),
            scale: get(&side.scale) as u8,
            unacknowledged: get(&side.unacknowledged) != 0,
        };
        let Segment { seq, end, ack, window_and_sender } = &self.last_segment;
        let [a, b, c, d] = get(window_and_sender).to_ne_bytes();
        let last = LastSegment {
            seq: get(seq),
            end: get(end),
            ack: get(ack),
            window: u16::from_ne_bytes([a, b]),
            from_first: u16::from_ne_bytes([c, d]) != 0,
        };
        Some(TcpWindows { sides: [side(&self.sides[0]), side(&self.sides[1])], last })
    }

    pub(crate) fn set_windows(&self, windows: &TcpWindows) {
        let set = |word: &AtomicU32, value: u32| word.store(value, Ordering::Relaxed);
        for (to, from) in self.sides.iter().zip(&windows.sides) {
            set(&to.end, from.end);
            set(&to.max_end, from.max_end);
            set(&to.max_win, from.max_win);
            set(&to.max_ack, from.max_ack);
            set(&to.scale, u32::from(from.scale));
            set(&to.unacknowledged, u32::from(from.unacknowledged));
        }
        let LastSegment { seq, end, ack, window, from_first } = windows.last;
        set(&self.last_segment.seq, seq);
        set(&self.last_segment.end, end);
        set(&self.last_segment.ack, ack);
        let ([a, b], [c, d]) = (window.to_ne_bytes(), u16::from(from_first).to_ne_bytes());
        set(&self.last_segment.window_and_sender, u32::from_ne_bytes([a, b, c, d]));
    }
}

/// Waits a moment for a program that holds a lock. It holds it for less than a microsecond, unless its processor is taken away.
fn pause(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(SPINS) { thread::yield_now() } else { hint::spin_loop() }
}

#[cfg(test)]
mod tests;
