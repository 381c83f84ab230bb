//! What the command does with functions that are wrong. This program is the command itself, over a catalogue with two of them, when
//! its environment says so; otherwise it tests that command.
#![allow(clippy::print_stdout)]

mod differs;
mod flawed;
mod panics;

use std::env;
use std::process::{Command, ExitCode, Output};

use millrace::catalogue::{Catalogue, CatalogueEntry};
use tempfile::TempDir;

const AS_COMMAND: &str = "MILLRACE_TEST_AS_COMMAND";

fn main() -> ExitCode {
    if env::var_os(AS_COMMAND).is_some() {
        let catalogue = Catalogue::standard();
        let catalogue =
            catalogue.with(CatalogueEntry::plain(|| differs::Liar)).with(CatalogueEntry::plain(|| panics::Stumbling));
        return millrace::cli::main(&flawed::add(catalogue));
    }
    // What a test runner asks of programs of this kind.
    if env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    differs::a_difference_is_told_and_kept();
    println!("a difference is told and kept ... ok");
    differs::json_tells_it_too();
    println!("json tells it too ... ok");
    differs::engines_that_agree_end_well();
    println!("engines that agree end well ... ok");
    for (engine, cores) in [("sequential", 1), ("rss", 2), ("scr", 2), ("shared", 2)] {
        panics::a_panic_names_its_packet(engine, cores);
        println!("a panic under {engine} names its packet ... ok");
    }
    flawed::a_function_that_breaks_the_contract_is_refused();
    println!("a function that breaks the contract is refused ... ok");
    flawed::reasons_are_those_that_are_declared();
    println!("reasons are those that are declared ... ok");
    panics::an_own_function_is_in_the_catalogue();
    println!("an own function is in the catalogue ... ok");
    ExitCode::SUCCESS
}

fn millrace(folder: &TempDir, line: &str) -> Output {
    millrace_with(folder, line, &[])
}

/// The command with these variables in its environment.
fn millrace_with(folder: &TempDir, line: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(AS_COMMAND, "1").envs(variables.iter().copied());
    command.current_dir(folder.path()).args(line.split_whitespace()).output().unwrap()
}

/// A folder with the demo's capture in it.
fn demo() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("demo.pcap.zst"), millrace::DEMO_CAPTURE).unwrap();
    folder
}
