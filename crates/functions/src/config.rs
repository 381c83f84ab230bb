//! Configuration values that check their own range, so an error points at the line and column of the value.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use nf::IcmpErrors;
use packet::{FiveTuple, Headers, Icmp, Nanos, Transport};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The flow that an ICMP error belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorFlow {
    /// The flow of the error's own addresses.
    #[default]
    Own,
    /// The flow whose packet the error quotes, in the direction in which the error goes.
    Quoted,
}

impl ErrorFlow {
    /// The five-tuple of a packet, by direction.
    #[inline]
    pub(crate) fn tuple_of(self, headers: &Headers) -> Option<FiveTuple> {
        match (self, headers.transport) {
            (Self::Quoted, Transport::Icmp(Icmp { embedded: Some(quoted), .. })) => Some(quoted.tuple.reversed()),
            _ => headers.five_tuple(),
        }
    }
}

impl From<ErrorFlow> for IcmpErrors {
    fn from(flow: ErrorFlow) -> Self {
        match flow {
            ErrorFlow::Own => Self::Own,
            ErrorFlow::Quoted => Self::Quoted,
        }
    }
}

/// Maximum number of flows of a table.
pub type FlowCount = Count<1, 268_435_456>;

/// A timeout in whole seconds, from one second to ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "i64")]
pub struct Timeout(u32);

impl Timeout {
    const SECS_MAX: u32 = 10 * 365 * 86_400;

    /// Creates a timeout of `secs` seconds.
    ///
    /// # Panics
    /// If `secs` is 0 or more than ten years.
    #[must_use]
    pub const fn from_secs(secs: u32) -> Self {
        assert!(secs >= 1 && secs <= Self::SECS_MAX);
        Self(secs)
    }

    /// The timeout in whole seconds.
    #[must_use]
    pub const fn secs(self) -> u32 {
        self.0
    }

    /// The timeout as a span of packet time.
    #[must_use]
    pub const fn nanos(self) -> Nanos {
        Nanos::from_secs(self.0 as u64)
    }
}

impl TryFrom<i64> for Timeout {
    type Error = String;

    fn try_from(secs: i64) -> Result<Self, String> {
        match u32::try_from(secs) {
            Ok(secs) if (1..=Self::SECS_MAX).contains(&secs) => Ok(Self(secs)),
            _ => Err(format!("{secs} is not a timeout: whole seconds from 1 to {} (ten years)", Self::SECS_MAX)),
        }
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "i64")]
pub struct Count<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// Creates the value.
    ///
    /// # Panics
    /// If it is out of range.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        assert!(value >= MIN && value <= MAX);
        Self(value)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> TryFrom<i64> for Count<MIN, MAX> {
    type Error = String;

    fn try_from(value: i64) -> Result<Self, String> {
        match u64::try_from(value) {
            Ok(value) if (MIN..=MAX).contains(&value) => Ok(Self(value)),
            _ => Err(format!("{value} is out of range: from {MIN} to {MAX}")),
        }
    }
}

/// Bytes to look for, from 1 to `MAX` of them: a text, or `hex:` with pairs of digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern<const MAX: usize> {
    /// As it was written.
    pub text: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl<const MAX: usize> Pattern<MAX> {
    fn new(text: &str) -> Result<Self, String> {
        let bytes = match text.strip_prefix("hex:") {
            Some(digits) => {
                let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
                let (pairs, rest) = digits.as_chunks::<2>();
                let byte = |[high, low]: &[u8; 2]| {
                    let digit = |digit: u8| char::from(digit).to_digit(16);
                    Some((digit(*high)? * 16 + digit(*low)?) as u8)
                };
                let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty());
                bytes.ok_or_else(|| format!("`{text}` is not a pattern: write hex:16 03 01, digits in pairs"))?
            }
            None => text.as_bytes().to_vec(),
        };
        match bytes.len() {
            len if (1..=MAX).contains(&len) => Ok(Self { text: text.into(), bytes }),
            len => Err(format!("a pattern has {len} bytes: from 1 to {MAX}")),
        }
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Pattern<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PatternVisitor)
    }
}

/// Parses a pattern while it is being read, so that the error points at the pattern and not at the list.
struct PatternVisitor<const MAX: usize>;

impl<const MAX: usize> Visitor<'_> for PatternVisitor<MAX> {
    type Value = Pattern<MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pattern in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Pattern<MAX>, E> {
        Pattern::new(text).map_err(E::custom)
    }
}

/// A share or a probability: above 0, below 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f64")]
pub struct Share(f64);

impl Share {
    /// Creates the value.
    ///
    /// # Panics
    /// If it is out of range.
    #[must_use]
    pub const fn new(share: f64) -> Self {
        assert!(share > 0.0 && share < 1.0);
        Self(share)
    }

    /// The share.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The share in millionths, rounded.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        (self.0 * 1e6 + 0.5) as u32
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(share: f64) -> Result<Self, String> {
        // Also refuses NaN.
        if share > 0.0 && share < 1.0 {
            Ok(Self(share))
        } else {
            Err(format!("{share} is out of range: above 0 and below 1"))
        }
    }
}

/// An address prefix: `10.0.0.0/8`, `fc00::/7`, or a bare address for one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// IPv4.
    V4 {
        /// The common bits of the prefix's addresses.
        bits: u32,
        /// The mask of those bits.
        mask: u32,
    },
    /// IPv6.
    V6 {
        /// The common bits of the prefix's addresses.
        bits: u128,
        /// The mask of those bits.
        mask: u128,
    },
}

impl Prefix {
    /// An IPv4 prefix.
    ///
    /// # Panics
    /// If `len` is above 32 or `address` has bits set after it.
    #[must_use]
    pub const fn v4(address: Ipv4Addr, len: u32) -> Self {
        assert!(len <= 32);
        let (bits, mask) = (address.to_bits(), mask_v4(len));
        assert!(bits & !mask == 0);
        Self::V4 { bits, mask }
    }

    /// An IPv6 prefix.
    ///
    /// # Panics
    /// If `len` is above 128 or `address` has bits set after it.
    #[must_use]
    pub const fn v6(address: Ipv6Addr, len: u32) -> Self {
        assert!(len <= 128);
        let (bits, mask) = (address.to_bits(), mask_v6(len));
        assert!(bits & !mask == 0);
        Self::V6 { bits, mask }
    }

    /// Returns true if the address is in this prefix.
    #[inline]
    #[must_use]
    pub const fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4 { bits, mask }, IpAddr::V4(address)) => address.to_bits() & *mask == *bits,
            (Self::V6 { bits, mask }, IpAddr::V6(address)) => address.to_bits() & *mask == *bits,
            (Self::V4 { .. }, IpAddr::V6(_)) | (Self::V6 { .. }, IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{text}` is not a prefix: write 10.0.0.0/8 or fc00::/7"))?;
        let len_max = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => len_max,
            Some(len) => (len.parse().ok().filter(|len| *len <= len_max))
                .ok_or_else(|| format!("`{text}` is not a prefix: the length goes from 0 to {len_max}"))?,
        };
        let prefix = match address {
            IpAddr::V4(address) => {
                let mask = mask_v4(len);
                Self::V4 { bits: address.to_bits() & mask, mask }
            }
            IpAddr::V6(address) => {
                let mask = mask_v6(len);
                Self::V6 { bits: address.to_bits() & mask, mask }
            }
        };
        // An address with bits after the prefix length is nearly always a mistake, in the address or in the length.
        if prefix.address() == address {
            Ok(prefix)
        } else {
            Err(format!("`{text}` has bits set after its prefix length: write {prefix}"))
        }
    }
}

impl Prefix {
    const fn address(&self) -> IpAddr {
        match self {
            Self::V4 { bits, .. } => IpAddr::V4(Ipv4Addr::from_bits(*bits)),
            Self::V6 { bits, .. } => IpAddr::V6(Ipv6Addr::from_bits(*bits)),
        }
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PrefixVisitor)
    }
}

/// Parses a prefix while its value is being read, so that the error points at the prefix and not at the list around it.
struct PrefixVisitor;

impl Visitor<'_> for PrefixVisitor {
    type Value = Prefix;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Prefix, E> {
        text.parse().map_err(E::custom)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = match self {
            Self::V4 { mask, .. } => mask.leading_ones(),
            Self::V6 { mask, .. } => mask.leading_ones(),
        };
        write!(f, "{}/{len}", self.address())
    }
}

/// One prefix or several: `"10.0.0.0/8"`, `["10.0.0.0/8", "fc00::/7"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes(Vec<Prefix>);

impl Prefixes {
    /// Returns true if the address is in one of the prefixes.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|prefix| prefix.contains(address))
    }
}

impl<'de> Deserialize<'de> for Prefixes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Prefixes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a prefix in quotes, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Prefixes, E> {
                Ok(Prefixes([PrefixVisitor.visit_str(text)?].into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prefixes, A::Error> {
                let mut prefixes = Vec::new();
                while let Some(prefix) = list.next_element()? {
                    prefixes.push(prefix);
                }
                if prefixes.is_empty() {
                    return Err(de::Error::custom("an empty list matches nobody: omit the key to match everybody"));
                }
                Ok(Prefixes(prefixes))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// One port or a range, both ends included: `22`, `"8000-8100"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Returns true if the port is in the range.
    #[must_use]
    pub const fn contain(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port from 1 to 65535, or a range of them in quotes such as \"8000-8100\"")
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Ports, E> {
                match u16::try_from(port) {
                    Ok(port) if port > 0 => Ok(Ports { first: port, last: port }),
                    _ => Err(E::custom(format!("{port} is out of range: from 1 to 65535"))),
                }
            }

            fn visit_u64<E: de::Error>(self, port: u64) -> Result<Ports, E> {
                self.visit_i64(i64::try_from(port).unwrap_or(i64::MAX))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ports, E> {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                match (first.trim().parse(), last.trim().parse()) {
                    (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Ports { first, last }),
                    (Ok(first), Ok(last)) if 0 < last && last < first => {
                        Err(E::custom(format!("`{text}` ends before it begins: write \"{last}-{first}\"")))
                    }
                    _ => Err(E::custom(format!(
                        "`{text}` is not a range of ports: write \"8000-8100\", from 1 to 65535"
                    ))),
                }
            }
        }

        deserializer.deserialize_any(Either)
    }
}

const fn mask_v4(len: u32) -> u32 {
    match u32::MAX.checked_shl(32 - len) {
        Some(mask) => mask,
        None => 0,
    }
}

const fn mask_v6(len: u32) -> u128 {
    match u128::MAX.checked_shl(128 - len) {
        Some(mask) => mask,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        idle: Option<Timeout>,
        flows: Option<FlowCount>,
        inside: Option<Prefix>,
        outside: Option<Vec<Prefix>>,
        share: Option<Share>,
    }

    #[test]
    fn errors_point_at_line_and_column_and_say_the_range() {
        for (text, at, says) in [
            ("# a comment\nidle = 0\n", "line 2, column 8", "from 1 to 315360000"),
            ("idle = -5", "line 1, column 8", "-5 is not a timeout"),
            ("idle = 315360001", "line 1, column 8", "ten years"),
            ("flows = 0", "line 1, column 9", "0 is out of range: from 1 to 268435456"),
            ("\n\n  inside = \"10.0.0.1/8\"", "line 3, column 12", "write 10.0.0.0/8"),
            ("inside = \"10.0.0.0/33\"", "line 1, column 10", "from 0 to 32"),
            ("inside = \"ten\"", "line 1, column 10", "not a prefix"),
            ("outside = [\n  \"10.0.0.0/8\",\n  \"fc00::1/7\",\n]", "line 3, column 3", "write fc00::/7"),
            ("inside = 7", "line 1, column 10", "a prefix in quotes"),
            ("share = 1.0", "line 1, column 9", "1 is out of range: above 0 and below 1"),
            ("share = nan", "line 1, column 9", "out of range"),
            ("idel = 7", "line 1, column 1", "unknown field"),
        ] {
            let error = toml::from_str::<Sample>(text).unwrap_err().to_string();
            assert!(error.contains(at), "{text:?}: {error}");
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn prefixes_contain_only_their_addresses() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("fc00::/7", "fdff::1", "fe00::"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            assert!(prefix.contains(inside.parse().unwrap()));
            assert!(!prefix.contains(outside.parse().unwrap()));
            assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
        let all: Prefix = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.1.2.3".parse().unwrap()) && !all.contains("::".parse().unwrap()));
    }
}
