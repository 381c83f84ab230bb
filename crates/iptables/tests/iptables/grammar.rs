//! iptables' own tests of its grammar, with what the tools of Debian 12 said of each line.

use std::collections::BTreeMap;
use std::fs;

use millrace_iptables::{ErrorKind, Family, Options, Sets, parse};
use serde_json::Value;

use crate::shared::{folder, rows};

#[test]
fn grammar_tests_of_iptables() {
    let Some(folder) = folder("iptables-tests") else { return };
    let text = fs::read_to_string(folder.join("ext_tests.jsonl")).expect("the tests can be read");
    let tests: BTreeMap<String, Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .map(|test: Value| (test["id"].as_str().expect("a test has an id").to_owned(), test))
        .collect();
    let (mut equal, mut refused) = (0, 0);
    let mut unsupported: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows(&folder.join("observed_legacy.tsv")) {
        let [id, file, line, command, _, observed, rule, got] = row.as_slice() else { panic!("a row has eight fields") };
        let family = if command == "ip6tables" { Family::V6 } else { Family::V4 };
        let table = tests[id]["table"].as_str().expect("a test has a table");
        let chains = tests[id]["chains"].as_array().expect("a test has chains");
        let of_got = got.strip_prefix("-A ").and_then(|rest| rest.split(' ').next());
        let chain = of_got.or_else(|| chains[0].as_str()).expect("a chain has a name");
        let options = Options { family: Some(family), sets: Some(&Sets { sets: Vec::new() }), ..Options::default() };
        let text = format!("*{table}\n-A {chain} {rule}\nCOMMIT\n");
        let place = format!("{file}:{line} {command} {observed}: {rule}");
        match parse(&text, &options) {
            Ok(parsed) if of_got.is_some() => {
                let printed = parsed.rules.to_string();
                let printed = printed.lines().find(|line| line.starts_with("-A")).unwrap_or_default();
                match printed == got {
                    true => equal += 1,
                    false => wrong.push(format!("{place}\n  {printed}\n  {got}")),
                }
            }
            Ok(_) => wrong.push(format!("{place}\n  is taken\n  {got}")),
            Err(errors) if errors.errors[0].kind == ErrorKind::Unsupported => {
                *unsupported.entry(errors.errors[0].feature.clone()).or_default() += 1;
            }
            Err(errors) if of_got.is_some() => wrong.push(format!("{place}\n  {errors}")),
            Err(_) => refused += 1,
        }
    }
    println!("{equal} equal, {refused} refused, unsupported {}: {unsupported:#?}", unsupported.values().sum::<usize>());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
