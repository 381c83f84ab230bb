//! The `millrace` command, over the functions that ship with it.

use std::process::ExitCode;

use millrace::catalogue::Catalogue;

fn main() -> ExitCode {
    millrace::cli::main(&Catalogue::standard())
}
