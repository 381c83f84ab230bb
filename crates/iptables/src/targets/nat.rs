//! Rewriting of addresses: `DNAT`, `SNAT`, `MASQUERADE`, `REDIRECT`, `NETMAP`.

use alloc::format;
use core::fmt;
use core::net::IpAddr;

use crate::error::Fault;
use crate::extension::Extension;
use crate::names::{protocols, services};
use crate::options::{Args, Spec, Value};
use crate::read::integer;
use crate::value::{Interval, Network, plain};

/// A range of addresses, and perhaps of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatAddresses {
    /// The addresses. `None` keeps the packet's.
    pub addresses: Option<Interval<IpAddr>>,
    /// The ports. `None` keeps the packet's if it can.
    pub ports: Option<NatPorts>,
}

/// A range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatPorts {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
    /// For DNAT: a packet for this port goes to `first`, one for the next port to the next, and so on.
    pub base: Option<u16>,
}

impl NatPorts {
    fn read(args: &Args<'_>, value: Value<'_>, takes_base: bool) -> Result<Self, Fault> {
        let with_ports =
            [protocols::TCP, protocols::UDP, protocols::SCTP, protocols::DCCP, protocols::ICMP, protocols::ICMP_V6];
        if !args.protocol.is_some_and(|protocol| with_ports.contains(&protocol.value)) {
            return Err(value
                .fault("ports need a protocol that has them")
                .instead("write `-p tcp`, `-p udp`, `-p sctp` or `-p dccp`"));
        }
        let invalid = |part: Value<'_>| part.fault(format!("`{}` is not a port", part.text));
        let number = |part: Value<'_>| integer(part.text).and_then(|port| u16::try_from(port).ok());
        if value.text.contains(':') {
            return Err(value.fault("the range of ports has a `:`").instead("write `-`"));
        }
        let service = |part: Value<'_>| number(part).or_else(|| services::port(part.text, None));
        let (range, base) = value.split_once('/').map_or((value, None), |(range, base)| (range, Some(base)));
        if base.is_some() && !takes_base {
            return Err(value.fault("only DNAT takes a port after `/`"));
        }
        // A service's name may have a dash in it, so the whole is tried first.
        let (first, last) = match (service(range), range.split_once('-')) {
            (Some(port), _) => (port, port),
            (None, Some((first, last))) => {
                let first = number(first).ok_or_else(|| invalid(first))?;
                (first, number(last).ok_or_else(|| invalid(last))?)
            }
            (None, None) => return Err(invalid(range)),
        };
        if first > last {
            return Err(range.fault(format!("the range of ports `{}` ends before it begins", range.text)));
        }
        let base = base.map(|base| service(base).filter(|port| *port > 0).ok_or_else(|| invalid(base)));
        Ok(Self { first, last, base: base.transpose()? })
    }
}

impl fmt::Display for NatPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.first != self.last {
            write!(f, "-{}", self.last)?;
        }
        match self.base {
            Some(base) => write!(f, "/{base}"),
            None => Ok(()),
        }
    }
}

impl NatAddresses {
    fn read(args: &Args<'_>, value: Value<'_>, takes_base: bool) -> Result<Self, Fault> {
        let (addresses, ports) = match value.text.strip_prefix('[') {
            Some(inner) => {
                let Some((inside, behind)) = inner.split_once(']') else {
                    return Err(value.fault("`]` is missing"));
                };
                let ports = match behind {
                    "" => None,
                    _ => Some(behind.strip_prefix(':').ok_or_else(|| value.fault("expected `:` after `]`"))?),
                };
                (inside, ports)
            }
            None if args.family == crate::Family::V6 => (value.text, None),
            None => value.text.split_once(':').map_or((value.text, None), |(before, ports)| (before, Some(ports))),
        };
        let ports = ports.map(|ports| NatPorts::read(args, value.part(ports), takes_base)).transpose()?;
        let addresses = match addresses {
            "" if ports.is_some() => None,
            addresses => {
                let addresses = value.part(addresses);
                let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
                Some(Interval { first: first.address(args.family)?, last: last.address(args.family)? })
            }
        };
        Ok(Self { addresses, ports })
    }
}

impl fmt::Display for NatAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets =
            self.ports.is_some() && self.addresses.is_some_and(|addresses| matches!(addresses.first, IpAddr::V6(_)));
        if let Some(Interval { first, last }) = self.addresses {
            write!(f, "{}{first}", if brackets { "[" } else { "" })?;
            if first != last {
                write!(f, "-{last}")?;
            }
            f.write_str(if brackets { "]" } else { "" })?;
        }
        match self.ports {
            Some(ports) => write!(f, ":{ports}"),
            None => Ok(()),
        }
    }
}

/// `-j DNAT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnat {
    /// `--to-destination`.
    pub to: NatAddresses,
    /// `--random`: the port is chosen at random.
    pub random: bool,
    /// `--persistent`: a source always gets the same address.
    pub persistent: bool,
}

impl Extension for Dnat {
    const NAME: &'static str = "DNAT";
    const OPTIONS: &'static [Spec] =
        &[Spec::value("to-destination").required(), Spec::flag("random"), Spec::flag("persistent")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let to = args.read("to-destination", |value| NatAddresses::read(args, value, true))?;
        Ok(Self {
            to: to.ok_or_else(|| args.fault("DNAT needs `--to-destination`"))?,
            random: args.flag("random"),
            persistent: args.flag("persistent"),
        })
    }
}

impl fmt::Display for Dnat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --to-destination {}", self.to)?;
        plain(f, "random", self.random)?;
        plain(f, "persistent", self.persistent)
    }
}

/// `-j SNAT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snat {
    /// `--to-source`.
    pub to: NatAddresses,
    /// `--random`: the port is chosen by a hash with a secret.
    pub random: bool,
    /// `--random-fully`: the port is chosen at random.
    pub random_fully: bool,
    /// `--persistent`: a source always gets the same address.
    pub persistent: bool,
}

impl Extension for Snat {
    const NAME: &'static str = "SNAT";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("to-source").required(),
        Spec::flag("random"),
        Spec::flag("random-fully"),
        Spec::flag("persistent"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let to = args.read("to-source", |value| NatAddresses::read(args, value, false))?;
        Ok(Self {
            to: to.ok_or_else(|| args.fault("SNAT needs `--to-source`"))?,
            random: args.flag("random"),
            random_fully: args.flag("random-fully"),
            persistent: args.flag("persistent"),
        })
    }
}

impl fmt::Display for Snat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --to-source {}", self.to)?;
        plain(f, "random", self.random)?;
        plain(f, "random-fully", self.random_fully)?;
        plain(f, "persistent", self.persistent)
    }
}

/// `-j MASQUERADE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masquerade {
    /// `--to-ports`.
    pub ports: Option<NatPorts>,
    /// `--random`: the port is chosen by a hash with a secret.
    pub random: bool,
    /// `--random-fully`: the port is chosen at random.
    pub random_fully: bool,
}

impl Extension for Masquerade {
    const NAME: &'static str = "MASQUERADE";
    const OPTIONS: &'static [Spec] = &[Spec::value("to-ports"), Spec::flag("random"), Spec::flag("random-fully")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self {
            ports: args.read("to-ports", |value| NatPorts::read(args, value, false))?,
            random: args.flag("random"),
            random_fully: args.flag("random-fully"),
        })
    }
}

impl fmt::Display for Masquerade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ports) = self.ports {
            write!(f, " --to-ports {ports}")?;
        }
        plain(f, "random", self.random)?;
        plain(f, "random-fully", self.random_fully)
    }
}

/// `-j REDIRECT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// `--to-ports`.
    pub ports: Option<NatPorts>,
    /// `--random`: the port is chosen at random.
    pub random: bool,
}

impl Extension for Redirect {
    const NAME: &'static str = "REDIRECT";
    const OPTIONS: &'static [Spec] = &[Spec::value("to-ports"), Spec::flag("random")];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        Ok(Self {
            ports: args.read("to-ports", |value| NatPorts::read(args, value, false))?,
            random: args.flag("random"),
        })
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ports) = self.ports {
            write!(f, " --to-ports {ports}")?;
        }
        plain(f, "random", self.random)
    }
}

/// `-j NETMAP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetMap {
    /// `--to`: the new network part. The host part is kept.
    pub to: Network,
}

impl Extension for NetMap {
    const NAME: &'static str = "NETMAP";
    const OPTIONS: &'static [Spec] = &[Spec::value("to").required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let to = args.read("to", |value| value.network(args.family))?;
        Ok(Self { to: to.ok_or_else(|| args.fault("NETMAP needs `--to`"))? })
    }
}

impl fmt::Display for NetMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --to {}", self.to.short())
    }
}
