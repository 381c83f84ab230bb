//! What is kept of a UDP session between its datagrams.

use crate::answer::{Answer, Confidence, How, Identified, Protocol, Side};
use crate::bytes::Bytes;
use crate::protocol;

/// Datagrams with payload after which a session is given up.
const DATAGRAMS_MAX: u8 = 12;

/// Datagrams in sequence that make a stream of RTP.
const RTP_RUN: u8 = 3;

/// What earlier datagrams of a UDP session tell. Begin with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramState {
    rtp: [RtpRun; 2],
    utp: [UtpEnd; 2],
    /// A protocol that needs several datagrams, how many fitted, and the side of the first.
    pending: Option<(Protocol, u8, Side)>,
    answer: Option<Identified>,
    gave_up: bool,
    seen: u8,
}

/// RTP of one side: datagrams of one source with rising numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RtpRun {
    source: u32,
    number: u16,
    run: u8,
}

/// The last header of uTP that one side sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UtpEnd {
    connection: u16,
    seen: bool,
}

impl DatagramState {
    /// Returns the final answer, if there is one.
    pub(crate) const fn settled(&self) -> Option<Answer> {
        match self.answer {
            Some(identified) => Some(Answer::Is(identified)),
            None if self.gave_up => Some(Answer::Unknown),
            None => None,
        }
    }

    /// Keeps the answer if it is final.
    pub(crate) const fn settle(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Is(identified) => self.answer = Some(identified),
            Answer::Unknown => self.gave_up = true,
            Answer::More => {}
        }
        answer
    }

    /// Takes the next datagram, with what single datagrams tell of it.
    pub(crate) fn advance(&mut self, found: Option<(Identified, u8)>, side: Side, bytes: &Bytes<'_>) -> Answer {
        self.seen = self.seen.saturating_add(1);
        if let Some((identified, repeats)) = found {
            let (count, first) = match self.pending {
                Some((protocol, count, first)) if protocol == identified.protocol => (count.saturating_add(1), first),
                _ => (1, side),
            };
            if identified.protocol == protocol::LLMNR && repeats > 1 && first != side {
                // Question and answer in one session: the question went to one host.
                let (protocol, confidence) = (protocol::DNS, Confidence::Likely);
                return Answer::Is(Identified { protocol, confidence, how: How::Datagrams });
            }
            if count >= repeats {
                let how = if repeats > 1 { How::Datagrams } else { identified.how };
                return Answer::Is(Identified { how, ..identified });
            }
            self.pending = Some((identified.protocol, count, first));
        }
        let several =
            |protocol| Answer::Is(Identified { protocol, confidence: Confidence::Likely, how: How::Datagrams });
        if self.rtp[side as usize].next(bytes) >= RTP_RUN {
            return several(protocol::RTP);
        }
        if self.is_utp(side, bytes) {
            return several(protocol::BITTORRENT);
        }
        if self.seen >= DATAGRAMS_MAX { self.end() } else { Answer::More }
    }

    /// Returns the answer if no datagram follows.
    pub(crate) fn end(&self) -> Answer {
        let guess = |protocol| Answer::Is(Identified { protocol, confidence: Confidence::Guess, how: How::Datagrams });
        match self.pending {
            _ if self.rtp.iter().any(|run| run.run == RTP_RUN - 1) => guess(protocol::RTP),
            Some((protocol, ..)) => guess(protocol),
            None => Answer::Unknown,
        }
    }

    /// Returns true if both sides sent headers of uTP (BEP 29) for one connection.
    fn is_utp(&mut self, side: Side, bytes: &Bytes<'_>) -> bool {
        let (Ok([kind, extension]), Ok(connection)) = (bytes.array(0), bytes.be16(2)) else { return false };
        let is_header = kind & 0xf == 1 && kind >> 4 <= 4 && extension <= 2 && bytes.datagram_len() >= 20;
        self.utp[side as usize] = UtpEnd { connection, seen: is_header };
        let [one, other] = self.utp;
        // One side sends the number that the other opened with, the other the number above. Both are equal at the opening.
        one.seen && other.seen && one.connection != 0 && one.connection.abs_diff(other.connection) <= 1
    }
}

impl RtpRun {
    /// Takes the side's next datagram (RFC 3550, section 5.1). Returns how many follow each other.
    fn next(&mut self, bytes: &Bytes<'_>) -> u8 {
        let (Ok([first, kind]), Ok(number), Ok(source)) = (bytes.array(0), bytes.be16(2), bytes.be32(8)) else {
            *self = Self::default();
            return 0;
        };
        let header = 12 + 4 * usize::from(first & 0xf);
        let is_kind = matches!(kind & 0x7f, 0..=34 | 96..=127);
        if first >> 6 != 2 || !is_kind || source == 0 || bytes.datagram_len() <= header {
            *self = Self::default();
            return 0;
        }
        let step = number.wrapping_sub(self.number);
        let follows = self.run > 0 && source == self.source && matches!(step, 1..=16);
        self.run = if follows { self.run + 1 } else { 1 };
        (self.source, self.number) = (source, number);
        self.run
    }
}
