//! The project's checks and result pages. `cargo xtask check` runs everything that a change must pass; CI runs it and nothing else.
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
cargo xtask check [--deep]   run all checks: formatting, lints, dependency direction, packages, all tests, shared tables and
                             transactions under a model checker and a thread sanitizer, loss recovery under the model
                             checker and as a spin model, a sample of the sequencer in hardware, the README's commands
                             --deep: every shared capture, every seed, ten million mutated packets, optimised tests (an hour
                             and a half on two cores; AGREE lines show the progress)
cargo xtask package          package every crate, check that each package is complete and has our name, and build one
cargo xtask models           search the spin model of loss recovery
cargo xtask readme           run the README's commands and compare their output
cargo xtask rtl              simulate the sequencer in hardware under Verilator against the software sequencer, with every
                             function and seeded faults; synthesise it with yosys and compare with the paper's table 2
cargo xtask results scr [--fresh] [--quick] [FOLDER]
                             measure and model the claims of state-compute replication and write docs/results/scr.md
                             (half an hour on an idle machine). An interrupted measurement continues: finished runs are
                             cached in target/results. --fresh measures all of them again; --quick only tests the page
cargo xtask results shared-state [--fresh] [--quick] [FOLDER]
                             measure the cost and the scaling of transactions, the case studies, and a microbenchmark
                             against other ways to share, and write docs/results/shared-state.md
cargo xtask results efsm [--fresh] [--quick] [FOLDER]
                             measure pipelines of stages (figures 4, 6 and 7 of the Open Packet Processor) and write
                             docs/results/efsm.md
cargo xtask results l2-l7 [--fresh] [--quick] [FOLDER]
                             measure layers 2 to 7 (tables 1 to 6 and figure 5 of Wang and others) over the shared captures and
                             write docs/results/l2-l7.md (five minutes). All result pages take --program=FILE to measure a program
                             that is built already
cargo xtask results live [--quick] [FOLDER]
                             measure functions on live interfaces beside bare AF_XDP loops and the kernel, as root, and write
                             docs/results/live.md (three minutes, nothing is cached)
cargo xtask results chains [--fresh] [--quick] [FOLDER]
                             measure chains beside their functions, payload splitting, reordering and offload, and write
                             docs/results/chains.md
cargo xtask bench tables [-- --entries 4M --rounds 7 --only lookups|insertions|flows|memory]
                             compare our flow tables with DPDK's rte_hash (needs libdpdk-dev) and the standard map
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
        ["results", page @ ("scr" | "shared-state" | "efsm" | "l2-l7" | "live" | "chains"), rest @ ..] => {
            match results::Options::read(rest) {
                Some(options) if *page == "scr" => results::scr(&options),
                Some(options) if *page == "l2-l7" => results::l2_l7::make(&options),
                Some(options) if *page == "live" => results::live::make(&options),
                Some(options) if *page == "chains" => results::chains::make(&options),
                Some(options) if *page == "efsm" => results::efsm::make(&options),
                Some(options) => results::shared_state::make(&options),
                None => {
                    eprint!("{HELP}");
                    return ExitCode::from(2);
                }
            }
        }
        ["readme"] => readme::run(readme::Built::No).map(|commands| println!("{commands} commands of the README ran")),
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
