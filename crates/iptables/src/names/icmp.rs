//! Names of ICMP types and codes.

use crate::value::Interval;

/// A name, the type, and its codes.
type Named = (&'static str, u8, Interval<u8>);

const fn whole(name: &'static str, kind: u8) -> Named {
    (name, kind, Interval { first: 0, last: 255 })
}

const fn code(name: &'static str, kind: u8, code: u8) -> Named {
    (name, kind, Interval { first: code, last: code })
}

/// Of IPv4. Type 255 stands for any.
pub(crate) const V4: &[Named] = &[
    whole("any", 255),
    whole("echo-reply", 0),
    whole("pong", 0),
    whole("destination-unreachable", 3),
    code("network-unreachable", 3, 0),
    code("host-unreachable", 3, 1),
    code("protocol-unreachable", 3, 2),
    code("port-unreachable", 3, 3),
    code("fragmentation-needed", 3, 4),
    code("source-route-failed", 3, 5),
    code("network-unknown", 3, 6),
    code("host-unknown", 3, 7),
    code("network-prohibited", 3, 9),
    code("host-prohibited", 3, 10),
    code("TOS-network-unreachable", 3, 11),
    code("TOS-host-unreachable", 3, 12),
    code("communication-prohibited", 3, 13),
    code("host-precedence-violation", 3, 14),
    code("precedence-cutoff", 3, 15),
    whole("source-quench", 4),
    whole("redirect", 5),
    code("network-redirect", 5, 0),
    code("host-redirect", 5, 1),
    code("TOS-network-redirect", 5, 2),
    code("TOS-host-redirect", 5, 3),
    whole("echo-request", 8),
    whole("ping", 8),
    whole("router-advertisement", 9),
    whole("router-solicitation", 10),
    whole("time-exceeded", 11),
    whole("ttl-exceeded", 11),
    code("ttl-zero-during-transit", 11, 0),
    code("ttl-zero-during-reassembly", 11, 1),
    whole("parameter-problem", 12),
    code("ip-header-bad", 12, 0),
    code("required-option-missing", 12, 1),
    whole("timestamp-request", 13),
    whole("timestamp-reply", 14),
    whole("address-mask-request", 17),
    whole("address-mask-reply", 18),
];

/// Of IPv6.
pub(crate) const V6: &[Named] = &[
    whole("destination-unreachable", 1),
    code("no-route", 1, 0),
    code("communication-prohibited", 1, 1),
    code("beyond-scope", 1, 2),
    code("address-unreachable", 1, 3),
    code("port-unreachable", 1, 4),
    code("failed-policy", 1, 5),
    code("reject-route", 1, 6),
    whole("packet-too-big", 2),
    whole("time-exceeded", 3),
    whole("ttl-exceeded", 3),
    code("ttl-zero-during-transit", 3, 0),
    code("ttl-zero-during-reassembly", 3, 1),
    whole("parameter-problem", 4),
    code("bad-header", 4, 0),
    code("unknown-header-type", 4, 1),
    code("unknown-option", 4, 2),
    whole("echo-request", 128),
    whole("ping", 128),
    whole("echo-reply", 129),
    whole("pong", 129),
    whole("router-solicitation", 133),
    whole("router-advertisement", 134),
    whole("neighbour-solicitation", 135),
    whole("neighbor-solicitation", 135),
    whole("neighbour-advertisement", 136),
    whole("neighbor-advertisement", 136),
    whole("redirect", 137),
];
