//! Check of payload splitting: a header that comes back unchanged gives its packet, byte for byte, or nothing; whatever else comes back,
//! the counts balance.

use packet::LinkType;
use split::{Joined, KEEP_MIN, Options, Park, Secret, Split, Store, TAG_BYTES};

/// Most bytes of a frame.
const FRAME_MAX: usize = 2_400;

/// A packet that was split.
struct Sent {
    whole: Vec<u8>,
    /// What went to the function, with the tag.
    head: Vec<u8>,
    is_split: bool,
}

/// Reads the input as options of a split in four bytes, and then as operations: a byte that says which, two with numbers, and for those
/// with a frame of their own as many bytes as these say.
pub fn split(bytes: &[u8]) {
    let Some((&[keep, slots, rounds, flags], mut rest)) = bytes.split_first_chunk::<4>() else { return };
    let (keep, slots) = (KEEP_MIN + usize::from(keep), 1 + u32::from(slots & 15));
    let shorten = flags & 1 != 0;
    let link = if flags & 2 == 0 { LinkType::Ethernet } else { LinkType::RawIp };
    let options = Options { keep, slots, rounds: 1 + (rounds & 3), shorten, secret: Secret(7) };
    let mut park = Park::new(options, Store::local(slots));
    let (mut sent, mut whole) = (Vec::<Sent>::new(), Vec::new());
    while let Some((&[operation, low, high], behind)) = rest.split_first_chunk::<3>() {
        rest = behind;
        let number = usize::from(low);
        match operation % 5 {
            operation @ (0 | 1) => {
                let len = usize::from(u16::from_le_bytes([low, high])).min(FRAME_MAX).min(rest.len());
                let (frame, behind) = rest.split_at(len);
                rest = behind;
                if operation == 0 {
                    sent.push(divide(&mut park, link, frame));
                } else {
                    let joined = park.join(link, frame, &mut whole);
                    assert!(joined != Joined::Whole || whole.len() + TAG_BYTES >= frame.len());
                }
            }
            2 => {
                if let Some(one) = pick(&sent, number) {
                    park.ask(&one.head);
                    match park.join(link, &one.head, &mut whole) {
                        Joined::Whole => assert!(one.is_split && whole == one.whole, "another packet came out"),
                        Joined::Plain => assert!(!one.is_split && one.head == one.whole),
                        Joined::Gone => assert!(one.is_split),
                    }
                }
            }
            3 => {
                if let Some(one) = pick(&sent, number) {
                    let mut head = one.head.clone();
                    let at = usize::from(high) % head.len().max(1);
                    if let Some(byte) = head.get_mut(at) {
                        *byte ^= 1 | low;
                    }
                    let joined = park.join(link, &head, &mut whole);
                    let cut = head.len().saturating_sub(TAG_BYTES);
                    if joined == Joined::Whole && !shorten && at < cut {
                        assert!(whole.len() == one.whole.len() && whole[cut..] == one.whole[cut..]);
                    }
                }
            }
            _ => {
                if let Some(one) = pick(&sent, number) {
                    park.release(&one.head);
                }
            }
        }
        assert!(park.counts().balance(), "{:?}", park.counts());
    }
}

fn pick(sent: &[Sent], number: usize) -> Option<&Sent> {
    sent.get(number % sent.len().max(1))
}

fn divide(park: &mut Park, link: LinkType, frame: &[u8]) -> Sent {
    let whole = frame.to_vec();
    let mut head = frame.to_vec();
    let split = park.split(link, whole.len() as u32, &mut head);
    if let Split::Head { len, tag } = split {
        head.truncate(len);
        head.extend(tag);
    }
    let is_split = split != Split::Whole;
    assert!(is_split || head == whole);
    Sent { whole, head, is_split }
}
