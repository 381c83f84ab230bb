//! The key of a packet: the connection of DNS over TCP that it belongs to. Packets are steered by the client alone.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::{Family, FiveTuple, FlowKey, Host, RssFields};

use super::DNS;

/// A connection of a client to port 53, or the client itself, which has no flow.
///
/// All packets of a client have to meet on one core, so that no use of an answer overtakes it; so steering knows the client alone. Flow
/// tables know the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByClient(FiveTuple);

impl ByClient {
    /// The key of a connection, from either direction. `None` if not exactly one side has port 53.
    #[inline]
    pub(super) fn connection(tuple: FiveTuple) -> Option<Self> {
        match [tuple.source().port == DNS, tuple.destination().port == DNS] {
            [false, true] => Some(Self(tuple)),
            [true, false] => Some(Self(tuple.reversed())),
            [true, true] | [false, false] => None,
        }
    }

    /// The key of packets that belong to no connection.
    #[inline]
    pub(super) fn client(client: Host) -> Self {
        Self(match client.address() {
            IpAddr::V4(address) => FiveTuple::v4(address, Ipv4Addr::UNSPECIFIED, 0, 0, 0),
            IpAddr::V6(address) => FiveTuple::v6(address, Ipv6Addr::UNSPECIFIED, 0, 0, 0),
        })
    }

    /// The client.
    #[inline]
    pub(super) fn host(&self) -> Host {
        Host::from(self.0.source().address)
    }
}

impl FlowKey for ByClient {
    type V4 = <FiveTuple as FlowKey>::V4;
    type V6 = <FiveTuple as FlowKey>::V6;

    #[inline]
    fn family(&self) -> Family<Self::V4, Self::V6> {
        self.0.family()
    }

    fn from_v4(key: Self::V4) -> Self {
        Self(FiveTuple::from_v4(key))
    }

    fn from_v6(key: Self::V6) -> Self {
        Self(FiveTuple::from_v6(key))
    }

    fn rss_input(&self, out: &mut [u8; 36]) -> usize {
        self.host().rss_input(out)
    }

    #[inline]
    fn rss_fields(&self) -> RssFields {
        self.host().rss_fields()
    }
}

impl fmt::Display for ByClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
