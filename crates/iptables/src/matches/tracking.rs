//! Tracked flows: `conntrack`, `state`, `connmark`, `connbytes`, `connlimit`, `helper`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Interval, Mark, Network, option};
use crate::words::quote;

/// A set of states of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct States(u8);

impl States {
    /// The packet belongs to no flow, and begins none.
    pub const INVALID: Self = Self(1);
    /// The packet begins a flow.
    pub const NEW: Self = Self(2);
    /// The packet begins a flow, or reports an error, that another flow announced.
    pub const RELATED: Self = Self(4);
    /// The flow has packets in both directions.
    pub const ESTABLISHED: Self = Self(8);
    /// The packet is not tracked.
    pub const UNTRACKED: Self = Self(16);
    /// The source is rewritten.
    pub const SNAT: Self = Self(32);
    /// The destination is rewritten.
    pub const DNAT: Self = Self(64);

    /// In the order in which iptables-save prints them.
    const NAMES: &[(&'static str, Self)] = &[
        ("INVALID", Self::INVALID),
        ("NEW", Self::NEW),
        ("RELATED", Self::RELATED),
        ("ESTABLISHED", Self::ESTABLISHED),
        ("UNTRACKED", Self::UNTRACKED),
        ("SNAT", Self::SNAT),
        ("DNAT", Self::DNAT),
    ];

    /// True if all states of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if a state is in both.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The states of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn read(value: Value<'_>, names: &[(&str, Self)]) -> Result<Self, Fault> {
        value.parts(',').try_fold(Self(0), |states, part| Ok(states.union(part.begin_of(names, "a state")?)))
    }
}

impl fmt::Display for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(_, state)| self.contains(*state)).map(|(name, _)| *name);
        f.write_str(&set.collect::<Vec<_>>().join(","))
    }
}

/// A set of what is known of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(u8);

impl Status {
    /// Nothing of the below.
    pub const NONE: Self = Self(0);
    /// Another flow announced it.
    pub const EXPECTED: Self = Self(1);
    /// The connection has packets in both directions.
    pub const SEEN_REPLY: Self = Self(2);
    /// The connection is not evicted early.
    pub const ASSURED: Self = Self(4);
    /// Its first packet left.
    pub const CONFIRMED: Self = Self(8);

    const NAMES: &[(&'static str, Self)] = &[
        ("EXPECTED", Self::EXPECTED),
        ("SEEN_REPLY", Self::SEEN_REPLY),
        ("ASSURED", Self::ASSURED),
        ("CONFIRMED", Self::CONFIRMED),
        ("NONE", Self::NONE),
    ];

    /// True if all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES[..4].iter().filter(|(_, status)| self.contains(*status)).map(|(name, _)| *name);
        match *self {
            Self::NONE => f.write_str("NONE"),
            _ => f.write_str(&set.collect::<Vec<_>>().join(",")),
        }
    }
}

/// The direction of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As the flow's first packet.
    Original,
    /// Against it.
    Reply,
}

/// `-m conntrack` and `-m state`. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// True for `-m state`. Nothing but `states` is given then.
    pub is_state: bool,
    /// `--ctstate` or `--state`.
    pub states: Option<Condition<States>>,
    /// `--ctproto`.
    pub protocol: Option<Condition<u8>>,
    /// `--ctorigsrc`: the source before any rewriting.
    pub original_source: Option<Condition<Network>>,
    /// `--ctorigdst`: the destination before any rewriting.
    pub original_destination: Option<Condition<Network>>,
    /// `--ctreplsrc`: the source of replies.
    pub reply_source: Option<Condition<Network>>,
    /// `--ctrepldst`: the destination of replies.
    pub reply_destination: Option<Condition<Network>>,
    /// `--ctorigsrcport`.
    pub original_source_port: Option<Condition<Interval<u16>>>,
    /// `--ctorigdstport`.
    pub original_destination_port: Option<Condition<Interval<u16>>>,
    /// `--ctreplsrcport`.
    pub reply_source_port: Option<Condition<Interval<u16>>>,
    /// `--ctrepldstport`.
    pub reply_destination_port: Option<Condition<Interval<u16>>>,
    /// `--ctstatus`.
    pub status: Option<Condition<Status>>,
    /// `--ctexpire`: seconds until the flow is forgotten.
    pub expires_s: Option<Condition<Interval<u32>>>,
    /// `--ctdir`.
    pub direction: Option<Direction>,
}

impl Conntrack {
    /// Options of `-m state`, which shares this type.
    pub(crate) const STATE_OPTIONS: &'static [Spec] = &[Spec::value("state").inverts().required()];

    /// Reads the option of `-m state`.
    pub(crate) fn build_state(args: &Args<'_>) -> Result<Self, Fault> {
        let states = args.test("state", |value| States::read(value, &States::NAMES[..5]))?;
        Ok(Self { is_state: true, states, ..Self::default() })
    }
}

impl Extension for Conntrack {
    const NAME: &'static str = "conntrack";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("ctstate").inverts(),
        Spec::value("ctproto").inverts(),
        Spec::value("ctorigsrc").inverts(),
        Spec::value("ctorigdst").inverts(),
        Spec::value("ctreplsrc").inverts(),
        Spec::value("ctrepldst").inverts(),
        Spec::value("ctorigsrcport").inverts(),
        Spec::value("ctorigdstport").inverts(),
        Spec::value("ctreplsrcport").inverts(),
        Spec::value("ctrepldstport").inverts(),
        Spec::value("ctstatus").inverts(),
        Spec::value("ctexpire").inverts(),
        Spec::value("ctdir"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if args.given.is_empty() {
            return Err(args.fault("conntrack needs an option").instead("write `--ctstate` and states"));
        }
        let network = |value: Value<'_>| value.network(args.family);
        let ports = |value: Value<'_>| value.ports(None);
        let status = |value: Value<'_>| {
            value
                .parts(',')
                .try_fold(Status(0), |all, part| Ok(Status(all.0 | part.begin_of(Status::NAMES, "a status")?.0)))
        };
        let directions = [("ORIGINAL", Direction::Original), ("REPLY", Direction::Reply)];
        Ok(Self {
            is_state: false,
            states: args.test("ctstate", |value| States::read(value, States::NAMES))?,
            protocol: args.test("ctproto", Value::protocol)?,
            original_source: args.test("ctorigsrc", network)?,
            original_destination: args.test("ctorigdst", network)?,
            reply_source: args.test("ctreplsrc", network)?,
            reply_destination: args.test("ctrepldst", network)?,
            original_source_port: args.test("ctorigsrcport", ports)?,
            original_destination_port: args.test("ctorigdstport", ports)?,
            reply_source_port: args.test("ctreplsrcport", ports)?,
            reply_destination_port: args.test("ctrepldstport", ports)?,
            status: args.test("ctstatus", status)?,
            expires_s: args.test("ctexpire", Value::interval_u32)?,
            direction: args.read("ctdir", |value| value.name_of(&directions, "a direction"))?,
        })
    }
}

impl fmt::Display for Conntrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, if self.is_state { "state" } else { "ctstate" }, self.states.as_ref())?;
        option(f, "ctproto", self.protocol.as_ref())?;
        for (name, network) in [
            ("ctorigsrc", &self.original_source),
            ("ctorigdst", &self.original_destination),
            ("ctreplsrc", &self.reply_source),
            ("ctrepldst", &self.reply_destination),
        ] {
            option(
                f,
                name,
                network.as_ref().map(|network| network.map(|network| format!("{}", network.short()))).as_ref(),
            )?;
        }
        option(f, "ctorigsrcport", self.original_source_port.as_ref())?;
        option(f, "ctorigdstport", self.original_destination_port.as_ref())?;
        option(f, "ctreplsrcport", self.reply_source_port.as_ref())?;
        option(f, "ctrepldstport", self.reply_destination_port.as_ref())?;
        option(f, "ctstatus", self.status.as_ref())?;
        option(f, "ctexpire", self.expires_s.as_ref())?;
        match self.direction {
            Some(Direction::Original) => f.write_str(" --ctdir ORIGINAL"),
            Some(Direction::Reply) => f.write_str(" --ctdir REPLY"),
            None => Ok(()),
        }
    }
}

/// `-m connmark`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnMark {
    /// `--mark`.
    pub mark: Condition<Mark>,
}

impl Extension for ConnMark {
    const NAME: &'static str = "connmark";
    const OPTIONS: &'static [Spec] = &[Spec::value("mark").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let mark = args.test("mark", Value::mark)?;
        Ok(Self { mark: mark.ok_or_else(|| args.fault("connmark needs `--mark`"))? })
    }
}

impl fmt::Display for ConnMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "mark", Some(&self.mark))
    }
}

/// The quantity that `connbytes` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnBytesMode {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Bytes a packet.
    Average,
}

/// A direction of a flow, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectionOrBoth {
    /// As the flow's first packet.
    Original,
    /// Against it.
    Reply,
    /// Both together.
    Both,
}

const CONNBYTES_MODES: &[(&str, ConnBytesMode)] =
    &[("packets", ConnBytesMode::Packets), ("bytes", ConnBytesMode::Bytes), ("avgpkt", ConnBytesMode::Average)];
const CONNBYTES_DIRECTIONS: &[(&str, DirectionOrBoth)] =
    &[("original", DirectionOrBoth::Original), ("reply", DirectionOrBoth::Reply), ("both", DirectionOrBoth::Both)];

/// `-m connbytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnBytes {
    /// `--connbytes`.
    pub count: Condition<Interval<u64>>,
    /// `--connbytes-mode`.
    pub mode: ConnBytesMode,
    /// `--connbytes-dir`.
    pub direction: DirectionOrBoth,
}

impl Extension for ConnBytes {
    const NAME: &'static str = "connbytes";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("connbytes").inverts().required(),
        Spec::value("connbytes-mode").required(),
        Spec::value("connbytes-dir").required(),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let count = args.test("connbytes", |value| {
            let mut count = value.interval(u64::MAX)?;
            if !value.text.contains(':') {
                count.last = u64::MAX;
            }
            if count.first > count.last {
                return Err(value.fault("the range ends before it begins"));
            }
            Ok(count)
        })?;
        let mode = args.read("connbytes-mode", |value| value.name_of(CONNBYTES_MODES, "a mode"))?;
        let direction = args.read("connbytes-dir", |value| value.name_of(CONNBYTES_DIRECTIONS, "a direction"))?;
        match (count, mode, direction) {
            (Some(count), Some(mode), Some(direction)) => Ok(Self { count, mode, direction }),
            _ => Err(args.fault("connbytes needs `--connbytes`, `--connbytes-mode` and `--connbytes-dir`")),
        }
    }
}

impl fmt::Display for ConnBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count.map(|count| match count.last {
            u64::MAX => format!("{}", count.first),
            last => format!("{}:{last}", count.first),
        });
        option(f, "connbytes", Some(&count))?;
        let mode = CONNBYTES_MODES.iter().find(|(_, mode)| *mode == self.mode).map_or("", |(name, _)| name);
        let direction = CONNBYTES_DIRECTIONS.iter().find(|(_, known)| *known == self.direction);
        write!(f, " --connbytes-mode {mode} --connbytes-dir {}", direction.map_or("", |(name, _)| name))
    }
}

/// `-m connlimit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnLimit {
    /// The limit: `--connlimit-above` without and `--connlimit-upto` with negation. It matches if more flows than this exist.
    pub above: Condition<u32>,
    /// `--connlimit-mask`: bits of the address that make a group.
    pub mask_bits: u8,
    /// `--connlimit-daddr` instead of `--connlimit-saddr`.
    pub by_destination: bool,
}

impl Extension for ConnLimit {
    const NAME: &'static str = "connlimit";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("connlimit-upto").inverts(),
        Spec::value("connlimit-above").inverts(),
        Spec::value("connlimit-mask"),
        Spec::flag("connlimit-saddr"),
        Spec::flag("connlimit-daddr"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&["connlimit-upto", "connlimit-above"])?;
        let value = given.words[0].ok_or_else(|| args.fault("a number is missing"))?.u32()?;
        let bits = args.family.bits();
        args.one_of(&["connlimit-saddr", "connlimit-daddr"])?;
        let mask = args.read("connlimit-mask", |value| value.number(0, u64::from(bits)))?;
        Ok(Self {
            above: Condition { negated: given.is("connlimit-upto") != given.negated, value },
            mask_bits: mask.map_or(bits, |mask| mask as u8),
            by_destination: args.flag("connlimit-daddr"),
        })
    }
}

impl fmt::Display for ConnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.above.negated { "upto" } else { "above" };
        let side = if self.by_destination { "daddr" } else { "saddr" };
        let Self { above: Condition { value, .. }, mask_bits, .. } = self;
        write!(f, " --connlimit-{name} {value} --connlimit-mask {mask_bits} --connlimit-{side}")
    }
}

/// `-m helper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// `--helper`.
    pub name: Condition<String>,
}

impl Extension for Helper {
    const NAME: &'static str = "helper";
    const OPTIONS: &'static [Spec] = &[Spec::value("helper").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let name = args.test("helper", |value| Ok(value.text_of(29)))?;
        Ok(Self { name: name.ok_or_else(|| args.fault("helper needs `--helper`"))? })
    }
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { negated, value } = &self.name;
        option(f, "helper", Some(&Condition { negated: *negated, value: quote(value) }))
    }
}
