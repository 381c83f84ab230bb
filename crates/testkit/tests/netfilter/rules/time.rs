//! Takes time out of rule sets, as the kernel's is real and ours is that of the packets.

use iptables::matches::{HashLimitRate, StatisticMode};
use iptables::{Match, RuleSet};

/// Most packets an hour that a rewritten rate lets pass: none in the time of a test.
const AN_HOUR_MAX: u32 = 20;

/// Options whose value is a rate, and those whose value is a time, with a long one.
const RATES: [&str; 4] = ["--limit", "--hashlimit", "--hashlimit-upto", "--hashlimit-above"];
const BURSTS: [&str; 2] = ["--limit-burst", "--hashlimit-burst"];
/// The largest burst: the kernel's numbers wrap above, as rates are slow.
const BURST_MAX: u32 = 30;
const TIMES: [(&str, &str); 2] = [("--seconds", "3600"), ("--hashlimit-htable-expire", "3600000")];

/// Makes rates so slow, and times so long, that nothing changes by the clock during a test.
pub(crate) fn slowed(text: &str) -> String {
    text.lines().map(|line| slowed_line(line) + "\n").collect()
}

fn slowed_line(line: &str) -> String {
    let mut line = without_counters(line);
    for option in RATES {
        replace_value(&mut line, option, |rate| {
            let number: u32 = rate.split('/').next()?.parse().ok()?;
            Some(format!("{}/hour", number.min(AN_HOUR_MAX)))
        });
    }
    for option in BURSTS {
        replace_value(&mut line, option, |burst| Some(burst.parse::<u32>().ok()?.min(BURST_MAX).to_string()));
    }
    for (option, long) in TIMES {
        replace_value(&mut line, option, |_| Some(long.to_owned()));
    }
    line
}

/// The line without counters to start with: ours start at 0.
fn without_counters(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    if let Some(at) = words.iter().position(|word| *word == "-c" || *word == "--set-counters") {
        words.drain(at..(at + 3).min(words.len()));
    }
    words.join(" ")
}

/// Replaces the words behind an option.
fn replace_value(line: &mut String, option: &str, new: impl Fn(&str) -> Option<String>) {
    let (option, mut from) = (format!(" {option} "), 0);
    while let Some(found) = line[from..].find(&option) {
        let at = from + found + option.len();
        let end = line[at..].find(' ').map_or(line.len(), |len| at + len);
        if let Some(new) = new(&line[at..end]) {
            line.replace_range(at..end, &new);
        }
        from = at;
    }
}

/// Returns a feature of the rule set whose outcome depends on time or chance on either side, if it has one.
pub(crate) fn uncertain(rules: &RuleSet) -> Option<&'static str> {
    let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    for rule in all {
        for test in &rule.matches {
            match &**test {
                Match::Time(_) => return Some("time"),
                Match::Statistic(statistic) if matches!(statistic.mode.value, StatisticMode::Random { .. }) => {
                    return Some("statistic --mode random");
                }
                Match::HashLimit(limit) if matches!(limit.rate.value, HashLimitRate::Bytes { .. }) => {
                    return Some("hashlimit by bytes");
                }
                Match::Conntrack(conntrack) if conntrack.expires_s.is_some() => return Some("conntrack --ctexpire"),
                _ => {}
            }
        }
    }
    None
}
