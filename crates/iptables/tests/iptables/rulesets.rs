//! Rule sets from public repositories: what the real tool loads is loaded and printed as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use millrace_iptables::{ErrorKind, Errors, Options, parse};

use crate::shared::{folder, rows};

#[test]
fn rule_sets_from_the_field() {
    let Some(folder) = folder("rulesets") else { return };
    let mut unsupported: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut equal, mut refused) = (0, 0);
    let mut wrong = Vec::new();
    for row in rows(&folder.join("MANIFEST.tsv")) {
        let (file, loads) = (&row[0], row[6] == "1");
        let text = fs::read_to_string(folder.join(file)).expect("a rule set is text");
        let options = Options { name: file, ..Options::default() };
        match (parse(&text, &options), loads) {
            (Ok(parsed), true) => {
                let canon = fs::read_to_string(folder.join("canon").join(file.replace(".rules", ".save")));
                let (printed, canon) = (parsed.rules.to_string(), canon.expect("the tool's output is there"));
                match first_difference(&printed, &canon) {
                    None => equal += 1,
                    Some(difference) => wrong.push(format!("{file}: {difference}")),
                }
            }
            (Err(errors), true) => match names(&errors) {
                Some(names) => {
                    unsupported.insert(file.clone(), names);
                }
                None => wrong.push(format!("{file} is refused: {errors}")),
            },
            (Ok(_), false) => wrong.push(format!("{file} is taken, yet the tool says {}", row[16])),
            (Err(_), false) => refused += 1,
        }
    }
    println!("{equal} equal, {refused} refused, unsupported: {unsupported:#?}");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The first line that differs, with its counterpart.
fn first_difference(printed: &str, canon: &str) -> Option<String> {
    if printed == canon {
        return None;
    }
    let pair = printed.lines().zip(canon.lines()).find(|(ours, theirs)| ours != theirs);
    Some(pair.map_or_else(|| "the lengths differ".to_owned(), |(ours, theirs)| format!("\n  {ours}\n  {theirs}")))
}

/// What is unsupported, if nothing else is wrong.
fn names(errors: &Errors) -> Option<BTreeSet<String>> {
    let unsupported = errors.errors.iter().all(|error| error.kind == ErrorKind::Unsupported);
    unsupported.then(|| errors.errors.iter().map(|error| error.feature.clone()).collect())
}
