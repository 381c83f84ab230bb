//! Reads values of options: numbers, ranges, ports, marks, addresses.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Fault;
use crate::names::{protocols, services};
use crate::options::Value;
use crate::value::{Family, Interface, Interval, Mark, Network};

/// Longest name of an interface, in bytes.
pub(crate) const INTERFACE_BYTES_MAX: usize = 15;

impl<'a> Value<'a> {
    pub(crate) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::syntax(self.column, self.text, what)
    }

    /// The part of this value that is `text`, which must be a slice of it.
    pub(crate) fn part(&self, text: &'a str) -> Self {
        let before = text.as_ptr() as usize - self.text.as_ptr() as usize;
        let column = self.column + self.text.get(..before).map_or(0, |before| before.chars().count() as u32);
        Self { text, column, ..*self }
    }

    /// The parts between commas, or another separator.
    pub(crate) fn parts(self, separator: char) -> impl Iterator<Item = Self> {
        self.text.split(separator).map(move |part| self.part(part))
    }

    /// The two parts around the first separator.
    pub(crate) fn split_once(self, separator: char) -> Option<(Self, Self)> {
        self.text.split_once(separator).map(|(first, second)| (self.part(first), self.part(second)))
    }

    /// A whole number: decimal, `0x` hexadecimal, or octal with a leading zero.
    pub(crate) fn number(self, first: u64, last: u64) -> Result<u64, Fault> {
        integer(self.text).filter(|number| (first..=last).contains(number)).ok_or_else(|| {
            self.fault(format!("`--{}` takes a number from {first} to {last}, not `{}`", self.option, self.text))
        })
    }

    pub(crate) fn u8(self) -> Result<u8, Fault> {
        self.number(0, u64::from(u8::MAX)).map(|number| number as u8)
    }

    pub(crate) fn u16(self) -> Result<u16, Fault> {
        self.number(0, u64::from(u16::MAX)).map(|number| number as u16)
    }

    pub(crate) fn u32(self) -> Result<u32, Fault> {
        self.number(0, u64::from(u32::MAX)).map(|number| number as u32)
    }

    /// `4`, `4:7`, `:7`, `4:`, `:`.
    pub(crate) fn interval(self, last: u64) -> Result<Interval<u64>, Fault> {
        self.interval_of(0, last, |value| value.number(0, last))
    }

    pub(crate) fn interval_u8(self) -> Result<Interval<u8>, Fault> {
        let Interval { first, last } = self.interval(u64::from(u8::MAX))?;
        Ok(Interval { first: first as u8, last: last as u8 })
    }

    pub(crate) fn interval_u16(self) -> Result<Interval<u16>, Fault> {
        let Interval { first, last } = self.interval(u64::from(u16::MAX))?;
        Ok(Interval { first: first as u16, last: last as u16 })
    }

    pub(crate) fn interval_u32(self) -> Result<Interval<u32>, Fault> {
        let Interval { first, last } = self.interval(u64::from(u32::MAX))?;
        Ok(Interval { first: first as u32, last: last as u32 })
    }

    fn interval_of<T: Copy>(
        self,
        first: T,
        last: T,
        read: impl Fn(Self) -> Result<T, Fault>,
    ) -> Result<Interval<T>, Fault> {
        let Some((from, to)) = self.split_once(':') else {
            let only = read(self)?;
            return Ok(Interval { first: only, last: only });
        };
        let first = if from.text.is_empty() { first } else { read(from)? };
        let last = if to.text.is_empty() { last } else { read(to)? };
        Ok(Interval { first, last })
    }

    /// A port: a number, or the name of a service. The protocol decides between services of one name.
    pub(crate) fn port(self, protocol: Option<u8>) -> Result<u16, Fault> {
        if let Some(number) = integer(self.text) {
            return u16::try_from(number).map_err(|_| self.fault(format!("`{}` is not a port", self.text)));
        }
        services::port(self.text, protocol).ok_or_else(|| {
            self.fault(format!("`{}` is neither a port nor the name of a service", self.text))
                .instead("write the number")
        })
    }

    pub(crate) fn ports(self, protocol: Option<u8>) -> Result<Interval<u16>, Fault> {
        self.interval_of(0, u16::MAX, |value| value.port(protocol))
    }

    /// A protocol: a number, or a name.
    pub(crate) fn protocol(self) -> Result<u8, Fault> {
        protocols::number(self.text).ok_or_else(|| {
            self.fault(format!("`{}` is not the name of a protocol", self.text)).instead("write its number")
        })
    }

    /// `value` or `value/mask`.
    pub(crate) fn mark(self) -> Result<Mark, Fault> {
        match self.split_once('/') {
            Some((value, mask)) => Ok(Mark { value: value.u32()?, mask: mask.u32()? }),
            None => Ok(Mark { value: self.u32()?, mask: u32::MAX }),
        }
    }

    /// An address of the family.
    pub(crate) fn address(self, family: Family) -> Result<IpAddr, Fault> {
        let parsed = match family {
            Family::V4 => ipv4(self.text, true).map(IpAddr::V4),
            Family::V6 => self.text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        };
        parsed.ok_or_else(|| self.no_address(family))
    }

    /// `address`, `address/bits` or `address/mask`.
    pub(crate) fn network(self, family: Family) -> Result<Network, Fault> {
        let Some((address, mask)) = self.split_once('/') else {
            return self.address(family).map(Network::host);
        };
        let mask = mask.mask(family)?;
        // iptables ignores what stands before a mask of no bits, as in `any/0`.
        if mask == family.mask(0) {
            return Ok(Network { address: mask, mask });
        }
        Ok(Network::new(address.address(family)?, mask))
    }

    fn mask(self, family: Family) -> Result<IpAddr, Fault> {
        let bits = integer(self.text).filter(|bits| *bits <= u64::from(family.bits()));
        let mask = match (bits, family) {
            (Some(bits), family) => Some(family.mask(bits as u8)),
            (None, Family::V4) => ipv4(self.text, false).map(IpAddr::V4),
            (None, Family::V6) => self.text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        };
        mask.ok_or_else(|| {
            let example = if family == Family::V4 { "255.255.255.0" } else { "ffff:ffff::" };
            let what = format!("`{}` is not a mask", self.text);
            self.fault(what).instead(format!("write the bits, from 0 to {}, or a mask as `{example}`", family.bits()))
        })
    }

    /// The error for a word that is no address: of the other family, a host's name, or nonsense.
    fn no_address(self, family: Family) -> Fault {
        let other = match family {
            Family::V4 => self.text.parse::<Ipv6Addr>().is_ok(),
            Family::V6 => self.text.parse::<Ipv4Addr>().is_ok(),
        };
        if other {
            let what = format!("`{}` is no {family} address, and these rules are for {family}", self.text);
            return self.fault(what).of_other_family();
        }
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if self.text.bytes().all(of_name) && self.text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            let what = format!("`{}` is the name of a host, and names are not looked up", self.text);
            return Fault::unsupported(self.column, self.text, "host name", what).instead("write the address");
        }
        self.fault(format!("`{}` is not an {family} address", self.text))
    }

    /// The name of an interface. An empty one stands for none.
    pub(crate) fn interface(self) -> Result<Interface, Fault> {
        match self.text.len() {
            0..=INTERFACE_BYTES_MAX => Ok(Interface(self.text.into())),
            _ => {
                let what = format!("the interface's name `{}` is longer than {INTERFACE_BYTES_MAX} bytes", self.text);
                Err(self.fault(what))
            }
        }
    }

    /// A name of a list of names and values, in any case.
    pub(crate) fn name_of<T: Copy>(self, names: &[(&str, T)], what: &str) -> Result<T, Fault> {
        let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(self.text));
        found.map(|(_, value)| *value).ok_or_else(|| self.not_one_of(names, what))
    }

    /// As [`Self::name_of`], and a beginning of a name is enough. The first name that begins so counts.
    pub(crate) fn begin_of<T: Copy>(self, names: &[(&str, T)], what: &str) -> Result<T, Fault> {
        let begins = |name: &str| {
            let begin = name.as_bytes().get(..self.text.len());
            !self.text.is_empty() && begin.is_some_and(|begin| begin.eq_ignore_ascii_case(self.text.as_bytes()))
        };
        let found = names.iter().find(|(name, _)| begins(name));
        found.map(|(_, value)| *value).ok_or_else(|| self.not_one_of(names, what))
    }

    fn not_one_of<T>(self, names: &[(&str, T)], what: &str) -> Fault {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        self.fault(format!("`{}` is not {what}", self.text)).instead(format!("write one of {}", names.join(", ")))
    }

    /// A text that iptables cuts after so many bytes.
    pub(crate) fn text_of(self, bytes_max: usize) -> String {
        self.text[..self.text.floor_char_boundary(bytes_max)].into()
    }

    /// Refuses a text longer than so many bytes.
    pub(crate) fn text_up_to(self, bytes_max: usize) -> Result<String, Fault> {
        match self.text.len() <= bytes_max {
            true => Ok(self.text.into()),
            false => Err(self.fault(format!("the text is longer than {bytes_max} bytes"))),
        }
    }
}

/// A whole number in the notations of C.
pub(crate) fn integer(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// An IPv4 address. `10.1` stands for 10.1.0.0 if missing parts may be added.
fn ipv4(text: &str, complete: bool) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for (nth, octet) in octets.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *octet = u8::try_from(integer(part)?).ok()?,
            None if nth > 0 && complete => {}
            None => return None,
        }
    }
    if parts.next().is_some() { None } else { Some(Ipv4Addr::from(octets)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value<'_> {
        Value { option: "x", text, column: 5 }
    }

    #[test]
    fn numbers_have_the_notations_of_c() {
        let read = [("12", Some(12)), ("0x1F", Some(31)), ("010", Some(8)), ("0", Some(0))];
        for (text, number) in
            read.into_iter().chain(["", "-1", "+1", "09", "0x", "1a", "18446744073709551616"].map(|text| (text, None)))
        {
            assert_eq!(integer(text), number, "{text}");
        }
    }

    #[test]
    fn addresses_may_be_short() {
        for (text, expected) in [
            ("10/8", "10.0.0.0/8"),
            ("10.1", "10.1.0.0/32"),
            ("1.2.3.4/255.0.255.0", "1.0.3.0/255.0.255.0"),
            ("1.2.3.4/0", "0.0.0.0/0"),
        ] {
            assert_eq!(format!("{}", value(text).network(Family::V4).unwrap()), expected);
        }
        for text in ["1.2.3.4.5", "256.1", "1..2", "", "1.2.3.4/33", "1.2.3.4/255.255"] {
            assert!(value(text).network(Family::V4).is_err(), "{text}");
        }
        assert_eq!(value("www.example.net").network(Family::V4).unwrap_err().feature, "host name");
        assert!(value("::1").address(Family::V4).unwrap_err().what.contains("IPv4"));
    }

    #[test]
    fn a_part_knows_its_column() {
        let (first, second) = value("ä:b").split_once(':').unwrap();
        assert_eq!((first.column, second.column), (5, 7));
    }
}
