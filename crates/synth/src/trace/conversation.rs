//! One conversation, packet by packet: which host sends, and the TCP header.

use packet::TcpFlags;

use super::lengths::{SEGMENT, TCP_MIN};
use super::{FlowTransport, FrameLen, Profile};
use crate::rng::Rng;

/// Kind of conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// TCP from SYN to FIN.
    Tcp,
    /// UDP, in both directions alternately.
    Udp,
    /// UDP, from the client only.
    OneWay,
    /// TCP that gets no answer.
    Syn,
    /// TCP if it is long enough, else UDP.
    ByLength,
}

impl Pattern {
    pub(super) const fn new(profile: Profile, carrier: Option<FlowTransport>) -> Self {
        match (profile, carrier) {
            (Profile::SynFlood, _) => Self::Syn,
            (_, Some(FlowTransport::Tcp)) | (Profile::Hyperscaler | Profile::SingleFlow, None) => Self::Tcp,
            (Profile::Uniform, _) => Self::OneWay,
            (_, Some(FlowTransport::Udp)) => Self::Udp,
            (Profile::UniversityDc | Profile::Backbone, None) => Self::ByLength,
        }
    }

    /// How a flow of so many packets talks.
    pub(super) fn of(self, total: u32) -> Self {
        match self {
            Self::ByLength if u64::from(total) >= TCP_MIN => Self::Tcp,
            Self::ByLength => Self::Udp,
            Self::Tcp | Self::Udp | Self::OneWay | Self::Syn => self,
        }
    }
}

/// A conversation in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversation {
    /// Its index in the order of packets.
    pub(super) slot: u32,
    /// The mean time to its next packet.
    pub(super) gap: u64,
    pub(super) who: Hosts,
    pattern: Pattern,
    /// True if the client sends most of the data.
    upload: bool,
    sent: u32,
    total: u32,
    client_next: u32,
    server_next: u32,
}

/// The two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    /// 24 bits of address.
    pub(super) client: u32,
    pub(super) server: u16,
    pub(super) client_port: u16,
    pub(super) server_port: u16,
    pub(super) ipv6: bool,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) from_client: bool,
    pub(super) payload: u16,
    /// `None` for UDP.
    pub(super) tcp: Option<TcpSegment>,
}

/// What a packet's TCP header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpSegment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: TcpFlags,
}

/// Sender and kind of a TCP segment.
struct SegmentPlan {
    from_client: bool,
    flags: TcpFlags,
    payload: u16,
}

impl Conversation {
    /// A conversation of `total` packets before its first.
    pub(super) fn new(who: Hosts, pattern: Pattern, total: u32, rng: &mut Rng) -> Self {
        let [client_next, server_next] = [rng.bits() as u32, rng.bits() as u32];
        Self {
            slot: 0,
            gap: 0,
            who,
            pattern: pattern.of(total),
            upload: rng.chance(0.25),
            sent: 0,
            total,
            client_next,
            server_next,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.sent >= self.total
    }

    /// The next packet.
    pub(super) fn next(&mut self, rng: &mut Rng, frame_len: FrameLen) -> Segment {
        let index = self.sent;
        self.sent += 1;
        match self.pattern {
            Pattern::OneWay => Segment { from_client: true, payload: self.payload(frame_len, 8, 40, rng), tcp: None },
            Pattern::Udp | Pattern::ByLength => Segment {
                from_client: index.is_multiple_of(2),
                payload: self.payload(frame_len, 8, 460, rng),
                tcp: None,
            },
            Pattern::Syn => {
                let tcp = TcpSegment { seq: self.client_next, ack: 0, flags: TcpFlags::SYN };
                Segment { from_client: true, payload: 0, tcp: Some(tcp) }
            }
            Pattern::Tcp => {
                let plan = self.plan(index, rng, frame_len);
                self.say(plan)
            }
        }
    }

    /// Sender and kind of segment number `index`.
    fn plan(&self, index: u32, rng: &mut Rng, frame_len: FrameLen) -> SegmentPlan {
        const DATA: TcpFlags = TcpFlags::ACK.with(TcpFlags::PSH);
        const CLOSE: TcpFlags = TcpFlags::ACK.with(TcpFlags::FIN);
        let control = |from_client, flags| SegmentPlan { from_client, flags, payload: 0 };
        match (index, self.total - index) {
            (0, _) => control(true, TcpFlags::SYN),
            (1, _) => control(false, TcpFlags::SYN.with(TcpFlags::ACK)),
            (2, _) => control(true, TcpFlags::ACK),
            (_, 3) => control(true, CLOSE),
            (_, 2) => control(false, CLOSE),
            (_, 1) => control(true, TcpFlags::ACK),
            (3, _) => SegmentPlan { from_client: true, flags: DATA, payload: self.payload(frame_len, 20, 500, rng) },
            // Two segments and an acknowledgement, over and over.
            (4.., _) if (index - 4) % 3 == 2 => control(!self.upload, TcpFlags::ACK),
            (4.., _) => {
                let most = if self.total > 100 { SEGMENT as u16 } else { 600 };
                SegmentPlan { from_client: self.upload, flags: DATA, payload: self.payload(frame_len, 20, most, rng) }
            }
        }
    }

    /// Sets the sequence numbers of a segment, and advances them.
    fn say(&mut self, plan: SegmentPlan) -> Segment {
        let SegmentPlan { from_client, flags, payload } = plan;
        let (own, other) = if from_client {
            (&mut self.client_next, self.server_next)
        } else {
            (&mut self.server_next, self.client_next)
        };
        let ack = if flags.contains(TcpFlags::ACK) { other } else { 0 };
        let tcp = TcpSegment { seq: *own, ack, flags };
        let counts = flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN);
        *own = own.wrapping_add(u32::from(payload) + u32::from(counts));
        Segment { from_client, payload, tcp: Some(tcp) }
    }

    /// Bytes of payload behind a transport header of so many: what a fixed length leaves, or up to `most`.
    fn payload(&self, frame_len: FrameLen, transport_len: u16, most: u16, rng: &mut Rng) -> u16 {
        let headers = 14 + if self.who.ipv6 { 40 } else { 20 } + transport_len;
        match frame_len {
            FrameLen::Fixed(len) => len.saturating_sub(headers).max(1),
            // A full segment stays within 1500 bytes of IP.
            FrameLen::Realistic if most == SEGMENT as u16 => 1_514 - headers,
            FrameLen::Realistic => most / 5 + rng.below(u64::from(most - most / 5)) as u16,
        }
    }
}
