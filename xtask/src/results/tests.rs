use serde_json::json;

use super::*;

fn spread(median: f64) -> Value {
    json!({ "min": median * 0.9, "median": median, "max": median * 1.1 })
}

fn row(engine: &str, cores: u64, mpps: f64) -> Value {
    let basis = if cores > 2 { "modelled" } else { "measured" };
    // No rate is loss-free on one core.
    let loss_free = json!({ "mpps": spread(if cores > 1 { mpps * 0.8 } else { 0.0 }) });
    json!({ "engine": engine, "cores": cores, "mpps": spread(mpps), "basis": basis, "loss_free": loss_free })
}

/// A bench's output, cut to what the page reads, with engines of these speed-ups on two cores.
fn bench(line: &str, two: &[(&str, f64)], c2: f64) -> Value {
    let mut rows = vec![row("sequential", 1, 20.0)];
    for (engine, times) in two {
        rows.extend([row(engine, 1, 20.0), row(engine, 2, 20.0 * times)]);
        if *engine != "shared" {
            rows.push(row(engine, 8, 60.0));
        }
    }
    let beside = |found: f64, basis: &str| json!({ "mpps": found, "basis": basis, "error_percent": 3.5 });
    json!({
        "rows": rows, "refused": [{ "engine": "shared", "cores": 8, "reason": "can't be modelled from shares" }],
        "model_ns": { "t": 50.0, "d": 35.0, "c1": 15.0, "c2": c2, "s": 0.0, "r": 0.0, "r_beyond": 0.1 },
        "scr_by_model": [
            { "cores": 1, "mpps": 20.0, "beside": beside(19.0, "measured") }, { "cores": 5, "mpps": 50.0, "beside": null },
            { "cores": 8, "mpps": 66.0, "beside": beside(60.0, "modelled") },
        ],
        "software_sequencer": {
            "cores": 8, "basis": "measured", "shared_log_mpps": spread(44.0), "piggyback_mpps": spread(33.0), "piggyback_bytes": 116,
        },
        "processor": "A Processor", "command": format!("millrace {line}"),
    })
}

fn link(cost: f64) -> Value {
    let row = |loss: f64, recovery: bool, share: f64| {
        json!({
            "link_loss_percent": loss, "recovery": recovery, "mpps": spread(30.0 * share), "of_no_loss_no_recovery": spread(share),
            "basis": "measured", "recovered": 12, "nowhere": 1,
        })
    };
    let rows = [row(0.0, false, 1.0), row(0.0, true, 1.0 - cost), row(1.0, false, 0.9), row(1.0, true, 0.7)];
    json!({ "link": rows, "command": "millrace bench --link-loss" })
}

fn quiet(start_s: u64) -> Campaign {
    Campaign { start_s, load: "0.10, 0.20, 0.30".into() }
}

/// Results of all planned runs. `shared` falls, `scr` rises, and the others stay flat.
fn canned(cores: usize) -> Results {
    let engines = [("shared", 0.4), ("rss", 1.0), ("rss++", 1.02), ("scr", 1.7), ("hybrid", 1.7)];
    let mut runs = BTreeMap::new();
    for Run { name, arguments } in plan(Extent::Quick, cores) {
        let line = arguments.join(" ");
        let value = match name.split('/').next().unwrap() {
            "functions" => {
                let facts = |name: &str| json!({ "name": name, "record_bytes": 60 });
                Value::Array(PROGRAMS.iter().map(|program| facts(program.name)).collect())
            }
            "sweep" => {
                let point = |ns: f64| {
                    let mut point = bench("", &[("scr", 1.5)], 5.0);
                    point["compute"] = json!({ "asked_ns": ns });
                    point
                };
                json!({ "points": [point(0.0), point(64.0)], "command": format!("millrace {line}") })
            }
            "link" | "link-dispatch" => link(0.05),
            "fit-dispatch" => bench(&line, &[("scr", 1.9)], 5.0),
            _ => bench(&line, &engines, 5.0),
        };
        runs.insert(name, value);
    }
    let names: Vec<String> = runs.keys().cloned().collect();
    let machine = Machine { cores, campaigns: BTreeMap::from([(0, (quiet(0), names))]) };
    Results {
        quick: false,
        machine,
        runs,
        hardware: "| rows of 112 bits | LUTs |\n|---|---|\n| 16 | 1,187 |\n\n".into(),
    }
}

fn page(results: &Results) -> String {
    let files = page::files(results).unwrap();
    files.into_iter().find(|(name, _)| name == "scr.md").unwrap().1
}

#[test]
fn every_figure_is_there_with_its_command_and_its_basis() {
    let results = canned(2);
    let files = page::files(&results).unwrap();
    let page = page(&results);
    for heading in [
        "Figure 1:",
        "Figures 6 and 7:",
        "Loss-free rates",
        "Hybrid against the better",
        "Figure 9:",
        "Table 1 and figure 10a:",
        "Figure 10b:",
        "Table 4 and figure 11:",
        "Table 2:",
    ] {
        assert!(page.contains(&format!("## {heading}")), "{heading}");
    }
    for name in [
        "figure-1.svg",
        "ddos-backbone.svg",
        "conntrack-hyperscaler.svg",
        "figure-9.svg",
        "figure-10a.svg",
        "figure-10b.svg",
    ] {
        let (_, svg) = files.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("{name}"));
        assert!(page.contains(&format!("]({name})")) && svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("measured") || svg.contains("modelled"), "{name} doesn't say where it is from");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
    // Each table's last column, or its heading, says what was measured; 9 runs of traces, 5 functions.
    let tables: Vec<&str> = page.split("\n\n").filter(|part| part.starts_with("| ")).collect();
    assert!(tables.len() >= 18, "{}", tables.len());
    for table in &tables {
        assert!(
            table.contains("measured")
                || table.contains("modelled")
                || table.contains("rows of 112 bits")
                || table.contains("table 1"),
            "{table}"
        );
        let width = table.lines().next().unwrap().matches('|').count();
        assert!(table.lines().all(|line| line.matches('|').count() == width), "{table}");
    }
    assert!(page.matches("Made by `millrace bench").count() >= 14);
    assert!(!page.contains("/work") && !page.contains("quick run"), "no paths, and no quick run");
}

#[test]
fn arithmetic_is_that_of_the_decision() {
    let page = page(&canned(2));
    // 60 bytes and 7 cores: 6 rows of 68, an outer header and a trailer.
    assert!(page.contains("| conntrack | 7 | 454 | 23.2 |"), "{page}");
}

#[test]
fn sentences_follow_from_the_figures() {
    let mut results = canned(2);
    let as_in_the_paper = page(&results);
    assert!(as_in_the_paper.contains("Figure 1 is as in the paper"));
    assert!(
        !as_in_the_paper.contains("**missed**") && as_in_the_paper.contains("| 1.70 times | met | 1.70 times |"),
        "{as_in_the_paper}"
    );
    assert!(!as_in_the_paper.contains("Figure 10b: where nothing is lost"));
    assert!(as_in_the_paper.contains("| ddos | university-dc | 1 | none (20.0) | none (20.0) |"));
    assert!(as_in_the_paper.contains("| ddos | university-dc | 2 | 6.4 (8.0) | 16.0 (20.0) |"));
    assert!(as_in_the_paper.contains("| conntrack | single-flow | 2 | 20.4 | 34.0 | 34.0 | 1.00 times | measured |"));
    assert!(
        as_in_the_paper.contains("| ddos | uniform | 8 | 60.0 | 60.0 | 60.0 | 1.00 times | modelled: shares alone |")
    );
    assert!(
        as_in_the_paper.contains("rss++ and scr, two cores | at least 0.95, a tie | 1.00 times | met | 1.00 times |")
    );

    let other = [("shared", 1.8), ("rss", 1.0), ("rss++", 1.0), ("scr", 1.2), ("hybrid", 1.0)];
    results.runs.insert("figure-1".into(), bench("bench conntrack", &other, 5.0));
    results.runs.insert("fit/single-flow/ddos".into(), bench("bench ddos", &[("scr", 1.3)], 5.0));
    results.runs.insert("fit/university-dc/policer".into(), bench("bench policer", &[("scr", 1.6)], 40.0));
    results.runs.insert("traces/backbone/ddos".into(), bench("bench ddos", &other, 5.0));
    results.runs.insert("link/ddos".into(), link(0.25));
    let page = page(&results);
    assert!(page.contains("`shared` rises from one core to two (1.80 times); in the paper it falls"));
    assert!(!page.contains("Figure 1 is as in the paper"));
    assert!(page.contains(
        "| ddos, single-flow: scr on two cores over one, memory port | at least 1.5 | 1.30 times | **missed** | 1.30 times |"
    ));
    assert!(page.contains("less than in the paper for policer (1.2 here, 7.4 there)"));
    assert!(page.contains("ddos on backbone: on 2 cores `shared` is ahead of `scr`"));
    assert!(page.contains("ddos on backbone: on 2 cores `hybrid` (20.0 Mpps, measured) carries 0.83 times"));
    assert!(page.contains("ddos, backbone: hybrid over the better of rss++ and scr, two cores | at least 0.95, a tie | 0.83 times | **missed** |"));
    assert!(page.contains("of the rate of ddos on the memory port (25 %)"));
}

#[test]
fn what_differs_by_process_is_of_the_one_in_the_middle() {
    let mut results = canned(2);
    assert!(!page(&results).contains("On two cores 3 processes"), "a quick page has one");
    for (process, hybrid) in [(2, 1.7 * 0.8), (3, 1.7 * 0.9)] {
        let engines = [("rss++", 1.02), ("scr", 1.7), ("hybrid", hybrid)];
        results.runs.insert(format!("again-{process}/uniform/ddos"), bench("bench ddos", &engines, 5.0));
    }
    let page = page(&results);
    assert!(page.contains("On two cores 3 processes"));
    assert!(page.contains("| ddos | uniform | 2 | 20.4 | 34.0 | 34.0 | 0.90 times (0.80 to 1.00) | measured |"));
    assert!(page.contains("ddos, uniform: hybrid over the better of rss++ and scr, two cores | at least 0.95, a tie | 0.90 times | **missed** |"));
    let names = |extent, cores| plan(extent, cores).iter().filter(|run| run.name.starts_with("again-")).count();
    let three = results.three().count();
    assert_eq!([names(Extent::Full, 2), names(Extent::Full, 1), names(Extent::Quick, 2)], [three * 2, 0, 0]);
}

#[test]
fn a_machine_of_one_core_says_what_it_cannot_measure() {
    let page = page(&canned(1));
    assert!(page.contains("Loss recovery is between two cores") && page.contains("not measured here"));
}

#[test]
fn a_quick_page_says_so_and_a_missing_run_is_an_error() {
    let mut results = canned(2);
    assert!(!page(&results).contains("not quiet"));
    results.quick = true;
    results.machine.campaigns.insert(60, (Campaign { load: "1.20, 0.20, 0.30".into(), ..quiet(60) }, Vec::new()));
    assert!(page(&results).contains("**This page is of a quick run**"));
    assert!(page(&results).contains("**The machine was not quiet**"));
    results.runs.remove("sweep");
    assert!(page::files(&results).is_err_and(|error| error.to_string().contains("sweep")));
}

#[test]
fn arguments_come_in_any_order() {
    let full = Options { extent: Extent::Full, fresh: false, to: None, program: None };
    assert_eq!(Options::read(&[]), Some(full));
    let all = Options { extent: Extent::Quick, fresh: true, to: Some("out".into()), program: None };
    assert_eq!(Options::read(&["--fresh", "out", "--quick"]).as_ref(), Some(&all));
    assert_eq!(Options::read(&["--quick", "--fresh", "out"]).as_ref(), Some(&all));
    assert_eq!(Options::read(&["out", "other"]), None);
    assert_eq!(Options::read(&["--slow"]), None);
    let program = Options::read(&["--program=bin/millrace"]).and_then(|options| options.program);
    assert_eq!(program, Some("bin/millrace".into()));
    assert_eq!(Options::read(&["--program=a", "--program=b"]), None);
}

#[test]
fn a_page_says_which_runs_are_of_which_time() {
    let mut results = canned(2);
    assert!(page(&results).contains("* The runs began 1970-01-01 00:00 UTC, load averages then 0.10, 0.20, 0.30.\n"));
    results.machine.campaigns.insert(3_600, (quiet(3_600), vec!["sweep".into(), "link/ddos".into()]));
    let page = page(&results);
    assert!(page.contains("**The runs are of 2 times**"));
    assert!(page.contains("  * begun 1970-01-01 01:00 UTC, load averages then 0.10, 0.20, 0.30: sweep, link/ddos.\n"));
}

/// Stand-in programs: their output is parsed, the error output of a failure is shown, and they are ended on request.
#[test]
fn a_run_is_read_or_ended() {
    let run = |script: &str| Run { name: "run".into(), arguments: vec!["-c".into(), script.into()] };
    let go = |script: &str, stop| json(Path::new("/bin/sh"), &run(script), &AtomicBool::new(stop));
    assert_eq!(go("echo '[1, 2]'", false).unwrap(), Some(json!([1, 2])));
    assert!(go("echo no; exit 3", false).is_err_and(|error| error.to_string().contains("failed")));
    assert!(go("echo why >&2; exit 3", false).is_err_and(|error| error.to_string().contains("why")));
    assert!(go("echo no", false).is_err_and(|error| error.to_string().contains("no JSON")));
    assert_eq!(go("exec cat /dev/zero > /dev/null", true).unwrap(), None);
}

#[test]
fn tables_are_taken_out_of_texts() {
    let text = "words\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n| c |\n";
    assert_eq!(table::in_text(text, "| a "), "| a | b |\n|---|---|\n| 1 | 2 |\n\n");
    assert_eq!(table::in_text(text, "| d "), "");
}
