//! Writes to standard output and standard error. A closed output (`millrace ... | head`) ends the command quietly, never with a panic.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::cli::failure::Failed;
use crate::print::origin::with_origin;
use crate::print::style::Style;

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failed> {
    print_as_it_is(&as_called(text))
}

/// Writes text for another program, such as a script, unchanged to standard output.
pub(crate) fn print_as_it_is(text: &str) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failed::output(&error))
}

/// How much is printed besides results and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Nothing.
    Quiet,
    /// Progress and notes.
    Usual,
    /// Also what was chosen by default.
    Verbose,
}

/// Set once, from the command line.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Usual as u8);

impl Level {
    /// Sets the level.
    pub(crate) fn set(self) {
        // ORDERING: Relaxed. Set before there are other threads.
        LEVEL.store(self as u8, Ordering::Relaxed);
    }

    /// True if messages of this level are printed.
    pub(crate) fn is_said(self) -> bool {
        // ORDERING: Relaxed, as in `set`.
        LEVEL.load(Ordering::Relaxed) >= self as u8
    }
}

/// True once notes are logged.
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Logs notes from now on, instead of writing them to standard error.
pub(crate) fn log_notes() {
    // ORDERING: Relaxed. A note that is written meanwhile does no harm.
    LOGGED.store(true, Ordering::Relaxed);
}

/// Writes a note to standard error, unless --quiet.
pub(crate) fn remark(text: &str) {
    if Level::Usual.is_said() {
        note(text);
    }
}

/// Writes a detail to standard error, with --verbose.
pub(crate) fn detail(text: impl FnOnce() -> String) {
    if Level::Verbose.is_said() {
        note(&text());
    }
}

/// Writes to standard error. Errors are ignored. A log gets it as an error if it begins with [`MARKS`], and else as information.
pub(crate) fn note(text: &str) {
    if !is_logged() {
        return say(text);
    }
    match as_error(text, Style::stderr()) {
        Some(error) => tracing::error!("{error}"),
        None => tracing::info!("{}", text.trim()),
    }
}

/// Writes a warning to standard error. A log gets it as one.
pub(crate) fn warn(text: &str) {
    if is_logged() {
        tracing::warn!("{}", text.trim());
    } else {
        say(text);
    }
}

fn is_logged() -> bool {
    // ORDERING: Relaxed, as in `log_notes`.
    LOGGED.load(Ordering::Relaxed)
}

fn say(text: &str) {
    let _ = io::stderr().lock().write_all(as_called(text).as_bytes());
}

/// What errors begin with, and whether a log leaves that out, because its lines have a level.
const MARKS: [(&str, bool); 2] = [("error:", true), ("bug in millrace:", false)];

/// The text of an error for a log; `None` if this is none.
fn as_error(text: &str, style: Style) -> Option<String> {
    MARKS.iter().find_map(|(mark, is_left_out)| {
        let rest = text.strip_prefix(&style.bad(mark))?.trim();
        Some(if *is_left_out { rest.to_owned() } else { format!("{mark} {rest}") })
    })
}

/// Writes a JSON value to standard output.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Failed> {
    print_as_it_is(&json_text(value))
}

/// A JSON value as it is printed and stored, with its origin.
pub(crate) fn json_text(value: &serde_json::Value) -> String {
    format!("{:#}\n", with_origin(value))
}

/// Name of the command in all texts.
const NAME: &str = "millrace";

/// Name that the program was called by.
static CALLED: LazyLock<String> = LazyLock::new(|| {
    let called = std::env::args_os().next();
    let stem = called.as_deref().and_then(|path| Path::new(path).file_stem()?.to_str());
    stem.unwrap_or(NAME).to_owned()
});

/// The text with the name that the program was called by: an author's own program has every command, too.
fn as_called(text: &str) -> Cow<'_, str> {
    named(text, &CALLED)
}

/// Replaces the name of the command by `called` wherever a command begins: after a backquote, two spaces, `: ` or `| `, and before a word
/// in lower case.
fn named<'a>(text: &'a str, called: &str) -> Cow<'a, str> {
    if called == NAME {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(NAME) {
        let (before, behind) = (&rest[..at], &rest[at + NAME.len()..]);
        let so_far = if before.is_empty() { out.as_str() } else { before };
        let begins = ["`", "  ", ": ", "| "].iter().any(|mark| so_far.ends_with(mark)) || so_far.is_empty();
        let is_command =
            behind.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        out += before;
        out += if begins && is_command { called } else { NAME };
        rest = behind;
    }
    Cow::Owned(out + rest)
}

#[cfg(test)]
mod tests {
    use super::{as_error, named};
    use crate::print::style::Style;

    #[test]
    fn errors_are_told_from_notes() {
        for colour in [false, true] {
            let style = Style { colour };
            let of = |mark: &str| as_error(&format!("{} eth0 is gone\n", style.bad(mark)), style);
            assert_eq!(of("error:").as_deref(), Some("eth0 is gone"));
            assert_eq!(of("bug in millrace:").as_deref(), Some("bug in millrace: eth0 is gone"));
            assert_eq!(of("note:"), None);
            assert_eq!(as_error("after the error: 3 packets\n", style), None);
        }
    }

    #[test]
    fn commands_are_named_as_called() {
        for (text, expected) in [
            ("`millrace functions` lists them", "`own functions` lists them"),
            ("Examples:\n  millrace run nat\n  millrace bench nat", "Examples:\n  own run nat\n  own bench nat"),
            ("repeat: millrace verify", "repeat: own verify"),
            ("millrace run x | millrace run y", "own run x | own run y"),
            ("millrace 0.1.0", "millrace 0.1.0"),
            ("a bug in millrace: sorry", "a bug in millrace: sorry"),
            ("the crate `millrace` is there", "the crate `millrace` is there"),
            ("crates/millrace and Millrace", "crates/millrace and Millrace"),
        ] {
            assert_eq!(named(text, "own"), expected);
            assert_eq!(named(text, "millrace"), text);
        }
    }
}
