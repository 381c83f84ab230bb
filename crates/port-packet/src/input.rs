//! The receiving half of a core: the rings of its interfaces, and the order in which their packets come.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use interface::{Presence, Probe};
use packet::{LinkType, Nanos, Seq};
use port::{Batch, Fate, Packet, PortError, Receive, ReceiveLosses, Received};

use crate::block::{Cursor, Malformed};
use crate::device::Device;
use crate::error::PacketError;
use crate::link::is_link;
use crate::options::{LinkPolicy, Options, Role};
use crate::output::Outlet;
use crate::ring::Ring;
use crate::socket;
use crate::stamps::Stamps;

/// Receives from all interfaces of one core.
pub(crate) struct Input {
    core: usize,
    inlets: Vec<Inlet>,
    /// Where link traffic goes across: sockets of this half's own, as the other half may be on another thread. Empty if it doesn't.
    across: Vec<Outlet>,
    options: Arc<Options>,
    probe: Probe,
    stamps: Stamps,
    /// Number of the next packet, and the step to the one after it.
    next: Seq,
    step: u64,
    /// When the interfaces were looked at last; `None` if they must be looked at now.
    checked: Option<Instant>,
    /// The interface that is received from first.
    first: usize,
}

/// An interface as one core sees it.
struct Inlet {
    device: Arc<Device>,
    ring: Option<Arc<Ring>>,
    generation: u32,
    link: LinkType,
    /// The block that is read next, or is being read.
    block: usize,
    reading: Option<Cursor>,
    presence: Presence,
    /// Packets lost in rings that have been closed.
    lost_before: ReceiveLosses,
}

/// Interval at which interfaces are looked at: one that was deleted says nothing by itself.
const CHECK: Duration = Duration::from_millis(100);
/// Wait where the kernel can't say when there is something to do.
const SHORT: Duration = Duration::from_millis(1);

/// Longest time that a packet waits in a block. Kernels before 6.18 look at blocks by a coarse clock, and only every other time.
pub(crate) fn held(block_timeout_ms: u32) -> Duration {
    Duration::from_millis(u64::from(block_timeout_ms) * 2 + 8)
}

impl Input {
    /// Receives from these interfaces, which are open.
    pub(crate) fn new(
        devices: &[Arc<Device>],
        options: &Arc<Options>,
        probe: Probe,
        core: usize,
        cores: usize,
    ) -> Result<Self, PacketError> {
        let inlet = |device: &Arc<Device>| {
            let mut inlet = Inlet {
                device: Arc::clone(device),
                ring: None,
                generation: 0,
                link: LinkType::Ethernet,
                block: 0,
                reading: None,
                presence: Presence::Up,
                lost_before: ReceiveLosses::default(),
            };
            inlet.fetch(core);
            inlet
        };
        let outlet = |device| Outlet::new(device, options);
        let across = match options.link {
            LinkPolicy::Function => Vec::new(),
            LinkPolicy::Across => devices.iter().map(outlet).collect::<Result<_, PacketError>>()?,
        };
        Ok(Self {
            core,
            inlets: devices.iter().map(inlet).collect(),
            across,
            options: Arc::clone(options),
            probe,
            stamps: Stamps::new(held(options.block_timeout_ms)),
            next: Seq(core as u64),
            step: cores as u64,
            checked: Some(Instant::now()),
            first: 0,
        })
    }

    /// Looks at every interface: fetches the ring of one that another core has opened again, and opens one that is there again.
    fn check(&mut self) {
        self.checked = Some(Instant::now());
        for inlet in &mut self.inlets {
            if inlet.generation != inlet.device.generation() {
                inlet.fetch(self.core);
            }
            let presence = inlet.presence(&self.probe);
            let before = std::mem::replace(&mut inlet.presence, presence);
            match presence {
                Presence::Up if before == Presence::Up => {}
                Presence::Up => inlet.device.note(None),
                Presence::Down => inlet.device.note(Some("it is down".into())),
                Presence::Gone => match inlet.device.open_again(&self.probe, inlet.generation) {
                    Ok(()) => {
                        inlet.fetch(self.core);
                        inlet.presence = inlet.presence(&self.probe);
                    }
                    Err(error) => inlet.device.note(Some(error.to_string())),
                },
            }
        }
    }

    /// The interface whose turn it is, and the stamp up to which its packets may be handed on.
    fn turn(&mut self) -> Option<(usize, u64)> {
        let count = self.inlets.len();
        if self.options.role == Role::Forward || count == 1 {
            // A reply can't come before its request was sent from here, so that the order of interfaces doesn't matter.
            let ready = (0..count).map(|turn| (self.first + turn) % count).find(|at| self.inlets[*at].head().is_some());
            self.first = (self.first + 1) % count;
            return ready.map(|at| (at, u64::MAX));
        }
        // A tap sees both directions of a connection at two interfaces. Blocks of one may come before older packets of the other, so that
        // packets wait until the others can have nothing older.
        let mut limit = u64::MAX;
        let mut earliest: Option<(usize, u64)> = None;
        for (at, inlet) in self.inlets.iter_mut().enumerate() {
            match (inlet.head(), earliest) {
                (None, _) => limit = limit.min(self.stamps.complete()),
                (Some(head), Some((_, other))) if head >= other => limit = limit.min(head),
                (Some(head), other) => {
                    limit = limit.min(other.map_or(u64::MAX, |(_, head)| head));
                    earliest = Some((at, head));
                }
            }
        }
        earliest.filter(|(_, head)| *head <= limit).map(|(at, _)| (at, limit))
    }

    /// Lends packets of an interface to the batch, up to this stamp.
    fn take(&mut self, interface: usize, limit: u64, batch: &mut Batch) {
        let Self { inlets, across, stamps, next, step, options, .. } = self;
        let inlet = &mut inlets[interface];
        let (Some(ring), Some(mut cursor)) = (&inlet.ring, inlet.reading) else { return };
        let ring = Arc::clone(ring);
        let (memory, link) = (ring.block(inlet.block), inlet.link);
        let packets = batch.lend_buffers(ring.lend(inlet.block));
        let across = across.get(interface ^ 1).filter(|_| link == LinkType::Ethernet);
        let (mut lack_checksum, mut cut) = (0, 0);
        let (mut sent_across, mut lost_across) = (0, 0);
        let walked = loop {
            if packets.len() == options.burst {
                break Ok(ControlFlow::Continue(cursor));
            }
            let mut frame = match memory.frame(cursor) {
                Ok(Some(frame)) if frame.time <= limit => frame,
                Ok(Some(_)) => break Ok(ControlFlow::Continue(cursor)),
                Ok(None) => break Ok(ControlFlow::Break(())),
                Err(malformed) => break Err(malformed),
            };
            if let Some(tag) = frame.tag {
                // SAFETY: the reader passes each frame once, before its batch has it, and it has checked the room.
                frame = unsafe { memory.restore_tag(frame, tag) };
            }
            // SAFETY: as above; the bytes are borrowed for this test and the call that sends them.
            if let Some(other) = across.filter(|_| is_link(unsafe { memory.bytes(frame) })) {
                // SAFETY: as above.
                let is_sent = other.send(unsafe { memory.bytes(frame) });
                sent_across += u64::from(is_sent);
                lost_across += u64::from(!is_sent);
            } else {
                lack_checksum += u64::from(frame.lacks_checksum);
                cut += u64::from(frame.wire_len as usize > frame.len);
                packets.push(Packet {
                    seq: *next,
                    time: stamps.time(frame.time),
                    offset: frame.offset as u32,
                    len: frame.len as u32,
                    wire_len: frame.wire_len,
                    interface: interface as u16,
                    link,
                    bucket: 0,
                    fate: Fate::Pending,
                });
                *next = Seq(next.0 + *step);
            }
            match memory.next(cursor, frame) {
                Ok(behind) => cursor = behind,
                Err(malformed) => break Err(malformed),
            }
        };
        ring.count_received(packets.len() as u64, sent_across + lost_across);
        let noted = &inlet.device.noted;
        count(&noted.lost_across, lost_across);
        count(&noted.lack_checksum, lack_checksum);
        count(&noted.cut, cut);
        match walked {
            Ok(ControlFlow::Continue(cursor)) => inlet.reading = Some(cursor),
            Ok(ControlFlow::Break(())) => inlet.finish_block(),
            Err(Malformed) => inlet.give_up_block(),
        }
    }

    /// What a receive without packets returns.
    fn idle(&self) -> Result<Received, PortError> {
        let down = self.inlets.iter().find(|inlet| inlet.presence != Presence::Up);
        down.map_or(Ok(Received::Idle), |inlet| Err(PortError::Down(inlet.device.name.clone())))
    }
}

impl Inlet {
    /// Fetches the ring that was made for this core, in place of the one that it has.
    fn fetch(&mut self, core: usize) {
        let Some((ring, link, generation)) = self.device.fetch(core) else { return };
        self.close();
        (self.ring, self.link, self.generation) = (Some(ring), link, generation);
        (self.block, self.reading) = (0, None);
    }

    /// Whether the interface of the ring passes packets.
    fn presence(&self, probe: &Probe) -> Presence {
        match &self.ring {
            Some(ring) if ring.socket().is_bound(ring.index) => probe.presence(&self.device.name, ring.index),
            Some(_) | None => Presence::Gone,
        }
    }

    fn close(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.lost_before.add(&self.device.close(&ring));
        }
    }

    /// The stamp of the next packet. Begins its block if need be.
    fn head(&mut self) -> Option<u64> {
        loop {
            let ring = self.ring.as_ref()?;
            let cursor = match self.reading {
                Some(cursor) => Ok(cursor),
                None if !ring.begin(self.block) => return None,
                None => ring.block(self.block).first(),
            };
            let frame = cursor.and_then(|cursor| Ok((cursor, ring.block(self.block).frame(cursor)?)));
            match frame {
                Ok((cursor, Some(frame))) => {
                    self.reading = Some(cursor);
                    return Some(frame.time);
                }
                Ok((_, None)) => self.finish_block(),
                Err(Malformed) => self.give_up_block(),
            }
        }
    }

    /// All packets of the block are with batches, or with the kernel again.
    fn finish_block(&mut self) {
        let Some(ring) = &self.ring else { return };
        ring.release(self.block);
        self.block = (self.block + 1) % ring.blocks();
        self.reading = None;
    }

    fn give_up_block(&mut self) {
        count(&self.device.noted.malformed, 1);
        self.finish_block();
    }
}

impl Receive for Input {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        if self.checked.is_none_or(|checked| checked.elapsed() >= CHECK) {
            self.check();
        }
        let Some((interface, limit)) = self.turn() else { return self.idle() };
        self.take(interface, limit, batch);
        if batch.is_empty() {
            batch.clear();
            return self.idle();
        }
        Ok(Received::Packets)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        let at_most = at_most.min(CHECK);
        let rings = || self.inlets.iter().filter_map(|inlet| Some((inlet, inlet.ring.as_ref()?)));
        let is_waiting = rings().any(|(inlet, _)| inlet.reading.is_some());
        if is_waiting && (self.options.role == Role::Forward || self.inlets.len() == 1) {
            return Ok(());
        }
        // A poll would return at once, because of blocks that we have ourselves.
        if is_waiting || rings().next().is_none() || rings().any(|(inlet, ring)| ring.is_held_before(inlet.block)) {
            thread::sleep(at_most.min(SHORT));
            return Ok(());
        }
        let mut is_broken = false;
        let broken = |fd| {
            socket::clear_error(fd);
            is_broken = true;
        };
        interface::wait(rings().map(|(_, ring)| ring.fd()), at_most, broken)
            .map_err(|error| PacketError::system(&self.inlets[0].device.name, "wait for packets", error))?;
        if is_broken {
            self.checked = None;
        }
        Ok(())
    }

    fn now(&self) -> Option<Nanos> {
        Some(self.stamps.now())
    }

    fn lost(&self) -> ReceiveLosses {
        let mut lost = ReceiveLosses::default();
        for inlet in &self.inlets {
            lost.add(&inlet.lost_before);
            inlet.ring.iter().for_each(|ring| lost.add(&ring.losses()));
            // They belong to no core, so that one of them tells.
            if self.core == 0 {
                lost.add(&inlet.device.unfetched());
            }
        }
        lost
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.inlets.iter_mut().for_each(Inlet::close);
    }
}

/// Adds to a count that is seldom written.
pub(crate) fn count(count: &AtomicU64, packets: u64) {
    if packets > 0 {
        // ORDERING: Relaxed. A count to look at; pairs with `Device::counts`.
        count.fetch_add(packets, Ordering::Relaxed);
    }
}
