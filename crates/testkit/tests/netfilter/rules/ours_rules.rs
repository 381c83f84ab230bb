//! Our function as a runner of rule sets.

use std::sync::Arc;

use engine::{EngineKind, Options};
use iptables::RuleSet;
use lab::conformance::{Plan, verify};
use millrace_testkit::Driver;
use nf::{NetworkFunction, PortId, Reply, Verdict};
use packet::{Headers, LinkType, Nanos, Seq};
use port::{Fate, Packet, Trace};

use super::case::Rules;
use super::layout::Layout;
use super::runner::{Outcome, RuleRunner};
use crate::gather::{Gatherer, Whole};

/// The drop reason of packets that have passed INPUT.
const TO_ROUTER: &str = "to-router";

/// More connections than a case has packets.
const FLOWS_MAX: i64 = 4_096;

/// The function `rules` on one core.
pub(crate) struct OursRules {
    layout: Layout,
    driver: Option<Driver<functions::rules::Rules>>,
    fragments: Gatherer,
    is_v6: bool,
    /// Packets injected since then, fragments too.
    injected: u64,
    /// All packets since the rule set was loaded, with datagrams in place of fragments.
    trace: Trace,
}

impl OursRules {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
            driver: None,
            fragments: Gatherer::new(),
            is_v6: false,
            injected: 0,
            trace: Trace::new(),
        }
    }
}

impl RuleRunner for OursRules {
    fn load(&mut self, rules: &Rules) -> Result<(), String> {
        let configuration = configuration(rules, &self.layout);
        let config: functions::rules::Config = toml::from_str(&configuration).map_err(|error| error.to_string())?;
        self.driver = Some(Driver::new(functions::rules::Rules::new(&config)));
        self.fragments = Gatherer::new();
        self.is_v6 = rules.family == iptables::Family::V6;
        (self.trace, self.injected) = (Trace::new(), 0);
        Ok(())
    }

    fn inject(&mut self, from: usize, packet: &[u8]) -> Outcome {
        let driver = self.driver.as_mut().expect("a rule set is loaded");
        let frame = frame(from, packet);
        self.injected += 1;
        let time = Nanos::from_secs(1_000_000) + Nanos::from_micros(self.injected);
        let whole = match driver.function().wants_whole_datagrams() {
            true => self.fragments.take(time, frame),
            false => Some(Whole::new(frame)),
        };
        let Some(mut whole) = whole else { return Outcome::default() };
        let frame = &mut whole.frame;
        let number = self.trace.len() as u64;
        let packet = Packet {
            seq: Seq(number),
            time,
            offset: 0,
            len: 0,
            wire_len: frame.len() as u32,
            interface: from as u16,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        self.trace.push(packet, frame);
        let parsed = packet::parse(LinkType::Ethernet, frame, frame.len() as u32, from as u16);
        let verdict = driver.packet(time, parsed.as_ref(), frame);
        let mut outcome = Outcome::default();
        let Ok(headers) = parsed else { return outcome };
        match verdict {
            Verdict::Forward(port) => outcome.left.extend(left(port, whole)),
            Verdict::Rewrite { port, rewrite } => {
                rewrite.apply(frame, &headers);
                outcome.left.extend(left(port, whole));
            }
            Verdict::Reply(reply) => {
                outcome.left.extend(answered(reply, whole.frame, &headers).map(|answer| (from, answer)));
            }
            Verdict::Drop(reason) => {
                outcome.delivered =
                    usize::from(reason.name(<functions::rules::Rules>::DESCRIPTION.drop_reasons) == TO_ROUTER);
            }
            Verdict::Copy { .. } | Verdict::Transform { .. } => panic!("a {verdict:?} was not asked for"),
        }
        outcome
    }

    fn engines_agree(&self) -> Result<(), String> {
        self.driver.as_ref().map_or(Ok(()), |driver| engines_agree(driver.function(), &self.trace))
    }

    fn counters(&mut self) -> RuleSet {
        let driver = self.driver.as_ref().expect("a rule set is loaded");
        let [v4, v6] = driver.function().counted(&driver.counts().totals());
        if self.is_v6 { v6 } else { v4 }.expect("the rule set is loaded")
    }
}

/// Compares every engine that takes the rule set with `sequential`, over the packets since it was loaded.
fn engines_agree(function: &functions::rules::Rules, trace: &Trace) -> Result<(), String> {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=3,
        seeds: 0..3,
        threads: false,
        options: Options::default(),
    };
    let verified = verify(&Arc::new(function.clone()), trace, &plan, &mut |_, _| {});
    match verified.mismatch {
        Some(mismatch) => Err(format!("an engine doesn't do as `sequential`: {mismatch:?}")),
        None => shortcuts_agree(function, trace),
    }
}

/// Asks for every step, so that no short cut is taken and no chain is classified.
#[derive(Clone, Copy)]
struct StepByStep;

impl functions::rules::trace::Trace for StepByStep {
    const ON: bool = true;

    fn step(&self, _: functions::rules::trace::Step, _: &functions::rules::view::View) {}
}

/// Compares the rules with themselves, asked one by one. The packets come three times, so that short cuts are taken.
fn shortcuts_agree(function: &functions::rules::Rules, trace: &Trace) -> Result<(), String> {
    let (mut short, mut long) = (Driver::new(function.clone()), Driver::new(function.traced(StepByStep)));
    for pass in 0..3 {
        let later = Nanos(pass * (trace.duration().0 + 1_000_000));
        for (packet, bytes) in trace.iter() {
            let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
            let time = packet.time + later;
            let verdict = short.packet(time, parsed.as_ref(), bytes);
            let asked = long.packet(time, parsed.as_ref(), bytes);
            if verdict != asked {
                return Err(format!("packet {} the short way: {verdict:?}, step by step: {asked:?}", packet.seq));
            }
        }
    }
    let totals = [short.counts().totals(), long.counts().totals()];
    if totals[0] == totals[1] { Ok(()) } else { Err(format!("the short way counts otherwise: {totals:?}")) }
}

/// The packets that leave, each with the number of its interface.
fn left(port: PortId, whole: Whole) -> impl Iterator<Item = (usize, Vec<u8>)> {
    whole.leave().into_iter().map(move |packet| (usize::from(port.0), packet))
}

/// The frame as it comes in by the interface.
fn frame(from: usize, packet: &[u8]) -> Vec<u8> {
    let (near, far) = (millrace_testkit::netns::KernelRouter::mac, millrace_testkit::netns::KernelRouter::far_mac);
    let mut frame = [near(from), far(from)].concat();
    frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}

/// Builds the answer to a frame, from its IP header on.
fn answered(reply: Reply, mut frame: Vec<u8>, headers: &Headers) -> Option<Vec<u8>> {
    match reply {
        Reply::TcpReset => {
            let len = packet::tcp_reset(&mut frame, headers)?;
            Some(frame[14..len].to_vec())
        }
        Reply::IcmpError(error) => {
            let mut answer = vec![0; packet::ICMP_ERROR_MAX + 64];
            let len = packet::icmp_error(&frame, headers, error, &mut answer)?;
            Some(answer[14..len].to_vec())
        }
    }
}

/// The configuration of our function in TOML.
pub(crate) fn configuration(rules: &Rules, layout: &Layout) -> String {
    let mut table = toml::Table::new();
    let key = if rules.family == iptables::Family::V6 { "rules_v6" } else { "rules" };
    table.insert(key.to_owned(), toml::Value::String(rules.text.clone()));
    if !rules.sets.is_empty() {
        table.insert("sets".to_owned(), toml::Value::String(rules.sets.clone()));
    }
    for key in ["flows", "flows_v6"] {
        table.insert(key.to_owned(), toml::Value::Integer(FLOWS_MAX));
    }
    table.insert("router".to_owned(), toml::Value::Table(layout.to_toml()));
    table.to_string()
}
