//! `cargo xtask results l2-l7`: the evaluation of Wang et al. ("Practice of Parallelizing Network Applications on Multi-core Architectures",
//! ICS '09): tables 1 to 6 and figure 5, with our traces. The page uses the output of the program and nothing else.

mod model;
mod paper;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::page::{list, number};
use super::plot::{Line, Plot, Point};
use super::run_cache::utc;
use super::table::markdown;
use super::{Gathered, Options, Run, gather};
use crate::check::root;
use model::{Connections, applications, payloads_until_told};

/// A trace and the paper's files that it stands beside.
struct Traffic {
    name: &'static str,
    /// Its place in the folder of shared traces.
    file: &'static str,
    /// The paper's files, by number.
    beside: &'static str,
    what: &'static str,
}

const TRACES: [Traffic; 3] = [
    Traffic {
        name: "campus",
        file: "mix/synth_campus_a.pcap.zst",
        beside: "1 to 6, a campus",
        what: "synthetic, with attacks; payloads are zeros",
    },
    Traffic {
        name: "sfr",
        file: "mix/mix_sfr_a.pcap.zst",
        beside: "7 and 8, DARPA",
        what: "a profile of an access network, from 18 templates with payload",
    },
    Traffic {
        name: "apps",
        file: "mix/mix_apps_a.pcap.zst",
        beside: "9 and 10, Defcon",
        what: "captures of applications merged; payload cut to 128 bytes after a flow's twelfth packet",
    },
];

/// The trace that tables 3 and 4 are about: the one with payload, and with sessions of usual length.
const MAIN: &str = "sfr";
/// The most cores that are modelled, as many as the paper's processor has.
const CORES: usize = 4;
/// Numbers of sessions at one time for tables 5 and 6; the paper's files 2 to 6 have about as many.
const SESSIONS: [(&str, &str); 5] = [("2", "4384"), ("3", "8768"), ("4", "35072"), ("5", "140194"), ("6", "253371")];
/// Times of the consumer for an item in table 4: no work, and what a stage behind the cut takes.
const WORK: &str = "0,50ns,150ns";

/// Runs what isn't cached, and writes the page and its figure.
pub(crate) fn make(options: &Options) -> Result<()> {
    let traces = traces()?;
    let gathered = gather(options, "l2-l7", &plan(&traces, options.is_quick()))?;
    let page = Page { gathered: &gathered, quick: options.is_quick() };
    let to = options.to.clone().unwrap_or_else(|| root().join("docs/results"));
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    for (name, text) in [("l2-l7.md", page.text()?), (FIGURE, page.figure()?)] {
        let path = to.join(name);
        fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The file of figure 5.
const FIGURE: &str = "l2-l7-figure-5.svg";

/// The folder of shared traces.
fn traces() -> Result<PathBuf> {
    let given = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from);
    let beside = root().join("../shared/traces");
    let all: Vec<PathBuf> = given.into_iter().chain([beside]).collect();
    let found = all.iter().find(|folder| folder.join("MANIFEST.tsv").is_file());
    found.cloned().context("there is no ../shared/traces; give the folder of captures as MILLRACE_TRACES")
}

/// All runs, in order.
fn plan(traces: &Path, quick: bool) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut add = |name: String, line: &str, file: Option<&str>| {
        let mut arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if let Some(file) = file {
            arguments.extend(["--in".to_owned(), traces.join(file).display().to_string()]);
        }
        runs.push(Run { name, arguments });
    };
    let (rounds, round, advised) =
        if quick { (1, "20k", "--rounds 1 --round-packets 1") } else { (5, "600k", "--rounds 5 --round-packets 500k") };
    for Traffic { name, file, .. } in TRACES {
        add(format!("inspect/{name}"), "inspect --json", Some(file));
        add(format!("scans/{name}"), "run port-scan --json", Some(file));
        add(format!("sessions/{name}"), "identify --format jsonl", Some(file));
        let line = format!("advise identify {advised} --cores {CORES} --json");
        add(format!("advise/{name}"), &line, Some(file));
        let engines = "--engines sequential,rss,pipeline --cores 1-2";
        let line = format!("bench identify --rounds {rounds} --round-packets {round} {engines} --json");
        add(format!("bench/{name}"), &line, Some(file));
    }
    let items = if quick { "20k" } else { "300k" };
    add("fifo".into(), &format!("bench fifo --rounds {rounds} --items {items} --work {WORK} --json"), None);
    for (file, sessions) in SESSIONS {
        let (sessions, packets) = if quick { ("1000", "4k") } else { (sessions, "1M") };
        let tables = "--set streams.flows=300000 --set streams.flows_v6=1";
        let line = format!(
            "bench identify --synth uniform --flows {sessions} --packets {packets} --rounds {} --round-packets {packets} {tables} \
             --engines sequential,pipeline --cores 1-2 --json",
            rounds.min(3)
        );
        add(format!("connections/{file}"), &line, None);
    }
    runs
}

/// The page, from the runs' output.
struct Page<'a> {
    gathered: &'a Gathered,
    quick: bool,
}

impl Page<'_> {
    fn run(&self, name: &str) -> Result<&Value> {
        self.gathered.runs.get(name).with_context(|| format!("the run {name} is missing"))
    }

    fn text(&self) -> Result<String> {
        let mut page = String::from("# Layers 2 to 7 on several cores, measured\n\n");
        if self.quick {
            page += "**This page is of a quick run**. It only shows that the page can be made; its figures are not results.\n\n";
        }
        page += &format!(
            "`cargo xtask results l2-l7` makes this page. It repeats tables 1 to 6 and figure 5 of Wang and others (\"Practice of \
             Parallelizing Network Applications on Multi-core Architectures\", ICS '09) with `identify`: defragmentation, tracking, \
             reassembly and identification by payload. Figures that are *measured* come from no more threads than the machine has \
             processors, here two; *modelled* ones are computed from measured parts, as the paper's table 3 is. Medians of interleaved \
             rounds. The paper's processor is of 2008 (2.3 GHz, four cores), so compare shapes, not heights.\n\n\
             The paper's traces are not to be had: its campus's are not published, DARPA's and Defcon's are not on the machine that \
             measures. Beside them stand:\n\n{}",
            markdown(
                &["trace", "beside the paper's files", "what it is"],
                &TRACES.map(|one| vec![one.name.into(), one.beside.into(), one.what.into()])
            )
        );
        for (campaign, names) in self.gathered.campaigns.values() {
            let (begun, load) = (utc(campaign.start_s), &campaign.load);
            page += &format!("* {} runs begun {begun}, load averages then {load}.\n", names.len());
        }
        page += &self.reservations();
        page += &self.traces()?;
        page += &self.content()?;
        page += &self.stages()?;
        page += &self.queues()?;
        page += &self.connections()?;
        page += &self.speed()?;
        Ok(page)
    }

    /// What the figures suffer from.
    fn reservations(&self) -> String {
        let mut out = String::new();
        let load = |load: &str| load.split(',').next().and_then(|load| load.trim().parse().ok()).unwrap_or(0.0);
        let loads = self.gathered.campaigns.values().map(|(campaign, _)| load(&campaign.load));
        if loads.fold(0.0_f64, f64::max) > super::page::QUIET {
            out += "* **The machine was not quiet**: other programs ran on the same processors. Rates of two cores suffer most. Times of \
                    stages are processor time and suffer less.\n";
        }
        if self.gathered.runs.values().any(|run| run["made_by"]["commit"] == "debug") {
            out += "* **The program was not optimised**: it is no release build.\n";
        }
        out
    }

    /// Table 1.
    fn traces(&self) -> Result<String> {
        let mut rows = Vec::new();
        for Traffic { name, .. } in TRACES {
            let about = self.run(&format!("inspect/{name}"))?;
            let packets = number(about, "/packets")?;
            let tcp = list(about, "protocols")?.iter().find(|row| row["protocol"] == "tcp").context("there is TCP")?;
            let (sessions, bytes) = (number(tcp, "/flows")?, number(about, "/bytes")?);
            rows.push(vec![
                name.to_owned(),
                format!("{packets:.0}"),
                format!("{sessions:.0}"),
                format!("{:.1}", sessions / packets * 1e3),
                format!("{:.0}", bytes / packets),
                "measured".into(),
            ]);
        }
        rows.extend(paper::traces());
        let columns = ["trace", "packets", "TCP connections", "for 1,000 packets", "bytes a packet", ""];
        Ok(format!("\n## The traces (table 1)\n\n`millrace inspect --in TRACE`\n\n{}", markdown(&columns, &rows)))
    }

    /// Table 2.
    fn content(&self) -> Result<String> {
        let mut columns = vec![("scanning hosts", Vec::new())];
        columns.extend(paper::APPLICATIONS.map(|name| (name, Vec::new())));
        columns.extend([("others", Vec::new()), ("without a name", Vec::new()), ("payloads a session", Vec::new())]);
        for Traffic { name, .. } in TRACES {
            let scans = self.run(&format!("scans/{name}"))?;
            let hosts = scans["report"]["rows"].as_array().map_or(0, Vec::len);
            let sessions = self.run(&format!("sessions/{name}"))?.as_array().context("it is a list of sessions")?;
            let named = applications(sessions, &paper::APPLICATIONS);
            let mut cells = vec![hosts.to_string()];
            cells.extend(named.iter().map(u64::to_string));
            cells.push(payloads_until_told(sessions).map_or_else(|| "-".into(), |mean| format!("{mean:.1}")));
            columns.iter_mut().zip(cells).for_each(|((_, column), cell)| column.push(cell));
        }
        let rows: Vec<Vec<String>> = columns
            .into_iter()
            .zip(paper::content())
            .map(|((name, cells), paper)| [vec![name.to_owned()], cells, paper].concat())
            .collect();
        let names = TRACES.map(|trace| trace.name);
        let heads: Vec<&str> = std::iter::once("").chain(names).chain(paper::CONTENT_FILES).collect();
        Ok(format!(
            "## What the sessions are (table 2)\n\n`millrace identify --in TRACE --format jsonl`, `millrace run port-scan --in TRACE`. The \
             paper counts scan attempts; here it is the hosts that scan (at most ten are listed). Payloads a session: segments and \
             datagrams with payload that were looked at until the application was told, of sessions with a name; the paper's packets \
             inspected for a connection. The columns of files are the paper's.\n\n{}",
            markdown(&heads, &rows)
        ))
    }

    /// Table 3.
    fn stages(&self) -> Result<String> {
        let mut columns = vec![String::from("stage")];
        let mut cells: Vec<Vec<String>> = Vec::new();
        for Traffic { name, .. } in TRACES {
            let pipeline = &self.run(&format!("advise/{name}"))?["pipeline"];
            columns.push(format!("{name}, ns"));
            let mut stages: Vec<&Value> = list(pipeline, "stages")?.iter().collect();
            stages.push(&pipeline["steer"]);
            for (row, stage) in stages.iter().enumerate() {
                if cells.len() <= row {
                    cells.push(vec![stage["stage"].as_str().unwrap_or_default().to_owned()]);
                }
                cells[row].push(spread(&stage["ns"])?);
            }
            let queue = stages.len();
            if cells.len() <= queue {
                cells.push(vec!["queue".into()]);
            }
            cells[queue].push(spread(&pipeline["queue_ns"]).unwrap_or_else(|_| "not measured".into()));
        }
        columns.push(String::new());
        cells.iter_mut().for_each(|row| row.push("measured".into()));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut out = format!(
            "## What each stage takes, and where to cut (table 3)\n\n`millrace advise identify --in TRACE --cores {CORES}`. Nanoseconds a \
             packet on one core, by the time that longer and longer beginnings of the path take: median, smallest and largest. `steer` \
             is a look at the headers for a packet's way, needed where several ways get packets that nobody has parsed; `queue` passes \
             a descriptor of 16 bytes from core to core.\n\n{}",
            markdown(&columns, &cells)
        );
        let pipeline = &self.run(&format!("advise/{MAIN}"))?["pipeline"];
        let bench = self.run(&format!("bench/{MAIN}"))?;
        let mut rows = Vec::new();
        let one_core = number(pipeline, "/one_core_ns")?;
        let times = |mpps: f64| format!("{:.2}", mpps * one_core / 1e3);
        rows.push(vec![
            "one core".into(),
            "-".into(),
            format!("{one_core:.0}"),
            "-".into(),
            format!("{:.2}", 1e3 / one_core),
            "1.00".into(),
            "-".into(),
            "modelled".into(),
        ]);
        for cut in list(pipeline, "cuts")? {
            let before: Vec<&str> =
                cut["cut_before"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let ahead: Vec<String> = cut["ahead_ns"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_f64)
                .map(|ns| format!("{ns:.0}"))
                .collect();
            let mpps = number(cut, "/mpps")?;
            rows.push(vec![
                before.join(", "),
                number(cut, "/ways")?.to_string(),
                ahead.join(", "),
                format!("{:.0}", number(cut, "/behind_ns")?),
                format!("{mpps:.2}"),
                times(mpps),
                if cut["options"].is_null() { "no" } else { "yes" }.into(),
                "modelled".into(),
            ]);
        }
        let columns = ["cut before", "ways", "ahead, ns", "behind, ns", "Mpps", "times one core", "`run` has it", ""];
        out += &format!(
            "The rate of a cut is `max(ahead, behind / ways) + queue`, the paper's formula, for the trace {MAIN}:\n\n{}",
            markdown(&columns, &rows)
        );
        let measured = |engine: &str, cores| {
            super::page::mpps(bench, engine, cores)
                .map_or_else(|| "not measured".into(), |(mpps, _)| format!("{mpps:.2}"))
        };
        out += &format!(
            "Measured from memory (`millrace bench identify`, {MAIN}): {} Mpps on one core, {} with the pipeline on two, {} with `rss` on \
             two.\n\nThe paper, in cycles, with the rate that it measured (modes 1 to 5):\n\n{}",
            measured("sequential", 1),
            measured("pipeline", 2),
            measured("rss", 2),
            markdown(&paper::MODES_HEAD, &paper::modes())
        );
        Ok(out)
    }

    /// Table 4.
    fn queues(&self) -> Result<String> {
        let rows = list(self.run("fifo")?, "rows")?;
        let of = |queue: &str, work: f64| {
            let is_it = |row: &&Value| {
                row["queue"] == queue && row["item_bytes"] == 16 && row["work_asked_ns"].as_f64() == Some(work)
            };
            rows.iter().find(is_it).and_then(|row| number(row, "/ns_per_item/median").ok())
        };
        let mut works: Vec<f64> = rows.iter().filter_map(|row| row["work_asked_ns"].as_f64()).collect();
        works.dedup();
        works.sort_by(f64::total_cmp);
        works.dedup();
        let mut cells = Vec::new();
        for work in works {
            let (Some(ours), Some(other)) = (of("millrace-fifo, push and pop", work), of("FastForward", work)) else {
                continue;
            };
            cells.push(vec![
                format!("{work:.0} ns"),
                format!("{other:.1}"),
                format!("{ours:.1}"),
                format!("{:+.1} %", (other / ours - 1.0) * 100.0),
                "measured".into(),
            ]);
        }
        let columns = ["work for an item", "FastForward, ns", "millrace-fifo, ns", "more items a second", ""];
        Ok(format!(
            "## What the queue is worth (table 4)\n\n`millrace bench fifo --work {WORK}`: items of 16 bytes, two cores, work of the \
             consumer as long as stages behind a cut take above. The paper put both queues into its whole system; the work here is a \
             spinning loop, and the engine hands over a slot number for a piece of the capture, not for a packet.\n\n{}The paper, in Gbit/s \
             of the whole system:\n\n{}",
            markdown(&columns, &cells),
            markdown(&paper::QUEUES_HEAD, &paper::queues())
        ))
    }

    /// Tables 5 and 6.
    fn connections(&self) -> Result<String> {
        let pipeline = &self.run(&format!("advise/{MAIN}"))?["pipeline"];
        let stages = list(pipeline, "stages")?;
        let ahead: f64 = stages
            .iter()
            .take_while(|stage| stage["stage"] != "parse")
            .map(|stage| number(stage, "/ns/median"))
            .sum::<Result<f64>>()?;
        let steer = number(&pipeline["steer"], "/ns/median")?;
        let queue = number(pipeline, "/queue_ns/median").unwrap_or(0.0);
        let mut all = Vec::new();
        for (file, _) in SESSIONS {
            let bench = self.run(&format!("connections/{file}"))?;
            let one =
                super::page::mpps(bench, "sequential", 1).map(|(mpps, _)| mpps).context("one core is measured")?;
            let two = super::page::mpps(bench, "pipeline", 2).map(|(mpps, _)| mpps);
            let bytes = number(bench, "/bytes_per_flow").unwrap_or(0.0);
            all.push(Connections { one, two, three: model::two_ways(one, ahead, steer, queue), bytes });
        }
        let heads: Vec<String> = SESSIONS.iter().map(|(file, sessions)| format!("{sessions} (file {file})")).collect();
        let mut columns = vec![""];
        columns.extend(heads.iter().map(String::as_str));
        columns.push("basis");
        let mut rows = Vec::new();
        let mut add = |name: &str, figures: Vec<Option<f64>>, basis: &str| {
            let cells = figures.iter().map(|one| one.map_or_else(|| "-".into(), |one| format!("{one:.2}")));
            rows.push([vec![name.to_owned()], cells.collect(), vec![basis.to_owned()]].concat());
            let less = model::changes(&figures).into_iter();
            let less = less.map(|one| one.map_or_else(String::new, |one| format!("{one:+.1} %")));
            rows.push([vec!["against the column before".to_owned()], less.collect(), vec![String::new()]].concat());
        };
        add("1 core, Mpps", all.iter().map(|one| Some(one.one)).collect(), "measured");
        add("2 cores, one way", all.iter().map(|one| one.two).collect(), "measured");
        add("3 cores, two ways", all.iter().map(|one| Some(one.three)).collect(), "modelled");
        let mut out = format!(
            "## Many sessions at a time (table 5)\n\n`millrace bench identify --synth uniform --flows SESSIONS --packets 1M`: sessions take \
             turns, so all are open at a time and none comes again soon, the worst order for caches. Their payload is no message. For \
             three cores: `max(ahead + steer, behind / 2) + queue`, where `behind` is the measured time of one core less that of the \
             stages ahead of parsing.\n\n{}The paper's, in Mpps, on real connections:\n\n{}",
            markdown(&columns, &rows),
            markdown(&paper::CONNECTIONS_HEAD, &paper::connections())
        );
        let caches = caches();
        let mut rows = Vec::new();
        for ((_, sessions), one) in SESSIONS.iter().zip(&all) {
            let bytes = one.bytes * sessions.parse::<f64>()?;
            let mut row = vec![(*sessions).to_owned(), format!("{:.1}", bytes / f64::from(1 << 20))];
            row.extend(caches.iter().map(|(_, size)| format!("{:.1}", bytes / size)));
            row.push(format!("{:.0}", 1e3 / one.one));
            row.push("measured".into());
            rows.push(row);
        }
        let heads: Vec<String> =
            caches.iter().map(|(level, size)| format!("times L{level} ({:.0} KiB)", size / 1024.0)).collect();
        let mut columns = vec!["sessions", "state, MiB"];
        columns.extend(heads.iter().map(String::as_str));
        columns.extend(["one core, ns a packet", ""]);
        out += &format!(
            "## State beside caches (table 6)\n\nThe paper asks whether cache misses explain its table 5, and simulates them with Valgrind. \
             Here stands the state of all sessions beside the caches of a core, as the kernel reports them, and the time of a packet: \
             where the state outgrows a cache, the time should rise. Misses themselves are not counted: virtual machines have no counters \
             for them.\n\n{}The paper:\n\n{}",
            markdown(&columns, &rows),
            markdown(&paper::MISSES_HEAD, &paper::misses())
        );
        Ok(out)
    }

    /// Figure 5.
    fn speed(&self) -> Result<String> {
        let mut rows = Vec::new();
        for Traffic { name, .. } in TRACES {
            let mut row = vec![name.to_owned()];
            for point in self.gbits(name)? {
                row.push(point.map_or_else(
                    || "-".into(),
                    |point| format!("{:.1}{}", point.y, if point.modelled { " modelled" } else { "" }),
                ));
            }
            row.push(String::new());
            rows.push(row);
        }
        Ok(format!(
            "## Rates by trace (figure 5)\n\n![Gbit/s by trace]({FIGURE})\n\nGbit/s. One core and two are measured from memory (`millrace \
             bench identify --engines sequential,pipeline --cores 1-2`); three and four are modelled, by the best cut of table 3's formula \
             that `run` has. A model reads the capture from its file, as `run` does, which memory does without: it can be lower than what is measured.\n\n{}The paper's lowest is 2 Gbit/s (file 9) and its highest 6 Gbit/s (file 10), with three cores.\n",
            markdown(&["trace", "1 core", "2", "3", "4", ""], &rows)
        ))
    }

    /// Rates of a trace by number of cores.
    fn gbits(&self, name: &str) -> Result<Vec<Option<Point>>> {
        let about = self.run(&format!("inspect/{name}"))?;
        let bits = number(about, "/bytes")? * 8.0 / number(about, "/packets")?;
        let bench = self.run(&format!("bench/{name}"))?;
        let cuts = list(&self.run(&format!("advise/{name}"))?["pipeline"], "cuts")?;
        let point = |cores: usize| {
            let engine = if cores == 1 { "sequential" } else { "pipeline" };
            let measured = super::page::mpps(bench, engine, cores as u64);
            let (mpps, modelled) = measured.or_else(|| model::best(cuts, cores).map(|mpps| (mpps, true)))?;
            Some(Point { x: cores as f64, y: mpps * bits / 1e3, modelled })
        };
        Ok((1..=CORES).map(point).collect())
    }

    fn figure(&self) -> Result<String> {
        let mut lines = Vec::new();
        for Traffic { name, .. } in TRACES {
            lines.push(Line { name: name.to_owned(), points: self.gbits(name)?.into_iter().flatten().collect() });
        }
        let title = "L2 to L7 by cores: solid measured, hollow modelled".to_owned();
        Ok(Plot { title, x_label: "cores", y_label: "Gbit/s", lines }.svg())
    }
}

/// A spread as median, smallest and largest.
fn spread(value: &Value) -> Result<String> {
    let [median, min, max] = [number(value, "/median")?, number(value, "/min")?, number(value, "/max")?];
    Ok(format!("{median:.1} [{min:.1} {max:.1}]"))
}

/// The second-level and third-level caches of the first processor, with their sizes in bytes, as the kernel reports them.
fn caches() -> Vec<(String, f64)> {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let read = |index: usize, name: &str| fs::read_to_string(folder.join(format!("index{index}/{name}"))).ok();
    let of = |index| {
        let (level, size) = (read(index, "level")?, read(index, "size")?);
        let level = level.trim().to_owned();
        let kib: f64 = size.trim().strip_suffix('K')?.parse().ok()?;
        (level != "1").then_some((level, kib * 1024.0))
    };
    (0..8).filter_map(of).collect()
}
