//! `cargo xtask results efsm`: figures 4, 6 and 7 of the Open Packet Processor's paper, and what it did not measure: global registers. The
//! page uses the output of `millrace bench --json` and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::disturbance;
use super::page::number;
use super::run_cache::utc;
use super::table::markdown;
use super::{Options, Run, gather};
use crate::check::{cargo, root};

/// Stages of the longest pipeline.
const STAGES: usize = 6;
/// Lengths of frames in bytes.
const SIZES: [u32; 4] = [64, 128, 256, 1500];
/// Engines for programs whose packet sets share nothing, and for those that share global registers.
const ENGINES: [&str; 2] = ["sequential,rss,scr", "sequential,shared,transactional,scr"];

/// A pipeline of stages that match on the protocol and keep nothing.
fn stateless(stages: usize) -> String {
    pipeline(stages, "", "")
}

/// A pipeline of stages that each change the packet's context.
fn stateful(stages: usize) -> String {
    pipeline(stages, "  key biflow ip.src ip.dst l4.src l4.dst\n", "state 1; r0 = r0 + 1; ")
}

/// A stage that counts in a global register: all packets, or the first packet of each flow.
fn global(every_packet: bool) -> String {
    let key = "ports out=1\nstage s1\n  key biflow ip.src ip.dst l4.src l4.dst\n  global g = 0\n";
    let row = if every_packet { "" } else { "  on 1 : r0 = r0 + 1; out out\n" };
    format!("{key}{row}  on * : state 1; r0 = r0 + 1; g = g + 1; out out\n")
}

fn pipeline(stages: usize, key: &str, updates: &str) -> String {
    let stage = |at: usize| {
        let next = if at < stages { format!("goto s{}", at + 1) } else { "out out".to_owned() };
        format!("stage s{at}\n{key}  on * ip.proto=6 : {updates}{next}\n  on *            : drop\n")
    };
    "ports out=1\n".to_owned() + &(1..=stages).map(stage).collect::<String>()
}

/// Runs what isn't cached, and writes the page.
pub(crate) fn make(options: &Options) -> Result<()> {
    let folder = programs()?;
    traces(&folder, options.is_quick())?;
    let gathered = gather(options, "efsm", &plan(options.is_quick(), &folder))?;
    let mpps = |name: &str, engine: &str, cores: u64| -> Result<String> {
        let bench = gathered.runs.get(name).with_context(|| format!("the run {name} is missing"))?;
        let rows = bench["rows"].as_array().with_context(|| format!("the run {name} has no rows"))?;
        let row = rows.iter().find(|row: &&Value| row["engine"] == engine && row["cores"] == cores);
        row.map_or_else(|| Ok("-".into()), |row| Ok(format!("{:.1}", number(row, "/mpps/median")?)))
    };
    let mut page = String::from("# Stages of tables, measured\n\n");
    if options.is_quick() {
        page += "**This page is of a quick run**. It only shows that the page can be made; its figures are not results.\n\n";
    }
    page += "`cargo xtask results efsm` makes this page. It repeats figures 4, 6 and 7 of the paper behind `efsm` (Bonola and others) \
             with the programs that stand below: the throughput of pipelines of one to six stages. All figures are measured, in \
             Mpps, medians of interleaved rounds from memory, on no more threads than the machine has processors. The traffic is \
             10,000 TCP flows of equal size. The paper's machine had links of 10 Gbit/s, which its figures reach; a run from \
             memory has no link, so here the length of the packets hardly matters. Its figure 5, what each of its changes to a \
             switch gained, has no counterpart.\n\n";
    for (campaign, names) in gathered.campaigns.values() {
        page +=
            &format!("* {} runs begun {}, load averages then {}.\n", names.len(), utc(campaign.start_s), campaign.load);
    }
    page += &disturbance::summary(&gathered.runs);
    for (title, kind, program) in [
        ("Stateless stages (figure 6; one stage is figure 4)", "stateless", stateless(2)),
        ("Stateful stages, each updated by every packet (figure 7)", "stateful", stateful(2)),
    ] {
        page += &format!("\n## {title}\n\nWith two stages:\n\n```text\n{program}```\n\n");
        let mut rows = Vec::new();
        for stages in 1..=STAGES {
            let name = format!("{kind}/{stages}");
            let mut row = vec![stages.to_string()];
            for (engine, cores) in [("sequential", 1), ("rss", 2), ("scr", 2)] {
                row.push(mpps(&name, engine, cores)?);
            }
            row.push("measured".into());
            rows.push(row);
        }
        page += &markdown(&["stages", "one core", "rss, two", "scr, two", ""], &rows);
    }
    page += "## Lengths of packets, one stage, one core\n\n";
    let mut rows = Vec::new();
    for size in SIZES {
        let of = |kind: &str| mpps(&format!("{kind}-size/{size}"), "sequential", 1);
        rows.push(vec![size.to_string(), of("stateless")?, of("stateful")?, "measured".into()]);
    }
    page += &markdown(&["bytes", "stateless", "stateful", ""], &rows);
    page += "## Global registers, which the paper did not measure\n\n";
    let mut rows = Vec::new();
    for (label, name) in [
        ("no global register", "stateful/1"),
        ("changed by the first packet of a flow", "global/first"),
        ("changed by every packet", "global/every"),
    ] {
        let mut row = vec![label.to_owned()];
        for (engine, cores) in [("sequential", 1), ("shared", 2), ("transactional", 2), ("scr", 2)] {
            row.push(mpps(name, engine, cores)?);
        }
        row.push("measured".into());
        rows.push(row);
    }
    page += &markdown(&["one stage", "one core", "shared, two", "transactional, two", "scr, two", ""], &rows);
    page += &format!(
        "With a global register the contexts are shared state, too, even on one core. The program that changes it once a flow:\n\n```text\n{}```\n",
        global(false)
    );
    let to = options.to.clone().unwrap_or_else(|| root().join("docs/results"));
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    let path = to.join("efsm.md");
    fs::write(&path, page).with_context(|| format!("{} can't be written", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// Writes the programs, and returns their folder.
fn programs() -> Result<PathBuf> {
    let folder = root().join("target/results/efsm/programs");
    fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
    let mut all = vec![("global-first".to_owned(), global(false)), ("global-every".to_owned(), global(true))];
    for stages in 1..=STAGES {
        all.push((format!("stateless-{stages}"), stateless(stages)));
        all.push((format!("stateful-{stages}"), stateful(stages)));
    }
    for (name, text) in all {
        let path = folder.join(format!("{name}.efsm"));
        fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))?;
    }
    Ok(folder)
}

/// Writes the traffic: a capture for each length of packets.
fn traces(folder: &Path, quick: bool) -> Result<()> {
    let (flows, packets) = if quick { ("1k", "20k") } else { ("10k", "200k") };
    for size in SIZES {
        let (out, size) = (folder.join(format!("tcp-{size}.pcap")).display().to_string(), size.to_string());
        let line = [
            "run",
            "--release",
            "--quiet",
            "--package",
            "millrace-net",
            "--",
            "--quiet",
            "synth",
            "--profile",
            "uniform",
        ];
        let line = line.into_iter().chain([
            "--transport",
            "tcp",
            "--flows",
            flows,
            "--packets",
            packets,
            "--size",
            &size,
            "--out",
            &out,
        ]);
        cargo(&line.collect::<Vec<_>>())?;
    }
    Ok(())
}

fn plan(quick: bool, folder: &Path) -> Vec<Run> {
    let small = if quick { "--round-packets 40k --rounds 2" } else { "--round-packets 600k --rounds 7 --undisturbed" };
    let mut runs = Vec::new();
    let mut add = |name: String, program: &str, size: u32, engines: &str, cores: &str| {
        let line = format!("{small} --engines {engines} --cores {cores} --json");
        let file = |name: String| folder.join(name).display().to_string();
        let mut arguments = vec!["bench".to_owned(), "efsm".to_owned(), "--program".to_owned()];
        arguments.extend([file(format!("{program}.efsm")), "--in".to_owned(), file(format!("tcp-{size}.pcap"))]);
        arguments.extend(line.split_whitespace().map(str::to_owned));
        runs.push(Run { name, arguments });
    };
    for kind in ["stateless", "stateful"] {
        for stages in 1..=STAGES {
            let engines =
                if kind == "stateful" && stages == 1 { "sequential,rss,shared,transactional,scr" } else { ENGINES[0] };
            add(format!("{kind}/{stages}"), &format!("{kind}-{stages}"), 64, engines, "1-2");
        }
        for size in SIZES {
            add(format!("{kind}-size/{size}"), &format!("{kind}-1"), size, "sequential", "1");
        }
    }
    for which in ["first", "every"] {
        add(format!("global/{which}"), &format!("global-{which}"), 64, ENGINES[1], "1-2");
    }
    runs
}
