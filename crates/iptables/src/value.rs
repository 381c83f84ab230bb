//! Small values that many parts of a rule are made of.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4: `iptables`.
    V4,
    /// IPv6: `ip6tables`.
    V6,
}

impl Family {
    /// Bits of an address.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The command of this family.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The mask of this many leading one bits.
    pub(crate) fn mask(self, bits: u8) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0))),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A test of a value, or with `!` of the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Condition<T> {
    /// True if the rule has a `!` before the option.
    pub negated: bool,
    /// The value to compare with.
    pub value: T,
}

impl<T> Condition<T> {
    /// Changes the value and keeps the `!`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Condition<U> {
        Condition { negated: self.negated, value: change(self.value) }
    }

    /// The outcome of the test, given whether the value matches.
    pub const fn holds(&self, matches: bool) -> bool {
        matches != self.negated
    }
}

/// Packets and bytes that a rule or a policy has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// The packets.
    pub packets: u64,
    /// The bytes.
    pub bytes: u64,
}

/// An inclusive range. It prints as `4:7`, or as `4` if it has one value. `first` may be above `last`, as iptables allows that for most
/// options; such a range is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval<T> {
    /// The first value.
    pub first: T,
    /// The last value.
    pub last: T,
}

impl<T: PartialOrd> Interval<T> {
    /// True if the value is inside.
    pub fn contains(&self, value: &T) -> bool {
        (&self.first..=&self.last).contains(&value)
    }
}

impl<T: fmt::Display + PartialEq> fmt::Display for Interval<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}:{}", self.first, self.last),
        }
    }
}

/// An address and a mask, which may have gaps. Bits outside of the mask are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// The mask, of the same family.
    pub mask: IpAddr,
}

impl Network {
    /// Clears the bits outside of the mask. Both must be of one family.
    #[must_use]
    pub fn new(address: IpAddr, mask: IpAddr) -> Self {
        let address = match (address, mask) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => IpAddr::V4(address & mask),
            (IpAddr::V6(address), IpAddr::V6(mask)) => IpAddr::V6(address & mask),
            (address, _) => address,
        };
        Self { address, mask }
    }

    /// The network of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        let family = Family::of(address);
        Self { address, mask: family.mask(family.bits()) }
    }

    /// The length of the prefix, unless the mask has gaps.
    #[must_use]
    pub const fn prefix_len(&self) -> Option<u8> {
        match self.mask {
            IpAddr::V4(mask) => {
                let bits = mask.to_bits();
                if bits.leading_ones() == bits.count_ones() { Some(bits.leading_ones() as u8) } else { None }
            }
            IpAddr::V6(mask) => {
                let bits = mask.to_bits();
                if bits.leading_ones() == bits.count_ones() { Some(bits.leading_ones() as u8) } else { None }
            }
        }
    }

    /// True if the address is inside. An address of the other family never is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (address, self.mask) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => IpAddr::V4(address & mask) == self.address,
            (IpAddr::V6(address), IpAddr::V6(mask)) => IpAddr::V6(address & mask) == self.address,
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// The text without the mask if the mask has all bits, as options of extensions print it.
    pub(crate) fn short(&self) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.prefix_len() {
            Some(bits) if bits == Family::of(self.address).bits() => write!(f, "{}", self.address),
            Some(_) | None => write!(f, "{self}"),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_len() {
            Some(bits) => write!(f, "{}/{bits}", self.address),
            None => write!(f, "{}/{}", self.address, self.mask),
        }
    }
}

/// The name of an interface. With a `+` at the end it stands for all interfaces whose names begin with the rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface(pub(crate) alloc::boxed::Box<str>);

impl Interface {
    /// The name as it is written.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }

    /// The name's beginning, if `+` stands for the rest.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('+')
    }

    /// True if the rule means the interface of this name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.prefix().map_or_else(|| *self.0 == *name, |prefix| name.starts_with(prefix))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::words::bare(&self.0))
    }
}

/// A mark of 32 bits and a mask. It matches if `mark & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The value.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask {
            u32::MAX => write!(f, "{:#x}", self.value),
            mask => write!(f, "{:#x}/{mask:#x}", self.value),
        }
    }
}

/// A packet's mark, or a flow's, is set to `(mark & !mask) ^ value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkChange {
    /// The bits that are flipped, after the clearing.
    pub value: u32,
    /// The bits that are cleared first.
    pub mask: u32,
}

impl MarkChange {
    /// The mark afterwards.
    #[must_use]
    pub const fn apply(self, mark: u32) -> u32 {
        (mark & !self.mask) ^ self.value
    }
}

impl fmt::Display for MarkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// Writes ` ! --name value`.
pub(crate) fn option<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    condition: Option<&Condition<T>>,
) -> fmt::Result {
    match condition {
        Some(Condition { negated, value }) => {
            write!(f, "{} --{name} {value}", if *negated { " !" } else { "" })
        }
        None => Ok(()),
    }
}

/// Writes ` ! --name` for an option without a value.
pub(crate) fn flag(f: &mut fmt::Formatter<'_>, name: &str, given: Option<bool>) -> fmt::Result {
    match given {
        Some(negated) => write!(f, "{} --{name}", if negated { " !" } else { "" }),
        None => Ok(()),
    }
}

/// Writes ` --name` if it is given.
pub(crate) fn plain(f: &mut fmt::Formatter<'_>, name: &str, given: bool) -> fmt::Result {
    if given { write!(f, " --{name}") } else { Ok(()) }
}
