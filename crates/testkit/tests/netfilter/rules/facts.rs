//! The language of hand-written cases: a rule set, packets, and what the kernel does with them.
//!
//! ```text
//! ## name of the case
//! *filter                                      a rule set, as iptables-restore takes it
//! COMMIT
//! create s hash:net family inet                sets, as ipset restore takes them
//! > e2 tcp 10.0.0.2:1000 8.0.0.5:80 S seq=7  = e1             comes in by e2, and leaves by e1
//! < 1 SA                                     = e2             an answer to what packet 1 brought out
//! > e2 udp 10.0.0.2:1 8.0.0.1:2              = local          for the router itself
//! > e2 icmp 10.0.0.2 8.0.0.5 8/0 id=3        = drop
//! < 1 error 3/1 from=8.0.0.9                 = e2 to=10.0.0.2:1000
//! count filter FORWARD 2                     = 1     packets that the chain's second rule has counted in the end
//! ```
//!
//! Packets may have `ttl=N`, `len=N`, `badsum`, `frag=OFFSET+LEN`. Answers are TCP flags, `data`, `echo` or `error`. Behind `=` stand all
//! interfaces by which packets leave; `from=`, `to=` are the ends of the first of them. Cases have the router `e0` 1.0.0.1/24,
//! `e1` 8.0.0.1/24 with an MTU of 1400, and `e2` 10.0.0.1/24, with a default route by `e0`.

use std::net::IpAddr;

use iptables::{Family, RuleSet, TableKind};

use super::case::{Answer, Numbered, Rules, Step};
use super::layout::Layout;
use super::runner::Outcome;
use crate::craft::{self, End, Segment};

/// A case of the file.
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    pub(crate) steps: Vec<Numbered>,
    /// For each step: the line, and what the kernel does.
    pub(crate) expected: Vec<(String, Expected)>,
    pub(crate) counts: Vec<Count>,
}

/// Packets that a rule has counted in the end.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    table: TableKind,
    chain: String,
    /// From 1.
    rule: u64,
    packets: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    interfaces: Vec<usize>,
    is_local: bool,
    from: Option<End>,
    to: Option<End>,
}

/// The router of all cases.
pub(crate) fn layout() -> Layout {
    let mut layout = Layout::plain(&["e0", "e1", "e2"].map(str::to_owned), Family::V4);
    for (laid, address) in layout.interfaces.iter_mut().zip([[1, 0, 0, 1], [8, 0, 0, 1], [10, 0, 0, 1]]) {
        laid.addresses = vec![(address.into(), 24)];
    }
    layout.interfaces[1].mtu = 1400;
    layout
}

/// Reads a file of cases.
pub(crate) fn read(text: &str) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let is_rule = line.starts_with(['*', ':', '-']) || line == "COMMIT";
        let words: Vec<&str> = line.split_whitespace().collect();
        match (facts.last_mut(), &words[..]) {
            (_, ["##", ..]) => facts.push(Fact {
                name: line[2..].trim().to_owned(),
                rules: Rules { family: Family::V4, text: String::new(), sets: String::new() },
                steps: vec![],
                expected: vec![],
                counts: vec![],
            }),
            (None, _) | (_, [] | ["#", ..]) => {}
            (Some(fact), _) if is_rule => fact.rules.text += &format!("{line}\n"),
            (Some(fact), ["create" | "add", ..]) => fact.rules.sets += &format!("{line}\n"),
            (Some(fact), ["count", table, chain, rule, "=", packets]) => {
                let [rule, packets] = [rule, packets].map(|number| number.parse().expect("a number"));
                let table = TableKind::named(table).expect("a table");
                fact.counts.push(Count { table, chain: (*chain).to_owned(), rule, packets });
            }
            (Some(fact), words) => {
                let read = step(words, &layout());
                let (step, expected) = read.unwrap_or_else(|| panic!("line {}: what is this? {line}", nth + 1));
                fact.steps.push((fact.steps.len() + 1, step));
                fact.expected.push((line.to_owned(), expected));
            }
        }
    }
    facts
}

impl Count {
    /// Returns what the kernel has counted, if it is something else.
    pub(crate) fn complaint(&self, kernel: &RuleSet) -> Option<String> {
        let chain = kernel.table(self.table)?.chain(&self.chain)?;
        let rule = &chain.rules[self.rule as usize - 1];
        let counted = rule.counters.packets;
        (counted != self.packets).then(|| format!("{}{rule}: the kernel counts {counted} packets", self.chain))
    }
}

impl Expected {
    /// Returns what is different from what was expected of the kernel.
    pub(crate) fn complaint(&self, outcome: &Outcome) -> Option<String> {
        let by: Vec<usize> = outcome.left.iter().map(|(by, _)| *by).collect();
        if by != self.interfaces || (outcome.delivered > 0) != self.is_local {
            return Some(format!("packets leave by {by:?}, and {} are local", outcome.delivered));
        }
        let seen = outcome.left.first().map(|(_, packet)| craft::view(packet))?;
        let is_wrong = |expected: Option<End>, end: End| expected.is_some_and(|expected| expected != end);
        (is_wrong(self.from, seen.src) || is_wrong(self.to, seen.dst))
            .then(|| format!("it goes from {:?} to {:?}", seen.src, seen.dst))
    }
}

fn step(words: &[&str], layout: &Layout) -> Option<(Step, Expected)> {
    let equals = words.iter().position(|word| *word == "=")?;
    let (said, expected) = (&words[..equals], expectation(&words[equals + 1..], layout)?);
    let value = |name: &str| said.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| value(name).map_or(Some(0), |text| text.parse::<u32>().ok());
    let spoilt = said.contains(&"badsum");
    if said[0] == "<" {
        let answer = match *said.get(2)? {
            "data" => Answer::Datagram { len: number("len")? as usize },
            "echo" => Answer::Echo,
            "error" => {
                let (kind, code) = codes(said.get(3)?)?;
                let from = value("from").map(|from| from.parse().ok());
                Answer::Error { kind, code, from: from.map_or(Some(None), |from| from.map(Some))?, quote: 8 }
            }
            flags => Answer::Segment { flags: flags_of(flags)?, len: number("len")? as usize, seq: number("seq")? },
        };
        return Some((Step::Answer { to: said.get(1)?.parse().ok()?, answer, spoilt }, expected));
    }
    let from = interface(said.get(1)?, layout)?;
    let (src, dst) = (end(said.get(3)?)?, end(said.get(4)?)?);
    let mut packet = match *said.get(2)? {
        "udp" => craft::udp(src, dst, number("len")? as usize),
        "tcp" => {
            let segment = Segment {
                flags: flags_of(said.get(5)?)?,
                seq: number("seq")?,
                ack: number("ack")?,
                window: 65_535,
                ..Segment::default()
            };
            craft::tcp(src, dst, &segment, number("len")? as usize)
        }
        "icmp" => craft::query(src.0, dst.0, number("id")? as u16, codes(said.get(5)?)?.0, 1),
        protocol => craft::ip(src.0, dst.0, protocol.parse().ok()?, &[7; 12]),
    };
    if let Some(ttl) = value("ttl") {
        packet[8] = ttl.parse().ok()?;
        craft::finish(&mut packet);
    }
    if spoilt {
        craft::spoil(&mut packet);
    }
    if let Some(range) = value("frag") {
        let (offset, len) = range.split_once('+')?;
        packet = craft::fragment(&packet, offset.parse().ok()?, len.parse().ok()?);
    }
    Some((Step::Send { from, packet }, expected))
}

fn expectation(words: &[&str], layout: &Layout) -> Option<Expected> {
    let mut expected = Expected::default();
    for word in words {
        match word.split_once('=') {
            Some(("from", text)) => expected.from = Some(end(text)?),
            Some(("to", text)) => expected.to = Some(end(text)?),
            Some(_) => return None,
            None if *word == "local" => expected.is_local = true,
            None if *word == "drop" => {}
            None => expected.interfaces.push(interface(word, layout)?),
        }
    }
    Some(expected)
}

fn interface(name: &str, layout: &Layout) -> Option<usize> {
    layout.interfaces.iter().position(|laid| laid.name == name)
}

fn end(text: &str) -> Option<End> {
    let (address, port) = text.split_once(':').unwrap_or((text, "0"));
    Some((address.parse::<IpAddr>().ok()?, port.parse().ok()?))
}

fn codes(text: &str) -> Option<(u8, u8)> {
    let (kind, code) = text.split_once('/')?;
    Some((kind.parse().ok()?, code.parse().ok()?))
}

fn flags_of(text: &str) -> Option<u8> {
    text.chars().try_fold(0, |flags, letter| match letter {
        '-' => Some(flags),
        _ => Some(flags | 1 << "FSRPAUEC".find(letter)?),
    })
}
