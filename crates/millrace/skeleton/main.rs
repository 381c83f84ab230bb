//! The `millrace` command with this function added.

use std::process::ExitCode;

use millrace::catalogue::{Catalogue, CatalogueEntry};
use skeleton::Skeleton;

fn main() -> ExitCode {
    millrace::cli::main(&Catalogue::standard().with(CatalogueEntry::of(Skeleton::new)))
}
