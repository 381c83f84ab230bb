//! `millrace doctor`, on whatever machine this is.

use serde_json::Value;

use super::folder::Folder;

#[test]
fn the_doctor_says_what_is_so_and_what_to_do() {
    let folder = Folder::empty();
    let (code, stdout, stderr) = folder.run("doctor --json");
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    let problems = report["problems"].as_u64().unwrap();
    assert_eq!(code, i32::from(problems > 0), "{report:#} {stderr}");
    let findings = report["findings"].as_array().unwrap();
    for subject in ["kernel", "rights", "locked memory", "processors"] {
        assert_eq!(findings.iter().filter(|finding| finding["subject"] == subject).count(), 1, "{subject}: {report:#}");
    }
    let of = |state: &str| findings.iter().filter(|finding| finding["state"] == state).count() as u64;
    assert_eq!((of("problem"), of("note")), (problems, report["notes"].as_u64().unwrap()), "{report:#}");
    for finding in findings {
        assert_eq!(finding["advice"].is_null(), finding["state"] == "good", "{finding:#}");
    }
    let (_, text, _) = folder.run("doctor");
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("this machine\n") && text.contains("kernel"), "{text}");
    assert_eq!(text.matches("advice: ").count() as u64, problems + of("note"), "{text}");
}

#[test]
fn the_doctor_looks_at_interfaces_by_name() {
    let folder = Folder::empty();
    let (code, error) = folder.fails("doctor --interface nosuch0");
    assert_eq!(code, 2);
    assert!(error.contains("there is no interface nosuch0; this network namespace has: lo"), "{error}");
    let (code, error) = folder.fails("doctor --try");
    assert!(code == 2 && error.contains("--interface"), "{error}");
    // Named twice, told once.
    let (_, stdout, _) = folder.run("doctor --interface lo --interface lo --cores 2 --json");
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    let about = report["findings"].as_array().unwrap().iter().filter(|finding| finding["interface"] == "lo");
    let queues: Vec<&Value> = about.filter(|finding| finding["subject"] == "queues").collect();
    assert!(queues.len() == 1 && queues[0]["says"].as_str().unwrap().contains("all 2 cores"), "{report:#}");
}
