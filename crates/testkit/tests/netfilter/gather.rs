//! Fragments on our side: gathered in front of a function, and cut again behind it, as a port does.

use l7::defrag::{Defragmenter, Limits, Policy, Taken, cut};
use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet};

/// The fragments that have come so far.
pub(crate) struct Gatherer(Defragmenter);

/// A packet for the function, and what is needed to cut it again if it was gathered.
pub(crate) struct Whole {
    pub(crate) frame: Vec<u8>,
    words: Option<Vec<u16>>,
}

impl Gatherer {
    pub(crate) fn new() -> Self {
        Self(Defragmenter::new(Policy::Linux, Limits::default()))
    }

    /// Takes an Ethernet frame. `None` if its datagram is not whole.
    pub(crate) fn take(&mut self, time: Nanos, frame: Vec<u8>) -> Option<Whole> {
        let packet = Packet {
            seq: Seq(0),
            time,
            offset: 0,
            len: frame.len() as u32,
            wire_len: frame.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        match self.0.take(&packet, &frame) {
            Taken::Whole => Some(Whole::new(frame)),
            Taken::Held(_) => None,
            Taken::Gathered(frame, words) => Some(Whole { frame: frame.to_vec(), words: Some(words.to_vec()) }),
        }
    }
}

impl Whole {
    /// A packet that was not in fragments.
    pub(crate) const fn new(frame: Vec<u8>) -> Self {
        Self { frame, words: None }
    }

    /// The IP packets that leave.
    pub(crate) fn leave(self) -> Vec<Vec<u8>> {
        const LINK: usize = 14;
        let mut packets = Vec::new();
        let emit = |frame: &[u8]| packets.push(frame[LINK..].to_vec());
        let is_cut =
            self.words.is_some_and(|words| cut(LinkType::Ethernet, &self.frame, &words, &mut Vec::new(), emit));
        if is_cut { packets } else { vec![self.frame[LINK..].to_vec()] }
    }
}
