//! The metrics, read by parsers that aren't ours and by one of the test's own.
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use millrace_daemon::{Core, Dropped, HttpServer, Interface, Latency, Latest, Routes, Serving, Stats, Transactions};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Names and texts, in order.
type Labels = Vec<(String, String)>;

/// Serves the metrics of samples.
struct Scraped {
    latest: Arc<Latest>,
    serving: Serving,
}

impl Scraped {
    fn new() -> Self {
        let latest = Arc::new(Latest::new());
        let server = HttpServer::bind("127.0.0.1:0".parse().expect("it is an address")).expect("there are ports");
        let routes = Routes { metrics: true, page: false };
        Self { serving: server.serve(routes, Arc::clone(&latest)).expect("there are threads"), latest }
    }

    fn text(&self, stats: Stats) -> String {
        self.latest.set(stats);
        let mut client = TcpStream::connect(self.serving.addr()).expect("it listens");
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it is text");
        answer.split_once("\r\n\r\n").expect("it has a body").1.to_owned()
    }
}

fn sample() -> Stats {
    let core = |received, idle_ns| Core { received, received_bytes: 64, dropped: 2, idle_ns, ..Core::default() };
    Stats {
        function: "fire\"wall\\".to_owned(),
        engine: "rss++".to_owned(),
        uptime_ms: 61_042,
        cores: vec![core(1000, 5), core(u64::MAX - 1000, 3_000_000_007)],
        dropped: vec![
            Dropped { reason: "table-full".to_owned(), packets: 3 },
            Dropped { reason: "two\nlines".to_owned(), packets: 1 },
            Dropped { reason: "table-full".to_owned(), packets: u64::MAX },
        ],
        flows: 7,
        flows_opened: 9,
        flows_max: 100,
        transactions: Some(Transactions { committed: 20, aborted: 1 }),
        interfaces: vec![Interface {
            name: "inside0".to_owned(),
            trouble: None,
            counters: vec![("received".to_owned(), 5), ("lost-by-card".to_owned(), 0)],
        }],
        latency: Some(Latency {
            packets: 4,
            p50_ns: 1_200,
            p99_ns: 88_000,
            p999_ns: 1_000_000,
            worst_ns: 2_500_000_000,
            sum_us: 2_501_090,
        }),
        stalled: Some(1),
        ..Stats::default()
    }
}

#[test]
fn a_sample_as_text() {
    let text = Scraped::new().text(sample());
    let age = text.lines().find_map(|line| line.strip_prefix("millrace_sample_age_seconds ")).expect("it is there");
    let text = text.replace(age, "AGE").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    assert_eq!(text, include_str!("metrics.txt"));
}

/// A sample of which the names are any text.
fn any_sample() -> impl Strategy<Value = Stats> {
    let name = || prop_oneof![any::<String>(), "[\\\\\"\n\r\t{},= #a-c]{0,12}"];
    let dropped = (name(), any::<u64>()).prop_map(|(reason, packets)| Dropped { reason, packets });
    let counters = proptest::collection::vec((name(), any::<u64>()), 0..4);
    let interface = (name(), counters).prop_map(|(name, counters)| Interface { name, trouble: None, counters });
    let of_all = (proptest::collection::vec(dropped, 0..5), proptest::collection::vec(interface, 0..4));
    (name(), name(), of_all, 0_usize..4).prop_map(|(function, engine, (dropped, interfaces), cores)| Stats {
        function,
        engine,
        dropped,
        interfaces,
        cores: vec![Core { received: 3, ..Core::default() }; cores],
        ..Stats::default()
    })
}

/// What a sample has to give of the two metrics whose names come from the run.
fn expected(stats: &Stats) -> BTreeMap<(String, Labels), f64> {
    let mut series = BTreeMap::new();
    let label = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let mut add = |name: &str, labels: Labels, packets: u64| {
        *series.entry((name.to_owned(), labels)).or_insert(0_u128) += u128::from(packets);
    };
    for dropped in &stats.dropped {
        add("millrace_packets_dropped_total", vec![label("reason", &dropped.reason)], dropped.packets);
    }
    for interface in &stats.interfaces {
        for (counter, packets) in &interface.counters {
            let labels = vec![label("counter", counter), label("interface", &interface.name)];
            add("millrace_interface_packets_total", labels, *packets);
        }
    }
    series.into_iter().map(|(series, packets)| (series, packets as f64)).collect()
}

#[test]
fn any_text_is_escaped() {
    let scraped = Scraped::new();
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(stats in any_sample())| {
        let found = parse(&scraped.text(stats.clone()));
        let of_run = |name: &str| name == "millrace_packets_dropped_total" || name == "millrace_interface_packets_total";
        let named: BTreeMap<_, _> = found.iter().filter(|((name, _), _)| of_run(name)).map(|(a, b)| (a.clone(), *b)).collect();
        prop_assert_eq!(named, expected(&stats));
        let about = found.keys().find(|(name, _)| name == "millrace_build_info").expect("it is there");
        prop_assert_eq!(&about.1[0], &("engine".to_owned(), stats.engine));
        prop_assert_eq!(&about.1[1], &("function".to_owned(), stats.function));
    });
}

/// Series with their values. Checks as it goes that each has a family, and that none occurs twice.
fn parse(text: &str) -> BTreeMap<(String, Labels), f64> {
    let (mut found, mut families, mut family) = (BTreeMap::new(), BTreeSet::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text[..text.len() - 1].split('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().expect("it has a name").to_owned();
            assert!(families.insert(family.clone()), "{family} occurs twice");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("it has a type");
            assert_eq!(name, family, "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let end = line.find(['{', ' ']).expect("it has a value");
        let (name, mut rest) = line.split_at(end);
        let is_of_family = name.strip_prefix(&*family).is_some_and(|rest| ["", "_sum", "_count"].contains(&rest));
        assert!(is_of_family, "{line} is not of {family}");
        let mut labels = Vec::new();
        while rest.starts_with(['{', ',']) {
            let (label, text) = rest[1..].split_once("=\"").expect("a label has a text");
            let mut value = String::new();
            let mut signs = text.char_indices();
            let end = loop {
                match signs.next().expect("a label ends") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match signs.next().expect("an escape has a sign").1 {
                        'n' => '\n',
                        sign @ ('\\' | '"') => sign,
                        other => panic!("{other} needs no escape"),
                    }),
                    (_, sign) => value.push(sign),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &text[end + 1..];
        }
        let value = if labels.is_empty() { rest } else { rest.strip_prefix('}').expect("labels end") };
        labels.sort();
        let value = value.strip_prefix(' ').and_then(|value| value.parse().ok()).expect("a value is a number");
        assert!(found.insert((name.to_owned(), labels), value).is_none(), "{line} occurs twice");
    }
    found
}

/// What Prometheus' own library for Python makes of metrics: rows of name, type, labels and value.
const LIBRARY: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families as parse
text = sys.stdin.buffer.read().decode()
rows = [[s.name, f.type, sorted(s.labels.items()), s.value] for f in parse(text) for s in f.samples if f.documentation]
print(json.dumps(rows))
";

#[test]
fn the_library_of_prometheus_reads_the_same() {
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let imports = Command::new(python).args(["-c", "import prometheus_client"]).stderr(Stdio::null()).status();
        imports.is_ok_and(|status| status.success())
    });
    let Some(python) = python else {
        println!("SKIPPED (needs prometheus_client: apt-get install python3-prometheus-client): metrics in its parser");
        return;
    };
    let hostile =
        ["", " ", "\\", "\\n", "\"", "a\"b\\\nc", "{}", "a=\"b\",c=\"d\"} 1", "# HELP", "\u{1f600}", "<script>"];
    let named = hostile.map(|reason| Dropped { reason: reason.to_owned(), packets: 1 }).to_vec();
    let interfaces = hostile
        .map(|name| Interface {
            name: name.to_owned(),
            trouble: Some(name.to_owned()),
            counters: vec![(name.to_owned(), 2)],
        })
        .to_vec();
    for stats in [sample(), Stats { dropped: named, interfaces, ..sample() }, Stats::default()] {
        let text = Scraped::new().text(stats);
        let rows = piped(Command::new(python).args(["-c", LIBRARY]), &text);
        let rows: Vec<(String, String, Labels, Value)> = serde_json::from_str(&rows).expect("it is JSON");
        let ours = parse(&text);
        assert_eq!(rows.len(), ours.len(), "{text}");
        for (name, kind, labels, value) in rows {
            let found = ours.get(&(name.clone(), labels)).unwrap_or_else(|| panic!("{name} is not in\n{text}"));
            assert_eq!(value, json!(found), "{name}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        }
    }
}

#[test]
fn promtool_has_no_complaint() {
    if Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("SKIPPED (needs promtool: apt-get install prometheus): metrics in its checks");
        return;
    }
    let text = Scraped::new().text(sample());
    assert_eq!(piped(Command::new("promtool").args(["check", "metrics"]), &text), "");
}

/// The output of a program that succeeds.
fn piped(program: &mut Command, text: &str) -> String {
    let started = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.expect("it starts");
    // What it writes is short, so it reads all of this first.
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let (out, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaints}{out}{text}");
    out.into_owned()
}
