//! What a function has decided about the coming packets of a connection, so that something ahead of it (a network card, an XDP program) can
//! take them: [`Decided`], and what comes back, [`Taken`].
//!
//! The window checks of [`TcpWindows`] are those of the Linux tracker for an open connection. Cards that track connections have the same
//! data (`rte_flow_action_conntrack` of DPDK).

use crate::time::Nanos;

/// A function's decision about the coming packets of one connection. It holds for packets in both directions that are no
/// fragments, and for TCP only for segments that [`TcpWindows::take`] takes. All other packets of the connection go to the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Actions for packets from the first endpoint of the symmetric five-tuple, and for those from the other.
    pub actions: [Action; 2],
    /// The connection's idle timeout: as long as no data is unacknowledged, and while some is. Equal for protocols other than TCP.
    pub idle: [Nanos; 2],
    /// The most bytes on the wire that may be taken before the function has to see a packet again.
    pub bytes_max: u64,
    /// Windows that each TCP segment is checked against; `None` for a connection of another protocol.
    pub tcp: Option<TcpWindows>,
}

/// Action for a packet that was decided ahead of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forward it by the opposite port.
    Across,
    /// Drop it, for the reason with this number.
    Drop(u8),
}

/// The packets of a connection that were taken ahead of the function. Counts are those from the first endpoint of the symmetric five-tuple,
/// then those from the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Packets.
    pub packets: [u64; 2],
    /// Their bytes on the wire.
    pub bytes: [u64; 2],
    /// The time of the last packet; 0 if there was none.
    pub last: Nanos,
    /// When the connection expires unless another packet comes.
    pub deadline: Nanos,
    /// The windows after the last segment, for a TCP connection.
    pub tcp: Option<TcpWindows>,
}

impl Taken {
    /// Nothing was taken of a connection that expires at `deadline`.
    #[must_use]
    pub const fn nothing(deadline: Nanos, tcp: Option<TcpWindows>) -> Self {
        Self { packets: [0; 2], bytes: [0; 2], last: Nanos(0), deadline, tcp }
    }

    /// The number of packets.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.packets[0] + self.packets[1]
    }
}

/// Windows and last segment of an open TCP connection: both sides have sent data or acknowledgements, and neither has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpWindows {
    /// The first endpoint of the symmetric five-tuple, then the other.
    pub sides: [TcpSide; 2],
    /// The last segment.
    pub last: LastSegment,
}

/// One side of a TCP connection. All numbers are in the side's own sequence space, except `max_ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSide {
    /// Sequence number after the last byte that the side has sent.
    pub end: u32,
    /// Sequence number up to which the other side has allowed it to send.
    pub max_end: u32,
    /// The largest window that the side has offered.
    pub max_win: u32,
    /// The highest acknowledgement number that the side has sent.
    pub max_ack: u32,
    /// Its window scale.
    pub scale: u8,
    /// True if the other side hasn't acknowledged all that it has sent.
    pub unacknowledged: bool,
}

/// The fields of a TCP segment by which a repetition is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastSegment {
    /// The sequence number.
    pub seq: u32,
    /// The sequence number after the segment.
    pub end: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// The window as sent.
    pub window: u16,
    /// True if the first endpoint of the symmetric five-tuple sent it.
    pub from_first: bool,
}

/// Minimum distance in bytes that acknowledgements may lag behind the data.
const ACK_WINDOW_MIN: u32 = 66_000;

impl TcpWindows {
    /// Takes a segment with ACK and without SYN, FIN, RST and selective acknowledgements, if it is within the windows, offers a window, and
    /// doesn't repeat the last one. Otherwise returns false and changes nothing.
    pub fn take(&mut self, segment: &LastSegment) -> bool {
        let LastSegment { seq, end, ack, window, from_first } = *segment;
        let (of_sender, of_receiver) = (usize::from(!from_first), usize::from(from_first));
        let (sender, receiver) = (self.sides[of_sender], self.sides[of_receiver]);
        let is_within = at_most(seq, sender.max_end)
            && at_most(end, sender.max_end)
            && at_most(ack, receiver.end)
            && at_most(sender.end.wrapping_sub(receiver.max_win), end)
            && at_most(receiver.end.wrapping_sub(sender.max_win.max(ACK_WINDOW_MIN)), ack);
        if window == 0 || !is_within || self.last == *segment {
            return false;
        }
        self.last = *segment;
        let offered = u32::from(window) << sender.scale;
        let sender = &mut self.sides[of_sender];
        sender.max_win = sender.max_win.max(offered);
        if !at_most(end, sender.end) {
            sender.end = end;
            sender.unacknowledged = true;
        }
        if !at_most(ack, sender.max_ack) {
            sender.max_ack = ack;
        }
        let receiver = &mut self.sides[of_receiver];
        let allowed = ack.wrapping_add(offered);
        if at_most(receiver.max_end, allowed) {
            receiver.max_end = allowed;
        }
        if ack == receiver.end {
            receiver.unacknowledged = false;
        }
        true
    }

    /// True if a side has sent data that the other hasn't acknowledged.
    #[must_use]
    pub const fn are_unacknowledged(&self) -> bool {
        self.sides[0].unacknowledged | self.sides[1].unacknowledged
    }
}

/// True if sequence number `a` is not after `b` (RFC 9293 3.4).
const fn at_most(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b.wrapping_add(1)) as i32) < 0
}
