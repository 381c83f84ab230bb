//! Where a report goes. Nothing lies there under its proper name before it is whole, so that an old report is replaced by a
//! new one or stays.

use std::fs;
use std::path::{Path, PathBuf};

use super::failure::Failed;

/// A report's folder.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder, or takes the one that is there.
    pub(super) fn make(path: &Path) -> Result<Self, Failed> {
        let failed = |error| Failed::input(format_args!("{}: can't write a report there: {error}", path.display()));
        fs::create_dir_all(path).map_err(failed)?;
        // True if files can be made there is known when one was.
        let probe = path.join(".report.tmp");
        fs::write(&probe, "").map_err(failed)?;
        let _ = fs::remove_file(probe);
        Ok(Self(path.to_owned()))
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failed> {
        let (path, unfinished) = (self.0.join(name), self.0.join(format!(".{name}.tmp")));
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            Failed::input(format_args!("{}: can't be written: {error}", path.display()))
        })?;
        Ok(path)
    }
}

/// Tells before the work that a report can't be written there, without making anything: the nearest thing that there is on
/// the way must be a folder.
pub(super) fn refuse_no_folder(path: &Path) -> Result<(), Failed> {
    let there = path.ancestors().find_map(|way| fs::metadata(way).ok().map(|found| (way, found)));
    match there {
        Some((way, found)) if !found.is_dir() => {
            let (path, way) = (path.display(), way.display());
            Err(Failed::input(format_args!("{path}: can't write a report there: {way} is not a folder")))
        }
        Some(_) | None => Ok(()),
    }
}
