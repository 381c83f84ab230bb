//! The `millrace` command with the shipped functions.

use std::process::ExitCode;

use millrace::catalogue::Catalogue;

fn main() -> ExitCode {
    millrace::cli::main(&Catalogue::standard())
}
