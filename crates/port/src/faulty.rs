//! Fault injection on the receive side of any queue or port: loss, reordering, duplication, corruption, truncation and stalls. The same
//! seed over the same packets gives the same faults.

use packet::{Nanos, Seq};

use crate::batch::{Batch, Packet};
use crate::error::PortError;
use crate::queue::{Opened, Port, Queue, Receive, Received, Sides, Stream, Transmit};

/// Which faults to inject. Probabilities are from 0 to 1 for each packet; the default injects none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed of the random choices.
    pub seed: u64,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is duplicated.
    pub duplicate: f64,
    /// Probability that a packet is delayed behind later ones.
    pub reorder: f64,
    /// Maximum number of packets that overtake a delayed one, and maximum number of delayed packets.
    pub reorder_window: usize,
    /// Probability that bits of a packet are flipped.
    pub corrupt: f64,
    /// Maximum number of bits flipped in such a packet.
    pub corrupt_bits_max: u32,
    /// Probability that the end of a packet is cut off; its length on the wire stays.
    pub truncate: f64,
    /// Probability, for each receive call, that the queue stalls.
    pub stall: f64,
    /// Number of receive calls for which a stalled queue returns nothing.
    pub stall_calls: u32,
}

/// A queue with faults on its receive side. Transmit is unchanged.
///
/// Packets are numbered after the faults, and times that reordering made fall are raised, as if the faults had happened before the port.
#[derive(Debug)]
pub struct Faulty<Q> {
    inner: Q,
    faults: Faults,
    random: Random,
    /// Packets received from the inner queue.
    arrived: Batch,
    delayed: Vec<DelayedPacket>,
    /// Free memory for delayed packets.
    spare: Vec<Vec<u8>>,
    /// Number of packets that have arrived.
    count: u64,
    numbers: Numbers,
    now: Nanos,
    stalled: u32,
}

/// A packet that is held back.
#[derive(Debug)]
struct DelayedPacket {
    /// It is released once this many packets have arrived.
    due: u64,
    packet: Packet,
    bytes: Vec<u8>,
}

/// Packet numbers of one queue among several; no two queues give the same.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    next: u64,
    step: u64,
}

impl<Q: Receive> Faulty<Q> {
    /// Injects faults into `inner`.
    #[must_use]
    pub fn new(inner: Q, faults: Faults) -> Self {
        Self::with_numbers(inner, faults, Numbers { next: 0, step: 1 })
    }

    fn with_numbers(inner: Q, faults: Faults, numbers: Numbers) -> Self {
        Self {
            inner,
            random: Random(faults.seed),
            faults,
            arrived: Batch::default(),
            delayed: Vec::new(),
            spare: Vec::new(),
            count: 0,
            numbers,
            now: Nanos(0),
            stalled: 0,
        }
    }

    /// The queue inside.
    #[must_use]
    pub const fn inner(&self) -> &Q {
        &self.inner
    }

    /// Sends arrived packet `index` through all faults.
    fn pass(&mut self, index: usize, batch: &mut Batch) {
        self.count += 1;
        let Faults { loss, duplicate, reorder, reorder_window, corrupt, corrupt_bits_max, truncate, .. } = self.faults;
        let packet = self.arrived.packets()[index];
        if !self.random.happens(loss) {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(self.arrived.bytes(index));
            if self.random.happens(truncate) {
                bytes.truncate(self.random.below(bytes.len() as u64) as usize);
            }
            if self.random.happens(corrupt) && !bytes.is_empty() {
                self.flip(&mut bytes, corrupt_bits_max);
            }
            if self.random.happens(duplicate) {
                self.emit(&packet, &bytes, batch);
            }
            if self.delayed.len() < reorder_window && self.random.happens(reorder) {
                let due = self.count + 1 + self.random.below(reorder_window as u64);
                self.delayed.push(DelayedPacket { due, packet, bytes });
            } else {
                self.emit(&packet, &bytes, batch);
                self.spare.push(bytes);
            }
        }
        self.release(self.count, batch);
    }

    /// Flips between one and `bits_max` bits.
    fn flip(&mut self, bytes: &mut [u8], bits_max: u32) {
        for _ in 0..=self.random.below(u64::from(bits_max)) {
            let bit = self.random.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    /// Releases the delayed packets that are due once `count` packets have arrived.
    fn release(&mut self, count: u64, batch: &mut Batch) {
        while let Some(index) = self.delayed.iter().position(|delayed| delayed.due <= count) {
            let DelayedPacket { packet, bytes, .. } = self.delayed.remove(index);
            self.emit(&packet, &bytes, batch);
            self.spare.push(bytes);
        }
    }

    fn emit(&mut self, packet: &Packet, bytes: &[u8], batch: &mut Batch) {
        self.now = self.now.max(packet.time);
        batch.push(Packet { seq: Seq(self.numbers.next), time: self.now, ..*packet }, bytes);
        self.numbers.next += self.numbers.step;
    }

    /// True if the queue is stalled for this call.
    fn stalls(&mut self) -> bool {
        if self.stalled == 0 && self.random.happens(self.faults.stall) {
            self.stalled = self.faults.stall_calls;
        }
        let stalls = self.stalled > 0;
        self.stalled = self.stalled.saturating_sub(1);
        stalls
    }
}

impl<Q: Receive> Receive for Faulty<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        if self.stalls() {
            return Ok(Received::Idle);
        }
        loop {
            match self.inner.receive(&mut self.arrived)? {
                Received::Idle => return Ok(Received::Idle),
                Received::Packets => (0..self.arrived.len()).for_each(|index| self.pass(index, batch)),
                Received::End => {
                    self.release(u64::MAX, batch);
                    return Ok(if batch.is_empty() { Received::End } else { Received::Packets });
                }
            }
            // All packets of a burst may be lost or delayed.
            if !batch.is_empty() {
                return Ok(Received::Packets);
            }
        }
    }

    crate::forward_receive!(inner);
}

impl<Q: Transmit> Transmit for Faulty<Q> {
    crate::forward_transmit!(inner);
}

/// A port with faults on each of its queues.
#[derive(Debug)]
pub struct FaultyPort<P> {
    inner: P,
    faults: Faults,
}

impl<P: Port> FaultyPort<P> {
    /// Injects faults into all queues of `inner`.
    #[must_use]
    pub const fn new(inner: P, faults: Faults) -> Self {
        Self { inner, faults }
    }

    /// The port inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: Port> Port for FaultyPort<P> {
    fn open<'a>(&'a mut self, cores: usize) -> Result<Opened<'a>, PortError> {
        let mut seeds = Random(self.faults.seed);
        let queues = match self.inner.open(cores)? {
            Opened::Queues(queues) => queues,
            Opened::Stream(Stream { input, output, order }) => {
                let input = Box::new(Faulty::new(input, self.faults));
                return Ok(Opened::Stream(Stream { input, output, order }));
            }
            Opened::Sequenced(_) => {
                return Err(PortError::Unfit("faults come ahead of a sequencer, not behind it".into()));
            }
        };
        let step = queues.len() as u64;
        let faulty = |(core, queue): (usize, Box<dyn Queue + 'a>)| {
            // A single queue has the same faults as with `Faulty`.
            let seed = if core == 0 { self.faults.seed } else { seeds.next() };
            let numbers = Numbers { next: core as u64, step };
            Box::new(Faulty::with_numbers(queue, Faults { seed, ..self.faults }, numbers)) as Box<dyn Queue + 'a>
        };
        Ok(Opened::Queues(queues.into_iter().enumerate().map(faulty).collect()))
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}

/// SplitMix64 (Steele, Lea, Flood: OOPSLA '14).
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where there is none.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// True with this probability.
    fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && ((self.next() >> 11) as f64) < chance * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use packet::LinkType;
    use proptest::prelude::*;

    use super::*;
    use crate::batch::Fate;
    use crate::memory::{MemoryPort, MemoryQueue, Trace};

    const LEN: u64 = 2_000;

    /// Packets that carry their numbers.
    fn trace() -> Arc<Trace> {
        let mut trace = Trace::new();
        for number in 0..LEN {
            let (seq, time, fate) = (Seq(number), Nanos(number * 10), Fate::Pending);
            let (link, interface) = (LinkType::Ethernet, 0);
            let packet = Packet { seq, time, offset: 0, len: 0, wire_len: 80, interface, link, bucket: 0, fate };
            trace.push(packet, &[number.to_be_bytes(); 8].concat());
        }
        Arc::new(trace)
    }

    fn drain(mut queue: impl Queue) -> Vec<(Packet, Vec<u8>)> {
        let (mut batch, mut all, mut idle) = (Batch::default(), Vec::new(), 0);
        loop {
            match queue.receive(&mut batch).expect("memory is there") {
                Received::Packets => {
                    all.extend(batch.packets().iter().enumerate().map(|(i, p)| (*p, batch.bytes(i).to_vec())));
                }
                Received::Idle => idle += 1,
                Received::End => break,
            }
            assert!(idle < 100_000, "a stall ends");
        }
        all
    }

    fn run(faults: Faults) -> Vec<(Packet, Vec<u8>)> {
        drain(Faulty::new(MemoryQueue::new(trace(), 32), faults))
    }

    /// The numbers that the packets carry.
    fn carried(all: &[(Packet, Vec<u8>)]) -> Vec<u64> {
        all.iter().map(|(_, bytes)| u64::from_be_bytes(*bytes.first_chunk().expect("eight bytes"))).collect()
    }

    #[test]
    fn no_faults_change_nothing() {
        let all = run(Faults::default());
        assert_eq!(carried(&all), (0..LEN).collect::<Vec<_>>());
        assert!(all.iter().zip(trace().packets()).all(|((have, _), want)| have.time == want.time));
    }

    #[test]
    fn loss_and_duplication() {
        let lost = carried(&run(Faults { seed: 1, loss: 0.25, ..Faults::default() }));
        assert!((LEN * 7 / 10..LEN * 8 / 10).contains(&(lost.len() as u64)), "{}", lost.len());
        assert!(lost.is_sorted_by(|a, b| a < b));
        let twice = carried(&run(Faults { seed: 1, duplicate: 0.25, ..Faults::default() }));
        assert!((LEN * 12 / 10..LEN * 13 / 10).contains(&(twice.len() as u64)), "{}", twice.len());
        assert!(twice.is_sorted());
        assert!(run(Faults { loss: 1.0, ..Faults::default() }).is_empty());
    }

    #[test]
    fn reordering_stays_in_its_window() {
        let window = 8;
        let all = carried(&run(Faults { seed: 5, reorder: 0.3, reorder_window: window, ..Faults::default() }));
        assert!(!all.is_sorted());
        for (place, number) in all.iter().enumerate() {
            let overtaken_by = all[..place].iter().filter(|other| *other > number).count();
            assert!(overtaken_by <= window + 1, "{overtaken_by}");
        }
        let mut sorted = all;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..LEN).collect::<Vec<_>>());
    }

    #[test]
    fn damage() {
        let all = run(Faults { seed: 2, corrupt: 0.5, corrupt_bits_max: 3, ..Faults::default() });
        let flipped = |(number, (_, bytes)): (usize, &(Packet, Vec<u8>))| -> u32 {
            let clean = [(number as u64).to_be_bytes(); 8].concat();
            clean.iter().zip(bytes).map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        let flips: Vec<u32> = all.iter().enumerate().map(flipped).collect();
        assert!(flips.iter().all(|flips| *flips <= 3));
        assert!((1..=3).all(|count| flips.contains(&count)));
        let cut = run(Faults { seed: 2, truncate: 0.5, ..Faults::default() });
        assert!(cut.iter().all(|(packet, bytes)| packet.len as usize == bytes.len() && packet.wire_len == 80));
        assert!(cut.iter().any(|(packet, _)| packet.len == 0) && cut.iter().any(|(packet, _)| packet.len == 64));
    }

    #[test]
    fn several_queues_suffer_differently_and_number_apart() {
        let faults = Faults { seed: 3, loss: 0.5, ..Faults::default() };
        let mut port = FaultyPort::new(MemoryPort::new(trace(), 32), faults);
        let Opened::Queues(queues) = port.open(2).expect("queues") else { panic!("a queue for each core") };
        let all: Vec<_> = queues.into_iter().map(drain).collect();
        for (core, all) in all.iter().enumerate() {
            assert!(all.iter().all(|(packet, _)| packet.seq.0 % 2 == core as u64));
        }
        let halves = [0, 1].map(|core| carried(&all[core]).iter().map(|number| number / 2).collect::<Vec<_>>());
        assert_ne!(halves[0], halves[1]);
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_and_order_holds(
            seed: u64, loss in 0.0..0.5, duplicate in 0.0..0.5, reorder in 0.0..0.5, reorder_window in 0usize..40,
            corrupt in 0.0..0.5, truncate in 0.0..0.5, stall in 0.0..0.5, stall_calls in 0u32..5,
        ) {
            let faults = Faults {
                seed, loss, duplicate, reorder, reorder_window, corrupt, corrupt_bits_max: 9, truncate, stall, stall_calls,
            };
            let all = run(faults);
            for (number, pair) in all.windows(2).enumerate() {
                prop_assert_eq!(pair[0].0.seq.0, number as u64);
                prop_assert!(pair[0].0.time <= pair[1].0.time);
            }
            let again = run(faults);
            prop_assert!(all.len() == again.len() && all.iter().zip(&again).all(|(a, b)| a.1 == b.1 && a.0.time == b.0.time));
        }
    }
}
