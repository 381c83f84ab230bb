//! `millrace test` as a user types it, and the case files that ship.

use std::fs;
use std::path::Path;

use millrace::catalogue::Catalogue;
use serde_json::Value;

use crate::commands::replicates;
use crate::folder::Folder;

const CASE: &str = "function = \"firewall\"\n\n[[case]]\nname = \"outside may not open\"\npackets = '''\n0s udp 198.51.100.1:53 > \
                    10.0.0.1:53 -> drop not-allowed\n'''\n";

/// Every function has a case file, and does what it says.
#[test]
fn functions_do_what_their_case_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nf");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    let mut names: Vec<_> = Catalogue::standard().entries().iter().map(|entry| entry.description().name).collect();
    names.push("chain");
    names.sort_unstable();
    let stems: Vec<_> = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(stems, names);
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let report = Folder::empty().json(&format!("test {} --cores 1-3 --seeds 2 --json", files.join(" ")));
    assert_eq!(report["right"], true);
    for file in report["files"].as_array().unwrap() {
        let cases = file["cases"].as_array().unwrap();
        assert!(cases.len() >= 3, "{}", file["file"]);
        for case in cases {
            let engines = case["engines"].as_array().unwrap();
            let most = if replicates(file["function"].as_str().unwrap()) { "scr" } else { "shared" };
            assert!(engines.contains(&Value::from(most)) && case["runs"].as_u64() > Some(10), "{case}");
        }
    }
}

#[test]
fn a_difference_is_told_with_its_line() {
    let folder = Folder::empty();
    fs::write(folder.path("right.toml"), CASE).unwrap();
    fs::write(folder.path("wrong.toml"), CASE.replace("drop not-allowed", "forward")).unwrap();
    let said = folder.stdout("test right.toml --seeds 1");
    assert!(said.contains("firewall by right.toml\n  ok outside may not open (1 packet; "), "{said}");
    assert!(said.ends_with("1 case of 1 packet: all as expected\n"), "{said}");
    let (code, out, error) = folder.run("test right.toml wrong.toml --engines sequential");
    let out = String::from_utf8(out).unwrap();
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("1 of 2 cases differ"), "{error}");
    assert!(out.contains("  WRONG outside may not open (1 packet; "), "{out}");
    assert!(out.contains("wrong.toml:6: expected forward unchanged\n"), "{out}");
    assert!(out.contains(" got drop not-allowed\n"), "{out}");
    let (code, out, _) = folder.run("test wrong.toml --engines sequential --json");
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(code, 1);
    assert_eq!(report["right"], false);
    let difference = &report["files"][0]["cases"][0]["differences"][0];
    assert_eq!((&difference["line"], &difference["got"]), (&Value::from(6), &Value::from("drop not-allowed")));
}

/// What a report holds is compared, too.
#[test]
fn reports_are_held_to_what_they_should_be() {
    let folder = Folder::empty();
    let case = "function = \"ddos\"\n[[case]]\nname = \"n\"\nreport = [[\"x\"]]\npackets = '''0s arp -> forward'''\n";
    fs::write(folder.path("report.toml"), case).unwrap();
    let (code, out, _) = folder.run("test report.toml --engines sequential");
    let out = String::from_utf8(out).unwrap();
    assert!(
        code == 1 && out.contains("report.toml:4: expected the report [[\"x\"]]\n") && out.contains(" got []\n"),
        "{out}"
    );
    let other = case.replace("ddos", "nat").replace("-> forward", "-> drop no-mapping").replace("0s arp", "0s x2 arp");
    fs::write(folder.path("other.toml"), other.replace("nat", "bridge").replace("no-mapping", "fragment")).unwrap();
    let (code, out, _) = folder.run("test other.toml --engines rss --cores 2");
    let out = String::from_utf8(out).unwrap();
    assert!(code == 1 && out.contains(" got nothing, because the function has no report\n"), "{out}");
    assert!(out.contains("other.toml:5: 2 of 2: expected drop fragment\n"), "{out}");
    assert!(out.contains("compared with no engine"), "{out}");
}

#[test]
fn slips_are_told_before_anything_is_run() {
    let folder = Folder::empty();
    fs::write(folder.path("right.toml"), CASE).unwrap();
    let edits = [
        ("firewall", "firewal", "slip.toml: there is no function `firewal`; did you mean `firewall`?"),
        ("udp", "upd", "slip.toml:6: found `upd`, expected the kind of packet"),
        ("not-allowed", "not-alowed", "slip.toml:6: firewall has no drop reason `not-alowed`. It declares "),
        ("name =", "config.reject = 5\nname =", "slip.toml, case \"outside may not open\": reject = 5: "),
        ("name =", "config.rejct = true\nname =", "slip.toml, case \"outside may not open\": rejct = true: "),
        ("name =", "heading =", "slip.toml:4: "),
        ("[[case]]", "[[cases]]", "slip.toml:3: "),
    ];
    for (from, to, said) in edits {
        fs::write(folder.path("slip.toml"), CASE.replacen(from, to, 1)).unwrap();
        let (code, _, error) = folder.run("test right.toml slip.toml --engines sequential");
        assert_eq!(code, 2, "{to}: {error}");
        assert!(error.contains(said), "{to}: {error}");
    }
    fs::write(folder.path("twice.toml"), format!("{CASE}{}", CASE.split_once("\n\n").unwrap().1)).unwrap();
    let (code, error) = folder.fails("test twice.toml");
    assert!(code == 2 && error.contains("two cases have the name \"outside may not open\""), "{error}");
    assert_eq!(folder.fails("test nothing.toml").0, 3);
    assert_eq!(folder.fails("test").0, 2);
    let help = folder.stdout("test --help");
    assert!(help.contains("TIME [xCOUNT [every SPAN]] [on INTERFACE] PACKET [-> OUTCOME]"), "{help}");
}
