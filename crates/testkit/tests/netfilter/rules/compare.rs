//! Compares what two routers did with a packet, and their counters.

use std::collections::{BTreeSet, HashMap};

use iptables::{Hook, RuleSet, Table};

use super::case::described;
use super::layout::Layout;
use super::runner::Outcome;
use crate::craft::{self, End, ICMP, ICMPV6, TCP, UDP, View};

/// An end whose port a router may choose: the protocol, its address and port, and the other end.
type Chosen = (u8, End, End);

/// The ports that each side chose at random, one to one.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Ranges of ports that rules name.
    ranges: Vec<(u16, u16)>,
    kernel_by_ours: HashMap<Chosen, u16>,
    ours_by_kernel: HashMap<Chosen, u16>,
}

/// The two routers' outcomes of a packet, which may have gone to each with other ports.
pub(crate) struct Pair<'a> {
    pub(crate) from: usize,
    pub(crate) sent: [&'a [u8]; 2],
    pub(crate) outcomes: [&'a Outcome; 2],
}

impl Ports {
    /// No port is chosen yet. `text` is the rule set, as iptables-save prints it.
    pub(crate) fn new(text: &str) -> Self {
        let words = text.split_whitespace().filter_map(|word| word.rsplit(':').next()?.split_once('-'));
        let ranges = words.filter_map(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?))).collect();
        Self { ranges, kernel_by_ours: HashMap::new(), ours_by_kernel: HashMap::new() }
    }

    /// Returns the first difference.
    pub(crate) fn difference(&mut self, pair: &Pair<'_>, layout: &Layout) -> Option<String> {
        let [kernel, ours] = pair.outcomes;
        if kernel.delivered != ours.delivered || kernel.left.len() != ours.left.len() {
            return Some("one side does what the other doesn't".to_owned());
        }
        for ((by, theirs), (our_by, mine)) in kernel.left.iter().zip(&ours.left) {
            let answers = is_answer(pair.sent[0], theirs);
            if answers && layout.route(craft::view(pair.sent[0]).src.0) != Some(pair.from) {
                // The kernel answers by the route to the source, we by the interface of the packet.
                if kind(theirs) != kind(mine) {
                    return Some("the answers are of different kinds".to_owned());
                }
                continue;
            }
            if answers && kind(theirs) == kind(mine) && !quotes(theirs, pair.sent[0]) {
                // The kernel tracks its error about an invalid packet by what it quotes, and rewrites it as a connection's.
                continue;
            }
            if by != our_by {
                return Some("it leaves by another interface".to_owned());
            }
            if let Some(what) = self.packet_difference(pair.sent, theirs, mine, answers) {
                return Some(what);
            }
        }
        None
    }

    fn packet_difference(&mut self, sent: [&[u8]; 2], theirs: &[u8], mine: &[u8], answers: bool) -> Option<String> {
        if craft::complaint(theirs) != craft::complaint(mine) {
            return Some("only one side's checksums are right".to_owned());
        }
        let (mut kernel, mut ours) = (comparable(theirs, answers), comparable(mine, answers));
        let (seen, our_seen) = (craft::view(&kernel), craft::view(&ours));
        if !answers && seen.quoted.is_none() {
            let befores = sent.map(craft::view);
            for side in [Side::Source, Side::Destination] {
                if let Err(what) = self.choose(side, befores, [seen, our_seen]) {
                    return Some(what);
                }
            }
        }
        if kernel == ours {
            return None;
        }
        self.rename(&mut ours, 0);
        if let Some(at) = our_seen.quoted.filter(|at| ours.len() >= at + 28 && kernel.len() >= at + 28) {
            self.rename(&mut ours, at);
            // It covers the port, and can't be computed anew if the quotation is cut.
            clear_checksum(&mut kernel[at..]);
            clear_checksum(&mut ours[at..]);
        }
        if our_seen.fragment && !our_seen.later_fragment && (our_seen.src, our_seen.dst) != (seen.src, seen.dst) {
            // It covers the ports, and can't be computed anew without the other fragments.
            clear_checksum(&mut kernel);
            clear_checksum(&mut ours);
        }
        craft::finish(&mut kernel);
        craft::finish(&mut ours);
        let at = kernel.iter().zip(&ours).position(|(theirs, mine)| theirs != mine);
        (kernel != ours).then(|| format!("other bytes, the first at {}", at.unwrap_or(kernel.len().min(ours.len()))))
    }

    /// Records the ports of one end, if it was translated.
    fn choose(&mut self, side: Side, before: [View; 2], after: [View; 2]) -> Result<(), String> {
        let [kernel, ours] = after.map(|seen| side.of(&seen));
        let [(end, other), (our_end, our_other)] = [kernel, ours];
        let [was, our_was] = before.map(|seen| side.of(&seen).0);
        if end.0 != our_end.0 || other.0 != our_other.0 || (end == was && our_end == our_was) {
            return Ok(());
        }
        let protocol = after[0].protocol;
        let key = |end: End, other: End| (protocol, end, without_identifier(protocol, other));
        let by_ours = *self.kernel_by_ours.entry(key(our_end, our_other)).or_insert(end.1);
        let by_kernel = *self.ours_by_kernel.entry(key(end, other)).or_insert(our_end.1);
        if (by_ours, by_kernel) != (end.1, our_end.1) {
            return Err(format!("port {} and {} belong to other flows", end.1, our_end.1));
        }
        if end.1 == our_end.1 {
            return Ok(());
        }
        if (end.1 == was.1) != (our_end.1 == our_was.1) {
            return Err("only one side keeps the port".to_owned());
        }
        let both_in = |first: u16, last: u16| (first..=last).contains(&end.1) && (first..=last).contains(&our_end.1);
        let classes = [(1, 511), (512, 1023), (1024, u16::MAX), (0, u16::MAX)];
        let classes = &classes[if matches!(protocol, ICMP | ICMPV6) { 3..4 } else { 0..3 }];
        if self.ranges.iter().chain(classes).any(|(first, last)| both_in(*first, *last)) {
            return Ok(());
        }
        Err("the ports are of different classes".to_owned())
    }

    /// Replaces our ports by the kernel's in the IP packet at `at`.
    fn rename(&self, packet: &mut [u8], at: usize) {
        let seen = craft::view(&packet[at..]);
        let transport = at + seen.transport;
        let places = match seen.protocol {
            TCP | UDP => [transport, transport + 2],
            ICMP | ICMPV6 if seen.quoted.is_none() => [transport + 4; 2],
            _ => return,
        };
        for (side, place) in [Side::Source, Side::Destination].into_iter().zip(places) {
            let (end, other) = side.of(&seen);
            let chosen = self.kernel_by_ours.get(&(seen.protocol, end, without_identifier(seen.protocol, other)));
            if let Some(port) = chosen
                && packet.len() >= place + 2
            {
                packet[place..place + 2].copy_from_slice(&port.to_be_bytes());
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

impl Side {
    /// This end of a packet, and the other one.
    const fn of(self, seen: &View) -> (End, End) {
        match self {
            Self::Source => (seen.src, seen.dst),
            Self::Destination => (seen.dst, seen.src),
        }
    }
}

/// Both ends of an ICMP query have its identifier, so it doesn't tell the other one.
const fn without_identifier(protocol: u8, end: End) -> End {
    if matches!(protocol, ICMP | ICMPV6) { (end.0, 0) } else { end }
}

/// The packet without what every sender chooses: the identification and, of the router's own packets, the flow label.
fn comparable(packet: &[u8], answers: bool) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    } else if answers {
        packet[1] &= 0xf0;
        packet[2..4].fill(0);
    }
    packet
}

/// Clears the transport's checksum of a packet that may be cut.
fn clear_checksum(packet: &mut [u8]) {
    let seen = craft::view(packet);
    let at = seen.transport
        + match seen.protocol {
            TCP => 16,
            UDP => 6,
            ICMP | ICMPV6 => 2,
            _ => return,
        };
    packet.iter_mut().skip(at).take(2).for_each(|byte| *byte = 0);
}

/// True if the router itself made the packet, to answer `sent`.
pub(crate) fn is_answer(sent: &[u8], packet: &[u8]) -> bool {
    let (sent, seen) = (craft::view(sent), craft::view(packet));
    let is_reset = seen.protocol == TCP && packet.get(seen.transport + 13).is_some_and(|flags| flags & 4 != 0);
    let is_turned = seen.src.0 != sent.src.0 || sent.src.0 == sent.dst.0;
    seen.dst.0 == sent.src.0 && is_turned && (seen.quoted.is_some() || is_reset)
}

/// False if an ICMP error quotes other addresses than those of `sent`.
fn quotes(error: &[u8], sent: &[u8]) -> bool {
    let Some(at) = craft::view(error).quoted else { return true };
    let (quoted, sent) = (craft::view(&error[at..]), craft::view(sent));
    (quoted.src.0, quoted.dst.0) == (sent.src.0, sent.dst.0)
}

/// The protocol, and the type and code of an ICMP error.
fn kind(packet: &[u8]) -> (u8, Option<&[u8]>) {
    let seen = craft::view(packet);
    (seen.protocol, seen.quoted.and_then(|at| packet.get(at - 8..at - 6)))
}

/// Formats an outcome.
pub(crate) fn told(outcome: &Outcome, layout: &Layout) -> String {
    let left = outcome.left.iter().map(|(by, packet)| {
        let name = layout.interfaces.get(*by).map_or("no interface", |laid| laid.name.as_str());
        format!("{name}: {}", described(packet))
    });
    let delivered = std::iter::repeat_n("to the router itself".to_owned(), outcome.delivered);
    let all: Vec<String> = left.chain(delivered).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
}

/// Compares the counters of all rules and policies. If the router itself has sent packets, those of OUTPUT and POSTROUTING don't count:
/// whether its own packets pass rules is a matter of the router's stack.
pub(crate) fn counter_differences(kernel: &RuleSet, ours: &RuleSet, has_answered: bool) -> Vec<String> {
    let mut differences = Vec::new();
    for table in &ours.tables {
        let Some(theirs) = kernel.table(table.kind) else {
            differences.push(format!("the kernel has no table {}", table.kind.name()));
            continue;
        };
        let skipped = if has_answered { reached(table, &[Hook::Output, Hook::Postrouting]) } else { BTreeSet::new() };
        for chain in table.chains.iter().filter(|chain| !skipped.contains(&*chain.name)) {
            let name = format!("{} {}", table.kind.name(), chain.name);
            let Some(their_chain) = theirs.chain(&chain.name) else {
                differences.push(format!("the kernel has no chain {name}"));
                continue;
            };
            if their_chain.rules.len() != chain.rules.len() {
                differences.push(format!("{name}: {} rules, we have {}", their_chain.rules.len(), chain.rules.len()));
            }
            let policies = chain.base.map(|_| ("policy".to_owned(), their_chain.counters, chain.counters));
            let rules = their_chain.rules.iter().zip(&chain.rules);
            let rules = rules.map(|(theirs, mine)| (mine.to_string(), theirs.counters, mine.counters));
            for (what, theirs, mine) in policies.into_iter().chain(rules) {
                if theirs != mine {
                    differences.push(format!(
                        "{name}:{what}: the kernel counts {} packets of {} bytes, we {} of {}",
                        theirs.packets, theirs.bytes, mine.packets, mine.bytes
                    ));
                }
            }
        }
    }
    differences
}

/// The chains of a table that packets of these hooks may come to.
fn reached<'a>(table: &'a Table, hooks: &[Hook]) -> BTreeSet<&'a str> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = hooks.iter().map(|hook| hook.name()).collect();
    while let Some(name) = open.pop() {
        let Some(chain) = table.chain(name) else { continue };
        if reached.insert(&chain.name) {
            open.extend(chain.rules.iter().filter_map(|rule| rule.target.as_deref()?.chain()));
        }
    }
    reached
}
