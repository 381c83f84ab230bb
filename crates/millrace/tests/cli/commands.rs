//! Every command as a user types it, over the capture that ships.

use std::fs;
use std::process::Command;

use millrace::catalogue::Catalogue;
use millrace::catalogue::config::Settings;
use millrace::engine::EngineKind;
use serde_json::Value;

use super::folder::Folder;

#[test]
fn the_demo_shows_equal_engines() {
    let demo = Folder::new().json("demo --json");
    assert_eq!(demo["equal"], true);
    assert_eq!(demo["packets"]["received"], 35_169);
    let packets = &demo["packets"];
    let sum = packets["forwarded"].as_u64().unwrap() + packets["dropped"].as_u64().unwrap();
    assert_eq!(sum + packets["replied"].as_u64().unwrap(), 35_169);
    // By tshark: the scan's 1000 SYN segments and the flood's 4880 come from outside and are answers to nothing.
    let refused =
        demo["dropped"].as_array().unwrap().iter().map(|line| line["packets"].as_u64().unwrap()).max().unwrap();
    assert!(refused >= 5_880, "{demo:#}");
    assert_eq!(demo["engines"].as_array().unwrap().len(), 8);
    for engine in demo["engines"].as_array().unwrap() {
        assert_eq!(engine["equal"], true);
        assert!(engine["runs"].as_u64().unwrap() > 0 || !engine["refused"].is_null());
    }
    let text = Folder::new().stdout("demo");
    for word in ["forwarded", "dropped", "sequential", "shared", "rss", "scr", "203.0.113.66", "Try next"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour into a pipe");
}

/// The whole catalogue.
pub(crate) fn functions() -> Vec<&'static str> {
    Catalogue::standard().entries().iter().map(|entry| entry.description().name).collect()
}

/// Whether a function's packet sets share state, as it is without a configuration.
fn shares(name: &str) -> bool {
    let catalogue = Catalogue::standard();
    let program = catalogue.get(name).and_then(|entry| entry.load(&Settings::default()).ok());
    program.is_some_and(|program| program.description().sharing.is_any())
}

/// Whether replicas can run a function: functions over streams need the packets' bytes.
pub(crate) fn replicates(name: &str) -> bool {
    let catalogue = Catalogue::standard();
    catalogue.get(name).is_some_and(|entry| EngineKind::Scr.accepts(entry.description(), 2).is_ok())
}

#[test]
fn the_catalogue_tells_all() {
    let folder = Folder::new();
    let all = folder.json("functions --json");
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|function| function["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), functions().len(), "{names:?}");
    for name in functions() {
        assert!(names.contains(&name), "{name} is not in {names:?}");
        let page = folder.stdout(&format!("functions {name}"));
        for heading in ["packet set", "Configuration", "Drop reasons", "Engines"] {
            assert!(page.contains(heading), "{heading} is missing in {page}");
        }
        assert_eq!(folder.json(&format!("functions {name} --json"))["name"], name);
    }
    for (name, room) in [
        ("bridge", "room for       none: it has no flow table; its keys set the sizes"),
        ("conntrack", "room for       1,048,576 IPv4 and 65,536 IPv6 packet sets"),
    ] {
        let page = folder.stdout(&format!("functions {name}"));
        assert!(page.contains(room), "{page}");
    }
    let page = folder.stdout("functions sidejacking");
    assert!(page.contains("; by default [\"PHPSESSID\", "), "{page}");
    let has_default = |line: &str| line.split_whitespace().take(2).eq(["block", "false"]);
    assert!(page.lines().any(has_default), "{page}");
    assert!(folder.stdout("functions").contains("packet set"));
    let nat = folder.json("functions nat --json");
    let rss = nat["engines"].as_array().unwrap().iter().find(|engine| engine["engine"] == "rss").unwrap();
    assert!(rss["refusal"].as_str().unwrap().contains("share"), "{rss:#}");
}

/// Each default in the catalogue, written to a file as it stands there, is what the function takes without a file.
#[test]
fn the_defaults_told_are_the_defaults_taken() {
    let folder = Folder::new();
    let counts = |line: &str| {
        let mut run = folder.json(line);
        (run["packets"].take(), run["flows"].take())
    };
    for function in folder.json("functions --json").as_array().unwrap() {
        let name = function["name"].as_str().unwrap();
        let keys = function["keys"].as_array().unwrap();
        let line = |key: &Value| format!("{} = {}\n", key["name"].as_str().unwrap(), key["default"].as_str().unwrap());
        fs::write(folder.path("defaults.toml"), keys.iter().map(line).collect::<String>()).unwrap();
        let without = counts(&format!("run {name} --in demo.pcap.zst --json"));
        let with = counts(&format!("run {name} --in demo.pcap.zst --config defaults.toml --json"));
        assert_eq!(with, without, "{name}");
    }
}

#[test]
fn every_engine_writes_the_same_bytes_in_input_order() {
    let folder = Folder::new();
    for function in functions() {
        folder.millrace(&format!("run {function} --in demo.pcap.zst --out one.pcap")).assert().success();
        let one = folder.bytes("one.pcap");
        for engine in ["rss", "scr"] {
            let run = format!("run {function} --in demo.pcap.zst --out several.pcap --engine {engine} --cores 3");
            let output = folder.millrace(&run).assert().get_output().clone();
            if engine == "rss" && shares(function) {
                assert_eq!(output.status.code(), Some(2), "the functions's packet sets share state");
                assert!(!folder.path("several.pcap").exists() || folder.bytes("several.pcap") == one);
                continue;
            }
            if engine == "scr" && !replicates(function) {
                assert_eq!(output.status.code(), Some(2), "replicas don't have the packets' bytes");
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(folder.bytes("several.pcap") == one, "{function} under {engine}");
        }
        let _ = fs::remove_file(folder.path("several.pcap"));
        // A second run, and another seed of the tables' hashes, change nothing.
        folder.millrace(&format!("run {function} --in demo.pcap.zst --out again.pcap --seed 7")).assert().success();
        assert!(folder.bytes("again.pcap") == one, "{function} twice");
    }
}

#[test]
fn standard_input_and_output_are_piped() {
    let folder = Folder::new();
    folder.millrace("run ddos --in demo.pcap.zst --out file.pcap").assert().success();
    let output =
        folder.millrace("run ddos --in - --out -").write_stdin(folder.bytes("demo.pcap.zst")).assert().success();
    assert!(output.get_output().stdout == folder.bytes("file.pcap"));
    assert!(
        String::from_utf8_lossy(&output.get_output().stderr).contains("35,169"),
        "the summary goes to standard error"
    );

    // Both reports on one pipe would spoil the capture: JSON moves over.
    let output = folder.millrace("run ddos --in demo.pcap.zst --out - --json").assert().success().get_output().clone();
    assert!(output.stdout == folder.bytes("file.pcap"));
    let run: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(run["packets"]["received"], 35_169);
}

#[test]
fn formats_follow_the_name_or_the_word() {
    let folder = Folder::new();
    let first = |name: &str| folder.bytes(name)[..4].to_vec();
    for (out, magic) in [
        ("a.pcap", [0xd4, 0xc3, 0xb2, 0xa1]),
        ("a.pcapng", [0x0a, 0x0d, 0x0d, 0x0a]),
        ("a.pcap.zst", [0x28, 0xb5, 0x2f, 0xfd]),
    ] {
        folder.millrace(&format!("run ddos --in demo.pcap.zst --out {out}")).assert().success();
        assert_eq!(first(out), magic, "{out}");
        assert_eq!(folder.json(&format!("inspect {out} --json"))["packets"], 35_169);
    }
    folder.millrace("run ddos --in demo.pcap.zst --out b.pcap --format pcapng").assert().success();
    assert_eq!(first("b.pcap"), [0x0a, 0x0d, 0x0d, 0x0a]);
}

#[test]
fn counters_add_up_and_json_is_complete() {
    let folder = Folder::new();
    for cores in [1, 2, 4] {
        let run = folder.json(&format!("run firewall --in demo.pcap.zst --cores {cores} --json"));
        let packets = &run["packets"];
        let number = |name: &str| packets[name].as_u64().unwrap();
        assert_eq!(number("received"), number("forwarded") + number("replied") + number("dropped"));
        let drops: u64 = packets["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(drops, number("dropped"));
        let by_core = run["by_core"].as_array().unwrap();
        assert_eq!(by_core.len(), cores);
        assert_eq!(by_core.iter().map(|core| core["received"].as_u64().unwrap()).sum::<u64>(), number("received"));
        assert_eq!(run["engine"], if cores == 1 { "sequential" } else { "rss" });
        assert_eq!(run["error"], Value::Null);
    }
}

/// A flow past its deadline has expired, whether or not a packet came by to take its entry away.
#[test]
fn every_flow_that_was_opened_has_ended_or_is_alive() {
    let folder = Folder::new();
    for (function, key, engines) in [
        (
            "heavy-hitter",
            "idle_timeout",
            ["sequential", "rss", "rss++", "shared", "scr", "transactional", "hybrid", "pipeline"].as_slice(),
        ),
        ("conntrack", "timeouts.tcp_syn_sent", &["sequential", "rss", "hybrid", "shared"]),
        ("anti-ddos", "idle_timeout", &["sequential", "scr", "transactional", "shared"]),
        ("asset-monitor", "idle_timeout", &["sequential", "transactional", "shared"]),
    ] {
        let mut expired = Vec::new();
        for engine in engines {
            let cores = if *engine == "sequential" { 1 } else { 3 };
            let line =
                format!("run {function} --in demo.pcap.zst --set {key}=1 --engine {engine} --cores {cores} --json");
            let flows = folder.json(&line)["flows"].take();
            let [opened, closed, ended, evicted, alive] =
                ["opened", "closed", "expired", "evicted", "alive"].map(|name| flows[name].as_u64().unwrap());
            assert!(opened > 500 && ended > 0, "{line}: {flows}");
            assert_eq!(opened, closed + ended + evicted + alive, "{line}: {flows}");
            // Under `shared` packets come in an order of their own, so that other flows may end.
            if *engine != "shared" && !shares(function) {
                expired.push(ended);
            }
        }
        assert!(expired.iter().all(|ended| *ended == expired[0]), "{function}: {expired:?}");
    }
}

/// How many cores follow the load is told, and what steering knows nothing of is refused.
#[test]
fn as_many_cores_are_used_as_the_load_needs() {
    let folder = Folder::new();
    // Some 1,900 packets a second: one core in ten of that many does, where each carries a hundred thousand.
    // The capture's last packet comes two seconds behind the one ahead of it: whoever decides then needs a core less.
    for (rate, at_end) in [("0.1", 1..=1), ("0.0001", 7..=8)] {
        let line = format!(
            "run conntrack --in demo.pcap.zst --engine rss++ --cores 8 --core-rate {rate} --epoch 500 --buckets 256 --json"
        );
        let in_use = folder.json(&line)["cores_in_use"].take();
        assert!(at_end.contains(&in_use["end"].as_u64().unwrap()), "{line}: {in_use}");
        assert_eq!(in_use["most"], 8, "{line}: {in_use}");
    }
    let text = folder.stdout("run conntrack --in demo.pcap.zst --engine rss++ --cores 8 --core-rate 0.1 --epoch 500");
    assert!(text.contains("1 to 8 cores were in use, 1 at the end"), "{text}");
    assert!(folder.json("run conntrack --in demo.pcap.zst --engine rss++ --cores 8 --json")["cores_in_use"].is_null());
    folder
        .stdout("verify ddos --in demo.pcap.zst --engines rss++ --cores 2-3 --seeds 1 --core-rate 0.002 --epoch 1000");
    // Whatever is chosen, what was asked for is no mistake.
    let (code, _, text) = folder.run("run nat --in demo.pcap.zst --engine auto --cores 2 --core-rate 1 --buckets 256");
    assert!(code == 0 && text.contains("--buckets has no effect with"), "{text}");
    for (line, hint) in [
        ("run ddos --in demo.pcap.zst --engine scr --cores 2 --core-rate 1", "--core-rate is for rss++ and hybrid"),
        ("run ddos --in demo.pcap.zst --engine rss --cores 2 --epoch 100", "--epoch is for rss++ and hybrid"),
        (
            "run ddos --in demo.pcap.zst --buckets 128",
            "--buckets is for rss, rss++, hybrid, transactional and pipeline",
        ),
        ("run ddos --in demo.pcap.zst --engine rss --cores 2 --buckets 100", "128, 256 or 512"),
        ("run ddos --in demo.pcap.zst --engine rss++ --cores 2 --core-rate 0", "2.5"),
        ("run ddos --in demo.pcap.zst --engine rss++ --cores 2 --core-rate fast", "2.5"),
        ("run ddos --in demo.pcap.zst --engine rss++ --cores 1 --core-rate 2", "needs --cores 2 or more"),
        ("run ddos --in demo.pcap.zst --engine auto --cores 1 --core-rate 2", "needs --cores 2 or more"),
        ("verify ddos --in demo.pcap.zst --engines rss++ --cores 1 --core-rate 2", "needs --cores 2 or more"),
        ("verify ddos --in demo.pcap.zst --engines scr --epoch 100", "--epoch is for rss++ and hybrid"),
    ] {
        let (code, _, error) = folder.run(line);
        assert!(code == 2 && error.contains(hint), "{line}: {code}: {error}");
    }
}

/// Programs get numbers as numbers and text as text, even text of digits alone.
#[test]
fn reports_have_numbers_as_numbers() {
    let folder = Folder::new();
    let run = folder.json("run heavy-hitter --in demo.pcap.zst --set top=5 --json");
    let rows = run["report"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for row in rows {
        assert!(row[0].is_string() && row[2].is_string() && row[3].is_u64() && row[4].is_u64(), "{row}");
    }
    let text = folder.stdout("run heavy-hitter --in demo.pcap.zst --set top=5");
    let most = rows[0][4].as_u64().unwrap();
    assert!(most > 1_000_000 && !text.contains(&most.to_string()), "{text}");
    assert!(text.contains(&format!(",{:03},{:03}", most / 1_000 % 1_000, most % 1_000)), "{text}");
    for function in functions() {
        let run = folder.json(&format!("run {function} --in demo.pcap.zst --json"));
        for cell in run["report"]["rows"].as_array().into_iter().flatten().flat_map(|row| row.as_array().unwrap()) {
            assert!(
                cell.is_u64() || cell.as_str().is_some_and(|text| text.parse::<u64>().is_err()),
                "{function}: {cell}"
            );
        }
    }
}

/// Who most likely meant something else is told so, once, and others aren't.
#[test]
fn a_function_that_does_nothing_says_why() {
    let folder = Folder::new();
    fs::write(
        folder.path("web.toml"),
        "[[services]]\naddress = \"192.0.2.1:80\"\nbackends = [\"10.0.0.1:80\", \"10.0.0.2:80\"]\n",
    )
    .unwrap();
    for (line, words) in [
        ("bridge", "frames were for stations on the port that they came from"),
        ("load-balancer", "there are no `services`, so every packet passes unchanged"),
        ("nat", "packets went from outside to inside addresses, which no outside host can know"),
        ("ipsec", "there are no `tunnels`, so every packet is dropped"),
        ("ipsec --set other=forward", "there are no `tunnels`, so every packet passes unchanged"),
    ] {
        let text = folder.stdout(&format!("run {line} --in demo.pcap.zst"));
        assert!(text.matches(words).count() == 1, "{line}: {text}");
        let run = folder.json(&format!("run {line} --in demo.pcap.zst --json"));
        assert!(run["remark"].as_str().unwrap().contains(words), "{line}: {run:#}");
    }
    for line in ["load-balancer --config web.toml", "ddos", "firewall"] {
        assert_eq!(folder.json(&format!("run {line} --in demo.pcap.zst --json"))["remark"], Value::Null, "{line}");
    }
}

/// In a user's words: what is wanted and what stands there, where, and the keys of that place.
#[test]
fn configurations_are_refused_in_words() {
    let folder = Folder::new();
    let service = |keys: &str| format!("table_size = 307\n[[services]]\naddress = \"192.0.2.1:80\"\n{keys}\n");
    for (text, says) in [
        (
            service("backends = \"10.0.0.1:80\""),
            "web.toml:4:12: expected a list in [ ], found the text \"10.0.0.1:80\"\n",
        ),
        (
            service("backend = []"),
            "web.toml:4:1: `backend` is not a key here; did you mean `backends`? (keys here: address, protocol, backends)\n",
        ),
        (service("backends = [80]"), "web.toml:4:13: expected a text in quotes, found the number 80\n"),
        (service("protocol = \"sctp\""), "web.toml:4:12: `sctp` is none of the choices: tcp, udp\n"),
        (service(""), "web.toml:2:1: `backends` is missing\n"),
        (
            "services = [80]".to_owned(),
            "web.toml:1:13: expected a table of keys, as { key = value }, found the number 80\n",
        ),
        ("table_size = \"large\"".to_owned(), "web.toml:1:14: expected a whole number, found the text \"large\"\n"),
        (
            "table_size = 3".to_owned(),
            "web.toml:1:14: 3 is out of range: a prime from 101 to 1048573, at least a hundred times the number of backends\n",
        ),
        (
            service("backends = [\"10.0.0.1:80\", \"10.0.0.2:80\", \"10.0.0.3:80\", \"10.0.0.4:80\"]"),
            "192.0.2.1:80 has 4 `backends`, too many for a `table_size` of 307: Maglev's table has 100 entries for each or more",
        ),
    ] {
        fs::write(folder.path("web.toml"), &text).unwrap();
        let (code, error) = folder.fails("run load-balancer --in demo.pcap.zst --config web.toml");
        assert!(code == 2 && error.contains(says), "{text}: {error}");
        assert!(["i64", "u64", "struct", "sequence", "string"].iter().all(|word| !error.contains(word)), "{error}");
    }
}

#[test]
fn verify_passes_and_names_refusals() {
    let folder = Folder::new();
    let verified = folder.json("verify heavy-hitter --in demo.pcap.zst --cores 1-3 --seeds 2 --json");
    assert_eq!(verified["equal"], true);
    for engine in verified["engines"].as_array().unwrap() {
        let runs = match engine["engine"].as_str().unwrap() {
            "sequential" => 3,
            // Two schedules for each number of cores, and two cuts more; real threads for each number of cores.
            "pipeline" => 11,
            // Behind a port that sequences, on two and on three cores.
            "scr" => 11,
            _ => 9,
        };
        assert_eq!(engine["runs"], runs, "two schedules and real threads: {engine:#}");
    }
    let text = folder.stdout("verify nat --in demo.pcap.zst --engines rss,scr --cores 2 --seeds 1");
    assert!(text.contains("refused") && text.contains("share") && text.contains("equal"), "{text}");
}

#[test]
fn bench_labels_what_it_measured() {
    let folder = Folder::new();
    let result = folder.json(
        "bench ddos --in demo.pcap.zst --set flows=2000 --cores 1-6 --engines scr --rounds 1 --round-packets 1 --json",
    );
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    for row in result["rows"].as_array().unwrap() {
        let basis = if row["cores"].as_u64().unwrap() <= cores { "measured" } else { "modelled" };
        assert_eq!(row["basis"], basis, "{row:#}");
        assert!(row["mpps"]["median"].as_f64().unwrap() > 0.0);
    }
    let (code, error) = folder.fails("bench ddos --in demo.pcap.zst --cores 200 --engines scr --set flows=200000000");
    assert!(code == 2 && error.contains("smaller tables with --set"), "{error}");
    let text = folder.stdout("bench policer --synth uniform --flows 100 --packets 10k --cores 1 --rounds 1");
    assert!(text.contains("ns/packet/core") && text.contains("measured"), "{text}");
}

#[test]
fn synth_is_reproducible_and_exact() {
    let folder = Folder::new();
    let line = "synth --profile university-dc --flows 200 --packets 20k --seed 7 --ipv6 20";
    let made = folder.json(&format!("{line} --out a.pcap --json"));
    assert_eq!((made["packets"].as_u64(), made["flows"].as_u64()), (Some(20_000), Some(200)));
    folder.millrace(&format!("{line} --out b.pcap")).assert().success();
    assert!(folder.bytes("a.pcap") == folder.bytes("b.pcap"));
    let seen = folder.json("inspect a.pcap --json");
    assert_eq!((seen["packets"].as_u64(), seen["flows"]["flows"].as_u64()), (Some(20_000), Some(200)));
    assert!(seen["malformed"].as_object().unwrap().is_empty());
    let single = folder.json("synth --profile single-flow --packets 100 --out c.pcap --json");
    assert_eq!(single["flows"], 1);
    let (code, error) = folder.fails("synth --profile uniform --flows 1M --packets 10 --out d.pcap");
    assert!(code == 2 && !folder.path("d.pcap").exists(), "{error}");
    for (options, says) in [
        ("single-flow --flows 7", "--flows has no effect on single-flow: it has one flow"),
        ("single-flow --hosts 7", "it has one client"),
        ("syn-flood --skew 1", "--skew has no effect on syn-flood: its flows all have the same size"),
        ("syn-flood --transport udp", "only TCP SYN segments"),
        ("backbone --turns", "only flows of `uniform` can take turns"),
        ("uniform --turns --burst 4", "--burst has no effect on uniform: its flows take turns"),
        ("uniform --gap 100", "--gap has no effect on uniform: its packets come at a constant rate"),
    ] {
        let (code, error) = folder.fails(&format!("synth --profile {options} --packets 1k --out d.pcap"));
        assert!(code == 2 && error.contains(says) && !folder.path("d.pcap").exists(), "{options}: {error}");
    }
    let (code, error) = folder.fails("bench ddos --synth single-flow --flows 7");
    assert!(code == 2 && error.contains("--flows has no effect on single-flow"), "{error}");
    // What is refused changes nothing, and what is taken does.
    let trace = |options: &str| {
        folder.stdout(&format!("synth --profile {options} --packets 3k --out e.pcap"));
        folder.bytes("e.pcap")
    };
    for (profile, option) in [
        ("uniform --flows 10", "--burst 4"),
        ("uniform --flows 10", "--turns"),
        ("uniform --flows 10", "--skew 1"),
        ("backbone", "--gap 100"),
        ("backbone", "--burst 4"),
        ("hyperscaler", "--transport udp"),
        ("single-flow", "--transport udp"),
        ("syn-flood", "--hosts 5"),
    ] {
        assert_ne!(trace(&format!("{profile} {option}")), trace(profile), "{profile} {option}");
    }
    let piped = folder.millrace("synth --profile uniform --flows 10 --packets 100 --out -").assert().success();
    let seen = folder.millrace("inspect - --json").write_stdin(piped.get_output().stdout.clone()).assert().success();
    let seen: Value = serde_json::from_slice(&seen.get_output().stdout).unwrap();
    assert_eq!(seen["packets"], 100);
}

/// The figures of `testdata/README.md`, which tshark told.
#[test]
fn inspect_agrees_with_tshark_on_the_demo() {
    let seen = Folder::new().json("inspect demo.pcap.zst --json");
    assert_eq!(seen["packets"], 35_169);
    assert_eq!(seen["cut_short"], 8_775);
    assert_eq!(seen["clock_steps_back"], 0);
    assert_eq!(seen["links"][0]["link_number"], 1);
    let protocol = |name: &str| {
        let all = seen["protocols"].as_array().unwrap();
        all.iter().find(|protocol| protocol["protocol"] == name).unwrap()["flows"].as_u64().unwrap()
    };
    assert_eq!((protocol("tcp"), protocol("udp")), (6_067, 296));
    assert!((seen["duration_s"].as_f64().unwrap() - 20.0).abs() < 0.1);
}

/// Each JSON value and each page says which program made it, where, when and by which command.
#[test]
fn figures_say_where_they_come_from() {
    let folder = Folder::new();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for line in ["inspect demo.pcap.zst --json", "run ddos --in demo.pcap.zst --json", "check nat --json"] {
        let made_by = &folder.json(line)["made_by"];
        assert_eq!(made_by["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(made_by["command"], format!("millrace {line}"));
        assert_eq!(made_by["kernel"], format!("Linux {}", kernel.trim()));
        let date = made_by["date"].as_str().unwrap();
        assert!(date.len() == 20 && date.ends_with('Z') && &date[10..11] == "T", "{date}");
        assert!(made_by["commit"].as_str().is_some_and(|commit| !commit.is_empty()));
    }
    folder.stdout(
        "bench ddos --in demo.pcap.zst --engines sequential --cores 1 --rounds 1 --round-packets 1k --report out",
    );
    let page = fs::read_to_string(folder.path("out/index.html")).unwrap();
    assert!(page.contains(&format!("Millrace {} (commit ", env!("CARGO_PKG_VERSION"))) && page.contains(kernel.trim()));
    let figures: Value = serde_json::from_str(&fs::read_to_string(folder.path("out/bench.json")).unwrap()).unwrap();
    assert_eq!(figures["made_by"]["kernel"], format!("Linux {}", kernel.trim()));
}

#[test]
fn a_configuration_is_checked_without_a_capture() {
    let folder = Folder::new();
    for name in functions() {
        assert!(folder.stdout(&format!("check {name}")).contains("the configuration is valid"), "{name}");
    }
    fs::write(folder.path("good.toml"), "external = [\"203.0.113.9\"]\n").unwrap();
    assert!(
        folder.stdout("check nat --config good.toml").starts_with("nat: the configuration is valid\n  packet set: ")
    );
    let value = folder.json("check conntrack --set flows=7 --json");
    assert_eq!((&value["valid"], &value["flows"], &value["keeps_flows"]), (&true.into(), &7.into(), &true.into()));
    assert!(folder.stdout("check load-balancer").contains("note: there are no `services`"));
    fs::write(folder.path("bad.toml"), "external = [\"203.0.113.9\"]\ninside = [\"10.0.0.1/8\"]\n").unwrap();
    for (line, code, says) in [
        ("check nat --config bad.toml", 2, "bad.toml:2:11: "),
        ("check nat --config missing.toml", 3, "missing.toml: can't be read"),
        ("check nat --set exernal=1", 2, "did you mean `external`?"),
        ("check nt", 2, "nat"),
        ("check", 2, "<FUNCTION>"),
    ] {
        let (status, error) = folder.fails(line);
        assert!(status == code && error.contains(says), "{line}: {error}");
    }
}

/// A malformed packet is in the tables that its whole headers belong to; the clock's line says what was not believed.
#[test]
fn inspect_counts_malformed_packets_and_doubts_stamps() {
    let folder = Folder::new();
    // IPv4 in a VLAN that claims to be longer than the frame; a fragment's beginning without room for UDP; a cut link header.
    let ip = |len: u16, fragment: u16| {
        let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        ip[6..8].copy_from_slice(&fragment.to_be_bytes());
        ip
    };
    let frames = [
        [&[2; 12][..], &[0x81, 0, 0, 7, 8, 0], &ip(900, 0)].concat(),
        [&[2; 12][..], &[8, 0], &ip(24, 0x2000), &[0; 4]].concat(),
        vec![2; 9],
    ];
    let mut file: Vec<u8> =
        [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    for (secs, frame) in [1_000u32, 90_000, 1_001].into_iter().zip(&frames) {
        let len = frame.len() as u32;
        file.extend([secs, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(frame);
    }
    let seen = folder.millrace("inspect - --json").write_stdin(file).assert().success();
    let seen: Value = serde_json::from_slice(&seen.get_output().stdout).unwrap();
    assert_eq!((&seen["network"]["ipv4"], &seen["network"]["unreadable"]), (&2.into(), &1.into()));
    assert_eq!((&seen["vlan"]["one_tag"], &seen["fragments"]["first"]), (&1.into(), &1.into()));
    assert_eq!((&seen["stamps_not_believed"], &seen["duration_s"]), (&1.into(), &1.0.into()));
}

#[test]
fn help_and_completions() {
    let folder = Folder::new();
    for command in [
        "",
        "demo ",
        "functions ",
        "run ",
        "check ",
        "verify ",
        "bench ",
        "tables ",
        "synth ",
        "inspect ",
        "completions ",
    ] {
        assert!(folder.stdout(&format!("{command}--help")).contains("Usage: millrace"), "{command}");
        if !command.is_empty() {
            assert!(folder.stdout(&format!("{command}--help")).contains("Example"), "{command} shows an example");
        }
    }
    assert!(folder.stdout("--help").contains("Exit codes"));
    assert!(folder.stdout("--version").starts_with("millrace "));
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.stdout(&format!("completions {shell}"));
        for word in ["heavy-hitter", "rss++", "university-dc", "suite", "frag6"] {
            assert!(script.contains(word), "{shell} knows {word}");
        }
    }
    let fish = folder.stdout("completions fish");
    assert!(fish.contains("'__fish_seen_subcommand_from policer' -l set -x -a 'rate=' -d '"), "{fish}");
    let zsh = folder.stdout("completions zsh");
    assert!(zsh.contains(":KEY=VALUE:_millrace_keys") && !zsh.contains(":KEY=VALUE:_default"), "{zsh}");
    assert!(zsh.contains("policer) keys=('per:"), "{zsh}");
    // Names that are listed elsewhere don't make help longer.
    let help = folder.stdout("bench --help");
    assert!(!help.contains("university-dc") && !help.contains("heavy-hitter"), "{help}");
}

/// As bash itself would ask: the words of the line, the last one being completed.
#[test]
fn bash_completes_names_and_the_keys_of_the_function_that_the_line_names() {
    let folder = Folder::new();
    fs::write(folder.path("script"), folder.stdout("completions bash")).unwrap();
    let complete = |words: &[&str]| {
        let line = "source ./script; f=$(complete -p millrace); f=${f#*-F }; f=${f%% *}; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($#-1)); \
                    $f millrace \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\" 2> /dev/null; echo \"${COMPREPLY[*]}\"";
        let mut bash = Command::new("bash");
        let output = bash.args(["--norc", "-c", line, "bash"]).args(words).current_dir(folder.root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete(&["millrace", "run", "heavy-h"]), "heavy-hitter");
    assert_eq!(complete(&["millrace", "run", "ddos", "--engine", "transa"]), "transactional");
    assert_eq!(
        complete(&["millrace", "run", "ddos", "--set", ""]),
        "threshold= window= idle_timeout= remember= flows= flows_v6= top="
    );
    assert_eq!(complete(&["millrace", "run", "ddos", "--set", "th"]), "threshold=");
    assert_eq!(complete(&["millrace", "run", "--set", "th", "ddos", "--set", "wi"]), "window=");
    assert_eq!(complete(&["millrace", "run", "--set", "th"]), "");
}

#[test]
fn slips_are_answered_with_what_was_meant() {
    let folder = Folder::new();
    fs::write(folder.path("bad.toml"), "").unwrap();
    for (line, hint) in [
        ("run contrack --in demo.pcap.zst", "'conntrack'"),
        ("run ddos --in demo.pcap.zst --engine rsss", "'rss'"),
        ("verify ddos --in demo.pcap.zst --engines all,sharde", "'shared'"),
        ("inspct demo.pcap.zst", "'inspect'"),
        ("run ddos --in demo.pcap.zst --set treshold=5", "did you mean `threshold`?"),
        ("run ddos --in demo.pcap.zst --set threshold=0", "from 1 to 4294967295"),
        ("run ddos --in demo.pcap.zst --set threshold", "KEY=VALUE"),
        ("run ddos --in demo.pcap.zst --engine sequential --cores 2", "one core"),
        ("run ddos --in demo.pcap.zst --cores 0", "from 1"),
        ("synth --profile university --out a.pcap", "university-dc"),
        ("bench ddos", "--in"),
        ("run ddos", "--in"),
        ("verify nat --in demo.pcap.zst --engines rss --cores 2", "nothing can be verified: rss can't run nat"),
        (
            "verify ddos --in demo.pcap.zst --engines sequential --cores 2",
            "nothing was verified: sequential runs only on one core",
        ),
        ("bench nat --in demo.pcap.zst --engines rss --cores 2", "nothing can be measured: rss can't run nat"),
        ("bench suite --in demo.pcap.zst", "omit --in"),
        ("verify ddos --in demo.pcap.zst --flows 5", "'--flows"),
        ("run firewall --in demo.pcap.zst --engine rss --cores 200 --set flows=268435456", "use fewer cores"),
        (
            "run nat --in demo.pcap.zst --engine scr --cores 256 --set mappings=67108864 --set sessions=67108864",
            "shared state",
        ),
        ("run ddos --in demo.pcap.zst --config bad.toml --out ./bad.toml", "also the configuration"),
    ] {
        let (code, error) = folder.fails(line);
        assert_eq!(code, 2, "{line}: {error}");
        assert!(error.contains(hint), "{line}: {error}");
    }
    // A file that can't be read is one thing, a file that is no configuration another.
    for (config, exit, words) in [
        ("none.toml", 3, "none.toml: can't be read: No such file"),
        (".", 3, ".: can't be read: Is a directory"),
        ("/dev/zero", 2, "/dev/zero is larger than 1 MiB"),
        ("demo.bin", 2, "demo.bin is not a text file"),
    ] {
        fs::write(folder.path("demo.bin"), [0xff; 100]).unwrap();
        let (code, error) = folder.fails(&format!("run ddos --in demo.pcap.zst --config {config}"));
        assert!(code == exit && error.contains(words), "{code}: {error}");
    }
    fs::write(folder.path("bad.toml"), "# the policer\nrate = \"10Mbit\"\nburst = 0\n").unwrap();
    let (code, error) = folder.fails("run policer --in demo.pcap.zst --config bad.toml");
    assert_eq!(code, 2);
    assert!(error.contains("bad.toml:3:9: 0 is out of range: from 1 to 1000000000"), "{error}");
    assert!(error.contains("3 | burst = 0\n  |         ^"), "{error}");
}
