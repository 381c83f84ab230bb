//! What becomes of a packet once its step has committed.

use nf::{NetworkFunction, PortId, Reason, Reply, Verdict};
use packet::Rewrite;
use port::{Batch, Fate, Packet, Sides};

use crate::counters::Counters;

/// Counts a verdict and carries it out on the packet. Always inlined: a verdict that crosses a call goes over memory.
#[inline(always)]
pub(crate) fn settle<N: NetworkFunction>(
    nf: &N,
    sides: Option<Sides>,
    scratch: &mut Vec<u8>,
    counters: &mut Counters,
    batch: &mut Batch,
    index: usize,
    verdict: &Verdict,
) {
    let fate = match verdict {
        Verdict::Forward(port) => {
            counters.count(verdict);
            out(sides, *port, &batch.packets()[index])
        }
        Verdict::Rewrite { port, rewrite } => {
            apply(batch, index, rewrite);
            counters.count(verdict);
            out(sides, *port, &batch.packets()[index])
        }
        Verdict::Transform { port, work } => match N::GROWTH.is_some() {
            true => transform(nf, sides, scratch, counters, batch, index, *port, *work),
            false => unreachable!("{} says that it makes no packet anew", N::DESCRIPTION.name),
        },
        Verdict::Drop(reason) => {
            counters.count(verdict);
            Fate::Drop(reason.0)
        }
        Verdict::Reply(reply) => answer(sides, counters, batch, index, *reply),
    };
    batch.packets_mut()[index].fate = fate;
}

/// Counts a verdict that leaves the packet's bytes as they are, and tells the packet's fate; `None`, and nothing done, for any other.
#[inline(always)]
pub(crate) fn settle_unwritten(
    sides: Option<Sides>,
    counters: &mut Counters,
    packet: &Packet,
    verdict: &Verdict,
) -> Option<Fate> {
    let fate = match verdict {
        Verdict::Forward(port) => out(sides, *port, packet),
        Verdict::Drop(reason) => Fate::Drop(reason.0),
        Verdict::Rewrite { .. } | Verdict::Transform { .. } | Verdict::Reply(_) => return None,
    };
    counters.count(verdict);
    Some(fate)
}

/// Rewrites the packet. Its headers are parsed anew: keeping them for the few verdicts that rewrite costs all packets more.
#[inline(never)]
fn apply(batch: &mut Batch, index: usize, rewrite: &Rewrite) {
    let Packet { link, wire_len, interface, .. } = batch.packets()[index];
    rewrite.apply_to_frame(link, batch.bytes_mut(index), wire_len, interface);
}

/// Puts in the packet's place what the function makes of it, or drops it for the reason that the function gives.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "what a worker settles by, each a part of it that is borrowed apart")]
fn transform<N: NetworkFunction>(
    nf: &N,
    sides: Option<Sides>,
    scratch: &mut Vec<u8>,
    counters: &mut Counters,
    batch: &mut Batch,
    index: usize,
    port: PortId,
    work: u64,
) -> Fate {
    let (packet, bytes) = batch.packet(index);
    scratch.clear();
    let made = match packet::parse(packet.link, bytes, packet.wire_len, packet.interface) {
        Ok(headers) => nf.transform(work, &headers, bytes, scratch),
        Err(kind) => Err(Reason::malformed(kind)),
    };
    match made {
        Ok(()) => {
            batch.replace(index, scratch);
            counters.count(&Verdict::Transform { port, work });
            out(sides, port, &batch.packets()[index])
        }
        Err(reason) => {
            counters.count(&Verdict::Drop(reason));
            Fate::Drop(reason.0)
        }
    }
}

/// Turns the packet into its answer. What can't be answered (a reset, a segment cut short) is dropped and counted so.
#[cold]
fn answer(sides: Option<Sides>, counters: &mut Counters, batch: &mut Batch, index: usize, reply: Reply) -> Fate {
    let Packet { link, wire_len, interface, .. } = batch.packets()[index];
    let bytes = batch.bytes_mut(index);
    let len = match (reply, packet::parse(link, bytes, wire_len, interface)) {
        (Reply::TcpReset, Ok(headers)) => packet::tcp_reset(bytes, &headers),
        (Reply::TcpReset, Err(_)) => None,
    };
    let Some(len) = len else {
        counters.count(&Verdict::Drop(Reason::UNANSWERABLE));
        return Fate::Drop(Reason::UNANSWERABLE.0);
    };
    let packet = &mut batch.packets_mut()[index];
    packet.len = len as u32;
    packet.wire_len = len as u32;
    counters.replied += 1;
    out(sides, PortId::BACK, packet)
}

/// The interface that a packet goes out by: the one that the function names, or the one that "across" or "back" means here.
#[inline(always)]
pub(crate) fn out(sides: Option<Sides>, port: PortId, packet: &Packet) -> Fate {
    let named = match (sides, port) {
        (Some(sides), PortId::ACROSS) => sides.across(packet.interface),
        (Some(_), PortId::BACK) => packet.interface,
        (Some(_) | None, PortId(port)) => port,
    };
    Fate::Transmit(named)
}
