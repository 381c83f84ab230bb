//! Check of IP defragmentation: any packets are gathered, or dropped for a reason, in bounded memory; what was gathered is a whole packet,
//! and cut and gathered again it is the same.

use l7::defrag::{Defragmenter, Limits, Policy, Taken, cut};
use packet::{Fragment, LinkType, Network};
use port::Packet;

use super::functions::decode;

/// Small limits, so that a few packets reach them.
const SMALL: Limits = Limits {
    bytes: 8 << 10,
    fragments: 12,
    datagrams: 5,
    source_datagrams: 4,
    datagram_fragments: 6,
    timeout_v4: packet::Nanos::from_secs(30),
    timeout_v6: packet::Nanos::from_secs(60),
};

/// Room for any datagram that fits in an input.
const LARGE: Limits = Limits { bytes: 256 << 10, fragments: 256, datagram_fragments: 256, datagrams: 64, ..SMALL };

/// Reads the input as a policy and limits, in a byte, and packets in the form of [`functions`](super::functions()).
pub fn defrag(bytes: &[u8]) {
    let Some((choice, packets)) = bytes.split_first() else { return };
    let policy = Policy::ALL[usize::from(choice & 0x7f) % Policy::ALL.len()];
    let limits = if choice & 0x80 == 0 { LARGE } else { SMALL };
    let trace = decode(packets);
    let mut store = Defragmenter::new(policy, limits);
    for (packet, bytes) in trace.iter() {
        let before = *store.counts();
        match store.take(packet, bytes) {
            Taken::Whole => assert_eq!(*store.counts(), before),
            Taken::Held(reason) => {
                let now = store.counts();
                assert_eq!(now.fragments, before.fragments + 1);
                assert!(reason.is_none_or(|reason| now.dropped_for(reason) > before.dropped_for(reason)));
            }
            Taken::Gathered(frame, words) => again(packet, frame, words),
        }
        assert!(store.bytes() <= limits.bytes && store.datagrams() <= limits.datagrams);
    }
    store.end();
    let counts = store.counts();
    assert_eq!((store.bytes(), store.datagrams()), (0, 0));
    assert_eq!(counts.fragments, counts.gathered + counts.dropped_total());
}

/// Checks a gathered frame.
fn again(packet: &Packet, frame: &[u8], words: &[u16]) {
    let link: LinkType = packet.link;
    let wire_len = frame.len() as u32;
    let headers = packet::parse_what_is_whole(link, frame, wire_len, 0);
    let headers = headers.expect("the link header is that of a fragment");
    assert_eq!(headers.fragment, Fragment::Whole);
    let mut store = Defragmenter::new(Policy::Linux, LARGE);
    let (mut same, mut sent) = (false, 0);
    let is_cut = cut(link, frame, words, &mut Vec::new(), |fragment| {
        sent += 1;
        assert!(!same, "not before the last");
        let packet = Packet { wire_len: fragment.len() as u32, len: fragment.len() as u32, ..*packet };
        if let Taken::Gathered(gathered, gathered_words) = store.take(&packet, fragment) {
            assert_eq!((gathered, gathered_words), (frame, words));
            same = true;
        }
    });
    // Behind an IPv6 fragment header there may be anything.
    assert!(is_cut || !matches!(headers.network, Network::V4(_) | Network::V6(_)));
    assert!(same || sent < 2);
}
