//! The piggyback carrier: replicas that know of others' packets by their own alone do what `sequential` does, for every
//! function and 2 to 8 cores; and whatever else comes is refused in words.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use engine::carrier::{Outer, Sequencer, Shape, TAKES_STEP, parse};
use engine::{EngineError, Link, Options, Tables};
use flow::{Eviction, index::IndexKind};
use functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use nf::Function;
use packet::{LinkType, Nanos, Seq, TcpFlags};
use port::{Packet, PortError, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use synth::{Params, Profile};
use testkit::carrier::{plain, replicas, sequenced};
use testkit::{Build, Frames, Synth, captures};

/// All seven functions over the trace.
fn hold(name: &str, trace: &Trace, options: &Options) {
    one(ddos::Ddos::new(&toml::from_str("threshold = 40").unwrap()), name, trace, options);
    one(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), name, trace, options);
    one(policer::Policer::new(&toml::from_str("rate = \"1Mbit\"\nburst = 9000").unwrap()), name, trace, options);
    one(port_knock::PortKnock::new(&port_knock::Config::default()), name, trace, options);
    one(conntrack::Conntrack::new(conntrack::Config::default()), name, trace, options);
    one(firewall::Firewall::new(toml::from_str("reject = true").unwrap()), name, trace, options);
    if options.tables == Tables::default() {
        let pools = toml::from_str("mappings = 512\nsessions = 512\nports = \"1024-3071\"").unwrap();
        one(nat::Nat::new(pools), name, trace, options);
    }
}

fn one<N: Function>(nf: N, name: &str, trace: &Trace, options: &Options) {
    let nf = Arc::new(nf);
    let expected = plain(&nf, trace, options);
    for cores in 2..=8 {
        let outer = if cores % 2 == 0 { Outer::Ethernet } else { Outer::None };
        let frames = sequenced(&nf, trace, cores, outer).expect("captures are of our time");
        let (got, failure) = replicas(&nf, &frames, cores, options);
        assert!(failure.is_none(), "{} over {name} on {cores} cores: {failure:?}", N::DESCRIPTION.name);
        assert!(got == expected, "{} over {name} on {cores} cores differs", N::DESCRIPTION.name);
    }
}

fn options(flows_max: usize) -> Options {
    Options { flows_max: Some(flows_max), pin: false, ..Options::default() }
}

#[test]
fn every_function_over_synthesised_traffic() {
    for profile in Profile::ALL {
        let params = Params { packets: 1_500, seed: 5, ipv6_percent: 20, ..Params::default() };
        let trace = Synth::new(profile, &params).expect("the parameters are in range").trace();
        hold(profile.name(), &trace, &options(trace.len()));
        // Tables that fill up decide alike on every replica.
        hold(profile.name(), &trace, &options(64));
    }
}

#[test]
fn tables_of_another_kind_decide_alike_too() {
    let params = Params { packets: 1_500, seed: 6, ..Params::default() };
    let trace = Synth::new(Profile::Backbone, &params).expect("the parameters are in range").trace();
    let tables = Tables {
        index: IndexKind::ALL.into_iter().find(|kind| *kind != IndexKind::default()).expect("there are several"),
        eviction: Eviction::Random,
        early_drop_percent: Some(50),
        ..Tables::default()
    };
    hold("another kind", &trace, &Options { tables, ..options(64) });
}

#[test]
fn every_function_over_captures() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/demo.pcap.zst");
    hold("demo", &captures::read(&demo).expect("it ships").prefix(2_000), &options(2_000));
    let Some(folder) = captures::shared() else {
        println!("SKIPPED (no ../shared/traces)");
        return;
    };
    let manifest = fs::read_to_string(folder.join("MANIFEST.tsv")).expect("the manifest lies beside the captures");
    let step = if std::env::var_os("MILLRACE_DEEP").is_some() { 1 } else { 19 };
    let mut held = 0;
    for name in manifest.lines().skip(1).step_by(step).filter_map(|line| line.split('\t').next()) {
        let Some(trace) = captures::read(&folder.join(name)) else { continue };
        // Fuzzed captures tell times that no carrier can.
        if trace.packets().iter().any(|packet| packet.time.0 & TAKES_STEP != 0) {
            continue;
        }
        let trace = if step == 1 { trace } else { trace.prefix(400) };
        hold(name, &trace, &options(trace.len().max(16)));
        held += 1;
    }
    println!("{held} captures agree");
    assert!(held > 20, "hardly any capture could be read");
}

/// Four packets: two sources, one of them by IPv6, and one that takes no step.
fn four() -> Trace {
    let mut frames = Frames::default();
    frames.build(Nanos(0x0102), &Build::udp("192.0.2.1:7", "10.0.0.1:9"));
    frames.push(Nanos(0x0103), &Build::arp());
    frames.build(Nanos(0x0104), &Build::udp("[2001:db8::1]:7", "[2001:db8::2]:9"));
    frames.build(Nanos(0x0105), &Build::tcp("192.0.2.1:7", "10.0.0.1:9").flags(TcpFlags::SYN));
    frames.trace()
}

fn ddos() -> Arc<ddos::Ddos> {
    Arc::new(ddos::Ddos::new(&ddos::Config::default()))
}

/// The layout to the byte, as other implementations must write it.
#[test]
fn the_layout() {
    let trace = four();
    let frames = sequenced(&ddos(), &trace, 3, Outer::Ethernet).expect("times are early");
    let v4 = [&[0x80, 0, 0, 0, 0, 0, 1, 2, 0, 192, 0, 2, 1][..], &[0; 12]].concat();
    let none = [&[0, 0, 0, 0, 0, 0, 1, 3][..], &[0; 17]].concat();
    let v6 = [&[0x80, 0, 0, 0, 0, 0, 1, 4, 1, 0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1]].concat();
    let ring = [[vec![0; 25], vec![0; 25]], [v4.clone(), vec![0; 25]], [v4, none.clone()], [v6, none]];
    for (number, (rows, (packet, bytes))) in ring.iter().zip(trace.iter()).enumerate() {
        let n = number as u8;
        let outer = [2, 0x4d, 0x52, 0, 0, n % 3, 2, 0x4d, 0x52, 0xff, 0, 0, 0x88, 0xb5];
        let trailer = [1, 0, 0, 2, 0, 25, 0, n % 2, 0, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, 0, 0, 0, 1, 2 + n];
        let rest = [0, 0, 0, 1, 0, 0, 0, packet.wire_len as u8];
        let expected = [&outer[..], &rows.concat(), &trailer, &rest, bytes].concat();
        assert_eq!(frames.bytes(number), expected, "packet {number}");
    }
    let bare = sequenced(&ddos(), &trace, 3, Outer::None).expect("times are early");
    assert!((0..4).all(|number| bare.bytes(number) == &frames.bytes(number)[14..]));
    assert_eq!((bare.packets()[0].link, frames.packets()[0].link), (LinkType::Other(147), LinkType::Ethernet));
    assert_eq!(frames.packets()[3].wire_len, trace.packets()[3].wire_len + 14 + 50 + 32);
}

#[test]
fn a_packet_carries_the_latest_records_oldest_first() {
    let frames = sequenced(&ddos(), &four(), 3, Outer::None).expect("times are early");
    let shape = Shape::of::<ddos::Ddos>(3);
    let numbers = |number: usize| {
        let carried = parse(LinkType::Other(147), frames.bytes(number), shape).expect("a sequencer wrote it");
        assert_eq!((carried.seq, carried.core(), carried.check_rows()), (Seq(number as u64), number % 3, Ok(())));
        carried.history().map(|(seq, row)| (seq.0, row[7])).collect::<Vec<_>>()
    };
    assert_eq!([0, 1, 2, 3].map(numbers), [vec![], vec![(0, 2)], vec![(0, 2), (1, 3)], vec![(1, 3), (2, 4)]]);
}

#[test]
fn filling_behind_a_short_packet_is_left_off() {
    let frames = sequenced(&ddos(), &four(), 2, Outer::Ethernet).expect("times are early");
    let padded = [frames.bytes(1), &[0; 9]].concat();
    let carried = parse(LinkType::Ethernet, &padded, Shape::of::<ddos::Ddos>(2)).expect("it is whole");
    assert_eq!(carried.bytes, Build::arp());
}

#[test]
fn times_that_a_row_cannot_tell_are_refused() {
    let late = Packet { time: Nanos(TAKES_STEP), ..four().packets()[0] };
    let mut sequencer = Sequencer::new(ddos(), 2, Outer::None);
    let error = sequencer.sequence(&late, &[0; 60], &mut Vec::new()).expect_err("it is the year 2262");
    assert!(error.to_string().contains("packet 1") && error.to_string().contains("2262"), "{error}");
    assert_eq!(sequencer.next(), Seq(0));
}

/// What replicas of ddos on 3 cores say of these frames, and how many packets went out before.
fn refusal(frames: &Trace) -> (usize, String) {
    let (came, failure) = replicas(&ddos(), frames, 3, &options(16));
    assert!(came.counters.add_up());
    match failure {
        Some(EngineError::Port(PortError::Unfit(error))) => (came.sent.len(), error.to_string()),
        other => panic!("it ended with {other:?}"),
    }
}

fn edited(edit: impl Fn(usize, &mut Vec<u8>)) -> Trace {
    let mut changed = Trace::new();
    let frames = sequenced(&ddos(), &four(), 3, Outer::Ethernet).expect("times are early");
    for (number, (packet, bytes)) in frames.iter().enumerate() {
        let mut bytes = bytes.to_vec();
        edit(number, &mut bytes);
        changed.push(*packet, &bytes);
    }
    changed
}

#[test]
fn packets_out_of_order_are_told_apart() {
    let frames = edited(|_, _| ());
    let pick = |order: &[usize]| order.iter().map(|&at| (&frames.packets()[at], frames.bytes(at))).collect::<Trace>();
    for (order, sent, words) in [
        (&[0, 2, 3][..], 1, "packet 2: number 1 is missing ahead of number 2; give --loss-recovery on"),
        (&[0, 3], 1, "packet 2: numbers 1 to 2 (2 packets) are missing ahead of number 3"),
        (&[2, 3], 0, "packet 1: numbers 0 to 1 (2 packets) are missing"),
        (&[0, 2, 1, 3], 1, "packet 2: number 2 comes ahead of number 1; cores must get"),
        (&[0, 1, 1, 2], 2, "packet 3: number 1 comes a second time; remove"),
        (&[0, 1, 2, 3, 0], 4, "packet 5: number 0 comes a second time"),
    ] {
        let (out, error) = refusal(&pick(order));
        assert!(out == sent && error.contains(words), "{order:?}: {out} sent, {error}");
    }
}

type Edit = &'static dyn Fn(&mut Vec<u8>);

#[test]
fn damage_is_told_and_nothing_behind_it_is_taken() {
    // 14 of outer header, two rows of 25, then the trailer at 64.
    let edits: [(usize, Edit, &str); 15] = [
        (1, &|frame| frame.truncate(70), "packet 2: it is cut short: it has 70 bytes, and 96"),
        (1, &|frame| frame.truncate(9), "it is cut short: it has 9 bytes"),
        (0, &|frame| frame.clear(), "packet 1: it is cut short: it has 0 bytes"),
        (2, &|frame| frame[12] = 8, "its EtherType is 0x08b5, not 0x88b5"),
        (2, &|frame| frame[7] = 0, "Ethernet addresses"),
        (3, &|frame| frame[5] = 1, "number 3 is not for core 1"),
        (1, &|frame| frame[64] = 2, "version 2, but this program reads version 1"),
        (1, &|frame| frame[65] = 4, "unknown flags (0x04)"),
        (1, &|frame| frame[67] = 9, "no trailer after 2 rows of 25 bytes"),
        (1, &|frame| frame[71] = 0, "number 1 can't have its oldest record in row 0"),
        (1, &|frame| frame[80] = 0x80, "after the year 2262"),
        (3, &|frame| frame[86] = 0, "number 3 is earlier than the packet before it"),
        (2, &|frame| frame[14 + 25 + 7] = 9, "the record of number 1 has a time out of order"),
        (2, &|frame| frame[14 + 25 + 20] = 9, "number 1 takes no step, but has a record"),
        (1, &|frame| frame[14 + 25 + 24] = 9, "carries more records than there were packets"),
    ];
    for (number, edit, words) in edits {
        let frames = edited(|at, frame| {
            if at == number {
                edit(frame)
            }
        });
        let (sent, error) = refusal(&frames);
        assert!(sent == number && error.contains(words), "{sent} sent, {error}; not {words}");
    }
    // A row that some packet could have made, but not this one; and a packet that is no more what the next one's row says.
    let forged = edited(|at, frame| {
        if at == 2 {
            frame[14 + 12] = 77
        }
    });
    assert!(refusal(&forged).1.contains("packet 3: its record of number 0 is not what ddos, configured as here"));
    let changed = edited(|at, frame| {
        if at == 2 {
            frame[96 + 14 + 8 + 15] = 77
        }
    });
    let (sent, error) = refusal(&changed);
    assert!(sent == 3 && error.contains("packet 4: its record of number 2 is not what"), "{error}");
}

#[test]
fn another_function_configuration_or_number_of_cores_is_told() {
    let trace = four();
    let said = |frames: Trace| refusal(&frames).1;
    let tracker = Arc::new(conntrack::Conntrack::new(conntrack::Config::default()));
    let other = said(sequenced(&tracker, &trace, 3, Outer::None).expect("times are early"));
    assert!(other.contains("another function") && other.contains("68 bytes, not 25"), "{other}");
    let cores = said(sequenced(&ddos(), &trace, 5, Outer::Ethernet).expect("times are early"));
    assert!(cores.contains("sequenced for 5 cores, not for 3; give --cores 5"), "{cores}");
    assert!(said(trace.clone()).contains("0x0800"));
    let raw = Frames::new(LinkType::RawIp);
    let mut raw = raw;
    raw.build(Nanos(1), &Build::udp("192.0.2.1:7", "10.0.0.1:9").link(LinkType::RawIp));
    assert!(said(raw.trace()).contains("raw IP"));
    // The same bytes, another meaning.
    let per = |per: &str| Arc::new(policer::Policer::new(&toml::from_str(&format!("per = \"{per}\"")).unwrap()));
    let frames = sequenced(&per("source"), &trace, 3, Outer::None).expect("times are early");
    let (_, failure) = replicas(&per("five-tuple"), &frames, 3, &options(16));
    assert!(failure.expect("they differ").to_string().contains("another function or configuration"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_taken_apart_or_refused(bytes in vec(prop_oneof![Just(0_u8), any::<u8>()], 0..400)) {
        testkit::fuzz::carrier(&bytes);
    }

    #[test]
    fn any_change_to_a_sequenced_packet_is_taken_or_refused(
        number in 0..4_usize, at in 0..180_usize, bits in 1..=255_u8, cut in 0..180_usize,
    ) {
        let frames = edited(|index, frame| if index == number {
            let len = frame.len();
            frame[at % len] ^= bits;
        });
        let (came, failure) = replicas(&ddos(), &frames, 3, &options(16));
        prop_assert!(came.counters.add_up());
        // Where packets may be missing, a packet that is renumbered is one behind a gap. Nothing panics.
        let (lenient, _) = replicas(&ddos(), &frames, 3, &Options { link: Some(Link::default()), ..options(16) });
        prop_assert!(lenient.counters.add_up() && lenient.sent.len() >= came.sent.len());
        // Ahead of the packet itself nothing can be changed without notice, but the interface, the link and the length; and
        // the last packet's time, which no row repeats.
        if at < 88 && (at < 80 || number < 3) {
            prop_assert!(failure.is_some(), "byte {at} of {number} by {bits:#04x}");
        }
        let shape = Shape::of::<ddos::Ddos>(3);
        let bytes = frames.bytes(number);
        let _ = parse(LinkType::Ethernet, &bytes[..cut.min(bytes.len())], shape);
    }
}
