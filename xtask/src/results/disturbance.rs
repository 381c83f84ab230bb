//! The page's sentences about rounds that other programs disturbed.

use std::collections::BTreeMap;

use serde_json::Value;

/// Counts of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rounds {
    run: u64,
    disturbed: u64,
}

/// A list item: how many rounds of these runs were disturbed and left out, and which figures come from disturbed rounds, as there were no
/// others.
pub(super) fn summary(runs: &BTreeMap<String, Value>) -> String {
    let mut all = Rounds::default();
    let mut without: Vec<String> = Vec::new();
    for (name, run) in runs {
        let mut found = Vec::new();
        find(run, &mut found);
        let disturbed = found.iter().filter(|rounds| rounds.disturbed == rounds.run).count();
        if disturbed > 0 {
            without.push(format!("{name} ({disturbed} of {} figures)", found.len()));
        }
        for Rounds { run, disturbed } in found {
            all.run += run;
            all.disturbed += disturbed;
        }
    }
    if all.run == 0 {
        return String::new();
    }
    let Rounds { run, disturbed } = all;
    let mut line = format!(
        "* **Only undisturbed rounds count** in runs with `--undisturbed`. A gauge, which is always the same work, runs \
         between bursts and shows which rounds other programs slowed down ([decision \
         0021](../decisions/0021-undisturbed-rounds.md)); {disturbed} of {run} rounds were disturbed.\n"
    );
    if !without.is_empty() {
        line += &format!(
            "* These figures come from disturbed rounds, as no other rounds were found: {}. They are too low, by as \
                much as a third.\n",
            without.join(", ")
        );
    }
    line
}

/// Collects the rounds of all figures in which only undisturbed rounds count.
fn find(value: &Value, found: &mut Vec<Rounds>) {
    match value {
        Value::Object(fields) => {
            if let (Some(run), Some(disturbed), Some(true)) =
                (value["run"].as_u64(), value["disturbed"].as_u64(), value["only_undisturbed"].as_bool())
            {
                found.push(Rounds { run, disturbed });
            }
            fields.values().for_each(|value| find(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(run: u64, disturbed: u64, only_undisturbed: bool) -> Value {
        json!({ "engine": "scr", "rounds": { "run": run, "disturbed": disturbed, "only_undisturbed": only_undisturbed } })
    }

    #[test]
    fn rounds_add_up_and_figures_without_a_good_one_are_named() {
        let runs = BTreeMap::from([
            ("first".to_owned(), json!({ "rows": [row(9, 4, true), row(7, 7, true)] })),
            ("second".to_owned(), json!({ "points": [{ "rows": [row(5, 0, true)] }] })),
            // Here all count.
            ("third".to_owned(), json!({ "rows": [row(5, 5, false)] })),
        ]);
        let line = summary(&runs);
        assert!(line.contains("11 of 21 rounds were disturbed"), "{line}");
        assert!(line.contains("were found: first (1 of 2 figures)."), "{line}");
        let mut quiet = runs;
        quiet.remove("first");
        let line = summary(&quiet);
        assert!(line.contains("0 of 5 rounds were disturbed") && !line.contains("were found"), "{line}");
    }

    #[test]
    fn nothing_is_said_where_nobody_looked() {
        let runs = BTreeMap::from([("functions".to_owned(), json!([{ "name": "nat" }]))]);
        assert_eq!(summary(&runs), "");
    }
}
