//! What a frame is to a function, before any state is looked at.

use std::ops::Range;
use std::sync::Arc;

use nf::{Meta, NetworkFunction, Reason, Verdict};
use packet::{Fragment, Headers, RssFields};
use port::{Batch, Packet};

use crate::placement::hash_of;
use crate::steer::steering::{Buckets, NO_SET};

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
    if let Some(contributes) = segment {
        return contributes;
    }
    let dropped = match packet::parse_odd(link, bytes, wire_len, interface) {
        Ok(headers) if by_ports && headers.fragment == Fragment::Later => Reason::FRAGMENT,
        Ok(headers) => return contributes(nf, &headers, bytes, meta, verdict),
        Err(kind) => Reason::malformed(kind),
    };
    *verdict = Verdict::Drop(dropped);
    false
}

/// Looks at packets ahead of their steering: at what they contribute, or at no more than steering goes by. Several cores do so at once.
pub(crate) struct Classifier<N> {
    nf: Arc<N>,
    by_ports: bool,
    /// Which fields of a packet name its packet set, where a card could go by them.
    mask: Option<RssFields>,
    /// What table hashes are keyed by.
    seed: u64,
    /// What packets' buckets are chosen by, where there are any.
    buckets: Option<Buckets>,
}

/// What is known of a packet ahead of its steering.
#[derive(Clone, Copy)]
pub(crate) struct Classified<M> {
    /// What it contributes; `None` for a packet that takes no step.
    pub(crate) meta: Option<M>,
    /// The hash of its packet set, which tables go by.
    pub(crate) hash: u64,
    /// Its entry of the indirection table; 0 where there is none.
    pub(crate) bucket: u16,
}

impl<N: NetworkFunction> Classifier<N> {
    pub(crate) fn new(nf: Arc<N>, seed: u64, buckets: Option<Buckets>) -> Self {
        let set = nf.packet_set();
        Self { by_ports: set.has_ports(), mask: set.rss_mask(), nf, seed, buckets }
    }

    /// Finds the buckets of packets of a batch, of which it is at number `at`; [`NO_SET`] is written for those that belong to no packet
    /// set. Of an ordinary packet no more is read than a card reads, for whoever gets it looks at it by itself: it may have a bucket and
    /// yet take no step.
    #[inline(never)]
    pub(crate) fn place(&self, batch: &Batch, range: Range<usize>, places: &mut [u16], at: &mut usize) {
        let Some(buckets) = &self.buckets else { return places.fill(NO_SET) };
        let Some(mask) = self.mask else {
            for ((index, place), (packet, bytes)) in range.clone().zip(places).zip(batch.each(range)) {
                *at = index;
                *place = self.place_by_set(buckets, packet, bytes);
            }
            return;
        };
        for ((index, place), (packet, bytes)) in range.clone().zip(places).zip(batch.each(range)) {
            *place = match RssFields::read(packet.link, bytes) {
                Some(fields) => buckets.of_fields(fields.masked(mask)),
                None => {
                    *at = index;
                    self.place_by_set(buckets, packet, bytes)
                }
            };
        }
    }

    #[inline(never)]
    fn place_by_set(&self, buckets: &Buckets, packet: &Packet, bytes: &[u8]) -> u16 {
        let mut meta = None;
        classify(&*self.nf, self.by_ports, packet, bytes, &mut meta, &mut Verdict::forward());
        meta.map_or(NO_SET, |meta| buckets.bucket(&meta.key()))
    }

    /// Looks at packets of a batch, of which it is at number `at`, and writes what it finds over as many `places`.
    pub(crate) fn classify(
        &self,
        batch: &Batch,
        range: Range<usize>,
        places: &mut [Classified<N::Meta>],
        at: &mut usize,
    ) {
        let mut verdict = Verdict::forward();
        for ((index, one), (packet, bytes)) in range.clone().zip(places).zip(batch.each(range)) {
            *at = index;
            if !classify(&*self.nf, self.by_ports, packet, bytes, &mut one.meta, &mut verdict) {
                one.meta = None;
                continue;
            }
            let Some(meta) = &one.meta else { continue };
            let key = meta.key();
            one.hash = hash_of::<N>(&key, self.seed);
            if let Some(buckets) = &self.buckets {
                one.bucket = buckets.bucket(&key);
            }
        }
    }
}

/// Places for what is found out about so many packets, with whatever was found out about others before.
pub(crate) fn places<M: Copy>(classified: &mut Vec<Classified<M>>, count: usize) -> &mut [Classified<M>] {
    if classified.len() < count {
        classified.resize(count, Classified { meta: None, hash: 0, bucket: 0 });
    }
    &mut classified[..count]
}
