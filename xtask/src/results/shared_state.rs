//! `cargo xtask results shared-state`: the cost of transactions on shared state, their scaling on two cores, and the case studies of NFork.
//! The page uses the output of the program and the benchmark and nothing else.

use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::disturbance;
use super::page::{list, number};
use super::run_cache::utc;
use super::table::markdown;
use super::{Options, Run, gather};
use crate::check::root;

/// The functions, each with a short label for its setting and its traffic and configuration; the setting is a cause's remedy where there is
/// one.
const FUNCTIONS: [(&str, &str, &str); 14] = [
    ("firewall", "", ""),
    ("policer", "", ""),
    ("bridge", "refresh_interval", "--set refresh_interval=60"),
    ("load-balancer", "one server's traffic", SERVICES),
    ("anti-ddos", "staleness_us", "--set staleness_us=100"),
    ("nat", "port_preservation", "--set port_preservation=false"),
    ("port-scan", "", ""),
    ("dns-tunnel", "", ""),
    ("sidejacking", "", ""),
    ("web-cache", "", ""),
    ("app-classifier", "", ""),
    ("flow-buffer", "", ""),
    ("asset-monitor", "", ""),
    ("ipsec", "64 tunnels", "--config docs/results/tunnels.toml"),
];

/// Sixteen clients use one server, which is configured as the service, so all traffic is balanced.
const SERVICES: &str = "--hosts 16 --set services=[\
    {address=\"198.18.0.0:443\",protocol=\"tcp\",backends=[\"10.9.0.1:443\",\"10.9.0.2:443\"]},\
    {address=\"198.18.0.0:80\",protocol=\"tcp\",backends=[\"10.9.0.1:80\",\"10.9.0.2:80\"]},\
    {address=\"198.18.0.0:22\",protocol=\"tcp\",backends=[\"10.9.0.1:22\"]},\
    {address=\"198.18.0.0:443\",protocol=\"udp\",backends=[\"10.9.0.1:443\"]},\
    {address=\"198.18.0.0:53\",protocol=\"udp\",backends=[\"10.9.0.3:53\"]}]";

/// The most that a function may lose on one core by transactions, in percent, if there is an aim.
fn aim(function: &str) -> Option<u32> {
    match function {
        "firewall" | "policer" => Some(10),
        "bridge" | "load-balancer" | "anti-ddos" => Some(25),
        "nat" => Some(35),
        _ => None,
    }
}

/// The case studies: a name, what is profiled, and the recipe.
const CASES: [(&str, &str, &str); 4] = [
    ("anti-ddos", "anti-ddos --synth syn-flood --churn", "staleness_us=100"),
    ("nat", "nat --synth syn-flood --churn --rate 12k --config docs/results/nat-pool.toml", "pool.overprovision=0.25"),
    ("nat-ports", "nat --synth university-dc", "port_preservation=false"),
    ("bridge", "bridge --synth university-dc", "refresh_interval=60"),
];

/// Millions of packets a second: the median of the rounds, and the fastest.
#[derive(Clone, Copy)]
struct Rate {
    median: f64,
    fastest: f64,
}

impl Rate {
    fn of(bench: &Value, engine: &str, cores: u64) -> Option<Self> {
        let row = bench["rows"].as_array()?.iter().find(|row| row["engine"] == engine && row["cores"] == cores)?;
        Self::at(&row["mpps"])
    }

    fn at(spread: &Value) -> Option<Self> {
        Some(Self { median: spread["median"].as_f64()?, fastest: spread["max"].as_f64()? })
    }

    fn less_than(self, other: Self) -> String {
        let less = |this: f64, other: f64| 100.0 * (1.0 - this / other);
        format!("{:.0} % ({:.0} %)", less(self.median, other.median), less(self.fastest, other.fastest))
    }

    fn over(self, other: Self) -> String {
        format!("{:.2} ({:.2})", self.median / other.median, self.fastest / other.fastest)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2})", self.median, self.fastest)
    }
}

/// Runs what isn't cached, and writes the page.
pub(crate) fn make(options: &Options) -> Result<()> {
    let gathered = gather(options, "shared-state", &plan(options.is_quick()))?;
    let run = |name: &str| gathered.runs.get(name).with_context(|| format!("the run {name} is missing"));
    let mut page = String::from("# Shared state by transactions, measured\n\n");
    if options.is_quick() {
        page += "**This page is of a quick run**. It only shows that the page can be made; its figures are not results.\n\n";
    }
    page += "`cargo xtask results shared-state` makes this page. [Decision 0015](../decisions/0015-transactional-memory.md) describes what is compared; NFork is the paper \
             behind it. All figures are measured, on no more threads than the machine has processors. Mpps are medians \
             of interleaved rounds, from memory. Figures in parentheses are of the fastest rounds: other programs on \
             the machine slow rounds down, by a third and for seconds at a time, and never speed them up.\n\n";
    for (campaign, names) in gathered.campaigns.values() {
        page +=
            &format!("* {} runs begun {}, load averages then {}.\n", names.len(), utc(campaign.start_s), campaign.load);
    }
    page += &disturbance::summary(&gathered.runs);
    page += "\n## What transactions cost on one core, and what two yield\n\n";
    let mut rows = Vec::new();
    for (function, setting, _) in FUNCTIONS {
        let bench = run(&format!("overhead/{function}"))?;
        let (Some(local), Some(one)) = (Rate::of(bench, "sequential", 1), Rate::of(bench, "transactional", 1)) else {
            continue;
        };
        let (two, locked) = (Rate::of(bench, "transactional", 2), Rate::of(bench, "shared", 2));
        let recording = list(run(&format!("recording/{function}"))?, "profiles")?.first();
        let recording =
            recording.and_then(|profile| Some((Rate::at(&profile["mpps"])?, Rate::at(&profile["mpps_recorded"])?)));
        rows.push(vec![
            format!("{function} {setting}").trim().to_owned(),
            local.to_string(),
            one.to_string(),
            one.less_than(local),
            aim(function).map_or_else(|| "-".into(), |aim| format!("{aim} %")),
            two.map_or_else(|| "-".into(), |two| two.to_string()),
            two.map_or_else(|| "-".into(), |two| two.over(one)),
            locked.map_or_else(|| "-".into(), |locked| locked.to_string()),
            recording.map_or_else(|| "-".into(), |(plain, recorded)| recorded.less_than(plain)),
            "measured".into(),
        ]);
    }
    let columns = [
        "function",
        "local",
        "transactional",
        "less",
        "aim",
        "on two cores",
        "times one (aim 1.7)",
        "shared, two",
        "recording (aim 5 %)",
        "",
    ];
    page += &markdown(&columns, &rows);
    page += "`local` is `sequential`. Functions whose packet sets share nothing run as under `rss`. `shared` has one lock for shared state, or one \
         for each flow if there is none. All functions get the same synthetic traffic. Its payloads are no messages, \
         so a function that reads messages looks at all of them and finds none. `millrace profile` measures the cost \
         of recording on one core, where no step fails. Where steps fail, recording changes which of them conflict, so \
         a run with it may be slower or faster.\n\n## Case studies\n\n";
    for (name, profiled, recipe) in CASES {
        let profiles = list(run(&format!("case/{name}"))?, "profiles")?;
        let [before, after] = profiles else { continue };
        page += &format!("`millrace profile {profiled} --cores 2 --set '{recipe}'`\n\n");
        let mut rows = Vec::new();
        for (name, path) in [
            ("Mpps", "/mpps/median"),
            ("transactions", "/transactions/committed"),
            ("failed attempts", "/transactions/aborted"),
            ("of all attempts, %", "/transactions/aborted_percent"),
            ("packets dropped, %", "/dropped_percent"),
            ("ran alone", "/transactions/ran_alone"),
            ("recording costs, %", "/recording_costs_percent"),
        ] {
            let shown = |profile: &Value| {
                number(profile, path).map(|n| if n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.2}") })
            };
            rows.push(vec![name.into(), shown(before)?, shown(after)?, "measured".into()]);
        }
        let first = |profile: &Value| profile["causes"][0]["cause"].as_str().unwrap_or("none").to_owned();
        rows.push(vec!["first cause".into(), first(before), first(after), "measured".into()]);
        page += &markdown(&["", "before", recipe, ""], &rows);
    }
    page += "## The microbenchmark of figure 6a\n\n`cargo bench -p millrace-memory --bench contention`: 10,000 elements; million steps a second, by number of cores.\n\n```text\n";
    page += &contention()?;
    page += "```\n";
    let to = options.to.clone().unwrap_or_else(|| root().join("docs/results"));
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    let path = to.join("shared-state.md");
    fs::write(&path, page).with_context(|| format!("{} can't be written", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn plan(quick: bool) -> Vec<Run> {
    let (flows, packets, round, rounds) = if quick { ("1k", "20k", "40k", 2) } else { ("10k", "200k", "600k", 15) };
    let small = format!("--packets {packets} --round-packets {round}");
    // Short rounds, since more of them are undisturbed.
    let turns = if quick { "--round-packets 40k --rounds 2" } else { "--round-packets 200k --rounds 9 --undisturbed" };
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect();
    let mut runs = Vec::new();
    for (function, _, setting) in FUNCTIONS {
        let line =
            format!("bench {function} --synth university-dc --flows {flows} --packets {packets} {turns} {setting}");
        let line = format!("{line} --engines sequential,transactional,shared --cores 1-2 --json");
        runs.push(Run { name: format!("overhead/{function}"), arguments: words(line) });
        let line =
            format!("profile {function} --synth university-dc --flows {flows} {small} --rounds {rounds} {setting}");
        let line = format!("{line} --cores 1 --json");
        runs.push(Run { name: format!("recording/{function}"), arguments: words(line) });
    }
    for (name, profiled, recipe) in CASES {
        // With churn there is one flow for each packet.
        let flows = if profiled.contains("--churn") { packets } else { flows };
        let line =
            format!("profile {profiled} --flows {flows} {small} --rounds {rounds} --cores 2 --set {recipe} --json");
        runs.push(Run { name: format!("case/{name}"), arguments: words(line) });
    }
    runs
}

/// The benchmark's output.
fn contention() -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["bench", "--quiet", "--package", "millrace-memory", "--bench", "contention"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().context("cargo can't be run")?;
    ensure!(output.status.success(), "the benchmark failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
