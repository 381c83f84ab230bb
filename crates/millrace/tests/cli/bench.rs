//! `millrace bench` as a user types it: loss-free rates, the model, added dispatch, sweeps and reports. Rounds and trials are
//! as short as they can be: what is held here is what is told, not how fast anything is.

use std::fs;

use serde_json::{Value, json};

use super::folder::Folder;

/// A small bench of one round.
const SMALL: &str = "--synth uniform --flows 100 --packets 5k --rounds 1 --round-packets 1";
/// A search that ends soon.
const SOON: &str = "--mlffr --resolution 20 --trial 1ms --warm-up 0 --attempts 1";

fn machine_cores() -> u64 {
    std::thread::available_parallelism().unwrap().get() as u64
}

fn rows(result: &Value) -> &[Value] {
    result["rows"].as_array().unwrap()
}

#[test]
fn a_sequencer_in_software_is_measured_where_replication_is() {
    let folder = Folder::new();
    let line = format!("bench ddos {SMALL} --set flows=500 --set flows_v6=1 --cores 1");
    let sequencer = &folder.json(&format!("{line} --engines scr --json"))["software_sequencer"];
    assert_eq!((&sequencer["cores"], &sequencer["basis"]), (&json!(8), &json!("measured")));
    // Seven rows of a time and a source, and the trailer.
    assert!(sequencer["piggyback_bytes"].as_u64().unwrap() >= 7 * (8 + 4), "{sequencer:#}");
    for carrier in ["shared_log_mpps", "piggyback_mpps"] {
        assert!(sequencer[carrier]["median"].as_f64().unwrap() > 0.0, "{sequencer:#}");
    }
    assert!(folder.stdout(&format!("{line} --engines scr")).contains("a software sequencer"));
    assert_eq!(folder.json(&format!("{line} --engines rss --json"))["software_sequencer"], Value::Null);
}

/// Nobody knows beforehand how quiet a machine is: what is held is that the rounds add up, and that patience ends.
#[test]
fn rounds_that_somebody_disturbed_are_told_and_can_be_left_out() {
    let folder = Folder::new();
    let two = SMALL.replace("--rounds 1", "--rounds 2");
    let line = format!("bench ddos {two} --set flows=500 --set flows_v6=1 --engines sequential,scr --cores 1");
    for (option, most) in [("", 2), ("--undisturbed", 2 * 20)] {
        for row in rows(&folder.json(&format!("{line} {option} --json"))) {
            let of = |key: &str| row["rounds"][key].as_u64().unwrap();
            let (run, disturbed, counted) = (of("run"), of("disturbed"), of("counted"));
            assert!((2..=most).contains(&run) && disturbed <= run, "{row:#}");
            assert_eq!(row["rounds"]["only_undisturbed"], !option.is_empty());
            let undisturbed = run - disturbed;
            assert_eq!(counted, if option.is_empty() || undisturbed == 0 { run } else { undisturbed }, "{row:#}");
            assert!(row["rounds"]["gauge_worst_times"].as_f64().unwrap() >= 1.0, "{row:#}");
        }
    }
    let text = folder.stdout(&format!("{line} --undisturbed"));
    assert!(text.contains("measured, ") && text.contains(" rounds"), "{text}");
    if machine_cores() > 1 {
        let lossy =
            format!("bench ddos {SMALL} --set flows=500 --set flows_v6=1 --cores 2 --link-loss 1% --undisturbed");
        let result = folder.json(&format!("{lossy} --json"));
        let link = result["link"].as_array().unwrap();
        assert!(link.iter().all(|row| row["rounds"]["run"].as_u64().unwrap() <= 20), "{result:#}");
        assert!(folder.stdout(&lossy).contains("after a network card that sequences"));
    }
}

#[test]
fn loss_free_rates_stand_in_measured_rows_alone() {
    let folder = Folder::new();
    let beyond = machine_cores() + 1;
    let line = format!("bench ddos {SMALL} {SOON} --set flows=500 --set flows_v6=1 --engines sequential,scr");
    let result = folder.json(&format!("{line} --cores 1-{beyond} --json"));
    assert_eq!(result["loss_free_plan"]["loss_threshold"], 0.04);
    assert_eq!(result["loss_free_plan"]["descriptors"], 256);
    for row in rows(&result) {
        let found = &row["loss_free"];
        if row["cores"].as_u64().unwrap() <= machine_cores() {
            assert!(found["trials"].as_u64().unwrap() > 0, "{row:#}");
            let (offered, received) = (&found["mpps"]["median"], &found["received_mpps"]["median"]);
            // On a busy machine some search may find no rate: that is null, and never 0.
            match offered.as_f64() {
                Some(offered) => {
                    assert!(found["lost_share"]["max"].as_f64().unwrap() < 0.04, "{row:#}");
                    assert!(offered > 0.0 && received.as_f64().unwrap() <= offered);
                }
                None => assert_eq!((offered, &found["lost_share"]), (&Value::Null, &Value::Null), "{row:#}"),
            }
        } else {
            assert!(found["not_offered"].as_str().unwrap().contains("no loss-free rate"), "{row:#}");
        }
    }
    assert!(rows(&result).iter().any(|row| row["basis"] == "modelled"));
    let text = folder.stdout(&format!("{line} --cores 1-{beyond} --loss-threshold 0 --ring 64"));
    assert!(text.contains("are modelled: their cores did not run at once"), "{text}");
    for word in ["loss-free", "no packet is lost", "64 descriptors", "no loss-free rate", "measured"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert_eq!(folder.json(&format!("bench ddos {SMALL} --cores 1 --json"))["rows"][0]["loss_free"], Value::Null);
}

/// Each measured row has its times at each load; they rise with the quantile, and a lost packet is in no other figure.
#[test]
fn latency_stands_in_measured_rows_alone() {
    let folder = Folder::new();
    let beyond = machine_cores() + 1;
    let line = format!("bench ddos {SMALL} --set flows=500 --set flows_v6=1 --engines sequential,scr --latency");
    let result = folder.json(&format!("{line} --cores 1-{beyond} --load 20%,60% --json"));
    for row in rows(&result) {
        let latency = &row["latency"];
        if row["cores"].as_u64().unwrap() > machine_cores() {
            assert!(latency["not_measured"].as_str().unwrap().contains("no latency"), "{row:#}");
            continue;
        }
        let loads: Vec<f64> = latency.as_array().unwrap().iter().map(|one| one["load"].as_f64().unwrap()).collect();
        assert_eq!(loads, [0.2, 0.6], "{row:#}");
        for one in latency.as_array().unwrap() {
            let at = |name: &str| one[name].as_u64().unwrap();
            assert!(at("packets") > 0 && at("p50_ns") > 0, "{row:#}");
            assert!(at("p50_ns") <= at("p99_ns") && at("p99_ns") <= at("p999_ns"), "{row:#}");
            let throughput = row["mpps"]["median"].as_f64().unwrap();
            let share = one["mpps"].as_f64().unwrap() / throughput;
            assert!((share - one["load"].as_f64().unwrap()).abs() < 0.01, "{row:#}");
        }
    }
    let text = folder.stdout(&format!("{line} --cores 1"));
    for word in ["latency from arrival to transmit", "p99.9", "10 %", "90 %"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    let (code, error) = folder.fails(&format!("{line} --load 0"));
    assert!(code == 2 && error.contains("no load"), "{error}");
    let (code, error) = folder.fails("bench ddos --in demo.pcap.zst --load 10%");
    assert!(code == 2 && error.contains("--latency"), "{error}");
}

#[test]
fn the_model_stands_beside_what_was_found() {
    let folder = Folder::new();
    let to = machine_cores() + 6;
    let result = folder.json(&format!("bench port-knock {SMALL} --set flows=500 --cores 1 --model-to {to} --json"));
    let model = result["scr_by_model"].as_array().unwrap();
    assert_eq!(model.len() as u64, to);
    let number = |value: &Value| value.as_f64().unwrap();
    let part = &result["model_ns"];
    for (index, one) in model.iter().enumerate() {
        let cores = index as f64 + 1.0;
        let r = if index < machine_cores() as usize { "r" } else { "r_beyond" };
        let record = number(&part["c2"]) + number(&part[r]);
        let spared = if cores > 1.0 { number(&part["s"]) } else { 0.0 };
        let predicted = cores / (number(&part["t"]) - spared + (cores - 1.0) * record) * 1e3;
        assert!((number(&one["mpps"]) - predicted).abs() < 1e-6 && one["basis"] == "modelled", "{one:#}");
        let row = rows(&result).iter().find(|row| row["engine"] == "scr" && row["cores"] == one["cores"]);
        assert_eq!(row.is_none(), one["beside"].is_null(), "{one:#}");
        if let Some(row) = row {
            let found = number(&row["mpps"]["median"]);
            assert!((number(&one["beside"]["error_percent"]) - (predicted / found - 1.0) * 100.0).abs() < 1e-6);
        }
    }
    let sharded = result["sharded_by_model"].as_array().unwrap();
    for engine in ["rss", "rss++", "hybrid"] {
        let of = |list: &[Value]| list.iter().filter(|one| one["engine"] == engine).count();
        assert!(of(sharded) == of(rows(&result)) && of(sharded) > 1, "{engine}");
    }
    for one in sharded {
        // One core has all packets, at t each; on more the busiest one counts.
        let (mpps, cores) = (number(&one["mpps"]), number(&one["cores"]));
        let (least, most) = (1e3 / number(&part["t"]), 1e3 * cores / number(&part["t"]));
        assert!(mpps >= least - 1e-6 && mpps <= most + 1e-6 && one["beside"].is_object(), "{one:#}");
    }
    // What hybrid was told, for each number of cores that it was run on but one.
    let reported: Vec<u64> =
        result["replay_percent"].as_array().unwrap().iter().map(|one| one["cores"].as_u64().unwrap()).collect();
    let ran: Vec<u64> = rows(&result)
        .iter()
        .filter(|row| row["engine"] == "hybrid")
        .map(|row| row["cores"].as_u64().unwrap())
        .collect();
    assert_eq!(reported, ran[1..]);
    for engine in ["rss", "scr"] {
        let last = rows(&result).iter().rfind(|row| row["engine"] == engine).unwrap();
        assert!(last["cores"] == to && last["basis"] == "modelled", "{last:#}");
    }
    let shared: Vec<&Value> =
        result["refused"].as_array().unwrap().iter().filter(|refused| refused["engine"] == "shared").collect();
    assert!(shared.len() == 1 && shared[0]["reason"].as_str().unwrap().contains("contention"), "{shared:#?}");
    let text = folder.stdout(&format!("bench port-knock {SMALL} --set flows=500 --cores 1 --model-to {to}"));
    assert!(
        text.contains("engines that shard: modelled by t")
            && text.contains("hybrid replicates a packet set if that pays"),
        "{text}"
    );
    assert!(text.contains("modelled and measured") && text.contains("can't be modelled"), "{text}");
}

#[test]
fn added_dispatch_is_in_every_label() {
    let folder = Folder::new();
    let line = format!("bench policer {SMALL} --set flows=500 --cores 1 --dispatch 104ns --engines sequential,rss");
    let result = folder.json(&format!("{line} --json"));
    assert_eq!(result["dispatch_added"]["asked_ns"], 104.0);
    assert!((result["dispatch_added"]["calibrated_ns"].as_f64().unwrap() - 104.0).abs() < 20.0, "{result:#}");
    assert!(rows(&result).iter().all(|row| row["dispatch_added_ns"] == 104.0));
    let text = folder.stdout(&line);
    let labelled = text.lines().filter(|line| line.contains("measured, with 104 ns of dispatch added")).count();
    assert_eq!(labelled, 2, "{text}");
    assert!(!folder.stdout(&format!("bench policer {SMALL} --set flows=500 --cores 1")).contains("added"));
}

#[test]
fn a_report_is_one_page_with_the_runs_own_rows() {
    let folder = Folder::new();
    let line = format!(
        "bench heavy-hitter {SMALL} {SOON} --set flows=500 --cores 1 --model-to 4 --dispatch 50ns --report out/deep"
    );
    let result = folder.json(&format!("{line} --json"));
    let kept: Value = serde_json::from_str(&fs::read_to_string(folder.path("out/deep/bench.json")).unwrap()).unwrap();
    assert_eq!(kept, result, "what the report keeps is what was printed");
    let page = fs::read_to_string(folder.path("out/deep/index.html")).unwrap();
    for word in [
        "heavy-hitter under each engine",
        "Throughput, flat out",
        "Loss-free rate",
        "by the model",
        "Each core",
        "not available",
        "with 50 ns of dispatch added",
        "measured",
        "modelled",
        "shared",
        "--report out/deep",
    ] {
        assert!(page.contains(word), "{word} is missing");
    }
    assert!(page.matches("<svg").count() >= 4 && !page.contains("<script") && !page.contains("src="));
    assert!(!page.contains("NaN") && !page.contains(">inf"), "a figure is none");
    for row in rows(&result) {
        let mpps = format!("<b>{:.2}</b>", row["mpps"]["median"].as_f64().unwrap());
        assert!(page.contains(&mpps), "{mpps} is missing");
    }
    // A second run takes the first one's place.
    folder.stdout(&format!("bench ddos {SMALL} --set flows=500 --cores 1 --report out/deep"));
    let page = fs::read_to_string(folder.path("out/deep/index.html")).unwrap();
    assert!(page.contains("ddos under each engine") && !page.contains("Loss-free rate"));
    assert_eq!(fs::read_dir(folder.path("out/deep")).unwrap().count(), 2);
}

#[test]
fn a_sweep_has_a_row_for_each_time_and_core() {
    let folder = Folder::new();
    let beyond = machine_cores() + 1;
    let line = format!("bench sweep --rounds 1 --round-packets 1 --compute 100ns,0,20 --cores 1 --model-to {beyond}");
    let result = folder.json(&format!("{line} --report out --json"));
    let points = result["points"].as_array().unwrap();
    let asked: Vec<f64> = points.iter().map(|point| point["compute"]["asked_ns"].as_f64().unwrap()).collect();
    assert_eq!(asked, [0.0, 20.0, 100.0]);
    for point in points {
        assert!(rows(point).iter().all(|row| row["engine"] == "scr"));
        assert_eq!((rows(point)[0]["cores"].as_u64(), rows(point)[0]["basis"].as_str()), (Some(1), Some("measured")));
        assert_eq!(rows(point).last().unwrap()["basis"], "modelled");
    }
    let page = fs::read_to_string(folder.path("out/index.html")).unwrap();
    assert!(page.contains("Against one core") && page.contains("modelled") && page.matches("<svg").count() == 2);
    let text = folder.stdout("bench sweep --rounds 1 --round-packets 1 --compute 0 --cores 1 --in demo.pcap.zst");
    assert!(text.contains("times one") && text.contains("demo.pcap.zst"), "{text}");
}

/// A run on one core, as if the machine had no other.
#[test]
fn queues_are_compared_on_two_cores_or_not_at_all() {
    let folder = Folder::new();
    let line = "bench fifo --rounds 2 --items 5k --work 0,20ns";
    if machine_cores() > 1 {
        let result = folder.json(&format!("{line} --json"));
        assert_eq!((&result["slots"], &result["rounds"], &result["items"]), (&json!(1024), &json!(2), &json!(5000)));
        for bytes in [8, 16] {
            for asked in [0.0, 20.0] {
                let case: Vec<_> = rows(&result)
                    .iter()
                    .filter(|row| row["item_bytes"] == bytes && row["work_asked_ns"] == asked)
                    .collect();
                assert_eq!(case.len(), 9, "{result:#}");
                for row in case {
                    let of = |key: &str| row["ns_per_item"][key].as_f64().unwrap();
                    assert!(0.0 < of("min") && of("min") <= of("median") && of("median") <= of("max"), "{row:#}");
                }
            }
        }
        assert!(result["line_round_trip_ns"]["min"].as_f64().unwrap() > 0.0);
        let text = folder.stdout(line);
        for name in ["millrace-fifo, push and pop", "rtrb, chunks of 32", "FastForward", "16 bytes", "there and back"] {
            assert!(text.contains(name), "{name} is missing in {text}");
        }
    }
    // The command inherits the processors of the thread that starts it.
    assert!(engine::pin(engine::cpus()[0]));
    let (code, error) = folder.fails(line);
    assert!(code == 2 && error.contains("needs two cores"), "{error}");
}

#[test]
fn slips_are_answered_with_what_was_meant() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "").unwrap();
    for (code, line, hint) in [
        (2, "bench ddos --loss-threshold 4%", "--mlffr"),
        (2, "bench ddos --mlffr --loss-threshold 100%", "below 100%"),
        (2, "bench ddos --mlffr --resolution 0", "0.001 to 1000"),
        (2, "bench ddos --mlffr --trial 50", "50ms"),
        (2, "bench ddos --mlffr --trial 0", "50ms"),
        (2, "bench ddos --mlffr --ring 0", "--ring"),
        (2, "bench ddos --mlffr --attempts 0", "--attempts"),
        (2, "bench ddos --model-to 0", "1 to 256"),
        (2, "bench ddos --dispatch 2s", "104ns"),
        (2, "bench ddos --compute 5 --in demo.pcap.zst", "bench sweep"),
        (2, "bench suite --mlffr", "suite doesn't support --mlffr"),
        (2, "bench suite --report out", "suite doesn't support --report"),
        (2, "bench swep", "'sweep'"),
        (2, "bench fif", "'fifo'"),
        (2, "bench fifo --round 3", "'--rounds'"),
        (2, "bench fifo --rounds 0", "1..=1000"),
        (2, "bench fifo --items none", "--items"),
        (2, "bench fifo --work 2s", "104ns"),
        (2, "bench fifo --cores 2", "--cores"),
        (2, "bench --rounds 3 fifo", "fifo"),
        (3, "bench ddos --in demo.pcap.zst --report file", "file is not a folder"),
        (3, "bench ddos --in demo.pcap.zst --report file/deep/er", "file is not a folder"),
        (3, "bench sweep --report file", "file is not a folder"),
        (3, "bench ddos --in missing.pcap --report out", "missing.pcap"),
    ] {
        let (got, error) = folder.fails(line);
        assert_eq!(got, code, "{line}: {error}");
        assert!(error.contains(hint), "{line}: {error}");
    }
    assert!(!folder.path("out").exists(), "a folder is made when there is something to write");
}

#[test]
fn a_link_that_loses_packets_is_measured_with_recovery_and_without() {
    let folder = Folder::new();
    if machine_cores() < 2 {
        return;
    }
    let line = format!("bench port-knock {SMALL} --set flows=500 --set flows_v6=1 --cores 2 --link-loss 10%,1%");
    let result = folder.json(&format!("{line} --json"));
    let link = result["link"].as_array().unwrap();
    let cases: Vec<_> =
        link.iter().map(|row| (row["link_loss_percent"].as_f64().unwrap(), row["recovery"] == true)).collect();
    assert_eq!(cases, [(0.0, false), (0.0, true), (1.0, false), (1.0, true), (10.0, false), (10.0, true)]);
    assert!(link.iter().all(|row| row["basis"] == "measured" && row["mpps"]["median"].as_f64().unwrap() > 0.0));
    for row in link {
        assert_eq!(row["lost"].as_u64().unwrap() > 0, row["link_loss_percent"].as_f64().unwrap() > 0.0);
        let found = row["recovered"].as_u64().unwrap() + row["nowhere"].as_u64().unwrap();
        assert_eq!(found > 0, row["recovery"] == true && row["link_loss_percent"].as_f64().unwrap() > 0.0);
    }
    let text = folder.stdout(&line);
    assert_eq!(text.matches("replicas differ").count(), 2, "{text}");
    let (status, message) = folder.fails(&format!("{line} --mlffr"));
    assert!(status == 2 && message.contains("cannot be used with"), "{message}");
    let beyond = machine_cores() + 1;
    let (status, message) = folder.fails(&format!("bench ddos {SMALL} --cores {beyond} --link-loss 1%"));
    assert!(status == 2 && message.contains("can't be measured"), "{message}");
}

#[test]
fn a_pipeline_is_measured_on_the_cores_that_there_are() {
    let folder = Folder::new();
    let line = "bench conntrack --in demo.pcap.zst --engines sequential,pipeline --rounds 1 --round-packets 1 --json";
    let (code, stdout, _) = folder.run(&format!("{line} --cores 1-2,64"));
    assert_eq!(code, 0);
    let bench: Value = serde_json::from_slice(&stdout).unwrap();
    let two = std::thread::available_parallelism().unwrap().get() >= 2;
    let rows = bench["rows"].as_array().unwrap();
    let has = |engine: &str, cores: u64| rows.iter().any(|row| row["engine"] == engine && row["cores"] == cores);
    assert!(has("sequential", 1) && has("pipeline", 1) && !has("pipeline", 64));
    assert_eq!(has("pipeline", 2), two);
    assert!(rows.iter().filter(|row| row["engine"] == "pipeline").all(|row| row["basis"] == "measured"), "{rows:#?}");
    assert!(String::from_utf8(stdout).unwrap().contains("`millrace advise` models it"));
}
