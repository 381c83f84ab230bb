//! The transmitting half of a core: its interfaces' transmit rings, the completion rings, and the frames for copies.

use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use port::{Batch, Fate, TransmitCounts};

use crate::common::Common;
use crate::core::{Core, EXCHANGED};
use crate::ledger::Frame;
use crate::ring::{Descriptor, Producer};
use crate::socket::Socket;

/// The transmit rings of a core's interfaces.
pub(crate) struct Outlets {
    core: Arc<Core>,
    each: Vec<Option<Outlet>>,
    free: Vec<Frame>,
    counts: TransmitCounts,
}

/// The transmit ring of a socket.
pub(crate) struct Outlet {
    pub(crate) socket: Arc<Socket>,
    pub(crate) transmit: Producer<Descriptor>,
    /// Has the completion ring.
    pub(crate) common: Arc<Common>,
    /// True if a packet may lie in several frames.
    pub(crate) scattered: bool,
    /// True if the ring's flag says when the kernel must be called; otherwise it always must.
    pub(crate) need_wakeup: bool,
    /// True if descriptors may wait in the ring.
    pub(crate) pending: bool,
    /// True if the ring is full and the kernel takes nothing, until the next burst.
    pub(crate) blocked: bool,
    /// What each descriptor of the ring ends.
    ends: Box<[End]>,
    /// Place of the next descriptor in `ends`, after all wraps.
    next: u32,
}

/// What ends with a descriptor in a transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A packet of a batch.
    Packet,
    /// Link traffic that goes across.
    Link,
    /// Nothing: the packet goes on in the next descriptor, or is counted as lost already.
    Nothing,
}

/// The shortest packet: an Ethernet header.
const LEN_MIN: usize = 14;
/// Frames of a packet, at most, as the kernel takes (`MAX_SKB_FRAGS` by default, 17).
const PIECES_MAX: usize = 17;
/// Calls that try to make room in a full ring.
const ATTEMPTS: usize = 8;

pub(crate) fn lock(outlets: &Mutex<Outlets>) -> MutexGuard<'_, Outlets> {
    outlets.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outlets {
    pub(crate) fn new(core: Arc<Core>, interfaces: usize) -> Self {
        let free = Vec::with_capacity(core.umem.len() / core.umem.frame_len() as usize);
        Self { core, each: (0..interfaces).map(|_| None).collect(), free, counts: TransmitCounts::default() }
    }

    /// Sets an interface's rings; `None` if its socket is closed. Packets that waited in the rings before are lost. Returns how much link
    /// traffic was among them.
    pub(crate) fn set(&mut self, interface: usize, outlet: Option<Outlet>) -> u64 {
        let Some(mut before) = mem::replace(&mut self.each[interface], outlet) else { return 0 };
        self.lose(before.abandon(End::Packet));
        before.abandon(End::Link)
    }

    /// Counts packets as lost that were put into a ring and never sent.
    const fn lose(&mut self, packets: u64) {
        self.counts.sent -= packets;
        self.counts.lost += packets;
    }

    /// Counts packets that the XDP program has sent.
    pub(crate) const fn count_ahead(&mut self, packets: u64) {
        self.counts.sent += packets;
    }

    pub(crate) const fn counts(&self) -> TransmitCounts {
        self.counts
    }

    pub(crate) const fn free_len(&self) -> usize {
        self.free.len()
    }

    /// Sends the packets of a batch by their fates.
    pub(crate) fn transmit(&mut self, batch: &Batch) {
        self.reap();
        self.each.iter_mut().flatten().for_each(|outlet| outlet.blocked = false);
        for (index, packet) in batch.packets().iter().enumerate() {
            match packet.fate {
                Fate::Pending | Fate::Drop(_) => {}
                Fate::Transmit(port) => self.count(batch.bytes(index), port),
                Fate::Both(port, copy) => {
                    self.count(batch.bytes(index), port);
                    self.count(batch.bytes(index), copy);
                }
            }
        }
        self.push();
    }

    #[inline]
    fn count(&mut self, bytes: &[u8], to: u16) {
        let is_sent = self.send(bytes, usize::from(to), End::Packet);
        self.counts.sent += u64::from(is_sent);
        self.counts.lost += u64::from(!is_sent);
    }

    /// Puts a packet into an interface's transmit ring: in place if it lies in a lent frame that isn't sent yet, as a copy otherwise.
    /// False if it is lost.
    pub(crate) fn send(&mut self, bytes: &[u8], to: usize, end: End) -> bool {
        let Some(Some(_)) = self.each.get(to) else { return false };
        if bytes.len() < LEN_MIN {
            return false;
        }
        if let Some(address) = self.core.umem.address_of(bytes) {
            // The kernel would skip a descriptor that it finds invalid, and never give its frame back.
            if !self.core.umem.is_within_frame(address, bytes.len() as u32) || !self.make_room(to, 1) {
                return false;
            }
            if self.core.ledger.send_lent(self.core.umem.frame_at(address), to) {
                self.outlet(to).put(Descriptor { address, len: bytes.len() as u32, options: 0 }, end);
                return true;
            }
        }
        self.send_copy(bytes, to, end)
    }

    fn send_copy(&mut self, bytes: &[u8], to: usize, end: End) -> bool {
        let frame_len = self.core.umem.frame_len() as usize;
        let pieces = bytes.len().div_ceil(frame_len);
        let fits = pieces == 1 || (pieces <= PIECES_MAX && self.outlet(to).scattered);
        if !fits || !self.make_room(to, pieces as u32) || !self.supply(pieces) {
            return false;
        }
        for (nth, piece) in bytes.chunks(frame_len).enumerate() {
            let frame = self.free.pop().expect("it has just been supplied");
            // SAFETY: a free frame is held by its token alone.
            unsafe { self.core.umem.write(frame.number(), piece) };
            let address = self.core.umem.address(self.core.ledger.send(frame, to));
            let (options, end) = if nth + 1 < pieces { (libc::XDP_PKT_CONTD, End::Nothing) } else { (0, end) };
            self.outlet(to).put(Descriptor { address, len: piece.len() as u32, options }, end);
        }
        true
    }

    /// Sends link traffic as it came, in the frame that the kernel filled at another interface. False if it is lost.
    pub(crate) fn forward(&mut self, address: u64, len: u32, from: usize, to: usize) -> bool {
        let number = self.core.umem.frame_at(address);
        let Some(Some(_)) = self.each.get(to) else {
            self.free.extend(self.core.ledger.unfill(number, from));
            return false;
        };
        if !self.make_room(to, 1) {
            self.free.extend(self.core.ledger.unfill(number, from));
            return false;
        }
        let is_sent = self.core.ledger.forward(number, from, to);
        if is_sent {
            self.outlet(to).put(Descriptor { address, len, options: 0 }, End::Link);
        }
        is_sent
    }

    fn outlet(&mut self, to: usize) -> &mut Outlet {
        self.each[to].as_mut().expect("the caller has looked")
    }

    /// Makes room for descriptors. False if the ring stays full.
    fn make_room(&mut self, to: usize, wanted: u32) -> bool {
        if self.outlet(to).transmit.room(wanted) >= wanted {
            return true;
        }
        for _ in 0..ATTEMPTS {
            let outlet = self.outlet(to);
            if outlet.blocked {
                return false;
            }
            let before = outlet.transmit.room(u32::MAX);
            outlet.push();
            self.reap();
            let outlet = self.outlet(to);
            let room = outlet.transmit.room(u32::MAX);
            if room >= wanted {
                return true;
            }
            outlet.blocked = room == before;
        }
        false
    }

    /// Holds at least so many free frames. False if there are none left.
    fn supply(&mut self, wanted: usize) -> bool {
        if self.free.len() < wanted {
            self.core.take_spare(EXCHANGED, &mut self.free);
        }
        if self.free.len() < wanted {
            self.push();
            self.reap();
        }
        self.free.len() >= wanted
    }

    /// Takes back what the kernel has sent.
    pub(crate) fn reap(&mut self) {
        let Self { core, each, free, .. } = self;
        for outlet in each.iter().flatten() {
            // A core that shares the ring and empties it now brings the frames itself.
            let Some(mut completed) = outlet.common.completed() else { continue };
            while let Some(address) = completed.pop() {
                free.extend(core.ledger.complete(core.umem.frame_at(address)));
            }
            completed.release();
        }
        if free.len() > 2 * EXCHANGED {
            core.give_spare(free.drain(EXCHANGED..));
        }
    }

    /// Gives all free frames to the other half.
    pub(crate) fn spill(&mut self) {
        self.core.give_spare(self.free.drain(..));
    }

    /// Shows the kernel what is to be sent.
    pub(crate) fn push(&mut self) {
        self.each.iter_mut().flatten().filter(|outlet| outlet.pending).for_each(Outlet::push);
    }

    /// True if packets wait in a transmit ring.
    pub(crate) fn is_pending(&self) -> bool {
        self.each.iter().flatten().any(|outlet| outlet.pending)
    }

    /// Sends all that waits, for at most `at_most`, before the end. What can't be sent, as an interface is down, is lost.
    pub(crate) fn drain(&mut self, at_most: Duration) {
        let end = Instant::now() + at_most;
        loop {
            self.push();
            self.reap();
            if !self.is_pending() || Instant::now() >= end {
                break;
            }
            thread::sleep(Duration::from_micros(200));
        }
        let waiting = self.each.iter_mut().flatten().map(|outlet| outlet.abandon(End::Packet)).sum();
        self.lose(waiting);
    }
}

impl Outlet {
    /// The rings of a socket that nobody has used yet.
    pub(crate) fn new(
        socket: Arc<Socket>,
        mut transmit: Producer<Descriptor>,
        common: Arc<Common>,
        (scattered, need_wakeup): (bool, bool),
    ) -> Self {
        let ends = vec![End::Nothing; transmit.room(u32::MAX) as usize].into();
        Self { socket, transmit, common, scattered, need_wakeup, pending: false, blocked: false, ends, next: 0 }
    }

    #[inline]
    fn put(&mut self, descriptor: Descriptor, end: End) {
        self.transmit.push(descriptor);
        let place = self.place(self.next);
        self.ends[place] = end;
        self.next = self.next.wrapping_add(1);
        self.pending = true;
    }

    /// The lengths of rings are powers of two.
    #[inline]
    const fn place(&self, number: u32) -> usize {
        number as usize & (self.ends.len() - 1)
    }

    /// Counts what waits in the ring and ends so. It is counted once.
    fn abandon(&mut self, end: End) -> u64 {
        let waiting = self.ends.len() as u32 - self.transmit.room(u32::MAX);
        let mut count = 0;
        for back in 1..=waiting {
            let place = self.place(self.next.wrapping_sub(back));
            if self.ends[place] == end {
                self.ends[place] = End::Nothing;
                count += 1;
            }
        }
        count
    }

    /// Shows the kernel all descriptors, and calls it as long as it gets on. What it can't send now waits in the ring.
    fn push(&mut self) {
        self.transmit.publish();
        if self.need_wakeup && !self.transmit.needs_wakeup() {
            self.pending = self.transmit.waiting() > 0;
            return;
        }
        let mut before = self.transmit.waiting();
        while before > 0 {
            let result = self.socket.wake_to_send();
            let left = self.transmit.waiting();
            match result {
                // Without a copy the driver sends later, and needs no more calls.
                Ok(()) => {
                    before = left;
                    break;
                }
                // The kernel sends a bounded number at a time.
                Err(error) if is_temporary(&error) && left < before => before = left,
                Err(_) => break,
            }
        }
        self.pending = before > 0;
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR))
}
