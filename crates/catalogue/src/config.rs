//! Settings of a function: a TOML file, values that override it, and errors with their position.

mod messages;

use std::fmt;
use std::ops::Range;

use nf::{ConfigKey, Description};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Source of a function's configuration: the text of a file, and values that override it.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    file: Option<File>,
    overrides: Vec<Override>,
}

#[derive(Clone, Debug)]
struct File {
    name: String,
    text: String,
}

/// A value given as `key=value`.
#[derive(Clone, Debug)]
struct Override {
    /// Where it was given, for errors.
    place: String,
    key: String,
    value: Value,
    /// True if the value is the text of a file, in which errors have places.
    is_file: bool,
}

impl Settings {
    /// Settings from the text of a file; `name` is for errors.
    #[must_use]
    pub fn from_file(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: Some(File { name: name.into(), text: text.into() }), overrides: Vec::new() }
    }

    /// Settings from a table; `name` is for errors.
    #[must_use]
    pub fn from_table(name: &str, table: &Table) -> Self {
        let mut settings = Self::default();
        settings.adopt(name, "", table);
        settings
    }

    fn adopt(&mut self, name: &str, prefix: &str, table: &Table) {
        for (key, value) in table {
            let key = format!("{prefix}{key}");
            match value {
                Value::Table(inner) => self.adopt(name, &format!("{key}."), inner),
                value => {
                    let place = format!("{name}: {key} = {value}");
                    self.overrides.push(Override { place, key, value: value.clone(), is_file: false });
                }
            }
        }
    }

    /// Overrides a value with `key=value`. The value is written as in the file; quotes around text may be omitted.
    ///
    /// # Errors
    /// There is no `=`.
    pub fn set(&mut self, given: &str) -> Result<(), ConfigError> {
        let Some((key, text)) = given.split_once('=') else {
            return Err(ConfigError::plain(format!("--set {given}: write KEY=VALUE")));
        };
        let (key, text) = (key.trim().to_owned(), text.trim());
        let parsed =
            toml::from_str::<Table>(&format!("value = {text}")).ok().and_then(|mut table| table.remove("value"));
        let value = parsed.unwrap_or_else(|| Value::String(text.to_owned()));
        self.overrides.push(Override { place: format!("--set {given}"), key, value, is_file: false });
        Ok(())
    }

    /// Sets `key` to the text of a file. `name` is the file's, for errors.
    pub fn set_text(&mut self, key: &str, name: impl Into<String>, text: String) {
        let value = Value::String(text);
        self.overrides.push(Override { place: name.into(), key: key.to_owned(), value, is_file: true });
    }

    /// Sets `key` to the table that a TOML file holds. `name` is the file's, for errors.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn set_table(&mut self, key: &str, name: impl Into<String>, text: String) -> Result<(), ConfigError> {
        let file = File { name: name.into(), text };
        let table: Table = toml::from_str(&file.text).map_err(|error| {
            let place = error.span().map(|span| file.place(span));
            ConfigError { message: messages::plain(error.message()), place }
        })?;
        let value = Value::Table(table);
        self.overrides.push(Override { place: file.name, key: key.to_owned(), value, is_file: true });
        Ok(())
    }

    /// Reads the configuration from these settings.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn read<C: DeserializeOwned>(&self, function: &Description) -> Result<C, ConfigError> {
        let mut table = Table::new();
        let mut config = match &self.file {
            Some(file) => {
                let config = toml::from_str::<C>(&file.text).map_err(|error| file.error(&error, function))?;
                table = toml::from_str(&file.text).map_err(|error| file.error(&error, function))?;
                config
            }
            None => toml::from_str::<C>("").map_err(|error| ConfigError::plain(explain(error.message(), function)))?,
        };
        // All at once, for values may only make sense together.
        let mut all = table.clone();
        self.overrides.iter().for_each(|Override { key, value, .. }| insert(&mut all, key, value.clone()));
        if !self.overrides.is_empty()
            && let Ok(config) = of_table(&all)
        {
            return Ok(config);
        }
        // One at a time, so that the value at fault can be named.
        for Override { place, key, value, is_file } in &self.overrides {
            insert(&mut table, key, value.clone());
            config = of_table(&table).map_err(|error| {
                ConfigError::plain(match is_file {
                    // Its lines begin with their places, if they have any.
                    true if messages::unknown_key(error.message()).is_none() => self.in_files(place, error.message()),
                    _ => format!("{place}: {}", explain(error.message(), function)),
                })
            })?;
        }
        Ok(config)
    }

    /// Lines of errors, each behind the name of the file that it is about. A line may begin with the key of a file, or with a place in the
    /// file `name`. A message without places is about that file too.
    fn in_files(&self, name: &str, message: &str) -> String {
        let is_place = |text: &str| text.split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let files = || self.overrides.iter().filter(|file| file.is_file);
        let of_key = |line: &str| {
            files().find_map(|Override { place, key, .. }| {
                let rest = line.strip_prefix(key.as_str())?.strip_prefix(':').filter(|rest| is_place(rest))?;
                Some(format!("{place}:{rest}"))
            })
        };
        let mut lines = message.trim_end().lines().map(|line| match is_place(line) {
            true => (true, format!("{name}:{line}")),
            false => of_key(line).map_or_else(|| (false, line.to_owned()), |line| (true, line)),
        });
        let (has_place, mut text) = lines.next().unwrap_or_default();
        if !has_place {
            text = format!("{name}: {text}");
        }
        lines.fold(text, |text, (_, line)| format!("{text}\n{line}"))
    }

    /// All values as lines of text, sorted by key. Equal for settings that mean the same, wherever they stood.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut all = self.file.as_ref().and_then(|file| toml::from_str::<Table>(&file.text).ok()).unwrap_or_default();
        self.overrides.iter().for_each(|Override { key, value, .. }| insert(&mut all, key, value.clone()));
        let mut lines = Vec::new();
        flatten("", &all, &mut lines);
        lines.sort_unstable();
        lines.concat()
    }

    /// The name of the table `key` of these settings in errors.
    pub(crate) fn place_of(&self, key: &str) -> String {
        match &self.file {
            Some(file) => format!("{}, [{key}]", file.name),
            None => format!("[{key}]"),
        }
    }

    /// An error about the settings as a whole.
    #[must_use]
    pub fn error(&self, message: String) -> ConfigError {
        match &self.file {
            Some(file) => ConfigError::plain(format!("{}: {message}", file.name)),
            None => ConfigError::plain(message),
        }
    }
}

/// Reads a configuration by way of its text, as a file's is read: a second deserializer would be compiled for each function.
fn of_table<C: DeserializeOwned>(table: &Table) -> Result<C, toml::de::Error> {
    toml::from_str(&table.to_string())
}

/// Adds a line for each value of a table.
fn flatten(prefix: &str, table: &Table, lines: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => flatten(&format!("{prefix}{key}."), inner, lines),
            value => lines.push(format!("{prefix}{key} = {value}\n")),
        }
    }
}

/// Puts a value under a key with dots, in place of what stands there.
fn insert(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((head, rest)) => {
            let level = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
            if !level.is_table() {
                *level = Value::Table(Table::new());
            }
            if let Value::Table(inner) = level {
                insert(inner, rest, value);
            }
        }
    }
}

/// An error in a function's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
    place: Option<Place>,
}

/// Where in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: String,
    line: usize,
    column: usize,
    text: String,
    width: usize,
}

impl ConfigError {
    const fn plain(message: String) -> Self {
        Self { message, place: None }
    }
}

impl File {
    fn error(&self, error: &toml::de::Error, function: &Description) -> ConfigError {
        let place = error.span().map(|span| self.place(span));
        let message = match &place {
            Some(_) => explain(error.message(), function),
            None => format!("{}: {}", self.name, explain(error.message(), function)),
        };
        ConfigError { message, place }
    }

    fn place(&self, span: Range<usize>) -> Place {
        let start = span.start.min(self.text.len());
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let text = self.text[line_start..].lines().next().unwrap_or_default();
        let column = self.text[line_start..start].chars().count();
        let width =
            self.text[start..span.end.clamp(start, line_start + text.len().max(start - line_start))].chars().count();
        Place {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            text: text.to_owned(),
            width: width.max(1),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Place { file, line, column, text, width }) = &self.place else {
            return f.write_str(&self.message);
        };
        let gutter = line.to_string().len();
        writeln!(f, "{file}:{line}:{column}: {}", self.message)?;
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{line} | {text}")?;
        write!(f, "{:gutter$} | {:indent$}{:^<width$}", "", "", "", indent = column - 1)
    }
}

impl std::error::Error for ConfigError {}

/// The message in the words of a configuration file, with the valid names.
fn explain(message: &str, function: &Description) -> String {
    let Some((unknown, here)) = messages::unknown_key(message) else { return messages::plain(message) };
    let did_you_mean = |names: &[&str]| {
        let guess = nearest(unknown, names.iter().copied());
        guess.map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default()
    };
    let names: Vec<&str> = function.keys.iter().map(|ConfigKey { name, .. }| *name).collect();
    // What a list's entries have is not in the catalogue.
    let in_catalogue = |key: &&str| names.iter().any(|name| name.split('.').any(|part| part == *key));
    if !here.iter().all(in_catalogue) {
        return format!("`{unknown}` is not a key here{} (keys here: {})", did_you_mean(&here), here.join(", "));
    }
    let known = if names.is_empty() { "has no keys".to_owned() } else { format!("knows: {}", names.join(", ")) };
    format!("`{unknown}` is not a key of {}{} ({} {known})", function.name, did_you_mean(&names), function.name)
}

/// The most similar name, if one is similar enough.
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.map(|name| (strsim::jaro_winkler(given, name.rsplit('.').next().unwrap_or(name)), name));
    let best = near.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}
