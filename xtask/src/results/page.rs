//! The page: a section for each figure, with its command and whether it was measured or modelled.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::paper::PROGRAMS;
use super::plot::{Line, Plot, Point};
use super::run_cache::{Campaign, utc};
use super::table::markdown;
use super::{FAR_LINE, PROCESSES, Results, claims, disturbance};

/// Figures of another machine.
const SIXTEEN_CORES: &str = include_str!("sixteen.md");

/// The page and its pictures, by file name.
pub(super) fn files(results: &Results) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let sections = [
        head(results)?,
        claims::summary(results)?,
        figure_1(results, &mut files)?,
        figures_6_7(results, &mut files)?,
        loss_free(results)?,
        hybrid(results)?,
        figure_9(results, &mut files)?,
        figure_10a(results, &mut files)?,
        figure_10b(results, &mut files)?,
        figure_11(results, &mut files)?,
        software_sequencer(results)?,
        SIXTEEN_CORES.to_owned(),
        table_2(results),
        claims::differences(results)?,
    ];
    files.push(("scr.md".to_owned(), sections.concat().trim_end().to_owned() + "\n"));
    Ok(files)
}

impl Results {
    pub(super) fn run(&self, name: &str) -> Result<&Value> {
        self.runs.get(name).with_context(|| format!("the run {name} is missing"))
    }

    /// The runs of figures 6 and 7, by trace and function.
    pub(super) fn traces(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.of("traces/")
    }

    /// The runs with this prefix, whose names continue with trace and function.
    fn of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
        self.runs.iter().filter_map(move |(name, run)| {
            let (trace, function) = name.strip_prefix(prefix)?.split_once('/')?;
            Some((trace, function, run))
        })
    }

    /// All runs with `rss++`, `scr` and `hybrid` side by side: traffic, function, run.
    pub(super) fn three(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let one = self.runs.get("figure-1").map(|run| ("single-flow", "conntrack", run));
        one.into_iter().chain(self.of("hybrid/")).chain(self.traces())
    }

    /// The rate of `hybrid` relative to the better of `rss++` and `scr` on so many cores, for each process, ascending: of the `median`
    /// rounds or of the fastest, `max`.
    pub(super) fn of_the_better(&self, trace: &str, function: &str, run: &Value, cores: u64, of: &str) -> Vec<f64> {
        let again = (2..=PROCESSES).filter_map(|process| self.runs.get(&format!("again-{process}/{trace}/{function}")));
        let mut times: Vec<f64> =
            std::iter::once(run).chain(again).filter_map(|run| of_the_better(run, cores, of)).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// The median of sorted values.
pub(super) fn middle(ascending: &[f64]) -> Option<f64> {
    ascending.get(ascending.len() / 2).copied()
}

fn of_the_better(run: &Value, cores: u64, of: &str) -> Option<f64> {
    let [sharded, replicated, hybrid] = ["rss++", "scr", "hybrid"].map(|engine| rate(run, engine, cores, of));
    Some(hybrid?.0 / sharded?.0.max(replicated?.0))
}

/// Loss-free rates, as the paper defines them.
fn loss_free(results: &Results) -> Result<String> {
    const ENGINES: [&str; 5] = ["shared", "rss", "rss++", "scr", "hybrid"];
    let mut out = "## Loss-free rates\n\nThe highest offered rate at which less than 4 % of the packets are lost, as in the paper's figures \
                   6 and 7: rings of 256 descriptors, bisection to 0.4 Mpps, the paper's dispatch added to each \
                   packet. Mpps, medians; flat out in brackets. If the operating system takes a core away for longer \
                   than its ring lasts, it loses packets at any rate, and the result is \"none\".\n\n"
        .to_owned();
    let mut rows = Vec::new();
    for (trace, function, run) in results.of("loss-free/") {
        let cores: BTreeSet<u64> = list(run, "rows")?.iter().filter_map(|row| row["cores"].as_u64()).collect();
        for cores in cores {
            let mut row = vec![function.to_owned(), trace.to_owned(), cores.to_string()];
            for engine in ENGINES {
                let found = list(run, "rows")?.iter().find(|row| row["engine"] == engine && row["cores"] == cores);
                let Some(found) = found else {
                    row.push("-".to_owned());
                    continue;
                };
                let passed = found["loss_free"]["mpps"]["median"].as_f64().filter(|mpps| *mpps > 0.0);
                let passed = passed.map_or_else(|| "none".to_owned(), |mpps| format!("{mpps:.1}"));
                row.push(format!("{passed} ({:.1})", number(found, "/mpps/median")?));
            }
            row.push("measured".to_owned());
            rows.push(row);
        }
    }
    out += &made_by(results.run("loss-free/university-dc/ddos")?);
    let columns = [vec!["function", "traffic", "cores"], ENGINES.to_vec(), vec!["Mpps are"]].concat();
    Ok(out + &markdown(&columns, &rows))
}

/// `hybrid` compared with the engines that it combines.
fn hybrid(results: &Results) -> Result<String> {
    let mut out = "## Hybrid against the better of rss++ and scr\n\nElephants are replicated, all other packet sets are sharded. Mpps, medians.".to_owned();
    if results.runs.keys().any(|name| name.starts_with("again-")) {
        out += &format!(
            " On two cores {PROCESSES} processes ran one after the other, since the place of tables in memory changes \
             a figure more than rounds do. The column \"of the better\" has the middle process, with the least and the \
             most; Mpps are the first process's."
        );
    }
    out += "\n\n";
    out += &made_by(results.run("hybrid/uniform/ddos")?);
    let mut rows = Vec::new();
    for (trace, function, run) in results.three() {
        let cores: BTreeSet<u64> = list(run, "rows")?.iter().filter_map(|row| row["cores"].as_u64()).collect();
        // Two, and the powers of two beyond that were modelled.
        for cores in cores.into_iter().filter(|cores| *cores > 1 && cores.is_power_of_two()) {
            let times = results.of_the_better(trace, function, run, cores, "median");
            let Some(middle) = middle(&times) else { continue };
            let found = ["rss++", "scr", "hybrid"].map(|engine| mpps(run, engine, cores));
            let modelled = found.iter().flatten().any(|(_, modelled)| *modelled);
            let mut row = vec![function.to_owned(), trace.to_owned(), cores.to_string()];
            row.extend(found.iter().flatten().map(|(mpps, _)| format!("{mpps:.1}")));
            let spread = match *times {
                [least, .., most] => format!(" ({least:.2} to {most:.2})"),
                _ => String::new(),
            };
            row.extend([format!("{middle:.2} times{spread}"), basis(modelled).to_owned()]);
            rows.push(row);
        }
    }
    let columns = ["function", "traffic", "cores", "rss++", "scr", "hybrid", "of the better", "Mpps are"];
    Ok(out + &markdown(&columns, &rows))
}

/// A number in a run's output, by JSON pointer.
pub(super) fn number(value: &Value, path: &str) -> Result<f64> {
    value.pointer(path).and_then(Value::as_f64).with_context(|| format!("there is no number at {path}"))
}

/// A list in a run's output.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value]> {
    let rows = value[name].as_array().with_context(|| format!("there are no {name}"))?;
    ensure!(!rows.is_empty(), "{name} has no rows");
    Ok(rows)
}

/// The median rate of an engine on so many cores, and whether it was modelled; `None` if there is no such row.
pub(super) fn mpps(run: &Value, engine: &str, cores: u64) -> Option<(f64, bool)> {
    rate(run, engine, cores, "median")
}

fn rate(run: &Value, engine: &str, cores: u64, of: &str) -> Option<(f64, bool)> {
    let row = run["rows"].as_array()?.iter().find(|row| row["engine"] == engine && row["cores"] == cores)?;
    Some((row["mpps"][of].as_f64()?, row["basis"] == "modelled"))
}

/// An engine's speed-up on two cores, if both rates were measured: of the `median` rounds or of the fastest, `max`.
pub(super) fn gain(run: &Value, engine: &str, of: &str) -> Option<f64> {
    let one = rate(run, "sequential", 1, of).or_else(|| rate(run, engine, 1, of))?;
    let two = rate(run, engine, 2, of).filter(|(_, modelled)| !modelled)?;
    Some(two.0 / one.0)
}

/// The command that repeats the run.
fn made_by(run: &Value) -> String {
    format!("Made by `{}`.\n\n", run["command"].as_str().unwrap_or("millrace"))
}

fn picture(files: &mut Vec<(String, String)>, name: &str, plot: &Plot<'_>) -> String {
    files.push((name.to_owned(), plot.svg()));
    format!("![{}]({name})\n\n", plot.title)
}

/// The load average up to which a machine counts as idle.
pub(super) const QUIET: f64 = 0.5;

fn head(results: &Results) -> Result<String> {
    let processor = results.run("figure-1")?["processor"].as_str().unwrap_or("an unknown processor");
    let quick = if results.quick {
        "**This page is of a quick run**, on small traces and with one or two rounds. It only shows that the page can \
         be made; its figures are not results.\n\n"
    } else {
        ""
    };
    let campaigns = &results.machine.campaigns;
    let load = |load: &str| load.split(',').next().and_then(|load| load.trim().parse().ok()).unwrap_or(0.0);
    let busiest = campaigns.values().map(|(campaign, _)| load(&campaign.load)).fold(0.0_f64, f64::max);
    let busy = if busiest > QUIET {
        "* **The machine was not quiet**: other programs ran on the same processors. That lowers rates of several cores \
         most.\n"
    } else {
        ""
    };
    Ok(format!(
        "# State-compute replication, reproduced\n\n{quick}`cargo xtask results scr` makes this page. It reproduces the figures and tables of \
         \"State-Compute Replication: Parallelizing High-Speed Stateful Packet Processing\" (NSDI '25).\n\n\
         * The machine: {} processors ({processor}).\n{}{busy}{disturbed}\
         * **measured**: as many threads as the row has cores, at the same time, each on a processor of its own. \
         **modelled**: each core's share run alone, one after the other, or a formula, which is named. Nothing is \
         timed on more cores than the machine has. Cores that read one log also fetch its lines from each other's \
         caches, which shares run alone don't show. So modelled rows add {FAR_LINE} for each cache line of the log, a \
         figure found on [sixteen real cores](#sixteen-real-cores) of another machine. That makes a step in the \
         pictures, where the modelled rows begin.\n\
         * Packets lie in memory and were sequenced beforehand, in place of a card. Without such a card, the sequencer \
         takes one more core.\n\
         * The sequencer has parsed all packets. On two cores and more, a replica reads the records of its own packets \
         from the log and parses nothing. A lone core has no log and parses. This is a part of the gain of `scr` over \
         one core ([decision 0014](../decisions/0014-replicas-that-catch-up.md)).\n\
         * Mpps are medians of interleaved rounds. In pictures, filled points are measured; hollow points and broken \
         lines are modelled.\n\n",
        results.machine.cores,
        times(campaigns),
        disturbed = disturbance::summary(&results.runs)
    ))
}

/// When the runs were made; with several campaigns, which runs belong to which.
fn times(campaigns: &BTreeMap<u64, (Campaign, Vec<String>)>) -> String {
    let when = |campaign: &Campaign| format!("{}, load averages then {}", utc(campaign.start_s), campaign.load);
    if let (1, Some((campaign, _))) = (campaigns.len(), campaigns.values().next()) {
        return format!("* The runs began {}.\n", when(campaign));
    }
    let mut out =
        format!("* **The runs are of {} times**, since they were interrupted and continued:\n", campaigns.len());
    for (campaign, runs) in campaigns.values() {
        out += &format!("  * begun {}: {}.\n", when(campaign), runs.join(", "));
    }
    out
}

/// Rates by cores and engine, in a table and a picture.
fn rates(run: &Value, name: &str, title: &str, files: &mut Vec<(String, String)>) -> Result<String> {
    let rows = list(run, "rows")?;
    let mut engines: Vec<&str> = Vec::new();
    for engine in rows.iter().filter_map(|row| row["engine"].as_str()) {
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    let cores: BTreeSet<u64> = rows.iter().filter_map(|row| row["cores"].as_u64()).collect();
    let mut cells = Vec::new();
    for cores in &cores {
        let found: Vec<_> = engines.iter().map(|engine| mpps(run, engine, *cores)).collect();
        let bases: BTreeSet<&str> = found.iter().flatten().map(|(_, modelled)| basis(*modelled)).collect();
        let rate = |found: &Option<(f64, bool)>| found.map_or_else(|| "-".to_owned(), |(mpps, _)| format!("{mpps:.1}"));
        let basis = bases.into_iter().collect::<Vec<_>>().join(", ");
        cells.push([vec![cores.to_string()], found.iter().map(rate).collect(), vec![basis]].concat());
    }
    let columns = [vec!["cores"], engines.clone(), vec!["Mpps are"]].concat();
    let line = |engine: &&str| {
        let point =
            |cores: &u64| mpps(run, engine, *cores).map(|(y, modelled)| Point { x: *cores as f64, y, modelled });
        Line { name: (*engine).to_owned(), points: cores.iter().filter_map(point).collect() }
    };
    let title = format!("{title} (filled: measured; hollow: modelled)");
    let plot = Plot { title, x_label: "cores", y_label: "Mpps", lines: engines.iter().map(line).collect() };
    let mut out = markdown(&columns, &cells);
    out += &picture(files, name, &plot);
    for refused in run["refused"].as_array().into_iter().flatten() {
        if let (Some(reason), true) = (refused["reason"].as_str(), refused["engine"] != "sequential") {
            out += &format!("* {}: {reason}\n", refused["engine"].as_str().unwrap_or_default());
        }
    }
    Ok(out.trim_end().to_owned() + "\n\n")
}

const fn basis(modelled: bool) -> &'static str {
    if modelled { "modelled: shares alone" } else { "measured" }
}

fn figure_1(results: &Results, files: &mut Vec<(String, String)>) -> Result<String> {
    let run = results.run("figure-1")?;
    Ok("## Figure 1: connection tracking over one TCP connection\n\n".to_owned()
        + &made_by(run)
        + &rates(run, "figure-1.svg", "conntrack over one TCP connection", files)?)
}

fn figures_6_7(results: &Results, files: &mut Vec<(String, String)>) -> Result<String> {
    let mut out = "## Figures 6 and 7: five functions on three kinds of traffic\n\n".to_owned();
    for (trace, function, run) in results.traces() {
        out += &format!("### {function} on {trace}\n\n{}", made_by(run));
        out += &rates(run, &format!("{function}-{trace}.svg"), &format!("{function} on {trace}"), files)?;
    }
    Ok(out)
}

fn figure_9(results: &Results, files: &mut Vec<(String, String)>) -> Result<String> {
    let run = results.run("sweep")?;
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for point in list(run, "points")? {
        let compute = number(point, "/compute/asked_ns")?;
        let one = mpps(point, "scr", 1).context("the sweep has a row of one core")?.0;
        let mut line = Line { name: format!("{compute:.0} ns"), points: Vec::new() };
        for row in list(point, "rows")? {
            let cores = row["cores"].as_u64().context("a row has cores")?;
            let (found, modelled) = mpps(point, "scr", cores).context("the sweep is of scr")?;
            line.points.push(Point { x: cores as f64, y: found / one, modelled });
            let others = cores as f64 - 1.0;
            let spared = if cores > 1 { number(point, "/model_ns/s")? } else { 0.0 };
            let r = if modelled { "/model_ns/r_beyond" } else { "/model_ns/r" };
            let record = number(point, "/model_ns/c2")? + number(point, r)?;
            let by_model = cores as f64 / (number(point, "/model_ns/t")? - spared + others * record) * 1e3;
            rows.push(vec![
                format!("{compute:.0}"),
                cores.to_string(),
                format!("{found:.2}"),
                format!("{:.2}", found / one),
                format!("{by_model:.2}"),
                format!("{:+.1} %", (by_model / found - 1.0) * 100.0),
                format!("{}; the model's column modelled", basis(modelled)),
            ]);
        }
        lines.push(line);
    }
    let columns =
        ["compute, ns", "cores", "Mpps", "times one core", "k / (t - s + (k-1) (c2 + r))", "model's error", "Mpps are"];
    let title = "scr of a stateless program that takes ever longer (filled: measured; hollow: modelled)".to_owned();
    let plot = Plot { title, x_label: "cores", y_label: "times one core", lines };
    Ok("## Figure 9: as the program takes longer\n\n".to_owned()
        + &made_by(run)
        + &markdown(&columns, &rows)
        + &picture(files, "figure-9.svg", &plot))
}

/// Bytes of a packet on a link besides its frame: preamble, check sequence, gap.
const LINK_BYTES: f64 = 24.0;
/// The carrier's outer header and trailer, and a record's time.
const ETHERNET_BYTES: u64 = 14;
const TRAILER_BYTES: u64 = 32;
const TIME_BYTES: u64 = 8;
const LINK_BITS_PER_S: f64 = 100e9;
const FRAMES: [u64; 2] = [60, 252];

/// The bytes that a packet grows by, from decision 0008.
fn growth(record_bytes: u64, cores: u64) -> u64 {
    if cores == 1 { 0 } else { ETHERNET_BYTES + (cores - 1) * (TIME_BYTES + record_bytes) + TRAILER_BYTES }
}

/// The rate at which the link is full, in Mpps.
fn full(frame: u64, growth: u64) -> f64 {
    LINK_BITS_PER_S / 8.0 / (frame as f64 + growth as f64 + LINK_BYTES) / 1e6
}

/// The size of a function's record in bytes.
pub(super) fn record_bytes(results: &Results, function: &str) -> Result<u64> {
    let functions = results.run("functions")?.as_array().context("the functions are a list")?;
    let facts = functions.iter().find(|facts| facts["name"] == function);
    facts.and_then(|facts| facts["record_bytes"].as_u64()).with_context(|| format!("{function} tells no record_bytes"))
}

fn figure_10a(results: &Results, files: &mut Vec<(String, String)>) -> Result<String> {
    let mut out = "## Table 1 and figure 10a: what a history weighs\n\n".to_owned();
    let (mut records, mut rows, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for program in &PROGRAMS {
        let bytes = record_bytes(results, program.name)?;
        records.push(vec![
            program.name.to_owned(),
            bytes.to_string(),
            program.record_bytes.to_string(),
            "by the function's type".to_owned(),
        ]);
        let mut line = Line { name: program.name.to_owned(), points: Vec::new() };
        for cores in [1, 2, 4, 7, 8, 12, 16] {
            let growth = growth(bytes, cores);
            line.points.push(Point { x: cores as f64, y: full(FRAMES[0], growth), modelled: true });
            if [2, 7, 16].contains(&cores) {
                let rates = FRAMES.map(|frame| format!("{:.1}", full(frame, growth)));
                let [small, larger] = rates;
                let name = program.name.to_owned();
                rows.push(vec![
                    name,
                    cores.to_string(),
                    growth.to_string(),
                    small,
                    larger,
                    "modelled: arithmetic".to_owned(),
                ]);
            }
        }
        lines.push(line);
    }
    out += &markdown(&["function", "record, bytes", "paper, table 1", "how"], &records);
    out += "[Decision 8](../decisions/0008-carriers.md) says why records are larger than the paper's, mostly for IPv6 and for \
            windows as Linux checks them.\n\n";
    out += &format!(
        "A packet for `k` cores grows by {ETHERNET_BYTES} + (k-1) ({TIME_BYTES} + record) + {TRAILER_BYTES} bytes. The \
         table shows the rate that fills a link of 100 Gbit/s, for packets of 64 and 256 bytes (check sequence \
         included) with this growth and 20 bytes of preamble and gap each:\n\n"
    );
    out += &markdown(&["function", "cores", "bytes more", "Mpps of 64 bytes", "Mpps of 256 bytes", "Mpps are"], &rows);
    let title = "100 Gbit/s full of 64-byte packets with their history (modelled: arithmetic)".to_owned();
    out += &picture(files, "figure-10a.svg", &Plot { title, x_label: "cores", y_label: "Mpps", lines });
    Ok(out)
}

fn figure_10b(results: &Results, files: &mut Vec<(String, String)>) -> Result<String> {
    let mut out = "## Figure 10b: loss recovery\n\nReplicas on two cores behind a link that loses packets with their histories. *Of the best*: against \
                   the same round without loss and with recovery off. Histories stay in the replay's memory, as behind \
                   a port that keeps a packet's buffer until all cores have passed it. Nothing is copied into logs. \
                   Without recovery replicas differ after the first loss, so those rows show speed only.\n\n"
        .to_owned();
    if !results.runs.contains_key("link/port-knock") {
        return Ok(
            out + "Loss recovery is between two cores that run at the same time, and this machine has only one.\n\n"
        );
    }
    for (kind, words) in
        [("link", "as the memory port is"), ("link-dispatch", "with the paper's dispatch added to each packet")]
    {
        let mut rows = Vec::new();
        for program in &PROGRAMS {
            let run = results.run(&format!("{kind}/{}", program.name))?;
            for row in list(run, "link")? {
                rows.push(vec![
                    program.name.to_owned(),
                    format!("{} %", number(row, "/link_loss_percent")?),
                    if row["recovery"] == true { "on" } else { "off" }.to_owned(),
                    format!("{:.2}", number(row, "/mpps/median")?),
                    format!("{:.1} %", number(row, "/of_no_loss_no_recovery/median")? * 100.0),
                    row["recovered"].to_string(),
                    row["nowhere"].to_string(),
                    row["basis"].as_str().unwrap_or_default().to_owned(),
                ]);
            }
        }
        let columns =
            ["function", "loss", "recovery", "Mpps", "of the best", "recovered", "reached nobody", "Mpps are"];
        out += &format!("### {}\n\n", words[..1].to_uppercase() + &words[1..]);
        out += &made_by(results.run(&format!("{kind}/port-knock"))?);
        out += &markdown(&columns, &rows);
    }
    let run = results.run("link/port-knock")?;
    let mut lines = Vec::new();
    for recovery in [false, true] {
        let mut line = Line { name: format!("recovery {}", if recovery { "on" } else { "off" }), points: Vec::new() };
        for row in list(run, "link")?.iter().filter(|row| row["recovery"] == recovery) {
            let (x, y) = (number(row, "/link_loss_percent")?, number(row, "/mpps/median")?);
            line.points.push(Point { x, y, modelled: false });
        }
        lines.push(line);
    }
    let title = "port-knock, scr on two cores behind a link that loses packets (measured)".to_owned();
    out += &picture(files, "figure-10b.svg", &Plot { title, x_label: "packets lost, %", y_label: "Mpps", lines });
    Ok(out)
}

/// The sequencer in software, which replicas need if no card sequences.
fn software_sequencer(results: &Results) -> Result<String> {
    let mut out = "## The sequencer in software\n\nThe sequencer alone on one core, without sending: it numbers packets, computes their records and \
                   chooses cores. With a shared log packets stay in place. With piggyback each packet is copied behind \
                   its history. Mpps, medians.\n\n"
        .to_owned();
    let mut rows = Vec::new();
    for trace in ["university-dc", "single-flow"] {
        for program in &PROGRAMS {
            let found = &results.run(&format!("fit/{trace}/{}", program.name))?["software_sequencer"];
            rows.push(vec![
                program.name.to_owned(),
                trace.to_owned(),
                format!("{:.1}", number(found, "/shared_log_mpps/median")?),
                format!("{:.1}", number(found, "/piggyback_mpps/median")?),
                format!("{}", number(found, "/piggyback_bytes")?),
                format!("{}", number(found, "/cores")?),
                "measured".to_owned(),
            ]);
        }
    }
    let columns = ["function", "traffic", "shared log", "piggyback", "bytes more a packet", "cores behind", "Mpps are"];
    out += &markdown(&columns, &rows);
    Ok(out)
}

fn figure_11(results: &Results, files: &mut Vec<(String, String)>) -> Result<String> {
    let mut out = format!(
        "## Table 4 and figure 11: the cost model\n\nNanoseconds, measured on one core, university-dc, a thousand flows. `t`: all of a packet on one \
                   core. `d`: its dispatch. `c1`: its step. `c2`: the step for one record of a history. `s`: what a \
                   replica saves of `t`, as its own packets' records lie in the log. `r`: what a record takes longer \
                   that another core had last, between two cores here. `r beyond`: the same for more cores, at \
                   {FAR_LINE} a line.\n\n"
    );
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        let run = results.run(&format!("fit/university-dc/{}", program.name))?;
        let mut row = vec![program.name.to_owned()];
        for (name, paper) in [("t", program.t), ("d", program.d), ("c1", program.c1), ("c2", program.c2)] {
            row.extend([format!("{:.1}", number(run, &format!("/model_ns/{name}"))?), format!("{paper:.0}")]);
        }
        for name in ["s", "r", "r_beyond"] {
            row.push(format!("{:.1}", number(run, &format!("/model_ns/{name}"))?));
        }
        row.push(program.c2_target.map_or_else(|| "-".to_owned(), |target| format!("{target:.0}")));
        row.push("measured; r beyond modelled".to_owned());
        rows.push(row);
    }
    let columns = [
        "function",
        "t",
        "paper",
        "d",
        "paper",
        "c1",
        "paper",
        "c2",
        "paper",
        "s",
        "r",
        "r beyond",
        "c2 at most",
        "ns are",
    ];
    out += &markdown(&columns, &rows);
    for (kind, words) in [
        ("fit", "as the memory port is"),
        ("fit-dispatch", "with the paper's dispatch added to each packet, as calibrated work"),
    ] {
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for program in &PROGRAMS {
            let run = results.run(&format!("{kind}/university-dc/{}", program.name))?;
            let mut line = Line { name: program.name.to_owned(), points: Vec::new() };
            for prediction in list(run, "scr_by_model")?.iter().filter(|prediction| prediction["beside"].is_object()) {
                let (cores, beside) = (number(prediction, "/cores")?, &prediction["beside"]);
                let found = number(beside, "/mpps")?;
                let modelled = beside["basis"] == "modelled";
                line.points.push(Point { x: cores, y: found, modelled });
                rows.push(vec![
                    program.name.to_owned(),
                    format!("{cores}"),
                    format!("{:.2}", number(prediction, "/mpps")?),
                    format!("{found:.2}"),
                    format!("{:+.1} %", number(beside, "/error_percent")?),
                    format!("the model's modelled; found {}", basis(modelled)),
                ]);
            }
            lines.push(line);
        }
        out += &format!("### The model beside what was found, {words}\n\n");
        out += &made_by(results.run(&format!("{kind}/university-dc/ddos"))?);
        out += &markdown(
            &["function", "cores", "k / (t - s + (k-1) (c2 + r)), Mpps", "found", "error", "Mpps are"],
            &rows,
        );
        let title = format!("scr, {words} (filled: measured; hollow: modelled)");
        out += &picture(files, &format!("{kind}.svg"), &Plot { title, x_label: "cores", y_label: "Mpps", lines });
    }
    Ok(out)
}

fn table_2(results: &Results) -> String {
    "## Table 2: the sequencer in hardware\n\n`cargo xtask rtl` makes this table; [decision 12](../decisions/0012-sequencer-in-hardware.md) says which columns \
     can be compared. Synthesis counts look-up tables and flip-flops. The last two columns are modelled (arithmetic).\n\n"
        .to_owned()
        + &results.hardware
}
