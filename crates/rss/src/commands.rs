//! Commands that configure a card as a solution says.

use crate::card::{Driver, Symmetry};
use crate::field::{Field, Fields, PacketType};
use crate::key::Key;
use crate::plan::Member;
use crate::solve::Solution;

/// The commands for this number of queues, port by port: `ethtool` commands for Linux, with port names as interfaces, or `testpmd`
/// commands for DPDK, with port numbers. Lines that begin with `#` are comments.
#[must_use]
pub fn commands(solution: &Solution, queues: usize) -> Vec<String> {
    let ports = 0..solution.ports.len();
    match solution.driver {
        Driver::Linux => ports.flat_map(|port| linux(solution, port, queues)).collect(),
        Driver::Dpdk => ports.flat_map(|port| dpdk(solution, port, queues)).collect(),
    }
}

fn linux(solution: &Solution, port: usize, queues: usize) -> Vec<String> {
    let (card, name) = (solution.card, &solution.ports[port]);
    let mut out = Vec::new();
    if let Symmetry::Usual(transform) = card.symmetry {
        out.push(format!("# a kernel that doesn't support the next command hashes with {transform}, whatever the key"));
        out.push(format!("ethtool -X {name} xfrm none"));
    }
    let key = if card.key_reversed_on_linux {
        out.push("# the key's bytes from last to first: the card counts them that way".to_owned());
        Key::new(solution.keys[port].bytes().iter().rev().copied().collect::<Vec<u8>>())
    } else {
        solution.keys[port].clone()
    };
    out.push(format!("ethtool -X {name} hfunc toeplitz hkey {key} equal {queues}"));
    for Member { kind, selection, .. } in of_port(solution, port) {
        // What there is no choice of needs no command, nor has ethtool a name for the rest.
        if named_by_ethtool(*kind) && card.selections(Driver::Linux, *kind).len() > 1 {
            out.push(format!("ethtool -N {name} rx-flow-hash {kind} {}", letters(*selection)));
        }
    }
    out
}

/// The letters by which `ethtool` names fields.
fn letters(fields: Fields) -> String {
    let letter = |field| match field {
        Field::Src => "s",
        Field::Dst => "d",
        Field::SrcPort => "f",
        Field::DstPort => "n",
        Field::DstMac => "m",
        // No driver can be told of these.
        Field::SrcMac | Field::Tag => "",
    };
    fields.iter().map(letter).collect()
}

fn named_by_ethtool(kind: PacketType) -> bool {
    use PacketType::{Ether, Frag4, Frag6, Other4, Other6, Sctp4, Sctp6, Tcp4, Tcp6, Udp4, Udp6};
    match kind {
        Tcp4 | Udp4 | Sctp4 | Tcp6 | Udp6 | Sctp6 => true,
        Other4 | Frag4 | Other6 | Frag6 | Ether => false,
    }
}

fn dpdk(solution: &Solution, port: usize, queues: usize) -> Vec<String> {
    let key: String = solution.keys[port].bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut out = vec![format!("# {}, assumed to be port {port}", solution.ports[port])];
    if !solution.card.flow_rules {
        // A type that is left out is hashed by its addresses.
        let named = |member: &Member| {
            if member.selection.both(Fields::PORTS).is_empty() { host_type(member.kind) } else { rss_type(member.kind) }
        };
        let mut types: Vec<&str> = of_port(solution, port).map(named).collect();
        types.extend(of_port(solution, port).flat_map(|member| parts(member.selection)));
        types.sort_unstable();
        types.dedup();
        out.push(format!("port config {port} rss-hash-key {} {key}", types.first().copied().unwrap_or("ipv4")));
        out.push(format!("# rss_hf: {}", types.join(" ")));
        return out;
    }
    let list: Vec<String> = (0..queues).map(|queue| queue.to_string()).collect();
    for Member { kind, selection, .. } in of_port(solution, port) {
        let mut types = types_of(solution, *kind, *selection);
        types.extend(parts(*selection).map(ToOwned::to_owned));
        let bytes = solution.keys[port].bytes().len();
        let rule = format!(
            "flow create {port} ingress pattern {} end actions rss types {} end key {key} key_len {bytes} queues {} end / end",
            pattern(*kind),
            types.join(" "),
            list.join(" ")
        );
        // Types that a card doesn't tell apart have one rule.
        if !out.contains(&rule) {
            out.push(rule);
        }
    }
    out
}

/// What DPDK calls the parts of a pair of fields that are hashed alone.
fn parts(selection: Fields) -> impl Iterator<Item = &'static str> {
    let words = [
        (Fields::HOSTS, Field::Src, "l3-src-only"),
        (Fields::HOSTS, Field::Dst, "l3-dst-only"),
        (Fields::PORTS, Field::SrcPort, "l4-src-only"),
        (Fields::PORTS, Field::DstPort, "l4-dst-only"),
        (Fields::MACS, Field::SrcMac, "l2-src-only"),
        (Fields::MACS, Field::DstMac, "l2-dst-only"),
    ];
    words.into_iter().filter_map(move |(both, one, word)| (selection.both(both) == Fields::of(&[one])).then_some(word))
}

/// The types that stand for this selection. mlx5 takes a part of the addresses with the network layer's type alone, the
/// others with the transport's; where both addresses and no port count, all take the network layer's.
fn types_of(solution: &Solution, kind: PacketType, selection: Fields) -> Vec<String> {
    let by_layer = solution.card.name == "mlx5";
    let (hosts, ports) = (selection.both(Fields::HOSTS), selection.both(Fields::PORTS));
    let network = !hosts.is_empty() && by_layer || hosts == Fields::HOSTS && ports.is_empty();
    let transport = !ports.is_empty() || !network;
    let macs = !selection.both(Fields::MACS).is_empty();
    let types = [
        macs.then_some("eth"),
        (network && !macs).then_some(host_type(kind)),
        (transport && !macs).then_some(rss_type(kind)),
    ];
    let mut types: Vec<String> = types.into_iter().flatten().map(ToOwned::to_owned).collect();
    types.dedup();
    types
}

fn of_port(solution: &Solution, port: usize) -> impl Iterator<Item = &Member> {
    solution.members.iter().filter(move |member| member.port == port)
}

/// What DPDK calls a type of packets.
const fn rss_type(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Tcp4 => "ipv4-tcp",
        PacketType::Udp4 => "ipv4-udp",
        PacketType::Sctp4 => "ipv4-sctp",
        PacketType::Other4 => "ipv4",
        PacketType::Frag4 => "ipv4-frag",
        PacketType::Tcp6 => "ipv6-tcp",
        PacketType::Udp6 => "ipv6-udp",
        PacketType::Sctp6 => "ipv6-sctp",
        PacketType::Other6 => "ipv6",
        PacketType::Frag6 => "ipv6-frag",
        PacketType::Ether => "eth",
    }
}

const fn host_type(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Tcp4 | PacketType::Udp4 | PacketType::Sctp4 | PacketType::Other4 | PacketType::Frag4 => "ipv4",
        PacketType::Tcp6 | PacketType::Udp6 | PacketType::Sctp6 | PacketType::Other6 | PacketType::Frag6 => "ipv6",
        PacketType::Ether => "eth",
    }
}

const fn pattern(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Tcp4 => "eth / ipv4 / tcp /",
        PacketType::Udp4 => "eth / ipv4 / udp /",
        PacketType::Sctp4 => "eth / ipv4 / sctp /",
        PacketType::Other4 | PacketType::Frag4 => "eth / ipv4 /",
        PacketType::Tcp6 => "eth / ipv6 / tcp /",
        PacketType::Udp6 => "eth / ipv6 / udp /",
        PacketType::Sctp6 => "eth / ipv6 / sctp /",
        PacketType::Other6 => "eth / ipv6 /",
        PacketType::Frag6 => "eth / ipv6 / ipv6_frag_ext /",
        PacketType::Ether => "eth /",
    }
}
