use serde_json::json;

use super::model::{applications, best, changes, payloads_until_told, two_ways};
use super::{Page, paper, plan};
use crate::results::table::markdown;

#[test]
fn three_cores_are_modelled_by_the_papers_formula() {
    // 100 ns on one core, of which 30 ahead: the ways need 35, the first core 30 + 10.
    assert!((two_ways(10.0, 30.0, 10.0, 5.0) - 1e3 / 45.0).abs() < 1e-9);
    // Without steering the ways are the limit.
    assert!((two_ways(10.0, 30.0, 0.0, 5.0) - 1e3 / 40.0).abs() < 1e-9);
}

#[test]
fn changes_are_against_the_column_before() {
    let changes = changes(&[Some(1.25), Some(1.0), None, Some(2.0)]);
    assert_eq!(changes[0], None);
    assert!((changes[1].unwrap() + 20.0).abs() < 1e-9);
    assert_eq!((changes[2], changes[3]), (None, None));
}

#[test]
fn sessions_are_counted_by_application() {
    let session = |name: Option<&str>, payloads: u64| json!({ "application": name, "payloads": payloads });
    let sessions = [
        session(Some("http"), 1),
        session(Some("ssh"), 4),
        session(Some("http"), 1),
        session(None, 7),
        session(None, 0),
    ];
    assert_eq!(applications(&sessions, &["http", "pop3"]), [2, 0, 1, 1]);
    assert_eq!(payloads_until_told(&sessions), Some(2.0));
    assert_eq!(payloads_until_told(&sessions[3..]), None);
}

#[test]
fn the_best_cut_is_one_that_there_is() {
    let cut =
        |cores: u64, mpps: f64, options: Option<&str>| json!({ "cores": cores, "mpps": mpps, "options": options });
    let cuts = [cut(3, 9.0, None), cut(3, 5.0, Some("a")), cut(3, 6.0, Some("b")), cut(4, 8.0, Some("c"))];
    assert_eq!((best(&cuts, 3), best(&cuts, 4), best(&cuts, 2)), (Some(6.0), Some(8.0), None));
}

#[test]
fn the_papers_tables_are_whole() {
    markdown(&["trace", "packets", "TCP connections", "for 1,000 packets", "bytes a packet", ""], &paper::traces());
    markdown(&paper::MODES_HEAD, &paper::modes());
    markdown(&paper::QUEUES_HEAD, &paper::queues());
    markdown(&paper::CONNECTIONS_HEAD, &paper::connections());
    markdown(&paper::MISSES_HEAD, &paper::misses());
    assert!(paper::content().iter().all(|row| row.len() == paper::CONTENT_FILES.len()));
    // Scans, the applications, others, unnamed, payloads.
    assert_eq!(paper::content().len(), 1 + paper::APPLICATIONS.len() + 3);
    // Table 3 adds up: mode 4 is the application's core with the queue.
    let mode = |column: usize, names: &[&str]| -> u32 {
        let modes = paper::modes();
        let of = |name: &&str| modes.iter().find(|row| row[0] == *name).unwrap()[column].parse::<u32>().unwrap();
        names.iter().map(of).sum()
    };
    assert_eq!(mode(4, &["defragmentation", "TCP", "L7", "queue"]), mode(4, &["a frame"]));
    assert_eq!(mode(5, &["Pcap", "memcpy", "queue"]), mode(5, &["a frame"]));
}

/// Runs are named as the page asks for them, and no run times more than two cores.
#[test]
fn a_page_without_runs_says_which_is_missing() {
    let gathered = crate::results::Gathered { runs: Default::default(), campaigns: Default::default() };
    let page = Page { gathered: &gathered, quick: true };
    assert_eq!(page.text().unwrap_err().to_string(), "the run inspect/campus is missing");
    let runs = plan(std::path::Path::new("traces"), false);
    for name in ["inspect/campus", "sessions/apps", "advise/sfr", "bench/sfr", "fifo", "connections/6"] {
        assert!(runs.iter().any(|run| run.name == name), "{name}");
    }
    let benched = runs.iter().filter(|run| run.arguments.iter().any(|word| word == "--engines"));
    for run in benched {
        let cores = run.arguments.iter().position(|word| word == "--cores").unwrap();
        assert_eq!(run.arguments[cores + 1], "1-2", "{}", run.name);
    }
}
