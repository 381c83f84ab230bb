//! iptables' own tests of its grammar, with what the tools of Debian 12 said of each line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use millrace_iptables::{ErrorKind, Family, Options, Sets, parse};
use serde_json::Value;

use crate::shared::{folder, rows};

/// What became of the lines.
#[derive(Default)]
struct Outcome {
    /// Taken, and printed as the tool does.
    equal: usize,
    /// Refused, as by the tool.
    refused: usize,
    /// Refused by name, with the number of lines.
    unsupported: BTreeMap<String, usize>,
    /// File, line and command of those that are printed otherwise.
    differ: BTreeSet<String>,
}

/// A `!` before a range of all values is kept, as the rule then matches nothing. The tool loses it when it prints.
const NEVER: [&str; 5] = [
    "libip6t_frag.t:3 ip6tables",
    "libip6t_mh.t:8 ip6tables",
    "libip6t_rt.t:7 ip6tables",
    "libxt_tcp.t:16 iptables",
    "libxt_tcp.t:16 ip6tables",
];

#[test]
fn grammar_tests_of_iptables() {
    let Some(outcome) = outcome("observed_legacy.tsv") else { return };
    let expected = [
        ("AUDIT", 4),
        ("CONNSECMARK", 4),
        ("DNPT", 3),
        ("HMARK", 10),
        ("IDLETIMER", 6),
        ("LED", 2),
        ("NFQUEUE", 22),
        ("RATEEST", 2),
        ("SNPT", 2),
        ("SYNPROXY", 2),
        ("TPROXY", 2),
        ("bpf", 2),
        ("cgroup", 8),
        ("cluster", 2),
        ("connlabel", 4),
        ("cpu", 4),
        ("ipvs", 19),
        ("nfacct", 4),
        ("osf", 1),
        ("owner", 12),
        ("policy", 7),
        ("rateest", 10),
        ("socket", 8),
        ("srh", 9),
    ];
    assert_eq!(outcome.unsupported, expected.map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!(outcome.differ, NEVER.map(str::to_owned).into());
    assert_eq!((outcome.equal, outcome.refused), (541, 178));
}

/// The tool for nftables prints two lines in its own way: it ignores `--nflog-range`, and cuts a longer prefix elsewhere.
#[test]
fn grammar_tests_of_the_newer_tool() {
    let Some(outcome) = outcome("observed_nft.tsv") else { return };
    let of_nft = [
        "libxt_NFLOG.t:18 iptables",
        "libxt_NFLOG.t:18 ip6tables",
        "libxt_NFLOG.t:8 iptables",
        "libxt_NFLOG.t:8 ip6tables",
    ];
    assert_eq!(outcome.differ, NEVER.into_iter().chain(of_nft).map(str::to_owned).collect());
    assert_eq!((outcome.equal, outcome.refused), (537, 178));
}

/// Reads each line of the tests. Panics if a line is taken that the tool refuses, or refused that it takes.
fn outcome(observed: &str) -> Option<Outcome> {
    let folder = folder("iptables-tests")?;
    let text = fs::read_to_string(folder.join("ext_tests.jsonl")).expect("the tests can be read");
    let tests: BTreeMap<String, Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .map(|test: Value| (test["id"].as_str().expect("a test has an id").to_owned(), test))
        .collect();
    let mut outcome = Outcome::default();
    for row in rows(&folder.join(observed)) {
        let [id, file, line, command, _, _, rule, got] = row.as_slice() else { panic!("a row has eight fields") };
        let family = match command.as_str() {
            "iptables" => Family::V4,
            "ip6tables" => Family::V6,
            _ => continue,
        };
        let table = tests[id]["table"].as_str().expect("a test has a table");
        let chains = tests[id]["chains"].as_array().expect("a test has chains");
        let of_got = got.strip_prefix("-A ").and_then(|rest| rest.split(' ').next());
        let chain = of_got.or_else(|| chains[0].as_str()).expect("a chain has a name");
        let options = Options { family: Some(family), sets: Some(&Sets { sets: Vec::new() }), ..Options::default() };
        let place = format!("{file}:{line} {command}");
        match (parse(&format!("*{table}\n-A {chain} {rule}\nCOMMIT\n"), &options), of_got.is_some()) {
            (Ok(parsed), true) => {
                let printed = parsed.rules.to_string();
                match printed.lines().any(|line| line == got) {
                    true => outcome.equal += 1,
                    false => _ = outcome.differ.insert(place),
                }
            }
            (Err(errors), _) if errors.errors[0].kind == ErrorKind::Unsupported => {
                *outcome.unsupported.entry(errors.errors[0].feature.clone()).or_default() += 1;
            }
            (Err(_), false) => outcome.refused += 1,
            (Ok(_), false) => panic!("{place}: `{rule}` is taken, yet the tool says {got}"),
            (Err(errors), true) => panic!("{place}: `{rule}` is refused: {errors}"),
        }
    }
    Some(outcome)
}
