//! Batches against a list of frames.

use locality::loan::Pool;
use memmap2::MmapMut;
use proptest::collection::vec;
use proptest::prelude::*;

use ::packet::{LinkType, Seq};

use super::*;

const PACKET: Packet = Packet {
    seq: Seq(0),
    time: Nanos(0),
    offset: 0,
    len: 0,
    wire_len: 0,
    interface: 0,
    link: LinkType::Ethernet,
    bucket: 0,
    fate: Fate::Pending,
};

/// What is done to a batch; packets are taken modulo how many there are.
#[derive(Clone, Debug)]
enum Op {
    Write(usize, u8),
    Replace(usize, Vec<u8>),
    Push(Vec<u8>),
    Retain(usize),
    Truncate(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let frame = || vec(any::<u8>(), 0..100);
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, with)| Op::Write(at, with)),
        (any::<usize>(), frame()).prop_map(|(at, frame)| Op::Replace(at, frame)),
        frame().prop_map(Op::Push),
        (2..5usize).prop_map(Op::Retain),
        (0..40usize).prop_map(Op::Truncate),
    ]
}

/// Where a batch's bytes lie.
#[derive(Clone, Copy, Debug)]
enum Lies {
    Own,
    /// Lent to be read, behind so many other bytes.
    Behind(usize),
    /// In buffers, with so many bytes between the packets.
    Buffers(usize),
}

fn lies() -> impl Strategy<Value = Lies> {
    prop_oneof![Just(Lies::Own), (0..100usize).prop_map(Lies::Behind), (0..100usize).prop_map(Lies::Buffers)]
}

/// Has the batch begin with these frames; what is lent to be read is put into `arenas`.
fn fill(batch: &mut Batch, frames: &[Vec<u8>], lies: Lies, arenas: &mut Vec<Arc<Block>>, pool: &Arc<Pool>) {
    let (mut at, between, packets) = match lies {
        Lies::Own => {
            batch.clear();
            frames.iter().for_each(|frame| batch.push(PACKET, frame));
            return;
        }
        Lies::Behind(start) => {
            let bytes = frames.concat();
            let mut arena = MmapMut::map_anon(start + bytes.len() + 1).expect("memory is there");
            arena[start..start + bytes.len()].copy_from_slice(&bytes);
            let arena = Arc::new(Block::Mapped(arena.make_read_only().expect("memory is there")));
            arenas.push(Arc::clone(&arena));
            (0, 0, batch.lend(&arena, start, bytes.len(), 64))
        }
        Lies::Buffers(between) => {
            batch.clear();
            let mut loan = pool.lend().expect("it came back");
            let mut start = between;
            for frame in frames {
                loan.part_mut(start, frame.len()).copy_from_slice(frame);
                start += frame.len() + between;
            }
            (between, between, batch.lend_buffers(loan))
        }
    };
    packets.clear();
    for frame in frames {
        packets.push(Packet { offset: at as u32, len: frame.len() as u32, ..PACKET });
        at += frame.len() + between;
    }
}

proptest! {
    /// A batch is a list of frames, whoever's memory they lie in, and what was lent stays as it is.
    #[test]
    fn a_batch_does_as_a_list_does(
        rounds in vec((vec(vec(any::<u8>(), 0..80), 0..20), lies(), vec(op(), 0..30)), 1..4),
    ) {
        let pool = Pool::new(1, 4096);
        let mut block = Arc::new(Block::Filled(Vec::new()));
        let mut batch = Batch::default();
        let mut beside = [Batch::default(), Batch::default()];
        let mut arenas = Vec::new();
        for (frames, lies, ops) in rounds {
            fill(&mut batch, &frames, lies, &mut arenas, &pool);
            prop_assert_eq!(pool.lent(), usize::from(matches!(lies, Lies::Buffers(_))));
            let before: Vec<Vec<u8>> = arenas.iter().flat_map(|arena| arena.bytes()).map(<[u8]>::to_vec).collect();
            let mut naive = frames;
            for op in ops {
                match op {
                    Op::Write(at, with) if !naive.is_empty() => {
                        let at = at % naive.len();
                        naive[at].fill(with);
                        let was_in_place = batch.is_in_place(at);
                        batch.bytes_mut(at).fill(with);
                        prop_assert_eq!(batch.is_in_place(at), was_in_place && matches!(lies, Lies::Buffers(_)));
                    }
                    Op::Replace(at, frame) if !naive.is_empty() => {
                        let at = at % naive.len();
                        batch.replace(at, &frame);
                        naive[at] = frame;
                    }
                    Op::Write(..) | Op::Replace(..) => {}
                    Op::Push(frame) => {
                        batch.push(PACKET, &frame);
                        naive.push(frame);
                    }
                    Op::Retain(every) => {
                        let (mut one, mut other) = (0, 0);
                        batch.retain(|_| { one += 1; one % every != 0 });
                        naive.retain(|_| { other += 1; other % every != 0 });
                    }
                    Op::Truncate(len) => {
                        batch.truncate(len);
                        naive.truncate(len);
                    }
                }
                prop_assert_eq!(batch.len(), naive.len());
                for (at, frame) in naive.iter().enumerate() {
                    prop_assert_eq!(batch.bytes(at), frame);
                }
            }
            // Split into two, which are then written to.
            batch.share(&mut block);
            beside.iter_mut().for_each(|part| part.clear_beside(&batch, 0));
            for at in 0..naive.len() {
                beside[at % 2].push_of(&batch, at, 7);
            }
            for (at, frame) in naive.iter().enumerate() {
                let part = &mut beside[at % 2];
                prop_assert_eq!((part.bytes(at / 2), part.packets()[at / 2].bucket), (&frame[..], 7));
                part.bytes_mut(at / 2).fill(!frame.first().copied().unwrap_or_default());
            }
            // And gathered again: what lies apart from all that was lent is copied.
            let (mut apart, mut gathered) = (Batch::default(), Batch::default());
            gathered.clear_beside(&batch, 0);
            for at in 0..naive.len() {
                apart.push_of(&batch, at, 0);
                gathered.push_of(&batch, at, 0);
                gathered.push_of(&apart, at, 0);
            }
            for (at, frame) in naive.iter().enumerate() {
                prop_assert_eq!(batch.bytes(at), frame);
                prop_assert_eq!([gathered.bytes(2 * at), gathered.bytes(2 * at + 1)], [frame, frame]);
            }
            gathered.clear();
            // Settled where they were read.
            for (at, frame) in naive.iter().enumerate() {
                batch.put_back(at, &beside[at % 2], at / 2);
                let written = vec![!frame.first().copied().unwrap_or_default(); frame.len()];
                prop_assert_eq!((batch.bytes(at), batch.packets()[at].bucket), (&written[..], 7));
            }
            batch.unshare(&mut block);
            beside.iter_mut().for_each(Batch::clear);
            batch.unshare(&mut block);
            prop_assert_eq!(pool.lent(), 0);
            for (arena, before) in arenas.iter().zip(before) {
                prop_assert_eq!(arena.bytes(), Some(&before[..]));
            }
        }
    }
}
