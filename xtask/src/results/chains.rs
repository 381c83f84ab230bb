//! `cargo xtask results chains`: chains beside their functions, payload splitting, reordering and offload, beside what MiddleClick,
//! PayloadPark, Ribosome and Reframer say of themselves. The page uses what the program prints as JSON and nothing else.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::page::number;
use super::run_cache::utc;
use super::table::markdown;
use super::{Gathered, Options, Run, gather};
use crate::check::{cargo, root, target};

/// Functions of the chains: the first one, the first two, and so on.
const FUNCTIONS: [&str; 5] = ["firewall", "nat", "policer", "conntrack", "heavy-hitter"];
/// Flows of the traffic: in cache, and beyond.
const FLOWS: [&str; 2] = ["1k", "1M"];
/// Functions that are run as whole commands, one behind another, and as a chain.
const COMMANDS: [&str; 3] = ["firewall", "nat", "policer"];
/// Lengths of frames in bytes.
const SIZES: [u32; 5] = [64, 256, 512, 1024, 1500];
/// Ways to split, and their arguments.
const STORES: [(&str, &str); 3] = [
    ("whole", ""),
    ("local", "--split 128"),
    ("udp", "--split 128 --store udp://127.0.0.1:47100 --store-timeout 1000"),
];
/// Delays of reordering.
const DELAYS: [&str; 4] = ["0", "10us", "100us", "1ms"];
/// Flows of the traffic that is reordered.
const MIXED: [&str; 3] = ["1k", "100k", "1M"];
/// Simulated cards, and their limits: none, and the 40,000 flows a second that OpenFlow switches take at best (Barbette's talk on stateful packet processing).
const CARDS: [(&str, &str); 2] = [("any", ""), ("switch", "--card-insertions 40k")];

/// The limit of a chain's cost at a million flows, relative to its functions apart.
const MUST: f64 = 0.65;

/// Runs what isn't cached, and writes the page.
pub(crate) fn make(options: &Options) -> Result<()> {
    let folder = root().join("target/results/chains/traffic");
    fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
    let quick = options.is_quick();
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("{} can't be found", program.display()))?,
        None => {
            cargo(&["build", "--release", "--quiet", "--package", "millrace-net"])?;
            target().join("release/millrace")
        }
    };
    traffic(&program, &folder, quick)?;
    let store = Store::start(&program)?;
    let gathered = gather(options, "chains", &plan(quick, &folder));
    drop(store);
    let gathered = gathered?;
    let mut page = String::from("# Chains, splitting, reordering, offload, measured\n\n");
    if quick {
        page += "**This page is of a quick run**. It only shows that the page can be made; its figures are not results.\n\n";
    }
    page += "`cargo xtask results chains` makes this page. Figures are measured, medians of rounds in turns, with the least and the most in \
             parentheses, unless they are labelled modelled, or as another project's own.\n\n";
    for (campaign, names) in gathered.campaigns.values() {
        page +=
            &format!("* {} runs begun {}, load averages then {}.\n", names.len(), utc(campaign.start_s), campaign.load);
    }
    page += &chains(&gathered)?;
    page += &through(&gathered)?;
    page += &splitting(&gathered)?;
    page += &reordering(&gathered)?;
    page += &offload(&gathered)?;
    page += PUBLISHED;
    let to = options.to.clone().unwrap_or_else(|| root().join("docs/results"));
    fs::create_dir_all(&to).with_context(|| format!("{} can't be made", to.display()))?;
    let path = to.join("chains.md");
    fs::write(&path, page.trim_end().to_owned() + "\n")
        .with_context(|| format!("{} can't be written", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// What others say of themselves.
const PUBLISHED: &str = "## Published figures, theirs\n\n\
    * **Ribosome** (NSDI '23): a switch with four RDMA servers sends 300 Gbit/s through a function that gets about 20 of them; one RDMA server \
    takes about 75 Gbit/s. Keeping 160 bytes of each payload on the switch, as PayloadPark (CoNEXT '20) does, gives 115 Gbit/s, and none of both 100, \
    which is the function's link. With packets of 400 bytes, 300 Gbit/s are about 93 million packets a second.\n\
    * **MiddleClick** (ToN 2021) has no figure in what we have read that its figures here could stand beside: its NAT between 128 clients \
    and 4 servers is limited by the testbed, at 35 Gbit/s.\n\
    * **Offload of connection tracking** to a card, work in progress of the same group: about 10 % more throughput at the best threshold.\n\
    * **Reframer** (NSDI '22) is named there without a figure.\n";

/// A payload server on this machine.
struct Store(Child);

impl Store {
    fn start(program: &Path) -> Result<Self> {
        let arguments = ["store", "--listen", "127.0.0.1:47100", "--seconds", "3600", "--quiet"];
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("{} can't be run", program.display()))?))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the captures.
fn traffic(program: &Path, folder: &Path, quick: bool) -> Result<()> {
    let packets = if quick { "20k" } else { "1M" };
    let mut lines: Vec<(String, String)> = SIZES
        .iter()
        .map(|size| {
            (format!("size-{size}"), format!("uniform --transport udp --flows 1k --packets {packets} --size {size}"))
        })
        .collect();
    lines.extend(MIXED.iter().map(|flows| {
        let flows_of = if quick { "1k" } else { flows };
        let rate = "--rate 1M --size 64";
        (format!("mixed-{flows}"), format!("uniform --transport udp --flows {flows_of} --packets {packets} {rate}"))
    }));
    lines.extend(FLOWS.iter().map(|flows| {
        let (flows_of, packets) = if quick { ("1k", packets) } else { (*flows, "4M") };
        let rate = "--rate 10M --size 64";
        (format!("through-{flows}"), format!("uniform --transport udp --flows {flows_of} --packets {packets} {rate}"))
    }));
    lines.push(("heavy".into(), format!("backbone --transport tcp --packets {packets} --rate 1M")));
    for (name, line) in lines {
        let out = folder.join(format!("{name}.pcap"));
        let mut command = Command::new(program);
        command.args(["--quiet", "synth", "--profile"]).args(line.split_whitespace()).arg("--out").arg(&out);
        let done = command.stdout(Stdio::null()).status()?;
        anyhow::ensure!(done.success(), "{}: can't be made", out.display());
    }
    Ok(())
}

fn rounds(quick: bool) -> usize {
    if quick { 1 } else { 3 }
}

fn plan(quick: bool, folder: &Path) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut add = |name: String, line: &str| {
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        runs.push(Run { name, arguments });
    };
    for flows in FLOWS {
        for count in 1..=FUNCTIONS.len() {
            let names = FUNCTIONS[..count].join(",");
            let size = match (quick, flows) {
                (true, _) => "--flows 1k --packets 10k --round-packets 10k --rounds 1".to_owned(),
                (false, "1M") => "--flows 1M --packets 2M --round-packets 2M --rounds 3".to_owned(),
                (false, flows) => format!("--flows {flows} --packets 200k --round-packets 1M --rounds 3"),
            };
            add(
                format!("chain/{flows}/{count}"),
                &format!("bench --chain {names} --apart --synth uniform {size} --json{}", nat(count, flows)),
            );
        }
    }
    let of = |name: String| folder.join(format!("{name}.pcap")).display().to_string();
    for round in 1..=rounds(quick) {
        for flows in FLOWS {
            let (mut from, settings) = (of(format!("through-{flows}")), nat(COMMANDS.len(), flows));
            let chain = format!("run --chain {}{settings} --in {from}", COMMANDS.join(","));
            for function in COMMANDS {
                let settings = if function == "nat" { settings.replace("nat.", "") } else { String::new() };
                let out = of(format!("through-{function}"));
                let line = format!("run {function}{settings} --in {from} --out {out} --json");
                add(format!("through/{flows}/{function}/{round}"), &line);
                from = out;
            }
            let line = format!("{chain} --out {} --json", of("through-chain".into()));
            add(format!("through/{flows}/chain/{round}"), &line);
        }
        for size in SIZES {
            for (store, arguments) in STORES {
                let capture = of(format!("size-{size}"));
                add(format!("split/{size}/{store}/{round}"), &format!("run policer --in {capture} {arguments} --json"));
            }
        }
        for flows in MIXED {
            for delay in DELAYS {
                let capture = of(format!("mixed-{flows}"));
                add(
                    format!("reorder/{flows}/{delay}/{round}"),
                    &format!("run conntrack --in {capture} --set flows=2000000 --reorder {delay} --json"),
                );
            }
        }
    }
    // Cards that take any number of connections in a second, and as many as a switch does.
    for (name, limits) in CARDS {
        let line = format!("advise firewall --in {} --cores 1 --offload 4096 {limits} --json", of("heavy".into()));
        add(format!("offload/{name}"), &line);
    }
    runs
}

/// Settings under which `nat` has room for all flows.
fn nat(count: usize, flows: &str) -> String {
    if count < 2 || flows != "1M" {
        return String::new();
    }
    let external: Vec<String> = (1..=32).map(|last| format!("\"203.0.113.{last}\"")).collect();
    let external = external.join(",");
    format!(" --set nat.mappings=1200000 --set nat.sessions=1200000 --set nat.external=[{external}]")
}

/// The median of some readings, with the least and the most.
fn spread(readings: &mut [f64], digits: usize) -> String {
    readings.sort_unstable_by(f64::total_cmp);
    let readings: &[f64] = readings;
    match readings {
        [] => "-".to_owned(),
        [least, .., most] => {
            let median = readings[readings.len() / 2];
            format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
        }
        [one] => format!("{one:.digits$}"),
    }
}

/// A figure of all rounds of a run.
fn of_rounds(gathered: &Gathered, name: &str, pointer: &str) -> Result<Vec<f64>> {
    let mut readings = Vec::new();
    for round in 1.. {
        let Some(run) = gathered.runs.get(&format!("{name}/{round}")) else { break };
        readings.push(number(run, pointer)?);
    }
    Ok(readings)
}

fn chains(gathered: &Gathered) -> Result<String> {
    let mut out = format!(
        "\n## Chains of one to five functions\n\n`millrace bench --chain A,B --apart --synth uniform`, under `sequential` on one core, from memory. *Apart* is the \
         sum of the functions, each by itself on the same traffic. A chain of one is its function. The chain of three at a million flows must \
         take at most {MUST} of its functions apart.\n\n"
    );
    for flows in FLOWS {
        let mut rows = Vec::new();
        for count in 1..=FUNCTIONS.len() {
            let name = format!("chain/{flows}/{count}");
            let run = gathered.runs.get(&name).with_context(|| format!("the run {name} is missing"))?;
            let of = |row: &str| -> Result<&Value> {
                let rows = run["rows"].as_array().context("it has no rows")?;
                rows.iter().find(|one| one["name"] == row).context("a row is missing")
            };
            let ns = |row: &str| -> Result<String> {
                let row = of(row)?;
                let [least, median, most] =
                    ["min", "median", "max"].map(|which| number(row, &format!("/ns_per_packet/{which}")));
                Ok(format!("{:.0} ({:.0} to {:.0})", median?, least?, most?))
            };
            let [least, median, most] =
                ["min", "median", "max"].map(|which| number(run, &format!("/chain_to_apart/{which}")));
            let (median, least, most) = (median?, least?, most?);
            let verdict = match (flows, count) {
                ("1M", 3) if median <= MUST => "measured; met",
                ("1M", 3) => "measured; missed",
                _ => "measured",
            };
            let look_ups = |row: &str| -> Result<String> { Ok(of(row)?["look_ups"].to_string()) };
            let bytes = |row: &str| -> Result<f64> { number(of(row)?, "/bytes_per_flow") };
            rows.push(vec![
                FUNCTIONS[..count].join(", "),
                format!("{} / {}", look_ups("chain")?, look_ups("apart")?),
                ns("chain")?,
                ns("apart")?,
                format!("{median:.2} ({least:.2} to {most:.2})"),
                format!("{:.0} / {:.0}", bytes("chain")?, bytes("apart")?),
                verdict.to_owned(),
            ]);
        }
        out += &format!("### {flows} flows\n\n");
        out += &markdown(
            &[
                "chain",
                "look-ups, chain / apart",
                "chain, ns",
                "apart, ns",
                "chain / apart",
                "bytes a flow, chain / apart",
                "",
            ],
            &rows,
        );
    }
    Ok(out)
}

/// Whole commands, from a capture to a capture.
fn through(gathered: &Gathered) -> Result<String> {
    let mut out = format!(
        "## The chain of three as whole commands\n\n`millrace run --chain {} --in a.pcap --out b.pcap` beside three commands, one behind another, each from a \
         capture to a capture: nanoseconds of elapsed time for a packet, of 4 million packets.\n\n",
        COMMANDS.join(",")
    );
    let mut rows = Vec::new();
    for flows in FLOWS {
        let ns = |what: &str| of_rounds(gathered, &format!("through/{flows}/{what}"), "/ns_per_packet");
        let mut chain = ns("chain")?;
        let parts: Vec<Vec<f64>> = COMMANDS.iter().map(|function| ns(function)).collect::<Result<_>>()?;
        let mut apart: Vec<f64> = (0..chain.len()).map(|round| parts.iter().map(|part| part[round]).sum()).collect();
        let mut ratios: Vec<f64> = chain.iter().zip(&apart).map(|(chain, apart)| chain / apart).collect();
        rows.push(vec![
            flows.to_owned(),
            spread(&mut chain, 0),
            spread(&mut apart, 0),
            spread(&mut ratios, 2),
            "measured".into(),
        ]);
    }
    out += &markdown(&["flows", "chain, ns", "three commands, ns", "chain / commands", ""], &rows);
    Ok(out)
}

fn splitting(gathered: &Gathered) -> Result<String> {
    let mut out = String::from(
        "## Payload splitting\n\n`millrace run policer --in a.pcap --split 128`, the whole command, from a capture: nanoseconds of elapsed time for a packet. \
         *Whole* is the same without `--split`; *udp* parks payloads on a payload server on this machine, which takes the second core. The share is that of the \
         bytes which the function gets, tags included; the last column is what a link of 100 Gbit/s to the function would then carry in all. \
         **On one machine splitting only costs**; see docs/splitting.md.\n\n",
    );
    let mut rows = Vec::new();
    for size in SIZES {
        let ns = |store: &str| -> Result<String> {
            Ok(spread(&mut of_rounds(gathered, &format!("split/{size}/{store}"), "/ns_per_packet")?, 0))
        };
        let part = |pointer: &str| -> Result<f64> {
            Ok(of_rounds(gathered, &format!("split/{size}/local"), pointer)?.first().copied().unwrap_or_default())
        };
        let share = part("/split/bytes_to_function")? / part("/split/bytes")?;
        rows.push(vec![
            size.to_string(),
            ns("whole")?,
            ns("local")?,
            ns("udp")?,
            format!("{:.0} %", share * 100.0),
            format!("{:.0} Gbit/s", 100.0 / share),
            "measured; the link modelled".into(),
        ]);
    }
    out += &markdown(&["bytes", "whole", "local", "udp", "to the function", "through 100 Gbit/s", ""], &rows);
    Ok(out)
}

fn reordering(gathered: &Gathered) -> Result<String> {
    let mut out = String::from(
        "## Reordering\n\n`millrace run conntrack --in a.pcap --reorder DELAY`, the whole command: nanoseconds of elapsed time for a packet. The traffic is UDP of \
         one direction, flows of equal size mixed at random, a million packets at a million packets a second: of a million flows each has one packet. *In a row* are packets of a connection that \
         leave one behind another, on average.\n\n",
    );
    let mut rows = Vec::new();
    for flows in MIXED {
        for delay in DELAYS {
            let name = format!("reorder/{flows}/{delay}");
            let first = |pointer: &str| -> f64 {
                let readings = of_rounds(gathered, &name, pointer).unwrap_or_default();
                readings.first().copied().unwrap_or_default()
            };
            let (received, after) = (first("/reordered/received"), first("/reordered/runs_after"));
            rows.push(vec![
                flows.to_owned(),
                delay.to_owned(),
                if after > 0.0 { format!("{:.2}", received / after) } else { "-".into() },
                if after > 0.0 { format!("{:.0} us", first("/reordered/held_ns_mean") / 1e3) } else { "-".into() },
                spread(&mut of_rounds(gathered, &name, "/ns_per_packet")?, 0),
                "measured".into(),
            ]);
        }
    }
    out += &markdown(&["flows", "delay", "in a row", "held on average", "ns a packet", ""], &rows);
    Ok(out)
}

fn offload(gathered: &Gathered) -> Result<String> {
    let mut out = String::from(
        "## Offload by threshold\n\n`millrace advise firewall --in a.pcap --offload 4096`: a simulated card with 4,096 entries takes a connection after so many packets, once \
         the firewall has decided about it. The traffic has a heavy tail (`synth --profile backbone --transport tcp`). What the card takes is simulated packet by packet; the rate is \
         modelled from that: the measured time of a packet for each that is left, and 10 us of a core for each connection put in or taken back.\n\n",
    );
    for (name, limits) in CARDS {
        let key = format!("offload/{name}");
        let run = gathered.runs.get(&key).with_context(|| format!("the run {key} is missing"))?;
        let without = number(run, "/offload/mpps_without")?;
        let of = |threshold: String, share: f64, inserted: String, refused: String, mpps: f64| {
            let times = mpps / without;
            vec![
                threshold,
                format!("{:.1} %", share * 100.0),
                inserted,
                refused,
                format!("{mpps:.2}"),
                format!("{times:.2}"),
                "simulated; Mpps modelled".to_owned(),
            ]
        };
        let mut rows = vec![of("none".into(), 0.0, "0".into(), "0".into(), without)];
        for row in run["offload"]["by_threshold"].as_array().context("it has no rows")? {
            rows.push(of(
                row["threshold"].to_string(),
                number(row, "/packets_share")?,
                row["inserted"].to_string(),
                row["refused"].to_string(),
                number(row, "/mpps")?,
            ));
        }
        let what = if limits.is_empty() { "any number of insertions".to_owned() } else { format!("`{limits}`") };
        out += &format!("### {what}\n\n");
        out += &markdown(&["threshold", "on the card", "put in", "refused", "Mpps", "of that without", ""], &rows);
        if let Some(advice) = run["offload"]["advice"].as_str() {
            out += &format!("`advise`: {advice}.\n\n");
        }
    }
    Ok(out)
}
