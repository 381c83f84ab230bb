//! Where words go, and how they are asked for: reports, remarks and progress, captures, cores, seeds, help.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::folder::Folder;

#[test]
fn a_report_goes_to_standard_output_unless_packets_go_there() {
    let folder = Folder::new();
    for (line, words) in [
        ("run ddos --in demo.pcap.zst", "forwarded"),
        ("run ddos --in demo.pcap.zst --out o.pcap", "forwarded"),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos --cores 2", "piggyback"),
        ("synth --profile uniform --flows 10 --packets 100 --out u.pcap", "100 packets of 10 flows"),
    ] {
        let (code, out, error) = folder.run(line);
        let out = String::from_utf8(out).unwrap();
        assert!(code == 0 && out.contains(words) && error.is_empty(), "{line}: {out} {error}");
    }
    for (line, words) in [
        ("run ddos --in demo.pcap.zst --out -", "forwarded"),
        ("sequence --in demo.pcap.zst --out - --function ddos --cores 2", "piggyback"),
        ("synth --profile uniform --flows 10 --packets 100 --out -", "100 packets of 10 flows"),
    ] {
        let (code, out, error) = folder.run(line);
        assert!(code == 0 && out.len() > 24 && error.contains(words), "{line}: {error}");
        let (code, quiet, error) = folder.run(&format!("{line} --quiet"));
        assert!(code == 0 && quiet == out && error.is_empty(), "{line}: {error}");
    }
}

#[test]
fn more_or_less_is_said_beside_the_report() {
    let folder = Folder::new();
    let (code, out, error) = folder.run("run ddos --in demo.pcap.zst --cores 2 --seed 7 -v");
    assert!(code == 0 && String::from_utf8(out).unwrap().contains("forwarded"));
    assert_eq!(error, "demo.pcap.zst: ddos under rss on 2 cores, seed 7\n");
    let short = "verify ddos --in demo.pcap.zst --packets 1000 --engines rss --cores 2 --seeds 1 --no-threads";
    let (_, out, error) = folder.run(short);
    assert!(
        error.contains("the first 1,000 packets are taken") && error.contains("verify: comparing 1 engine"),
        "{error}"
    );
    for quiet in ["-q", "--quiet"] {
        let (code, same, error) = folder.run(&format!("{short} {quiet}"));
        assert!(code == 0 && same == out && error.is_empty(), "{error}");
    }
    // What is wrong is told all the same.
    let (code, error) = folder.fails("-q run ddos --in none.pcap");
    assert!(code == 3 && error.contains("none.pcap"), "{error}");
    let (code, error) = folder.fails("run ddos --in demo.pcap.zst -q -v");
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
}

/// Work of seconds says at once what it is.
#[test]
fn long_work_says_at_once_what_it_does() {
    let folder = Folder::new();
    let small = "--packets 2000 --rounds 1 --round-packets 2000";
    for (line, words) in [
        ("demo".to_owned(), "demo: a capture through a firewall"),
        (format!("bench ddos demo.pcap.zst {small}"), "bench: timing ddos under "),
        (format!("advise ddos demo.pcap.zst {small}"), "advise: measuring the cost of 2,000 packets"),
        (
            "run ddos demo.pcap.zst --engine auto --cores 2".to_owned(),
            "auto: running each engine over the capture's first packets",
        ),
    ] {
        let mut child = folder.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.find(|line| !line.starts_with("the first ")).unwrap();
        assert!(said.starts_with(words), "{line}: {said}");
        if line == "demo" {
            assert!(child.try_wait().unwrap().is_none(), "it was said before anything was done");
        }
        assert!(lines.all(|line| !line.is_empty()) && child.wait().unwrap().success(), "{line}");
    }
}

#[test]
fn a_capture_is_named_behind_the_command_or_by_in() {
    let folder = Folder::new();
    for line in [
        "run ddos",
        "inspect",
        "verify ddos --engines rss --cores 2 --seeds 1 --no-threads",
        "tables advise",
        "sequence --function ddos --cores 2 --out s.pcap",
        "rss solve --sets lan:src,wan:dst --nic ice",
    ] {
        let reported = |line: String| {
            let mut reported = folder.json(&line);
            for timed in ["elapsed_s", "mpps", "ns_per_packet", "memory_bytes", "seed", "made_by"] {
                reported.as_object_mut().unwrap().remove(timed);
            }
            reported
        };
        let (behind, by_in) =
            (reported(format!("{line} demo.pcap.zst --json")), reported(format!("{line} --in demo.pcap.zst --json")));
        assert_eq!(behind, by_in, "{line}");
        assert_eq!(behind, reported(format!("{line} -i demo.pcap.zst --json")), "{line}");
        let (code, error) = folder.fails(&format!("{line} demo.pcap.zst --in demo.pcap.zst"));
        let twice = error.contains("every packet would be read twice") || error.contains("name one of the two");
        assert!(code == 2 && twice, "{line}: {error}");
        if !line.starts_with("rss") {
            let (code, error) = folder.fails(line);
            assert!(code == 2 && error.contains("--in"), "{line}: {error}");
        }
    }
    for line in ["bench ddos", "advise ddos", "profile nat", "tables bench"] {
        let (code, error) = folder.fails(&format!("{line} demo.pcap.zst --in b.pcap"));
        assert!(code == 3 && error.contains("b.pcap"), "{line}: {error}");
        let (code, error) = folder.fails(&format!("{line} none.pcap"));
        assert!(code == 3 && error.contains("none.pcap"), "{line}: {error}");
    }
    let (code, error) = folder.fails("rss check sets.toml --sets lan:src --nic ice");
    assert!(code == 2 && error.contains("both name the packet sets"), "{error}");
    let (code, error) = folder.fails("bench suite demo.pcap.zst");
    assert!(code == 2 && error.contains("leave demo.pcap.zst out"), "{error}");
}

/// A name that says something else is no capture's; nothing is read or written then.
#[test]
fn endings_that_nobody_knows_are_refused() {
    let folder = Folder::new();
    for line in [
        "run ddos --in none.pcap --out x.csv",
        "run ddos --in none.pcap --out x.pcap.xz",
        "run ddos --in none.pcap --engine auto --cores 2 --out x.csv.gz",
        "sequence --in none.pcap --out x.json --function ddos --cores 2",
        "synth --profile uniform --packets 10 --out x.txt",
        "verify ddos --in none.pcap --save-prefix x.csv",
    ] {
        let (code, error) = folder.fails(line);
        assert!(
            code == 2 && error.contains("is not a capture format") && error.contains("--format"),
            "{line}: {error}"
        );
    }
    let names: Vec<_> = fs::read_dir(folder.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["demo.pcap.zst"]);
    folder.stdout("run ddos --in demo.pcap.zst --out x.csv --format pcapng");
    assert_eq!(folder.bytes("x.csv")[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    for name in ["a.cap", "plain", "b.pcapng.gz"] {
        folder.stdout(&format!("run ddos --in demo.pcap.zst --out {name}"));
        assert_eq!(folder.json(&format!("inspect {name} --json"))["packets"], 35_169, "{name}");
    }
}

/// Numbers beyond 2^53 are no numbers in many a program that reads JSON.
#[test]
fn seeds_are_texts_in_json() {
    let folder = Folder::new();
    let large = u64::MAX.to_string();
    assert_eq!(folder.json(&format!("run ddos --in demo.pcap.zst --seed {large} --json"))["seed"], large.as_str());
    let synth = format!("synth --profile uniform --packets 10 --seed {large} --out s.pcap --json");
    assert_eq!(folder.json(&synth)["seed"], large.as_str());
    let verified = folder.json("verify ddos --in s.pcap --engines rss --cores 2 --seeds 7-9 --no-threads --json");
    assert_eq!(verified["seeds"], serde_json::json!(["7", "9"]));
    assert_eq!(folder.json("rss solve --sets lan:src,wan:dst --nic ice --seed 7 --json")["seed"], "7");
}

#[test]
fn cores_are_lists_and_ranges_where_several_are_meant() {
    let folder = Folder::new();
    let verified =
        folder.json("verify ddos --in demo.pcap.zst --engines rss --cores 2,5 --seeds 1 --no-threads --json");
    assert_eq!((&verified["cores"], &verified["engines"][0]["runs"]), (&serde_json::json!([2, 5]), &Value::from(2)));
    let text =
        folder.stdout("verify ddos --in demo.pcap.zst --engines sequential,scr --cores 5,1-2 --seeds 1 --no-threads");
    assert!(text.contains("1-2,5"), "{text}");
    fs::write(folder.path("a.toml"), CASE).unwrap();
    let tested = folder.json("test a.toml --engines rss --cores 2,4 --seeds 1 --json");
    let runs = |cores: &str| {
        let tested = folder.json(&format!("test a.toml --engines rss --cores {cores} --seeds 1 --json"));
        tested["files"][0]["cases"][0]["runs"].as_u64().unwrap_or_else(|| panic!("{tested:#}"))
    };
    assert_eq!((runs("2,4"), runs("2-4")), (2 * runs("2"), 3 * runs("2")), "{tested:#}");
    let bench = folder.json(
        "bench ddos --in demo.pcap.zst --set flows=2000 --engines scr --cores 1,3 --rounds 1 --round-packets 1 --json",
    );
    let cores: Vec<&Value> = bench["rows"].as_array().unwrap().iter().map(|row| &row["cores"]).collect();
    assert_eq!(cores, [1, 3]);
    for line in ["run ddos --in demo.pcap.zst", "advise ddos --in demo.pcap.zst", "profile nat --in demo.pcap.zst"] {
        let (code, error) = folder.fails(&format!("{line} --cores 2,5"));
        assert!(code == 2 && error.contains("only one number of cores is allowed here"), "{line}: {error}");
    }
    for cores in ["0", "2,", "5-2", "x", "1,300"] {
        assert_eq!(folder.fails(&format!("verify ddos --in demo.pcap.zst --cores {cores}")).0, 2, "{cores}");
    }
}

const CASE: &str =
    "function = \"ddos\"\n[[case]]\nname = \"one\"\npackets = '''\n0s udp 10.0.0.1:1 > 10.0.0.2:2 -> forward\n'''\n";

#[test]
fn help_is_a_command_and_there_are_manual_pages() {
    let folder = Folder::new();
    assert_eq!(folder.stdout("help run"), folder.stdout("run --help"));
    assert_eq!(folder.stdout("help tables advise"), folder.stdout("tables advise --help"));
    assert!(folder.stdout("help").contains("Exit codes"));
    assert_eq!(folder.fails("help rnu").0, 2);
    let said = folder.stdout("man pages");
    assert!(said.contains("pages in pages"), "{said}");
    for (page, words) in [
        ("millrace.1", "millrace\\-run"),
        ("millrace-run.1", "a function over a capture"),
        ("millrace-tables-advise.1", "a flow table for a capture"),
        ("millrace-man.1", "manual pages"),
    ] {
        let page_text = fs::read_to_string(folder.path("pages").join(page)).unwrap();
        assert!(
            page_text.starts_with(".ie") && page_text.contains(".TH ") && page_text.contains(words),
            "{page}: {page_text}"
        );
    }
    assert!(!folder.path("pages/millrace-help.1").exists());
}

/// A family that didn't come is left as it is.
#[test]
fn advice_on_tables_sets_nothing_for_a_family_that_is_not_there() {
    let folder = Folder::new();
    folder.stdout("synth --profile uniform --flows 100 --packets 1000 --out four.pcap");
    let text = folder.stdout("tables advise four.pcap");
    assert!(text.contains("--set flows=") && !text.contains("flows_v6="), "{text}");
    folder.stdout("synth --profile uniform --flows 100 --packets 1000 --ipv6 100 --out six.pcap");
    let text = folder.stdout("tables advise six.pcap");
    assert!(text.contains("--set flows_v6=") && !text.contains("--set flows="), "{text}");
}

/// One of a thing is one, and a protocol has one name.
#[test]
fn numbers_and_names_agree() {
    let folder = Folder::new();
    folder.stdout("synth --profile single-flow --packets 6 --out one.pcap");
    let text = folder.stdout("run conntrack one.pcap");
    assert!(text.contains("1 opened") && text.contains("1 connection by protocol"), "{text}");
    let text = folder.stdout("inspect one.pcap");
    assert!(text.contains("tcp") && !text.contains("TCP  "), "{text}");
    let text = folder.stdout("run flow-buffer demo.pcap.zst");
    assert!(text.contains(":80 tcp ") && !text.contains("proto 6"), "{text}");
    assert!(!folder.stdout("functions").contains("drops nothing"));
    assert!(folder.stdout("help verify").starts_with("Check that every engine"));
}
