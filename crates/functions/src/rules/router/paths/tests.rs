use alloc::vec;

use iptables::{Options, parse};
use proptest::prelude::*;

use super::super::ReverseTest;
use super::*;

const ROUTER: &str = r#"
[[interface]]
name = "lan0"
port = 4
addresses = ["192.0.2.1/24", "192.0.2.9/24", "10.0.0.1/31", "2001:db8:1::1/64", "fe80::1/64"]
mtu = 9000
[[interface]]
name = "wan"
port = 1
addresses = ["198.51.100.7/28", "203.0.113.5/32", "fe80::1/64", "2001:db8:2::1/64"]
mac = "02:00:00:00:01:01"
[[route]]
to = "default"
via = "198.51.100.1"
interface = "wan"
[[route]]
to = "10.0.0.0/8"
via = "192.0.2.254"
interface = "lan0"
source = "192.0.2.9"
[[route]]
to = "10.9.0.0/16"
kind = "blackhole"
[[route]]
to = "2001:db8:3::/48"
via = "2001:db8:2::9"
interface = "wan"
[[route]]
to = "2001:db8:3:4::/64"
kind = "prohibit"
[[neighbour]]
address = "192.0.2.254"
interface = "lan0"
mac = "02:00:00:00:09:09"
"#;

const LAN: InterfaceNumber = 0;
const WAN: InterfaceNumber = 1;

fn paths() -> Paths {
    Paths::new(&toml::from_str(ROUTER).expect("the text is well-formed")).expect("the router is right")
}

fn at(text: &str) -> (bool, u128) {
    let address: IpAddr = text.parse().expect("it is an address");
    (address.is_ipv6(), number(address))
}

#[test]
fn interfaces_have_numbers_ports_and_names() {
    let paths = paths();
    assert_eq!((paths.interface_of_port(4), paths.interface_of_port(1)), (LAN, WAN));
    assert_eq!((paths.interface_of_port(0), paths.interface_of_port(5)), (NO_INTERFACE, NO_INTERFACE));
    assert_eq!((paths.port_of(WAN), paths.port_of(2), paths.port_of(NO_INTERFACE)), (Some(1), None, None));
    assert_eq!((paths.name(LAN), paths.name(NO_INTERFACE)), ("lan0", ""));
    assert_eq!((paths.number_of("wan"), paths.number_of("wan0")), (Some(WAN), None));
    assert_eq!((paths.mtu(LAN), paths.mtu(WAN), paths.mtu(NO_INTERFACE)), (9_000, 1_500, u16::MAX));
    assert!(!paths.is_empty() && Paths::new(&Router::default()).expect("nothing is right too").is_empty());
}

#[test]
fn an_interface_of_a_rule_stands_for_a_set_of_numbers() {
    let paths = paths();
    let none = 1 << NO_INTERFACE;
    for (text, mask) in [
        ("-i wan", 0b10),
        ("-i wa+", 0b10),
        ("! -i +", 0),
        ("! -i lan0", 0b10 | none),
        ("-i lan", 0),
        ("! -i lan+", 0b10 | none),
    ] {
        let text = format!("iptables -A FORWARD {text}");
        let parsed = parse(&text, &Options::default()).expect("the rule is well-formed");
        let rule = &parsed.rules.tables[0].chain("FORWARD").expect("the chain has a rule").rules[0];
        let condition = rule.input.as_ref().expect("it has an interface");
        assert_eq!(paths.mask_of(&condition.value.value, condition.negated), mask, "{text}");
    }
}

#[test]
fn each_destination_has_its_route() {
    let paths = paths();
    for (dst, route) in [
        ("192.0.2.1", Route::Local),
        ("192.0.2.77", Route::Interface(LAN)),
        ("192.0.2.255", Route::Broadcast),
        ("192.0.2.0", Route::Interface(LAN)),
        ("198.51.100.15", Route::Broadcast),
        ("198.51.100.16", Route::Interface(WAN)),
        ("203.0.113.5", Route::Local),
        ("203.0.113.4", Route::Interface(WAN)),
        ("10.0.0.0", Route::Interface(LAN)),
        ("10.1.2.3", Route::Interface(LAN)),
        ("10.9.2.3", Route::Blackhole),
        ("127.1.2.3", Route::Local),
        ("127.255.255.255", Route::Broadcast),
        ("255.255.255.255", Route::Broadcast),
        ("0.0.0.0", Route::Blackhole),
        ("224.0.0.5", Route::Multicast),
        ("2001:db8:1::1", Route::Local),
        ("2001:db8:1::", Route::Local),
        ("2001:db8:1::2", Route::Interface(LAN)),
        ("2001:db8:3:3::2", Route::Interface(WAN)),
        ("2001:db8:3:4::2", Route::Prohibit),
        ("2001:db8:4::2", Route::None),
        ("ff02::1", Route::Multicast),
        ("::1", Route::Local),
    ] {
        let (is_v6, number) = at(dst);
        assert_eq!(paths.route(is_v6, number), route, "{dst}");
    }
    assert_eq!(paths.next_hop(false, at("10.1.2.3").1), Some(at("192.0.2.254").1));
}

/// Observed with Linux 6.18: addresses of blackhole, unreachable and prohibit routes are UNICAST for iptables, and both UNICAST and
/// UNREACHABLE for ip6tables.
#[test]
fn each_address_has_its_kind() {
    let paths = paths();
    for (text, kind, on_lan) in [
        ("192.0.2.1", AddressKind::Local, AddressKind::Local),
        ("203.0.113.5", AddressKind::Local, AddressKind::Unicast),
        ("127.0.0.1", AddressKind::Local, AddressKind::Unicast),
        ("192.0.2.255", AddressKind::Broadcast, AddressKind::Broadcast),
        ("198.51.100.15", AddressKind::Broadcast, AddressKind::Unicast),
        ("255.255.255.255", AddressKind::Broadcast, AddressKind::Broadcast),
        ("0.0.0.0", AddressKind::Broadcast, AddressKind::Broadcast),
        ("239.1.2.3", AddressKind::Multicast, AddressKind::Multicast),
        ("192.0.2.0", AddressKind::Unicast, AddressKind::Unicast),
        ("10.9.0.1", AddressKind::Unicast, AddressKind::Unicast),
        ("::", AddressKind::Unspecified, AddressKind::Unspecified),
        ("2001:db8:2::1", AddressKind::Local, AddressKind::Unreachable),
        ("2001:db8:1::", AddressKind::Anycast, AddressKind::Anycast),
        ("2001:db8:1::5", AddressKind::Unicast, AddressKind::Unicast),
        ("2001:db8:3:4::1", AddressKind::Unreachable, AddressKind::Unreachable),
        ("2001:db8:9::1", AddressKind::Unreachable, AddressKind::Unreachable),
        ("ff02::1", AddressKind::Multicast, AddressKind::Multicast),
    ] {
        let (is_v6, number) = at(text);
        assert_eq!(paths.kind(is_v6, number), kind, "{text}");
        assert_eq!(paths.kind_on(LAN, is_v6, number), on_lan, "{text} on lan0");
        assert_eq!(paths.kind_on(NO_INTERFACE, is_v6, number), kind, "{text} on none");
    }
}

#[test]
fn types_of_addrtype_differ_by_family() {
    let paths = paths();
    let (unicast, local, multicast, unreachable) = (1 << 1, 1 << 2, 1 << 5, 1 << 7);
    let is = |text: &str, types: u16| {
        let (is_v6, number) = at(text);
        paths.is_of_types(is_v6, number, types, NO_INTERFACE)
    };
    assert!(is("192.0.2.1", local | unicast) && is("192.0.2.5", local | unicast) && !is("192.0.2.1", unicast));
    assert!(is("2001:db8:1::1", local) && is("2001:db8:1::1", unicast) && is("2001:db8:1::1", local | unicast));
    assert!(!is("2001:db8:1::5", local | unicast) && is("2001:db8:9::1", unreachable | local));
    assert!(is("ff02::1", multicast) && !is("ff02::1", unicast) && !is("::ffff:192.0.2.1", unicast));
    assert!(is("::", 1) && !is("::1", 1) && is("::1", local));
    assert!(!paths.is_of_types(true, at("2001:db8:2::1").1, local, LAN));
}

#[test]
fn the_way_back_leads_out_of_the_input_interface() {
    let paths = paths();
    let (strict, loose) = (ReverseTest::default(), ReverseTest { is_loose: true, ..ReverseTest::default() });
    let local = ReverseTest { accepts_local: true, ..ReverseTest::default() };
    for (src, dst, input, test, passes) in [
        ("192.0.2.5", "8.8.8.8", LAN, strict, true),
        ("192.0.2.5", "8.8.8.8", WAN, strict, false),
        ("192.0.2.5", "8.8.8.8", WAN, loose, true),
        ("8.8.8.8", "192.0.2.5", WAN, strict, true),
        ("10.9.1.1", "192.0.2.5", LAN, loose, false),
        ("192.0.2.255", "192.0.2.5", LAN, loose, false),
        ("192.0.2.1", "192.0.2.5", LAN, loose, false),
        ("192.0.2.1", "192.0.2.5", LAN, local, true),
        ("192.0.2.1", "192.0.2.5", WAN, local, false),
        ("0.0.0.0", "255.255.255.255", LAN, strict, true),
        ("0.0.0.0", "224.0.0.22", LAN, strict, true),
        ("0.0.0.0", "192.0.2.1", LAN, strict, false),
        ("2001:db8:1::5", "2001:db8:2::5", LAN, strict, true),
        ("2001:db8:1::5", "2001:db8:2::5", WAN, strict, false),
        ("2001:db8:1::5", "2001:db8:2::5", WAN, loose, true),
        ("2001:db8:3:4::5", "2001:db8:2::5", WAN, loose, false),
        ("2001:db8:9::5", "2001:db8:2::5", WAN, loose, false),
        ("fe80::5", "ff02::1", WAN, strict, true),
        ("fe80::5", "ff02::1", LAN, strict, true),
        ("2001:db8:1::1", "2001:db8:2::5", WAN, local, true),
        ("2001:db8:1::1", "2001:db8:2::5", WAN, strict, false),
        ("::", "ff02::1", LAN, strict, true),
    ] {
        let ((is_v6, src_number), (_, dst_number)) = (at(src), at(dst));
        let outcome = paths.passes_reverse(is_v6, src_number, dst_number, input, test);
        assert_eq!(outcome, passes, "{src} to {dst} by {input} {test:?}");
    }
}

#[test]
fn the_router_sends_from_the_address_that_fits() {
    let paths = paths();
    let toward =
        |text: &str| paths.source_toward(at(text).0, at(text).1).map(|number| address(at(text).0, number).to_string());
    assert_eq!(toward("8.8.8.8").as_deref(), Some("198.51.100.7"));
    assert_eq!(toward("192.0.2.77").as_deref(), Some("192.0.2.1"));
    assert_eq!(toward("10.1.1.1").as_deref(), Some("192.0.2.9"), "the route's source");
    assert_eq!(toward("10.0.0.0").as_deref(), Some("10.0.0.1"), "the one of the network");
    assert_eq!(toward("10.9.1.1"), None);
    assert_eq!(toward("2001:db8:3::5").as_deref(), Some("2001:db8:2::1"));
    assert_eq!(paths.source_on(LAN, false, at("10.1.1.1").1), Some(at("192.0.2.1").1), "MASQUERADE does not read it");
    assert_eq!(paths.source_on(WAN, true, at("fe80::9").1), Some(at("fe80::1").1));
    assert_eq!(paths.first_address(LAN, false), Some(at("192.0.2.1").1));
    assert_eq!(paths.first_address(WAN, true), Some(at("2001:db8:2::1").1));
    assert_eq!(paths.first_address(NO_INTERFACE, true), None);
}

#[test]
fn errors_name_what_and_where() {
    let interface = |name: &str, port: u16, addresses: &str| {
        format!("[[interface]]\nname = \"{name}\"\nport = {port}\naddresses = [{addresses}]\n")
    };
    let one = interface("eth0", 0, r#""192.0.2.1/24""#);
    for (text, error) in [
        (format!("{one}{}", interface("eth0", 1, "")), "there are two interfaces `eth0`"),
        (format!("{one}{}", interface("eth1", 0, "")), "the interfaces `eth0` and `eth1` both have port 0"),
        (
            format!("{one}{}", interface("eth1", 1, r#""192.0.2.1/32""#)),
            "interface `eth1`: `eth0` has the address 192.0.2.1 already",
        ),
        (
            interface("a", 0, r#""192.0.2.255/24""#),
            "interface `a`: 192.0.2.255/24 is the broadcast address of its network",
        ),
        (interface("a", 0, r#""224.0.0.1/24""#), "interface `a`: 224.0.0.1 is not an address of a host"),
        (interface("a/b", 0, ""), "interface 1: `a/b` is not a name of 1 to 15 letters"),
        (
            format!("{one}[[route]]\nto = \"10.0.0.0/8\"\ninterface = \"eth1\""),
            "route 1 (to 10.0.0.0/8): there is no interface `eth1`",
        ),
        (format!("{one}[[route]]\nto = \"default\""), "route 1 (to default): it has no `interface` and no `kind`"),
        (
            format!("{one}[[route]]\nto = \"default\"\nvia = \"192.0.2.9\"\nkind = \"prohibit\""),
            "route 1 (to default): a route to nowhere can't have `via`",
        ),
        (
            format!("{one}[[route]]\nto = \"::/0\"\nvia = \"192.0.2.9\"\ninterface = \"eth0\""),
            "route 1 (to ::/0): 192.0.2.9 is of the other family",
        ),
        (
            format!("{one}[[route]]\nto = \"default\"\ninterface = \"eth0\"\nsource = \"192.0.2.2\""),
            "route 1 (to default): no interface has the source 192.0.2.2",
        ),
        (
            format!(
                "{one}[[route]]\nto = \"default\"\ninterface = \"eth0\"\n[[route]]\nto = \"0.0.0.0/0\"\nkind = \"prohibit\""
            ),
            "route 2 (to 0.0.0.0/0): route 1 leads there too",
        ),
        (
            format!("{one}[[route]]\nto = \"192.0.2.0/24\"\nkind = \"prohibit\""),
            "route 1 (to 192.0.2.0/24): the network is that of `eth0` itself",
        ),
        (
            format!("{one}[[neighbour]]\naddress = \"192.0.2.9\"\ninterface = \"x\"\nmac = \"02:00:00:00:00:01\""),
            "neighbour 1 (192.0.2.9): there is no interface `x`",
        ),
        (
            (0..64).map(|nth| interface(&format!("e{nth}"), nth, "")).collect(),
            "there are 64 interfaces; at most 63 fit",
        ),
    ] {
        let router: Router = toml::from_str(&text).expect("the text is well-formed");
        assert_eq!(Paths::new(&router).map(|_| ()), Err(error.to_string()), "{text}");
    }
    for (text, part) in [
        ("[[route]]\nto = \"10.0.0.1/8\"\ninterface = \"a\"", "write `10.0.0.0/8`"),
        ("[[route]]\nto = \"10.0.0.0/33\"\ninterface = \"a\"", "is not an address with the length of a prefix"),
        (
            "[[neighbour]]\naddress = \"10.0.0.1\"\ninterface = \"a\"\nmac = \"2:0:0:0:0:1\"",
            "is not an Ethernet address",
        ),
        ("[[interface]]\nname = \"a\"", "missing field `port`"),
    ] {
        let error = toml::from_str::<Router>(text).expect_err("the text is wrong").to_string();
        assert!(error.contains(part), "{error}");
    }
}

proptest! {
    #[test]
    fn routes_are_those_of_a_scan(
        routes in proptest::collection::btree_map((0..=24_u8, any::<u8>()), 0..3_u8, 0..30),
        seeds in proptest::collection::vec(any::<u32>(), 40),
    ) {
        let mut text = vec![interface_text("a", 0, "10.1.0.1/16"), interface_text("b", 1, "172.16.0.1/12")];
        let mut list = vec![
            (Prefixed::read("10.1.0.0/16").unwrap(), Route::Interface(0)),
            (Prefixed::read("172.16.0.0/12").unwrap(), Route::Interface(1)),
        ];
        for ((len, seed), to) in routes {
            let bits = u32::from(seed).wrapping_mul(0x0101_0101) & !(super::super::ones(32 - u32::from(len)) as u32);
            let network = Prefixed { address: address(false, bits.into()), len };
            if list.iter().any(|(other, _)| *other == network) {
                continue;
            }
            let (tail, route) = match to {
                0 => ("interface = \"a\"", Route::Interface(0)),
                1 => ("interface = \"b\"", Route::Interface(1)),
                _ => ("kind = \"unreachable\"", Route::Unreachable),
            };
            text.push(format!("[[route]]\nto = \"{network}\"\n{tail}\n"));
            list.push((network, route));
        }
        let paths = Paths::new(&toml::from_str(&text.join("")).unwrap()).unwrap();
        let edges = list.iter().flat_map(|(network, _)| [network.range().0, network.range().1]);
        let of_bytes = seeds.iter().flat_map(|seed| [*seed, (*seed & 0xff) * 0x0101_0101]).map(u128::from);
        for dst in edges.chain(of_bytes) {
            let is_special = paths.kind(false, dst) != AddressKind::Unicast;
            if is_special {
                continue;
            }
            let around = list.iter().filter(|(network, _)| (network.range().0..=network.range().1).contains(&dst));
            let best = around.max_by_key(|(network, _)| network.len).map_or(Route::None, |(_, route)| *route);
            prop_assert_eq!(paths.route(false, dst), best);
        }
    }
}

fn interface_text(name: &str, port: u16, address: &str) -> String {
    format!("[[interface]]\nname = \"{name}\"\nport = {port}\naddresses = [\"{address}\"]\n")
}
