//! Answers, logs and copies: `REJECT`, `LOG`, `NFLOG`, `TRACE`, `TEE`.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::IpAddr;

use crate::error::Fault;
use crate::extension::Extension;
use crate::names::LOG_LEVELS;
use crate::options::{Args, Spec, Value};
use crate::value::{Family, Interface, plain};
use crate::words::quote;

/// The answer that `REJECT` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectWith {
    /// A TCP reset.
    TcpReset,
    /// ICMP destination unreachable (type 3) with this code.
    Icmp(u8),
    /// ICMPv6 destination unreachable (type 1) with this code.
    Icmp6(u8),
}

/// Names and short names of the answers of IPv4.
const ANSWERS_V4: &[(&str, RejectWith)] = &[
    ("icmp-net-unreachable", RejectWith::Icmp(0)),
    ("net-unreach", RejectWith::Icmp(0)),
    ("icmp-host-unreachable", RejectWith::Icmp(1)),
    ("host-unreach", RejectWith::Icmp(1)),
    ("icmp-proto-unreachable", RejectWith::Icmp(2)),
    ("proto-unreach", RejectWith::Icmp(2)),
    ("icmp-port-unreachable", RejectWith::Icmp(3)),
    ("port-unreach", RejectWith::Icmp(3)),
    ("icmp-net-prohibited", RejectWith::Icmp(9)),
    ("net-prohib", RejectWith::Icmp(9)),
    ("icmp-host-prohibited", RejectWith::Icmp(10)),
    ("host-prohib", RejectWith::Icmp(10)),
    ("tcp-reset", RejectWith::TcpReset),
    ("tcp-rst", RejectWith::TcpReset),
    ("icmp-admin-prohibited", RejectWith::Icmp(13)),
    ("admin-prohib", RejectWith::Icmp(13)),
];

/// Names and short names of the answers of IPv6.
const ANSWERS_V6: &[(&str, RejectWith)] = &[
    ("icmp6-no-route", RejectWith::Icmp6(0)),
    ("no-route", RejectWith::Icmp6(0)),
    ("icmp6-adm-prohibited", RejectWith::Icmp6(1)),
    ("adm-prohibited", RejectWith::Icmp6(1)),
    ("icmp6-addr-unreachable", RejectWith::Icmp6(3)),
    ("addr-unreach", RejectWith::Icmp6(3)),
    ("icmp6-port-unreachable", RejectWith::Icmp6(4)),
    ("port-unreach", RejectWith::Icmp6(4)),
    ("tcp-reset", RejectWith::TcpReset),
    ("icmp6-policy-fail", RejectWith::Icmp6(5)),
    ("policy-fail", RejectWith::Icmp6(5)),
    ("icmp6-reject-route", RejectWith::Icmp6(6)),
    ("reject-route", RejectWith::Icmp6(6)),
];

/// `-j REJECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// `--reject-with`.
    pub with: RejectWith,
}

impl Extension for Reject {
    const NAME: &'static str = "REJECT";
    const OPTIONS: &'static [Spec] = &[Spec::value("reject-with")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let (answers, usual) = match args.family {
            Family::V4 => (ANSWERS_V4, RejectWith::Icmp(3)),
            Family::V6 => (ANSWERS_V6, RejectWith::Icmp6(4)),
        };
        let with = args.read("reject-with", |value| value.begin_of(answers, "an answer of REJECT"))?;
        Ok(Self { with: with.unwrap_or(usual) })
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ANSWERS_V4.iter().chain(ANSWERS_V6).find(|(_, answer)| *answer == self.with);
        write!(f, " --reject-with {}", name.map_or("", |(name, _)| name))
    }
}

/// `-j LOG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// `--log-prefix`: up to 29 bytes.
    pub prefix: String,
    /// `--log-level`: 0 is an emergency, 4 a warning, 7 for debugging.
    pub level: u8,
    /// `--log-tcp-sequence`.
    pub tcp_sequence: bool,
    /// `--log-tcp-options`.
    pub tcp_options: bool,
    /// `--log-ip-options`.
    pub ip_options: bool,
    /// `--log-uid`.
    pub uid: bool,
    /// `--log-macdecode`.
    pub mac_decode: bool,
}

/// A prefix for the log, which iptables cuts after so many bytes.
fn prefix(value: Value<'_>, bytes_max: usize) -> Result<String, Fault> {
    match value.text {
        "" => Err(value.fault("the prefix is empty")),
        text if text.contains('\n') => Err(value.fault("the prefix must not have several lines")),
        _ => Ok(value.text_of(bytes_max)),
    }
}

impl Extension for Log {
    const NAME: &'static str = "LOG";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("log-level"),
        Spec::value("log-prefix"),
        Spec::flag("log-tcp-sequence"),
        Spec::flag("log-tcp-options"),
        Spec::flag("log-ip-options"),
        Spec::flag("log-uid"),
        Spec::flag("log-macdecode"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let level = args.read("log-level", |value| match value.text.as_bytes().first() {
            Some(byte) if byte.is_ascii_digit() => value.number(0, 7).map(|level| level as u8),
            Some(_) | None => value.name_of(LOG_LEVELS, "a level of the log"),
        })?;
        Ok(Self {
            prefix: args.read("log-prefix", |value| prefix(value, 29))?.unwrap_or_default(),
            level: level.unwrap_or(4),
            tcp_sequence: args.flag("log-tcp-sequence"),
            tcp_options: args.flag("log-tcp-options"),
            ip_options: args.flag("log-ip-options"),
            uid: args.flag("log-uid"),
            mac_decode: args.flag("log-macdecode"),
        })
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.prefix.is_empty() {
            write!(f, " --log-prefix {}", quote(&self.prefix))?;
        }
        if self.level != 4 {
            write!(f, " --log-level {}", self.level)?;
        }
        plain(f, "log-tcp-sequence", self.tcp_sequence)?;
        plain(f, "log-tcp-options", self.tcp_options)?;
        plain(f, "log-ip-options", self.ip_options)?;
        plain(f, "log-uid", self.uid)?;
        plain(f, "log-macdecode", self.mac_decode)
    }
}

/// The number of bytes that `NFLOG` hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfLogLength {
    /// All.
    Whole,
    /// `--nflog-range`: a wish that the kernel ignores.
    Range(u32),
    /// `--nflog-size`: so many bytes.
    Size(u32),
}

/// `-j NFLOG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfLog {
    /// `--nflog-group`.
    pub group: u16,
    /// `--nflog-prefix`: up to 63 bytes.
    pub prefix: String,
    /// `--nflog-range` or `--nflog-size`.
    pub length: NfLogLength,
    /// `--nflog-threshold`: packets that are gathered before they are handed over.
    pub threshold: u16,
}

impl Extension for NfLog {
    const NAME: &'static str = "NFLOG";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("nflog-group"),
        Spec::value("nflog-prefix"),
        Spec::value("nflog-range"),
        Spec::value("nflog-size"),
        Spec::value("nflog-threshold"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        args.one_of(&["nflog-range", "nflog-size"])?;
        let range = args.read("nflog-range", Value::u32)?.map(NfLogLength::Range);
        let size = args.read("nflog-size", Value::u32)?.map(NfLogLength::Size);
        Ok(Self {
            group: args.read("nflog-group", Value::u16)?.unwrap_or(0),
            prefix: args.read("nflog-prefix", |value| prefix(value, 63))?.unwrap_or_default(),
            length: range.filter(|range| *range != NfLogLength::Range(0)).or(size).unwrap_or(NfLogLength::Whole),
            threshold: args.read("nflog-threshold", Value::u16)?.unwrap_or(0),
        })
    }
}

impl fmt::Display for NfLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.prefix.is_empty() {
            write!(f, " --nflog-prefix {}", quote(&self.prefix))?;
        }
        if self.group != 0 {
            write!(f, " --nflog-group {}", self.group)?;
        }
        match self.length {
            NfLogLength::Whole => {}
            NfLogLength::Range(bytes) => write!(f, " --nflog-range {bytes}")?,
            NfLogLength::Size(bytes) => write!(f, " --nflog-size {bytes}")?,
        }
        match self.threshold {
            0 => Ok(()),
            packets => write!(f, " --nflog-threshold {packets}"),
        }
    }
}

/// `-j TRACE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace;

impl Extension for Trace {
    const NAME: &'static str = "TRACE";
    const OPTIONS: &'static [Spec] = &[];

    fn build(_: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// `-j TEE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tee {
    /// `--gateway`: the host that gets the copy.
    pub gateway: IpAddr,
    /// `--oif`: the interface that the copy leaves by.
    pub output: Option<Interface>,
}

impl Extension for Tee {
    const NAME: &'static str = "TEE";
    const OPTIONS: &'static [Spec] = &[Spec::value("gateway").required(), Spec::value("oif")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let gateway = args.read("gateway", |value| value.address(args.family))?;
        let gateway = gateway.ok_or_else(|| args.fault("TEE needs `--gateway`"))?;
        if gateway.is_unspecified() {
            let what = format!("`{gateway}` can't be a gateway");
            return Err(args
                .value("gateway")
                .map_or_else(|| args.fault(what.as_str()), |value| value.fault(what.as_str())));
        }
        Ok(Self { gateway, output: args.read("oif", Value::interface)? })
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --gateway {}", self.gateway)?;
        match &self.output {
            Some(output) => write!(f, " --oif {output}"),
            None => Ok(()),
        }
    }
}
