//! Fields of headers: `ah`, `esp`, `ipcomp`, `ttl`, `hl`, `length`, `dscp`, `tos`, `ecn`, `tcpmss`, `iprange`, `mac`, `pkttype`.

use alloc::format;
use core::fmt;
use core::net::IpAddr;

use crate::error::Fault;
use crate::extension::Extension;
use crate::names::{DSCP_CLASSES, TOS};
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Family, Interval, flag, option, plain};

/// Leaves out a condition that every value passes, as iptables-save does.
fn telling(condition: Option<Condition<Interval<u32>>>) -> Option<Condition<Interval<u32>>> {
    condition.filter(|condition| condition.negated || condition.value != Interval { first: 0, last: u32::MAX })
}

/// `-m ah`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ah {
    /// `--ahspi`.
    pub spi: Option<Condition<Interval<u32>>>,
    /// `--ahlen`, IPv6 only.
    pub length: Option<Condition<u32>>,
    /// `--ahres`, IPv6 only: the reserved field is zero.
    pub reserved: bool,
}

impl Extension for Ah {
    const NAME: &'static str = "ah";
    const OPTIONS: &'static [Spec] =
        &[Spec::value("ahspi").inverts(), Spec::value("ahlen").inverts(), Spec::flag("ahres")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if let Some(given) = args.given.iter().find(|given| args.family == Family::V4 && !given.is("ahspi")) {
            let what = format!("`--{}` exists for IPv6 only", given.spec.name);
            return Err(Fault::syntax(given.column, given.spec.name, what));
        }
        Ok(Self {
            spi: telling(args.test("ahspi", Value::interval_u32)?),
            length: args.test("ahlen", Value::u32)?,
            reserved: args.flag("ahres"),
        })
    }
}

impl fmt::Display for Ah {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "ahspi", self.spi.as_ref())?;
        option(f, "ahlen", self.length.as_ref())?;
        plain(f, "ahres", self.reserved)
    }
}

/// `-m esp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Esp {
    /// `--espspi`.
    pub spi: Option<Condition<Interval<u32>>>,
}

impl Extension for Esp {
    const NAME: &'static str = "esp";
    const OPTIONS: &'static [Spec] = &[Spec::value("espspi").inverts()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self { spi: telling(args.test("espspi", Value::interval_u32)?) })
    }
}

impl fmt::Display for Esp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "espspi", self.spi.as_ref())
    }
}

/// `-m ipcomp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpComp {
    /// `--ipcompspi`.
    pub spi: Option<Condition<Interval<u32>>>,
    /// `--compres`: the reserved field is zero. The kernel does not look.
    pub reserved: bool,
}

impl Extension for IpComp {
    const NAME: &'static str = "ipcomp";
    const OPTIONS: &'static [Spec] = &[Spec::value("ipcompspi").inverts(), Spec::flag("compres")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self { spi: telling(args.test("ipcompspi", Value::interval_u32)?), reserved: args.flag("compres") })
    }
}

impl fmt::Display for IpComp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "ipcompspi", self.spi.as_ref())?;
        plain(f, "compres", self.reserved)
    }
}

/// The comparison of a time to live or a hop limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlTest {
    /// The value is this one.
    Equal(Condition<u8>),
    /// The value is below.
    Below(u8),
    /// The value is above.
    Above(u8),
}

impl TtlTest {
    /// `names`: of the options for equal, below and above.
    fn read(args: &Args<'_>, names: [&'static str; 3]) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&names)?;
        let value = given.words[0].ok_or_else(|| args.fault("a number is missing"))?.u8()?;
        let [equal, below, _] = names;
        Ok(match given.spec.name {
            name if name == equal => Self::Equal(Condition { negated: given.negated, value }),
            name if name == below => Self::Below(value),
            _ => Self::Above(value),
        })
    }

    fn write(self, f: &mut fmt::Formatter<'_>, names: [&'static str; 3]) -> fmt::Result {
        let [equal, below, above] = names;
        match self {
            Self::Equal(value) => option(f, equal, Some(&value)),
            Self::Below(value) => write!(f, " --{below} {value}"),
            Self::Above(value) => write!(f, " --{above} {value}"),
        }
    }

    /// True if a packet's value passes.
    #[must_use]
    pub fn matches(self, ttl: u8) -> bool {
        match self {
            Self::Equal(value) => value.holds(ttl == value.value),
            Self::Below(value) => ttl < value,
            Self::Above(value) => ttl > value,
        }
    }
}

/// `-m ttl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ttl(pub TtlTest);

/// `-m hl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hl(pub TtlTest);

const TTL: [&str; 3] = ["ttl-eq", "ttl-lt", "ttl-gt"];
const HL: [&str; 3] = ["hl-eq", "hl-lt", "hl-gt"];

impl Extension for Ttl {
    const NAME: &'static str = "ttl";
    const FAMILY: Option<Family> = Some(Family::V4);
    const OPTIONS: &'static [Spec] =
        &[Spec::value(TTL[0]).alias(&["ttl"]).inverts(), Spec::value(TTL[1]), Spec::value(TTL[2])];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        TtlTest::read(args, TTL).map(Self)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, TTL)
    }
}

impl Extension for Hl {
    const NAME: &'static str = "hl";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value(HL[0]).inverts(), Spec::value(HL[1]), Spec::value(HL[2])];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        TtlTest::read(args, HL).map(Self)
    }
}

impl fmt::Display for Hl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, HL)
    }
}

/// `-m length`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Length {
    /// `--length`, in bytes.
    pub bytes: Condition<Interval<u16>>,
}

impl Extension for Length {
    const NAME: &'static str = "length";
    const OPTIONS: &'static [Spec] = &[Spec::value("length").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let bytes = args.test("length", Value::interval_u16)?;
        Ok(Self { bytes: bytes.ok_or_else(|| args.fault("length needs `--length`"))? })
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "length", Some(&self.bytes))
    }
}

/// `-m dscp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dscp {
    /// `--dscp` or `--dscp-class`: a number from 0 to 63.
    pub value: Condition<u8>,
}

impl Extension for Dscp {
    const NAME: &'static str = "dscp";
    const OPTIONS: &'static [Spec] = &[Spec::value("dscp").inverts(), Spec::value("dscp-class").inverts()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&["dscp", "dscp-class"])?;
        let number = args.read("dscp", |value| value.number(0, 63))?.map(|number| number as u8);
        let class = args.read("dscp-class", |value| value.name_of(DSCP_CLASSES, "a class of DSCP"))?;
        let value = number.or(class).ok_or_else(|| args.fault("a number is missing"))?;
        Ok(Self { value: Condition { negated: given.negated, value } })
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "dscp", Some(&self.value.map(|value| format!("{value:#04x}"))))
    }
}

/// Bits of the type of service: it matches if `tos & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TosTest {
    /// The value.
    pub value: u8,
    /// The bits that are compared.
    pub mask: u8,
}

impl TosTest {
    /// A number with or without a mask, or a name. `bare` is the mask of a number without one.
    pub(crate) fn read(value: Value<'_>, bare: u8) -> Result<Self, Fault> {
        /// All bits but those of ECN and one more.
        const OF_NAMES: u8 = 0x3f;
        if let Some((value, mask)) = value.split_once('/') {
            return Ok(Self { value: value.u8()?, mask: mask.u8()? });
        }
        match value.text.as_bytes().first() {
            Some(byte) if byte.is_ascii_digit() => Ok(Self { value: value.u8()?, mask: bare }),
            Some(_) | None => Ok(Self { value: value.begin_of(TOS, "a type of service")?, mask: OF_NAMES }),
        }
    }
}

impl fmt::Display for TosTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}/{:#04x}", self.value, self.mask)
    }
}

/// `-m tos`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tos {
    /// `--tos`.
    pub tos: Condition<TosTest>,
}

impl Extension for Tos {
    const NAME: &'static str = "tos";
    const OPTIONS: &'static [Spec] = &[Spec::value("tos").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let tos = args.test("tos", |value| TosTest::read(value, 0xff))?;
        Ok(Self { tos: tos.ok_or_else(|| args.fault("tos needs `--tos`"))? })
    }
}

impl fmt::Display for Tos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "tos", Some(&self.tos))
    }
}

/// `-m ecn`. For each flag: `None` if it is not compared, `Some(true)` if it must not be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ecn {
    /// `--ecn-tcp-ece`.
    pub ece: Option<bool>,
    /// `--ecn-tcp-cwr`.
    pub cwr: Option<bool>,
    /// `--ecn-ip-ect`: the two bits in the IP header.
    pub ect: Option<Condition<u8>>,
}

impl Extension for Ecn {
    const NAME: &'static str = "ecn";
    const OPTIONS: &'static [Spec] = &[
        Spec::flag("ecn-tcp-cwr").inverts(),
        Spec::flag("ecn-tcp-ece").inverts(),
        Spec::value("ecn-ip-ect").inverts(),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if args.given.is_empty() {
            return Err(args.fault("ecn needs one of `--ecn-tcp-cwr`, `--ecn-tcp-ece`, `--ecn-ip-ect`"));
        }
        Ok(Self {
            ece: args.negated("ecn-tcp-ece"),
            cwr: args.negated("ecn-tcp-cwr"),
            ect: args.test("ecn-ip-ect", |value| value.number(0, 3).map(|ect| ect as u8))?,
        })
    }
}

impl fmt::Display for Ecn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        flag(f, "ecn-tcp-ece", self.ece)?;
        flag(f, "ecn-tcp-cwr", self.cwr)?;
        option(f, "ecn-ip-ect", self.ect.as_ref())
    }
}

/// `-m tcpmss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpMss {
    /// `--mss`, in bytes.
    pub bytes: Condition<Interval<u16>>,
}

impl Extension for TcpMss {
    const NAME: &'static str = "tcpmss";
    const OPTIONS: &'static [Spec] = &[Spec::value("mss").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let bytes = args.test("mss", Value::interval_u16)?;
        Ok(Self { bytes: bytes.ok_or_else(|| args.fault("tcpmss needs `--mss`"))? })
    }
}

impl fmt::Display for TcpMss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "mss", Some(&self.bytes))
    }
}

/// `-m iprange`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpRange {
    /// `--src-range`.
    pub source: Option<Condition<Interval<IpAddr>>>,
    /// `--dst-range`.
    pub destination: Option<Condition<Interval<IpAddr>>>,
}

impl Extension for IpRange {
    const NAME: &'static str = "iprange";
    const OPTIONS: &'static [Spec] = &[Spec::value("src-range").inverts(), Spec::value("dst-range").inverts()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if args.given.is_empty() {
            return Err(args.fault("iprange needs `--src-range` or `--dst-range`"));
        }
        let range = |value: Value<'_>| match value.split_once('-') {
            Some((first, last)) => {
                Ok(Interval { first: first.address(args.family)?, last: last.address(args.family)? })
            }
            None => value.address(args.family).map(|only| Interval { first: only, last: only }),
        };
        Ok(Self { source: args.test("src-range", range)?, destination: args.test("dst-range", range)? })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |range: Condition<Interval<IpAddr>>| range.map(|range| format!("{}-{}", range.first, range.last));
        option(f, "src-range", self.source.map(text).as_ref())?;
        option(f, "dst-range", self.destination.map(text).as_ref())
    }
}

/// An Ethernet address. It prints as `02:00:5e:d3:98:79`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Reads six pairs of hexadecimal digits with colons.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        if parts.next().is_some() { None } else { Some(Self(bytes)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if nth > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

/// `-m mac`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacSource {
    /// `--mac-source`.
    pub address: Condition<MacAddress>,
}

impl Extension for MacSource {
    const NAME: &'static str = "mac";
    const OPTIONS: &'static [Spec] = &[Spec::value("mac-source").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let address = args.test("mac-source", |value| {
            MacAddress::parse(value.text).ok_or_else(|| {
                value
                    .fault(format!("`{}` is not an Ethernet address", value.text))
                    .instead("write six pairs of digits, as `02:00:5e:00:00:01`")
            })
        })?;
        Ok(Self { address: address.ok_or_else(|| args.fault("mac needs `--mac-source`"))? })
    }
}

impl fmt::Display for MacSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "mac-source", Some(&self.address))
    }
}

/// The packet class that `pkttype` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// For the router itself.
    Unicast,
    /// For all.
    Broadcast,
    /// For a group.
    Multicast,
}

const PACKET_TYPES: &[(&str, PacketType)] = &[
    ("unicast", PacketType::Unicast),
    ("broadcast", PacketType::Broadcast),
    ("multicast", PacketType::Multicast),
    ("host", PacketType::Unicast),
    ("bcast", PacketType::Broadcast),
    ("mcast", PacketType::Multicast),
];

/// `-m pkttype`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PktType {
    /// `--pkt-type`.
    pub kind: Condition<PacketType>,
}

impl Extension for PktType {
    const NAME: &'static str = "pkttype";
    const OPTIONS: &'static [Spec] = &[Spec::value("pkt-type").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let kind = args.test("pkt-type", |value| value.begin_of(PACKET_TYPES, "a type of packets"))?;
        Ok(Self { kind: kind.ok_or_else(|| args.fault("pkttype needs `--pkt-type`"))? })
    }
}

impl fmt::Display for PktType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind| PACKET_TYPES.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| *name);
        option(f, "pkt-type", Some(&self.kind.map(name)))
    }
}
