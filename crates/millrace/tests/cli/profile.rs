//! `millrace profile` as a user types it.

use std::fs;

use millrace::catalogue::Catalogue;
use serde_json::Value;

use crate::folder::Folder;

const SMALL: &str = "--synth university-dc --flows 500 --packets 20k --rounds 2 --round-packets 40k";

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn every_failed_attempt_has_a_line_and_a_cause() {
    let folder = Folder::empty();
    let said: Value = serde_json::from_str(&folder.stdout(&format!("profile nat {SMALL} --cores 2 --json"))).unwrap();
    let profile = &said["profiles"][0];
    let (committed, aborted) = (&profile["transactions"]["committed"], &profile["transactions"]["aborted"]);
    assert!(number(committed) > 0);
    for (parts, key) in [("lines", "aborts"), ("causes", "aborts"), ("cores", "aborted")] {
        let total: u64 = profile[parts].as_array().unwrap().iter().map(|part| number(&part[key])).sum();
        assert_eq!(total, number(aborted), "{parts}");
    }
    let packets: u64 = profile["cores"].as_array().unwrap().iter().map(|core| number(&core["packets"])).sum();
    assert_eq!(packets, 2 * 40_000);
    let all: u64 = profile["cores"].as_array().unwrap().iter().map(|core| number(&core["committed"])).sum();
    assert_eq!(all, number(committed));
    assert_eq!(profile["busiest"].as_array().unwrap().len(), 5);
}

#[test]
fn a_recipe_is_tried_beside_what_was_before() {
    let folder = Folder::empty();
    let text = folder.stdout(&format!("profile nat {SMALL} --cores 2 --set port_preservation=false"));
    assert!(
        text.lines().any(|line| line.trim_start().starts_with("before") && line.ends_with("port_preservation=false")),
        "{text}"
    );
    for row in
        ["throughput", "transactions", "failed attempts", "ran alone", "first cause", "With these values", "Load"]
    {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[test]
fn where_nothing_is_shared_nothing_fails() {
    let text = Folder::empty().stdout(&format!("profile ddos {SMALL} --cores 1"));
    assert!(text.contains("packet sets share no state in ddos"), "{text}");
}

#[test]
fn recipes_name_keys_that_there_are() {
    let functions = Catalogue::standard();
    for entry in functions.entries() {
        let program = entry.load(&millrace::config::Settings::default()).unwrap();
        let keys: Vec<&str> = entry.description().keys.iter().map(|key| key.name).collect();
        for recipe in program.recipes() {
            for key in recipe.key.split(", ") {
                assert!(keys.contains(&key), "{}: there is no key `{key}`", entry.description().name);
            }
        }
    }
}

#[test]
fn slips_are_told_before_anything_runs() {
    let folder = Folder::empty();
    for (line, said) in [
        ("profile nat --synth university-dc --set no_such=1", "no_such"),
        ("profile nta --synth university-dc", "nat"),
        ("profile nat --synth university-dc --packets 1k --flows 100 --cores 64", "64 cores"),
        ("profile nat --in none.pcap", "none.pcap"),
    ] {
        let (code, out, error) = folder.run(line);
        assert!(code == 2 || code == 3, "{line}: {code}");
        assert!(out.is_empty() && error.contains(said), "{line}: {error}");
    }
}

#[test]
fn a_flame_graph_without_line_tables_is_refused_with_what_to_do() {
    let folder = Folder::empty();
    fs::write(folder.path("old.svg"), "old").unwrap();
    for outputs in ["--flame new.svg", "--flame old.svg --folded new.txt", "--folded old.svg --json", "--flame -"] {
        // The capture, which isn't there, is not looked for.
        let (code, out, error) = folder.run(&format!("profile nat --in none.pcap {outputs}"));
        assert_eq!(code, 2, "{outputs}: {error}");
        assert!(out.is_empty() && error.contains("cargo run --profile profiling -- profile nat"), "{outputs}: {error}");
    }
    assert_eq!(folder.bytes("old.svg"), b"old");
    assert_eq!(fs::read_dir(folder.root()).unwrap().count(), 1, "nothing else was written");
}

#[test]
fn outputs_that_lead_nowhere_are_told_before_anything_runs() {
    let folder = Folder::new();
    fs::write(folder.path("nat.toml"), "mappings = 9\n").unwrap();
    for (outputs, code, said) in [
        ("--flame none/x.svg", 3, "none/x.svg: can't be created"),
        ("--flame .", 3, ".: is a directory; give a file in it"),
        ("--flame x.svg --folded none/x.txt", 3, "none/x.txt: can't be created"),
        ("--flame demo.pcap.zst", 2, "is also the input demo.pcap.zst"),
        ("--flame x --folded x", 2, "can't both be x"),
        ("--flame - --folded -", 2, "can't both be -"),
        ("--config nat.toml --flame nat.toml", 2, "nat.toml is also the configuration"),
        ("--config nat.toml --folded ./nat.toml", 2, "nat.toml is also the configuration"),
    ] {
        let (found, out, error) = folder.run(&format!("profile nat --in demo.pcap.zst {outputs}"));
        assert_eq!(found, code, "{outputs}: {error}");
        assert!(out.is_empty() && error.contains(said), "{outputs}: {error}");
    }
    assert_eq!(folder.bytes("demo.pcap.zst"), millrace::DEMO_CAPTURE);
    assert_eq!(folder.bytes("nat.toml"), b"mappings = 9\n");
    assert_eq!(fs::read_dir(folder.root()).unwrap().count(), 2, "nothing was written");
}
