//! The bare loop: a minimal stateful loop over packets, as a reference for what the machine can do during the measurement.
//!
//! It checks one IPv4 header, counts packets by source in a bucketised table, prefetches over bursts of 32, and swaps the MAC addresses.
//! It has no other link types, families or protocols, no verdicts, no expiry, no counters by reason, and no copy in place of a card's.

use std::time::Instant;

use locality::prefetch;
use port::Trace;

use crate::bench::{BenchError, BenchPlan};
use crate::gauge::Gauge;
use crate::rounds::{Contender, Reading, Readings};
use crate::spread::Spread;

/// Bytes of a packet that lie in memory.
const FRAME: usize = 64;
const BURST: usize = 32;
/// Sources in a bucket, which is one cache line.
const WIDTH: usize = 8;

#[repr(align(64))]
#[derive(Clone, Copy, Default)]
struct Bucket {
    sources: [u32; WIDTH],
    counts: [u32; WIDTH],
}

/// The loop over a trace.
pub(crate) struct Bare {
    frames: Vec<[u8; FRAME]>,
    buckets: Vec<Bucket>,
    /// Packets of sources that did not fit into the table. The sum keeps the loop from being optimised away.
    lost: u64,
    /// Packets of a round.
    packets: u64,
    readings: Readings,
}

impl Bare {
    /// A loop over the trace's frames, with a table for all their sources.
    pub(crate) fn new(trace: &Trace, plan: &BenchPlan) -> Self {
        let mut frames = Vec::with_capacity(trace.len());
        for index in 0..trace.len() {
            let mut frame = [0; FRAME];
            let bytes = trace.bytes(index);
            let len = bytes.len().min(FRAME);
            frame[..len].copy_from_slice(&bytes[..len]);
            frames.push(frame);
        }
        let mut sources: Vec<u32> = frames.iter().filter_map(source).collect();
        sources.sort_unstable();
        sources.dedup();
        let mut bare = Self {
            frames,
            buckets: vec![Bucket::default(); (sources.len() / (WIDTH / 2)).next_power_of_two().max(1)],
            lost: 0,
            packets: plan.packets,
            readings: Readings::new(plan.undisturbed),
        };
        for source in sources {
            let home = bare.home(source);
            let bucket = &mut bare.buckets[home];
            if let Some(place) = bucket.sources.iter().position(|other| *other == 0) {
                bucket.sources[place] = source;
            }
        }
        bare
    }

    /// Nanoseconds a packet; `None` of no packets.
    pub(crate) fn ns(&self) -> Option<Spread> {
        (!self.frames.is_empty()).then(|| self.readings.spread(|reading| reading.own_ns))
    }

    fn pass(&mut self) -> u64 {
        let mut frames = std::mem::take(&mut self.frames);
        for burst in frames.chunks_mut(BURST) {
            let mut waiting = [(0, 0); BURST];
            for (frame, waiting) in burst.iter().zip(&mut waiting) {
                let Some(source) = source(frame) else { continue };
                let home = self.home(source);
                prefetch::start(&self.buckets[home]);
                *waiting = (source, home);
            }
            for (frame, (source, home)) in burst.iter_mut().zip(waiting) {
                let bucket = &mut self.buckets[home];
                match bucket.sources.iter().position(|other| *other == source) {
                    Some(place) => bucket.counts[place] = bucket.counts[place].wrapping_add(1),
                    None => self.lost += 1,
                }
                let (destination, rest) = frame.split_at_mut(6);
                destination.swap_with_slice(&mut rest[..6]);
            }
        }
        self.frames = frames;
        self.frames.len() as u64
    }

    #[inline(always)]
    fn home(&self, source: u32) -> usize {
        let hash = u64::from(source).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (self.buckets.len() - 1)
    }
}

impl Contender for Bare {
    fn round(&mut self) -> Result<(), BenchError> {
        let (start, mut done, mut gauge) = (Instant::now(), 0, Gauge::default());
        gauge.read();
        while done < self.packets && !self.frames.is_empty() {
            done += self.pass();
        }
        gauge.read();
        self.readings.push(Reading::of(done, &[start.elapsed()], &[gauge], 1));
        Ok(())
    }

    fn counted(&self) -> usize {
        self.readings.len()
    }
}

/// The source of an IPv4 packet of TCP or UDP whose lengths hold.
#[inline(always)]
fn source(frame: &[u8; FRAME]) -> Option<u32> {
    let len = u16::from_be_bytes([frame[16], frame[17]]);
    let holds = frame[12..14] == [8, 0] && frame[14] == 0x45 && matches!(frame[23], 6 | 17) && len >= 28;
    holds.then(|| u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]))
}

#[cfg(test)]
mod tests {
    use packet::{LinkType, Nanos, Seq};
    use port::{Fate, Packet};

    use super::*;
    use crate::bench::tests::plan;

    #[test]
    fn every_packet_is_counted_by_its_source() {
        let mut trace = Trace::new();
        for number in 0..100u8 {
            let mut frame = [0u8; 60];
            frame[12..14].copy_from_slice(&[8, 0]);
            (frame[14], frame[17], frame[23], frame[29]) = (0x45, 46, 17, 1 + number % 7);
            let len = frame.len() as u32;
            let (seq, time) = (Seq(number.into()), Nanos(number.into()));
            let link = LinkType::Ethernet;
            trace.push(
                Packet { seq, time, offset: 0, len, wire_len: len, interface: 0, link, bucket: 0, fate: Fate::Pending },
                &frame,
            );
        }
        let plan = BenchPlan { packets: 250, ..plan() };
        let mut bare = Bare::new(&trace, &plan);
        bare.round().expect("nothing is read");
        assert!(bare.ns().is_some_and(|ns| ns.median > 0.0));
        let counted: u32 = bare.buckets.iter().flat_map(|bucket| bucket.counts).sum();
        assert_eq!((u64::from(counted), bare.lost), (300, 0));
        let mut none = Bare::new(&Trace::new(), &plan);
        none.round().expect("nothing is read");
        assert_eq!(none.ns(), None);
    }
}
