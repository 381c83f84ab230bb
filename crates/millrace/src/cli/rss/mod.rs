//! `millrace rss`: which packet sets a card can shard, and with which keys.

mod cards;
mod check;
mod question;
mod shown;
mod solve;

use clap::Subcommand;

use super::failure::Failed;

/// Ask whether a network card can shard packet sets, and have its Toeplitz keys found
///
/// Packets that share state have to reach one queue. A card picks the queue by a hash of header fields under a key; what it
/// can hash differs from card to card, and which key keeps the packets of a set together is a matter of linear algebra.
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
