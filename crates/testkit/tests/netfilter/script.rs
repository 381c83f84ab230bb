//! The language of scenarios. Each line is a step: a packet, and the kernel's verdict.
//!
//! ```text
//! ## name of the scenario
//! set tcp_loose 0            a setting, by the kernel's name (net.netfilter.nf_conntrack_*), until the scenario's end
//! ours filtering = "endpoint-independent"       a setting of our function alone, as its configuration has it
//! isn 100 5000               initial sequence numbers, inside and outside, of flows named from here on
//! a:4000 tcp x:80            the flow that the steps below belong to; `hairpin` at the end: both ends are inside
//! > S 0 ws7                = pass      from the inside: SYN, sequence number = initial + 0
//! < SA 0/1                 = pass      from the outside, to where a:4000 is seen there; acknowledges initial + 1
//! > PA 1+100/1             = pass      100 bytes
//! < error 3/3              = pass      an ICMP error about the last packet that left by this side
//! wait 1500                            milliseconds
//! > A 101/1                = pass ours drop D7    we differ, and docs/netfilter-differences.md says why
//! ```
//!
//! Segments may have `wN` (window), `wsN` (window scale), `sackok`, `sackL-R`, `opt=HEX` (more options); UDP has its length only, ICMP queries are
//! `request N` and `reply N` (with `timestamp`: not an echo); errors have `from=HOST`, `to=HOST`, `mtuN`, `quoteN` (bytes
//! quoted after the IP header, by default 8). All may have `badsum`, `nosum` (UDP), `edgesum` (UDP, zero once
//! translated), `fragOFFSET+LEN`, `cutN` (the IP packet ends after so many bytes of payload), `options` (IPv4).

use std::net::IpAddr;

use crate::craft::{ICMP, ICMPV6, TCP, UDP};

/// Hosts by name. `n` is the router's outside address.
pub(crate) const HOSTS: [(&str, &str); 11] = [
    ("a", "192.168.10.11"),
    ("b", "192.168.10.12"),
    ("ri", "192.168.10.99"),
    ("n", "198.51.100.1"),
    ("x", "203.0.113.10"),
    ("y", "203.0.113.20"),
    ("r", "203.0.113.1"),
    ("a6", "2001:db8:1::11"),
    ("x6", "2001:db8:2::10"),
    ("y6", "2001:db8:2::20"),
    ("r6", "2001:db8:2::1"),
];

/// A side of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Inside,
    Outside,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// Settings by the kernel's names, without `nf_conntrack_`.
    pub(crate) settings: Vec<(String, u64)>,
    /// Settings of our function alone, key and value.
    pub(crate) ours: Vec<(String, String)>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) steps: Vec<Step>,
}

/// A flow between two endpoints. `near` is inside; `far` is outside, except for hairpins.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) near: (IpAddr, u16),
    pub(crate) far: (IpAddr, u16),
    pub(crate) protocol: u8,
    pub(crate) hairpin: bool,
    /// Initial sequence numbers of `near` and of `far`.
    pub(crate) initial: [u32; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Line number and text, for messages.
    pub(crate) line: (usize, String),
    /// Milliseconds from the scenario's start.
    pub(crate) at_ms: u64,
    pub(crate) flow: usize,
    /// `near` sends the packet.
    pub(crate) outward: bool,
    pub(crate) body: Body,
    pub(crate) spoil: Spoil,
    /// Offset and length of the payload in a fragment.
    pub(crate) fragment: Option<(usize, usize)>,
    pub(crate) expected: Expected,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Segment {
        flags: u8,
        seq: u32,
        ack: u32,
        len: usize,
        window: u16,
        scale: Option<u8>,
        sack_ok: bool,
        more_options: [u8; 4],
        sack: Option<(u32, u32)>,
    },
    Datagram {
        len: usize,
    },
    Query {
        kind: u8,
        number: u16,
    },
    Error {
        kind: (u8, u8),
        mtu: u16,
        from: Option<IpAddr>,
        to: Option<IpAddr>,
        quote: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoil {
    Nothing,
    BadSum,
    NoSum,
    EdgeSum,
    Options,
    Cut(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The kernel forwards it.
    pub(crate) kernel: bool,
    /// Our outcome if it differs, and the name of the difference.
    pub(crate) ours: Option<(Ours, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ours {
    Pass,
    Drop,
    /// Both forward it, with different bytes.
    Differs,
}

/// Reads a file of scenarios.
pub(crate) fn read(text: &str) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let (mut at_ms, mut initial) = (0, [0, 0]);
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        if let Some(name) = line.strip_prefix("## ") {
            (at_ms, initial) = (0, [1_000_000, 3_000_000_000]);
            scenarios.push(Scenario {
                name: name.trim().into(),
                settings: vec![],
                ours: vec![],
                flows: vec![],
                steps: vec![],
            });
            continue;
        }
        let Some(scenario) = scenarios.last_mut() else { continue };
        let complain = || -> ! { panic!("line {}: what is this? {line}", number + 1) };
        let parsed = match words[..] {
            [] => Some(()),
            ["set", key, value] => value.parse().ok().map(|value| scenario.settings.push((key.into(), value))),
            ["ours", key, "=", value] => {
                scenario.ours.push((key.into(), value.into()));
                Some(())
            }
            ["wait", ms] => ms.parse::<u64>().ok().map(|ms| at_ms += ms),
            ["isn", near, far] => near.parse().ok().zip(far.parse().ok()).map(|(near, far)| initial = [near, far]),
            [">" | "<", ..] => step(&words, &scenario.flows).map(|mut step| {
                (step.line, step.at_ms) = ((number + 1, line.trim().into()), at_ms);
                scenario.steps.push(step);
            }),
            [near, protocol, far, ..] => flow(near, protocol, far, words.get(3) == Some(&"hairpin"), initial)
                .map(|flow| scenario.flows.push(flow)),
            _ => None,
        };
        parsed.unwrap_or_else(|| complain());
    }
    scenarios
}

fn flow(near: &str, protocol: &str, far: &str, hairpin: bool, initial: [u32; 2]) -> Option<Flow> {
    let (near, far) = (end(near)?, end(far)?);
    let protocol = match protocol {
        "tcp" => TCP,
        "udp" => UDP,
        "echo" if near.0.is_ipv4() => ICMP,
        "echo" => ICMPV6,
        other => other.strip_prefix("ip")?.parse().ok()?,
    };
    Some(Flow { near, far, protocol, hairpin, initial })
}

fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (name, port) = text.split_once(':')?;
    Some((known(name)?, port.parse().ok()?))
}

/// Returns the address of a host of the list.
pub(crate) fn host(name: &str) -> IpAddr {
    known(name).unwrap_or_else(|| panic!("nobody is called {name}"))
}

fn known(name: &str) -> Option<IpAddr> {
    let (_, address) = HOSTS.iter().find(|(known, _)| *known == name)?;
    address.parse().ok()
}

fn step(words: &[&str], flows: &[Flow]) -> Option<Step> {
    let flow = flows.last()?;
    let equals = words.iter().position(|word| *word == "=")?;
    let (said, expected) = (&words[1..equals], &words[equals + 1..]);
    let mut step = Step {
        line: (0, String::new()),
        at_ms: 0,
        flow: flows.len() - 1,
        outward: words[0] == ">",
        body: body(said, flow.near.0.is_ipv6())?,
        spoil: Spoil::Nothing,
        fragment: None,
        expected: expectation(expected)?,
    };
    for word in said {
        match *word {
            "badsum" => step.spoil = Spoil::BadSum,
            "nosum" => step.spoil = Spoil::NoSum,
            "edgesum" => step.spoil = Spoil::EdgeSum,
            "options" => step.spoil = Spoil::Options,
            other => {
                if let Some(len) = other.strip_prefix("cut") {
                    step.spoil = Spoil::Cut(len.parse().ok()?);
                }
                if let Some(range) = other.strip_prefix("frag") {
                    let (offset, len) = range.split_once('+')?;
                    step.fragment = Some((offset.parse().ok()?, len.parse().ok()?));
                }
            }
        }
    }
    Some(step)
}

fn expectation(words: &[&str]) -> Option<Expected> {
    let verdict = |word| match word {
        "pass" => Some(true),
        "drop" => Some(false),
        _ => None,
    };
    let ours = match words[1..] {
        [] => None,
        ["ours", "pass", name] => Some((Ours::Pass, name.into())),
        ["ours", "drop", name] => Some((Ours::Drop, name.into())),
        ["ours", "differs", name] => Some((Ours::Differs, name.into())),
        _ => return None,
    };
    Some(Expected { kernel: verdict(words[0])?, ours })
}

fn body(words: &[&str], v6: bool) -> Option<Body> {
    let option =
        |prefix: &str| words[1..].iter().find_map(|word| word.strip_prefix(prefix).filter(|rest| !rest.is_empty()));
    match *words.first()? {
        "request" | "reply" => {
            let kind = match (words[0], words.contains(&"timestamp"), v6) {
                ("request", false, false) => 8,
                ("request", true, false) => 13,
                (_, false, false) => 0,
                (_, true, false) => 14,
                ("request", _, true) => 128,
                (_, _, true) => 129,
            };
            Some(Body::Query { kind, number: words.get(1)?.parse().ok()? })
        }
        "error" => {
            let (kind, code) = words.get(1)?.split_once('/')?;
            Some(Body::Error {
                kind: (kind.parse().ok()?, code.parse().ok()?),
                mtu: option("mtu").map_or(Some(0), |mtu| mtu.parse().ok())?,
                from: option("from=").map(host),
                to: option("to=").map(host),
                quote: option("quote").map_or(Some(8), |len| len.parse().ok())?,
            })
        }
        len if len.starts_with(|first: char| first.is_ascii_digit()) => Some(Body::Datagram { len: len.parse().ok()? }),
        flags => {
            let flags = flags_of(flags)?;
            let (seq, ack) = words.get(1)?.split_once('/').unwrap_or((words[1], "0"));
            let (seq, len) = seq.split_once('+').unwrap_or((seq, "0"));
            let sack = option("sack").filter(|rest| *rest != "ok").map(|edges| {
                let (left, right) = edges.split_once('-')?;
                Some((left.parse().ok()?, right.parse().ok()?))
            });
            let window = words[1..].iter().find_map(|word| word.strip_prefix('w')?.parse().ok());
            Some(Body::Segment {
                flags,
                seq: relative(seq)?,
                ack: relative(ack)?,
                len: len.parse().ok()?,
                window: window.unwrap_or(8000),
                scale: option("ws").and_then(|scale| scale.parse().ok()),
                sack_ok: words.contains(&"sackok"),
                sack: sack.map_or(Some(None), |edges| edges.map(Some))?,
                more_options: option("opt=")
                    .map_or(Some([0; 4]), |hex| u32::from_str_radix(hex, 16).ok().map(u32::to_be_bytes))?,
            })
        }
    }
}

/// Parses a number relative to an initial sequence number; it may be negative.
fn relative(text: &str) -> Option<u32> {
    text.parse::<i64>().ok().map(|number| number as u32)
}

fn flags_of(text: &str) -> Option<u8> {
    text.chars().try_fold(0, |flags, letter| match letter {
        '0' | '.' => Some(flags),
        'F' => Some(flags | 1),
        'S' => Some(flags | 2),
        'R' => Some(flags | 4),
        'P' => Some(flags | 8),
        'A' => Some(flags | 16),
        'U' => Some(flags | 32),
        'E' => Some(flags | 64),
        'C' => Some(flags | 128),
        _ => None,
    })
}
