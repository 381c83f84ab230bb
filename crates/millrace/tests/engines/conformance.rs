//! Every function under every engine that takes it, over real captures and synthesised floods, held against `sequential`.
//! A sample by default; `MILLRACE_DEEP=1` takes every shared capture that parses, up to 20,000 packets of each, and 20 seeds.
//! `MILLRACE_SEEDS` says how many seeds, of the sample as well.
#![allow(clippy::print_stdout)]

use std::cmp::Reverse;
use std::fs;
use std::num::NonZero;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use engine::{EngineKind, Options};
use functions::{Catalogued, Visitor, ddos, heavy_hitter, port_knock};
use lab::conformance::{Plan, verify};
use nf::Function;
use packet::{LinkType, Seq};
use port::{Fate, Packet, Trace};
use synth::{FlowTransport, Params, Profile};
use testkit::{Synth, captures};

/// A trace with the name that a failure is reported under.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

#[test]
fn every_function_under_every_engine_over_synthesised_traffic() {
    let packets = if deep() { 20_000 } else { 1_500 };
    for profile in Profile::ALL {
        let params = Params { packets, seed: 3, ipv6_percent: 20, ..Params::default() };
        let subject = Subject { name: format!("synth {profile}"), trace: synthesised(profile, &params) };
        hold(&subject, seeds());
    }
}

#[test]
fn every_function_under_every_engine_over_shared_captures() {
    let Some(folder) = captures::shared() else {
        println!("SKIPPED (no ../shared/traces)");
        return;
    };
    let mut captures = captures::below(&folder);
    if !deep() {
        captures = stratified(captures);
    }
    // The largest first, and each function by itself, so that no thread is left alone with much at the end.
    captures.sort_by_key(|path| Reverse(fs::metadata(path).map_or(0, |about| about.len())));
    let functions = functions();
    let pieces = captures.len() * functions.len();
    let [next, done, failed, taken, packets] = [0; 5].map(AtomicUsize::new);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    // ORDERING: Relaxed, here and below. Counts; the scope's end orders them before they are read.
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = captures.get(piece / functions.len()) else { break };
                    let Some(mut subject) = read(path) else { continue };
                    if subject.trace.len() > PACKETS_MAX {
                        subject.trace = subject.trace.prefix(PACKETS_MAX);
                    }
                    if piece % functions.len() == 0 {
                        taken.fetch_add(1, Ordering::Relaxed);
                        packets.fetch_add(subject.trace.len(), Ordering::Relaxed);
                    }
                    // What differs is printed, and the rest is looked at all the same.
                    if catch_unwind(|| functions[piece % functions.len()](&subject, seeds())).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done <= 64 || done.is_multiple_of(1_000) {
                        println!("AGREE {done} of {pieces} pieces, the last of {}", subject.name);
                    }
                }
            });
        }
    });
    let (taken, packets) = (taken.into_inner(), packets.into_inner());
    assert_eq!(failed.into_inner(), 0, "pieces that differ, each printed above");
    println!("AGREE {taken} captures with {packets} packets, all");
    assert!(taken > 10, "hardly any capture could be read");
}

/// Of a capture, which may be of hundreds of thousands.
const PACKETS_MAX: usize = 20_000;

#[test]
fn every_function_under_every_engine_over_the_shipped_capture() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/demo.pcap.zst");
    let Subject { name, trace } = read(&path).expect("the shipped capture can be read");
    let trace = if deep() { trace } else { trace.prefix(3_000) };
    hold(&Subject { name, trace }, seeds());
}

/// Where one packet set has the link to itself for long, replicas fold what they missed of it.
#[test]
fn functions_that_fold_under_every_engine_over_long_runs() {
    let few = Params { packets: 1_500, rate_pps: 700, burst: 60.0, ipv6_percent: 20, ..Params::default() };
    for seed in 0..if deep() { 20 } else { 3 } {
        let runs = Params { flows: Some(6), transport: Some(FlowTransport::Udp), seed, ..few.clone() };
        let flood = Params { hosts: Some(2), seed, ..few.clone() };
        for (profile, params) in [(Profile::Uniform, runs), (Profile::SynFlood, flood)] {
            let subject =
                Subject { name: format!("runs, synth {profile}, seed {seed}"), trace: synthesised(profile, &params) };
            // Windows begin anew and flows end in the midst of runs, some flows find no room, and some sources are let in.
            let small = "flows = 3\nflows_v6 = 1\nidle_timeout = 1\n";
            one(&ddos::Ddos::new(&read_config(&format!("threshold = 90\nwindow = 1\n{small}"))), &subject, seeds());
            one(
                &heavy_hitter::HeavyHitter::new(&read_config(&format!("heavy_bytes = 9000\n{small}"))),
                &subject,
                seeds(),
            );
            let port = port_of_first(&subject.trace);
            one(&port_knock::PortKnock::new(&read_config(&format!("ports = [{port}]\n{small}"))), &subject, seeds());
        }
    }
}

/// Whereto the trace's first packet is sent.
fn port_of_first(trace: &Trace) -> u16 {
    let (packet, bytes) = trace.iter().next().expect("there are packets");
    let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface).expect("it is whole");
    headers.five_tuple().expect("it has ports").destination().port
}

/// Runs all functions over the subject.
fn hold(subject: &Subject, seeds: u64) {
    functions().iter().for_each(|function| function(subject, seeds));
}

/// Holds one function over a subject, by so many seeds.
type Hold = fn(&Subject, u64);

/// Every function of the list.
fn functions() -> Vec<Hold> {
    struct All(Vec<Hold>);
    impl Visitor for All {
        fn visit<N: Catalogued>(&mut self) {
            self.0.push(configured::<N>);
        }
    }
    let mut all = All(Vec::new());
    functions::each(&mut all);
    all.0
}

/// Holds a function over the subject, so configured that the trace can exhaust what it has: every replica has pools of its own, and every
/// run makes them anew.
fn configured<N: Catalogued>(subject: &Subject, seeds: u64) {
    let hold = |text: &str, subject: &Subject| one(&N::from_config(read_config(text)), subject, seeds);
    match N::DESCRIPTION.name {
        "load-balancer" => hold(&services_of(&subject.trace), subject),
        "bridge" => {
            let name = format!("{} on two sides", subject.name);
            hold(N::SMALL, &Subject { name, trace: on_two_sides(&subject.trace) });
        }
        _ => hold(N::SMALL, subject),
    }
}

fn read_config<C: serde::de::DeserializeOwned>(text: &str) -> C {
    toml::from_str(text).expect("the test's own configuration")
}

/// Whom the trace's first connections are opened to, as services; whom later ones are, as their backends.
fn services_of(trace: &Trace) -> String {
    let mut servers = Vec::new();
    for (packet, bytes) in trace.iter() {
        let Ok(headers) = packet::parse(packet.link, bytes, packet.wire_len, packet.interface) else { continue };
        let Some(tuple) = headers.five_tuple().filter(|tuple| tuple.protocol() == 6) else { continue };
        let server = tuple.destination();
        let is_new = server.port > 0 && server.port < 1_024 && !servers.contains(&server);
        if is_new && servers.len() < 12 {
            servers.push(server);
        }
    }
    let mut text = String::from("answer_timeout = 1\nidle_timeout = 5\ntransitory_timeout = 2\ntable_size = 251\n");
    for is_v4 in [true, false] {
        let of_family: Vec<_> = servers.iter().filter(|server| server.address.is_ipv4() == is_v4).collect();
        for service in of_family.chunks_exact(3) {
            let [address, one, other] = [0, 1, 2].map(|nth| service[nth].to_string());
            text += &format!("[[services]]\naddress = {address:?}\nbackends = [{one:?}, {other:?}]\n");
        }
    }
    text
}

/// The trace as two interfaces would have seen it, those of a sender mostly by one of them.
fn on_two_sides(trace: &Trace) -> Trace {
    let mut sides = Trace::new();
    for (packet, bytes) in trace.iter() {
        let sender = bytes.get(6..12).unwrap_or_default().iter().fold(0, |sum, byte| sum ^ byte);
        let side = u16::from(sender.count_ones() % 2 == 1) ^ u16::from(packet.seq.0 % 61 == 60);
        sides.push(Packet { interface: side, ..*packet }, bytes);
    }
    sides
}

fn one<N: Function + Clone>(nf: &N, subject: &Subject, seeds: u64) {
    let name = N::DESCRIPTION.name;
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=8,
        // The shorter the trace, the fewer schedules there are to tell apart.
        seeds: 0..seeds,
        threads: subject.trace.len() >= 64,
        options: Options::default(),
    };
    let verified = verify(&Arc::new(nf.clone()), &subject.trace, &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None, "{name} over {}", subject.name);
    for (engine, cores, reason) in &verified.refused {
        let shards =
            matches!(engine, EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Hybrid | EngineKind::Pipeline);
        let shares = N::DESCRIPTION.sharing.is_any();
        let replicates = matches!(engine, EngineKind::Scr | EngineKind::Hybrid);
        let reads = N::DESCRIPTION.sharing.reads_frames();
        assert!(shards && shares && *cores > 1 || replicates && reads, "{name}: {reason}");
    }
}

fn seeds() -> u64 {
    let asked = std::env::var("MILLRACE_SEEDS").ok();
    let asked = asked.map(|seeds| seeds.parse().expect("MILLRACE_SEEDS is a number"));
    asked.unwrap_or(if deep() { 20 } else { 2 })
}

fn deep() -> bool {
    std::env::var_os("MILLRACE_DEEP").is_some()
}

fn synthesised(profile: Profile, params: &Params) -> Trace {
    let mut synth = Synth::new(profile, params).expect("the parameters are in range");
    let mut trace = Trace::new();
    while let Some((time, bytes)) = synth.next_frame() {
        let packet = Packet {
            seq: Seq(trace.len() as u64),
            time,
            offset: 0,
            len: 0,
            wire_len: bytes.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        trace.push(packet, bytes);
    }
    trace
}

/// A capture's packets; those ahead of a defect count, a file that is no capture does not.
pub(crate) fn read(path: &Path) -> Option<Subject> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    captures::read(path).map(|trace| Subject { name, trace })
}

/// Every seventeenth small capture of each folder, so that each kind of traffic is in the sample.
fn stratified(captures: Vec<PathBuf>) -> Vec<PathBuf> {
    let small = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() < 100_000);
    captures.into_iter().filter(small).enumerate().filter(|(index, _)| index % 17 == 5).map(|(_, path)| path).collect()
}
