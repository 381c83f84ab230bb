//! Where figures come from: what each JSON value and each page says of the program, the machine, the time and the command.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::engines::{command, processor};

/// What made a page or a value, where and when.
pub(crate) struct Origin {
    date: String,
    kernel: String,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const COMMIT: &str = env!("MILLRACE_COMMIT");

impl Origin {
    /// This program, here and now.
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

/// The value with what made it, under `made_by`. A list stays as it is: it has no room for that.
pub(crate) fn with_origin(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(members) = &mut value {
        members.insert("made_by".to_owned(), Origin::here().json());
    }
    value
}
