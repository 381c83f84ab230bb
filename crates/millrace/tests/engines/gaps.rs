//! Sequenced packets of which some are lost on the way: what comes gets the verdict, and the replicas the state, that
//! `sequential` comes to over the packets whose record reached anyone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::carrier::Outer;
use engine::{EngineError, EngineKind, Inspect, Link, Options, Recovery, private_instance, resolve};
use functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use nf::Function;
use packet::Seq;
use port::{Batch, Fate, Packet, PortError, Sides, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use synth::{Params, Profile};
use testkit::Synth;
use testkit::carrier::{Came, replicas, sequenced};

fn options(flows_max: usize) -> Options {
    Options { flows_max: Some(flows_max), pin: false, link: Some(Link::default()), ..Options::default() }
}

fn traffic(packets: u64, seed: u64) -> Trace {
    let params = Params { packets, seed, ipv6_percent: 20, ..Params::default() };
    Synth::new(Profile::UniversityDc, &params).expect("the parameters are in range").trace()
}

/// The sequenced packets that are left when these are lost.
fn left(frames: &Trace, lost: &BTreeSet<u64>) -> Trace {
    frames.iter().enumerate().filter(|(number, _)| !lost.contains(&(*number as u64))).map(|(_, frame)| frame).collect()
}

/// Replicas over what is left of a trace, held against `sequential`; what recovery came to is what the losses make of it.
fn hold<N: Function>(nf: N, trace: &Trace, cores: usize, lost: &BTreeSet<u64>, options: &Options) -> Came {
    let (nf, name) = (Arc::new(nf), format!("{} on {cores} cores", N::DESCRIPTION.name));
    let frames = sequenced(&nf, trace, cores, Outer::Ethernet).expect("times are early");
    let (came, failure) = replicas(&nf, &left(&frames, lost), cores, options);
    assert!(failure.is_none(), "{name}: {failure:?}");

    // Packets that were lost behind the last that came are not known of.
    let end = (0..trace.len() as u64).rev().find(|seq| !lost.contains(seq)).map_or(0, |last| last + 1);
    let reaches = |seq: u64| (seq..end.min(seq + cores as u64)).any(|carrier| !lost.contains(&carrier));
    let mut received = Batch::default();
    for seq in (0..end).filter(|seq| reaches(*seq)) {
        let packet = Packet { seq: Seq(seq), ..trace.packets()[seq as usize] };
        received.push(packet, trace.bytes(seq as usize));
    }
    let mut oracle = private_instance(EngineKind::Sequential, nf, 1, options);
    oracle.workers[0].process(&mut received);
    resolve(Sides::One, &mut received);
    let mut expected = BTreeMap::new();
    for (index, packet) in received.packets().iter().enumerate().filter(|(_, packet)| !lost.contains(&packet.seq.0)) {
        if let Fate::Transmit(port) = packet.fate {
            expected.insert(packet.seq.0, (port, received.bytes(index).to_vec()));
        }
    }
    let got: BTreeMap<u64, _> = came.sent.iter().map(|sent| (sent.seq.0, (sent.port, sent.bytes.clone()))).collect();
    assert!(got == expected, "{name}: other packets went out");
    assert!(came.sent.is_sorted_by_key(|sent| sent.seq), "{name}: in their order");
    assert!(came.counters.add_up(), "{name}: {:?}", came.counters);
    assert_eq!(came.counters.received, (0..end).filter(|seq| !lost.contains(seq)).count() as u64, "{name}");
    let now = came.last;
    let flows = oracle.flows(now).len();
    assert_eq!((came.alive, came.high_water), (flows, oracle.high_water()), "{name}");
    assert_eq!(came.counters.flows, oracle.flow_counters_at(now), "{name}");
    let Recovery { tally, fenced } = came.recovery.clone().expect("there was a link");
    assert!(fenced.is_empty());
    assert_eq!(tally.lost, (0..end).filter(|seq| lost.contains(seq)).count() as u64, "{name}");
    assert_eq!(tally.nowhere, (0..end).filter(|seq| !reaches(*seq)).count() as u64, "{name}");
    came
}

/// The seven functions of the backbone.
fn hold_all(trace: &Trace, cores: usize, lost: &BTreeSet<u64>, options: &Options) {
    hold(ddos::Ddos::new(&toml::from_str("threshold = 40").unwrap()), trace, cores, lost, options);
    hold(heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), trace, cores, lost, options);
    hold(
        policer::Policer::new(&toml::from_str("rate = \"1Mbit\"\nburst = 9000").unwrap()),
        trace,
        cores,
        lost,
        options,
    );
    hold(port_knock::PortKnock::new(&port_knock::Config::default()), trace, cores, lost, options);
    hold(conntrack::Conntrack::new(conntrack::Config::default()), trace, cores, lost, options);
    hold(firewall::Firewall::new(toml::from_str("reject = true").unwrap()), trace, cores, lost, options);
    let pools = toml::from_str("mappings = 512\nsessions = 512\nports = \"1024-3071\"").unwrap();
    hold(nat::Nat::new(pools), trace, cores, lost, options);
}

/// Packets of so many that are lost each for itself.
fn at_random(packets: u64, ppm: u32, seed: u64) -> BTreeSet<u64> {
    let link = Link { loss_ppm: ppm, seed, ..Link::default() };
    (0..packets).filter(|seq| link.loses(Seq(*seq))).collect()
}

#[test]
fn what_is_lost_at_random_is_recovered() {
    let trace = traffic(1_200, 3);
    for (cores, ppm) in [(2, 10_000), (3, 100_000), (5, 1_000), (7, 100_000), (8, 300_000)] {
        hold_all(&trace, cores, &at_random(1_200, ppm, 9), &options(1_200));
    }
    // Tables that fill up decide alike on every replica.
    hold_all(&trace, 4, &at_random(1_200, 100_000, 5), &options(64));
}

/// But for the end: the last packets' records would have come with packets that follow no more.
#[test]
fn nothing_lost_needs_no_recovery() {
    let tracker = conntrack::Conntrack::new(conntrack::Config::default());
    let came = hold(tracker, &traffic(500, 1), 4, &BTreeSet::new(), &options(500));
    assert_eq!(came.recovery.map(|recovery| recovery.tally.recovered_total()), Some(3 + 2 + 1));
}

/// Whole rounds, more than a core's log holds, the beginning, all of one core.
#[test]
fn what_is_lost_in_stretches_reaches_nobody_or_everybody() {
    let trace = traffic(40_000, 2);
    let short = trace.prefix(1_000);
    for lost in [
        (0..7).collect::<BTreeSet<u64>>(),
        (100..140).collect(),
        (500..503).chain(504..507).collect(),
        (0..1_000).filter(|seq| seq % 4 == 2).collect(),
        (0..1_000).filter(|seq| seq % 4 != 2).collect(),
        (10..999).collect(),
    ] {
        hold_all(&short, 4, &lost, &options(1_000));
    }
    let wide = (1_000..39_000).collect();
    hold(ddos::Ddos::new(&ddos::Config::default()), &trace, 3, &wide, &options(40_000));
}

/// A trace of a few packets whose numbers begin late, as one that was cut out has them.
#[test]
fn numbers_that_begin_late_are_taken_up_to_a_bound() {
    let nf = Arc::new(ddos::Ddos::new(&ddos::Config::default()));
    let frames = sequenced(&nf, &traffic(200, 4), 3, Outer::None).expect("times are early");
    let (came, failure) = replicas(&nf, &frames.iter().skip(150).collect(), 3, &options(200));
    assert!(failure.is_none() && came.counters.received == 50, "{failure:?}");
    // The trailer's number, behind two rows of 25 bytes and eight of its own.
    let mut jumped = Trace::new();
    for (number, (packet, bytes)) in frames.iter().enumerate().take(12) {
        let mut bytes = bytes.to_vec();
        bytes[58 + 3] = if number >= 6 { 0x60 } else { 0 };
        jumped.push(*packet, &bytes);
    }
    let (came, failure) = replicas(&nf, &jumped, 3, &options(200));
    let error = failure.expect("that is no loss").to_string();
    assert!(came.sent.len() == 6 && error.contains("more than a link loses at one place"), "{error}");
    // Many cores would ask each other long.
    let nf = Arc::new(ddos::Ddos::new(&ddos::Config::default()));
    let frames = sequenced(&nf, &traffic(5_000, 4), 64, Outer::None).expect("times are early");
    for (first, taken) in [(2_048, true), (2_049, false)] {
        let (_, failure) = replicas(&nf, &frames.iter().skip(first).collect(), 64, &options(200));
        assert_eq!(failure.is_none(), taken, "{first}: {failure:?}");
    }
}

#[test]
fn what_comes_late_or_twice_or_says_something_else_is_refused() {
    let nf = Arc::new(ddos::Ddos::new(&ddos::Config::default()));
    let frames = sequenced(&nf, &traffic(40, 4), 3, Outer::None).expect("times are early");
    let said = |frames: &Trace| match replicas(&nf, frames, 3, &options(40)) {
        (came, Some(EngineError::Port(PortError::Unfit(error)))) => (came.sent.len(), error.to_string()),
        (_, other) => panic!("it ended with {other:?}"),
    };
    let pick = |order: &[usize]| order.iter().map(|&at| (&frames.packets()[at], frames.bytes(at))).collect::<Trace>();
    let (out, error) = said(&pick(&[0, 1, 4, 5, 3, 6]));
    assert!(out == 4 && error.contains("packet 3: number 4 comes ahead of number 3"), "{out} {error}");
    let (out, error) = said(&pick(&[0, 1, 4, 5, 1, 6]));
    assert!(out == 4 && error.contains("packet 5: number 1 comes a second time"), "{out} {error}");
    // Of a gap before the last one, too.
    let (out, error) = said(&pick(&[0, 1, 4, 5, 8, 9, 3, 10]));
    assert!(out == 6 && error.contains("packet 3: number 4 comes ahead of number 3"), "{out} {error}");
    // Rows that are earlier than what came before the gap: no sequencer writes them. The times' first byte says that there is a step.
    let mut early = pick(&[0, 1, 2, 3, 4, 5]);
    let mut bytes = frames.bytes(9).to_vec();
    bytes[1..8].fill(0);
    bytes[26..33].fill(0);
    early.push(frames.packets()[9], &bytes);
    let (out, error) = said(&early);
    assert!(
        out == 6 && error.contains("packet 7: it is damaged: the record of number 7 has a time out of order"),
        "{error}"
    );
    // Behind a gap: the row of a packet that came, then one that no packet makes, then one that a later packet contradicts. Rows of
    // 25 bytes; number 7 carries those of 5 and 6, 6 first.
    let edited = |at: usize, byte: usize, to: u8, rest: &[usize]| {
        let mut changed = pick(&[0, 1, 2, 3, 4, 5]);
        let mut bytes = frames.bytes(at).to_vec();
        bytes[byte] ^= to;
        changed.push(frames.packets()[at], &bytes);
        rest.iter().for_each(|&at| changed.push(frames.packets()[at], frames.bytes(at)));
        said(&changed)
    };
    let (out, error) = edited(7, 25 + 12, 1, &[]);
    assert!(out == 6 && error.contains("packet 7: its record of number 5 is not what ddos"), "{out} {error}");
    let (out, error) = edited(7, 8, 0x70, &[]);
    assert!(out == 6 && error.contains("packet 7: its record of number 6 is not what ddos"), "{out} {error}");
    let (out, error) = edited(7, 12, 1, &[8]);
    assert!(out == 7 && error.contains("packet 8: its record of number 6 is not what ddos"), "{out} {error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_loss_at_all(
        cores in 2..=8_usize, stretches in vec((0..400_u64, 1..12_u64), 0..20), seed in 0..4_u64,
    ) {
        let lost = stretches.iter().flat_map(|(from, len)| *from..from + len).filter(|seq| *seq < 399).collect();
        let trace = traffic(400, seed);
        hold(conntrack::Conntrack::new(conntrack::Config::default()), &trace, cores, &lost, &options(400));
        hold(port_knock::PortKnock::new(&port_knock::Config::default()), &trace, cores, &lost, &options(400));
    }
}
