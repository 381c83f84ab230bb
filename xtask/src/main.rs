//! The checks of Millrace. `cargo xtask check` passes everything that a change must pass; CI runs it and nothing else.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod check;
mod circles;
mod concurrency;
mod direction;
mod models;
mod packages;
mod publish;
mod readme;
mod results;
mod rtl;
mod tests;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask check [--deep]   formatting, lints, dependency direction, packages for others, all tests, the shared tables under a model
                             checker and a thread sanitizer, loss recovery under the former and as a model, a sample of the
                             sequencer in hardware, the README's own commands
                             --deep: every shared capture, every seed, ten million mutated packets, all tests optimised (an hour and a
                             half on two cores; AGREE lines tell how far it is)
cargo xtask package          every crate as others would get it: packaged, nothing outside it, a name of ours; one is built
cargo xtask models           the model of loss recovery alone (spin)
cargo xtask readme           the README's own commands alone
cargo xtask rtl              the sequencer in hardware: simulated against the software one under Verilator, every function and
                             seeded faults; synthesised with yosys, beside the paper's table 2
cargo xtask results scr      the claims of state-compute replication, measured and modelled here: docs/results/scr.md (half an hour, on a
                             machine that does nothing else); when it was cut, it goes on with the runs that target/results
                             doesn't have yet [--fresh] [--quick] [FOLDER]
cargo xtask results shared-state  what transactions cost and how they scale, the case studies, and a microbenchmark against other ways to
                             share: docs/results/shared-state.md [--fresh] [--quick] [FOLDER]
cargo xtask bench tables     our flow tables against DPDK's rte_hash (libdpdk-dev) and the standard map, with the targets
                             [-- --entries 4M --rounds 7 --only lookups|insertions|flows|memory]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["check"] => check::run(false),
        ["check", "--deep"] => check::run(true),
        ["bench", "tables", rest @ ..] => {
            let code = bench::tables(rest.strip_prefix(&["--"]).unwrap_or(rest));
            return code.unwrap_or_else(|error| fail(&error));
        }
        ["package"] => publish::check(),
        ["models"] => models::loss_recovery(&mut tests::Totals::default()),
        ["rtl"] => rtl::run(),
        ["results", page @ ("scr" | "shared-state"), rest @ ..] => match results::Options::read(rest) {
            Some(options) if *page == "scr" => results::scr(&options),
            Some(options) => results::shared_state::make(&options),
            None => {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        },
        ["readme"] => readme::run().map(|commands| println!("{commands} commands of the README ran")),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}
