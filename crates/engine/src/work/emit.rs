//! The last stage of a core's work: carries out the verdicts of a burst.

use nf::{NetworkFunction, PortId, Reason, Reply, Verdict};
use packet::{Headers, Rewrite, Seq};
use port::{Batch, Fate, Packet, Sides};

use crate::counters::Counters;
use crate::placement::BURST;

/// Records the verdicts of a burst, then carries them out.
///
/// A verdict that leaves the bytes unchanged becomes the packet's [`Fate`] at once. One that changes them goes to a list until
/// [`emit`](Self::emit). So no packet is written to before all steps of its burst are done.
pub(crate) struct Emitter {
    pub(crate) counters: Counters,
    /// The port's interfaces, which replace "across" and "back". `None` leaves the verdict's port as it is.
    pub(crate) sides: Option<Sides>,
    /// The packets to change, in the order of their steps: index in the batch, verdict. A burst's, and those of a log's stretch before it.
    changes: Box<[(u32, Verdict); 2 * BURST]>,
    /// How many there are.
    len: usize,
    /// How many of them are done.
    done: usize,
    /// The buffer for a new frame.
    scratch: Vec<u8>,
}

/// The longest IP packet with a link header. The buffer for new frames starts with this capacity.
const FRAME_MAX: usize = 65_535 + 64;

/// The longest ICMP error with a link header: the capacity if there are no other new frames.
const ERROR_FRAME_MAX: usize = packet::ICMP_ERROR_MAX + 64;

impl Emitter {
    pub(crate) fn new<N: NetworkFunction>() -> Self {
        let room = N::TRANSFORM.map_or(ERROR_FRAME_MAX, |transform| FRAME_MAX + transform.growth as usize);
        Self {
            counters: Counters::default(),
            sides: None,
            changes: Box::new([(0, Verdict::forward()); 2 * BURST]),
            len: 0,
            done: 0,
            scratch: Vec::with_capacity(room),
        }
    }

    /// Records the verdict of the packet at `index`.
    #[inline(always)]
    pub(crate) fn decide(&mut self, packet: &mut Packet, index: usize, verdict: &Verdict) {
        packet.fate = match verdict {
            Verdict::Forward(port) => out(self.sides, *port, packet),
            Verdict::Drop(reason) => Fate::Drop(reason.0),
            Verdict::Rewrite { .. } | Verdict::Copy { .. } | Verdict::Transform { .. } | Verdict::Reply(_) => {
                let (at, change) = &mut self.changes[self.len];
                (*at, *change) = (index as u32, *verdict);
                self.len += 1;
                return;
            }
        };
        self.counters.count(verdict);
    }

    /// Carries out the verdicts that change packets. If the function panics here, `position` is its packet, and another call continues
    /// after that packet.
    #[inline(always)]
    pub(crate) fn emit<N: NetworkFunction>(&mut self, nf: &N, batch: &mut Batch, position: &mut Seq) {
        if self.len > 0 {
            self.apply_verdicts(nf, batch, position);
        }
    }

    #[inline(never)]
    fn apply_verdicts<N: NetworkFunction>(&mut self, nf: &N, batch: &mut Batch, position: &mut Seq) {
        while let Some((index, verdict)) = self.changes[..self.len].get(self.done) {
            let index = *index as usize;
            self.done += 1;
            let fate = match verdict {
                Verdict::Rewrite { port, rewrite } => {
                    apply_rewrite(batch, index, rewrite);
                    self.counters.count(verdict);
                    out(self.sides, *port, &batch.packets()[index])
                }
                Verdict::Copy { port, copy, src, dst, macs } => {
                    let rewrite = Rewrite { src: *src, dst: *dst, macs: *macs, ..Rewrite::NONE };
                    if rewrite != Rewrite::NONE {
                        apply_rewrite(batch, index, &rewrite);
                    }
                    self.counters.count(verdict);
                    let packet = &batch.packets()[index];
                    Fate::Both(resolve(self.sides, *port, packet), resolve(self.sides, *copy, packet))
                }
                Verdict::Transform { port, work } => {
                    *position = batch.packets()[index].seq;
                    let (port, work) = (*port, *work);
                    self.transform(nf, batch, index, port, work)
                }
                Verdict::Reply(reply) => {
                    let reply = *reply;
                    self.answer(batch, index, reply)
                }
                Verdict::Forward(_) | Verdict::Drop(_) => unreachable!("it was the packet's fate at once"),
            };
            batch.packets_mut()[index].fate = fate;
        }
        (self.len, self.done) = (0, 0);
    }

    /// Replaces the packet by the frame that the function builds, or drops it for the reason that the function gives.
    #[inline(never)]
    fn transform<N: NetworkFunction>(
        &mut self,
        nf: &N,
        batch: &mut Batch,
        index: usize,
        port: PortId,
        work: u64,
    ) -> Fate {
        let (packet, bytes) = batch.packet(index);
        self.scratch.clear();
        let made = match packet::parse(packet.link, bytes, packet.wire_len, packet.interface) {
            Ok(headers) => {
                let Some(transform) = N::TRANSFORM else {
                    unreachable!("{} says that it makes no packet anew", N::DESCRIPTION.name)
                };
                (transform.frame)(nf, work, &headers, bytes, &mut self.scratch)
            }
            Err(kind) => Err(Reason::malformed(kind)),
        };
        match made {
            Ok(()) => {
                batch.replace(index, &self.scratch);
                self.counters.count(&Verdict::Transform { port, work });
                out(self.sides, port, &batch.packets()[index])
            }
            Err(reason) => {
                self.counters.count(&Verdict::Drop(reason));
                Fate::Drop(reason.0)
            }
        }
    }

    /// Replaces the packet by its answer. Drops a packet that can't be answered, such as a reset or an ICMP error.
    #[cold]
    fn answer(&mut self, batch: &mut Batch, index: usize, reply: Reply) -> Fate {
        let Packet { link, wire_len, interface, .. } = batch.packets()[index];
        let is_answered = match packet::parse(link, batch.bytes(index), wire_len, interface) {
            Ok(headers) => self.write_answer(batch, index, &headers, reply).is_some(),
            Err(_) => false,
        };
        if !is_answered {
            self.counters.count(&Verdict::Drop(Reason::UNANSWERABLE));
            return Fate::Drop(Reason::UNANSWERABLE.0);
        }
        self.counters.replied += 1;
        out(self.sides, PortId::BACK, &batch.packets()[index])
    }

    fn write_answer(&mut self, batch: &mut Batch, index: usize, headers: &Headers, reply: Reply) -> Option<()> {
        match reply {
            Reply::TcpReset => {
                let len = packet::tcp_reset(batch.bytes_mut(index), headers)?;
                let packet = &mut batch.packets_mut()[index];
                packet.len = len as u32;
                packet.wire_len = len as u32;
            }
            Reply::IcmpError(error) => {
                self.scratch.resize(usize::from(headers.network_offset) + packet::ICMP_ERROR_MAX, 0);
                let len = packet::icmp_error(batch.bytes(index), headers, error, &mut self.scratch)?;
                batch.replace(index, &self.scratch[..len]);
            }
        }
        Some(())
    }
}

/// Rewrites the packet. The headers are parsed again: to keep them for the few rewrites would slow down all packets.
#[inline(never)]
fn apply_rewrite(batch: &mut Batch, index: usize, rewrite: &Rewrite) {
    let Packet { link, wire_len, interface, .. } = batch.packets()[index];
    rewrite.apply_to_frame(link, batch.bytes_mut(index), wire_len, interface);
}

/// The packet goes out of the output interface.
#[inline(always)]
fn out(sides: Option<Sides>, port: PortId, packet: &Packet) -> Fate {
    Fate::Transmit(resolve(sides, port, packet))
}

/// The output interface: the verdict's port number, or the interface that "across" or "back" stands for.
#[inline(always)]
pub(crate) fn resolve(sides: Option<Sides>, port: PortId, packet: &Packet) -> u16 {
    match (sides, port) {
        (Some(sides), PortId::ACROSS) => sides.across(packet.interface),
        (Some(_), PortId::BACK) => packet.interface,
        (Some(_) | None, PortId(port)) => port,
    }
}
