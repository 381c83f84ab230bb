//! Agreement with nDPI on the labelled captures, where they are at hand: beside the repository, or in the folder `MILLRACE_TRACES`.
#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};

#[path = "../examples/score/judge.rs"]
#[allow(dead_code)]
mod judge;

fn traces() -> Option<PathBuf> {
    let given = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    given.into_iter().chain([beside]).find(|folder| folder.join("MANIFEST.tsv").is_file())
}

/// The measured values, rounded down.
#[test]
fn agreement_with_ndpi() {
    let Some(traces) = traces() else {
        eprintln!("skipped: no shared captures");
        return;
    };
    let report = judge::compare(&traces, "apps/", None, None);
    assert!(report.captures > 600, "{report}");
    assert!(report.recall() >= 0.965, "{report}");
    assert!(report.precision() >= 0.985, "{report}");
}
