//! Formats the result of a bench for a terminal.

use engine::EngineKind;
use lab::{Basis, Bench, LossFreePlan, Prediction, Rounds, Row, Sequencing, Work};

use super::{Benched, from_elsewhere, huge_share};
use crate::cli::engines::machine_cores;
use crate::print::number::{count, counted, span, time};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

pub(super) fn text(benched: &Benched<'_>, style: Style) -> String {
    let Benched { description, name, trace, bench, loss_free } = benched;
    let packets = counted(trace.len() as u64, "packet", "packets");
    let mut out = format!("{} on {name} ({packets})\n\n", style.bold(description.name));
    out += &table(bench, style).lines(0);
    for reason in left_out(bench) {
        out += &format!("{}\n", style.warn(reason));
    }
    if let Some(note) = disturbance(of_all(bench)) {
        out += &format!("{}\n", style.dim(note));
    }
    if let Some(note) = beyond_machine(bench, machine_cores()) {
        out += &format!("{}\n", style.dim(note));
    }
    if let Some(plan) = loss_free {
        out += &format!("\nloss-free: {}\n", rules(plan));
        if nothing_passed(bench) {
            out += &format!("{}\n", style.warn(NOTHING_PASSED));
        }
    }
    if let Some(sheet) = delays(bench, style) {
        out += &format!(
            "\nlatency from arrival to transmit, at shares of each row's own throughput\n\n{}",
            sheet.lines(0)
        );
    }
    let model = &bench.model;
    out += &format!(
        "\nnanoseconds per packet: t = {:.1} ({:.1} dispatch + {:.1} step), c2 = {:.1} for each history record, and \
         {}; replicas save s = {:.1}\n",
        model.t,
        model.d,
        model.c1,
        model.c2,
        from_elsewhere(model.r),
        model.s
    );
    if bench.predictions.is_empty() {
        out += &format!("scr by the model k / (t - s + (k-1) (c2 + r)): {}\n", curve(bench));
    } else {
        out += "\nscr: modelled by k / (t - s + (k-1) (c2 + r)), and measured\n\n";
        out += &predictions(&bench.predictions, false, style).lines(0);
        if !bench.sharded.is_empty() {
            out += "\nengines that shard: modelled by t for each packet of the busiest core, and measured\n\n";
            out += &predictions(&bench.sharded, true, style).lines(0);
        }
    }
    if !bench.replays.is_empty() {
        let of = |(cores, percent): &(usize, u32)| format!("{percent} % of a packet's time on {cores}");
        let all = bench.replays.iter().map(of).collect::<Vec<_>>().join(", ");
        out += &format!("hybrid replicates a packet set if that pays; replaying a record was measured to cost {all}\n");
    }
    if let Some(sequencing) = &bench.sequencing {
        out += &format!("{}\n", sequencer(sequencing));
    }
    if let Some(each) = bench.bytes_per_flow {
        out += &format!("{each:.0} bytes per flow in a full table; the tables were built in {}\n", span(bench.startup));
    }
    if huge_share(bench) < 0.9 {
        let note = "the kernel gave too few huge pages for the traffic; each packet may take a few nanoseconds longer";
        out += &format!("{}\n", style.dim(note));
    }
    out
}

/// The rounds of all rows.
pub(super) fn of_all(bench: &Bench) -> Rounds {
    bench.rows.iter().map(|row| row.rounds).fold(Rounds::default(), Rounds::and)
}

/// A note on rounds that other programs disturbed.
pub(super) fn disturbance(rounds: Rounds) -> Option<String> {
    let Rounds { run, disturbed, only_undisturbed, worst, .. } = rounds;
    let what_of_it = if only_undisturbed {
        "they count only if no other rounds exist"
    } else {
        "--undisturbed continues until enough other rounds exist"
    };
    (disturbed > 0).then(|| {
        format!(
            "{} of {} were disturbed by other programs: a short calculation between bursts took up to {worst:.2} \
             times its minimum; {what_of_it}",
            count(disturbed as u64),
            counted(run as u64, "round", "rounds")
        )
    })
}

/// A note on rows with more cores than the machine has.
pub(super) fn beyond_machine(bench: &Bench, machine: usize) -> Option<String> {
    let most = bench.rows.iter().map(|row| row.cores).max().filter(|most| *most > machine)?;
    Some(format!(
        "this machine has {}, so rows with more (up to {most}) are modelled: their cores did not run at once, and r \
         (below) is added for each history record",
        counted(machine as u64, "core", "cores")
    ))
}

/// The rounds that count for a row, if not all do.
pub(super) fn rounds(rounds: Rounds) -> Option<String> {
    let Rounds { run, disturbed, counted, only_undisturbed, .. } = rounds;
    match only_undisturbed {
        true if run > 0 && disturbed == run => Some(format!("all {} disturbed", counted_rounds(run))),
        true => Some(format!("{counted} of {}", counted_rounds(run))),
        false => None,
    }
}

fn counted_rounds(rounds: usize) -> String {
    counted(rounds as u64, "round", "rounds")
}

/// The rate of a software sequencer, in a sentence.
pub(super) fn sequencer(sequencing: &Sequencing) -> String {
    let Sequencing { cores, log_mpps, piggyback_mpps, piggyback_bytes } = sequencing;
    format!(
        "a software sequencer on its own core, for {cores} other cores (measured): {:.1} Mpps with a shared log, \
         {:.1} with the history in front of each packet ({piggyback_bytes} bytes more)",
        log_mpps.median, piggyback_mpps.median
    )
}

/// Reasons for missing rows. `sequential` on several cores is left out without a reason.
pub(super) fn left_out(bench: &Bench) -> impl Iterator<Item = &str> {
    let news = bench.refused.iter().filter(|(engine, ..)| *engine != EngineKind::Sequential);
    news.map(|(.., reason)| reason.as_str())
}

/// True if a search found no rate at all.
pub(super) fn nothing_passed(bench: &Bench) -> bool {
    let mut found = bench.rows.iter().filter_map(|row| row.loss_free.as_ref()?.as_ref().ok());
    found.any(|found| found.mpps.min == 0.0)
}

/// The usual cause: a core that loses a time slice loses more packets than its ring holds, at any rate.
pub(super) const NOTHING_PASSED: &str = "where the loss-free rate is none, a search found no rate that passes, \
     usually because another program runs on the same processors; longer trials and larger rings tolerate more";

/// A rate, or that there is none.
pub(super) fn rate(mpps: f64) -> String {
    if mpps > 0.0 { format!("{mpps:.2}") } else { "none".to_owned() }
}

/// What loss-free means here, in a sentence.
pub(super) fn rules(plan: &LossFreePlan) -> String {
    let LossFreePlan { threshold, resolution_mpps, warm_up, trial, attempts, descriptors } = plan;
    let threshold = if *threshold > 0.0 {
        format!("less than {} % of the packets are lost", threshold * 100.0)
    } else {
        "no packet is lost".to_owned()
    };
    format!(
        "the highest rate at which {threshold} in {} after {} of warm-up, with rings of {descriptors} descriptors, \
         precise to {resolution_mpps} Mpps; a rate is too high if it fails {} in a row",
        span(*trial),
        span(*warm_up),
        counted(*attempts as u64, "time", "times")
    )
}

/// The rows, with their origin.
pub(super) fn table(bench: &Bench, style: Style) -> Sheet {
    let with_loss_free = bench.rows.iter().any(|row| row.loss_free.is_some());
    let mut columns = vec![
        ("engine", Align::Left),
        ("cores", Align::Right),
        ("Mpps", Align::Right),
        ("from - to", Align::Right),
        ("ns/packet/core", Align::Right),
    ];
    if with_loss_free {
        columns.extend([("loss-free", Align::Right), ("from - to", Align::Right), ("lost", Align::Right)]);
    }
    columns.push(("", Align::Left));
    let mut sheet = Sheet::new(style, &columns);
    for row in &bench.rows {
        let mpps = &row.mpps;
        let mut cells = vec![
            (row.engine.name().to_owned(), Tone::Bold),
            (row.cores.to_string(), Tone::Plain),
            (format!("{:.2}", mpps.median), Tone::Good),
            (format!("{:.2} - {:.2}", mpps.min, mpps.max), Tone::Dim),
            (format!("{:.1}", row.ns_per_packet_per_core.median), Tone::Plain),
        ];
        if with_loss_free {
            cells.extend(match &row.loss_free {
                Some(Ok(found)) => [
                    (rate(found.mpps.median), if found.mpps.median > 0.0 { Tone::Good } else { Tone::Bad }),
                    (format!("{} - {}", rate(found.mpps.min), rate(found.mpps.max)), Tone::Dim),
                    (share(found.loss.median), Tone::Dim),
                ],
                Some(Err(_)) | None => {
                    [("-".to_owned(), Tone::Dim), (String::new(), Tone::Dim), (String::new(), Tone::Dim)]
                }
            });
        }
        let tone = match row.basis {
            _ if bench.implausible(row).is_some() => Tone::Bad,
            Basis::Measured => Tone::Dim,
            Basis::Modelled => Tone::Warn,
        };
        cells.push((label(row, "modelled: each core's share runs alone, one after the other", bench), tone));
        sheet.toned(cells);
    }
    sheet
}

/// Times from arrival to transmit; `None` if they were not asked for.
fn delays(bench: &Bench, style: Style) -> Option<Sheet> {
    bench.rows.iter().find(|row| row.delays.is_some())?;
    let columns = [
        ("engine", Align::Left),
        ("cores", Align::Right),
        ("load", Align::Right),
        ("Mpps", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("worst", Align::Right),
        ("lost", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for row in &bench.rows {
        let (engine, cores) = (row.engine.name().to_owned(), row.cores.to_string());
        match &row.delays {
            Some(Ok(delays)) => {
                for one in delays {
                    let took = |span: std::time::Duration| time(span.as_nanos() as f64);
                    sheet.row([
                        engine.clone(),
                        cores.clone(),
                        format!("{:.0} %", one.load * 100.0),
                        format!("{:.2}", one.mpps),
                        took(one.p50),
                        took(one.p99),
                        took(one.p999),
                        took(one.worst),
                        share(one.lost),
                        "measured".to_owned(),
                    ]);
                }
            }
            Some(Err(reason)) => {
                let mut cells = vec![engine, cores];
                cells.resize(9, "-".to_owned());
                cells.push(reason.clone());
                sheet.row(&cells);
            }
            None => {}
        }
    }
    Some(sheet)
}

/// Origin of a row. `modelled` is the text for shares that ran alone.
pub(super) fn label(row: &Row, modelled: &str, bench: &Bench) -> String {
    let mut label = match row.basis {
        Basis::Measured => "measured".to_owned(),
        Basis::Modelled => modelled.to_owned(),
    };
    if let Some(Err(_)) = row.loss_free {
        label += "; no loss-free rate";
    }
    if let Some(times) = bench.implausible(row) {
        label += &format!(", NOT CREDIBLE: {times:.2} times the rate of {} single cores; measure again", row.cores);
    }
    if !bench.dispatch.is_none() {
        label += &format!(", {}", added(bench.dispatch));
    }
    if let Some(rounds) = rounds(row.rounds) {
        label += &format!(", {rounds}");
    }
    label
}

/// The work added to each received packet.
pub(super) fn added(dispatch: Work) -> String {
    format!("with {} of dispatch added", time(dispatch.asked_ns))
}

/// `0`, `0.03 %`, `3.9 %`.
pub(super) fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".to_owned(),
        percent if percent < 0.005 => "< 0.01 %".to_owned(),
        percent if percent < 0.995 => format!("{percent:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

fn predictions(predictions: &[Prediction], named: bool, style: Style) -> Sheet {
    let columns = [
        (if named { "engine" } else { "" }, Align::Left),
        ("cores", Align::Right),
        ("model, Mpps", Align::Right),
        ("found", Align::Right),
        ("error", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for prediction in predictions {
        let (found, error, basis) = prediction.beside.map_or_else(
            || (String::new(), String::new(), "modelled"),
            |beside| {
                let basis = match beside.basis {
                    Basis::Measured => "modelled and measured",
                    Basis::Modelled => "modelled and each core's share alone",
                };
                (format!("{:.2}", beside.mpps), format!("{:+.1} %", beside.error_percent), basis)
            },
        );
        sheet.toned([
            (if named { prediction.engine.name().to_owned() } else { String::new() }, Tone::Bold),
            (prediction.cores.to_string(), Tone::Plain),
            (format!("{:.2}", prediction.mpps), Tone::Warn),
            (found, Tone::Good),
            (error, Tone::Plain),
            (basis.to_owned(), Tone::Dim),
        ]);
    }
    sheet
}

/// The curve of the model.
fn curve(bench: &Bench) -> String {
    let points = [1, 2, 4, 8].map(|cores| format!("{:.1} on {cores}", bench.model.mpps(cores)));
    format!("{} (modelled, Mpps)", points.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_by_people() {
        for (of, text) in [(0.0, "0"), (1e-6, "< 0.01 %"), (0.0003, "0.03 %"), (0.0391, "3.9 %")] {
            assert_eq!(share(of), text);
        }
    }

    #[test]
    fn disturbed_rounds_are_told() {
        let all = Rounds { run: 5, counted: 5, worst: 1.02, ..Rounds::default() };
        assert_eq!((disturbance(all), rounds(all)), (None, None));
        let some = Rounds { disturbed: 2, worst: 1.7, ..all };
        let said = disturbance(some).unwrap();
        assert!(
            said.starts_with("2 of 5 rounds were disturbed") && said.contains("1.70") && said.contains("--undisturbed")
        );
        let asked = Rounds { counted: 3, only_undisturbed: true, ..some };
        assert!(disturbance(asked).unwrap().contains("count only if no other rounds exist"));
        assert_eq!(rounds(asked).unwrap(), "3 of 5 rounds");
        let none = Rounds { disturbed: 5, counted: 5, ..asked };
        assert_eq!(rounds(none).unwrap(), "all 5 rounds disturbed");
        let sum = some.and(Rounds { worst: 2.0, run: 1_000, ..all });
        assert!(disturbance(sum).unwrap().starts_with("2 of 1,005 rounds") && sum.worst == 2.0);
    }

    #[test]
    fn what_loss_free_means_is_told() {
        let plan = LossFreePlan::default();
        assert!(rules(&plan).contains("less than 4 %") && rules(&plan).contains("fails 3 times"));
        assert!(rules(&LossFreePlan { threshold: 0.0, ..plan }).contains("no packet is lost"));
    }
}
