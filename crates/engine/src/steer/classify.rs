//! Classifies packets before any state is read: metadata and steering bucket, or a verdict.

use std::ops::Range;
use std::sync::Arc;

use nf::{Meta, NetworkFunction, Reason, Verdict};
use packet::{Fragment, Headers, RssFields};
use port::{Batch, Packet};

use crate::placement::hash_of;
use crate::steer::steering::{Buckets, NO_SET};

/// Returns true and writes the packet's metadata to `meta` if it takes a step. Otherwise writes its verdict, which depends on its headers
/// alone, to `verdict` and leaves `meta` as it is. Sequencer and worker both use this, so they agree.
///
/// Both are written in place: moving values of this size costs more than building them.
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
        |headers| meta_or_verdict(nf, headers, bytes, meta, verdict),
    );
    match ordinary {
        Some(takes_step) => takes_step,
        None => classify_odd(nf, by_ports, packet, bytes, meta, verdict),
    }
}

#[inline(always)]
fn meta_or_verdict<N: NetworkFunction>(
    nf: &N,
    headers: &Headers,
    bytes: &[u8],
    meta: &mut Option<N::Meta>,
    verdict: &mut Verdict,
) -> bool {
    // Two separate branches, each with its own stores. Common code would pass the values over the stack.
    match nf.meta(headers, bytes) {
        Some(made) => {
            *meta = Some(made);
            true
        }
        None => {
            // Copied because `other` may need it in memory; on the other path the headers stay in registers.
            let headers = *headers;
            *verdict = nf.other(&headers);
            false
        }
    }
}

/// Classifies a packet that isn't ordinary. Later fragments carry no ports, so a function whose keys have ports can't place them.
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
        meta_or_verdict(nf, headers, bytes, meta, verdict)
    });
    if let Some(meta_or_verdict) = segment {
        return meta_or_verdict;
    }
    let dropped = match packet::parse_odd(link, bytes, wire_len, interface) {
        Ok(headers) if by_ports && headers.fragment == Fragment::Later => Reason::FRAGMENT,
        Ok(headers) => return meta_or_verdict(nf, &headers, bytes, meta, verdict),
        Err(kind) => Reason::malformed(kind),
    };
    *verdict = Verdict::Drop(dropped);
    false
}

/// Classifies packets before they are steered, fully or only for their buckets. Several cores use it at once.
pub(crate) struct Classifier<N> {
    nf: Arc<N>,
    by_ports: bool,
    /// The RSS fields of the key, if a card could steer by them.
    mask: Option<RssFields>,
    /// The hash seed.
    seed: u64,
    /// Chooses buckets, if there are any.
    buckets: Option<Buckets>,
}

/// What is known of a packet before it is steered.
#[derive(Clone, Copy)]
pub(crate) struct Classified<M> {
    /// The metadata; `None` for a packet that takes no step.
    pub(crate) meta: Option<M>,
    /// The hash of the key, for tables.
    pub(crate) hash: u64,
    /// The entry of the indirection table; 0 if there is none.
    pub(crate) bucket: u16,
}

impl<N: NetworkFunction> Classifier<N> {
    pub(crate) fn new(nf: Arc<N>, seed: u64, buckets: Option<Buckets>) -> Self {
        let (by_ports, mask) = (nf.drops_fragments(), nf.packet_set().rss_mask());
        Self { by_ports, mask, nf, seed, buckets }
    }

    /// Finds the buckets of the packets in `range`; [`NO_SET`] for packets without a packet set. `at` is the packet in work. Reads no more
    /// of an ordinary packet than a card does, so a packet with a bucket may still take no step: its core parses it.
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

    /// Classifies the packets in `range` and writes the results to `places`. `at` is the packet in work.
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

/// Places for `count` results. They contain old results.
pub(crate) fn places<M: Copy>(classified: &mut Vec<Classified<M>>, count: usize) -> &mut [Classified<M>] {
    if classified.len() < count {
        classified.resize(count, Classified { meta: None, hash: 0, bucket: 0 });
    }
    &mut classified[..count]
}
