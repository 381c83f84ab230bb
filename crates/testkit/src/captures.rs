//! Captures that tests read: those that lie beside the repository, or in the folder that `MILLRACE_TRACES` names.

use std::fs;
use std::path::{Path, PathBuf};

use port::Trace;
use port::pcap::Reader;

/// The folder of the shared captures, with their manifest, if there is one.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let given = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    given.into_iter().chain([beside]).find(|folder| folder.join("MANIFEST.tsv").is_file())
}

/// Every capture below the folder, in order of its name.
#[must_use]
pub fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.to_string_lossy();
        if path.is_dir() {
            found.extend(below(&path));
        } else if [".pcap", ".pcapng", ".cap", ".pcap.zst", ".pcapng.zst", ".pcap.gz"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The packets of a capture up to its first defect; `None` where there are none.
#[must_use]
pub fn read(path: &Path) -> Option<Trace> {
    let mut reader = Reader::open(path).ok()?;
    let mut trace = Trace::new();
    // What lies ahead of a defect counts. A reader that has nothing for a while isn't at its end.
    let _defect = trace.fill(&mut reader, usize::MAX);
    (!trace.is_empty()).then_some(trace)
}
