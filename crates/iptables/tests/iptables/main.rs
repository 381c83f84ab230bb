//! The parser against rule sets from the field, against iptables' own grammar tests, and against made-up text.
#![allow(clippy::print_stderr)]

mod errors;
mod grammar;
mod properties;
mod rulesets;
mod shared;
