//! What a frame is to a function, before any state is looked at.

use nf::{NetworkFunction, Reason, Verdict};
use packet::{Fragment, Headers};
use port::Packet;

/// Classifies a frame: whether it takes a step. What it contributes to that is left in `meta`; otherwise `meta` stays as it is, and its
/// verdict, which follows from its headers alone, is left in `verdict`. Sequencer and worker both go by this, so that they agree.
///
/// Both are built where they stay, for moving values of their size costs more than making them.
#[inline(always)]
pub(crate) fn classify<N: NetworkFunction>(
    nf: &N,
    by_ports: bool,
    packet: &Packet,
    bytes: &[u8],
    meta: &mut Option<N::Meta>,
    verdict: &mut Verdict,
) -> bool {
    let Packet { link, wire_len, interface, .. } = *packet;
    let ordinary = packet::parse_ordinary(
        link,
        bytes,
        wire_len,
        interface,
        #[inline(always)]
        |headers| contributes(nf, headers, bytes, meta, verdict),
    );
    match ordinary {
        Some(takes_step) => takes_step,
        None => classify_odd(nf, by_ports, packet, bytes, meta, verdict),
    }
}

#[inline(always)]
fn contributes<N: NetworkFunction>(
    nf: &N,
    headers: &Headers,
    bytes: &[u8],
    meta: &mut Option<N::Meta>,
    verdict: &mut Verdict,
) -> bool {
    // Two ways from here on, each with stores of its own: what they had in common would go over the stack field by field.
    match nf.meta(headers, headers.payload(bytes)) {
        Some(made) => {
            *meta = Some(made);
            true
        }
        None => {
            // A copy, for whatever `other` lends to a call has to be in memory, and of all other packets nothing has to be.
            let headers = *headers;
            *verdict = nf.other(&headers);
            false
        }
    }
}

/// Later fragments carry no ports; a function whose packet sets are named by ports can't place them.
#[inline(never)]
fn classify_odd<N: NetworkFunction>(
    nf: &N,
    by_ports: bool,
    packet: &Packet,
    bytes: &[u8],
    meta: &mut Option<N::Meta>,
    verdict: &mut Verdict,
) -> bool {
    let Packet { link, wire_len, interface, .. } = *packet;
    let segment = packet::parse_segment(link, bytes, wire_len, interface, |headers| {
        contributes(nf, headers, bytes, meta, verdict)
    });
    let outcome = segment.unwrap_or_else(|| {
        packet::parse_odd(link, bytes, wire_len, interface).map(|headers| match headers.fragment {
            Fragment::Later if by_ports => {
                *verdict = Verdict::Drop(Reason::FRAGMENT);
                false
            }
            _ => contributes(nf, &headers, bytes, meta, verdict),
        })
    });
    outcome.unwrap_or_else(|kind| {
        *verdict = Verdict::Drop(Reason::malformed(kind));
        false
    })
}
