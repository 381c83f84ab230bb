//! `millrace tables`: measures flow tables side by side, and recommends one.

mod advise;
mod bench;
mod capture;
mod census;
mod json;
mod report;
mod text;

use clap::Subcommand;

use super::failure::Failed;

/// Measure flow tables side by side, or recommend one for a capture
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace tables bench --entries 1M --report out/
  millrace tables advise --in a.pcap --memory 512M")]
pub(super) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Bench(bench::Args),
    Advise(advise::Args),
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    match &args.task {
        Task::Bench(args) => bench::perform(args),
        Task::Advise(args) => advise::perform(args),
    }
}
