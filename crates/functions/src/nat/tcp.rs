//! The TCP phase of a session: tells an established connection from one that is opening or closing. It follows the session states of
//! RFC 6146 section 3.5.2.2, which RFC 7857 adopts for IPv4, without sequence numbers.

use packet::TcpFlags;

/// The side of the translator that sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Inside,
    Outside,
}

/// The flags seen on a connection: SYN, ACK, FIN and RST, one bit for each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Phase(u8);

const SYN: u8 = 0b0000_0001;
const ACK: u8 = 0b0000_0100;
const FIN: u8 = 0b0001_0000;
const RST: u8 = 0b0100_0000;

/// Returns the bits of both sides.
const fn both(bit: u8) -> u8 {
    bit | bit << 1
}

impl Side {
    const fn bit(self, bit: u8) -> u8 {
        match self {
            Self::Inside => bit,
            Self::Outside => bit << 1,
        }
    }
}

impl Phase {
    /// The phase of other protocols.
    pub(super) const NONE: Self = Self(0);

    /// The phase of a connection that this side opens with a SYN.
    pub(super) const fn opened_by(side: Side) -> Self {
        Self(side.bit(SYN))
    }

    /// The phase of a connection that existed before the translator, after this side's segment: both sides have sent a SYN.
    pub(super) fn picked_up(side: Side, flags: TcpFlags) -> Self {
        Self(both(SYN)).next(side, flags)
    }

    /// Returns the phase after a segment.
    pub(super) fn next(self, side: Side, flags: TcpFlags) -> Self {
        if flags.contains(TcpFlags::RST) {
            return Self(self.0 | side.bit(RST));
        }
        if opens(flags) && self.is_over() {
            return Self::opened_by(side);
        }
        // A side that reset the connection sends nothing more on it, so the reset was forged.
        let mut bits = self.0 & !side.bit(RST);
        for (flag, bit) in [(TcpFlags::SYN, SYN), (TcpFlags::ACK, ACK), (TcpFlags::FIN, FIN)] {
            if flags.contains(flag) {
                bits |= side.bit(bit);
            }
        }
        Self(bits)
    }

    /// Returns true if both sides have opened the connection and not both have closed it. After one FIN the other side may still send.
    pub(super) const fn is_established(self) -> bool {
        self.0 & both(SYN | ACK) == both(SYN | ACK) && !self.is_over()
    }

    const fn is_over(self) -> bool {
        self.0 & both(FIN) == both(FIN) || self.0 & both(RST) != 0
    }

    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// Decodes [`bits`](Self::bits).
    pub(super) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// Returns true if the segment opens a connection.
pub(super) fn opens(flags: TcpFlags) -> bool {
    flags.contains(TcpFlags::SYN) && flags.0 & (TcpFlags::ACK.0 | TcpFlags::RST.0 | TcpFlags::FIN.0) == 0
}

#[cfg(test)]
mod tests {
    use super::Side::{Inside, Outside};
    use super::*;

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    const SYN_ACK: TcpFlags = SYN.with(ACK);
    const FIN_ACK: TcpFlags = TcpFlags::FIN.with(ACK);
    const RST: TcpFlags = TcpFlags::RST;

    fn after(phase: Phase, segments: &[(Side, TcpFlags)]) -> Phase {
        segments.iter().fold(phase, |phase, &(side, flags)| phase.next(side, flags))
    }

    fn established() -> Phase {
        after(Phase::opened_by(Inside), &[(Outside, SYN_ACK), (Inside, ACK)])
    }

    #[test]
    fn is_established_by_the_third_segment() {
        let half_open = after(Phase::opened_by(Inside), &[(Inside, SYN), (Outside, SYN_ACK), (Outside, SYN_ACK)]);
        assert!(!half_open.is_established());
        assert!(half_open.next(Inside, ACK).is_established());
        assert!(after(Phase::opened_by(Outside), &[(Inside, SYN_ACK), (Outside, ACK)]).is_established());
    }

    #[test]
    fn a_simultaneous_open_is_established_when_both_have_acknowledged() {
        let crossed = after(Phase::opened_by(Inside), &[(Outside, SYN), (Inside, SYN_ACK)]);
        assert!(!crossed.is_established());
        assert!(crossed.next(Outside, SYN_ACK).is_established());
    }

    #[test]
    fn closes_with_the_second_fin_whoever_sends_it() {
        for (first, second) in [(Inside, Outside), (Outside, Inside)] {
            let half_closed = after(established(), &[(first, FIN_ACK), (second, ACK), (first, FIN_ACK)]);
            assert!(half_closed.is_established());
            assert!(!half_closed.next(second, FIN_ACK).is_established());
        }
    }

    #[test]
    fn a_reset_counts_unless_its_sender_goes_on() {
        let reset = established().next(Outside, RST);
        assert!(!reset.is_established());
        assert!(!reset.next(Inside, ACK).is_established(), "what was on its way");
        assert!(reset.next(Outside, ACK).is_established(), "the reset was forged");
    }

    #[test]
    fn a_syn_opens_again_what_is_over_and_only_that() {
        let closed = after(established(), &[(Inside, FIN_ACK), (Outside, FIN_ACK)]);
        assert_eq!(closed.next(Inside, SYN), Phase::opened_by(Inside));
        assert!(established().next(Outside, SYN).is_established());
    }

    #[test]
    fn a_connection_that_was_picked_up_is_established_by_the_answer() {
        assert!(!Phase::picked_up(Inside, ACK).is_established());
        assert!(Phase::picked_up(Inside, ACK).next(Outside, ACK).is_established());
        assert!(!Phase::picked_up(Inside, FIN_ACK).next(Outside, FIN_ACK).is_established());
    }
}
