//! The receiving half of a core: its interfaces' receive and fill rings, and the loans of frames to batches.

pub(crate) mod ordered;
mod presence;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use interface::{Presence, Probe};
use locality::loan::Loan;
use packet::{LinkType, Nanos, Seq};
use port::{Batch, Card, Fate, Packet, PortError, Receive, ReceiveLosses, Received};

use crate::clock::Clock;
use crate::common::Common;
use crate::core::{Core, EXCHANGED};
use crate::device::Device;
use crate::error::XdpError;
use crate::filter::{LinkPolicy, is_link};
use crate::ledger::Frame;
use crate::loans::Loans;
use crate::offload::card::XdpCard;
use crate::offload::{Connections, Progress};
use crate::options::Options;
use crate::outlets::{End, Outlets, lock};
use crate::port::Attached;
use crate::program::ProgramCounts;
use crate::ring::{Consumer, Descriptor};
use crate::socket::Socket;

/// Receives from all interfaces of one core.
pub(crate) struct Input {
    core: Arc<Core>,
    outlets: Arc<Mutex<Outlets>>,
    interfaces: Vec<Interface>,
    options: Arc<Options>,
    attached: Option<Arc<Attached>>,
    probe: Probe,
    place: Place,
    free: Vec<Frame>,
    /// How many those were when it was last told.
    noted_free: usize,
    loans: Loans,
    /// Number of the next packet, and the step to the one after it.
    next: Seq,
    step: u64,
    clock: Clock,
    /// The time of the last receive.
    looked: Nanos,
    /// When the interfaces were looked at last.
    checked: Nanos,
    /// The interface that is received from first.
    first: usize,
    /// Link traffic of a burst that goes across.
    across: Vec<Across>,
    /// The cards ahead, if there are any.
    ahead: Option<AheadOf>,
}

/// The entries that a receiving half's cores have in the table of connections, and how far it has come.
pub(crate) struct AheadOf {
    connections: Arc<Connections>,
    /// The first entry, and the number of entries.
    part: (u32, u32),
    progress: Arc<Progress>,
    /// Time of the mark: a look at the receive rings, whose packets of then are now taken out.
    marked: Nanos,
}

impl AheadOf {
    pub(crate) fn new(connections: Arc<Connections>, part: (u32, u32)) -> Self {
        Self { connections, part, progress: Arc::new(Progress::new()), marked: Nanos(0) }
    }
}

/// A core's place among those that receive from the same interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The hardware queue that it receives from.
    pub(crate) queue: u32,
    /// How many of them are received from.
    pub(crate) queues: u32,
    /// Which of the sockets on the queue is its own.
    pub(crate) member: u32,
    /// How many sockets share the queue.
    pub(crate) members: u32,
}

impl Place {
    /// The program's number of the core's socket.
    const fn socket(self) -> u32 {
        self.queue * self.members + self.member
    }

    /// True for one of the cores, which does what is to be done once.
    const fn is_first(self) -> bool {
        self.socket() == 0
    }
}

/// An interface as one core sees it.
struct Interface {
    device: Arc<Device>,
    inlet: Option<Inlet>,
    presence: Presence,
    /// True if somebody has changed the number of its queues.
    has_wrong_queues: bool,
    /// Packets lost in sockets that have been closed.
    lost_before: u64,
}

/// The receive ring of a socket.
struct Inlet {
    socket: Arc<Socket>,
    received: Consumer<Descriptor>,
    /// Has the fill ring.
    common: Arc<Common>,
    need_wakeup: bool,
    /// Frames taken out of the ring since it was last released.
    popped: u32,
    /// Frames that lay in the ring at the mark, and were not taken out yet.
    before_mark: u32,
    /// The frames of a packet whose last frame has not come yet.
    pieces: Vec<(u64, u32)>,
    /// Bytes of a packet that came in several frames.
    whole: Vec<u8>,
    /// Behind a sequencer: the number of that packet.
    stamped: Option<u64>,
    /// Behind a sequencer: a packet that was taken out of the ring, and is not handed out yet, with its number.
    front: Option<(Arrival, u64)>,
}

/// A packet out of a receive ring.
#[derive(Clone, Copy)]
enum Arrival {
    /// At this address, with this length.
    InFrame(u64, u32),
    /// In several frames, which are free again: its bytes are the inlet's `whole`.
    Gathered,
}

struct Across {
    address: u64,
    len: u32,
    from: usize,
}

/// Interval at which interfaces are looked at: one that was deleted says nothing by itself.
const CHECK: Duration = Duration::from_millis(100);
/// Longest wait for packets while frames or loans are short.
const STARVED: Duration = Duration::from_micros(500);
/// Longest wait for packets while others can't be sent: the caller then tries again.
const PENDING: Duration = Duration::from_millis(2);

impl Input {
    pub(crate) fn new(
        core: Arc<Core>,
        outlets: Arc<Mutex<Outlets>>,
        devices: &[Arc<Device>],
        options: Arc<Options>,
        attached: Arc<Attached>,
        place: Place,
        clock: Clock,
    ) -> io::Result<Self> {
        let interface = |device: &Arc<Device>| Interface {
            device: Arc::clone(device),
            inlet: None,
            presence: Presence::Up,
            has_wrong_queues: false,
            lost_before: 0,
        };
        let (burst, frames) = (options.burst, options.frames as usize * devices.len());
        Ok(Self {
            outlets,
            interfaces: devices.iter().map(interface).collect(),
            options,
            attached: Some(attached),
            probe: Probe::new()?,
            place,
            free: Vec::with_capacity(frames),
            loans: Loans::new(Arc::clone(&core), burst),
            noted_free: 0,
            next: Seq(u64::from(place.queue)),
            step: u64::from(place.queues),
            clock,
            looked: clock.now(),
            checked: clock.now(),
            first: 0,
            across: Vec::with_capacity(burst),
            ahead: None,
            core,
        })
    }

    /// Has cards ahead of it.
    pub(crate) fn put_behind(&mut self, ahead: AheadOf) {
        self.ahead = Some(ahead);
    }

    /// Tells how many free frames it holds, for the balance.
    fn note_free(&mut self) {
        let before = std::mem::replace(&mut self.noted_free, self.free.len());
        self.core.note_input_free(before, self.noted_free);
    }

    /// Fetches free frames from the other half.
    fn supply(&mut self) {
        self.core.take_spare(EXCHANGED, &mut self.free);
        if self.free.is_empty() {
            // If the other half is at work, it brings some itself.
            let mut outlets = match self.outlets.try_lock() {
                Ok(outlets) => outlets,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            outlets.reap();
            outlets.spill();
            self.core.take_spare(EXCHANGED, &mut self.free);
        }
    }

    /// Frames that the fill and receive ring of an interface should have.
    fn target(&self) -> u32 {
        self.options.ring_len.min(self.options.frames / 2) * self.place.members
    }

    /// True if a ring lacks most of its frames, or no batch can be lent.
    fn is_starved(&self) -> bool {
        let low = self.target() / 4;
        let is_low = |interface: &Interface| interface.inlet.as_ref().is_some_and(|inlet| inlet.common.filled() < low);
        self.loans.is_exhausted() || self.interfaces.iter().any(is_low)
    }

    /// Puts free frames into the fill ring of an interface, as many as it should have.
    fn refill(&mut self, interface: usize) {
        let target = self.target();
        loop {
            let Self { core, interfaces, free, .. } = self;
            let Some(inlet) = &mut interfaces[interface].inlet else { return };
            // A core that shares the ring and fills it now finds these frames later.
            let Some(mut fill) = inlet.common.fill() else { return };
            let wanted = target.saturating_sub(inlet.common.filled());
            let count = wanted.min(fill.room(wanted)).min(free.len() as u32);
            // Counted before another core can take them out.
            inlet.common.add_filled(count);
            for frame in free.drain(free.len() - count as usize..) {
                fill.push(core.umem.address(core.ledger.fill(frame, interface)));
            }
            fill.publish();
            if inlet.need_wakeup && fill.needs_wakeup() {
                // If it fails, the interface is down or gone, which `check` finds.
                let _ = inlet.socket.wake_to_receive();
            }
            drop(fill);
            if count == wanted || !free.is_empty() {
                return;
            }
            self.supply();
            if self.free.is_empty() {
                return;
            }
        }
    }

    /// Takes packets of an interface into the batch, at most `most`. Returns how many came.
    fn take(&mut self, interface: usize, most: usize, loan: usize, now: Nanos, batch: &mut Batch) -> usize {
        let goes_across = self.options.filter.link == LinkPolicy::Across;
        let (mut count, mut gathered) = (0, false);
        let Self { core, interfaces, free, loans, next, step, across, .. } = self;
        let Some(inlet) = &mut interfaces[interface].inlet else { return 0 };
        // A loop without calls for packets that lie in one frame each, as nearly all do.
        while count < most && !gathered {
            let Some(arrival) = inlet.pop(core, interface, free) else { break };
            count += 1;
            let Arrival::InFrame(address, len) = arrival else {
                gathered = true;
                continue;
            };
            // SAFETY: the kernel has filled the frame and given it back, and nobody else has it yet.
            if goes_across && is_link(unsafe { core.umem.bytes(address, len) }) {
                across.push(Across { address, len, from: interface });
                continue;
            }
            lend(core, loans, (loan, interface), &packet(interface, (*next, now), len, address as u32), batch);
            *next = Seq(next.0 + *step);
        }
        inlet.release();
        if !gathered {
            return count;
        }
        if goes_across && is_link(self.bytes(interface, Arrival::Gathered)) {
            self.send_link(interface, Arrival::Gathered);
        } else {
            let seq = self.next;
            self.next = Seq(seq.0 + self.step);
            self.hand_out(interface, Arrival::Gathered, (seq, now), loan, batch);
        }
        count + self.take(interface, most - count, loan, now, batch)
    }

    /// Puts a packet into the batch, with this number and time.
    fn hand_out(
        &mut self,
        interface: usize,
        arrival: Arrival,
        (seq, time): (Seq, Nanos),
        loan: usize,
        batch: &mut Batch,
    ) {
        let Self { core, interfaces, loans, .. } = self;
        match (arrival, &interfaces[interface].inlet) {
            (Arrival::InFrame(address, len), _) => {
                lend(core, loans, (loan, interface), &packet(interface, (seq, time), len, address as u32), batch);
            }
            (Arrival::Gathered, Some(Inlet { whole, .. })) => {
                batch.push(packet(interface, (seq, time), whole.len() as u32, 0), whole);
            }
            (Arrival::Gathered, None) => {}
        }
    }

    /// The bytes of a packet that was taken out of a ring.
    #[inline(always)]
    fn bytes(&self, interface: usize, arrival: Arrival) -> &[u8] {
        match arrival {
            // SAFETY: the kernel has filled the frame and given it back, and nobody else has it yet.
            Arrival::InFrame(address, len) => unsafe { self.core.umem.bytes(address, len) },
            Arrival::Gathered => self.interfaces[interface].inlet.as_ref().map_or(&[], |inlet| &inlet.whole),
        }
    }

    /// Sends link traffic to the paired interface, or notes it for the [end](Self::send_across) of the burst.
    fn send_link(&mut self, interface: usize, arrival: Arrival) {
        let Self { interfaces, across, outlets, .. } = self;
        match (arrival, &interfaces[interface].inlet) {
            (Arrival::InFrame(address, len), _) => across.push(Across { address, len, from: interface }),
            (Arrival::Gathered, None) => {}
            (Arrival::Gathered, Some(Inlet { whole, .. })) => {
                let mut outlets = lock(outlets);
                let is_sent = outlets.send(whole, interface ^ 1, End::Link);
                outlets.push();
                interfaces[interface ^ 1].device.count_across(u64::from(is_sent), u64::from(!is_sent));
            }
        }
    }

    /// Begins a receive: frees the frames of loans that are over, and looks at the interfaces if it is time. Returns the time.
    fn begin(&mut self) -> Nanos {
        self.loans.collect(&mut self.free);
        let now = self.clock.now();
        self.looked = now;
        if now.0.saturating_sub(self.checked.0) >= CHECK.as_nanos() as u64 {
            self.check(now);
        }
        self.note_progress(now);
        now
    }

    /// Tells the cards ahead how far this half has come: a receive begins, so that packets of earlier ones have been decided and sent.
    fn note_progress(&mut self, now: Nanos) {
        let Self { ahead: Some(ahead), interfaces, .. } = self else { return };
        ahead.progress.begin();
        let inlets = || interfaces.iter().filter_map(|interface| interface.inlet.as_ref());
        if inlets().all(|inlet| inlet.before_mark == 0) {
            ahead.progress.has_drained(ahead.marked);
            ahead.marked = now;
            for inlet in interfaces.iter_mut().filter_map(|interface| interface.inlet.as_mut()) {
                inlet.before_mark = inlet.received.unread();
            }
        }
    }

    /// Sends link traffic of this burst to the paired interfaces.
    fn send_across(&mut self) {
        if self.across.is_empty() {
            return;
        }
        let mut outlets = lock(&self.outlets);
        for Across { address, len, from } in self.across.drain(..) {
            let is_sent = outlets.forward(address, len, from, from ^ 1);
            self.interfaces[from ^ 1].device.count_across(u64::from(is_sent), u64::from(!is_sent));
        }
        outlets.push();
    }

    /// What a receive without packets returns.
    fn idle(&mut self) -> Result<Received, PortError> {
        self.note_free();
        let down = self.interfaces.iter().find(|interface| interface.presence != Presence::Up);
        down.map_or(Ok(Received::Idle), |interface| Err(PortError::Down(interface.device.name.clone())))
    }
}

/// A packet that has just come.
#[inline(always)]
const fn packet(interface: usize, (seq, time): (Seq, Nanos), len: u32, offset: u32) -> Packet {
    let link = LinkType::Ethernet;
    Packet { seq, time, offset, len, wire_len: len, interface: interface as u16, link, bucket: 0, fate: Fate::Pending }
}

/// Lends a packet in its frame. A frame that the ledger doesn't have there is not handed out.
#[inline(always)]
fn lend(core: &Core, loans: &mut Loans, (loan, interface): (usize, usize), packet: &Packet, batch: &mut Batch) {
    let address = u64::from(packet.offset);
    let number = core.umem.frame_at(address);
    if core.ledger.lend(number, interface) {
        core.umem.prefetch(address);
        loans.add(loan, number);
        batch.push_lent(packet, 0);
    }
}

impl Inlet {
    /// Takes a packet out of the ring, if all of it has come.
    #[inline(always)]
    fn pop(&mut self, core: &Core, interface: usize, free: &mut Vec<Frame>) -> Option<Arrival> {
        loop {
            let Descriptor { address, len, options } = self.received.pop()?;
            self.popped += 1;
            let continues = options & libc::XDP_PKT_CONTD != 0;
            if continues || !self.pieces.is_empty() {
                self.pieces.push((address, len));
                if continues {
                    continue;
                }
                self.gather(core, interface, free);
                return Some(Arrival::Gathered);
            }
            if core.umem.is_within_frame(address, len) {
                return Some(Arrival::InFrame(address, len));
            }
            free.extend(core.ledger.unfill(core.umem.frame_at(address), interface));
        }
    }

    /// Copies the pieces of a packet together, and frees their frames.
    #[inline(never)]
    fn gather(&mut self, core: &Core, interface: usize, free: &mut Vec<Frame>) {
        self.whole.clear();
        let first = self.pieces.first().filter(|(address, len)| core.umem.is_within_frame(*address, *len));
        // SAFETY: as below.
        self.stamped = first.and_then(|(address, _)| unsafe { core.umem.stamped_number(*address) });
        for (address, len) in self.pieces.drain(..) {
            let number = core.umem.frame_at(address);
            if core.umem.is_within_frame(address, len) {
                // SAFETY: the kernel has filled the frame and given it back, and nobody else has it until it is free below.
                self.whole.extend_from_slice(unsafe { core.umem.bytes(address, len) });
            }
            free.extend(core.ledger.unfill(number, interface));
        }
    }

    /// Gives the entries that were taken back to the kernel.
    fn release(&mut self) {
        self.received.release();
        let popped = std::mem::take(&mut self.popped);
        self.before_mark = self.before_mark.saturating_sub(popped);
        self.common.take_filled(popped);
    }
}

impl Receive for Input {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let now = self.begin();
        let mut has_packets = false;
        for interface in &mut self.interfaces {
            let Some(inlet) = &mut interface.inlet else { continue };
            let mut has_some = inlet.received.available() > 0;
            if !has_some && inlet.socket.has_busy_poll() {
                let _ = inlet.socket.wake_to_receive();
                has_some = inlet.received.available() > 0;
            }
            has_packets |= has_some;
        }
        // If all loans are out, packets wait in the rings until one is back.
        let loan = if has_packets { self.loans.begin() } else { None };
        let Some(loan) = loan else {
            (0..self.interfaces.len()).for_each(|interface| self.refill(interface));
            return self.idle();
        };
        let lender = self.loans.lender();
        // SAFETY: the memory is mapped as long as the lender lives. The loan's packets lie in frames that the ledger marks as lent: neither
        // the kernel nor another loan gets them before this loan is over.
        batch.lend_buffers(unsafe { Loan::new(self.core.umem.memory(), loan as u64, lender) });
        let count = self.interfaces.len();
        let mut left = self.options.burst;
        for turn in 0..count {
            let interface = (self.first + turn) % count;
            left -= self.take(interface, left, loan, now, batch).min(left);
        }
        self.first = (self.first + 1) % count;
        self.send_across();
        (0..count).for_each(|interface| self.refill(interface));
        if batch.is_empty() {
            batch.clear();
            return self.idle();
        }
        self.note_free();
        Ok(Received::Packets)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        // Frames that other threads free don't wake this one, and neither does room in a transmit ring.
        let is_pending = self.outlets.try_lock().is_ok_and(|outlets| outlets.is_pending());
        let at_most = at_most.min(match (self.is_starved(), is_pending) {
            (true, _) => STARVED,
            (false, true) => PENDING,
            (false, false) => CHECK,
        });
        if self.loans.is_exhausted() {
            thread::sleep(at_most);
            return Ok(());
        }
        let inlets = self.interfaces.iter().filter_map(|interface| interface.inlet.as_ref());
        if inlets.clone().next().is_none() {
            thread::sleep(at_most.min(Duration::from_millis(10)));
            return Ok(());
        }
        let mut is_broken = false;
        interface::wait(inlets.map(|inlet| inlet.socket.as_raw_fd()), at_most, |_| is_broken = true)
            .map_err(|error| XdpError::system(&self.interfaces[0].device.name, "wait for packets", error))?;
        if is_broken {
            self.checked = Nanos(0);
        }
        Ok(())
    }

    fn now(&self) -> Option<Nanos> {
        // What comes later is received later. A wait is always followed by a receive, so that this is hardly ever old.
        Some(self.looked)
    }

    fn lost(&self) -> ReceiveLosses {
        let in_socket = |interface: &Interface| {
            interface.lost_before + interface.inlet.as_ref().map_or(0, |inlet| inlet.socket.statistics().lost())
        };
        // The program counts for all cores, so that one of them tells.
        let mut program = ProgramCounts::default();
        if self.place.is_first() {
            self.interfaces.iter().for_each(|interface| program.add(&interface.device.counts().program));
        }
        ReceiveLosses {
            ring_full: self.interfaces.iter().map(in_socket).sum(),
            unclaimed: program.unclaimed,
            unsequenced: program.history_full + program.unstamped,
        }
    }

    fn take_cards(&mut self, cores: usize) -> Option<Vec<Box<dyn Card>>> {
        let AheadOf { connections, part: (first, len), progress, .. } = self.ahead.as_ref()?;
        let each = len / cores as u32;
        let card = |core: u32| {
            let part = (first + core * each, each);
            let (connections, progress) = (Arc::clone(connections), Arc::clone(progress));
            let card = XdpCard::new(
                connections,
                progress,
                (Arc::clone(&self.core), Arc::clone(&self.outlets)),
                self.clock,
                part,
                cores,
            );
            Box::new(card) as Box<dyn Card>
        };
        Some((0..cores as u32).map(card).collect())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // The programs first, also those of other cores, so that packets go to the kernel rather than to closed sockets.
        if let Some(attached) = self.attached.take() {
            attached.detach();
        }
        self.loans.collect(&mut self.free);
        (0..self.interfaces.len()).for_each(|interface| self.close(interface));
        self.core.give_spare(self.free.drain(..));
        self.note_free();
    }
}
