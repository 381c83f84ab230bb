//! The command `millrace` with one more function.

use std::process::ExitCode;

use millrace::catalogue::{Catalogue, Entry};
use skeleton::Skeleton;

fn main() -> ExitCode {
    millrace::cli::main(&Catalogue::standard().with(Entry::of(Skeleton::new)))
}
