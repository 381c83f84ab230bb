//! Errors with a place in the text, and how one error of a word becomes one of a file.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Line and column in the text, both from 1. A column counts characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// A value and its place in the text. Two of them are equal if their values are.
#[derive(Clone, Copy, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The place where it begins.
    pub at: Position,
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Located<T> {}

impl<T> core::ops::Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The kind of an error, by who refuses the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// iptables refuses it as well: the text is wrong.
    Syntax,
    /// iptables takes the line, but the kernel refuses to load it.
    Load,
    /// iptables takes it, Millrace doesn't.
    Unsupported,
}

impl ErrorKind {
    /// The kind in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Load => "load",
            Self::Unsupported => "unsupported",
        }
    }
}

/// One thing that is wrong with a text. It prints as `rules.v4:17:24: what is wrong; what to write instead`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Name of the text, as [`Options::name`](crate::Options::name) gave it. May be empty.
    pub name: String,
    /// The place of the word.
    pub at: Position,
    /// The kind.
    pub kind: ErrorKind,
    /// The word at fault. Empty if one is missing.
    pub word: String,
    /// The reason.
    pub what: String,
    /// The correct form, if it is known.
    pub instead: Option<String>,
    /// The name that iptables has for the unsupported feature: `owner`, `TPROXY`. Empty for other kinds.
    pub feature: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}:", self.name)?;
        }
        write!(f, "{}:{}: {}", self.at.line, self.at.column, self.what)?;
        match &self.instead {
            Some(instead) => write!(f, "; {instead}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Error {}

/// All errors of a text, by line. It prints one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// The errors; at least one.
    pub errors: Vec<Error>,
    /// The number of errors that [`Options::errors_max`](crate::Options::errors_max) left out.
    pub left_out: usize,
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, error) in self.errors.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n{more} more"),
        }
    }
}

impl core::error::Error for Errors {}

/// The [feature](Error::feature) of a line that is for the other family.
pub const OTHER_FAMILY: &str = "other family";

/// An error of a word, before it is known which line and text it is in.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) column: u32,
    pub(crate) kind: ErrorKind,
    pub(crate) word: String,
    pub(crate) what: String,
    pub(crate) instead: Option<String>,
    pub(crate) feature: String,
    /// True if the word belongs to the other family: then the reader's options say what to do.
    pub(crate) is_other_family: bool,
}

impl Fault {
    pub(crate) fn syntax(column: u32, word: &str, what: impl Into<String>) -> Self {
        Self {
            column,
            kind: ErrorKind::Syntax,
            word: word.to_owned(),
            what: what.into(),
            instead: None,
            feature: String::new(),
            is_other_family: false,
        }
    }

    pub(crate) fn load(column: u32, word: &str, what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Load, ..Self::syntax(column, word, what) }
    }

    pub(crate) fn unsupported(column: u32, word: &str, feature: &str, what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unsupported, feature: feature.to_owned(), ..Self::syntax(column, word, what) }
    }

    /// Adds what to write instead.
    pub(crate) fn instead(mut self, instead: impl Into<String>) -> Self {
        self.instead = Some(instead.into());
        self
    }

    /// Marks a word of the other family.
    pub(crate) fn of_other_family(self) -> Self {
        Self { is_other_family: true, ..self }
    }

    pub(crate) fn on(self, name: &str, line: u32) -> Error {
        Error {
            name: name.to_owned(),
            at: Position { line, column: self.column },
            kind: self.kind,
            word: self.word,
            what: self.what,
            instead: self.instead,
            feature: self.feature,
        }
    }
}
