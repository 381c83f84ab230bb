//! `millrace efsm` as a user types it.

use std::fs;

use super::folder::Folder;

/// Counts the packets of each connection, and drops those beyond ten.
const COUNT: &str = "stage count
  key biflow ip.src ip.dst l4.src l4.dst
  on * r0<10 : state 1 idle 20s; r0 = r0 + 1; out across
  on *       : drop
";

#[test]
fn a_program_is_checked_with_its_engines() {
    let folder = Folder::empty();
    fs::write(folder.path("count.efsm"), COUNT).unwrap();
    let expected = "count.efsm: the program is valid
  1 stage with 2 rows
  packet set: five-tuple, both directions
  on several cores: shared, rss, rss++, transactional, scr, hybrid, pipeline
";
    assert_eq!(folder.stdout("efsm check count.efsm"), expected);
    let shared = COUNT.replace("  on *       ", "  global g = 0\n  on * : g = g + 1; drop\n  on *       ");
    let output = folder.millrace("efsm check - --json").write_stdin(shared).assert().success().get_output().clone();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["engines"], serde_json::json!(["shared", "transactional", "scr"]));
    let rows: String = (0..40).map(|port| format!("  on * l4.dst={port} : drop\n")).collect();
    fs::write(folder.path("long.efsm"), format!("stage a\n{rows}")).unwrap();
    let (code, out, _) = folder.run("efsm check long.efsm --profile netfpga");
    let out = String::from_utf8(out).unwrap();
    assert!(code == 1 && out.contains("does not fit: stage a has 40 rows, the prototype 32\n"), "{code} {out}");
}

#[test]
fn errors_have_their_places() {
    let folder = Folder::new();
    fs::write(folder.path("bad.efsm"), "stage a\n  on new : out lan\n  on 0 : drop\n").unwrap();
    let places = "bad.efsm:2:6: no state `new`: declare it by `states`, or write a number
bad.efsm:2:16: no port `lan`: none is declared by `ports`; or write a number\n";
    for command in ["efsm check bad.efsm", "efsm graph bad.efsm", "run efsm --program bad.efsm --in demo.pcap.zst"] {
        assert_eq!(folder.fails(command), (2, format!("error: {places}")), "{command}");
    }
    assert_eq!(folder.fails("efsm check nothing.efsm").0, 3);
}

#[test]
fn programs_are_brought_to_their_normal_form() {
    let folder = Folder::empty();
    fs::write(folder.path("count.efsm"), COUNT.replace(" : ", "  :  ")).unwrap();
    let (code, error) = folder.fails("efsm fmt --check count.efsm");
    assert!(code == 1 && error.contains("not in normal form: count.efsm"), "{code} {error}");
    folder.stdout("efsm fmt count.efsm");
    assert_eq!(folder.bytes("count.efsm"), COUNT.as_bytes());
    folder.stdout("efsm fmt --check count.efsm");
    assert_eq!(fs::read_dir(folder.root()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn a_program_runs_as_the_function_does_and_rows_are_counted() {
    let folder = Folder::new();
    fs::write(folder.path("count.efsm"), COUNT).unwrap();
    let one = folder.json("efsm run count.efsm --in demo.pcap.zst --out one.pcap --json");
    let two =
        folder.json("run efsm --program count.efsm --in demo.pcap.zst --out two.pcap --engine scr --cores 3 --json");
    assert!(folder.bytes("one.pcap") == folder.bytes("two.pcap"));
    assert_eq!(one["report"], two["report"]);
    let rows = one["report"]["rows"].as_array().unwrap();
    let counted: u64 = rows.iter().map(|row| row[2].as_u64().unwrap()).sum();
    let keyless = one["packets"]["drops"]["no-key"].as_u64().unwrap_or(0);
    assert_eq!(counted + keyless, one["packets"]["received"].as_u64().unwrap());
}

#[test]
fn a_program_is_drawn_with_its_states_and_rows() {
    let folder = Folder::empty();
    fs::write(folder.path("count.efsm"), COUNT).unwrap();
    let svg = folder.stdout("efsm graph count.efsm");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for text in ["stage count", "idle 20s", "r0&lt;10", ">1</text>"] {
        assert!(svg.contains(text), "{text} in\n{svg}");
    }
}

#[test]
fn standard_input_and_json_are_taken_everywhere() {
    let folder = Folder::new();
    let program = "stage all\n  on * : out across\n";
    fs::write(folder.path("all.efsm"), program).unwrap();
    let expected = folder.json("efsm run all.efsm --in demo.pcap.zst --json");
    for line in ["efsm run - --in demo.pcap.zst --json", "run efsm --program - --in demo.pcap.zst --json"] {
        let output = folder.millrace(line).write_stdin(program).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&json["packets"], &json["report"]), (&expected["packets"], &expected["report"]), "{line}");
    }
    // The program and the capture can't both come by it, and a trial run can't read it again.
    for line in ["efsm run - --in -", "run rules --rules - --in -", "run nat --config - --in -"] {
        let output = folder.millrace(line).write_stdin("").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && !error.contains("panicked"), "{line}: {error}");
    }
    let output = folder.millrace("efsm run - --in -").write_stdin(program).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("standard input can be read only once, and another option has read it"), "{error}");
    let line = "efsm run - --in demo.pcap.zst --engine auto --cores 2";
    let output = folder.millrace(line).write_stdin(program).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("read --program again, but standard input"), "{error}");

    fs::write(
        folder.path("bad.efsm"),
        "stage a\n  key ip.src\n  on 0 : state 1 idle 0s; out 65535\n  on * : out lan\n",
    )
    .unwrap();
    let (code, out, _) = folder.run("efsm check bad.efsm --json");
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((code, &json["valid"], &json["errors"][0]["line"]), (2, &false.into(), &3.into()), "{json}");
    let (_, error) = folder.fails("efsm check bad.efsm");
    assert!(error.contains("`0s` is no time at all: write at least `1ns`"), "{error}");
    assert!(error.contains("65535 is too large for a port: at most 65533"), "{error}");
    assert!(error.contains("no port `lan`: none is declared by `ports`; or write a number"), "{error}");
}
