//! Views for tests.

use core::net::IpAddr;

use packet::{Fragment, Nanos, protocol};

use super::super::router::number;
use super::super::view::{NO_INTERFACE, View};

/// A TCP packet from port 40,000 to port 80 that came in by interface 0 and leaves by interface 1.
pub(crate) fn tcp(src: &str, dst: &str) -> View {
    let address = |text: &str| text.parse::<IpAddr>().expect("it is an address");
    View {
        src: number(address(src)),
        dst: number(address(dst)),
        bytes: 0,
        time: Nanos(0),
        mark: 0,
        src_port: 40_000,
        dst_port: 80,
        len: 40,
        mss: 0,
        is_v6: address(src).is_ipv6(),
        protocol: protocol::TCP,
        tcp_flags: 0x10,
        icmp_kind: 0,
        icmp_code: 0,
        ttl: 64,
        tos: 0,
        fragment: Fragment::Whole,
        has_transport: true,
        input: 0,
        output: 1,
    }
}

/// A packet of UDP.
pub(crate) fn udp(src: &str, dst: &str) -> View {
    View { protocol: protocol::UDP, tcp_flags: 0, ..tcp(src, dst) }
}

/// An ICMP packet.
pub(crate) fn icmp(src: &str, dst: &str, kind: u8, code: u8) -> View {
    let tcp = tcp(src, dst);
    let protocol = if tcp.is_v6 { protocol::ICMPV6 } else { protocol::ICMP };
    View { protocol, tcp_flags: 0, src_port: 0, dst_port: 0, icmp_kind: kind, icmp_code: code, ..tcp }
}

/// The same packet as a later fragment.
pub(crate) fn later(view: View) -> View {
    let view = View { fragment: Fragment::Later, has_transport: false, src_port: 0, dst_port: 0, ..view };
    View { tcp_flags: 0, icmp_kind: 0, icmp_code: 0, input: view.input, output: NO_INTERFACE, ..view }
}
