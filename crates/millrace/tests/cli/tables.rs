//! `millrace tables` as a user types it: small tables, for what is told and not for how fast it was.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use millrace::port::pcap::{Container, Writer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::folder::Folder;

/// So small that all of it takes a moment.
const SMALL: &str = "tables bench --entries 2k --rounds 2 --round-packets 2k";
const TABLES: [&str; 7] = ["chaining", "cuckoo", "cuckoo++", "robin-hood", "hopscotch", "tagged", "std"];

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

#[test]
fn every_table_is_measured_at_every_load() {
    let folder = Folder::new();
    let result = folder.json(&format!("{SMALL} --load 0.5,0.9 --cores 1-2 --report out/ --json"));
    assert_eq!((result["entries"].as_u64(), result["interrupted"].as_bool()), (Some(2_000), Some(false)));
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), TABLES.len() * 2 * 4, "tables, loads and operations");
    for table in TABLES {
        for op in ["lookup", "miss", "insert", "mixed"] {
            let rows: Vec<&Value> = rows.iter().filter(|row| row["table"] == table && row["op"] == op).collect();
            assert_eq!(rows.len(), 2, "{table} {op}");
            for row in rows {
                let (ns, mops) = (&row["ns"], &row["mops"]);
                for value in [&ns["min"], &ns["median"], &ns["max"], &mops["median"], &row["bytes_per_entry"]] {
                    assert!(positive(value), "{row:#}");
                }
                let product = ns["median"].as_f64().unwrap() * mops["median"].as_f64().unwrap();
                assert!((product - 1000.0).abs() < 1e-6, "nanoseconds and millions a second are one figure");
                for tail in ["latency_ns_in_bursts", "latency_ns_alone"] {
                    let at = |name: &str| row[tail][name].as_f64().unwrap();
                    assert!(at("p50") <= at("p99") && at("p99") <= at("p99.9") && at("p99.9") <= at("max"), "{row:#}");
                }
            }
        }
    }
    let expire = result["expire"].as_array().unwrap();
    assert_eq!(expire.len(), (TABLES.len() - 1) * 2 * 4, "of ours, loads and ageings");
    let bursts = result["burst_expiry"].as_array().unwrap();
    assert_eq!(bursts.len(), (TABLES.len() - 1) * 4 + 1, "and the map that is swept");
    assert!(bursts.iter().all(|row| positive(&row["worst_after_ns"]["median"]) && row["flows"] == 2_000));
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    for row in result["scaling"].as_array().unwrap() {
        let basis = if row["cores"].as_u64().unwrap() <= cores { "measured" } else { "modelled" };
        assert_eq!(row["basis"], basis, "{row:#}");
        assert!(positive(&row["mops"]["median"]));
    }
    // What the report keeps is what was printed.
    let kept: Value = serde_json::from_slice(&fs::read(folder.path("out/tables.json")).unwrap()).unwrap();
    assert_eq!(kept, result);
    well_formed(&fs::read_to_string(folder.path("out/index.html")).unwrap());
    let names: Vec<_> = fs::read_dir(folder.path("out")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing unfinished is left: {names:?}");
}

/// Every element is closed in its turn, and nothing comes from outside.
fn well_formed(page: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    assert!(page.starts_with("<!DOCTYPE html>"));
    let style_ends = page.find("</style>").unwrap();
    let mut open = Vec::new();
    for tag in page[style_ends..].split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag is closed");
        assert!(!text.contains('>'), "text is escaped: {text}");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            // The head and its style opened ahead of where this begins.
            let last = open.pop();
            assert!(last == Some(name) || last.is_none() && ["style", "head", "html"].contains(&name), "</{name}>");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("src="), "it needs nothing else");
    let mut links = page.match_indices("http").map(|(at, _)| &page[at..]);
    assert!(links.all(|link| link.starts_with("http://www.w3.org/2000/svg")), "a name of SVG's, and no link");
    assert!(page.matches("<svg").count() >= 10 && page.contains("@media print"));
    for number in ["NaN", "inf"] {
        assert!(!page.contains(&format!("\"{number}")) && !page.contains(&format!(" {number}")), "{number}");
    }
}

#[test]
fn the_terminal_tells_the_same() {
    let folder = Folder::new();
    let text = folder.stdout(&format!("{SMALL} --load 0.75 --cores 1"));
    for word in ["lookup", "miss", "insert", "mixed", "expire", "burst-expiry", "memory", "measured", "swept at once"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    for table in TABLES {
        assert!(text.contains(table), "{table} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour into a pipe");
}

#[test]
fn a_part_is_measured_alone() {
    let folder = Folder::new();
    let line = format!("{SMALL} --ops expire --tables cuckoo++,std --ageing wheel,none --load 0.9 --json");
    let result = folder.json(&line);
    assert_eq!(result["expire"].as_array().unwrap().len(), 2);
    for part in ["rows", "burst_expiry", "scaling"] {
        assert!(result[part].as_array().unwrap().is_empty(), "{part}");
    }
    // What choosing the table at run time costs is a row of its own, when it is asked for.
    let result = folder.json(&format!("{SMALL} --ops lookup --tables cuckoo++,chosen --load 0.9 --cores 1 --json"));
    assert_eq!(result["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn a_captures_own_flows_are_taken() {
    let folder = Folder::new();
    let line = "--ops lookup --tables tagged --cores 1 --rounds 1 --round-packets 2k --load 0.9 --in demo.pcap.zst";
    for entries in [1_000, 6_314, 20_000] {
        let result = folder.json(&format!("tables bench {line} --entries {entries} --json"));
        assert_eq!(result["rows"][0]["offered"], entries);
        assert_eq!(result["rows"][0]["hits"], 1.0);
        assert!(result["source"].as_str().unwrap().starts_with("demo.pcap.zst: "));
    }
    let mut piped =
        folder.millrace("tables bench --ops miss --tables std --cores 1 --rounds 1 --round-packets 2k --in - --json");
    let output = piped.write_stdin(millrace::DEMO_CAPTURE).assert().success().get_output().stdout.clone();
    let result: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(result["rows"][0]["hits"], 0.0);
}

#[test]
fn slips_are_answered_with_what_was_meant() {
    let folder = Folder::new();
    for (line, hint) in [
        ("tables bench --tables cukoo", "'cuckoo'"),
        ("tables bench --ops lokup", "'lookup'"),
        ("tables bench --ageing weel", "'wheel'"),
        ("tables bench --load 75", "0.01 to 1"),
        ("tables bench --load 0", "from 0.01 to 1: 0.75"),
        ("tables bench --zipf 1 --in demo.pcap.zst", "--in <FILE>"),
        ("tables bench --zipf many", "0 to 10"),
        ("tables bench --packets 5", "--in"),
        ("tables bench --entries 10", "--entries takes 1,000"),
        ("tables bench --entries 5x", "5x"),
        ("tables bench --round-packets 1", "--round-packets takes"),
        ("tables bench --cores 0", "not a range"),
        ("tables bench --rounds 0", "1..=1000"),
        ("tables bench --entries 200M", "fewer --entries"),
        ("tables bnch", "'bench'"),
        ("tables advise", "--in"),
        ("tables advise --in demo.pcap.zst --idle-timeout 0", "--idle-timeout"),
        ("tables advise --in demo.pcap.zst --memory lots", "lots"),
        ("tables advise --in demo.pcap.zst --memory 1000", "the smallest take"),
    ] {
        let (code, error) = folder.fails(line);
        assert_eq!(code, 2, "{line}: {error}");
        assert!(error.contains(hint), "{line}: {error}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let folder = Folder::new();
    fs::write(folder.path("text.txt"), "this is a text\n").unwrap();
    fs::write(folder.path("file"), "").unwrap();
    let mut empty = Writer::create(folder.path("empty.pcap"), Some(Container::Pcap), None).unwrap();
    empty.finish().unwrap();
    let small = "--entries 1k --rounds 1 --round-packets 2k";
    for (line, words) in [
        (format!("tables bench {small} --in missing.pcap"), "missing.pcap: can't be opened"),
        (format!("tables bench {small} --in text.txt"), "not a capture"),
        (format!("tables bench {small} --in empty.pcap"), "has no packets"),
        (format!("tables bench {small} --report file"), "file: can't write a report there"),
        ("tables advise --in missing.pcap".to_owned(), "missing.pcap: can't be opened"),
        ("tables advise --in empty.pcap".to_owned(), "has no packets"),
    ] {
        let (code, error) = folder.fails(&line);
        assert_eq!(code, 3, "{line}: {error}");
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn an_interrupt_leaves_no_report() {
    let folder = Folder::new();
    let line = "tables bench --entries 1k --load 0.5,0.9 --rounds 1000 --round-packets 20k --report out --json";
    let child = folder.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The folder is made once signals are watched.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !folder.path("out").exists() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["interrupted"], true);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no report was written"));
    assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 0);
}

#[test]
fn advice_says_what_and_why() {
    let folder = Folder::new();
    let text = folder.stdout("tables advise --in demo.pcap.zst --memory 512M");
    for word in ["alive at once", "entries", "ageing", "eviction", "when full", "millrace run conntrack", "IPv6"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    let advice = folder.json("tables advise --in demo.pcap.zst --memory 512M --json");
    let capture = &advice["capture"];
    assert_eq!(capture["packets"], 35_169);
    assert!(capture["flows"].as_u64().unwrap() > 6_000);
    let entries = advice["ipv4"]["entries"].as_u64().unwrap();
    assert!(entries >= capture["alive_at_once"]["ipv4"].as_u64().unwrap() && advice["fits"] == true);
    assert!(advice["ipv6"]["entries"].as_u64().unwrap() >= 48);
    for choice in advice["choices"].as_array().unwrap() {
        assert!(!choice["why"].as_str().unwrap().is_empty(), "{choice:#}");
    }
    // A run takes what is advised, and holds every flow.
    let run =
        folder.json(&format!("run conntrack --in demo.pcap.zst --json {}", advice["arguments"].as_str().unwrap()));
    assert_eq!(run["flows"]["was_full"], false);

    let short = folder.json("tables advise --in demo.pcap.zst --memory 600k --json");
    assert_eq!(short["fits"], false);
    let taken = short["ipv4"]["bytes"].as_u64().unwrap() + short["ipv6"]["bytes"].as_u64().unwrap();
    assert!(taken <= 600_000, "{short:#}");
    assert!(short["warnings"][0].as_str().unwrap().contains("600 kB hold"), "{short:#}");
    // A shorter timeout asks for less, a longer one for more.
    let wanted = |seconds: u64| {
        let line = format!("tables advise --in demo.pcap.zst --idle-timeout {seconds} --json");
        folder.json(&line)["ipv4"]["wanted"].as_u64().unwrap()
    };
    assert!(wanted(2) < wanted(60) && wanted(60) < wanted(600));
}

#[test]
fn help_shows_how() {
    let folder = Folder::new();
    for command in ["tables", "tables bench", "tables advise"] {
        let help = folder.stdout(&format!("{command} --help"));
        assert!(help.contains("Usage: millrace tables") && help.contains("Example"), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.stdout(&format!("completions {shell}"));
        assert!(script.contains("advise") && script.contains("robin-hood"), "{shell} knows the tables");
    }
}
