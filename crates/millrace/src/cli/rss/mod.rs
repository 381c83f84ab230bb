//! `millrace rss`: which packet sets a card can shard, and with which keys.

mod cards;
mod check;
mod question;
mod shown;
mod solve;

use clap::Subcommand;

use super::failure::Failed;

/// Check whether a network card can shard packet sets, and find its Toeplitz keys
///
/// Packets that share state must reach the same queue. A card selects the queue by hashing header fields with a key. Cards differ in
/// the fields that they can hash. Linear algebra finds a key that keeps the packets of a set together.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace rss check my-sets.toml --nic mlx5
  millrace rss solve --sets \"lan: src, wan: dst\" --nic ice
  millrace rss cards ice")]
pub(super) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Check(check::Args),
    Solve(solve::Args),
    Cards(cards::Args),
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    match &args.task {
        Task::Check(args) => check::perform(args),
        Task::Solve(args) => solve::perform(args),
        Task::Cards(args) => cards::perform(args),
    }
}
