//! Transport protocols with ports: `tcp`, `udp`, `sctp`, `dccp`, `multiport`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::names::protocols;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Interval, option};

const SPORT: Spec = Spec::value("sport").alias(&["source-port"]).inverts();
const DPORT: Spec = Spec::value("dport").alias(&["destination-port"]).inverts();

/// `-m tcp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// `--sport`.
    pub source: Option<Condition<Interval<u16>>>,
    /// `--dport`.
    pub destination: Option<Condition<Interval<u16>>>,
    /// `--tcp-option`: the packet has this option.
    pub option: Option<Condition<u8>>,
    /// `--tcp-flags` or `--syn`.
    pub flags: Option<Condition<TcpFlagsTest>>,
}

/// Of the flags in `mask`, those in `set` are set and the others are not. Bits are those of the header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16,
/// URG 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpFlagsTest {
    /// The flags that are compared.
    pub mask: u8,
    /// The flags of `mask` that are set.
    pub set: u8,
}

const TCP_FLAGS: &[(&str, u8)] =
    &[("FIN", 1), ("SYN", 2), ("RST", 4), ("PSH", 8), ("ACK", 16), ("URG", 32), ("ALL", 63), ("NONE", 0)];

impl TcpFlagsTest {
    /// `--syn`.
    pub const SYN: Self = Self { mask: 1 | 2 | 4 | 16, set: 2 };

    /// True if flags of a packet pass.
    #[must_use]
    pub const fn matches(self, flags: u8) -> bool {
        flags & self.mask == self.set
    }
}

impl fmt::Display for TcpFlagsTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |bits: u8| {
            let set = TCP_FLAGS[..6].iter().filter(|(_, bit)| bits & bit != 0);
            let set: Vec<&str> = set.map(|(name, _)| *name).collect();
            if set.is_empty() { String::from("NONE") } else { set.join(",") }
        };
        write!(f, "{} {}", names(self.mask), names(self.set))
    }
}

/// Leaves out a condition that every port passes, as iptables-save does.
fn telling(condition: Option<Condition<Interval<u16>>>) -> Option<Condition<Interval<u16>>> {
    condition.filter(|condition| condition.negated || condition.value != Interval { first: 0, last: u16::MAX })
}

impl Extension for Tcp {
    const NAME: &'static str = "tcp";
    const OPTIONS: &'static [Spec] = &[
        SPORT,
        DPORT,
        Spec::flag("syn").inverts(),
        Spec::pair("tcp-flags").inverts(),
        Spec::value("tcp-option").inverts(),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let ports = |value: Value<'_>| {
            let ports = value.ports(Some(protocols::TCP))?;
            if ports.first > ports.last {
                return Err(value.fault("the range of ports ends before it begins"));
            }
            Ok(ports)
        };
        args.one_of(&["syn", "tcp-flags"])?;
        let syn = args.negated("syn").map(|negated| Condition { negated, value: TcpFlagsTest::SYN });
        let flags = match args.given("tcp-flags").map(|given| (given.negated, given.words)) {
            Some((negated, [Some(mask), Some(set)])) => {
                Some(Condition { negated, value: TcpFlagsTest { mask: flags(mask)?, set: flags(set)? } })
            }
            Some(_) | None => syn,
        };
        Ok(Self {
            source: telling(args.test("sport", ports)?),
            destination: telling(args.test("dport", ports)?),
            option: args.test("tcp-option", |value| value.number(1, 255).map(|option| option as u8))?,
            flags,
        })
    }
}

fn flags(value: Value<'_>) -> Result<u8, Fault> {
    value.parts(',').try_fold(0, |flags, part| Ok(flags | part.name_of(TCP_FLAGS, "a flag of TCP")?))
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "sport", self.source.as_ref())?;
        option(f, "dport", self.destination.as_ref())?;
        option(f, "tcp-option", self.option.as_ref())?;
        option(f, "tcp-flags", self.flags.as_ref())
    }
}

/// `-m udp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// `--sport`.
    pub source: Option<Condition<Interval<u16>>>,
    /// `--dport`.
    pub destination: Option<Condition<Interval<u16>>>,
}

impl Extension for Udp {
    const NAME: &'static str = "udp";
    const OPTIONS: &'static [Spec] = &[SPORT, DPORT];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let ports = |value: Value<'_>| value.ports(Some(protocols::UDP));
        Ok(Self { source: telling(args.test("sport", ports)?), destination: telling(args.test("dport", ports)?) })
    }
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "sport", self.source.as_ref())?;
        option(f, "dport", self.destination.as_ref())
    }
}

/// `-m sctp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sctp {
    /// `--sport`.
    pub source: Option<Condition<Interval<u16>>>,
    /// `--dport`.
    pub destination: Option<Condition<Interval<u16>>>,
    /// `--chunk-types`.
    pub chunks: Option<Condition<SctpChunks>>,
}

/// Matches the chunks of an SCTP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SctpChunks {
    /// The meaning of the list.
    pub scope: ChunkScope,
    /// The list; empty stands for no chunk of any type.
    pub chunks: Vec<SctpChunk>,
}

/// The meaning of a list of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkScope {
    /// The packet has all of them.
    All,
    /// The packet has one of them or more.
    Any,
    /// The packet has no others.
    Only,
}

/// A type of chunk, and perhaps flags of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SctpChunk {
    /// The type.
    pub kind: u8,
    /// Flags that are compared.
    pub mask: u8,
    /// The flags of `mask` that are set.
    pub set: u8,
}

const SCOPES: &[(&str, ChunkScope)] = &[("all", ChunkScope::All), ("any", ChunkScope::Any), ("only", ChunkScope::Only)];

const CHUNKS: &[(&str, u8)] = &[
    ("DATA", 0),
    ("INIT", 1),
    ("INIT_ACK", 2),
    ("SACK", 3),
    ("HEARTBEAT", 4),
    ("HEARTBEAT_ACK", 5),
    ("ABORT", 6),
    ("SHUTDOWN", 7),
    ("SHUTDOWN_ACK", 8),
    ("ERROR", 9),
    ("COOKIE_ECHO", 10),
    ("COOKIE_ACK", 11),
    ("ECN_ECNE", 12),
    ("ECN_CWR", 13),
    ("SHUTDOWN_COMPLETE", 14),
    ("I_DATA", 64),
    ("RE_CONFIG", 130),
    ("PAD", 132),
    ("FORWARD_TSN", 192),
    ("ASCONF", 193),
    ("ASCONF_ACK", 128),
    ("I_FORWARD_TSN", 194),
];

/// The flags of a chunk that have letters, by bit from the left; `-` has none.
const fn chunk_letters(kind: u8) -> &'static [u8; 8] {
    match kind {
        0 => b"----IUBE",
        6 | 14 => b"-------T",
        _ => b"--------",
    }
}

impl SctpChunks {
    fn read(scope: Value<'_>, list: Value<'_>) -> Result<Self, Fault> {
        let scope = scope.name_of(SCOPES, "one of `all`, `any` and `only`")?;
        let chunks = match list.text {
            "NONE" => Vec::new(),
            "ALL" => CHUNKS.iter().map(|(_, kind)| SctpChunk { kind: *kind, mask: 0, set: 0 }).collect(),
            _ => list.parts(',').map(SctpChunk::read).collect::<Result<_, _>>()?,
        };
        Ok(Self { scope, chunks })
    }
}

impl SctpChunk {
    fn read(value: Value<'_>) -> Result<Self, Fault> {
        let (name, letters) = match value.split_once(':') {
            Some((name, letters)) => (name, Some(letters)),
            None => (value, None),
        };
        let kind = name.name_of(CHUNKS, "a type of chunk")?;
        let (mut mask, mut set) = (0, 0);
        for letter in letters.map_or("", |letters| letters.text).bytes() {
            let at = chunk_letters(kind).iter().position(|known| *known == letter.to_ascii_uppercase());
            let Some(at) = at.filter(|_| letter.is_ascii_alphabetic()) else {
                return Err(value.fault(format!("the chunk has no flag `{}`", letter as char)));
            };
            mask |= 0x80 >> at;
            if letter.is_ascii_uppercase() {
                set |= 0x80 >> at;
            }
        }
        Ok(Self { kind, mask, set })
    }
}

impl fmt::Display for SctpChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = SCOPES.iter().find(|(_, scope)| *scope == self.scope).map_or("", |(name, _)| name);
        write!(f, "{scope} ")?;
        if self.chunks.is_empty() {
            return f.write_str("NONE");
        }
        for (nth, chunk) in self.chunks.iter().enumerate() {
            let name = CHUNKS.iter().find(|(_, kind)| *kind == chunk.kind).map_or("", |(name, _)| name);
            write!(f, "{}{name}", if nth > 0 { "," } else { "" })?;
            for (at, letter) in
                chunk_letters(chunk.kind).iter().enumerate().filter(|(at, _)| chunk.mask & 0x80 >> at != 0)
            {
                let colon = if chunk.mask >> (8 - at) == 0 { ":" } else { "" };
                let is_set = chunk.set & 0x80 >> at != 0;
                let letter = if is_set { *letter } else { letter.to_ascii_lowercase() };
                write!(f, "{colon}{}", letter as char)?;
            }
        }
        Ok(())
    }
}

impl Extension for Sctp {
    const NAME: &'static str = "sctp";
    const OPTIONS: &'static [Spec] = &[SPORT, DPORT, Spec::pair("chunk-types").inverts()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let ports = |value: Value<'_>| value.ports(Some(protocols::SCTP));
        let chunks = match args.given("chunk-types").map(|given| (given.negated, given.words)) {
            Some((negated, [Some(scope), Some(list)])) => {
                Some(Condition { negated, value: SctpChunks::read(scope, list)? })
            }
            Some(_) | None => None,
        };
        Ok(Self { source: args.test("sport", ports)?, destination: args.test("dport", ports)?, chunks })
    }
}

impl fmt::Display for Sctp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "sport", self.source.as_ref())?;
        option(f, "dport", self.destination.as_ref())?;
        option(f, "chunk-types", self.chunks.as_ref())
    }
}

/// `-m dccp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dccp {
    /// `--sport`.
    pub source: Option<Condition<Interval<u16>>>,
    /// `--dport`.
    pub destination: Option<Condition<Interval<u16>>>,
    /// `--dccp-types`: bit N stands for type N.
    pub types: Option<Condition<u16>>,
    /// `--dccp-option`: the packet has this option.
    pub option: Option<Condition<u8>>,
}

const DCCP_TYPES: &[(&str, u16)] = &[
    ("REQUEST", 1),
    ("RESPONSE", 1 << 1),
    ("DATA", 1 << 2),
    ("ACK", 1 << 3),
    ("DATAACK", 1 << 4),
    ("CLOSEREQ", 1 << 5),
    ("CLOSE", 1 << 6),
    ("RESET", 1 << 7),
    ("SYNC", 1 << 8),
    ("SYNCACK", 1 << 9),
    ("INVALID", 1 << 10),
];

impl Extension for Dccp {
    const NAME: &'static str = "dccp";
    const OPTIONS: &'static [Spec] =
        &[SPORT, DPORT, Spec::value("dccp-types").inverts(), Spec::value("dccp-option").inverts()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let ports = |value: Value<'_>| value.ports(Some(protocols::DCCP));
        let types = |value: Value<'_>| {
            value.parts(',').try_fold(0, |types, part| Ok(types | part.name_of(DCCP_TYPES, "a type of DCCP")?))
        };
        Ok(Self {
            source: args.test("sport", ports)?,
            destination: args.test("dport", ports)?,
            types: args.test("dccp-types", types)?,
            option: args.test("dccp-option", |value| value.number(1, 255).map(|option| option as u8))?,
        })
    }
}

impl fmt::Display for Dccp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "sport", self.source.as_ref())?;
        option(f, "dport", self.destination.as_ref())?;
        let names = self.types.map(|types| {
            types.map(|bits| {
                let set = DCCP_TYPES.iter().filter(|(_, bit)| bits & bit != 0);
                set.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
            })
        });
        option(f, "dccp-types", names.as_ref())?;
        option(f, "dccp-option", self.option.as_ref())
    }
}

/// `-m multiport`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiport {
    /// The ports to compare.
    pub side: MultiportSide,
    /// Up to 15 ports, where a range counts as two.
    pub ports: Condition<Vec<Interval<u16>>>,
}

/// The ports that `multiport` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiportSide {
    /// `--sports`.
    Source,
    /// `--dports`.
    Destination,
    /// `--ports`: one of the two.
    Either,
}

impl Extension for Multiport {
    const NAME: &'static str = "multiport";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("source-ports").alias(&["sports"]).inverts(),
        Spec::value("destination-ports").alias(&["dports"]).inverts(),
        Spec::value("ports").inverts(),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        const PORTS_MAX: usize = 15;
        let given = args.exactly_one_of(&["source-ports", "destination-ports", "ports"])?;
        let protocol = args.protocol.filter(|protocol| !protocol.negated).map(|protocol| protocol.value);
        let fits = [protocols::TCP, protocols::UDP, protocols::UDPLITE, protocols::SCTP, protocols::DCCP];
        if !protocol.is_some_and(|protocol| fits.contains(&protocol)) {
            return Err(args
                .fault("multiport needs a protocol with ports")
                .instead("write `-p tcp`, `-p udp`, `-p udplite`, `-p sctp` or `-p dccp` before it"));
        }
        let side = match given.spec.name {
            "source-ports" => MultiportSide::Source,
            "destination-ports" => MultiportSide::Destination,
            _ => MultiportSide::Either,
        };
        let value = given.words[0].ok_or_else(|| args.fault("multiport needs a list of ports"))?;
        let (mut ports, mut count) = (Vec::new(), 0);
        for part in value.parts(',') {
            let interval = match part.split_once(':') {
                Some((first, last)) => Interval { first: first.port(protocol)?, last: last.port(protocol)? },
                None => part.port(protocol).map(|port| Interval { first: port, last: port })?,
            };
            let is_range = part.text.contains(':');
            if is_range && interval.first >= interval.last {
                return Err(part.fault(format!("the range `{}` ends before it begins", part.text)));
            }
            count += 1 + usize::from(is_range);
            if count > PORTS_MAX {
                let what = format!("there are more than {PORTS_MAX} ports, where a range counts as two");
                return Err(part.fault(what).instead("use several rules"));
            }
            ports.push(interval);
        }
        Ok(Self { side, ports: Condition { negated: given.negated, value: ports } })
    }
}

impl fmt::Display for Multiport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.side {
            MultiportSide::Source => "sports",
            MultiportSide::Destination => "dports",
            MultiportSide::Either => "ports",
        };
        write!(f, "{} --{name} ", if self.ports.negated { " !" } else { "" })?;
        for (nth, ports) in self.ports.value.iter().enumerate() {
            write!(f, "{}{ports}", if nth > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
