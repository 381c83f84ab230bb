//! Rates and counts: `limit`, `hashlimit`, `recent`, `statistic`, `quota`.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::IpAddr;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, option, plain};
use crate::words::bare;

/// Packets in a unit of time, kept as the time from one to the next. `SCALE` of these periods are a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate<const SCALE: u64> {
    /// Time from one packet to the next, in 1/`SCALE` seconds. Never 0.
    pub period: u64,
}

/// Seconds of the units, and how they print.
const UNITS: [(&str, u64); 4] = [("day", 86_400), ("hour", 3_600), ("min", 60), ("sec", 1)];

impl<const SCALE: u64> Rate<SCALE> {
    /// Reads `5/minute`; returns the unit's seconds too.
    fn read(value: Value<'_>) -> Result<(Self, u64), Fault> {
        let wrong = || {
            value
                .fault(format!("`{}` is not a rate", value.text))
                .instead("write a number above 0 and `/second`, `/minute`, `/hour` or `/day`")
        };
        let (number, unit_s) = match value.split_once('/') {
            Some((number, unit)) => {
                let units = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
                (number.text, unit.begin_of(&units, "a unit of time").map_err(|_| wrong())?)
            }
            None => (value.text, 1),
        };
        // As atoi() does: the digits in front count.
        let digits = number.len() - number.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        let packets: u64 = number[..digits].parse().ok().filter(|packets| *packets > 0).ok_or_else(wrong)?;
        match SCALE * unit_s / packets {
            0 => Err(value.fault(format!("the rate `{}` is too fast", value.text))),
            period => Ok((Self { period }, unit_s)),
        }
    }

    /// The unit that iptables-save chooses: its name, and its length in seconds.
    fn unit(self) -> (&'static str, u64) {
        let fits = |(_, seconds): &(&str, u64)| {
            let unit = seconds * SCALE;
            self.period <= unit && unit / self.period >= unit % self.period
        };
        UNITS[1..].iter().take_while(|unit| fits(unit)).last().copied().unwrap_or(UNITS[0])
    }
}

impl<const SCALE: u64> fmt::Display for Rate<SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seconds) = self.unit();
        write!(f, "{}/{name}", seconds * SCALE / self.period)
    }
}

/// `-m limit`: a bucket of `burst` tokens, full at the start, that gains a token each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `--limit`.
    pub rate: Rate<10_000>,
    /// `--limit-burst`.
    pub burst: u32,
}

impl Extension for Limit {
    const NAME: &'static str = "limit";
    const OPTIONS: &'static [Spec] = &[Spec::value("limit"), Spec::value("limit-burst")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let rate = args.read("limit", Rate::read)?.map(|(rate, _)| rate);
        let burst = args.read("limit-burst", |value| value.number(0, 10_000))?;
        Ok(Self { rate: rate.unwrap_or(Rate { period: 10_000 * 3_600 / 3 }), burst: burst.unwrap_or(5) as u32 })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --limit {}", self.rate)?;
        match self.burst {
            5 => Ok(()),
            burst => write!(f, " --limit-burst {burst}"),
        }
    }
}

/// The limit of a `hashlimit` rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashLimitRate {
    /// Packets, with a burst of packets.
    Packets {
        /// The rate.
        rate: Rate<1_000_000>,
        /// The burst.
        burst: u64,
    },
    /// Bytes a second, with a burst of bytes. The kernel rounds both down to 16 bytes.
    Bytes {
        /// The rate.
        rate: u64,
        /// The burst, if one is given.
        burst: Option<u64>,
    },
}

/// The fields that make the key of a bucket. Without any, one bucket is for all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashLimitKey {
    /// The source address.
    pub source: bool,
    /// The source port.
    pub source_port: bool,
    /// The destination address.
    pub destination: bool,
    /// The destination port.
    pub destination_port: bool,
}

/// `-m hashlimit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashLimit {
    /// `--hashlimit-upto`, or `--hashlimit-above` with negation: the rule matches what exceeds the rate.
    pub rate: Condition<HashLimitRate>,
    /// `--hashlimit-mode`.
    pub key: HashLimitKey,
    /// `--hashlimit-name`: rules of one name share their buckets.
    pub name: String,
    /// `--hashlimit-srcmask`: leading bits of the source that count; all if not given.
    pub source_bits: Option<u8>,
    /// `--hashlimit-dstmask`: leading bits of the destination that count; all if not given.
    pub destination_bits: Option<u8>,
    /// `--hashlimit-htable-size`: buckets of the hash table; 0 lets the kernel choose.
    pub size: u32,
    /// `--hashlimit-htable-max`: most keys; 0 lets the kernel choose.
    pub max: u32,
    /// `--hashlimit-htable-gcinterval`, in milliseconds.
    pub gc_interval_ms: u32,
    /// `--hashlimit-htable-expire`, in milliseconds: when an unused key is forgotten.
    pub expire_ms: u32,
    /// `--hashlimit-rate-match`: the rule matches by the rate alone, without a burst.
    pub rate_match: bool,
    /// `--hashlimit-rate-interval`, in seconds.
    pub rate_interval_s: u32,
}

impl HashLimitRate {
    /// Also returns the default for [`HashLimit::expire_ms`].
    fn read(value: Value<'_>, burst: Option<Value<'_>>) -> Result<(Self, u32), Fault> {
        if let Some(rate) = value.text.strip_suffix("/s").and_then(byte_count) {
            let rate = rate.map_err(|()| value.fault("the rate is too large or 0"))?;
            let burst = burst.map(|burst| match byte_count(burst.text) {
                Some(Ok(bytes)) => Ok(bytes),
                Some(Err(())) | None => Err(burst.fault("the burst of a rate of bytes is bytes, as `1mb`")),
            });
            return Ok((Self::Bytes { rate, burst: burst.transpose()? }, 15_000));
        }
        let (rate, unit_s) = Rate::read(value)?;
        let burst = burst.map_or(Ok(5), |burst| burst.number(1, 1_000_000))?;
        Ok((Self::Packets { rate, burst }, unit_s as u32 * 1_000))
    }

    /// The expiry that iptables-save doesn't print.
    fn usual_expire_ms(self) -> u32 {
        match self {
            Self::Packets { rate, .. } => rate.unit().1 as u32 * 1_000,
            Self::Bytes { .. } => 15_000,
        }
    }
}

/// A number of bytes, as `10mb`. `None` if it has no such ending.
fn byte_count(text: &str) -> Option<Result<u64, ()>> {
    let number = text.strip_suffix('b')?;
    let (digits, factor) = match number.as_bytes().last()? {
        b'k' => (&number[..number.len() - 1], 1 << 10),
        b'm' => (&number[..number.len() - 1], 1 << 20),
        b'g' => (&number[..number.len() - 1], 1 << 30),
        _ => (number, 1),
    };
    let bytes = crate::read::integer(digits)?.checked_mul(factor);
    Some(bytes.filter(|bytes| (1..=u64::from(u32::MAX)).contains(bytes)).ok_or(()))
}

/// Bytes in the largest unit that leaves no rest.
fn in_bytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}mb", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}kb", bytes >> 10),
        bytes => format!("{bytes}b"),
    }
}

impl Extension for HashLimit {
    const NAME: &'static str = "hashlimit";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("hashlimit-upto").alias(&["hashlimit"]).inverts(),
        Spec::value("hashlimit-above").inverts(),
        Spec::value("hashlimit-burst"),
        Spec::value("hashlimit-mode"),
        Spec::value("hashlimit-name").required(),
        Spec::value("hashlimit-srcmask"),
        Spec::value("hashlimit-dstmask"),
        Spec::value("hashlimit-htable-size"),
        Spec::value("hashlimit-htable-max"),
        Spec::value("hashlimit-htable-gcinterval"),
        Spec::value("hashlimit-htable-expire"),
        Spec::flag("hashlimit-rate-match"),
        Spec::value("hashlimit-rate-interval"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&["hashlimit-upto", "hashlimit-above"])?;
        let value = given.words[0].ok_or_else(|| args.fault("a rate is missing"))?;
        let (rate, expire_ms) = HashLimitRate::read(value, args.value("hashlimit-burst"))?;
        let mut key = HashLimitKey::default();
        for part in args.value("hashlimit-mode").into_iter().flat_map(|modes| modes.parts(',')) {
            match part.text {
                "srcip" => key.source = true,
                "srcport" => key.source_port = true,
                "dstip" => key.destination = true,
                "dstport" => key.destination_port = true,
                _ => {
                    let what = format!("`{}` is not a mode of hashlimit", part.text);
                    return Err(part.fault(what).instead("write srcip, srcport, dstip, dstport"));
                }
            }
        }
        args.needs("hashlimit-rate-interval", &["hashlimit-rate-match"])?;
        let bits = args.family.bits();
        let mask = |name: &str| {
            let mask = args.read(name, |value| value.number(0, u64::from(bits)))?;
            Ok::<_, Fault>(mask.map(|mask| mask as u8).filter(|mask| *mask != bits))
        };
        let name = args.read("hashlimit-name", |value| match value.text.contains('/') || value.text.is_empty() {
            true => Err(value.fault("the name must not be empty or have a `/`")),
            false => value.text_up_to(254),
        })?;
        let number = |name: &str| args.read(name, Value::u32);
        Ok(Self {
            rate: Condition { negated: given.is("hashlimit-above") != given.negated, value: rate },
            key,
            name: name.ok_or_else(|| args.fault("hashlimit needs `--hashlimit-name`"))?,
            source_bits: mask("hashlimit-srcmask")?,
            destination_bits: mask("hashlimit-dstmask")?,
            size: number("hashlimit-htable-size")?.unwrap_or(0),
            max: number("hashlimit-htable-max")?.unwrap_or(0),
            gc_interval_ms: number("hashlimit-htable-gcinterval")?.unwrap_or(1_000),
            expire_ms: number("hashlimit-htable-expire")?.unwrap_or(expire_ms),
            rate_match: args.flag("hashlimit-rate-match"),
            rate_interval_s: number("hashlimit-rate-interval")?.unwrap_or(1),
        })
    }
}

impl fmt::Display for HashLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --hashlimit-{} ", if self.rate.negated { "above" } else { "upto" })?;
        match self.rate.value {
            HashLimitRate::Packets { rate, burst } => write!(f, "{rate} --hashlimit-burst {burst}")?,
            HashLimitRate::Bytes { rate, burst } => {
                write!(f, "{}/s", in_bytes(rate))?;
                if let Some(burst) = burst {
                    write!(f, " --hashlimit-burst {}", in_bytes(burst))?;
                }
            }
        }
        let HashLimitKey { source, source_port, destination, destination_port } = self.key;
        let fields =
            [("srcip", source), ("srcport", source_port), ("dstip", destination), ("dstport", destination_port)];
        for (nth, (field, _)) in fields.iter().filter(|(_, is_set)| *is_set).enumerate() {
            write!(f, "{}{field}", if nth == 0 { " --hashlimit-mode " } else { "," })?;
        }
        write!(f, " --hashlimit-name {}", bare(&self.name))?;
        let usual = self.rate.value.usual_expire_ms();
        for (name, value, default) in [
            ("htable-size", self.size, 0),
            ("htable-max", self.max, 0),
            ("htable-gcinterval", self.gc_interval_ms, 1_000),
            ("htable-expire", self.expire_ms, usual),
        ] {
            if value != default {
                write!(f, " --hashlimit-{name} {value}")?;
            }
        }
        for (name, bits) in [("srcmask", self.source_bits), ("dstmask", self.destination_bits)] {
            if let Some(bits) = bits {
                write!(f, " --hashlimit-{name} {bits}")?;
            }
        }
        plain(f, "hashlimit-rate-match", self.rate_match)?;
        match self.rate_interval_s {
            1 => Ok(()),
            seconds => write!(f, " --hashlimit-rate-interval {seconds}"),
        }
    }
}

/// The operation of a `recent` rule on its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentAction {
    /// `--set`: note the address; always matches.
    Set,
    /// `--rcheck`: match if the address is in the list.
    Check,
    /// `--update`: as check, and note the address if it matched.
    Update,
    /// `--remove`: match if the address is in the list, and remove it.
    Remove,
}

/// The address that a `recent` rule looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentSide {
    /// `--rsource`.
    Source,
    /// `--rdest`.
    Destination,
}

/// `-m recent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// The operation.
    pub action: Condition<RecentAction>,
    /// `--seconds`: the address was seen so recently.
    pub seconds: Option<u32>,
    /// `--reap`: forget what is older than `--seconds`.
    pub reap: bool,
    /// `--hitcount`: the address was seen so often, or more.
    pub hit_count: Option<u32>,
    /// `--rttl`: the time to live is that of the noted packet.
    pub same_ttl: bool,
    /// `--name`: rules of one name share their list.
    pub name: String,
    /// `--mask`.
    pub mask: IpAddr,
    /// The address.
    pub side: RecentSide,
}

impl Extension for Recent {
    const NAME: &'static str = "recent";
    const OPTIONS: &'static [Spec] = &[
        Spec::flag("set").inverts(),
        Spec::flag("rcheck").inverts(),
        Spec::flag("update").inverts(),
        Spec::flag("remove").inverts(),
        Spec::value("seconds"),
        Spec::flag("reap"),
        Spec::value("hitcount"),
        Spec::flag("rttl"),
        Spec::value("name"),
        Spec::flag("rsource"),
        Spec::flag("rdest"),
        Spec::value("mask"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        const HITS_MAX: u64 = 65_535;
        let given = args.exactly_one_of(&["set", "rcheck", "update", "remove"])?;
        let action = match given.spec.name {
            "set" => RecentAction::Set,
            "rcheck" => RecentAction::Check,
            "update" => RecentAction::Update,
            _ => RecentAction::Remove,
        };
        for name in ["seconds", "hitcount"] {
            args.needs(name, &["rcheck", "update"])?;
        }
        args.needs("reap", &["seconds"])?;
        args.needs("rttl", &["rcheck", "update"])?;
        args.one_of(&["rsource", "rdest"])?;
        let name = args.read("name", |value| match value.text {
            "" | "." | ".." => Err(value.fault("this can't be the name of a list")),
            text if text.contains('/') => Err(value.fault("the name of a list can't have a `/`")),
            _ => value.text_up_to(199),
        })?;
        let hit_count = args.read("hitcount", |value| {
            let hits = value.u32()?;
            match u64::from(hits) <= HITS_MAX {
                true => Ok(hits),
                false => {
                    let what = format!("the kernel counts at most {HITS_MAX} hits");
                    Err(Fault::load(value.column, value.text, what))
                }
            }
        })?;
        let seconds = args.read("seconds", |value| value.number(1, u64::from(u32::MAX)))?;
        let mask = args.read("mask", |value| value.address(args.family))?;
        Ok(Self {
            action: Condition { negated: given.negated, value: action },
            seconds: seconds.map(|seconds| seconds as u32),
            reap: args.flag("reap"),
            hit_count: hit_count.filter(|hits| *hits > 0),
            same_ttl: args.flag("rttl"),
            name: name.unwrap_or_else(|| "DEFAULT".into()),
            mask: mask.unwrap_or_else(|| args.family.mask(args.family.bits())),
            side: if args.flag("rdest") { RecentSide::Destination } else { RecentSide::Source },
        })
    }
}

impl fmt::Display for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action.value {
            RecentAction::Set => "set",
            RecentAction::Check => "rcheck",
            RecentAction::Update => "update",
            RecentAction::Remove => "remove",
        };
        write!(f, "{} --{action}", if self.action.negated { " !" } else { "" })?;
        if let Some(seconds) = self.seconds {
            write!(f, " --seconds {seconds}")?;
        }
        plain(f, "reap", self.reap)?;
        if let Some(hits) = self.hit_count {
            write!(f, " --hitcount {hits}")?;
        }
        plain(f, "rttl", self.same_ttl)?;
        let side = match self.side {
            RecentSide::Source => "rsource",
            RecentSide::Destination => "rdest",
        };
        write!(f, " --name {} --mask {} --{side}", bare(&self.name), self.mask)
    }
}

/// The way in which `statistic` chooses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatisticMode {
    /// Each packet with a probability, in parts of 2^31.
    Random {
        /// The probability times 2^31.
        parts: u32,
    },
    /// Of `every` packets the one with the number `packet`, from 0.
    Nth {
        /// The length of a round, in packets.
        every: u32,
        /// The number of the packet in the round, from 0.
        packet: u32,
    },
}

/// `-m statistic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// The packets that match.
    pub mode: Condition<StatisticMode>,
}

impl Extension for Statistic {
    const NAME: &'static str = "statistic";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("mode").required(),
        Spec::value("probability").inverts(),
        Spec::value("every").inverts(),
        Spec::value("packet"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        /// 2^31.
        const WHOLE: f64 = 2_147_483_648.0;
        let mode = args.value("mode").ok_or_else(|| args.fault("statistic needs `--mode`"))?;
        let is_random = mode.name_of(&[("random", true), ("nth", false)], "a mode of statistic")?;
        let others: &[&str] = if is_random { &["every", "packet"] } else { &["probability"] };
        if let Some(given) = args.given.iter().find(|given| others.contains(&given.spec.name)) {
            let what = format!("`--{}` doesn't go with `--mode {}`", given.spec.name, mode.text);
            return Err(Fault::syntax(given.column, given.spec.name, what));
        }
        if is_random {
            let parts = args.test("probability", |value| match value.text.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok((share * WHOLE + 0.5) as u32),
                Ok(_) | Err(_) => Err(value.fault("the probability must be a number from 0 to 1")),
            })?;
            let parts = parts.ok_or_else(|| args.fault("`--mode random` needs `--probability`"))?;
            return Ok(Self { mode: parts.map(|parts| StatisticMode::Random { parts }) });
        }
        let every = args.test("every", |value| value.number(1, u64::from(u32::MAX)).map(|every| every as u32))?;
        let every = every.ok_or_else(|| args.fault("`--mode nth` needs `--every`"))?;
        let packet = args.read("packet", |value| value.number(0, u64::from(every.value) - 1))?;
        Ok(Self { mode: every.map(|every| StatisticMode::Nth { every, packet: packet.unwrap_or(0) as u32 }) })
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.mode.negated { " !" } else { "" };
        match self.mode.value {
            StatisticMode::Random { parts } => {
                write!(f, " --mode random{not} --probability {:.11}", f64::from(parts) / 2_147_483_648.0)
            }
            StatisticMode::Nth { every, packet } => {
                write!(f, " --mode nth{not} --every {every} --packet {packet}")
            }
        }
    }
}

/// `-m quota`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `--quota`, in bytes.
    pub bytes: Condition<u64>,
}

impl Extension for Quota {
    const NAME: &'static str = "quota";
    const OPTIONS: &'static [Spec] = &[Spec::value("quota").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let bytes = args.test("quota", |value| value.number(0, u64::MAX))?;
        Ok(Self { bytes: bytes.ok_or_else(|| args.fault("quota needs `--quota`"))? })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "quota", Some(&self.bytes))
    }
}
