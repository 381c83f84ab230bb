//! Files that lie beside the checkout.

use std::path::{Path, PathBuf};

/// The folder of this name beside the checkout. `None`, with a note, if it isn't there.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if beside.is_dir() {
        return Some(beside);
    }
    eprintln!("SKIPPED (no ../shared/{name})");
    None
}

/// Rows of a file with tabs, without the first line.
pub(crate) fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("the file can be read");
    text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}
