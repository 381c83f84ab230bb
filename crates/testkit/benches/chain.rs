//! What a chain takes for a packet beside its functions one behind another, on one core, in nanoseconds: `cargo bench -p millrace-testkit --bench chain`.
//! Rounds are interleaved; figures are medians with the least and the most. Each function behind another gets the packets that
//! that one has let pass. Arguments: `--flows 1000000`, `--rounds 5`, `--only LIST`.
#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::sync::Arc;
use std::time::Instant;

use engine::{EngineKind, Options, private_instance};
use functions::Catalogued;
use functions::chain::{AnyFunction, Chain, LongChain, Make};
use nf::Function;
use port::{Batch, Fate, Packet, Trace};
use synth::{FlowTransport, Params, Profile, Synth};

const BATCH: usize = 256;

/// Functions by name, with their configurations.
fn settings(name: &str, flows: usize) -> String {
    let room = flows + flows / 4;
    match name {
        "nat" => {
            let external: Vec<String> = (1..=32).map(|host| format!("\"203.0.113.{host}\"")).collect();
            format!("external = [{}]\nmappings = {room}\nsessions = {room}", external.join(", "))
        }
        "policer" | "heavy-hitter" => format!("icmp_errors = \"quoted\"\nflows = {room}"),
        _ => format!("flows = {room}"),
    }
}

struct FromText(String);

impl Make for FromText {
    type Error = String;

    fn make<N: Catalogued>(&mut self) -> Result<N, String> {
        toml::from_str::<N::Config>(&self.0).map(N::from_config).map_err(|error| error.to_string())
    }
}

/// Runs a function over a trace, pass after pass.
trait Runs {
    /// Takes one pass; nanoseconds a packet.
    fn pass(&mut self, trace: &Trace) -> f64;
    /// The packets that it lets pass.
    fn passed(&mut self, trace: &Trace) -> Trace;
}

struct Over<P> {
    process: P,
    batch: Batch,
    passes: u64,
}

impl<P: FnMut(&mut Batch)> Over<P> {
    fn each(&mut self, trace: &Trace, mut done: impl FnMut(&Batch)) -> f64 {
        let span = trace.packets()[trace.len() - 1].time.0 - trace.packets()[0].time.0 + 1_000;
        let mut nanos = 0;
        for start in (0..trace.len()).step_by(BATCH) {
            self.batch.clear();
            for index in start..(start + BATCH).min(trace.len()) {
                let packet = trace.packets()[index];
                let time = packet::Nanos(packet.time.0 + self.passes * span);
                self.batch.push(Packet { time, ..packet }, trace.bytes(index));
            }
            let began = Instant::now();
            (self.process)(&mut self.batch);
            nanos += began.elapsed().as_nanos();
            done(&self.batch);
        }
        self.passes += 1;
        nanos as f64 / trace.len() as f64
    }
}

impl<P: FnMut(&mut Batch)> Runs for Over<P> {
    fn pass(&mut self, trace: &Trace) -> f64 {
        self.each(trace, |_| ())
    }

    fn passed(&mut self, trace: &Trace) -> Trace {
        let mut passed = Trace::new();
        self.each(trace, |batch| {
            for (index, packet) in batch.packets().iter().enumerate() {
                if let Fate::Transmit(_) = packet.fate {
                    passed.push(Packet { fate: Fate::default(), ..*packet }, batch.bytes(index));
                }
            }
        });
        passed
    }
}

fn over<N: Function>(nf: N) -> Box<dyn Runs> {
    let options = Options { pin: false, ..Options::default() };
    let mut instance = private_instance(EngineKind::Sequential, Arc::new(nf), 1, &options);
    Box::new(Over {
        process: move |batch: &mut Batch| instance.workers[0].process(batch),
        batch: Batch::default(),
        passes: 0,
    })
}

fn alone(name: &str, flows: usize) -> Box<dyn Runs> {
    let mut text = FromText(settings(name, flows));
    match name {
        "firewall" => over(text.make::<functions::firewall::Firewall>().unwrap()),
        "nat" => over(text.make::<functions::nat::Nat>().unwrap()),
        "conntrack" => over(text.make::<functions::conntrack::Conntrack>().unwrap()),
        "policer" => over(text.make::<functions::policer::Policer>().unwrap()),
        "heavy-hitter" => over(text.make::<functions::heavy_hitter::HeavyHitter>().unwrap()),
        _ => panic!("{name} is not measured here"),
    }
}

fn chained(names: &[&str], flows: usize) -> Box<dyn Runs> {
    let links = || {
        names
            .iter()
            .map(|name| (*name, AnyFunction::named(name, &mut FromText(settings(name, flows))).unwrap().unwrap()))
    };
    match Chain::new(links(), &[]) {
        Ok(chain) => over(chain),
        Err(_) => over(LongChain::new(links(), &[]).unwrap()),
    }
}

fn median(mut of: Vec<f64>) -> (f64, f64, f64) {
    of.sort_by(f64::total_cmp);
    (of[of.len() / 2], of[0], of[of.len() - 1])
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|one| one == name).and_then(|at| arguments.get(at + 1)).cloned();
    let number = |name: &str, otherwise| value(name).map_or(otherwise, |text| text.parse().expect("a number"));
    let (flows, rounds) = (number("--flows", 1_000_000), number("--rounds", 5));
    let only = value("--only").unwrap_or_default();
    let params = Params {
        packets: 2 * flows.max(100_000) as u64,
        flows: Some(flows as u64),
        transport: Some(FlowTransport::Udp),
        // No flow ends between two packets.
        rate_pps: 10_000_000,
        ..Params::default()
    };
    let trace = Synth::new(Profile::Uniform, &params).expect("it is possible").trace();
    println!("{flows} flows, {} packets, {rounds} rounds", trace.len());
    let chains: [&[&str]; 7] = [
        &["firewall"],
        &["firewall", "policer"],
        &["firewall", "nat", "policer"],
        &["nat", "policer"],
        &["conntrack", "firewall", "policer"],
        &["conntrack", "firewall", "policer", "heavy-hitter"],
        &["conntrack", "firewall", "policer", "heavy-hitter", "nat"],
    ];
    for names in chains.iter().filter(|names| only.is_empty() || names.join(",") == only) {
        let mut whole = chained(names, flows);
        let mut parts: Vec<(Box<dyn Runs>, Trace)> = Vec::new();
        let mut input = trace.clone();
        for name in *names {
            let mut one = alone(name, flows);
            let passed = one.passed(&input);
            parts.push((one, std::mem::replace(&mut input, passed)));
        }
        whole.pass(&trace);
        let (mut combined, mut apart) = (Vec::new(), vec![Vec::new(); parts.len()]);
        for _ in 0..rounds {
            combined.push(whole.pass(&trace));
            for ((one, input), taken) in parts.iter_mut().zip(&mut apart) {
                taken.push(one.pass(input) * input.len() as f64 / trace.len() as f64);
            }
        }
        let sums = (0..rounds).map(|round| apart.iter().map(|taken| taken[round]).sum()).collect();
        let ratios = (0..rounds)
            .map(|round| combined[round] / apart.iter().map(|taken: &Vec<f64>| taken[round]).sum::<f64>())
            .collect();
        let shown = |(median, least, most): (f64, f64, f64)| format!("{median:6.1} ({least:.1} to {most:.1})");
        let each: Vec<String> = apart.iter().map(|taken| format!("{:.0}", median(taken.clone()).0)).collect();
        let (ratio, least, most) = median(ratios);
        println!(
            "{:55} combined {}  apart {} = {}  ratio {ratio:.2} ({least:.2} to {most:.2})",
            names.join(","),
            shown(median(combined)),
            shown(median(sums)),
            each.join(" + ")
        );
    }
}
