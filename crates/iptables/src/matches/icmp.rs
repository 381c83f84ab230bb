//! ICMP types and codes: `icmp`, `icmp6`.

use alloc::format;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::names::icmp::{V4, V6};
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Family, Interval, option};

/// A type and a range of its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpType {
    /// The type. For IPv4, 255 stands for any.
    pub kind: u8,
    /// The codes.
    pub codes: Interval<u8>,
}

impl IcmpType {
    const CODES: Interval<u8> = Interval { first: 0, last: 255 };

    fn read(value: Value<'_>, names: &[(&'static str, u8, Interval<u8>)]) -> Result<Self, Fault> {
        let text = value.text.as_bytes();
        let begins = |name: &str| {
            name.as_bytes().get(..text.len()).is_some_and(|begin| !text.is_empty() && begin.eq_ignore_ascii_case(text))
        };
        let whole = names.iter().find(|(name, ..)| name.eq_ignore_ascii_case(value.text));
        let mut begun = names.iter().filter(|(name, ..)| begins(name));
        let (first, second) = (begun.next(), begun.next());
        if let Some((_, kind, codes)) = whole.or(first.filter(|_| second.is_none())) {
            return Ok(Self { kind: *kind, codes: *codes });
        }
        if let (Some((one, ..)), Some((other, ..))) = (first, second) {
            return Err(value.fault(format!("`{}` may be `{one}` or `{other}`", value.text)));
        }
        let (kind, code) = value.split_once('/').map_or((value, None), |(kind, code)| (kind, Some(code)));
        if !kind.text.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(value
                .fault(format!("`{}` is not a type of ICMP", value.text))
                .instead("write a name, or the numbers as `3/1`"));
        }
        let codes = code.map_or(Ok(Self::CODES), Value::interval_u8)?;
        Ok(Self { kind: kind.u8()?, codes })
    }
}

impl fmt::Display for IcmpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.codes == Self::CODES {
            true => write!(f, "{}", self.kind),
            false => write!(f, "{}/{}", self.kind, self.codes),
        }
    }
}

/// `-m icmp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// `--icmp-type`.
    pub kind: Condition<IcmpType>,
}

impl Extension for Icmp {
    const NAME: &'static str = "icmp";
    const FAMILY: Option<Family> = Some(Family::V4);
    const OPTIONS: &'static [Spec] = &[Spec::value("icmp-type").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let kind = args.test("icmp-type", |value| IcmpType::read(value, V4))?;
        let kind = kind.ok_or_else(|| args.fault("icmp needs `--icmp-type`"))?;
        // The kernel compares no code with the type that stands for any.
        let codes = if kind.value.kind == 255 { IcmpType::CODES } else { kind.value.codes };
        Ok(Self { kind: kind.map(|kind| IcmpType { codes, ..kind }) })
    }
}

impl fmt::Display for Icmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.value.kind {
            255 => option(f, "icmp-type", Some(&self.kind.map(|_| "any"))),
            _ => option(f, "icmp-type", Some(&self.kind)),
        }
    }
}

/// `-m icmp6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp6 {
    /// `--icmpv6-type`.
    pub kind: Condition<IcmpType>,
}

impl Extension for Icmp6 {
    const NAME: &'static str = "icmp6";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value("icmpv6-type").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let kind = args.test("icmpv6-type", |value| IcmpType::read(value, V6))?;
        Ok(Self { kind: kind.ok_or_else(|| args.fault("icmp6 needs `--icmpv6-type`"))? })
    }
}

impl fmt::Display for Icmp6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "icmpv6-type", Some(&self.kind))
    }
}
