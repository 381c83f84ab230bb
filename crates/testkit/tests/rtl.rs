//! Checks the content of the test vectors for the hardware sequencer. `cargo xtask rtl` simulates the hardware.

use std::collections::BTreeMap;
use std::io;

use millrace_testkit::Build;
use millrace_testkit::rtl::functions::all;
use millrace_testkit::rtl::{Quotes, Unread};
use packet::LinkType;

/// Writing the vectors compares their layout with the software sequencer, packet by packet.
#[test]
fn the_software_sequencer_sends_the_layout() {
    let sets = all(|_, _| Ok(io::sink())).expect("a sink takes all");
    let counts: BTreeMap<&str, _> = sets.iter().map(|set| (set.name.as_str(), set.counts)).collect();
    for (name, counts) in &counts {
        assert!(counts.records > 1_000 && counts.nothing > 100, "{name}: {counts:?}");
        let plain = name.ends_with("-plain") || *name == "core";
        assert_eq!(plain, counts.software == 0, "{name}: {counts:?}");
    }
    for function in ["ddos", "heavy-hitter", "policer", "port-knock", "conntrack", "firewall", "nat"] {
        assert!(counts.contains_key(function), "no vectors of {function}");
    }
    // Errors that quote a packet are left to software if the record is about that packet.
    assert!(counts["conntrack"].software > counts["ddos"].software + 100);
}

#[test]
fn what_is_left_to_software() {
    const A: &str = "10.0.0.1:1";
    const B: &str = "192.0.2.1:2";
    const A6: &str = "[2001:db8::1]:1";
    const B6: &str = "[2001:db8::2]:2";
    let of = |bytes: &[u8], quotes| Unread::of(LinkType::Ethernet, bytes, bytes.len() as u32, quotes);
    let plain = Build::tcp(A, B).vlan(1).vlan(2).ip_options(&[1, 1, 1, 1]).bytes();
    assert_eq!(of(&plain, Quotes::All), None);
    assert_eq!(Unread::of(LinkType::RawIp, &plain, plain.len() as u32, Quotes::None), Some(Unread::Link));
    assert_eq!(of(&Build::tcp(A, B).vlan(1).vlan(2).vlan(3).bytes(), Quotes::None), Some(Unread::Tags));
    assert_eq!(of(&Build::udp(A6, B6).extension(60, &[1, 4]).bytes(), Quotes::None), Some(Unread::Extensions));
    assert_eq!(of(&Build::udp(A6, B6).bytes(), Quotes::None), None);
    let mut mpls = plain.clone();
    mpls[20..22].copy_from_slice(&[0x88, 0x47]);
    assert_eq!(of(&mpls, Quotes::None), Some(Unread::Encapsulated));

    let mut llc = Build::udp(A, B).bytes();
    llc[12..14].copy_from_slice(&[0, 46]);
    assert_eq!(of(&llc, Quotes::None), Some(Unread::Llc));
    for (kind, unread) in [(100, Some(Unread::Quote)), (128, None), (139, None)] {
        let message = Build::icmp(A6, B6, kind, 0, [0; 4]).bytes();
        assert_eq!(of(&message, Quotes::All), unread, "ICMPv6 type {kind}");
    }

    let quoted = Build::udp(B, A).datagram();
    let redirect = Build::icmp_error(A, B, 5, 1, &quoted).bytes();
    assert_eq!(
        [Quotes::None, Quotes::All, Quotes::Translated].map(|quotes| of(&redirect, quotes)),
        [None, Some(Unread::Quote), None]
    );
    // A contradictory packet is malformed before its quotation is read.
    let mut cut = Build::icmp_error(A, B, 3, 1, &quoted).bytes();
    assert_eq!(of(&cut, Quotes::Translated), Some(Unread::Quote));
    cut.truncate(14 + 20 + 7);
    assert_eq!(of(&cut, Quotes::Translated), None);
    assert_eq!(of(&[0; 13], Quotes::All), None);
}
