//! Colours, only on a terminal and never with `NO_COLOR`.

use std::env;
use std::fmt::Display;
use std::io::{IsTerminal, stderr, stdout};

/// True if text on an output is coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) colour: bool,
}

impl Style {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self { colour: wanted(stdout().is_terminal()) }
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self { colour: wanted(stderr().is_terminal()) }
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.with("2", text)
    }

    pub(crate) fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }

    pub(crate) fn bad(self, text: impl Display) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn warn(self, text: impl Display) -> String {
        self.with("33", text)
    }

    fn with(self, code: &str, text: impl Display) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

fn wanted(terminal: bool) -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    terminal && !refused && !dumb
}
