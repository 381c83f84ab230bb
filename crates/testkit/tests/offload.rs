//! Offload, held to the same function without it: packet by packet the same fate, in the end the same counters and flows, whatever comes
//! back from the card and when.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Control, Counters, EngineKind, Inspect, Mail, Offload, OffloadCounts, Options, drive, private_instance};
use functions::Catalogued;
use functions::conntrack::Conntrack;
use functions::firewall::Firewall;
use millrace_testkit::{Rng, Traffic, captures};
use nf::{Flow, Function};
use packet::{LinkType, Nanos, Seq};
use port::{
    Batch, CardLimits, Fate, Opened, Order, Packet, Port, PortError, Receive, Received, Stream, Trace, Transmit,
};

/// A port in memory that delivers bursts of random sizes, and keeps each packet's fate and bytes.
struct Memo {
    trace: Trace,
    next: usize,
    rng: Rng,
    fates: Vec<(Seq, Fate, Vec<u8>)>,
}

struct Input<'a> {
    trace: &'a Trace,
    next: &'a mut usize,
    rng: &'a mut Rng,
}

struct Output<'a>(&'a mut Vec<(Seq, Fate, Vec<u8>)>);

impl Port for Memo {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        let Self { trace, next, rng, fates } = self;
        let (input, output) = (Box::new(Input { trace, next, rng }), Box::new(Output(fates)));
        Ok(Opened::Stream(Stream { input, output, order: Order::All }))
    }
}

impl Receive for Input<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let most = if self.rng.chance(0.3) { 3 } else { 100 };
        let count = 1 + self.rng.below(most) as usize;
        for (packet, bytes) in self.trace.iter().skip(*self.next).take(count) {
            batch.push(Packet { seq: Seq(*self.next as u64), fate: Fate::Pending, ..*packet }, bytes);
            *self.next += 1;
        }
        Ok(if batch.is_empty() { Received::End } else { Received::Packets })
    }
}

impl Transmit for Output<'_> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            self.0.push((packet.seq, packet.fate, bytes.to_vec()));
        }
        Ok(())
    }
}

/// What is left of a run: fates and flows, whose form is text, and counters.
struct Left {
    fates: Vec<(Seq, Fate, Vec<u8>)>,
    flows: BTreeMap<String, String>,
    counters: Counters,
    report: String,
    card: OffloadCounts,
}

/// Runs the parts of a trace one after another, with the state that the part before has left.
fn go<N: Function>(nf: N, cores: usize, parts: &[Trace], offload: Option<Offload>, seed: u64) -> Left {
    let kind = if cores == 1 { EngineKind::Sequential } else { EngineKind::Rss };
    let options = Options { offload, seed: 7, ..Options::default() };
    let mut instance = private_instance(kind, Arc::new(nf), cores, &options);
    let mut left = Left {
        fates: Vec::new(),
        flows: BTreeMap::new(),
        counters: Counters::default(),
        report: String::new(),
        card: OffloadCounts::default(),
    };
    for part in parts {
        let mut port = Memo { trace: part.clone(), next: 0, rng: Rng::new(seed), fates: Vec::new() };
        let outcome = drive(&mut instance, &options, &mut port, &Control::default(), &Mail::new(cores));
        let outcome = outcome.expect("the engine takes it");
        assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
        let mut fates = port.fates;
        fates.sort_by_key(|(seq, ..)| *seq);
        left.fates.append(&mut fates);
        left.counters = outcome.counters;
        left.report = format!("{:?}", outcome.report);
        if let Some(card) = outcome.offload {
            let entries = offload.expect("there is a card").card.entries.max(cores) as u64;
            assert!(card.entries_max <= entries, "{card:?}");
            left.card.add(&card);
        }
        let words = |flow: &N::Flow| {
            let mut words = vec![0; N::Flow::WORDS.unwrap_or(0)];
            flow.write_words(&mut words);
            words
        };
        left.flows = (instance.flows(outcome.last).into_iter())
            .map(|state| (format!("{:?}", state.key), format!("{:?} until {:?}", words(&state.flow), state.deadline)))
            .collect();
    }
    left
}

/// Runs a function with and without a card, and compares. Returns what the card did.
fn compare<N: Function + Catalogued>(
    config: &str,
    cores: usize,
    parts: &[Trace],
    offload: Offload,
    what: &str,
) -> OffloadCounts {
    let make = || N::from_config(toml::from_str::<N::Config>(config).expect("the test's own configuration"));
    let without = go(make(), cores, parts, None, 1);
    let with = go(make(), cores, parts, Some(offload), 2);
    let card = with.card;
    assert_eq!(card.inserted, card.back(), "all that went in came back: {card:?}");
    if without.counters.flows.was_full() || with.counters.flows.was_full() {
        // Which flow makes room in a full table depends on how far ageing has come, which differs by a few flows.
        assert_eq!(without.counters.received, with.counters.received, "{what}");
        assert!(with.counters.add_up(), "{what}");
        return card;
    }
    for (index, (one, other)) in without.fates.iter().zip(&with.fates).enumerate() {
        assert_eq!((one.0, one.1), (other.0, other.1), "packet {index} of {what}: {offload:?}");
        assert_eq!(one.2, other.2, "the bytes of packet {index} of {what}");
    }
    assert_eq!(without.fates.len(), with.fates.len(), "{what}");
    assert_eq!(without.flows, with.flows, "the flows of {what}: {offload:?}");
    assert_eq!(without.counters, with.counters, "{what}: {offload:?}");
    assert_eq!(without.report, with.report, "{what}");
    card
}

/// Returns so many packets of the traffic, with random gaps.
fn trace_of(traffic: &mut Traffic, packets: usize, now: &mut Nanos) -> Trace {
    let mut trace = Trace::new();
    for number in 0..packets {
        let gap = match traffic.rng().below(1000) {
            0..4 => Nanos::from_secs(1 + traffic.rng().below(60)),
            4..10 => Nanos::from_millis(traffic.rng().below(9_000)),
            10..300 => Nanos::from_millis(traffic.rng().below(60)),
            300..700 => Nanos(0),
            _ => Nanos(traffic.rng().below(1_000_000)),
        };
        *now = *now + gap;
        let (bytes, interface) = traffic.frame();
        let packet = Packet {
            seq: Seq(number as u64),
            time: *now,
            offset: 0,
            len: 0,
            wire_len: bytes.len() as u32,
            interface,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        trace.push(packet, &bytes);
    }
    trace
}

/// Short timeouts, so that they pass.
const TIMEOUTS: &str =
    "[timeouts]\ntcp_established = 20\ntcp_unacknowledged = 6\nudp_stream = 9\nudp = 5\ntcp_retransmitted = 4\n";

fn card(rng: &mut Rng) -> Offload {
    let pick = |rng: &mut Rng, from: &[u64]| from[rng.below(from.len() as u64) as usize];
    let insertions = pick(rng, &[0, 0, 1, 10, 1000]);
    Offload {
        threshold: pick(rng, &[1, 1, 2, 5, 30]) as u32,
        rate_min: pick(rng, &[0, 0, 0, 10]),
        card: CardLimits {
            entries: pick(rng, &[1, 2, 4, 64]) as usize,
            insertions: (insertions > 0).then_some(insertions),
            evict_one_in: pick(rng, &[0, 0, 3, 50]) as u32,
        },
    }
}

#[test]
fn a_function_behind_a_card_does_what_it_does_without() {
    let rounds = if std::env::var_os("MILLRACE_DEEP").is_some() { 3_000 } else { 120 };
    let mut all = OffloadCounts::default();
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let offload = card(&mut rng);
        let flows = if rng.chance(0.3) { 90 + rng.below(200) } else { 4096 };
        let cores = 1 + rng.below(3) as usize;
        let is_firewall = rng.chance(0.5);
        let mut traffic = Traffic::new(rng);
        let mut now = Nanos::from_secs(1_700_000_000);
        let parts: Vec<Trace> = (0..1 + seed % 3).map(|_| trace_of(&mut traffic, 1500, &mut now)).collect();
        let what = format!("seed {seed}, {cores} cores, {flows} flows, firewall: {is_firewall}");
        let sizes = format!("flows = {flows}\nflows_v6 = 512\n");
        let counts = if is_firewall {
            compare::<Firewall>(&format!("{sizes}loose = true\n{TIMEOUTS}"), cores, &parts, offload, &what)
        } else {
            let kind = ["", "liberal = true\n", "invalid = \"forward\"\n"][seed as usize % 3];
            compare::<Conntrack>(&format!("{sizes}{kind}{TIMEOUTS}"), cores, &parts, offload, &what)
        };
        all.add(&counts);
    }
    let OffloadCounts {
        packets,
        undecided,
        refused_full,
        refused_rate,
        back_for_packet,
        back_ended,
        evicted,
        recalled,
        ..
    } = all;
    assert!(packets > 10_000, "the card has hardly taken anything: {all:?}");
    let happened = [undecided, refused_full, refused_rate, back_for_packet, back_ended, evicted, recalled];
    assert!(happened.iter().all(|times| *times > 20), "something hardly happened: {all:?}");
}

#[test]
fn captures_behind_a_card() {
    let Some(folder) = captures::shared() else {
        eprintln!("SKIPPED (no ../shared/traces): captures behind a card");
        return;
    };
    let offload =
        Offload { threshold: 3, rate_min: 0, card: CardLimits { entries: 64, insertions: None, evict_one_in: 1000 } };
    let mut all = OffloadCounts::default();
    for path in ["real", "tcp", "l3", "attack"].iter().flat_map(|name| captures::below(&folder.join(name))) {
        let Some(trace) = captures::read(&path).filter(|trace| !trace.is_empty() && trace.len() < 200_000) else {
            continue;
        };
        let (parts, what) = ([trace.renumbered()], path.display().to_string());
        for config in ["", "loose = true\n"] {
            all.add(&compare::<Firewall>(config, 1, &parts, offload, &what));
        }
        all.add(&compare::<Conntrack>("", 2, &parts, offload, &what));
    }
    assert!(all.packets > 1_000, "hardly anything was taken: {all:?}");
}
