//! Captures for tests: those beside the repository, or in the folder `MILLRACE_TRACES`.

use std::fs;
use std::path::{Path, PathBuf};

use port::Trace;
use port::pcap::Reader;

/// Returns the folder of the shared captures with their manifest, if there is one.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let given = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    given.into_iter().chain([beside]).find(|folder| folder.join("MANIFEST.tsv").is_file())
}

/// Returns every capture below the folder, sorted by name.
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

/// Reads the packets of a capture up to its first defect; `None` if there are none.
#[must_use]
pub fn read(path: &Path) -> Option<Trace> {
    let mut reader = Reader::open(path).ok()?;
    let mut trace = Trace::new();
    // Packets before a defect count. A reader without packets for a while isn't at its end.
    let _defect = trace.fill(&mut reader, usize::MAX);
    (!trace.is_empty()).then_some(trace)
}
