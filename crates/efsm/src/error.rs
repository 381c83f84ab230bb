//! Errors in a program's text.

use alloc::string::String;
use core::fmt;

/// A place in a program's text. Lines and columns count from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// An error in a program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The place of the offending word.
    pub place: Place,
    /// The reason, and the correct form.
    pub message: String,
}

impl Error {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.line, self.place.column, self.message)
    }
}

impl core::error::Error for Error {}
