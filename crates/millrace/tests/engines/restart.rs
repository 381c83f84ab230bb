//! Runs that go on where another has ended, with what packet sets share, under other engines and other configurations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use engine::{Beginning, Control, EngineError, EngineKind, Look, Options, SavedFlow, start_from};
use functions::Catalogued;
use functions::firewall::Firewall;
use functions::nat::Nat;
use functions::rules::Rules;
use nf::{Function, NetworkFunction, Report, Verdict};
use packet::Nanos;
use port::MemoryQueue;
use testkit::{Driver, Frames};

use super::reload::configured;
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

/// What went out, by number.
type Sent = BTreeMap<u64, Vec<u8>>;

/// Runs some frames from what another run has left. Returns what went out by number, and what this one leaves.
fn part<N: Function + Clone>(
    (kind, cores): (EngineKind, usize),
    (nf, successor): (N, Option<N>),
    frames: &Frames,
    from: Option<&Left<N>>,
) -> Result<(Sent, Left<N>), EngineError> {
    let mut port = MemoryQueue::new(Arc::new(frames.trace()), 16);
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
    let options = Options { seed: frames.len() as u64, ..Options::default() };
    let outcome = thread::scope(|scope| {
        start_from(scope, Arc::new(nf), kind, cores, options, &mut port, &Control::default(), beginning)?.wait()
    })?;
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{kind} on {cores}");
    let came = outbox.take().into_iter().map(|sent| (sent.seq.0, sent.bytes)).collect();
    Ok((came, left.recv().expect("the run has not failed")))
}

/// The frames from one number up to another.
fn cut(frames: &Frames, from: usize, to: usize) -> Frames {
    let mut some = Frames::default();
    frames.iter().take(to).skip(from).for_each(|(time, bytes)| some.push(time, bytes));
    some
}

/// A run over all frames and runs over two parts of them, each under another engine, have the same outcome. Returns true if they would not,
/// did the second part begin with nothing.
fn goes_on<N: Function + Clone>(nf: &N, frames: &Frames, at: usize) -> bool {
    let (all, _) = part((EngineKind::Sequential, 1), (nf.clone(), None), frames, None).expect("it runs");
    let (first, second) = (cut(frames, 0, at), cut(frames, at, frames.len()));
    for (number, way) in EXACT.into_iter().enumerate() {
        let then = EXACT[(number * 4 + 1) % EXACT.len()];
        let (mut came, left) = part(way, (nf.clone(), None), &first, None).expect("it runs");
        let (more, _) = part(then, (nf.clone(), None), &second, Some(&left)).expect("it runs");
        came.extend(more.into_iter().map(|(seq, bytes)| (seq + at as u64, bytes)));
        let differs = all.keys().chain(came.keys()).find(|seq| all.get(seq) != came.get(seq));
        assert_eq!(differs, None, "{way:?}, then {then:?}: {:?}", differs.map(|seq| (all.get(seq), came.get(seq))));
    }
    let (more, _) = part((EngineKind::Sequential, 1), (nf.clone(), None), &second, None).expect("it runs");
    let rest: Sent = all.into_iter().filter(|(seq, _)| *seq >= at as u64).collect();
    !more.into_iter().map(|(seq, bytes)| (seq + at as u64, bytes)).eq(rest)
}

#[test]
fn what_packet_sets_share_outlives_a_run() {
    let (balanced, frames) = (balancers(1), translated(6_000));
    let decides = [2_300, 4_990, 7_150].map(|at| goes_on(&balanced[0], &connections(9_000), at));
    assert!(decides.contains(&true), "health decides");
    for [first, second] in translators() {
        assert!(goes_on(&first, &frames, 3_100) && goes_on(&second, &frames, 2_900));
    }
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
    let (one, two) = (frames.len() / 3, frames.len() * 2 / 3);
    let cuts = [cut(frames, 0, one), cut(frames, one, two), cut(frames, two, frames.len())];
    for (number, way) in EXACT.into_iter().enumerate() {
        let then = EXACT[(number * 5 + 2) % EXACT.len()];
        let [first, second] = both;
        let (mut came, left) = part(way, (first.clone(), None), &cuts[0], None).expect("it runs");
        let (more, left) =
            part(then, (first.clone(), Some(second.clone())), &cuts[1], Some(&left)).expect("it takes over");
        came.extend(more.into_iter().map(|(seq, bytes)| (seq + one as u64, bytes)));
        let (more, _) = part(way, (second.clone(), None), &cuts[2], Some(&left)).expect("it runs");
        came.extend(more.into_iter().map(|(seq, bytes)| (seq + two as u64, bytes)));
        let mut driver = Driver::new(first.clone());
        for (seq, (time, bytes)) in frames.iter().enumerate() {
            if seq == one {
                driver.reload(second.clone()).expect("it can take over");
            }
            let verdict = driver.frame(time, frames.link(), bytes);
            let expected = (!matches!(verdict, Verdict::Drop(_))).then(|| ends_after(bytes, &verdict));
            let is = came.get(&(seq as u64)).map(|sent| ends(sent));
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
}

/// Engines whose cores share memory leave what any other engine can go on with.
#[test]
fn several_cores_that_share_memory_leave_one_state() {
    let [[nf, _], ..] = &translators()[..] else { unreachable!("there are some") };
    let (frames, none) = (translated(4_000), Frames::default());
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

#[test]
fn what_cannot_go_on_is_refused() {
    let frames = translated(400);
    let way = (EngineKind::Scr, 2);
    for [nf, _] in translators() {
        let (_, left) = part(way, (nf.clone(), None), &frames, None).expect("it runs");
        // Whatever is cut off or added is noticed, and nothing panics.
        for len in (0..left.shared.len()).step_by(97).chain([left.shared.len() - 1]) {
            let less = Left { shared: left.shared[..len].to_vec(), ..left.clone() };
            let refused = part(way, (nf.clone(), None), &frames, Some(&less)).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|text| text.contains("makes no sense")), "{len} words");
        }
        let more = Left { shared: [&left.shared[..], &[0]].concat(), ..left.clone() };
        assert!(part(way, (nf, None), &frames, Some(&more)).is_err());
    }
    let [first, _] = configured::<Firewall>(["flows = 4096", ""]);
    let [second, _] = configured::<Firewall>(["flows = 8192", ""]);
    let (_, left) = part(way, (first.clone(), None), &frames, None).expect("it runs");
    let refused = part(way, (first, Some(second)), &frames, Some(&left)).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("another number of flows")));
}
