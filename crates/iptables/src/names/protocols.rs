//! Names of IP protocols.

/// Names and numbers, by number; the first name of a number is the one that is printed.
const PROTOCOLS: &[(&str, u8)] = &[
    ("ip", 0),
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

/// Names that iptables takes as well.
const ALSO: &[(&str, u8)] = &[("all", 0), ("icmpv6", 58), ("ipv6-mh", 135), ("mh", 135)];

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const ESP: u8 = 50;
pub(crate) const AH: u8 = 51;
pub(crate) const ICMP_V6: u8 = 58;
pub(crate) const IPCOMP: u8 = 108;
pub(crate) const SCTP: u8 = 132;
pub(crate) const MH: u8 = 135;
pub(crate) const UDPLITE: u8 = 136;

/// The number of a protocol, given by number or name. Case doesn't matter.
pub(crate) fn number(text: &str) -> Option<u8> {
    if let Some(number) = crate::read::integer(text) {
        return u8::try_from(number).ok();
    }
    let found = PROTOCOLS.iter().chain(ALSO).find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, number)| *number)
}

/// The name that iptables-save prints, if it has one for the number.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, protocol)| *protocol == number).map(|(name, _)| *name)
}
