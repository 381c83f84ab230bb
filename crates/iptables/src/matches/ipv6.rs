//! Extension headers of IPv6: `frag`, `hbh`, `dst`, `rt`, `mh`, `ipv6header`, `eui64`.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Family, Interval, option, plain};

fn telling(condition: Option<Condition<Interval<u32>>>) -> Option<Condition<Interval<u32>>> {
    condition.filter(|condition| condition.negated || condition.value != Interval { first: 0, last: u32::MAX })
}

/// `-m frag`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frag {
    /// `--fragid`.
    pub id: Option<Condition<Interval<u32>>>,
    /// `--fraglen`. The kernel does not look.
    pub length: Option<Condition<u32>>,
    /// `--fragres`: the reserved fields are zero.
    pub reserved: bool,
    /// `--fragfirst`: it is the first fragment.
    pub first: bool,
    /// `--fragmore` or `--fraglast`.
    pub place: Option<FragPlace>,
}

/// The place of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragPlace {
    /// More fragments follow.
    More,
    /// The fragment is the last one.
    Last,
}

impl Extension for Frag {
    const NAME: &'static str = "frag";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[
        Spec::value("fragid").inverts(),
        Spec::value("fraglen").inverts(),
        Spec::flag("fragres"),
        Spec::flag("fragfirst"),
        Spec::flag("fragmore"),
        Spec::flag("fraglast"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let place = args.one_of(&["fragmore", "fraglast"])?;
        Ok(Self {
            id: telling(args.test("fragid", Value::interval_u32)?),
            length: args.test("fraglen", Value::u32)?,
            reserved: args.flag("fragres"),
            first: args.flag("fragfirst"),
            place: place.map(|given| if given.is("fragmore") { FragPlace::More } else { FragPlace::Last }),
        })
    }
}

impl fmt::Display for Frag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "fragid", self.id.as_ref())?;
        option(f, "fraglen", self.length.as_ref())?;
        plain(f, "fragres", self.reserved)?;
        plain(f, "fragfirst", self.first)?;
        plain(f, "fragmore", self.place == Some(FragPlace::More))?;
        plain(f, "fraglast", self.place == Some(FragPlace::Last))
    }
}

/// Length and options of a header that carries options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderOptions {
    /// The length, in bytes.
    pub length: Option<Condition<u32>>,
    /// Options with their lengths, in the order of the packet. A length of `None` is not compared.
    pub options: Vec<(u8, Option<u8>)>,
}

impl HeaderOptions {
    fn read(args: &Args<'_>, length: &str, options: &str) -> Result<Self, Fault> {
        const OPTIONS_MAX: usize = 16;
        let list = |value: Value<'_>| {
            let read = |part: Value<'_>| match part.split_once(':') {
                Some((kind, length)) => Ok((kind.u8()?, Some(length.u8()?))),
                None => Ok((part.u8()?, None)),
            };
            let list: Vec<_> = value.parts(',').map(read).collect::<Result<_, Fault>>()?;
            if list.len() > OPTIONS_MAX {
                return Err(value.fault(format!("there are more than {OPTIONS_MAX} options")));
            }
            Ok(list)
        };
        Ok(Self { length: args.test(length, Value::u32)?, options: args.read(options, list)?.unwrap_or_default() })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, length: &str, options: &str) -> fmt::Result {
        option(f, length, self.length.as_ref())?;
        for (nth, (kind, length)) in self.options.iter().enumerate() {
            match nth {
                0 => write!(f, " --{options} {kind}")?,
                _ => write!(f, ",{kind}")?,
            }
            if let Some(length) = length {
                write!(f, ":{length}")?;
            }
        }
        Ok(())
    }
}

/// `-m hbh`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hbh(pub HeaderOptions);

impl Extension for Hbh {
    const NAME: &'static str = "hbh";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value("hbh-len").inverts(), Spec::value("hbh-opts")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        HeaderOptions::read(args, "hbh-len", "hbh-opts").map(Self)
    }
}

impl fmt::Display for Hbh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "hbh-len", "hbh-opts")
    }
}

/// `-m dst`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dst(pub HeaderOptions);

impl Extension for Dst {
    const NAME: &'static str = "dst";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value("dst-len").inverts(), Spec::value("dst-opts")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        HeaderOptions::read(args, "dst-len", "dst-opts").map(Self)
    }
}

impl fmt::Display for Dst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "dst-len", "dst-opts")
    }
}

/// `-m rt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rt {
    /// `--rt-type`.
    pub kind: Option<Condition<u32>>,
    /// `--rt-segsleft`.
    pub segments_left: Option<Condition<Interval<u32>>>,
    /// `--rt-len`, in bytes.
    pub length: Option<Condition<u32>>,
    /// `--rt-0-res`: the reserved field of type 0 is zero.
    pub reserved: bool,
    /// `--rt-0-addrs`: addresses of type 0.
    pub addresses: Vec<IpAddr>,
    /// `--rt-0-not-strict`: other addresses may lie between them.
    pub not_strict: bool,
}

impl Extension for Rt {
    const NAME: &'static str = "rt";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[
        Spec::value("rt-type").inverts(),
        Spec::value("rt-segsleft").inverts(),
        Spec::value("rt-len").inverts(),
        Spec::flag("rt-0-res"),
        Spec::value("rt-0-addrs"),
        Spec::flag("rt-0-not-strict"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        const ADDRESSES_MAX: usize = 16;
        let kind = args.test("rt-type", Value::u32)?;
        let of_zero = ["rt-0-res", "rt-0-addrs", "rt-0-not-strict"];
        let is_zero = kind == Some(Condition { negated: false, value: 0 });
        if let Some(given) = args.given.iter().find(|given| !is_zero && of_zero.contains(&given.spec.name)) {
            let what = format!("`--{}` needs `--rt-type 0`", given.spec.name);
            return Err(Fault::syntax(given.column, given.spec.name, what));
        }
        args.needs("rt-0-not-strict", &["rt-0-addrs"])?;
        let addresses = |value: Value<'_>| {
            let list: Vec<_> = value.parts(',').map(|part| part.address(Family::V6)).collect::<Result<_, _>>()?;
            if list.len() > ADDRESSES_MAX {
                return Err(value.fault(format!("there are more than {ADDRESSES_MAX} addresses")));
            }
            Ok(list)
        };
        Ok(Self {
            kind,
            segments_left: telling(args.test("rt-segsleft", Value::interval_u32)?),
            length: args.test("rt-len", Value::u32)?,
            reserved: args.flag("rt-0-res"),
            addresses: args.read("rt-0-addrs", addresses)?.unwrap_or_default(),
            not_strict: args.flag("rt-0-not-strict"),
        })
    }
}

impl fmt::Display for Rt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "rt-type", self.kind.as_ref())?;
        option(f, "rt-segsleft", self.segments_left.as_ref())?;
        option(f, "rt-len", self.length.as_ref())?;
        plain(f, "rt-0-res", self.reserved)?;
        for (nth, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if nth == 0 { " --rt-0-addrs " } else { "," })?;
        }
        plain(f, "rt-0-not-strict", self.not_strict)
    }
}

/// `-m mh`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mh {
    /// `--mh-type`.
    pub kind: Option<Condition<Interval<u8>>>,
}

const MH_TYPES: &[(&str, u8)] = &[
    ("binding-refresh-request", 0),
    ("brr", 0),
    ("home-test-init", 1),
    ("hoti", 1),
    ("careof-test-init", 2),
    ("coti", 2),
    ("home-test", 3),
    ("hot", 3),
    ("careof-test", 4),
    ("cot", 4),
    ("binding-update", 5),
    ("bu", 5),
    ("binding-acknowledgement", 6),
    ("ba", 6),
    ("binding-error", 7),
    ("be", 7),
];

impl Extension for Mh {
    const NAME: &'static str = "mh";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value("mh-type").inverts()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let one = |value: Value<'_>| match value.text.as_bytes().first() {
            Some(byte) if byte.is_ascii_digit() => value.u8(),
            Some(_) | None => value.name_of(MH_TYPES, "a type of the mobility header"),
        };
        let kinds = |value: Value<'_>| {
            let kinds = match value.split_once(':') {
                Some((first, last)) => Interval {
                    first: if first.text.is_empty() { 0 } else { one(first)? },
                    last: if last.text.is_empty() { 255 } else { one(last)? },
                },
                None => one(value).map(|only| Interval { first: only, last: only })?,
            };
            if kinds.first > kinds.last {
                return Err(value.fault("the range of types ends before it begins"));
            }
            Ok(kinds)
        };
        let kind = args.test("mh-type", kinds)?;
        let all = Interval { first: 0, last: 255 };
        Ok(Self { kind: kind.filter(|kind| kind.negated || kind.value != all) })
    }
}

impl fmt::Display for Mh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "mh-type", self.kind.as_ref())
    }
}

/// `-m ipv6header`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// `--header`.
    pub headers: Condition<ExtensionHeaders>,
    /// `--soft`: the packet may have others too.
    pub soft: bool,
}

/// A set of extension headers, a bit each, as the kernel has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeaders(pub u8);

impl ExtensionHeaders {
    /// Names and bits: hop-by-hop, destination options, routing, fragment, authentication, ESP, no next header, upper protocol.
    pub const NAMES: &[(&'static str, u8)] = &[
        ("hop-by-hop", 1 << 7),
        ("ipv6-opts", 1 << 6),
        ("ipv6-route", 1 << 5),
        ("ipv6-frag", 1 << 4),
        ("ah", 1 << 3),
        ("esp", 1 << 2),
        ("ipv6-nonxt", 1 << 1),
        ("protocol", 1),
    ];
    const SHORT: &[(&'static str, u8)] = &[
        ("hop", 1 << 7),
        ("dst", 1 << 6),
        ("route", 1 << 5),
        ("frag", 1 << 4),
        ("auth", 1 << 3),
        ("none", 1 << 1),
        ("prot", 1),
    ];
}

impl fmt::Display for ExtensionHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(_, bit)| self.0 & bit != 0).map(|(name, _)| *name);
        f.write_str(&set.collect::<Vec<_>>().join(","))
    }
}

impl Extension for Ipv6Header {
    const NAME: &'static str = "ipv6header";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[Spec::value("header").inverts().required(), Spec::flag("soft")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let headers = args.test("header", |value| {
            let bits = value.parts(',').try_fold(0, |bits, part| {
                let short = part.name_of(ExtensionHeaders::SHORT, "a header");
                Ok(bits | short.or_else(|_| part.name_of(ExtensionHeaders::NAMES, "an extension header"))?)
            })?;
            Ok(ExtensionHeaders(bits))
        })?;
        let headers = headers.ok_or_else(|| args.fault("ipv6header needs `--header`"))?;
        Ok(Self { headers, soft: args.flag("soft") })
    }
}

impl fmt::Display for Ipv6Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "header", Some(&self.headers))?;
        plain(f, "soft", self.soft)
    }
}

/// `-m eui64`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eui64;

impl Extension for Eui64 {
    const NAME: &'static str = "eui64";
    const FAMILY: Option<Family> = Some(Family::V6);
    const OPTIONS: &'static [Spec] = &[];

    fn build(_: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self)
    }
}

impl fmt::Display for Eui64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("")
    }
}
