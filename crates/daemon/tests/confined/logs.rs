//! The logs of a whole process, on its standard error.

use std::io;

use millrace_daemon::{DaemonError, Format, Logs};
use tracing::{Level, debug, info, warn};

use crate::{Case, process, text};

pub(crate) const CASES: &[Case] = &[
    ("lines of text on standard error", lines_of_text),
    ("lines of JSON on standard error", lines_of_json),
    ("standard error is closed", nobody_reads),
];

/// Processes whose logs are read.
pub(crate) const HELPERS: &[Case] = &[(WRITES_TEXT, || write(Format::Text)), (WRITES_JSON, || write(Format::Json))];

const WRITES_TEXT: &str = "writes text";
const WRITES_JSON: &str = "writes JSON";

fn write(format: Format) {
    let logs = Logs::begin(format, Level::INFO).expect("there are none");
    assert!(matches!(Logs::begin(format, Level::INFO), Err(DaemonError::LogsBegun)));
    info!(interface = "eth0", "opened");
    debug!("not told");
    let flood = || (0..20).for_each(|_| warn!("refused"));
    std::thread::spawn(flood).join().expect("it only writes");
    drop(logs);
}

/// Its standard error, by lines. Standard output gets nothing.
fn lines(case: &str) -> Vec<String> {
    let output = process(case).output().expect("this program can be started");
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output));
    text(&output).lines().map(str::to_owned).collect()
}

fn lines_of_text() {
    let lines = lines(WRITES_TEXT);
    let ends: Vec<&str> = lines.iter().map(|line| line.split_once(' ').expect("the time is first").1.trim()).collect();
    assert_eq!(ends.len(), 12, "{lines:?}");
    assert_eq!(ends[0], "INFO opened interface=\"eth0\"", "no colours: this is no terminal");
    assert!(ends[1..11].iter().all(|line| *line == "WARN refused"));
    assert_eq!(ends[11], "WARN lines were left out left_out=10 like=\"refused\"");
}

fn lines_of_json() {
    let lines = lines(WRITES_JSON);
    let values: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(values.len(), 12);
    assert_eq!((&values[0]["message"], &values[0]["interface"]), (&"opened".into(), &"eth0".into()));
    assert_eq!((&values[11]["left_out"], &values[11]["like"]), (&10.into(), &"refused".into()));
    assert!(values[11].get("of").is_none());
}

/// Logs that nobody can read don't end a run.
fn nobody_reads() {
    let (reader, writer) = io::pipe().expect("there is room");
    drop(reader);
    let status = process(WRITES_TEXT).stderr(writer).status();
    assert!(status.expect("this program can be started").success());
}
