//! Decides from a packet's headers whether it may be held, and which held packets must leave before it: [`judge`].

use packet::{Endpoint, FiveTuple, Fragment, Network, TcpFlags, Transport, protocol};

use super::counts::Unheld;
use crate::batch::Packet;

/// Facts from a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// It may be held, with other packets of this connection.
    Holdable(FiveTuple),
    /// It is not held. Packets of this connection that are held leave before it.
    InConnection(FiveTuple, Unheld),
    /// It is not held. All packets between these hosts that are held leave before it.
    BetweenHosts(FiveTuple, Unheld),
    /// It is not held, and has no connection.
    Alone(Unheld),
}

/// The lowest differentiated services code point with priority: VOICE-ADMIT (44), EF (46), CS6 (48) and CS7 (56) are not below it.
const PRIORITY_DSCP: u8 = 44;

/// Reads a packet's headers.
pub(super) fn judge(packet: &Packet, bytes: &[u8]) -> Judged {
    let Ok(headers) = packet::parse(packet.link, bytes, packet.wire_len, packet.interface) else {
        return Judged::Alone(Unheld::NoConnection);
    };
    let Some(tuple) = headers.five_tuple() else { return Judged::Alone(Unheld::NoConnection) };
    let connection = tuple.symmetric().0;
    if headers.fragment != Fragment::Whole {
        return Judged::BetweenHosts(hosts(&connection), Unheld::Fragment);
    }
    match headers.transport {
        Transport::Icmp(icmp) => {
            // An error is about a connection, of which packets may be held.
            let about = icmp.embedded.map(|embedded| hosts(&embedded.tuple.symmetric().0));
            return about.map_or(Judged::Alone(Unheld::Icmp), |hosts| Judged::BetweenHosts(hosts, Unheld::Icmp));
        }
        Transport::Tcp(tcp) => {
            let control = TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::RST);
            if tcp.flags.0 & control.0 != 0 {
                return Judged::InConnection(connection, Unheld::TcpControl);
            }
            if headers.payload_len == 0 {
                return Judged::InConnection(connection, Unheld::Acknowledgement);
            }
        }
        Transport::None if matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6) => {
            return Judged::Alone(Unheld::Icmp);
        }
        Transport::None | Transport::Udp { .. } | Transport::Sctp { .. } => {}
    }
    let class = match headers.network {
        Network::V4(ip) => ip.tos,
        Network::V6(ip) => ip.traffic_class,
        Network::None | Network::Unreadable | Network::Arp => 0,
    };
    if class >> 2 >= PRIORITY_DSCP {
        return Judged::InConnection(connection, Unheld::Priority);
    }
    Judged::Holdable(connection)
}

/// The two hosts of a connection in its symmetric form, as a five-tuple without ports and protocol.
pub(super) fn hosts(connection: &FiveTuple) -> FiveTuple {
    let [one, other] = [connection.source(), connection.destination()].map(|end| Endpoint::new(end.address, 0));
    FiveTuple::between(one, other, 0).expect("both hosts of a connection are of one family")
}
