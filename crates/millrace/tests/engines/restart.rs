//! Runs that go on where another has ended, with what packet sets share, under other engines and other configurations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use engine::{Beginning, Control, EngineError, EngineKind, Look, Options, SavedFlow, start_from};
use functions::Catalogued;
use functions::anti_ddos::AntiDdos;
use functions::asset_monitor::AssetMonitor;
use functions::bridge::Bridge;
use functions::efsm::Efsm;
use functions::firewall::Firewall;
use functions::nat::Nat;
use functions::rules::Rules;
use nf::{Function, NetworkFunction, Report, Verdict};
use packet::{Nanos, TcpFlags};
use port::{MemoryQueue, Trace};
use testkit::{Build, Driver, Frames};

use super::asset_monitor::office;
use super::bridge::traffic as bridged;
use super::reload::{configured, program, programs, traffic};
use super::reload_shared::{EXACT, balancers, connections, ends, ends_after, translated, translators};

/// What a run has left behind.
#[derive(Clone)]
struct Left<N: NetworkFunction> {
    flows: Vec<SavedFlow<N>>,
    shared: Vec<u64>,
    inherited: Vec<u64>,
    report: Option<Report>,
    time: Nanos,
}

/// What went out by number, and by which port.
type Sent = BTreeMap<u64, (u16, Vec<u8>)>;

/// Runs some packets from what another run has left. Returns what went out by number, and what this one leaves.
fn part<N: Function + Clone>(
    (kind, cores): (EngineKind, usize),
    (nf, successor): (N, Option<N>),
    trace: &Trace,
    from: Option<&Left<N>>,
) -> Result<(Sent, Left<N>), EngineError> {
    let mut port = MemoryQueue::new(Arc::new(trace.clone()), 16);
    let outbox = port.outbox();
    let nf = match from {
        Some(left) if !left.inherited.is_empty() => nf.inherit(&left.inherited).expect("it is of this function"),
        Some(_) | None => nf,
    };
    let (send, left) = channel();
    let at_end: Look<N> = Box::new(move |state, nf, time| {
        let (flows, shared) = (state.saved(nf, time), state.saved_shared(nf, time));
        let (inherited, report) = (nf.inherited(), state.function_report(nf, time));
        let _ = send.send(Left { flows, shared, inherited, report, time });
    });
    let beginning = Beginning {
        flows: from.map_or_else(Vec::new, |left| left.flows.clone()),
        shared: from.map(|left| left.shared.clone()),
        time: from.map_or(Nanos(0), |left| left.time),
        successor,
        at_end: Some(at_end),
    };
    // Tables have other seeds in each run.
    let options = Options { seed: trace.len() as u64, ..Options::default() };
    let outcome = thread::scope(|scope| {
        start_from(scope, Arc::new(nf), kind, cores, options, &mut port, &Control::default(), beginning)?.wait()
    })?;
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{kind} on {cores}");
    let came = outbox.take().into_iter().map(|sent| (sent.seq.0, (sent.port, sent.bytes))).collect();
    Ok((came, left.recv().expect("the run has not failed")))
}

/// The packets from one number up to another.
fn cut(trace: &Trace, from: usize, to: usize) -> Trace {
    trace.select(|index, _| (from..to).contains(&index)).renumbered()
}

/// What went out by number, where some packets were before these.
fn behind(before: usize, sent: Sent) -> impl Iterator<Item = (u64, (u16, Vec<u8>))> {
    sent.into_iter().map(move |(seq, sent)| (seq + before as u64, sent))
}

/// A run over all packets and runs over two parts of them, each under another engine, have the same outcome, and `compare` finds their
/// reports alike. Returns true if they would not have the same outcome, did the second part begin with nothing.
fn goes_on_with<N: Function + Clone>(
    nf: &N,
    trace: &Trace,
    at: usize,
    compare: impl Fn(&Option<Report>, &Option<Report>) -> bool,
) -> bool {
    let (all, whole) = part((EngineKind::Sequential, 1), (nf.clone(), None), trace, None).expect("it runs");
    let (first, second) = (cut(trace, 0, at), cut(trace, at, trace.len()));
    for (number, way) in EXACT.into_iter().enumerate() {
        let then = EXACT[(number * 4 + 1) % EXACT.len()];
        let (mut came, left) = part(way, (nf.clone(), None), &first, None).expect("it runs");
        let (more, end) = part(then, (nf.clone(), None), &second, Some(&left)).expect("it runs");
        came.extend(behind(at, more));
        let differs = all.keys().chain(came.keys()).find(|seq| all.get(seq) != came.get(seq));
        assert_eq!(differs, None, "{way:?}, then {then:?}: {:?}", differs.map(|seq| (all.get(seq), came.get(seq))));
        assert!(compare(&end.report, &whole.report), "{way:?}, then {then:?}: {:?} {:?}", end.report, whole.report);
    }
    let (more, anew) = part((EngineKind::Sequential, 1), (nf.clone(), None), &second, None).expect("it runs");
    let rest: Sent = all.into_iter().filter(|(seq, _)| *seq >= at as u64).collect();
    !behind(at, more).eq(rest) || !compare(&anew.report, &whole.report)
}

/// The same, whatever they report.
fn goes_on<N: Function + Clone>(nf: &N, frames: &Frames, at: usize) -> bool {
    goes_on_with(nf, &frames.trace(), at, |_, _| true)
}

#[test]
fn what_packet_sets_share_outlives_a_run() {
    let (balanced, frames) = (balancers(1), translated(6_000));
    let alike = |one: &Option<Report>, other: &Option<Report>| one.is_some() && one == other;
    let decides = [2_300, 4_990, 7_150].map(|at| goes_on_with(&balanced[0], &connections(9_000).trace(), at, alike));
    assert!(decides.contains(&true), "health decides");
    for [first, second] in translators() {
        let goes_on = |nf: &Nat, at| goes_on_with(nf, &frames.trace(), at, alike);
        assert!(goes_on(&first, 3_100) && goes_on(&second, 2_900));
    }
}

fn of_text<N: Catalogued>(text: &str) -> N {
    N::from_config(toml::from_str(text).expect("the test's own configuration"))
}

/// Stations that fall silent, change sides, and are more than there is room for.
#[test]
fn stations_outlive_a_run() {
    let trace = bridged(3_000);
    for text in ["ageing = 12\nstations = 64", "ageing = 12\nstations = 25", "ageing = 12\nrefresh_interval = 5"] {
        assert!([700, 1_503].map(|at| goes_on_with(&of_text::<Bridge>(text), &trace, at, |_, _| true)) == [true; 2]);
    }
}

/// Clients that go on, and floods of sources that send one packet, with a silence behind each.
fn attacks(packets: u64) -> Frames {
    let mut frames = Frames::default();
    for number in 0..packets {
        let source = match number / 120 % 3 {
            1 => format!("172.16.{}.{}:1024", number / 200, number % 200),
            _ => format!("10.1.0.{}:{}", 1 + number % 23, 4_000 + number / 500),
        };
        let segment = Build::tcp(&*source, "192.0.2.1:80").flags(TcpFlags::SYN);
        let silences = (number + 120) / 360;
        frames.build(Nanos::from_millis(100_000 + number * 20 + silences * 5_000), &segment);
    }
    frames
}

#[test]
fn counts_of_flows_outlive_a_run() {
    let function = of_text::<AntiDdos>("minimum = 30\nthreshold = 0.6\nidle_timeout = 1\nflows = 512\nflows_v6 = 16");
    let (trace, decides) = (attacks(4_000).trace(), |at| goes_on(&function, &attacks(4_000), at));
    let dropped =
        Driver::new(function.clone()).run_trace(&trace).iter().filter(|one| **one != Verdict::FORWARD).count();
    assert!(dropped > 300 && dropped < 2_000, "{dropped} were dropped");
    // In a flood, and right behind one, where the end of most flows is yet to be counted.
    assert!([220, 241, 245, 1_700, 1_683].map(decides).contains(&true));
}

#[test]
fn assets_outlive_a_run() {
    let trace = office().trace();
    for text in ["", "hosts = 20\nservices = 2\nasset_timeout = 3\nrefresh_interval = 1\nidle_timeout = 1"] {
        let function = of_text::<AssetMonitor>(text);
        for at in [trace.len() / 3 + 7, trace.len() / 2, trace.len() - 20] {
            assert!(goes_on_with(&function, &trace, at, |one, other| one.is_some() && one == other));
        }
    }
}

/// Programs with contexts in flows, in state that packet sets share, and with all that there is.
#[test]
fn contexts_outlive_a_run() {
    let (frames, contexts) = (traffic(6_000), "report = \"contexts\"\n");
    let alike = |one: &Option<Report>, other: &Option<Report>| {
        one == other && one.as_ref().is_some_and(|one| one.rows.len() > 20)
    };
    for program in ["", "global total = 0"].map(program) {
        let function = of_text::<Efsm>(&format!("{contexts}program = {program:?}"));
        assert!(goes_on_with(&function, &frames.trace(), 3_100, alike));
    }
    let all = of_text::<Efsm>(&format!("{contexts}{}", Efsm::SMALL));
    assert!([1_000, 2_700, 4_001].map(|at| goes_on_with(&all, &frames.trace(), at, alike)) == [true; 3]);
}

/// Rules with connections in flows and with rates, lists and counters, and rules that rewrite addresses.
fn rule_sets() -> [Rules; 2] {
    let in_flows = "*filter\n:FORWARD DROP [0:0]\n\
        -A FORWARD -p udp -m hashlimit --hashlimit-upto 3/second --hashlimit-burst 4 --hashlimit-mode srcip --hashlimit-name u -j ACCEPT\n\
        -A FORWARD -m conntrack --ctstate ESTABLISHED -m connbytes --connbytes 5: --connbytes-dir both --connbytes-mode packets -j DROP\n\
        -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
        -A FORWARD -p tcp -m recent --name seen --update --seconds 1 --hitcount 2 -j DROP\n\
        -A FORWARD -p tcp -m recent --name seen --set -j ACCEPT\n\
        -A FORWARD -m statistic --mode nth --every 3 --packet 1 -j ACCEPT\n\
        -A FORWARD -m quota --quota 90000 -j ACCEPT\n\
        -A FORWARD -m limit --limit 2/second -j ACCEPT\nCOMMIT\n";
    // No port is drawn: draws are by packet numbers, which begin anew.
    let snat = |host| format!("-A POSTROUTING -s 10.0.0.{host} -j SNAT --to-source 203.0.114.{host}\n");
    let hosts: String = (1..20).map(snat).collect();
    let rewriting = format!(
        "*nat\n{hosts}-A PREROUTING -d 198.51.100.1 -p udp --dport 53 -j DNAT --to-destination 198.51.100.9:5353\nCOMMIT\n\
        *filter\n:FORWARD ACCEPT [0:0]\n\
        -A FORWARD -p tcp -m connlimit --connlimit-above 3 --connlimit-mask 29 -j DROP\nCOMMIT\n"
    );
    let of = |rules: &str| {
        let table = toml::Table::from_iter([
            ("rules".into(), toml::Value::String(rules.into())),
            ("flows".into(), toml::Value::Integer(4096)),
            ("flows_v6".into(), toml::Value::Integer(16)),
        ]);
        Rules::from_config(toml::Value::Table(table).try_into().expect("the test's own rules"))
    };
    [of(in_flows), of(&rewriting)]
}

#[test]
fn rates_lists_and_rewritten_connections_outlive_a_run() {
    let [in_flows, rewriting] = rule_sets();
    let frames = translated(6_000);
    assert!(goes_on(&in_flows, &frames, 3_000));
    assert!(goes_on(&rewriting, &frames, 3_000));
}

/// Three runs with two configurations: the second run begins with the first one's flows and another configuration, and the third one
/// with the second one's. As the sequential driver that changes its configuration once.
fn takes_over<N: Function + Clone>(both: &[N; 2], frames: &Frames) {
    let trace = frames.trace();
    let (one, two) = (frames.len() / 3, frames.len() * 2 / 3);
    let cuts = [cut(&trace, 0, one), cut(&trace, one, two), cut(&trace, two, trace.len())];
    for (number, way) in EXACT.into_iter().enumerate() {
        let then = EXACT[(number * 5 + 2) % EXACT.len()];
        let [first, second] = both;
        let (mut came, left) = part(way, (first.clone(), None), &cuts[0], None).expect("it runs");
        let (more, left) =
            part(then, (first.clone(), Some(second.clone())), &cuts[1], Some(&left)).expect("it takes over");
        came.extend(behind(one, more));
        let (more, _) = part(way, (second.clone(), None), &cuts[2], Some(&left)).expect("it runs");
        came.extend(behind(two, more));
        let mut driver = Driver::new(first.clone());
        for (seq, (time, bytes)) in frames.iter().enumerate() {
            if seq == one {
                driver.reload(second.clone()).expect("it can take over");
            }
            let verdict = driver.frame(time, frames.link(), bytes);
            let expected = (!matches!(verdict, Verdict::Drop(_))).then(|| ends_after(bytes, &verdict));
            let is = came.get(&(seq as u64)).map(|(_, sent)| ends(sent));
            assert_eq!(is, expected, "{way:?}, then {then:?}: packet {seq}: {verdict:?}");
        }
    }
}

#[test]
fn another_configuration_takes_over_before_the_first_packet() {
    takes_over(&balancers(10_000), &connections(9_000));
    let frames = translated(6_000);
    translators().iter().for_each(|both| takes_over(both, &frames));
    let firewalls = ["[\"10.0.0.0/28\"]", "[\"10.0.0.8/29\"]"]
        .map(|inside| format!("inside = {inside}\nflows = 4096\nflows_v6 = 16\n"));
    takes_over(&configured::<Firewall>(firewalls.each_ref().map(|text| &**text)), &frames);
    let frames = traffic(6_000);
    ["", "global total = 0"].iter().for_each(|global| takes_over(&programs(global), &frames));
    // The second program sets no global register, and by itself would have its contexts in flows.
    let text = program("global total = 0");
    let without = text.replace("total = total + 1; ", "").replace("r0>=4", "r0>=6");
    let programs = [&text, &without].map(|text| format!("program = {text:?}"));
    takes_over(&configured::<Efsm>(programs.each_ref().map(|text| &**text)), &frames);
}

/// Engines whose cores share memory leave what any other engine can go on with.
#[test]
fn several_cores_that_share_memory_leave_one_state() {
    let [[nf, _], ..] = &translators()[..] else { unreachable!("there are some") };
    let (frames, none) = (translated(4_000).trace(), Trace::new());
    for way in [(EngineKind::Transactional, 4), (EngineKind::Transactional, 2), (EngineKind::Shared, 3)] {
        let (_, left) = part(way, (nf.clone(), None), &frames, None).expect("it runs");
        let words = |way: (EngineKind, usize), from: &Left<Nat>| {
            let (_, left) = part(way, (nf.clone(), None), &none, Some(from)).expect("it runs");
            Left { time: from.time, ..left }
        };
        let one = words((EngineKind::Sequential, 1), &left);
        for other in [(EngineKind::Scr, 3), (EngineKind::Shared, 2)] {
            assert_eq!(words(other, &left).shared, one.shared, "{way:?}, then {other:?}");
        }
        // The order of pools is that of each core, but nothing is lost on the way.
        let back = words((EngineKind::Sequential, 1), &words((EngineKind::Transactional, 3), &left));
        let rows = one.report.as_ref().map_or(0, |report| report.rows.len());
        assert!(rows > 20 && back.report == one.report, "{way:?}: {rows} mappings");
    }
}

/// Whatever is cut off from what packet sets share, or added, is noticed, and nothing panics.
fn lengths_are_checked<N: Function + Clone>(nf: &N, trace: &Trace) {
    let way = (EngineKind::Scr, 2);
    let (_, left) = part(way, (nf.clone(), None), trace, None).expect("it runs");
    for len in (0..left.shared.len()).step_by(97).chain([left.shared.len() - 1]) {
        let less = Left { shared: left.shared[..len].to_vec(), ..left.clone() };
        let refused = part(way, (nf.clone(), None), trace, Some(&less)).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|text| text.contains("makes no sense")), "{len} words");
    }
    let more = Left { shared: [&left.shared[..], &[0]].concat(), ..left };
    assert!(part(way, (nf.clone(), None), trace, Some(&more)).is_err());
}

#[test]
fn what_cannot_go_on_is_refused() {
    let trace = translated(400).trace();
    translators().iter().for_each(|[nf, _]| lengths_are_checked(nf, &trace));
    lengths_are_checked(&of_text::<Bridge>("stations = 30"), &bridged(400));
    lengths_are_checked(&of_text::<AntiDdos>("minimum = 30"), &attacks(400).trace());
    lengths_are_checked(&of_text::<AssetMonitor>("hosts = 40"), &office().trace());
    lengths_are_checked(&of_text::<Efsm>(Efsm::SMALL), &trace);
    let way = (EngineKind::Scr, 2);
    let [first, _] = configured::<Firewall>(["flows = 4096", ""]);
    let [second, _] = configured::<Firewall>(["flows = 8192", ""]);
    let (_, left) = part(way, (first.clone(), None), &trace, None).expect("it runs");
    let refused = part(way, (first, Some(second)), &trace, Some(&left)).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("another number of flows")));
}
