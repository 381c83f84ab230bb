//! Reads rule sets of iptables and ip6tables into typed values, and prints them as `iptables-save` does.
//!
//! [`parse`] takes what `iptables-save` prints, what `iptables-restore` takes, or plain command lines as in a shell script. It checks what
//! iptables and the kernel check when a rule set is loaded. What iptables takes and Millrace doesn't is an error of its own kind, by name;
//! with [`Options::skip_unsupported`] such rules are left out and listed. [`Sets::parse`] reads what `ipset save` prints.
//!
//! ```
//! use millrace_iptables::{Options, TableKind, Target, parse};
//!
//! let text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport ssh -j ACCEPT\nCOMMIT\n";
//! let parsed = parse(text, &Options::default()).expect("the text is well-formed");
//! let filter = parsed.rules.table(TableKind::Filter).expect("the text has this table");
//! let rule = &filter.chain("INPUT").expect("it is a chain of a hook").rules[0];
//! assert_eq!(rule.target.as_deref(), Some(&Target::Accept));
//! assert_eq!(rule.to_string(), " -p tcp -m tcp --dport 22 -j ACCEPT");
//!
//! let errors = parse("iptables -A INPUT --dport 22 -j DROP", &Options::default()).unwrap_err();
//! assert_eq!(errors.to_string(), "1:19: `--dport` needs a protocol or a match that has it; write `-p tcp` before it");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod build;
mod check;
mod error;
mod extension;
mod line;
pub mod matches;
mod names;
mod options;
mod read;
mod ruleset;
mod sets;
pub mod targets;
mod text;
mod unsupported;
mod value;
mod words;

pub use error::{Error, ErrorKind, Errors, Located, OTHER_FAMILY, Position};
pub use matches::Match;
pub use ruleset::{Chain, Hook, Policy, Rule, RuleSet, Table, TableKind, Target};
pub use sets::{Entry, EntryExtra, EntryPart, Set, SetKind, Sets};
pub use targets::Action;
pub use text::{Options, Parsed, guess_family, parse};
pub use value::{Condition, Counters, Family, Interface, Interval, Mark, MarkChange, Network};
