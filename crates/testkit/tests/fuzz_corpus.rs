//! Replays the fuzzers' corpora, and every input that once failed.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_testkit::fuzz::{CHECKS, Check, seeds};

#[test]
fn corpora() {
    for (target, check) in CHECKS {
        let replayed = replay(&fuzz_folder().join("corpus").join(target), check);
        assert!(replayed > 0, "{target} has no corpus");
    }
}

/// One file for each failure, named by the failure.
#[test]
fn regressions() {
    for (target, check) in CHECKS {
        replay(&fuzz_folder().join("regressions").join(target), check);
    }
}

#[test]
fn seeds_hold() {
    let folder = std::env::temp_dir().join(format!("millrace-seeds-{}", std::process::id()));
    seeds::write(&folder).expect("the folder can be written");
    for (target, check) in CHECKS {
        assert!(replay(&folder.join(target), check) > 0, "{target} has no seeds");
    }
    fs::remove_dir_all(&folder).expect("the folder can be removed");
}

/// Runs a check on every file of a folder, sorted by name. Returns the number of files.
fn replay(folder: &Path, check: Check) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.sort_unstable();
    let breaks = |path: &&PathBuf| {
        let bytes = fs::read(path).expect("the file can be read");
        std::panic::catch_unwind(|| check(&bytes)).is_err()
    };
    let broken: Vec<_> = paths.iter().filter(breaks).collect();
    assert!(broken.is_empty(), "{broken:?} break what must hold");
    paths.len()
}

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}
