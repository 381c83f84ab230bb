//! Rule sets from public repositories: what the real tool loads is loaded and printed as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use millrace_iptables::{ErrorKind, Errors, Options, parse};

use crate::shared::{folder, rows};

/// Rule sets that the real tool loads, and why they are refused.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("1e8bf20749.v4.rules", "owner"),
    ("52eb7973b7.v4.rules", "owner"),
    ("6f282ffe89.v4.rules", "owner"),
    ("998544e2ee.v4.rules", "owner"),
    ("c01c63f0ad.v4.rules", "owner"),
    ("e64f6a5676.v4.rules", "owner"),
];

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
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(
        unsupported.into_iter().collect::<Vec<_>>(),
        UNSUPPORTED.map(|(file, name)| { (file.to_owned(), BTreeSet::from([name.to_owned()])) })
    );
    assert_eq!((equal, refused), (465, 54));
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

/// The lines that the tool names in its errors.
#[test]
fn errors_are_on_the_line_that_the_tool_names() {
    let Some(folder) = folder("rulesets") else { return };
    let mut named = 0;
    for row in rows(&folder.join("MANIFEST.tsv")) {
        let said = &row[16];
        let Some(line) = said.strip_suffix(" failed").and_then(|said| said.rsplit(' ').next()?.parse::<u32>().ok())
        else {
            continue;
        };
        let text = fs::read_to_string(folder.join(&row[0])).expect("a rule set is text");
        let errors = parse(&text, &Options { name: &row[0], ..Options::default() }).expect_err("the tool refuses it");
        // Where it names a COMMIT, the kernel refused a line before that.
        let is_commit = text.lines().nth(line as usize - 1) == Some("COMMIT");
        let on_line = errors.errors.iter().any(|error| error.at.line == line || is_commit && error.at.line < line);
        assert!(on_line, "{}: {said}, not {errors}", row[0]);
        named += 1;
    }
    assert_eq!(named, 11);
}
