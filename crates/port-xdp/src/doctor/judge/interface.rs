//! Findings from the facts about an interface.

use crate::doctor::holders::Holder;
use crate::doctor::interface::{Abilities, Attached, Interface, Peer};
use crate::doctor::trial::Trial;
use crate::doctor::{Finding, Plan};

/// All findings, in the order in which a user mends them.
pub(in crate::doctor) fn findings(interface: &Interface, plan: &Plan, version: Option<(u32, u32)>) -> Vec<Finding> {
    let mut findings = vec![link(interface)];
    findings.extend(kind(interface));
    findings.extend([program(interface), native(interface), copies(interface), queues(interface, plan)]);
    findings.push(mtu(interface, plan, version));
    findings.extend(offloads(interface));
    if let Some(other) = &interface.peer {
        findings.extend(peer(interface, other));
    }
    findings.push(addresses(interface));
    findings
}

fn link(interface: &Interface) -> Finding {
    let name = &interface.name;
    match (interface.is_up, interface.is_running) {
        (true, true) => Finding::good("link", "it is up and has a carrier"),
        (false, _) => Finding::problem("link", "it is down", format!("type `ip link set dev {name} up`")),
        (true, false) => Finding::problem(
            "link",
            "it is up, but has no carrier",
            match &interface.peer {
                Some(_) => "bring its other end up",
                None => "plug the cable in, and bring the device at the other end up",
            },
        ),
    }
}

fn kind(interface: &Interface) -> Option<Finding> {
    (!interface.is_ethernet).then(|| {
        let says = "it carries no Ethernet, which is what Millrace reads";
        Finding::problem("frames", says, "take an interface of Ethernet")
    })
}

fn program(interface: &Interface) -> Finding {
    let Some(Attached { program, place, holders }) = &interface.attached else {
        return Finding::good("program", "no XDP program has it");
    };
    let (place, off) = match place {
        1 => ("in the driver", "xdp"),
        2 => ("in the network stack", "xdpgeneric"),
        3 => ("in the card", "xdpoffload"),
        _ => ("in several places", "xdp"),
    };
    let take_off = format!("`ip link set dev {} {off} off`", interface.name);
    let told = |holder: &Holder| format!("{} (process {})", holder.name, holder.process);
    let linked = holders.iter().find(|holder| holder.has_link);
    let (held, advice) = match (linked, holders.is_empty()) {
        (Some(holder), _) => (format!(" for {}", told(holder)), format!("end that process: `kill {}`", holder.process)),
        (None, true) => {
            (String::new(), format!("type {take_off}; if that is refused, end the process that attached it"))
        }
        (None, false) => {
            let all: Vec<String> = holders.iter().map(told).collect();
            (format!(" for {}", all.join(", ")), format!("end it, or type {take_off}"))
        }
    };
    let says = format!("an XDP program, number {program}, runs on it {place}{held}, so a run is refused");
    Finding::problem("program", says, advice)
}

/// The sentence that says how to learn what the kernel doesn't tell.
fn try_it(interface: &Interface) -> String {
    format!("type `millrace doctor --interface {} --try`, which takes its packets for a moment", interface.name)
}

/// The driver's name, for a sentence.
fn driver(interface: &Interface) -> String {
    interface.driver.as_ref().map_or_else(|_| "its driver".to_owned(), |name| format!("its driver, {name},"))
}

fn native(interface: &Interface) -> Finding {
    let driver = driver(interface);
    let lacks = match (&interface.trial, &interface.abilities) {
        (Some(Trial::Native { .. }), _) => {
            return Finding::good("native XDP", format!("{driver} ran the XDP program when it was tried"));
        }
        (Some(Trial::Refused(error)), _) => {
            let says = format!("it was tried, and can't be opened: {error}");
            return Finding::problem("native XDP", says, "do what that sentence says, then try again");
        }
        (Some(Trial::Generic(reason)), _) => format!("when it was tried, {driver} ran no XDP program ({reason})"),
        (None, Ok(abilities)) if abilities.has(Abilities::RUNS | Abilities::REDIRECTS) => {
            return Finding::good("native XDP", format!("{driver} runs XDP programs"));
        }
        (None, Ok(_)) => format!("{driver} runs no XDP program now"),
        (None, Err(why)) => {
            let says = format!("whether {driver} runs XDP programs can't be seen: {why} (Linux 6.3 and later tell it)");
            return Finding::note("native XDP", says, try_it(interface));
        }
    };
    let advice = match &interface.peer {
        Some(_) => format!(
            "give its other end no more transmit queues than this end's receive queues, {}: `ethtool -L END tx {}`",
            interface.queues.receive, interface.queues.receive
        ),
        None => "take a card whose driver runs XDP programs if that is too slow".to_owned(),
    };
    let says = format!("{lacks}, so a run uses generic mode, which is three times slower");
    Finding::note("native XDP", says, advice)
}

fn copies(interface: &Interface) -> Finding {
    const ADVICE: &str = "take a card whose driver has zero-copy if copying costs too much";
    let driver = driver(interface);
    match (&interface.trial, &interface.abilities) {
        (Some(Trial::Native { copies: None }), _) => {
            Finding::good("zero-copy", format!("{driver} received without a copy when it was tried"))
        }
        (Some(Trial::Native { copies: Some(reason) }), _) => {
            Finding::note("zero-copy", format!("packets are copied: {driver} has no zero-copy ({reason})"), ADVICE)
        }
        (Some(Trial::Generic(_)), _) => {
            Finding::note("zero-copy", "packets are copied: generic mode always copies", ADVICE)
        }
        (_, Ok(abilities)) if abilities.has(Abilities::ZERO_COPY) => {
            Finding::good("zero-copy", format!("{driver} can receive without a copy"))
        }
        (_, Ok(_)) => Finding::note("zero-copy", format!("packets are copied: {driver} has no zero-copy"), ADVICE),
        (_, Err(why)) => {
            let says = format!("whether {driver} can receive without a copy can't be seen: {why}");
            Finding::note("zero-copy", says, try_it(interface))
        }
    }
}

fn queues(interface: &Interface, plan: &Plan) -> Finding {
    let (have, cores) = (interface.queues.receive, plan.cores);
    let advice = |want| interface.queues.advice(&interface.name, want, true);
    let plural = if have == 1 { "" } else { "s" };
    let can_have = interface.queues.most >= cores;
    match (have, cores) {
        (1, 1) => Finding::good("queues", "it has 1 queue, for 1 core"),
        (1, _) if !can_have => {
            Finding::good("queues", format!("it has 1 queue, which feeds all {cores} cores; Millrace steers"))
        }
        (1, _) => Finding::note(
            "queues",
            format!("it has 1 queue, which feeds all {cores} cores, so that Millrace steers and not the card"),
            format!("for a queue a core (--card-steers), {}", advice(cores)),
        ),
        (_, _) if have == cores => Finding::note(
            "queues",
            format!("it has {have} queues, one for each core, which is right for --card-steers alone"),
            format!("run with --card-steers, or {}", advice(1)),
        ),
        (_, 1) => Finding::problem(
            "queues",
            format!("it has {have} queue{plural}, but a run on 1 core takes 1: the packets of others would be lost"),
            format!("{}, or use --cores {have} --card-steers", advice(1)),
        ),
        (_, _) => Finding::problem(
            "queues",
            format!("it has {have} queue{plural}, but a run on {cores} cores takes 1, or {cores} with --card-steers"),
            match can_have {
                true => format!("{}, or, for --card-steers, {}", advice(1), advice(cores)),
                false => format!("{}, or use --cores {have} --card-steers", advice(1)),
            },
        ),
    }
}

fn mtu(interface: &Interface, plan: &Plan, version: Option<(u32, u32)>) -> Finding {
    let (mtu, fits, name) = (interface.mtu, plan.mtu_max, &interface.name);
    let smaller = format!("type `ip link set dev {name} mtu {fits}`");
    if mtu <= fits {
        return Finding::good("MTU", format!("packets of MTU {mtu} fit in a frame, which holds {fits}"));
    }
    let says = format!("packets of MTU {mtu} don't fit in a frame, which holds {fits}");
    if version.is_some_and(|version| version < (6, 6)) {
        let says = format!("{says}, and this kernel spreads none over several frames, so a run is refused");
        return Finding::problem("MTU", says, smaller);
    }
    match &interface.abilities {
        Ok(abilities) if abilities.has(Abilities::FRAGS) => {
            Finding::good("MTU", format!("{says}; they come in several frames (frags)"))
        }
        Ok(_) => Finding::note(
            "MTU",
            format!(
                "{says}, and {} spreads none over several frames, so native mode may be refused",
                driver(interface)
            ),
            smaller,
        ),
        Err(why) => Finding::note(
            "MTU",
            format!("{says}; whether the driver spreads them over several can't be seen: {why}"),
            smaller,
        ),
    }
}

fn offloads(interface: &Interface) -> Vec<Finding> {
    let name = &interface.name;
    let on = match &interface.offloads {
        Ok(on) => on,
        Err(why) => {
            let advice = format!("type `ethtool -k {name}`; large-receive-offload and rx-gro-hw should be off");
            return vec![Finding::note("offloads", format!("its offloads can't be seen: {why}"), advice)];
        }
    };
    let is_on = |offload: &str| on.iter().any(|name| name == offload);
    let mut findings = Vec::new();
    if is_on("rx-lro") {
        let says =
            "LRO is on: it joins TCP segments into packets that nobody sent, and many drivers refuse XDP with it";
        findings.push(Finding::problem("offloads", says, format!("type `ethtool -K {name} lro off`")));
    }
    if is_on("rx-gro-hw") {
        // Some drivers turn it off themselves.
        let says = "GRO in the card is on: it joins TCP segments, and some drivers refuse XDP with it";
        findings.push(Finding::note("offloads", says, format!("type `ethtool -K {name} rx-gro-hw off`")));
    }
    // On a veth, the sender's end decides.
    if interface.peer.is_none() && is_on("rx-vlan-hw-parse") {
        let says = "the card takes VLAN tags off, so the function sees packets without them";
        findings.push(Finding::note(
            "offloads",
            says,
            format!("if there are VLANs, type `ethtool -K {name} rxvlan off`"),
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good("offloads", "no offload of its own is in the way"));
    }
    findings
}

fn peer(interface: &Interface, peer: &Peer) -> Vec<Finding> {
    let (end, on) = match &peer.seen {
        Ok((end, on)) => (end, on),
        Err(why) => {
            let says = format!("its other end, number {}, can't be seen: {why}", peer.index);
            let advice = "type there `ethtool -K END tx off txvlan off`, or its TCP packets carry no checksums";
            return vec![Finding::note("other end", says, advice)];
        }
    };
    let within = peer.namespace.as_ref().map(|name| format!("ip netns exec {name} ")).unwrap_or_default();
    let mut findings = Vec::new();
    if on.iter().any(|name| CHECKSUMS.contains(&name.as_str())) {
        let says = format!(
            "transmit checksum offload of its other end, {end}, is on: TCP and UDP from there carry no checksums, so whoever gets \
             them through {} drops them",
            interface.name
        );
        findings.push(Finding::problem("other end", says, format!("type `{within}ethtool -K {end} tx off`")));
    }
    if on.iter().any(|name| name == "tx-vlan-hw-insert") {
        let says = format!("VLAN offload of its other end, {end}, is on: VLAN tags don't come with their packets");
        let advice = format!("if there are VLANs, type `{within}ethtool -K {end} txvlan off`");
        findings.push(Finding::note("other end", says, advice));
    }
    if findings.is_empty() {
        findings.push(Finding::good("other end", format!("no offload of its other end, {end}, is in the way")));
    }
    findings
}

/// Offloads by which a sender leaves checksums to the card.
const CHECKSUMS: [&str; 3] = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];

fn addresses(interface: &Interface) -> Finding {
    match (interface.is_promiscuous, &interface.peer) {
        (true, _) => Finding::good("addresses", "it takes packets to all Ethernet addresses (promiscuous)"),
        (false, Some(_)) => Finding::good("addresses", "a veth takes packets to all Ethernet addresses"),
        (false, None) => Finding::note(
            "addresses",
            "the card may leave out packets to other Ethernet addresses than its own",
            format!("if it stands between other hosts, type `ip link set dev {} promisc on`", interface.name),
        ),
    }
}

#[cfg(test)]
mod tests;
