use alloc::string::ToString;

use proptest::prelude::*;

use super::super::router::Router;
use super::super::test::samples::{icmp, later, tcp, udp};
use super::*;

fn paths() -> Paths {
    let text = "[[interface]]\nname = \"lan0\"\nport = 0\n[[interface]]\nname = \"wan\"\nport = 1\n";
    let router: Router = toml::from_str(text).expect("the text is well-formed");
    Paths::new(&router).expect("the router is right")
}

fn contents(text: &str) -> SetContents {
    let sets = iptables::Sets::parse(text, "sets").expect("the sets are well-formed");
    SetContents::new(&sets, &paths(), &BTreeSet::new()).expect("the sets fit")
}

fn sides(text: &str) -> SideBits {
    SideBits::of(&Sides(text.split(',').map(|side| side == "src").collect()))
}

/// True if the only set, or the last one, has the packet.
fn has(text: &str, given: &str, view: View) -> bool {
    let contents = contents(text);
    let last = contents.sets.len() as SetNumber - 1;
    contents.contains(last, sides(given), false, &view, None)
}

#[test]
fn single_addresses_ranges_and_netmasks() {
    let text = "create s hash:ip\nadd s 10.0.0.1\nadd s 10.1.0.0/16\nadd s 10.2.0.5-10.2.0.9\n".to_string();
    let text = text.replace("hash:ip", "hash:ip maxelem 100000");
    for (address, found) in [
        ("10.0.0.1", true),
        ("10.0.0.2", false),
        ("10.1.255.255", true),
        ("10.2.0.4", false),
        ("10.2.0.5", true),
        ("10.2.0.9", true),
        ("10.2.0.10", false),
    ] {
        assert_eq!(has(&text, "src", tcp(address, "1.1.1.1")), found, "{address}");
        assert_eq!(has(&text, "dst", tcp("1.1.1.1", address)), found, "{address}");
    }
    let masked = "create s hash:ip netmask 24\nadd s 10.0.7.9\n";
    assert!(has(masked, "src", tcp("10.0.7.200", "1.1.1.1")) && !has(masked, "src", tcp("10.0.8.9", "1.1.1.1")));
    assert!(!has("create s hash:ip family inet6\nadd s ::1\n", "src", tcp("0.0.0.1", "1.1.1.1")), "the other family");
    assert!(has("create s bitmap:ip range 10.0.0.0/24\nadd s 10.0.0.7\n", "src", tcp("10.0.0.7", "1.1.1.1")));
    assert!(has("create s hash:ip family inet6\nadd s 2001:db8::7\n", "dst", tcp("::2", "2001:db8::7")));
}

#[test]
fn the_longest_network_decides() {
    let text = "create s hash:net\nadd s 10.0.0.0/8\nadd s 10.1.0.0/16 nomatch\nadd s 10.1.2.0/24\n";
    let contents = contents(text);
    let look = |address: &str, return_nomatch| {
        contents.contains(0, sides("src"), return_nomatch, &tcp(address, "1.1.1.1"), None)
    };
    assert_eq!(["10.0.0.1", "10.1.0.1", "10.1.2.1", "11.0.0.1"].map(|a| look(a, false)), [true, false, true, false]);
    assert_eq!(["10.0.0.1", "10.1.0.1", "10.1.2.1", "11.0.0.1"].map(|a| look(a, true)), [false, true, false, false]);
}

/// net/netfilter/ipset/ip_set_getport.c.
#[test]
fn ports_have_their_protocol() {
    let text = "create s hash:ip,port\nadd s 10.0.0.1,80\nadd s 10.0.0.1,udp:53-60\nadd s 10.0.0.1,icmp:8/0\nadd s 10.0.0.1,gre:0\n";
    let (src, dst) = ("1.1.1.1", "10.0.0.1");
    let given = "dst,dst";
    assert!(
        has(text, given, tcp(src, dst)) && !has(text, given, udp(src, dst)) && !has(text, "dst,src", tcp(src, dst))
    );
    assert!(has(text, given, View { dst_port: 60, ..udp(src, dst) }));
    assert!(!has(text, given, View { dst_port: 61, ..udp(src, dst) }));
    assert!(has(text, given, icmp(src, dst, 8, 0)) && !has(text, given, icmp(src, dst, 8, 1)));
    assert!(has(text, given, View { protocol: protocol::GRE, has_transport: false, ..tcp(src, dst) }));
    assert!(!has(text, given, later(tcp(src, dst))) && !has(text, "dst", tcp(src, dst)), "too few sides");

    let nets = "create s hash:net,port\nadd s 10.0.0.0/8,tcp:1-100\nadd s 10.0.0.0/24,tcp:80 nomatch\n";
    assert!(has(nets, given, tcp(src, "10.0.1.1")) && !has(nets, given, tcp(src, dst)));
    assert!(has(nets, given, View { dst_port: 81, ..tcp(src, dst) }));
    assert!(!has(nets, given, View { dst_port: 101, ..tcp(src, "10.0.1.1") }));

    let bitmap = "create s bitmap:port range 0-65535\nadd s 80-90\nadd s 85-100\nadd s 65535\n";
    for (port, found) in [(79, false), (80, true), (91, true), (100, true), (101, false), (65_535, true)] {
        assert_eq!(has(bitmap, "dst", View { dst_port: port, ..udp(src, dst) }), found, "{port}");
    }
    assert!(!has(bitmap, "dst", View { protocol: protocol::SCTP, ..tcp(src, dst) }), "only TCP and UDP");
}

#[test]
fn pairs_of_addresses() {
    let v4 = "create s hash:ip,port,ip\nadd s 10.0.0.1,tcp:80-81,192.0.2.1\nadd s 10.0.0.2,udp:53,192.0.2.1\n";
    let given = "src,dst,dst";
    assert!(has(v4, given, tcp("10.0.0.1", "192.0.2.1")));
    assert!(has(v4, given, View { dst_port: 81, ..tcp("10.0.0.1", "192.0.2.1") }));
    assert!(!has(v4, given, tcp("10.0.0.1", "192.0.2.2")) && !has(v4, given, udp("10.0.0.1", "192.0.2.1")));
    let v6 = "create s hash:ip,port,ip family inet6\nadd s 2001:db8::1,tcp:80,2001:db8::2\n";
    assert!(has(v6, given, tcp("2001:db8::1", "2001:db8::2")) && !has(v6, given, tcp("2001:db8::2", "2001:db8::1")));
}

/// net/netfilter/ipset/ip_set_hash_netiface.c: the second side is the input interface, or the output interface.
#[test]
fn networks_of_interfaces() {
    let text = "create s hash:net,iface\nadd s 10.0.0.0/8,lan0\nadd s 10.1.0.0/16,lan0 nomatch\nadd s 0.0.0.0/0,wan\n\
                add s 10.0.0.0/8,physdev:wan\nadd s 9.0.0.0/8,eth9\n";
    let from = |src: &str| tcp(src, "1.1.1.1");
    assert!(has(text, "src,src", from("10.0.0.1")) && !has(text, "src,src", from("10.1.0.1")));
    assert!(has(text, "src,dst", from("10.1.0.1")) && has(text, "src,dst", from("9.0.0.1")));
    assert!(!has(text, "src,src", from("9.0.0.1")));
    assert!(!has(text, "src,dst", View { output: NO_INTERFACE, ..from("10.0.0.1") }));
}

#[test]
fn link_addresses() {
    let contents = contents("create s hash:mac\nadd s 02:00:00:00:00:01\n");
    let macs = |src: u8, dst: u8| Some((Mac([2, 0, 0, 0, 0, src]), Mac([2, 0, 0, 0, 0, dst])));
    let look = |given: &str, macs| contents.contains(0, sides(given), false, &tcp("1.1.1.1", "2.2.2.2"), macs);
    assert!(look("src", macs(1, 2)) && !look("src", macs(2, 1)) && look("dst", macs(2, 1)) && !look("src", None));
}

#[test]
fn a_list_has_what_a_member_has() {
    let text = "create a hash:ip\nadd a 10.0.0.1\ncreate b hash:ip,port\nadd b 10.0.0.2,80\ncreate six hash:ip family inet6\n\
                add six ::1\ncreate l list:set\nadd l a\nadd l b\nadd l six\n";
    assert!(has(text, "src", tcp("10.0.0.1", "1.1.1.1")) && !has(text, "src", tcp("10.0.0.2", "1.1.1.1")));
    assert!(has(text, "src,dst", tcp("10.0.0.2", "1.1.1.1")) && has(text, "src", tcp("::1", "::2")));
    let sets = iptables::Sets::parse(text, "sets").expect("the sets are well-formed");
    let changing = SetContents::new(&sets, &paths(), &BTreeSet::from(["a"])).expect("the sets fit");
    assert!(changing.changes(0) && !changing.changes(1) && changing.changes(3));
    assert_eq!(changing.members(3), [0, 1, 2]);
    let text = "create n hash:net\n";
    let sets = iptables::Sets::parse(text, "sets").expect("the sets are well-formed");
    let error = SetContents::new(&sets, &paths(), &BTreeSet::from(["n"])).map(|_| ());
    assert_eq!(error, Err("the set `n`: packets can't change a set of the type hash:net here".to_string()));
}

#[test]
fn entries_begin_with_their_timeouts() {
    let text = "create s hash:ip,port timeout 60\nadd s 10.0.0.1,tcp:80-81 timeout 9\nadd s 10.0.0.2,udp:53\nadd s 10.0.0.3,1 timeout 0\n";
    let sets = iptables::Sets::parse(text, "sets").expect("the sets are well-formed");
    let key = |last: u128, protocol, port| SetKey { first: 0x0a00_0000 + last, second: 0, port, protocol };
    let wanted = [(key(1, 6, 80), Some(9)), (key(1, 6, 81), Some(9)), (key(2, 17, 53), Some(60)), (key(3, 6, 1), None)];
    assert_eq!(initial_entries(&sets.sets[0]).collect::<Vec<_>>(), wanted);
    let masked = "create s hash:ip netmask 24\nadd s 10.0.0.0/22\n";
    let sets = iptables::Sets::parse(masked, "sets").expect("the sets are well-formed");
    let firsts: Vec<u128> = initial_entries(&sets.sets[0]).map(|(key, _)| key.first & 0xffff).collect();
    assert_eq!(firsts, [0, 0x100, 0x200, 0x300]);
    assert!(size_of::<SetKey>() <= 48);
}

fn small_entry() -> impl Strategy<Value = (u8, u8, u8, u16, u16, bool)> {
    (24..=32_u8, 0..32_u8, prop_oneof![Just(6_u8), Just(17)], 0..12_u16, 0..3_u16, any::<bool>())
}

proptest! {
    /// Keys that a packet makes are in a set exactly if the look-up finds it, and both agree with a scan.
    #[test]
    fn look_ups_are_those_of_a_scan(entries in proptest::collection::vec(small_entry(), 1..12), last in 0..40_u8, port in 0..16_u16) {
        let mut text = "create a hash:net,port\ncreate b hash:ip,port maxelem 100000\ncreate c hash:ip,port,ip\n".to_string();
        for (len, host, protocol, first, more, nomatch) in &entries {
            let name = if *protocol == 6 { "tcp" } else { "udp" };
            let end = first + more;
            let nomatch = if *nomatch { " nomatch" } else { "" };
            text += &format!("add a 10.0.0.{host}/{len},{name}:{first}-{end}{nomatch} -exist\n");
            text += &format!("add b 10.0.0.{host}/{len},{name}:{first}-{end} -exist\n");
            text += &format!("add c 10.0.0.{host},{name}:{first}-{end},1.1.1.1 -exist\n");
        }
        let sets = iptables::Sets::parse(&text, "sets").expect("the sets are well-formed");
        let contents = SetContents::new(&sets, &paths(), &BTreeSet::new()).expect("the sets fit");
        let view = View { dst_port: port, ..tcp(&format!("10.0.0.{last}"), "1.1.1.1") };
        for view in [view, View { protocol: 17, ..view }] {
            let holds = |entry: &&Entry| entry.parts().enumerate().all(|(nth, part)| match part {
                EntryPart::Addresses(range) => {
                    let wanted = if nth == 0 { view.src } else { view.dst };
                    (number(range.first)..=number(range.last)).contains(&wanted)
                }
                EntryPart::Ports(protocol, range) => *protocol == view.protocol && range.contains(&view.dst_port),
                _ => false,
            });
            let size = |entry: &&Entry| match &entry.first {
                EntryPart::Addresses(range) => number(range.last) - number(range.first),
                _ => 0,
            };
            let best = sets.sets[0].entries.iter().filter(holds).map(|entry| (size(&entry), entry.no_match));
            let smallest = best.clone().map(|(size, _)| size).min();
            let mut outcomes: Vec<bool> = best.filter(|(size, _)| Some(*size) == smallest).map(|(_, no)| !no).collect();
            outcomes.dedup();
            // Overlapping ranges of ports with and without `nomatch`: the kernel keeps the one that was added last.
            if outcomes.len() <= 1 {
                let wanted = outcomes.first().copied().unwrap_or(false);
                prop_assert_eq!(contents.contains(0, sides("src,dst"), false, &view, None), wanted);
            }
            for (set, given) in [(1_u16, "src,dst"), (2, "src,dst,dst")] {
                let wanted = sets.sets[usize::from(set)].entries.iter().any(|entry| holds(&entry));
                prop_assert_eq!(contents.contains(set, sides(given), false, &view, None), wanted);
                let key = contents.key(set, sides(given), &view, None);
                let keyed = initial_entries(&sets.sets[usize::from(set)]).any(|(initial, _)| Some(initial) == key);
                prop_assert_eq!(keyed, wanted);
            }
        }
    }
}
