//! Changes of the packet: `MARK`, `TCPMSS`, `TCPOPTSTRIP`, `TTL`, `HL`, `DSCP`, `TOS`, `ECN`, `CLASSIFY`, `CHECKSUM`.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use super::track::{MARK_CHANGES, mark_change};
use crate::error::Fault;
use crate::extension::Extension;
use crate::matches::TosTest;
use crate::names::{DSCP_CLASSES, TCP_OPTIONS};
use crate::options::{Args, Spec, Value};
use crate::value::{Family, MarkChange};

/// `-j MARK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkPacket {
    /// The change.
    pub change: MarkChange,
}

impl Extension for MarkPacket {
    const NAME: &'static str = "MARK";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("set-xmark"),
        Spec::value("set-mark"),
        Spec::value("and-mark"),
        Spec::value("or-mark"),
        Spec::value("xor-mark"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&MARK_CHANGES)?;
        let value = given.words[0].ok_or_else(|| args.fault("a mark is missing"))?;
        Ok(Self { change: mark_change(given.spec.name, value)? })
    }
}

impl fmt::Display for MarkPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --set-xmark {}", self.change)
    }
}

/// `-j TCPMSS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpMssChange {
    /// `--set-mss`, in bytes. A smaller one is kept.
    Set(u16),
    /// `--clamp-mss-to-pmtu`: what fits into the path's packets.
    ClampToPathMtu,
}

impl Extension for TcpMssChange {
    const NAME: &'static str = "TCPMSS";
    const OPTIONS: &'static [Spec] = &[Spec::value("set-mss"), Spec::flag("clamp-mss-to-pmtu")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let most = match args.family {
            Family::V4 => u64::from(u16::MAX) - 40,
            Family::V6 => u64::from(u16::MAX) - 60,
        };
        args.exactly_one_of(&["set-mss", "clamp-mss-to-pmtu"])?;
        let set = args.read("set-mss", |value| value.number(0, most))?;
        Ok(set.map_or(Self::ClampToPathMtu, |bytes| Self::Set(bytes as u16)))
    }
}

impl fmt::Display for TcpMssChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(bytes) => write!(f, " --set-mss {bytes}"),
            Self::ClampToPathMtu => f.write_str(" --clamp-mss-to-pmtu"),
        }
    }
}

/// `-j TCPOPTSTRIP`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptStrip {
    /// `--strip-options`, by number and without repetition.
    pub options: Vec<u8>,
}

impl Extension for TcpOptStrip {
    const NAME: &'static str = "TCPOPTSTRIP";
    const OPTIONS: &'static [Spec] = &[Spec::value("strip-options")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let one = |part: Value<'_>| match part.text.as_bytes().first() {
            Some(byte) if byte.is_ascii_digit() => part.number(2, 255).map(|option| option as u8),
            Some(_) | None => part.name_of(TCP_OPTIONS, "an option of TCP"),
        };
        let list = args.read("strip-options", |value| value.parts(',').map(one).collect::<Result<Vec<_>, _>>())?;
        let mut options = list.unwrap_or_default();
        options.sort_unstable();
        options.dedup();
        Ok(Self { options })
    }
}

impl fmt::Display for TcpOptStrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, option) in self.options.iter().enumerate() {
            write!(f, "{}{option}", if nth == 0 { " --strip-options " } else { "," })?;
        }
        Ok(())
    }
}

/// The change of a time to live or a hop limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlStep {
    /// The value becomes this one.
    Set(u8),
    /// This number is subtracted.
    Subtract(u8),
    /// This number is added.
    Add(u8),
}

impl TtlStep {
    fn read(args: &Args<'_>, names: [&'static str; 3]) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&names)?;
        let value = given.words[0].ok_or_else(|| args.fault("a number is missing"))?;
        let [set, subtract, _] = names;
        Ok(match given.spec.name {
            name if name == set => Self::Set(value.u8()?),
            name if name == subtract => Self::Subtract(value.number(1, 255)? as u8),
            _ => Self::Add(value.number(1, 255)? as u8),
        })
    }

    fn write(self, f: &mut fmt::Formatter<'_>, names: [&str; 3]) -> fmt::Result {
        let (name, value) = match self {
            Self::Set(value) => (names[0], value),
            Self::Subtract(value) => (names[1], value),
            Self::Add(value) => (names[2], value),
        };
        write!(f, " --{name} {value}")
    }
}

/// `-j TTL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TtlChange(pub TtlStep);

/// `-j HL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HlChange(pub TtlStep);

const TTL: [&str; 3] = ["ttl-set", "ttl-dec", "ttl-inc"];
const HL: [&str; 3] = ["hl-set", "hl-dec", "hl-inc"];

impl Extension for TtlChange {
    const NAME: &'static str = "TTL";
    const FAMILY: Option<Family> = Some(Family::V4);
    const OPTIONS: &'static [Spec] = &[Spec::value(TTL[0]), Spec::value(TTL[1]), Spec::value(TTL[2])];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        TtlStep::read(args, TTL).map(Self)
    }
}

impl fmt::Display for TtlChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, TTL)
    }
}

impl Extension for HlChange {
    const NAME: &'static str = "HL";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value(HL[0]), Spec::value(HL[1]), Spec::value(HL[2])];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        TtlStep::read(args, HL).map(Self)
    }
}

impl fmt::Display for HlChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, HL)
    }
}

/// `-j DSCP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DscpChange {
    /// `--set-dscp` or `--set-dscp-class`: a number from 0 to 63.
    pub value: u8,
}

impl Extension for DscpChange {
    const NAME: &'static str = "DSCP";
    const OPTIONS: &'static [Spec] = &[Spec::value("set-dscp"), Spec::value("set-dscp-class")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        args.exactly_one_of(&["set-dscp", "set-dscp-class"])?;
        let number = args.read("set-dscp", |value| value.number(0, 63))?.map(|number| number as u8);
        let class = args.read("set-dscp-class", |value| value.name_of(DSCP_CLASSES, "a class of DSCP"))?;
        Ok(Self { value: number.or(class).ok_or_else(|| args.fault("a number is missing"))? })
    }
}

impl fmt::Display for DscpChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --set-dscp {:#04x}", self.value)
    }
}

/// `-j TOS`: the field is set to `(tos & !mask) ^ value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TosChange {
    /// Bits that are flipped, and before that the bits that are cleared.
    pub change: TosTest,
}

impl Extension for TosChange {
    const NAME: &'static str = "TOS";
    const OPTIONS: &'static [Spec] =
        &[Spec::value("set-tos"), Spec::value("and-tos"), Spec::value("or-tos"), Spec::value("xor-tos")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&["set-tos", "and-tos", "or-tos", "xor-tos"])?;
        let value = given.words[0].ok_or_else(|| args.fault("a number is missing"))?;
        let change = match given.spec.name {
            "set-tos" => TosTest::read(value, 0xff)?,
            "and-tos" => TosTest { value: 0, mask: !value.u8()? },
            "or-tos" => value.u8().map(|bits| TosTest { value: bits, mask: bits })?,
            _ => TosTest { value: value.u8()?, mask: 0 },
        };
        Ok(Self { change })
    }
}

impl fmt::Display for TosChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --set-tos {}", self.change)
    }
}

/// `-j ECN --ecn-tcp-remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EcnChange;

impl Extension for EcnChange {
    const NAME: &'static str = "ECN";
    const FAMILY: Option<Family> = Some(Family::V4);
    const OPTIONS: &'static [Spec] = &[
        Spec::flag("ecn-tcp-remove"),
        Spec::value("ecn-tcp-cwr"),
        Spec::value("ecn-tcp-ece"),
        Spec::value("ecn-ip-ect"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if let Some(given) = args.given.iter().find(|given| !given.is("ecn-tcp-remove")) {
            let what = format!("`--{}` is not supported", given.spec.name);
            return Err(Fault::unsupported(given.column, given.spec.name, "ECN set", what));
        }
        args.exactly_one_of(&["ecn-tcp-remove"])?;
        Ok(Self)
    }
}

impl fmt::Display for EcnChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(" --ecn-tcp-remove")
    }
}

/// `-j CLASSIFY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classify {
    /// The first number of the class.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl Extension for Classify {
    const NAME: &'static str = "CLASSIFY";
    const OPTIONS: &'static [Spec] = &[Spec::value("set-class").required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let class = args.read("set-class", |value| {
            let number = |part: Value<'_>| u16::from_str_radix(part.text, 16).ok();
            let parts = value.split_once(':').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
            parts.ok_or_else(|| {
                let what = format!("`{}` is not a class", value.text);
                value.fault(what).instead("write two hexadecimal numbers, as `1:10`")
            })
        })?;
        let (major, minor) = class.ok_or_else(|| args.fault("CLASSIFY needs `--set-class`"))?;
        Ok(Self { major, minor })
    }
}

impl fmt::Display for Classify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --set-class {:04x}:{:04x}", self.major, self.minor)
    }
}

/// `-j CHECKSUM --checksum-fill`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksum;

impl Extension for Checksum {
    const NAME: &'static str = "CHECKSUM";
    const OPTIONS: &'static [Spec] = &[Spec::flag("checksum-fill").required()];

    fn build(_: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(" --checksum-fill")
    }
}
