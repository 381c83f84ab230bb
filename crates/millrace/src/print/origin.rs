//! Origin of figures: the program, machine, time and command, in each JSON value and page.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::engines::{command, processor};

/// Program, machine and time of a page or value.
pub(crate) struct Origin {
    date: String,
    kernel: String,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const COMMIT: &str = env!("MILLRACE_COMMIT");

impl Origin {
    /// This program on this machine, now.
    pub(crate) fn here() -> Self {
        let system = rustix::system::uname();
        let [name, release] = [system.sysname(), system.release()].map(|word| word.to_string_lossy().into_owned());
        let now = Timestamp::now();
        let date = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
        Self { date, kernel: format!("{name} {release}") }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "version": VERSION, "commit": COMMIT, "date": self.date, "kernel": self.kernel, "processor": processor(),
            "command": command(),
        })
    }

    /// In a sentence.
    pub(crate) fn text(&self) -> String {
        let Self { date, kernel } = self;
        format!("Millrace {VERSION} (commit {COMMIT}), {date}, {kernel}, {}: {}", processor(), command())
    }
}

/// Adds the origin under `made_by`. A list is not changed.
pub(crate) fn with_origin(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(members) = &mut value {
        members.insert("made_by".to_owned(), Origin::here().json());
    }
    value
}
