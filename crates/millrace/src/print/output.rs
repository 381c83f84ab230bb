//! Where the command's words go. A reader that has gone (`millrace ... | head`) is a quiet end, never a panic.

use std::io::{self, Write};

use crate::cli::failure::Failed;

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failed::output(&error))
}

/// Writes to standard error. When nobody reads that, nobody can be told either.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a JSON value to standard output.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Failed> {
    print(&format!("{value:#}\n"))
}
