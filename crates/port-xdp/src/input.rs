//! The receiving half of a core: its interfaces' receive and fill rings, and the loans of frames to batches.

mod presence;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use interface::{Presence, Probe};
use locality::loan::{Lender, Loan};
use packet::{LinkType, Nanos, Seq};
use port::{Batch, Fate, Packet, PortError, Receive, ReceiveLosses, Received};

use crate::clock::Clock;
use crate::core::{Core, EXCHANGED};
use crate::device::Device;
use crate::error::XdpError;
use crate::filter::{LinkPolicy, is_link};
use crate::ledger::Frame;
use crate::loans::Loans;
use crate::options::Options;
use crate::outlets::{End, Outlets, lock};
use crate::port::Attached;
use crate::ring::{Consumer, Descriptor, Producer};
use crate::socket::Socket;

/// Receives from all interfaces of one core.
pub(crate) struct Input {
    core: Arc<Core>,
    outlets: Arc<Mutex<Outlets>>,
    interfaces: Vec<Interface>,
    options: Arc<Options>,
    attached: Option<Arc<Attached>>,
    probe: Probe,
    queue: u32,
    queues: u32,
    free: Vec<Frame>,
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
    /// Bytes of a packet that came in several frames.
    whole: Vec<u8>,
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

/// The receive and fill ring of a socket.
struct Inlet {
    socket: Arc<Socket>,
    received: Consumer<Descriptor>,
    fill: Producer<u64>,
    need_wakeup: bool,
    /// Number of the interface that it is bound to.
    index: u32,
    /// Frames in the fill and the receive ring.
    filled: u32,
    /// The frames of a packet whose last frame has not come yet.
    pieces: Vec<(u64, u32)>,
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
        (queue, queues): (u32, u32),
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
            core,
            outlets,
            interfaces: devices.iter().map(interface).collect(),
            options,
            attached: Some(attached),
            probe: Probe::new()?,
            queue,
            queues,
            free: Vec::with_capacity(frames),
            loans: Loans::new(burst),
            next: Seq(u64::from(queue)),
            step: u64::from(queues),
            clock,
            looked: clock.now(),
            checked: clock.now(),
            first: 0,
            across: Vec::with_capacity(burst),
            whole: Vec::new(),
        })
    }

    /// Frees the frames of loans that are over.
    fn collect(&mut self) {
        self.loans.collect(&self.core, &mut self.free);
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
        self.options.ring_len.min(self.options.frames / 2)
    }

    /// True if a ring lacks most of its frames, or no batch can be lent.
    fn is_starved(&self) -> bool {
        let low = self.target() / 4;
        let is_low = |interface: &Interface| interface.inlet.as_ref().is_some_and(|inlet| inlet.filled < low);
        self.loans.is_exhausted() || self.interfaces.iter().any(is_low)
    }

    /// Puts free frames into the fill ring of an interface, as many as it should have.
    fn refill(&mut self, interface: usize) {
        let target = self.target();
        loop {
            let Self { core, interfaces, free, .. } = self;
            let Some(inlet) = &mut interfaces[interface].inlet else { return };
            let wanted = target.saturating_sub(inlet.filled);
            let count = wanted.min(inlet.fill.room(wanted)).min(free.len() as u32);
            for frame in free.drain(free.len() - count as usize..) {
                inlet.fill.push(core.umem.address(core.ledger.fill(frame, interface)));
            }
            inlet.filled += count;
            inlet.fill.publish();
            if inlet.need_wakeup && inlet.fill.needs_wakeup() {
                // If it fails, the interface is down or gone, which `check` finds.
                let _ = inlet.socket.wake_to_receive();
            }
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
        let (mut count, mut sent_across, mut lost_across) = (0, 0, 0);
        let Self { core, interfaces, free, loans, next, step, across, whole, outlets, .. } = self;
        let Some(inlet) = &mut interfaces[interface].inlet else { return 0 };
        let mut numbered = |len: u32, offset: u32| {
            let seq = *next;
            *next = Seq(seq.0 + *step);
            Packet {
                seq,
                time: now,
                offset,
                len,
                wire_len: len,
                interface: interface as u16,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            }
        };
        while count < most || !inlet.pieces.is_empty() {
            let Some(Descriptor { address, len, options }) = inlet.received.pop() else { break };
            inlet.filled = inlet.filled.saturating_sub(1);
            let continues = options & libc::XDP_PKT_CONTD != 0;
            if continues || !inlet.pieces.is_empty() {
                inlet.pieces.push((address, len));
                if continues {
                    continue;
                }
                count += 1;
                whole.clear();
                for (address, len) in inlet.pieces.drain(..) {
                    let number = core.umem.frame_at(address);
                    if core.umem.is_within_frame(address, len) {
                        // SAFETY: the kernel has filled the frame and given it back, and nobody else has it until it is free below.
                        whole.extend_from_slice(unsafe { core.umem.bytes(address, len) });
                    }
                    free.extend(core.ledger.unfill(number, interface));
                }
                if goes_across && is_link(whole) {
                    let is_sent = lock(outlets).send(whole, interface ^ 1, End::Link);
                    sent_across += u64::from(is_sent);
                    lost_across += u64::from(!is_sent);
                } else {
                    batch.push(numbered(whole.len() as u32, 0), whole);
                }
                continue;
            }
            count += 1;
            let number = core.umem.frame_at(address);
            if !core.umem.is_within_frame(address, len) {
                free.extend(core.ledger.unfill(number, interface));
                continue;
            }
            // SAFETY: the kernel has filled the frame and given it back, and nobody else has it yet.
            if goes_across && is_link(unsafe { core.umem.bytes(address, len) }) {
                across.push(Across { address, len, from: interface });
                continue;
            }
            // A frame that the ledger doesn't have there is not handed out.
            if core.ledger.lend(number, interface) {
                core.umem.prefetch(address);
                loans.add(loan, number);
                batch.push_lent(&numbered(len, address as u32), 0);
            }
        }
        inlet.received.release();
        if sent_across + lost_across > 0 {
            lock(outlets).push();
            interfaces[interface ^ 1].device.count_across(sent_across, lost_across);
        }
        count
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
    fn idle(&self) -> Result<Received, PortError> {
        self.core.note_input_free(self.free.len());
        let down = self.interfaces.iter().find(|interface| interface.presence != Presence::Up);
        down.map_or(Ok(Received::Idle), |interface| Err(PortError::Down(interface.device.name.clone())))
    }
}

impl Receive for Input {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        self.collect();
        let now = self.clock.now();
        self.looked = now;
        if now.0.saturating_sub(self.checked.0) >= CHECK.as_nanos() as u64 {
            self.check(now);
        }
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
        let lender = Arc::clone(&self.core) as Arc<dyn Lender>;
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
        self.core.note_input_free(self.free.len());
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
        // The program counts for all queues, so that one of them tells.
        let unclaimed = |interface: &Interface| interface.device.counts().program.unclaimed;
        let unclaimed = if self.queue == 0 { self.interfaces.iter().map(unclaimed).sum() } else { 0 };
        ReceiveLosses { ring_full: self.interfaces.iter().map(in_socket).sum(), unclaimed }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // The programs first, so that packets go to the kernel rather than to closed sockets.
        self.attached = None;
        self.collect();
        (0..self.interfaces.len()).for_each(|interface| self.close(interface));
        self.core.give_spare(self.free.drain(..));
        self.core.note_input_free(0);
    }
}
