//! The page's claims, results and differences from the paper. Every sentence follows from the figures.

use anyhow::Result;

use super::Results;
use super::page::{gain, list, middle, mpps, number, record_bytes};
use super::paper::{GAIN, GAIN_WITH_DISPATCH, HYBRID, PROGRAMS, RECOVERY_COST, SEQUENCED};
use super::table::markdown;

/// The relative difference up to which two rates count as equal.
const SAME: f64 = 0.10;

/// The claims with their targets.
pub(super) fn summary(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    let mut claim =
        |what: String, target: String, [found, fastest]: [Option<f64>; 2], shown: fn(f64) -> String, met: bool| {
            let verdict = if found.is_none() {
                "not measured here"
            } else if met {
                "met"
            } else {
                "**missed**"
            };
            let [found, fastest] = [found, fastest].map(|figure| figure.map_or_else(|| "-".to_owned(), shown));
            rows.push(vec![what, target, found, verdict.to_owned(), fastest, "measured".to_owned()]);
        };
    let times = |value: f64| format!("{value:.2} times");
    for (kind, least, words) in
        [("fit", GAIN, "memory port"), ("fit-dispatch", GAIN_WITH_DISPATCH, "with the paper's dispatch added")]
    {
        for trace in ["university-dc", "single-flow"] {
            for program in &PROGRAMS {
                let run = results.run(&format!("{kind}/{trace}/{}", program.name))?;
                let [found, fastest] = ["median", "max"].map(|of| gain(run, "scr", of));
                let what = format!("{}, {trace}: scr on two cores over one, {words}", program.name);
                claim(
                    what,
                    format!("at least {least}"),
                    [found, fastest],
                    times,
                    found.is_some_and(|found| found >= least),
                );
            }
        }
    }
    for program in &PROGRAMS {
        let Some(target) = program.c2_target else { continue };
        let found = number(results.run(&format!("fit/university-dc/{}", program.name))?, "/model_ns/c2")?;
        let what = format!("{}: a record of a history (c2)", program.name);
        claim(
            what,
            format!("at most {target} ns"),
            [Some(found), None],
            |found| format!("{found:.1} ns"),
            found <= target,
        );
    }
    let run = results.run("fit/single-flow/ddos")?;
    let found = number(run, "/software_sequencer/shared_log_mpps/median")?;
    let fastest = number(run, "/software_sequencer/shared_log_mpps/max")?;
    let what = "ddos: the sequencer in software, alone on one core".to_owned();
    let rate = |found: f64| format!("{found:.1} Mpps");
    claim(what, format!("at least {SEQUENCED} Mpps"), [Some(found), Some(fastest)], rate, found >= SEQUENCED);
    for (kind, words) in [("link", "memory port"), ("link-dispatch", "with the paper's dispatch added")] {
        for program in &PROGRAMS {
            let found = recovery_cost(results, kind, program.name)?;
            let what = format!("{}: loss recovery where nothing is lost, {words}", program.name);
            let met = found.is_some_and(|found| found <= RECOVERY_COST);
            let target = format!("at most {:.0} % less", RECOVERY_COST * 100.0);
            let less = |found: f64| {
                let percent = found.abs() * 100.0;
                format!("{percent:.1} % {}", if found < 0.0 { "more" } else { "less" })
            };
            claim(what, target, [found, None], less, met);
        }
    }
    for (trace, function, run) in results.three() {
        let [found, fastest] = ["median", "max"].map(|of| {
            let measured = mpps(run, "hybrid", 2).is_some_and(|(_, modelled)| !modelled);
            middle(&results.of_the_better(trace, function, run, 2, of)).filter(|_| measured)
        });
        let what = format!("{function}, {trace}: hybrid over the better of rss++ and scr, two cores");
        let target = format!("at least {HYBRID}, a tie");
        claim(what, target, [found, fastest], times, found.is_some_and(|found| found >= HYBRID));
    }
    let head = "## Claims\n\nThe column \"found\" has medians, and verdicts follow from them. The fastest rounds stand beside them: \
                other programs on a machine slow rounds down and never speed them up.\n\n";
    Ok(head.to_owned() + &markdown(&["claim", "target", "found", "", "fastest rounds", "figures are"], &rows))
}

/// The share of the rate that recovery costs without loss; `None` if it wasn't measured.
fn recovery_cost(results: &Results, kind: &str, function: &str) -> Result<Option<f64>> {
    let Ok(run) = results.run(&format!("{kind}/{function}")) else { return Ok(None) };
    for row in list(run, "link")? {
        if row["recovery"] == true && number(row, "/link_loss_percent")? == 0.0 {
            return Ok(Some(1.0 - number(row, "/of_no_loss_no_recovery/median")?));
        }
    }
    Ok(None)
}

/// Results that differ from the paper, and the reasons that the figures show.
pub(super) fn differences(results: &Results) -> Result<String> {
    let mut points = Vec::new();
    points.extend(one_connection(results)?);
    points.extend(on_traces(results));
    points.extend(hybrid(results));
    points.extend(parameters(results)?);
    points.push(records(results)?);
    points.push(errors(results)?);
    points.extend(loss(results)?);
    let points: String = points.into_iter().map(|point| format!("* {point}\n")).collect();
    Ok(format!("## Differences from the paper\n\n{points}"))
}

/// Figure 1: `shared` falls, RSS stays flat, replication rises.
fn one_connection(results: &Results) -> Result<Vec<String>> {
    let run = results.run("figure-1")?;
    let mut points = Vec::new();
    for (engine, expected) in [("shared", "falls"), ("rss", "stays flat"), ("rss++", "stays flat"), ("scr", "rises")] {
        let (Some(one), Some((two, false))) =
            (mpps(run, engine, 1).or_else(|| mpps(run, "scr", 1)), mpps(run, engine, 2))
        else {
            continue;
        };
        let times = two / one.0;
        let found = if times > 1.0 + SAME {
            "rises"
        } else if times < 1.0 - SAME {
            "falls"
        } else {
            "stays flat"
        };
        if found != expected {
            points.push(format!(
                "Figure 1: over one connection `{engine}` {found} from one core to two ({times:.2} times); in the paper it {expected}."
            ));
        }
    }
    if points.is_empty() {
        points.push("Figure 1 is as in the paper on the cores that were measured: over one connection `shared` falls, `rss` and `rss++` stay flat, `scr` rises.".to_owned());
    }
    Ok(points)
}

/// Figures 6 and 7: which engine is fastest on the most cores.
fn on_traces(results: &Results) -> Vec<String> {
    const ENGINES: [&str; 5] = ["shared", "rss", "rss++", "scr", "hybrid"];
    let mut points = Vec::new();
    for (trace, function, run) in results.traces() {
        let cores = run["rows"].as_array().into_iter().flatten().filter(|row| row["basis"] == "measured");
        let Some(most) = cores.filter_map(|row| row["cores"].as_u64()).max().filter(|cores| *cores > 1) else {
            continue;
        };
        let rates = ENGINES.iter().filter_map(|engine| Some((*engine, mpps(run, engine, most)?.0)));
        let rates: Vec<_> = rates.collect();
        let Some(first) = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1)) else { continue };
        let of = |name| rates.iter().find(|(engine, _)| *engine == name).map(|(_, rate)| *rate);
        let Some(scr) = of("scr") else { continue };
        if first.0 != "scr" && first.1 > scr * (1.0 + SAME) {
            let share = run["model_ns"]["c2"].as_f64().zip(run["model_ns"]["t"].as_f64()).map(|(c2, t)| c2 / t * 100.0);
            let share = share.map_or_else(String::new, |share| {
                format!(" Replication also steps a record for each other core's packet; a record takes {share:.0} % of a packet's time here.")
            });
            points.push(format!(
                "{function} on {trace}: on {most} cores `{}` is ahead of `scr` ({:.1} to {scr:.1} Mpps, measured).{share}",
                first.0, first.1
            ));
        }
    }
    points
}

/// The runs in which `hybrid` is slower than the better of `rss++` and `scr` by more than measurements differ.
fn hybrid(results: &Results) -> Vec<String> {
    let behind = results.three().filter_map(|(trace, function, run)| {
        let times = middle(&results.of_the_better(trace, function, run, 2, "median"));
        let times = times.filter(|times| *times < 1.0 - SAME)?;
        let (hybrid, modelled) = mpps(run, "hybrid", 2)?;
        (!modelled).then(|| {
            format!("{function} on {trace}: on 2 cores `hybrid` ({hybrid:.1} Mpps, measured) carries {times:.2} times the better of `rss++` and `scr`.")
        })
    });
    behind.collect()
}

/// Table 4.
fn parameters(results: &Results) -> Result<Vec<String>> {
    let mut points = Vec::new();
    let (mut dispatch, mut ratios) = (Vec::new(), Vec::new());
    for program in &PROGRAMS {
        let run = results.run(&format!("fit/university-dc/{}", program.name))?;
        let (t, d, c2) = (number(run, "/model_ns/t")?, number(run, "/model_ns/d")?, number(run, "/model_ns/c2")?);
        let c2 = c2 + number(run, "/model_ns/r")?;
        dispatch.push((d, program.d));
        ratios.push((program.name, t / c2.max(0.01), program.t / program.c2));
    }
    let within = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        format!("{least:.0} to {:.0}", values.iter().copied().fold(0.0, f64::max))
    };
    let less = dispatch.iter().all(|(here, paper)| here < paper);
    points.push(format!(
        "Table 4: dispatch takes {} ns here and {} in the paper{}. Rows with the paper's dispatch have both.",
        within(&mut dispatch.iter().map(|(here, _)| *here)),
        within(&mut dispatch.iter().map(|(_, paper)| *paper)),
        if less { ", since packets come from memory and no driver runs" } else { "" }
    ));
    let worse: Vec<String> = ratios
        .iter()
        .filter(|(_, here, paper)| here < paper)
        .map(|(name, here, paper)| format!("{name} ({here:.1} here, {paper:.1} there)"))
        .collect();
    if !worse.is_empty() {
        points.push(format!(
            "Replication can carry at most `t / (c2 + r)` times one core's rate, with `r` as between two cores here. That is less \
than in the paper for {}.",
            worse.join(", ")
        ));
    }
    Ok(points)
}

fn records(results: &Results) -> Result<String> {
    let mut larger = Vec::new();
    for program in &PROGRAMS {
        let bytes = record_bytes(results, program.name)?;
        if bytes > program.record_bytes {
            larger.push(format!("{} ({bytes} to {})", program.name, program.record_bytes));
        }
    }
    Ok(format!("Table 1: records are larger than the paper's for {}, so links fill earlier.", larger.join(", ")))
}

/// Figure 11.
fn errors(results: &Results) -> Result<String> {
    let (mut measured, mut shares) = (Vec::new(), Vec::new());
    for program in &PROGRAMS {
        let run = results.run(&format!("fit/university-dc/{}", program.name))?;
        for prediction in list(run, "scr_by_model")?.iter().filter(|prediction| prediction["beside"].is_object()) {
            let error = number(prediction, "/beside/error_percent")?.abs();
            if prediction["beside"]["basis"] == "measured" { &mut measured } else { &mut shares }.push(error);
        }
    }
    let worst = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    Ok(format!(
        "Figure 11: on the memory port the model's error is at most {:.0} % where cores ran together and at most {:.0} % where shares ran alone.",
        worst(&measured),
        worst(&shares)
    ))
}

/// Figure 10b.
fn loss(results: &Results) -> Result<Vec<String>> {
    let mut missed = Vec::new();
    for (kind, words) in [("link", "on the memory port"), ("link-dispatch", "with the paper's dispatch added")] {
        for program in &PROGRAMS {
            if let Some(cost) = recovery_cost(results, kind, program.name)?.filter(|cost| *cost > RECOVERY_COST) {
                missed.push(format!("{} {words} ({:.0} %)", program.name, cost * 100.0));
            }
        }
    }
    if missed.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "Figure 10b: where nothing is lost, recovery takes more than {:.0} % of the rate of {}. Each core publishes \
         every burst, and a core waits if it is further ahead than its log is long.",
        RECOVERY_COST * 100.0,
        missed.join(", ")
    )])
}
