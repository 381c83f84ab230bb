//! Flows and sets: `CONNMARK`, `CT`, `SET`. `NOTRACK` is `CT --notrack`.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::matches::Sides;
use crate::options::{Args, Spec, Value};
use crate::value::{MarkChange, plain};
use crate::words::bare;

/// The operation of `CONNMARK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnMarkAction {
    /// `--set-xmark` and its kin: change the flow's mark.
    Set(MarkChange),
    /// `--save-mark`: the flow's mark becomes `(flow & !flow_mask) ^ (packet & packet_mask)`.
    Save {
        /// `--nfmask`.
        packet_mask: u32,
        /// `--ctmask`.
        flow_mask: u32,
    },
    /// `--restore-mark`: the packet's mark becomes `(packet & !packet_mask) ^ (flow & flow_mask)`.
    Restore {
        /// `--nfmask`.
        packet_mask: u32,
        /// `--ctmask`.
        flow_mask: u32,
    },
}

/// `-j CONNMARK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnMarkTarget {
    /// The operation.
    pub action: ConnMarkAction,
}

/// The five options that change a mark.
pub(crate) const MARK_CHANGES: [&str; 5] = ["set-xmark", "set-mark", "and-mark", "or-mark", "xor-mark"];

/// Reads one of [`MARK_CHANGES`].
pub(crate) fn mark_change(name: &str, value: Value<'_>) -> Result<MarkChange, Fault> {
    Ok(match name {
        "set-xmark" => value.mark().map(|mark| MarkChange { value: mark.value, mask: mark.mask })?,
        "set-mark" => value.mark().map(|mark| MarkChange { value: mark.value, mask: mark.value | mark.mask })?,
        "and-mark" => value.u32().map(|bits| MarkChange { value: 0, mask: !bits })?,
        "or-mark" => value.u32().map(|bits| MarkChange { value: bits, mask: bits })?,
        _ => value.u32().map(|bits| MarkChange { value: bits, mask: 0 })?,
    })
}

impl Extension for ConnMarkTarget {
    const NAME: &'static str = "CONNMARK";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("set-xmark"),
        Spec::value("set-mark"),
        Spec::value("and-mark"),
        Spec::value("or-mark"),
        Spec::value("xor-mark"),
        Spec::flag("save-mark"),
        Spec::flag("restore-mark"),
        Spec::value("ctmask"),
        Spec::value("nfmask"),
        Spec::value("mask"),
        Spec::value("left-shift-mark"),
        Spec::value("right-shift-mark"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if let Some(given) = args.given.iter().find(|given| given.spec.name.ends_with("-shift-mark")) {
            let what = format!("`--{}` is not supported", given.spec.name);
            return Err(Fault::unsupported(given.column, given.spec.name, "CONNMARK shift", what));
        }
        let given = args.exactly_one_of(&[
            "set-xmark",
            "set-mark",
            "and-mark",
            "or-mark",
            "xor-mark",
            "save-mark",
            "restore-mark",
        ])?;
        for name in ["ctmask", "nfmask", "mask"] {
            args.needs(name, &["save-mark", "restore-mark"])?;
        }
        for name in ["ctmask", "nfmask"] {
            args.one_of(&["mask", name])?;
        }
        let mask = args.read("mask", Value::u32)?;
        let flow_mask = args.read("ctmask", Value::u32)?.or(mask).unwrap_or(u32::MAX);
        let packet_mask = args.read("nfmask", Value::u32)?.or(mask).unwrap_or(u32::MAX);
        let action = match (given.spec.name, given.words[0]) {
            ("save-mark", _) => ConnMarkAction::Save { packet_mask, flow_mask },
            ("restore-mark", _) => ConnMarkAction::Restore { packet_mask, flow_mask },
            (name, Some(value)) => ConnMarkAction::Set(mark_change(name, value)?),
            (_, None) => return Err(args.fault("a mark is missing")),
        };
        Ok(Self { action })
    }
}

impl fmt::Display for ConnMarkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            ConnMarkAction::Set(change) => write!(f, " --set-xmark {change}"),
            ConnMarkAction::Save { packet_mask, flow_mask } => {
                write!(f, " --save-mark --nfmask {packet_mask:#x} --ctmask {flow_mask:#x}")
            }
            ConnMarkAction::Restore { packet_mask, flow_mask } => {
                write!(f, " --restore-mark --nfmask {packet_mask:#x} --ctmask {flow_mask:#x}")
            }
        }
    }
}

/// The source of a flow's zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// This number.
    Number(u16),
    /// The packet's mark.
    Mark,
}

/// For which direction the zone holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneDirection {
    /// `--zone`.
    Both,
    /// `--zone-orig`.
    Original,
    /// `--zone-reply`.
    Reply,
}

/// `-j CT` and `-j NOTRACK`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ct {
    /// `--notrack`: the packet is not tracked.
    pub not_tracked: bool,
    /// True for `-j NOTRACK`, the older name of `-j CT --notrack`. Nothing else is given then.
    pub is_notrack: bool,
    /// `--helper`: follow this protocol.
    pub helper: Option<String>,
    /// `--timeout`: the name of a policy for timeouts.
    pub timeout: Option<String>,
    /// `--ctevents`, as it is written.
    pub events: Option<String>,
    /// `--expevents`, as it is written.
    pub expected_events: Option<String>,
    /// `--zone`, `--zone-orig` or `--zone-reply`.
    pub zone: Option<(ZoneDirection, Zone)>,
}

impl Ct {
    /// The meaning of `-j NOTRACK`.
    pub(crate) fn build_notrack(_: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self { not_tracked: true, is_notrack: true, ..Self::default() })
    }
}

const CT_EVENTS: [&str; 9] =
    ["new", "related", "destroy", "reply", "assured", "protoinfo", "helper", "mark", "natseqinfo"];

impl Extension for Ct {
    const NAME: &'static str = "CT";
    const OPTIONS: &'static [Spec] = &[
        Spec::flag("notrack"),
        Spec::value("helper"),
        Spec::value("timeout"),
        Spec::value("ctevents"),
        Spec::value("expevents"),
        Spec::value("zone"),
        Spec::value("zone-orig"),
        Spec::value("zone-reply"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let events = |value: Value<'_>| {
            let wrong = value.parts(',').find(|part| !CT_EVENTS.contains(&part.text) && part.text != "secmark");
            match wrong {
                Some(part) => Err(part.fault(format!("`{}` is not an event", part.text))),
                None => value.text_up_to(200),
            }
        };
        let given = args.one_of(&["zone", "zone-orig", "zone-reply"])?;
        let zone = given.and_then(|given| given.words[0].map(|value| (given.spec.name, value)));
        let zone = zone.map(|(name, value)| {
            let direction = match name {
                "zone" => ZoneDirection::Both,
                "zone-orig" => ZoneDirection::Original,
                _ => ZoneDirection::Reply,
            };
            let zone = if value.text == "mark" { Zone::Mark } else { Zone::Number(value.u16()?) };
            Ok::<_, Fault>((direction, zone))
        });
        Ok(Self {
            not_tracked: args.flag("notrack"),
            is_notrack: false,
            helper: args.read("helper", |value| value.text_up_to(15))?,
            timeout: args.read("timeout", |value| value.text_up_to(31))?,
            events: args.read("ctevents", events)?,
            expected_events: args.read("expevents", |value| value.text_up_to(31))?,
            zone: zone.transpose()?,
        })
    }
}

impl fmt::Display for Ct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        plain(f, "notrack", self.not_tracked && !self.is_notrack)?;
        for (name, value) in [
            ("helper", &self.helper),
            ("timeout", &self.timeout),
            ("ctevents", &self.events),
            ("expevents", &self.expected_events),
        ] {
            if let Some(value) = value {
                write!(f, " --{name} {}", bare(value))?;
            }
        }
        let Some((direction, zone)) = self.zone else { return Ok(()) };
        f.write_str(match direction {
            ZoneDirection::Both => " --zone ",
            ZoneDirection::Original => " --zone-orig ",
            ZoneDirection::Reply => " --zone-reply ",
        })?;
        match zone {
            Zone::Number(number) => write!(f, "{number}"),
            Zone::Mark => f.write_str("mark"),
        }
    }
}

/// The operation of `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAction {
    /// `--add-set`.
    Add,
    /// `--del-set`.
    Remove,
}

/// `-j SET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetTarget {
    /// The operation: add or remove.
    pub action: SetAction,
    /// The set's name.
    pub set: String,
    /// The fields of the packet that are added or removed.
    pub sides: Sides,
    /// `--exist`: an entry that is there gets the timeout anew.
    pub exist: bool,
    /// `--timeout`, in seconds; that of the set if not given.
    pub timeout_s: Option<u32>,
}

impl Extension for SetTarget {
    const NAME: &'static str = "SET";
    const OPTIONS: &'static [Spec] = &[
        Spec::pair("add-set"),
        Spec::pair("del-set"),
        Spec::pair("map-set"),
        Spec::value("timeout"),
        Spec::flag("exist"),
        Spec::flag("map-mark"),
        Spec::flag("map-prio"),
        Spec::flag("map-queue"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        if let Some(given) = args.given.iter().find(|given| given.spec.name.starts_with("map-")) {
            let what = format!("`--{}` is not supported", given.spec.name);
            return Err(Fault::unsupported(given.column, given.spec.name, "SET map", what));
        }
        let given = args.exactly_one_of(&["add-set", "del-set"])?;
        let [Some(name), Some(sides)] = given.words else {
            return Err(args.fault("SET needs a name, and `src` or `dst`"));
        };
        for name in ["timeout", "exist"] {
            args.needs(name, &["add-set"])?;
        }
        Ok(Self {
            action: if given.is("add-set") { SetAction::Add } else { SetAction::Remove },
            set: crate::matches::set_name(name)?,
            sides: Sides::read(sides)?,
            exist: args.flag("exist"),
            timeout_s: args.read("timeout", Value::u32)?,
        })
    }
}

impl fmt::Display for SetTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            SetAction::Add => "add-set",
            SetAction::Remove => "del-set",
        };
        write!(f, " --{action} {} {}", bare(&self.set), self.sides)?;
        plain(f, "exist", self.exist)?;
        match self.timeout_s {
            Some(seconds) => write!(f, " --timeout {seconds}"),
            None => Ok(()),
        }
    }
}
