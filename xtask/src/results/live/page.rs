//! The page: the musts, a table of what receives, a table of what forwards, and their commands.

use std::fs;

use anyhow::Result;

use super::super::table::markdown;
use super::{FORWARD, Kind, MUSTS, Measured, RECEIVE, Sample, Subject, command_line, spread};

/// The page as text.
pub(super) fn page(is_quick: bool, when: &str, measured: &Measured<'_>) -> Result<String> {
    let mut out = String::from("# Live interfaces, measured\n\n");
    if is_quick {
        out += "**This page is of a quick run**. It only shows that the page can be made; its figures are not results.\n\n";
    }
    out += &head(when);
    out += &musts(measured)?;
    out += "## Functions that only receive\n\nEvery packet of `a0` is dropped: the loop `count` and `ddos`, whose one source is beyond its \
            threshold. `count` does not read the packets, whose bytes lie in the other core's cache; `ddos` parses each and looks its \
            source up.\n\n";
    out += &table(&RECEIVE, measured)?;
    out += "## Functions that forward\n\nPackets of `a0` go out by `a1`. `swap` exchanges the two Ethernet addresses and does nothing else. \
            The kernel routes; with conntrack it has one rule, which passes what belongs to a new or an established connection.\n\n";
    out += &table(&FORWARD, measured)?;
    out += &commands();
    Ok(out.trim_end().to_owned() + "\n")
}

fn head(when: &str) -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or("an unknown processor", |(_, name)| name).trim();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "`cargo xtask results live` makes this page, as root, in network namespaces that it makes and removes. All figures are measured; \
         nothing is modelled. They are medians of interleaved rounds, with the least and the most in parentheses.\n\n\
         * {when}. {processor}, {cores} cores, Linux {}.\n\
         * **Wires are veth pairs**: `left [h0] --- [a0] middle [a1] --- [h1] right`. No packet leaves the machine, so these are costs of \
         software, not of a card. XDP programs run in the driver, and packets are copied.\n\
         * **The generator** (`flood`, in `left`) has one core. It sends 60-byte UDP packets of 64 flows in random order, as fast as it can. \
         The driver's receive work, the XDP program and the copy to the socket's memory are done on the same core, in softirq; their share \
         can't be told apart from the generator's.\n\
         * **What is measured** runs in `middle` on the other core. *Handled* are packets received, for functions that only receive, and \
         packets that arrive in `right`, for those that forward. *Lost* is the rest of what was offered: the generator is faster than what \
         forwards, and a full ring drops.\n\
         * **ns a packet** is the process's time on its core, in user and kernel mode, divided by packets handled. It includes the softirq \
         work that its own transmit causes, up to the arrival in `right`, and the system calls that wait for packets.\n\
         * **p50, p99 and p99.9** are times from receive to transmit, of packets that are sent: from when a burst is taken out of the receive \
         ring until it is put into the transmit ring. The wait in a full ring isn't in them (`millrace bench --latency` has it).\n\
         * **The kernel** forwards on the same core: the driver's receive work is done on the generator's, and packets are then steered \
         (`rps_cpus`). It has no process, and the clock's tick misses softirq work on a core that is otherwise idle, so that it has \
         a rate alone.\n\n",
        kernel.trim()
    )
}

fn musts(measured: &Measured<'_>) -> Result<String> {
    let mut rows = Vec::new();
    for (name, limit) in MUSTS {
        let of = if RECEIVE.iter().any(|subject| subject.name == name) { RECEIVE[0].name } else { FORWARD[0].name };
        let costs = measured.ratios(name, of, Sample::cost)?;
        let mut sorted = costs.clone();
        sorted.sort_by(f64::total_cmp);
        let holds = if sorted[sorted.len() / 2] <= limit { "yes" } else { "no" };
        let rates = measured.ratios(name, of, |sample| Some(sample.handled))?;
        rows.push(vec![
            format!("{name} / {of}"),
            spread(costs, 2),
            format!("{limit}"),
            holds.to_owned(),
            spread(rates, 2),
            "measured".to_owned(),
        ]);
    }
    let columns = ["", "ns a packet, relative", "must", "holds", "rate, relative", ""];
    Ok(String::from("## Beside bare loops on the same sockets\n\nEach ratio is of two runs of the same round.\n\n")
        + &markdown(&columns, &rows))
}

fn table(subjects: &[Subject], measured: &Measured<'_>) -> Result<String> {
    let mut rows = Vec::new();
    for subject in subjects {
        let samples = measured.of(subject.name)?;
        let of = |figure: fn(&Sample) -> Option<f64>| samples.iter().filter_map(figure).collect::<Vec<_>>();
        let name = if matches!(subject.kind, Kind::Function(..)) {
            format!("{}, sequential", subject.name)
        } else {
            subject.name.to_owned()
        };
        rows.push(vec![
            name,
            spread(of(|sample| Some(sample.offered)), 2),
            spread(of(|sample| Some(sample.handled)), 2),
            spread(of(|sample| Some(sample.lost)), 1),
            spread(of(Sample::cost), 0),
            spread(of(|sample| Some(sample.processor?.0)), 0),
            spread(of(|sample| Some(sample.processor?.1)), 0),
            spread(of(|sample| Some(sample.latency?[0])), 1),
            spread(of(|sample| Some(sample.latency?[1])), 1),
            spread(of(|sample| Some(sample.latency?[2])), 1),
            "measured".to_owned(),
        ]);
    }
    let columns = [
        "",
        "offered, Mpps",
        "handled, Mpps",
        "lost, %",
        "ns a packet",
        "user",
        "kernel",
        "p50, us",
        "p99, us",
        "p99.9, us",
        "",
    ];
    Ok(markdown(&columns, &rows))
}

fn commands() -> String {
    let mut out = String::from(
        "## Commands\n\nIn `left`: `flood h0 --seconds 1 --flows 64`, the example of `port-xdp`. In `middle`, each with `--seconds 2`:\n\n```sh\n",
    );
    for subject in RECEIVE.iter().chain(&FORWARD) {
        if let Some(line) = command_line(subject) {
            out += &format!("{line}\n");
        }
    }
    out + "```\n"
}
