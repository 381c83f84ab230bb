//! Blocks as the kernel writes them, and blocks that contradict themselves.

use super::*;

/// A block with packets of these lengths, as the kernel lays them out.
fn filled(len: usize, packets: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0_u8; len];
    let start = 48;
    put(&mut bytes, FIRST + offset_of!(tpacket_hdr_v1, num_pkts), packets.len() as u32);
    put(&mut bytes, FIRST + offset_of!(tpacket_hdr_v1, offset_to_first_pkt), start as u32);
    let mut at = start;
    for (number, packet) in packets.iter().enumerate() {
        let mac = 86;
        let step = (mac + packet).next_multiple_of(16);
        let is_last = number + 1 == packets.len();
        put(&mut bytes, at + offset_of!(tpacket3_hdr, tp_next_offset), if is_last { 0 } else { step as u32 });
        put(&mut bytes, at + offset_of!(tpacket3_hdr, tp_snaplen), *packet as u32);
        put(&mut bytes, at + offset_of!(tpacket3_hdr, tp_len), *packet as u32 + 1);
        put(&mut bytes, at + offset_of!(tpacket3_hdr, tp_sec), 2);
        put(&mut bytes, at + offset_of!(tpacket3_hdr, tp_nsec), number as u32);
        bytes[at + offset_of!(tpacket3_hdr, tp_mac)] = mac as u8;
        bytes[at + mac..][..*packet].fill(number as u8 + 1);
        at += step;
    }
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn block(bytes: &mut [u8]) -> Block<'_> {
    // SAFETY: the memory is borrowed for as long as the block.
    unsafe { Block::new(NonNull::from(bytes)) }
}

/// All packets up to the end or the first contradiction.
fn walk(block: Block<'_>) -> (Vec<Frame>, bool) {
    let mut frames = Vec::new();
    let mut step = block.first();
    loop {
        let Ok(cursor) = step else { return (frames, false) };
        let frame = match block.frame(cursor) {
            Ok(Some(frame)) => frame,
            Ok(None) => return (frames, true),
            Err(Malformed) => return (frames, false),
        };
        frames.push(frame);
        step = block.next(cursor, frame);
    }
}

#[test]
fn packets_are_found_one_behind_the_other() {
    let mut bytes = filled(2048, &[60, 0, 100, 61]);
    let (frames, is_whole) = walk(block(&mut bytes));
    assert!(is_whole);
    assert_eq!(frames.iter().map(|frame| frame.len).collect::<Vec<_>>(), [60, 0, 100, 61]);
    for (number, frame) in frames.iter().enumerate() {
        assert!(bytes[frame.offset..][..frame.len].iter().all(|byte| *byte == number as u8 + 1));
        assert_eq!((frame.time, frame.wire_len as usize), (2_000_000_000 + number as u64, frame.len + 1));
        assert!(frame.tag.is_none() && !frame.lacks_checksum);
    }
}

#[test]
fn an_empty_block_has_no_packets() {
    assert_eq!(walk(block(&mut filled(64, &[]))), (Vec::new(), true));
}

#[test]
fn a_short_block_is_malformed_wherever_it_ends() {
    let whole = filled(2048, &[60, 100, 61]);
    let end = walk(block(&mut whole.clone())).0.last().map(|frame| frame.offset + frame.len).expect("it has packets");
    for len in 0..end {
        let (frames, is_whole) = walk(block(&mut whole[..len].to_vec()));
        assert!(!is_whole && frames.len() < 3 && frames.iter().all(|frame| frame.offset + frame.len <= len), "{len}");
    }
}

#[test]
fn wrong_numbers_never_lead_outside_or_in_a_circle() {
    let whole = filled(1024, &[60, 100, 61]);
    // Every header word, with values around every limit.
    for at in (0..400).step_by(4) {
        for value in [0, 1, 4, 47, 67, 71, 1023, 1024, 0xffff, 0x7fff_ffff, u32::MAX - 3, u32::MAX] {
            let mut bytes = whole.clone();
            put(&mut bytes, at, value);
            let (frames, _) = walk(block(&mut bytes));
            assert!(frames.iter().all(|frame| frame.offset + frame.len <= bytes.len()), "{value} at {at}");
            // Each lies behind the one before, with a header between them, so that there are as many as fit, whatever the count says.
            let is_behind = |pair: &[Frame]| pair[0].offset + pair[0].len + HEADER_LEN <= pair[1].offset;
            assert!(frames.windows(2).all(is_behind), "{value} at {at}: {frames:?}");
        }
    }
}

#[test]
fn a_tag_goes_back_between_addresses_and_protocol() {
    let mut bytes = filled(1024, &[60]);
    let header = 48;
    put(
        &mut bytes,
        header + offset_of!(tpacket3_hdr, tp_status),
        libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID,
    );
    put(&mut bytes, header + VARIANT + offset_of!(tpacket_hdr_variant1, tp_vlan_tci), 0x6123);
    bytes[header + VARIANT + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid)..][..2]
        .copy_from_slice(&0x88a8_u16.to_ne_bytes());
    let original: Vec<u8> = (0..60).collect();
    let block = {
        let at = walk(block(&mut bytes)).0[0].offset;
        bytes[at..][..60].copy_from_slice(&original);
        block(&mut bytes)
    };
    let frame = walk(block).0[0];
    assert_eq!(frame.tag, Some([0x88, 0xa8, 0x61, 0x23]));
    // SAFETY: the frame is the block's, and nobody else has the memory.
    let tagged = unsafe { block.restore_tag(frame, frame.tag.expect("it has one")) };
    assert_eq!((tagged.len, tagged.wire_len, tagged.tag), (64, 65, None));
    let expected = [&original[..12], &[0x88, 0xa8, 0x61, 0x23], &original[12..]].concat();
    assert_eq!(bytes[tagged.offset..][..tagged.len], expected);
}
