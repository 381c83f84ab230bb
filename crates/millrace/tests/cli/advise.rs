//! `millrace advise` as a user types it: what bears on its predictions is in them, and told.

use serde_json::Value;

use super::folder::Folder;

/// Traffic that takes no time.
const SMALL: &str = "--packets 3000 --rounds 1 --round-packets 3000 --set flows=500 --set flows_v6=1";

fn forecast<'a>(advice: &'a Value, engine: &str, cores: u64) -> &'a Value {
    let all = advice["forecasts"].as_array().unwrap();
    all.iter()
        .find(|one| one["engine"] == engine && one["cores"] == cores)
        .unwrap_or_else(|| panic!("{engine} on {cores}"))
}

fn mpps(forecast: &Value) -> f64 {
    forecast["mpps"].as_f64().unwrap()
}

#[test]
fn every_engine_is_predicted_or_left_out_with_a_reason() {
    let folder = Folder::new();
    let advice = folder.json(&format!("advise ddos --synth single-flow {SMALL} --cores 8 --json"));
    let refused: Vec<&Value> = advice["refused"].as_array().unwrap().iter().map(|one| &one["engine"]).collect();
    let two = std::thread::available_parallelism().unwrap().get() >= 2;
    for engine in ["sequential", "shared", "rss", "rss++", "scr", "transactional", "hybrid", "pipeline"] {
        let reported = advice["forecasts"].as_array().unwrap().iter().any(|one| one["engine"] == engine);
        assert!(reported != refused.iter().any(|name| **name == engine), "{engine}: {advice:#}");
        let unpredicted = ["transactional", "pipeline"].contains(&engine);
        assert!(reported || unpredicted || engine == "shared" && !two, "{engine}");
    }
    for one in advice["forecasts"].as_array().unwrap() {
        let [low, high] = [0, 1].map(|end: usize| one["mpps_range"][end].as_f64().unwrap());
        assert!(low <= mpps(one) && mpps(one) <= high && one["basis"] == "modelled", "{one:#}");
    }
    assert_ne!(advice["best"]["engine"], "shared", "its packets leave in another order");
    assert_eq!(advice["contention_ns"].is_object(), two);
    assert!(advice["link"].is_null() && advice["state_bytes"].as_u64().unwrap() > 0);
    // One flow and its turns: past some number of cores no more comes of more.
    if two {
        assert!(mpps(forecast(&advice, "shared", 8)) <= mpps(forecast(&advice, "shared", 4)) * 2.001);
        let turn = advice["contention_ns"]["turn"].as_f64().unwrap();
        let share = advice["heaviest_packet_set_share"].as_f64().unwrap();
        assert!(mpps(forecast(&advice, "shared", 8)) <= 1e3 / (turn * share) + 1e-6, "{advice:#}");
    }
    let text = folder.stdout(&format!("advise ddos --synth single-flow {SMALL} --cores 8"));
    assert!(text.contains("take ") && text.contains("because "), "{text}");
    assert_eq!(text.contains("if another core used the state last"), two, "{text}");
}

/// Of so few packets that noise is all there is, and of such as belong to no packet set.
#[test]
fn figures_stay_figures() {
    let folder = Folder::new();
    folder.stdout("synth --profile uniform --flows 2 --packets 2 --out two.pcap");
    for function in ["ddos", "nat", "ipsec", "load-balancer"] {
        let line =
            format!("advise {function} --in two.pcap --cores 4 --rounds 1 --round-packets 1 --dispatch 0ns --json");
        let advice = folder.json(&line);
        for one in advice["forecasts"].as_array().unwrap() {
            let found = one["mpps"].as_f64().unwrap_or_else(|| panic!("{line}: {one:#}"));
            assert!(found > 0.0 && found <= 1e4 * one["cores"].as_f64().unwrap(), "{line}: {one:#}");
        }
        for cost in ["t", "d", "c1", "c2", "s", "r", "r_beyond"] {
            assert!(advice["model_ns"][cost].as_f64().unwrap() >= 0.0, "{line}: {advice:#}");
        }
    }
    let text = folder.stdout("advise ipsec --in two.pcap --cores 4 --rounds 1");
    assert!(
        !text.contains("this machine has one") || std::thread::available_parallelism().unwrap().get() < 2,
        "{text}"
    );
}

/// A packet of 64 bytes takes 88 on the link, besides the history that it carries.
#[test]
fn a_link_bounds_what_comes_to_the_cores() {
    let folder = Folder::new();
    folder.stdout("synth --profile uniform --flows 100 --size 64 --packets 3000 --out u.pcap");
    let line = "advise ddos --in u.pcap --rounds 1 --round-packets 3000 --set flows=500 --set flows_v6=1 --cores 4";
    let advice = folder.json(&format!("{line} --link 1Gbit --json"));
    assert_eq!(advice["link"]["bits_per_s"], 1_000_000_000_u64);
    for (engine, cores, carried) in [("sequential", 1, 0.0), ("rss", 4, 0.0), ("scr", 2, 71.0), ("scr", 4, 121.0)] {
        let one = forecast(&advice, engine, cores);
        let bytes: f64 = 64.0 + carried + 24.0;
        assert_eq!(one["history_bytes_a_packet"], carried, "{one:#}");
        assert!((mpps(one) - 125.0 / bytes).abs() < 1e-3 && one["bound"] == "link", "{one:#}");
    }
    assert_eq!((&advice["best"]["engine"], &advice["best"]["cores"]), (&Value::from("sequential"), &Value::from(1)));
    assert!(advice["reason"].as_str().unwrap().contains("the link carries no more"), "{advice:#}");
    let text = folder.stdout(&format!("{line} --link 1Gbit"));
    assert!(text.contains("link: 1.00 Gbit/s, 64 bytes per packet and 121 of history with scr on 4 cores"), "{text}");
    let wide = folder.json(&format!("{line} --link 10Tbit --json"));
    assert!(wide["forecasts"].as_array().unwrap().iter().all(|one| one["bound"] != "link"), "{wide:#}");
    for (rate, hint) in [("fast", "is not a rate"), ("0", "out of range"), ("100Tbit", "out of range")] {
        let (code, _, error) = folder.run(&format!("{line} --link {rate}"));
        assert!(code == 2 && error.contains(hint), "{rate}: {code}: {error}");
    }
}

/// `advise` and `auto` time real runs, on at most the machine's cores, and give figures as reasons.
#[test]
fn what_runs_here_is_measured_and_taken() {
    let folder = Folder::new();
    let advice = folder.json("advise conntrack demo.pcap.zst --cores 64 --rounds 1 --round-packets 3000 --json");
    let here = &advice["here"];
    let rows = here["rows"].as_array().unwrap();
    let basis = if here["whole"] == true { "measured" } else { "extrapolated" };
    assert!(rows.iter().all(|row| row["basis"] == basis), "{here:#}");
    let machine = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(rows.iter().all(|row| row["cores"].as_u64().unwrap() <= machine), "{here:#}");
    let of = |engine: &str| rows.iter().any(|row| row["engine"] == engine);
    assert!(of("sequential") && (machine < 2 || of("rss") && of("scr") && of("shared")), "{here:#}");
    let best = here["best"]["mpps"].as_f64().unwrap();
    let most = |engine: &Value| engine != "shared" && engine != "transactional";
    let fastest = rows.iter().filter(|row| most(&row["engine"])).map(|row| row["mpps"].as_f64().unwrap());
    assert!(fastest.fold(0.0, f64::max) * 0.95 <= best, "{here:#}");
    assert!(here["packets"].as_u64() <= Some(35_169) && advice["forecasts"].as_array().unwrap().len() > 5);
    let text = folder.stdout("advise conntrack demo.pcap.zst --cores 1 --rounds 1 --round-packets 3000 --write pcapng");
    assert!(text.contains("`millrace run` here (measured over") && text.contains("modelled"), "{text}");
    let made_up = folder.json(&format!("advise ddos --synth single-flow {SMALL} --cores 2 --json"));
    assert!(made_up["here"].is_null(), "nobody runs over what is made up");
    let (code, _, said) = folder.run("run conntrack demo.pcap.zst --engine auto --cores 64 --out o.pcapng");
    assert!(code == 0 && said.contains("measured over ") && said.contains("this machine has "), "{said}");
    let words = ["sequential", "rss", "rss++", "scr", "hybrid", "pipeline"];
    assert!(words.iter().any(|engine| said.contains(&format!("auto: {engine} on "))), "{said}");
}

/// The median of a stage that was measured.
fn stage(pipeline: &Value, name: &str) -> Option<f64> {
    let all = pipeline["stages"].as_array().unwrap();
    all.iter().find(|one| one["stage"] == name).map(|one| one["ns"]["median"].as_f64().unwrap())
}

#[test]
fn a_function_over_streams_is_cut_between_any_two_stages() {
    let folder = Folder::new();
    for function in ["identify", "stream-match --set patterns=[\"HTTP/1\"]"] {
        let line = format!("advise {function} --in demo.pcap.zst --rounds 1 --round-packets 1 --cores 4");
        let advice = folder.json(&format!("{line} --json"));
        let pipeline = &advice["pipeline"];
        let names: Vec<&str> =
            pipeline["stages"].as_array().unwrap().iter().map(|one| one["stage"].as_str().unwrap()).collect();
        let own = function.split(' ').next().unwrap();
        assert_eq!(names, ["input", "defragment", "parse", "track", "reassemble", own]);
        let total: f64 = names.iter().map(|name| stage(pipeline, name).unwrap()).sum();
        assert!((total - pipeline["one_core_ns"].as_f64().unwrap()).abs() < 1e-6);
        let queue = pipeline["queue_ns"]["median"].as_f64().unwrap_or(0.0);
        let cuts = pipeline["cuts"].as_array().unwrap();
        // Two stages: five cuts with one to three ways; three stages: one to two ways.
        assert_eq!(cuts.len(), 5 * 3 + 2, "{pipeline:#}");
        for cut in cuts {
            assert_eq!(cut["basis"], "modelled");
            let ways = cut["ways"].as_f64().unwrap();
            let ahead = cut["ahead_ns"].as_array().unwrap().iter().map(|ns| ns.as_f64().unwrap()).fold(0.0, f64::max);
            let ns = ahead.max(cut["behind_ns"].as_f64().unwrap() / ways) + queue;
            assert!((cut["ns"].as_f64().unwrap() - ns).abs() < 1e-6, "{cut:#}");
        }
        assert_eq!(pipeline["best"]["cores"], 4);
        let options = pipeline["best"]["options"].as_str().unwrap();
        folder.stdout(&format!("run {function} --in demo.pcap.zst {options}"));
        let text = folder.stdout(&line);
        assert!(text.contains("of pipelines on 4 cores take --engine pipeline --cores 4"), "{text}");
        if std::thread::available_parallelism().unwrap().get() == 2 {
            let here = advice["here"]["rows"].as_array().unwrap();
            assert!(here.iter().any(|row| row["engine"] == "pipeline" && row["cores"] == 2), "{here:#?}");
        }
    }
    // Without streams the work is one stage, and there may be no pipeline at all.
    let advice = folder.json(&format!("advise ddos --synth single-flow {SMALL} --cores 3 --json"));
    assert_eq!(advice["pipeline"]["stages"].as_array().unwrap().len(), 3);
    let nat = "advise nat --synth single-flow --packets 3000 --rounds 1 --round-packets 3000 --cores 3 --json";
    assert!(folder.json(nat)["pipeline"].is_null(), "its packet sets share state");
    assert!(folder.json(&format!("advise ddos --synth single-flow {SMALL} --cores 1 --json"))["pipeline"].is_null());
}
