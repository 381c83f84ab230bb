//! Reads what a command does, and to which chain: `-A INPUT`, `-D INPUT 3`, `-P FORWARD DROP`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Fault;
use crate::ruleset::Policy;
use crate::targets::ACTIONS;
use crate::unsupported;
use crate::words::Word;

use super::{Core, Reader, row};

/// Longest name of a chain, in bytes.
pub(crate) const CHAIN_BYTES_MAX: usize = 28;

/// A command with its chain.
#[derive(Debug)]
pub(crate) enum Command {
    Append {
        chain: String,
    },
    Insert {
        chain: String,
        number: usize,
    },
    Replace {
        chain: String,
        number: usize,
    },
    Delete {
        chain: String,
    },
    DeleteNumber {
        chain: String,
        number: usize,
    },
    New {
        chain: String,
    },
    DeleteChain {
        chain: Option<String>,
    },
    Flush {
        chain: Option<String>,
    },
    Zero {
        chain: Option<String>,
    },
    Rename {
        from: String,
        to: String,
    },
    Policy {
        chain: String,
        policy: Policy,
    },
    /// A command that only lists rules: `-L`, `-S`.
    Look,
}

impl<'a> Reader<'a> {
    pub(super) fn command(&mut self, core: Core, word: &'a Word) -> Result<(), Fault> {
        if let Some((_, column, _)) = self.command.as_ref().filter(|_| core != Core::Zero) {
            let what = format!("there is a command already, in column {column}");
            return Err(Fault::syntax(word.column, &word.text, what));
        }
        let mut words = Vec::new();
        let (least, most) = match core {
            Core::Append | Core::Check | Core::NewChain => (1, 1),
            Core::Delete | Core::Insert => (1, 2),
            Core::Replace | Core::RenameChain | Core::Policy => (2, 2),
            Core::List | Core::ListRules => (0, 2),
            _ => (0, 1),
        };
        while words.len() < most {
            let next = if words.len() < least { self.take() } else { self.take_plain() };
            match next {
                Some(next) => words.push(next),
                None if words.len() < least => {
                    let what = format!("`{}` needs {least} values", word.text);
                    return Err(Fault::syntax(word.column, &word.text, what));
                }
                None => break,
            }
        }
        self.command = Some((core, word.column, words));
        Ok(())
    }

    pub(super) fn to_command(&self, core: Core, column: u32, words: &[&Word]) -> Result<Command, Fault> {
        let name = |nth: usize| words.get(nth).map(|word| word.text.clone());
        let chain = || name(0).unwrap_or_default();
        if let Some(word) = words.first().filter(|word| word.text.len() > CHAIN_BYTES_MAX) {
            return Err(long_chain(word));
        }
        let number = |word: &Word| match word.text.parse::<usize>() {
            Ok(number) if number > 0 => Ok(number),
            Ok(_) | Err(_) => {
                Err(Fault::syntax(word.column, &word.text, format!("`{}` is not the number of a rule", word.text)))
            }
        };
        self.refuse_interfaces(core, &chain())?;
        Ok(match core {
            Core::Append => Command::Append { chain: chain() },
            Core::Insert => {
                Command::Insert { chain: chain(), number: words.get(1).map_or(Ok(1), |word| number(word))? }
            }
            Core::Replace => Command::Replace { chain: chain(), number: number(words[1])? },
            Core::Delete => match words.get(1) {
                Some(word) => Command::DeleteNumber { chain: chain(), number: number(word)? },
                None => Command::Delete { chain: chain() },
            },
            Core::NewChain => {
                new_chain(words[0])?;
                Command::New { chain: chain() }
            }
            Core::DeleteChain => Command::DeleteChain { chain: name(0) },
            Core::Flush => Command::Flush { chain: name(0) },
            Core::Zero => Command::Zero { chain: name(0) },
            Core::RenameChain => {
                new_chain(words[1])?;
                Command::Rename { from: chain(), to: words[1].text.clone() }
            }
            Core::Policy => Command::Policy { chain: chain(), policy: policy(words[1])? },
            Core::List | Core::ListRules => Command::Look,
            _ => {
                let what = "`-C` asks whether a rule is there, and changes nothing";
                return Err(Fault::unsupported(column, "-C", "-C", what).instead("leave the line out"));
            }
        })
    }

    /// An interface that a packet doesn't have in the chain of a hook.
    fn refuse_interfaces(&self, core: Core, chain: &str) -> Result<(), Fault> {
        if !matches!(core, Core::Append | Core::Insert | Core::Replace | Core::Delete) {
            return Ok(());
        }
        let (wrong, option, given) = match chain {
            "OUTPUT" | "POSTROUTING" => (&self.rule.input, "-i", self.once.contains(&Core::InInterface)),
            "PREROUTING" | "INPUT" => (&self.rule.output, "-o", self.once.contains(&Core::OutInterface)),
            _ => return Ok(()),
        };
        if !given {
            return Ok(());
        }
        let column = wrong.as_ref().map_or_else(
            || self.words.iter().find(|word| word.text == option).map_or(1, |word| word.column),
            |interface| interface.at.column,
        );
        let (reason, other) = match option {
            "-i" => ("packets there have no interface that they came in by", "-o"),
            _ => ("packets there have no interface yet that they leave by", "-i"),
        };
        let what = format!("`{option}` can't be in {chain}: {reason}");
        Err(Fault::syntax(column, option, what).instead(format!("write `{other}`, or use another chain")))
    }
}

pub(crate) fn policy(word: &Word) -> Result<Policy, Fault> {
    match word.text.as_str() {
        "ACCEPT" => Ok(Policy::Accept),
        "DROP" => Ok(Policy::Drop),
        other => {
            let what = format!("`{other}` is not a policy");
            Err(Fault::syntax(word.column, other, what).instead("write `ACCEPT` or `DROP`"))
        }
    }
}

pub(crate) fn long_chain(word: &Word) -> Fault {
    let what = format!("the chain's name `{}` is longer than {CHAIN_BYTES_MAX} bytes", word.text);
    Fault::syntax(word.column, &word.text, what)
}

/// Refuses names that a new chain can't have.
fn new_chain(word: &Word) -> Result<(), Fault> {
    let name = word.text.as_str();
    let wrong = |what: String| Err(Fault::syntax(word.column, name, what));
    match name {
        _ if name.len() > CHAIN_BYTES_MAX => Err(long_chain(word)),
        "" => wrong("the chain has no name".to_owned()),
        _ if name.starts_with(['-', '!']) => wrong(format!("the chain's name `{name}` begins with `-` or `!`")),
        _ if name.contains(char::is_whitespace) => wrong(format!("the chain's name `{name}` has a space in it")),
        _ if matches!(name, "ACCEPT" | "DROP" | "RETURN" | "QUEUE" | "NOTRACK")
            || row(ACTIONS, name).is_some()
            || unsupported::of_target(name).is_some() =>
        {
            wrong(format!("the chain can't be called `{name}`, which is a target"))
        }
        _ => Ok(()),
    }
}
