//! Every command as a user types it. One program for all of them: each would be linked with everything anew.
#![allow(clippy::print_stderr)]

mod bench;
mod broken_input;
mod commands;
mod folder;
mod sequenced;
mod tables;
