use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec;

use iptables::{Family, Options, Sets, parse as read};
use packet::{LinkType, parse};
use proptest::prelude::*;

use super::super::router::{Paths, Router};
use super::super::sets::SetContents;
use super::super::test::samples::tcp as view;
use super::super::test::{Environment, Test};
use super::super::view::View;
use super::*;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 9, 2, 0, 0x5e, 1, 2, 3];

fn frame_to(mac: [u8; 6], ip: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if ip[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&mac[..], &MACS[6..], &kind, ip].concat()
}

fn frame(ip: &[u8]) -> Vec<u8> {
    frame_to([2, 0, 0, 0, 0, 9], ip)
}

/// An IPv4 packet; `field` is that of fragments.
fn v4(protocol: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let len = 20 + payload.len() as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    ip[6..8].copy_from_slice(&field.to_be_bytes());
    ip.extend_from_slice(payload);
    ip
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    ip[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    ip.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0x5e, 0xff, 0xfe, 1, 2, 3]);
    ip.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    ip.extend_from_slice(payload);
    ip
}

/// A UDP header without data.
const UDP: [u8; 8] = [0, 53, 0, 53, 0, 8, 0, 0];

fn tcp_with(options: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[3] = 80;
    header[12] = (((20 + options.len()) / 4) << 4) as u8;
    header[13] = 0x10;
    header.extend_from_slice(options);
    header
}

/// True if the matches of a rule hold for a frame.
fn holds_of(text: &str, family: Family, frame: &[u8], wire_len: usize) -> bool {
    let line = alloc::format!("{} -A FORWARD {text}", family.command());
    let parsed = read(&line, &Options::default()).unwrap_or_else(|errors| panic!("{line}: {errors}"));
    let rule = &parsed.rules.tables[0].chain("FORWARD").expect("the chain has a rule").rules[0];
    let paths = Paths::new(&Router::default()).expect("it is right");
    let sets = Sets::parse("create macs hash:mac\nadd macs 02:00:5e:01:02:03\n", "sets").expect("they are well-formed");
    let sets = SetContents::new(&sets, &paths, &BTreeSet::new()).expect("they fit");
    let environment = Environment { paths, sets };
    let mut tests = ByteTests::default();
    let compile = |given: &iptables::Located<iptables::Match>| {
        Test::of(&given.value, family, &environment, &mut tests).unwrap_or_else(|why| panic!("{text}: {why:?}"))
    };
    let compiled: Vec<Test> = rule.matches.iter().flat_map(compile).collect();
    let headers = parse(LinkType::Ethernet, frame, wire_len as u32, 0).expect("the frame is well-formed");
    let view = View { bytes: tests.evaluate(&headers, frame), ..view("10.0.0.1", "192.0.2.1") };
    compiled.iter().all(|test| test.holds(&view, &environment))
}

fn holds4(text: &str, ip: &[u8]) -> bool {
    let frame = frame(ip);
    holds_of(text, Family::V4, &frame, frame.len())
}

fn holds6(text: &str, ip: &[u8]) -> bool {
    let frame = frame(ip);
    holds_of(text, Family::V6, &frame, frame.len())
}

#[test]
fn link_addresses() {
    let ip = v4(17, 0, &UDP);
    assert!(holds4("-m mac --mac-source 02:00:5e:01:02:03", &ip));
    assert!(!holds4("-m mac ! --mac-source 02:00:5e:01:02:03", &ip));
    assert!(holds4("-m mac ! --mac-source 02:00:5e:01:02:04", &ip));
    assert!(holds4("-m set --match-set macs src", &ip) && !holds4("-m set --match-set macs dst", &ip));
    for (mac, kind) in [([0xff; 6], "broadcast"), ([1, 0, 0x5e, 0, 0, 1], "multicast"), ([2, 0, 0, 0, 0, 9], "unicast")]
    {
        for wanted in ["broadcast", "multicast", "unicast"] {
            let frame = frame_to(mac, &ip);
            let text = alloc::format!("-m pkttype --pkt-type {wanted}");
            assert_eq!(holds_of(&text, Family::V4, &frame, frame.len()), wanted == kind, "{wanted} {kind}");
        }
    }
    assert!(holds6("-m eui64", &v6(17, &UDP)));
    let mut other = v6(17, &UDP);
    other[16] ^= 2;
    assert!(!holds6("-m eui64", &other));
}

/// net/netfilter/xt_tcpudp.c.
#[test]
fn tcp_options() {
    let ip = v4(6, 0, &tcp_with(&[1, 1, 5, 10, 8, 0, 0, 0, 0, 0, 0, 0]));
    assert!(holds4("-p tcp --tcp-option 5", &ip) && !holds4("-p tcp ! --tcp-option 5", &ip));
    assert!(!holds4("-p tcp --tcp-option 8", &ip), "data of an option");
    assert!(holds4("-p tcp ! --tcp-option 8", &v4(6, 0, &tcp_with(&[]))));
    let whole = frame(&ip);
    let cut = &whole[..14 + 20 + 22];
    for text in ["-p tcp --tcp-option 5", "-p tcp ! --tcp-option 9"] {
        assert!(!holds_of(text, Family::V4, cut, whole.len()), "{text} of a capture that is cut off");
    }
}

#[test]
fn security_and_compression_indexes() {
    let esp = [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    assert!(
        holds4("-p esp -m esp --espspi 256", &v4(50, 0, &esp))
            && holds6("-p esp -m esp --espspi 200:300", &v6(50, &esp))
    );
    assert!(!holds4("-p esp -m esp ! --espspi 256", &v4(50, 0, &esp)) && holds4("-p esp -m esp", &v4(50, 0, &esp)));
    assert!(!holds4("-p esp -m esp ! --espspi 1", &v4(50, 3, &esp)), "a later fragment");
    assert!(!holds4("-p esp -m esp", &v4(50, 0, &esp[..4])), "a header that is cut off");
    let ah = [17, 4, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(holds4("-p ah -m ah --ahspi 512", &v4(51, 0, &ah)) && !holds4("-p ah -m ah --ahspi 1", &v4(51, 0, &ah)));
    let behind = v6(51, &[&ah[..], &UDP].concat());
    assert!(holds6("-m ah --ahspi 512 --ahlen 24 --ahres", &behind) && !holds6("-m ah ! --ahlen 24", &behind));
    assert!(holds6("-m ah --ahlen 0", &behind), "the kernel does not compare with 0");
    let mut reserved = behind.clone();
    reserved[43] = 1;
    assert!(!holds6("-m ah --ahres", &reserved) && holds6("-m ah", &reserved) && !holds6("-m ah", &v6(17, &UDP)));
    assert!(holds4("-p ipcomp -m ipcomp --ipcompspi 2", &v4(108, 0, &[6, 0, 0, 2, 9, 9])));
    assert!(!holds4("-p ipcomp -m ipcomp --ipcompspi 3", &v4(108, 0, &[6, 0, 0, 2, 9, 9])));
}

/// net/netfilter/xt_sctp.c.
#[test]
fn sctp_chunks() {
    let header = [0, 1, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0];
    // DATA with its first and last fragment bits (7 bytes, padded), then COOKIE_ACK.
    let ip = v4(132, 0, &[&header[..], &[0, 3, 0, 7, 1, 2, 3, 0], &[11, 0, 0, 4]].concat());
    for (text, found) in [
        ("any DATA", true),
        ("any INIT", false),
        ("any DATA:BE", true),
        ("any DATA:b", false),
        ("all DATA,COOKIE_ACK", true),
        ("all DATA,INIT", false),
        ("all DATA:Be", false),
        ("only DATA,COOKIE_ACK,INIT", true),
        ("only DATA", false),
        ("only DATA:u,COOKIE_ACK", true),
        ("only DATA:U,COOKIE_ACK", false),
        ("all NONE", true),
        ("only NONE", false),
    ] {
        assert_eq!(holds4(&alloc::format!("-p sctp --chunk-types {text}"), &ip), found, "{text}");
        assert_eq!(holds4(&alloc::format!("-p sctp ! --chunk-types {text}"), &ip), !found, "! {text}");
    }
    let wrong = v4(132, 0, &[&header[..], &[0, 3, 0, 0]].concat());
    assert!(!holds4("-p sctp --chunk-types all DATA", &wrong) && !holds4("-p sctp ! --chunk-types all DATA", &wrong));
}

/// net/netfilter/xt_dccp.c.
#[test]
fn dccp_types_and_options() {
    // A request with 24 bits of sequence number, its service, and the options 0 and 33.
    let request = [0, 7, 0, 80, 5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 33, 3, 0, 0];
    let ip = v4(33, 0, &request);
    for (text, found) in [
        ("--dport 80 --sport 7", true),
        ("! --dport 80", false),
        ("--dccp-types REQUEST,RESET", true),
        ("--dccp-types RESET", false),
        ("! --dccp-types RESET", true),
        ("--dccp-option 33", true),
        ("--dccp-option 9", false),
        ("! --dccp-option 9", true),
    ] {
        assert_eq!(holds4(&alloc::format!("-p dccp {text}"), &ip), found, "{text}");
    }
}

#[test]
fn extension_headers() {
    // Router alert and padding; then a routing header of type 0 with two addresses; then options of the destination.
    let hop = [43, 0, 5, 2, 0, 0, 1, 0];
    let address = |last: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let routing = [&[60, 4, 0, 1, 0, 0, 0, 0][..], &address(7), &address(8)].concat();
    let destination = [17, 0, 1, 4, 0, 0, 0, 0];
    let ip = v6(0, &[&hop[..], &routing, &destination, &UDP].concat());
    for (text, found) in [
        ("-m hbh", true),
        ("-m hbh --hbh-len 8", true),
        ("-m hbh ! --hbh-len 8", false),
        ("-m hbh --hbh-opts 5:2,1:0", true),
        ("-m hbh --hbh-opts 5", true),
        ("-m hbh --hbh-opts 1", false),
        ("-m hbh --hbh-opts 5:3", false),
        ("-m hbh --hbh-opts 5:255", true),
        ("-m hbh --hbh-opts 5,1,0", false),
        ("-m dst --dst-opts 1:4 --dst-len 8", true),
        ("-m dst --dst-len 16", false),
        ("-m rt --rt-type 0 --rt-segsleft 1 --rt-len 40", true),
        ("-m rt ! --rt-type 0", false),
        ("-m rt --rt-segsleft 2:", false),
        ("-m rt --rt-type 0 --rt-0-res", true),
        ("-m rt --rt-type 0 --rt-0-addrs 2001:db8::7,2001:db8::8", true),
        ("-m rt --rt-type 0 --rt-0-addrs 2001:db8::7", false),
        ("-m rt --rt-type 0 --rt-0-addrs 2001:db8::8 --rt-0-not-strict", true),
        ("-m rt --rt-type 0 --rt-0-addrs 2001:db8::8,2001:db8::7 --rt-0-not-strict", false),
        ("-m ipv6header --header hop,route,dst,prot", true),
        ("-m ipv6header ! --header hop,route,dst,prot", false),
        ("-m ipv6header --header hop", false),
        ("-m ipv6header --header hop --soft", true),
        ("-m ipv6header --header hop,frag --soft", false),
        ("-m ipv6header ! --header frag,auth --soft", true),
        ("-m ipv6header ! --header frag,hop --soft", false),
        ("-m frag", false),
        ("-m frag ! --fragid 5", false),
    ] {
        assert_eq!(holds6(text, &ip), found, "{text}");
    }
    let plain = v6(17, &UDP);
    assert!(!holds6("-m hbh", &plain) && !holds6("-m rt", &plain) && holds6("-m ipv6header --header prot", &plain));
    assert!(
        holds6("-m ipv6header --header none", &v6(59, &[])) && holds6("-m ipv6header --header esp", &v6(50, &[0; 8]))
    );
}

/// net/ipv6/netfilter/ip6t_frag.c. The kernel does not look at `--fraglen`.
#[test]
fn fragment_headers() {
    let fragment = |field: u16, reserved: u8| {
        let [high, low] = field.to_be_bytes();
        v6(44, &[&[17, reserved, high, low, 0, 0, 1, 0][..], &UDP].concat())
    };
    for (text, field, reserved, found) in [
        ("--fragid 256", 1, 0, true),
        ("! --fragid 256", 1, 0, false),
        ("--fragid 1:100", 1, 0, false),
        ("--fragfirst --fragmore", 1, 0, true),
        ("--fraglast", 1, 0, false),
        ("--fraglast", 8, 0, true),
        ("--fragmore", 8, 0, false),
        ("--fragfirst", 8, 0, false),
        ("--fragres", 8, 0, true),
        ("--fragres", 8, 1, false),
        ("--fragres", 10, 0, false),
        ("--fraglen 99", 8, 0, true),
    ] {
        assert_eq!(holds6(&alloc::format!("-m frag {text}"), &fragment(field, reserved)), found, "{text} {field}");
    }
    let behind = v6(44, &[&[60, 0, 0, 8, 0, 0, 0, 1][..], &[17, 0, 1, 4, 0, 0, 0, 0]].concat());
    assert!(!holds6("-m dst", &behind) && holds6("-m frag", &behind), "behind a later fragment is nothing");
}

#[test]
fn mobility_headers() {
    let header = |next: u8, kind: u8| v6(135, &[next, 0, kind, 0, 0, 0, 0, 0]);
    assert!(
        holds6("-p ipv6-mh -m mh --mh-type 5:6", &header(59, 5))
            && !holds6("-p ipv6-mh -m mh --mh-type bu", &header(59, 6))
    );
    assert!(holds6("-p ipv6-mh -m mh", &header(59, 6)) && !holds6("-p ipv6-mh -m mh", &header(6, 5)));
}

/// net/netfilter/xt_u32.c.
#[test]
fn words_of_a_packet() {
    let ip = v4(17, 0, &[&UDP[..], &[0xca, 0xfe, 0xba, 0xbe, 1]].concat());
    for (text, found) in [
        ("6&0xFF=17", true),
        ("6&0xFF=6,16:18", true),
        ("4&0x1FFF=0&&0>>22&0x3C@8=0xcafebabe", true),
        ("0>>22&0x3C@8>>16&0xffff=0xcaff", false),
        ("28=0xcafebabe", true),
        ("29=0xfebabe01", true),
        ("30=0", false),
        ("0=0x45000021&&6&0xff=6", false),
        ("28@0=0", false),
    ] {
        assert_eq!(holds4(&alloc::format!("-m u32 --u32 \"{text}\""), &ip), found, "{text}");
        assert_eq!(holds4(&alloc::format!("-m u32 ! --u32 \"{text}\""), &ip), !found, "! {text}");
    }
}

/// net/netfilter/xt_string.c, and skb_find_text since Linux 6.6: the text must end before `--to`.
#[test]
fn texts_in_a_packet() {
    let ip = v4(17, 0, &[&UDP[..], b"GET /Index \xe4\xff"].concat());
    // The text begins at byte 28.
    for (text, found) in [
        ("--string GET", true),
        ("--string get", false),
        ("--string get --icase", true),
        ("--hex-string \"|47 45|T\"", true),
        ("--string GET --from 28", true),
        ("--string GET --from 29", false),
        ("--string GET --to 31", true),
        ("--string GET --to 30", false),
        ("--string Index --from 28 --to 38", true),
        ("--hex-string \"|c4ff|\" --icase", true),
        ("--hex-string \"|c4ff|\"", false),
        ("--string GET --from 1000", false),
        ("--hex-string \"|e4ff00|\"", false),
    ] {
        for algorithm in ["bm", "kmp"] {
            assert_eq!(holds4(&alloc::format!("-m string --algo {algorithm} {text}"), &ip), found, "{text}");
        }
        let negated = text.replacen("--string", "! --string", 1).replacen("--hex-string", "! --hex-string", 1);
        assert_eq!(holds4(&alloc::format!("-m string --algo bm {negated}"), &ip), !found, "{negated}");
    }
    let padded = [frame(&ip), b"PADDING".to_vec()].concat();
    assert!(!holds_of("-m string --algo bm --string PAD", Family::V4, &padded, padded.len()), "behind the packet");
}

#[test]
fn without_tests_nothing_is_evaluated() {
    let frame = frame(&v4(17, 0, &UDP));
    let headers = parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).expect("it is well-formed");
    let tests = ByteTests::default();
    assert!(tests.is_empty());
    assert_eq!(tests.evaluate(&headers, &frame), 0);
    assert_eq!(mac_number([0, 0, 0, 0, 1, 2]).to_string(), "258");
}

proptest! {
    #[test]
    fn a_text_is_found_as_by_windows(text in "[abA]{0,40}", pattern in "[abA]{1,4}", from in 0..50_usize, to in 0..50_usize, icase: bool) {
        let rule = alloc::format!(
            "iptables -A FORWARD -m string --algo bm --string {pattern} --from {from} --to {to}{}", if icase { " --icase" } else { "" });
        let parsed = read(&rule, &Options::default()).expect("the rule is well-formed");
        let rule = &parsed.rules.tables[0].chain("FORWARD").expect("the chain has a rule").rules[0];
        let iptables::Match::StringMatch(given) = &rule.matches[0].value else { panic!("it is a string") };
        let same = |window: &[u8]| if icase { window.eq_ignore_ascii_case(pattern.as_bytes()) } else { window == pattern.as_bytes() };
        let all = text.as_bytes();
        let wanted = (0..all.len()).any(|at| {
            let end = at + pattern.len();
            at >= from && end <= to && end <= all.len() && same(&all[at..end])
        });
        prop_assert_eq!(Text::of(given).is_in(all), wanted);
    }

    /// No frame makes a test panic.
    #[test]
    fn any_bytes_are_taken(ip in proptest::collection::vec(any::<u8>(), 20..120), is_v6: bool, next in 0..140_u8, cut in 0..60_usize) {
        let mut ip = ip;
        ip[0] = if is_v6 { 0x60 } else { 0x45 };
        let len = (ip.len() as u16).to_be_bytes();
        if is_v6 {
            ip.resize(ip.len().max(48), 0);
            let behind = ip.len() as u16 - 40;
            ip[4..6].copy_from_slice(&behind.to_be_bytes());
            ip[6] = next;
        } else {
            ip[2..4].copy_from_slice(&len);
            ip[9] = next;
        }
        let whole = frame(&ip);
        let kept = &whole[..whole.len().saturating_sub(cut).max(34)];
        let tests = ByteTests { tests: vec![
            ByteTest::TcpOption(Condition { negated: false, value: 5 }),
            ByteTest::Esp(None),
            ByteTest::Ah4(None),
            ByteTest::Ah6(Ah::default()),
            ByteTest::IpComp(None),
            ByteTest::Dccp(Dccp { option: Some(Condition { negated: false, value: 1 }), ..Dccp::default() }),
            ByteTest::Frag(Frag::default()),
            ByteTest::HopByHop(HeaderOptions { length: None, options: vec![(5, None), (1, Some(1)), (0, None)] }),
            ByteTest::Rt(Rt { addresses: vec![core::net::Ipv6Addr::LOCALHOST.into()], not_strict: true, ..Rt::default() }),
            ByteTest::Mobility(None),
            ByteTest::Eui64,
        ] };
        if let Ok(headers) = parse(LinkType::Ethernet, kept, whole.len() as u32, 0) {
            let _ = tests.evaluate(&headers, kept);
        }
    }
}
