use super::*;
use packet::{Network, parse};

/// Frames of IPv4 and UDP, with right checksums, from 10.0.0.`number`.
fn udp(number: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 42 + payload];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 28 + payload as u8, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, number, 192, 168, 0, 1]);
    frame[34..40].copy_from_slice(&[1, number, 0, 53, 0, 8 + payload as u8]);
    frame[42..].fill(number);
    let checksum = sum(&frame[14..34], &[]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    let checksum = udp_sum(&frame);
    frame[40..42].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// The checksum, counted the naive way.
fn sum(bytes: &[u8], more: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(bytes) + words(more);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn udp_sum(frame: &[u8]) -> u16 {
    let mut pseudo = frame[26..34].to_vec();
    pseudo.extend_from_slice(&[0, 17, frame[38], frame[39]]);
    sum(&pseudo, &frame[34..])
}

fn trace(frames: impl IntoIterator<Item = Vec<u8>>) -> Arc<Trace> {
    let mut trace = Trace::new();
    for (number, frame) in frames.into_iter().enumerate() {
        let (seq, time, fate) = (Seq(number as u64), Nanos(1_000 + 100 * number as u64), Fate::Pending);
        let wire_len = frame.len() as u32;
        let packet =
            Packet { seq, time, offset: 0, len: 0, wire_len, interface: 3, link: LinkType::Ethernet, bucket: 0, fate };
        trace.push(packet, &frame);
    }
    Arc::new(trace)
}

/// All that a queue delivers, each packet sent on and, once it was kept, overwritten.
fn drain(queue: &mut dyn Queue) -> Vec<(Packet, Vec<u8>)> {
    let mut batch = Batch::default();
    let mut all = Vec::new();
    while queue.receive(&mut batch).expect("memory is there") == Received::Packets {
        assert!((1..=BURST).contains(&batch.len()));
        for index in 0..batch.len() {
            all.push((batch.packets()[index], batch.bytes(index).to_vec()));
            batch.bytes_mut(index).fill(0xee);
            batch.packets_mut()[index].fate = Fate::Transmit(0);
        }
        queue.transmit(&mut batch).expect("memory is there");
    }
    all
}

#[test]
fn loops_follow_each_other() {
    let frames: Vec<_> = (0..70).map(|number| udp(number, usize::from(number) * 2)).collect();
    let mut replay = Replay::new(trace(frames.clone())).looped(Loops::Times(3));
    assert_eq!(replay.span(), Nanos(7_000));
    let all = drain(&mut *replay.queues(1)[0]);
    assert_eq!(all.len(), 210);
    for (number, (packet, bytes)) in all.iter().enumerate() {
        assert_eq!(packet.seq.0, number as u64);
        assert_eq!(packet.time.0, 1_000 + 100 * number as u64);
        assert_eq!((packet.interface, packet.len as usize), (3, frames[number % 70].len()));
        assert_eq!(bytes, &frames[number % 70]);
    }
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(replay.sent(), [(210, 3 * bytes as u64)]);
    let again = drain(&mut *replay.queues(1)[0]);
    assert_eq!(again.len(), 210, "a port opens again");
}

#[test]
fn queues_share_a_trace() {
    let trace = trace((0..100).map(|number| udp(number, 0)));
    let mut replay = Replay::new(Arc::clone(&trace)).looped(Loops::Times(2));
    let seqs =
        |queue: &mut Box<dyn Queue>| drain(&mut **queue).iter().map(|(packet, _)| packet.seq.0).collect::<Vec<_>>();
    let in_turn: Vec<_> = replay.queues(3).iter_mut().map(seqs).collect();
    let place = |seq: u64| (seq % 100) % 3;
    for (core, seqs) in in_turn.iter().enumerate() {
        assert_eq!(*seqs, (0..200).filter(|seq| place(*seq) == core as u64).collect::<Vec<_>>());
    }
    let mut steered = Replay::new(trace).steered((0..100).map(|index| u16::from(index < 10)).collect());
    let mut queues = steered.queues(3);
    assert_eq!(seqs(&mut queues[1]), (0..10).collect::<Vec<_>>());
    assert_eq!(seqs(&mut queues[2]), []);
}

#[test]
fn a_stop_ends_it() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut replay = Replay::new(trace([udp(1, 0)])).looped(Loops::UntilStopped).stopped_by(Arc::clone(&stop));
    let mut queue = replay.queues(1).remove(0);
    let mut batch = Batch::default();
    for _ in 0..1000 {
        assert!(matches!(queue.receive(&mut batch), Ok(Received::Packets)));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(queue.receive(&mut batch), Ok(Received::End)));
    assert!(batch.is_empty());
}

#[test]
fn nothing_to_replay() {
    for loops in [Loops::Times(5), Loops::UntilStopped] {
        let mut replay = Replay::new(Arc::default()).looped(loops);
        assert!(drain(&mut *replay.queues(1)[0]).is_empty());
    }
    let mut never = Replay::new(trace([udp(1, 0)])).looped(Loops::Times(0));
    assert!(drain(&mut *never.queues(1)[0]).is_empty());
}

#[test]
fn addresses_change_and_checksums_hold() {
    let frames: Vec<_> = (0..40).map(|number| udp(number, usize::from(number))).collect();
    let mut replay = Replay::new(trace(frames.clone())).looped(Loops::Times(300)).renumbered(Renumber::default());
    let all = drain(&mut *replay.queues(1)[0]);
    let mut flows = std::collections::HashSet::new();
    for (number, (packet, bytes)) in all.iter().enumerate() {
        if number < 40 {
            assert_eq!(*bytes, frames[number]);
        }
        assert_eq!(sum(&bytes[14..34], &[]), 0);
        assert_eq!(udp_sum(bytes), 0);
        let headers = parse(packet.link, bytes, packet.wire_len, 0).expect("a good frame");
        let Network::V4(ip) = headers.network else { panic!("IPv4") };
        assert_eq!((ip.src.octets()[..2].to_vec(), ip.dst.octets()[..2].to_vec()), (vec![10, 0], vec![192, 168]));
        assert_eq!(bytes[42..], frames[number % 40][42..]);
        flows.insert((ip.src, ip.dst, headers.ports()));
    }
    assert_eq!(flows.len(), 40 * 300, "no flow of one loop is one of another");
}

#[test]
fn absent_udp_checksums_stay_absent_and_wrong_ones_wrong() {
    let mut absent = udp(1, 4);
    absent[40..42].fill(0);
    let mut wrong = udp(2, 4);
    wrong[41] ^= 1;
    let mut cut = udp(3, 4);
    cut.truncate(41);
    let mut replay = Replay::new(trace([absent, wrong, cut])).looped(Loops::Times(2)).renumbered(Renumber::new(8));
    let all = drain(&mut *replay.queues(1)[0]);
    assert_eq!(all[3].1[40..42], [0, 0]);
    assert_ne!(udp_sum(&all[4].1), 0);
    assert_eq!(sum(&all[5].1[14..34], &[]), 0);
}

#[test]
fn long_packets_come_too() {
    let long = vec![7u8; 200_000];
    let mut replay = Replay::new(trace([udp(1, 0), long.clone(), vec![], udp(2, 0)]));
    let all = drain(&mut *replay.queues(1)[0]);
    assert_eq!(all.iter().map(|(packet, _)| packet.len).collect::<Vec<_>>(), [42, 200_000, 0, 42]);
    assert_eq!(all[1].1, long);
}

#[test]
fn the_kernel_tells_of_huge_pages() {
    let mut replay = Replay::new(trace((0..200).map(|_| vec![1; 60_000])));
    drop(replay.open(1));
    let pages = replay.huge_pages();
    assert_eq!(pages.bytes, (200usize * 60_032).next_multiple_of(2 << 20));
    assert!(pages.huge_bytes <= pages.bytes);
}
