//! What the router knows of a packet: `addrtype`, `rpfilter`, `physdev`, `mark`, `set`, `comment`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Interface, Mark, flag, option, plain};
use crate::words::{bare, quote};

/// A set of kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressTypes(u16);

impl AddressTypes {
    /// Names in the order of their bits.
    pub const NAMES: [&str; 12] = [
        "UNSPEC",
        "UNICAST",
        "LOCAL",
        "BROADCAST",
        "ANYCAST",
        "MULTICAST",
        "BLACKHOLE",
        "UNREACHABLE",
        "PROHIBIT",
        "THROW",
        "NAT",
        "XRESOLVE",
    ];

    /// True if the kind of this name is in it.
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        Self::NAMES.iter().position(|known| *known == name).is_some_and(|bit| self.0 & 1 << bit != 0)
    }

    fn read(value: Value<'_>) -> Result<Self, Fault> {
        value.parts(',').try_fold(Self(0), |all, part| {
            let bit = Self::NAMES.iter().position(|name| name.eq_ignore_ascii_case(part.text));
            let Some(bit) = bit else {
                let names = Self::NAMES.join(", ");
                let what = format!("`{}` is not a kind of address", part.text);
                return Err(part.fault(what).instead(format!("write one of {names}")));
            };
            Ok(Self(all.0 | 1 << bit))
        })
    }
}

impl fmt::Display for AddressTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| *name);
        f.write_str(&set.collect::<Vec<_>>().join(","))
    }
}

/// The interface whose addresses alone count as local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitInterface {
    /// The one that the packet came in by.
    In,
    /// The one that it leaves by.
    Out,
}

/// `-m addrtype`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddrType {
    /// `--src-type`.
    pub source: Option<Condition<AddressTypes>>,
    /// `--dst-type`.
    pub destination: Option<Condition<AddressTypes>>,
    /// `--limit-iface-in` or `--limit-iface-out`.
    pub limit: Option<LimitInterface>,
}

impl Extension for AddrType {
    const NAME: &'static str = "addrtype";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("src-type").inverts(),
        Spec::value("dst-type").inverts(),
        Spec::flag("limit-iface-in"),
        Spec::flag("limit-iface-out"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if !args.flag("src-type") && !args.flag("dst-type") {
            return Err(args.fault("addrtype needs `--src-type` or `--dst-type`"));
        }
        let limit = args.one_of(&["limit-iface-in", "limit-iface-out"])?;
        Ok(Self {
            source: args.test("src-type", AddressTypes::read)?,
            destination: args.test("dst-type", AddressTypes::read)?,
            limit: limit.map(|given| match given.is("limit-iface-in") {
                true => LimitInterface::In,
                false => LimitInterface::Out,
            }),
        })
    }
}

impl fmt::Display for AddrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "src-type", self.source.as_ref())?;
        option(f, "dst-type", self.destination.as_ref())?;
        plain(f, "limit-iface-in", self.limit == Some(LimitInterface::In))?;
        plain(f, "limit-iface-out", self.limit == Some(LimitInterface::Out))
    }
}

/// `-m rpfilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpFilter {
    /// `--loose`: any interface will do.
    pub loose: bool,
    /// `--validmark`: look the route up with the packet's mark.
    pub valid_mark: bool,
    /// `--accept-local`: packets from the router's own addresses pass.
    pub accept_local: bool,
    /// `--invert`: match what does not pass.
    pub invert: bool,
}

impl Extension for RpFilter {
    const NAME: &'static str = "rpfilter";
    const OPTIONS: &'static [Spec] =
        &[Spec::flag("loose"), Spec::flag("validmark"), Spec::flag("accept-local"), Spec::flag("invert")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self {
            loose: args.flag("loose"),
            valid_mark: args.flag("validmark"),
            accept_local: args.flag("accept-local"),
            invert: args.flag("invert"),
        })
    }
}

impl fmt::Display for RpFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        plain(f, "loose", self.loose)?;
        plain(f, "validmark", self.valid_mark)?;
        plain(f, "accept-local", self.accept_local)?;
        plain(f, "invert", self.invert)
    }
}

/// `-m physdev`. For what has no value: `None` if it is not tested, `Some(true)` if it must not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Physdev {
    /// `--physdev-is-in`: the packet came in by a port of a bridge.
    pub is_in: Option<bool>,
    /// `--physdev-in`.
    pub input: Option<Condition<Interface>>,
    /// `--physdev-is-out`: the packet leaves by a port of a bridge.
    pub is_out: Option<bool>,
    /// `--physdev-out`.
    pub output: Option<Condition<Interface>>,
    /// `--physdev-is-bridged`: the packet is bridged, not routed.
    pub is_bridged: Option<bool>,
}

impl Extension for Physdev {
    const NAME: &'static str = "physdev";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("physdev-in").inverts(),
        Spec::value("physdev-out").inverts(),
        Spec::flag("physdev-is-in").inverts(),
        Spec::flag("physdev-is-out").inverts(),
        Spec::flag("physdev-is-bridged").inverts(),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if args.given.is_empty() {
            return Err(args.fault("physdev needs an option").instead("write `--physdev-in` and a port"));
        }
        Ok(Self {
            is_in: args.negated("physdev-is-in"),
            input: args.test("physdev-in", Value::interface)?,
            is_out: args.negated("physdev-is-out"),
            output: args.test("physdev-out", Value::interface)?,
            is_bridged: args.negated("physdev-is-bridged"),
        })
    }
}

impl fmt::Display for Physdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        flag(f, "physdev-is-in", self.is_in)?;
        option(f, "physdev-in", self.input.as_ref())?;
        flag(f, "physdev-is-out", self.is_out)?;
        option(f, "physdev-out", self.output.as_ref())?;
        flag(f, "physdev-is-bridged", self.is_bridged)
    }
}

/// `-m mark`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkTest {
    /// `--mark`.
    pub mark: Condition<Mark>,
}

impl Extension for MarkTest {
    const NAME: &'static str = "mark";
    const OPTIONS: &'static [Spec] = &[Spec::value("mark").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let mark = args.test("mark", Value::mark)?;
        Ok(Self { mark: mark.ok_or_else(|| args.fault("mark needs `--mark`"))? })
    }
}

impl fmt::Display for MarkTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "mark", Some(&self.mark))
    }
}

/// The fields that are looked up in a set, one for each dimension: true for the source, false for the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides(pub Vec<bool>);

impl Sides {
    pub(crate) fn read(value: Value<'_>) -> Result<Self, Fault> {
        const DIMENSIONS_MAX: usize = 6;
        let side = |part: Value<'_>| part.name_of(&[("src", true), ("dst", false)], "a side of the packet");
        let sides: Vec<bool> = value.parts(',').map(side).collect::<Result<_, _>>()?;
        match sides.len() <= DIMENSIONS_MAX {
            true => Ok(Self(sides)),
            false => Err(value.fault(format!("a set has at most {DIMENSIONS_MAX} dimensions"))),
        }
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, is_source) in self.0.iter().enumerate() {
            let side = if *is_source { "src" } else { "dst" };
            write!(f, "{}{side}", if nth > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Refuses a name that is too long for a set.
pub(crate) fn set_name(value: Value<'_>) -> Result<String, Fault> {
    match value.text.is_empty() {
        true => Err(value.fault("the name of a set is missing")),
        false => value.text_up_to(31),
    }
}

/// `-m set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetTest {
    /// `--match-set`: the set's name, and what is looked up in it.
    pub set: Condition<(String, Sides)>,
    /// `--return-nomatch`: entries with `nomatch` match.
    pub return_nomatch: bool,
    /// False with `! --update-counters`.
    pub update_counters: bool,
    /// False with `! --update-subcounters`.
    pub update_subcounters: bool,
}

impl Extension for SetTest {
    const NAME: &'static str = "set";
    const OPTIONS: &'static [Spec] = &[
        Spec::pair("match-set").alias(&["set"]).inverts().required(),
        Spec::flag("return-nomatch"),
        Spec::flag("update-counters").inverts(),
        Spec::flag("update-subcounters").inverts(),
        Spec::value("packets-eq").inverts(),
        Spec::value("packets-lt"),
        Spec::value("packets-gt"),
        Spec::value("bytes-eq").inverts(),
        Spec::value("bytes-lt"),
        Spec::value("bytes-gt"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let counted = |name: &str| name.starts_with("packets-") || name.starts_with("bytes-");
        if let Some(given) = args.given.iter().find(|given| counted(given.spec.name)) {
            let what = format!("`--{}`: counters of sets are not supported", given.spec.name);
            return Err(Fault::unsupported(given.column, given.spec.name, "set counters", what));
        }
        let given = args.given("match-set").map(|given| (given.negated, given.words));
        let Some((negated, [Some(name), Some(sides)])) = given else {
            return Err(args.fault("set needs `--match-set`, a name, and `src` or `dst`"));
        };
        Ok(Self {
            set: Condition { negated, value: (set_name(name)?, Sides::read(sides)?) },
            return_nomatch: args.flag("return-nomatch"),
            update_counters: args.negated("update-counters") != Some(true),
            update_subcounters: args.negated("update-subcounters") != Some(true),
        })
    }
}

impl fmt::Display for SetTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { negated, value: (name, sides) } = &self.set;
        write!(f, "{} --match-set {} {sides}", if *negated { " !" } else { "" }, bare(name))?;
        plain(f, "return-nomatch", self.return_nomatch)?;
        flag(f, "update-counters", (!self.update_counters).then_some(true))?;
        flag(f, "update-subcounters", (!self.update_subcounters).then_some(true))
    }
}

/// `-m comment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment(pub String);

impl Extension for Comment {
    const NAME: &'static str = "comment";
    const OPTIONS: &'static [Spec] = &[Spec::value("comment").required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let text = args.value("comment").map(|value| value.text_of(255));
        text.map(Self).ok_or_else(|| args.fault("comment needs `--comment`"))
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --comment {}", quote(&self.0))
    }
}
