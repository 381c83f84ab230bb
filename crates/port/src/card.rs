//! Cards that take packets ahead of the cores: those of connections about which a function has [decided](Decided).
//!
//! A core owns its card, or its part of one. It puts connections in, and takes them back before its function sees one of their packets.

mod simulated;

use packet::{Action, Decided, FiveTuple, Fragment, Headers, LastSegment, Nanos, Network, Taken, TcpFlags, Transport};

use crate::batch::Packet;

pub use simulated::{CardLimits, SimulatedCard};

/// Something ahead of a core that takes packets of decided connections: a network card, or a program in the kernel.
///
/// Connections are named by their symmetric five-tuples. Both directions go in and come back together.
pub trait Card: Send {
    /// Lets the card take a packet that has come to the core. Packets come in the core's order. A card ahead of the port has seen the
    /// packet before; it takes only what had passed it before its connection was put in.
    fn offer(&mut self, packet: &Packet, bytes: &[u8]) -> Option<Action>;

    /// True if the connection is in the card.
    fn contains(&self, flow: &FiveTuple) -> bool;

    /// Puts a connection in, which expires at `deadline` unless another packet comes.
    ///
    /// # Errors
    /// Reason for which the card can't take it now.
    fn insert(&mut self, flow: FiveTuple, decided: &Decided, deadline: Nanos, now: Nanos) -> Result<(), CardRefusal>;

    /// All packets that have come to the core so far are decided and sent.
    fn idle(&mut self) {}

    /// Calls `count` for each connection with packets that the card has taken, that never came to the core, and that were not counted yet: the
    /// actions for both sides' packets, and for each side the number of packets and their bytes on the wire.
    fn count(&mut self, _count: &mut dyn FnMut([Action; 2], Ahead)) {}

    /// Takes a connection back. From then on the card takes none of its packets. `None` if the card doesn't have it.
    fn remove(&mut self, flow: &FiveTuple) -> Option<Returned>;

    /// The connection that a full card gives back for another one; `None` if all have had packets of late.
    fn victim(&mut self, now: Nanos) -> Option<FiveTuple>;

    /// Adds connections that are to be taken back by `now`: their deadlines have passed, or the card can't go on with them.
    fn ended(&mut self, now: Nanos, ended: &mut Vec<FiveTuple>);

    /// Adds all connections in the card.
    fn all(&self, flows: &mut Vec<FiveTuple>);
}

/// Reason for which a card doesn't take a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardRefusal {
    /// It has as many as it can hold.
    Full,
    /// It was given too many of late.
    Rate,
    /// It can't take packets at the moment: an interface is down or gone.
    Down,
}

/// Packets of each side that never came to the core, and their bytes on the wire.
pub type Ahead = [(u64, u64); 2];

/// A connection that was taken back from a card.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// All packets that were taken.
    pub taken: Taken,
    /// The taken packets that never came to the core and were not [counted](Card::count) yet. The core has to count them.
    pub ahead: Ahead,
    /// Actions for the packets of each side.
    pub actions: [Action; 2],
}

/// A packet that a card may take: whole, without options that only functions read.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The connection: the symmetric five-tuple.
    pub flow: FiveTuple,
    /// True if its first endpoint sent the packet.
    pub from_first: bool,
    /// The segment, for TCP.
    pub segment: Option<LastSegment>,
}

impl Plain {
    /// Reads the fields of a packet that a card needs. `None` for fragments, IP options, IPv6 extension headers, tunnels, protocols other than TCP and UDP,
    /// and TCP segments with SYN, FIN, RST, selective acknowledgements or options of a SYN.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let is_plain = headers.fragment == Fragment::Whole && headers.tunnel.is_none();
        let has_plain_ip = match headers.network {
            Network::V4(ip) => ip.header_len == 20,
            Network::V6(ip) => ip.header_len == 40,
            Network::None | Network::Unreadable | Network::Arp => false,
        };
        if !(is_plain && has_plain_ip) {
            return None;
        }
        let (flow, from_first) = headers.five_tuple()?.symmetric();
        let segment = match headers.transport {
            Transport::Udp { .. } => None,
            Transport::Tcp(tcp) => {
                let closes = TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::RST);
                let is_ack = tcp.flags.contains(TcpFlags::ACK) && tcp.flags.0 & closes.0 == 0;
                let options = tcp.options;
                let has_options = options.window_scale.is_some() | options.sack_permitted | options.sack_edge.is_some();
                if !is_ack || has_options {
                    return None;
                }
                let end = tcp.seq.wrapping_add(headers.payload_len);
                Some(LastSegment { seq: tcp.seq, end, ack: tcp.ack, window: tcp.window, from_first })
            }
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => return None,
        };
        Some(Self { flow, from_first, segment })
    }
}
