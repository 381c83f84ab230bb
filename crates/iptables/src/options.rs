//! Options of extensions: their names, and what a rule gave for them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Fault;
use crate::value::{Condition, Family};
use crate::words::Word;

/// An option of an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// Words that follow it: 0, 1 or 2.
    pub(crate) words: usize,
    inverts: bool,
    required: bool,
}

impl Spec {
    pub(crate) const fn flag(name: &'static str) -> Self {
        Self { name, aliases: &[], words: 0, inverts: false, required: false }
    }

    pub(crate) const fn value(name: &'static str) -> Self {
        Self { words: 1, ..Self::flag(name) }
    }

    pub(crate) const fn pair(name: &'static str) -> Self {
        Self { words: 2, ..Self::flag(name) }
    }

    /// The option, with an optional `!` before it.
    pub(crate) const fn inverts(self) -> Self {
        Self { inverts: true, ..self }
    }

    pub(crate) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(crate) const fn alias(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// True for its name and its aliases.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// The number of its names that begin so.
    pub(crate) fn begins(&self, prefix: &str) -> bool {
        self.name.starts_with(prefix) || self.aliases.iter().any(|alias| alias.starts_with(prefix))
    }
}

/// An option that a rule gave.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub(crate) spec: &'static Spec,
    pub(crate) column: u32,
    pub(crate) negated: bool,
    pub(crate) words: [Option<Value<'a>>; 2],
}

/// The value of an option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) option: &'static str,
    pub(crate) text: &'a str,
    pub(crate) column: u32,
}

/// All options that a rule gave to one extension, and what else the extension must know of the rule.
#[derive(Debug)]
pub(crate) struct Args<'a> {
    pub(crate) extension: &'static str,
    /// The place where the rule names the extension, or where it used the first option of one that the protocol brings.
    pub(crate) column: u32,
    pub(crate) family: Family,
    pub(crate) protocol: Option<Condition<u8>>,
    pub(crate) specs: &'static [Spec],
    pub(crate) given: Vec<Given<'a>>,
}

impl<'a> Args<'a> {
    /// Adds an option; refuses a second one of the same name, and a `!` where none may be.
    pub(crate) fn add(&mut self, given: Given<'a>, word: &Word) -> Result<(), Fault> {
        let name = given.spec.name;
        if given.negated && !given.spec.inverts {
            let what = format!("{}: `--{name}` can't have a `!`", self.extension);
            return Err(Fault::syntax(given.column, &word.text, what));
        }
        if self.given(name).is_some() {
            let what = format!("{}: `--{name}` may be given once", self.extension);
            let again = format!("write `-m {}` again before it to test twice", self.extension);
            let fault = Fault::syntax(given.column, &word.text, what);
            let is_match = self.extension.bytes().all(|byte| !byte.is_ascii_uppercase());
            return Err(if is_match { fault.instead(again) } else { fault });
        }
        self.given.push(given);
        Ok(())
    }

    /// Refuses the rule if a required option is missing.
    pub(crate) fn complete(&self) -> Result<(), Fault> {
        for spec in self.specs.iter().filter(|spec| spec.required) {
            if self.given(spec.name).is_none() {
                return Err(self.fault(format!("{} needs `--{}`", self.extension, spec.name)));
            }
        }
        Ok(())
    }

    pub(crate) fn given(&self, name: &str) -> Option<&Given<'a>> {
        debug_assert!(self.specs.iter().any(|spec| spec.name == name), "{} has the option {name}", self.extension);
        self.given.iter().find(|given| given.spec.name == name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.given(name).is_some()
    }

    /// For an option without a value that may have a `!`: whether it has one.
    pub(crate) fn negated(&self, name: &str) -> Option<bool> {
        self.given(name).map(|given| given.negated)
    }

    pub(crate) fn value(&self, name: &str) -> Option<Value<'a>> {
        self.given(name).and_then(|given| given.words[0])
    }

    /// The value of an option that can't have a `!`, read by `read`.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(Value<'a>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.value(name).map(read).transpose()
    }

    /// The value of an option that may have a `!`, read by `read`.
    pub(crate) fn test<T>(
        &self,
        name: &str,
        read: impl FnOnce(Value<'a>) -> Result<T, Fault>,
    ) -> Result<Option<Condition<T>>, Fault> {
        let Some(given) = self.given(name) else { return Ok(None) };
        let Some(value) = given.words[0] else { return Ok(None) };
        Ok(Some(Condition { negated: given.negated, value: read(value)? }))
    }

    /// Refuses two of these options together. Returns the one that is given.
    pub(crate) fn one_of(&self, names: &[&'static str]) -> Result<Option<&Given<'a>>, Fault> {
        let mut found = self.given.iter().filter(|given| names.contains(&given.spec.name));
        let (first, second) = (found.next(), found.next());
        match (first, second) {
            (Some(first), Some(second)) => {
                let (name, other) = (second.spec.name, first.spec.name);
                let what = format!("{}: `--{name}` can't be given together with `--{other}`", self.extension);
                Err(Fault::syntax(second.column, name, what))
            }
            (first, _) => Ok(first),
        }
    }

    /// As [`Self::one_of`], and one must be given.
    pub(crate) fn exactly_one_of(&self, names: &[&'static str]) -> Result<&Given<'a>, Fault> {
        self.one_of(names)?.ok_or_else(|| {
            let names: Vec<String> = names.iter().map(|name| format!("`--{name}`")).collect();
            self.fault(format!("{} needs one of {}", self.extension, names.join(", ")))
        })
    }

    /// Refuses the option if `other` is not given.
    pub(crate) fn needs(&self, name: &str, other: &'static [&'static str]) -> Result<(), Fault> {
        match self.given(name) {
            Some(given) if !other.iter().any(|other| self.flag(other)) => {
                let what = format!("{}: `--{name}` needs `--{}`", self.extension, other.join("` or `--"));
                Err(Fault::syntax(given.column, name, what))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// An error of the extension as a whole.
    pub(crate) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::syntax(self.column, self.extension, what)
    }
}

impl Given<'_> {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.spec.name == name
    }
}
