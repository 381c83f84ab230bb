//! `millrace rules explain`: the way of one packet through the rules, and the counters of all rules.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use functions::rules::Rules;
use functions::rules::trace::{Condition, Step, Trace};
use functions::rules::view::{NO_INTERFACE, View};
use iptables::{Chain, Family, Interface, Located, Network, RuleSet, Table, Target};
use l7::defrag::{Followed, Limits, Policy, follow};
use lab::Driver;
use nf::{NetworkFunction, Reply, Verdict};
use packet::{IcmpError, Rewrite, Seq, protocol};
use port::Trace as Packets;
use serde_json::{Value, json};

use super::machine::Machine;
use super::outcome::{self, forwarded};
use crate::cli::defragment::DefragmentOption;
use crate::cli::failure::Failed;
use crate::cli::traffic::{Source, Traffic};
use crate::print::fragments::json as fragments_json;
use crate::print::number::{count, counted};
use crate::print::output::{print, print_as_it_is, print_json};
use crate::print::style::Style;

/// Explain what the rules do with a packet of a capture
///
/// Runs the rules over the packets before it, and tells its way: hook by hook, chain by chain, rule by rule, with what the packet doesn't
/// pass of each rule. Without --packet, prints the counters of all rules after the last packet, in the columns of `iptables -nvxL`; matches and
/// options of targets stand behind them, as `iptables-save` writes them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace rules explain rules.v4 --in a.pcap --packet 17
  millrace rules explain rules.v4 --in a.pcap --packet 17 --json
  millrace rules explain rules.v4 --router router.toml --in a.pcap > counters")]
pub(super) struct Args {
    /// File with the rules, as `iptables-save` or `ip6tables-save` prints them; - reads standard input
    #[arg(value_name = "RULES")]
    rules: PathBuf,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    defragment: DefragmentOption,
    /// Number of the packet, from 1, among those that are taken. Of a datagram in fragments, that of the fragment that completes it
    #[arg(long, value_name = "NUMBER")]
    packet: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Steps, each with what the rules saw of the packet.
type Steps = Vec<(Step, View)>;

/// Keeps the steps of one packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    steps: Arc<Mutex<Option<Steps>>>,
}

impl Recorder {
    fn begin(&self) {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    fn take(&self) -> Steps {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

impl Trace for Recorder {
    const ON: bool = true;

    fn step(&self, step: Step, view: &View) {
        if let Some(steps) = &mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner) {
            steps.push((step, *view));
        }
    }
}

pub(super) fn explain(args: &Args) -> Result<(), Failed> {
    let rules = args.machine.with(&args.rules)?;
    let traffic = args.source.load_with_none(args.json)?;
    let (packets, given) = (traffic.trace.len() as u64, Arc::clone(&traffic.trace));
    let traffic = args.defragment.gathered(rules.wants_whole_datagrams(), traffic, args.json || args.packet.is_some());
    let Some(number) = args.packet else {
        let mut driver = Driver::new(rules);
        let verdicts = driver.run_trace(&traffic.trace);
        let unknown = verdicts.iter().filter(|verdict| outcome::is_by_unknown_port(verdict)).count();
        outcome::note_ports(driver.function(), &traffic, unknown as u64);
        return print_counters(&driver, &traffic, args.json);
    };
    if number == 0 || number > packets {
        let (number, taken) = (count(number), counted(packets, "packet is", "packets are"));
        if let Some(option) = args.source.limit(packets) {
            return Err(Failed::usage(format_args!(
                "--packet {number}: only the first {taken} taken; raise {option}, or omit it"
            )));
        }
        let packets = counted(packets, "packet", "packets");
        let what = if args.source.captures.is_part() { "the chosen part of " } else { "" };
        return Err(Failed::usage(format_args!("--packet {number}: {what}{} has {packets}", traffic.name)));
    }
    let recorder = Recorder::default();
    let mut driver = Driver::new(rules.traced(recorder.clone()));
    for (packet, bytes) in traffic.trace.iter() {
        let is_last = packet.seq.0 + 1 == number;
        if is_last {
            recorder.begin();
        }
        let verdict = outcome::verdict(&mut driver, packet, bytes);
        if is_last {
            let told = Told { rules: &rules, steps: recorder.take(), verdict, port: packet.interface };
            return match args.json {
                true => print_json(&told.json(number)),
                false => print(&told.text(number)),
            };
        }
    }
    fragment(number, &given, &traffic, args.json)
}

/// Tells what became of a fragment that the rules don't see.
fn fragment(number: u64, given: &Packets, traffic: &Traffic, as_json: bool) -> Result<(), Failed> {
    let policy = traffic.fragments.map_or_else(Policy::default, |(policy, _)| policy);
    let followed = follow(given, policy, Limits::default(), Seq(number - 1));
    if let Some(Followed::Dropped(reason)) = followed {
        let (name, why) = (reason.name(), reason.summary());
        if as_json {
            let verdict = format!("dropped ({name})");
            return print_json(&json!({ "packet": number, "seen": null, "steps": [], "verdict": verdict, "why": why }));
        }
        let style = Style::stdout();
        return print(&format!(
            "{} {}: a fragment, dropped before the rules see it\n{} dropped ({name}: {why}; --defragment {})\n",
            style.bold("packet"),
            count(number),
            style.bold("verdict:"),
            policy.name()
        ));
    }
    let whole = match followed {
        Some(Followed::Gathered(seq)) => format!("packet {} completes its datagram: give that one", count(seq.0 + 1)),
        Some(Followed::Dropped(_)) | None => "give the packet that completes its datagram".to_owned(),
    };
    Err(Failed::usage(format_args!(
        "--packet {}: a fragment, which the rules don't see by itself; {whole}, or --defragment off",
        count(number)
    )))
}

fn print_counters(driver: &Driver<Rules>, traffic: &Traffic, as_json: bool) -> Result<(), Failed> {
    let counted = driver.function().counted(&driver.counts().totals());
    if as_json {
        let sets: Vec<Value> = counted.iter().flatten().map(counters_json).collect();
        let fragments = traffic.fragments.as_ref().map(|(policy, counts)| fragments_json(*policy, counts));
        return print_json(&json!({ "rules": sets, "packets": traffic.trace.len(), "fragments": fragments }));
    }
    print_as_it_is(&counted.iter().flatten().map(listing).collect::<String>())
}

fn counters_json(rules: &RuleSet) -> Value {
    let chain = |chain: &Chain| {
        let rule = |rule: &iptables::Rule| {
            json!({
                "rule": rule.to_string().trim_start(), "line": rule.at.line,
                "packets": rule.counters.packets, "bytes": rule.counters.bytes,
            })
        };
        let policy = chain.base.map(|(_, policy)| {
            json!({ "policy": policy.name(), "packets": chain.counters.packets, "bytes": chain.counters.bytes })
        });
        json!({ "chain": chain.name, "policy": policy, "rules": chain.rules.iter().map(rule).collect::<Vec<_>>() })
    };
    let table = |table: &Table| json!({ "table": table.kind.name(), "chains": table.chains.iter().map(chain).collect::<Vec<_>>() });
    json!({ "family": rules.family.to_string(), "tables": rules.tables.iter().map(table).collect::<Vec<_>>() })
}

/// The counters in the columns of `iptables -nvxL`, table by table.
fn listing(rules: &RuleSet) -> String {
    let mut out = String::new();
    for table in &rules.tables {
        let _ = writeln!(out, "Table {} ({})\n", table.kind.name(), rules.family);
        let mut references: HashMap<&str, usize> = HashMap::new();
        for name in
            table.chains.iter().flat_map(|chain| &chain.rules).filter_map(|rule| rule.target.as_deref()?.chain())
        {
            *references.entry(name).or_default() += 1;
        }
        for chain in &table.chains {
            let _ = match chain.base {
                Some((_, policy)) => writeln!(
                    out,
                    "Chain {} (policy {} {} packets, {} bytes)",
                    chain.name,
                    policy.name(),
                    chain.counters.packets,
                    chain.counters.bytes
                ),
                None => {
                    let references = references.get(chain.name.as_str()).copied().unwrap_or(0);
                    writeln!(out, "Chain {} ({references} references)", chain.name)
                }
            };
            out.push_str(
                "    pkts      bytes target     prot opt in     out     source               destination         \n",
            );
            chain.rules.iter().for_each(|rule| row(&mut out, rule, rules.family));
            out.push('\n');
        }
    }
    out
}

/// A rule in the columns of `iptables -nvxL`.
fn row(out: &mut String, rule: &iptables::Rule, family: Family) {
    let not = |negated: bool| if negated { '!' } else { ' ' };
    let protocol = rule.protocol.as_deref().map_or((' ', 0), |one| (not(one.negated), one.value));
    let fragment = match rule.fragment.as_deref() {
        None => "--",
        Some(false) => "-f",
        Some(true) => "!f",
    };
    let interface = |one: &Option<Located<iptables::Condition<Interface>>>| match one.as_deref() {
        None => "*".to_owned(),
        Some(iptables::Condition { negated, value }) => format!("{}{value}", if *negated { "!" } else { "" }),
    };
    let (any, one_host) = if family == Family::V6 { ("::/0", "/128") } else { ("0.0.0.0/0", "/32") };
    let network = |one: &Option<Located<iptables::Condition<Network>>>| match one.as_deref() {
        None => (' ', any.to_owned()),
        Some(iptables::Condition { negated, value }) => (not(*negated), value.to_string().replace(one_host, "")),
    };
    let (source, destination) = (network(&rule.source), network(&rule.destination));
    let target = rule.target.as_deref().map_or("", Target::name);
    let (packets, bytes) = (rule.counters.packets, rule.counters.bytes);
    let _ = write!(
        out,
        "{packets:>8} {bytes:>8} {target:<9} {}{:<4} {fragment}  {:<6} {:<6} {}{:<19} {}{:<19} ",
        protocol.0,
        protocol.1,
        interface(&rule.input),
        interface(&rule.output),
        source.0,
        source.1,
        destination.0,
        destination.1
    );
    let _ = match rule.target.as_deref() {
        Some(Target::Goto(_)) => write!(out, "[goto] "),
        _ => Ok(()),
    };
    for test in &rule.matches {
        let _ = write!(out, " -m {}{}", test.written_name(), test.value);
    }
    let _ = match rule.target.as_deref() {
        Some(Target::Do(action)) => writeln!(out, "{action}"),
        _ => writeln!(out),
    };
}

/// A packet's way, to be told.
struct Told<'a> {
    rules: &'a Rules,
    steps: Steps,
    verdict: Verdict,
    /// The port that the packet came in by.
    port: u16,
}

impl Told<'_> {
    fn set(&self) -> Option<&RuleSet> {
        let is_v6 = self.steps.first().is_some_and(|(_, view)| view.is_v6);
        self.rules.sets()[usize::from(is_v6)].as_ref()
    }

    /// The table, chain and rule of this number, and the rule's place in its chain.
    fn rule(&self, number: usize) -> Option<(&Table, &Chain, &iptables::Rule, usize)> {
        let mut left = number;
        for table in &self.set()?.tables {
            for chain in &table.chains {
                match chain.rules.get(left) {
                    Some(rule) => return Some((table, chain, rule, left + 1)),
                    None => left -= chain.rules.len(),
                }
            }
        }
        None
    }

    fn text(&self, number: u64) -> String {
        let style = Style::stdout();
        let mut out = format!("{} {}", style.bold("packet"), count(number));
        match self.steps.first() {
            Some((_, view)) => {
                out += &format!(": {}", packet_text(view));
                if view.input != NO_INTERFACE {
                    out += &format!(", in by {}", self.rules.interface(view.input));
                }
                out.push('\n');
            }
            None if outcome::is_by_unknown_port(&self.verdict) => {
                out += &format!(": came in by port {}, which no interface of --router has\n", self.port);
            }
            None => out += ": no rule has seen it\n",
        }
        let (mut chain_shown, mut misses) = (String::new(), 0);
        for (step, view) in &self.steps {
            if let Step::Rule(number, failed) = step {
                let Some((table, chain, rule, place)) = self.rule(*number) else { continue };
                let name = format!("{} {}", table.kind.name(), chain.name);
                if name != chain_shown {
                    out += &left_out(&mut misses);
                    out += &format!("{}\n", style.bold(&name));
                    chain_shown = name;
                }
                match failed {
                    Some(_) if misses >= MISSES_SHOWN => misses += 1,
                    Some(failed) => {
                        misses += 1;
                        let why = reason(rule, *failed, view, self.rules);
                        out +=
                            &format!("  {place:>4}  {}\n        {}\n", rule.to_string().trim_start(), style.dim(&why));
                    }
                    None => {
                        out += &left_out(&mut misses);
                        let then = match rule.target.as_deref() {
                            None => "it is counted".to_owned(),
                            Some(Target::Jump(chain)) => format!("on in chain {chain}"),
                            Some(Target::Goto(chain)) => format!("on in chain {chain}, without coming back"),
                            Some(target) => target.name().to_owned(),
                        };
                        let shown = style.good(format!("matches: {then}"));
                        out += &format!("  {place:>4}  {}\n        {shown}\n", rule.to_string().trim_start());
                    }
                }
                continue;
            }
            out += &left_out(&mut misses);
            match step {
                Step::Chain(table, hook) => {
                    chain_shown = format!("{} {}", table.name(), hook.name());
                    out += &format!("{}\n", style.bold(&chain_shown));
                }
                other => out += &format!("{}\n", self.step_text(*other, view)),
            }
        }
        out += &left_out(&mut misses);
        out += &format!("{} {}\n", style.bold("verdict:"), self.verdict_text());
        out
    }

    fn step_text(&self, step: Step, view: &View) -> String {
        match step {
            Step::Tracked(state, is_reply) => {
                let way = if is_reply { ", against the connection's first packet" } else { "" };
                format!("tracker: {state}{way}")
            }
            Step::Policy(policy) => format!("        the end: policy {}", policy.name()),
            Step::Rewritten => format!("rewritten: {}", packet_text(view)),
            Step::Forwarded(NO_INTERFACE) => format!("forwarded, ttl {}", view.ttl),
            Step::Forwarded(number) => format!("forwarded by {}, ttl {}", self.rules.interface(number), view.ttl),
            Step::Local => "for the router itself".to_owned(),
            Step::NoRoute => "no route leads to its destination".to_owned(),
            Step::Expired => "its time to live is over".to_owned(),
            Step::Answer => {
                "the router answers; the answer goes through the chains of the router's own packets:".to_owned()
            }
            Step::Chain(..) | Step::Rule(..) => String::new(),
        }
    }

    fn verdict_text(&self) -> String {
        let number = self.steps.first().map_or(0, |(_, view)| view.protocol);
        match self.verdict {
            Verdict::Forward(port) => forwarded(port, &Rewrite::NONE, number),
            Verdict::Rewrite { port, rewrite } => forwarded(port, &rewrite, number),
            Verdict::Drop(reason) => {
                let own = <Rules>::DESCRIPTION.drop_reasons;
                match reason.name(own) {
                    "to-router" => "let in, to the router itself".to_owned(),
                    name => format!("dropped ({name})"),
                }
            }
            Verdict::Reply(Reply::TcpReset) => "dropped, and answered by a reset".to_owned(),
            Verdict::Reply(Reply::IcmpError(IcmpError { kind, code, .. })) => {
                format!("dropped, and answered by ICMP type {kind}, code {code}")
            }
            Verdict::Copy { .. } | Verdict::Transform { .. } => "forwarded".to_owned(),
        }
    }

    fn json(&self, number: u64) -> Value {
        let steps: Vec<Value> = self.steps.iter().map(|(step, view)| self.step_json(*step, view)).collect();
        json!({
            "packet": number,
            "port": self.port,
            "seen": self.steps.first().map(|(_, view)| packet_text(view)),
            "steps": steps,
            "verdict": self.verdict_text(),
        })
    }

    fn step_json(&self, step: Step, view: &View) -> Value {
        match step {
            Step::Chain(table, hook) => json!({ "step": "chain", "table": table.name(), "chain": hook.name() }),
            Step::Policy(policy) => json!({ "step": "policy", "policy": policy.name() }),
            Step::Rule(number, failed) => match self.rule(number) {
                Some((table, chain, rule, place)) => json!({
                    "step": "rule", "table": table.kind.name(), "chain": chain.name, "rule": place, "line": rule.at.line,
                    "text": rule.to_string().trim_start(), "matches": failed.is_none(),
                    "why_not": failed.map(|failed| reason(rule, failed, view, self.rules)),
                }),
                None => Value::Null,
            },
            Step::Tracked(state, is_reply) => {
                let (state, why) = state.split_once(", ").map_or((state, None), |(state, why)| (state, Some(why)));
                let mut step = json!({ "step": "tracker", "state": state, "reply": is_reply });
                why.into_iter().for_each(|why| step["why"] = why.into());
                step
            }
            Step::Rewritten => json!({ "step": "rewritten", "packet": packet_text(view) }),
            Step::Forwarded(number) => {
                let interface = (number != NO_INTERFACE).then(|| self.rules.interface(number));
                json!({ "step": "forwarded", "interface": interface, "ttl": view.ttl })
            }
            Step::Local => json!({ "step": "local" }),
            Step::NoRoute => json!({ "step": "no-route" }),
            Step::Expired => json!({ "step": "expired" }),
            Step::Answer => json!({ "step": "answer" }),
        }
    }
}

/// The most rules in a row that are shown though the packet doesn't match them.
const MISSES_SHOWN: usize = 20;

/// How many rules were not shown.
fn left_out(misses: &mut usize) -> String {
    match std::mem::take(misses).saturating_sub(MISSES_SHOWN) {
        0 => String::new(),
        more => {
            format!("        {} not match; --json lists all\n", counted(more as u64, "more rule does", "more rules do"))
        }
    }
}

/// Why a packet doesn't pass a rule.
fn reason(rule: &iptables::Rule, failed: Condition, view: &View, rules: &Rules) -> String {
    let nth = match failed {
        Condition::Match(nth) => nth,
        Condition::Header => return header_reason(rule, view, rules),
    };
    rule.matches
        .get(nth)
        .map_or_else(|| "no".to_owned(), |test| format!("no: `-m {}{}` doesn't hold", test.written_name(), test.value))
}

fn header_reason(rule: &iptables::Rule, view: &View, rules: &Rules) -> String {
    let name = |number: u8| if number == NO_INTERFACE { "none" } else { rules.interface(number) };
    let (src, dst) = (address(view.src, view.is_v6), address(view.dst, view.is_v6));
    let mut reasons = Vec::new();
    if let Some(test) = &rule.source
        && !test.holds(test.value.value.contains(src))
    {
        reasons.push(format!("source is {src}"));
    }
    if let Some(test) = &rule.destination
        && !test.holds(test.value.value.contains(dst))
    {
        reasons.push(format!("destination is {dst}"));
    }
    for (test, number, what) in [(&rule.input, view.input, "came in by"), (&rule.output, view.output, "leaves by")] {
        if let Some(test) = test {
            let own = if number == NO_INTERFACE { "" } else { rules.interface(number) };
            if !test.holds(test.value.value.matches(own)) {
                reasons.push(format!("{what} {}", name(number)));
            }
        }
    }
    if let Some(test) = &rule.protocol
        && !test.holds(test.value.value == view.protocol)
    {
        reasons.push(format!("protocol is {}", protocol_name(view.protocol)));
    }
    match reasons.is_empty() {
        true => "no: not this kind of fragment".to_owned(),
        false => format!("no: {}", reasons.join(", ")),
    }
}

fn address(bits: u128, is_v6: bool) -> std::net::IpAddr {
    match is_v6 {
        true => std::net::Ipv6Addr::from_bits(bits).into(),
        false => std::net::Ipv4Addr::from_bits(bits as u32).into(),
    }
}

fn protocol_name(number: u8) -> String {
    protocol::name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// A packet in a line.
pub(super) fn packet_text(view: &View) -> String {
    let (src, dst) = (address(view.src, view.is_v6), address(view.dst, view.is_v6));
    let name = protocol_name(view.protocol);
    match view.protocol {
        protocol::ICMP | protocol::ICMPV6 => {
            format!("{src} > {dst} {name} type {} code {}", view.icmp_kind, view.icmp_code)
        }
        _ if view.has_transport => {
            let end = |address, port| packet::Endpoint::new(address, port);
            let flags: String = "FSRPAU"
                .chars()
                .enumerate()
                .filter(|(bit, _)| view.tcp_flags >> bit & 1 == 1)
                .map(|(_, c)| c)
                .collect();
            let flags = if flags.is_empty() { String::new() } else { format!(" {flags}") };
            format!("{} > {} {name}{flags}", end(src, view.src_port), end(dst, view.dst_port))
        }
        _ => format!("{src} > {dst} {name}"),
    }
}
