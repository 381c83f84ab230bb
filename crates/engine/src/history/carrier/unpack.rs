//! Splits sequenced packets: each core gets its own packets, and the history that these carry.

use std::sync::Arc;

use nf::{Meta, NetworkFunction, Verdict};
use packet::Seq;
use port::{Batch, Packet};

use super::layout::{Shape, TIME_BYTES, parse, u64_at};
use super::ring::{Ring, metadata_of};
use crate::history::link::{words_of, write_bytes};
use crate::history::log::{Block, Record};
use crate::placement::hash_of;
use crate::steer::classify::classify;
use crate::steer::core_batch::CoreBatch;

/// Splits sequenced packets among cores, each with the history that its own packets carry.
pub(crate) struct Unpack<N: NetworkFunction> {
    nf: Arc<N>,
    by_ports: bool,
    shape: Shape,
    /// The hash seed.
    seed: u64,
    /// Blocks that cores may still be reading. A block that no core holds is used again.
    blocks: Vec<Arc<Block<N::Meta>>>,
    /// Makes the row of a packet itself, if cores recover lost records from each other.
    own: Option<Ring<N>>,
    /// The metadata of the current packet.
    meta: Option<N::Meta>,
    /// A buffer for the verdicts of packets that take no step; unused.
    verdict: Verdict,
}

impl<N: NetworkFunction> Unpack<N> {
    /// If `recovery`, cores get the words that each packet carries, for links that recover lost records.
    pub(crate) fn new(nf: &Arc<N>, shape: Shape, seed: u64, recovery: bool) -> Self {
        let own = recovery.then(|| Ring::new(Arc::clone(nf), shape.cores()));
        let (nf, by_ports) = (Arc::clone(nf), nf.drops_fragments());
        Self { nf, by_ports, shape, seed, blocks: Vec::new(), own, meta: None, verdict: Verdict::forward() }
    }

    /// Copies each packet of `batch` to its core's share, and its history to the core's block. A [`SequencedPort`] must have checked the
    /// packets. The shares must be empty.
    pub(crate) fn split(&mut self, batch: &Batch, shares: &mut [CoreBatch<N::Meta>]) {
        for share in shares.iter_mut() {
            share.block = Some(self.free_block());
        }
        if let Some(own) = &mut self.own {
            lay_out(own, self.shape, batch, shares);
            // A core without packets must still learn how far the sequencer is.
            return self.blocks.extend(shares.iter().filter_map(|share| share.block.clone()));
        }
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            let carried =
                parse(packet.link, bytes, self.shape).expect("the queue lets none but sequenced packets through");
            let CoreBatch { batch, block, .. } = &mut shares[carried.core()];
            let block = block.as_mut().and_then(Arc::get_mut).expect("nobody else holds a free block");
            block.end = carried.seq.next();
            for (seq, row) in carried.history() {
                let (time, meta) = metadata_of(row).expect("the queue lets no other records through");
                let record = |meta: N::Meta| Record { seq, time, hash: hash_of::<N>(&meta.key(), self.seed), meta };
                block.records.extend(meta.map(record));
            }
            let packet = carried.packet();
            if classify(&*self.nf, self.by_ports, &packet, carried.bytes, &mut self.meta, &mut self.verdict) {
                let Packet { seq, time, .. } = packet;
                let record = |meta: N::Meta| Record { seq, time, hash: hash_of::<N>(&meta.key(), self.seed), meta };
                block.records.extend(self.meta.map(record));
            }
            batch.push(packet, carried.bytes);
        }
        for share in shares {
            self.blocks.extend(share.block.clone());
            // A core without packets gets no history.
            share.block.take_if(|_| share.batch.is_empty());
        }
    }

    fn free_block(&mut self) -> Arc<Block<N::Meta>> {
        let free = self.blocks.iter_mut().position(|block| Arc::get_mut(block).is_some());
        let mut block = free.map_or_else(Arc::default, |index| self.blocks.swap_remove(index));
        let inner = Arc::get_mut(&mut block).expect("nobody else holds a free block");
        inner.records.clear();
        inner.moves.clear();
        if self.own.is_some() {
            inner.carried.get_or_insert_default().clear();
        }
        block
    }
}

/// Copies each packet to its core's share, and the words that it carries, with its own last, to the core's block.
fn lay_out<N: NetworkFunction>(own: &mut Ring<N>, shape: Shape, batch: &Batch, shares: &mut [CoreBatch<N::Meta>]) {
    let width = words_of::<N::Meta>();
    let end = batch.packets().last().map_or(Seq(0), |packet| packet.seq.next());
    for index in 0..batch.len() {
        let (packet, bytes) = batch.packet(index);
        let carried = parse(packet.link, bytes, shape).expect("the queue lets none but sequenced packets through");
        let CoreBatch { batch, block, .. } = &mut shares[carried.core()];
        let block = block.as_mut().and_then(Arc::get_mut).expect("nobody else holds a free block");
        let words = block.carried.as_mut().expect("a free block has room for them");
        let mut add = |row: &[u8]| {
            let start = words.len();
            words.resize(start + width, 0);
            write_bytes(u64_at(row, 0), &row[TIME_BYTES..], &mut words[start..]);
        };
        carried.history().for_each(|(_, row)| add(row));
        add(own.row_of(&carried.packet(), carried.bytes));
        batch.push(carried.packet(), carried.bytes);
    }
    for share in shares {
        let block = share.block.as_mut().and_then(Arc::get_mut).expect("nobody else holds a free block");
        block.end = end;
    }
}

#[cfg(test)]
mod tests {
    use memory::Memory;
    use nf::{Context, Description, Opened, PacketSet, Plain, Sharing, Sizing, Step, Verdict};
    use packet::{Headers, Host, LinkType, Nanos};
    use port::{Fate, Packet};

    use super::*;
    use crate::history::carrier::{LINK, Outer, Sequencer};

    /// A function that forwards everything.
    struct Watch;

    impl NetworkFunction for Watch {
        type Meta = Host;
        type Flow = ();
        type Shared<M: Memory> = ();
        type Speed = Plain;

        const DESCRIPTION: Description = Description {
            name: "watch",
            summary: "forwards",
            state: "none",
            sharing: Sharing::Nothing,
            keys: &[],
            drop_reasons: &[],
            recipes: &[],
        };

        fn packet_set(&self) -> PacketSet {
            PacketSet::Source
        }

        fn sizing(&self) -> Sizing {
            Sizing { flows: 0, flows_v6: 0 }
        }

        fn shared<M: Memory>(&self, _: &M) {}

        fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
            headers.source()
        }

        fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
            Ok(Opened::Flow(()))
        }

        fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, (): &mut (), _: &Host) -> Step<Verdict, M> {
            Ok(Verdict::FORWARD)
        }
    }

    /// A UDP datagram from 10.0.0.`source` as packet number `seq`.
    fn packet(seq: u64, source: u8) -> (Packet, Vec<u8>) {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 192, 0, 2, 1];
        bytes.extend([0, 53, 0, 53, 0, 8, 0, 0]);
        let (seq, time, link, fate) = (Seq(seq), Nanos(seq), LinkType::RawIp, Fate::Pending);
        (Packet { seq, time, offset: 0, len: 28, wire_len: 28, interface: 0, link, bucket: 0, fate }, bytes)
    }

    /// A forged row is what the core replays: it knows other packets by their rows alone.
    #[test]
    fn a_core_learns_of_others_by_what_its_own_packets_carry() {
        let mut sequencer = Sequencer::new(Arc::new(Watch), 3, Outer::None);
        let (mut batch, mut frame) = (Batch::default(), Vec::new());
        for seq in 0..5 {
            let (packet, bytes) = packet(seq, 10 + seq as u8);
            sequencer.sequence(&packet, &bytes, &mut frame).expect("it is early");
            if seq == 4 {
                // Packet 2's row, the first of the ring: the last byte of the source's address.
                frame[8 + 4] = 99;
            }
            batch.push(Packet { link: LINK, ..packet }, &frame);
        }
        let mut shares: Vec<CoreBatch<Host>> = (0..3).map(|_| CoreBatch::default()).collect();
        Unpack::new(&Arc::new(Watch), sequencer.shape(), 0, false).split(&batch, &mut shares);
        let sources = |core: usize| {
            let block = shares[core].block.as_ref().expect("each has a packet");
            let one = |record: &Record<Host>| (record.seq.0, record.meta.address().to_string());
            (block.end.0, block.records.iter().map(one).collect::<Vec<_>>())
        };
        let named = |sources: &[(u64, u8)]| -> Vec<(u64, String)> {
            sources.iter().map(|(seq, source)| (*seq, format!("10.0.0.{source}"))).collect()
        };
        assert_eq!(sources(0), (4, named(&[(0, 10), (1, 11), (2, 12), (3, 13)])));
        assert_eq!(sources(1), (5, named(&[(0, 10), (1, 11), (2, 99), (3, 13), (4, 14)])));
        assert_eq!(sources(2), (3, named(&[(0, 10), (1, 11), (2, 12)])));
        let own = |core: usize| shares[core].batch.packets().iter().map(|packet| packet.seq.0).collect::<Vec<_>>();
        assert_eq!([own(0), own(1), own(2)], [vec![0, 3], vec![1, 4], vec![2]]);
        assert_eq!(shares[1].batch.bytes(1), packet(4, 14).1);
    }
}
