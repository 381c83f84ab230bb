use super::*;
use crate::doctor::State;
use crate::facts::Queues;

const ALL: Abilities = Abilities(Abilities::RUNS | Abilities::REDIRECTS | Abilities::ZERO_COPY | Abilities::FRAGS);
const NEW: Option<(u32, u32)> = Some((6, 18));

/// An interface without a fault.
fn card() -> Interface {
    Interface {
        name: "eth0".into(),
        is_up: true,
        is_running: true,
        is_ethernet: true,
        driver: Ok("ice".into()),
        mtu: 1500,
        queues: Queues { receive: 1, most: 8, combined: true },
        attached: None,
        abilities: Ok(ALL),
        offloads: Ok(vec!["rx-checksum".into()]),
        peer: None,
        is_promiscuous: true,
        trial: None,
    }
}

/// One end of a veth pair without a fault.
fn veth() -> Interface {
    Interface {
        driver: Ok("veth".into()),
        peer: Some(Peer { index: 7, namespace: None, seen: Ok(("h0".into(), vec!["rx-checksum".into()])) }),
        is_promiscuous: false,
        ..card()
    }
}

fn plan(cores: u32) -> Plan {
    Plan { cores, interfaces: 1, locked: 8 << 20, mtu_max: 1770 }
}

/// Holds a finding against its state and words that it says and advises.
fn expect(finding: &Finding, state: State, says: &str, advises: &str) {
    let advice = finding.advice.as_deref().unwrap_or_default();
    assert!(finding.state == state && finding.says.contains(says) && advice.contains(advises), "{finding:?}");
}

#[test]
fn interfaces_without_a_fault_are_good() {
    for interface in [card(), veth()] {
        let findings = findings(&interface, &plan(1), NEW);
        assert!(findings.iter().all(|finding| finding.state == State::Good), "{findings:?}");
        assert_eq!(findings.len(), 8 + usize::from(interface.peer.is_some()));
    }
}

#[test]
fn a_link_that_passes_nothing_is_a_problem() {
    let down = Interface { is_up: false, is_running: false, ..card() };
    expect(&link(&down), State::Problem, "it is down", "ip link set dev eth0 up");
    expect(&link(&Interface { is_running: false, ..card() }), State::Problem, "no carrier", "cable");
    expect(&link(&Interface { is_running: false, ..veth() }), State::Problem, "no carrier", "other end up");
    let tunnel = kind(&Interface { is_ethernet: false, ..card() }).expect("it is no Ethernet");
    assert_eq!(tunnel.state, State::Problem);
}

#[test]
fn a_foreign_program_is_named_with_its_process() {
    let with =
        |place, holders| program(&Interface { attached: Some(Attached { program: 41, place, holders }), ..card() });
    let holder = |has_link| Holder { process: 123, name: "xdpdump".into(), has_link };
    let says = "number 41, runs on it in the driver for xdpdump (process 123)";
    expect(&with(1, vec![holder(false), holder(true)]), State::Problem, says, "`kill 123`");
    expect(&with(1, vec![holder(false)]), State::Problem, says, "end it, or type `ip link set dev eth0 xdp off`");
    expect(
        &with(2, Vec::new()),
        State::Problem,
        "in the network stack, so",
        "eth0 xdpgeneric off`; if that is refused",
    );
}

#[test]
fn native_mode_is_known_from_the_kernel_or_by_trying() {
    let told = |bits| native(&Interface { abilities: Ok(Abilities(bits)), ..card() });
    expect(&told(Abilities::RUNS | Abilities::REDIRECTS), State::Good, "ice, runs XDP programs", "");
    expect(&told(Abilities::RUNS), State::Note, "three times slower", "take a card");
    let end = Interface { abilities: Ok(Abilities(0)), ..veth() };
    expect(&native(&end), State::Note, "runs no XDP program", "`ethtool -L END tx 1`");
    let old = Interface { abilities: Err("it is not shown here".into()), ..card() };
    expect(&native(&old), State::Note, "can't be seen: it is not shown here", "doctor --interface eth0 --try`");
    let tried = |trial| Interface { trial: Some(trial), ..old.clone() };
    expect(&native(&tried(Trial::Native { copies: None })), State::Good, "when it was tried", "");
    expect(&native(&tried(Trial::Generic("not supported".into()))), State::Note, "(not supported)", "take a card");
    let refused = native(&tried(Trial::Refused("queue 0 of eth0 is held".into())));
    expect(&refused, State::Problem, "can't be opened: queue 0 of eth0 is held", "try again");
}

#[test]
fn copies_are_known_from_the_kernel_or_by_trying() {
    let told = |bits| copies(&Interface { abilities: Ok(Abilities(bits)), ..card() });
    expect(&told(ALL.0), State::Good, "without a copy", "");
    expect(&told(Abilities::RUNS | Abilities::REDIRECTS), State::Note, "packets are copied", "zero-copy");
    let old = Interface { abilities: Err("it is not shown here".into()), ..card() };
    expect(&copies(&old), State::Note, "can't be seen", "--try");
    // What was tried counts more than what the driver claims.
    let tried = |trial| copies(&Interface { trial: Some(trial), ..card() });
    expect(&tried(Trial::Native { copies: Some("busy".into()) }), State::Note, "no zero-copy (busy)", "card");
    expect(&tried(Trial::Native { copies: None }), State::Good, "when it was tried", "");
    expect(&tried(Trial::Generic(String::new())), State::Note, "generic mode always copies", "card");
}

#[test]
fn queues_are_held_against_cores() {
    let with = |receive, cores| {
        let queues = Queues { receive, most: 8, combined: true };
        super::queues(&Interface { queues, ..card() }, &plan(cores))
    };
    expect(&with(1, 1), State::Good, "1 queue, for 1 core", "");
    expect(&with(1, 2), State::Note, "feeds all 2 cores", "type `ethtool -L eth0 combined 2`");
    expect(&with(1, 9), State::Good, "feeds all 9 cores", "");
    expect(&with(4, 4), State::Note, "--card-steers alone", "--card-steers, or type `ethtool -L eth0 combined 1`");
    expect(&with(4, 1), State::Problem, "takes 1", "combined 1`, or use --cores 4 --card-steers");
    expect(
        &with(4, 2),
        State::Problem,
        "4 queues",
        "combined 1`, or, for --card-steers, type `ethtool -L eth0 combined 2`",
    );
    expect(&with(4, 9), State::Problem, "or 9 with", "combined 1`, or use --cores 4 --card-steers");
}

#[test]
fn an_mtu_over_a_frame_needs_frags() {
    let jumbo = |abilities, version| mtu(&Interface { mtu: 9000, abilities, ..card() }, &plan(1), version);
    let smaller = "`ip link set dev eth0 mtu 1770`";
    expect(&jumbo(Ok(ALL), NEW), State::Good, "several frames (frags)", "");
    expect(&jumbo(Ok(ALL), Some((6, 1))), State::Problem, "a run is refused", smaller);
    expect(&jumbo(Ok(Abilities(3)), NEW), State::Note, "native mode may be refused", smaller);
    expect(&jumbo(Err("no".into()), None), State::Note, "can't be seen: no", smaller);
    let fits = mtu(&Interface { mtu: 1770, ..card() }, &plan(1), Some((5, 15)));
    expect(&fits, State::Good, "packets of MTU 1770 fit", "");
}

#[test]
fn offloads_in_the_way_are_told_with_their_commands() {
    let with = |names: &[&str]| {
        let on = names.iter().map(|name| (*name).to_owned()).collect();
        offloads(&Interface { offloads: Ok(on), ..card() })
    };
    let found = with(&["rx-lro", "rx-gro-hw", "rx-vlan-hw-parse", "rx-gro"]);
    assert_eq!(found.len(), 3);
    expect(&found[0], State::Problem, "LRO is on", "`ethtool -K eth0 lro off`");
    expect(&found[1], State::Note, "GRO in the card is on", "`ethtool -K eth0 rx-gro-hw off`");
    expect(&found[2], State::Note, "VLAN", "`ethtool -K eth0 rxvlan off`");
    assert_eq!(with(&["rx-gro"])[0].state, State::Good);
    let unseen = offloads(&Interface { offloads: Err("no".into()), ..card() });
    expect(&unseen[0], State::Note, "can't be seen: no", "ethtool -k eth0");
}

#[test]
fn the_other_end_of_a_veth_must_write_checksums() {
    let with = |namespace: Option<&str>, seen| {
        let other = Peer { index: 7, namespace: namespace.map(str::to_owned), seen };
        peer(&veth(), &other)
    };
    let on = |names: &[&str]| Ok(("h0".to_owned(), names.iter().map(|name| (*name).to_owned()).collect()));
    let found = with(None, on(&["tx-checksum-ip-generic", "tx-vlan-hw-insert"]));
    expect(&found[0], State::Problem, "h0, is on: TCP and UDP from there carry no checksums", "`ethtool -K h0 tx off`");
    expect(&found[1], State::Note, "VLAN tags", "`ethtool -K h0 txvlan off`");
    let found = with(Some("left"), on(&["tx-checksum-ipv4"]));
    expect(&found[0], State::Problem, "h0", "`ip netns exec left ethtool -K h0 tx off`");
    let found = with(None, Err("it is in another network namespace".to_owned()));
    expect(&found[0], State::Note, "number 7, can't be seen: it is in another", "ethtool -K END tx off txvlan off");
    assert_eq!(with(None, on(&["tx-scatter-gather"]))[0].state, State::Good);
}

#[test]
fn a_card_that_filters_addresses_is_told() {
    let card = Interface { is_promiscuous: false, ..card() };
    expect(&addresses(&card), State::Note, "may leave out", "`ip link set dev eth0 promisc on`");
}
