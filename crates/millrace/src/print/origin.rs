//! Origin of figures: the program, machine, time and command, in each JSON value and page.

use std::sync::LazyLock;

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

/// The time, to the second.
static DATE: LazyLock<String> = LazyLock::new(|| {
    let now = Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
});

impl Origin {
    /// This program on this machine, now: the time is that of the first call, so all that a command writes has the same.
    pub(crate) fn here() -> Self {
        let system = rustix::system::uname();
        let [name, release] = [system.sysname(), system.release()].map(|word| word.to_string_lossy().into_owned());
        Self { date: DATE.clone(), kernel: format!("{name} {release}") }
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
