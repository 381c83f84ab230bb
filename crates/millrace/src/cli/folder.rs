//! Folders for reports. A file gets its name only when it is complete, so an old report is either replaced or kept.

use std::fs;
use std::path::{Path, PathBuf};

use super::failure::Failed;

/// A report's folder.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder, or uses the existing one.
    pub(super) fn make(path: &Path) -> Result<Self, Failed> {
        let failed = |error| Failed::input(format_args!("{}: can't write a report there: {error}", path.display()));
        fs::create_dir_all(path).map_err(failed)?;
        // Creating a file is the only sure test that files can be created.
        let probe = path.join(".report.tmp");
        fs::write(&probe, "").map_err(failed)?;
        let _ = fs::remove_file(probe);
        Ok(Self(path.to_owned()))
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failed> {
        let path = self.0.join(name);
        replace(&path, text)?;
        Ok(path)
    }
}

/// Writes a file under another name and then renames it, so that it is never there in part.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Failed> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!(".{name}.tmp"));
    let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        Failed::input(format_args!("{}: can't be written: {error}", path.display()))
    })
}

/// Checks before the work, without creating anything, that the report can be written: the nearest existing parent must be a folder.
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
