//! What became of one fragment of a trace: [`follow`].

use packet::Seq;
use port::Trace;

use super::piece::Piece;
use super::{Defragmenter, Discard, Limits, Policy, Taken};

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It is in the datagram that the fragment with this number completed.
    Gathered(Seq),
    /// It was dropped.
    Dropped(Discard),
}

/// Follows the fragment with this number to the end of its datagram. `None` if the packet is no fragment, or not in the trace.
#[must_use]
pub fn follow(trace: &Trace, policy: Policy, limits: Limits, seq: Seq) -> Option<Followed> {
    let mut store = Defragmenter::new(policy, limits);
    // The datagram of the fragment, and when it is given up.
    let mut followed = None;
    for (packet, bytes) in trace.iter() {
        let piece = Piece::read(packet, bytes);
        let Some((key, deadline)) = followed else {
            let taken = store.take(packet, bytes);
            if packet.seq != seq {
                continue;
            }
            match taken {
                Taken::Whole => return None,
                Taken::Held(Some(reason)) => return Some(Followed::Dropped(reason)),
                Taken::Gathered(..) => return Some(Followed::Gathered(seq)),
                Taken::Held(None) => {}
            }
            let key = piece?.key;
            followed = Some((key, store.deadline(&key)?));
            continue;
        };
        let Some(piece) = piece else { continue };
        if deadline <= packet.time {
            return Some(Followed::Dropped(Discard::Timeout));
        }
        let (is_whole, reason) = match store.take(packet, bytes) {
            Taken::Gathered(..) => (true, None),
            Taken::Held(reason) => (false, reason),
            Taken::Whole => continue,
        };
        if piece.key != key || store.deadline(&key).is_some() {
            continue;
        }
        return match (is_whole, reason) {
            (true, _) => Some(Followed::Gathered(packet.seq)),
            (false, reason) => reason.map(Followed::Dropped),
        };
    }
    followed.map(|_| Followed::Dropped(Discard::Incomplete))
}
