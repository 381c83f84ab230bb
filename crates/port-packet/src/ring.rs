//! The receive ring of a socket: blocks that go from the kernel to the reader, from there to batches, and back.
//!
//! A block has holders: the reader, until it has handed on all packets, and the loans of these packets. The last holder gives the block back
//! to the kernel. The kernel uses the blocks in order. While the next one is held, it drops packets and counts them.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use interface::Area;
use locality::loan::{Lender, Loan};
use port::ReceiveLosses;

use crate::block::{Block, STATUS};
use crate::error::PacketError;
use crate::options::{Options, Traffic};
use crate::socket::{Filter, Socket};

/// A socket with its ring.
#[derive(Debug)]
pub(crate) struct Ring {
    // Unmapped before the socket is closed, which the mapping keeps open.
    area: Area,
    socket: Socket,
    /// Number of the interface that it is bound to.
    pub(crate) index: u32,
    /// The core that reads it.
    pub(crate) core: usize,
    block_len: usize,
    holders: Box<[Holders]>,
    offered: AtomicU64,
    lost: AtomicU64,
    received: AtomicU64,
    across: AtomicU64,
    stopped: AtomicBool,
}

/// Number of holders of a block. One more than loans while it is being read.
#[derive(Debug, Default)]
struct Holders(AtomicU32);

/// Packets of a ring, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Packets that the kernel had for it.
    pub(crate) offered: u64,
    /// Packets that found no free block.
    pub(crate) lost: u64,
    /// Packets that were handed to batches.
    pub(crate) received: u64,
    /// Packets that the port took itself.
    pub(crate) across: u64,
}

impl Totals {
    pub(crate) const fn add(&mut self, other: Self) {
        self.offered += other.offered;
        self.lost += other.lost;
        self.received += other.received;
        self.across += other.across;
    }

    /// Packets that lie in the ring.
    pub(crate) const fn unread(self) -> u64 {
        self.offered.saturating_sub(self.received + self.across + self.lost)
    }
}

/// Bytes of a frame, by which the kernel counts the ring in version 3 and which it doesn't use otherwise.
const FRAME_LEN: u32 = 2048;
/// Bytes before each frame, for a VLAN tag that is put back.
const RESERVED: u32 = crate::block::TAG_LEN as u32;

impl Ring {
    /// A ring that takes no packets yet. `join` makes the socket one of several.
    pub(crate) fn new(
        name: &str,
        (index, core): (u32, usize),
        options: &Options,
        join: impl FnOnce(&Socket) -> Result<(), PacketError>,
    ) -> Result<Arc<Self>, PacketError> {
        let refused = |action| move |error| PacketError::system(name, action, error);
        let socket = Socket::new().map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => PacketError::NoSockets,
            _ => PacketError::system(name, "make a packet socket", error),
        })?;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3)
            .map_err(refused("choose TPACKET_V3"))?;
        socket.set(libc::SOL_PACKET, libc::PACKET_RESERVE, &RESERVED).map_err(refused("reserve room for tags"))?;
        let bytes = options.ring_len();
        let shape = libc::tpacket_req3 {
            tp_block_size: options.block_len,
            tp_block_nr: options.blocks,
            tp_frame_size: FRAME_LEN,
            tp_frame_nr: options.block_len / FRAME_LEN * options.blocks,
            tp_retire_blk_tov: options.block_timeout_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let no_memory = |error: std::io::Error| match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EAGAIN) => {
                PacketError::Memory { interface: name.to_owned(), bytes, source: error }
            }
            _ => PacketError::system(name, "make a receive ring", error),
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &shape).map_err(no_memory)?;
        let area = Area::of_file(socket.as_raw_fd(), bytes, 0).map_err(no_memory)?;
        // Sockets of a group must not take packets before all have joined, as these would come twice.
        socket.filter(Filter::Nothing).map_err(refused("set a filter"))?;
        socket.bind(index).map_err(refused("bind a packet socket"))?;
        join(&socket)?;
        let holders = (0..options.blocks).map(|_| Holders::default()).collect();
        let count = || AtomicU64::new(0);
        Ok(Arc::new(Self {
            area,
            socket,
            index,
            core,
            block_len: options.block_len as usize,
            holders,
            offered: count(),
            lost: count(),
            received: count(),
            across: count(),
            stopped: AtomicBool::new(false),
        }))
    }

    /// Begins to take packets.
    pub(crate) fn start(&self, name: &str, options: &Options) -> Result<(), PacketError> {
        let filter = match options.traffic {
            Traffic::Arriving => Filter::Arriving(options.snap_len),
            Traffic::Both => Filter::All(options.snap_len),
        };
        self.socket.filter(filter).map_err(|error| PacketError::system(name, "set a filter", error))
    }

    /// Takes no more packets. The socket stays open as long as there are loans.
    pub(crate) fn stop(&self) {
        // ORDERING: Relaxed. A flag about counts; pairs with `losses`.
        self.stopped.store(true, Ordering::Relaxed);
        // If the kernel has no memory for the filter, the ring fills up; nothing else depends on it.
        let _ = self.socket.filter(Filter::Nothing);
    }

    pub(crate) const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.holders.len()
    }

    /// Begins to read a block: true if the kernel has filled it and nobody holds it. The reader alone calls this.
    pub(crate) fn begin(&self, block: usize) -> bool {
        // ORDERING: Acquire pairs with the kernel's write barrier before it marks the block as ours.
        let is_ours = || self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        self.holders[block].is_free() && is_ours() && {
            self.holders[block].first();
            true
        }
    }

    /// The block that `begin` has begun.
    pub(crate) fn block(&self, block: usize) -> Block<'_> {
        debug_assert!(!self.holders[block].is_free(), "somebody holds it");
        // SAFETY: the mapping is there as long as `self`. Between `begin` and `release` the kernel leaves the block alone, and holders of
        // loans touch only packets.
        unsafe { Block::new(self.area.part(block * self.block_len, self.block_len)) }
    }

    /// Lends the block that is being read: the packets that are pushed to the batch.
    pub(crate) fn lend(self: &Arc<Self>, block: usize) -> Loan {
        self.holders[block].another();
        let memory = self.area.part(block * self.block_len, self.block_len);
        // SAFETY: the mapping is there as long as the ring. The kernel leaves the block alone until the last holder gives it back. Each
        // packet is in one batch, as the reader passes it once, so that no two loans have the same part; the reader itself reads headers,
        // which are no part of a packet.
        unsafe { Loan::new(memory, block as u64, Arc::clone(self) as Arc<dyn Lender>) }
    }

    /// Ends one holder's use of a block.
    pub(crate) fn release(&self, block: usize) {
        self.holders[block].leave(|| {
            // ORDERING: Release pairs with the kernel's read of the status before it writes to the block.
            self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        });
    }

    /// True if somebody holds the block that the kernel filled last before `next`: then a poll returns at once, whatever has arrived.
    pub(crate) fn is_held_before(&self, next: usize) -> bool {
        let before = (next + self.blocks() - 1) % self.blocks();
        !self.holders[before].is_free()
    }

    /// Counts packets that were handed to a batch, and those that the port took itself.
    pub(crate) fn count_received(&self, packets: u64, across: u64) {
        // ORDERING: Relaxed. Counts with one writer; pairs with `totals`.
        self.received.fetch_add(packets, Ordering::Relaxed);
        // ORDERING: Relaxed. As above.
        self.across.fetch_add(across, Ordering::Relaxed);
    }

    /// Packets so far.
    pub(crate) fn totals(&self) -> Totals {
        // The kernel counts from the last question on.
        let new = self.socket.statistics();
        let add = |count: &AtomicU64, new: u32| {
            // ORDERING: Relaxed. Counts to look at.
            count.fetch_add(u64::from(new), Ordering::Relaxed) + u64::from(new)
        };
        // ORDERING: Relaxed. As above; pairs with `count_received`.
        let (received, across) = (self.received.load(Ordering::Relaxed), self.across.load(Ordering::Relaxed));
        Totals { offered: add(&self.offered, new.offered), lost: add(&self.lost, new.lost), received, across }
    }

    /// Packets that this ring has lost. What lies in it counts if nobody will read it.
    pub(crate) fn losses(&self) -> ReceiveLosses {
        let totals = self.totals();
        // ORDERING: Relaxed. As in `stop`.
        let unclaimed = if self.stopped.load(Ordering::Relaxed) { totals.unread() } else { 0 };
        ReceiveLosses { ring_full: totals.lost, unclaimed, ..ReceiveLosses::default() }
    }

    /// The word that says whose a block is.
    fn status(&self, block: usize) -> &AtomicU32 {
        let word = self.area.part(block * self.block_len + STATUS, size_of::<u32>()).cast::<AtomicU32>();
        // SAFETY: within the mapping, aligned as blocks begin at pages, and touched by us only as an atomic.
        unsafe { word.as_ref() }
    }
}

/// A loan is over.
impl Lender for Ring {
    fn back(&self, number: u64) {
        self.release(number as usize);
    }
}

impl Holders {
    fn is_free(&self) -> bool {
        // ORDERING: Acquire pairs with Release in `leave`: the last holder has marked the block as the kernel's.
        self.0.load(Ordering::Acquire) == 0
    }

    /// The reader becomes the first holder.
    fn first(&self) {
        // ORDERING: Relaxed. A free block has no holder who could leave meanwhile.
        self.0.store(1, Ordering::Relaxed);
    }

    /// A holder makes another one.
    fn another(&self) {
        // ORDERING: Relaxed. Whoever calls holds the block already, so the count can't reach 0 before.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A holder leaves. If it is the last one, it calls `give_back` before the block counts as free. The other order would let the reader take
    /// a block that the kernel doesn't have yet for a new one.
    fn leave(&self, give_back: impl FnOnce()) {
        // ORDERING: Acquire pairs with Release below: what other holders did to the block came before.
        let mut holders = self.0.load(Ordering::Acquire);
        // Only a holder can make others, so that the last one is alone for good.
        while holders > 1 {
            // ORDERING: AcqRel pairs with the Acquire of whoever is last.
            match self.0.compare_exchange_weak(holders, holders - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => holders = now,
            }
        }
        debug_assert_eq!(holders, 1, "whoever leaves held it");
        give_back();
        // ORDERING: Release pairs with Acquire in `is_free`.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn the_last_of_many_holders_gives_a_block_back_once() {
        let (holders, given) = (Arc::new(Holders::default()), Arc::new(AtomicU32::new(0)));
        for round in 0..if cfg!(miri) { 20 } else { 2000 } {
            assert!(holders.is_free());
            holders.first();
            let threads = [(); 3].map(|()| {
                holders.another();
                let (holders, given) = (Arc::clone(&holders), Arc::clone(&given));
                // ORDERING: Relaxed. The joins order it.
                thread::spawn(move || holders.leave(|| _ = given.fetch_add(1, Ordering::Relaxed)))
            });
            holders.leave(|| _ = given.fetch_add(1, Ordering::Relaxed));
            threads.into_iter().for_each(|thread| thread.join().expect("it doesn't panic"));
            // ORDERING: Relaxed. As above.
            assert_eq!(given.load(Ordering::Relaxed), round + 1);
        }
    }

    #[test]
    fn a_block_is_not_free_before_it_is_given_back() {
        let (holders, was_free) = (Holders::default(), AtomicBool::new(true));
        holders.first();
        // ORDERING: Relaxed. One thread.
        holders.leave(|| was_free.store(holders.is_free(), Ordering::Relaxed));
        assert!(!was_free.into_inner() && holders.is_free());
    }

    #[test]
    fn what_was_neither_received_nor_lost_lies_in_the_ring() {
        let totals = Totals { offered: 11, lost: 3, received: 5, across: 1 };
        assert_eq!(totals.unread(), 2);
    }
}
